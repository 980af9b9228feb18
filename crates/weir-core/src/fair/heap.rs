//! An indexed 4-ary heap whose nodes carry their keys, and whose first node is stored in the heap struct itself.
//!
//! Several heaps may share one table of places (a session waits in one heap at a time), so the table is
//! passed in. Reading the first node takes one look-up in memory, and a heap of one node allocates nothing: most subnets have one session.
//! Siblings share a cache line or two. Keys are compared by their wrapped difference (`ahead`), so they may roll over. Push, remove and
//! replace are O(log n) and say whether the first node changed.

use crate::prefetch;
use alloc::boxed::Box;

/// An element of a heap.
pub(super) trait Node: Copy {
    /// Set in the places of this heap's ids, to tell it from another heap that uses the same table.
    const MARK: u32;
    /// Used where there is no first node.
    const NONE: Self;

    fn id(&self) -> u32;

    /// Whether this one comes first. Written without branches, because they could not be predicted.
    fn before(&self, other: &Self) -> bool;
}

/// The place of an id that is in no heap; it is also no valid id.
pub(super) const NOWHERE: u32 = u32::MAX;

const ARITY: usize = 4;

/// A heap; `places[id]` is kept as the position of each of its ids.
#[derive(Clone, Debug)]
pub(super) struct Heap<N> {
    first: N,
    len: u32,
    /// The children of position p are in family p.
    families: Box<[Family<N>]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Family<N>([N; ARITY]);

impl<N: Node> Default for Heap<N> {
    fn default() -> Heap<N> {
        Heap { first: N::NONE, len: 0, families: Box::default() }
    }
}

impl<N: Node> Heap<N> {
    #[inline]
    pub(super) fn top(&self) -> Option<&N> {
        (self.len > 0).then_some(&self.first)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Prefetches for taking out the first node or putting in another: both touch the first family and the last.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch::soon(&self.families, 0);
        prefetch::soon(&self.families, self.len().saturating_sub(1) / ARITY);
    }

    /// The node at `place`, which must hold one.
    #[inline]
    pub(super) fn at(&self, place: u32) -> &N {
        self.node((place & !N::MARK) as usize)
    }

    /// Puts a node in.
    #[inline(always)]
    pub(super) fn push(&mut self, node: N, places: &mut [u32]) -> bool {
        let hole = self.len as usize;
        self.len += 1;
        if hole == 0 {
            self.set(0, node, places);
            return true;
        }
        if hole % ARITY == 1 && hole / ARITY == self.families.len() {
            self.grow();
        }
        self.rise(hole, node, places)
    }

    /// Most heaps stay small, so they start with one family and double.
    #[cold]
    fn grow(&mut self) {
        let mut families = core::mem::take(&mut self.families).into_vec();
        let more = families.len().max(1);
        families.reserve_exact(more);
        families.resize(families.len() + more, Family([N::NONE; ARITY]));
        self.families = families.into_boxed_slice();
    }

    /// Takes out the first node.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut [u32]) -> Option<N> {
        let first = *self.top()?;
        self.remove(0, places);
        Some(first)
    }

    /// Takes out the node at `place`.
    #[inline(always)]
    pub(super) fn remove(&mut self, place: u32, places: &mut [u32]) -> bool {
        let place = (place & !N::MARK) as usize;
        places[self.node(place).id() as usize] = NOWHERE;
        self.len -= 1;
        let last = self.len as usize;
        if place < last {
            self.settle(place, *self.node(last), places);
        }
        place == 0
    }

    /// Takes out all nodes.
    pub(super) fn clear(&mut self, places: &mut [u32]) {
        for place in 0..self.len() {
            places[self.node(place).id() as usize] = NOWHERE;
        }
        *self = Heap::default();
    }

    /// Replaces the node at `place` by one of the same id.
    #[inline(always)]
    pub(super) fn replace(&mut self, place: u32, node: N, places: &mut [u32]) -> bool {
        let place = (place & !N::MARK) as usize;
        if self.len == 1 {
            self.first = node;
            return true;
        }
        self.settle(place, node, places) || place == 0
    }

