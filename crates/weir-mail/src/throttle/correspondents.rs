//! Whom a user has written to before: a compact memory, bounded and aged.
//!
//! Each correspondent takes eight octets: six of the keyed hash of the address, and the day of the last mail. A user with few of them
//! has one pack; with more than [`PACK_MAX`] they are spread over [`PACKS`] packs by their hash, so that a decision
//! reads one small pack for each recipient and never the whole address book. A full pack forgets the correspondent whose last mail is
//! oldest, and after [`REMEMBERED_DAYS`] without mail a correspondent no longer counts.
//!
//! Somebody becomes a correspondent when mail to them was let go, not when it was tried. This is written at most a second later: a kill
//! loses the last second, and those correspondents are strangers again. Who has written to an address of ours is remembered separately and
//! in smaller number, because strangers decide how many of them there are.

use std::collections::{BTreeMap, BTreeSet};
use weir_core::throttle::RecipientKey;
use weir_store::records::{CorrespondentRecords, PackName, Packs, PastMailFound, RecordsError};

/// Most correspondents in a pack.
const PACK_MAX: usize = 80;
/// Packs of a user with many correspondents; those of a user with few are in pack 0.
const PACKS: u64 = 32;
/// One correspondent.
const ENTRY: usize = 8;
/// A correspondent to whom nobody wrote for this long is a stranger again.
const REMEMBERED_DAYS: u16 = 400;
/// The day of the last mail is brought up to date when it is so old: most mail then changes nothing.
const FRESH_DAYS: u16 = 7;
/// For how many days somebody who wrote counts as a correspondent for the answer.
const LETTER_DAYS: u16 = 30;
/// How many of those who wrote to an address are remembered.
const LETTERS_MAX: i64 = 64;
/// Of each of them: sixteen digits of the keyed hash, and four of the day.
const LETTER: usize = 20;
/// How much may wait to be written.
const PENDING_MAX: usize = 8_192;

/// What was seen and is not yet written.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Whom each user has written to.
    sent: BTreeMap<String, BTreeSet<u64>>,
    /// Who has written to which address of ours.
    letters: BTreeSet<(String, u64)>,
    /// Addresses that users send as, to which letters count from now on.
    opened: BTreeSet<String>,
    count: usize,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Mail to somebody was let go.
    pub(super) fn sent(&mut self, owner: &str, to: RecipientKey) {
        if self.count < PENDING_MAX && !self.knows(owner, to) {
            self.sent.entry(owner.to_owned()).or_default().insert(to.0);
            self.count += 1;
        }
    }

    /// Somebody wrote to an address of ours.
    pub(super) fn letter(&mut self, address: &str, from: RecipientKey) {
        if self.count < PENDING_MAX && self.letters.insert((address.to_owned(), from.0)) {
            self.count += 1;
        }
    }

    /// A user sends as this address, and nobody has noticed before.
    pub(super) fn open(&mut self, address: &str) {
        if self.count < PENDING_MAX && self.opened.insert(address.to_owned()) {
            self.count += 1;
        }
    }

    pub(super) fn opened(&self) -> Vec<String> {
        self.opened.iter().cloned().collect()
    }

    /// Each letter as it is written: to whom, and the entry.
    pub(super) fn letters(&self, today: u16) -> impl Iterator<Item = (&str, String)> {
        self.letters.iter().map(move |(address, from)| (address.as_str(), format!("{from:016x}{today:04x}")))
    }

    fn knows(&self, owner: &str, to: RecipientKey) -> bool {
        self.sent.get(owner).is_some_and(|known| known.contains(&to.0))
    }

    /// The packs that have to be read before this is written.
    pub(super) fn packs(&self) -> Vec<PackName> {
        let names = |(owner, keys): (&String, &BTreeSet<u64>)| {
            let packs: BTreeSet<i64> = keys.iter().flat_map(|key| packs_of(RecipientKey(*key))).collect();
            packs.into_iter().map(|pack| (owner.clone(), pack)).collect::<Vec<_>>()
        };
        self.sent.iter().flat_map(names).collect()
    }

    /// The packs as they are with all this in them: those that change.
    pub(super) fn merged(&self, mut found: Packs, today: u16) -> Packs {
        let mut changed = Packs::new();
        for (owner, keys) in &self.sent {
            let few = found.remove(&(owner.clone(), 0));
            let spread = few.as_ref().is_some_and(Vec::is_empty);
            let mut packs: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
            if !spread {
                let mut entries = few.unwrap_or_default();
                keys.iter().for_each(|key| enter(&mut entries, RecipientKey(*key), today));
                if entries.len() <= PACK_MAX * ENTRY {
                    packs.insert(0, entries);
                } else {
                    packs = spread_out(&entries);
                }
            } else {
                for key in keys.iter().copied().map(RecipientKey) {
                    let [_, pack] = packs_of(key);
                    let stored = || found.remove(&(owner.clone(), pack)).unwrap_or_default();
                    enter(packs.entry(pack).or_insert_with(stored), key, today);
                }
            }
            packs.values_mut().for_each(forget_surplus);
            changed.extend(packs.into_iter().map(|(pack, entries)| ((owner.clone(), pack), entries)));
        }
        changed
    }
}

