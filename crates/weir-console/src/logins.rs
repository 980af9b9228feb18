//! Slows down password guessing: after a few failed logins, the next attempt has to wait. Memory is bounded, and failures are forgotten
//! after a while.
//!
//! Counted by address, and by name at an address, so that neither one name nor many can be tried out quickly from one place, and
//! nobody elsewhere can shut the owner of a name out. The wait doubles up to a minute. An attempt is counted when it begins, in the same
//! step that allows it, so that a hundred at once count as a hundred. If it succeeds, it is no longer counted. Attempts that need a right
//! password first, such as the code of a second factor, count by name alone, [everywhere]: there nobody else can shut the owner out.
//!
//! Right logins are bounded as well ([`Logins::may_begin`]), because each has a line in the audit trail, which keeps it for ever.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_web::identity::host;

/// How many logins of one name from one address may fail before the next has to wait.
const FREE: [u32; 2] = [5, 20];
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Failures are forgotten after this.
const MEMORY: Duration = Duration::from_secs(900);
const ENTRIES_MAX: usize = 10_000;
/// How many right logins one name may have within this time. Nobody who types comes near it.
const RIGHT_MAX: u32 = 30;
const RIGHT_WITHIN: Duration = Duration::from_secs(60);

/// Failed logins, those that are under way, and how many were right lately.
#[derive(Debug, Default)]
pub struct Logins {
    failed: Mutex<HashMap<FailureKey, Failures>>,
    /// By name, and whether they came by a link.
    right: Mutex<HashMap<(String, bool), RightLogins>>,
}

