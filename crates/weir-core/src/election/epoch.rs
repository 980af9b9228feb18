//! The epoch, which numbers the terms of office of leaders, and the fence with which a dispatcher refuses work of a leader whose term is
//! over. The database gives out a new epoch with each lease.

use crate::mutant::{Mutant, planted};

/// A leader's term of office. The database gives each out once, and they only grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// A dispatcher's memory of the highest epoch: work of a lower one is refused.
///
/// It must be stored on disk with the work that it admits; a restart must not lower it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fence {
    highest: Epoch,
}

impl Fence {
    /// A fence that has already seen `highest`.
    pub fn restored(highest: Epoch) -> Fence {
        Fence { highest }
    }

    /// The highest epoch seen.
    pub fn highest(&self) -> Epoch {
        self.highest
    }

    /// Whether work or news of `epoch` is accepted; a higher epoch raises the fence.
    pub fn admit(&mut self, epoch: Epoch) -> Result<(), Stale> {
        if epoch < self.highest && !planted(Mutant::ElectionFenceForgets) {
            return Err(Stale { offered: epoch, highest: self.highest });
        }
        self.highest = epoch;
        Ok(())
    }
}

/// Work of a leader whose term is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stale {
    /// The epoch of the work.
    pub offered: Epoch,
    /// The highest epoch seen before.
    pub highest: Epoch,
}

impl core::fmt::Display for Stale {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "epoch {} is over, epoch {} has begun", self.offered.0, self.highest.0)
    }
}

impl core::error::Error for Stale {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_only_rises() {
        let mut fence = Fence::restored(Epoch(3));
        assert_eq!(fence.admit(Epoch(2)), Err(Stale { offered: Epoch(2), highest: Epoch(3) }));
        assert_eq!(fence.admit(Epoch(3)), Ok(()));
        assert_eq!(fence.admit(Epoch(7)), Ok(()));
        assert_eq!(fence.highest(), Epoch(7));
        assert!(fence.admit(Epoch(6)).is_err());
    }
}
