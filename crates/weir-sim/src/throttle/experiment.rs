//! A synthetic population through the throttle: one run, and the sweeps that stand in for the paper's figures.

use super::habits::Habits;
use super::outbox::{Outbox, Sending};
use super::population::{self, PAPER_DAYS, PAPER_USERS};
use super::queue_length::QueueLength;
use super::report::UserReport;
use super::statistics::{Statistics, quantile};
use super::{Journal, run_outbox};
use crate::input::InputError;
use crate::rng::Rng;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::throttle::{Params, Recipients};
use weir_core::time::Instant;

/// The most user-days in a run, about five million mails.
pub const USER_DAYS_MAX: u64 = 1_000_000;
/// In a population without a virus, somebody looks so soon after a stop and releases what is held.
pub const REVIEW_AFTER: Duration = Duration::from_secs(300);

const DAY: Duration = Duration::from_secs(86_400);
const DAYS_A_MONTH: f64 = 365.25 / 12.0;
/// Figure 13 shows two days of so many users.
const FIGURE_13: (u64, usize) = (2, 500);

/// A population through the throttle.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PopulationRun {
    /// By user.
    pub users: BTreeMap<String, UserReport>,
    /// Always true: no real mail is in this.
    pub synthetic: bool,
    /// The seed that makes the same population again.
    pub seed: u64,
    /// How many days.
    pub days: u32,
    /// What the paper says of its data, measured here.
    pub statistics: Statistics,
    /// All delay queues together (Figure 13).
    pub delay_queue: QueueLength,
}

/// The stand-ins for the paper's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Always true: no real mail is in this.
    pub synthetic: bool,
    /// The seed that makes the same population again.
    pub seed: u64,
    /// What the paper says of its data, measured here.
    pub statistics: Statistics,
    /// Figures 1 and 2.
    pub habits: Habits,
    /// Single mails, by working set.
    pub figure5: Vec<DelayPoint>,
    /// Multiple mails, by maximal multi-slack.
    pub figure6: Vec<DelayPoint>,
    /// All mails, by allowed rate in recipients a minute.
    pub figure7: Vec<DelayPoint>,
    /// False alarms, by stop threshold.
    pub figure8: Vec<AlarmPoint>,
    /// Delay queues of 500 users over a day: two examples.
    pub figure13: Vec<QueueLength>,
}

/// Delays at one value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DelayPoint {
    /// The parameter's value.
    pub value: f64,
    /// Mails delayed, in percent.
    pub delayed_percent: Spread,
    /// Mean delay of all mails.
    pub mean_delay_s: Spread,
    /// Mean delay of the delayed ones, over the users who had any.
    pub mean_delay_of_delayed_s: Spread,
}

/// False alarms at one value of the stop threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AlarmPoint {
    /// The threshold.
    pub value: f64,
    /// Stops a month.
    pub alarms_a_month: Spread,
}

/// How a figure spreads over the users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The user least affected.
    pub best: f64,
    /// The user in the middle.
    pub median: f64,
    /// Nine users in ten are at or below this.
    pub nine_in_ten: f64,
    /// The user most affected.
    pub worst: f64,
}

/// Lets `users` synthetic users mail for `days` days.
pub fn run_population(
    users: u32,
    days: u32,
    seed: u64,
    params: Params,
    review_after: Duration,
) -> Result<PopulationRun, InputError> {
    let user_days = u64::from(users) * u64::from(days);
    if !(1..=USER_DAYS_MAX).contains(&user_days) {
        let problem = format!("{users} users for {days} days are {user_days} days of mail");
        return Err(InputError::new("population", problem, format!("stay between 1 and {USER_DAYS_MAX}")));
    }
    let mut statistics = Statistics::default();
    let (mut reports, mut journals) = (BTreeMap::new(), Vec::new());
    let width = users.to_string().len();
    for number in 0..users {
        let outbox = population::user(seed, number as usize, days);
        let (report, mut journal) = run_outbox(&outbox, params, Some(review_after))?;
        (journal.sent, journal.passes) = (Vec::new(), Vec::new());
        statistics.add(&outbox, days);
        reports.insert(format!("user-{:0width$}", number + 1), report);
        journals.push(journal);
    }
    let end = Instant::ZERO + DAY * days;
    let delay_queue = QueueLength::of(&journals, Instant::ZERO, end);
    Ok(PopulationRun { users: reports, synthetic: true, seed, days, statistics, delay_queue })
}

