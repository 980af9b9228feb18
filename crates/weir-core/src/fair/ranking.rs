//! A ranking of subnets by a moment of virtual time: a tournament of fours.
//!
//! Each subnet has a fixed place at the lowest level, by its slot. A block of four places has one winner, which
//! stands in a block of the level above, and so on up to the first of all. A heap would be as deep, but there the
//! way of a node is only known from one comparison to the next, each of them a wait for memory, and every node that
//! moves must be told its new place. Here the way up is known from the slot: the processor fetches all of it at
//! once, and it can be asked for ahead. Moments are compared by their wrapped difference ([`ahead`]).
//!
//! Cost: one block a level, less if the winner of a block stays the same. 16 bytes a subnet and a third of that for
//! the levels above.

use super::clock::ahead;
use super::heap::NOWHERE;
use crate::prefetch;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

/// A subnet in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranked {
    pub(super) moment: u64,
    pub(super) tie: u32,
    pub(super) id: u32,
}

impl Ranked {
    /// Stands where nobody does, and loses to everybody.
    const NOBODY: Ranked = Ranked { moment: 0, tie: 0, id: NOWHERE };

    /// Without branches: where they fall is anybody's guess.
    #[inline(always)]
    fn before(&self, other: &Ranked) -> bool {
        let (moment, tie) = (ahead(self.moment, other.moment), self.tie.wrapping_sub(other.tie) as i32);
        let sooner = (moment < 0) | ((moment == 0) & (tie < 0));
        (self.id != NOWHERE) & (sooner | (other.id == NOWHERE))
    }

    #[inline(always)]
    fn or_sooner(self, other: Ranked) -> Ranked {
        select_unpredictable(other.before(&self), other, self)
    }
}

/// Four that compete; one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([Ranked; 4]);

impl Block {
    const EMPTY: Block = Block([Ranked::NOBODY; 4]);

    /// Puts `node` at `place`; returns the winner. The others are compared while `node` is still being worked out.
    #[inline(always)]
    fn put(&mut self, place: usize, node: Ranked) -> Ranked {
        let others = [1, 2, 3].map(|other| self.0[(place ^ other) & 3]);
        self.0[place & 3] = node;
        others[0].or_sooner(others[1]).or_sooner(others[2]).or_sooner(node)
    }
}

/// Levels at the top whose winners may soon be first.
const NEAR: usize = 2;

/// Subnets in order of a moment.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    /// The lowest level first. The highest has one block.
    levels: Vec<Vec<Block>>,
    first: Ranked,
}

impl Default for Ranking {
    fn default() -> Ranking {
        Ranking { levels: Vec::from([Vec::new()]), first: Ranked::NOBODY }
    }
}

impl Ranking {
    /// Makes room for ids below `ids`.
    pub(super) fn grow(&mut self, ids: usize) {
        let mut blocks = ids;
        for level in 0.. {
            blocks = blocks.div_ceil(4);
            if level == self.levels.len() {
                // The winner so far stood above all levels.
                let mut block = Block::EMPTY;
                block.0[0] = self.first;
                self.levels.push(Vec::from([block]));
            }
            self.levels[level].resize(blocks, Block::EMPTY);
            if blocks <= 1 {
                break;
            }
        }
    }

    #[inline]
    pub(super) fn top(&self) -> Option<&Ranked> {
        (self.first.id != NOWHERE).then_some(&self.first)
    }

    /// Ranks `id` at this moment, or takes it out. Returns who has come near the top by that.
    #[inline]
    pub(super) fn set(&mut self, id: u32, rank: Option<(u64, u32)>) -> [u32; NEAR] {
        let mut node = rank.map_or(Ranked::NOBODY, |(moment, tie)| Ranked { moment, tie, id });
        let (mut at, mut above, mut near) = (id as usize, self.levels.len(), [NOWHERE; NEAR]);
        for level in &mut self.levels {
            let block = &mut level[at / 4];
            if block.0[at % 4] == node {
                return near;
            }
            node = block.put(at % 4, node);
            at /= 4;
            above -= 1;
            if let Some(near) = near.get_mut(above) {
                *near = node.id;
            }
        }
        self.first = node;
        near
    }

    /// `id` will be ranked anew soon.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        prefetch::soon(&self.levels[0], id as usize / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn random_operations_keep_the_order_across_the_rollover() {
        let base = u64::MAX - 50;
        let (mut ranking, mut model) = (Ranking::default(), Vec::new());
        let mut random = 1u64;
        for step in 0..20_000 {
            if step % 40 == 0 {
                model.push(None);
                ranking.grow(model.len());
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (id, key, tie) = ((random >> 33) as usize % model.len(), (random >> 40) % 100, (random >> 50) as u32 % 4);
            let key = (!(random >> 20).is_multiple_of(3)).then_some((key, tie));
            model[id] = key;
            ranking.set(id as u32, key.map(|(key, tie)| (base.wrapping_add(key), tie)));
            let least = model.iter().flatten().min();
            assert_eq!(ranking.top().map(|node| (node.moment.wrapping_sub(base), node.tie)), least.copied());
            let first = ranking.top().map(|node| model[node.id as usize]);
            assert_eq!(first, least.map(|least| Some(*least)));
        }
    }

    #[test]
    fn the_last_one_leaves_nobody() {
        let mut ranking = Ranking::default();
        ranking.grow(70);
        let ids = vec![3, 17, 69];
        for id in &ids {
            ranking.set(*id, Some((u64::from(*id), 0)));
        }
        for id in &ids {
            assert_eq!(ranking.top().map(|first| first.id), Some(*id));
            ranking.set(*id, None);
        }
        assert_eq!(ranking.top(), None);
    }
}
