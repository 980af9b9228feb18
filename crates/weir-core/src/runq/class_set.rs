//! A set of needs classes, stored as one bit for each class.

use super::needs_class::ClassId;
use alloc::vec::Vec;

/// A set of needs classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSet {
    words: Vec<u64>,
}

impl ClassSet {
    /// Adds `class` to the set or removes it.
    pub fn set(&mut self, class: ClassId, member: bool) {
        let (word, bit) = place(class);
        if word >= self.words.len() {
            if !member {
                return;
            }
            self.words.resize(word + 1, 0);
        }
        if member {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    /// Whether `class` is in it.
    pub fn contains(&self, class: ClassId) -> bool {
        let (word, bit) = place(class);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Visits every class in it, in order.
    #[inline]
    pub(super) fn for_each(&self, mut visit: impl FnMut(ClassId)) {
        for (i, word) in self.words.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                visit(ClassId(i as u32 * 64 + rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
    }
}

fn place(class: ClassId) -> (usize, u64) {
    ((class.0 / 64) as usize, 1 << (class.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order() {
        let mut set = ClassSet::default();
        [130, 3, 64].into_iter().for_each(|n| set.set(ClassId(n), true));
        set.set(ClassId(64), false);
        set.set(ClassId(9999), false);
        let mut members = Vec::new();
        set.for_each(|class| members.push(class.0));
        assert_eq!(members, [3, 130]);
        assert!(set.contains(ClassId(130)) && !set.contains(ClassId(64)) && !set.contains(ClassId(9999)));
    }
}
