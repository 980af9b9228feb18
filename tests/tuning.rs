//! The feeds of the running gate, with a clamd whose scans take as long as planned: which mail may use which workers by default, and `weir
//! feeds tune` in real time, with seven tenths of the mail that the feeds can handle. Other load on the machine disturbs the latter, so
//! only `make soak` runs it; `make test` checks the same with a virtual clock (weir-mail, `scan::tests::tuned`).

use crate::control::gate::{Client, Site, wait_for};
use serde_json::Value;
use std::time::{Duration, Instant};
use weir_peers::PlannedClamd;
use weir_sim::rng::Rng;

/// The planned time of a scan (t0), and the time for each byte (ts).
const T0_TS: (Duration, Duration) = (Duration::from_millis(30), Duration::from_nanos(1_500));
/// The share of large messages, and the sizes of small and large ones in bytes.
const MIX: (f64, f64, f64) = (0.1, 4_000.0, 100_000.0);
/// Messages per second. The large ones have one feed, which can handle 5.5 of them.
const LAMBDA_PER_S: f64 = 39.0;
const SESSIONS: u64 = 8;
const PASSWORD: &str = "as fast as planned";

#[test]
#[ignore = "takes minutes of real time on a quiet machine: make soak"]
fn the_predicted_mean_wait_is_the_measured_one_within_a_fifth() {
    let messages: u64 = std::env::var("WEIR_TUNE_MESSAGES").map_or(1_500, |text| text.parse().expect("a number"));
    let clamd = PlannedClamd::start(T0_TS.0, T0_TS.1);
    let site = Site::new(&format!(
        "[scan]\nenabled = true\ncores = 64\nauto_tune = false\nlast_feed_helps = false\nlimits_give_way = false\n[scan.yara]\nembedded = false\n\
         [scan.attachments]\nenabled = false\n[scan.clamav]\naddresses = [\"127.0.0.1:{}\"]\nscans = 64\nself_test = false\n",
        clamd.port()
    ));
    let up = site.up();
    let add = ["user", "add", "bulk", "--address", "bulk@localhost", "--profile", "exempt", "--password-stdin"];
    site.weir_with(&add, &format!("{PASSWORD}\n")).ok();
    let before = measured_mean_wait_s(&site, &up.plain, messages, 1);
    let tuned = site.json(&["feeds", "tune", "--apply"]);
    let predicted = tuned["today"]["mean_wait_s"].as_f64().expect("a prediction");
    let load = LAMBDA_PER_S / tuned["today"]["lambda_max_per_s"].as_f64().expect("a rate");
    eprintln!("load {load:.2}, {messages} messages: predicted {predicted:.4} s, measured {before:.4} s");
    let after = measured_mean_wait_s(&site, &up.plain, messages, 2);
    let promised = tuned["proposed"]["mean_wait_s"].as_f64().expect("a prediction");
    eprintln!("limits {}: predicted {promised:.4} s, measured {after:.4} s", tuned["proposed"]["limits"]);
    assert!((0.6..0.8).contains(&load), "{load}");
    assert!((predicted / before - 1.0).abs() < 0.2, "predicted {predicted}, measured {before}");
    assert!(after < before, "{after} with the limits found, {before} with those before");
}

#[test]
fn with_a_processor_for_each_worker_large_messages_are_scanned_by_all_workers_at_once() {
    let (status, scans) = large_and_small(64);
    assert_eq!((scans, &status["open"]), (5, &true.into()), "{status}");
    assert_eq!(status["waiting"], 2, "{status}");
    assert_eq!(status["limits"].as_array().map(Vec::len), Some(4), "five feeds, as configured: {status}");
}

#[test]
fn with_fewer_processors_large_messages_leave_workers_to_the_small() {
    // Two large messages are scanned, and also the small one, although it came last.
    let (status, scans) = large_and_small(2);
    assert_eq!((scans, &status["kept_feeds"]), (3, &3.into()), "{status}");
    assert_eq!(status["waiting"], 4, "{status}");
}

