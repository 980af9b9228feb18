//! Subnets with their anchored clocks, and the two rankings of subnets.
//!
//! The clock of a subnet is X(V) = offset + weight · V, exact in wrapping integers. A new weight changes
//! the offset so that X stays where it is (the anchor), and re-keys the subnet in the rankings; none of
//! its sessions is touched. A tag y of a session stands for the moment V + (y − X(V)) / weight of virtual
//! time, rounded up to a whole unit.

use super::clock::ahead;
use super::heap::Heap;
use super::keys::KeyMap;
use super::profile::Weight;
use super::ranking::Ranking;
use super::seats::{Early, Eligible, Seat};
use crate::mutant::{Mutant, planted};
use crate::prefetch;
use alloc::vec::Vec;

/// What a dispatch needs to know of a subnet: its clock and who waits.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Subnet {
    pub(super) offset: u64,
    /// φ, the weight of each of its sessions.
    pub(super) weight: u32,
    /// The epoch (of resets and profiles) that it has adopted.
    pub(super) epoch: u32,
    pub(super) history: Weight,
    /// Distinct sessions with a request at any front-end.
    pub(super) active: u32,
    /// Sessions that linger here and have no request at any front-end.
    pub(super) lingering: u32,
    /// Sessions whose tag lies ahead of the clock: those that wait, and those that linger.
    pub(super) early: Heap<Early>,
    /// The other sessions that wait.
    pub(super) eligible: Heap<Eligible>,
}

/// Everything else about a subnet.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) key: u64,
    /// Which profile its history is from.
    pub(super) profile: u32,
    /// The reset after which the offset was written.
    pub(super) stamp: u32,
    /// Records in the table of sessions.
    pub(super) sessions: u32,
}

impl Subnet {
    /// X(V).
    #[inline]
    pub(super) fn clock(&self, now: u64) -> u64 {
        self.offset.wrapping_add(u64::from(self.weight).wrapping_mul(now))
    }

    /// Moves the anchor to `now` with a new weight: X(now) stays.
    pub(super) fn anchor(&mut self, now: u64, weight: u32) {
        let change = u64::from(self.weight).wrapping_sub(u64::from(weight));
        self.offset = self.offset.wrapping_add(change.wrapping_mul(now));
        self.weight = weight;
    }

    /// n, the sessions among which its history is divided. Those that linger count, because in fluid sharing they are still being served. If they did not, a subnet of sessions that
    /// each ask once would weigh as much as it has sessions.
    pub(super) fn claimants(&self) -> u32 {
        if planted(Mutant::FairForgetsLingering) { self.active } else { self.active + self.lingering }
    }

    /// b, sessions that wait here or linger.
    pub(super) fn backlogged(&self) -> u64 {
        (self.early.len() + self.eligible.len()) as u64
    }

    /// The first unit of virtual time at or after the moment of `tag`.
    #[inline]
    fn moment(&self, tag: u64, now: u64) -> u64 {
        now.wrapping_add(divided_up(ahead(tag, self.clock(now)), self.weight) as u64)
    }
}

/// Which rankings of a subnet are out of date. A call changes the subnet first, and then updates its ranks once.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Stale {
    pub(super) start: bool,
    pub(super) finish: bool,
}

impl Stale {
    pub(super) const NONE: Stale = Stale { start: false, finish: false };
    pub(super) const BOTH: Stale = Stale { start: true, finish: true };
}

impl core::ops::BitOr for Stale {
    type Output = Stale;

    #[inline]
    fn bitor(self, other: Stale) -> Stale {
        Stale { start: self.start | other.start, finish: self.finish | other.finish }
    }
}

/// All subnets of known sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Subnets {
    slab: Vec<Subnet>,
    ledgers: Vec<Ledger>,
    free: Vec<u32>,
    index: KeyMap<u32>,
    /// Subnets by the least start among their early sessions.
    pub(super) by_start: Ranking,
    /// Subnets by the least finish among their eligible sessions, where every request costs `price`.
    pub(super) by_finish: Ranking,
    /// The cost that every request is assumed to have for the order, in tag units.
    price: u64,
    /// W, the weight of all sessions together that wait here or linger.
    pub(super) weight: u64,
}

