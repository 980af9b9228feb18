//! The attacks.

use super::Round;
use super::visitors::get_in;
use crate::client::Connection;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

/// One way to attack a site.
pub(super) struct Flood {
    pub(super) name: &'static str,
    pub(super) begin: fn(SocketAddr, &Arc<Round>) -> Vec<JoinHandle<()>>,
    /// What Weir's limits are, if not the usual ones.
    pub(super) limits: &'static str,
    /// Whether the attackers read the waiting page and do as it says: then nobody can be served within a given time.
    pub(super) obedient: bool,
    /// Whether the site is a gunicorn of four workers, and not a server of this bench.
    pub(super) gunicorn: bool,
    /// Where in the attackers' subnets the newcomer of this number lives.
    pub(super) own: fn(u64) -> [u8; 4],
}

/// The one whose figures have been printed for longest.
pub(super) const EQUAL: &str = "2 000 of 8 subnets";

const fn flood(name: &'static str, begin: fn(SocketAddr, &Arc<Round>) -> Vec<JoinHandle<()>>) -> Flood {
    let own = |number| [127, 2, 1 + (number % SUBNETS as u64) as u8, 251];
    Flood { name, begin, limits: "", obedient: false, gunicorn: false, own }
}

pub(super) const FLOODS: [Flood; 13] = [
    flood(EQUAL, |to, round| hammer(to, round, 2_000, |_| "/busy/20".into(), false)),
    flood("reads 50 MB at 256 B/s", |to, round| read_slowly(to, round, 8, "/big/50")),
    flood("pages of 500 ms", |to, round| hammer(to, round, 800, |_| "/busy/500".into(), false)),
    Flood { own: |number| [127, 2, 1, 251 + (number % 4) as u8], ..flood("cheap first, then cookies", bought) },
    Flood { limits: "connections = 1000\n", ..flood("1 000 idle of 500 subnets", idle) },
    Flood { own: of_many, ..flood("180 000 addresses", |to, round| many_addresses(to, round, 1)) },
    Flood { own: of_many, ..flood("180 000, 16 times each", |to, round| many_addresses(to, round, 16)) },
    flood("keeps its cookies", |to, round| hammer(to, round, 800, |_| "/busy/20".into(), true)),
    flood("1 to 500 ms in turn", |to, round| {
        hammer(to, round, 800, |number| format!("/busy/{}", [1, 500, 20, 1, 250][number as usize % 5]), false)
    }),
    flood("slow POST", slow_post),
    flood("reads small answers slowly", |to, round| read_slowly(to, round, 1_000, "/busy/5")),
    Flood { obedient: true, ..flood("obeys the page", obey) },
    Flood {
        gunicorn: true,
        own: |number| [70, 0, (number * 30) as u8, 9],
        ..flood("random queries, gunicorn", past_caches)
    },
];

pub(super) const SUBNETS: usize = 8;

fn address(number: usize) -> [u8; 4] {
    [127, 2, 1 + (number % SUBNETS) as u8, 1 + (number / SUBNETS % 250) as u8]
}

/// A connection from this address, tried again while the site takes none; nothing once the round is over.
async fn connected(round: &Round, from: [u8; 4], to: SocketAddr) -> Option<Connection> {
    while !round.stop.load(Ordering::Relaxed) {
        if let Ok(connection) = Connection::open(from, to).await {
            return Some(connection);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

/// Counts an answer. After a refusal it pauses: otherwise refusals would be a race of the client's processor.
async fn counted(round: &Round, status: u16) {
    match status {
        200 => drop(round.attacked.fetch_add(1, Ordering::Relaxed)),
        _ => tokio::time::sleep(Duration::from_millis(20)).await,
    }
}

/// Asks as fast as it is answered, from hundreds of addresses in eight subnets, with the cookie that it was given or without one.
fn hammer(
    to: SocketAddr,
    round: &Arc<Round>,
    count: usize,
    path: fn(u64) -> String,
    cookies: bool,
) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            let (mut cookie, mut asked) = (None::<String>, number as u64);
            while let Some(mut connection) = connected(&round, address(number), to).await {
                while let Ok(answer) = connection.ask(&path(asked), cookie.as_deref().filter(|_| cookies)).await {
                    asked += 1;
                    cookie = answer.cookie.or(cookie);
                    counted(&round, answer.status).await;
                }
            }
        })
    };
    (0..count).map(one).collect()
}

/// Asks, and takes the answer at 256 octets a second, or even slower; again when it has it.
fn read_slowly(to: SocketAddr, round: &Arc<Round>, count: usize, path: &'static str) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            while let Some(mut connection) = connected(&round, address(number), to).await {
                let told = &connection.told;
                let ask = format!("GET {path} HTTP/1.1\r\nHost: bench.example\r\n{told}Connection: close\r\n\r\n");
                let stream = connection.stream.get_mut();
                let _ = stream.write_all(ask.as_bytes()).await;
                let mut some = [0; 64];
                while stream.read(&mut some).await.is_ok_and(|octets| octets > 0) {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                round.attacked.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    (0..count).map(one).collect()
}

/// One subnet makes cheap requests for two seconds, and then attacks with 400 cookies.
fn bought(to: SocketAddr, round: &Arc<Round>) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            let (begun, mut cookie) = (std::time::Instant::now(), None::<String>);
            let from = [127, 2, 1, 1 + (number % 250) as u8];
            while let Some(mut connection) = connected(&round, from, to).await {
                let path = || if begun.elapsed() < Duration::from_secs(2) { "/busy/0" } else { "/busy/20" };
                while let Ok(answer) = connection.ask(path(), cookie.as_deref()).await {
                    cookie = answer.cookie.or(cookie);
                    counted(&round, answer.status).await;
                }
            }
        })
    };
    (0..400).map(one).collect()
}

