//! Logins that failed: after a few, the next must wait. Bounded, and forgotten after a while.
//!
//! Counted by name and by address, so that neither one name from many places nor many names from one place can be tried out
//! quickly. The wait doubles up to a minute: an attacker gains nothing, and the owner of the name is never shut out for long.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many may fail without a wait, of one name and from one address.
const FREE: [u32; 2] = [5, 20];
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Failures are forgotten after this.
const MEMORY: Duration = Duration::from_secs(900);
const ENTRIES_MAX: usize = 10_000;

/// Failed logins.
#[derive(Debug, Default)]
pub struct Logins {
    failed: Mutex<HashMap<Key, Failures>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Name(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Logins {
    /// How long this one must wait; nothing if it may try now.
    pub fn must_wait(&self, name: &str, from: IpAddr, now: Instant) -> Option<Duration> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |(key, free): (Key, u32)| {
            let failures = failed.get(&key)?;
            (failures.last + failures.wait(free)).checked_duration_since(now).filter(|wait| !wait.is_zero())
        };
        keys(name, from).into_iter().zip(FREE).filter_map(wait).max()
    }

    /// One failed.
    pub fn failed(&self, name: &str, from: IpAddr, now: Instant) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() + 2 > ENTRIES_MAX {
            failed.retain(|_, failures| now.duration_since(failures.last) < WAIT_MAX);
        }
        if failed.len() + 2 > ENTRIES_MAX {
            // Everything is new: an attack with random names. Addresses still count.
            failed.retain(|key, _| matches!(key, Key::Address(_)));
        }
        for key in keys(name, from) {
            let failures = failed.entry(key).or_insert(Failures { count: 0, last: now });
            if now.duration_since(failures.last) >= MEMORY {
                failures.count = 0;
            }
            (failures.count, failures.last) = (failures.count.saturating_add(1), now);
        }
    }

    /// One succeeded: its name may fail again.
    pub fn succeeded(&self, name: &str, from: IpAddr) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys(name, from) {
            failed.remove(&key);
        }
    }
}

impl Failures {
    fn wait(&self, free: u32) -> Duration {
        match self.count.checked_sub(free) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1_u64 << more.min(6)).min(WAIT_MAX),
        }
    }
}

fn keys(name: &str, from: IpAddr) -> [Key; 2] {
    [Key::Name(name.chars().take(255).collect()), Key::Address(from)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_few_are_free_then_each_waits_twice_as_long_up_to_a_minute() {
        let (logins, now) = (Logins::default(), Instant::now());
        for _ in 0..4 {
            logins.failed("ann", HERE, now);
        }
        assert_eq!(logins.must_wait("ann", HERE, now), None);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            logins.failed("ann", HERE, now);
            assert_eq!(logins.must_wait("ann", HERE, now), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(logins.must_wait("ann", HERE, now + WAIT_MAX), None);
        assert_eq!(logins.must_wait("bob", HERE, now), None);
        logins.succeeded("ann", HERE);
        assert_eq!(logins.must_wait("ann", HERE, now), None);
    }

    #[test]
    fn many_names_from_one_address_wait_too_and_memory_is_bounded() {
        let (logins, now) = (Logins::default(), Instant::now());
        (0..30_000).for_each(|n| logins.failed(&n.to_string(), HERE, now));
        assert_eq!(logins.must_wait("new", HERE, now), Some(WAIT_MAX));
        assert!(logins.failed.lock().unwrap().len() <= ENTRIES_MAX);
    }
}
