//! Notices: what waits for nothing, what is written once, and what comes daily.

use crate::gate::{DAY, Gate, Gone, START_NS, TEXT, letter_to, notice_settings, open_spool};
use crate::held::mail_to;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_core::throttle::{Params, Recipients};
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_mail::notices::{self, NoticeEvent, NoticeParts, Notices};
use weir_mail::pipeline::Pipeline;
use weir_mail::submission::Settings;
use weir_mail::throttle::NoticeKind;
use weir_store::records::Records;
use weir_store::spool::faults::{Call, Faults};

/// A webhook that hangs keeps no mail waiting, and what is tried again is not what is in the spool already.
#[tokio::test(flavor = "multi_thread")]
async fn notices_wait_for_no_webhook_and_are_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (spool, _) = open_spool(&folder.path().join("spool"), Some(faults.clone())).await;
    let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook =
        weir_foundation::webhook::Webhook::parse(&format!("http://{}/", silent.local_addr().unwrap())).unwrap();
    let settings = notices::Settings { webhook: Some(webhook), ..notice_settings() };
    let (gone, clock): (Gone, Clock) = (Gone::default(), Arc::new(|| Instant(START_NS)));
    let (held, pipeline) = (folder.path().join("held"), Pipeline::ending_in(gone.clone()));
    let notices = Notices::start(settings, NoticeParts { spool, records, held, pipeline, clock });
    // The second mail of the first notice cannot be written at once.
    faults.fail(Call::Sync, 1, 5);
    for user in ["ann", "bob"] {
        let contact = format!("{user}@elsewhere.example");
        notices.tell(NoticeEvent { kind: NoticeKind::Stopped, identity: user.into(), contact });
    }
    let written = async {
        while gone.recipients().len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(8), written).await.expect("the webhook is patient for ten seconds");
    let expected = ["ann@elsewhere.example", "admin@example.org", "bob@elsewhere.example", "admin@example.org"];
    assert_eq!(gone.recipients(), expected);
}

/// The first notice that a full disk does not take must not keep the webhook from hearing of the next stop.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_hears_of_stops_while_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (spool, _) = open_spool(&folder.path().join("spool"), Some(faults.clone())).await;
    let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook =
        weir_foundation::webhook::Webhook::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let settings = notices::Settings { webhook: Some(webhook), ..notice_settings() };
    let (gone, clock): (Gone, Clock) = (Gone::default(), Arc::new(|| Instant(START_NS)));
    let (held, pipeline) = (folder.path().join("held"), Pipeline::ending_in(gone.clone()));
    (0..200).for_each(|_| faults.fail(Call::Sync, 0, 28));
    let notices = Notices::start(settings, NoticeParts { spool, records, held, pipeline, clock });
    for user in ["ann", "bob"] {
        let contact = format!("{user}@elsewhere.example");
        notices.tell(NoticeEvent { kind: NoticeKind::Stopped, identity: user.into(), contact });
    }
    let heard = async {
        let mut heard = String::new();
        while !heard.contains("bob") {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut piece = vec![0; 64 << 10];
            while !heard.ends_with('}') {
                let length = stream.read(&mut piece).await.unwrap();
                heard.push_str(&String::from_utf8_lossy(&piece[..length]));
            }
            heard.push('\n');
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
        }
        heard
    };
    let heard = tokio::time::timeout(Duration::from_secs(20), heard).await.expect("both stops");
    assert!(heard.contains("ann") && gone.recipients().is_empty(), "{heard}");
    faults.heal();
    let written = async {
        while gone.recipients().len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("four mails when there is room again");
    let expected = ["ann@elsewhere.example", "admin@example.org", "bob@elsewhere.example", "admin@example.org"];
    assert_eq!(gone.recipients(), expected);
}