/// Keeps connections open that ask once and then for nothing; opens others when they are closed.
fn idle(to: SocketAddr, round: &Arc<Round>) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            let from = [127, 2 + (number / 2 / 250) as u8, (number / 2 % 250) as u8 + 1, 1 + (number % 2) as u8];
            while !round.stop.load(Ordering::Relaxed) {
                if let Ok(mut connection) = Connection::open(from, to).await {
                    let _ = connection.ask("/busy/0", None).await;
                    let _ = connection.stream.read(&mut [0; 16]).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    (0..1_000).map(one).collect()
}

/// One expensive page with another query each time, so that no cache has it; 800 connections from 800 networks, as fast as they are answered.
fn past_caches(to: SocketAddr, round: &Arc<Round>) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            let from = [70, (number / 250) as u8, (number % 250) as u8, 1];
            let mut query = number as u64;
            while let Some(mut connection) = connected(&round, from, to).await {
                loop {
                    query = query.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let Ok(answer) = connection.ask(&format!("/busy/500?{query:x}"), None).await else { break };
                    counted(&round, answer.status).await;
                }
            }
        })
    };
    (0..800).map(one).collect()
}

/// One of the subnets that [`many_addresses`] comes from early.
fn of_many(number: u64) -> [u8; 4] {
    [60, 0, (number * 30) as u8, 200]
}

/// Who asks next in [`many_addresses`].
#[derive(Default)]
struct Caller {
    number: u64,
    asked: u64,
    cookie: Option<String>,
}

/// Four times what the server can do, at fixed times, from 180 000 addresses in 60 000 subnets. A thousand of them are there at a time; each asks so many
/// times, with the cookie that it was given, and makes way for the next. None waits for its place as it is told.
fn many_addresses(to: SocketAddr, round: &Arc<Round>, times: u64) -> Vec<JoinHandle<()>> {
    const PER_SECOND: u64 = 800;
    const ADDRESSES: u64 = 180_000;
    const AT_A_TIME: u64 = 1_000;
    // They are not all new at the same moment.
    let caller = |number| Arc::new(Mutex::new(Caller { number, asked: number % times, cookie: None }));
    let callers: Vec<_> = (0..AT_A_TIME).map(caller).collect();
    let round = Arc::clone(round);
    let driver = tokio::spawn(async move {
        let (mut next, mut any) = (AT_A_TIME, 1_u64);
        let mut clock = tokio::time::interval(Duration::from_millis(10));
        let mut asking = tokio::task::JoinSet::new();
        while !round.stop.load(Ordering::Relaxed) {
            clock.tick().await;
            for _ in 0..PER_SECOND / 100 {
                any = any.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let caller = Arc::clone(&callers[((any >> 33) % AT_A_TIME) as usize]);
                let (number, cookie) = {
                    let mut caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
                    if caller.asked == times {
                        *caller = Caller { number: next % ADDRESSES, ..Caller::default() };
                        next += 1;
                    }
                    caller.asked += 1;
                    (caller.number, caller.cookie.clone())
                };
                let (subnet, host) = (number % 60_000, 1 + (number / 60_000) as u8);
                let from = [60 + (subnet / 62_500) as u8, (subnet / 250) as u8, (subnet % 250) as u8, host];
                let round = Arc::clone(&round);
                asking.spawn(async move {
                    let asked = async { Connection::open(from, to).await?.ask("/busy/20", cookie.as_deref()).await };
                    let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(10), asked).await else { return };
                    if answer.status == 200 {
                        round.attacked.fetch_add(1, Ordering::Relaxed);
                    }
                    let mut caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
                    if caller.number == number && answer.cookie.is_some() {
                        caller.cookie = answer.cookie;
                    }
                });
            }
            while asking.try_join_next().is_some() {}
        }
    });
    vec![driver]
}

/// Uploads that come at 200 octets a second, by many at once.
fn slow_post(to: SocketAddr, round: &Arc<Round>) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            while let Some(mut connection) = connected(&round, address(number), to).await {
                let told = &connection.told;
                let head =
                    format!("POST /busy/20 HTTP/1.1\r\nHost: bench.example\r\n{told}Content-Length: 100000\r\n\r\n");
                let stream = connection.stream.get_mut();
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&[b'x'; 100]).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        })
    };
    (0..400).map(one).collect()
}

/// Reads the waiting page, keeps its cookie and comes again when it is told, again and again.
fn obey(to: SocketAddr, round: &Arc<Round>) -> Vec<JoinHandle<()>> {
    let one = |number: usize| {
        let round = Arc::clone(round);
        tokio::spawn(async move {
            while !round.stop.load(Ordering::Relaxed) {
                if get_in(address(number), to).await.is_in {
                    round.attacked.fetch_add(1, Ordering::Relaxed);
                    round.of_subnet[number % SUBNETS].fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    (0..1_000).map(one).collect()
}
