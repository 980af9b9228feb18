//! The paper's tables beside ours.
//!
//! Reproducible: Table 3 and the three waits of the dual-Gaussian example, measured as the paper did (100 runs of
//! 10 000 arrivals) and over one long run. Not reproducible: Tables 1–2 and Figures 6–7, which rest on sizes that
//! were not published; a labelled stand-in shows the same comparison.

use super::waits::Waits;
use super::{ArrivalStream, Experiment, Found, SearchProgress, Sizes, TuneTask, bounds, parallel};
use crate::input::InputError;
use crate::rng::Rng;
use serde::Serialize;
use std::time::Duration;
use weir_core::feeds::{LastLimit, Limits, Load, Mg1, Objective, Plan, Service, Strategy, evaluate};

/// How much to simulate.
#[derive(Debug, Clone, Copy)]
pub struct PaperTask {
    /// Arrivals of the long runs.
    pub arrivals: u64,
    /// The seed of everything.
    pub seed: u64,
}

/// Everything that `--paper` shows.
#[derive(Debug, Clone, Serialize)]
pub struct Paper {
    /// The three waits of the dual-Gaussian example.
    pub waits: Vec<Comparison>,
    /// Table 3: limits for the dual-Gaussian example, the paper's and ours.
    pub table_3: Vec<StrategyColumn>,
    /// The dual-Gaussian example under other disciplines and better limits.
    pub policies: Vec<Policy>,
    /// Table 1 as printed: limits for server #1. Not reproducible.
    pub table_1_paper_only: Vec<StrategyColumn>,
    /// Table 2 as printed: waits on server #1, first the mean, then feeds 1–4; the bound is without limits. Not
    /// reproducible.
    pub table_2_paper_only: Vec<StrategyColumn>,
    /// What stands in for the sizes of Tables 1–2 and Figures 6–7.
    pub stand_in: String,
    /// The three servers with the stand-in.
    pub servers: Vec<PaperServer>,
}

/// A wait of the paper beside ours.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What was run.
    pub what: String,
    /// s_1, s_2, s_3 in bytes; s_4 is 250 000.
    pub limits: Vec<u64>,
    /// The paper's mean wait.
    pub paper_s: f64,
    /// Ours, the mean of 100 runs of 10 000 arrivals, as the paper measured.
    pub runs_s: f64,
    /// The least mean wait among those runs.
    pub runs_least_s: f64,
    /// The greatest.
    pub runs_most_s: f64,
    /// Ours over one long run.
    pub long_s: f64,
    /// By the M/G/1 formula, where it holds.
    pub formula_s: Option<f64>,
    /// Whether the mean of the runs is within 10 % of the paper's figure.
    pub runs_within_10_percent: bool,
    /// Whether the long run is.
    pub long_within_10_percent: bool,
}

/// A column of a table: one strategy.
#[derive(Debug, Clone, Serialize)]
pub struct StrategyColumn {
    /// The strategy, and whose figures.
    pub name: String,
    /// The figures, from the first row down.
    pub values: Vec<f64>,
}

/// One discipline and its mean wait over a long run.
#[derive(Debug, Clone, Serialize)]
pub struct Policy {
    /// What it is.
    pub name: String,
    /// Its limits, if it has any.
    pub limits: Vec<u64>,
    /// The paper's figure, if it has one.
    pub paper_s: Option<f64>,
    /// Ours.
    pub mean_wait_s: f64,
    /// Mean wait of the largest 5 % of messages.
    pub largest_5_percent_wait_s: f64,
}

/// One of the paper's mail servers with the stand-in sizes.
#[derive(Debug, Clone, Serialize)]
pub struct PaperServer {
    /// Its number in Figures 6 and 7.
    pub server: usize,
    /// λ, messages a second.
    pub lambda: f64,
    /// t0 in seconds.
    pub t0_s: f64,
    /// ts in seconds a byte.
    pub ts_s_per_byte: f64,
    /// The bound on λ_max (Figure 7's dashed line).
    pub lambda_bound: f64,
    /// No limits, the default limits, and each strategy with its best limits.
    pub strategies: Vec<ServerStrategy>,
}

/// One strategy on one server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerStrategy {
    /// What it is.
    pub name: String,
    /// The limits in bytes.
    pub limits: Vec<u64>,
    /// The mean wait; none if a feed is overloaded.
    pub mean_wait_s: Option<f64>,
    /// The mean waits of feeds 1 to 4.
    pub per_feed_wait_s: Vec<f64>,
    /// The largest λ that the limits can bear.
    pub lambda_max: f64,
}

