//! Values in slots that are used again. Unlike a slab it does not detect stale keys: its owner has to know which slots are live.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Like a slab, but its keys are plain indices, which cannot become stale.
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    slots: Vec<T>,
    vacant: Vec<u32>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Pool<T> {
    /// How many values are live.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// How many slots there are, live or not.
    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self[index] = value;
            return index;
        }
        self.slots.push(value);
        self.slots.len() as u32 - 1
    }

    /// Frees a slot; its value stays there until the slot is used again.
    pub(super) fn remove(&mut self, index: u32) {
        self.vacant.push(index);
    }
}

impl<T> Index<u32> for Pool<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.slots[index as usize]
    }
}

impl<T> IndexMut<u32> for Pool<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.slots[index as usize]
    }
}
