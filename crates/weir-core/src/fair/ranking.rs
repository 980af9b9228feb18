//! A ranking of subnets by a moment of virtual time, kept as a tournament tree with blocks of four.
//!
//! Each subnet has a fixed place at the lowest level, by its slot. A block of four places has one winner, which
//! stands in a block of the level above, and so on up to the first of all. A heap would be as deep, but the path of a node in it is known
//! only from one comparison to the next, each of which waits for memory, and every node that moves must learn its new place. Here the path
//! upwards follows from the slot: the processor fetches all of it at once, and it can be prefetched. Moments and ties may roll over.
//!
//! Cost: one block per level, less if the winner of a block stays the same. 16 bytes per subnet and a third of that for the levels above.

use super::clock::ahead;
use super::heap::NOWHERE;
use crate::prefetch;
use alloc::vec::Vec;

/// A subnet in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranked {
    pub(super) moment: u64,
    pub(super) id: u32,
}

/// A subnet as it competes: moment and tie, both relative to the bases of its ranking, then its slot. It is one number, so that a
/// comparison is a single step and it stays in registers on its way up.
type Contender = u128;

/// Used where there is no subnet; it loses to every subnet.
const NOBODY: Contender = Contender::MAX;

/// Four contenders in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([Contender; 4]);

impl Block {
    const EMPTY: Block = Block([NOBODY; 4]);

    /// Puts `entry` at `place`; returns the winner. The others are compared while `entry` is still being computed.
    #[inline(always)]
    fn put(&mut self, place: usize, entry: Contender) -> Contender {
        let other = |way| self.0[(place ^ way) & 3];
        let best = other(1).min(other(2)).min(other(3));
        self.0[place & 3] = entry;
        entry.min(best)
    }
}

/// How many are gathered at once: their cache misses overlap, and what was prefetched is still in the cache when it is used.
const DUE: usize = 32;
/// They are searched for down to this level. The levels below are too large to be in the cache, and a subnet that is not found now is found when
/// those before it have gone.
const GATHERED_FROM: usize = 2;
/// A ranking of a thousand has this many levels.
const SMALL: usize = 5;

/// Some subnets whose moment has come.
pub(super) struct Due {
    ids: [u32; DUE],
    len: usize,
}

impl Due {
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.ids.into_iter().take(self.len)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len == DUE
    }

    #[inline]
    fn push(&mut self, id: u32) {
        if let Some(free) = self.ids.get_mut(self.len) {
            *free = id;
            self.len += 1;
        }
    }
}

/// Subnets in order of a moment.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    /// The lowest level comes first. The highest has one block.
    levels: Vec<Vec<Block>>,
    first: Contender,
    /// Moments and ties are stored relative to these bases, so that they do not roll over.
    moment_base: u64,
    tie_base: u32,
}

