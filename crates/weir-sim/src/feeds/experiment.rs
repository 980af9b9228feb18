//! One run: sends a number of messages through the feeds under one plan.

use super::waits::Waits;
use super::{ArrivalStream, Exponential, Sizes, bounds, strategy_name};
use crate::input::InputError;
use serde::Serialize;
use weir_core::feeds::{LastLimit, Limits, Load, Mg1, Objective, Plan, Served, Strategy, evaluate};

/// What to run.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Where sizes come from.
    pub sizes: Sizes,
    /// λ and the service time, already stretched if there are fewer processors than feeds.
    pub load: Load,
    /// Limits, strategy and options.
    pub plan: Plan,
    /// Whether feed N counts in W, as it does where the last limit is part of a search.
    pub last: LastLimit,
    /// How many messages.
    pub arrivals: u64,
    /// The seed of the stream.
    pub seed: u64,
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The source of sizes.
    pub sizes: String,
    /// The strategy.
    pub strategy: String,
    /// s_1 … s_{N−1} in bytes.
    pub limits: Vec<u64>,
    /// λ, messages a second.
    pub lambda: f64,
    /// How many messages came.
    pub arrivals: u64,
    /// The seed.
    pub seed: u64,
    /// W (eq. 7): the waits of all messages up to the last limit, divided by the number of all messages.
    pub mean_wait_s: f64,
    /// Whether the last feed also takes smaller mail.
    pub last_feed_helps: bool,
    /// Whether limits give way while one line would wait less.
    pub limits_give_way: bool,
    /// The mean wait in one line, first come, first served, before as many workers.
    pub line_wait_s: f64,
    /// The exponential model of the sizes (the paper's Figures 5 and 8).
    pub exponential: Exponential,
    /// W by the M/G/1 formula; only by size, and only if stable.
    pub formula_wait_s: Option<f64>,
    /// 95 % of the messages up to the last limit waited no longer.
    pub p95_wait_s: f64,
    /// Mean of (wait + scan) / scan.
    pub mean_slowdown: f64,
    /// Mean wait of the largest class up to the last limit that got any message.
    pub largest_class_wait_s: f64,
    /// Mean wait of the largest 5 % of those messages: the same messages whatever the limits.
    pub largest_5_percent_wait_s: f64,
    /// The largest λ that these limits can bear (eq. 6 by size; otherwise no strategy within them can bear more).
    pub lambda_max: f64,
    /// The bound on it without limits (the dashed lines of the paper's Figure 7).
    pub lambda_bound: f64,
    /// Whether the feeds that count can bear λ.
    pub stable: bool,
    /// Each feed.
    pub per_feed: Vec<PerFeed>,
    /// Each class of sizes.
    pub per_class: Vec<PerClass>,
}

/// One feed's part.
#[derive(Debug, Clone, Serialize)]
pub struct PerFeed {
    /// Its number, from 1.
    pub feed: usize,
    /// Its limit in bytes; the last has none.
    pub limit: Option<u64>,
    /// Messages that it scanned.
    pub messages: u64,
    /// Their share of all.
    pub fraction: f64,
    /// The share of time that its worker was busy.
    pub load: f64,
    /// Their mean wait.
    pub mean_wait_s: f64,
    /// 95 % of them waited no longer.
    pub p95_wait_s: f64,
    /// W_i by the formula; only by size, and only if stable.
    pub formula_wait_s: Option<f64>,
}

/// One class of sizes.
#[derive(Debug, Clone, Serialize)]
pub struct PerClass {
    /// Its number, from 1.
    pub class: usize,
    /// Messages of that class.
    pub messages: u64,
    /// Their mean wait.
    pub mean_wait_s: f64,
}

impl Experiment {
    /// Runs it.
    pub fn run(&self) -> Result<Report, InputError> {
        // The clock has 64 bits of nanoseconds: 584 years.
        if self.arrivals as f64 / self.load.lambda_per_s > 1e10 {
            let problem = format!("{} arrivals at {} a second take too long", self.arrivals, self.load.lambda_per_s);
            return Err(InputError::new("--arrivals and --lambda", problem, "ask for fewer arrivals or a higher rate"));
        }
        let mut tally = WaitTally::new(self);
        let stream = ArrivalStream::new(&self.sizes, self.load.lambda_per_s, self.seed).take(self.arrivals as usize);
        let mut last_at = 0;
        let watched = stream.inspect(|arrival| last_at = arrival.at.0);
        evaluate(watched, &self.load.service, &self.plan, |message| tally.add(&message));
        Ok(self.report(&tally, last_at as f64 / 1e9))
    }

