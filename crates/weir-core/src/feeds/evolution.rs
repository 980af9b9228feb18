//! Differential evolution in ask/tell form: a global search where the cost is a simulation.
//!
//! The caller asks for a batch of points, evaluates them as it likes (in parallel, on a common trace so that costs
//! compare), and tells the costs. [`Evolution::ask_again`] hands out the whole population, so that it can be judged
//! anew on a longer trace. Randomness is the caller's `unit`, uniform in 0 … 1: the same sequence, the same search.
//! A batch costs O(population × dimension).

use super::{LastLimit, Limits};
use alloc::vec::Vec;
use core::mem;

/// A population of points in the unit cube, each in ascending order.
#[derive(Clone, Debug)]
pub struct Evolution {
    population: Vec<Member>,
    asked: Awaiting,
}

#[derive(Clone, Debug)]
struct Member {
    point: Vec<f64>,
    cost: f64,
}

/// Legal transitions: Nothing → Population or Trials by asking, back to Nothing by telling.
#[derive(Clone, Debug)]
enum Awaiting {
    Nothing,
    Population,
    Trials(Vec<Vec<f64>>),
}

impl Evolution {
    /// A population of `size` (at least 4) points: the given `starts` and random ones.
    pub fn new(starts: &[Vec<f64>], dimension: usize, size: usize, unit: &mut dyn FnMut() -> f64) -> Evolution {
        let mut points: Vec<Vec<f64>> = starts.iter().filter(|s| s.len() == dimension).cloned().collect();
        while points.len() < size.max(4) {
            points.push((0..dimension).map(|_| unit()).collect());
        }
        let member = |point| Member { point: ordered(point), cost: f64::INFINITY };
        Evolution { population: points.into_iter().map(member).collect(), asked: Awaiting::Nothing }
    }

    /// The whole population, to be evaluated for the first time or again.
    pub fn ask_again(&mut self) -> Vec<Vec<f64>> {
        self.asked = Awaiting::Population;
        self.population.iter().map(|m| m.point.clone()).collect()
    }

    /// One trial point for each member.
    pub fn ask(&mut self, unit: &mut dyn FnMut() -> f64) -> Vec<Vec<f64>> {
        let trials: Vec<Vec<f64>> = (0..self.population.len()).map(|i| self.trial(i, unit)).collect();
        self.asked = Awaiting::Trials(trials.clone());
        trials
    }

    /// The costs of the points last asked for, in their order. A trial that is no worse takes its member's place. A
    /// cost that is missing or not a number counts as infinite.
    pub fn tell(&mut self, costs: &[f64]) {
        let cost = |i: usize| costs.get(i).copied().filter(|c| !c.is_nan()).unwrap_or(f64::INFINITY);
        match mem::replace(&mut self.asked, Awaiting::Nothing) {
            Awaiting::Nothing => {}
            Awaiting::Population => (0..self.population.len()).for_each(|i| self.population[i].cost = cost(i)),
            Awaiting::Trials(trials) => {
                for (i, (member, point)) in self.population.iter_mut().zip(trials).enumerate() {
                    if cost(i) <= member.cost {
                        *member = Member { point, cost: cost(i) };
                    }
                }
            }
        }
    }

    /// Adds the members of another search, with their costs.
    pub fn join(&mut self, other: Evolution) {
        self.population.extend(other.population);
        self.asked = Awaiting::Nothing;
    }

    /// Keeps the best `size` members (at least 4), best first.
    pub fn keep_best(&mut self, size: usize) {
        self.population.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        self.population.truncate(size.max(4));
    }

    /// The best member and its cost.
    pub fn best(&self) -> (&[f64], f64) {
        let best = self.population.iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
        best.map_or((&[], f64::INFINITY), |m| (&m.point, m.cost))
    }

