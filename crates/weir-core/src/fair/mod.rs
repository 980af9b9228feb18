//! Distributed fair queueing: whose request one front-end's backend serves next.
//!
//! Weighted fair queueing (WF²Q+) over sessions, after A. M. Vandiver, *Application-Level DDoS Prevention
//! in a Replicated System* (MIT 2007), section 3. The sessions of a subnet share what its history allows,
//! and service that a session receives at other front-ends is charged here too, so that the sum over all
//! front-ends is max-min fair. The thesis rescales every session when a weight changes; *anchored subnet
//! clocks* (`subnets.rs`) give the same order in O(log N). The derivation is in `docs/algorithms/fair.md`.
//!
//! The order does not rely on estimated costs, because clients could make the estimates wrong. Every request is ranked as if it cost the
//! most that can be charged (the debt cap). What it really cost moves its session's tag, and so ranks the session's next request.
//!
//! Invariants: [`Fair::dispatch`] leaves no slot free while a request waits; a session's debt is at most the cap; a cancelled request
//! leaves nothing behind; virtual time never runs backwards and may roll over; a report heard twice, late or out of order changes nothing
//! more.
//!
//! Cost: each call is O(log N), amortised, except [`Fair::forget_peer`] and [`Fair::report_all`], which walk over all that this peer has
//! reported, or all sessions of this front-end. Memory is bounded by `waiting_max`, `sessions_max` and `peers_max`: 32 bytes per request;
//! 64 per session and at most 24 for finding it; at most 250 per subnet and 64 for each of its waiting sessions; about 90 for each session
//! that a peer has reported. Sessions without request and debt are collected (`sweep.rs`).
//!
//! Left to the shell: hashing keys with a secret, estimating costs, when to charge an overrun, queue
//! timeouts, carrying reports. There is no clock here, only work, so no call takes the time.

mod backlog;
mod clock;
mod exchange;
mod expected;
mod had_turns;
mod heap;
mod index;
mod keys;
mod line;
mod profile;
mod ranking;
mod requests;
mod seats;
mod sessions;
mod settings;
mod sizes;
mod subnets;
mod sweep;
mod tags;
pub mod visits;
mod weights;

pub use backlog::{Backlog, QueueBounds, Room, Scarce};
pub use exchange::Report;
pub use keys::{PeerId, SessionKey, SubnetKey};
pub use line::{Line, WAITED_MAX_MS};
pub use profile::{Profile, Weight};
pub use requests::Ticket;
pub use settings::{Settings, Work};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use clock::VirtualClock;
use exchange::Peer;
use requests::{Requests, State};
use sessions::Sessions;
use subnets::{Stale, Subnets};
use sweep::Sweeper;

/// The scheduler of one front-end.
#[derive(Clone, Debug)]
pub struct Fair {
    settings: Settings,
    debt_cap: u64,
    profile: Profile,
    clock: VirtualClock,
    /// Counts changes of the profile and returns to zero together: a subnet adopts what has changed when it is next
    /// touched.
    epoch: u32,
    profiles: u32,
    /// A tag from before the last return to zero is no debt.
    resets: u32,
    requests: Requests,
    sessions: Sessions,
    subnets: Subnets,
    peers: Vec<Peer>,
    /// Slots of sessions with news for the other front-ends, each once.
    reports: VecDeque<u32>,
    sweeper: Sweeper,
}

