//! Finds better limits for the present traffic, by replaying the last arrivals through the feeds with other limits.
//!
//! Nothing is assumed of arrivals or sizes; t0 and ts come from the regression. The search looks for how many workers to keep for small
//! mail, at most half of them, and up to which sizes; one line without limits is among the candidates. A candidate is rated on
//! [`Scenario`]s: the mail of now, that of the last days, and that of now with larger messages and with more of them, because limits that
//! are right at one point only are wrong tomorrow. If mail waits longer than in one line, that counts many times. The search is
//! differential evolution, restarted until a restart finds nothing better. Early candidates are tried on a part of the trace, the survivors
//! on all of it: a few seconds of one processor at most. A set is better only if it saves a fifth of the mean wait, and a millisecond:
//! otherwise the limits would keep changing because of noise.

use super::figures::{TRACE_MAX, null_is_nan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_core::feeds::{
    Arrival, Evolution, LastLimit, Limits, Machine, Plan, SearchSpace, Service, Strategy, Weights, replay,
};
use weir_core::time::Instant;

/// Fewer arrivals say too little.
pub(super) const ARRIVALS_MIN: usize = 500;
/// A better set waits at most so much of what today's does.
const BETTER: f64 = 0.8;
/// And saves at least so much.
const SAVES_S: f64 = 0.001;
/// Arrivals that a page compares with one line.
const COMPARED_ARRIVALS: usize = 2_000;
/// Arrivals of the search's first stage.
const FIRST_ARRIVALS: usize = 2_000;
/// Arrivals of all scenarios but that of now, and of each at least and at most.
const OTHERS_ARRIVALS: usize = 6_000;
const OTHER_ARRIVALS: (usize, usize) = (400, 1_500);
/// Generations of both stages, and who survives the first.
const GENERATIONS: [usize; 2] = [10, 3];
const SURVIVORS: usize = 6;
/// Beginnings of the search: so many at least and at most, and by how much a new one must be better for another.
const BEGINNINGS: (usize, usize) = (2, 5);
const STILL_BETTER: f64 = 0.99;
/// How much the mail of now counts among the scenarios.
const NOW_COUNTS: f64 = 0.5;
/// What a candidate waits longer than one line counts so many times more.
const WORSE_COUNTS: f64 = 10.0;
/// Shifts that limits must bear: so much larger messages, and so much shorter gaps between them.
const SHIFTS: [(f64, f64); 3] = [(1.3, 1.0), (1.0, 0.8), (0.7, 1.0)];

/// Everything that a prediction stands on.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    pub(super) trace: Vec<Arrival>,
    pub(super) service: Service,
    /// Of each feed.
    pub(super) services: Vec<Service>,
    pub(super) plan: Plan,
    pub(super) machine: Machine,
    pub(super) lambda_per_s: f64,
    /// Samples of the mail of the last days.
    pub(super) mixes: Vec<Arc<[Arrival]>>,
    /// How much a second of waiting counts.
    pub(super) weights: Weights,
}

/// Round numbers may wait so much longer.
const ROUNDING_COSTS: f64 = 1.005;

/// Mail that limits are valued on.
struct Scenario {
    trace: Vec<Arrival>,
    counts: f64,
    /// What one line waits, in all.
    line_ns: f64,
}

/// What limits would do to the traffic of now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// s_1 … s_{N−1} in bytes.
    pub limits: Vec<u64>,
    /// The mean wait of all messages.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub mean_wait_s: f64,
    /// 95 % wait less.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub p95_wait_s: f64,
    /// The rate that these feeds can bear.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub lambda_max_per_s: f64,
    /// Each class of size.
    pub classes: Vec<ClassWait>,
}

/// One class of size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassWait {
    /// Its largest message; none for the last.
    pub up_to: Option<u64>,
    /// Its share of all messages.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub share: f64,
    /// Its mean wait.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub mean_wait_s: f64,
    /// 95 % of it wait less.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f64>")]
    pub p95_wait_s: f64,
}

/// What a class of size waits, and what it would wait in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassBesideLine {
    /// Its largest message; none for the last.
    pub up_to: Option<u64>,
    /// Messages of it.
    pub messages: usize,
    /// Its mean wait in the feeds.
    pub mean_wait_s: f64,
    /// 95 % of it wait less there.
    pub p95_wait_s: f64,
    /// Its mean wait in one line.
    pub line_mean_wait_s: f64,
    /// 95 % of it wait less there.
    pub line_p95_wait_s: f64,
}

