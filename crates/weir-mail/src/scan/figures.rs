//! What the scan measures about itself: recent arrivals, how long scans take, how long mail waits.
//!
//! All of it is bounded: the last [`TRACE_MAX`] arrivals, a few sums for the regression, histograms of fixed length for what is
//! recent. Predictions are based on it, so it follows the traffic: older values lose their weight in the fit, and the histograms are
//! renewed.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use weir_core::feeds::{Arrival, Service};
use weir_core::time::Instant;
use weir_scan::verdict::{Finding, Outcome};

/// Arrivals that are remembered.
pub(super) const TRACE_MAX: usize = 10_000;
/// λ is about so long back.
const RATE_OVER_S: f64 = 300.0;
/// A histogram is begun anew after this, and the one before still counts.
const TURN_EVERY: Duration = Duration::from_secs(600);

/// A mix is noted so often, has so many of the last arrivals, and so many are remembered: those of three days.
const MIX_EVERY: Duration = Duration::from_secs(6 * 3600);
const MIX_ARRIVALS: usize = 2_000;
const MIXES_MAX: usize = 12;

/// The measurements.
#[derive(Debug)]
pub(super) struct Figures {
    trace: VecDeque<Arrival>,
    /// Samples of the mail of the last days, the oldest first.
    mixes: VecDeque<Arc<[Arrival]>>,
    mix_noted: Instant,
    rate: Rate,
    /// Of all scans: a prediction knows one service.
    fit: Fit,
    /// Of feeds without scanners of their own, and of each that has some.
    common: Times,
    own: BTreeMap<usize, Times>,
    /// By class of size, and by feed.
    pub(super) classes: Vec<Timing>,
    pub(super) feeds: Vec<Timing>,
    pub(super) counts: Counts,
}

/// What became of mail since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScanCounts")]
pub struct Counts {
    /// Messages that came in.
    pub arrived: u64,
    /// That went on.
    pub passed: u64,
    /// That were quarantined.
    pub quarantined: u64,
    /// Attempts that failed.
    pub failed: u64,
}

impl Figures {
    /// `bound` are the feeds with scanners of their own.
    pub(super) fn new(feeds: usize, bound: &[usize], now: Instant) -> Figures {
        Figures {
            trace: VecDeque::new(),
            mixes: VecDeque::new(),
            mix_noted: now,
            rate: Rate { since: now, weight: 0.0, at: now },
            fit: Fit::default(),
            common: Times::default(),
            own: bound.iter().map(|feed| (*feed, Times::default())).collect(),
            classes: vec![Timing::new(now); feeds],
            feeds: vec![Timing::new(now); feeds],
            counts: Counts::default(),
        }
    }

    pub(super) fn arrived(&mut self, size: u64, now: Instant) {
        self.counts.arrived += 1;
        self.rate.count(now);
        if self.trace.len() >= TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(Arrival { at: now, size });
        if now.since(self.mix_noted) >= MIX_EVERY && self.trace.len() >= MIX_ARRIVALS {
            self.note_mix(now);
        }
    }

    fn note_mix(&mut self, now: Instant) {
        if self.mixes.len() >= MIXES_MAX {
            self.mixes.pop_front();
        }
        self.mixes.push_back(self.trace.iter().skip(self.trace.len() - MIX_ARRIVALS).copied().collect());
        self.mix_noted = now;
    }

    /// Samples of the mail of the last days.
    pub(super) fn mixes(&self) -> Vec<Arc<[Arrival]>> {
        self.mixes.iter().cloned().collect()
    }

    /// A scan ended. `stretch` is by how much others slowed it down.
    pub(super) fn scanned(&mut self, scan: &Scanned, now: Instant) {
        let (size, took_s) = (scan.size as f64, scan.took.as_secs_f64() / scan.stretch.max(1.0));
        self.fit.add(size, took_s);
        self.own.get_mut(&scan.feed).unwrap_or(&mut self.common).whole.add(size, took_s);
        for timing in [self.classes.get_mut(scan.class), self.feeds.get_mut(scan.feed)].into_iter().flatten() {
            timing.add(scan, now);
        }
    }

