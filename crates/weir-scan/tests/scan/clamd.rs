//! A real clamd: what it finds, and everything that can happen to it. And a false one, that says what clamd never says.

use crate::mail::{attached, eicar};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_peers::{Clamd, TEST_FILES};
use weir_scan::address::Address;
use weir_scan::clamd::{Settings, State};
use weir_scan::content::Content;
use weir_scan::deadline::Deadline;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{self, Panel};
use weir_scan::verdict::Outcome;

fn quick(addresses: Vec<Address>) -> Settings {
    Settings {
        addresses,
        deadline: Deadline { base: Duration::from_secs(10), per_mib: Duration::from_secs(2) },
        linger: Duration::from_secs(5),
        check_every: Duration::from_millis(200),
        check_deadline: Duration::from_secs(2),
        ..Settings::default()
    }
}

async fn panel(settings: Settings) -> Panel {
    Panel::start(panel::Settings { clamd: Some(settings), ..panel::Settings::default() }).await.unwrap()
}

async fn outcome(panel: &Panel, message: &[u8]) -> Outcome {
    let verdict = panel.inspect(&Content::of(message).unwrap(), &Arc::new(About::default())).await;
    assert_eq!(verdict.findings.len(), 1);
    verdict.findings[0].outcome.clone()
}

fn socket(clamd: &Clamd) -> Address {
    Address::Socket(clamd.socket())
}

fn message(n: u32) -> Vec<u8> {
    format!("Subject: {n}\r\n\r\nhello\r\n").into_bytes()
}

