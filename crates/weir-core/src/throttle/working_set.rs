//! The addresses that a user mailed recently. It holds at most 128 addresses, so a linear search is fast enough.
//!
//! A set of the default size is stored inside the throttle itself. The cost of a decision is mostly waiting for memory,
//! and this saves one such wait.

use super::RecipientKey;
use super::params::{Params, Replacement};
use alloc::vec::Vec;

/// Sets up to this size are stored inside the throttle.
const FEW: usize = 5;

/// Recently mailed addresses; the next to leave comes first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WorkingSet {
    /// At most as many as the array holds, and how many there are.
    Few([RecipientKey; FEW], u8),
    Many(Vec<RecipientKey>),
}

impl WorkingSet {
    /// The newest of `keys` that fit.
    pub(super) fn restore(keys: &[RecipientKey], params: &Params) -> WorkingSet {
        let mut set = match params.working_set {
            0..=FEW => WorkingSet::Few([RecipientKey(0); FEW], 0),
            _ => WorkingSet::Many(Vec::new()),
        };
        keys.iter().for_each(|key| set.insert(*key, params));
        set
    }

    pub(super) fn contains(&self, key: RecipientKey) -> bool {
        self.keys().contains(&key)
    }

    /// Whether mail to `key` is not limited; under LRU this counts as a use.
    pub(super) fn hit(&mut self, key: RecipientKey, replacement: Replacement) -> bool {
        let Some(place) = self.keys().iter().position(|k| *k == key) else { return false };
        if let (Replacement::Lru, Some(from_place)) = (replacement, self.keys_mut().get_mut(place..)) {
            from_place.rotate_left(1);
        }
        true
    }

    /// `key` was mailed: it enters, and another leaves if the set is full.
    pub(super) fn insert(&mut self, key: RecipientKey, params: &Params) {
        if params.working_set == 0 || self.hit(key, params.replacement) {
            return;
        }
        if self.keys().len() < params.working_set {
            return self.push(key);
        }
        self.keys_mut().rotate_left(1);
        if let Some(last) = self.keys_mut().last_mut() {
            *last = key;
        }
    }

    pub(super) fn keys(&self) -> &[RecipientKey] {
        match self {
            WorkingSet::Few(keys, count) => keys.get(..usize::from(*count)).unwrap_or(keys),
            WorkingSet::Many(keys) => keys,
        }
    }

    fn keys_mut(&mut self) -> &mut [RecipientKey] {
        match self {
            WorkingSet::Few(keys, count) => keys.split_at_mut(FEW.min(usize::from(*count))).0,
            WorkingSet::Many(keys) => keys,
        }
    }

    fn push(&mut self, key: RecipientKey) {
        match self {
            WorkingSet::Few(keys, count) => {
                if let Some(place) = keys.get_mut(usize::from(*count)) {
                    (*place, *count) = (key, *count + 1);
                }
            }
            WorkingSet::Many(keys) => keys.push(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(working_set: usize, replacement: Replacement, mailed: &[u64]) -> Vec<u64> {
        let params = Params { working_set, replacement, ..Params::default() };
        let mut set = WorkingSet::restore(&[], &params);
        mailed.iter().for_each(|key| set.insert(RecipientKey(*key), &params));
        set.keys().iter().map(|key| key.0).collect()
    }

    #[test]
    fn fifo_forgets_the_first_in_and_lru_the_least_recent() {
        assert_eq!(after(3, Replacement::Fifo, &[1, 2, 3, 1, 4]), [2, 3, 4]);
        assert_eq!(after(3, Replacement::Lru, &[1, 2, 3, 1, 4]), [3, 1, 4]);
        assert_eq!(after(7, Replacement::Fifo, &[1, 2, 3, 4, 5, 6, 7, 1, 8]), [2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(after(7, Replacement::Lru, &[1, 2, 3, 4, 5, 6, 7, 1, 8]), [3, 4, 5, 6, 7, 1, 8]);
    }

    #[test]
    fn a_smaller_set_keeps_the_newest_and_an_empty_one_nothing() {
        let keys: Vec<_> = (1..=5).map(RecipientKey).collect();
        let params = Params { working_set: 2, ..Params::default() };
        assert_eq!(WorkingSet::restore(&keys, &params).keys(), [RecipientKey(4), RecipientKey(5)]);
        let none = Params { working_set: 0, ..Params::default() };
        let mut set = WorkingSet::restore(&[], &none);
        set.insert(RecipientKey(1), &none);
        assert!(!set.contains(RecipientKey(1)));
    }
}
