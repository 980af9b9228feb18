//! A table whose places are used again, but whose keys are not: the key of a removed entry finds nothing.
//!
//! One allocation for all, no hashing. A key is the place and how often it had been used.

/// An empty table of more places than this is given back.
const KEEP: usize = 1024;

/// Names an entry of [`Slots`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    place: u32,
    generation: u32,
}

/// The table.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<SlotEntry<T>>,
    free: Vec<u32>,
    /// The generation that new places begin with.
    first: u32,
}

#[derive(Debug)]
struct SlotEntry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new(), first: 0 }
    }
}

impl<T> Slots<T> {
    /// Puts a value in.
    pub fn insert(&mut self, value: T) -> Slot {
        if let Some(place) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(place as usize)
        {
            entry.value = Some(value);
            return Slot { place, generation: entry.generation };
        }
        self.entries.push(SlotEntry { generation: self.first, value: Some(value) });
        // Four thousand million entries do not fit into any memory that we know.
        Slot { place: (self.entries.len() - 1) as u32, generation: self.first }
    }

    /// The value of a key.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let entry = self.entries.get(slot.place as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == slot.generation)
    }

    /// The value of a key, to change.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.place as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == slot.generation)
    }

    /// Takes a value out.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.place as usize).filter(|entry| entry.generation == slot.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot.place);
        if self.free.len() == self.entries.len() {
            self.clear_memory();
        }
        Some(value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(place, entry)| {
            let slot = Slot { place: place as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (slot, value))
        })
    }

    /// After a great backlog the table gives its memory back. Places that come again must not repeat old keys.
    fn clear_memory(&mut self) {
        if self.entries.len() > KEEP {
            self.first = self.entries.iter().map(|entry| entry.generation).max().unwrap_or(self.first);
            self.entries = Vec::new();
            self.free = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_something_gone_finds_nothing() {
        let mut slots = Slots::default();
        let a = slots.insert('a');
        assert_eq!(slots.remove(a), Some('a'));
        let b = slots.insert('b');
        assert_ne!(a, b);
        assert_eq!(slots.remove(a), None);
        assert_eq!((slots.get(a), slots.get(b), slots.len()), (None, Some(&'b'), 1));
        *slots.get_mut(b).unwrap() = 'c';
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(b, &'c')]);
    }

    #[test]
    fn memory_goes_after_a_backlog() {
        let mut slots = Slots::default();
        let keys: Vec<_> = (0..5000).map(|value| slots.insert(value)).collect();
        assert!(keys.iter().all(|key| slots.remove(*key).is_some()));
        assert!(slots.is_empty() && slots.entries.capacity() == 0);
        let again: Vec<_> = (0..1000).map(|value| slots.insert(value)).collect();
        assert!(again.iter().all(|key| !keys.contains(key)) && keys.iter().all(|key| slots.get(*key).is_none()));
    }
}
