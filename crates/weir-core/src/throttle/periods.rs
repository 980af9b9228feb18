//! A user's two period clocks, one for each kind of mail.
//!
//! Both run freely from the moment the user was first seen: the first period ends one period later, and
//! nothing that the user does shifts the phase. With equal rates, as in the paper, their periods always
//! end together. Passing any number of periods costs the same.

use super::MailKind;
use super::params::Params;
use crate::time::Instant;
use core::time::Duration;

/// The two clocks of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Periods {
    single: PeriodClock,
    multi: PeriodClock,
}

impl Periods {
    pub(super) fn new(params: &Params, now: Instant) -> Periods {
        Self::restore(params, now, (Instant::NEVER, Instant::NEVER))
    }

    /// The clocks at `now`; their current periods end at `ends`, but at the latest one period from now.
    pub(super) fn restore(params: &Params, now: Instant, ends: (Instant, Instant)) -> Periods {
        Periods {
            single: PeriodClock::new(params.rate_period, now, ends.0),
            multi: PeriodClock::new(params.multi_rate_period, now, ends.1),
        }
    }

    /// When the current periods end: of single, of multiple mail.
    pub(super) fn ends(&self) -> (Instant, Instant) {
        (self.single.end, self.multi.end)
    }

    /// When the current period of `kind` ends.
    pub(super) fn end(&self, kind: MailKind) -> Instant {
        self.clock(kind).end
    }

    /// When the period of `kind` ends that runs right after `time`.
    pub(super) fn end_after(&self, kind: MailKind, time: Instant) -> Instant {
        self.clock(kind).end_after(time)
    }

    /// The end of the `n`th period from the current one (0), if it is the same for both kinds.
    pub(super) fn nth_end(&self, n: usize) -> Option<Instant> {
        (self.single == self.multi).then(|| self.single.nth(n))
    }

    /// Ends all periods up to `now`; returns how many of each kind.
    pub(super) fn pass(&mut self, now: Instant) -> (u64, u64) {
        (self.single.pass(now), self.multi.pass(now))
    }

    /// The current periods end at `now`, and the next ones count from there.
    pub(super) fn end_now(&mut self, now: Instant) {
        (self.single.end, self.multi.end) = (now, now);
    }

    /// Moves all times back by this much.
    pub(super) fn earlier(&mut self, by: Duration) {
        self.single.earlier(by);
        self.multi.earlier(by);
    }

    /// Of the periods of single mail that end up to `now`, at most the first `count`: how many end together with one of multiple
    /// mail. With different rates this takes as many steps as there are such periods, which is the slack that was spent before.
    pub(super) fn ends_together(&self, now: Instant, count: u32) -> u64 {
        let count = self.single.ended(now).min(count.into());
        if self.single == self.multi {
            return count;
        }
        (0..count as usize).filter(|n| self.multi.ends_at(self.single.nth(*n))).count() as u64
    }

    fn clock(&self, kind: MailKind) -> &PeriodClock {
        match kind {
            MailKind::Single => &self.single,
            MailKind::Multi => &self.multi,
        }
    }
}

/// One clock: periods of equal length, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeriodClock {
    period_ns: u64,
    /// When the current period ends.
    pub(super) end: Instant,
}

impl PeriodClock {
    /// The clock at `now`; its current period ends at `end`, but at the latest one period from now.
    pub(super) fn new(period: Duration, now: Instant, end: Instant) -> PeriodClock {
        PeriodClock { period_ns: nanos(period), end: end.min(now + period) }
    }

    /// The end of the `n`th period from the current one (0).
    pub(super) fn nth(&self, n: usize) -> Instant {
        self.end + Duration::from_nanos(self.period_ns.saturating_mul(n as u64))
    }

    /// Moves every end back by this much.
    pub(super) fn earlier(&mut self, by: Duration) {
        self.end = Instant(self.end.0.saturating_sub(nanos(by)));
    }

    /// Whether a period ends at this instant, now or later.
    fn ends_at(&self, instant: Instant) -> bool {
        instant.0.checked_sub(self.end.0).is_some_and(|later| later % self.period_ns.max(1) == 0)
    }

    fn ended(&self, now: Instant) -> u64 {
        match now.0.checked_sub(self.end.0) {
            Some(past) if past < self.period_ns => 1,
            Some(past) => past / self.period_ns.max(1) + 1,
            None => 0,
        }
    }

    fn end_after(&self, now: Instant) -> Instant {
        Instant(self.end.0.saturating_add(self.period_ns.saturating_mul(self.ended(now))))
    }

    /// Ends all periods up to `now`; returns how many.
    pub(super) fn pass(&mut self, now: Instant) -> u64 {
        let ended = self.ended(now);
        if ended > 0 {
            self.end = self.end_after(now);
        }
        ended
    }
}

fn nanos(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    #[test]
    fn a_period_ends_at_its_last_instant_and_the_phase_stays() {
        let mut periods = Periods::new(&Params::default(), Instant(7));
        assert_eq!(periods.pass(Instant(6 + MINUTE)), (0, 0));
        assert_eq!(periods.pass(Instant(7 + MINUTE)), (1, 1));
        assert_eq!(periods.pass(Instant(7 + 100 * MINUTE + 5)), (99, 99));
        assert_eq!(periods.ends(), (Instant(7 + 101 * MINUTE), Instant(7 + 101 * MINUTE)));
        assert_eq!(periods.nth_end(2), Some(Instant(7 + 103 * MINUTE)));
        assert_eq!(periods.end_after(MailKind::Multi, Instant(7 + 101 * MINUTE)), Instant(7 + 102 * MINUTE));
    }

    #[test]
    fn periods_of_both_kinds_that_end_together_are_counted_with_any_rates() {
        let together = |single: u64, multi: u64, count| {
            let (rate_period, multi_rate_period) = (Duration::from_secs(single), Duration::from_secs(multi));
            let params = Params { rate_period, multi_rate_period, ..Params::default() };
            Periods::new(&params, Instant(7)).ends_together(Instant(7 + 10 * MINUTE), count)
        };
        assert_eq!([together(60, 60, 3), together(60, 60, 99), together(60, 60, 0)], [3, 10, 0]);
        assert_eq!([together(60, 1, 99), together(60, 120, 99), together(60, 25, 99)], [10, 5, 2]);
    }

    #[test]
    fn the_end_of_time_neither_wraps_nor_panics() {
        let params = Params { multi_rate_period: Duration::from_millis(1), ..Params::default() };
        let mut periods = Periods::new(&params, Instant(3));
        periods.pass(Instant::NEVER);
        assert_eq!(periods.pass(Instant::NEVER), (1, 1));
        assert_eq!(periods.nth_end(5), None);
    }
}
