//! A clock for the throttle that follows the wall clock and does not jump.
//!
//! While the process runs it goes at most twice as fast as time passes, and at least half as fast. So a wall clock that is set forward by a
//! day does not empty every delay queue at once, and one that is set back does not make them stand still. A small correction is complete
//! after as long as it is large. A start trusts the wall clock: the time while no process ran counts in full.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as Monotonic};
use weir_core::time::Instant;
use weir_foundation::clock::Clock;

/// A clock that follows `wall`.
pub(crate) fn steady(wall: Clock) -> Clock {
    let shown = Mutex::new((Monotonic::now(), wall()));
    Arc::new(move || {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, time) = *shown;
        let now = Monotonic::now();
        *shown = (now, follow(time, now.saturating_duration_since(before), wall()));
        shown.1
    })
}

/// What is shown after so much time has passed.
fn follow(shown: Instant, passed: Duration, wall: Instant) -> Instant {
    wall.clamp(shown + passed / 2, shown + passed.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn the_wall_clock_counts_as_long_as_it_does_not_jump() {
        let second = Duration::from_secs(1);
        assert_eq!(follow(at(100), second, at(101)), at(101));
        assert_eq!(follow(at(100), second, at(86_400)), at(102), "set forward");
        assert_eq!(follow(at(100), second, at(1)), at(100) + second / 2, "set back");
        assert_eq!(follow(at(100), Duration::ZERO, at(86_400)), at(100));
        assert_eq!(follow(at(100), Duration::MAX, at(86_400)), Instant::NEVER, "the end of time is no overflow");
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_not_shown() {
        let wall = Arc::new(Mutex::new(at(1000)));
        let shown = steady({
            let wall = Arc::clone(&wall);
            Arc::new(move || *wall.lock().unwrap())
        });
        let begun = Monotonic::now();
        *wall.lock().unwrap() = at(86_400);
        let passed = shown().since(at(1000));
        assert!(passed <= begun.elapsed().saturating_mul(2) + Duration::from_secs(1), "{passed:?}");
    }
}
