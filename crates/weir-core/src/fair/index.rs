//! Slots by key: open addressing with linear probing, eight bytes per entry.
//!
//! An entry holds the upper half of the key, which also says where it belongs, and the slot. The whole key is in the record, which the
//! caller reads anyway, so a look-up costs one access to memory besides that; a general map costs two. Keys are hashes already. At most
//! three quarters full; removal closes the gap, so there are no tombstones.

use alloc::vec;
use alloc::vec::Vec;

const FREE: u64 = u64::MAX;

/// A map from hashed keys to slots.
#[derive(Clone, Debug)]
pub(super) struct Index {
    entries: Vec<u64>,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { entries: vec![FREE; 16], len: 0 }
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot of `key`; `is` says whether a slot holds it.
    #[inline]
    pub(super) fn find(&self, key: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            let entry = self.entries[at];
            if entry == FREE {
                return None;
            }
            if entry >> 32 == key >> 32 && is(entry as u32) {
                return Some(entry as u32);
            }
            at = self.after(at);
        }
    }

    /// Adds a key that is not in it.
    pub(super) fn insert(&mut self, key: u64, slot: u32) {
        if (self.len + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        self.len += 1;
        self.put((key & !0xffff_ffff) | u64::from(slot));
    }

    /// Removes a key that is in it at `slot`.
    pub(super) fn remove(&mut self, key: u64, slot: u32) {
        let gone = (key & !0xffff_ffff) | u64::from(slot);
        let mut gap = self.home(key);
        while self.entries[gap] != gone {
            if self.entries[gap] == FREE {
                return;
            }
            gap = self.after(gap);
        }
        self.len -= 1;
        let mut at = self.after(gap);
        while self.entries[at] != FREE {
            // An entry may be moved into the gap, unless it belongs behind it.
            let mask = self.entries.len() - 1;
            let (way, gap_way) = (at.wrapping_sub(self.home(self.entries[at])) & mask, at.wrapping_sub(gap) & mask);
            if way >= gap_way {
                self.entries[gap] = self.entries[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.entries[gap] = FREE;
    }

    fn grow(&mut self) {
        let doubled = vec![FREE; self.entries.len() * 2];
        let old = core::mem::replace(&mut self.entries, doubled);
        old.into_iter().filter(|entry| *entry != FREE).for_each(|entry| self.put(entry));
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.home(entry);
        while self.entries[at] != FREE {
            at = self.after(at);
        }
        self.entries[at] = entry;
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        (key >> 32) as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_is_a_map_even_where_keys_collide() {
        let (mut index, mut model, mut keys) = (Index::default(), BTreeMap::new(), Vec::new());
        let mut random = 1u64;
        for slot in 0..30_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few home positions and few different upper halves: long runs, and keys that differ only in their lower bits.
            let key = (((random >> 40) % 500) << 32) | ((random >> 20) % 3);
            keys.push(key);
            let found = index.find(key, |slot| keys[slot as usize] == key);
            assert_eq!(found, model.get(&key).copied());
            match found {
                Some(slot) => {
                    index.remove(key, slot);
                    model.remove(&key);
                }
                None => {
                    index.insert(key, slot);
                    model.insert(key, slot);
                }
            }
            assert_eq!(index.len(), model.len());
        }
    }
}
