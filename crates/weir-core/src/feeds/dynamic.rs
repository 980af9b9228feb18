//! The best limits for [`super::Strategy::Size`], exactly: a dynamic program over a grid of candidate limits.
//!
//! W (eq. 7) is a sum over feeds of a term that depends on two neighbouring limits only. So the best way to cut the
//! sizes up to a candidate into i feeds is the best way to cut those below an earlier candidate into i − 1, plus
//! one feed between. With G candidates that is O(N·G²). The minimum over the candidates is global, which a simplex
//! search cannot promise.
//!
//! The candidates of a fine table are its own points, where it is exact. A coarse table (the paper's) is interpolated
//! on a finer grid, and once more around the limits found.

use super::size_table::Sums;
use super::{LastLimit, Limits, Mg1, Objective};
use alloc::vec;
use alloc::vec::Vec;

/// A table with this many points is fine enough: its own points serve as candidates.
const FINE_TABLE: usize = 1000;
const GRID: usize = 1200;
const AROUND: usize = 120;

/// The limits of `feeds` feeds with the least W by size, and that W. `last` is s_{N−1}, or the largest s_{N−1} to
/// consider if the objective leaves it free. None if every choice leaves a feed unstable.
pub fn best_limits(mg1: &Mg1<'_>, feeds: usize, last: u64, objective: &Objective) -> Option<(Limits, f64)> {
    let end = last as f64;
    let low = mg1.table.smallest().min(end);
    let points = mg1.table.points();
    let refined = if points.len() >= FINE_TABLE {
        let below = points.iter().copied().filter(|z| *z < end);
        Grid::new(mg1, objective, below.chain([end]).collect()).best(feeds)?
    } else {
        let found = Grid::new(mg1, objective, geometric(low, end, GRID)).best(feeds)?;
        let step = libm::pow(end.max(1.0) / low.max(1.0), 2.0 / GRID as f64);
        Grid::new(mg1, objective, around(&found, step, low, end)).best(feeds)?
    };
    let limits = Limits::new(refined.iter().map(|s| libm::round(*s) as u64).collect()).ok()?;
    let wait = mg1.mean_wait_s(&limits, objective);
    wait.is_finite().then_some((limits, wait))
}

struct Grid<'a> {
    mg1: &'a Mg1<'a>,
    /// Candidates from 0 to the last limit, then infinity.
    candidates: Vec<f64>,
    below: Vec<Sums>,
    weight_below: Vec<f64>,
    last: LastLimit,
}

impl<'a> Grid<'a> {
    fn new(mg1: &'a Mg1<'a>, objective: &Objective, mut candidates: Vec<f64>) -> Grid<'a> {
        candidates.push(f64::INFINITY);
        let below = candidates.iter().map(|s| mg1.table.below(*s)).collect();
        let weight_below = candidates.iter().map(|s| objective.weights.share_below(mg1.table, *s)).collect();
        Grid { mg1, candidates, below, weight_below, last: objective.last }
    }

    /// The best N − 1 limits among the candidates.
    fn best(&self, feeds: usize) -> Option<Vec<f64>> {
        let end = self.candidates.len() - 1;
        let mut least = vec![f64::INFINITY; end];
        *least.first_mut()? = 0.0;
        let mut came_from = Vec::new();
        for _ in 1..feeds {
            let (next, from) = self.one_more_feed(&least);
            came_from.push(from);
            least = next;
        }
        let mut at = match self.last {
            LastLimit::Fixed => end.checked_sub(1)?,
            LastLimit::Free => self.with_last_feed(&least)?,
        };
        if least.get(at)?.is_infinite() {
            return None;
        }
        let mut limits = Vec::new();
        for from in came_from.iter().rev() {
            limits.push(self.candidates[at]);
            at = from[at];
        }
        limits.reverse();
        Some(limits)
    }

    /// Adds one feed: the least W that ends at each candidate, and the candidate where its last feed begins.
    fn one_more_feed(&self, least: &[f64]) -> (Vec<f64>, Vec<usize>) {
        let best_at = |to: usize| {
            (0..=to).fold((f64::INFINITY, 0), |best, from| {
                let total = least[from] + if least[from] < best.0 { self.cost(from, to) } else { 0.0 };
                if total < best.0 { (total, from) } else { best }
            })
        };
        (0..least.len()).map(best_at).unzip()
    }

    /// Where to end the last limit if feed N counts as well.
    fn with_last_feed(&self, least: &[f64]) -> Option<usize> {
        let total = |at: usize| least[at] + self.cost(at, self.candidates.len() - 1);
        (0..least.len()).min_by(|a, b| total(*a).total_cmp(&total(*b))).filter(|at| total(*at).is_finite())
    }

    fn cost(&self, from: usize, to: usize) -> f64 {
        let sums = self.below[to].minus(self.below[from]);
        if sums.p < 1e-12 { 0.0 } else { (self.weight_below[to] - self.weight_below[from]) * self.mg1.wait_s(sums) }
    }
}

