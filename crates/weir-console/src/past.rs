//! The past of all gates beyond the last few minutes, for charts: one row for each minute, computed from the looks taken in it.
//!
//! The row of a minute says how much each counter grew, and the highest value of each gauge. The row of an hour has the sum of the growth,
//! and the highest of the values. So a restart of a gate or of Weir makes neither a dent nor a peak in a chart.

use crate::reading::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_store::past::{Past, PastStep};
use weir_store::records::RecordsError;

/// How many points a chart has at most, because more could not be seen.
const POINTS_MAX: i64 = 360;

/// How far a chart looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Over {
    /// The last ten minutes, from the samples in memory.
    #[default]
    Minutes,
    Day,
    Week,
    Year,
}

impl Over {
    pub(crate) const ALL: [(Over, &'static str, &'static str); 4] = [
        (Over::Minutes, "", "10 minutes"),
        (Over::Day, "day", "day"),
        (Over::Week, "week", "week"),
        (Over::Year, "year", "year"),
    ];

    /// The time that an address names; the last minutes if it names none.
    pub(crate) fn named(name: &str) -> Over {
        Over::ALL.into_iter().find(|(_, known, _)| *known == name).map_or(Over::Minutes, |(over, ..)| over)
    }

    /// How many seconds back, and the rows to read; None for the last minutes.
    fn rows(self) -> Option<(i64, PastStep)> {
        match self {
            Over::Minutes => None,
            Over::Day => Some((86_400, PastStep::Minute)),
            Over::Week => Some((7 * 86_400, PastStep::Minute)),
            Over::Year => Some((365 * 86_400, PastStep::Hour)),
        }
    }
}

/// What happened in some time: the growth of counters, and the values of gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stretch {
    held: f64,
    mails: f64,
    scanned: f64,
    scan_waiting: f64,
    served: f64,
    refused: f64,
    web_waiting: f64,
    held_most: f64,
    kept: f64,
    slots_known: f64,
    slots_new: f64,
    slots_strange: f64,
    fair_known: f64,
    fair_new: f64,
    fair_looks: f64,
    samples_open: f64,
    samples_done: f64,
}

impl Stretch {
    /// Between two readings.
    fn between(before: &Reading, after: &Reading) -> Stretch {
        let grown = |counter: fn(&Reading) -> f64| (counter(after) - counter(before)).max(0.0);
        Stretch {
            held: after.held,
            mails: grown(|reading| reading.mails),
            scanned: grown(|reading| reading.scanned),
            scan_waiting: after.scan_waiting,
            served: grown(|reading| reading.served),
            refused: grown(|reading| reading.refused),
            web_waiting: after.web_waiting,
            held_most: after.held_most,
            kept: grown(|reading| reading.kept),
            slots_known: grown(|reading| reading.slots_known),
            slots_new: grown(|reading| reading.slots_new),
            slots_strange: grown(|reading| reading.slots_strange),
            fair_known: grown(|reading| reading.fair_known),
            fair_new: grown(|reading| reading.fair_new),
            fair_looks: grown(|reading| reading.fair_looks),
            samples_open: after.samples_open,
            samples_done: grown(|reading| reading.samples_done),
        }
    }

    /// Both times together.
    fn with(self, other: Stretch) -> Stretch {
        Stretch {
            held: self.held.max(other.held),
            mails: self.mails + other.mails,
            scanned: self.scanned + other.scanned,
            scan_waiting: self.scan_waiting.max(other.scan_waiting),
            served: self.served + other.served,
            refused: self.refused + other.refused,
            web_waiting: self.web_waiting.max(other.web_waiting),
            held_most: self.held_most.max(other.held_most),
            kept: self.kept + other.kept,
            slots_known: self.slots_known + other.slots_known,
            slots_new: self.slots_new + other.slots_new,
            slots_strange: self.slots_strange + other.slots_strange,
            fair_known: self.fair_known + other.fair_known,
            fair_new: self.fair_new + other.fair_new,
            fair_looks: self.fair_looks + other.fair_looks,
            samples_open: self.samples_open.max(other.samples_open),
            samples_done: self.samples_done + other.samples_done,
        }
    }

    /// The same as a reading, so that charts can use both in the same way.
    fn as_reading(&self) -> Reading {
        Reading {
            held: self.held,
            held_most: self.held_most,
            mails: self.mails,
            scanned: self.scanned,
            scan_waiting: self.scan_waiting,
            kept: self.kept,
            served: self.served,
            refused: self.refused,
            web_waiting: self.web_waiting,
            slots_known: self.slots_known,
            slots_new: self.slots_new,
            slots_strange: self.slots_strange,
            fair_known: self.fair_known,
            fair_new: self.fair_new,
            fair_looks: self.fair_looks,
            samples_open: self.samples_open,
            samples_done: self.samples_done,
        }
    }

    fn read(text: &str) -> Stretch {
        serde_json::from_str(text).unwrap_or_default()
    }

    fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Combines looks into minutes.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    last: Option<Reading>,
    /// The current minute, by its first second.
    minute: Option<(i64, Stretch)>,
}

impl Recorder {
    /// Adds a reading; returns the minute that is over with it, if one is.
    pub(crate) fn add(&mut self, reading: Reading, now_s: i64) -> Option<(i64, Stretch)> {
        let stretch = Stretch::between(&self.last.unwrap_or(reading), &reading);
        self.last = Some(reading);
        let begun = now_s - now_s.rem_euclid(60);
        match self.minute {
            Some((minute, so_far)) if minute == begun => {
                self.minute = Some((minute, so_far.with(stretch)));
                None
            }
            over => {
                self.minute = Some((begun, stretch));
                over
            }
        }
    }
}

