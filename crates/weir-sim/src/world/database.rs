//! A model of the database: one lease row and its epoch, each statement atomic, its own clock.
//!
//! The statements are those of the store. A statement that the database cannot carry out gets no
//! answer. What was committed survives a restart.

use super::DriftingClock;
use std::time::Duration;
use weir_core::time::Instant;

/// The database.
#[derive(Debug)]
pub struct Database {
    clock: DriftingClock,
    epoch: u64,
    holder: u64,
    expires_at: Instant,
    troubles: Vec<(usize, Trouble)>,
}

/// What may be wrong with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// It restarts: statements are lost.
    Restarts,
    /// It refuses to write.
    ReadOnly,
    /// Every statement waits so long.
    Slow(Duration),
}

impl Database {
    /// A database whose lease nobody has ever held.
    pub fn new(clock: DriftingClock) -> Database {
        Database { clock, epoch: 0, holder: 0, expires_at: Instant::ZERO, troubles: Vec::new() }
    }

    /// Takes the lease for `holder` if it is free, or if its end is further away than two leases: the clock was set back. The
    /// refusal says for how long it is not.
    pub fn acquire(&mut self, now: Instant, holder: u64, lease: Duration) -> Result<u64, Duration> {
        let now = self.clock.read(now);
        if self.expires_at > now && self.expires_at <= now + lease.saturating_mul(2) {
            return Err(self.expires_at.since(now));
        }
        self.epoch += 1;
        (self.holder, self.expires_at) = (holder, now + lease);
        Ok(self.epoch)
    }

    /// Renews the live lease of this epoch and holder; false if it is over.
    pub fn renew(&mut self, now: Instant, (holder, epoch): (u64, u64), lease: Duration) -> bool {
        let held = self.is_held(now, holder, epoch);
        if held {
            self.expires_at = self.clock.read(now) + lease;
        }
        held
    }

    /// Ends the lease of this epoch and holder for ever, whatever its clock will say.
    pub fn release(&mut self, holder: u64, epoch: u64) {
        if self.epoch == epoch && self.holder == holder {
            self.expires_at = Instant::ZERO;
        }
    }

    /// The fence of every state change: whether this holder leads in this epoch now.
    pub fn is_held(&self, now: Instant, holder: u64, epoch: u64) -> bool {
        self.epoch == epoch && self.holder == holder && self.expires_at > self.clock.read(now)
    }

    /// Something goes wrong until [`Database::recover`] with the same name.
    pub fn suffer(&mut self, name: usize, trouble: Trouble) {
        self.troubles.push((name, trouble));
    }

    /// A trouble ends.
    pub fn recover(&mut self, name: usize) {
        self.troubles.retain(|(other, _)| *other != name);
    }

    /// Whether statements reach it.
    pub fn is_up(&self) -> bool {
        self.troubles.iter().all(|(_, t)| *t != Trouble::Restarts)
    }

    /// Whether it carries out writes.
    pub fn is_writable(&self) -> bool {
        self.is_up() && self.troubles.iter().all(|(_, t)| *t != Trouble::ReadOnly)
    }

    /// How long a statement waits.
    pub fn delay(&self) -> Duration {
        let slow = |(_, t): &(usize, Trouble)| if let Trouble::Slow(delay) = t { *delay } else { Duration::ZERO };
        self.troubles.iter().map(slow).sum()
    }

    /// Its clock.
    pub fn clock_mut(&mut self) -> &mut DriftingClock {
        &mut self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_lease_is_released_or_expires_and_is_never_stolen() {
        let mut database = Database::new(DriftingClock::new(Instant::ZERO, Instant(5), 1.0));
        let lease = Duration::from_secs(3);
        let at = Instant::from_secs_f64;
        assert_eq!(database.acquire(at(1.0), 7, lease), Ok(1));
        assert_eq!(database.acquire(at(2.0), 7, lease), Err(Duration::from_secs(2)), "not even by its holder");
        assert!(database.renew(at(3.0), (7, 1), lease));
        assert!(database.acquire(at(5.9), 8, lease).is_err());
        assert_eq!(database.acquire(at(6.1), 8, lease), Ok(2));
        assert!(!database.renew(at(6.2), (7, 1), lease) && !database.is_held(at(6.2), 7, 1));
        database.release(7, 2);
        assert!(database.is_held(at(6.3), 8, 2), "only its holder releases it");
        database.release(8, 2);
        assert!(!database.renew(at(6.4), (8, 2), lease), "what is released is over");
        assert_eq!(database.acquire(at(6.4), 9, lease), Ok(3));
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_nobody_out_for_long_and_gives_nothing_back() {
        let (lease, at) = (Duration::from_secs(3), Instant::from_secs_f64);
        let database = |back_s| {
            let mut database = Database::new(DriftingClock::new(Instant::ZERO, Instant::from_secs_f64(7_200.0), 1.0));
            assert_eq!(database.acquire(at(1.0), 7, lease), Ok(1));
            database.clock_mut().step(at(2.0), Duration::from_secs(back_s), true);
            database
        };
        assert_eq!(database(2).acquire(at(2.0), 8, lease), Err(Duration::from_secs(4)));
        assert_eq!(database(3_600).acquire(at(2.0), 8, lease), Ok(2));
        let mut released = database(2);
        released.release(7, 1);
        released.clock_mut().step(at(3.0), Duration::from_secs(3_600), true);
        assert!(!released.renew(at(3.0), (7, 1), lease), "what is released is over");
        assert_eq!(released.acquire(at(3.0), 8, lease), Ok(2));
    }
}
