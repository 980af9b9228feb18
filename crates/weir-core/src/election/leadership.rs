//! What a node does after it has won the election: it gets the lease, renews it, sends regular signs of life (beats), and gives the
//! leadership up.

use super::lease::{Held, Lease};
use super::{Aside, Election, Epoch, LeaseAnswer, LeaseOrder, Message, Peer, Role, Round, State, Then};
use crate::time::Instant;
use core::time::Duration;

/// After this many unanswered orders to the database in a row the node stands aside.
const UNANSWERED_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leadership {
    lease: Lease,
    unanswered: u32,
    beat_at: Instant,
    /// When somebody last answered this leader; at first, when it was elected.
    heard_at: Instant,
    /// Whether anybody ever did.
    heard: bool,
}

impl Leadership {
    /// Elected at `now`; `heard` if somebody has acknowledged the victory.
    pub(super) fn new(now: Instant, heard: bool) -> Leadership {
        Leadership { lease: Lease::Wanted { ask_at: now }, unanswered: 0, beat_at: now, heard_at: now, heard }
    }

    pub(super) fn acting(&self, now: Instant) -> Option<Epoch> {
        match &self.lease {
            Lease::Held(held) if held.acts(now) => Some(held.epoch),
            _ => None,
        }
    }

    /// The epoch in the database, even if acting is over.
    pub(super) fn held_epoch(&self) -> Option<Epoch> {
        match &self.lease {
            Lease::Held(held) => Some(held.epoch),
            Lease::Wanted { .. } => None,
        }
    }
}

impl Election {
    pub(super) fn leadership_deadline(&self, leadership: &Leadership) -> Instant {
        let lease = match &leadership.lease {
            Lease::Wanted { ask_at } => *ask_at,
            Lease::Held(held) => held.act_until.min(held.renew_at),
        };
        lease.min(leadership.beat_at).min(self.lonely_at(leadership))
    }

    /// When a leader that hears nobody gives up its lease. Never, if the database knows of nobody else.
    fn lonely_at(&self, leadership: &Leadership) -> Instant {
        if self.others.unwrap_or(0) == 0 {
            return Instant::NEVER;
        }
        leadership.heard_at + self.settings.silence() + self.settings.reply_wait
    }

    pub(super) fn leadership_timeout(&mut self, now: Instant, mut leadership: Leadership) {
        if self.lonely_at(&leadership) <= now {
            return self.let_go(now, Aside::HearsNobody);
        }
        let answers = self.lease_timeout(now, &mut leadership);
        let beat_due = leadership.beat_at <= now;
        if beat_due {
            leadership.beat_at = now + self.settings.beat;
        }
        self.state = State::Elected(leadership);
        if !answers {
            self.let_go(now, Aside::NoDatabase);
        } else if beat_due {
            self.beat(now);
        }
    }

    /// Asks for the lease, renews it, or notes that acting is over. False: the database does not answer.
    fn lease_timeout(&mut self, now: Instant, leadership: &mut Leadership) -> bool {
        if let Lease::Held(held) = &leadership.lease
            && !held.acts(now)
        {
            leadership.lease = Lease::Wanted { ask_at: now };
        }
        let order = match &mut leadership.lease {
            Lease::Wanted { ask_at } if *ask_at <= now => {
                *ask_at = now + self.settings.ask_again_after();
                LeaseOrder::Acquire { asked_at: now }
            }
            Lease::Held(held) if held.renew_at <= now => {
                held.renew_at = now + self.settings.ask_again_after();
                LeaseOrder::Renew { epoch: held.epoch, asked_at: now }
            }
            _ => return true,
        };
        let acquire = matches!(order, LeaseOrder::Acquire { .. });
        if acquire && leadership.unanswered >= UNANSWERED_MAX {
            return false;
        }
        // A node that hears none of the others would only keep the lease away from one that hears them.
        if !acquire || leadership.heard || self.others.unwrap_or(0) == 0 {
            leadership.unanswered += 1;
            self.order(order);
        }
        true
    }

    /// Says at once that it leads, and with which priority.
    pub(super) fn beat_soon(&mut self, now: Instant) {
        if let State::Elected(leadership) = &mut self.state {
            leadership.beat_at = now;
        }
        self.on_timeout(now);
    }

    fn beat(&mut self, now: Instant) {
        let epoch = self.acting(now);
        let message = Message::LeaderAlive { round: self.round(), epoch };
        self.broadcast(message);
        if epoch.is_some() {
            self.send_to_externals(message);
        }
        self.members.miss_beat(self.settings.missed_beats);
    }

    fn send_to_externals(&mut self, message: Message) {
        for i in 0..self.externals.len() {
            self.send(self.externals[i], message);
        }
    }

    /// The database's answer to `order`. A lease that was granted too late to be used is given back.
    pub fn on_lease(&mut self, now: Instant, order: LeaseOrder, answer: LeaseAnswer) {
        match (order, answer) {
            (LeaseOrder::Acquire { asked_at }, LeaseAnswer::Granted { epoch, others }) => {
                self.note_others(now, others);
                self.acquired(now, epoch, asked_at);
            }
            (LeaseOrder::Renew { epoch, asked_at }, LeaseAnswer::Granted { others, .. }) => {
                self.note_others(now, others);
                self.renewed(now, epoch, asked_at);
            }
            (LeaseOrder::Acquire { .. }, LeaseAnswer::Refused { free_in, others }) => {
                self.note_others(now, others);
                self.refused(now, free_in);
            }
            (LeaseOrder::Renew { epoch, .. }, LeaseAnswer::Lost) => self.lost(now, epoch),
            (LeaseOrder::Release { epoch }, LeaseAnswer::Released) => self.released(now, epoch),
            (LeaseOrder::Probe, LeaseAnswer::Reachable) if self.aside() == Some(Aside::NoDatabase) => {
                self.end_aside(now);
            }
            _ => {}
        }
        self.check_invariants();
    }

