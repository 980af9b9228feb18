//! A restart under steady load on kept connections: no request may fail, and the longest wait is printed. There are 100 requests per second
//! in every test run, and as many as `WEIR_RESTART_RPS` says in a soak.

use crate::control::gate::{PATIENCE, Site, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const CLIENTS: u32 = 50;
const RESTARTS: u32 = 4;

/// What the clients observed.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    /// The longest time from when a request should have been sent until it was answered, in microseconds.
    longest_us: AtomicU64,
}

/// A server behind the gate that keeps connections open, and keeps running when the gate restarts.
async fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|octets| octets > 0) {
                    if line == "\r\n"
                        && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err()
                    {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

async fn answered(stream: &mut BufReader<TcpStream>) -> Option<bool> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.ok()?;
    let (mut line, mut length, mut good, mut last) = (String::new(), 0, false, false);
    while stream.read_line(&mut line).await.ok()? > 0 {
        let text = line.trim_end().to_ascii_lowercase();
        good |= text.starts_with("http/1.1 200");
        last |= text == "connection: close";
        length = text.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap_or(0));
        if text.is_empty() {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            return good.then_some(!last);
        }
        line.clear();
    }
    None
}

/// Sends requests at fixed times on one connection. If a kept connection turns out to be closed, the request is sent once more on a new
/// one, as every HTTP client does (RFC 9112, section 9.3.1).
async fn client(number: u32, every: Duration, to: String, seen: Arc<Seen>) {
    let begun = tokio::time::Instant::now() + every * number / CLIENTS;
    let mut kept: Option<BufReader<TcpStream>> = None;
    for step in 0.. {
        let due = begun + every * step;
        tokio::time::sleep_until(due).await;
        if seen.over.load(Ordering::Relaxed) {
            return;
        }
        let mut outcome = None;
        for _ in 0..2 {
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => match TcpStream::connect(&to).await {
                    Ok(stream) => BufReader::new(stream),
                    Err(_) => break,
                },
            };
            outcome = tokio::time::timeout(PATIENCE, answered(&mut stream)).await.ok().flatten();
            if let Some(stays) = outcome {
                kept = Some(stream).filter(|_| stays);
                break;
            }
        }
        let counter = if outcome.is_some() { &seen.answered } else { &seen.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        seen.longest_us.fetch_max(due.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

#[test]
fn restarts_under_steady_load_fail_no_request() {
    let rate: u32 = std::env::var("WEIR_RESTART_RPS").ok().and_then(|rate| rate.parse().ok()).unwrap_or(100);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let seen = Arc::<Seen>::default();
    let site = Site::only(&format!(
        "[submission]\nenabled = false\n[web]\nlisten = [\"127.0.0.1:0\"]\nbackends = [\"app {}\"]\nslots = \"64\"\n\
         [console]\nlisten = [\"127.0.0.1:0\"]\n",
        runtime.block_on(backend())
    ));
    let up = site.up_alone();
    let web = up.listener("web");
    for number in 0..CLIENTS {
        runtime.spawn(client(number, Duration::from_secs(CLIENTS.into()) / rate, web.clone(), Arc::clone(&seen)));
    }
    let load = |count: u64| {
        let before = seen.answered.load(Ordering::Relaxed);
        wait_for("load", || (seen.answered.load(Ordering::Relaxed) > before + count).then_some(()));
    };
    let begun = Instant::now();
    // While Weir restarts, it may not answer.
    let since = || {
        let status: serde_json::Value = serde_json::from_str(&site.weir(&["status", "--json"]).stdout).ok()?;
        let gates = status["gates"].as_array()?;
        let web = gates.iter().find(|gate| gate["gate"] == "web" && gate["state"] == "up")?;
        web["since_unix_s"].as_u64()
    };
    load(u64::from(rate));
    let calm_us = seen.longest_us.swap(0, Ordering::Relaxed);
    for restart in 0..RESTARTS {
        let before = wait_for("the gate", since);
        // Times are given in seconds, and a restart may take less.
        load(2 * u64::from(rate));
        if restart % 2 == 0 {
            up.signal("USR2");
        } else {
            assert!(site.weir(&["restart"]).ok().contains("Restarting"));
        }
        wait_for("the next program", || since().filter(|now| *now > before));
        load(u64::from(rate));
    }
    seen.over.store(true, Ordering::Relaxed);
    let (answered, failed) = (seen.answered.load(Ordering::Relaxed), seen.failed.load(Ordering::Relaxed));
    crate::kills::say(&format!(
        "{RESTARTS} restarts under {rate} requests a second: {answered} answered in {:.1} s, {failed} failed; the longest took {:.0} ms, and {:.0} ms before \
         the first restart",
        begun.elapsed().as_secs_f64(),
        seen.longest_us.load(Ordering::Relaxed) as f64 / 1e3,
        calm_us as f64 / 1e3,
    ));
    assert_eq!(failed, 0, "{answered} were answered");
}
