//! Bans of addresses after failed logins: they grow, they end, and the table is bounded.
//!
//! `failures` different failed logins within `window` ban the address for `first`; the next ban is twice as long, up to `longest`. Who
//! tries the same name and password again guesses nothing: a telephone with an old password does not lock out everybody behind
//! its router. An address is forgotten `window` after its last failure, or `longest` after its last ban. When the table is full, the
//! entry that would be forgotten soonest makes room: so a flood of new addresses pushes out other strays, not the
//! offenders with long bans. Cost: O(log n) a failure. Time is passed in.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use weir_core::time::Instant;

use super::address_key::AddressKey;
use super::limits::Limits;

/// Failed logins and bans by address.
#[derive(Debug)]
pub struct BanTable {
    rules: BanRules,
    entries: HashMap<AddressKey, Entry>,
    /// The same addresses by the time they are forgotten.
    forgetting: BTreeSet<(Instant, AddressKey)>,
}

/// What was tried, as a hash with a secret key: equal attempts are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt(pub u64);

/// So many different attempts of an address are known again.
const TRIED_MAX: usize = 8;

/// When to ban, for how long, and how many addresses to remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BanRules {
    /// Different failed logins within the window that bring a ban.
    pub failures: u32,
    /// How long a failure counts.
    pub window: Duration,
    /// The first ban.
    pub first: Duration,
    /// The longest ban.
    pub longest: Duration,
    /// Addresses remembered.
    pub capacity: usize,
}

/// A ban that has just begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ban {
    /// When it ends.
    pub until: Instant,
    /// How long it is.
    pub length: Duration,
    /// Which ban of this address it is, from 1.
    pub offence: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: u32,
    /// What was tried last, the newest first.
    tried: [Option<Attempt>; TRIED_MAX],
    window_from: Instant,
    offences: u32,
    banned_until: Instant,
    forgotten_at: Instant,
}

impl From<&Limits> for BanRules {
    fn from(limits: &Limits) -> BanRules {
        BanRules {
            failures: limits.failed_logins_per_address,
            window: limits.failed_login_window,
            first: limits.ban_first,
            longest: limits.ban_longest,
            capacity: limits.ban_table as usize,
        }
    }
}

impl BanTable {
    /// An empty table.
    pub fn new(rules: BanRules) -> BanTable {
        BanTable { rules, entries: HashMap::new(), forgetting: BTreeSet::new() }
    }

    /// How long the address is still banned.
    pub fn banned(&self, address: AddressKey, now: Instant) -> Option<Duration> {
        let until = self.entries.get(&address)?.banned_until;
        (until > now).then(|| until.since(now))
    }

    /// A login from the address failed; the ban that this brought.
    pub fn failed(&mut self, address: AddressKey, attempt: Attempt, now: Instant) -> Option<Ban> {
        self.forget(now);
        let rules = self.rules;
        let mut entry = self.take(address).unwrap_or(Entry::new(now));
        if now.since(entry.window_from) >= rules.window {
            entry = Entry { failures: 0, window_from: now, tried: Default::default(), ..entry };
        }
        let news = entry.is_new(attempt);
        entry.failures += u32::from(news);
        let ban = (news && entry.failures >= rules.failures).then(|| entry.ban(rules, now));
        entry.forgotten_at = entry.forgetting_time(rules);
        self.put(address, entry);
        ban
    }

    /// Ends a ban and forgets the address.
    pub fn pardon(&mut self, address: AddressKey) -> bool {
        self.take(address).is_some()
    }

    /// Addresses remembered now.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn take(&mut self, address: AddressKey) -> Option<Entry> {
        let entry = self.entries.remove(&address)?;
        self.forgetting.remove(&(entry.forgotten_at, address));
        Some(entry)
    }

    fn put(&mut self, address: AddressKey, entry: Entry) {
        while self.entries.len() >= self.rules.capacity.max(1) {
            let Some((_, soonest)) = self.forgetting.pop_first() else { break };
            self.entries.remove(&soonest);
        }
        self.forgetting.insert((entry.forgotten_at, address));
        self.entries.insert(address, entry);
    }

    fn forget(&mut self, now: Instant) {
        while let Some(&(at, address)) = self.forgetting.first().filter(|(at, _)| *at <= now) {
            self.forgetting.remove(&(at, address));
            self.entries.remove(&address);
        }
    }
}

