//! Standing aside: a node that could lead but for now neither votes nor stands for election, and only follows a leader. [`Aside`] lists the
//! reasons and when each one ends.

use super::{Election, LeaseOrder, Message, State, Then};
use crate::time::Instant;

/// Why a node stands aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aside {
    /// It resigned; until [`Election::rejoin`].
    Resigned,
    /// Its database does not answer; until a probe goes through.
    NoDatabase,
    /// It led and heard no other machine, though the database has seen some; until it hears one.
    HearsNobody,
    /// Another process has its id and key; until twice n·T1 after the last sign of it.
    Clone,
}

/// The node's own record of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StandsAside {
    why: Aside,
    again_at: Instant,
}

impl StandsAside {
    pub(super) fn why(&self) -> Aside {
        self.why
    }

    pub(super) fn again_at(&self) -> Instant {
        self.again_at
    }
}

impl Election {
    /// Gives up leadership, if any, and hands over at once; stands again only after [`Election::rejoin`].
    pub fn resign(&mut self, now: Instant) {
        self.let_go(now, Aside::Resigned);
    }

    /// Stands again after a resignation.
    pub fn rejoin(&mut self, now: Instant) {
        if self.aside() == Some(Aside::Resigned) {
            self.end_aside(now);
        }
        if let State::Leaving { then, .. } = &mut self.state
            && *then == Then::StandAside(Aside::Resigned)
        {
            *then = Then::StandAgain;
        }
    }

    /// Nobody else is there, as the database or the configuration says. A node that has heard nobody lately need not wait for
    /// anybody: it stands again if it stood aside because it heard nobody, and wins without the three phases.
    pub fn alone(&mut self, now: Instant) {
        self.others = Some(0);
        let seeks = matches!(self.state, State::Leaderless { .. } | State::Candidate { .. });
        let heard = !self.members.in_lab(now, &self.settings).is_empty();
        if self.aside() == Some(Aside::HearsNobody) {
            self.end_aside(now);
        }
        if seeks && self.stands() && !heard {
            self.win(now);
        }
    }

    /// Stops leading or standing: releases the lease first, then tells the others.
    pub(super) fn let_go(&mut self, now: Instant, why: Aside) {
        let held = match &self.state {
            State::Elected(leadership) => leadership.held_epoch(),
            State::Leaving { epoch, .. } => Some(*epoch),
            _ => None,
        };
        let Some(epoch) = held else { return self.stand_aside(now, why) };
        self.order(LeaseOrder::Release { epoch });
        let until = now + self.settings.reply_wait;
        self.state = State::Leaving { epoch, until, then: Then::StandAside(why) };
    }

    /// The lease is released, or the database did not answer within T.
    pub(super) fn left(&mut self, now: Instant, then: Then) {
        match then {
            Then::Follow { leader, round } => self.follow_and_ack(now, leader, round, None),
            Then::StandAside(why) => self.stand_aside(now, why),
            Then::StandAgain => {
                self.announce_resignation(now);
                self.seek(now);
            }
        }
    }

    fn stand_aside(&mut self, now: Instant, why: Aside) {
        // A resignation is the operator's decision: no other reason replaces it.
        if self.aside() != Some(Aside::Resigned) {
            self.aside = Some(StandsAside { why, again_at: self.aside_until(now, why) });
        }
        match self.state {
            State::Elected(_) | State::Leaving { .. } => self.announce_resignation(now),
            State::Candidate { .. } => {}
            State::Leaderless { .. } | State::Following(_) => return,
        }
        self.state = State::Leaderless { until: now + self.settings.silence(), bettered: false };
    }

    fn announce_resignation(&mut self, now: Instant) {
        let epoch = match &self.state {
            State::Elected(leadership) => leadership.held_epoch(),
            State::Leaving { epoch, .. } => Some(*epoch),
            _ => None,
        };
        let message = Message::Resigned { epoch, successor: self.members.best_local() };
        for to in self.members.in_lab(now, &self.settings) {
            self.send(to, message);
        }
        self.members.clear_local();
    }

    fn aside_until(&self, now: Instant, why: Aside) -> Instant {
        match why {
            Aside::Resigned | Aside::HearsNobody => Instant::NEVER,
            Aside::NoDatabase => now + self.settings.abort_wait,
            Aside::Clone => now + self.settings.silence().saturating_mul(2),
        }
    }

    pub(super) fn aside_timeout(&mut self, now: Instant) {
        let Some(aside) = self.aside.as_mut().filter(|aside| aside.again_at <= now) else { return };
        match aside.why {
            Aside::NoDatabase => {
                aside.again_at = now + self.settings.abort_wait;
                self.order(LeaseOrder::Probe);
            }
            Aside::Resigned | Aside::HearsNobody | Aside::Clone => self.end_aside(now),
        }
    }

    /// Stands for election again; without a leader, at once.
    pub(super) fn end_aside(&mut self, now: Instant) {
        self.aside = None;
        if matches!(self.state, State::Leaderless { .. }) {
            self.seek(now);
        }
    }
}
