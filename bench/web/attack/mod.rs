//! Part (b): known visitors and newcomers while a site is attacked in thirteen ways, through Weir, nginx and HAProxy with their usual protections,
//! and through nginx that asks Weir whose turn it is ("both").
//!
//! The server works on 4 requests at a time; a page takes 20 ms, so 200 a second are possible. Twenty known visitors, one in each of 20 subnets (/24), ask twice a second
//! each, at fixed times, and keep their cookies; Weir knows their networks from an access log (`weir web learn`). Newcomers come one after the other, half of them
//! from the attackers' own subnets; they read the page that they get and come again when it says. Everybody's address is told in a PROXY header.

mod doors;
mod floods;
mod visitors;

pub(crate) use doors::run as run_doors;

use crate::Plan;
use crate::client::slow_server;
use crate::peers::{Peer, free_address, haproxy, learn, nginx_asking, nginx_proxy, weir, weir_asked};
use floods::{FLOODS, Flood};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use visitors::{Known, NEWCOMERS, Newcomers, known, newcomers};
use weir_peers::Gunicorn;

const SLOTS: usize = 4;
const WORK: Duration = Duration::from_millis(20);

/// What all clients of a round share.
#[derive(Default)]
pub(crate) struct Round {
    stop: AtomicBool,
    /// Requests of attackers that were answered with 200.
    attacked: AtomicU64,
    /// The same by subnet, where the attackers do as the page says.
    of_subnet: [AtomicU64; floods::SUBNETS],
}

pub(crate) fn run(plan: &Plan) -> io::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(all(plan))
}

/// One way of protection against one attack.
struct Outcome {
    known: Known,
    newcomers: Newcomers,
    /// Answers to attackers a second.
    rate: f64,
    /// What the worst and the best served subnet of obedient attackers got of an even share.
    shares: Option<(f64, f64)>,
}

async fn all(plan: &Plan) -> io::Result<Vec<String>> {
    let (seconds, peer_seconds) = if plan.quick { (6, 3) } else { (12, 8) };
    let history = learn(&plan.weir, &visitors::access_log())?;
    println!(
        "(b) 20 known visitors of 2 requests/s, and newcomers, while the site is attacked; a server of {SLOTS} slots and pages of {} ms;",
        WORK.as_millis()
    );
    println!("    {seconds} s of each attack for Weir, {peer_seconds} s for the others, after 3 s in which it grows\n");
    let peers = if plan.only_weir { 1 } else { PROTECTIONS.len() };
    let alone = p95_alone(plan, peers, false, &history).await?;
    let mut alone_at_gunicorn = None;
    println!(
        "{:<26} {:<8} {:>9} {:>8} {:>8} {:>11} {:>11} {:>9} {:>9}",
        "attack", "through", "known %", "p95 ms", "x alone", "newcomers %", "theirs p90", "other p90", "attack/s"
    );
    let (mut worst_known, mut worst_newcomer, mut lines) = (1.0_f64, 0.0_f64, Vec::new());
    let mut worst_asked = 1.0_f64;
    for flood in FLOODS.into_iter().filter(|flood| plan.plays(flood.name)) {
        if flood.gunicorn && alone_at_gunicorn.is_none() {
            alone_at_gunicorn = Some(p95_alone(plan, peers, true, &history).await?);
        }
        let alone = alone_at_gunicorn.as_ref().filter(|_| flood.gunicorn).unwrap_or(&alone);
        for (peer, name) in PROTECTIONS.iter().enumerate().take(peers) {
            let seconds = if peer == 0 { seconds } else { peer_seconds };
            // In a hurry, newcomers are only sent through Weir: they wait for a quarter of a minute where they are not let in.
            let tries = if plan.quick && peer > 0 { 0 } else { NEWCOMERS };
            let server = Server::start(flood.gunicorn).await?;
            let started = start(plan, peer, server.at, flood.limits, &history)?;
            let outcome = play(started.1, &flood, (seconds, tries)).await?;
            let Outcome { known, newcomers, rate, shares } = &outcome;
            let over = known.p95_ms / alone[peer];
            println!(
                "{:<26} {name:<8} {:>9.1} {:>8.0} {over:>8.1} {:>11.0} {:>11.1} {:>9.1} {:>9.1}",
                flood.name,
                100.0 * known.goodput,
                known.p95_ms,
                100.0 * newcomers.in_time,
                newcomers.own_p90_s,
                newcomers.other_p90_s,
                rate
            );
            if peer == BOTH {
                worst_asked = worst_asked.min(known.goodput);
            }
            if peer == 0 {
                worst_known = worst_known.min(known.goodput);
                if !flood.obedient {
                    worst_newcomer = worst_newcomer.max(newcomers.own_p90_s.max(newcomers.other_p90_s));
                }
                if let Some((median, tenth)) = newcomers.promise {
                    println!(
                        "{:<26} {:<8} promised times: actual over promised {median:.2} in the middle, {tenth:.2} at the ninth tenth",
                        "", ""
                    );
                }
                if let Some((least, most)) = shares.filter(|_| flood.obedient) {
                    println!(
                        "{:<26} {:<8} of an even share the attackers' subnets got {least:.2} at least and {most:.2} at most",
                        "", ""
                    );
                }
                if flood.name == floods::EQUAL {
                    lines.push(format!("figure web_polite_p95_ms {:.1}", known.p95_ms));
                    lines.push(format!("figure web_polite_p95_over_alone {over:.2}"));
                    lines.push(format!("ratio web_polite_goodput {:.3}", known.goodput));
                }
            }
        }
    }
    println!();
    lines.push(format!("ratio web_known_worst {worst_known:.3}"));
    lines.push(format!("ratio web_known_worst_through_nginx {worst_asked:.3}"));
    lines.push(format!("figure web_newcomer_s {worst_newcomer:.1}"));
    Ok(lines)
}

