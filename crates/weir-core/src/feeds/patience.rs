//! What happens to a message whose scan fails: how often and for how long it is tried again before it is given up.

use crate::time::Instant;
use core::time::Duration;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Attempts after which a message is given up, if other messages can be scanned.
    pub attempts: u32,
    /// How long a message may wait after its acceptance, whatever the scanners do.
    pub retry_for: Duration,
    /// When we started: while we were down nobody could scan, so waiting times count from each start.
    pub begun: Instant,
}

/// What becomes of a message whose scan failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// It is tried again then.
    TryAt(Instant),
    /// It is given up.
    GiveUp,
}

/// Between two attempts at one message, in seconds.
const WAITS_S: [u64; 5] = [1, 5, 30, 120, 600];

impl Patience {
    /// A message that was accepted at `accepted` has failed this many times, the last time now; `out`: no scanner works.
    pub fn after_failure(&self, failures: u32, accepted: Instant, out: bool, now: Instant) -> AfterFailure {
        let too_late = self.too_late(now).is_some_and(|then| accepted <= then);
        if too_late || (failures >= self.attempts && !out) {
            return AfterFailure::GiveUp;
        }
        let wait = WAITS_S[(failures as usize).saturating_sub(1).min(WAITS_S.len() - 1)];
        AfterFailure::TryAt(now + Duration::from_secs(wait))
    }

    /// Messages accepted before this time have waited for too long; none while we have not run for that long.
    pub fn too_late(&self, now: Instant) -> Option<Instant> {
        let then = Instant(now.0.saturating_sub(u64::try_from(self.retry_for.as_nanos()).unwrap_or(u64::MAX)));
        (self.begun <= then).then_some(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn attempts_come_less_and_less_often_until_they_end() {
        let patience = Patience { attempts: 7, retry_for: Duration::from_secs(1 << 20), begun: Instant(0) };
        let next = |failures, out| patience.after_failure(failures, Instant(5 * S), out, Instant(10 * S));
        let waits = [1, 5, 30, 120, 600, 600].map(|wait| AfterFailure::TryAt(Instant((10 + wait) * S)));
        assert_eq!([1, 2, 3, 4, 5, 6].map(|failures| next(failures, false)), waits);
        assert_eq!(next(7, false), AfterFailure::GiveUp);
        assert_eq!(next(7, true), waits[5], "while no scanner works it is not the message's fault");
        assert_eq!(next(0, true), waits[0]);
    }

    #[test]
    fn what_has_waited_too_long_is_given_up_but_not_for_the_time_before_the_start() {
        let patience = Patience { attempts: 9, retry_for: Duration::from_secs(100), begun: Instant(1000 * S) };
        let next = |accepted: u64, now: u64| patience.after_failure(1, Instant(accepted * S), true, Instant(now * S));
        assert_eq!(next(1, 1099), AfterFailure::TryAt(Instant(1100 * S)), "we have only begun");
        assert_eq!(next(1, 1100), AfterFailure::GiveUp);
        assert_eq!(next(1050, 1149), AfterFailure::TryAt(Instant(1150 * S)));
        assert_eq!(next(1050, 1150), AfterFailure::GiveUp);
    }
}