/// 0 and `count` points from `low` to `high` with a constant ratio.
fn geometric(low: f64, high: f64, count: usize) -> Vec<f64> {
    let ratio_log = libm::log(high.max(1.0) / low.max(1.0)) / (count - 1) as f64;
    let inner = (0..count - 1).map(|i| low.max(1.0) * libm::exp(ratio_log * i as f64));
    core::iter::once(0.0).chain(inner).chain([high]).collect()
}

/// 0, the last limit, and a fine grid a step either side of each limit found.
fn around(found: &[f64], step: f64, low: f64, last: f64) -> Vec<f64> {
    let mut fine: Vec<f64> = found.iter().flat_map(|s| geometric(s / step, s * step, AROUND)).collect();
    fine.extend(found);
    fine.push(last);
    // Below the smallest size a table only interpolates.
    fine.retain(|s| *s == 0.0 || (low..=last).contains(s));
    fine.sort_by(f64::total_cmp);
    fine.dedup();
    fine
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feeds::{Load, Service, SizeTable};

    /// Sizes 1 … 400 with more small ones than large.
    fn table(points: usize) -> SizeTable {
        let sizes: Vec<u64> = (1..=400u64).flat_map(|s| core::iter::repeat_n(s, (4000 / (s + 20)) as usize)).collect();
        SizeTable::with_points(&sizes, points).unwrap()
    }

    fn mg1(table: &SizeTable, lambda_per_s: f64) -> Mg1<'_> {
        Mg1::new(table, Load { lambda_per_s, service: Service::new(0.1, 0.01).unwrap() })
    }

    #[test]
    fn nothing_on_a_coarse_grid_is_better() {
        let free = Objective { last: LastLimit::Free, ..Objective::default() };
        for (points, objective) in [(400, Objective::default()), (1500, Objective::default()), (400, free)] {
            let table = table(points);
            let mg1 = mg1(&table, 1.2);
            let (limits, wait) = best_limits(&mg1, 4, 400, &objective).unwrap();
            assert!((mg1.mean_wait_s(&limits, &objective) - wait).abs() < 1e-12);
            let lasts = if objective.last == LastLimit::Free { 1..=80 } else { 80..=80 };
            for c in lasts {
                for (a, b) in (1..=c).flat_map(|b| (1..=b).map(move |a| (a, b))) {
                    let tried = Limits::new([a, b, c].map(|x: u64| x * 5).to_vec()).unwrap();
                    let other = mg1.mean_wait_s(&tried, &objective);
                    assert!(wait <= other * 1.001, "{limits:?} {wait}, but {tried:?} {other}");
                }
            }
        }
    }

    #[test]
    fn a_size_that_many_share_is_not_cut() {
        // Between two sizes the table only interpolates: no limit may gain by dividing the messages of one size.
        let sizes = [vec![1000; 60], vec![4000; 40]].concat();
        let table = SizeTable::with_points(&sizes, 1001).unwrap();
        let mg1 = Mg1::new(&table, Load { lambda_per_s: 0.4, service: Service::new(0.0, 0.001).unwrap() });
        let (limits, wait) = best_limits(&mg1, 4, 5000, &Objective::default()).unwrap();
        let plain = mg1.mean_wait_s(&Limits::new(vec![1000, 4000, 5000]).unwrap(), &Objective::default());
        assert!((wait / plain - 1.0).abs() < 1e-9, "{limits:?} {wait} {plain}");
    }

    #[test]
    fn what_cannot_be_stable_is_refused() {
        let table = table(400);
        assert_eq!(best_limits(&mg1(&table, 50.0), 4, 400, &Objective::default()), None);
        assert!(best_limits(&mg1(&table, 0.5), 2, 400, &Objective::default()).is_some(), "nothing to choose is fine");
    }
}