const LAST: u64 = 250_000;
const DEFAULT: [u64; 3] = [2000, 10_000, 50_000];
const SIZE: [u64; 3] = [2062, 9622, 51_904];
const SIZE_LOAD: [u64; 3] = [2891, 6431, 97_328];
const SERVERS: [(f64, f64, f64); 3] = [(1.5, 0.1, 0.0002), (0.6, 1.0, 0.0002), (0.0255, 5.23, 0.000_131_4)];
const RUNS: u64 = 100;
const RUN_ARRIVALS: usize = 10_000;

impl PaperTask {
    /// Runs all of it; `progress` is told during the searches.
    pub fn run(&self, progress: &mut dyn FnMut(SearchProgress)) -> Result<Paper, InputError> {
        Reproduction::new(*self).run(progress)
    }
}

struct Reproduction {
    task: PaperTask,
    gaussian: Sizes,
    stand_in: Sizes,
}

impl Reproduction {
    fn new(task: PaperTask) -> Reproduction {
        Reproduction { task, gaussian: Sizes::dual_gaussian(), stand_in: Sizes::heavy_tailed() }
    }

    fn run(&self, progress: &mut dyn FnMut(SearchProgress)) -> Result<Paper, InputError> {
        let rows = [
            ("default limits, by size", Strategy::Size, DEFAULT, 2.4919),
            ("the paper's optimum limits, by size", Strategy::Size, SIZE, 1.71),
            ("the paper's optimum limits, by size and load", Strategy::SizeLoad, SIZE_LOAD, 0.76),
        ];
        let found = self.tune(&self.gaussian, load(0), 10, progress)?;
        let waits = parallel::map(&rows, |(what, strategy, limits, paper_s)| {
            self.comparison(what, &plan(limits, *strategy), *paper_s)
        });
        let policies = self.policies(&waits, &found);
        Ok(Paper {
            waits,
            table_3: table_3(&found),
            policies,
            table_1_paper_only: columns(&TABLE_1),
            table_2_paper_only: columns(&TABLE_2),
            stand_in: "log-normal body (median 2.7 kB) up to 10 kB, Pareto tail (α 1) above, cut at 2 MB".into(),
            servers: (0..SERVERS.len()).map(|i| self.server(i, progress)).collect::<Result<_, _>>()?,
        })
    }

    fn comparison(&self, what: &str, plan: &Plan, paper_s: f64) -> Comparison {
        // The paper drew its sizes by inverse interpolation of the table.
        let table = self.gaussian.table();
        let drawn = Sizes::from_table(table.clone());
        let mut seeds = Rng::new(self.task.seed);
        let runs: Vec<f64> = (0..RUNS).map(|_| mean_wait(&drawn, plan, RUN_ARRIVALS, seeds.next_u64())).collect();
        let runs_s = runs.iter().sum::<f64>() / RUNS as f64;
        let long_s = mean_wait(&self.gaussian, plan, self.task.arrivals as usize, seeds.next_u64());
        let formula = Mg1::new(table, load(0)).mean_wait_s(&plan.limits, &Objective::default());
        let near = |ours: f64| (ours / paper_s - 1.0).abs() <= 0.1;
        Comparison {
            what: what.into(),
            limits: plan.limits.bytes()[..3].to_vec(),
            paper_s,
            runs_s,
            runs_least_s: runs.iter().copied().fold(f64::INFINITY, f64::min),
            runs_most_s: runs.iter().copied().fold(0.0, f64::max),
            long_s,
            formula_s: (plan.strategy == Strategy::Size).then_some(formula),
            runs_within_10_percent: near(runs_s),
            long_within_10_percent: near(long_s),
        }
    }

    /// The dual-Gaussian example under everything that we know, over long runs of one stream.
    fn policies(&self, waits: &[Comparison], found: &[Found]) -> Vec<Policy> {
        let [default, size, size_load] =
            [&waits[0], &waits[1], &waits[2]].map(|row| (&row.limits[..], Some(row.paper_s)));
        let open = (&[LAST; 3][..], None);
        let best = |i: usize| (&found[i].limits[..3], None);
        let feeds = |label, strategy, (limits, paper_s)| (label, Discipline::Feeds(plan(limits, strategy)), paper_s);
        let asked = [
            feeds("default limits, by size", Strategy::Size, default),
            feeds("paper's limits, by size", Strategy::Size, size),
            feeds("paper's limits, size-load", Strategy::SizeLoad, size_load),
            feeds("least loaded, no limits", Strategy::SizeLoad, open),
            ("one queue, first come", Discipline::FirstCome, None),
            feeds("one queue, shortest first", Strategy::Shortest, open),
            feeds("best limits, by size", Strategy::Size, best(0)),
            feeds("best limits, size-load", Strategy::SizeLoad, best(1)),
            feeds("best limits, shortest", Strategy::Shortest, best(2)),
            ("preemptive SRPT (a bound)", Discipline::ShortestRemaining, None),
        ];
        parallel::map(&asked, |(name, discipline, paper_s)| self.policy(name, discipline, *paper_s))
    }

