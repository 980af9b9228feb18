//! The machine that scans: how many workers each feed has, and how many processors they share.

use super::{Dispatch, DispatchError, Plan};
use alloc::vec::Vec;

/// Who scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Workers of each feed.
    pub workers: Vec<usize>,
    /// Processors that they share; at least one.
    pub cpus: usize,
}

impl Machine {
    /// Idle feeds by this plan, with these workers.
    pub fn dispatch(&self, plan: Plan, waiting_max: usize) -> Result<Dispatch, DispatchError> {
        Ok(Dispatch::new(plan, &self.workers, waiting_max)?.sharing(self.cpus))
    }

    /// Whether there are more workers than processors.
    pub fn has_spare_workers(&self) -> bool {
        self.workers.iter().sum::<usize>() > self.cpus
    }

    /// How many feeds, from the first on, can be reserved for small mail so that the others still have a worker for every
    /// processor: then large mail loses nothing. At least one feed is reserved, and at least one is not.
    pub fn spare_feeds(&self) -> usize {
        let enough = |kept: &usize| self.workers.iter().skip(*kept).sum::<usize>() >= self.cpus;
        (1..self.workers.len()).rev().find(enough).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn feeds_that_large_mail_can_spare() {
        let spare = |workers: &[usize], cpus| Machine { workers: workers.to_vec(), cpus }.spare_feeds();
        assert_eq!([spare(&[1; 5], 2), spare(&[1; 5], 1), spare(&[1; 5], 4), spare(&[1; 5], 16)], [3, 4, 1, 1]);
        assert_eq!([spare(&[1, 1, 2], 2), spare(&[4, 1], 2), spare(&[1, 4], 2)], [2, 1, 1]);
        let spare = |cpus| Machine { workers: vec![1; 5], cpus }.has_spare_workers();
        assert!(spare(4) && !spare(5));
    }
}
