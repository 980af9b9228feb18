//! How long Weir waits before it restarts a failed gate.
//!
//! The first wait is short, and each further one twice as long, up to a bound. If a gate ran for a good while before it failed, the waits
//! begin with the short one again. The caller passes in the time.

use std::time::Duration;
use weir_core::time::Instant;

/// The pause after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);
/// If a gate ran this long after the last wait, its next failure counts as the first.
const QUIET: Duration = Duration::from_secs(300);

/// How long Weir waits before it starts a failed gate again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackOff {
    /// The last failure, and the pause that followed it.
    last: Option<(Instant, Duration)>,
}

impl BackOff {
    /// The gate failed now. Returns how long to wait before it is started again.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let rest = match self.last {
            Some((at, rest)) if now.since(at + rest) < QUIET => (rest * 2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some((now, rest));
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_a_bound() {
        let (mut back_off, mut now) = (BackOff::default(), Instant::ZERO);
        let mut rests = Vec::new();
        for _ in 0..8 {
            let rest = back_off.failed(now);
            rests.push(rest.as_secs());
            now += rest;
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_quiet_while_begins_anew() {
        let mut back_off = BackOff::default();
        assert_eq!(back_off.failed(Instant::ZERO), FIRST);
        assert_eq!(back_off.failed(Instant::ZERO + FIRST + QUIET), FIRST);
        assert_eq!(back_off.failed(Instant::ZERO + FIRST * 2 + (QUIET * 2 - Duration::from_nanos(1))), FIRST * 2);
    }
}
