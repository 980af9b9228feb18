//! Notices: what waits for nothing, what is written once, and what comes daily.

use crate::gate::{DAY, Gate, Gone, START_NS, TEXT, notice_settings, open_spool};
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_mail::notices::{self, NoticeEvent, Notices};
use weir_mail::pipeline::Pipeline;
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
    let notices = Notices::start(settings, spool, records, Pipeline::ending_in(gone.clone()), clock);
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
        let _notices = Notices::start(
            notice_settings(),
            gate.spool.clone(),
            gate.records.clone(),
            Pipeline::ending_in(told.clone()),
            Arc::new(move || Instant(clock)),
        );
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
