//! A Poisson stream of messages: an endless iterator of arrivals.

use super::Sizes;
use crate::rng::Rng;
use weir_core::feeds::Arrival;
use weir_core::time::Instant;

/// Arrivals at rate λ with sizes from a source.
#[derive(Debug)]
pub struct ArrivalStream<'a> {
    sizes: &'a Sizes,
    mean_gap_ns: f64,
    at: u64,
    // Two generators: the times stay the same when only the sizes change.
    gaps: Rng,
    draws: Rng,
}

impl<'a> ArrivalStream<'a> {
    /// The stream of a seed.
    pub fn new(sizes: &'a Sizes, lambda_per_s: f64, seed: u64) -> ArrivalStream<'a> {
        let mut rng = Rng::new(seed);
        ArrivalStream { sizes, mean_gap_ns: 1e9 / lambda_per_s, at: 0, gaps: rng.fork(), draws: rng.fork() }
    }
}

impl Iterator for ArrivalStream<'_> {
    type Item = Arrival;

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        self.at = self.at.saturating_add(self.gaps.exponential(self.mean_gap_ns) as u64);
        Some(Arrival { at: Instant(self.at), size: self.sizes.draw(&mut self.draws) })
    }
}
