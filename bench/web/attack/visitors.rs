//! Those for whom the site is there: known visitors, and newcomers who wait as they are told.

use crate::client::{Answer, Connection};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const KNOWN: u8 = 20;
const EVERY: Duration = Duration::from_millis(500);
/// An answer that takes longer is of no use to a known visitor.
const USEFUL: Duration = Duration::from_secs(5);
/// A newcomer who is not in by then has gone.
const PATIENCE: Duration = Duration::from_secs(15);
pub(super) const NEWCOMERS: u64 = 16;

/// What the known got.
pub(super) struct Known {
    pub(super) goodput: f64,
    pub(super) p95_ms: f64,
}

/// What newcomers got.
pub(super) struct Newcomers {
    pub(super) in_time: f64,
    /// From subnets of the attackers.
    pub(super) own_p90_s: f64,
    pub(super) other_p90_s: f64,
    /// Actual over promised time of those who were promised one: the median, and the ninth tenth.
    pub(super) promise: Option<(f64, f64)>,
}

fn known_address(number: u8) -> [u8; 4] {
    [192, 1, number + 1, 1]
}

/// A day in which each of the known was here in every hour.
pub(super) fn access_log() -> String {
    let mut log = String::new();
    for hour in 0..24 {
        for number in 0..KNOWN {
            let [a, b, c, d] = known_address(number);
            let _ = writeln!(log, "{a}.{b}.{c}.{d} - - [10/Oct/2026:{hour:02}:30:00 +0000] \"GET / HTTP/1.1\" 200 5");
        }
    }
    log
}

/// The value below which this part of all lies.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// All of the known ask for some seconds.
pub(super) async fn known(to: SocketAddr, seconds: u64) -> Known {
    let all: Vec<_> = (0..KNOWN).map(|number| tokio::spawn(visit(number, to, seconds))).collect();
    let mut took = Vec::new();
    for one in all {
        took.extend(one.await.unwrap_or_default());
    }
    let good = took.iter().filter(|took| took.is_some()).count() as f64 / took.len().max(1) as f64;
    // Those who got nothing waited for all of the time.
    let times = took.into_iter().map(|took| took.unwrap_or(USEFUL).as_secs_f64() * 1e3).collect();
    Known { goodput: good, p95_ms: quantile(times, 0.95) }
}

/// Asks at fixed times, whatever became of the last request.
async fn visit(number: u8, to: SocketAddr, seconds: u64) -> Vec<Option<Duration>> {
    let begun = tokio::time::Instant::now() + EVERY.mul_f64(f64::from(number) / f64::from(KNOWN));
    let cookie = Arc::new(Mutex::new(None::<String>));
    let mut asked = Vec::new();
    for step in 0..seconds * 2 {
        tokio::time::sleep_until(begun + EVERY * step as u32).await;
        asked.push(tokio::spawn(ask_once(known_address(number), to, Arc::clone(&cookie))));
    }
    let mut took = Vec::new();
    for one in asked {
        took.push(one.await.unwrap_or(None));
    }
    took
}

async fn ask_once(from: [u8; 4], to: SocketAddr, cookie: Arc<Mutex<Option<String>>>) -> Option<Duration> {
    let begun = Instant::now();
    let kept = cookie.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let asked = async { Connection::open(from, to).await?.ask("/busy/20", kept.as_deref()).await };
    let answer = tokio::time::timeout(USEFUL, asked).await.ok()?.ok().filter(|answer| answer.status == 200)?;
    if let Some(given) = answer.cookie {
        *cookie.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
    }
    Some(begun.elapsed())
}

/// Newcomers come one after the other, every other one from a subnet of the attackers.
pub(super) async fn newcomers(to: SocketAddr, own_address: fn(u64) -> [u8; 4], seconds: u64, tries: u64) -> Newcomers {
    let step = Duration::from_secs(seconds).mul_f64(0.6) / NEWCOMERS as u32;
    let mut coming = Vec::new();
    for number in 0..tries {
        let from = if number % 2 == 0 { own_address(number / 2) } else { [198, 51, number as u8, 7] };
        coming.push(tokio::spawn(get_in(from, to)));
        tokio::time::sleep(step).await;
    }
    let (mut own, mut other, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for (number, one) in coming.into_iter().enumerate() {
        let tried = one.await.unwrap_or(Tried { took: PATIENCE, is_in: false, promised: None });
        let list = if number % 2 == 0 { &mut own } else { &mut other };
        list.push(if tried.is_in { tried.took.as_secs_f64() } else { PATIENCE.as_secs_f64() });
        truth.extend(tried.ratio());
    }
    let all = own.len() + other.len();
    let late = own.iter().chain(&other).filter(|took| **took >= PATIENCE.as_secs_f64()).count();
    Newcomers {
        in_time: (all - late) as f64 / all.max(1) as f64,
        own_p90_s: quantile(own, 0.9),
        other_p90_s: quantile(other, 0.9),
        promise: (!truth.is_empty()).then(|| (quantile(truth.clone(), 0.5), quantile(truth, 0.9))),
    }
}

pub(super) struct Tried {
    pub(super) took: Duration,
    pub(super) is_in: bool,
    /// The last promise, and when it was made.
    pub(super) promised: Option<(Duration, Duration)>,
}

impl Tried {
    /// How long it took from the first promise, over what was promised.
    pub(super) fn ratio(&self) -> Option<f64> {
        let (promised, at) = self.promised.filter(|_| self.is_in)?;
        Some((self.took - at).as_secs_f64() / promised.as_secs_f64().max(1.0))
    }
}

/// Comes again when it is told, with its cookie, until it is served or has no more patience.
pub(super) async fn get_in(from: [u8; 4], to: SocketAddr) -> Tried {
    let (begun, mut cookie, mut promised) = (Instant::now(), None, None);
    while begun.elapsed() < PATIENCE {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        let asked = async { Connection::open(from, to).await?.ask("/busy/20", cookie.as_deref()).await };
        let answer = match tokio::time::timeout(left, asked).await {
            Ok(Ok(answer)) => answer,
            _ => Answer::default(),
        };
        if answer.status == 200 {
            return Tried { took: begun.elapsed(), is_in: true, promised };
        }
        cookie = answer.cookie.or(cookie);
        if let (Some(told), None) = (answer.promised, promised) {
            promised = Some((told, begun.elapsed()));
        }
        tokio::time::sleep(answer.again.unwrap_or(Duration::from_secs(2)).min(left)).await;
    }
    Tried { took: begun.elapsed(), is_in: false, promised }
}
