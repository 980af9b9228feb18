//! Attempts that fail through no fault of their sample: how long the sample waits before the next attempt, and when a machine that refuses
//! again and again gets no work for a while.
//!
//! A sample that is put off is charged nothing, so without this rule it would be tried over and over. It waits a second, and twice as long
//! each further time. Refusals may be the machine's own fault: the first time the sample goes on at once, perhaps elsewhere, and a machine
//! that refuses for the third time in a row rests, a second first and twice as long each time, until it brings a good result.

use super::group::VmId;
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::vec::Vec;
use core::time::Duration;

/// Why an attempt ended through no fault of its sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hindrance {
    /// The machine refused it, or cannot run it.
    Refused,
    /// The content of the sample is out of the machine's reach.
    OutOfReach,
}

/// How often a sample was put off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferrals(u32);

impl Deferrals {
    /// The longest time that a sample waits.
    pub const PAUSE_MAX: Duration = Duration::from_secs(300);

    /// The sample is put off once more; returns how long it waits.
    pub fn put_off(&mut self, why: Hindrance) -> Duration {
        self.0 = self.0.saturating_add(1);
        match why {
            Hindrance::Refused => doubled(self.0 - 1, Deferrals::PAUSE_MAX),
            Hindrance::OutOfReach => doubled(self.0, Deferrals::PAUSE_MAX),
        }
    }
}

/// When a machine rests (gets no samples), and which of its VMs became ready meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// Attempts that it has refused since it last brought a good result.
    refusals: u32,
    until: Instant,
    /// VMs that became ready while it rests, each once.
    ready: Vec<VmId>,
}

impl Rest {
    /// This many refusals in a row may be chance.
    pub const CHANCE: u32 = 2;
    /// The longest time that a machine rests.
    pub const REST_MAX: Duration = Duration::from_secs(60);

    /// The machine refuses an attempt; returns how long it rests from now on.
    pub fn refused(&mut self, now: Instant) -> Duration {
        self.refusals = self.refusals.saturating_add(1);
        let rest = doubled(self.refusals.saturating_sub(Rest::CHANCE), Rest::REST_MAX);
        if rest > Duration::ZERO {
            self.until = now + rest;
        }
        rest
    }

    /// The machine has brought a good result. A rest that has begun is not cut short.
    pub fn works(&mut self) {
        if !planted(Mutant::RunqForgivesNoRefusal) {
            self.refusals = 0;
        }
    }

    /// Whether a VM that says that it is ready may be used; while the machine rests it is only noted.
    pub fn is_ready(&mut self, now: Instant, vm: VmId) -> bool {
        let rests = now < self.until;
        if rests && !self.ready.contains(&vm) {
            self.ready.push(vm);
        }
        !rests
    }

    /// The VMs that may be used now that the machine's rest is over.
    pub fn rested(&mut self, now: Instant) -> Vec<VmId> {
        if now < self.until { Vec::new() } else { core::mem::take(&mut self.ready) }
    }

    /// When [`Rest::rested`] returns something.
    pub fn next_deadline(&self) -> Option<Instant> {
        (!self.ready.is_empty()).then_some(self.until)
    }
}

/// Zero for no refusal, a second for one, and twice as much for each further one, up to `most`.
fn doubled(times: u32, most: Duration) -> Duration {
    match times {
        0 => Duration::ZERO,
        times => Duration::from_secs(1 << (times - 1).min(16)).min(most),
    }
}
