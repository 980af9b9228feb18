//! What counts as history: visits, that is distinct sessions in distinct hours, and how fast they may add up.
//!
//! Requests and sessions cost an attacker nothing. What an attacker cannot make is time: a session counts once an hour, a subnet at most
//! doubles its history in a day (or comes to [`DAY_FREE`] visits), no history counts for more than [`MOST_AVERAGES`], and fewer than
//! [`STANDING`] visits count as no history.

use crate::mutant::{Mutant, planted};

/// Visits that a subnet may add in a day whatever it had before: as many as one visitor who never leaves.
pub const DAY_FREE: f64 = 24.0;
/// A history of more averages than this counts as this many.
pub const MOST_AVERAGES: f64 = 100.0;
/// Fewer visits count as no history: an attacker with a hundred thousand networks soon has asked once from each of them.
pub const STANDING: f64 = 6.0;

/// Sessions seen within one hour. They are told apart by a few bits of their keys, 64 for each word; two that fall on the same bit count once.
#[derive(Clone, Copy, Debug)]
pub struct Hour<const WORDS: usize> {
    hour: i64,
    seen: [u64; WORDS],
}

impl<const WORDS: usize> Default for Hour<WORDS> {
    fn default() -> Hour<WORDS> {
        Hour { hour: i64::MIN, seen: [0; WORDS] }
    }
}

impl<const WORDS: usize> Hour<WORDS> {
    /// Whether this is a new visit. `key` is uniform, or small.
    pub fn is_visit(&mut self, key: u64, hour: i64) -> bool {
        if planted(Mutant::HistoryCountsRequests) {
            return true;
        }
        if hour != self.hour {
            *self = Hour { hour, seen: [0; WORDS] };
        }
        let (word, bit) = ((key / 64) as usize % WORDS.max(1), 1 << (key % 64));
        let Some(word) = self.seen.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The hour of the last visit.
    pub fn hour(&self) -> i64 {
        self.hour
    }
}

/// How many visits a subnet that had `before` may add within so many days.
pub fn allowance(before: f64, days: f64) -> f64 {
    if planted(Mutant::HistoryCountsRequests) {
        return f64::MAX;
    }
    before.max(DAY_FREE) * days
}

/// The history of one subnet, request by request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubnetHistory {
    visits: f64,
    hour: Hour<4>,
    /// The day of the last visit, and how many visits there were before that day.
    day: i64,
    before: f64,
    /// How many visits this hour has added.
    added: f64,
}

impl SubnetHistory {
    /// Counts a request, if it is a visit and its hour has room for one more: a day's growth takes a day. `key` tells the sessions of the
    /// subnet apart.
    pub fn note(&mut self, key: u64, unix_s: i64) {
        let earlier = self.hour.hour();
        if !self.hour.is_visit(key, hour_of(unix_s)) {
            return;
        }
        if earlier != hour_of(unix_s) {
            self.added = 0.0;
        }
        let day = unix_s.div_euclid(86_400);
        if day != self.day {
            (self.day, self.before) = (day, self.visits);
        }
        if self.added + 1.0 <= allowance(self.before, 1.0 / 24.0) {
            self.visits += 1.0;
            self.added += 1.0;
        }
    }

    /// How many visits it made.
    pub fn visits(&self) -> f64 {
        self.visits
    }
}

/// What a history of so many visits counts for, in averages; None if it is too short to count.
pub fn weight_in_averages(visits: f64, average: f64) -> Option<f64> {
    if planted(Mutant::HistoryCountsRequests) {
        return Some(visits / average);
    }
    (visits >= STANDING).then(|| (visits / average).min(MOST_AVERAGES))
}

/// The hour of a moment in seconds since 1970.
pub fn hour_of(unix_s: i64) -> i64 {
    unix_s.div_euclid(3_600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_once_an_hour() {
        let mut hour = Hour::<4>::default();
        let count = |hour: &mut Hour<4>, at| (0..1_000).filter(|request| hour.is_visit(request % 7, at)).count();
        assert_eq!((count(&mut hour, 5), count(&mut hour, 5), count(&mut hour, 6)), (7, 0, 7));
        let many = (0..1_000_000).filter(|key| hour.is_visit(*key, 7)).count();
        assert_eq!((many, hour_of(-1), hour_of(3_600)), (256, -1, 1), "an hour holds so many at most");
    }
}
