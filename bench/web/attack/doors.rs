//! The same attacks on a site that another proxy carries: the proxy alone, and asking Weir whose turn it is, as docs/doors.md sets it up.
//!
//! Caddy is there once more without its log: then nobody knows when a request is over, and every slot is held for a second.

use super::floods::FLOODS;
use super::{SLOTS, Server, play};
use crate::Plan;
use crate::client::tell_addresses_in_a_field;
use crate::peers::{Peer, caddy, free_address, haproxy, haproxy_asking, learn, nginx_asking, nginx_proxy, weir_asked};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Who carries the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Nginx,
    NginxAsking,
    Caddy,
    CaddyAsking,
    CaddyWithoutLog,
    Haproxy,
    HaproxyAsking,
}

const CARRIERS: [(Carrier, &str); 7] = [
    (Carrier::Nginx, "nginx"),
    (Carrier::NginxAsking, "nginx, asking"),
    (Carrier::Caddy, "Caddy"),
    (Carrier::CaddyAsking, "Caddy, asking"),
    (Carrier::CaddyWithoutLog, "Caddy, no log"),
    (Carrier::Haproxy, "HAProxy"),
    (Carrier::HaproxyAsking, "HAProxy, asking"),
];

pub(crate) fn run(plan: &Plan) -> io::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(all(plan))
}

async fn all(plan: &Plan) -> io::Result<Vec<String>> {
    let seconds = if plan.quick { 3 } else { 8 };
    let history = learn(&plan.weir, &super::visitors::access_log())?;
    println!(
        "(b) 20 known visitors of 2 requests/s while a site that another proxy carries is attacked: the proxy alone, and asking Weir;"
    );
    println!("    {seconds} s of each attack, after 3 s in which it grows\n");
    println!("{:<26} {:<16} {:>9} {:>8} {:>9}", "attack", "through", "known %", "p95 ms", "attack/s");
    let mut worst = [1.0_f64; CARRIERS.len()];
    for flood in FLOODS {
        for ((carrier, name), worst) in CARRIERS.iter().zip(&mut worst) {
            // In a hurry, proxies alone are left out: the other part of this bench has them.
            let alone = matches!(carrier, Carrier::Nginx | Carrier::Caddy | Carrier::Haproxy);
            if plan.quick && alone && *carrier != Carrier::Caddy {
                continue;
            }
            let in_a_field = matches!(carrier, Carrier::Caddy | Carrier::CaddyAsking | Carrier::CaddyWithoutLog);
            tell_addresses_in_a_field(in_a_field);
            let server = Server::start(flood.gunicorn).await?;
            let (_peers, at) = start(plan, *carrier, server.at, &history)?;
            let outcome = play(at, &flood, (seconds, 0)).await?;
            println!(
                "{:<26} {name:<16} {:>9.1} {:>8.0} {:>9.1}",
                flood.name,
                100.0 * outcome.known.goodput,
                outcome.known.p95_ms,
                outcome.rate
            );
            *worst = worst.min(outcome.known.goodput);
        }
    }
    tell_addresses_in_a_field(false);
    let named = [
        (Carrier::NginxAsking, "web_known_worst_nginx_asking"),
        (Carrier::CaddyAsking, "web_known_worst_caddy_asking"),
        (Carrier::CaddyWithoutLog, "web_known_worst_without_log"),
        (Carrier::HaproxyAsking, "web_known_worst_haproxy_asking"),
    ];
    let of = |wanted: Carrier| {
        CARRIERS.iter().zip(worst).find(|((carrier, _), _)| *carrier == wanted).map(|(_, worst)| worst)
    };
    Ok(named
        .into_iter()
        .map(|(carrier, name)| format!("ratio {name} {:.3}", of(carrier).unwrap_or(f64::NAN)))
        .collect())
}

fn start(plan: &Plan, carrier: Carrier, behind: SocketAddr, history: &Path) -> io::Result<(Vec<Peer>, SocketAddr)> {
    let asked = (free_address()?, free_address()?);
    let weir = |log: bool| {
        let history = format!("[web.history]\nfile = \"{}\"\n", history.display());
        weir_asked(&plan.weir, SLOTS, (asked.0, log.then_some(asked.1)), &history)
    };
    let peers = match carrier {
        Carrier::Nginx => vec![nginx_proxy(behind, 1, super::NGINX_LIMITS, true)?],
        Carrier::Haproxy => vec![haproxy(behind, 1, (super::HAPROXY_TABLE, &format!("maxconn {SLOTS}")), true)?],
        Carrier::Caddy => vec![caddy(behind, None)?],
        Carrier::NginxAsking => vec![nginx_asking(behind, asked)?, weir(true)?],
        Carrier::CaddyAsking => vec![caddy(behind, Some((asked.0, Some(asked.1))))?, weir(true)?],
        Carrier::CaddyWithoutLog => vec![caddy(behind, Some((asked.0, None)))?, weir(false)?],
        Carrier::HaproxyAsking => vec![haproxy_asking(behind, asked)?, weir(true)?],
    };
    let at = peers[0].at;
    Ok((peers, at))
}
