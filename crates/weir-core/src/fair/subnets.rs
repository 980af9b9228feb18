//! Subnets with their anchored clocks, and the two rankings of subnets.
//!
//! The clock of a subnet is X(V) = offset + weight · V, exact in wrapping integers. A new weight changes
//! the offset so that X stays where it is (the anchor), and re-keys the subnet in the rankings; none of
//! its sessions is touched. A tag y of a session stands for the moment V + (y − X(V)) / weight of virtual
//! time, rounded up to a whole unit.

use super::clock::ahead;
use super::heap::{Heap, Ranking};
use super::keys::KeyMap;
use super::profile::Weight;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(super) struct Subnet {
    pub(super) key: u64,
    pub(super) history: Weight,
    /// Which version of the profile `history` is from.
    pub(super) profile: u32,
    /// The reset after which `offset` was written.
    pub(super) stamp: u32,
    pub(super) offset: u64,
    /// φ, the weight of each of its sessions.
    pub(super) weight: u64,
    /// n, distinct sessions with a request at any front-end.
    pub(super) active: u32,
    /// b, sessions with a request that waits here.
    pub(super) backlogged: u32,
    /// Records in the table of sessions.
    pub(super) sessions: u32,
    /// Backlogged sessions whose tag lies ahead of the clock, by tag.
    pub(super) early: Heap,
    /// The other backlogged sessions, by tag + cost of the first request.
    pub(super) eligible: Heap,
}

impl Subnet {
    /// X(V).
    #[inline]
    pub(super) fn clock(&self, now: u64) -> u64 {
        self.offset.wrapping_add(self.weight.wrapping_mul(now))
    }

    /// The first unit of virtual time at or after the moment of `tag`.
    #[inline]
    fn moment(&self, tag: u64, now: u64) -> u64 {
        let (distance, weight) = (ahead(tag, self.clock(now)), self.weight as i64);
        let units = distance / weight + i64::from(distance % weight > 0);
        now.wrapping_add(units as u64)
    }
}

/// All subnets of known sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Subnets {
    slab: Vec<Subnet>,
    free: Vec<u32>,
    index: KeyMap<u32>,
    /// Subnets by the least start among their early sessions.
    pub(super) by_start: Ranking,
    /// Subnets by the least finish among their eligible sessions.
    pub(super) by_finish: Ranking,
    /// W, the weight of all backlogged sessions together.
    pub(super) weight: u64,
}

impl Subnets {
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.get(&key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn insert(&mut self, subnet: Subnet) -> u32 {
        let key = subnet.key;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = subnet;
                slot
            }
            None => {
                self.slab.push(subnet);
                self.by_start.grow(self.slab.len());
                self.by_finish.grow(self.slab.len());
                self.slab.len() as u32 - 1
            }
        };
        self.index.insert(key, slot);
        slot
    }

    /// Forgets a subnet of which no session is left.
    pub(super) fn remove(&mut self, slot: u32) {
        let subnet = &mut self.slab[slot as usize];
        (subnet.early, subnet.eligible) = (Heap::default(), Heap::default());
        self.index.remove(&subnet.key);
        self.free.push(slot);
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Subnet {
        &self.slab[slot as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Subnet {
        &mut self.slab[slot as usize]
    }

    /// A session of the subnet begins to wait.
    #[inline]
    pub(super) fn join(&mut self, slot: u32) {
        let subnet = &mut self.slab[slot as usize];
        subnet.backlogged += 1;
        self.weight += subnet.weight;
    }

    /// A session of the subnet has no request waiting any more.
    #[inline]
    pub(super) fn leave(&mut self, slot: u32) {
        let subnet = &mut self.slab[slot as usize];
        subnet.backlogged -= 1;
        self.weight -= subnet.weight;
    }

    /// Keeps both rankings true after the heaps or the weight of a subnet have changed.
    #[inline]
    pub(super) fn rank(&mut self, slot: u32, now: u64) {
        let subnet = &self.slab[slot as usize];
        let start = subnet.early.top().map(|node| (subnet.moment(node.key, now), 0));
        let finish = subnet.eligible.top().map(|node| (subnet.moment(node.key, now), node.tie));
        self.by_start.set(slot, start);
        self.by_finish.set(slot, finish);
    }
}
