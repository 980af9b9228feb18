//! A slab: values in one vector, found by a key. The key says which of the successive values of its slot it means.
//!
//! Each slot counts its values, so a key that is kept too long finds nothing rather than somebody else's value. Vacant slots form a list,
//! so insertion and removal cost O(1) and, once the vector has grown, allocate nothing.

use crate::prefetch;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// "No slot": ends a list.
pub(super) const NONE: u32 = u32::MAX;

/// A slot of a slab in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlabKey {
    /// The slot.
    pub index: u32,
    /// How often the slot had been used before.
    pub life: u32,
}

/// Values in slots that are used again.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: u32,
    len: u32,
}

/// It has a cache line or more of its own: a sample fills one exactly, and should not lie across two.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Slot<T> {
    life: u32,
    next_vacant: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), vacant: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
    /// A slab with room for `n` values before it allocates again.
    pub fn with_capacity(n: usize) -> Self {
        Slab { slots: Vec::with_capacity(n), ..Slab::default() }
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value in; nothing if all 2³² − 1 slots are taken.
    pub fn insert(&mut self, value: T) -> Option<SlabKey> {
        if self.vacant == NONE {
            self.grow()?;
        }
        let index = self.vacant;
        let slot = &mut self.slots[index as usize];
        self.vacant = slot.next_vacant;
        slot.value = Some(value);
        self.len += 1;
        Some(SlabKey { index, life: slot.life })
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: SlabKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.life == key.life)?;
        let value = slot.value.take()?;
        slot.life = slot.life.wrapping_add(1);
        slot.next_vacant = self.vacant;
        self.vacant = key.index;
        self.len -= 1;
        Some(value)
    }

    /// The value of a key that may be stale or made up.
    pub fn get(&self, key: SlabKey) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.life == key.life)?.value.as_ref()
    }

    /// The value of a key that may be stale or made up, to change it.
    pub fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.life == key.life)?.value.as_mut()
    }

    /// Prefetches a slot that will be needed soon.
    pub(super) fn prefetch(&self, index: u32) {
        prefetch::soon(&self.slots, index as usize);
    }

    /// The key of an occupied slot.
    pub(super) fn key(&self, index: u32) -> SlabKey {
        SlabKey { index, life: self.slots[index as usize].life }
    }

    /// All occupied slots.
    pub fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        let key = |index: usize, slot: &Slot<T>| SlabKey { index: index as u32, life: slot.life };
        self.slots.iter().enumerate().filter_map(move |(i, slot)| Some((key(i, slot), slot.value.as_ref()?)))
    }

    /// The first occupied slot at `index` or after it.
    pub(super) fn occupied_from(&self, index: u32) -> Option<u32> {
        (index..self.slots.len() as u32).find(|i| self.slots[*i as usize].value.is_some())
    }

    /// All occupied slots, to change their values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(i, slot)| Some((i as u32, slot.value.as_mut()?)))
    }

    fn grow(&mut self) -> Option<()> {
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index != NONE)?;
        self.slots.push(Slot { life: 0, next_vacant: NONE, value: None });
        self.vacant = index;
        Some(())
    }
}

/// Access by bare index, for lists whose members are occupied by construction.
impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].value.as_ref().expect("a list names occupied slots only")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].value.as_mut().expect("a list names occupied slots only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert('a').unwrap();
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b').unwrap();
        assert_eq!(b.index, a.index, "the slot is used again");
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!(slab.get(SlabKey { index: 9, life: 0 }), None);
        assert_eq!((slab.len(), slab.iter().count()), (1, 1));
    }
}