impl Basis {
    pub(super) fn is_enough(&self) -> bool {
        self.trace.len() >= ARRIVALS_MIN
    }

    /// What these limits would do.
    pub(super) fn predict(&self, limits: &Limits) -> Predicted {
        let mut by_class: Vec<Vec<u64>> = vec![Vec::new(); limits.feeds()];
        let plan = Plan { limits: limits.clone(), ..self.plan.clone() };
        let mut note = |served: weir_core::feeds::Served| by_class[served.class].push(served.wait_ns);
        replay(self.trace.iter().copied(), &self.service, &plan, &self.machine, &mut note);
        let mut all: Vec<u64> = by_class.iter().flatten().copied().collect();
        let ends = limits.bytes().iter().map(|bytes| Some(*bytes).filter(|b| *b < Limits::UNLIMITED)).chain([None]);
        let count = all.len().max(1) as f64;
        let class = |(up_to, waits): (Option<u64>, &mut Vec<u64>)| ClassWait {
            up_to,
            share: waits.len() as f64 / count,
            mean_wait_s: mean_s(waits),
            p95_wait_s: p95_s(waits),
        };
        Predicted {
            limits: limits.bytes().to_vec(),
            mean_wait_s: mean_s(&all),
            p95_wait_s: p95_s(&mut all),
            lambda_max_per_s: self.lambda_max_per_s(&plan),
            classes: ends.zip(&mut by_class).map(class).collect(),
        }
    }

    /// The best limits that the search finds. Blocks for up to a few seconds.
    pub(super) fn search(&self) -> Limits {
        let space = self.space();
        let mut unit = units(self.trace.last().map_or(1, |arrival| arrival.at.0));
        let short = self.scenarios(FIRST_ARRIVALS);
        let mut search = self.evolve(&space, &self.starts(&space), &short, &mut unit);
        for beginning in 1..BEGINNINGS.1 {
            let before = search.best().1;
            search.join(self.evolve(&space, &[], &short, &mut unit));
            if beginning + 1 >= BEGINNINGS.0 && search.best().1 > STILL_BETTER * before {
                break;
            }
        }
        search.keep_best(SURVIVORS);
        let all = self.scenarios(usize::MAX);
        self.generations(&mut search, &space, &all, GENERATIONS[1], &mut unit);
        let found = space.limits(search.best().0).unwrap_or_else(|| self.plan.limits.clone());
        let cost = self.cost(&found, &all);
        let mut round = (1..=3).filter_map(|figures| rounded(&found, figures));
        round.find(|round| self.cost(round, &all) <= ROUNDING_COSTS * cost).unwrap_or_else(|| found.clone())
    }

    /// By the paper's rules every limit is free. Where the last feed takes every size, at most half of the workers have one.
    fn space(&self) -> SearchSpace {
        let sizes = || self.trace.iter().map(|arrival| arrival.size);
        let (smallest, largest) = (sizes().min().unwrap_or(1).max(1) as f64, sizes().max().unwrap_or(1).max(2));
        let feeds = self.plan.limits.feeds();
        match self.plan.last_feed_helps && self.plan.strategy != Strategy::Size {
            true => SearchSpace::kept_for_small(smallest, largest, feeds, self.kept_at_most()),
            false => SearchSpace::new(smallest, largest, feeds, LastLimit::Free),
        }
    }

    /// How many of the first feeds together have at most half of the workers.
    fn kept_at_most(&self) -> usize {
        let half = self.machine.workers.iter().sum::<usize>() / 2;
        let mut workers = 0;
        let fits = |count: &&usize| {
            workers += **count;
            workers <= half
        };
        self.machine.workers.iter().take_while(fits).count()
    }

    /// One beginning: a population that evolves on these scenarios.
    fn evolve(
        &self,
        space: &SearchSpace,
        starts: &[Vec<f64>],
        scenarios: &[Scenario],
        unit: &mut dyn FnMut() -> f64,
    ) -> Evolution {
        let dimension = space.dimension();
        let mut search = Evolution::new(starts, dimension, 10 + 4 * dimension.min(4), unit);
        self.generations(&mut search, space, scenarios, GENERATIONS[0], unit);
        search
    }

