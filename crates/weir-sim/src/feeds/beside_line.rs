//! The feeds compared with a single line: for many loads and mixes, how long mail waits in the feeds, and how long it would wait in one
//! line, first come, first served, with the same workers.
//!
//! Each mix is run untuned (the default limits), tuned (limits found for it on another stream) and shifted (limits
//! found for another mix). The feeds are those of the live gate: the last takes every size, and limits give way.

use super::{ArrivalStream, Sizes, bounds, parallel};
use serde::Serialize;
use weir_core::feeds::{
    Arrival, Evolution, Limits, Load, Objective, Plan, SearchSpace, Service, Strategy, evaluate, mean_wait_s,
};

/// How much to simulate.
#[derive(Debug, Clone, Copy)]
pub struct BesideLine {
    /// Arrivals of each run.
    pub arrivals: usize,
    /// The seed of everything.
    pub seed: u64,
}

/// One load and mix.
#[derive(Debug, Clone, Serialize)]
pub struct LineRow {
    /// Workers, one a feed.
    pub workers: usize,
    /// The mix of sizes.
    pub mix: &'static str,
    /// λ as a part of what the workers bear.
    pub load: f64,
    /// Which limits: `untuned`, `tuned`, or `shifted`, tuned for another mix.
    pub limits_are: &'static str,
    /// The limits, in bytes.
    pub limits: Vec<u64>,
    /// The mean wait in one line.
    pub line_s: f64,
    /// The mean wait in the feeds.
    pub feeds_s: f64,
}

impl LineRow {
    /// How many times as long mail waits in one line.
    pub fn ratio(&self) -> f64 {
        if self.feeds_s > 0.0 { self.line_s / self.feeds_s } else { 1.0 }
    }

    /// Whether the feeds are no worse: by less than a millisecond or three per cent, which is what a run can tell.
    pub fn holds(&self) -> bool {
        self.feeds_s <= (1.03 * self.line_s).max(self.line_s + 0.001)
    }

    /// A name without blanks.
    pub fn name(&self) -> String {
        format!("{}_{}_{}_{}", self.workers, self.mix, (self.load * 100.0).round(), self.limits_are)
    }
}

/// The workers, loads and mixes.
const WORKERS: [usize; 2] = [2, 5];
const LOADS: [f64; 4] = [0.2, 0.5, 0.8, 0.95];
/// Arrivals on which limits are found.
const TUNED_ON: usize = 40_000;
const GENERATIONS: usize = 12;
const MEMBERS: usize = 20;

/// A mix of sizes, and what it may shift to.
struct Mix {
    name: &'static str,
    sizes: Sizes,
    shifted: Sizes,
}

fn mixes() -> [Mix; 3] {
    [
        // A light tail: a shift makes all of it three times as large.
        Mix { name: "light", sizes: Sizes::exponential(7_000.0), shifted: Sizes::exponential(21_000.0) },
        // The paper's example: large mail grows by a third and comes three times as often.
        Mix { name: "dual", sizes: Sizes::dual_gaussian(), shifted: Sizes::two_kinds(0.3, 2_000.0, 65_000.0) },
        // A heavy tail: what was small is as large as the large was.
        Mix { name: "heavy", sizes: Sizes::heavy_tailed(), shifted: Sizes::two_kinds(0.2, 16_000.0, 60_000.0) },
    ]
}

impl BesideLine {
    /// All rows.
    pub fn run(&self) -> Vec<LineRow> {
        let mixes = mixes();
        let all: Vec<(usize, f64, &Mix)> = WORKERS
            .into_iter()
            .flat_map(|workers| LOADS.map(|load| (workers, load)))
            .flat_map(|(workers, load)| mixes.iter().map(move |mix| (workers, load, mix)))
            .collect();
        parallel::map(&all, |(workers, load, mix)| self.rows(*workers, *load, mix)).into_iter().flatten().collect()
    }

