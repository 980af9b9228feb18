//! A priority that is changed while the node runs, and the election that this forces.
//!
//! The shell calls [`Election::set_priority`] once the node has a certificate with its new priority: everything it says from then on
//! carries the new priority, and a new round makes what it said before irrelevant.

use super::{Election, LeaseOrder, Priority, Rank, State, Then};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;

impl Election {
    /// Gives this node another priority. The node that should lead by the new order does so as soon as an election allows
    /// it: a leader that is now worse than one of those who answer it releases its lease, names the best of them, and
    /// stands again; a follower that is now better than its leader stands at once; a candidate begins a new round. A leader
    /// that is still the best continues, and tells its new priority with a beat at once.
    pub fn set_priority(&mut self, now: Instant, priority: Priority) {
        if self.me.priority == priority {
            return;
        }
        let before = self.rank();
        self.me.priority = priority;
        if self.stands() {
            self.force_election(now, &before);
        }
        self.check_invariants();
    }

    fn force_election(&mut self, now: Instant, before: &Rank) {
        match &self.state {
            State::Elected(_) if self.is_outranked() => self.make_way(now),
            State::Elected(_) => self.beat_soon(now),
            State::Candidate { .. } => self.seek(now),
            State::Leaderless { .. } if self.rank().beats(before) => self.seek(now),
            State::Following(following) if self.rank().beats(&following.leader.rank) => self.seek(now),
            State::Leaderless { .. } | State::Following(_) | State::Leaving { .. } => {}
        }
    }

    /// Whether one of those who answer this leader would lead better.
    fn is_outranked(&self) -> bool {
        let best = self.members.best_local_rank();
        best.is_some_and(|best| best.beats(&self.rank())) && !planted(Mutant::ElectionKeepsOffice)
    }

    /// Gives up leadership for the best of the others, and stands again.
    fn make_way(&mut self, now: Instant) {
        let State::Elected(leadership) = &self.state else { return };
        let Some(epoch) = leadership.held_epoch() else { return self.left(now, Then::StandAgain) };
        self.order(LeaseOrder::Release { epoch });
        let until = now + self.settings.reply_wait;
        self.state = State::Leaving { epoch, until, then: Then::StandAgain };
    }
}
