//! Nelder and Mead's simplex search with Matlab's `fminsearch` settings: the paper's method.
//!
//! Kept to reproduce the paper, not for use: from the default limits it ends in a local minimum. The start is stretched
//! by 5 % in each direction; it stops when the simplex is flat and small, or after 200 evaluations per dimension.

use alloc::vec::Vec;

const TOLERANCE: f64 = 1e-4;

/// Where the search ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Minimum {
    /// The best point seen.
    pub at: Vec<f64>,
    /// The cost there.
    pub cost: f64,
    /// How many points were evaluated.
    pub evaluations: usize,
}

/// Minimises `cost` from `start`. A point that is not allowed costs infinity.
pub fn nelder_mead(start: &[f64], cost: impl FnMut(&[f64]) -> f64) -> Minimum {
    let mut simplex = Simplex::new(start, cost);
    while simplex.evaluations < 200 * start.len() && !simplex.converged() {
        simplex.step();
    }
    let (at, cost) = simplex.corners.swap_remove(0);
    Minimum { at, cost, evaluations: simplex.evaluations }
}

struct Simplex<F> {
    /// Corners with their costs, best first.
    corners: Vec<(Vec<f64>, f64)>,
    cost: F,
    evaluations: usize,
}

impl<F: FnMut(&[f64]) -> f64> Simplex<F> {
    fn new(start: &[f64], cost: F) -> Simplex<F> {
        let mut simplex = Simplex { corners: Vec::new(), cost, evaluations: 0 };
        simplex.add(start.to_vec());
        for i in 0..start.len() {
            let mut corner = start.to_vec();
            corner[i] = if corner[i] == 0.0 { 0.00025 } else { corner[i] * 1.05 };
            simplex.add(corner);
        }
        simplex.sort();
        simplex
    }

    fn add(&mut self, point: Vec<f64>) {
        let cost = self.evaluate(&point);
        self.corners.push((point, cost));
    }

    fn evaluate(&mut self, point: &[f64]) -> f64 {
        self.evaluations += 1;
        let cost = (self.cost)(point);
        if cost.is_nan() { f64::INFINITY } else { cost }
    }

    fn sort(&mut self) {
        self.corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    }

    fn converged(&self) -> bool {
        let (best, least) = &self.corners[0];
        let flat = self.corners.iter().all(|c| (c.1 - least).abs() <= TOLERANCE);
        let distance = |c: &(Vec<f64>, f64)| c.0.iter().zip(best).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        flat && self.corners.iter().all(|c| distance(c) <= TOLERANCE)
    }

    /// Reflects the worst corner; expands, contracts or shrinks as the result suggests.
    fn step(&mut self) {
        let worst = self.corners.len() - 1;
        let (least, second, most) = (self.corners[0].1, self.corners[worst.max(1) - 1].1, self.corners[worst].1);
        let (reflected, cost) = self.beyond_worst(1.0);
        if cost < least {
            let (expanded, further) = self.beyond_worst(2.0);
            self.corners[worst] = if further < cost { (expanded, further) } else { (reflected, cost) };
        } else if cost < second {
            self.corners[worst] = (reflected, cost);
        } else {
            let outside = cost < most;
            let (contracted, nearer) = self.beyond_worst(if outside { 0.5 } else { -0.5 });
            if nearer <= cost.min(most) && nearer.is_finite() {
                self.corners[worst] = (contracted, nearer);
            } else {
                self.shrink();
            }
        }
        self.sort();
    }

    /// The point `factor` times as far beyond the middle of the others as the worst corner is before it.
    fn beyond_worst(&mut self, factor: f64) -> (Vec<f64>, f64) {
        let (worst, others) = (&self.corners[self.corners.len() - 1].0, &self.corners[..self.corners.len() - 1]);
        let middle = |i: usize| others.iter().map(|c| c.0[i]).sum::<f64>() / others.len() as f64;
        let point: Vec<f64> = (0..worst.len()).map(|i| middle(i) + factor * (middle(i) - worst[i])).collect();
        let cost = self.evaluate(&point);
        (point, cost)
    }

    fn shrink(&mut self) {
        let best = self.corners[0].0.clone();
        for i in 1..self.corners.len() {
            let nearer: Vec<f64> = self.corners[i].0.iter().zip(&best).map(|(x, b)| b + 0.5 * (x - b)).collect();
            let cost = self.evaluate(&nearer);
            self.corners[i] = (nearer, cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_of_a_curved_valley() {
        let valley = |x: &[f64]| 100.0 * (x[1] - x[0] * x[0]) * (x[1] - x[0] * x[0]) + (1.0 - x[0]) * (1.0 - x[0]);
        let found = nelder_mead(&[-1.2, 1.0], valley);
        assert!((found.at[0] - 1.0).abs() < 1e-3 && (found.at[1] - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn ends_even_where_nothing_is_allowed() {
        let found = nelder_mead(&[1.0, 2.0], |_| f64::NAN);
        assert!(found.cost.is_infinite() && found.evaluations <= 410);
        assert_eq!(nelder_mead(&[], |_| 3.0).cost, 3.0);
    }
}
