//! The throttle's experiments: viruses, traces, a population, and the paper's table and figures.
//!
//! Users do not influence each other, so each runs alone through its own throttle. Source: Williamson,
//! sections 2, 4, 6 and 7.

mod experiment;
mod habits;
mod outbox;
pub mod picture;
pub mod population;
mod queue_length;
mod report;
mod roles;
mod sites;
mod statistics;
mod table1;
mod user_run;
mod virus;

pub use experiment::{
    AlarmPoint, DelayPoint, Figures, PopulationRun, REVIEW_AFTER, Spread, USER_DAYS_MAX, figures, run_population,
};
pub use habits::{Habits, LocalityPoint};
pub use outbox::{Outbox, Sending, by_user, by_user_with};
pub use queue_length::QueueLength;
pub use report::{ThrottleReport, UserReport};
pub use roles::{Person, Role, person};
pub use sites::{Curve, CurvePoint, Fared, RoleRun, SiteRun, WORM_RATES, Worm, run_site};
pub use statistics::{Statistics, median, quantile};
pub use table1::{Row, Table1, VirusFate, table1};
pub use user_run::{Journal, UserRun};
pub use virus::{MAILS_MAX, Outbreak, Virus};

use crate::input::InputError;
use crate::trace::Mail;
use std::time::Duration;
use weir_core::throttle::{Params, ParamsError};

/// What the throttle would have done to a trace. A stop is for ever: all later mail of the user is refused.
pub fn run(trace: &[Mail], params: Params) -> Result<ThrottleReport, InputError> {
    let runs = run_users(trace, params, None)?;
    Ok(ThrottleReport { users: runs.into_iter().map(|(user, report, _)| (user, report)).collect() })
}

/// The same with what happened when, by user. With `review_after`, somebody releases all held mail so long
/// after each stop.
pub fn run_users(
    trace: &[Mail],
    params: Params,
    review_after: Option<Duration>,
) -> Result<Vec<(String, UserReport, Journal)>, InputError> {
    let one = |(user, outbox): (&str, Outbox)| {
        let (report, journal) = run_outbox(&outbox, params, review_after)?;
        Ok((user.to_string(), report, journal))
    };
    by_user(trace).into_iter().map(one).collect()
}

/// One user's mail through the throttle; the user is first seen with the first mail.
pub fn run_outbox(
    outbox: &Outbox,
    params: Params,
    review_after: Option<Duration>,
) -> Result<(UserReport, Journal), InputError> {
    let mut run = UserRun::new(params, outbox.first_seen(), review_after).map_err(|e| params_error(&e))?;
    outbox.mails.iter().for_each(|mail| run.send(mail.at, &mail.to));
    Ok(run.finish())
}

fn params_error(error: &ParamsError) -> InputError {
    let problem = format!("{} is out of bounds", error.name);
    InputError::new("throttle parameters", problem, format!("it must be {}", error.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::time::Instant;

    fn mail(seconds: u64, user: &str, to: &[&str]) -> Mail {
        let at = Instant::ZERO + Duration::from_secs(seconds);
        Mail { at, user: user.into(), to: to.iter().map(|s| s.to_string()).collect() }
    }

    #[test]
    fn users_do_not_disturb_each_other_and_the_queue_drains_at_the_end() {
        let trace = [
            mail(100, "ann", &["a@x"]),
            mail(101, "bob", &["a@x"]),
            mail(110, "ann", &["b@x"]),
            mail(130, "ann", &["c@x"]),
            mail(140, "ann", &["a@x"]),
        ];
        let report = run(&trace, Params::default()).unwrap();
        let ann = &report.users["ann"];
        assert_eq!((ann.sent_at_once, ann.released, ann.held, ann.passed), (2, 2, 0, 4));
        assert!((ann.delayed_percent - 50.0).abs() < 1e-9);
        // The periods count from 100 s: one copy goes at 160 s, the other at 220 s.
        assert!((ann.mean_delay_s - (50.0 + 90.0) / 4.0).abs() < 1e-9);
        assert!((ann.mean_delay_of_delayed_s - 70.0).abs() < 1e-9);
        assert_eq!((report.users["bob"].passed, ann.stopped_at_s), (1, None));
    }

    #[test]
    fn a_stop_is_for_ever_unless_somebody_looks() {
        let many: Vec<String> = (0..40).map(|i| format!("{i}@x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let trace = [mail(50, "ann", &many), mail(1_000, "ann", &["a@x"])];
        let ann = run(&trace, Params::default()).unwrap().users["ann"].clone();
        assert_eq!((ann.held, ann.refused, ann.stopped_at_s), (25, 1, Some(50.0)));
        let (_, ann, journal) = run_users(&trace, Params::default(), Some(Duration::from_secs(300))).unwrap().remove(0);
        assert_eq!((ann.held, ann.refused, ann.stops, ann.released), (0, 0, 1, 25));
        assert!((ann.mean_delay_of_delayed_s - 300.0).abs() < 1e-9);
        assert_eq!(journal.queue_changes.iter().map(|c| c.1).sum::<i64>(), 0);
    }
}
