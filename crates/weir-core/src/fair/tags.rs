//! Updates of the order of sessions: what each call of [`Fair`] changes in the tags of a session and in its seat.

use super::Fair;
use super::clock::ahead;
use super::requests::Claim;
use super::seats::{Early, Eligible, Seat, Stand};
use super::subnets::Stale;
use crate::mutant::{Mutant, planted};

impl Fair {
    /// The tag of a session with no waiting request. It is never behind the clock, so that idle time earns
    /// no credit. If the difference is beyond the cap, the clock has passed the tag long ago.
    #[inline]
    fn tag_aside(&self, slot: u32) -> u64 {
        let session = self.sessions.at(slot);
        let clock = self.subnets.at(session.subnet).clock(self.clock.now());
        let debt = session.tag.wrapping_sub(clock);
        if session.stamp == self.resets && debt <= self.debt_cap { session.tag } else { clock }
    }

    /// Writes down the tag of a session with no waiting request. If this is done now and then, old tags cannot be mistaken for new ones
    /// after a rollover.
    #[inline]
    pub(super) fn refresh_aside(&mut self, slot: u32) -> u64 {
        let (tag, stamp) = (self.tag_aside(slot), self.resets);
        let session = self.sessions.at_mut(slot);
        (session.tag, session.stamp) = (tag, stamp);
        tag
    }

    /// Tag units by which a session is ahead of its subnet's clock.
    pub(super) fn debt_tags(&self, slot: u32) -> u64 {
        let subnet = self.sessions.at(slot).subnet;
        if self.subnets.ledger(subnet).stamp != self.resets {
            return 0;
        }
        let tag = self.seat(slot).map_or_else(|| self.tag_aside(slot), |seat| seat.start);
        ahead(tag, self.subnets.at(subnet).clock(self.clock.now())).max(0) as u64
    }

    /// The seat of a session, if it waits or lingers.
    #[inline(always)]
    fn seat(&self, slot: u32) -> Option<Seat> {
        let (place, subnet) = (self.sessions.places[slot as usize], self.sessions.at(slot).subnet);
        match Stand::of(place) {
            Stand::Aside => None,
            Stand::Early => Some(self.subnets.at(subnet).early.at(place).0),
            Stand::Eligible => Some(self.subnets.at(subnet).eligible.at(place).0),
        }
    }

    /// A session that stood aside, or lingered, has its first waiting request.
    #[inline]
    pub(super) fn begin_waiting(&mut self, slot: u32, claim: Claim) -> Stale {
        let subnet = self.sessions.at(slot).subnet;
        self.touch(subnet);
        if self.lingers(slot) {
            return self.move_to(slot, self.tag_lingering(slot), claim);
        }
        let start = self.refresh_aside(slot);
        self.subnets.weight += u64::from(self.subnets.at(subnet).weight);
        self.sit(subnet, Seat::new(slot, start, claim))
    }

    /// Whether a session with no waiting request lingers.
    #[inline]
    pub(super) fn lingers(&self, slot: u32) -> bool {
        self.sessions.stand(slot) != Stand::Aside
    }

    /// The tag of a session that lingers, or the clock of its subnet if that has passed it. It is in the seat too, but reading the record
    /// is cheaper.
    #[inline]
    fn tag_lingering(&self, slot: u32) -> u64 {
        let session = self.sessions.at(slot);
        let clock = self.subnets.at(session.subnet).clock(self.clock.now());
        if ahead(session.tag, clock) > 0 { session.tag } else { clock }
    }

    /// A session has no waiting request, and its next would start at `tag`. It lingers, and its weight counts, until the clock has reached the tag:
    /// the service that it got ahead of its time took time from the others, and without its weight the clock would run away from everybody
    /// who waits.
    #[inline]
    fn linger(&mut self, slot: u32, tag: u64) -> Stale {
        let (subnet, stamp) = (self.sessions.at(slot).subnet, self.resets);
        let session = self.sessions.at_mut(slot);
        (session.tag, session.stamp) = (tag, stamp);
        let seated = self.lingers(slot);
        let early = ahead(tag, self.subnets.at(subnet).clock(self.clock.now())) > 0;
        let weight = u64::from(self.subnets.at(subnet).weight);
        match (seated, early && !planted(Mutant::FairForgetsServed)) {
            (true, true) => self.move_to(slot, tag, Claim::NONE),
            (true, false) => {
                self.subnets.weight -= weight;
                self.rise(slot) | self.count_lingering(slot, false)
            }
            (false, true) => {
                self.subnets.weight += weight;
                self.sit(subnet, Seat::new(slot, tag, Claim::NONE)) | self.count_lingering(slot, true)
            }
            (false, false) => Stale::NONE,
        }
    }