/// Most characters that are kept of who wrote to an address.
pub(super) const LETTERS_LENGTH: i64 = LETTERS_MAX * LETTER as i64;

/// The packs in which a correspondent may be.
pub(super) fn packs_of(key: RecipientKey) -> [i64; 2] {
    [0, 1 + (kept(key) >> 43) as i64]
}

/// Users have written to these people: a whole memory at once, for those who measure it. It is written down as it is while mail goes out.
pub async fn remember(
    memory: &CorrespondentRecords,
    sent: impl IntoIterator<Item = (String, BTreeSet<RecipientKey>)>,
    today: u16,
) -> Result<(), RecordsError> {
    let keys = |to: BTreeSet<RecipientKey>| -> BTreeSet<u64> { to.into_iter().map(|key| key.0).collect() };
    let sent: BTreeMap<String, BTreeSet<u64>> = sent.into_iter().map(|(owner, to)| (owner, keys(to))).collect();
    let pending = Pending { sent, ..Pending::default() };
    memory.change(&pending.packs(), |found| pending.merged(found, today)).await
}

/// How many correspondents so many octets are.
pub fn count(octets: i64) -> i64 {
    octets / ENTRY as i64
}

/// What is known of one user's correspondents.
pub(super) struct KnownCorrespondents<'a> {
    pub(super) owner: &'a str,
    /// The address that the mail is sent as.
    pub(super) address: &'a str,
    pub(super) found: &'a PastMailFound,
    pub(super) pending: &'a Pending,
    pub(super) today: u16,
}

impl KnownCorrespondents<'_> {
    /// Whether somebody is a correspondent: was written to before, or has written lately.
    pub(super) fn is_correspondent(&self, key: RecipientKey) -> bool {
        self.pending.knows(self.owner, key) || self.last_sent(key).is_some() || self.has_written(key)
    }

    /// Whether it has to be written down that mail was let go to somebody.
    pub(super) fn is_news(&self, key: RecipientKey) -> bool {
        self.last_sent(key).is_none_or(|day| self.today.saturating_sub(day) >= FRESH_DAYS)
    }

    fn last_sent(&self, key: RecipientKey) -> Option<u16> {
        let packs = packs_of(key).into_iter().filter_map(|pack| self.found.packs.get(&(self.owner.to_owned(), pack)));
        let day = packs.flat_map(|entries| entries.chunks_exact(ENTRY)).find_map(|entry| day_of(entry, key))?;
        (self.today.saturating_sub(day) <= REMEMBERED_DAYS).then_some(day)
    }

    fn has_written(&self, key: RecipientKey) -> bool {
        let Some(letters) = self.found.letters.get(self.address) else { return false };
        let digits = format!("{:016x}", key.0);
        letters.as_bytes().chunks_exact(LETTER).filter_map(|letter| std::str::from_utf8(letter).ok()).any(|letter| {
            let day = letter.strip_prefix(&digits).and_then(|day| u16::from_str_radix(day, 16).ok());
            day.is_some_and(|day| self.today.saturating_sub(day) <= LETTER_DAYS)
        })
    }
}

/// The part of a key that is kept: 48 bits. The hash has a secret, so nobody can look for two that are alike.
fn kept(key: RecipientKey) -> u64 {
    key.0 & 0xffff_ffff_ffff
}

fn day_of(entry: &[u8], key: RecipientKey) -> Option<u16> {
    let (hash, day) = entry.split_at_checked(6)?;
    let day = u16::from_be_bytes(day.try_into().ok()?);
    (hash == kept(key).to_be_bytes().get(2..)?).then_some(day)
}

fn enter(entries: &mut Vec<u8>, key: RecipientKey, today: u16) {
    let known = entries.chunks_exact_mut(ENTRY).find(|entry| day_of(entry, key).is_some());
    let mut written = kept(key).to_be_bytes().get(2..).unwrap_or_default().to_vec();
    written.extend(today.to_be_bytes());
    match known {
        Some(entry) => entry.copy_from_slice(&written),
        None => entries.extend(written),
    }
}

/// A user has more correspondents than one pack holds: pack 0 stays, empty, to say so.
fn spread_out(entries: &[u8]) -> BTreeMap<i64, Vec<u8>> {
    let mut packs = BTreeMap::from([(0, Vec::new())]);
    for entry in entries.chunks_exact(ENTRY) {
        let mut hash = [0; 8];
        hash[2..].copy_from_slice(entry.get(..6).unwrap_or(&[0; 6]));
        let [_, pack] = packs_of(RecipientKey(u64::from_be_bytes(hash)));
        packs.entry(pack).or_default().extend(entry);
    }
    packs
}