/// Varies one parameter of the paper's throttle after the other around `base`, for the 22 users of the paper's size.
pub fn figures(seed: u64, base: Params) -> Result<Figures, InputError> {
    let users: Vec<Outbox> = (0..PAPER_USERS).map(|n| population::user(seed, n, PAPER_DAYS)).collect();
    let single: Vec<Outbox> = users.iter().map(|user| user.only(true)).collect();
    let multi: Vec<Outbox> = users.iter().map(|user| user.only(false)).collect();
    // The paper's figures are about the paper's one class, and its mail was not fenced by the day.
    let base = Params { recipients: Recipients::Alike, messages_a_day: None, new_recipients_a_day: None, ..base };
    // Delays are measured without stops: a stop would end the measurement.
    let base_delay = Params { stop_at: *Params::STOP_AT.end(), ..base };
    let figure5 = [0, 1, 2, 3, 4, 5, 7, 10, 15, 20]
        .map(|set| delays(&single, f64::from(set), Params { working_set: set as usize, ..base_delay }));
    let figure6 = [1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40]
        .map(|slack| delays(&multi, f64::from(slack), Params { max_multi_slack: slack, ..base_delay }));
    let figure7 = [0.2, 0.33, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0].map(|rate| {
        let period = Duration::from_secs_f64(60.0 / rate);
        delays(&users, rate, Params { rate_period: period, multi_rate_period: period, ..base_delay })
    });
    let figure8 = [1, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50].map(|stop_at| alarms(&users, Params { stop_at, ..base }));
    let figure13 = (0..FIGURE_13.0).map(|n| random_days(&users, base, &mut Rng::new(seed ^ (n + 13))));
    let mut statistics = Statistics::default();
    users.iter().for_each(|user| statistics.add(user, PAPER_DAYS));
    Ok(Figures {
        synthetic: true,
        seed,
        statistics,
        habits: Habits::of(&users),
        figure5: figure5.into_iter().collect::<Result<_, _>>()?,
        figure6: figure6.into_iter().collect::<Result<_, _>>()?,
        figure7: figure7.into_iter().collect::<Result<_, _>>()?,
        figure8: figure8.into_iter().collect::<Result<_, _>>()?,
        figure13: figure13.collect::<Result<_, _>>()?,
    })
}

fn delays(users: &[Outbox], value: f64, params: Params) -> Result<DelayPoint, InputError> {
    let reports = reports(users, params)?;
    let spread = |f: fn(&UserReport) -> f64| Spread::of(&reports.iter().map(f).collect::<Vec<f64>>());
    let of_delayed = reports.iter().filter(|user| user.delayed_percent > 0.0).map(|user| user.mean_delay_of_delayed_s);
    Ok(DelayPoint {
        value,
        delayed_percent: spread(|user| user.delayed_percent),
        mean_delay_s: spread(|user| user.mean_delay_s),
        mean_delay_of_delayed_s: Spread::of(&of_delayed.collect::<Vec<f64>>()),
    })
}

fn alarms(users: &[Outbox], params: Params) -> Result<AlarmPoint, InputError> {
    let months = f64::from(PAPER_DAYS) / DAYS_A_MONTH;
    let rates: Vec<f64> = reports(users, params)?.iter().map(|user| user.stops as f64 / months).collect();
    Ok(AlarmPoint { value: f64::from(params.stop_at), alarms_a_month: Spread::of(&rates) })
}

fn reports(users: &[Outbox], params: Params) -> Result<Vec<UserReport>, InputError> {
    users.iter().map(|user| Ok(run_outbox(user, params, Some(REVIEW_AFTER))?.0)).collect()
}

