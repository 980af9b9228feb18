//! Visitors who were shown a page with a place in the [line](super::Line), and have not been in it yet.
//!
//! They take no part in the order, so a page delays nobody if its visitor does not come back. But a visitor who is shown a later place has
//! to be told that these go first. Not all of them come back, so each counts as a fraction: the share of its network's visitors who came
//! back in time lately. A network of which little is known is assumed to be like the others. So a flood that takes pages and throws them
//! away makes nobody's place worse, once its first visitors are overdue.
//!
//! Each call is O(log N), except [`Expected::before`], which counts up to [`COUNTED`] neighbours. Memory: about 200 bytes for each visitor, of whom there
//! are at most `max`; when there are more, the one that is due first is forgotten.

use alloc::collections::BTreeSet;

use super::keys::KeyMap;
use super::sizes::{COUNTED, ONE};

#[derive(Clone, Debug)]
pub(super) struct Expected {
    visitors: KeyMap<Visitor>,
    networks: KeyMap<NetworkArrivals>,
    /// When each of them is overdue.
    due: BTreeSet<(u64, u64)>,
    all: ArrivalCount,
    max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Visitor {
    subnet: u64,
    since: u64,
    due: u64,
}

#[derive(Clone, Debug, Default)]
struct NetworkArrivals {
    /// Since when they wait, and who.
    waiting: BTreeSet<(u64, u64)>,
    tally: ArrivalCount,
}

/// How many came in time, and how many did not; recent ones count more.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalCount {
    came: u64,
    missed: u64,
}

/// After this many visitors of a network, or of all networks, the earlier ones count half.
const OF_A_NETWORK: u64 = 64;
const OF_ALL: u64 = 1_024;
/// What is assumed before anything is known counts like this many visitors, half of whom come.
const PRIOR: u64 = 8;

impl ArrivalCount {
    fn note(&mut self, came: bool, most: u64) {
        if self.came + self.missed >= most {
            (self.came, self.missed) = (self.came / 2, self.missed / 2);
        }
        if came { self.came += 1 } else { self.missed += 1 }
    }

    /// The fraction that comes, if `thought` was assumed before.
    fn part(self, thought: u64) -> u64 {
        (self.came * ONE + PRIOR * thought) / (self.came + self.missed + PRIOR)
    }
}

impl Expected {
    pub(super) fn new(max: usize) -> Expected {
        Expected {
            visitors: KeyMap::default(),
            networks: KeyMap::default(),
            due: BTreeSet::new(),
            all: ArrivalCount::default(),
            max: max.max(1),
        }
    }

    /// A visitor waits since `since` (or since an earlier time, if it was expected already), and is overdue at `due`. Returns the network of
    /// another one, if that was forgotten to make room.
    pub(super) fn add(&mut self, session: u64, subnet: u64, since: u64, due: u64) -> Option<u64> {
        let since = self.remove(session).map_or(since, |before| before.since.min(since));
        let forgotten = (self.visitors.len() >= self.max).then(|| self.due.first().copied()).flatten();
        let of = forgotten.and_then(|(_, other)| self.remove(other)).map(|visitor| visitor.subnet);
        self.visitors.insert(session, Visitor { subnet, since, due });
        self.due.insert((due, session));
        self.networks.entry(subnet).or_default().waiting.insert((since, session));
        of
    }

    /// A visitor comes back. Returns since when it has waited, if it was expected in this network.
    pub(super) fn comes(&mut self, session: u64, subnet: u64) -> Option<u64> {
        self.visitors.get(&session).filter(|visitor| visitor.subnet == subnet)?;
        self.note(subnet, true);
        self.remove(session).map(|visitor| visitor.since)
    }

    /// Forgets a visitor who is overdue, and returns its network.
    pub(super) fn next_overdue(&mut self, now: u64) -> Option<u64> {
        let (_, session) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        let subnet = self.visitors.get(&session)?.subnet;
        self.note(subnet, false);
        self.remove(session);
        Some(subnet)
    }

    /// The expected visitors of a network, each counted as the fraction that comes.
    pub(super) fn of(&self, subnet: u64) -> u64 {
        self.networks.get(&subnet).map_or(0, |network| network.waiting.len() as u64 * self.part(network))
    }

    /// The same for those of a network who have waited for longer.
    pub(super) fn before(&self, subnet: u64, since: u64) -> u64 {
        let Some(network) = self.networks.get(&subnet) else { return 0 };
        // A visitor who is not in the line yet comes after all of them.
        let count = match since {
            u64::MAX => network.waiting.len().min(COUNTED),
            since => network.waiting.range(..(since, 0)).take(COUNTED).count(),
        };
        count as u64 * self.part(network)
    }

    /// Since when this visitor waits, and for how much it counts.
    pub(super) fn find(&self, session: u64) -> Option<(u64, u64)> {
        let visitor = self.visitors.get(&session)?;
        let network = self.networks.get(&visitor.subnet)?;
        Some((visitor.since, self.part(network)))
    }

    pub(super) fn len(&self) -> usize {
        self.visitors.len()
    }

    fn part(&self, network: &NetworkArrivals) -> u64 {
        network.tally.part(self.all.part(ONE / 2))
    }

    fn note(&mut self, subnet: u64, came: bool) {
        self.all.note(came, OF_ALL);
        if let Some(network) = self.networks.get_mut(&subnet) {
            network.tally.note(came, OF_A_NETWORK);
        }
    }

    fn remove(&mut self, session: u64) -> Option<Visitor> {
        let visitor = self.visitors.remove(&session)?;
        self.due.remove(&(visitor.due, session));
        if let Some(network) = self.networks.get_mut(&visitor.subnet) {
            network.waiting.remove(&(visitor.since, session));
            if network.waiting.is_empty() {
                self.networks.remove(&visitor.subnet);
            }
        }
        Some(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_counts_and_who_does_not_no_longer_does() {
        let mut expected = Expected::new(1_000);
        assert_eq!(expected.add(1, 7, 10, 50), None);
        assert_eq!((expected.of(7), expected.before(7, 10), expected.before(7, 11)), (ONE / 2, 0, ONE / 2));
        for session in 0..200 {
            expected.add(100 + session, 7, 20, 60);
            assert_eq!(expected.comes(100 + session, 7), Some(20));
        }
        assert!(expected.of(7) > ONE * 9 / 10, "{}", expected.of(7));
        for session in 0..200 {
            expected.add(500 + session, 8, 20, 60);
        }
        // Nothing is known of the network, but others come.
        assert!(expected.of(8) > 200 * ONE * 9 / 10, "{}", expected.of(8));
        assert_eq!(core::iter::from_fn(|| expected.next_overdue(59)).count(), 1, "the first visitor");
        assert_eq!(core::iter::from_fn(|| expected.next_overdue(60)).count(), 200);
        expected.add(2, 9, 70, 80);
        assert!(expected.of(9) < ONE * 3 / 4, "{}", expected.of(9));
        assert_eq!((expected.comes(2, 8), expected.comes(2, 9), expected.len()), (None, Some(70), 0));
        assert!(expected.networks.is_empty() && expected.due.is_empty());
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut expected = Expected::new(2);
        assert_eq!((expected.add(1, 1, 0, 9), expected.add(2, 2, 0, 8)), (None, None));
        assert_eq!(expected.add(3, 3, 0, 10), Some(2), "the one that is due first");
        assert_eq!((expected.len(), expected.of(2)), (2, 0));
        assert_eq!(expected.add(3, 3, 0, 11), None, "the same one again");
    }
}
