//! A doubly linked list through the slots of a slab or pool: the list holds two ends, the members hold the links.
//!
//! Adding to the tail and removing from anywhere cost O(1). Taking the head does not touch the member
//! behind it (its stale backward link is never read, because the head is known by the list): at a million
//! samples that member is a cache miss.

use super::slab::NONE;
use core::ops::{Index, IndexMut};

/// A member's neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Links {
    pub(super) const LOOSE: Links = Links { prev: NONE, next: NONE };
}

/// What can be a member of a list.
pub(super) trait Linked {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// The ends and the length of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn push_back<T: Linked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        *slab[index].links_mut() = Links { prev: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = index,
            tail => slab[tail].links_mut().next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Inserts a member before those at the end that it should pass, as `goes_before` says. Costs O(passed).
    pub(super) fn insert<T: Linked>(
        &mut self,
        slab: &mut impl IndexMut<u32, Output = T>,
        index: u32,
        goes_before: impl Fn(&T) -> bool,
    ) {
        let mut behind = NONE;
        let mut at = self.tail;
        while at != NONE && goes_before(&slab[at]) {
            behind = at;
            at = if at == self.head { NONE } else { slab[at].links().prev };
        }
        if behind == NONE {
            return self.push_back(slab, index);
        }
        *slab[index].links_mut() = Links { prev: at, next: behind };
        slab[behind].links_mut().prev = index;
        match at {
            NONE => self.head = index,
            at => slab[at].links_mut().next = index,
        }
        self.len += 1;
    }

    /// Removes a member. It must be in this list.
    pub(super) fn remove<T: Linked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        let Links { prev, next } = slab[index].links();
        let (was_head, was_tail) = (index == self.head, index == self.tail);
        if was_head {
            self.head = next;
        } else {
            slab[prev].links_mut().next = next;
        }
        if was_tail {
            self.tail = if was_head { NONE } else { prev };
        } else if !was_head {
            slab[next].links_mut().prev = prev;
        }
        self.len -= 1;
    }

    /// Removes the first member, if there is one.
    #[inline]
    pub(super) fn pop_front<T: Linked>(&mut self, slab: &impl Index<u32, Output = T>) -> Option<u32> {
        let first = self.head()?;
        self.head = slab[first].links().next;
        if self.head == NONE {
            self.tail = NONE;
        }
        self.len -= 1;
        Some(first)
    }

    /// Moves a member behind all others. It must be in this list.
    #[inline]
    pub(super) fn move_back<T: Linked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, index: u32) {
        if index == self.tail {
            return;
        }
        let Links { prev, next } = slab[index].links();
        if index == self.head {
            self.head = next;
        } else {
            slab[prev].links_mut().next = next;
            slab[next].links_mut().prev = prev;
        }
        slab[self.tail].links_mut().next = index;
        *slab[index].links_mut() = Links { prev: self.tail, next: NONE };
        self.tail = index;
    }

    /// Moves all of `other` behind the tail.
    pub(super) fn append<T: Linked>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, other: &mut List) {
        if other.is_empty() {
            return;
        }
        slab[other.head].links_mut().prev = self.tail;
        match self.tail {
            NONE => self.head = other.head,
            tail => slab[tail].links_mut().next = other.head,
        }
        self.tail = other.tail;
        self.len += other.len;
        *other = List::EMPTY;
    }

    /// Changes every member.
    pub(super) fn for_each<T: Linked>(
        &self,
        slab: &mut impl IndexMut<u32, Output = T>,
        mut change: impl FnMut(&mut T),
    ) {
        let mut at = self.head;
        while at != NONE {
            change(&mut slab[at]);
            at = slab[at].links().next;
        }
    }

    pub(super) fn iter<'a, T: Linked>(&self, slab: &'a impl Index<u32, Output = T>) -> impl Iterator<Item = u32> + 'a {
        core::iter::successors(self.head(), move |index| Some(slab[*index].links().next).filter(|next| *next != NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::Slab;
    use super::*;
    use alloc::vec::Vec;

    impl Linked for Links {
        fn links(&self) -> Links {
            *self
        }
        fn links_mut(&mut self) -> &mut Links {
            self
        }
    }

    #[test]
    fn members_leave_from_anywhere() {
        let mut slab = Slab::default();
        let [a, b, c, d] = [(); 4].map(|()| slab.insert(Links::LOOSE).unwrap().index);
        let (mut list, mut other) = (List::EMPTY, List::EMPTY);
        [a, b, c].into_iter().for_each(|i| list.push_back(&mut slab, i));
        other.push_back(&mut slab, d);
        list.append(&mut slab, &mut other);
        let members = |list: &List, slab: &Slab<Links>| list.iter(slab).collect::<Vec<_>>();
        assert_eq!(members(&list, &slab), [a, b, c, d]);
        list.remove(&mut slab, c);
        list.remove(&mut slab, a);
        assert_eq!(members(&list, &slab), [b, d]);
        list.remove(&mut slab, d);
        list.push_back(&mut slab, a);
        assert_eq!((members(&list, &slab), list.len()), (Vec::from([b, a]), 2));
        list.insert(&mut slab, c, |_| true);
        list.insert(&mut slab, d, |_| false);
        assert_eq!((members(&list, &slab), list.len()), (Vec::from([c, b, a, d]), 4));
        for (moved, order) in [(c, [b, a, d, c]), (a, [b, d, c, a]), (a, [b, d, c, a]), (b, [d, c, a, b])] {
            list.move_back(&mut slab, moved);
            assert_eq!((members(&list, &slab), list.len()), (Vec::from(order), 4));
        }
        list.remove(&mut slab, a);
        assert_eq!([(); 4].map(|()| list.pop_front(&slab)), [Some(d), Some(c), Some(b), None]);
        assert!(list.is_empty() && list.head().is_none() && other.is_empty());
        list.push_back(&mut slab, a);
        assert_eq!(members(&list, &slab), [a]);
    }
}
