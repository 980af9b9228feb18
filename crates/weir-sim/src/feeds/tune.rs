//! The search for limits: for each strategy the best found, beside the default limits and the paper's method.
//!
//! By size the best limits come exactly from the formula ([`best_limits`]). The other strategies are simulated: a
//! population of limits evolves on one common trace, again and again from other beginnings until a new one finds nothing
//! better; the survivors of all on a longer trace, the last few on the longest, and each limit of the best is then moved by
//! smaller and smaller steps as long as that helps. All figures in the result come from another trace, which no search has seen. Where the last feed helps and its limit is free, at most half of the feeds are kept for
//! the small, and one line without limits is among the candidates.

use super::{ArrivalStream, Experiment, Report, Sizes, parallel, strategy_name};
use crate::input::InputError;
use crate::rng::Rng;
use serde::Serialize;
use std::time::Duration;
use weir_core::feeds::{
    Arrival, Evolution, LastLimit, Limits, Load, Mg1, Objective, Plan, SearchSpace, SizeTable, Strategy, best_limits,
    mean_wait_s, nelder_mead,
};

/// What to tune.
#[derive(Debug, Clone)]
pub struct TuneTask {
    /// Where sizes come from.
    pub sizes: Sizes,
    /// λ and the service time, already stretched if there are fewer processors than feeds.
    pub load: Load,
    /// N.
    pub feeds: usize,
    /// s_{N−1}, unless the objective leaves it free.
    pub last_limit: u64,
    /// What to make small.
    pub objective: Objective,
    /// The strategies to try.
    pub strategies: Vec<Strategy>,
    /// The age bound of shortest first.
    pub age_bound: Duration,
    /// Whether feed N also takes smaller mail.
    pub last_feed_helps: bool,
    /// The seed of the search; the judging trace has one derived from it.
    pub seed: u64,
    /// How many arrivals the longest trace of the search has; [`TuneTask::SEARCH_ARRIVALS`] is usual.
    pub search_arrivals: usize,
    /// How many arrivals the judging trace has.
    pub judge_arrivals: u64,
}

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Tuned {
    /// The best strategy of those tried.
    pub strategy: String,
    /// Its limits s_1 … s_{N−1} in bytes.
    pub limits: Vec<u64>,
    /// The mean wait (eq. 7) that they give on an independent trace.
    pub mean_wait_s: f64,
    /// What the default limits would give (by size, if that was among the strategies tried).
    pub default: Judged,
    /// The best that the paper's method (Nelder–Mead from the default limits) would give with the paper's strategies.
    pub paper_method: Judged,
    /// The source of sizes.
    pub sizes: String,
    /// λ, messages a second.
    pub lambda: f64,
    /// The bound on λ_max without limits.
    pub lambda_bound: f64,
    /// Each strategy tried.
    pub strategies: Vec<Found>,
}

/// The best limits of one strategy.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The strategy.
    pub strategy: String,
    /// How the limits were found.
    pub method: String,
    /// The best limits, in bytes.
    pub limits: Vec<u64>,
    /// Their mean wait (eq. 7).
    pub mean_wait_s: f64,
    /// What the search made small: the mean wait with its weights.
    pub objective_s: f64,
    /// 95 % wait no longer.
    pub p95_wait_s: f64,
    /// Mean of (wait + scan) / scan.
    pub mean_slowdown: f64,
    /// Mean wait of the largest class that gets any message.
    pub largest_class_wait_s: f64,
    /// Mean wait of the largest 5 % of messages.
    pub largest_5_percent_wait_s: f64,
    /// The largest λ that the limits can bear.
    pub lambda_max: f64,
    /// The default limits under this strategy.
    pub default: Judged,
    /// Nelder–Mead from the default limits under this strategy.
    pub paper_method: Judged,
}

/// Limits with the mean wait that they give.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// The strategy.
    pub strategy: String,
    /// The limits, in bytes.
    pub limits: Vec<u64>,
    /// The mean wait; none if a feed is overloaded.
    pub mean_wait_s: Option<f64>,
}

/// How far the search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchProgress {
    /// The strategy being searched.
    pub strategy: &'static str,
    /// Simulated arrivals so far, of all strategies.
    pub done: u64,
    /// Simulated arrivals in all.
    pub total: u64,
}