    /// Brings `node` from `hole` into its right place; returns whether that is the first.
    #[inline(always)]
    fn settle(&mut self, hole: usize, node: N, places: &mut [u32]) -> bool {
        if hole > 0 && node.before(self.node((hole - 1) / ARITY)) {
            self.rise(hole, node, places)
        } else {
            self.sink(hole, node, places)
        }
    }

    #[inline(always)]
    fn rise(&mut self, mut hole: usize, node: N, places: &mut [u32]) -> bool {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !node.before(self.node(parent)) {
                break;
            }
            self.set(hole, *self.node(parent), places);
            hole = parent;
        }
        self.set(hole, node, places);
        hole == 0
    }

    #[inline(always)]
    fn sink(&mut self, mut hole: usize, node: N, places: &mut [u32]) -> bool {
        loop {
            let children = self.children(hole);
            let least = match children {
                [] => break,
                [a, b, c, d] => least_of_four(a, b, c, d),
                few => least_of_few(few),
            };
            let child = children[least];
            if !child.before(&node) {
                break;
            }
            self.set(hole, child, places);
            hole = hole * ARITY + 1 + least;
        }
        self.set(hole, node, places);
        hole == 0
    }

    #[inline]
    fn children(&self, parent: usize) -> &[N] {
        let count = self.len().saturating_sub(parent * ARITY + 1).min(ARITY);
        self.families.get(parent).and_then(|family| family.0.get(..count)).unwrap_or(&[])
    }

    #[inline]
    fn node(&self, place: usize) -> &N {
        match place.checked_sub(1) {
            None => &self.first,
            Some(place) => &self.families[place / ARITY].0[place % ARITY],
        }
    }

    #[inline]
    fn set(&mut self, hole: usize, node: N, places: &mut [u32]) {
        places[node.id() as usize] = hole as u32 | N::MARK;
        match hole.checked_sub(1) {
            None => self.first = node,
            Some(place) => self.families[place / ARITY].0[place % ARITY] = node,
        }
    }
}

/// Two pairs and a final, by arithmetic, because a branch here would be mispredicted every other time.
#[inline]
fn least_of_four<N: Node>(a: &N, b: &N, c: &N, d: &N) -> usize {
    let (left, right) = (usize::from(b.before(a)), usize::from(d.before(c)));
    let last = [c, d][right].before([a, b][left]);
    [left, 2 + right][usize::from(last)]
}

fn least_of_few<N: Node>(children: &[N]) -> usize {
    (1..children.len()).fold(0, |least, i| if children[i].before(&children[least]) { i } else { least })
}

#[cfg(test)]
mod tests {
    use super::super::clock::ahead;
    use super::*;
    use alloc::vec;

    #[derive(Clone, Copy)]
    struct Keyed(u64, u32);

    impl Node for Keyed {
        const MARK: u32 = 0;
        const NONE: Keyed = Keyed(0, NOWHERE);

        fn id(&self) -> u32 {
            self.1
        }

        fn before(&self, other: &Keyed) -> bool {
            ahead(self.0, other.0) < 0
        }
    }

    #[test]
    fn random_operations_keep_the_order_across_the_rollover() {
        let base = u64::MAX - 50;
        let (mut heap, mut places, mut model) = (Heap::default(), vec![NOWHERE; 400], vec![None; 400]);
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (id, key) = ((random >> 33) as usize % 400, (random >> 40) % 100);
            let key = (!(random >> 20).is_multiple_of(3)).then_some(key);
            model[id] = key;
            let (place, node) = (places[id], key.map(|key| Keyed(base.wrapping_add(key), id as u32)));
            match node {
                Some(node) if place == NOWHERE => heap.push(node, &mut places),
                Some(node) => heap.replace(place, node, &mut places),
                None => place != NOWHERE && heap.remove(place, &mut places),
            };
            assert_eq!(heap.top().map(|node| node.0.wrapping_sub(base)), model.iter().flatten().min().copied());
            assert_eq!(heap.len(), model.iter().flatten().count());
        }
    }
}
