//! A simulated host: whether it is on, its clock, its restarts, and the messages that wait for it while it is paused.

use super::{DriftingClock, WorldAddress};
use weir_core::time::Instant;

/// Up ⇄ Paused; Up, Paused → Down (crash); Down → Up (start, a new life).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    Up,
    /// It stands still, as after SIGSTOP; its clock goes on.
    Paused,
    /// It is off; its memory is gone.
    Down,
}

/// One host.
#[derive(Debug)]
pub struct Host<M> {
    pub(super) clock: DriftingClock,
    /// The true time at which its timer runs out.
    pub(super) timer: Option<Instant>,
    pub(super) held: Vec<(WorldAddress, M)>,
    power: Power,
    life: u64,
}

impl<M> Host<M> {
    pub(super) fn new(clock: DriftingClock) -> Host<M> {
        Host { clock, timer: None, held: Vec::new(), power: Power::Down, life: 0 }
    }

    /// Whether it runs.
    pub fn power(&self) -> Power {
        self.power
    }

    /// Counts its starts.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Its clock.
    pub fn clock(&self) -> &DriftingClock {
        &self.clock
    }

    pub(super) fn start(&mut self, clock: DriftingClock, now: Instant) {
        self.clock = DriftingClock::new(now, clock.read(Instant::ZERO), clock.rate());
        self.power = Power::Up;
        self.life += 1;
    }

    pub(super) fn crash(&mut self) {
        self.power = Power::Down;
        self.timer = None;
        self.held.clear();
    }

    pub(super) fn pause(&mut self) {
        if self.power == Power::Up {
            self.power = Power::Paused;
        }
    }

    pub(super) fn resume(&mut self) -> Vec<(WorldAddress, M)> {
        if self.power == Power::Paused {
            self.power = Power::Up;
        }
        std::mem::take(&mut self.held)
    }
}
