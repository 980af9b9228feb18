//! The table of sessions: one cache line each, found by key.
//!
//! A slot is named by a `u32` that stays the same while the session lives. Slots are reused; the table
//! never holds more than `sessions_max`.

use super::heap::NOWHERE;
use super::index::Index;
use super::requests::Fifo;
use super::seats::Stand;
use crate::prefetch;
use alloc::vec::Vec;

/// What is known of a session.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Session {
    pub(super) key: u64,
    /// Start tag x_i against the subnet's clock, while no request waits; otherwise it is in the seat.
    pub(super) tag: u64,
    /// Service received here since the record began, for the other front-ends; never falls.
    pub(super) served: u64,
    /// Service that was reported but given back: it is used up before `served` rises again.
    pub(super) credit: u64,
    pub(super) fifo: Fifo,
    pub(super) subnet: u32,
    pub(super) running: u32,
    /// The reset after which `tag` was written; after an older one there is no debt.
    pub(super) stamp: u32,
    /// Tells this record from an earlier one of the same session.
    pub(super) life: u32,
    /// At how many front-ends, this one included, it has a request.
    pub(super) active_at: u16,
    /// How many peers have reported on it.
    pub(super) heard_from: u8,
    /// Whether it is in the list of reports to be sent.
    pub(super) dirty: bool,
    /// Whether it ever had a request here, so that this front-end reports its service.
    pub(super) local: bool,
}

impl Session {
    /// Whether it has a request here.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.running > 0 || !self.fifo.is_empty()
    }

    /// Counts `tags` of service, after using up what was given back.
    #[inline]
    pub(super) fn count_service(&mut self, tags: u64) {
        let used = self.credit.min(tags);
        self.credit -= used;
        self.served = self.served.saturating_add(tags - used);
    }
}

/// The subnet in a slot that holds no session.
const VACANT: u32 = u32::MAX;

/// All sessions that this front-end knows of.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    slab: Vec<Session>,
    free: Vec<u32>,
    index: Index,
    /// The life of the newest record.
    pub(super) lives: u32,
    /// Positions in the heaps of subnets, one for each slot.
    pub(super) places: Vec<u32>,
}

impl Sessions {
    /// An empty table; lives are counted on from here.
    pub(super) fn counting_from(lives: u32) -> Sessions {
        Sessions { lives, ..Sessions::default() }
    }

    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.find(key, |slot| self.slab[slot as usize].key == key)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The number of slots in use or free, for walking over them.
    pub(super) fn slots(&self) -> u32 {
        self.slab.len() as u32
    }

    pub(super) fn is_vacant(&self, slot: u32) -> bool {
        self.at(slot).subnet == VACANT
    }

    #[inline]
    pub(super) fn stand(&self, slot: u32) -> Stand {
        Stand::of(self.places[slot as usize])
    }

    pub(super) fn create(&mut self, key: u64, subnet: u32, stamp: u32, tag: u64) -> u32 {
        self.lives = self.lives.wrapping_add(1);
        let session = Session {
            key,
            tag,
            served: 0,
            credit: 0,
            fifo: Fifo::EMPTY,
            subnet,
            running: 0,
            stamp,
            life: self.lives,
            active_at: 0,
            heard_from: 0,
            dirty: false,
            local: false,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = session;
                slot
            }
            None => {
                self.slab.push(session);
                self.places.push(NOWHERE);
                self.slab.len() as u32 - 1
            }
        };
        self.index.insert(key, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.index.remove(self.at(slot).key, slot);
        self.at_mut(slot).subnet = VACANT;
        self.free.push(slot);
    }

    /// Prefetches the session at `slot`.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        prefetch::soon(&self.slab, slot as usize);
        prefetch::soon(&self.places, slot as usize);
    }

    /// Prefetches the place of the session at `slot`, which will move in its heap soon.
    #[inline]
    pub(super) fn prefetch_place(&self, slot: u32) {
        prefetch::soon(&self.places, slot as usize);
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Session {
        &self.slab[slot as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Session {
        &mut self.slab[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_fills_one_cache_line() {
        assert_eq!(size_of::<Session>(), 64);
    }
}
