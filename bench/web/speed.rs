//! Part (a): requests a second, latency and memory of Weir, nginx and HAProxy in front of one nginx.

use crate::peers::{Peer, backend, haproxy, nginx_proxy, weir};
use crate::wrk::{self, Round};
use crate::{Plan, median};
use std::io;

/// One case: proxy threads, connections, path.
type Case = (usize, u32, &'static str);

const CASES: [Case; 8] = [
    (1, 64, "/tiny"),
    (1, 64, "/64k"),
    (1, 1_000, "/tiny"),
    (1, 1_000, "/64k"),
    (2, 64, "/tiny"),
    (2, 64, "/64k"),
    (2, 1_000, "/tiny"),
    (2, 1_000, "/64k"),
];
const ROUNDS: usize = 7;
const SECONDS: u32 = 4;
/// The backend takes what comes; the fair queue is on, and out of the way.
const WEIR: &str = "slots = \"2048\"";

#[derive(Default)]
struct Results {
    rounds: Vec<Round>,
    rss_kib: u64,
}

pub(crate) fn run(plan: &Plan) -> io::Result<Vec<String>> {
    let (rounds, seconds) = if plan.quick { (3, 2) } else { (ROUNDS, SECONDS) };
    let cases = if plan.quick { &CASES[..1] } else { &CASES[..] };
    println!("(a) wrk through each proxy to one nginx; medians of {rounds} interleaved rounds of {seconds} s\n");
    println!(
        "{:<8} {:>7} {:>6} {:<6}  {:>10} {:>8} {:>8} {:>8} {:>7}",
        "proxy", "threads", "conns", "body", "requests/s", "p50 ms", "p99 ms", "RSS MiB", "errors"
    );
    let mut lines = Vec::new();
    for case in cases {
        let results = run_case(plan, *case, (rounds, seconds))?;
        if *case == CASES[0] {
            lines = ratios(&results);
        }
    }
    Ok(lines)
}

fn run_case(
    plan: &Plan,
    (threads, connections, path): Case,
    (rounds, seconds): (usize, u32),
) -> io::Result<[Results; 4]> {
    let behind = backend()?;
    let peers: [Peer; 3] = [
        weir(&plan.weir, behind.at, threads, WEIR, "")?,
        nginx_proxy(behind.at, threads, ("", ""), false)?,
        haproxy(behind.at, threads, ("", ""), false)?,
    ];
    let mut results: [Results; 4] = Default::default();
    for peer in peers.iter().chain([&behind]) {
        wrk::run(peer.at, path, connections, 1)?;
    }
    for _ in 0..rounds {
        for (peer, results) in peers.iter().chain([&behind]).zip(&mut results) {
            results.rounds.push(wrk::run(peer.at, path, connections, seconds)?);
            results.rss_kib = results.rss_kib.max(peer.rss_kib());
        }
    }
    let names = peers.iter().map(|peer| peer.name).chain(["(none)"]);
    for (name, results) in names.zip(&results) {
        let of = |value: fn(&Round) -> f64| median(&results.rounds.iter().map(value).collect::<Vec<_>>());
        let errors: u64 = results.rounds.iter().map(|round| round.errors).sum();
        println!(
            "{name:<8} {threads:>7} {connections:>6} {:<6}  {:>10.0} {:>8.2} {:>8.2} {:>8.1} {errors:>7}",
            &path[1..],
            of(|round| round.rps),
            of(|round| round.p50_ms),
            of(|round| round.p99_ms),
            results.rss_kib as f64 / 1024.0,
        );
    }
    println!();
    Ok(results)
}

/// Ours against the better of the two, by medians.
fn ratios([weir, nginx, haproxy, _]: &[Results; 4]) -> Vec<String> {
    let of =
        |results: &Results, value: fn(&Round) -> f64| median(&results.rounds.iter().map(value).collect::<Vec<_>>());
    let rps = |results: &Results| of(results, |round| round.rps);
    let p99 = |results: &Results| of(results, |round| round.p99_ms);
    vec![
        format!("ratio web_rps_tiny_64 {:.3}", rps(weir) / rps(nginx).max(rps(haproxy))),
        format!("ratio web_p99_tiny_64 {:.3}", p99(weir) / p99(nginx).min(p99(haproxy))),
    ]
}