/// Asks until the answer is the wanted one; each time with a new message.
async fn until(panel: &Panel, wanted: impl Fn(&Outcome) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut n = 1_000_000;
    loop {
        n += 1;
        let last = outcome(panel, &message(n)).await;
        if wanted(&last) {
            return;
        }
        assert!(Instant::now() < deadline, "{last:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn eicar_and_all_test_files_are_found_over_both_kinds_of_socket() {
    let clamd = Clamd::start();
    for address in [socket(&clamd), Address::Host("127.0.0.1".into(), clamd.port())] {
        let panel = panel(quick(vec![address])).await;
        assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
        assert_eq!(
            outcome(&panel, &attached("e.txt", &eicar())).await,
            Outcome::Infected { name: "Eicar-Test-Signature.UNOFFICIAL".into() }
        );
        let mut count = 0;
        for entry in std::fs::read_dir(TEST_FILES).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let found = outcome(&panel, &attached(&name, &std::fs::read(&path).unwrap())).await;
            assert!(matches!(found, Outcome::Infected { .. }), "{name}: {found:?}");
            count += 1;
        }
        assert!(count > 40, "{count} test files");
    }
}

#[tokio::test]
async fn large_messages_and_messages_that_are_too_large() {
    let clamd = Clamd::start_with("StreamMaxLength 4M\nMaxThreads 3");
    let panel_of = |size| panel(Settings { size, ..quick(vec![socket(&clamd)]) });
    let mut large = attached("e.txt", &eicar());
    large.extend(b"more text in lines\r\n".repeat(100_000));
    assert!(large.len() > 1 << 20);
    let panel = panel_of(25 << 20).await;
    assert!(matches!(outcome(&panel, &large).await, Outcome::Infected { .. }));
    // Its limit is smaller than ours: it says so, early.
    let too_large = [message(1), b"x".repeat(20 << 20)].concat();
    let limit = Outcome::NotScanned { limit: "clamd: INSTREAM size limit exceeded".into() };
    assert_eq!(outcome(&panel, &too_large).await, limit);
    let panel = panel_of(1 << 20).await;
    let limit = Outcome::NotScanned { limit: "larger than the 1 MiB that go to clamd".into() };
    assert_eq!(outcome(&panel, &large).await, limit);
    assert!(panel.is_up() || panel.health()[0].problem == "not asked yet");
    assert_eq!(outcome(&panel, b"").await, Outcome::Clean);
}

#[tokio::test]
async fn killed_it_fails_and_comes_back_by_itself() {
    let mut clamd = Clamd::start();
    let panel = panel(quick(vec![socket(&clamd)])).await;
    assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
    clamd.kill();
    assert!(matches!(outcome(&panel, &message(2)).await, Outcome::Failed { .. }));
    assert!(matches!(outcome(&panel, &attached("e.txt", &eicar())).await, Outcome::Failed { .. }));
    clamd.restart();
    until(&panel, |outcome| *outcome == Outcome::Clean).await;
    assert!(matches!(outcome(&panel, &attached("e.txt", &eicar())).await, Outcome::Infected { .. }));
}

#[tokio::test]
async fn hung_it_fails_once_slowly_then_fast_and_comes_back() {
    let clamd = Clamd::start();
    let deadline = Deadline { base: Duration::from_secs(2), per_mib: Duration::ZERO };
    let panel = panel(Settings { deadline, ..quick(vec![socket(&clamd)]) }).await;
    assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
    clamd.freeze();
    assert!(matches!(outcome(&panel, &message(2)).await, Outcome::Failed { .. }));
    until(&panel, |outcome| matches!(outcome, Outcome::Failed { problem } if problem.contains("PING"))).await;
    let begun = Instant::now();
    assert!(matches!(outcome(&panel, &message(3)).await, Outcome::Failed { .. }));
    assert!(begun.elapsed() < Duration::from_secs(1), "what is known to hang is not waited for");
    clamd.thaw();
    until(&panel, |outcome| *outcome == Outcome::Clean).await;
    assert_eq!(outcome(&panel, &message(2)).await, Outcome::Clean, "the message that failed passes at last");
}

#[tokio::test]
async fn reloading_it_goes_on_and_new_signatures_are_in_force() {
    let clamd = Clamd::start();
    let panel = panel(quick(vec![socket(&clamd)])).await;
    let bad = |n: u32| [message(n), b"a text that is not bad yet".to_vec()].concat();
    assert_eq!(outcome(&panel, &bad(1)).await, Outcome::Clean);
    clamd.learn("Site.Bad.Text", "a text that is not bad yet");
    let deadline = Instant::now() + Duration::from_secs(30);
    for n in 2.. {
        match outcome(&panel, &bad(n)).await {
            Outcome::Clean => {}
            Outcome::Infected { name } => {
                assert_eq!(name, "Site.Bad.Text.UNOFFICIAL");
                break;
            }
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < deadline, "the new signature is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_that_does_not_find_eicar_is_not_believed() {
    let (address, _fake) = fake(|command| match command {
        "PING" => Some(b"PONG\0".to_vec()),
        "VERSION" => Some(b"ClamAV 9.9\0".to_vec()),
        "STATS" => Some(b"THREADS: live 1 idle 0 max 4 idle-timeout 30\0".to_vec()),
        _ => Some(b"stream: OK\0".to_vec()),
    })
    .await;
    let panel = panel(quick(vec![address])).await;
    let Outcome::Failed { problem } = outcome(&panel, &message(1)).await else { panic!("believed") };
    assert!(problem.contains("does not find the EICAR test file"), "{problem}");
}

#[tokio::test]
async fn garbage_and_early_ends_are_failures() {
    for answer in [
        &b""[..],
        b"stream: OK",
        b"\0",
        b"\xff\xfe\0",
        b"stream: OK OK\0",
        b"220 mail.example ESMTP\r\n",
        &[b'x'; 100_000],
    ] {
        let (address, _fake) = fake(move |command| match command {
            "PING" => Some(b"PONG\0".to_vec()),
            "VERSION" => Some(b"ClamAV 9.9/1/Sat Nov 14 09:25:12 2026\0".to_vec()),
            _ => Some(answer.to_vec()),
        })
        .await;
        let panel = panel(Settings { self_test: false, scans: 2, ..quick(vec![address]) }).await;
        let said = outcome(&panel, &message(1)).await;
        assert!(matches!(said, Outcome::Failed { .. }), "{answer:?}: {said:?}");
    }
}

#[tokio::test]
async fn where_one_breaks_another_is_asked() {
    let clamd = Clamd::start();
    let gone = Address::Socket(Path::new("/nonexistent/clamd.ctl").into());
    let panel = panel(quick(vec![gone, socket(&clamd)])).await;
    for n in 0..5 {
        assert_eq!(outcome(&panel, &message(n)).await, Outcome::Clean);
    }
    let health = panel.health();
    assert_eq!(health.iter().filter(|health| health.up).count(), 1, "{health:?}");
}

#[tokio::test]
async fn no_more_scans_at_once_than_it_has_threads() {
    let clamd = Clamd::start_with("MaxThreads 3");
    let clamds = Arc::new(weir_scan::clamd::Clamd::start(quick(vec![socket(&clamd)])));
    assert_eq!(clamds.scan(&Content::of(b"x").unwrap()).await, Outcome::Clean);
    assert_eq!(clamds.width(), 3);
    assert!(
        matches!(&clamds.states()[0].1, State::Up(version) if version.text.starts_with("ClamAV 1")),
        "{:?}",
        clamds.states()
    );
}

/// A listener that answers as told; none closes the connection.
async fn fake(
    answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (Address, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Host("127.0.0.1".into(), listener.local_addr().unwrap().port());
    let answer = Arc::new(answer);
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let command = text.trim_start_matches('z').split('\0').next().unwrap_or("").to_owned();
                if let Some(bytes) = answer(&command) {
                    let _ = stream.write_all(&bytes).await;
                }
            });
        }
    });
    (address, task)
}
