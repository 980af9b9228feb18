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
use weir_scan::worker::scanner::Workers;

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
    Panel::start(panel::Settings::default().with(settings)).await.unwrap()
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
async fn what_clamd_does_not_open_is_never_clean() {
    // As Debian configures it: seventeen levels, and silence about what is deeper.
    let silent = Clamd::start_plain("");
    let telling = Clamd::start_plain("AlertExceedsMax yes");
    let workers = Workers { pool: crate::workers::settings(&[]), ..Workers::default() };
    for (clamd, is_silent) in [(&silent, true), (&telling, false)] {
        let alone = panel(quick(vec![socket(clamd)])).await;
        let settings = panel::Settings::default().with(workers.clone()).with(quick(vec![socket(clamd)]));
        let together = Panel::start(settings).await.unwrap();
        for entry in std::fs::read_dir(TEST_FILES).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let message = attached(&name, &std::fs::read(&path).unwrap());
            let found = outcome(&alone, &message).await;
            if name != "clam_cache_emax.tgz" {
                assert!(matches!(found, Outcome::Infected { .. }), "{name}: {found:?}");
                continue;
            }
            let limit = Outcome::NotScanned { limit: "clamd: Heuristics.Limits.Exceeded.MaxRecursion".into() };
            assert_eq!(found, if is_silent { Outcome::Clean } else { limit }, "what clamd says by itself");
            let verdict = together.inspect(&Content::of(&message).unwrap(), &Arc::new(About::default())).await;
            let gravest = verdict.gravest().unwrap();
            assert!(matches!(&gravest.outcome, Outcome::NotScanned { .. }), "{verdict:?}");
        }
        let health = &alone.health()[0];
        assert_eq!(health.advice.contains("AlertExceedsMax"), is_silent, "{health:?}");
    }
}

#[tokio::test]
async fn what_our_own_walk_condemns_is_not_shown_to_clamd() {
    // Nobody listens there: whoever asks it hears that it is down.
    let nobody = quick(vec![Address::Host("127.0.0.1".into(), 1)]);
    let workers = Workers { pool: crate::workers::settings(&[]), ..Workers::default() };
    let mut settings = panel::Settings::default().with(workers).with(nobody);
    settings.limits_decide = true;
    let panel = Panel::start(settings).await.unwrap();
    let bomb = (0..12).fold(b"deeper than archives are opened".to_vec(), |inner, _| crate::mail::gzipped(&inner));
    let closed = b"Rar!\x1a\x07\x01\0rest".to_vec();
    for (name, data, asked) in [
        ("bomb.gz", bomb, false),
        ("evil.exe", b"MZ".to_vec(), false),
        ("a.rar", closed, true),
        ("a.txt", b"hi".to_vec(), true),
    ] {
        let content = Content::of(&attached(name, &data)).unwrap();
        let verdict = panel.inspect(&content, &Arc::new(About::default())).await;
        let said = verdict.findings.iter().any(|finding| finding.scanner == "clamav");
        assert_eq!(said, asked, "{name}: {verdict:?}");
        assert!(!verdict.is_clean(), "{name}");
    }
}

#[tokio::test]
async fn a_clamd_is_asked_what_it_opens() {
    let clamd = Clamd::start();
    let panel = panel(quick(vec![socket(&clamd)])).await;
    assert_eq!(outcome(&panel, &message(7)).await, Outcome::Clean);
    let advice = panel.health()[0].advice.clone();
    assert!(
        advice.contains("this clamd cannot open") && advice.contains("RAR"),
        "Debian's has no reader of RAR: {advice:?}"
    );
    assert!(!advice.contains("zip") && !advice.contains("tar"), "{advice:?}");
}

#[tokio::test]
async fn a_feed_asks_its_own_and_the_common_ones_if_these_fail() {
    let (common, mut own) = (Clamd::start(), Clamd::start());
    common.learn("Common", "a text that only the common one knows");
    own.learn("Own", "a text that only the feed's own knows");
    let clamds = Settings { feeds: vec![Vec::new(), vec![socket(&own)]], ..quick(vec![socket(&common)]) };
    let whole = Panel::start(panel::Settings::default().with(clamds)).await.unwrap();
    let feeds = [whole.for_feed(0), whole.for_feed(1), whole.for_feed(2)];
    let both = |n: u32| {
        [message(n), b"a text that only the common one knows, a text that only the feed's own knows".to_vec()].concat()
    };
    let named = |name: &str| Outcome::Infected { name: format!("{name}.UNOFFICIAL") };
    // Both have read their new signatures.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut n = 10;
    while (outcome(&feeds[0], &both(n)).await, outcome(&feeds[1], &both(n)).await) != (named("Common"), named("Own")) {
        assert!(Instant::now() < deadline, "{:?}", outcome(&feeds[1], &both(n)).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        n += 1;
    }
    assert_eq!(outcome(&feeds[2], &both(n + 1)).await, named("Common"));
    assert_eq!((feeds[0].health().len(), feeds[1].health().len()), (1, 2));
    own.kill();
    assert_eq!(outcome(&feeds[1], &both(n + 2)).await, named("Common"), "the common one is asked");
    assert_eq!(outcome(&feeds[1], &message(n + 3)).await, Outcome::Clean);
}

#[tokio::test]
async fn one_that_keeps_its_figures_to_itself_is_used() {
    let (address, _fake) = fake(|command| match command {
        "PING" => Some(b"PONG\0".to_vec()),
        "VERSION" | "STATS" => Some(b"COMMAND UNAVAILABLE\0".to_vec()),
        _ => Some(b"stream: OK\0".to_vec()),
    })
    .await;
    let panel = panel(Settings { self_test: false, ..quick(vec![address]) }).await;
    assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
    let (address, _fake) = fake(|command| match command {
        "PING" => Some(b"PONG\0".to_vec()),
        "VERSION" => Some(b"ClamAV 9.9/1/Sat Nov 14 09:25:12 2020\0".to_vec()),
        "STATS" => None,
        _ => Some(b"stream: OK\0".to_vec()),
    })
    .await;
    let panel = self::panel(Settings { self_test: false, ..quick(vec![address]) }).await;
    assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
    let health = &panel.health()[0];
    assert!(health.up && health.problem.contains("days old") && health.signature_age_s > Some(86_400), "{health:?}");
}

#[tokio::test]
async fn an_answer_from_before_anything_was_known_is_not_kept() {
    let answers = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = answers.clone();
    let (address, _fake) = fake(move |command| match command {
        "PING" => Some(b"PONG\0".to_vec()),
        "VERSION" => Some(b"ClamAV 9.9/1/Sat Nov 14 09:25:12 2026\0".to_vec()),
        _ => {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Some(b"stream: OK\0".to_vec())
        }
    })
    .await;
    let panel = panel(Settings { self_test: false, scans: 2, ..quick(vec![address]) }).await;
    // The first is asked before the version is known, so its answer belongs to no version.
    for _ in 0..3 {
        assert_eq!(outcome(&panel, &message(1)).await, Outcome::Clean);
    }
    assert_eq!(answers.load(std::sync::atomic::Ordering::Relaxed), 2);
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
    let condition = &clamds.conditions()[0];
    assert!(matches!(&condition.state, State::Up(version) if version.text.starts_with("ClamAV 1")), "{condition:?}");
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
