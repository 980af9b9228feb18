//! A limit on how much memory or disk all request bodies, or all responses, may use together.
//!
//! Counted from the first octet, over all connections. A subnet may hold as much as is left for all others (dynamic thresholds, as switches
//! share their memory between ports): alone it gets half, and a subnet that comes later still finds room. One lock, taken for each piece of
//! a body that is kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::fair::SubnetKey;

/// How much all requests together may hold.
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

/// What one request holds, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    subnet: SubnetKey,
    octets: u64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Arc<Budget> {
        Arc::new(Budget { most: AtomicU64::new(most), held: Mutex::default() })
    }

    /// Changes the limit; what is held stays.
    pub(super) fn change(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A share that holds nothing yet.
    pub(super) fn share(self: &Arc<Budget>, subnet: SubnetKey) -> Share {
        Share { budget: Arc::clone(self), subnet, octets: 0 }
    }

    /// What is held now.
    pub(super) fn held(&self) -> u64 {
        self.lock().all
    }

    /// Whether these octets, which the subnet holds already, would find no room if they came now.
    pub(super) fn lacks_room(&self, subnet: SubnetKey, octets: u64) -> bool {
        let usage = self.lock();
        let left = self.most.load(Ordering::Relaxed).saturating_sub(usage.all.saturating_sub(octets));
        usage.subnets.get(&subnet).copied().unwrap_or(0) > left
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, usage: &Usage, subnet: SubnetKey, octets: u64) -> bool {
        let left = self.most.load(Ordering::Relaxed).saturating_sub(usage.all);
        let own = usage.subnets.get(&subnet).copied().unwrap_or(0);
        own.saturating_add(octets) <= left
    }
}

impl Share {
    /// Takes this much more; false if there is no room for it.
    pub(super) fn grow(&mut self, octets: usize) -> bool {
        let mut usage = self.budget.lock();
        let fits = self.budget.fits(&usage, self.subnet, octets as u64);
        if fits {
            usage.add(self.subnet, octets as u64);
            self.octets += octets as u64;
        }
        fits
    }

    /// Whether there is room for this much more.
    pub(super) fn has_room(&self, octets: usize) -> bool {
        self.budget.fits(&self.budget.lock(), self.subnet, octets as u64)
    }

    /// Takes what is here already, whether there is room for it or not. Only for the last piece before [`Share::has_room`] says no, and for amounts
    /// that are too small to refuse.
    pub(super) fn take(&mut self, octets: usize) {
        self.budget.lock().add(self.subnet, octets as u64);
        self.octets += octets as u64;
    }

    /// Gives this much back.
    pub(super) fn give_back(&mut self, octets: u64) {
        let octets = octets.min(self.octets);
        if octets > 0 {
            self.octets -= octets;
            self.budget.lock().remove(self.subnet, octets);
        }
    }

    pub(super) fn octets(&self) -> u64 {
        self.octets
    }
}

impl Usage {
    fn add(&mut self, subnet: SubnetKey, octets: u64) {
        self.all += octets;
        *self.subnets.entry(subnet).or_default() += octets;
    }

    fn remove(&mut self, subnet: SubnetKey, octets: u64) {
        self.all -= octets;
        if let Some(own) = self.subnets.get_mut(&subnet) {
            *own -= octets;
            if *own == 0 {
                self.subnets.remove(&subnet);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subnet_leaves_room_for_the_next() {
        let budget = Budget::new(1_000);
        let mut greedy: Vec<Share> = (0..20).map(|_| budget.share(SubnetKey(1))).collect();
        let grown = greedy.iter_mut().map(|share| share.grow(100)).filter(|grown| *grown).count();
        assert_eq!(grown, 5, "half");
        let mut polite = budget.share(SubnetKey(2));
        assert!(polite.grow(200) && !polite.grow(200) && !polite.has_room(200));
        drop(greedy);
        assert!(polite.grow(300) && !polite.grow(1));
        polite.give_back(400);
        assert!(polite.has_room(300) && budget.held() == 100);
        drop(polite);
        assert!(budget.lock().subnets.is_empty() && budget.lock().all == 0);
    }

    #[test]
    fn what_found_no_room_finds_it_when_others_have_gone() {
        let budget = Budget::new(1_000);
        let (mut early, mut late) = (budget.share(SubnetKey(1)), budget.share(SubnetKey(2)));
        assert!(early.grow(500) && late.grow(200) && !late.grow(200));
        late.take(200);
        assert!(budget.lacks_room(SubnetKey(2), 200));
        early.give_back(99);
        assert!(budget.lacks_room(SubnetKey(2), 200), "one octet more");
        early.give_back(1);
        assert!(!budget.lacks_room(SubnetKey(2), 200));
    }
}