impl Entry {
    fn new(now: Instant) -> Entry {
        let tried = Default::default();
        Entry { failures: 0, tried, window_from: now, offences: 0, banned_until: Instant::ZERO, forgotten_at: now }
    }

    /// Whether this was not tried before, as far as that is known.
    fn is_new(&mut self, attempt: Attempt) -> bool {
        let known = self.tried.iter().position(|tried| *tried == Some(attempt));
        // The newest stands first, so the oldest is the one that is forgotten.
        self.tried[..=known.unwrap_or(TRIED_MAX - 1)].rotate_right(1);
        self.tried[0] = Some(attempt);
        known.is_none()
    }

    fn ban(&mut self, rules: BanRules, now: Instant) -> Ban {
        let doubling = 1u32.checked_shl(self.offences).unwrap_or(u32::MAX);
        let length = rules.first.saturating_mul(doubling).min(rules.longest);
        self.offences = (self.offences + 1).min(31);
        self.failures = 0;
        self.banned_until = now + length;
        Ban { until: self.banned_until, length, offence: self.offences }
    }

    fn forgetting_time(&self, rules: BanRules) -> Instant {
        let counts_until = self.window_from + rules.window;
        if self.offences == 0 { counts_until } else { counts_until.max(self.banned_until + rules.longest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: BanRules = BanRules {
        failures: 3,
        window: Duration::from_secs(60),
        first: Duration::from_secs(10),
        longest: Duration::from_secs(35),
        capacity: 4,
    };

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn key(number: u8) -> AddressKey {
        AddressKey::new([192, 0, 2, number].into(), 64)
    }

    /// A login that nobody has tried before.
    fn ban_of(table: &mut BanTable, number: u8, now: Instant) -> Option<u64> {
        table.failed(key(number), Attempt(now.0), now).map(|ban| ban.length.as_secs())
    }

    #[test]
    fn the_same_again_is_no_guess() {
        let mut table = BanTable::new(RULES);
        for second in 0..1000 {
            assert_eq!(table.failed(key(1), Attempt(second % 2), at(second)), None, "two old passwords");
        }
        let mut bans = (0..40).filter_map(|second| table.failed(key(1), Attempt(100 + second), at(1000 + second)));
        assert!(bans.next().is_some(), "among the same ones a guesser is still found");
        let mut table = BanTable::new(RULES);
        for guess in 0..3 {
            assert_eq!(table.failed(key(1), Attempt(guess), at(0)).is_some(), guess == 2);
        }
    }

    #[test]
    fn bans_grow_and_end() {
        let mut table = BanTable::new(RULES);
        let mut bans = Vec::new();
        for second in 0..12 {
            bans.extend(ban_of(&mut table, 1, at(second)));
        }
        assert_eq!(bans, [10, 20, 35, 35]);
        assert_eq!(table.banned(key(1), at(11)), Some(Duration::from_secs(35)));
        assert_eq!(table.banned(key(1), at(46)), None);
        assert_eq!(table.banned(key(2), at(11)), None);
    }

    #[test]
    fn old_failures_and_old_offences_are_forgotten() {
        let mut table = BanTable::new(RULES);
        assert_eq!((ban_of(&mut table, 1, at(0)), ban_of(&mut table, 1, at(1))), (None, None));
        assert_eq!(ban_of(&mut table, 1, at(61)), None);
        for second in [62, 63] {
            ban_of(&mut table, 1, at(second));
        }
        assert!(table.banned(key(1), at(64)).is_some());
        // Ban until 73, remembered until max(61 + 60, 73 + 35) = 121.
        let later: Vec<_> = [121, 122, 123].iter().filter_map(|&s| ban_of(&mut table, 1, at(s))).collect();
        assert_eq!(later, [10]);
    }

    #[test]
    fn a_full_table_keeps_the_offenders() {
        let mut table = BanTable::new(RULES);
        for second in 0..9 {
            ban_of(&mut table, 1, at(second));
        }
        for number in 2..200 {
            ban_of(&mut table, number, at(9));
            assert!(table.len() <= RULES.capacity);
        }
        assert!(table.banned(key(1), at(9)).is_some());
        assert!(table.pardon(key(1)) && table.banned(key(1), at(9)).is_none());
    }
}
