//! Ranks nodes by how suitable they are as leader: the higher priority first, then the weaker machine, then the lower address.
//!
//! The order is total (the node id breaks the last tie), so of any set of nodes exactly one is best.
//! Source: section 3 of the paper. The paper's index is a single measurement. Ours is the median of several, in steps of 25 %, so that
//! noise does not move it.

use super::identity::{NodeId, Origin, Priority};
use core::cmp::{Ordering, Reverse};
use core::net::IpAddr;
use core::time::Duration;

/// How long the measuring procedure takes, in steps of a quarter: a higher number is a weaker machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessingIndex(pub u16);

/// What a node says of itself in every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Must be the registered priority, or the message is refused.
    pub priority: Priority,
    /// The measured index.
    pub index: ProcessingIndex,
    /// Whether it would lead now, and may therefore be named as a successor.
    pub stands: bool,
}

/// A node's place in the order; the smallest rank leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    priority: Priority,
    index: ProcessingIndex,
    address: IpAddr,
    id: NodeId,
}

impl Rank {
    /// The rank of `origin` with the claim it makes.
    pub fn new(origin: &Origin, claim: Claim) -> Rank {
        Rank { priority: claim.priority, index: claim.index, address: origin.address, id: origin.id }
    }

    /// Whether this node is a better leader than `other`.
    pub fn beats(&self, other: &Rank) -> bool {
        self < other
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        let key = |r: &Rank| (r.priority, Reverse(r.index), r.address, r.id);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ProcessingIndex {
    /// The ratio between two neighbouring steps.
    pub const STEP: f64 = 1.25;

    /// The index from several runs of the procedure: their median, in steps. The stored index stays
    /// unless the median is a whole step away from it. Without any run the stored one stays.
    pub fn measured(runs: &mut [Duration], stored: Option<ProcessingIndex>) -> ProcessingIndex {
        runs.sort_unstable();
        let Some(median) = runs.get(runs.len() / 2) else { return stored.unwrap_or_default() };
        let steps = libm::log((median.as_secs_f64() * 1e6).max(1.0)) / libm::log(Self::STEP);
        match stored {
            Some(stored) if libm::fabs(steps - f64::from(stored.0)) < 1.0 => stored,
            _ => ProcessingIndex(libm::round(steps) as u16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(millis: &[u64], stored: Option<ProcessingIndex>) -> ProcessingIndex {
        let mut runs: alloc::vec::Vec<Duration> = millis.iter().map(|ms| Duration::from_millis(*ms)).collect();
        ProcessingIndex::measured(&mut runs, stored)
    }

    #[test]
    fn noise_and_outliers_do_not_move_the_index() {
        let first = measured(&[100, 101, 99], None);
        for noisy in [[110, 112, 5_000], [92, 1, 91], [119, 118, 121]] {
            assert_eq!(measured(&noisy, Some(first)), first, "{noisy:?}");
        }
        assert!(measured(&[200, 210, 190], Some(first)) > first, "twice as slow is weaker");
        assert!(measured(&[50, 51, 49], Some(first)) < first);
        assert_eq!(measured(&[], Some(first)), first);
        assert_eq!(measured(&[], None), ProcessingIndex(0));
    }
}