#[derive(Debug, Clone, Copy)]
struct RightLogins {
    count: u32,
    since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FailureKey {
    Name(String, IpAddr),
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Logins {
    /// Lets an attempt in and counts it, or says how long it must wait.
    pub fn enter(&self, name: &str, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let (mut failed, keys) = (self.lock(), keys(name, from));
        let wait = |(key, free): (&FailureKey, u32)| {
            let failures = failed.get(key)?;
            (failures.last + failures.wait(free)).checked_duration_since(now).filter(|wait| !wait.is_zero())
        };
        if let Some(wait) = keys.iter().zip(FREE).filter_map(wait).max() {
            return Err(wait);
        }
        make_room(&mut failed, now);
        for key in keys {
            let failures = failed.entry(key).or_insert(Failures { count: 0, last: now });
            if now.duration_since(failures.last) >= MEMORY {
                failures.count = 0;
            }
            (failures.count, failures.last) = (failures.count.saturating_add(1), now);
        }
        Ok(())
    }

    /// The login succeeded, so failures of this name from there are forgotten. Other failures from there still count.
    pub fn succeeded(&self, name: &str, from: IpAddr) {
        let (mut failed, [by_name, by_address]) = (self.lock(), keys(name, from));
        failed.remove(&by_name);
        take_back(&mut failed, &by_address);
    }

    /// The attempt was allowed, but ended without saying whether the password was right, so it does not count.
    pub fn taken_back(&self, name: &str, from: IpAddr) {
        let mut failed = self.lock();
        keys(name, from).iter().for_each(|key| take_back(&mut failed, key));
    }

    /// Lets a session begin for somebody who has just logged in, or says how long they must wait. It counts by name alone, so that many addresses
    /// are of no use. Logins by a link are counted apart: the contact to whom the notice went must not shut out the owner of the password.
    pub fn may_begin(&self, name: &str, by_link: bool, now: Instant) -> Result<(), Duration> {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |logins: &RightLogins| now.duration_since(logins.since) >= RIGHT_WITHIN;
        if right.len() >= ENTRIES_MAX {
            right.retain(|_, logins| !is_over(logins));
        }
        if right.len() >= ENTRIES_MAX {
            // As many people within a minute: none of them is what this is about.
            right.clear();
        }
        let logins = right.entry((name.to_owned(), by_link)).or_insert(RightLogins { count: 0, since: now });
        if is_over(logins) {
            *logins = RightLogins { count: 0, since: now };
        }
        if logins.count >= RIGHT_MAX {
            return Err((logins.since + RIGHT_WITHIN).saturating_duration_since(now));
        }
        logins.count += 1;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FailureKey, Failures>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address that stands for all addresses, for one name.
pub fn everywhere(name: &str) -> IpAddr {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(hasher.finish()) << 64))
}

fn make_room(failed: &mut HashMap<FailureKey, Failures>, now: Instant) {
    if failed.len() + 2 > ENTRIES_MAX {
        failed.retain(|_, failures| now.duration_since(failures.last) < WAIT_MAX);
    }
    if failed.len() + 2 > ENTRIES_MAX {
        // Everything is new: an attack with random names. Addresses still count.
        failed.retain(|key, _| matches!(key, FailureKey::Address(_)));
    }
    if failed.len() + 2 > ENTRIES_MAX {
        // And from everywhere: those that never had to wait go first.
        failed.retain(|_, failures| failures.count >= FREE[1]);
        if failed.len() + 2 > ENTRIES_MAX {
            failed.clear();
        }
    }
}

fn take_back(failed: &mut HashMap<FailureKey, Failures>, key: &FailureKey) {
    if let Some(failures) = failed.get_mut(key) {
        failures.count = failures.count.saturating_sub(1);
        if failures.count == 0 {
            failed.remove(key);
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

fn keys(name: &str, from: IpAddr) -> [FailureKey; 2] {
    let from = host(from);
    [FailureKey::Name(name.chars().take(255).collect(), from), FailureKey::Address(from)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_few_are_free_then_each_waits_twice_as_long_up_to_a_minute() {
        let (logins, mut now) = (Logins::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(logins.enter("ann", HERE, now), Ok(()));
        }
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(logins.enter("ann", HERE, now), Err(wait));
            now += wait;
            assert_eq!(logins.enter("ann", HERE, now), Ok(()));
        }
        assert_eq!(logins.enter("bob", HERE, now), Ok(()), "another name");
        assert_eq!(logins.enter("ann", THERE, now), Ok(()), "the owner is elsewhere and not shut out");
        logins.succeeded("ann", HERE);
        assert_eq!(logins.enter("ann", HERE, now), Ok(()));
    }

    #[test]
    fn a_hundred_at_once_are_a_hundred() {
        let (logins, now) = (Logins::default(), Instant::now());
        let entered = (0..100).filter(|_| logins.enter("ann", HERE, now).is_ok()).count();
        assert_eq!(entered, 5);
    }

    #[test]
    fn one_success_does_not_forget_what_else_failed_from_there() {
        let (logins, now) = (Logins::default(), Instant::now());
        for n in 0..19 {
            logins.enter(&n.to_string(), HERE, now).unwrap();
        }
        logins.enter("own", HERE, now).unwrap();
        logins.succeeded("own", HERE);
        logins.enter("19", HERE, now).unwrap();
        assert!(logins.enter("20", HERE, now).is_err());
    }

    #[test]
    fn what_says_nothing_is_taken_back() {
        let (logins, now) = (Logins::default(), Instant::now());
        for _ in 0..50 {
            logins.enter("ann", HERE, now).unwrap();
            logins.taken_back("ann", HERE);
        }
        assert!(logins.lock().is_empty());
    }

    #[test]
    fn many_names_from_one_address_wait_too_and_memory_is_bounded() {
        let (logins, now) = (Logins::default(), Instant::now());
        let entered = (0..30_000).filter(|n| logins.enter(&n.to_string(), HERE, now).is_ok()).count();
        assert_eq!(entered, 20);
        for n in 0..30_000_u32 {
            let _ = logins.enter("ann", IpAddr::V4(Ipv4Addr::from_bits(n << 4)), now);
        }
        assert!(logins.lock().len() <= ENTRIES_MAX);
    }

    #[test]
    fn right_logins_without_end_wait_as_well_and_only_for_their_own_name() {
        let (logins, now) = (Logins::default(), Instant::now());
        let begun = (0..1_000).filter(|_| logins.may_begin("ann", false, now).is_ok()).count();
        assert_eq!(begun, RIGHT_MAX as usize);
        let soon = now + Duration::from_secs(20);
        assert_eq!(logins.may_begin("ann", false, soon), Err(Duration::from_secs(40)));
        assert_eq!(logins.may_begin("ann", true, soon), Ok(()), "by a link");
        assert_eq!(logins.may_begin("bob", false, soon), Ok(()));
        assert_eq!(logins.may_begin("ann", false, now + RIGHT_WITHIN), Ok(()));
        for n in 0..2 * ENTRIES_MAX {
            logins.may_begin(&n.to_string(), false, now).unwrap();
        }
        assert!(logins.right.lock().unwrap().len() <= ENTRIES_MAX);
    }

    #[test]
    fn what_counts_everywhere_counts_for_one_name() {
        let (logins, now) = (Logins::default(), Instant::now());
        let tries = |name: &str| (0..100).filter(|_| logins.enter(name, everywhere(name), now).is_ok()).count();
        let tried: Vec<usize> = (0..10).map(|n| tries(&format!("name{n}"))).collect();
        assert_eq!(tried, [5; 10]);
    }

    #[test]
    fn a_client_with_a_whole_network_is_one_client() {
        let (logins, now) = (Logins::default(), Instant::now());
        let entered = (0..100_u128).filter(|n| {
            let from = IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) + n));
            logins.enter("ann", from, now).is_ok()
        });
        assert_eq!(entered.count(), 5);
    }
}
