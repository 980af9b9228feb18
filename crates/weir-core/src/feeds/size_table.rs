//! The distribution of message sizes as a small table: cumulative count, sum and sum of squares at geometric points.
//!
//! The paper's section V: z_1 = 0, z_2 the smallest size, then a constant ratio up to the largest; values between
//! points are interpolated. The table is what a gate keeps of its traffic: M points, whatever the number of messages.
//! Building costs O(D log M) for D sizes, a question O(log M). Sizes of 0 count as 1.

use alloc::vec;
use alloc::vec::Vec;

/// M, the paper's number of points.
pub const TABLE_POINTS: usize = 101;

/// The table. All cumulative columns are a message's share, so that the last value of `p` is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTable {
    points: Vec<f64>,
    below: Vec<Sums>,
}

/// p, s̄ and the mean of s² of the messages within a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Moments {
    /// The share of all messages that is in the range.
    pub p: f64,
    /// Their mean size in bytes; 0 if there are none.
    pub mean: f64,
    /// Their mean squared size; 0 if there are none.
    pub mean_square: f64,
}

/// Cumulative sums over sizes up to a point, divided by the number of all messages.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(super) struct Sums {
    pub(super) p: f64,
    pub(super) size: f64,
    pub(super) square: f64,
}

impl SizeTable {
    /// The paper's table of M = 101 points; none without sizes.
    pub fn new(sizes: &[u64]) -> Option<SizeTable> {
        SizeTable::with_points(sizes, TABLE_POINTS)
    }

    /// The same with another number of points (at least 3).
    pub fn with_points(sizes: &[u64], points: usize) -> Option<SizeTable> {
        let smallest = (*sizes.iter().min()?).max(1) as f64;
        let largest = (*sizes.iter().max()?).max(1) as f64;
        let points = geometric(smallest, largest, points.max(3));
        let mut below = vec![Sums::default(); points.len()];
        for size in sizes {
            let size = (*size).max(1) as f64;
            let place = points.partition_point(|z| *z < size);
            if let Some(sums) = below.get_mut(place) {
                sums.add(Sums { p: 1.0, size, square: size * size });
            }
        }
        let mut total = Sums::default();
        for sums in &mut below {
            total.add(*sums);
            *sums = total.divided_by(sizes.len() as f64);
        }
        Some(SizeTable { points, below })
    }

    /// p, s̄ and s̄² of sizes in `from` < s ≤ `to`.
    pub fn between(&self, from: f64, to: f64) -> Moments {
        self.below(to).minus(self.below(from)).moments()
    }

