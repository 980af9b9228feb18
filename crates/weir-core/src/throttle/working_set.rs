//! The addresses that a user mailed recently. Searched in a line: it holds at most 128.

use super::RecipientKey;
use super::params::{Params, Replacement};
use alloc::vec::Vec;

/// Recently mailed addresses, the next to leave first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WorkingSet {
    keys: Vec<RecipientKey>,
}

impl WorkingSet {
    /// The newest of `keys` that fit.
    pub(super) fn restore(mut keys: Vec<RecipientKey>, params: &Params) -> WorkingSet {
        let surplus = keys.len().saturating_sub(params.working_set);
        keys.drain(..surplus);
        WorkingSet { keys }
    }

    pub(super) fn contains(&self, key: RecipientKey) -> bool {
        self.keys.contains(&key)
    }

    /// Whether mail to `key` is not limited; under LRU this counts as a use.
    pub(super) fn hit(&mut self, key: RecipientKey, replacement: Replacement) -> bool {
        let Some(place) = self.keys.iter().position(|k| *k == key) else { return false };
        if let (Replacement::Lru, Some(from_place)) = (replacement, self.keys.get_mut(place..)) {
            from_place.rotate_left(1);
        }
        true
    }

    /// `key` was mailed: it enters, and another leaves if the set is full.
    pub(super) fn insert(&mut self, key: RecipientKey, params: &Params) {
        if params.working_set == 0 || self.hit(key, params.replacement) {
            return;
        }
        if self.keys.len() >= params.working_set {
            self.keys.remove(0);
        }
        self.keys.push(key);
    }

    pub(super) fn keys(&self) -> &[RecipientKey] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(replacement: Replacement, mailed: &[u64]) -> Vec<u64> {
        let params = Params { working_set: 3, replacement, ..Params::default() };
        let mut set = WorkingSet::default();
        mailed.iter().for_each(|key| set.insert(RecipientKey(*key), &params));
        set.keys().iter().map(|key| key.0).collect()
    }

    #[test]
    fn fifo_forgets_the_first_in_and_lru_the_least_recent() {
        assert_eq!(after(Replacement::Fifo, &[1, 2, 3, 1, 4]), [2, 3, 4]);
        assert_eq!(after(Replacement::Lru, &[1, 2, 3, 1, 4]), [3, 1, 4]);
    }

    #[test]
    fn a_smaller_set_keeps_the_newest_and_an_empty_one_nothing() {
        let keys: Vec<_> = (1..=5).map(RecipientKey).collect();
        let params = Params { working_set: 2, ..Params::default() };
        assert_eq!(WorkingSet::restore(keys, &params).keys(), [RecipientKey(4), RecipientKey(5)]);
        let none = Params { working_set: 0, ..Params::default() };
        let mut set = WorkingSet::default();
        set.insert(RecipientKey(1), &none);
        assert!(!set.contains(RecipientKey(1)));
    }
}
