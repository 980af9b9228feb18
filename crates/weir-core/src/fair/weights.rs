//! Subnets and their weights: which subnets take part, how much each may claim (RATE of the thesis), and how a changed weight affects
//! virtual time.

use super::heap::Heap;
use super::profile::{Weight, rate};
use super::subnets::{Ledger, Stale, Subnet};
use super::{Fair, FairRefusal, SessionKey, SubnetKey};
use crate::mutant::{Mutant, planted};

impl Fair {
    /// The slot of a session, made if it is new.
    #[inline]
    pub(super) fn session_slot(&mut self, session: SessionKey, subnet: SubnetKey) -> Result<u32, FairRefusal> {
        match self.sessions.find(session.0) {
            Some(slot) => Ok(slot),
            None => self.new_session(session, subnet),
        }
    }

    fn new_session(&mut self, session: SessionKey, subnet: SubnetKey) -> Result<u32, FairRefusal> {
        self.sweep_for_room();
        if self.sessions.len() >= self.settings.sessions_max as usize {
            return Err(FairRefusal::TooManySessions);
        }
        let subnet = match self.subnets.find(subnet.0) {
            Some(slot) => {
                self.touch(slot);
                slot
            }
            None => self.new_subnet(subnet),
        };
        self.subnets.ledger_mut(subnet).sessions += 1;
        let tag = self.subnets.at(subnet).clock(self.clock.now());
        Ok(self.sessions.create(session.0, subnet, self.resets, tag))
    }

    fn new_subnet(&mut self, key: SubnetKey) -> u32 {
        let history = self.history(key);
        let weight = rate(history, 0);
        let offset = self.origin_offset(weight);
        let (epoch, early, eligible) = (self.epoch, Heap::default(), Heap::default());
        let subnet = Subnet { offset, weight, epoch, history, active: 0, lingering: 0, early, eligible };
        let (profile, stamp) = (self.profiles, self.resets);
        self.subnets.insert(subnet, Ledger { key: key.0, profile, stamp, sessions: 0 })
    }

    fn history(&self, subnet: SubnetKey) -> Weight {
        match self.profile.history(subnet) {
            Some(known) if self.settings.floor_history => known.max(Weight::ONE),
            Some(known) => known,
            None => self.settings.stranger_weight,
        }
    }

    /// The offset of a clock that shows zero at the origin.
    fn origin_offset(&self, weight: u32) -> u64 {
        u64::from(weight).wrapping_mul(self.settings.origin).wrapping_neg()
    }

    /// Brings a subnet up to the last reset and the current profile. Returns whether its weight changed.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) -> bool {
        self.subnets.at(slot).epoch != self.epoch && self.take_up_epoch(slot)
    }

    #[cold]
    fn take_up_epoch(&mut self, slot: u32) -> bool {
        let before = self.subnets.at(slot).weight;
        self.take_up_reset(slot);
        self.subnets.at_mut(slot).epoch = self.epoch;
        let history = self.history(SubnetKey(self.subnets.ledger(slot).key));
        let ledger = self.subnets.ledger_mut(slot);
        if ledger.profile != self.profiles {
            ledger.profile = self.profiles;
            self.subnets.at_mut(slot).history = history;
            let stale = self.reweigh(slot);
            self.rank(slot, stale);
        }
        self.subnets.at(slot).weight != before
    }

    /// Brings a subnet up to the last reset only. Sessions that lingered before it no longer do.
    pub(super) fn take_up_reset(&mut self, slot: u32) {
        if self.subnets.ledger(slot).stamp != self.resets {
            let weight = self.weight_of(slot);
            self.subnets.ledger_mut(slot).stamp = self.resets;
            let offset = self.origin_offset(weight);
            let (now, places, subnet) = (self.clock.now(), &mut self.sessions.places, self.subnets.at_mut(slot));
            (subnet.offset, subnet.weight, subnet.lingering) = (offset, weight, 0);
            if subnet.early.len() > 0 {
                subnet.early.clear(places);
                self.subnets.rank_start(slot, now);
            }
        }
    }

    /// Gives the sessions of a subnet the weight that RATE prescribes. Only the anchor and the subnet's place in
    /// the rankings change.
    pub(super) fn reweigh(&mut self, slot: u32) -> Stale {
        let (now, subnet) = (self.clock.now(), self.subnets.at_mut(slot));
        let new = rate(subnet.history, subnet.claimants());
        let old = subnet.weight;
        if old == new {
            return Stale::NONE;
        }
        if planted(Mutant::FairSkipsReanchor) {
            subnet.weight = new;
        } else {
            subnet.anchor(now, new);
        }
        let backlogged = subnet.backlogged();
        self.subnets.weight = self.subnets.weight + u64::from(new) * backlogged - u64::from(old) * backlogged;
        Stale::BOTH
    }

    /// One more front-end has a request of this session.
    pub(super) fn activate(&mut self, slot: u32) -> Stale {
        let session = self.sessions.at_mut(slot);
        session.active_at += 1;
        if session.active_at > 1 {
            return Stale::NONE;
        }
        let id = session.subnet;
        self.touch(id);
        let lingers = u32::from(self.lingers(slot));
        let subnet = self.subnets.at_mut(id);
        (subnet.active, subnet.lingering) = (subnet.active + 1, subnet.lingering - lingers);
        self.reweigh(id)
    }

    /// One front-end less has a request of this session.
    pub(super) fn deactivate(&mut self, slot: u32) -> Stale {
        let session = self.sessions.at_mut(slot);
        session.active_at -= 1;
        if session.active_at > 0 {
            return Stale::NONE;
        }
        let id = session.subnet;
        self.touch(id);
        let lingers = u32::from(self.lingers(slot));
        let subnet = self.subnets.at_mut(id);
        (subnet.active, subnet.lingering) = (subnet.active - 1, subnet.lingering + lingers);
        self.reweigh(id)
    }

    /// A session lingers from now on, or no longer does. As long as it has a request somewhere, it is counted for that instead.
    pub(super) fn count_lingering(&mut self, slot: u32, lingers: bool) -> Stale {
        let session = self.sessions.at(slot);
        if session.active_at > 0 {
            return Stale::NONE;
        }
        let id = session.subnet;
        let count = &mut self.subnets.at_mut(id).lingering;
        *count = if lingers { *count + 1 } else { *count - 1 };
        self.reweigh(id)
    }

    /// The weight of each session of a subnet now. After a reset that the subnet has not adopted yet, nobody lingers.
    pub(super) fn weight_of(&self, slot: u32) -> u32 {
        let subnet = self.subnets.at(slot);
        match self.subnets.ledger(slot).stamp == self.resets && subnet.lingering > 0 {
            true => subnet.weight,
            false => rate(subnet.history, subnet.active),
        }
    }
}