    fn rows(&self, workers: usize, load: f64, mix: &Mix) -> [LineRow; 3] {
        let (usual, shifted) = (rate(&mix.sizes, workers, load), rate(&mix.shifted, workers, load));
        let untuned = Limits::default_for(workers, 250_000).expect("two feeds or more");
        let tuned = self.tune(&mix.sizes, &usual, workers);
        let row = |limits_are, limits: &Limits, sizes: &Sizes, load_of: &Load| {
            let stream = || ArrivalStream::new(sizes, load_of.lambda_per_s, self.seed).take(self.arrivals);
            let (mut line, mut feeds) = (0.0, 0.0);
            bounds::first_come(stream(), &load_of.service, workers, |_, wait_ns| line += wait_ns as f64);
            let plan = Plan::live(limits.clone(), Strategy::Shortest);
            evaluate(stream(), &load_of.service, &plan, |message| feeds += message.wait_ns as f64);
            let mean_s = |sum: f64| sum / 1e9 / self.arrivals.max(1) as f64;
            let (line_s, feeds_s) = (mean_s(line), mean_s(feeds));
            LineRow { workers, mix: mix.name, load, limits_are, limits: limits.bytes().to_vec(), line_s, feeds_s }
        };
        [
            row("untuned", &untuned, &mix.sizes, &usual),
            row("tuned", &tuned, &mix.sizes, &usual),
            row("shifted", &tuned, &mix.shifted, &shifted),
        ]
    }

    /// Limits for a mix, found on another stream of it.
    fn tune(&self, sizes: &Sizes, load: &Load, workers: usize) -> Limits {
        let table = sizes.fine_table();
        let space = SearchSpace::kept_for_small(table.smallest(), table.largest() as u64, workers, workers / 2);
        let mut rng = crate::rng::Rng::new(self.seed.wrapping_add(1));
        let trace: Vec<Arrival> = ArrivalStream::new(sizes, load.lambda_per_s, rng.next_u64()).take(TUNED_ON).collect();
        let mut unit = || rng.unit();
        let mut search = Evolution::new(&[vec![1.0; space.dimension()]], space.dimension(), MEMBERS, &mut unit);
        let cost = |point: &Vec<f64>| {
            let Some(limits) = space.limits(point) else { return f64::INFINITY };
            let plan = Plan { opens: false, ..Plan::live(limits, Strategy::Shortest) };
            mean_wait_s(&trace, table, load, &plan, &counts_all())
        };
        for generation in 0..=GENERATIONS {
            let points = if generation == 0 { search.ask_again() } else { search.ask(&mut unit) };
            search.tell(&points.iter().map(cost).collect::<Vec<f64>>());
        }
        space.limits(search.best().0).unwrap_or_else(|| Limits::unlimited(workers).expect("two feeds or more"))
    }
}

fn counts_all() -> Objective {
    Objective { last: weir_core::feeds::LastLimit::Free, ..Objective::default() }
}

/// The rate that makes this load, with the paper's scan times.
fn rate(sizes: &Sizes, workers: usize, load: f64) -> Load {
    let service = Service::new(0.1, 0.0002).expect("the paper's figures are sound");
    let mean_s = service.time_s(sizes.fine_table().between(0.0, f64::INFINITY).mean);
    Load { lambda_per_s: load * workers as f64 / mean_s, service }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_waits_no_longer_than_in_one_line_whatever_the_load_and_the_mix() {
        let rows = BesideLine { arrivals: 60_000, seed: 4 }.run();
        assert_eq!(rows.len(), 72);
        for row in &rows {
            assert!(row.holds(), "{row:?}");
            if (row.mix, row.load, row.limits_are) == ("heavy", 0.8, "tuned") {
                assert!(row.ratio() >= 2.0, "{row:?}");
            }
        }
        assert!(rows.iter().all(|row| row.line_s > 0.0), "a line in which nobody waits says nothing");
    }
}
