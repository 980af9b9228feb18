//! The experiments as charts.

use super::experiment::{DelayPoint, Figures, PopulationRun, Spread};
use super::queue_length::QueueLength;
use super::sites::{Curve, CurvePoint, SiteRun};
use super::table1::{Table1, VirusFate};
use super::virus::{Outbreak, Virus};
use weir_chart::{Axis, Chart, sheet};
use weir_core::throttle::Params;
use weir_core::time::Instant;

const POINTS_MAX: usize = 2_000;

/// A virus: the delay queue up to its stop, and what it sent beside what passed.
pub fn of_virus(virus: &Virus, params: &Params, outbreak: &Outbreak) -> String {
    let journal = &outbreak.journal;
    let ends = [journal.queue_changes.last().map(|c| c.0), journal.passes.last().map(|p| p.0)];
    let end_s = ends.into_iter().flatten().max().map_or(1.0, |at| 1.04 * at.as_secs_f64());
    let unit = if end_s > 600.0 { (60.0, "min") } else { (1.0, "s") };
    let time = || Axis::linear("time since the user was first seen", unit.1);
    let stopped = |chart: Chart| match journal.stops.first() {
        Some(at) => chart.mark("stopped", at.as_secs_f64() / unit.0),
        None => chart,
    };
    let queue = Chart::new("Delay queue", time(), Axis::linear("entries", ""))
        .level(format!("more than {} stop the user", params.stop_at), f64::from(params.stop_at))
        .steps("held", running(journal.queue_changes.iter().copied(), end_s, unit.0));
    let sent = Chart::new("Mail", time(), Axis::linear("mails so far", ""))
        .steps("sent by the virus", running(counted(&journal.sent), end_s, unit.0))
        .steps("passed", running(counted(&journal.passes), end_s, unit.0));
    let heading = format!("A virus that sends {} mails a minute to new addresses", virus.rate_per_min);
    sheet(&heading, &[stopped(queue), stopped(sent)])
}

/// Table 1: stopping times and passed mails by rate.
pub fn of_table1(table: &Table1) -> String {
    let mut rows = table.rows.clone();
    rows.sort_by(|a, b| a.rate_per_min.total_cmp(&b.rate_per_min));
    let points = |f: &dyn Fn(&super::Row) -> f64| rows.iter().map(|row| (row.rate_per_min, f(row))).collect::<Vec<_>>();
    let chart = |title: &str, y: Axis, f: fn(&VirusFate) -> f64| {
        Chart::new(title, Axis::log("virus", "mails/min"), y)
            .line("ours", points(&|row| f(&row.ours)))
            .dots("paper", points(&|row| f(&row.paper)))
    };
    let times = chart("Stopped after", Axis::log("time", "s"), |seen| seen.stopped_after_s);
    let passed = chart("Passed before", Axis::linear("mails", ""), |seen| seen.passed as f64);
    sheet("Table 1: two real viruses and a test virus", &[times, passed])
}

/// A trace: all delay queues together, in hours since its first mail.
pub fn of_trace(length: &QueueLength, stops: &[Instant]) -> String {
    let from_s = length.points.first().map_or(0.0, |point| point.0);
    let chart = queue_chart("Delay queues of all users together", length, from_s);
    let mark = |chart: Chart, at: &Instant| chart.mark("stop", (at.as_secs_f64() - from_s) / 3600.0);
    stops.iter().take(20).fold(chart, mark).to_svg()
}

/// A population: all delay queues together (Figure 13).
pub fn of_population(run: &PopulationRun) -> String {
    let title = format!("Delay queues of {} users together (synthetic, seed {})", run.users.len(), run.seed);
    queue_chart(&title, &run.delay_queue, 0.0).to_svg()
}

