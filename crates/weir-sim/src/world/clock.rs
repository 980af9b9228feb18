//! A clock that runs at its own rate from its own beginning: that of a host, or that of the database.
//!
//! A host's clock counts the time during which the host sleeps or is paused, and never goes backwards, because the disciplines do not read
//! the calendar. The database does read it, so its clock may be set.

use crate::rng::Rng;
use std::time::Duration;
use weir_core::time::Instant;

/// A clock that drifts.
#[derive(Debug, Clone, Copy)]
pub struct DriftingClock {
    /// A true time …
    anchor: Instant,
    /// … and what the clock read then.
    reading: Instant,
    rate: f64,
}

impl DriftingClock {
    /// A clock that reads `reading` at the true time `anchor`.
    pub fn new(anchor: Instant, reading: Instant, rate: f64) -> DriftingClock {
        DriftingClock { anchor, reading, rate: rate.clamp(0.1, 10.0) }
    }

    /// A common clock: off by up to two hours and 200 parts in a million.
    pub fn random(rng: &mut Rng) -> DriftingClock {
        let reading = Instant(rng.below(7_200_000_000_000));
        DriftingClock::new(Instant::ZERO, reading, 1.0 + (rng.unit() - 0.5) * 4e-4)
    }

    /// What the clock reads at a true time.
    pub fn read(&self, at: Instant) -> Instant {
        Instant(self.reading.0.saturating_add((at.since(self.anchor).as_nanos() as f64 * self.rate) as u64))
    }

    /// The first true time at which the clock reads at least `reading`.
    pub fn when(&self, reading: Instant) -> Instant {
        if reading == Instant::NEVER {
            return Instant::NEVER;
        }
        let wait = reading.since(self.reading).as_nanos() as f64 / self.rate;
        let mut at = Instant(self.anchor.0.saturating_add(wait as u64));
        while self.read(at) < reading {
            at = Instant(at.0 + 1);
        }
        at
    }

    /// From now on it runs at this rate; it does not jump.
    pub fn set_rate(&mut self, now: Instant, rate: f64) {
        *self = DriftingClock::new(now, self.read(now), rate);
    }

    /// It is set, forward or back; not to before its beginning.
    pub fn step(&mut self, now: Instant, by: Duration, back: bool) {
        let (reading, by) = (self.read(now).0, u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        let reading = if back { reading.saturating_sub(by) } else { reading.saturating_add(by) };
        *self = DriftingClock::new(now, Instant(reading), self.rate);
    }

    /// Its rate: 1 is true.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_waiting_agree_at_every_rate() {
        let mut rng = Rng::new(3);
        for _ in 0..1_000 {
            let mut clock = DriftingClock::random(&mut rng);
            let now = Instant(rng.below(1_000_000_000_000));
            let before = clock.read(now);
            clock.set_rate(now, 0.9 + rng.unit() * 0.2);
            assert_eq!(clock.read(now), before, "no jump");
            let deadline = Instant(before.0 + rng.below(10_000_000_000));
            let at = clock.when(deadline);
            assert!(clock.read(at) >= deadline);
            assert!(at == now || clock.read(Instant(at.0 - 2)) < deadline);
        }
        assert_eq!(DriftingClock::random(&mut rng).when(Instant::NEVER), Instant::NEVER);
    }
}
