//! Part (a): requests a second, latency and memory of Weir, nginx and HAProxy in front of one nginx.

use crate::peers::{Certificate, Peer, backend, haproxy, haproxy_tls, nginx_proxy, nginx_tls, weir, weir_tls};
use crate::wrk::{self, Round};
use crate::{Plan, median};
use std::io;

/// What is measured in one row.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Of the proxy.
    threads: usize,
    connections: u32,
    path: &'static str,
    /// Whether clients speak TLS.
    tls: bool,
}

const fn case(name: &'static str, threads: usize, connections: u32, path: &'static str) -> Case {
    Case { name, threads, connections, path, tls: false }
}

const CASES: [Case; 10] = [
    case("tiny_64", 1, 64, "/tiny"),
    case("64k_64", 1, 64, "/64k"),
    Case { tls: true, ..case("tls_tiny_64", 1, 64, "/tiny") },
    Case { tls: true, ..case("tls_64k_64", 1, 64, "/64k") },
    case("tiny_1000", 1, 1_000, "/tiny"),
    case("64k_1000", 1, 1_000, "/64k"),
    case("two_tiny_64", 2, 64, "/tiny"),
    case("two_64k_64", 2, 64, "/64k"),
    case("two_tiny_1000", 2, 1_000, "/tiny"),
    case("two_64k_1000", 2, 1_000, "/64k"),
];
/// The row that a quick run plays, and those whose processor time is compared.
const ONE: &str = "tiny_64";
const TWO: &str = "two_tiny_64";
const ROUNDS: usize = 7;
const SECONDS: u32 = 4;
/// The backend takes what comes; the fair queue is on, and out of the way.
const WEIR: &str = "slots = \"2048\"";

#[derive(Default)]
struct Results {
    rounds: Vec<Round>,
    rss_kib: u64,
    /// Processor time of one request, of all processes of the proxy, in microseconds; one value for each round.
    cpu_us: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> io::Result<Vec<String>> {
    let (rounds, seconds) = if plan.quick { (3, 2) } else { (ROUNDS, SECONDS) };
    let played =
        |case: &&Case| if plan.quick && plan.rows.is_empty() { case.name == ONE } else { plan.plays(case.name) };
    println!("(a) wrk through each proxy to one nginx; medians of {rounds} interleaved rounds of {seconds} s\n");
    println!(
        "{:<8} {:<14} {:>10} {:>8} {:>8} {:>10} {:>8} {:>7}",
        "proxy", "row", "requests/s", "p50 ms", "p99 ms", "cpu us/req", "RSS MiB", "errors"
    );
    let (mut lines, mut cpu) = (Vec::new(), Vec::new());
    for case in CASES.iter().filter(played) {
        let results = run_case(plan, *case, (rounds, seconds))?;
        lines.extend(ratios(case.name, &results));
        cpu.push((case.name, median(&results[0].cpu_us)));
    }
    let of = |name| cpu.iter().find(|(case, _)| *case == name).map(|(_, cpu)| *cpu);
    if let (Some(one), Some(two)) = (of(ONE), of(TWO)) {
        lines.push(format!("ratio web_cpu_two_threads {:.3}", two / one));
    }
    Ok(lines)
}

fn run_case(plan: &Plan, case: Case, (rounds, seconds): (usize, u32)) -> io::Result<[Results; 4]> {
    let Case { name: row, threads, connections, path, tls } = case;
    let behind = backend()?;
    let certificate = if tls { Some(Certificate::new()?) } else { None };
    let peers: [Peer; 3] = match &certificate {
        None => [
            weir(&plan.weir, behind.at, threads, WEIR, "")?,
            nginx_proxy(behind.at, threads, ("", ""), false)?,
            haproxy(behind.at, threads, ("", ""), false)?,
        ],
        Some(certificate) => [
            weir_tls(&plan.weir, behind.at, threads, WEIR, certificate)?,
            nginx_tls(behind.at, threads, certificate)?,
            haproxy_tls(behind.at, threads, certificate)?,
        ],
    };
    let mut results: [Results; 4] = Default::default();
    // The server behind them speaks no TLS.
    let all = || peers.iter().map(move |peer| (peer, tls)).chain([(&behind, false)]);
    for (peer, tls) in all() {
        wrk::run(peer.at, path, connections, 1, tls)?;
    }
    for _ in 0..rounds {
        for ((peer, tls), results) in all().zip(&mut results) {
            let before = peer.cpu_s();
            let round = wrk::run(peer.at, path, connections, seconds, tls)?;
            results.cpu_us.push((peer.cpu_s() - before) * 1e6 / (round.rps * f64::from(seconds)).max(1.0));
            results.rounds.push(round);
            results.rss_kib = results.rss_kib.max(peer.rss_kib());
        }
    }
    let names = peers.iter().map(|peer| peer.name).chain(["(none)"]);
    for (name, results) in names.zip(&results) {
        let of = |value: fn(&Round) -> f64| median(&results.rounds.iter().map(value).collect::<Vec<_>>());
        let errors: u64 = results.rounds.iter().map(|round| round.errors).sum();
        println!(
            "{name:<8} {row:<14} {:>10.0} {:>8.2} {:>8.2} {:>10.1} {:>8.1} {errors:>7}",
            of(|round| round.rps),
            of(|round| round.p50_ms),
            of(|round| round.p99_ms),
            median(&results.cpu_us),
            results.rss_kib as f64 / 1024.0,
        );
    }
    println!();
    Ok(results)
}

/// Ours against the better of the two, by medians.
fn ratios(row: &str, [weir, nginx, haproxy, _]: &[Results; 4]) -> Vec<String> {
    let of =
        |results: &Results, value: fn(&Round) -> f64| median(&results.rounds.iter().map(value).collect::<Vec<_>>());
    let rps = |results: &Results| of(results, |round| round.rps);
    let p99 = |results: &Results| of(results, |round| round.p99_ms);
    vec![
        format!("ratio web_rps_{row} {:.3}", rps(weir) / rps(nginx).max(rps(haproxy))),
        format!("ratio web_p99_{row} {:.3}", p99(weir) / p99(nginx).min(p99(haproxy))),
    ]
}
