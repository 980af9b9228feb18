//! A waiting line in order of size, class by class, from which a worker takes what it may.
//!
//! A worker takes the oldest message it may take if that one has waited for the age bound, and otherwise the smallest,
//! the older of equals. With an age bound of zero that is first come, first served: the feeds of the other two
//! strategies are lines of this kind too. Items may be pushed in rounds: within a class everything of an earlier round
//! goes before everything of a later one, which is how senders take turns. Each operation costs O(classes + log n).

use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

/// Waiting items of any kind.
#[derive(Clone, Debug)]
pub struct WaitingLine<T> {
    classes: Vec<Class<T>>,
    age_bound: Duration,
    /// How many items ever came; it gives the order of arrival, also within one instant.
    came: u64,
    waiting: usize,
}

#[derive(Clone, Debug)]
struct Class<T> {
    /// By round, size and number.
    by_size: BTreeMap<(u64, u64, u64), T>,
    /// By round and number.
    by_age: BTreeMap<(u64, u64), (Instant, u64)>,
    /// The round of the item that was taken last; never falls.
    round: u64,
}

/// Where an item stands in the line; it stays valid until the item leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    class: usize,
    round: u64,
    size: u64,
    number: u64,
}

impl<T> WaitingLine<T> {
    /// An empty line with this many classes.
    pub fn new(classes: usize, age_bound: Duration) -> WaitingLine<T> {
        let empty = || Class { by_size: BTreeMap::new(), by_age: BTreeMap::new(), round: 0 };
        WaitingLine { classes: (0..classes).map(|_| empty()).collect(), age_bound, came: 0, waiting: 0 }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds an item that came at `arrived`; none if there is no such class.
    pub fn push(&mut self, class: usize, size: u64, arrived: Instant, item: T) -> Option<Spot> {
        self.push_in_round(class, 0, (size, arrived), item)
    }

    /// The same in a round, which is at least the class's own.
    pub fn push_in_round(
        &mut self,
        class: usize,
        round: u64,
        (size, arrived): (u64, Instant),
        item: T,
    ) -> Option<Spot> {
        let line = self.classes.get_mut(class)?;
        self.came += 1;
        self.waiting += 1;
        let round = round.max(line.round);
        line.by_size.insert((round, size, self.came), item);
        line.by_age.insert((round, self.came), (arrived, size));
        Some(Spot { class, round, size, number: self.came })
    }

    /// The round that a class has reached.
    pub fn round(&self, class: usize) -> u64 {
        self.classes.get(class).map_or(0, |line| line.round)
    }

    /// How many of a class wait.
    pub fn len_of(&self, class: usize) -> usize {
        self.classes.get(class).map_or(0, |line| line.by_size.len())
    }

    /// When the oldest of a class came. Costs O(n), so it is meant for display only.
    pub fn oldest_of(&self, class: usize) -> Option<Instant> {
        self.classes.get(class)?.by_age.values().map(|(arrived, _)| *arrived).min()
    }

    /// Takes the next item for a worker that may take these classes.
    pub fn take(&mut self, classes: RangeInclusive<usize>, now: Instant) -> Option<T> {
        let spot = self.overdue(classes.clone(), now).or_else(|| self.smallest(classes))?;
        self.take_out(spot)
    }

    fn take_out(&mut self, spot: Spot) -> Option<T> {
        if let Some(line) = self.classes.get_mut(spot.class) {
            line.round = line.round.max(spot.round);
        }
        self.remove(spot)
    }

    /// Whether the next item for a worker that may take these classes is one that has waited for the age bound.
    pub fn is_overdue(&self, classes: RangeInclusive<usize>, now: Instant) -> bool {
        self.overdue(classes, now).is_some()
    }

    /// Takes the smallest item of these classes, however long others have waited.
    pub fn take_smallest(&mut self, classes: RangeInclusive<usize>) -> Option<T> {
        let spot = self.smallest(classes)?;
        self.take_out(spot)
    }

    /// Takes a certain item out.
    pub fn remove(&mut self, spot: Spot) -> Option<T> {
        let line = self.classes.get_mut(spot.class)?;
        let item = line.by_size.remove(&(spot.round, spot.size, spot.number))?;
        line.by_age.remove(&(spot.round, spot.number));
        self.waiting -= 1;
        Some(item)
    }

    /// Takes everything out, in the order of arrival.
    pub fn drain(&mut self) -> Vec<T> {
        let lines = self.classes.iter_mut().flat_map(|line| {
            line.by_age.clear();
            core::mem::take(&mut line.by_size)
        });
        let mut items: Vec<(u64, T)> = lines.map(|((_, _, number), item)| (number, item)).collect();
        items.sort_by_key(|(number, _)| *number);
        self.waiting = 0;
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The oldest of these classes, if it has waited for the age bound.
    fn overdue(&self, classes: RangeInclusive<usize>, now: Instant) -> Option<Spot> {
        let heads = classes.filter_map(|class| {
            let ((round, number), (arrived, size)) = self.classes.get(class)?.by_age.first_key_value()?;
            Some((*arrived, Spot { class, round: *round, size: *size, number: *number }))
        });
        let (arrived, spot) = heads.min_by_key(|(_, spot)| spot.number)?;
        (now.since(arrived) >= self.age_bound).then_some(spot)
    }

    fn smallest(&self, mut classes: RangeInclusive<usize>) -> Option<Spot> {
        classes.find_map(|class| {
            let ((round, size, number), _) = self.classes.get(class)?.by_size.first_key_value()?;
            Some(Spot { class, round: *round, size: *size, number: *number })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(age_bound: Duration) -> WaitingLine<char> {
        let mut line = WaitingLine::new(3, age_bound);
        line.push(2, 900, Instant(0), 'l');
        line.push(1, 50, Instant(5), 'm');
        line.push(0, 9, Instant(7), 's');
        line.push(0, 9, Instant(8), 't');
        line
    }

    fn order(mut line: WaitingLine<char>, now: u64) -> Vec<char> {
        core::iter::from_fn(|| line.take(0..=2, Instant(now))).collect()
    }

    #[test]
    fn the_smallest_goes_first_and_the_older_of_equals() {
        assert_eq!(order(line(Duration::MAX), 1000), ['s', 't', 'm', 'l']);
        assert_eq!(order(line(Duration::ZERO), 8), ['l', 'm', 's', 't'], "no bound on patience: first come");
    }

    #[test]
    fn the_overdue_goes_before_all_smaller() {
        assert_eq!(order(line(Duration::from_nanos(10)), 9), ['s', 't', 'm', 'l']);
        assert_eq!(order(line(Duration::from_nanos(10)), 10), ['l', 's', 't', 'm']);
        let mut line = line(Duration::from_nanos(10));
        assert_eq!(line.take(0..=1, Instant(10)), Some('s'), "but not to a worker that may not take it");
        assert!(line.is_overdue(0..=2, Instant(10)) && !line.is_overdue(0..=1, Instant(10)));
        assert_eq!(line.take_smallest(0..=2), Some('t'), "nor where the smallest is asked for");
    }

    #[test]
    fn an_earlier_round_goes_first_whatever_the_size() {
        for age_bound in [Duration::MAX, Duration::ZERO] {
            let mut line = WaitingLine::new(1, age_bound);
            for (round, size, name) in [(1, 5, 'c'), (0, 9, 'a'), (0, 9, 'b'), (2, 1, 'd')] {
                line.push_in_round(0, round, (size, Instant(0)), name);
            }
            assert_eq!(line.take(0..=0, Instant(9)), Some('a'));
            assert_eq!(line.take(0..=0, Instant(9)), Some('b'));
            assert_eq!(line.take(0..=0, Instant(9)), Some('c'));
            line.push_in_round(0, 0, (1, Instant(0)), 'e');
            assert_eq!(line.round(0), 1, "who comes late is in the round of now");
            assert_eq!(order(line, 9), ['e', 'd']);
        }
    }

    #[test]
    fn items_can_leave_from_the_middle() {
        let mut line = line(Duration::MAX);
        let spot = line.push(1, 20, Instant(9), 'x').unwrap();
        assert_eq!((line.remove(spot), line.remove(spot)), (Some('x'), None));
        assert_eq!(line.push(3, 1, Instant(9), 'y'), None);
        assert_eq!(line.len(), 4);
        assert_eq!(line.drain(), ['l', 'm', 's', 't']);
        assert!(line.is_empty() && line.take(0..=2, Instant(99)).is_none());
    }
}