    fn generations(
        &self,
        search: &mut Evolution,
        space: &SearchSpace,
        scenarios: &[Scenario],
        count: usize,
        unit: &mut dyn FnMut() -> f64,
    ) {
        for generation in 0..=count {
            let points = if generation == 0 { search.ask_again() } else { search.ask(unit) };
            let cost =
                |point: &Vec<f64>| space.limits(point).map_or(f64::INFINITY, |limits| self.cost(&limits, scenarios));
            search.tell(&points.iter().map(cost).collect::<Vec<f64>>());
        }
    }

    /// The mail of now (the last so many arrivals), that of the last days, and shifts of that of now.
    fn scenarios(&self, now_arrivals: usize) -> Vec<Scenario> {
        let now = last(&self.trace, now_arrivals);
        let each = OTHERS_ARRIVALS / (self.mixes.len() + SHIFTS.len());
        let each = each.clamp(OTHER_ARRIVALS.0, OTHER_ARRIVALS.1);
        let recent = last(&self.trace, each);
        let shifts = SHIFTS.iter().map(|(larger, closer)| shifted(recent, *larger, *closer));
        let others: Vec<Vec<Arrival>> = self.mixes.iter().map(|mix| last(mix, each).to_vec()).chain(shifts).collect();
        let counts = (1.0 - NOW_COUNTS) / others.len().max(1) as f64;
        let now = (now.to_vec(), NOW_COUNTS);
        let all = [now].into_iter().chain(others.into_iter().map(|trace| (trace, counts)));
        let line = self.line_plan();
        all.map(|(trace, counts)| Scenario { line_ns: self.waited_ns(&line, &trace), trace, counts }).collect()
    }

    /// Whether `other` is so much better than `today` that it should be taken.
    pub(super) fn is_better(today: &Predicted, other: &Predicted) -> bool {
        other.mean_wait_s < BETTER * today.mean_wait_s && today.mean_wait_s - other.mean_wait_s > SAVES_S
    }

    /// Today's limits, no limits at all, one feed kept for the small, and even parts of the sizes.
    fn starts(&self, space: &SearchSpace) -> Vec<Vec<f64>> {
        let dimension = space.dimension();
        let kept = [1.0, 0.3, 0.5, 0.7].map(|first| (0..dimension).map(|i| if i == 0 { first } else { 1.0 }).collect());
        let mut sizes: Vec<u64> = self.trace.iter().map(|arrival| arrival.size).collect();
        sizes.sort_unstable();
        let part = |i: usize| sizes.get(sizes.len() * (i + 1) / (dimension + 1)).copied().unwrap_or(1);
        let even = Limits::new((0..dimension).map(part).collect());
        let known =
            [Some(&self.plan.limits), even.as_ref().ok()].into_iter().flatten().map(|limits| space.point(limits));
        known.chain(kept).collect()
    }

    /// The mean wait over the scenarios by their counts, and what is longer than in one line many times over.
    fn cost(&self, limits: &Limits, scenarios: &[Scenario]) -> f64 {
        // As if they held whatever they cost: that they can give way must not make bad ones look good.
        let plan = Plan { limits: limits.clone(), opens: false, ..self.plan.clone() };
        let of = |scenario: &Scenario| {
            let waited = self.waited_ns(&plan, &scenario.trace);
            let worse = (waited - scenario.line_ns).max(0.0);
            scenario.counts * (waited + WORSE_COUNTS * worse) / scenario.trace.len().max(1) as f64
        };
        scenarios.iter().map(of).sum()
    }

    /// One line without limits before the same workers.
    fn line_plan(&self) -> Plan {
        let feeds = self.plan.limits.feeds();
        let limits = Limits::unlimited(feeds).unwrap_or_else(|_| self.plan.limits.clone());
        // By size alone everything would wait for the first feed.
        let strategy = if self.plan.strategy == Strategy::Size { Strategy::SizeLoad } else { self.plan.strategy };
        Plan { limits, strategy, last_feed_helps: true, opens: false, ..self.plan.clone() }
    }

    /// What messages would wait, all together and by their weights.
    fn waited_ns(&self, plan: &Plan, trace: &[Arrival]) -> f64 {
        let mut total = 0.0;
        replay(trace.iter().copied(), &self.service, plan, &self.machine, &mut |served| {
            total += self.weights.of(served.size) * served.wait_ns as f64;
        });
        total
    }

