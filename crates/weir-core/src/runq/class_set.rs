//! A set of needs classes as bits, and the search for the first class that is in two of them.

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

    /// The classes that are in both.
    pub fn both<'a>(&'a self, other: &'a ClassSet) -> impl Iterator<Item = ClassId> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words.flat_map(|(i, (a, b))| bits(a & b).map(move |bit| ClassId(i as u32 * 64 + bit)))
    }
}

fn place(class: ClassId) -> (usize, u64) {
    ((class.0 / 64) as usize, 1 << (class.0 % 64))
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_classes_come_in_order() {
        let (mut a, mut b) = (ClassSet::default(), ClassSet::default());
        [3, 64, 130].into_iter().for_each(|n| a.set(ClassId(n), true));
        [3, 65, 130, 500].into_iter().for_each(|n| b.set(ClassId(n), true));
        assert!(a.both(&b).eq([ClassId(3), ClassId(130)]));
        a.set(ClassId(3), false);
        a.set(ClassId(9999), false);
        assert!(b.both(&a).eq([ClassId(130)]));
        assert!(a.contains(ClassId(64)) && !a.contains(ClassId(9999)));
    }
}
