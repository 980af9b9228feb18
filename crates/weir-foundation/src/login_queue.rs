//! Decides whose login is checked next, so that a flood of wrong logins does not keep the right ones out.
//!
//! There are two lines. A login from a source without recent failures goes into the first line, which may use all places. Logins from other
//! sources, and from sources that already have a login under way, go into the second line, which may use only half of the places. So
//! however many wrong logins arrive, a correct one from another source does not have to wait for them. Both lines are bounded; if a line is
//! full, the answer is "try again". All addresses of an IPv6 prefix count as one source.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a failed login puts its source into the second line.
const SUSPECT_FOR: Duration = Duration::from_secs(600);
/// How many logins of one source may be in the first line at once. Without this bound, one source could fill the line before its first
/// failure.
const FIRST_LINE_EACH: u32 = 1;
/// When this many sources are known, all are forgotten except those that have a login under way.
const SOURCES_MAX: usize = 20_000;
/// A site with IPv6 has at least a prefix of this length to itself.
const IPV6_PREFIX_BITS: u32 = 64;

/// The two lines and their places.
#[derive(Debug)]
pub struct LoginQueue {
    places: Semaphore,
    second_places: Semaphore,
    first_line: Semaphore,
    second_line: Semaphore,
    sources: Mutex<HashMap<IpAddr, LoginSource>>,
}

#[derive(Debug, Default)]
struct LoginSource {
    /// How many of its logins are in the first line, or are being checked.
    under_way: u32,
    failed_at: Option<Instant>,
}

/// Permission to check one login. Dropping it lets the next login in.
#[derive(Debug)]
pub struct Turn<'a> {
    login_queue: &'a LoginQueue,
    /// The source, if this login counts as under way in the first line.
    counted: Option<IpAddr>,
    source: Option<IpAddr>,
    _permits: (Option<SemaphorePermit<'a>>, Option<SemaphorePermit<'a>>, Option<SemaphorePermit<'a>>),
}

impl LoginQueue {
    /// A queue with this many places, and at most this many waiting logins in each line.
    pub fn new(places: usize, waiting: usize) -> LoginQueue {
        LoginQueue {
            places: Semaphore::new(places.max(1)),
            second_places: Semaphore::new((places / 2).max(1)),
            first_line: Semaphore::new(waiting),
            second_line: Semaphore::new(waiting),
            sources: Mutex::default(),
        }
    }

    /// Waits for a turn; none if the line is full. No source means that Weir itself asks.
    pub async fn enter(&self, from: Option<IpAddr>) -> Option<Turn<'_>> {
        let source = from.map(prefix);
        let first = source.is_none_or(|source| self.may_use_first(source));
        // The turn is made before anything is waited for, so that dropping it always counts the login out, even if the client goes away.
        let mut turn =
            Turn { login_queue: self, counted: source.filter(|_| first), source, _permits: Default::default() };
        let line = if first { &self.first_line } else { &self.second_line };
        turn._permits.0 = Some(line.try_acquire().ok()?);
        if !first {
            turn._permits.1 = Some(self.second_places.acquire().await.ok()?);
        }
        turn._permits.2 = Some(self.places.acquire().await.ok()?);
        Some(turn)
    }

    fn may_use_first(&self, source: IpAddr) -> bool {
        let mut sources = self.sources();
        let known = sources.entry(source).or_default();
        let suspect = known.failed_at.is_some_and(|at| at.elapsed() < SUSPECT_FOR);
        let first = !suspect && known.under_way < FIRST_LINE_EACH;
        known.under_way += u32::from(first);
        first
    }

    fn failed(&self, source: IpAddr) {
        let mut sources = self.sources();
        if sources.len() >= SOURCES_MAX {
            sources.retain(|_, source| source.under_way > 0);
        }
        sources.entry(source).or_default().failed_at = Some(Instant::now());
    }

    fn left(&self, source: IpAddr) {
        let mut sources = self.sources();
        let Some(known) = sources.get_mut(&source) else { return };
        known.under_way = known.under_way.saturating_sub(1);
        if known.under_way == 0 && known.failed_at.is_none() {
            sources.remove(&source);
        }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<IpAddr, LoginSource>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The source of an address: an IPv4 address, even if it is mapped into IPv6, or an IPv6 prefix.
fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & u128::MAX << (128 - IPV6_PREFIX_BITS)).into(),
        v4 => v4,
    }
}

impl Turn<'_> {
    /// Notes that the login was wrong: for a while, its source waits in the second line.
    pub fn failed(&self) {
        if let Some(source) = self.source {
            self.login_queue.failed(source);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.counted {
            self.login_queue.left(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn at_once<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn address(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, number]))
    }

    #[test]
    fn who_failed_leaves_half_of_the_places_to_the_others() {
        let login_queue = LoginQueue::new(2, 100);
        for number in 0..5 {
            at_once(login_queue.enter(address(number))).flatten().unwrap().failed();
        }
        let suspect = at_once(login_queue.enter(address(1))).flatten();
        assert!(suspect.is_some());
        assert!(at_once(login_queue.enter(address(2))).is_none(), "a second suspect waits");
        let honest = at_once(login_queue.enter(address(77))).flatten();
        assert!(honest.is_some(), "an honest one does not");
        drop(suspect);
        assert!(at_once(login_queue.enter(address(2))).flatten().is_some());
    }

    #[test]
    fn a_crowd_from_one_address_goes_into_the_second_line_and_lines_end() {
        let login_queue = LoginQueue::new(6, 3);
        let first = at_once(login_queue.enter(address(1))).flatten().unwrap();
        let second: Vec<_> = (0..3).map(|_| at_once(login_queue.enter(address(1))).flatten().unwrap()).collect();
        assert!(matches!(at_once(login_queue.enter(address(1))), Some(None)), "three are in the second line: full");
        let others: Vec<_> = (2..4).map(|n| at_once(login_queue.enter(address(n))).flatten().unwrap()).collect();
        assert!(matches!(at_once(login_queue.enter(address(9))), Some(None)), "three are in the first line: full");
        drop((first, second, others));
        assert!(login_queue.sources().is_empty(), "who has gone is not remembered");
    }

    #[test]
    fn memory_of_failures_is_bounded() {
        let login_queue = LoginQueue::new(1, 1);
        for number in 0..=SOURCES_MAX as u32 {
            at_once(login_queue.enter(Some(IpAddr::from(number.to_be_bytes())))).flatten().unwrap().failed();
        }
        assert!(login_queue.sources().len() <= SOURCES_MAX);
    }

    #[test]
    fn ipv6_counts_by_prefix_and_mapped_ipv4_as_ipv4() {
        let prefix = |text: &str| prefix(text.parse().unwrap());
        assert_eq!(prefix("2001:db8::1"), prefix("2001:db8::ffff:1"));
        assert_ne!(prefix("2001:db8::1"), prefix("2001:db8:0:1::1"));
        assert_eq!(prefix("::ffff:192.0.2.1"), prefix("192.0.2.1"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.2.2"));
    }
}