/// (Trace as a part of the longest, generations on it, members kept after it.) The last only ranks the survivors.
const STAGES: [(usize, usize, usize); 3] = [(50, 16, 20), (10, 10, 6), (1, 0, 4)];
/// Beginnings of the first stage: so many at least and at most, and by how much a new one must be better for another.
const BEGINNINGS: (usize, usize) = (3, 8);
const STILL_BETTER: f64 = 0.98;
/// The last steps, as parts of the whole range, on this part of the longest trace, and how often each is tried at most.
const STEPS: [f64; 4] = [0.03, 0.01, 0.003, 0.001];
const STEPS_TRACE: usize = 2;
const STEPS_MOST: usize = 3;
/// The paper simulated so many arrivals while minimising.
const PAPER_ARRIVALS: usize = 10_000;

impl TuneTask {
    /// Arrivals that rank limits well at the loads of the paper.
    pub const SEARCH_ARRIVALS: usize = 1_000_000;

    /// Searches; `progress` is told after every batch.
    pub fn run(&self, progress: &mut dyn FnMut(SearchProgress)) -> Result<Tuned, InputError> {
        let mut search = Search::new(self)?;
        let mut found = Vec::new();
        for (i, strategy) in self.strategies.iter().enumerate() {
            let total = search.work() * self.strategies.len() as u64;
            let before = search.work() * i as u64;
            let mut told =
                |done| progress(SearchProgress { strategy: strategy_name(*strategy), done: before + done, total });
            found.push(search.strategy(*strategy, &mut told)?);
            told(search.work());
        }
        self.outcome(found, search.table)
    }

    fn outcome(&self, found: Vec<Found>, table: &SizeTable) -> Result<Tuned, InputError> {
        let best = found.iter().min_by(|a, b| a.objective_s.total_cmp(&b.objective_s));
        let best = best.ok_or_else(|| InputError::new("--strategy", "no strategy was given", "give one or more"))?;
        let wait = |f: &&Found| f.paper_method.mean_wait_s.unwrap_or(f64::INFINITY);
        let of_paper = found.iter().filter(|f| f.strategy != strategy_name(Strategy::Shortest));
        let paper = of_paper.min_by(|a, b| wait(a).total_cmp(&wait(b))).unwrap_or(best);
        let limits = Limits::default_for(self.feeds, self.last_limit).map_err(|e| feeds_error(&e))?;
        Ok(Tuned {
            strategy: best.strategy.clone(),
            limits: best.limits.clone(),
            mean_wait_s: best.mean_wait_s,
            default: found.first().unwrap_or(best).default.clone(),
            paper_method: paper.paper_method.clone(),
            sizes: self.sizes.name().into(),
            lambda: self.load.lambda_per_s,
            lambda_bound: Mg1::new(table, self.load).lambda_bound_per_s(&limits),
            strategies: found,
        })
    }
}

/// Simulated arrivals so far, and who is told.
struct Done<'a> {
    arrivals: u64,
    told: &'a mut dyn FnMut(u64),
}

struct Search<'a> {
    task: &'a TuneTask,
    table: &'a SizeTable,
    space: SearchSpace,
    default: Limits,
    trace: Vec<Arrival>,
    rng: Rng,
    judge_seed: u64,
}

