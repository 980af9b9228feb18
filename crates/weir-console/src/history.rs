//! The last minutes of all gates, for charts: a ring of samples, bounded in number. Charts of a longer time are drawn from [`crate::past`].

use crate::past::PastView;
use crate::pulse::Pulse;
use crate::reading::Reading;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use weir_chart::{Axis, Chart};

/// How far a chart looks back.
pub(crate) const MINUTES: f64 = 10.0;
/// Ten minutes with one sample every two seconds. There are fewer if taking one is slow or nobody watches.
const SAMPLES_MAX: usize = 320;
/// A rate is computed over at least this time.
const RATE_OVER: Duration = Duration::from_secs(8);
/// A share of service is computed over this time.
const SHARE_OVER: Duration = Duration::from_secs(20);
const SHARES_MAX: usize = 24;

/// Samples; the oldest comes first.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    samples: VecDeque<HistoryPoint>,
    /// Slot time that sessions had received, by key: only few samples, because there are many sessions.
    shares: VecDeque<(Instant, HashMap<String, f64>)>,
    /// The data for charts over a longer time, if somebody asked for that.
    past: Option<PastView>,
}

#[derive(Debug, Clone, Copy)]
struct HistoryPoint {
    at: Instant,
    reading: Reading,
}

impl History {
    /// Adds a sample.
    pub(crate) fn add(&mut self, pulse: &Pulse, now: Instant) {
        let before = self.samples.back().map_or_else(Reading::default, |sample| sample.reading);
        self.push(Reading::of(pulse, before), now);
        if !pulse.sessions.is_empty() || !self.shares.is_empty() {
            let served = pulse.sessions.iter().map(|session| (session.session.clone(), session.served_s)).collect();
            self.shares.push_back((now, served));
        }
        let old = |at: Instant| now.duration_since(at) > SHARE_OVER;
        while self.shares.len() > SHARES_MAX || self.shares.front().is_some_and(|(at, _)| old(*at)) {
            self.shares.pop_front();
        }
    }

    /// The same, with charts over a longer time.
    pub(crate) fn over(self, past: Option<PastView>) -> History {
        History { past, ..self }
    }

    /// The last sample.
    pub(crate) fn last(&self) -> Option<Reading> {
        self.samples.back().map(|sample| sample.reading)
    }

    fn push(&mut self, reading: Reading, now: Instant) {
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(HistoryPoint { at: now, reading });
    }

    /// The values of a gauge, by minutes before now.
    pub(crate) fn gauge(&self, value: fn(&Reading) -> f64, now: Instant) -> Vec<(f64, f64)> {
        match &self.past {
            Some(past) => past.gauge(value),
            None => self.recent(now).map(|sample| (minutes(sample.at, now), value(&sample.reading))).collect(),
        }
    }

    /// How fast a counter grew in each second.
    pub(crate) fn rate(&self, counter: fn(&Reading) -> f64, now: Instant) -> Vec<(f64, f64)> {
        match &self.past {
            Some(past) => past.rate(counter),
            None => self.recent_rate(counter, now),
        }
    }