    /// Counts how long each scanner took in a feed. Answers that were known already and scanners that failed are left out.
    pub(super) fn looked(&mut self, size: u64, feed: usize, findings: &[Finding], stretch: f64) {
        let times = self.own.get_mut(&feed).unwrap_or(&mut self.common);
        let mut told: Vec<&str> = Vec::new();
        for finding in findings {
            let failed = matches!(finding.outcome, Outcome::Failed { .. });
            if failed || finding.took.is_zero() || told.contains(&finding.scanner.as_str()) {
                continue;
            }
            told.push(&finding.scanner);
            let fit = times.scanners.entry(finding.scanner.clone()).or_default();
            fit.add(size as f64, finding.took.as_secs_f64() / stretch.max(1.0));
        }
    }

    /// New limits make new classes.
    pub(super) fn limits_changed(&mut self, now: Instant) {
        self.classes.iter_mut().for_each(|timing| *timing = Timing::new(now));
    }

    /// t0 and ts as measured, of all scans.
    pub(super) fn service(&self) -> Service {
        self.fit.service()
    }

    /// t0 and ts of one feed: of its own scanners, if it has some and they have been measured.
    pub(super) fn service_of(&self, feed: usize) -> Service {
        let own = self.own.get(&feed).map(|times| &times.whole);
        own.into_iter().chain([&self.common.whole]).find(|fit| fit.is_known()).unwrap_or(&self.fit).service()
    }

    /// t0 and ts of each scanner, and of all side by side; apart for each feed with scanners of its own.
    pub(super) fn services(&self) -> Vec<ServiceTimes> {
        let own = self.own.iter().map(|(feed, times)| (Some(feed + 1), times));
        let mut all = Vec::new();
        for (feed, times) in [(None, &self.common)].into_iter().chain(own) {
            let each = times.scanners.iter().map(|(scanner, fit)| (scanner.as_str(), fit));
            let known = [("", &times.whole)].into_iter().chain(each).filter(|(_, fit)| fit.is_known());
            all.extend(known.map(|(scanner, fit)| ServiceTimes::new(scanner, feed, fit.service())));
        }
        all
    }

    /// Messages a second.
    pub(super) fn lambda_per_s(&self, now: Instant) -> f64 {
        self.rate.per_s(now)
    }

    /// The last arrivals, in order.
    pub(super) fn trace(&self) -> Vec<Arrival> {
        self.trace.iter().copied().collect()
    }

    pub(super) fn remembered(&self) -> usize {
        self.trace.len()
    }
}

/// What scans take where the same scanners look.
#[derive(Debug, Default)]
struct Times {
    whole: Fit,
    scanners: BTreeMap<String, Fit>,
}

/// What a scanner takes, by the size of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceTimes {
    /// The scanner; empty for all of them, side by side.
    pub scanner: String,
    /// The feed, counted from 1, if it is one with scanners of its own; none for all others.
    pub feed: Option<usize>,
    /// Seconds that it takes whatever the size.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub t0_s: f64,
    /// Seconds that each byte adds.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub ts_s_per_byte: f64,
}

impl ServiceTimes {
    fn new(scanner: &str, feed: Option<usize>, service: Service) -> ServiceTimes {
        let t0_s = service.time_s(0.0);
        ServiceTimes { scanner: scanner.to_owned(), feed, t0_s, ts_s_per_byte: service.time_s(1.0) - t0_s }
    }
}

/// A number that is not finite is written as `null`, and read so again.
pub(super) fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// One scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanned {
    pub(super) size: u64,
    pub(super) class: usize,
    pub(super) feed: usize,
    pub(super) waited: Duration,
    pub(super) took: Duration,
    pub(super) stretch: f64,
}

/// A counter that forgets exponentially.
#[derive(Debug)]
struct Rate {
    since: Instant,
    weight: f64,
    at: Instant,
}