/// A pack that is too full forgets whom it has not seen for longest.
fn forget_surplus(entries: &mut Vec<u8>) {
    if entries.len() <= PACK_MAX * ENTRY {
        return;
    }
    let day = |entry: &&[u8]| entry.get(6..).map(<[u8]>::to_vec);
    let mut all: Vec<&[u8]> = entries.chunks_exact(ENTRY).collect();
    all.sort_by_key(day);
    *entries = all.iter().skip(all.len() - PACK_MAX).flat_map(|entry| entry.iter().copied()).collect();
}

const _: () = assert!(1 << (48 - 43) == PACKS);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> RecipientKey {
        RecipientKey(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Writes all of it down, as the records would.
    fn write(found: &mut PastMailFound, pending: &Pending, today: u16) {
        let asked: BTreeSet<PackName> = pending.packs().into_iter().collect();
        let read: Packs =
            found.packs.iter().filter(|(name, _)| asked.contains(*name)).map(|(n, e)| (n.clone(), e.clone())).collect();
        found.packs.extend(pending.merged(read, today));
    }

    fn known(found: &PastMailFound, today: u16, number: u64) -> bool {
        let pending = Pending::default();
        KnownCorrespondents { owner: "ann", address: "ann@example.org", found, pending: &pending, today }
            .is_correspondent(key(number))
    }

    #[test]
    fn two_thousand_are_known_in_eight_octets_each_and_in_any_order() {
        let mut found = PastMailFound::default();
        for bunch in 0..200 {
            let mut pending = Pending::default();
            (0..9).for_each(|n| pending.sent("ann", key(bunch * 9 + n)));
            pending.sent("bob", key(99_999));
            write(&mut found, &pending, 20_000);
        }
        let missing = (0..1_800).filter(|number| !known(&found, 20_100, *number)).count();
        assert!(missing < 20, "{missing} of 1800 are forgotten, though there is room for 2560");
        assert!(!known(&found, 20_100, 99_999) && !known(&found, 20_100, 5_000));
        let octets: usize = found.packs.iter().filter(|(name, _)| name.0 == "ann").map(|(_, e)| e.len()).sum();
        assert_eq!(octets, (1_800 - missing) * 8);
        assert!(found.packs.values().all(|entries| entries.len() <= 640) && found.packs.len() <= 34);
    }

    #[test]
    fn who_was_not_written_to_for_long_is_a_stranger_again_and_makes_room() {
        let mut found = PastMailFound::default();
        let mut pending = Pending::default();
        pending.sent("ann", key(1));
        write(&mut found, &pending, 20_000);
        assert!(known(&found, 20_400, 1) && !known(&found, 20_401, 1));
        for day in 0..300u16 {
            let mut pending = Pending::default();
            (0..10).for_each(|n| pending.sent("ann", key(1_000 + u64::from(day) * 10 + n)));
            write(&mut found, &pending, 20_001 + day);
        }
        assert!(!known(&found, 20_300, 1), "the oldest has made room");
        assert!((0..100).all(|n| known(&found, 20_301, 3_900 + n)), "and the newest are there");
        let all: usize = found.packs.values().map(Vec::len).sum();
        assert!(all <= 2_560 * 8, "{all} octets");
    }

    #[test]
    fn the_same_again_is_no_news_for_a_week() {
        let mut found = PastMailFound::default();
        let mut pending = Pending::default();
        pending.sent("ann", key(1));
        write(&mut found, &pending, 20_000);
        let (empty, news) = (Pending::default(), |today, number| {
            let empty = Pending::default();
            KnownCorrespondents { owner: "ann", address: "", found: &found, pending: &empty, today }
                .is_news(key(number))
        });
        assert!(!news(20_006, 1) && news(20_007, 1) && news(20_000, 2));
        assert!(empty.is_empty() && !pending.is_empty());
    }

    #[test]
    fn whoever_wrote_may_be_answered_for_a_month_and_nonsense_is_nobody() {
        let entry = |number: u64, day: u16| format!("{:016x}{day:04x}", key(number).0);
        let letters = format!("{}{}", entry(1, 20_000), entry(2, 19_900));
        let found =
            PastMailFound { letters: BTreeMap::from([("ann@example.org".to_owned(), letters)]), ..Default::default() };
        assert!(known(&found, 20_030, 1) && !known(&found, 20_031, 1) && !known(&found, 20_000, 2));
        for text in ["x", "zzzzzzzzzzzzzzzzzzzz", "ääääääääääääääää", &entry(1, 0)[..19]] {
            let letters = BTreeMap::from([("ann@example.org".to_owned(), text.to_owned())]);
            assert!(!known(&PastMailFound { letters, ..Default::default() }, 1, 1), "{text}");
        }
    }
}