impl<'a> Search<'a> {
    fn new(task: &'a TuneTask) -> Result<Search<'a>, InputError> {
        let default = Limits::default_for(task.feeds, task.last_limit).map_err(|e| feeds_error(&e))?;
        // The clock has 64 bits of nanoseconds.
        if task.judge_arrivals as f64 / task.load.lambda_per_s > 1e10 {
            let problem = format!("{} messages a second are too few to simulate", task.load.lambda_per_s);
            return Err(InputError::new("--lambda", problem, "mail this rare never waits: any limits do"));
        }
        let table = task.sizes.fine_table();
        let space = task.space(table);
        let mut rng = Rng::new(task.seed);
        let [trace_seed, judge_seed] = [rng.next_u64(), rng.next_u64()];
        let needed = if task.strategies.iter().all(|s| *s == Strategy::Size) { 0 } else { task.search_arrivals };
        let trace = ArrivalStream::new(&task.sizes, task.load.lambda_per_s, trace_seed).take(needed).collect();
        Ok(Search { task, table, space, default, trace, rng, judge_seed })
    }

    /// Simulated arrivals that the search of one strategy takes at most.
    fn work(&self) -> u64 {
        let mut members = self.population() * BEGINNINGS.1;
        let mut work = 0;
        for (part, generations, keep) in STAGES {
            work += self.trace.len() / part * members * (generations + 1);
            members = keep;
        }
        work += self.trace.len() / STEPS_TRACE * STEPS.len() * STEPS_MOST * 2 * self.space.dimension();
        work as u64
    }

    fn population(&self) -> usize {
        (24 + 8 * self.space.dimension()).min(72)
    }

    fn strategy(&mut self, strategy: Strategy, told: &mut dyn FnMut(u64)) -> Result<Found, InputError> {
        let paper = self.paper_method(strategy);
        let (limits, method) = match strategy {
            Strategy::Size => (self.exact(), "dynamic program"),
            _ => (self.evolve(strategy, &paper, told), "differential evolution"),
        };
        let limits = limits.ok_or_else(|| self.overloaded())?;
        let plans = [&limits, &self.default, &paper].map(|limits| self.plan(limits, strategy));
        let mut judged = parallel::map(&plans, |plan| self.judge(plan)).into_iter();
        let mut next = || judged.next().expect("one judgement a plan");
        let (best, default, paper) = (next()?, next()?, next()?);
        // Weights are the search's own; without them the objective is the mean wait.
        let objective_s = match self.task.objective.weights == Default::default() {
            true => best.mean_wait_s,
            false => self.weighted(&plans[0]),
        };
        Ok(found(best, objective_s, method, &[default, paper]))
    }

    /// The exact optimum by size.
    fn exact(&self) -> Option<Limits> {
        let mg1 = Mg1::new(self.table, self.task.load);
        let last = self.task.last_considered(self.table);
        best_limits(&mg1, self.task.feeds, last, &self.task.objective).map(|(limits, _)| limits)
    }

    /// The best limits that evolving populations find on longer and longer traces.
    fn evolve(&mut self, strategy: Strategy, paper: &Limits, told: &mut dyn FnMut(u64)) -> Option<Limits> {
        let mut rng = self.rng.clone();
        let mut unit = || rng.unit();
        let mut done = Done { arrivals: 0, told };
        let mut search = self.begin(&self.starts(paper), (strategy, &mut done), &mut unit);
        for beginning in 1..BEGINNINGS.1 {
            let before = search.best().1;
            search.join(self.begin(&[], (strategy, &mut done), &mut unit));
            if beginning + 1 >= BEGINNINGS.0 && search.best().1 > STILL_BETTER * before {
                break;
            }
        }
        search.keep_best(STAGES[0].2);
        for stage in &STAGES[1..] {
            self.generations(&mut search, stage, (strategy, &mut done), &mut unit);
            search.keep_best(stage.2);
        }
        let (point, cost) = search.best();
        if !cost.is_finite() {
            return None;
        }
        let point = self.polished(point.to_vec(), strategy, &mut done);
        self.space.limits(&point)
    }

    /// Moves one limit at a time, both ways, as long as that is better.
    fn polished(&self, mut point: Vec<f64>, strategy: Strategy, done: &mut Done<'_>) -> Vec<f64> {
        let trace = &self.trace[..self.trace.len() / STEPS_TRACE];
        let mut least = self.cost(&point, strategy, trace);
        for step in STEPS {
            for _ in 0..STEPS_MOST {
                let moved: Vec<Vec<f64>> = (0..2 * point.len()).map(|at| one_step(&point, at, step)).collect();
                let costs = parallel::map(&moved, |point| self.cost(point, strategy, trace));
                done.arrivals += (moved.len() * trace.len()) as u64;
                (done.told)(done.arrivals);
                let best = costs.into_iter().zip(moved).min_by(|a, b| a.0.total_cmp(&b.0));
                let Some((cost, better)) = best.filter(|(cost, _)| *cost < least) else { break };
                (least, point) = (cost, better);
            }
        }
        point
    }

    /// One beginning: a population on the shortest trace.
    fn begin(&self, starts: &[Vec<f64>], about: (Strategy, &mut Done<'_>), unit: &mut dyn FnMut() -> f64) -> Evolution {
        let mut search = Evolution::new(starts, self.space.dimension(), self.population(), unit);
        self.generations(&mut search, &STAGES[0], about, unit);
        search
    }

    fn generations(
        &self,
        search: &mut Evolution,
        (part, generations, _): &(usize, usize, usize),
        (strategy, done): (Strategy, &mut Done<'_>),
        unit: &mut dyn FnMut() -> f64,
    ) {
        let trace = &self.trace[..self.trace.len() / part];
        for generation in 0..=*generations {
            let points = if generation == 0 { search.ask_again() } else { search.ask(unit) };
            search.tell(&parallel::map(&points, |point| self.cost(point, strategy, trace)));
            done.arrivals += (points.len() * trace.len()) as u64;
            (done.told)(done.arrivals);
        }
    }

    /// Limits worth a try: known ones, none at all, one feed kept for the small, and that with the last limit at some
    /// part of the work.
    fn starts(&self, paper: &Limits) -> Vec<Vec<f64>> {
        let known = [Some(&self.default), Some(paper), self.exact().as_ref()]
            .into_iter()
            .flatten()
            .map(|l| self.space.point(l))
            .collect::<Vec<_>>();
        let kept = [1.0, 0.3, 0.5, 0.7].map(|first| {
            let rest = self.space.dimension().saturating_sub(1);
            std::iter::once(first).chain(std::iter::repeat_n(1.0, rest)).take(self.space.dimension()).collect()
        });
        let dimension = self.space.dimension();
        let cut =
            [0.4, 0.55, 0.7, 0.85].into_iter().filter_map(|part| self.point_of_work(part)).flat_map(move |last| {
                [0.3, 0.5, 0.7].map(|first| (0..dimension).map(|i| if i == 0 { last * first } else { last }).collect())
            });
        known.into_iter().chain(kept).chain(cut).collect()
    }

    /// The place of the size below which so much of the work is.
    fn point_of_work(&self, part: f64) -> Option<f64> {
        let whole = self.table.between(0.0, f64::INFINITY).mean;
        let below = |size: f64| self.table.between(0.0, size);
        let size = self.table.points().iter().find(|size| below(**size).p * below(**size).mean >= part * whole)?;
        let same = Limits::new(vec![*size as u64; self.task.feeds - 1]).ok()?;
        self.space.point(&same).first().copied()
    }

    fn cost(&self, point: &[f64], strategy: Strategy, trace: &[Arrival]) -> f64 {
        let limits = self.space.limits(point);
        limits.map_or(f64::INFINITY, |limits| self.wait_on(trace, &self.plan(&limits, strategy)))
    }

    /// Nelder–Mead from the default limits, on the formula with the paper's table or on 10 000 arrivals.
    fn paper_method(&self, strategy: Strategy) -> Limits {
        let seed = self.judge_seed.wrapping_add(1);
        let table = self.task.sizes.measured_table(seed);
        let mg1 = Mg1::new(&table, self.task.load);
        let trace: Vec<Arrival> =
            ArrivalStream::new(&self.task.sizes, self.task.load.lambda_per_s, seed).take(PAPER_ARRIVALS).collect();
        let fixed = usize::from(self.task.objective.last == LastLimit::Fixed);
        let free = self.default.bytes().len() - fixed;
        let start: Vec<f64> = self.default.bytes().iter().take(free).map(|bytes| *bytes as f64).collect();
        let limits_at = |point: &[f64]| self.limits_at(point);
        let found = nelder_mead(&start, |point| match (limits_at(point), strategy) {
            (None, _) => f64::INFINITY,
            (Some(limits), Strategy::Size) => mg1.mean_wait_s(&limits, &self.task.objective),
            (Some(limits), _) => self.wait_on(&trace, &self.plan(&limits, strategy)),
        });
        limits_at(&found.at).unwrap_or_else(|| self.default.clone())
    }

    /// Raw bytes as limits, as the paper's method moves them; none if they are out of order.
    fn limits_at(&self, point: &[f64]) -> Option<Limits> {
        if point.iter().any(|s| !(0.0..=1e15).contains(s)) {
            return None;
        }
        let mut bytes: Vec<u64> = point.iter().map(|s| s.round() as u64).collect();
        if self.task.objective.last == LastLimit::Fixed {
            bytes.push(self.task.last_limit);
        }
        Limits::new(bytes).ok()
    }

    fn plan(&self, limits: &Limits, strategy: Strategy) -> Plan {
        let TuneTask { age_bound, last_feed_helps, .. } = *self.task;
        Plan { last_feed_helps, age_bound, ..Plan::new(limits.clone(), strategy) }
    }

    fn wait_on(&self, trace: &[Arrival], plan: &Plan) -> f64 {
        mean_wait_s(trace, self.table, &self.task.load, plan, &self.task.objective)
    }

    fn judge(&self, plan: &Plan) -> Result<Report, InputError> {
        let experiment = Experiment {
            sizes: self.task.sizes.clone(),
            load: self.task.load,
            plan: plan.clone(),
            last: self.task.objective.last,
            arrivals: self.task.judge_arrivals,
            seed: self.judge_seed,
        };
        experiment.run()
    }

    fn weighted(&self, plan: &Plan) -> f64 {
        let stream = ArrivalStream::new(&self.task.sizes, self.task.load.lambda_per_s, self.judge_seed);
        let trace: Vec<Arrival> = stream.take(self.task.judge_arrivals.min(2_000_000) as usize).collect();
        self.wait_on(&trace, plan)
    }

    fn overloaded(&self) -> InputError {
        let lambda = self.task.load.lambda_per_s;
        let bound = Mg1::new(self.table, self.task.load).lambda_bound_per_s(&self.default);
        let problem = format!(
            "no limits let {} feeds bear {lambda} messages a second: even without limits they bear {bound:.3}",
            self.task.feeds
        );
        InputError::new("--lambda", problem, "add feeds or processors, or shorten the scans")
    }
}

impl TuneTask {
    fn space(&self, table: &SizeTable) -> SearchSpace {
        let (smallest, last) = (table.smallest(), self.last_considered(table));
        match self.last_feed_helps && self.objective.last == LastLimit::Free {
            true => SearchSpace::kept_for_small(smallest, last, self.feeds, self.feeds / 2),
            false => SearchSpace::new(smallest, last, self.feeds, self.objective.last),
        }
    }

    /// The largest s_{N−1} to consider.
    fn last_considered(&self, table: &SizeTable) -> u64 {
        match self.objective.last {
            LastLimit::Fixed => self.last_limit,
            LastLimit::Free => table.largest() as u64,
        }
    }
}

/// The point with one of its coordinates moved: down at an even place, up at an odd one.
fn one_step(point: &[f64], at: usize, step: f64) -> Vec<f64> {
    let mut moved = point.to_vec();
    let by = if at.is_multiple_of(2) { -step } else { step };
    moved[at / 2] = (moved[at / 2] + by).clamp(0.0, 1.0);
    moved
}

fn found(best: Report, objective_s: f64, method: &str, [default, paper]: &[Report; 2]) -> Found {
    Found {
        method: method.into(),
        limits: best.limits,
        mean_wait_s: best.mean_wait_s,
        objective_s,
        p95_wait_s: best.p95_wait_s,
        mean_slowdown: best.mean_slowdown,
        largest_class_wait_s: best.largest_class_wait_s,
        largest_5_percent_wait_s: best.largest_5_percent_wait_s,
        lambda_max: best.lambda_max,
        default: judged(default),
        paper_method: judged(paper),
        strategy: best.strategy,
    }
}

fn judged(report: &Report) -> Judged {
    let mean_wait_s = report.stable.then_some(report.mean_wait_s);
    Judged { strategy: report.strategy.clone(), limits: report.limits.clone(), mean_wait_s }
}

fn feeds_error(error: &weir_core::feeds::LimitsError) -> InputError {
    InputError::new("--feeds", error.to_string(), "two feeds or more, such as 5")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::feeds::{Service, Weights};

    fn task(sizes: Sizes, strategies: &[Strategy]) -> TuneTask {
        TuneTask {
            sizes,
            load: Load { lambda_per_s: 1.5, service: Service::new(0.1, 0.0002).unwrap() },
            feeds: 5,
            last_limit: 250_000,
            objective: Objective::default(),
            strategies: strategies.to_vec(),
            age_bound: Plan::AGE_BOUND,
            last_feed_helps: false,
            seed: 3,
            search_arrivals: 300_000,
            judge_arrivals: 300_000,
        }
    }

    #[test]
    fn the_limits_found_are_better_than_the_known_ones() {
        let all = [Strategy::Size, Strategy::SizeLoad, Strategy::Shortest];
        let mut last = None;
        let tuned = task(Sizes::heavy_tailed(), &all).run(&mut |progress| last = Some(progress)).unwrap();
        for found in &tuned.strategies {
            for other in [&found.default, &found.paper_method] {
                let wait = other.mean_wait_s.unwrap_or(f64::INFINITY);
                assert!(found.mean_wait_s <= wait * 1.02, "{found:?}");
            }
        }
        assert_eq!(tuned.strategy, "shortest");
        assert!(tuned.default.strategy == "size" && tuned.paper_method.strategy == "size-load", "{tuned:?}");
        assert!(last.is_some_and(|p| p.done == p.total), "{last:?}");
    }

    #[test]
    fn a_weight_for_the_small_makes_them_wait_less() {
        let plain = task(Sizes::dual_gaussian(), &[Strategy::Size]);
        let weights = Weights::new(vec![(10_000, 50.0)]).unwrap();
        let weighted = TuneTask { objective: Objective { weights, ..Objective::default() }, ..plain.clone() };
        let small_wait = |task: &TuneTask| {
            let limits = Limits::new(task.run(&mut |_| {}).unwrap().limits).unwrap();
            Mg1::new(task.sizes.fine_table(), task.load).feeds(&limits)[0].wait_s
        };
        assert!(small_wait(&weighted) < 0.6 * small_wait(&plain));
    }

    #[test]
    fn a_free_last_limit_counts_every_message() {
        let free = Objective { last: LastLimit::Free, ..Objective::default() };
        let tuned = TuneTask { objective: free, ..task(Sizes::dual_gaussian(), &[Strategy::Size]) };
        let tuned = tuned.run(&mut |_| {}).unwrap();
        assert!(tuned.limits[3] < 100_000, "the fifth feed takes part: {:?}", tuned.limits);
        assert!(tuned.mean_wait_s < 0.8, "five feeds are better than four: {tuned:?}");
    }

    fn shortest_with_a_free_last_limit(last_feed_helps: bool) -> TuneTask {
        let free = Objective { last: LastLimit::Free, ..Objective::default() };
        let plain = task(Sizes::dual_gaussian(), &[Strategy::Shortest]);
        TuneTask { objective: free, last_feed_helps, search_arrivals: 1_000_000, ..plain }
    }

    /// The least objective of all ascending limits with these values, on a trace of the task's mail.
    fn best_of_a_grid(task: &TuneTask, values: &[u64], free: usize) -> f64 {
        let mut all: Vec<Vec<u64>> = vec![Vec::new()];
        for _ in 0..free {
            all = all
                .iter()
                .flat_map(|limits| {
                    values
                        .iter()
                        .filter(|v| limits.last().is_none_or(|l| l <= v))
                        .map(|v| [&limits[..], &[*v]].concat())
                })
                .collect();
        }
        let trace: Vec<Arrival> = ArrivalStream::new(&task.sizes, task.load.lambda_per_s, 77).take(60_000).collect();
        let waits = parallel::map(&all, |limits| {
            let mut bytes = limits.clone();
            bytes.resize(task.feeds - 1, Limits::UNLIMITED);
            let plan = Plan {
                last_feed_helps: task.last_feed_helps,
                ..Plan::new(Limits::new(bytes).unwrap(), Strategy::Shortest)
            };
            (mean_wait_s(&trace, task.sizes.fine_table(), &task.load, &plan, &task.objective), plan)
        });
        let best = waits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
        let experiment = Experiment {
            sizes: task.sizes.clone(),
            load: task.load,
            plan: best,
            last: LastLimit::Free,
            arrivals: task.judge_arrivals,
            seed: 5,
        };
        experiment.run().unwrap().mean_wait_s
    }

    #[test]
    fn the_search_is_as_good_as_a_grid_whether_the_last_feed_helps_or_not() {
        let sizes: Vec<u64> = (0..9).map(|i| (3000.0 * 1.5_f64.powi(i)) as u64).collect();
        for (helps, free) in [(true, 2), (false, 4)] {
            let task = shortest_with_a_free_last_limit(helps);
            let tuned = task.run(&mut |_| {}).unwrap();
            let grid = best_of_a_grid(&task, &sizes, free);
            assert!(tuned.mean_wait_s <= 1.05 * grid, "{helps}: {:?} {} {grid}", tuned.limits, tuned.mean_wait_s);
        }
    }

    #[test]
    fn ten_seeds_of_ten_find_the_best_limits() {
        for helps in [true, false] {
            for seed in 1..=if helps { 10 } else { 2 } {
                let plain = shortest_with_a_free_last_limit(helps);
                let search_arrivals = if helps { 300_000 } else { plain.search_arrivals };
                let task = TuneTask { seed, search_arrivals, ..plain };
                let tuned = task.run(&mut |_| {}).unwrap();
                assert!(tuned.mean_wait_s <= if helps { 0.06 } else { 0.130 }, "{seed}: {tuned:?}");
            }
        }
    }

    #[test]
    fn too_much_mail_is_refused_with_what_can_be_borne() {
        let mut much = task(Sizes::dual_gaussian(), &[Strategy::SizeLoad]);
        much.load.lambda_per_s = 3.0;
        let error = much.run(&mut |_| {}).unwrap_err();
        assert!(error.place == "--lambda" && error.problem.contains("2.74"), "{error}");
    }
}