    fn recent_rate(&self, counter: fn(&Reading) -> f64, now: Instant) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let mut from = 0;
        let samples: Vec<&HistoryPoint> = self.recent(now).collect();
        for (at, sample) in samples.iter().enumerate() {
            while from + 1 < at && sample.at.duration_since(samples[from + 1].at) >= RATE_OVER {
                from += 1;
            }
            let before = samples[from];
            let seconds = sample.at.duration_since(before.at).as_secs_f64();
            if seconds > 0.0 {
                let grown = (counter(&sample.reading) - counter(&before.reading)).max(0.0);
                points.push((minutes(sample.at, now), grown / seconds));
            }
        }
        points
    }

    /// How fast a counter grows now, in a second.
    pub(crate) fn rate_now(&self, counter: fn(&Reading) -> f64, now: Instant) -> f64 {
        self.recent_rate(counter, now).last().map_or(0.0, |(_, rate)| *rate)
    }

    /// The part of each session in the slot time of the last seconds.
    pub(crate) fn shares(&self) -> HashMap<String, f64> {
        let (Some((_, first)), Some((_, last))) = (self.shares.front(), self.shares.back()) else {
            return HashMap::new();
        };
        let gained =
            |(key, served): (&String, &f64)| (key.clone(), (served - first.get(key).copied().unwrap_or(0.0)).max(0.0));
        let gained: HashMap<String, f64> = last.iter().map(gained).collect();
        let sum: f64 = gained.values().sum();
        if sum <= 0.0 { HashMap::new() } else { gained.into_iter().map(|(key, gain)| (key, gain / sum)).collect() }
    }

    /// A chart over the last minutes, or since the start if that is shorter. Its axis goes up to at least five, because a shorter one
    /// would show halves of a mail.
    pub(crate) fn chart(&self, now: Instant, title: &str, (y, unit): (&str, &str)) -> Chart {
        Chart::new(title, Axis::ago(self.span(now)), Axis::linear(y, unit).range(0.0, 5.0))
    }

    /// How far back there is something to show, in whole steps, so that the axis does not move all the time.
    fn span(&self, now: Instant) -> f64 {
        if let Some(past) = &self.past {
            return past.span;
        }
        let oldest = self.recent(now).next().map_or(0.0, |sample| -minutes(sample.at, now));
        [1.0, 2.0, 5.0].into_iter().find(|step| oldest <= *step).unwrap_or(MINUTES)
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = &HistoryPoint> {
        self.samples.iter().filter(move |sample| minutes(sample.at, now) >= -MINUTES)
    }
}

fn minutes(at: Instant, now: Instant) -> f64 {
    -now.duration_since(at).as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64) -> (History, Instant) {
        let (mut history, start) = (History::default(), Instant::now());
        let mut now = start;
        for n in 0..count {
            now = start + Duration::from_secs(2 * n);
            history.push(Reading { mails: 10.0 * n as f64, held: n as f64, ..Reading::default() }, now);
        }
        (history, now)
    }

    #[test]
    fn the_ring_is_bounded_and_charts_look_back_ten_minutes() {
        let (history, now) = filled(2_000);
        assert_eq!(history.samples.len(), SAMPLES_MAX);
        let held = history.gauge(|reading| reading.held, now);
        assert!(held.first().unwrap().0 >= -MINUTES && *held.last().unwrap() == (0.0, 1_999.0), "{held:?}");
    }

    #[test]
    fn the_axis_begins_with_what_there_is() {
        for (samples, expected) in
            [(0, 1.0), (2, 1.0), (31, 1.0), (32, 2.0), (100, 5.0), (200, MINUTES), (2_000, MINUTES)]
        {
            let (history, now) = filled(samples);
            assert_eq!(history.span(now), expected, "{samples}");
        }
    }

    #[test]
    fn a_look_that_failed_changes_nothing() {
        let blind = Pulse { problems: vec![("mail", "the database does not answer".into())], ..Pulse::blind() };
        let (mut history, now) = filled(20);
        history.add(&blind, now + Duration::from_secs(2));
        history.push(Reading { mails: 200.0, held: 20.0, ..Reading::default() }, now + Duration::from_secs(4));
        let now = now + Duration::from_secs(4);
        let held: Vec<f64> = history.gauge(|reading| reading.held, now).into_iter().map(|(_, held)| held).collect();
        assert_eq!(held[18..], [18.0, 19.0, 19.0, 20.0], "no hole");
        assert!(history.rate(|reading| reading.mails, now).iter().all(|(_, rate)| *rate < 6.0), "and no jump");
    }

    #[test]
    fn rates_are_a_second_and_never_below_zero() {
        let (mut history, now) = filled(20);
        let rates = history.rate(|reading| reading.mails, now);
        assert!(rates.iter().all(|(_, rate)| (rate - 5.0).abs() < 1e-9), "{rates:?}");
        history.push(Reading::default(), now + Duration::from_secs(2));
        assert_eq!(history.rate_now(|reading| reading.mails, now + Duration::from_secs(2)), 0.0, "a restart");
        assert_eq!(History::default().rate_now(|reading| reading.mails, now), 0.0);
    }

    #[test]
    fn shares_are_of_what_was_served_lately() {
        let (mut history, now) = (History::default(), Instant::now());
        let at = |a: f64, b: f64| HashMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        history.shares.push_back((now, at(10.0, 0.0)));
        history.shares.push_back((now, at(11.0, 3.0)));
        let shares = history.shares();
        assert_eq!((shares["a"], shares["b"]), (0.25, 0.75));
        assert!(History::default().shares().is_empty());
    }
}
