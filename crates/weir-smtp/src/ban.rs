//! Bans of addresses after failed logins. Each further ban of an address lasts longer, every ban ends, and the table is bounded.
//!
//! `failures` different failed logins within `window` ban the address for `first`; each further ban is twice as long, up to `longest`. The
//! same name and password tried again does not count, because that is not guessing: a telephone with an old password must not lock out
//! everybody behind its router. An address is forgotten `window` after its last failure, or `longest` after its last ban. When the table is
//! full, the entry that would be forgotten soonest makes room. So a flood of new addresses pushes out other short-lived entries, but not
//! the offenders with long bans. Banned addresses can be loaded into another table ([`Offender`]), so that a restart lifts no ban. Cost:
//! O(log n) per failure. The caller passes in the time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use weir_core::time::Instant;

use super::address_key::AddressKey;
use super::limits::SmtpLimits;

/// Failed logins and bans by address.
#[derive(Debug)]
pub struct BanTable {
    rules: BanRules,
    entries: HashMap<AddressKey, BanEntry>,
    /// The same addresses, ordered by the time when they are forgotten.
    forgetting: BTreeSet<(Instant, AddressKey)>,
    /// The number of bans and pardons so far.
    changes: u64,
}

/// What was tried, as a hash with a secret key, so that equal attempts can be recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt(pub u64);

/// How many different attempts of an address are remembered, so that the same one is not counted twice.
const TRIED_MAX: usize = 8;
/// Offences are counted up to this number; the length of a ban doubles with each.
const OFFENCES_MAX: u32 = 31;

/// When to ban, for how long, and how many addresses to remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BanRules {
    /// How many different failed logins within the window bring a ban.
    pub failures: u32,
    /// How long a failure counts.
    pub window: Duration,
    /// How long the first ban lasts.
    pub first: Duration,
    /// How long the longest ban lasts.
    pub longest: Duration,
    /// How many addresses are remembered.
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

/// An address that has been banned, in a form that the table of the next process can take over. Times are relative to now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offender {
    /// The address.
    pub address: AddressKey,
    /// How often it was banned.
    pub offences: u32,
    /// How long it is still banned.
    pub banned: Duration,
    /// How long its offences still count.
    pub remembered: Duration,
}

#[derive(Clone, Copy, Debug)]
struct BanEntry {
    failures: u32,
    /// The last attempts, the newest first.
    tried: [Option<Attempt>; TRIED_MAX],
    window_from: Instant,
    offences: u32,
    banned_until: Instant,
    forgotten_at: Instant,
}

impl From<&SmtpLimits> for BanRules {
    fn from(limits: &SmtpLimits) -> BanRules {
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
        BanTable { rules, entries: HashMap::new(), forgetting: BTreeSet::new(), changes: 0 }
    }

    /// How long the address is still banned.
    pub fn banned(&self, address: AddressKey, now: Instant) -> Option<Duration> {
        let until = self.entries.get(&address)?.banned_until;
        (until > now).then(|| until.since(now))
    }

    /// Notes that a login from the address failed. Returns the ban that this brought.
    pub fn failed(&mut self, address: AddressKey, attempt: Attempt, now: Instant) -> Option<Ban> {
        self.forget(now);
        let rules = self.rules;
        let mut entry = self.take(address).unwrap_or(BanEntry::new(now));
        if now.since(entry.window_from) >= rules.window {
            entry = BanEntry { failures: 0, window_from: now, tried: Default::default(), ..entry };
        }
        let news = entry.is_new(attempt);
        entry.failures += u32::from(news);
        let ban = (news && entry.failures >= rules.failures).then(|| entry.ban(rules, now));
        entry.forgotten_at = entry.forgetting_time(rules);
        self.put(address, entry);
        self.changes += u64::from(ban.is_some());
        ban
    }

    /// Bans an address at the request of a person, for this long or as long as a ban may be. Returns how long the ban is.
    pub fn ban(&mut self, address: AddressKey, length: Duration, now: Instant) -> Duration {
        self.forget(now);
        let rules = self.rules;
        let mut entry = self.take(address).unwrap_or(BanEntry::new(now));
        let length = length.min(rules.longest);
        entry.offences = (entry.offences + 1).min(OFFENCES_MAX);
        entry.banned_until = now + length;
        entry.forgotten_at = entry.forgetting_time(rules);
        self.put(address, entry);
        self.changes += 1;
        length
    }

    /// Ends a ban and forgets the address.
    pub fn pardon(&mut self, address: AddressKey) -> bool {
        let known = self.take(address).is_some();
        self.changes += u64::from(known);
        known
    }

    /// At most `most` addresses that were banned and are not forgotten yet; those that are remembered longest come first.
    pub fn offenders(&self, most: usize, now: Instant) -> Vec<Offender> {
        let latest = self.forgetting.iter().rev().take_while(|(at, _)| *at > now);
        let offenders = latest.filter_map(|(_, address)| {
            let entry = self.entries.get(address).filter(|entry| entry.offences > 0)?;
            let (banned, remembered) = (entry.banned_until.since(now), entry.forgotten_at.since(now));
            Some(Offender { address: *address, offences: entry.offences, banned, remembered })
        });
        offenders.take(most).collect()
    }

