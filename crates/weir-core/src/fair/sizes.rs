//! How many visitors each network has. It answers how many networks have more than `n` visitors, which the places in the
//! [line](super::Line) are computed from.
//!
//! Visitors who are only expected count in part, so sizes are in units of which [`ONE`] is a visitor. Setting a size costs as much as it changes; memory
//! is one number for each network, and one for each visitor of the largest.

use alloc::vec::Vec;

use super::keys::KeyMap;

/// How many neighbours are counted at most to tell a visitor its place.
pub(super) const COUNTED: usize = 4_096;

/// One visitor.
pub(super) const ONE: u64 = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    of: KeyMap<u64>,
    /// At `n`: the sum over all networks of what each has beyond `n` visitors, at most one visitor for each.
    beyond: Vec<u64>,
}

impl Sizes {
    /// From now on this network has this many visitors.
    pub(super) fn set(&mut self, network: u64, size: u64) {
        let before = self.of.get(&network).copied().unwrap_or(0);
        if before == size {
            return;
        }
        if size == 0 {
            self.of.remove(&network);
        } else {
            self.of.insert(network, size);
        }
        let (from, to) = (before.min(size) / ONE, before.max(size).div_ceil(ONE));
        if self.beyond.len() < to as usize {
            self.beyond.resize(to as usize, 0);
        }
        for n in from..to {
            if let Some(beyond) = self.beyond.get_mut(n as usize) {
                *beyond = *beyond + part(size, n) - part(before, n);
            }
        }
        while self.beyond.last() == Some(&0) {
            self.beyond.pop();
        }
    }

    /// The first visitors of each network, up to `most` of each.
    pub(super) fn first_of_each(&self, most: u64) -> u64 {
        let (whole, rest) = ((most / ONE) as usize, most % ONE);
        let all: u64 = self.beyond.iter().take(whole).sum();
        all + self.beyond.get(whole).map_or(0, |beyond| beyond * rest / ONE)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.beyond.is_empty()
    }
}

/// How much of this size is beyond `n` visitors, at most one of them.
fn part(size: u64, n: u64) -> u64 {
    size.saturating_sub(n * ONE).min(ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// The oracle adds the networks up.
        #[test]
        fn it_is_the_sum_over_all_networks(sets in prop::collection::vec((0u64..5, 0u64..6 * ONE), 0..60), most in 0u64..7) {
            let (mut sizes, mut naive) = (Sizes::default(), BTreeMap::new());
            for (network, size) in sets {
                sizes.set(network, size);
                naive.insert(network, size);
                let sum: u64 = naive.values().map(|size: &u64| (*size).min(most * ONE)).sum();
                prop_assert_eq!(sizes.first_of_each(most * ONE), sum);
            }
            (0..5).for_each(|network| sizes.set(network, 0));
            prop_assert!(sizes.is_empty());
        }
    }
}
