//! Gives numbers to names that are in use. No number is used twice, so a number never refers to another name later.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Numbers for names.
#[derive(Debug)]
pub struct NameNumbers<K: ?Sized> {
    known: HashMap<Arc<K>, Use>,
    next: u64,
}

#[derive(Debug)]
struct Use {
    number: u64,
    count: usize,
}

impl<K: Eq + Hash + ?Sized> Default for NameNumbers<K> {
    fn default() -> NameNumbers<K> {
        NameNumbers { known: HashMap::new(), next: 0 }
    }
}

impl<K: Eq + Hash + ?Sized> NameNumbers<K> {
    /// Counts one more use of a name. Returns its number, and the copy of the name that all users share.
    pub fn take(&mut self, name: &Arc<K>) -> (Arc<K>, u64) {
        if let Some((shared, used)) = self.known.get_key_value(name) {
            let (shared, number) = (Arc::clone(shared), used.number);
            self.known.entry(Arc::clone(&shared)).and_modify(|used| used.count += 1);
            return (shared, number);
        }
        let number = self.next;
        self.next += 1;
        self.known.insert(Arc::clone(name), Use { number, count: 1 });
        (Arc::clone(name), number)
    }

    /// Counts one use less. Returns whether the name is no longer in use.
    pub fn give_back(&mut self, name: &K) -> bool {
        let Some(used) = self.known.get_mut(name) else { return false };
        used.count -= 1;
        let unused = used.count == 0;
        if unused {
            self.known.remove(name);
        }
        unused
    }

    /// The number of a name that is in use.
    pub fn number(&self, name: &K) -> Option<u64> {
        self.known.get(name).map(|used| used.number)
    }

    /// Names and numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<K>, u64)> {
        self.known.iter().map(|(name, used)| (name, used.number))
    }

    /// How many names are in use.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_one_name() {
        let mut names: NameNumbers<str> = NameNumbers::default();
        let (shared, zero) = names.take(&"a".into());
        assert!(Arc::ptr_eq(&names.take(&"a".into()).0, &shared));
        assert_eq!((zero, names.take(&"b".into()).1, names.len()), (0, 1, 2));
        assert!(!names.give_back("a") && names.give_back("a") && !names.give_back("a"));
        assert_eq!(names.take(&"a".into()).1, 2);
    }
}