/// Once a day, and only while something waits.
#[tokio::test(flavor = "multi_thread")]
async fn the_administrator_hears_daily_what_still_waits() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(gate.ann().await.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    let (mut clock, turns) = (START_NS, [false, true, false, true]);
    for due in turns {
        clock += if due { 2 * DAY.as_nanos() as u64 } else { 1 };
        let told = Gone::default();
        let parts = NoticeParts {
            spool: gate.spool.clone(),
            records: gate.records.clone(),
            held: folder.path().join("held"),
            pipeline: Pipeline::ending_in(told.clone()),
            clock: Arc::new(move || Instant(clock)),
        };
        let _notices = Notices::start(notice_settings(), parts);
        let written = async {
            while told.recipients().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let patience = Duration::from_millis(if due { 10_000 } else { 200 });
        assert_eq!(tokio::time::timeout(patience, written).await.is_ok(), due);
        if due {
            assert_eq!(told.recipients(), ["admin@example.org"]);
        }
    }
}

/// One mail to somebody new from this network, by a listed peer that says who is logged in.
async fn from_network(gate: &Gate, network: usize) -> String {
    let mut client = gate.client().await;
    let said = client.say(&format!("XCLIENT ADDR=198.51.{network}.7 LOGIN=ann")).await;
    assert!(said.starts_with("220 "), "{said}");
    client.say("EHLO client.example.org").await;
    client.mail("ann@example.org", &letter_to(network), TEXT).await
}

/// A thief of the password writes to few people, but from everywhere: the owner reads that, and not of unusually many people.
#[tokio::test(flavor = "multi_thread")]
async fn who_writes_from_new_networks_reads_of_them_in_the_notice() {
    let folder = tempfile::tempdir().unwrap();
    let watched = |settings: &mut Settings| {
        let strangers = Params { max_slack: 100, ..Params::default() };
        settings.params = Params { recipients: Recipients::Classed, new_networks: 1, network_stop_at: 8, ..strangers };
    };
    let gate = Gate::start_as(folder.path(), None, watched).await;
    assert!(from_network(&gate, 0).await.contains("accepted, on its way"));
    let said = from_network(&gate, 1).await;
    assert!(said.contains("held: 1 of 1"), "{said}");
    let notice = mail_to(&gate, "ann@elsewhere.example", "is being delayed").await;
    let networks = "from networks from which this account has not been used before";
    assert!(notice.contains(networks) && notice.contains("change it now"), "{notice}");
    let stopped = async {
        for network in 2..12 {
            if from_network(&gate, network).await.contains("you are stopped") {
                return network;
            }
        }
        panic!("nobody was stopped")
    };
    assert_eq!(stopped.await, 9, "more than eight wait");
    let notice = mail_to(&gate, "ann@elsewhere.example", "was stopped at").await;
    let why = "too many new people were written to from networks from which the account has not been used before";
    assert!(notice.contains(why), "{notice}");
}

/// Also where a notice names the mails that have an address of their own: a quote must not end, and nothing may become a link.
#[tokio::test(flavor = "multi_thread")]
async fn a_subject_is_only_read_wherever_a_notice_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let subject = "=?utf-8?q?=E2=80=AEright=22=3A_see_http=3A//evil.example/click?=";
    let mut ann = gate.ann().await;
    for n in 0..7 {
        let said = ann.mail("ann@example.org", &letter_to(n), &TEXT.replace("hello", subject)).await;
        assert!(said.starts_with("250 "), "{said}");
    }
    let notice = mail_to(&gate, "ann@elsewhere.example", "is being delayed").await;
    let quoted = "right': see http[://]evil.example/click\" to new";
    assert!(notice.contains(quoted), "{notice}");
    assert!(!notice.contains("http://evil") && !notice.contains('\u{202e}'), "{notice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_names_the_files_that_waiting_mail_brings() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let worm = "From: ann@example.org\r\nSubject: your invoice\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
        --b\r\nContent-Type: text/plain\r\n\r\nas agreed\r\n--b\r\nContent-Type: application/octet-stream; name=invoice.pdf.exe\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nTVqQAAMAAAAEAAAA\r\n--b--";
    let mut ann = gate.ann().await;
    for n in 0..7 {
        let said = ann.mail("ann@example.org", &letter_to(n), worm).await;
        assert!(said.starts_with("250 "), "{said}");
    }
    let notice = mail_to(&gate, "ann@elsewhere.example", "is being delayed").await;
    let file = " bring \"invoice.pdf.exe\" (application/octet-stream).";
    assert!(notice.contains("looked into, ") && notice.contains(file), "{notice}");
}