    /// The mean wait in one line without limits.
    pub(super) fn line_wait_s(&self) -> f64 {
        let (mut total, plan) = (0.0, self.line_plan());
        replay(self.trace.iter().copied(), &self.service, &plan, &self.machine, &mut |served| {
            total += served.wait_ns as f64;
        });
        total / 1e9 / self.trace.len().max(1) as f64
    }

    /// What the newest arrivals wait in these feeds, and what they would have waited in one line, by class of size. Classes that nothing
    /// came for are left out.
    pub(super) fn beside_one_line(&self) -> Vec<ClassBesideLine> {
        let (limits, trace) = (&self.plan.limits, last(&self.trace, COMPARED_ARRIVALS));
        let waits = |plan: &Plan| {
            let mut by_class: Vec<Vec<u64>> = vec![Vec::new(); limits.feeds()];
            let mut note =
                |served: weir_core::feeds::Served| by_class[limits.class_of(served.size)].push(served.wait_ns);
            replay(trace.iter().copied(), &self.service, plan, &self.machine, &mut note);
            by_class
        };
        let (feeds, line) = (waits(&self.plan), waits(&self.line_plan()));
        let ends = limits.bytes().iter().map(|bytes| Some(*bytes).filter(|b| *b < Limits::UNLIMITED)).chain([None]);
        let class = |((up_to, mut feeds), mut line): ((Option<u64>, Vec<u64>), Vec<u64>)| ClassBesideLine {
            up_to,
            messages: feeds.len(),
            mean_wait_s: mean_s(&feeds),
            p95_wait_s: p95_s(&mut feeds),
            line_mean_wait_s: mean_s(&line),
            line_p95_wait_s: p95_s(&mut line),
        };
        ends.zip(feeds).zip(line).map(class).filter(|class| class.messages > 0).collect()
    }

    /// The least over k of the workers of feeds k … divided by the work that only they may take; and what the processors bear.
    pub(super) fn lambda_max_per_s(&self, plan: &Plan) -> f64 {
        let count = self.trace.len().max(1) as f64;
        let mut works = vec![0.0; plan.limits.feeds()];
        for arrival in &self.trace {
            let class = plan.limits.class_of(arrival.size);
            let service = self.services.get(class).unwrap_or(&self.service);
            works[class] += service.time_s(arrival.size as f64) / count;
        }
        let last = works.len() - 1;
        let rate = |from: usize, end: usize| {
            let workers: usize = self.machine.workers[from..end].iter().sum();
            workers as f64 / works[from..end].iter().sum::<f64>()
        };
        let shared = plan.strategy != Strategy::Size;
        let end = if plan.last_feed_helps && shared { last + 1 } else { last };
        let rates = (0..end).map(|k| if shared { rate(k, end) } else { rate(k, k + 1) });
        let processors = self.machine.cpus as f64 / works.iter().sum::<f64>();
        rates.chain([rate(last, last + 1), processors]).fold(f64::INFINITY, f64::min)
    }
}

fn last(trace: &[Arrival], count: usize) -> &[Arrival] {
    &trace[trace.len().saturating_sub(count)..]
}

/// The same mail with messages so much larger, and gaps so much shorter.
fn shifted(trace: &[Arrival], larger: f64, closer: f64) -> Vec<Arrival> {
    let begun = trace.first().map_or(0, |first| first.at.0);
    let shift = |arrival: &Arrival| Arrival {
        at: Instant(begun + ((arrival.at.0 - begun) as f64 * closer) as u64),
        size: (arrival.size as f64 * larger) as u64,
    };
    trace.iter().map(shift).collect()
}

fn mean_s(waits: &[u64]) -> f64 {
    waits.iter().map(|wait| *wait as f64).sum::<f64>() / 1e9 / waits.len().max(1) as f64
}

fn p95_s(waits: &mut [u64]) -> f64 {
    waits.sort_unstable();
    waits.get((waits.len() * 95 / 100).min(waits.len().saturating_sub(1))).map_or(0.0, |wait| *wait as f64 / 1e9)
}

