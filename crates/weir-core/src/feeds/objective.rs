//! The objective that a search for limits minimises: eq. 7, with optional weights, and with the last limit either fixed or part of the
//! search.

use super::SizeTable;
use alloc::vec::Vec;

/// The objective W.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Objective {
    /// How much the wait of a message counts.
    pub weights: Weights,
    /// Whether s_{N−1} is given or searched for.
    pub last: LastLimit,
}

impl Objective {
    /// How many of the feeds (and classes) count in W: all but the last while the last limit is fixed.
    pub fn feeds_counted(&self, feeds: usize) -> usize {
        match self.last {
            LastLimit::Fixed => feeds.saturating_sub(1),
            LastLimit::Free => feeds,
        }
    }
}

/// Whether the last limit is a policy of the operator or part of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LastLimit {
    /// s_{N−1} is given; feed N stands outside W.
    #[default]
    Fixed,
    /// s_{N−1} is searched for; feed N counts as well.
    Free,
}

/// Weights by size: messages of at most so many bytes count so much, from the smallest bound up; larger ones count 1.
///
/// The bounds are sizes, not feeds: if a weight belonged to a feed, a search could make W small by emptying it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Weights {
    steps: Vec<(u64, f64)>,
}

impl Weights {
    /// Takes (bound in bytes, weight) pairs; none unless bounds ascend and weights are positive and finite.
    pub fn new(steps: Vec<(u64, f64)>) -> Option<Weights> {
        let ascending = steps.windows(2).all(|w| matches!(w, [a, b] if a.0 < b.0));
        let sound = steps.iter().all(|(_, weight)| weight.is_finite() && *weight > 0.0);
        (ascending && sound).then_some(Weights { steps })
    }

    /// What a message of this size counts.
    #[inline]
    pub fn of(&self, size: u64) -> f64 {
        self.steps.iter().find(|(bound, _)| size <= *bound).map_or(1.0, |(_, weight)| *weight)
    }

    /// The weighted share of messages of at most this size.
    pub(super) fn share_below(&self, table: &SizeTable, size: f64) -> f64 {
        let mut total = 0.0;
        let mut before = 0.0;
        for (bound, weight) in &self.steps {
            let upto = table.share_below(size.min(*bound as f64));
            total += weight * (upto - before);
            before = upto;
        }
        total + (table.share_below(size) - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn weights_count_by_size() {
        let weights = Weights::new(vec![(10, 4.0), (20, 2.0)]).unwrap();
        assert_eq!([5, 10, 11, 20, 21].map(|s| weights.of(s)), [4.0, 4.0, 2.0, 2.0, 1.0]);
        let table = SizeTable::new(&[10, 10, 40, 40]).unwrap();
        let shares = [10.0, 30.0, 40.0].map(|s| weights.share_below(&table, s));
        assert!(shares.iter().zip([2.0, 2.0, 2.5]).all(|(share, right)| (share - right).abs() < 1e-9), "{shares:?}");
        assert_eq!(Weights::new(vec![(10, 1.0), (10, 2.0)]), None);
        assert_eq!(Weights::new(vec![(10, f64::NAN)]), None);
    }
}
