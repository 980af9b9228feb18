//! Better limits for the traffic that there is: the last arrivals are replayed through the feeds with other limits.
//!
//! Nothing is assumed of arrivals or sizes; t0 and ts come from the regression. The search is differential evolution over all
//! limits, cheap candidates on a part of the trace, the survivors on all of it: a second of one processor at most. A set
//! is better only if it saves a fifth of the mean wait, and a millisecond: limits must not wander with the noise.

use super::figures::{TRACE_MAX, null_is_nan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::feeds::{Arrival, Evolution, LastLimit, Limits, Machine, Plan, SearchSpace, Service, Strategy, replay};

/// Fewer arrivals say too little.
pub(super) const ARRIVALS_MIN: usize = 500;
/// A better set waits at most so much of what today's does.
const BETTER: f64 = 0.8;
/// And saves at least so much.
const SAVES_S: f64 = 0.001;
/// Arrivals of the search's first stage.
const FIRST_ARRIVALS: usize = 2_000;
/// Generations of both stages, and who survives the first.
const GENERATIONS: [usize; 2] = [14, 8];
const SURVIVORS: usize = 10;

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
        let ends = limits.bytes().iter().map(|bytes| Some(*bytes)).chain([None]);
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
        let sizes = || self.trace.iter().map(|arrival| arrival.size);
        let (smallest, largest) = (sizes().min().unwrap_or(1).max(1), sizes().max().unwrap_or(1).max(2));
        let space = SearchSpace::new(smallest as f64, largest, self.plan.limits.feeds(), LastLimit::Free);
        let dimension = space.dimension();
        let mut unit = units(self.trace.last().map_or(1, |arrival| arrival.at.0));
        let starts = self.starts(&space);
        let mut search = Evolution::new(&starts, dimension, 16 + 8 * dimension.min(4), &mut unit);
        let short = self.trace.len().saturating_sub(FIRST_ARRIVALS);
        for (stage, trace) in [&self.trace[short..], &self.trace[..]].into_iter().enumerate() {
            for generation in 0..=GENERATIONS[stage] {
                let points = if generation == 0 { search.ask_again() } else { search.ask(&mut unit) };
                let costs: Vec<f64> = points
                    .iter()
                    .map(|point| space.limits(point).map_or(f64::INFINITY, |limits| self.cost(&limits, trace)))
                    .collect();
                search.tell(&costs);
            }
            search.keep_best(SURVIVORS);
        }
        space.limits(search.best().0).unwrap_or_else(|| self.plan.limits.clone())
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

    fn cost(&self, limits: &Limits, trace: &[Arrival]) -> f64 {
        let plan = Plan { limits: limits.clone(), ..self.plan.clone() };
        let mut total = 0.0;
        replay(trace.iter().copied(), &self.service, &plan, &self.machine, &mut |served| {
            total += served.wait_ns as f64;
        });
        total
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

fn mean_s(waits: &[u64]) -> f64 {
    waits.iter().map(|wait| *wait as f64).sum::<f64>() / 1e9 / waits.len().max(1) as f64
}

fn p95_s(waits: &mut [u64]) -> f64 {
    waits.sort_unstable();
    waits.get((waits.len() * 95 / 100).min(waits.len().saturating_sub(1))).map_or(0.0, |wait| *wait as f64 / 1e9)
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
    use weir_core::time::Instant;

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
            plan: Plan::new(Limits::default_for(5, 250_000).unwrap(), Strategy::Shortest),
            machine: Machine { workers: vec![1; 5], cpus: 5 },
            lambda_per_s,
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