/// As the paper did it: days at random from all users' history, each as one user's day, all in parallel.
fn random_days(users: &[Outbox], params: Params, rng: &mut Rng) -> Result<QueueLength, InputError> {
    let one = |_| {
        let (user, day) = (rng.pick(users), rng.below(u64::from(PAPER_DAYS)) as u32);
        Ok(run_outbox(&day_of(user, day), params, Some(REVIEW_AFTER))?.1)
    };
    let journals = (0..FIGURE_13.1).map(one).collect::<Result<Vec<Journal>, InputError>>()?;
    Ok(QueueLength::of(&journals, Instant::ZERO, Instant::ZERO + DAY))
}

fn day_of(user: &Outbox, day: u32) -> Outbox {
    let (from, to) = (Instant::ZERO + DAY * day, Instant::ZERO + DAY * (day + 1));
    let first = user.mails.partition_point(|mail| mail.at < from);
    let last = user.mails.partition_point(|mail| mail.at < to);
    let moved = |mail: &Sending| Sending { at: Instant::ZERO + mail.at.since(from), to: mail.to.clone() };
    Outbox { mails: user.mails[first..last].iter().map(moved).collect() }
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        let at = |q| quantile(values, q);
        Spread { best: at(0.0), median: at(0.5), nine_in_ten: at(0.9), worst: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(points: &[DelayPoint], value: f64) -> DelayPoint {
        *points.iter().find(|point| (point.value - value).abs() < 1e-9).expect("a point of the sweep")
    }

    /// Section 4 in numbers: what the paper says of its own users, demanded of the stand-in.
    #[test]
    fn the_figures_have_the_papers_shape() {
        (1..=5).for_each(|seed| demand_the_papers_shape(&figures(seed, Params::default()).unwrap()));
    }

    fn demand_the_papers_shape(figures: &Figures) {
        let (none, five) = (at(&figures.figure5, 0.0), at(&figures.figure5, 5.0));
        assert!(none.delayed_percent.worst < 10.0, "low even with no working set: {none:?}");
        assert!(five.delayed_percent.median < none.delayed_percent.median, "the set helps: {five:?}");
        let (small, paper) = (at(&figures.figure6, 1.0), at(&figures.figure6, 15.0));
        assert!(
            paper.delayed_percent.median < 5.0 && (10.0..=25.0).contains(&paper.delayed_percent.worst),
            "{paper:?}"
        );
        assert!(small.delayed_percent.median > 4.0 * paper.delayed_percent.median, "{small:?}");
        assert!(paper.mean_delay_s.median < 60.0, "well under a minute for most: {paper:?}");
        let (slow, one) = (at(&figures.figure7, 0.5), at(&figures.figure7, 1.0));
        assert!((0.3..=3.0).contains(&one.delayed_percent.median), "{one:?}");
        assert!(slow.delayed_percent.median > 1.3 * one.delayed_percent.median, "{slow:?}");
        assert!(one.mean_delay_of_delayed_s.median < 300.0, "under 5 minutes for most: {one:?}");
        let each = five.mean_delay_of_delayed_s.median;
        assert!((10.0..=25.0).contains(&each), "single mails wait 10 to 25 s: {each}");
        let twenty = figures.figure8.iter().find(|p| p.value as u32 == 20).unwrap().alarms_a_month;
        assert!(twenty.median <= 0.11 && (0.7..=2.5).contains(&twenty.worst), "{twenty:?}");
        for day in &figures.figure13 {
            assert!(day.max < 200 && day.mean < 5.0, "the queue seldom grows large: {} {}", day.max, day.mean);
        }
    }

    #[test]
    fn a_population_is_a_function_of_its_seed_and_absurd_ones_are_refused() {
        let run = |seed| run_population(5, 3, seed, Params::default(), REVIEW_AFTER).unwrap();
        assert_eq!(run(4), run(4));
        assert_ne!(run(4), run(5));
        assert_eq!(run(4).users.keys().next().unwrap(), "user-1");
        for (users, days) in [(0, 1), (1, 0), (u32::MAX, u32::MAX)] {
            assert!(run_population(users, days, 1, Params::default(), REVIEW_AFTER).is_err());
        }
    }
}
