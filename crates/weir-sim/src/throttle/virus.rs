//! The paper's test virus: mail to one new address after another at a fixed rate (section 6).

use super::report::UserReport;
use super::user_run::{Journal, UserRun};
use crate::input::InputError;
use std::time::Duration;
use weir_core::throttle::{Params, RecipientKey};
use weir_core::time::Instant;

/// A virus gives up after so many mails, so that every run ends.
pub const MAILS_MAX: u64 = 1_000_000;

/// A virus that sends mail to new addresses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Virus {
    /// How many a minute.
    pub rate_per_min: f64,
    /// How long after the user was first seen it starts: where in a period.
    pub phase: Duration,
    /// The user's own mail just before has taken the slack away.
    pub slack_spent: bool,
    /// When it gives up, if nothing stops it.
    pub gives_up_after: Duration,
}

/// What became of a virus.
#[derive(Debug, Clone)]
pub struct Outbreak {
    /// The user's books: the virus's mail alone.
    pub report: UserReport,
    /// What happened when.
    pub journal: Journal,
    /// How long after its first mail the virus was stopped.
    pub stopped_after_s: Option<f64>,
}

impl Virus {
    /// A virus that starts as the user is first seen and tries for a week.
    pub fn new(rate_per_min: f64) -> Virus {
        let week = Duration::from_secs(7 * 86_400);
        Virus { rate_per_min, phase: Duration::ZERO, slack_spent: false, gives_up_after: week }
    }

    /// Lets the virus send until it is stopped or gives up.
    pub fn run(&self, params: Params) -> Result<Outbreak, InputError> {
        let interval_s = self.interval_s()?;
        let mut user = UserRun::new(params, Instant::ZERO, None).map_err(|e| super::params_error(&e))?;
        let start = Instant::ZERO + self.phase;
        if self.slack_spent {
            user.spend_slack(start);
        }
        for n in 0..MAILS_MAX {
            let after = Duration::try_from_secs_f64(n as f64 * interval_s).unwrap_or(Duration::MAX);
            if after > self.gives_up_after || user.stopped() {
                break;
            }
            user.send(start + after, &[RecipientKey(n)]);
        }
        let (report, journal) = user.finish();
        let stopped_after_s = journal.stops.first().map(|at| at.since(start).as_secs_f64());
        Ok(Outbreak { report, journal, stopped_after_s })
    }

    fn interval_s(&self) -> Result<f64, InputError> {
        let rate = self.rate_per_min;
        if rate > 0.0 && rate <= 1e9 {
            return Ok(60.0 / rate);
        }
        let problem = format!("{rate} mails a minute is no rate of a virus");
        Err(InputError::new("virus rate", problem, "give more than 0 and at most a thousand million a minute"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_add_up() {
        let Outbreak { report, journal, stopped_after_s } = Virus::new(60.0).run(Params::default()).unwrap();
        assert_eq!((report.sent_at_once, report.released, report.held, report.passed), (1, 0, 21, 1));
        assert_eq!((stopped_after_s, report.stopped_at_s), (Some(21.0), Some(21.0)));
        assert_eq!(journal.queue_changes.iter().map(|c| c.1).sum::<i64>(), 21);
        assert!((report.delayed_percent - 100.0 * 21.0 / 22.0).abs() < 1e-9);
    }

    #[test]
    fn at_the_allowed_rate_it_goes_on_and_just_above_it_does_not() {
        let patient = Virus::new(1.0).run(Params::default()).unwrap();
        assert_eq!((patient.stopped_after_s, patient.report.held), (None, 0));
        assert_eq!(patient.report.passed, 7 * 1440 + 1);
        assert!(Virus::new(1.01).run(Params::default()).unwrap().stopped_after_s.is_some());
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e18] {
            assert_eq!(Virus::new(rate).run(Params::default()).unwrap_err().place, "virus rate");
        }
    }
}