/// The same limits with so many figures that are not zero: people read them, and the search knows them no better.
fn rounded(limits: &Limits, figures: u32) -> Option<Limits> {
    let round = |bytes: &u64| match bytes.checked_ilog10() {
        Some(log) if *bytes < Limits::UNLIMITED => {
            let unit = 10u64.pow((log + 1).saturating_sub(figures));
            (bytes + unit / 2) / unit * unit
        }
        _ => *bytes,
    };
    Limits::new(limits.bytes().iter().map(round).collect()).ok()
}

/// Numbers in 0 … 1 from a seed (splitmix64): the same trace finds the same limits.
fn units(mut state: u64) -> impl FnMut() -> f64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const _: () = assert!(TRACE_MAX >= ARRIVALS_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's mix at a rate: 90 % about 2 kB, 10 % about 50 kB.
    fn basis(lambda_per_s: f64, count: usize) -> Basis {
        let (mut unit, mut at) = (units(7), 0.0);
        let trace = (0..count).map(|_| {
            at += -(1.0 - unit()).ln() / lambda_per_s * 1e9;
            let bell = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
            let size = if unit() < 0.9 { 2000.0 + 400.0 * bell } else { 50_000.0 + 10_000.0 * bell };
            Arrival { at: Instant(at as u64), size: size.max(1.0) as u64 }
        });
        Basis {
            trace: trace.collect(),
            service: Service::new(0.1, 0.0002).unwrap(),
            services: Vec::new(),
            plan: Plan { opens: false, ..Plan::live(Limits::default_for(5, 250_000).unwrap(), Strategy::Shortest) },
            machine: Machine { workers: vec![1; 5], cpus: 5 },
            lambda_per_s,
            mixes: Vec::new(),
            weights: Weights::default(),
        }
    }

    #[test]
    fn the_search_finds_limits_that_are_better() {
        let basis = basis(1.5, 6000);
        let (today, found) = (basis.predict(&basis.plan.limits), basis.predict(&basis.search()));
        assert!(Basis::is_better(&today, &found), "{today:?} {found:?}");
        assert!(!Basis::is_better(&found, &found));
        let shares: f64 = found.classes.iter().map(|class| class.share).sum();
        assert!((shares - 1.0).abs() < 1e-9 && found.classes.len() == 5);
        assert!(found.lambda_max_per_s > basis.lambda_per_s, "{found:?}");
        assert_eq!(basis.search(), basis.search(), "the same trace finds the same");
    }

    #[test]
    fn limits_are_round_numbers() {
        let odd = Limits::new(vec![7, 12_345, 98_765, Limits::UNLIMITED]).unwrap();
        assert_eq!(rounded(&odd, 1).unwrap().bytes(), [7, 10_000, 100_000, Limits::UNLIMITED]);
        assert_eq!(rounded(&odd, 3).unwrap().bytes(), [7, 12_300, 98_800, Limits::UNLIMITED]);
        for limit in basis(1.5, 3000).search().bytes() {
            assert!(limit % 10u64.pow(limit.ilog10().saturating_sub(2)) == 0 || *limit == Limits::UNLIMITED, "{limit}");
        }
    }

    /// The best of all limits on a grid of two workers kept for the small.
    fn best_of_a_grid(basis: &Basis, scenarios: &[Scenario]) -> f64 {
        let sizes: Vec<u64> = (0..16).map(|i| 500 * 3_u64.pow(i) / 2_u64.pow(i)).chain([Limits::UNLIMITED]).collect();
        let pairs = sizes.iter().flat_map(|a| sizes.iter().filter(move |b| *b >= a).map(move |b| [*a, *b]));
        let limits = pairs.map(|[a, b]| Limits::new(vec![a, b, Limits::UNLIMITED, Limits::UNLIMITED]).unwrap());
        limits.map(|limits| basis.cost(&limits, scenarios)).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_search_is_as_good_as_a_grid_and_never_worse_than_one_line() {
        for lambda_per_s in [0.75, 2.2] {
            let basis = basis(lambda_per_s, 3000);
            let scenarios = basis.scenarios(usize::MAX);
            let found = basis.search();
            let (cost, grid) = (basis.cost(&found, &scenarios), best_of_a_grid(&basis, &scenarios));
            assert!(cost <= 1.03 * grid, "{found:?} {cost} {grid}");
            for scenario in &scenarios {
                let waited = basis.waited_ns(&Plan { limits: found.clone(), ..basis.plan.clone() }, &scenario.trace);
                assert!(waited <= 1.001 * scenario.line_ns, "{found:?} {waited} {}", scenario.line_ns);
            }
            assert!(found.bytes().iter().filter(|limit| **limit < Limits::UNLIMITED).count() <= 2, "{found:?}");
        }
    }

    #[test]
    fn limits_bear_the_mail_of_other_days_and_a_shift() {
        let today = basis(1.5, 3000);
        let mut heavy = basis(1.0, 2000).trace;
        // On other days what is small is a few times larger.
        heavy.iter_mut().for_each(|arrival| arrival.size *= if arrival.size < 10_000 { 5 } else { 1 });
        let both = Basis { mixes: vec![heavy.clone().into(), heavy.into()], ..today.clone() };
        let found = both.search();
        let plan = Plan { limits: found.clone(), ..both.plan.clone() };
        for mix in &both.mixes {
            let [waited, line] = [&plan, &both.line_plan()].map(|plan| both.waited_ns(plan, mix));
            assert!(waited <= 1.05 * line, "{found:?} {waited} {line}");
        }
        assert!(both.predict(&found).mean_wait_s < both.line_wait_s(), "{found:?}");
    }

    #[test]
    fn small_mail_waits_less_than_in_one_line() {
        let basis = basis(2.2, 3000);
        let classes = basis.beside_one_line();
        assert_eq!(classes.iter().map(|class| class.messages).sum::<usize>(), COMPARED_ARRIVALS);
        let small = classes.first().unwrap();
        assert!(small.mean_wait_s < small.line_mean_wait_s, "{classes:?}");
        assert!(Basis { trace: Vec::new(), ..basis }.beside_one_line().is_empty());
    }

    #[test]
    fn a_weight_for_the_small_makes_them_wait_no_longer() {
        let plain = basis(2.2, 3000);
        let weights = Weights::new(vec![(10_000, 50.0)]).unwrap();
        let weighted = Basis { weights, ..plain.clone() };
        let small = |basis: &Basis| {
            let weights = Weights::new(vec![(10_000, 1.0), (1 << 40, 1e-9)]).unwrap();
            let plan = Plan { limits: basis.search(), ..plain.plan.clone() };
            Basis { weights, ..plain.clone() }.waited_ns(&plan, &plain.trace)
        };
        assert!(small(&weighted) <= small(&plain));
    }

    #[test]
    fn half_of_the_workers_take_every_size() {
        let kept = |workers: &[usize]| {
            let machine = Machine { workers: workers.to_vec(), cpus: 1 };
            Basis { machine, ..basis(1.0, 10) }.kept_at_most()
        };
        assert_eq!([kept(&[1; 2]), kept(&[1; 5]), kept(&[1; 8])], [1, 2, 4]);
        assert_eq!([kept(&[3, 1, 1]), kept(&[1, 1, 4]), kept(&[4, 4])], [0, 2, 1]);
    }

    #[test]
    fn few_processors_bear_less() {
        let enough = basis(1.5, 3000);
        let few = Basis { machine: Machine { workers: vec![1; 5], cpus: 1 }, ..enough.clone() };
        let limits = &enough.plan.limits;
        assert!(few.predict(limits).lambda_max_per_s < 0.6 * enough.predict(&enough.search()).lambda_max_per_s);
        assert!(few.predict(limits).mean_wait_s > enough.predict(limits).mean_wait_s);
        assert!(enough.is_enough() && !basis(1.0, 10).is_enough());
    }

    #[test]
    fn a_slower_feed_bears_less() {
        let even = basis(1.5, 3000);
        let slow = Service::new(0.4, 0.0008).unwrap();
        let services = [vec![even.service; 4], vec![slow]].concat();
        let plan = Plan { limits: Limits::new(vec![1000, 2000, 3000, 4000]).unwrap(), ..even.plan.clone() };
        let (most, least) = (even.lambda_max_per_s(&plan), Basis { services, ..even }.lambda_max_per_s(&plan));
        assert!((most / least - 4.0).abs() < 1e-6, "{most} {least}");
    }

    #[test]
    fn odd_traces_do_no_harm() {
        let mut one_size = basis(1.5, 600);
        one_size.trace.iter_mut().for_each(|arrival| arrival.size = 0);
        one_size.search();
        let nothing = Basis { trace: Vec::new(), ..one_size };
        assert!(nothing.predict(&nothing.search()).mean_wait_s.abs() < 1e-9);
    }
}
