//! A scanner that is made up here: this file and one line in a list are all that it takes.

use crate::mail::attached;
use std::sync::Arc;
use std::time::Duration;
use weir_scan::content::Content;
use weir_scan::health::Health;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{Panel, Settings};
use weir_scan::registry::REGISTRY;
use weir_scan::scanner::{
    Answer, Common, Configured, Found, Harm, Later, MemoKey, Scanner, ScannerKind, StartError, Wants,
};
use weir_scan::verdict::Outcome;
use weir_scan::worker::scanner::Workers;
use weir_settings::{Reader, kinds};

const KIND: ScannerKind = ScannerKind { name: "words", read };

#[derive(Debug, Clone)]
struct Words {
    unwanted: String,
    wants: Wants,
}

fn read(reader: &mut Reader<'_>, _: &mut Common) -> Option<Box<dyn Configured>> {
    let unwanted = reader.section("scan.words", "Words that nobody wants to read", |s| {
        s.key("unwanted", "The word; off while it is empty", kinds::text("", "text"))
    });
    (!unwanted.is_empty()).then(|| Box::new(Words { unwanted, wants: Wants::Message }) as Box<dyn Configured>)
}

impl Configured for Words {
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>> {
        Box::pin(async { Ok(Arc::new(self.clone()) as Arc<dyn Scanner>) })
    }

    fn wants(&self) -> Wants {
        self.wants
    }
}

impl Scanner for Words {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn deadline(&self, _: u64) -> Duration {
        Duration::from_secs(60)
    }

    fn scan<'a>(&'a self, content: &'a Content, _: &'a About) -> Later<'a, Answer> {
        Box::pin(async {
            let mut bytes = vec![0; content.length() as usize];
            if let Err(error) = content.read_at(&mut bytes, 0) {
                return Answer::Failed { problem: error.to_string() };
            }
            let text = String::from_utf8_lossy(&bytes);
            match text {
                _ if text.contains("locked") => Answer::NotOpened { reason: "it is locked".into() },
                _ if text.contains(&self.unwanted) => {
                    let harm = Harm::Forbidden(format!("it says {}", self.unwanted));
                    Answer::Bad(vec![Found { harm, place: String::new() }])
                }
                _ => Answer::Clean,
            }
        })
    }

    fn memo_key(&self) -> Option<MemoKey> {
        Some(MemoKey { version: self.unwanted.as_str().into(), keep: Duration::MAX })
    }

    fn version(&self) -> Option<String> {
        Some(format!("words {}", self.unwanted))
    }

    fn health(&self) -> Vec<Health> {
        vec![Health {
            scanner: KIND.name.to_owned(),
            address: String::new(),
            up: true,
            version: String::new(),
            signature_age_s: None,
            problem: String::new(),
            advice: String::new(),
        }]
    }
}

async fn said(panel: &Panel, message: &[u8]) -> Vec<(String, String, String)> {
    let verdict = panel.inspect(&Content::of(message).unwrap(), &Arc::new(About::default())).await;
    let findings = verdict.findings.into_iter().filter(|finding| finding.scanner == KIND.name);
    findings.map(|f| (f.scanner, f.outcome.to_string(), f.place)).collect()
}

fn row(outcome: &str, place: &str) -> Vec<(String, String, String)> {
    vec![(KIND.name.to_owned(), outcome.to_owned(), place.to_owned())]
}

#[tokio::test]
async fn a_new_scanner_is_one_file_and_one_line() {
    let kinds: Vec<&ScannerKind> = REGISTRY.iter().copied().chain([&KIND]).collect();
    let mut off = Reader::new("");
    let settings = Settings::read_kinds(&kinds, &mut off, 5);
    assert!(settings.find::<Workers>().is_some() && settings.find::<Words>().is_none());
    let sections: Vec<&str> = off.finish().sections.iter().map(|(name, _)| *name).collect();
    assert!(sections.contains(&"scan.words") && sections.contains(&"scan.clamav"));

    let mut on = Reader::new("[scan.words]\nunwanted = \"marker\"\n");
    let settings = Settings::read_kinds(&[&KIND], &mut on, 5);
    let panel = Panel::start(settings).await.unwrap();
    assert_eq!(panel.version(), "words marker");
    assert_eq!(panel.health().iter().map(|health| health.scanner.as_str()).collect::<Vec<_>>(), ["words"]);
    for _ in 0..2 {
        assert_eq!(said(&panel, b"Subject: x\r\n\r\nhello\r\n").await, row("clean", ""));
        assert_eq!(said(&panel, b"Subject: x\r\n\r\na marker\r\n").await, row("forbidden: it says marker", ""));
        assert_eq!(said(&panel, b"Subject: x\r\n\r\nlocked\r\n").await, row("not scanned: it is locked", ""));
    }
    let feed = panel.for_feed(3);
    assert_eq!(said(&feed, b"Subject: x\r\n\r\na marker\r\n").await, row("forbidden: it says marker", ""));
}

#[tokio::test]
async fn who_wants_attachments_is_shown_each_by_itself() {
    let workers = Workers { pool: crate::workers::settings(&[]), ..Workers::default() };
    let words = Words { unwanted: "marker".into(), wants: Wants::Attachments };
    let panel = Panel::start(Settings::default().with(workers).with(words.clone())).await.unwrap();
    let in_file = attached("notes.txt", b"a marker in a file\n");
    assert_eq!(said(&panel, &in_file).await, row("forbidden: it says marker", "notes.txt"));
    assert_eq!(said(&panel, b"Subject: a marker\r\n\r\nnot attached\r\n").await, row("clean", ""));
    let nobody = Panel::start(Settings::default().with(words)).await.unwrap();
    assert!(said(&nobody, &in_file).await[0].1.starts_with("failed: "), "without workers nobody opens mail");
    let verdict = nobody.inspect(&Content::of(&in_file).unwrap(), &Arc::new(About::default())).await;
    assert!(matches!(verdict.findings[0].outcome, Outcome::Failed { .. }));
}
