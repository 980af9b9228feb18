//! How long a scan takes: t0 + ts·s (eq. 1), and the load that a stream of messages puts on the feeds.

use super::Moments;
use super::size_table::Sums;

/// The time to scan a message of a given size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    t0_s: f64,
    ts_s_per_byte: f64,
}

impl Service {
    /// t0 seconds a message and ts seconds a byte; none if one is negative, not finite, or both are zero.
    pub fn new(t0_s: f64, ts_s_per_byte: f64) -> Option<Service> {
        let sound = |x: f64| x.is_finite() && x >= 0.0;
        let works = sound(t0_s) && sound(ts_s_per_byte) && t0_s + ts_s_per_byte > 0.0;
        works.then_some(Service { t0_s, ts_s_per_byte })
    }

    /// The same work on `cpus` processors shared by `feeds` workers: with too few, each scan takes longer.
    #[must_use]
    pub fn stretched(self, feeds: usize, cpus: usize) -> Service {
        let factor = (feeds as f64 / cpus.max(1) as f64).max(1.0);
        Service { t0_s: self.t0_s * factor, ts_s_per_byte: self.ts_s_per_byte * factor }
    }

    /// Seconds to scan so many bytes.
    pub fn time_s(&self, size: f64) -> f64 {
        self.t0_s + self.ts_s_per_byte * size
    }

    /// Nanoseconds to scan so many bytes.
    #[inline]
    pub fn time_ns(&self, size: u64) -> u64 {
        (self.time_s(size as f64) * 1e9) as u64
    }

    /// The mean service time of messages with these moments (eq. 2).
    pub fn mean_s(&self, sizes: &Moments) -> f64 {
        self.time_s(sizes.mean)
    }

    /// The mean square of the service time (eq. 3).
    pub fn mean_square_s2(&self, sizes: &Moments) -> f64 {
        let (t0, ts) = (self.t0_s, self.ts_s_per_byte);
        t0 * t0 + 2.0 * t0 * ts * sizes.mean + ts * ts * sizes.mean_square
    }

    /// Eq. 2 and 3 not yet divided by p: mean time and mean square, each times the share of messages.
    pub(super) fn work(&self, sums: Sums) -> (f64, f64) {
        let (t0, ts) = (self.t0_s, self.ts_s_per_byte);
        let square = t0 * t0 * sums.p + 2.0 * t0 * ts * sums.size + ts * ts * sums.square;
        (t0 * sums.p + ts * sums.size, square)
    }
}

/// The load: λ messages a second, each with its service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// λ.
    pub lambda_per_s: f64,
    /// The time of one scan.
    pub service: Service,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_the_time_follow_those_of_the_size() {
        let service = Service::new(1.0, 0.5).unwrap();
        // Sizes 2 and 4, equally often: times 2 and 3.
        let sizes = Moments { p: 1.0, mean: 3.0, mean_square: 10.0 };
        assert!((service.mean_s(&sizes) - 2.5).abs() < 1e-12);
        assert!((service.mean_square_s2(&sizes) - 6.5).abs() < 1e-12);
        assert_eq!(service.time_ns(2), 2_000_000_000);
    }

    #[test]
    fn too_few_processors_stretch_every_scan() {
        let service = Service::new(1.0, 0.0).unwrap();
        assert!((service.stretched(5, 1).time_s(9.0) - 5.0).abs() < 1e-12);
        assert_eq!(service.stretched(5, 8), service);
        assert_eq!(service.stretched(5, 0), service.stretched(5, 1));
        assert_eq!(Service::new(f64::NAN, 1.0), None);
        assert_eq!(Service::new(-1.0, 1.0), None);
        assert_eq!(Service::new(0.0, 0.0), None);
    }
}
