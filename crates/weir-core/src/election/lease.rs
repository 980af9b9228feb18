//! The lease as the election sees it: the orders that it gives the shell (the code around this state machine), the answers that come back,
//! and which lease this node holds meanwhile.
//!
//! The database decides: there is one row, its epoch only grows, and a live lease is released or expires but is never stolen. If an order
//! fails or the database does not answer, the shell gives no answer either, and the election asks again.

use super::{Epoch, Settings};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use core::time::Duration;

/// What the shell should do with the lease row. It returns the order with the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseOrder {
    /// Take the lease if nobody holds it.
    Acquire {
        /// When the election asked: the grant counts from here.
        asked_at: Instant,
    },
    /// Renew the live lease of this epoch.
    Renew {
        /// The epoch held.
        epoch: Epoch,
        /// When the election asked: the grant counts from here.
        asked_at: Instant,
    },
    /// End the lease of this epoch now.
    Release {
        /// The epoch to end.
        epoch: Epoch,
    },
    /// Find out whether the database can be written; change nothing.
    Probe,
}

/// The database's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseAnswer {
    /// Acquired or renewed, for L from now by the database's clock.
    Granted {
        /// The epoch of the lease.
        epoch: Epoch,
        /// How many other machines the database has seen at work lately.
        others: u32,
    },
    /// Somebody else holds it.
    Refused {
        /// For this long, if it is not renewed.
        free_in: Duration,
        /// How many other machines the database has seen at work lately.
        others: u32,
    },
    /// The lease of that epoch is over; answers a renewal.
    Lost,
    /// Released, or was over already.
    Released,
    /// The probe went through.
    Reachable,
}

/// What an elected node knows of the lease. Wanted → Held → Wanted (lost, expired).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lease {
    /// Not held; the next order goes out at `ask_at`.
    Wanted {
        ask_at: Instant,
    },
    Held(Held),
}

/// A lease that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) epoch: Epoch,
    /// The end of acting, by the node's own clock.
    pub(crate) act_until: Instant,
    /// When the next renewal goes out.
    pub(crate) renew_at: Instant,
}

impl Held {
    pub(crate) fn granted(epoch: Epoch, asked_at: Instant, settings: &Settings) -> Held {
        let forever = planted(Mutant::ElectionActsOnExpiredLease);
        let act_until = if forever { Instant::NEVER } else { asked_at + settings.acting_time() };
        Held { epoch, act_until, renew_at: asked_at + settings.renew_after() }
    }

    pub(crate) fn acts(&self, now: Instant) -> bool {
        now < self.act_until
    }
}
