//! Part (b): twenty polite clients, then two thousand connections of attackers, through each way of protection.
//!
//! The server works on 4 requests at a time, 20 ms each: 200 a second. The polite are one in each of 20 subnets (/24), ask twice a second each
//! (40 a second in all) and keep their cookies. The attackers have 8 subnets, hundreds of addresses in them, drop their cookies
//! and ask as fast as they are answered. Max-min gives the polite all that they ask for.

use crate::client::{Connection, slow_server};
use crate::peers::{Peer, haproxy, nginx_proxy, weir};
use crate::{Plan, median};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const SLOTS: usize = 4;
const WORK: Duration = Duration::from_millis(20);
const POLITE: u8 = 20;
const EVERY: Duration = Duration::from_millis(500);
const ATTACKERS: usize = 2_000;
const SUBNETS: usize = 8;
const ROUNDS: usize = 7;
/// An answer that takes longer is of no use to anybody.
const USEFUL: Duration = Duration::from_secs(5);

/// What the polite got.
struct Got {
    goodput: f64,
    p95_ms: f64,
    attackers_per_s: f64,
}

pub(crate) fn run(plan: &Plan) -> io::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(all(plan))
}

async fn all(plan: &Plan) -> io::Result<Vec<String>> {
    let seconds = if plan.quick { 6 } else { 10 };
    let rounds = if plan.quick { 1 } else { ROUNDS };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let behind = listener.local_addr()?;
    tokio::spawn(slow_server(listener, SLOTS, WORK));
    println!(
        "(b) {POLITE} polite clients of 2 requests/s, alone and with {ATTACKERS} attacking connections from {SUBNETS} subnets;"
    );
    println!(
        "    a server of {SLOTS} slots and {} ms; medians of {rounds} interleaved rounds of {seconds} s\n",
        WORK.as_millis()
    );
    let mut table: Vec<(&'static str, Vec<Got>, Vec<Got>)> = Vec::new();
    for round in 1..=rounds {
        for (at, peer) in protections(plan, behind)?.into_iter().enumerate() {
            let (name, peer) = peer;
            idle(behind).await?;
            let alone = measure(peer.at, 0, seconds).await;
            let attacked = measure(peer.at, ATTACKERS, seconds).await;
            eprintln!("  round {round}, {name}: polite p95 {:.1} ms, alone {:.1} ms", attacked.p95_ms, alone.p95_ms);
            if table.len() <= at {
                table.push((name, Vec::new(), Vec::new()));
            }
            table[at].1.push(alone);
            table[at].2.push(attacked);
            drop(peer);
        }
    }
    Ok(print(&table))
}

/// Waits until the server has done what the last attack has left it with.
async fn idle(server: SocketAddr) -> io::Result<()> {
    loop {
        let begun = Instant::now();
        Connection::open([127, 0, 0, 1], server).await?.ask(None).await?;
        if begun.elapsed() < 3 * WORK {
            return Ok(());
        }
    }
}

/// All are started before the first turn.
fn protections(plan: &Plan, behind: SocketAddr) -> io::Result<Vec<(&'static str, Peer)>> {
    let slots = format!("slots = \"{SLOTS}\"");
    // As nginx's and HAProxy's own guides advise: by address, somewhat above what a person asks for.
    let limit =
        "limit_req_zone $binary_remote_addr zone=l:10m rate=5r/s; limit_conn_zone $binary_remote_addr zone=c:10m;";
    let limited = "limit_req zone=l burst=10 nodelay; limit_conn c 20;";
    let table = "  stick-table type ip size 1m expire 30s store http_req_rate(10s)\n  http-request track-sc0 src\n  http-request deny \
                 deny_status 429 if { sc_http_req_rate(0) gt 50 }\n";
    Ok(vec![
        ("Weir", weir(&plan.weir, behind, 1, &slots)?),
        ("nginx, limit_req", nginx_proxy(behind, 1, (limit, limited))?),
        ("HAProxy, queue and stick table", haproxy(behind, 1, (table, &format!("maxconn {SLOTS}")))?),
        ("nginx, no protection", nginx_proxy(behind, 1, ("", ""))?),
    ])
}

fn print(table: &[(&'static str, Vec<Got>, Vec<Got>)]) -> Vec<String> {
    println!(
        "{:<32} {:>14} {:>14} {:>14} {:>14} {:>14}",
        "protection", "alone p95 ms", "polite good %", "polite p95 ms", "p95 / alone", "attackers /s"
    );
    let mut lines = Vec::new();
    for (name, alone, attacked) in table {
        let of = |list: &[Got], value: fn(&Got) -> f64| median(&list.iter().map(value).collect::<Vec<_>>());
        let (before, p95) = (of(alone, |got| got.p95_ms), of(attacked, |got| got.p95_ms));
        let good = of(attacked, |got| got.goodput);
        println!(
            "{name:<32} {before:>14.1} {:>14.1} {p95:>14.1} {:>14.2} {:>14.1}",
            100.0 * good,
            p95 / before,
            of(attacked, |got| got.attackers_per_s)
        );
        if *name == "Weir" {
            lines.push(format!("figure web_polite_p95_ms {p95:.1}"));
            lines.push(format!("figure web_polite_p95_over_alone {:.2}", p95 / before));
            lines.push(format!("ratio web_polite_goodput {good:.3}"));
        }
    }
    println!();
    lines
}

#[derive(Default)]
struct Tally {
    asked: AtomicU64,
    good: AtomicU64,
    attacked: AtomicU64,
    took_ms: Mutex<Vec<f64>>,
    stop: AtomicBool,
}

async fn measure(to: SocketAddr, attackers: usize, seconds: u64) -> Got {
    let tally = Arc::new(Tally::default());
    let mut tasks = Vec::new();
    for number in 0..attackers {
        tasks.push(tokio::spawn(attack(number, to, Arc::clone(&tally))));
    }
    // The flood must stand before the polite come.
    if attackers > 0 {
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let (before, begun) = (tally.attacked.load(Ordering::Relaxed), Instant::now());
    let polite: Vec<_> =
        (0..POLITE).map(|number| tokio::spawn(be_polite(number, to, seconds, Arc::clone(&tally)))).collect();
    for client in polite {
        let _ = client.await;
    }
    let attacked = tally.attacked.load(Ordering::Relaxed) - before;
    let attackers_per_s = attacked as f64 / begun.elapsed().as_secs_f64();
    tally.stop.store(true, Ordering::Relaxed);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let took = tally.took_ms.lock().map(|mut took| std::mem::take(&mut *took)).unwrap_or_default();
    Got {
        goodput: tally.good.load(Ordering::Relaxed) as f64 / tally.asked.load(Ordering::Relaxed).max(1) as f64,
        p95_ms: p95(took),
        attackers_per_s,
    }
}

fn p95(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}

/// Asks at fixed times, whatever became of the last request.
async fn be_polite(number: u8, to: SocketAddr, seconds: u64, tally: Arc<Tally>) {
    let from = [127, 1, number + 1, 1];
    let begun = tokio::time::Instant::now() + EVERY.mul_f64(f64::from(number) / f64::from(POLITE));
    let cookie = Arc::new(Mutex::new(None::<String>));
    let mut asked = Vec::new();
    for step in 0..seconds * 2 {
        tokio::time::sleep_until(begun + EVERY * step as u32).await;
        let (tally, cookie) = (Arc::clone(&tally), Arc::clone(&cookie));
        asked.push(tokio::spawn(ask_once(from, to, tally, cookie)));
    }
    for one in asked {
        let _ = one.await;
    }
}

async fn ask_once(from: [u8; 4], to: SocketAddr, tally: Arc<Tally>, cookie: Arc<Mutex<Option<String>>>) {
    tally.asked.fetch_add(1, Ordering::Relaxed);
    let begun = Instant::now();
    let kept = cookie.lock().ok().and_then(|cookie| cookie.clone());
    let answer =
        tokio::time::timeout(USEFUL, async { Connection::open(from, to).await?.ask(kept.as_deref()).await }).await;
    // Those who got nothing waited for all of the time.
    let mut took = USEFUL;
    if let Ok(Ok((200, given))) = answer {
        took = begun.elapsed();
        tally.good.fetch_add(1, Ordering::Relaxed);
        if let (Some(given), Ok(mut cookie)) = (given, cookie.lock()) {
            *cookie = Some(given);
        }
    }
    if let Ok(mut all) = tally.took_ms.lock() {
        all.push(took.as_secs_f64() * 1e3);
    }
}

/// Asks as fast as it is answered, from hundreds of addresses, with no cookie: every address is a session.
async fn attack(number: usize, to: SocketAddr, tally: Arc<Tally>) {
    let (subnet, host) = (number % SUBNETS, number / SUBNETS);
    let from = [127, 2, subnet as u8 + 1, (host % 250) as u8 + 1];
    while !tally.stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open(from, to).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok((status, _)) = connection.ask(None).await {
            if status == 200 {
                tally.attacked.fetch_add(1, Ordering::Relaxed);
            } else {
                // Refused at once; without a pause this would be a race of the client's processor.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