    /// A size by inverse interpolation of the cumulative count; `unit` is a random number in 0 … 1.
    pub fn draw(&self, unit: f64) -> f64 {
        let wanted = if unit.is_nan() { 0.5 } else { unit.clamp(0.0, 1.0) };
        let place = self.below.partition_point(|sums| sums.p < wanted).clamp(1, self.points.len() - 1);
        let (low, high) = (self.below[place - 1].p, self.below[place].p);
        let share = if high > low { ((wanted - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        self.points[place - 1] + share * (self.points[place] - self.points[place - 1])
    }

    /// The points z_1 … z_M.
    pub fn points(&self) -> &[f64] {
        &self.points
    }

    /// The smallest size in it.
    pub fn smallest(&self) -> f64 {
        self.points[1]
    }

    /// The largest size in it.
    pub fn largest(&self) -> f64 {
        self.points[self.points.len() - 1]
    }

    /// The share of messages of at most this size.
    pub fn share_below(&self, size: f64) -> f64 {
        self.below(size).p
    }

    /// The cumulative columns at any size, interpolated.
    pub(super) fn below(&self, size: f64) -> Sums {
        let place = self.points.partition_point(|z| *z < size);
        if place == 0 {
            return Sums::default();
        }
        let (low, sums) = (self.points[place - 1], self.below[place - 1]);
        match (self.points.get(place), self.below.get(place)) {
            (Some(high), Some(above)) => sums.towards(*above, (size - low) / (high - low)),
            _ => sums,
        }
    }
}

impl Sums {
    pub(super) fn add(&mut self, other: Sums) {
        self.p += other.p;
        self.size += other.size;
        self.square += other.square;
    }

    pub(super) fn minus(self, other: Sums) -> Sums {
        let less = |a: f64, b: f64| (a - b).max(0.0);
        Sums { p: less(self.p, other.p), size: less(self.size, other.size), square: less(self.square, other.square) }
    }

    fn divided_by(self, count: f64) -> Sums {
        Sums { p: self.p / count, size: self.size / count, square: self.square / count }
    }

    fn towards(self, other: Sums, share: f64) -> Sums {
        let between = |a: f64, b: f64| a + share * (b - a);
        Sums {
            p: between(self.p, other.p),
            size: between(self.size, other.size),
            square: between(self.square, other.square),
        }
    }

    fn moments(self) -> Moments {
        // Less than one message in 10^12 is rounding, not mail.
        if self.p < 1e-12 {
            return Moments::default();
        }
        Moments { p: self.p, mean: self.size / self.p, mean_square: self.square / self.p }
    }
}

/// 0, then `count` − 1 points from the smallest to the largest with a constant ratio.
fn geometric(smallest: f64, largest: f64, count: usize) -> Vec<f64> {
    let ratio_log = libm::log(largest / smallest) / (count - 2) as f64;
    let inner = (0..count - 2).map(|i| smallest * libm::exp(ratio_log * i as f64));
    core::iter::once(0.0).chain(inner.map(|z| z.min(largest))).chain([largest]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_points_the_table_is_exact() {
        let sizes: Vec<u64> = (0..50_000u64).map(|i| 100 + (i * i) % 90_001).collect();
        let table = SizeTable::new(&sizes).unwrap();
        assert_eq!(table.points().len(), 101);
        assert_eq!((table.points()[0], table.smallest(), table.largest()), (0.0, 100.0, 90_100.0));
        for (low, high) in [(0, 100), (20, 60), (99, 100)] {
            let (from, to) = (table.points()[low], table.points()[high]);
            let within = || sizes.iter().map(|s| *s as f64).filter(|s| from < *s && *s <= to);
            let count = within().count() as f64;
            let moments = table.between(from, to);
            assert!((moments.p - count / 50_000.0).abs() < 1e-9);
            assert!((moments.mean / (within().sum::<f64>() / count) - 1.0).abs() < 1e-9);
            assert!((moments.mean_square / (within().map(|s| s * s).sum::<f64>() / count) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn drawing_inverts_the_share() {
        let sizes: Vec<u64> = (1..=10_000).collect();
        let table = SizeTable::new(&sizes).unwrap();
        for i in 0..=100 {
            let unit = f64::from(i) / 100.0;
            assert!((table.share_below(table.draw(unit)) - unit).abs() < 1e-9, "{unit}");
        }
        assert!(table.draw(f64::NAN) <= 10_000.0 && table.draw(7.0) <= 10_000.0);
    }

    #[test]
    fn odd_samples_make_a_table_too() {
        assert_eq!(SizeTable::new(&[]), None);
        let same = SizeTable::new(&[700; 9]).unwrap();
        assert_eq!(same.between(0.0, 700.0), Moments { p: 1.0, mean: 700.0, mean_square: 490_000.0 });
        assert_eq!(same.between(700.0, 1e9), Moments::default());
        assert!(same.draw(0.5) <= 700.0);
        let zero = SizeTable::new(&[0, u64::MAX]).unwrap();
        assert!((zero.between(0.0, f64::INFINITY).p - 1.0).abs() < 1e-12);
        assert!((zero.share_below(1.0) - 0.5).abs() < 1e-12);
    }
}
