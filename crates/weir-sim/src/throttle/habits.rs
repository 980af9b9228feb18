//! How people send mail: computes Figures 1 and 2 of the paper from any mail.
//!
//! Figure 1 has a line for each user, and shows how many mails follow the previous one within so many minutes. Figure 2 shows how many
//! recipients are among the last n addresses, as the mean over users and one standard deviation around it.

use super::outbox::{Outbox, Sending};
use serde::Serialize;
use std::collections::VecDeque;
use weir_chart::{Axis, Chart};
use weir_core::throttle::RecipientKey;

/// Minutes at which Figure 1 is drawn.
const MINUTES: [f64; 14] = [0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0];
/// Numbers of earlier addresses at which Figure 2 is drawn.
const ADDRESSES: [usize; 11] = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50];
/// With fewer mails a line shows nothing but chance.
const MAILS_LEAST: usize = 10;
/// More lines than this nobody can tell apart.
const USERS_DRAWN: usize = 22;

/// Figures 1 and 2.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Habits {
    /// Figure 1, mails to one recipient: by user, minutes and the percentage of mails within them.
    pub single_intervals: Vec<Vec<(f64, f64)>>,
    /// The same for mails to several.
    pub multi_intervals: Vec<Vec<(f64, f64)>>,
    /// Figure 2, mails to one recipient.
    pub single_locality: Vec<LocalityPoint>,
    /// The same for mails to several.
    pub multi_locality: Vec<LocalityPoint>,
}

/// A point of Figure 2.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LocalityPoint {
    /// How many of the last addresses are looked at.
    pub addresses: usize,
    /// Recipients that are among them: the mean over users, in percent.
    pub mean_percent: f64,
    /// The standard deviation over users.
    pub deviation: f64,
}

impl Habits {
    /// The habits of these users; those with hardly any mail are left out.
    pub fn of<'a>(users: impl IntoIterator<Item = &'a Outbox>) -> Habits {
        let mut users: Vec<&Outbox> = users.into_iter().collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.mails.len()));
        let (single, multi): (Vec<_>, Vec<_>) =
            users.iter().map(|user| (user.only(true).mails, user.only(false).mails)).unzip();
        Habits {
            single_intervals: intervals(&single),
            multi_intervals: intervals(&multi),
            single_locality: localities(&single),
            multi_locality: localities(&multi),
        }
    }

    /// Both figures as charts.
    pub fn charts(&self) -> Vec<Chart> {
        let figure1 = |kind: &str, users: &[Vec<(f64, f64)>]| {
            let x = Axis::log("time since the mail before", "min");
            let chart = Chart::new(format!("Figure 1, {kind}: a line a user"), x, Axis::linear("mails", "%"));
            let line = |chart: Chart, user: &Vec<(f64, f64)>| chart.line("", user.iter().copied());
            users.iter().take(USERS_DRAWN).fold(chart.mark("1 min", 1.0), line)
        };
        vec![
            figure1("mails to one", &self.single_intervals),
            figure1("mails to several", &self.multi_intervals),
            self.figure2(),
        ]
    }

    fn figure2(&self) -> Chart {
        let x = Axis::linear("addresses back", "");
        let chart = Chart::new("Figure 2: recipients among the last addresses", x, Axis::linear("recipients", "%"));
        [("mails to one", &self.single_locality), ("mails to several", &self.multi_locality)].into_iter().fold(
            chart,
            |chart, (name, points)| {
                let line = |by: f64| {
                    points
                        .iter()
                        .map(move |p| (p.addresses as f64, (p.mean_percent + by * p.deviation).clamp(0.0, 100.0)))
                };
                chart.line(name, line(0.0)).dashed("", line(1.0)).dashed("", line(-1.0))
            },
        )
    }
}

fn intervals(users: &[Vec<Sending>]) -> Vec<Vec<(f64, f64)>> {
    let within = |mails: &Vec<Sending>| {
        let apart: Vec<f64> = mails.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64() / 60.0).collect();
        let share = |minutes: f64| percent(apart.iter().filter(|apart| **apart <= minutes).count(), apart.len());
        MINUTES.iter().map(|minutes| (*minutes, share(*minutes))).collect()
    };
    users.iter().filter(|mails| mails.len() > MAILS_LEAST).map(within).collect()
}

fn localities(users: &[Vec<Sending>]) -> Vec<LocalityPoint> {
    let users: Vec<&Vec<Sending>> = users.iter().filter(|mails| mails.len() > MAILS_LEAST).collect();
    let point = |addresses: &usize| {
        let shares: Vec<f64> = users.iter().map(|mails| locality(mails, *addresses)).collect();
        let count = (shares.len() as f64).max(1.0);
        let mean_percent = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - mean_percent).powi(2)).sum::<f64>() / count;
        LocalityPoint { addresses: *addresses, mean_percent, deviation: variance.sqrt() }
    };
    ADDRESSES.iter().map(point).collect()
}

/// How many recipients, in percent, are among the last so many addresses of earlier mails.
pub(super) fn locality(mails: &[Sending], addresses: usize) -> f64 {
    let mut last = VecDeque::<RecipientKey>::new();
    let (mut matches, mut all) = (0, 0);
    for mail in mails {
        all += mail.to.len();
        matches += mail.to.iter().filter(|key| last.contains(*key)).count();
        last.extend(mail.to.iter().copied());
        let surplus = last.len().saturating_sub(addresses);
        last.drain(..surplus);
    }
    percent(matches, all)
}

/// A part of a whole in percent; 0 of nothing.
pub(super) fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::time::Instant;

    #[test]
    fn the_curves_count_what_they_say() {
        // Twelve single mails, a minute apart but for the last, to two addresses in turn.
        let at = |minute: u64| Instant(minute * 60_000_000_000);
        let mails =
            (0..12u64).map(|n| Sending { at: at(if n == 11 { 100 } else { n }), to: vec![RecipientKey(n % 2)] });
        let habits = Habits::of(&[Outbox { mails: mails.collect() }]);
        let line = &habits.single_intervals[0];
        let share = |minutes: f64| line.iter().find(|point| (point.0 - minutes).abs() < 1e-9).unwrap().1;
        assert!(share(0.5) == 0.0 && (share(1.0) - 100.0 * 10.0 / 11.0).abs() < 1e-9 && share(120.0) == 100.0);
        let [one, two] = [habits.single_locality[0], habits.single_locality[1]];
        assert_eq!((one.addresses, one.mean_percent, one.deviation), (1, 0.0, 0.0));
        assert!((two.mean_percent - 100.0 * 10.0 / 12.0).abs() < 1e-9);
        assert!(habits.multi_intervals.is_empty(), "nobody wrote to several");
        assert_eq!(habits.charts().len(), 3);
    }
}