/// False alarms against people reached: one curve a class, and the paper's one class beside them.
pub fn of_site(run: &SiteRun, params: &Params) -> String {
    let reached = || Axis::linear("people that the worst worm of Table 1 reaches", "");
    type Measure = (&'static str, Axis, fn(&CurvePoint) -> f64);
    let measures: [Measure; 3] = [
        ("Mail of ordinary people that is delayed", Axis::linear("mails", "%"), |p| p.ordinary_delayed_percent),
        ("Mail of assistants that is delayed", Axis::linear("mails", "%"), |p| p.assistants_delayed_percent),
        ("Stops of people who did nothing wrong", Axis::linear("stops", "a user-year"), |p| p.stops_a_user_year),
    ];
    let chart = |(title, y, f): Measure| {
        let line = |chart: Chart, curve: &Curve| {
            chart.line(curve.class, curve.points.iter().map(|point| (point.reached as f64, f(point))))
        };
        run.curves.iter().fold(Chart::new(title, reached(), y), line).mark("60", 60.0)
    };
    let heading = format!(
        "Slack and threshold of one class from an eighth to twice what is set (synthetic, seed {}; strangers: slack {}, stop above {})",
        run.seed, params.max_slack, params.stop_at
    );
    sheet(&heading, &measures.into_iter().map(chart).collect::<Vec<_>>())
}

/// The sheet of Figures 1, 2, 5 to 8 and 13.
pub fn of_figures(figures: &Figures, params: &Params) -> String {
    let mut charts = figures.habits.charts();
    let set = || Axis::linear("working set", "addresses");
    charts.extend(delay_charts("Figure 5, single mails", set, &figures.figure5, params.working_set as f64));
    let slack = || Axis::linear("max_multi_slack", "recipients");
    let multi_slack = f64::from(params.max_multi_slack);
    charts.extend(delay_charts("Figure 6, mails to several", slack, &figures.figure6, multi_slack));
    let rate = || Axis::log("allowed rate", "recipients/min");
    let rate_per_min = 60.0 / params.rate_period.as_secs_f64();
    charts.extend(delay_charts("Figure 7, all mails", rate, &figures.figure7, rate_per_min));
    let alarms: Vec<_> = figures.figure8.iter().map(|point| (point.value, point.alarms_a_month)).collect();
    let alarm_axes = (Axis::linear("stop threshold", "entries"), Axis::linear("stops", "a month"));
    let chart =
        Chart::new("Figure 8: false alarms", alarm_axes.0, alarm_axes.1).mark("as set", f64::from(params.stop_at));
    charts.push(with_spread(chart, &alarms));
    for (n, day) in figures.figure13.iter().enumerate() {
        charts.push(queue_chart(&format!("Figure 13: delay queues of 500 users, example {}", n + 1), day, 0.0));
    }
    sheet(&format!("Synthetic population of 22 users, 302 days each (seed {})", figures.seed), &charts)
}

fn delay_charts(name: &str, x: impl Fn() -> Axis, points: &[DelayPoint], chosen: f64) -> Vec<Chart> {
    type Measure = (&'static str, Axis, fn(&DelayPoint) -> Spread);
    let measures: [Measure; 3] = [
        ("delayed", Axis::linear("mails", "%"), |point| point.delayed_percent),
        ("mean delay of all", Axis::linear("delay", "s"), |point| point.mean_delay_s),
        ("mean delay of the delayed", Axis::linear("delay", "s"), |point| point.mean_delay_of_delayed_s),
    ];
    let chart = |(what, y, f): Measure| {
        let spread: Vec<_> = points.iter().map(|point| (point.value, f(point))).collect();
        with_spread(Chart::new(format!("{name}: {what}"), x(), y).mark("as set", chosen), &spread)
    };
    measures.into_iter().map(chart).collect()
}

fn with_spread(chart: Chart, spread: &[(f64, Spread)]) -> Chart {
    let line = |f: fn(&Spread) -> f64| spread.iter().map(|(x, s)| (*x, f(s))).collect::<Vec<_>>();
    chart
        .line("worst user", line(|s| s.worst))
        .line("nine in ten", line(|s| s.nine_in_ten))
        .line("median user", line(|s| s.median))
        .line("best user", line(|s| s.best))
}

fn queue_chart(title: &str, length: &QueueLength, from_s: f64) -> Chart {
    let points = length.points.iter().map(|(at_s, entries)| ((at_s - from_s) / 3600.0, *entries as f64));
    Chart::new(title, Axis::linear("time", "h"), Axis::linear("entries", "")).steps("held", points)
}

/// The running sum of changes from nothing at the beginning to `end_s`, in units of time; not more points than
/// a picture needs.
fn running(changes: impl Iterator<Item = (Instant, i64)>, end_s: f64, unit_s: f64) -> Vec<(f64, f64)> {
    let sums = changes.scan(0, |sum, (at, change)| {
        *sum += change;
        Some((at.as_secs_f64() / unit_s, *sum as f64))
    });
    let mut all: Vec<(f64, f64)> = std::iter::once((0.0, 0.0)).chain(sums).collect();
    // Of several changes at one instant only the last shows.
    all.reverse();
    all.dedup_by_key(|point| point.0);
    all.reverse();
    let every = all.len().div_ceil(POINTS_MAX).max(1);
    let end = all.last().map(|last| (end_s / unit_s, last.1));
    all.iter().copied().step_by(every).chain(end).collect()
}

fn counted(events: &[(Instant, u64)]) -> impl Iterator<Item = (Instant, i64)> {
    events.iter().map(|(at, count)| (*at, *count as i64))
}
