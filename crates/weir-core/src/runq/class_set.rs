//! A set of needs classes as bits, and the visit of the classes that are in two of them.

use super::needs_class::ClassId;
use alloc::vec::Vec;

/// A set of needs classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSet {
    words: Vec<u64>,
}

impl ClassSet {
    /// Puts `class` in or takes it out.
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

    /// Visits the classes that are in both.
    pub(super) fn for_each_in_both(&self, other: &ClassSet, mut visit: impl FnMut(ClassId)) {
        for (i, (a, b)) in self.words.iter().zip(&other.words).enumerate() {
            let mut word = a & b;
            while word != 0 {
                visit(ClassId(i as u32 * 64 + word.trailing_zeros()));
                word &= word - 1;
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
    fn the_common_classes_come_in_order() {
        let (mut a, mut b) = (ClassSet::default(), ClassSet::default());
        [3, 64, 130].into_iter().for_each(|n| a.set(ClassId(n), true));
        [3, 65, 130, 500].into_iter().for_each(|n| b.set(ClassId(n), true));
        let both = |a: &ClassSet, b: &ClassSet| {
            let mut classes = Vec::new();
            a.for_each_in_both(b, |class| classes.push(class.0));
            classes
        };
        assert_eq!(both(&a, &b), [3, 130]);
        a.set(ClassId(3), false);
        a.set(ClassId(9999), false);
        assert_eq!(both(&b, &a), [130]);
        assert!(a.contains(ClassId(64)) && !a.contains(ClassId(9999)));
    }
}