/// Six messages that are larger than every limit, and a small one after them, come to five workers. Returns the state of the feeds when
/// nothing changes any more, and the number of scans that have begun.
fn large_and_small(cores: usize) -> (Value, usize) {
    // These scans do not end during the test. Which of them begin shows which worker may take what.
    let clamd = PlannedClamd::start(Duration::from_secs(600), Duration::ZERO);
    let site = Site::new(&format!(
        "[scan]\nenabled = true\ncores = {cores}\n[scan.yara]\nembedded = false\n[scan.attachments]\nenabled = false\n\
         [scan.clamav]\naddresses = [\"127.0.0.1:{}\"]\nscans = 64\nself_test = false\n",
        clamd.port()
    ));
    let up = site.up();
    let add = ["user", "add", "bulk", "--address", "bulk@localhost", "--profile", "exempt", "--password-stdin"];
    site.weir_with(&add, &format!("{PASSWORD}\n")).ok();
    let mut client = Client::login(&up.plain, "bulk", PASSWORD).expect("logged in");
    for (number, size) in [300_000; 6].into_iter().chain([1_000]).enumerate() {
        let line = format!("{number} {}\r\n", "x".repeat(70));
        let text = format!("From: bulk@localhost\r\nSubject: {number}\r\n\r\n{}", line.repeat(size / line.len()));
        let said = client.text("bulk@localhost", &["friend@localhost"], &text);
        assert!(said.starts_with("250"), "{said}");
    }
    let status = wait_for("scans that have begun, and all others waiting", || {
        let status = site.json(&["feeds", "status"]);
        let waiting = status["waiting"].as_u64()?;
        (clamd.scans() as u64 + waiting == 7 && clamd.scans() > 0).then_some(status)
    });
    (status, clamd.scans())
}

/// Sends this many messages. Returns their mean wait in the feeds, as the gate measured it.
fn measured_mean_wait_s(site: &Site, gate: &str, messages: u64, seed: u64) -> f64 {
    let arrived = |status: &Value| status["counts"]["passed"].as_u64().unwrap_or(0);
    let goal = arrived(&site.json(&["feeds", "status"])) + messages / SESSIONS * SESSIONS;
    let mut rng = Rng::new(seed);
    let sending: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let (gate, rng) = (gate.to_owned(), rng.fork());
            std::thread::spawn(move || send(&gate, rng, messages / SESSIONS))
        })
        .collect();
    sending.into_iter().for_each(|thread| thread.join().expect("every mail is accepted"));
    let status = wait_for("the last scan", || {
        let status = site.json(&["feeds", "status"]);
        (arrived(&status) >= goal).then_some(status)
    });
    let classes = status["classes"].as_array().expect("classes").iter();
    let sums = classes.map(|class| {
        let scanned = class["scanned"].as_f64().unwrap_or(0.0);
        (scanned, scanned * class["wait"]["mean_s"].as_f64().unwrap_or(0.0))
    });
    let (count, total) = sums.fold((0.0, 0.0), |(n, sum), (m, part)| (n + m, sum + part));
    total / count
}

/// Sends one session's share of the mail, at random moments.
fn send(gate: &str, mut rng: Rng, messages: u64) {
    let mut client = Client::login(gate, "bulk", PASSWORD).expect("logged in");
    let mut due = Instant::now();
    for number in 0..messages {
        due += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() * SESSIONS as f64 / LAMBDA_PER_S);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (large, small_size, large_size) = MIX;
        let mean = if rng.chance(large) { large_size } else { small_size };
        let size = mean * (0.8 + 0.4 * rng.unit());
        let line = format!("{:016x}{:032x}\r\n", rng.next_u64(), number);
        let text =
            format!("From: bulk@localhost\r\nSubject: {number}\r\n\r\n{}", line.repeat(size as usize / line.len()));
        let said = client.text("bulk@localhost", &["friend@localhost"], &text);
        assert!(said.starts_with("250"), "{said}");
    }
}
