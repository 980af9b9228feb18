//! Needs classes: each distinct set of needs gets one small number, for as long as some sample has it.
//!
//! Choosing costs O(classes), so submissions may bring only a bounded number of them. After some of its plugins have run, the rest of a
//! sample's needs may be a new class; by then it is too late to refuse it. A number that is no longer used is kept (samples with these
//! needs may come again) until it is wanted for other needs.

use super::needs::{Needs, Plugins, Tags};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The number of a needs class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub(super) u32);

impl ClassId {
    /// The class of a sample that needs nothing more.
    pub(super) const NOTHING: ClassId = ClassId(u32::MAX);

    /// A class by its number, for run queues that are used alone, without a scheduler.
    pub fn numbered(number: u16) -> ClassId {
        ClassId(u32::from(number))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// All classes that have a number.
#[derive(Clone, Debug)]
pub(super) struct NeedsClasses {
    classes: Vec<NeedsClass>,
    by_needs: BTreeMap<Needs, ClassId>,
    /// Classes that samples name.
    used: usize,
    used_max: usize,
}

#[derive(Clone, Debug)]
pub(super) struct NeedsClass {
    pub(super) needs: Needs,
    /// Samples that name it.
    uses: u32,
    /// Samples of it in the run queues.
    pub(super) queued: u32,
    /// Machines that have a VM for it, whatever that VM does at the moment.
    pub(super) able_groups: u32,
    /// Since when samples wait that no machine could serve; has no meaning if there are none.
    pub(super) unserviceable_since: Instant,
}

impl NeedsClass {
    fn unused(needs: Needs) -> NeedsClass {
        NeedsClass { needs, uses: 0, queued: 0, able_groups: 0, unserviceable_since: Instant::ZERO }
    }

    /// Whether samples of it wait and no machine could serve them.
    pub(super) fn is_unserviceable(&self) -> bool {
        self.queued > 0 && self.able_groups == 0
    }
}

/// The number of a class; it is new if groups have not yet seen these needs under this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    pub(super) class: ClassId,
    pub(super) is_new: bool,
}

impl NeedsClasses {
    pub(super) fn new(used_max: usize) -> NeedsClasses {
        NeedsClasses { classes: Vec::new(), by_needs: BTreeMap::new(), used: 0, used_max }
    }

    /// The number of `needs`, which is used once more. None if that would be one class more than allowed.
    pub(super) fn take(&mut self, needs: Needs) -> Option<Numbered> {
        let known = self.by_needs.get(&needs).map(|class| self.at(*class).uses > 0);
        let allowed = known == Some(true) || self.used < self.used_max;
        if allowed { self.take_anyway(needs) } else { None }
    }

    /// The same, even beyond the number allowed. None only if there are 2³² classes.
    pub(super) fn take_anyway(&mut self, needs: Needs) -> Option<Numbered> {
        if let Some(class) = self.by_needs.get(&needs).copied() {
            self.take_again(class);
            return Some(Numbered { class, is_new: false });
        }
        let class = self.free_number()?;
        self.by_needs.insert(needs, class);
        self.classes[class.index()] = NeedsClass::unused(needs);
        self.take_again(class);
        Some(Numbered { class, is_new: true })
    }

    /// One more sample uses the class.
    pub(super) fn take_again(&mut self, class: ClassId) {
        let entry = &mut self.classes[class.index()];
        self.used += usize::from(entry.uses == 0);
        entry.uses += 1;
    }

    /// One sample less uses it.
    pub(super) fn release(&mut self, class: ClassId) {
        if let Some(entry) = self.classes.get_mut(class.index()) {
            entry.uses -= 1;
            self.used -= usize::from(entry.uses == 0);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.classes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ClassId, &NeedsClass)> {
        self.classes.iter().enumerate().map(|(i, class)| (ClassId(i as u32), class))
    }

    pub(super) fn at(&self, class: ClassId) -> &NeedsClass {
        &self.classes[class.index()]
    }

    pub(super) fn at_mut(&mut self, class: ClassId) -> &mut NeedsClass {
        &mut self.classes[class.index()]
    }

    fn free_number(&mut self) -> Option<ClassId> {
        if self.classes.len() >= self.used_max && self.used < self.classes.len() {
            let unused = self.classes.iter().position(|class| class.uses == 0)?;
            self.by_needs.remove(&self.classes[unused].needs);
            return Some(ClassId(unused as u32));
        }
        let class = u32::try_from(self.classes.len()).map(ClassId).ok().filter(|class| *class != ClassId::NOTHING)?;
        self.classes.push(NeedsClass::unused(Needs { plugins: Plugins::NONE, tags: Tags::NONE }));
        Some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_needs_share_a_number_and_unused_numbers_return() {
        let needs = |n| Needs { plugins: Plugins(n), tags: Tags::NONE };
        let mut classes = NeedsClasses::new(2);
        let a = classes.take(needs(1)).unwrap();
        assert!(a.is_new && !classes.take(needs(1)).unwrap().is_new);
        let b = classes.take(needs(2)).unwrap();
        assert!(classes.take(needs(3)).is_none(), "both are in use");
        classes.release(b.class);
        let c = classes.take(needs(3)).unwrap();
        assert!(c.is_new && c.class == b.class && classes.at(c.class).needs == needs(3));
        assert!(classes.take(needs(2)).is_none());
        assert!(classes.take_anyway(needs(2)).unwrap().is_new, "what is left of a sample is never refused");
        assert!(!classes.take(needs(2)).unwrap().is_new);
    }
}