    /// Notes how many other machines the database has seen. A leader that was alone gives newcomers time to be heard.
    fn note_others(&mut self, now: Instant, others: u32) {
        let first = self.others.unwrap_or(0) == 0 && others > 0;
        self.others = Some(others);
        if let State::Elected(leadership) = &mut self.state
            && first
        {
            leadership.heard_at = now;
        }
    }

    /// A fenced statement of `epoch` found no row: the term is over, whatever this node's clock shows.
    pub fn on_fenced_out(&mut self, now: Instant, epoch: Epoch) {
        self.lost(now, epoch);
    }

    fn acquired(&mut self, now: Instant, epoch: Epoch, asked_at: Instant) {
        self.highest = self.highest.max(epoch);
        let held = Held::granted(epoch, asked_at, &self.settings);
        match &mut self.state {
            State::Elected(leadership) if leadership.held_epoch().is_none() && held.acts(now) => {
                leadership.lease = Lease::Held(held);
                leadership.unanswered = 0;
                leadership.heard_at = now;
                self.announce(epoch);
            }
            _ => self.order(LeaseOrder::Release { epoch }),
        }
    }

    /// Tells the local nodes and the external machines under which epoch it acts.
    fn announce(&mut self, epoch: Epoch) {
        let message = Message::Victory { round: self.round(), epoch: Some(epoch) };
        let local = self.members.local().filter(|(_, m)| m.role != Role::External);
        let addresses: alloc::vec::Vec<_> = local.map(|(_, m)| m.address).collect();
        for to in addresses {
            self.send(to, message);
        }
        self.send_to_externals(message);
    }

    fn renewed(&mut self, now: Instant, epoch: Epoch, asked_at: Instant) {
        let renewed = Held::granted(epoch, asked_at, &self.settings);
        match &mut self.state {
            State::Elected(leadership) if leadership.held_epoch() == Some(epoch) => {
                leadership.unanswered = 0;
                if let Lease::Held(held) = &mut leadership.lease
                    && renewed.act_until > held.act_until
                {
                    *held = Held { renew_at: renewed.renew_at.max(now), ..renewed };
                }
            }
            State::Leaving { .. } => {}
            _ => self.order(LeaseOrder::Release { epoch }),
        }
    }

    fn refused(&mut self, now: Instant, free_in: Duration) {
        let soon = self.settings.reply_wait;
        if let State::Elected(leadership) = &mut self.state {
            leadership.unanswered = 0;
            if let Lease::Wanted { ask_at } = &mut leadership.lease {
                *ask_at = now + free_in.clamp(soon / 10, soon);
            }
        }
    }

    fn lost(&mut self, now: Instant, epoch: Epoch) {
        if let State::Elected(leadership) = &mut self.state
            && leadership.held_epoch() == Some(epoch)
        {
            leadership.unanswered = 0;
            leadership.lease = Lease::Wanted { ask_at: now + self.settings.reply_wait };
        }
    }

    fn released(&mut self, now: Instant, released: Epoch) {
        if let State::Leaving { epoch, then, .. } = self.state
            && epoch == released
        {
            self.left(now, then);
        }
    }

    /// Another machine answers this leader, which matters for the lease too. An answer from a machine outside does not show that the lab's network
    /// works.
    pub(super) fn hear_reply(&mut self, now: Instant, id: super::NodeId) {
        if self.members.role(id) == Some(Role::External) {
            return;
        }
        self.members.note_local(id);
        if let State::Elected(leadership) = &mut self.state {
            leadership.heard_at = now;
            leadership.heard = true;
        }
    }

    /// Asks for the lease at once, unless an order is under way, because the lease's holder may just have released it.
    pub(super) fn ask_soon(&mut self, now: Instant) {
        if let State::Elected(leadership) = &mut self.state
            && leadership.unanswered == 0
        {
            if let Lease::Wanted { ask_at } = &mut leadership.lease {
                *ask_at = now;
            }
            self.on_timeout(now);
        }
    }

    /// Asks the database now whether the lease is still this node's.
    pub(super) fn verify_lease(&mut self, now: Instant) {
        if let State::Elected(leadership) = &mut self.state
            && leadership.unanswered == 0
        {
            if let Lease::Held(held) = &mut leadership.lease {
                held.renew_at = now;
            }
            self.on_timeout(now);
        }
    }

    /// Makes way for a better leader; one that holds the lease releases it first.
    pub(super) fn yield_to(&mut self, now: Instant, leader: Peer, round: Round) {
        let State::Elected(leadership) = &self.state else { return };
        let Some(epoch) = leadership.held_epoch() else {
            return self.follow_and_ack(now, leader, round, None);
        };
        self.order(LeaseOrder::Release { epoch });
        let until = now + self.settings.reply_wait;
        self.state = State::Leaving { epoch, until, then: Then::Follow { leader, round } };
    }
}