impl Subnets {
    /// An empty table.
    pub(super) fn at_price(price: u64) -> Subnets {
        Subnets { price, ..Subnets::default() }
    }

    /// Changes the cost that a request is assumed to have. All subnets are ranked again.
    pub(super) fn set_price(&mut self, price: u64, now: u64) {
        if price != self.price {
            self.price = price;
            (0..self.slab.len() as u32).for_each(|slot| self.rank_finish(slot, now));
        }
    }

    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.get(&key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn insert(&mut self, subnet: Subnet, ledger: Ledger) -> u32 {
        let key = ledger.key;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = subnet;
                self.ledgers[slot as usize] = ledger;
                slot
            }
            None => {
                self.slab.push(subnet);
                self.ledgers.push(ledger);
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
        self.index.remove(&self.ledgers[slot as usize].key);
        self.free.push(slot);
    }

    /// Prefetches the subnet at `slot`, which will be ranked again soon.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        if slot as usize >= self.slab.len() {
            return;
        }
        prefetch::soon(&self.slab, slot as usize);
        self.by_start.prefetch(slot);
        self.by_finish.prefetch(slot);
    }

    /// Prefetches the key of the subnet at `slot`.
    #[inline]
    pub(super) fn prefetch_ledger(&self, slot: u32) {
        prefetch::soon(&self.ledgers, slot as usize);
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Subnet {
        &self.slab[slot as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Subnet {
        &mut self.slab[slot as usize]
    }

    pub(super) fn ledger(&self, slot: u32) -> &Ledger {
        &self.ledgers[slot as usize]
    }

    pub(super) fn ledger_mut(&mut self, slot: u32) -> &mut Ledger {
        &mut self.ledgers[slot as usize]
    }

    /// Updates the ranking by start.
    #[inline]
    pub(super) fn rank_start(&mut self, slot: u32, now: u64) {
        let subnet = &self.slab[slot as usize];
        let start = subnet.early.top().map(|first| (subnet.moment(first.0.start, now), 0));
        self.by_start.set(slot, start);
    }

    /// Updates the ranking by finish.
    #[inline]
    pub(super) fn rank_finish(&mut self, slot: u32, now: u64) {
        let (subnet, price) = (&self.slab[slot as usize], self.price);
        let end = |seat: Seat| match planted(Mutant::FairBelievesPrices) {
            true => seat.finish,
            false => seat.start.wrapping_add(price),
        };
        let finish = subnet.eligible.top().map(|first| (subnet.moment(end(first.0), now), first.0.tie));
        let finalist = self.by_finish.set(slot, finish);
        self.prefetch(finalist);
    }
}

/// `distance / weight`, rounded up. This is computed several times for each request, and many processors take longer to divide integers of 64
/// bits than for everything else in [`Subnet::moment`]. Below 2^52 the floating-point quotient is exact enough: if it is not a whole number, it differs from
/// the next one by at least 1 / weight, and the rounding error is less than half of that.
#[inline]
fn divided_up(distance: i64, weight: u32) -> i64 {
    let whole = match distance.unsigned_abs() >> 52 {
        0 => (distance as f64 / f64::from(weight)) as i64,
        _ => distance / i64::from(weight),
    };
    whole + i64::from(distance - whole * i64::from(weight) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Near the limit of the faster way, near multiples of the weight, and anywhere.
        #[test]
        fn the_faster_division_is_exact(weight in 1u32.., bits in 0u32..63, distance: i64, multiple in -(1i64 << 28)..1 << 28, near in -2i64..=2) {
            let near_multiple = multiple.wrapping_mul(i64::from(weight)).wrapping_add(near);
            let limit = (1i64 << 52) + near;
            for distance in [distance >> bits, near_multiple, limit, -limit, limit / i64::from(weight) * i64::from(weight) + near] {
                let wide = i128::from(distance);
                let exact = wide.div_euclid(i128::from(weight)) + i128::from(wide.rem_euclid(i128::from(weight)) > 0);
                prop_assert_eq!(i128::from(divided_up(distance, weight)), exact);
            }
        }
    }

    #[test]
    fn a_subnet_fills_two_cache_lines() {
        assert_eq!(size_of::<Subnet>(), 128);
    }
}