impl Rate {
    fn count(&mut self, now: Instant) {
        self.weight = self.now(now) + 1.0;
        self.at = now;
    }

    fn now(&self, now: Instant) -> f64 {
        self.weight * (-now.since(self.at).as_secs_f64() / RATE_OVER_S).exp()
    }

    /// Corrected for the short time since the start.
    fn per_s(&self, now: Instant) -> f64 {
        let age = now.since(self.since).as_secs_f64();
        let seen = RATE_OVER_S * (1.0 - (-age / RATE_OVER_S).exp());
        if seen > 0.0 { self.now(now) / seen } else { 0.0 }
    }
}

/// t0 + ts·s by least squares over recent scans. Small messages weigh more, for the errors of large ones are larger.
#[derive(Debug, Default)]
struct Fit {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

/// About so many scans count.
const FIT_OVER: f64 = 5_000.0;
/// Sizes below this weigh alike.
const FIT_SCALE: f64 = 4_096.0;

impl Fit {
    fn add(&mut self, size: f64, time_s: f64) {
        let (keep, weight) = (1.0 - 1.0 / FIT_OVER, FIT_SCALE / (size + FIT_SCALE));
        self.w = self.w * keep + weight;
        self.x = self.x * keep + weight * size;
        self.y = self.y * keep + weight * time_s;
        self.xx = self.xx * keep + weight * size * size;
        self.xy = self.xy * keep + weight * size * time_s;
    }

    fn is_known(&self) -> bool {
        self.w > 0.0
    }

    fn service(&self) -> Service {
        // What clamd takes with few signatures, until we know better.
        let usual = || Service::new(0.002, 5e-8).unwrap_or_else(|| unreachable!("both are positive"));
        if !self.is_known() {
            return usual();
        }
        let spread = self.w * self.xx - self.x * self.x;
        let slope = (self.w * self.xy - self.x * self.y) / spread;
        let even = spread <= 1e-9 * self.w * self.xx;
        let (t0, ts) = match slope {
            slope if even || slope < 0.0 => (self.y / self.w, 0.0),
            slope if self.y < slope * self.x => (0.0, self.xy / self.xx),
            slope => ((self.y - slope * self.x) / self.w, slope),
        };
        // Scans that cost nothing still take their turn.
        Service::new(t0.max(1e-6), ts).unwrap_or_else(usual)
    }
}

/// Waits and scan times of what is recent.
#[derive(Debug, Clone)]
pub(super) struct Timing {
    pub(super) scanned: u64,
    wait: Recent,
    scan: Recent,
}

impl Timing {
    fn new(now: Instant) -> Timing {
        Timing { scanned: 0, wait: Recent::new(now), scan: Recent::new(now) }
    }

    fn add(&mut self, scan: &Scanned, now: Instant) {
        self.scanned += 1;
        self.wait.add(scan.waited, now);
        self.scan.add(scan.took, now);
    }

    pub(super) fn wait(&self) -> Spread {
        self.wait.spread()
    }

    pub(super) fn scan(&self) -> Spread {
        self.scan.spread()
    }
}

/// A distribution in four numbers, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The mean.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub mean_s: f64,
    /// Half are below.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub p50_s: f64,
    /// 95 % are below.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub p95_s: f64,
    /// 99 % are below.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub p99_s: f64,
}

/// Two histograms: the one that fills, and the one before it.
#[derive(Debug, Clone)]
struct Recent {
    filling: Histogram,
    before: Histogram,
    turned: Instant,
}

impl Recent {
    fn new(now: Instant) -> Recent {
        Recent { filling: Histogram::default(), before: Histogram::default(), turned: now }
    }

    fn add(&mut self, time: Duration, now: Instant) {
        if now.since(self.turned) >= TURN_EVERY {
            self.before = std::mem::take(&mut self.filling);
            self.turned = now;
        }
        self.filling.add(time);
    }