    fn policy(&self, name: &str, discipline: &Discipline, paper_s: Option<f64>) -> Policy {
        let large_from = self.gaussian.quantile(0.95);
        let mut all = Waits::new();
        let mut largest = Waits::new();
        let mut waited = |size: u64, wait_ns: u64| {
            all.add(wait_ns);
            if size > large_from {
                largest.add(wait_ns);
            }
        };
        let Load { lambda_per_s, service } = load(0);
        let stream = ArrivalStream::new(&self.gaussian, lambda_per_s, self.task.seed.wrapping_add(77));
        let stream = stream.take(self.task.arrivals as usize);
        let mut limits = Vec::new();
        match discipline {
            Discipline::FirstCome => bounds::first_come(stream, &service, 4, waited),
            Discipline::ShortestRemaining => bounds::shortest_remaining(stream, &service, 4, waited),
            Discipline::Feeds(plan) => {
                limits = plan.limits.bytes().to_vec();
                evaluate(stream, &service, plan, |message| waited(message.size, message.wait_ns));
            }
        }
        let (mean_wait_s, largest_5_percent_wait_s) = (all.mean_s(), largest.mean_s());
        Policy { name: name.into(), limits, paper_s, mean_wait_s, largest_5_percent_wait_s }
    }

    fn server(&self, i: usize, progress: &mut dyn FnMut(SearchProgress)) -> Result<PaperServer, InputError> {
        let (lambda, t0_s, ts_s_per_byte) = SERVERS[i];
        let found = self.tune(&self.stand_in, load(i), 30, progress)?;
        let mut plans = vec![
            ("least loaded, no limits".to_owned(), plan(&[LAST; 3], Strategy::SizeLoad)),
            ("default limits, by size".to_owned(), plan(&DEFAULT, Strategy::Size)),
        ];
        for (best, strategy) in found.iter().zip(ALL) {
            plans.push((format!("{}, best limits", best.strategy), plan(&best.limits[..3], strategy)));
        }
        let arrivals = self.task.arrivals.min(2_000_000);
        let strategies = parallel::map(&plans, |(name, plan)| {
            let report = experiment(&self.stand_in, load(i), plan.clone(), arrivals, self.task.seed).run()?;
            Ok(ServerStrategy {
                name: name.clone(),
                limits: report.limits,
                mean_wait_s: report.stable.then_some(report.mean_wait_s),
                per_feed_wait_s: report.per_feed.iter().take(4).map(|f| f.mean_wait_s).collect(),
                lambda_max: report.lambda_max,
            })
        });
        let table = self.stand_in.fine_table();
        let lambda_bound = Mg1::new(table, load(i)).lambda_bound_per_s(&plans[0].1.limits);
        let strategies = strategies.into_iter().collect::<Result<_, _>>()?;
        Ok(PaperServer { server: i + 1, lambda, t0_s, ts_s_per_byte, lambda_bound, strategies })
    }

    /// Tunes all strategies on traces of a part of the long runs.
    fn tune(
        &self,
        sizes: &Sizes,
        load: Load,
        part: usize,
        progress: &mut dyn FnMut(SearchProgress),
    ) -> Result<Vec<Found>, InputError> {
        let task = TuneTask {
            sizes: sizes.clone(),
            load,
            feeds: 5,
            last_limit: LAST,
            objective: Objective::default(),
            strategies: ALL.to_vec(),
            age_bound: Duration::MAX,
            last_feed_helps: false,
            seed: self.task.seed,
            search_arrivals: (self.task.arrivals as usize / part).clamp(50_000, TuneTask::SEARCH_ARRIVALS),
            judge_arrivals: self.task.arrivals.min(500_000),
        };
        Ok(task.run(progress)?.strategies)
    }
}

enum Discipline {
    Feeds(Plan),
    FirstCome,
    ShortestRemaining,
}

