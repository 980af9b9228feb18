//! Removes sessions that need not be remembered any more.
//!
//! A hand walks round the table of sessions. It forgets a session that has no request at any front-end,
//! no debt and nothing to report: a new record of it would be the same. The hand takes a few steps for each
//! new session, so the table stays within a few times what is in use; when the table is full it walks up to
//! [`STEPS_WHEN_FULL`] steps and, failing that, forgives the debt of the first idle session that it met.
//!
//! The hand also visits every session before virtual time can roll over and reach old tags again: within 2^37 units of virtual time no
//! subnet's clock moves by more than 2^61, and tags are compared within 2^63.

use super::Fair;
use super::seats::Stand;

/// How many steps the hand makes for each new session.
const STEPS_FOR_NEW: u32 = 3;
/// How many steps are made before a full table refuses.
const STEPS_WHEN_FULL: u32 = 256;
/// How far virtual time may go (as a power of two) between visits that are made because of the rollover; and how many of them make
/// a whole round.
const ERA_BITS: u32 = 34;
const ERAS_A_ROUND: u64 = 8;

/// The position of the hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweeper {
    hand: u32,
    /// Virtual time at the last visit that was made because of the rollover.
    visited: u64,
}

impl Sweeper {
    pub(super) fn starting_at(origin: u64) -> Sweeper {
        Sweeper { hand: 0, visited: origin }
    }

    pub(super) fn restart(&mut self, origin: u64) {
        self.visited = origin;
    }
}

impl Fair {
    /// Moves the hand forward by `steps` slots.
    pub(super) fn sweep(&mut self, steps: u32) {
        for _ in 0..steps.min(self.sessions.slots()) {
            let slot = self.step();
            if self.is_idle(slot) && self.debt_tags(slot) == 0 {
                self.forget_session(slot);
            }
        }
    }

    /// Before a new session: a few steps, or as many as it takes in a full table.
    pub(super) fn sweep_for_room(&mut self) {
        self.sweep(STEPS_FOR_NEW);
        if self.sessions.len() < self.settings.sessions_max as usize {
            return;
        }
        let mut debtor = None;
        for _ in 0..STEPS_WHEN_FULL.min(self.sessions.slots()) {
            let slot = self.step();
            if !self.is_idle(slot) {
                continue;
            }
            if self.debt_tags(slot) == 0 {
                return self.forget_session(slot);
            }
            debtor = debtor.or(Some(slot));
        }
        if let Some(slot) = debtor {
            self.forget_session(slot);
        }
    }

    /// After virtual time has moved: makes as many visits as the distance needs.
    #[inline]
    pub(super) fn sweep_on_rollover(&mut self) {
        let now = self.clock.now();
        let eras = now.wrapping_sub(self.sweeper.visited) >> ERA_BITS;
        if eras > 0 {
            self.sweeper.visited = now;
            self.sweep_eras(eras);
        }
    }

    #[cold]
    fn sweep_eras(&mut self, eras: u64) {
        let slots = self.sessions.slots();
        if eras > 2 * ERAS_A_ROUND {
            // After a step this long, tags cannot be compared reliably any more. It has passed the debts of all but the lightest sessions
            // anyway.
            (0..slots).for_each(|slot| self.forgive(slot));
        }
        self.sweep((u64::from(slots) * eras.min(ERAS_A_ROUND) / ERAS_A_ROUND) as u32 + 1);
    }

    /// The next slot, with its tag brought up to date.
    fn step(&mut self) -> u32 {
        let slot = if self.sweeper.hand < self.sessions.slots() { self.sweeper.hand } else { 0 };
        self.sweeper.hand = slot + 1;
        if self.is_quiet(slot) {
            self.take_up_reset(self.sessions.at(slot).subnet);
            if self.sessions.stand(slot) == Stand::Aside {
                self.refresh_aside(slot);
            }
        }
        slot
    }

    fn forgive(&mut self, slot: u32) {
        if self.is_quiet(slot) {
            self.take_up_reset(self.sessions.at(slot).subnet);
            self.stop_lingering(slot);
            self.sessions.at_mut(slot).stamp = self.resets.wrapping_sub(1);
        }
    }

    fn is_idle(&self, slot: u32) -> bool {
        let session = self.sessions.at(slot);
        self.is_quiet(slot) && session.active_at == 0 && !session.dirty
    }

    /// Whether a session is known, and waits for nothing.
    fn is_quiet(&self, slot: u32) -> bool {
        !self.sessions.is_vacant(slot) && self.sessions.at(slot).fifo.is_empty()
    }

    fn forget_session(&mut self, slot: u32) {
        self.stop_lingering(slot);
        let session = self.sessions.at(slot);
        let (key, subnet, heard_from) = (session.key, session.subnet, session.heard_from);
        if heard_from > 0 {
            self.peers.iter_mut().for_each(|peer| peer.forget(key));
        }
        self.sessions.remove(slot);
        let left = &mut self.subnets.ledger_mut(subnet).sessions;
        *left -= 1;
        if *left == 0 {
            self.subnets.remove(subnet);
        }
    }
}
