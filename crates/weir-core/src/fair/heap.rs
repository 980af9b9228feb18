//! An indexed 4-ary heap whose keys lie in the nodes.
//!
//! Several heaps may share one table of places (a session waits in one heap at a time), so the table is
//! passed in. Keys are compared by their wrapped difference: they may roll over as long as all keys of
//! a heap lie within 2^62 of each other. Four nodes of 16 bytes fill a cache line, which is what a level
//! costs. Push, remove and update are O(log n).

use alloc::vec::Vec;

/// One node: a key, a number that breaks ties, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) key: u64,
    pub(super) tie: u32,
    pub(super) id: u32,
}

impl Node {
    #[inline]
    fn before(&self, other: &Node) -> bool {
        let difference = self.key.wrapping_sub(other.key) as i64;
        difference < 0 || (difference == 0 && (self.tie.wrapping_sub(other.tie) as i32) < 0)
    }
}

/// The place of an id that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

const ARITY: usize = 4;

/// A heap; `places[id]` is kept as the position of each of its ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
}

impl Heap {
    #[inline]
    pub(super) fn top(&self) -> Option<&Node> {
        self.nodes.first()
    }

    pub(super) fn push(&mut self, node: Node, places: &mut [u32]) {
        self.nodes.push(node);
        self.rise(self.nodes.len() - 1, node, places);
    }

    /// Takes out the node at `place`.
    pub(super) fn remove(&mut self, place: u32, places: &mut [u32]) {
        let place = place as usize;
        places[self.nodes[place].id as usize] = NOWHERE;
        let Some(last) = self.nodes.pop() else { return };
        if place < self.nodes.len() {
            self.settle(place, last, places);
        }
    }

    /// Replaces the node at `place` by one of the same id.
    pub(super) fn update(&mut self, place: u32, node: Node, places: &mut [u32]) {
        self.settle(place as usize, node, places);
    }

    /// Puts `node` at or from `hole` into its right place.
    #[inline]
    fn settle(&mut self, hole: usize, node: Node, places: &mut [u32]) {
        if hole > 0 && node.before(&self.nodes[(hole - 1) / ARITY]) {
            self.rise(hole, node, places);
        } else {
            self.sink(hole, node, places);
        }
    }

    fn rise(&mut self, mut hole: usize, node: Node, places: &mut [u32]) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !node.before(&self.nodes[parent]) {
                break;
            }
            self.set(hole, self.nodes[parent], places);
            hole = parent;
        }
        self.set(hole, node, places);
    }

    fn sink(&mut self, mut hole: usize, node: Node, places: &mut [u32]) {
        while let Some(child) = self.least_child(hole) {
            if !self.nodes[child].before(&node) {
                break;
            }
            self.set(hole, self.nodes[child], places);
            hole = child;
        }
        self.set(hole, node, places);
    }

    #[inline]
    fn least_child(&self, parent: usize) -> Option<usize> {
        let first = parent * ARITY + 1;
        let children = self.nodes.get(first..self.nodes.len().min(first + ARITY))?;
        let mut least = 0;
        for (i, child) in children.iter().enumerate().skip(1) {
            if child.before(&children[least]) {
                least = i;
            }
        }
        (!children.is_empty()).then_some(first + least)
    }

    #[inline]
    fn set(&mut self, hole: usize, node: Node, places: &mut [u32]) {
        self.nodes[hole] = node;
        places[node.id as usize] = hole as u32;
    }
}

/// A heap with a table of places of its own: the two heaps of subnets.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    heap: Heap,
    places: Vec<u32>,
}

impl Ranking {
    /// Makes room for ids below `ids`.
    pub(super) fn grow(&mut self, ids: usize) {
        self.places.resize(ids, NOWHERE);
    }

    #[inline]
    pub(super) fn top(&self) -> Option<&Node> {
        self.heap.top()
    }

    /// Gives `id` this key, or takes it out.
    #[inline]
    pub(super) fn set(&mut self, id: u32, key: Option<(u64, u32)>) {
        let place = self.places[id as usize];
        match key {
            Some((key, tie)) if place == NOWHERE => self.heap.push(Node { key, tie, id }, &mut self.places),
            Some((key, tie)) => {
                let node = Node { key, tie, id };
                if self.heap.nodes[place as usize] != node {
                    self.heap.update(place, node, &mut self.places);
                }
            }
            None if place != NOWHERE => self.heap.remove(place, &mut self.places),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn random_operations_keep_the_order_across_the_rollover() {
        let base = u64::MAX - 50;
        let (mut heap, mut places) = (Ranking::default(), vec![None; 40]);
        heap.grow(40);
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (id, key, tie) = ((random >> 33) % 40, (random >> 40) % 100, (random >> 50) as u32 % 4);
            let key = (!random.is_multiple_of(3)).then_some((key, tie));
            places[id as usize] = key;
            heap.set(id as u32, key.map(|(key, tie)| (base.wrapping_add(key), tie)));
            let least = places.iter().flatten().min();
            assert_eq!(heap.top().map(|node| (node.key.wrapping_sub(base), node.tie)), least.copied());
        }
    }
}
