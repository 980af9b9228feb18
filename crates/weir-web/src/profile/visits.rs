//! What counts as history: visits, that is distinct sessions in distinct hours, and how fast they may add up.
//!
//! Requests are free to make, and so are sessions. What an attacker cannot make is time: a session counts once an hour, a subnet at most
//! doubles its history in a day (or comes to [`DAY_FREE`] visits), and no history counts for more than [`MOST_AVERAGES`].

/// Visits that a subnet may add in a day whatever it had before: as many as one visitor who never leaves.
pub(super) const DAY_FREE: f64 = 24.0;
/// A history of more averages than this counts as this.
pub(super) const MOST_AVERAGES: f64 = 100.0;

/// Sessions that were there within one hour, told apart by a few bits of their keys: 64 for each word, and what falls together counts once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hour<const WORDS: usize> {
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
    pub(super) fn is_visit(&mut self, key: u64, hour: i64) -> bool {
        if hour != self.hour {
            *self = Hour { hour, seen: [0; WORDS] };
        }
        let (word, bit) = ((key / 64) as usize % WORDS.max(1), 1 << (key % 64));
        let Some(word) = self.seen.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(super) fn hour(&self) -> i64 {
        self.hour
    }
}

/// How many visits a subnet that had `before` may add within so many days.
pub(super) fn allowance(before: f64, days: f64) -> f64 {
    before.max(DAY_FREE) * days
}

/// The hour of a moment in seconds since 1970.
pub(super) fn hour_of(unix_s: i64) -> i64 {
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