    fn report(&self, tally: &WaitTally, duration_s: f64) -> Report {
        let table = self.sizes.fine_table();
        let mg1 = Mg1::new(table, self.load);
        let lambda_max = mg1.lambda_max_per_s(&self.plan);
        let limits = &self.plan.limits;
        let by_size = self.plan.strategy == Strategy::Size;
        let objective = Objective { last: self.last, ..Objective::default() };
        let formula = by_size.then(|| mg1.mean_wait_s(limits, &objective)).filter(|w| w.is_finite());
        let counted = &tally.classes[..tally.counted];
        let largest = counted.iter().rev().find(|c| c.count() > 0);
        Report {
            sizes: self.sizes.name().into(),
            strategy: strategy_name(self.plan.strategy).into(),
            limits: limits.bytes().to_vec(),
            lambda: self.load.lambda_per_s,
            arrivals: self.arrivals,
            seed: self.seed,
            mean_wait_s: tally.all.total_s() / self.arrivals.max(1) as f64,
            last_feed_helps: self.plan.last_feed_helps,
            limits_give_way: self.plan.opens,
            line_wait_s: self.line_wait_s(),
            exponential: Exponential::fit(self.sizes.table()),
            formula_wait_s: formula,
            p95_wait_s: tally.all.quantile_s(0.95),
            mean_slowdown: tally.slowdown / tally.all.count().max(1) as f64,
            largest_class_wait_s: largest.map_or(0.0, Waits::mean_s),
            largest_5_percent_wait_s: tally.largest.mean_s(),
            lambda_max,
            lambda_bound: mg1.lambda_bound_per_s(limits),
            stable: mg1.bears(&self.plan, &objective),
            per_feed: self.per_feed(tally, &mg1, duration_s),
            per_class: tally.classes.iter().enumerate().map(|(i, waits)| per_class(i, waits)).collect(),
        }
    }

    fn line_wait_s(&self) -> f64 {
        let stream = ArrivalStream::new(&self.sizes, self.load.lambda_per_s, self.seed).take(self.arrivals as usize);
        let mut total = 0.0;
        let workers = self.plan.limits.feeds();
        bounds::first_come(stream, &self.load.service, workers, |_, wait_ns| total += wait_ns as f64);
        total / 1e9 / self.arrivals.max(1) as f64
    }

    fn per_feed(&self, tally: &WaitTally, mg1: &Mg1<'_>, duration_s: f64) -> Vec<PerFeed> {
        let models = mg1.feeds(&self.plan.limits);
        let by_size = self.plan.strategy == Strategy::Size;
        let feed = |(i, (waits, busy_ns)): (usize, &(Waits, f64))| PerFeed {
            feed: i + 1,
            limit: self.plan.limits.bytes().get(i).copied().filter(|limit| *limit < Limits::UNLIMITED),
            messages: waits.count(),
            fraction: waits.count() as f64 / self.arrivals.max(1) as f64,
            load: busy_ns / 1e9 / duration_s.max(1e-9),
            mean_wait_s: waits.mean_s(),
            p95_wait_s: waits.quantile_s(0.95),
            formula_wait_s: models.get(i).map(|m| m.wait_s).filter(|w| by_size && w.is_finite()),
        };
        tally.feeds.iter().enumerate().map(feed).collect()
    }
}

fn per_class(i: usize, waits: &Waits) -> PerClass {
    PerClass { class: i + 1, messages: waits.count(), mean_wait_s: waits.mean_s() }
}

struct WaitTally {
    all: Waits,
    largest: Waits,
    /// Waits and busy nanoseconds.
    feeds: Vec<(Waits, f64)>,
    classes: Vec<Waits>,
    slowdown: f64,
    large_from: u64,
    counted: usize,
}

impl WaitTally {
    fn new(experiment: &Experiment) -> WaitTally {
        let limits = &experiment.plan.limits;
        let feeds = limits.feeds();
        let counted = Objective { last: experiment.last, ..Objective::default() }.feeds_counted(feeds);
        let end = if counted == feeds { f64::INFINITY } else { limits.last() as f64 };
        let within = experiment.sizes.fine_table().share_below(end);
        WaitTally {
            all: Waits::new(),
            largest: Waits::new(),
            feeds: vec![(Waits::new(), 0.0); feeds],
            classes: vec![Waits::new(); feeds],
            slowdown: 0.0,
            large_from: experiment.sizes.quantile(0.95 * within),
            counted,
        }
    }

    #[inline]
    fn add(&mut self, message: &Served) {
        let feed = &mut self.feeds[message.feed];
        feed.0.add(message.wait_ns);
        feed.1 += message.service_ns as f64;
        self.classes[message.class].add(message.wait_ns);
        if message.class < self.counted {
            self.all.add(message.wait_ns);
            self.slowdown += 1.0 + message.wait_ns as f64 / message.service_ns.max(1) as f64;
            if message.size > self.large_from {
                self.largest.add(message.wait_ns);
            }
        }
    }
}
