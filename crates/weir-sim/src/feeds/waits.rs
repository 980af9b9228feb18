//! Statistics of waiting times: number, mean, and quantiles with an error of 1 % at most, in constant memory.

/// The tally. Waits are counted in buckets of 1/128 of a power of two.
#[derive(Debug, Clone)]
pub(super) struct Waits {
    count: u64,
    total_ns: f64,
    buckets: Vec<u64>,
}

const STEP_BITS: u32 = 7;
const STEPS: u64 = 1 << STEP_BITS;

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { count: 0, total_ns: 0.0, buckets: vec![0; bucket(u64::MAX) + 1] }
    }

    #[inline]
    pub(super) fn add(&mut self, wait_ns: u64) {
        self.count += 1;
        self.total_ns += wait_ns as f64;
        self.buckets[bucket(wait_ns)] += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn total_s(&self) -> f64 {
        self.total_ns / 1e9
    }

    pub(super) fn mean_s(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_s() / self.count as f64 }
    }

    /// The wait that this share of messages does not exceed.
    pub(super) fn quantile_s(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle(i) / 1e9;
            }
        }
        0.0
    }
}

/// Small numbers have a bucket each; above that the highest bits choose.
#[inline]
fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = ns.ilog2() - STEP_BITS;
    (u64::from(power) * STEPS + (ns >> power)) as usize
}

fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket as f64;
    }
    let power = bucket / STEPS - 1;
    let low = (bucket % STEPS + STEPS) as f64;
    (low + 0.5) * (power as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut waits = Waits::new();
        (1..=100_000u64).for_each(|i| waits.add(i * 37_000));
        for share in [0.05, 0.5, 0.95, 0.999] {
            let right = share * 100_000.0 * 37_000.0 / 1e9;
            assert!((waits.quantile_s(share) / right - 1.0).abs() < 0.01, "{share}");
        }
        assert!((waits.mean_s() / (50_000.5 * 37_000.0 / 1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn every_wait_has_its_bucket() {
        let mut last = 0;
        for ns in (0..300).chain((0..64).flat_map(|p| [1u64 << p, (1u64 << p) | ((1u64 << p) >> 1)])).chain([u64::MAX])
        {
            let middle = middle(bucket(ns));
            assert!((middle - ns as f64).abs() <= ns as f64 * 0.01, "{ns} {middle}");
            last = last.max(bucket(ns));
        }
        assert!(last < Waits::new().buckets.len());
        assert_eq!((Waits::new().mean_s(), Waits::new().quantile_s(0.95)), (0.0, 0.0));
    }
}
