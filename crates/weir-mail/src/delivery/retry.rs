//! When the next attempt at delivery is due, when the sender is notified of a delay, and when the message is given up.
//!
//! The waits grow by a list; past its end the last one repeats. Everything counts from the moment the message was
//! accepted, so a restart changes nothing.

use std::time::Duration;

use weir_core::time::Instant;
use weir_settings::settings;

settings! {
    /// The retry schedule.
    #[derive(PartialEq, Eq)]
    pub struct RetrySchedule {
        /// Waits after the first, second and further failed attempts; the last one repeats
        pub waits as "retry": Box<[Duration]> =
            durations(["1m", "5m", "15m", "30m", "1h", "2h", "4h"], "100ms"..="1d", 64).map(Into::into),
        /// When a message is given up and returned
        pub lifetime: Duration = duration("5d", "1m"..="30d"),
        /// When the sender is told of a delay; 0s is never
        pub warn_after: Option<Duration> = duration("4h", "0s"..="30d").optional(),
    }
}

impl RetrySchedule {
    /// When to try again after so many attempts. Never later than the end, so the last attempt comes just before it.
    pub fn next_attempt(&self, attempts: u32, accepted_at: Instant, now: Instant) -> Instant {
        let place = (attempts.max(1) as usize - 1).min(self.waits.len().saturating_sub(1));
        // A wait of nothing would be a busy loop.
        let wait = self.waits.get(place).copied().unwrap_or(Duration::from_secs(60)).max(Duration::from_millis(1));
        let end = self.end(accepted_at);
        if now < end { (now + wait).min(end) } else { now + wait }
    }

    /// When we give up.
    pub fn end(&self, accepted_at: Instant) -> Instant {
        accepted_at + self.lifetime
    }

    /// When the sender is told of the delay.
    pub fn warn_at(&self, accepted_at: Instant) -> Instant {
        self.warn_after.map_or(Instant::NEVER, |after| accepted_at + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn waits_grow_and_the_last_repeats() {
        let schedule = RetrySchedule::default();
        let wait = |attempts| schedule.next_attempt(attempts, at(0), at(0)).since(at(0)).as_secs() / 60;
        assert_eq!([0, 1, 2, 3, 7, 8, 1000].map(wait), [1, 1, 5, 15, 240, 240, 240]);
    }

    #[test]
    fn the_last_attempt_comes_at_the_end() {
        let schedule = RetrySchedule { lifetime: Duration::from_secs(100), ..RetrySchedule::default() };
        assert_eq!(schedule.next_attempt(1, at(0), at(70)), at(100));
        assert_eq!(schedule.next_attempt(1, at(0), at(100)), at(160));
        assert_eq!((schedule.end(at(5)), schedule.warn_at(at(5))), (at(105), at(14405)));
    }

    #[test]
    fn an_absurd_schedule_is_no_busy_loop() {
        let schedule = RetrySchedule { waits: Box::default(), warn_after: None, ..RetrySchedule::default() };
        assert_eq!(schedule.next_attempt(3, at(0), at(0)), at(60));
        let schedule = RetrySchedule { waits: [Duration::ZERO].into(), ..schedule };
        assert!(schedule.next_attempt(1, at(0), at(9)) > at(9));
        assert_eq!(schedule.warn_at(at(1)), Instant::NEVER);
    }
}