/// One attack on the site at this address, for so many seconds and with so many newcomers.
async fn play(at: SocketAddr, flood: &Flood, (seconds, tries): (u64, u64)) -> io::Result<Outcome> {
    let round = Arc::new(Round::default());
    let attack = (flood.begin)(at, &round);
    // The flood must stand before anybody comes.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, begun) = (count(&round), Instant::now());
    let coming = tokio::spawn(newcomers(at, flood.own, seconds, tries));
    let known = known(at, seconds).await;
    let newcomers = coming.await.map_err(io::Error::other)?;
    let rate = (count(&round) - before) as f64 / begun.elapsed().as_secs_f64();
    round.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    attack.iter().for_each(tokio::task::JoinHandle::abort);
    for task in attack {
        let _ = task.await;
    }
    Ok(Outcome { known, newcomers, rate, shares: shares(&round) })
}

/// The least and the most that a subnet got, as parts of an even share.
fn shares(round: &Round) -> Option<(f64, f64)> {
    let of: Vec<u64> = round.of_subnet.iter().map(|of| of.load(std::sync::atomic::Ordering::Relaxed)).collect();
    let even = of.iter().sum::<u64>() as f64 / of.len() as f64;
    let (least, most) = (of.iter().min()?, of.iter().max()?);
    (even > 0.0).then(|| (*least as f64 / even, *most as f64 / even))
}

fn count(round: &Round) -> u64 {
    round.attacked.load(std::sync::atomic::Ordering::Relaxed)
}

/// The p95 of the known through each protection while nobody attacks.
async fn p95_alone(plan: &Plan, peers: usize, gunicorn: bool, history: &Path) -> io::Result<Vec<f64>> {
    let mut alone = Vec::new();
    for peer in 0..peers {
        let server = Server::start(gunicorn).await?;
        let (_peer, at) = start(plan, peer, server.at, "", history)?;
        alone.push(known(at, 4).await.p95_ms);
    }
    Ok(alone)
}

/// A server of its own for each round: what one attack has left behind must not keep the next one waiting.
struct Server {
    at: SocketAddr,
    _gunicorn: Option<Gunicorn>,
}

/// The same pages as those of [`slow_server`].
const APP: &str = r#"
import time
def app(environ, start):
    time.sleep(int(environ["PATH_INFO"].rsplit("/", 1)[1]) / 1000)
    start("200 OK", [("Content-Length", "4")])
    return [b"page"]
"#;

impl Server {
    async fn start(gunicorn: bool) -> io::Result<Server> {
        if gunicorn {
            let gunicorn = tokio::task::block_in_place(|| Gunicorn::start(APP, SLOTS as u32));
            let at = gunicorn.place().parse().map_err(io::Error::other)?;
            return Ok(Server { at, _gunicorn: Some(gunicorn) });
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let at = listener.local_addr()?;
        tokio::spawn(slow_server(listener, SLOTS));
        Ok(Server { at, _gunicorn: None })
    }
}

const PROTECTIONS: [&str; 4] = ["Weir", "nginx", "HAProxy", "both"];
/// nginx carries the requests, and asks Weir whose turn it is.
const BOTH: usize = 3;

/// As nginx's and HAProxy's own guides advise: by address, somewhat above what a person asks for. Before the server, and in its location.
const NGINX_LIMITS: (&str, &str) = (
    "limit_req_zone $binary_remote_addr zone=l:10m rate=5r/s; limit_conn_zone $binary_remote_addr zone=c:10m; \
     set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol;",
    "limit_req zone=l burst=10 nodelay; limit_conn c 20;",
);
const HAPROXY_TABLE: &str = "  stick-table type ip size 1m expire 30s store http_req_rate(10s)\n  http-request track-sc0 src\n  http-request deny \
                             deny_status 429 if { sc_http_req_rate(0) gt 50 }\n";

fn start(
    plan: &Plan,
    peer: usize,
    behind: SocketAddr,
    limits: &str,
    history: &Path,
) -> io::Result<(Vec<Peer>, SocketAddr)> {
    if peer == BOTH {
        let asked = (free_address()?, free_address()?);
        let history = format!("[web.history]\nfile = \"{}\"\n", history.display());
        let weir = weir_asked(&plan.weir, SLOTS, (asked.0, Some(asked.1)), &history)?;
        let nginx = nginx_asking(behind, asked)?;
        let at = nginx.at;
        return Ok((vec![nginx, weir], at));
    }
    let started = match peer {
        0 => {
            let settings = format!(
                "slots = \"{SLOTS}\"\n[web.identity]\nproxy_protocol = true\ntrusted = [\"127.0.0.0/8\"]\n[web.history]\nfile = \"{}\"\n",
                history.display()
            );
            weir(&plan.weir, behind, 1, &settings, limits)
        }
        1 => nginx_proxy(behind, 1, NGINX_LIMITS, true),
        _ => haproxy(behind, 1, (HAPROXY_TABLE, &format!("maxconn {SLOTS}")), true),
    }?;
    let at = started.at;
    Ok((vec![started], at))
}
