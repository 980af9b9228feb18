//! Tags, weights and heaps: what the calls of [`Fair`] do to a session and its subnet.

use super::clock::ahead;
use super::heap::{Heap, Node};
use super::profile::{Weight, rate};
use super::sessions::Stand;
use super::subnets::Subnet;
use super::{Fair, Refusal, SessionKey, SubnetKey};
use crate::mutant::{Mutant, planted};

impl Fair {
    /// The slot of a session, made if it is new.
    pub(super) fn session_slot(&mut self, session: SessionKey, subnet: SubnetKey) -> Result<u32, Refusal> {
        if let Some(slot) = self.sessions.find(session.0) {
            return Ok(slot);
        }
        self.sweep_for_room();
        if self.sessions.len() >= self.settings.sessions_max as usize {
            return Err(Refusal::TooManySessions);
        }
        let subnet = self.subnet_slot(subnet);
        let now = self.clock.now();
        let record = self.subnets.at_mut(subnet);
        record.sessions += 1;
        let tag = record.clock(now);
        Ok(self.sessions.create(session.0, subnet, self.resets, tag))
    }

    fn subnet_slot(&mut self, subnet: SubnetKey) -> u32 {
        if let Some(slot) = self.subnets.find(subnet.0) {
            self.touch(slot);
            return slot;
        }
        let history = self.history(subnet);
        let weight = rate(history, 0);
        self.subnets.insert(Subnet {
            key: subnet.0,
            history,
            profile: self.profiles,
            stamp: self.resets,
            offset: weight.wrapping_mul(self.settings.origin).wrapping_neg(),
            weight,
            active: 0,
            backlogged: 0,
            sessions: 0,
            early: Heap::default(),
            eligible: Heap::default(),
        })
    }

    fn history(&self, subnet: SubnetKey) -> Weight {
        match self.profile.history(subnet) {
            Some(known) if self.settings.floor_history => known.max(Weight::ONE),
            Some(known) => known,
            None => self.settings.stranger_weight,
        }
    }

