//! Real spam filters: what they call spam, and what they do not.

use std::sync::Arc;
use std::time::Duration;
use weir_peers::{Rspamd, Spamd};
use weir_scan::address::Address;
use weir_scan::content::Content;
use weir_scan::deadline::Deadline;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{self, Panel};
use weir_scan::spam::Settings;
use weir_scan::verdict::Outcome;
use weir_scan::wishes::Wish;
use weir_scan::{rspamd, spamd};

/// In two pieces, so that nobody takes this file for spam.
const GTUBE: [&str; 2] = ["XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD", "-ANTI-UBE-TEST-EMAIL*C.34X"];

fn message(text: &str) -> Vec<u8> {
    format!(
        "From: Ann <ann@example.org>\r\nTo: bob@example.org\r\nDate: Sun, 15 Nov 2026 13:00:00 +0000\r\n\
         Message-ID: <1@example.org>\r\nSubject: notes\r\n\r\n{text}\r\n"
    )
    .into_bytes()
}

async fn judged(settings: panel::Settings, scanner: &str) {
    let panel = Panel::start(settings).await.unwrap();
    let about = Arc::new(About {
        id: "38exdmxn6hex5qydvved".into(),
        client: None,
        helo: String::new(),
        login: Some("ann".into()),
        from: "ann@example.org".into(),
        to: vec!["bob@example.org".into()],
        ..About::default()
    });
    for (text, spam) in [(GTUBE.concat().as_str(), true), ("Here are the notes of our meeting.", false)] {
        let verdict = panel.inspect(&Content::of(&message(text)).unwrap(), &about).await;
        let finding = &verdict.findings[0];
        assert_eq!(finding.scanner, scanner);
        assert_eq!(matches!(finding.outcome, Outcome::Spam { .. }), spam, "{verdict:?}");
        assert_eq!(verdict.is_clean(), !spam, "{verdict:?}");
    }
}

fn at(socket: std::path::PathBuf) -> Settings {
    let deadline = Deadline { base: Duration::from_secs(60), per_mib: Duration::ZERO };
    Settings { deadline, ..Settings::at(Address::Socket(socket)) }
}

#[tokio::test]
async fn rspamd_knows_spam() {
    let rspamd = Rspamd::start();
    let settings = rspamd::Settings { spam: at(rspamd.socket()), password: String::new(), obeyed: true };
    judged(panel::Settings::default().with(settings.clone()), "rspamd").await;
    // What a milter would be told, in the words of the real one.
    let panel = Panel::start(panel::Settings::default().with(settings)).await.unwrap();
    for (action, wish) in [
        ("soft reject", Wish::Later),
        ("greylist", Wish::Pass),
        ("add header", Wish::Mark),
        ("rewrite subject", Wish::Mark),
        ("reject", Wish::Keep),
    ] {
        let text =
            String::from_utf8(message("hello")).unwrap().replace("Subject:", &format!("X-Wish: {action}\r\nSubject:"));
        let verdict = panel.inspect(&Content::of(text.as_bytes()).unwrap(), &Arc::default()).await;
        let wishes = verdict.wishes.expect("wishes");
        assert_eq!((wishes.action, wishes.words.as_str()), (wish, "as the message wishes"), "{action}");
        assert!(wishes.lines().contains("X-Spamd-Bar: "), "{action}: {}", wishes.lines());
        let subject = (action == "rewrite subject").then_some("*** SPAM *** notes");
        assert_eq!(wishes.subject.as_deref(), subject, "{action}");
    }
}

#[tokio::test]
async fn spamassassin_knows_spam() {
    let spamd = Spamd::start();
    let settings = spamd::Settings { spam: at(spamd.socket()) };
    judged(panel::Settings::default().with(settings), "spamassassin").await;
}