    /// A session that lingers is about to be forgotten.
    pub(super) fn stop_lingering(&mut self, slot: u32) {
        if self.lingers(slot) {
            let subnet = self.sessions.at(slot).subnet;
            self.subnets.weight -= u64::from(self.subnets.at(subnet).weight);
            let stale = self.rise(slot) | self.count_lingering(slot, false);
            self.rank(subnet, stale);
        }
    }

    /// Puts a seat into the heap where it belongs.
    #[inline(always)]
    fn sit(&mut self, slot: u32, seat: Seat) -> Stale {
        let (now, places, subnet) = (self.clock.now(), &mut self.sessions.places, self.subnets.at_mut(slot));
        if ahead(seat.start, subnet.clock(now)) > 0 {
            Stale { start: subnet.early.push(Early(seat), places), finish: false }
        } else {
            Stale { start: false, finish: subnet.eligible.push(Eligible(seat), places) }
        }
    }

    /// Takes the seat of a session away.
    #[inline(always)]
    fn rise(&mut self, slot: u32) -> Stale {
        let (place, id) = (self.sessions.places[slot as usize], self.sessions.at(slot).subnet);
        let (places, subnet) = (&mut self.sessions.places, self.subnets.at_mut(id));
        match Stand::of(place) {
            Stand::Aside => Stale::NONE,
            Stand::Early => Stale { start: subnet.early.remove(place, places), finish: false },
            Stand::Eligible => Stale { start: false, finish: subnet.eligible.remove(place, places) },
        }
    }

    /// Gives a session another seat. Its parts are passed in registers, because a read from memory would have to wait until all earlier writes are
    /// done, including those that miss the cache.
    fn move_to(&mut self, slot: u32, start: u64, claim: Claim) -> Stale {
        let seat = Seat::new(slot, start, claim);
        let (place, id) = (self.sessions.places[slot as usize], self.sessions.at(slot).subnet);
        let (now, places, subnet) = (self.clock.now(), &mut self.sessions.places, self.subnets.at_mut(id));
        let early = ahead(seat.start, subnet.clock(now)) > 0;
        match Stand::of(place) {
            Stand::Early if early => Stale { start: subnet.early.replace(place, Early(seat), places), finish: false },
            Stand::Eligible if !early => {
                Stale { start: false, finish: subnet.eligible.replace(place, Eligible(seat), places) }
            }
            _ => self.rise(slot) | self.sit(id, seat),
        }
    }

    /// The first request of a waiting session has left, and the next begins at `start`.
    #[inline]
    pub(super) fn move_up(&mut self, slot: u32, start: u64, next: Option<Claim>) -> Stale {
        match next {
            Some(claim) => self.move_to(slot, start, claim),
            None => self.linger(slot, start),
        }
    }

    /// Brings the rankings of a subnet up to date.
    #[inline]
    pub(super) fn rank(&mut self, subnet: u32, stale: Stale) {
        let now = self.clock.now();
        if stale.start {
            self.subnets.rank_start(subnet, now);
        }
        if stale.finish {
            self.subnets.rank_finish(subnet, now);
        }
    }

    /// The start tag of a session that waits.
    pub(super) fn start_tag(&self, slot: u32) -> u64 {
        self.seat(slot).map_or(0, |seat| seat.start)
    }

    /// The seat that is served next. Virtual time jumps if no session is eligible.
    #[inline]
    pub(super) fn select(&mut self) -> Option<Seat> {
        loop {
            self.promote();
            match self.subnets.by_finish.top().map(|first| first.id) {
                // A new profile may change its weight, and therefore which subnet is next.
                Some(subnet) if self.touch(subnet) => {}
                Some(subnet) => return self.subnets.at(subnet).eligible.top().map(|first| first.0),
                None => {
                    let start = self.subnets.by_start.top()?.moment;
                    self.clock.jump(start);
                    self.sweep_on_rollover();
                }
            }
        }
    }

    /// Prefetches for the next dispatch what the first subnet by finish leads to. That subnet itself was prefetched when it came near
    /// the top.
    #[inline]
    pub(super) fn look_ahead(&self) {
        if let Some(first) = self.subnets.by_finish.top() {
            let subnet = self.subnets.at(first.id);
            if let Some(Eligible(seat)) = subnet.eligible.top() {
                self.sessions.prefetch(seat.slot);
                self.requests.prefetch(seat.head);
            }
            subnet.eligible.prefetch();
            subnet.early.prefetch();
        }
    }