    /// Brings a subnet up to the last reset and the current profile. Returns whether its weight changed.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) -> bool {
        self.take_up_reset(slot);
        self.subnets.at(slot).profile != self.profiles && self.take_up_profile(slot)
    }

    #[inline]
    pub(super) fn take_up_reset(&mut self, slot: u32) {
        let subnet = self.subnets.at_mut(slot);
        if subnet.stamp != self.resets {
            subnet.stamp = self.resets;
            subnet.offset = subnet.weight.wrapping_mul(self.settings.origin).wrapping_neg();
        }
    }

    #[cold]
    fn take_up_profile(&mut self, slot: u32) -> bool {
        let history = self.history(SubnetKey(self.subnets.at(slot).key));
        let subnet = self.subnets.at_mut(slot);
        (subnet.profile, subnet.history) = (self.profiles, history);
        self.reweigh(slot)
    }

    /// Gives the sessions of a subnet the weight that RATE says. Only the anchor and the subnet's place in
    /// the rankings change. Returns whether the weight changed.
    fn reweigh(&mut self, slot: u32) -> bool {
        let now = self.clock.now();
        let subnet = self.subnets.at_mut(slot);
        let (old, new) = (subnet.weight, rate(subnet.history, subnet.active));
        if old == new {
            return false;
        }
        if !planted(Mutant::FairSkipsReanchor) {
            subnet.offset = subnet.offset.wrapping_add(old.wrapping_sub(new).wrapping_mul(now));
        }
        subnet.weight = new;
        let backlogged = u64::from(subnet.backlogged);
        self.subnets.weight = self.subnets.weight + new * backlogged - old * backlogged;
        self.subnets.rank(slot, now);
        true
    }

    /// One more front-end has a request of this session.
    pub(super) fn activate(&mut self, slot: u32) {
        let session = self.sessions.at_mut(slot);
        session.active_at += 1;
        if session.active_at == 1 {
            let subnet = session.subnet;
            self.touch(subnet);
            self.subnets.at_mut(subnet).active += 1;
            self.reweigh(subnet);
        }
    }

    /// One front-end less has a request of this session.
    pub(super) fn deactivate(&mut self, slot: u32) {
        let session = self.sessions.at_mut(slot);
        session.active_at -= 1;
        if session.active_at == 0 {
            let subnet = session.subnet;
            self.touch(subnet);
            self.subnets.at_mut(subnet).active -= 1;
            self.reweigh(subnet);
        }
    }

    /// The tag of a session with no waiting request: never behind the clock, so that idleness saves
    /// nothing up. A difference beyond the cap is one that has long been passed by the clock.
    fn tag_aside(&self, slot: u32) -> u64 {
        let session = self.sessions.at(slot);
        let clock = self.subnets.at(session.subnet).clock(self.clock.now());
        let debt = session.tag.wrapping_sub(clock);
        if session.stamp == self.resets && debt <= self.debt_cap { session.tag } else { clock }
    }

    /// Tag units by which a session is ahead of its subnet's clock.
    pub(super) fn debt_tags(&self, slot: u32) -> u64 {
        let session = self.sessions.at(slot);
        let subnet = self.subnets.at(session.subnet);
        if subnet.stamp != self.resets {
            return 0;
        }
        let tag = if session.stand == Stand::Aside { self.tag_aside(slot) } else { session.tag };
        ahead(tag, subnet.clock(self.clock.now())).max(0) as u64
    }

    /// The session pays its debt down to nothing if the clock has passed it; keeps old tags from coming
    /// round with the rollover.
    pub(super) fn refresh_aside(&mut self, slot: u32) {
        let (tag, stamp) = (self.tag_aside(slot), self.resets);
        let session = self.sessions.at_mut(slot);
        (session.tag, session.stamp) = (tag, stamp);
    }

    /// A session that stood aside has its first waiting request.
    pub(super) fn begin_waiting(&mut self, slot: u32) {
        let subnet = self.sessions.at(slot).subnet;
        self.touch(subnet);
        self.refresh_aside(slot);
        self.subnets.join(subnet);
        self.seat(slot);
        self.subnets.rank(subnet, self.clock.now());
    }

    /// Puts a waiting session into the heap where it belongs.
    #[inline]
    fn seat(&mut self, slot: u32) {
        let session = self.sessions.at(slot);
        let (tag, id) = (session.tag, slot);
        let Some((tags, tie)) = self.requests.first(&session.fifo) else { return };
        let subnet = self.subnets.at_mut(session.subnet);
        let early = ahead(tag, subnet.clock(self.clock.now())) > 0;
        if early {
            subnet.early.push(Node { key: tag, tie: 0, id }, &mut self.sessions.places);
        } else {
            subnet.eligible.push(Node { key: tag.wrapping_add(tags), tie, id }, &mut self.sessions.places);
        }
        self.sessions.at_mut(slot).stand = if early { Stand::Early } else { Stand::Eligible };
    }

    /// Takes a waiting session out of its heap.
    #[inline]
    fn unseat(&mut self, slot: u32) {
        let (place, session) = (self.sessions.places[slot as usize], self.sessions.at(slot));
        let subnet = self.subnets.at_mut(session.subnet);
        match session.stand {
            Stand::Early => subnet.early.remove(place, &mut self.sessions.places),
            Stand::Eligible => subnet.eligible.remove(place, &mut self.sessions.places),
            Stand::Aside | Stand::Vacant => return,
        }
        self.sessions.at_mut(slot).stand = Stand::Aside;
    }

    /// The tag or the first request of a waiting session has changed: finds its new place, or lets it step
    /// aside if nothing waits any more.
    pub(super) fn reseat(&mut self, slot: u32) {
        let session = self.sessions.at(slot);
        let (subnet, tag, id) = (session.subnet, session.tag, slot);
        match self.requests.first(&session.fifo) {
            None => {
                self.unseat(slot);
                self.subnets.leave(subnet);
            }
            Some((tags, tie)) => {
                let now = self.clock.now();
                let (place, record) = (self.sessions.places[slot as usize], self.subnets.at_mut(subnet));
                let early = ahead(tag, record.clock(now)) > 0;
                match self.sessions.at(slot).stand {
                    Stand::Early if early => {
                        record.early.update(place, Node { key: tag, tie: 0, id }, &mut self.sessions.places);
                    }
                    Stand::Eligible if !early => {
                        let node = Node { key: tag.wrapping_add(tags), tie, id };
                        record.eligible.update(place, node, &mut self.sessions.places);
                    }
                    _ => {
                        self.unseat(slot);
                        self.seat(slot);
                    }
                }
            }
        }
        self.subnets.rank(subnet, self.clock.now());
    }

    /// The subnet whose first eligible session is next. Virtual time jumps if nobody is eligible.
    #[inline]
    pub(super) fn select(&mut self) -> Option<u32> {
        loop {
            self.promote();
            match self.subnets.by_finish.top().map(|node| node.id) {
                // A new profile may change its weight, and with it who is next.
                Some(subnet) if self.touch(subnet) => {}
                Some(subnet) => return Some(subnet),
                None => {
                    let start = self.subnets.by_start.top()?.key;
                    self.jump(start);
                }
            }
        }
    }

    /// Sessions whose start has come become eligible.
    #[inline]
    fn promote(&mut self) {
        let now = self.clock.now();
        while let Some(node) = self.subnets.by_start.top().filter(|node| ahead(node.key, now) <= 0) {
            let id = node.id;
            let clock = self.subnets.at(id).clock(now);
            while let Some(first) = self.subnets.at(id).early.top().filter(|first| ahead(first.key, clock) <= 0) {
                let slot = first.id;
                self.unseat(slot);
                self.seat(slot);
            }
            self.subnets.rank(id, now);
        }
    }

    /// Charges a session `tags`, or gives them back. A charge stops at the debt cap.
    pub(super) fn charge(&mut self, slot: u32, tags: i64) {
        let subnet = self.sessions.at(slot).subnet;
        self.touch(subnet);
        let aside = self.sessions.at(slot).stand == Stand::Aside;
        if aside {
            self.refresh_aside(slot);
        }
        let clock = self.subnets.at(subnet).clock(self.clock.now());
        let session = self.sessions.at_mut(slot);
        let distance = ahead(session.tag, clock).saturating_add(tags).min(self.debt_cap as i64);
        session.tag = clock.wrapping_add(distance as u64);
        if !aside {
            self.reseat(slot);
        }
    }

    /// A running request took more, or less, than was charged: the session, its report and the clock
    /// learn it.
    pub(super) fn true_up(&mut self, slot: u32, tags: i64) {
        if tags == 0 {
            return;
        }
        let session = self.sessions.at_mut(slot);
        if tags > 0 {
            session.count_service(tags as u64);
        } else {
            session.credit = session.credit.saturating_add(tags.unsigned_abs());
        }
        self.note(slot);
        self.charge(slot, tags);
        self.advance(tags);
    }

    /// Virtual time moves on by work done.
    #[inline]
    pub(super) fn advance(&mut self, tags: i64) {
        self.clock.advance(tags, self.subnets.weight);
        self.sweep_on_rollover();
    }

    fn jump(&mut self, then: u64) {
        self.clock.jump(then);
        self.sweep_on_rollover();
    }
}