    /// A new point in some coordinates, the member's own in the others. Half of the trials start from a random member
    /// (they explore), half from the member on its way to the best (they settle); all add a difference of two others.
    fn trial(&self, i: usize, unit: &mut dyn FnMut() -> f64) -> Vec<f64> {
        let count = self.population.len();
        let mut pick = || &self.population[((unit() * count as f64) as usize).min(count - 1)].point;
        let (base, one, other) = (pick(), pick(), pick());
        let (best, own) = (self.best().0, &self.population[i].point);
        // Random factors for each trial keep a small population from converging too early.
        let (factor, pull, explore) = (0.4 + 0.6 * unit(), unit(), unit() < 0.5);
        let surely = (unit() * own.len() as f64) as usize;
        let mut moved = |j: usize| {
            let from = if explore { base[j] } else { own[j] + pull * (best[j] - own[j]) };
            if j == surely || unit() < 0.9 { from + factor * (one[j] - other[j]) } else { own[j] }
        };
        ordered((0..own.len()).map(&mut moved).collect())
    }
}

/// Points in the unit cube as limits: the logarithm of the size between the smallest and the largest.
///
/// Ascending points give ascending limits, so that no search ever sees limits out of order.
#[derive(Clone, Copy, Debug)]
pub struct SearchSpace {
    low: f64,
    high: f64,
    feeds: usize,
    search: Searched,
}

/// Which of the limits are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Searched {
    /// All but the last, which is given.
    AllButTheLast,
    /// All.
    All,
    /// The first N; the feeds behind them take every size.
    First(usize),
}

/// Points above this stand for no limit, if feeds may do without.
const UNLIMITED_FROM: f64 = 0.9;

impl SearchSpace {
    /// Limits of `feeds` feeds between the smallest size and `last`: s_{N−1}, or the largest to consider if it is free.
    pub fn new(smallest: f64, last: u64, feeds: usize, free: LastLimit) -> SearchSpace {
        let search = if free == LastLimit::Free { Searched::All } else { Searched::AllButTheLast };
        SearchSpace::of(smallest, last, feeds, search)
    }

    /// At most the first `kept` feeds have a limit; the others take every size, and so does the last. One line, where
    /// no feed has a limit, is a point of this space.
    pub fn kept_for_small(smallest: f64, largest: u64, feeds: usize, kept: usize) -> SearchSpace {
        SearchSpace::of(smallest, largest, feeds, Searched::First(kept.min(feeds.saturating_sub(1))))
    }

    fn of(smallest: f64, last: u64, feeds: usize, search: Searched) -> SearchSpace {
        let high = (last as f64).max(1.0);
        SearchSpace { low: smallest.clamp(1.0, high), high, feeds, search }
    }

    /// How many limits are free.
    pub fn dimension(&self) -> usize {
        let limits = self.feeds.saturating_sub(1);
        match self.search {
            Searched::All => limits,
            Searched::AllButTheLast => limits.saturating_sub(1),
            Searched::First(kept) => kept,
        }
    }

    /// The limits that a point stands for.
    pub fn limits(&self, point: &[f64]) -> Option<Limits> {
        let mut bytes: Vec<u64> = point.iter().map(|u| self.size(*u)).collect();
        match self.search {
            Searched::All => {}
            Searched::AllButTheLast => bytes.push(self.high as u64),
            Searched::First(_) => bytes.resize(self.feeds.saturating_sub(1), Limits::UNLIMITED),
        }
        Limits::new(bytes).ok()
    }

    /// The point that stands for these limits, moved into the space.
    pub fn point(&self, limits: &Limits) -> Vec<f64> {
        limits.bytes().iter().take(self.dimension()).map(|bytes| self.place(*bytes)).collect()
    }

    fn size(&self, unit: f64) -> u64 {
        let scaled = match self.search {
            Searched::First(_) if unit >= UNLIMITED_FROM => return Limits::UNLIMITED,
            Searched::First(_) => unit / UNLIMITED_FROM,
            Searched::All | Searched::AllButTheLast => unit,
        };
        libm::round(self.low * libm::exp(scaled * libm::log(self.high / self.low))) as u64
    }

    fn place(&self, bytes: u64) -> f64 {
        let kept = matches!(self.search, Searched::First(_));
        if kept && bytes >= Limits::UNLIMITED {
            return 1.0;
        }
        let width = libm::log(self.high / self.low);
        let place = if width > 0.0 { libm::log((bytes as f64).max(self.low) / self.low) / width } else { 0.0 };
        // This is the largest limit, and not "no limit".
        if kept { place.clamp(0.0, 0.999) * UNLIMITED_FROM } else { place.clamp(0.0, 1.0) }
    }
}

