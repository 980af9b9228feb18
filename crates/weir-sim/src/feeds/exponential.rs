//! The exponential model of sizes that the paper draws beside its measurements (Figures 5 and 8).
//!
//! Its mean is chosen so that the mean square error between the two distribution curves is least, over the points of
//! the paper's size table.

use serde::Serialize;
use weir_core::feeds::SizeTable;

/// The model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Exponential {
    /// Its mean in bytes.
    pub mean_bytes: f64,
    /// The root of the mean square error between its distribution and that of the sizes.
    pub rms_error: f64,
}

impl Exponential {
    /// The best fit to a table.
    pub fn fit(table: &SizeTable) -> Exponential {
        let (low, high) = (table.smallest().ln(), table.largest().max(2.0).ln());
        let at = |place: f64| Exponential::with(table, (low + place * (high - low)).exp());
        // One valley in most cases, but nothing says so: a look everywhere, then closer and closer around the best.
        let (mut best, mut step) = (0.5, 0.005);
        for looks in [100, 10, 10, 10, 10] {
            let near = (-looks..=looks).map(|i| (best + f64::from(i) * step).clamp(0.0, 1.0));
            best = near.min_by(|a, b| at(*a).rms_error.total_cmp(&at(*b).rms_error)).unwrap_or(best);
            step /= 10.0;
        }
        at(best)
    }

    /// The share of messages of at most this size, by the model.
    pub fn share_below(&self, size: f64) -> f64 {
        1.0 - (-size / self.mean_bytes).exp()
    }

    fn with(table: &SizeTable, mean_bytes: f64) -> Exponential {
        let model = Exponential { mean_bytes, rms_error: 0.0 };
        let error = |size: &f64| (table.share_below(*size) - model.share_below(*size)).powi(2);
        let points = table.points();
        let mean = points.iter().map(error).sum::<f64>() / points.len() as f64;
        Exponential { rms_error: mean.sqrt(), ..model }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sizes;
    use super::*;

    #[test]
    fn sizes_that_are_exponential_fit_and_the_papers_do_not() {
        let fits = Exponential::fit(Sizes::exponential(7_000.0).table());
        assert!((fits.mean_bytes / 7_000.0 - 1.0).abs() < 0.03 && fits.rms_error < 0.01, "{fits:?}");
        for sizes in [Sizes::dual_gaussian(), Sizes::heavy_tailed()] {
            let (name, fit) = (sizes.name(), Exponential::fit(sizes.table()));
            assert!(fit.rms_error > 3.0 * fits.rms_error, "{name}: {fit:?}");
            let table = sizes.table();
            assert!(fit.share_below(500.0) > table.share_below(500.0), "{name}: fewer small ones than the model has");
            assert!(fit.share_below(40_000.0) > table.share_below(40_000.0), "{name}: and more large ones");
        }
    }
}