/// Writes a minute that is over, and updates its hour.
pub(crate) async fn write(past: &Past, (at_s, minute): (i64, Stretch)) -> Result<(), RecordsError> {
    let hour_s = at_s - at_s.rem_euclid(3_600);
    let rows = past.since(PastStep::Minute, hour_s).await?;
    // Weir may have been restarted in this minute.
    let before = rows.iter().find(|(at, _)| *at == at_s).map(|(_, text)| Stretch::read(text));
    let minute = minute.with(before.unwrap_or_default());
    past.write(PastStep::Minute, at_s, &minute.written()).await?;
    let others = rows.iter().filter(|(at, _)| *at != at_s && *at < hour_s + 3_600);
    let hour = others.map(|(_, text)| Stretch::read(text)).fold(minute, Stretch::with);
    past.write(PastStep::Hour, hour_s, &hour.written()).await
}

/// A part of the past, for charts.
#[derive(Debug, Clone, Default)]
pub(crate) struct PastView {
    /// Minutes before now, how many seconds the point covers, and what happened; the oldest first.
    points: Vec<(f64, f64, Reading)>,
    /// How far the chart goes back, in minutes.
    pub(crate) span: f64,
}

impl PastView {
    /// The past that a chart asks for; none for the last minutes.
    pub(crate) async fn read(past: &Past, over: Over, now_s: i64) -> Result<Option<PastView>, RecordsError> {
        let Some((back_s, step)) = over.rows() else { return Ok(None) };
        let rows = past.since(step, now_s - back_s).await?;
        let rows = rows.iter().map(|(at, text)| (*at, Stretch::read(text)));
        Ok(Some(PastView::of(rows, (now_s, back_s, step))))
    }

    /// Combines rows, so that a chart has no more points than can be seen.
    fn of(rows: impl Iterator<Item = (i64, Stretch)>, (now_s, back_s, step): (i64, i64, PastStep)) -> PastView {
        let wide = (back_s / POINTS_MAX).max(step.seconds());
        let wide = wide - wide % step.seconds();
        let mut together = BTreeMap::<i64, (Stretch, i64)>::new();
        for (at, stretch) in rows {
            let (so_far, seconds) = together.entry(at - at.rem_euclid(wide)).or_default();
            (*so_far, *seconds) = (so_far.with(stretch), *seconds + step.seconds());
        }
        let point = |(at, (stretch, seconds)): (i64, (Stretch, i64))| {
            let ago = (now_s - at - wide / 2).max(0) as f64 / 60.0;
            (-ago, seconds as f64, stretch.as_reading())
        };
        PastView { points: together.into_iter().map(point).collect(), span: back_s as f64 / 60.0 }
    }

    /// The highest values of a gauge.
    pub(crate) fn gauge(&self, value: fn(&Reading) -> f64) -> Vec<(f64, f64)> {
        self.points.iter().map(|(ago, _, reading)| (*ago, value(reading))).collect()
    }

    /// How fast a counter grew, a second.
    pub(crate) fn rate(&self, counter: fn(&Reading) -> f64) -> Vec<(f64, f64)> {
        self.points.iter().map(|(ago, seconds, reading)| (*ago, counter(reading) / seconds.max(1.0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mails: f64, held: f64) -> Reading {
        Reading { mails, held, ..Reading::default() }
    }

    #[test]
    fn a_minute_is_what_grew_and_how_high_it_was() {
        let mut recorder = Recorder::default();
        assert_eq!(
            recorder.add(reading(1_000.0, 1.0), 600),
            None,
            "what was before the first look is not of this minute"
        );
        assert_eq!(recorder.add(reading(1_010.0, 9.0), 610), None);
        assert_eq!(recorder.add(reading(3.0, 2.0), 620), None, "a gate that starts anew makes no dent");
        assert_eq!(recorder.add(reading(13.0, 2.0), 630), None);
        let (at, minute) = recorder.add(reading(14.0, 0.0), 661).expect("it is over");
        assert_eq!((at, minute.mails, minute.held), (600, 20.0, 9.0));
        let (at, minute) = recorder.add(reading(14.0, 0.0), 900).expect("minutes without a look are left out");
        assert_eq!((at, minute.mails), (660, 1.0));
    }

    #[test]
    fn a_chart_has_a_point_where_one_can_be_seen() {
        let rows =
            (0..10_080).map(|minute| (minute * 60, Stretch { mails: 60.0, held: minute as f64, ..Stretch::default() }));
        let week = PastView::of(rows, (7 * 86_400, 7 * 86_400, PastStep::Minute));
        let rates = week.rate(|reading| reading.mails);
        assert!(rates.len() as i64 <= POINTS_MAX + 2 && rates.len() > 300, "{}", rates.len());
        assert!(
            rates.iter().all(|(ago, rate)| (rate - 1.0).abs() < 1e-9 && (-10_080.0..=0.0).contains(ago)),
            "{rates:?}"
        );
        assert_eq!(week.gauge(|reading| reading.held).last().map(|(_, held)| *held), Some(10_079.0), "no peak is lost");
        assert_eq!((Over::named("week"), Over::named("x")), (Over::Week, Over::Minutes));
    }

    #[test]
    fn what_a_newer_weir_wrote_is_read_as_far_as_it_is_known() {
        let stretch = Stretch::read(r#"{"mails":3.5,"elephants":7}"#);
        assert_eq!((stretch.mails, stretch.held), (3.5, 0.0));
        assert_eq!(Stretch::read("nonsense"), Stretch::default());
    }
}
