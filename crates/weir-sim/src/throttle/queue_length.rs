//! How long the delay queues of many users are together, over time.

use super::user_run::Journal;
use serde::Serialize;
use weir_core::time::Instant;

/// Pictures need no more points than this.
const POINTS_MAX: usize = 1_440;

/// The length of all delay queues together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QueueLength {
    /// The most entries at any time.
    pub max: i64,
    /// The mean over time.
    pub mean: f64,
    /// Time in seconds and the most entries from then to the next point.
    pub points: Vec<(f64, i64)>,
}

impl QueueLength {
    /// The sum of these users' queues between two times.
    pub fn of<'a>(journals: impl IntoIterator<Item = &'a Journal>, from: Instant, to: Instant) -> QueueLength {
        let mut changes: Vec<(Instant, i64)> =
            journals.into_iter().flat_map(|journal| journal.queue_changes.iter().copied()).collect();
        // Releases first where times are equal, as the throttle does it.
        changes.sort_unstable();
        let mut length = QueueLength { points: vec![(from.as_secs_f64(), 0)], ..QueueLength::default() };
        let (mut now, mut last) = (0, from);
        let mut area = 0.0;
        for (at, change) in changes {
            area += now as f64 * at.min(to).since(last).as_secs_f64();
            (now, last) = (now + change, at.min(to));
            length.max = length.max.max(now);
            length.points.push((at.as_secs_f64(), now));
        }
        area += now as f64 * to.since(last).as_secs_f64();
        if last < to {
            length.points.push((to.as_secs_f64(), now));
        }
        length.mean = area / to.since(from).as_secs_f64().max(1e-9);
        length.points = thinned(&length.points, from.as_secs_f64(), to.as_secs_f64());
        length
    }
}

/// The most of each of equal stretches of time, if there are more points than a picture needs.
fn thinned(points: &[(f64, i64)], from_s: f64, to_s: f64) -> Vec<(f64, i64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let step_s = (to_s - from_s).max(1e-9) / POINTS_MAX as f64;
    let mut rest = points.iter().peekable();
    let mut level = 0;
    let most = |n: usize| {
        let end_s = from_s + step_s * (n + 1) as f64;
        let mut most = level;
        while let Some((_, length)) = rest.next_if(|point| point.0 < end_s) {
            level = *length;
            most = most.max(level);
        }
        (from_s + step_s * n as f64, most)
    };
    (0..POINTS_MAX).map(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn journal(changes: &[(u64, i64)]) -> Journal {
        Journal { queue_changes: changes.iter().map(|(s, by)| (at(*s), *by)).collect(), ..Journal::default() }
    }

    #[test]
    fn users_queues_add_up() {
        let users = [journal(&[(10, 2), (60, -1), (120, -1)]), journal(&[(60, 3), (100, -3)])];
        let length = QueueLength::of(&users, at(0), at(200));
        assert_eq!(length.max, 4);
        assert!((length.mean - (2.0 * 50.0 + 4.0 * 40.0 + 20.0) / 200.0).abs() < 1e-9);
        assert_eq!(length.points.last(), Some(&(200.0, 0)));
    }

    #[test]
    fn thinning_keeps_the_peaks() {
        let changes: Vec<(u64, i64)> = (0..10_000).map(|s| (s, if s % 2 == 0 { 7 } else { -7 })).collect();
        let length = QueueLength::of(&[journal(&changes)], at(0), at(10_000));
        assert_eq!((length.points.len(), length.max), (POINTS_MAX, 7));
        assert!(length.points.iter().all(|point| point.1 == 7));
    }
}
