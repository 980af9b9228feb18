//! The picture of a replay: the delay queues of the users who were worst off, over time.

use super::{PastMail, QueueLine, Replay, printable};
use weir_chart::{Axis, Chart, sheet};

/// More points than this are thinned out: the picture is not wider.
const POINTS_MAX: usize = 1200;
/// From so many seconds on, a unit of so many seconds.
const UNITS: [(f64, f64, &str); 3] =
    [(259_200.0, 86_400.0, "days"), (21_600.0, 3600.0, "hours"), (180.0, 60.0, "minutes")];

/// The lengths of the worst delay queues as an SVG document, with the threshold; below them how the users mail, as the paper's Figures 1
/// and 2 show it.
pub fn pictures(past: &PastMail, replay: &Replay, stop_at: u32) -> String {
    let charts: Vec<Chart> =
        std::iter::once(queue_chart(past, replay, stop_at)).chain(replay.habits.charts()).collect();
    sheet("What the throttle would have done, and how these users mail", &charts)
}

fn queue_chart(past: &PastMail, replay: &Replay, stop_at: u32) -> Chart {
    let end_s = end_s(past, replay);
    let (unit_s, unit) = unit(end_s);
    let x = Axis::linear(format!("time since {}", past.start), unit);
    let y = Axis::linear("waiting in the delay queue", "recipients");
    let mut chart = Chart::new("Delay queues of the users who would have waited longest", x, y)
        .level(format!("stop above {stop_at}"), f64::from(stop_at));
    for line in &replay.queues {
        let points = thinned(line, end_s).into_iter().map(|(at, length)| (at / unit_s, length));
        chart = chart.steps(short(&line.user), points);
    }
    chart
}

/// The last moment at which anything happened.
fn end_s(past: &PastMail, replay: &Replay) -> f64 {
    let sent = past.mails.last().map_or(0.0, |mail| mail.at.as_secs_f64());
    let drained = replay.queues.iter().filter_map(|line| line.points.last()).map(|point| point.0);
    drained.fold(sent, f64::max)
}

/// The unit in which the time axis has readable numbers.
fn unit(span_s: f64) -> (f64, &'static str) {
    UNITS.iter().find(|(from_s, ..)| span_s >= *from_s).map_or((1.0, "seconds"), |(_, unit_s, name)| (*unit_s, *name))
}

/// The line from the beginning to the end of the picture; of many points, the highest of each small stretch.
fn thinned(line: &QueueLine, end_s: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    if line.points.len() <= POINTS_MAX {
        points.extend(&line.points);
    } else {
        let stretch = |at: f64| (at / end_s.max(1.0) * POINTS_MAX as f64) as usize;
        for part in line.points.chunk_by(|a, b| stretch(a.0) == stretch(b.0)) {
            let highest = part.iter().map(|point| point.1).fold(0.0, f64::max);
            points.extend(part.first().map(|first| (first.0, highest)));
            points.extend(part.last());
        }
    }
    let last = points.last().map_or(0.0, |point| point.1);
    points.push((end_s, last));
    points
}

/// The name as the margin can hold it.
fn short(user: &str) -> String {
    let name = printable(user);
    if name.chars().count() <= 20 { name } else { name.chars().take(19).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_its_peaks_and_its_end() {
        let points = (0..100_000).map(|i| (f64::from(i), if i == 77_777 { 25.0 } else { f64::from(i % 2) })).collect();
        let thin = thinned(&QueueLine { user: "u".into(), points }, 100_000.0);
        assert!(thin.len() <= 2 * POINTS_MAX + 4, "{}", thin.len());
        assert!(thin.iter().any(|point| point.1 == 25.0));
        assert_eq!(thin.last(), Some(&(100_000.0, 1.0)));
    }

    #[test]
    fn units_suit_the_span() {
        let units = [30.0, 600.0, 86_400.0, 86_400.0 * 400.0].map(|span| unit(span).1);
        assert_eq!(units, ["seconds", "minutes", "hours", "days"]);
        assert_eq!(short("somebody.with.a.long.name@example.org").chars().count(), 20);
    }
}