/// Within the unit cube and in ascending order.
fn ordered(mut point: Vec<f64>) -> Vec<f64> {
    for x in &mut point {
        *x = if x.is_finite() { x.clamp(0.0, 1.0) } else { 0.5 };
    }
    point.sort_by(f64::total_cmp);
    point
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn unit(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Two valleys; the wide one is the worse.
    fn cost(point: &[f64]) -> f64 {
        let valley = |at: [f64; 3], width: f64| -> f64 {
            point.iter().zip(at).map(|(x, a)| ((x - a) / width) * ((x - a) / width)).sum()
        };
        valley([0.1, 0.2, 0.3], 0.3).min(valley([0.5, 0.8, 0.9], 0.15) - 1.0)
    }

    #[test]
    fn finds_the_better_of_two_valleys() {
        for seed in 1..=20 {
            let mut unit = unit(seed);
            let mut search = Evolution::new(&[vec![0.1, 0.2, 0.3]], 3, 40, &mut unit);
            let points = search.ask_again();
            search.tell(&points.iter().map(|p| cost(p)).collect::<Vec<_>>());
            for _ in 0..60 {
                let points = search.ask(&mut unit);
                assert!(points.iter().all(|p| p.is_sorted()));
                search.tell(&points.iter().map(|p| cost(p)).collect::<Vec<_>>());
            }
            assert!(search.best().1 < -0.99, "seed {seed}: {:?}", search.best());
        }
    }

    #[test]
    fn points_and_limits_are_the_same_thing() {
        let space = SearchSpace::new(100.0, 250_000, 5, LastLimit::Fixed);
        let limits = Limits::default_for(5, 250_000).unwrap();
        assert_eq!(space.dimension(), 3);
        assert_eq!(space.limits(&space.point(&limits)), Some(limits));
        let free = SearchSpace::new(100.0, 90_000, 5, LastLimit::Free);
        assert_eq!(free.limits(&[0.0, 0.0, 0.5, 1.0]).unwrap().bytes(), [100, 100, 3000, 90_000]);
        let flat = SearchSpace::new(700.0, 700, 5, LastLimit::Fixed);
        assert_eq!(flat.limits(&flat.point(&Limits::default_for(5, 9).unwrap())).unwrap().bytes(), [700; 4]);
    }

    #[test]
    fn feeds_kept_for_the_small_leave_half_of_them_to_every_size() {
        let space = SearchSpace::kept_for_small(100.0, 90_000, 5, 2);
        let none = Limits::UNLIMITED;
        assert_eq!(space.dimension(), 2);
        assert_eq!(space.limits(&[1.0, 1.0]).unwrap(), Limits::unlimited(5).unwrap(), "one line is among them");
        assert_eq!(space.limits(&[0.45, 0.95]).unwrap().bytes(), [3000, none, none, none]);
        for bytes in [vec![3000, 9000, none, none], vec![3000, none, none, none], vec![none; 4]] {
            let limits = Limits::new(bytes).unwrap();
            assert_eq!(space.limits(&space.point(&limits)), Some(limits));
        }
    }

    #[test]
    fn two_searches_become_one() {
        let mut unit = unit(5);
        let mut searches = [0.3, 0.7].map(|at| {
            let mut search = Evolution::new(&[vec![at]], 1, 4, &mut unit);
            let points = search.ask_again();
            search.tell(&points.iter().map(|p| (p[0] - 0.7).abs()).collect::<Vec<_>>());
            search
        });
        let [first, second] = &mut searches;
        first.join(second.clone());
        assert_eq!(first.best().0, [0.7]);
        first.keep_best(5);
        assert_eq!(first.ask_again().len(), 5);
    }

    #[test]
    fn a_shell_that_tells_nonsense_does_no_harm() {
        let mut unit = unit(5);
        let mut search = Evolution::new(&[], 0, 0, &mut unit);
        search.tell(&[1.0]);
        search.ask(&mut unit);
        search.tell(&[f64::NAN]);
        search.keep_best(0);
        assert!(search.best().1.is_infinite());
    }
}
