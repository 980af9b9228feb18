//! Time as the core sees it: nanoseconds since a beginning that the caller chose.
//!
//! The shell picks the beginning (start of the process, of the simulation, the Unix epoch where state
//! is stored) and passes every "now" in. Durations are [`core::time::Duration`]. Additions saturate:
//! a hostile or absurd duration yields "the end of time", never a panic or a wrap into the past.

use core::ops::{Add, AddAssign};
use core::time::Duration;

/// A point in time, in nanoseconds since the caller's beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The beginning.
    pub const ZERO: Instant = Instant(0);
    /// The end of time: never reached, so "no deadline".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `seconds` after the beginning; negative and NaN become the beginning.
    pub fn from_secs_f64(seconds: f64) -> Instant {
        Instant((seconds * 1e9) as u64)
    }

    /// Seconds since the beginning.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_panics() {
        assert_eq!(Instant(5) + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
        assert_eq!(Instant::from_secs_f64(f64::NAN), Instant::ZERO);
        assert_eq!(Instant::from_secs_f64(-1.0), Instant::ZERO);
        assert_eq!(Instant::from_secs_f64(1.5), Instant(1_500_000_000));
    }
}