    fn spread(&self) -> Spread {
        let count = self.filling.count + self.before.count;
        if count == 0 {
            return Spread::default();
        }
        let below = |part: f64| {
            let mut left = (count as f64 * part).ceil() as u64;
            for bucket in 0..BUCKETS {
                let here = u64::from(self.filling.of(bucket)) + u64::from(self.before.of(bucket));
                if here >= left {
                    return Histogram::upper_s(bucket);
                }
                left -= here;
            }
            f64::INFINITY
        };
        let mean_s = (self.filling.sum_s + self.before.sum_s) / count as f64;
        Spread { mean_s, p50_s: below(0.5), p95_s: below(0.95), p99_s: below(0.99) }
    }
}

/// Buckets grow by a twelfth, from a microsecond to hours.
const BUCKETS: usize = 320;
const GROWTH: f64 = 1.08;

#[derive(Debug, Clone, Default)]
struct Histogram {
    /// Empty until something is counted.
    counts: Vec<u32>,
    count: u64,
    sum_s: f64,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let micros = time.as_secs_f64() * 1e6;
        let bucket = if micros <= 1.0 { 0 } else { (micros.ln() / GROWTH.ln()).ceil() as usize };
        self.counts.resize(BUCKETS, 0);
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum_s += time.as_secs_f64();
    }

    fn of(&self, bucket: usize) -> u32 {
        self.counts.get(bucket).copied().unwrap_or(0)
    }

    fn upper_s(bucket: usize) -> f64 {
        if bucket == 0 { 0.0 } else { GROWTH.powi(bucket as i32) / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_finds_t0_and_ts_and_follows_them() {
        let mut fit = Fit::default();
        for i in 0..20_000_u64 {
            let size = (i * 7919 % 50_000) as f64;
            fit.add(size, 0.1 + 0.0002 * size);
        }
        let service = fit.service();
        assert!((service.time_s(0.0) - 0.1).abs() < 1e-4 && (service.time_s(1e4) - 2.1).abs() < 1e-3, "{service:?}");
        for i in 0..40_000_u64 {
            let size = (i * 7919 % 50_000) as f64;
            fit.add(size, 0.01 + 0.0001 * size);
        }
        let service = fit.service();
        assert!((service.time_s(0.0) - 0.01).abs() < 2e-3 && (service.time_s(1e4) - 1.01).abs() < 2e-2, "{service:?}");
    }

    #[test]
    fn a_fit_of_nothing_of_one_size_or_of_nonsense_is_sound() {
        assert!(Fit::default().service().time_s(0.0) > 0.0);
        let mut same = Fit::default();
        (0..100).for_each(|_| same.add(5000.0, 0.5));
        assert!((same.service().time_s(5000.0) - 0.5).abs() < 1e-6);
        let mut falling = Fit::default();
        (1..100).for_each(|i| falling.add(f64::from(i) * 1000.0, 1.0 / f64::from(i)));
        assert!(falling.service().time_s(1e9) < 2.0);
        let mut free = Fit::default();
        free.add(10.0, 0.0);
        assert!(free.service().time_s(10.0) > 0.0);
    }

    #[test]
    fn a_feed_with_scanners_of_its_own_has_times_of_its_own_and_so_has_each_scanner() {
        let mut figures = Figures::new(3, &[2], Instant(0));
        assert_eq!(
            (figures.service_of(2), figures.services()),
            (figures.service(), Vec::new()),
            "nothing is known yet"
        );
        let finding = |scanner: &str, outcome, took_s| Finding {
            scanner: scanner.to_owned(),
            outcome,
            place: String::new(),
            took: Duration::from_secs_f64(took_s),
        };
        let scanned = |figures: &mut Figures, size: u64, feed: usize, took_s: f64| {
            let took = Duration::from_secs_f64(took_s);
            let scan = Scanned { size, class: 0, feed, waited: Duration::ZERO, took, stretch: 1.0 };
            figures.scanned(&scan, Instant(0));
            let found = [
                finding("yara", Outcome::Clean, took_s / 2.0),
                finding("yara", Outcome::Infected { name: "a second one".into() }, took_s / 2.0),
                finding("clamav", Outcome::Clean, took_s),
                finding("known", Outcome::Clean, 0.0),
                finding("broken", Outcome::Failed { problem: "hangs".into() }, 30.0),
            ];
            figures.looked(size, feed, &found, 1.0);
        };
        (1..200_u64).for_each(|i| scanned(&mut figures, i * 100, i as usize % 2, 0.01 + 1e-6 * (i * 100) as f64));
        assert_eq!(figures.service_of(2), figures.service_of(0), "until it is measured it is like the others");
        (1..200_u64).for_each(|i| scanned(&mut figures, i * 100, 2, 0.04 + 4e-6 * (i * 100) as f64));
        let time_s = |feed| figures.service_of(feed).time_s(10_000.0);
        assert!((time_s(0) - 0.02).abs() < 1e-6 && (time_s(1) - 0.02).abs() < 1e-6, "{} {}", time_s(0), time_s(1));
        assert!((time_s(2) - 0.08).abs() < 1e-6, "{}", time_s(2));
        let found: Vec<(String, Option<usize>, i64, i64)> = figures
            .services()
            .into_iter()
            .map(|t| (t.scanner, t.feed, (t.t0_s * 1e3).round() as i64, (t.ts_s_per_byte * 1e7).round() as i64))
            .collect();
        let row = |scanner: &str, feed, t0_ms, ts| (scanner.to_owned(), feed, t0_ms, ts);
        let expected = [
            [row("", None, 10, 10), row("clamav", None, 10, 10), row("yara", None, 5, 5)],
            [row("", Some(3), 40, 40), row("clamav", Some(3), 40, 40), row("yara", Some(3), 20, 20)],
        ];
        assert_eq!(found, expected.concat());
    }

    #[test]
    fn a_sample_of_the_mail_is_kept_every_few_hours_for_three_days() {
        let mut figures = Figures::new(2, &[], Instant(0));
        let minute = 60_000_000_000;
        (0..10_000).for_each(|i| figures.arrived(i, Instant(i * minute)));
        let mixes = figures.mixes();
        assert!(mixes.len() == MIXES_MAX && mixes.iter().all(|mix| mix.len() == MIX_ARRIVALS));
        let ends = |mix: &[Arrival]| mix.last().map(|last| last.at.0 / minute);
        assert_eq!(ends(&mixes[11]).unwrap() - ends(&mixes[0]).unwrap(), 11 * 360, "three days, the oldest first");
    }

    #[test]
    fn the_rate_is_right_from_the_first_minutes_on() {
        let mut rate = Rate { since: Instant(0), weight: 0.0, at: Instant(0) };
        for i in 1..=2000_u64 {
            rate.count(Instant(i * 500_000_000));
            if i > 100 {
                let per_s = rate.per_s(Instant(i * 500_000_000));
                assert!((per_s - 2.0).abs() < 0.05, "{per_s} after {i}");
            }
        }
    }

    #[test]
    fn what_is_recent_has_percentiles_and_turns_over() {
        let mut recent = Recent::new(Instant(0));
        (1..=100).for_each(|ms| recent.add(Duration::from_millis(ms), Instant(0)));
        let Spread { mean_s, p50_s, p95_s, p99_s } = recent.spread();
        assert!((mean_s - 0.0505).abs() < 1e-9);
        for (found, right) in [(p50_s, 0.050), (p95_s, 0.095), (p99_s, 0.099)] {
            assert!((found / right - 1.0).abs() < 0.09, "{found} {right}");
        }
        let later = |turns: u32| Instant(0) + TURN_EVERY * turns;
        recent.add(Duration::from_secs(9), later(1));
        assert!(recent.spread().p50_s < 1.0);
        recent.add(Duration::from_secs(9), later(2));
        assert!(recent.spread().p50_s > 8.0, "the first hundred are forgotten");
        recent.add(Duration::MAX, later(2));
        assert_eq!(Recent::new(Instant(0)).spread(), Spread::default());
    }
}