    /// Takes over an address from a former process, unless it is already known. A clock that was wrong makes no ban longer than `longest`.
    pub fn take_up(&mut self, offender: Offender, now: Instant) {
        let Offender { address, offences, banned, remembered } = offender;
        if offences == 0 || remembered.is_zero() || self.entries.contains_key(&address) {
            return;
        }
        let longest = self.rules.longest;
        let (banned_until, forgotten_at) =
            (now + banned.min(longest), now + remembered.min(longest.saturating_mul(2).max(self.rules.window)));
        self.put(
            address,
            BanEntry { offences: offences.min(OFFENCES_MAX), banned_until, forgotten_at, ..BanEntry::new(now) },
        );
    }

    /// The number of bans and pardons so far. As long as it is the same, the bans are the same.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many addresses are remembered now.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn take(&mut self, address: AddressKey) -> Option<BanEntry> {
        let entry = self.entries.remove(&address)?;
        self.forgetting.remove(&(entry.forgotten_at, address));
        Some(entry)
    }

    fn put(&mut self, address: AddressKey, entry: BanEntry) {
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

impl BanEntry {
    fn new(now: Instant) -> BanEntry {
        let tried = Default::default();
        BanEntry { failures: 0, tried, window_from: now, offences: 0, banned_until: Instant::ZERO, forgotten_at: now }
    }

    /// Whether this attempt is none of those that are remembered.
    fn is_new(&mut self, attempt: Attempt) -> bool {
        let known = self.tried.iter().position(|tried| *tried == Some(attempt));
        // The newest attempt stands first, so the oldest is the one that is forgotten.
        self.tried[..=known.unwrap_or(TRIED_MAX - 1)].rotate_right(1);
        self.tried[0] = Some(attempt);
        known.is_none()
    }

    fn ban(&mut self, rules: BanRules, now: Instant) -> Ban {
        let doubling = 1u32.checked_shl(self.offences).unwrap_or(u32::MAX);
        let length = rules.first.saturating_mul(doubling).min(rules.longest);
        self.offences = (self.offences + 1).min(OFFENCES_MAX);
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

    /// A failed login with an attempt that is always new.
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
        // The ban lasts until 73; the address is remembered until max(61 + 60, 73 + 35) = 121.
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

    #[test]
    fn a_person_may_ban_too_and_not_for_ever() {
        let mut table = BanTable::new(RULES);
        assert_eq!(table.ban(key(1), Duration::from_secs(5), at(0)), Duration::from_secs(5));
        assert_eq!((table.banned(key(1), at(4)).is_some(), table.banned(key(1), at(5))), (true, None));
        assert_eq!(table.ban(key(1), Duration::MAX, at(6)), RULES.longest);
        assert_eq!(table.offenders(9, at(6)).first().map(|offender| offender.offences), Some(2));
        assert!(table.pardon(key(1)) && table.is_empty() && table.changes() == 3);
    }

    #[test]
    fn another_life_goes_on_with_the_same_bans() {
        let mut table = BanTable::new(RULES);
        for second in 0..6 {
            ban_of(&mut table, 1, at(second));
        }
        ban_of(&mut table, 2, at(6));
        let kept = table.offenders(9, at(10));
        // The ban lasts from 5 to 25; the address is remembered until max(25 + 35, 0 + 60) = 60.
        let seconds = Duration::from_secs;
        assert_eq!(kept, [Offender { address: key(1), offences: 2, banned: seconds(15), remembered: seconds(50) }]);
        assert_eq!((table.changes(), table.offenders(0, at(10)), table.offenders(9, at(60))), (2, vec![], vec![]));

        let mut next = BanTable::new(RULES);
        next.take_up(kept[0], at(0));
        assert_eq!(next.banned(key(1), at(1)), Some(seconds(14)));
        next.take_up(Offender { banned: seconds(35), ..kept[0] }, at(1));
        assert_eq!(next.banned(key(1), at(15)), None, "what is known stays as it is");
        let bans: Vec<_> = (16..19).filter_map(|second| ban_of(&mut next, 1, at(second))).collect();
        assert_eq!(bans, [35], "the third ban");
    }

    #[test]
    fn what_is_taken_up_is_bounded() {
        let mut table = BanTable::new(RULES);
        let (offences, banned, remembered) = (u32::MAX, Duration::MAX, Duration::MAX);
        for number in 1..100 {
            table.take_up(Offender { address: key(number), offences, banned, remembered }, at(0));
        }
        assert_eq!(table.len(), RULES.capacity);
        let kept = table.offenders(9, at(0));
        assert!(kept.iter().all(|kept| kept.offences <= OFFENCES_MAX && kept.banned == RULES.longest));
        assert_eq!(ban_of(&mut table, 200, at(70)), None);
        assert_eq!(table.len(), 1, "they are forgotten like others");
        table.take_up(Offender { address: key(1), offences, banned, remembered: Duration::ZERO }, at(70));
        assert_eq!(table.len(), 1, "what was to be forgotten is not taken up");
    }
}