    /// Prefetches for a promotion in the subnet at `id`.
    #[inline]
    fn look_ahead_in(&self, id: u32) {
        let subnet = self.subnets.at(id);
        if let Some(Early(seat)) = subnet.early.top() {
            self.sessions.prefetch_place(seat.slot);
        }
        subnet.eligible.prefetch();
        subnet.early.prefetch();
    }

    /// Sessions whose start has come become eligible, or stand aside if they only lingered. With many sessions virtual time
    /// stands still for many dispatches, and then many starts come at once: they are prefetched together, in two steps.
    #[inline]
    fn promote(&mut self) {
        let now = self.clock.now();
        while let Some(first) = self.subnets.by_start.top().filter(|first| ahead(first.moment, now) <= 0) {
            if self.subnets.by_start.is_small() {
                self.promote_in(first.id, now);
                continue;
            }
            let due = self.subnets.by_start.due(now);
            due.iter().for_each(|id| self.subnets.prefetch(id));
            due.iter().for_each(|id| self.look_ahead_in(id));
            due.iter().for_each(|id| self.promote_in(id, now));
        }
    }

    fn promote_in(&mut self, id: u32, now: u64) {
        if self.subnets.at(id).epoch != self.epoch {
            self.take_up_reset(id);
        }
        let clock = self.subnets.at(id).clock(now);
        let (mut leads, mut gone, mut ended) = (false, 0, 0);
        loop {
            let (places, subnet) = (&mut self.sessions.places, self.subnets.at_mut(id));
            if subnet.early.top().is_none_or(|first| ahead(first.0.start, clock) > 0) {
                break;
            }
            let Some(Early(seat)) = subnet.early.pop(places) else { break };
            if seat.lingers() {
                gone += u64::from(subnet.weight);
                ended += u32::from(self.sessions.at(seat.slot).active_at == 0);
            } else {
                leads |= subnet.eligible.push(Eligible(seat), places);
            }
        }
        self.subnets.weight -= gone;
        if ended > 0 {
            self.subnets.at_mut(id).lingering -= ended;
            leads |= self.reweigh(id).finish;
        }
        self.subnets.rank_start(id, now);
        if leads {
            self.subnets.rank_finish(id, now);
        }
    }

    /// Charges a session `tags` of service elsewhere. A charge stops at the debt cap.
    pub(super) fn charge(&mut self, slot: u32, tags: i64) -> Stale {
        self.touch(self.sessions.at(slot).subnet);
        match self.seat(slot).filter(|seat| !seat.lingers()) {
            Some(seat) => self.move_to(slot, self.charged(slot, seat.start, tags), seat.claim()),
            None if self.lingers(slot) => self.linger(slot, self.charged(slot, self.tag_lingering(slot), tags)),
            None => {
                let (tag, stamp) = (self.charged(slot, self.tag_aside(slot), tags), self.resets);
                let session = self.sessions.at_mut(slot);
                (session.tag, session.stamp) = (tag, stamp);
                Stale::NONE
            }
        }
    }

    /// The tag after a charge of `tags`, which stops at the debt cap, or after they are given back.
    #[inline]
    fn charged(&self, slot: u32, tag: u64, tags: i64) -> u64 {
        let clock = self.subnets.at(self.sessions.at(slot).subnet).clock(self.clock.now());
        let most = (self.debt_cap as i64).saturating_sub(ahead(tag, clock));
        tag.wrapping_add(tags.min(most) as u64)
    }

    /// A running request took more, or less, than was charged: the session, its report and the clock
    /// are corrected.
    #[inline]
    pub(super) fn true_up(&mut self, slot: u32, tags: i64) -> Stale {
        if tags == 0 {
            return Stale::NONE;
        }
        let session = self.sessions.at_mut(slot);
        if tags > 0 {
            session.count_service(tags as u64);
        } else {
            session.credit = session.credit.saturating_add(tags.unsigned_abs());
        }
        self.note(slot);
        self.touch(self.sessions.at(slot).subnet);
        let stale = if !self.sessions.at(slot).fifo.is_empty() {
            self.charge(slot, tags)
        } else {
            let tag = if self.lingers(slot) { self.tag_lingering(slot) } else { self.tag_aside(slot) };
            self.linger(slot, self.charged(slot, tag, tags))
        };
        debug_assert!(self.debt_tags(slot) <= self.debt_cap, "a debt beyond the cap");
        self.advance(tags);
        stale
    }

    /// Virtual time moves on by work done.
    #[inline]
    pub(super) fn advance(&mut self, tags: i64) {
        self.clock.advance(tags, self.subnets.weight);
        self.sweep_on_rollover();
    }
}