const ALL: [Strategy; 3] = [Strategy::Size, Strategy::SizeLoad, Strategy::Shortest];

/// A server of Figures 6 and 7; the first is also that of the dual-Gaussian example.
fn load(server: usize) -> Load {
    let (lambda_per_s, t0_s, ts) = SERVERS[server];
    Load { lambda_per_s, service: Service::new(t0_s, ts).expect("the paper's figures are sound") }
}

/// The paper has no age bound, so neither have its experiments.
fn plan(limits: &[u64], strategy: Strategy) -> Plan {
    let limits = Limits::new(limits.iter().copied().chain([LAST]).collect()).expect("limits in order");
    Plan { age_bound: Duration::MAX, ..Plan::new(limits, strategy) }
}

fn experiment(sizes: &Sizes, load: Load, plan: Plan, arrivals: u64, seed: u64) -> Experiment {
    Experiment { sizes: sizes.clone(), load, plan, last: LastLimit::Fixed, arrivals, seed }
}

fn mean_wait(sizes: &Sizes, plan: &Plan, arrivals: usize, seed: u64) -> f64 {
    let load = load(0);
    let mut total = 0.0;
    let stream = ArrivalStream::new(sizes, load.lambda_per_s, seed).take(arrivals);
    evaluate(stream, &load.service, plan, |message| total += message.wait_ns as f64 / 1e9);
    total / arrivals.max(1) as f64
}

type Printed<const ROWS: usize> = (&'static str, [f64; ROWS]);
const TABLE_1: [Printed<3>; 3] = [
    ("default", [2000.0, 10_000.0, 50_000.0]),
    ("size", [4341.0, 18_862.0, 67_607.0]),
    ("size+load", [14_505.0, 23_781.0, 248_780.0]),
];
const TABLE_2: [Printed<5>; 4] = [
    ("bound", [0.448; 5]),
    ("default", [1.803, 0.043, 1.284, 5.137, 27.29]),
    ("size", [1.073, 0.378, 1.221, 4.978, 18.20]),
    ("size+load", [0.3128, 0.2015, 0.1521, 0.6081, 0.6405]),
];

fn columns<const ROWS: usize>(printed: &[Printed<ROWS>]) -> Vec<StrategyColumn> {
    printed.iter().map(|(name, values)| StrategyColumn { name: (*name).into(), values: values.to_vec() }).collect()
}

fn table_3(found: &[Found]) -> Vec<StrategyColumn> {
    let column = |name: String, limits: &[u64]| StrategyColumn {
        name,
        values: limits.iter().take(3).map(|b| *b as f64).collect(),
    };
    let printed = [("default (paper)", DEFAULT), ("size (paper)", SIZE), ("size-load (paper)", SIZE_LOAD)];
    let printed = printed.iter().map(|(name, limits)| column((*name).into(), limits));
    let simplex = found.iter().take(2).map(|f| column(format!("{} (Nelder–Mead)", f.strategy), &f.paper_method.limits));
    let global = found.iter().map(|f| column(format!("{} (global search)", f.strategy), &f.limits));
    printed.chain(simplex).chain(global).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_waits_of_the_paper_come_out() {
        let task = Reproduction::new(PaperTask { arrivals: 1_000_000, seed: 1 });
        for (strategy, limits, paper_s) in
            [(Strategy::Size, DEFAULT, 2.49), (Strategy::Size, SIZE, 1.71), (Strategy::SizeLoad, SIZE_LOAD, 0.76)]
        {
            let row = task.comparison("", &plan(&limits, strategy), paper_s);
            assert!(row.runs_within_10_percent, "{row:?}");
        }
    }

    #[test]
    fn least_loaded_is_first_come_first_served() {
        // With known service times, joining the worker that is free first is the same as one queue.
        let task = Reproduction::new(PaperTask { arrivals: 200_000, seed: 5 });
        let wait = |discipline| task.policy("", &discipline, None).mean_wait_s;
        let least = wait(Discipline::Feeds(plan(&[LAST; 3], Strategy::SizeLoad)));
        let queue = wait(Discipline::FirstCome);
        assert!((least - queue).abs() < 1e-6, "{least} {queue}");
        let bound = wait(Discipline::ShortestRemaining);
        let shortest = wait(Discipline::Feeds(plan(&[LAST; 3], Strategy::Shortest)));
        assert!(bound < shortest && shortest < queue, "{bound} {shortest} {queue}");
    }
}