impl Fair {
    /// An empty scheduler.
    pub fn new(settings: Settings, profile: Profile) -> Fair {
        let settings = settings.bounded();
        Fair {
            debt_cap: settings.debt_cap.tag(),
            clock: VirtualClock::starting_at(settings.origin),
            sweeper: Sweeper::starting_at(settings.origin),
            settings,
            profile,
            epoch: 0,
            profiles: 0,
            resets: 0,
            requests: Requests::default(),
            sessions: Sessions::counting_from(settings.first_life),
            subnets: Subnets::at_price(settings.debt_cap.tag()),
            peers: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// A request of `session` arrives, at an estimated `cost` (limited to the debt cap). It is charged this when it is dispatched, until the true
    /// cost is known. A session belongs to the subnet with which it was first seen.
    pub fn arrive(&mut self, session: SessionKey, subnet: SubnetKey, cost: Work) -> Result<Ticket, FairRefusal> {
        if self.requests.waiting >= self.settings.waiting_max {
            return Err(FairRefusal::TooManyRequests);
        }
        self.look_ahead();
        let slot = self.session_slot(session, subnet)?;
        let session = self.sessions.at_mut(slot);
        let (first, new_here, subnet) = (session.fifo.is_empty(), !session.is_here(), session.subnet);
        if first {
            self.subnets.prefetch(subnet);
        }
        let (ticket, claim) = self.requests.append(&mut session.fifo, slot, cost.tag().min(self.debt_cap));
        let mut stale = Stale::NONE;
        if new_here {
            session.local = true;
            stale = self.activate(slot);
            self.note(slot);
        }
        if first {
            stale = stale | self.begin_waiting(slot, claim);
        }
        self.rank(subnet, stale);
        Ok(ticket)
    }

    /// The request to serve next, if a slot is free and a request waits. It is charged its estimate, and holds
    /// its slot until [`Fair::finish`].
    pub fn dispatch(&mut self) -> Option<Ticket> {
        if self.requests.running >= self.settings.slots || self.requests.waiting == 0 {
            return None;
        }
        let seat = self.select()?;
        let tags = seat.finish.wrapping_sub(seat.start);
        let session = self.sessions.at_mut(seat.slot);
        let (ticket, next) = self.requests.start(&mut session.fifo, tags);
        session.running += 1;
        session.count_service(tags);
        self.note(seat.slot);
        self.advance(tags as i64);
        let stale = self.move_up(seat.slot, seat.finish, next);
        self.rank(self.sessions.at(seat.slot).subnet, stale);
        debug_assert!(self.requests.running <= self.settings.slots, "more requests run than there are slots");
        Some(ticket)
    }

    /// A running request has taken `extra` beyond what was charged so far; its session is charged now.
    /// Returns whether such a request runs.
    pub fn overrun(&mut self, ticket: Ticket, extra: Work) -> bool {
        let Some(slot) = self.requests.session(ticket, State::Running) else { return false };
        let charged = self.requests.charged(ticket);
        *charged = charged.saturating_add(extra.tag());
        let stale = self.true_up(slot, extra.tag() as i64);
        self.rank(self.sessions.at(slot).subnet, stale);
        true
    }

    /// A running request has ended after `actual` work: the session pays or gets back the difference to
    /// what was charged, and the slot is free. Returns whether such a request ran.
    pub fn finish(&mut self, ticket: Ticket, actual: Work) -> bool {
        let Some(slot) = self.requests.session(ticket, State::Running) else { return false };
        let charged = (*self.requests.charged(ticket)).min(1 << 61);
        self.requests.end(ticket);
        let stale = self.true_up(slot, actual.tag() as i64 - charged as i64);
        self.sessions.at_mut(slot).running -= 1;
        self.leave_if_done(slot, stale);
        true
    }

    /// A waiting request leaves without being charged. Returns whether such a request waited; a running one holds
    /// its slot until it is finished.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(slot) = self.requests.session(ticket, State::Waiting) else { return false };
        let fifo = &mut self.sessions.at_mut(slot).fifo;
        let first = fifo.starts_with(ticket);
        let next = self.requests.withdraw(fifo, ticket);
        if first {
            self.touch(self.sessions.at(slot).subnet);
            let stale = self.move_up(slot, self.start_tag(slot), next);
            self.leave_if_done(slot, stale);
        }
        true
    }

    /// All front-ends switch to a new profile together. Each subnet adopts it when it is next touched.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
        self.profiles = self.profiles.wrapping_add(1);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Changes the number of slots; if there are fewer, running requests continue.
    pub fn set_slots(&mut self, slots: u32) {
        self.settings = Settings { slots, ..self.settings }.bounded();
    }

    /// Changes the settings. Requests, tags and debts stay as they are, and debts beyond a lower cap are reduced when they are next looked at.
    /// Where virtual time and lives start, and whether there are reports, does not change.
    pub fn change(&mut self, settings: Settings) {
        let Settings { origin, report, first_life, .. } = self.settings;
        let settings = Settings { origin, report, first_life, ..settings }.bounded();
        let weight = |settings: &Settings| (settings.stranger_weight, settings.floor_history);
        if weight(&settings) != weight(&self.settings) {
            self.profiles = self.profiles.wrapping_add(1);
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.debt_cap = settings.debt_cap.tag();
        self.subnets.set_price(self.debt_cap, self.clock.now());
        self.settings = settings;
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.requests.waiting as usize
    }

    /// How many requests run.
    pub fn running(&self) -> usize {
        self.requests.running as usize
    }

    /// How many sessions and subnets are remembered.
    pub fn remembered(&self) -> (usize, usize) {
        (self.sessions.len(), self.subnets.len())
    }

    /// The life of the newest record; it wraps round.
    pub fn lives(&self) -> u32 {
        self.sessions.lives
    }

    /// Virtual time, in its own units since it last started from zero.
    pub fn virtual_time(&self) -> u64 {
        self.clock.now().wrapping_sub(self.settings.origin)
    }

    /// The state of `session`, if it is remembered.
    pub fn standing(&self, session: SessionKey) -> Option<Standing> {
        let slot = self.sessions.find(session.0)?;
        let record = self.sessions.at(slot);
        Some(Standing {
            waits: !record.fifo.is_empty(),
            running: record.running,
            debt: Work::from_tag(self.debt_tags(slot)),
            served: Work::from_tag(record.served),
            active_at: record.active_at,
        })
    }

    /// The weight of each session of `subnet`, if one is remembered.
    pub fn weight(&self, subnet: SubnetKey) -> Option<Weight> {
        let slot = self.subnets.find(subnet.0)?;
        Some(Weight::from_units(u64::from(self.weight_of(slot))))
    }

    /// How many distinct sessions of `subnet` have a request at any front-end.
    pub fn active(&self, subnet: SubnetKey) -> u32 {
        self.subnets.find(subnet.0).map_or(0, |slot| self.subnets.at(slot).active)
    }

    /// The session whose request has just left: if it has no other here, it is no longer active here. `stale` says which ranks of its subnet
    /// are out of date after the request has left.
    fn leave_if_done(&mut self, slot: u32, mut stale: Stale) {
        if !self.sessions.at(slot).is_here() {
            stale = stale | self.deactivate(slot);
            self.note(slot);
        }
        self.rank(self.sessions.at(slot).subnet, stale);
        if self.requests.waiting == 0 && self.requests.running == 0 {
            self.return_to_zero();
        }
        self.check_invariants();
    }

    /// What is always true between two calls; each costs O(1).
    fn check_invariants(&self) {
        let idle = self.requests.waiting == 0 && self.requests.running == 0;
        debug_assert!(!idle || self.virtual_time() == 0, "nothing waits or runs, and virtual time runs on");
    }

    /// Nothing waits or runs: virtual time and all tags return to zero (Figure 3-8, lines 14–17).
    fn return_to_zero(&mut self) {
        self.clock = VirtualClock::starting_at(self.settings.origin);
        // Sessions that still linger no longer count; they are removed when their subnet is next touched.
        self.subnets.weight = 0;
        self.sweeper.restart(self.settings.origin);
        self.resets = self.resets.wrapping_add(1);
        self.epoch = self.epoch.wrapping_add(1);
        self.sweep(1);
    }
}

/// The state of a session at a front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether a request of it waits here.
    pub waits: bool,
    /// Requests of it that run here.
    pub running: u32,
    /// How far its tag lies ahead of its subnet's clock.
    pub debt: Work,
    /// Service received here, as reported to the other front-ends.
    pub served: Work,
    /// At how many front-ends, this one included, it has a request.
    pub active_at: u16,
}

/// Why a request or a report was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairRefusal {
    /// `waiting_max` requests wait.
    TooManyRequests,
    /// `sessions_max` sessions are remembered, and none near the sweeping hand is idle.
    TooManySessions,
    /// Reports of `peers_max` other front-ends are kept.
    TooManyPeers,
}
