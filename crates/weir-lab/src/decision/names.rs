//! Maps names to numbers: people name plugins and tags, weir-core counts them.

use std::collections::HashMap;
use std::hash::Hash;

/// Names with numbers from 0. A number is never given to another name.
#[derive(Debug)]
pub(super) struct NumberedNames<T> {
    numbers: HashMap<T, u32>,
    names: Vec<T>,
    most: usize,
}

impl<T: Clone + Eq + Hash> NumberedNames<T> {
    pub(super) fn new(most: usize) -> NumberedNames<T> {
        NumberedNames { numbers: HashMap::new(), names: Vec::new(), most }
    }

    /// The number of a name, a new one if it has none; none if all are given.
    pub(super) fn number(&mut self, name: T) -> Option<u32> {
        if let Some(number) = self.numbers.get(&name) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < self.most)?;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        Some(number)
    }

    /// How many have a number.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn find(&self, name: &T) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn name(&self, number: usize) -> Option<&T> {
        self.names.get(number)
    }
}
