//! `weir feeds tune` against the running gate, in real time: a clamd whose scans take as long as planned, and mail at seven tenths
//! of what the feeds bear. A noisy machine disturbs it, so it is for `make soak`; `make test` holds the same under a virtual clock
//! (weir-mail, `scan::tests::tuned`).

use crate::control::gate::{Client, Site, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_sim::rng::Rng;

/// t0 and ts of the planned scans, in seconds and seconds a byte.
const T0_TS_S: (f64, f64) = (0.03, 1.5e-6);
/// The share of large messages, and the bytes of small and large ones.
const MIX: (f64, f64, f64) = (0.1, 4_000.0, 100_000.0);
/// Messages a second: the large have one feed, which bears 5.5 of them.
const LAMBDA_PER_S: f64 = 39.0;
const SESSIONS: u64 = 8;
const PASSWORD: &str = "as fast as planned";

#[test]
#[ignore = "takes minutes of real time on a quiet machine: make soak"]
fn the_predicted_mean_wait_is_the_measured_one_within_a_fifth() {
    let messages: u64 = std::env::var("WEIR_TUNE_MESSAGES").map_or(1_500, |text| text.parse().expect("a number"));
    let (clamd, _) = planned_clamd();
    let site = Site::new(&format!(
        "[scan]\nenabled = true\ncores = 64\nauto_tune = false\n[scan.yara]\nembedded = false\n\
         [scan.attachments]\nenabled = false\n[scan.clamav]\naddresses = [\"127.0.0.1:{clamd}\"]\nscans = 64\nself_test = false\n"
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

/// Sends so many messages; their mean wait in the feeds, as the gate measured it.
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

/// One session with its share of the mail, at random moments.
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

/// A clamd that finds nothing, and takes t0 + ts·size for it; its port, and how many scans it has begun.
pub(crate) fn planned_clamd() -> (u16, Arc<AtomicUsize>) {
    let scans = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&scans);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let begun = Arc::clone(&begun);
            std::thread::spawn(move || drop(answer(BufReader::new(stream), &begun)));
        }
    });
    (port, scans)
}

fn answer(mut stream: BufReader<TcpStream>, scans: &AtomicUsize) -> std::io::Result<()> {
    let mut command = Vec::new();
    stream.read_until(0, &mut command)?;
    let reply: &[u8] = match command.as_slice() {
        b"zPING\0" => b"PONG\0",
        b"zVERSION\0" => b"ClamAV 1.0.0/1/Sat Nov 14 09:25:12 2026\0",
        b"zINSTREAM\0" => {
            scans.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            let (t0, ts) = T0_TS_S;
            let takes = Duration::from_secs_f64(t0 + ts * streamed(&mut stream)? as f64);
            std::thread::sleep(takes.saturating_sub(begun.elapsed()));
            b"stream: OK\0"
        }
        _ => b"UNKNOWN COMMAND\0",
    };
    stream.get_mut().write_all(reply)
}

/// Reads a streamed message to its end; its size.
fn streamed(stream: &mut BufReader<TcpStream>) -> std::io::Result<u64> {
    let mut size = 0;
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u64::from(u32::from_be_bytes(length));
        if length == 0 {
            return Ok(size);
        }
        std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
        size += length;
    }
}
