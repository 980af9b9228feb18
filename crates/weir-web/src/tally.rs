//! Counts by key that hold only what is there.

use std::collections::HashMap;
use std::hash::Hash;

/// One less of this key; its count goes with the last.
pub(crate) fn one_less<K: Copy + Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}