impl Default for Ranking {
    fn default() -> Ranking {
        Ranking { levels: Vec::from([Vec::new()]), first: NOBODY, moment_base: 0, tie_base: 0 }
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
                self.levels.push(Vec::from([Block([self.first, NOBODY, NOBODY, NOBODY])]));
            }
            self.levels[level].resize(blocks, Block::EMPTY);
            if blocks <= 1 {
                break;
            }
        }
    }

    #[inline]
    pub(super) fn top(&self) -> Option<Ranked> {
        self.ranked(self.first)
    }

    #[inline]
    fn ranked(&self, entry: Contender) -> Option<Ranked> {
        let moment = ((entry >> 64) as u64).wrapping_add(self.moment_base);
        (entry != NOBODY).then_some(Ranked { moment, id: entry as u32 })
    }

    /// Whether everything that is ranked is in the cache anyway.
    #[inline]
    pub(super) fn is_small(&self) -> bool {
        self.levels.len() <= SMALL
    }

    /// Some of those whose moment has come at `now`; none only if nobody's has come.
    #[inline]
    pub(super) fn due(&self, now: u64) -> Due {
        let mut due = Due { ids: [NOWHERE; DUE], len: 0 };
        self.gather(self.levels.len() - 1, 0, now, &mut due);
        due
    }

    /// Adds those of one block whose moment has come, and those of the blocks below from which they came.
    fn gather(&self, level: usize, block: usize, now: u64, due: &mut Due) {
        let entries = self.levels[level].get(block).map_or([NOBODY; 4], |block| block.0);
        for (place, entry) in entries.into_iter().enumerate() {
            if due.is_full() {
                return;
            }
            match self.ranked(entry).filter(|ranked| ahead(ranked.moment, now) <= 0) {
                Some(ranked) if level <= GATHERED_FROM => due.push(ranked.id),
                Some(_) => self.gather(level - 1, block * 4 + place, now, due),
                None => {}
            }
        }
    }

    /// Ranks `id` at this moment, or removes it. Returns which subnet has come into the highest block by this: those that will be
    /// first next are all in that block, most of them for a while.
    #[inline]
    pub(super) fn set(&mut self, id: u32, rank: Option<(u64, u32)>) -> u32 {
        let mut entry = rank.map_or(NOBODY, |(moment, tie)| self.entry(id, moment, tie));
        let (mut at, mut finalist) = (id as usize, NOWHERE);
        for level in &mut self.levels {
            let block = &mut level[at / 4];
            if block.0[at % 4] == entry {
                return NOWHERE;
            }
            finalist = entry as u32;
            entry = block.put(at % 4, entry);
            at /= 4;
        }
        self.first = entry;
        finalist
    }

    #[inline]
    fn entry(&mut self, id: u32, moment: u64, tie: u32) -> Contender {
        let ahead = |ranking: &Ranking| (moment.wrapping_sub(ranking.moment_base), tie.wrapping_sub(ranking.tie_base));
        let (mut moment_ahead, mut tie_ahead) = ahead(self);
        if moment_ahead >> 63 != 0 || tie_ahead >> 31 != 0 {
            self.rebase(moment, tie);
            (moment_ahead, tie_ahead) = ahead(self);
        }
        Contender::from(moment_ahead) << 64 | Contender::from(tie_ahead) << 32 | Contender::from(id)
    }

    /// Moves the bases so that these two lie well within reach. This happens once in 2^62 units of virtual time or 2^30 arrivals; all entries
    /// are then rewritten, and their order stays.
    #[cold]
    fn rebase(&mut self, moment: u64, tie: u32) {
        let (moment_base, tie_base) = (moment.wrapping_sub(1 << 62), tie.wrapping_sub(1 << 30));
        let moments = self.moment_base.wrapping_sub(moment_base);
        let ties = self.tie_base.wrapping_sub(tie_base);
        let moved = |entry: Contender| {
            let moment = ((entry >> 64) as u64).wrapping_add(moments);
            let tie = ((entry >> 32) as u32).wrapping_add(ties);
            Contender::from(moment) << 64 | Contender::from(tie) << 32 | Contender::from(entry as u32)
        };
        let all = self.levels.iter_mut().flatten().flat_map(|block| &mut block.0).chain([&mut self.first]);
        all.filter(|entry| **entry != NOBODY).for_each(|entry| *entry = moved(*entry));
        (self.moment_base, self.tie_base) = (moment_base, tie_base);
    }

    /// Prefetches for ranking `id` again soon. The higher levels are small and always in the cache.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        let mut at = id as usize;
        for level in self.levels.iter().take(2) {
            at /= 4;
            prefetch::soon(level, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn random_operations_keep_the_order_across_the_rollover() {
        let (mut ranking, mut model) = (Ranking::default(), Vec::new());
        let (mut random, mut base, mut tie_base) = (1u64, 0u64, 0u32);
        for step in 0..40_000 {
            if step % 40 == 0 && model.len() < 500 {
                model.push(None);
                ranking.grow(model.len());
            }
            if step % 1_000 == 0 {
                // No subnet stays behind the others: in between, both numbers roll over many times.
                (base, tie_base) = (base.wrapping_add(1 << 61), tie_base.wrapping_add(1 << 29));
                for (id, key) in model.iter_mut().enumerate() {
                    *key = None;
                    ranking.set(id as u32, None);
                }
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (id, key, tie) =
                ((random >> 33) as usize % model.len(), (random >> 40) % 100, (random >> 50) as u32 % 4);
            let key = (!(random >> 20).is_multiple_of(3)).then_some((key, tie));
            model[id] = key;
            ranking.set(id as u32, key.map(|(key, tie)| (base.wrapping_add(key), tie_base.wrapping_add(tie))));
            let least = model.iter().flatten().min();
            assert_eq!(ranking.top().and_then(|first| model[first.id as usize]), least.copied());
            assert_eq!(ranking.top().map(|first| first.moment.wrapping_sub(base)), least.map(|least| least.0));
            let mut due: Vec<u32> = ranking.due(base.wrapping_add(10)).iter().collect();
            assert!(
                due.iter().all(|id| model[*id as usize].is_some_and(|key| key.0 <= 10)),
                "only whose moment has come"
            );
            assert_eq!(due.is_empty(), least.is_none_or(|least| least.0 > 10));
            let count = due.len();
            due.sort_unstable();
            due.dedup();
            assert_eq!(due.len(), count, "each once");
        }
    }

    #[test]
    fn moving_the_bases_keeps_who_waits() {
        let mut ranking = Ranking::default();
        ranking.grow(5);
        ranking.set(1, Some(((1 << 62) + 5, (1 << 30) + 7)));
        ranking.set(4, Some(((1 << 62) + 5, (1 << 30) + 6)));
        ranking.set(2, Some((1 << 63, 1 << 31)));
        assert_eq!(ranking.top(), Some(Ranked { moment: (1 << 62) + 5, id: 4 }));
        ranking.set(4, None);
        ranking.set(1, None);
        assert_eq!(ranking.top(), Some(Ranked { moment: 1 << 63, id: 2 }));
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
