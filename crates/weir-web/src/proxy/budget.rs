//! Memory for request bodies that are read before their request asks for a slot.
//!
//! Counted from the first octet, over all connections. A subnet may hold as much as is left for all others (dynamic thresholds, as switches
//! share their memory between ports): alone it gets half, and whoever comes later still finds room. One lock, taken for each piece of a body.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_core::fair::SubnetKey;

/// What all bodies together may hold.
#[derive(Debug)]
pub(super) struct Budget {
    most: AtomicU64,
    held: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    all: u64,
    subnets: HashMap<SubnetKey, u64>,
}

/// What one body holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    subnet: SubnetKey,
    octets: u64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Budget {
        Budget { most: AtomicU64::new(most), held: Mutex::default() }
    }

    /// Changes what there may be; what is held stays.
    pub(super) fn change(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A share that holds nothing yet.
    pub(super) fn share(&self, subnet: SubnetKey) -> Share<'_> {
        Share { budget: self, subnet, octets: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share<'_> {
    /// Takes so much more; false if there is no room for it.
    pub(super) fn grow(&mut self, octets: usize) -> bool {
        let octets = octets as u64;
        let mut held = self.budget.lock();
        let left = self.budget.most.load(Ordering::Relaxed).saturating_sub(held.all);
        let own = held.subnets.entry(self.subnet).or_default();
        let fits = own.saturating_add(octets) <= left;
        if fits {
            *own += octets;
            held.all += octets;
            self.octets += octets;
        } else if *own == 0 {
            held.subnets.remove(&self.subnet);
        }
        fits
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.octets == 0 {
            return;
        }
        let mut held = self.budget.lock();
        held.all -= self.octets;
        if let Some(own) = held.subnets.get_mut(&self.subnet) {
            *own -= self.octets;
            if *own == 0 {
                held.subnets.remove(&self.subnet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subnet_leaves_room_for_the_next() {
        let budget = Budget::new(1_000);
        let mut greedy: Vec<Share<'_>> = (0..20).map(|_| budget.share(SubnetKey(1))).collect();
        let grown = greedy.iter_mut().map(|share| share.grow(100)).filter(|grown| *grown).count();
        assert_eq!(grown, 5, "half");
        let mut polite = budget.share(SubnetKey(2));
        assert!(polite.grow(200) && !polite.grow(200));
        drop(greedy);
        assert!(polite.grow(300) && !polite.grow(1));
        drop(polite);
        assert!(budget.lock().subnets.is_empty() && budget.lock().all == 0);
    }
}
