//! How long to wait before a certificate that could not be obtained is requested again.
//!
//! Authorities count failed proofs and lock out clients that fail too often, so after a failed proof we wait for a long time. Any other
//! problem may be over soon, so then the first wait is short.

use std::time::Duration;

/// How much the authority minds a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The authority was not reached, or could not answer.
    Little,
    /// The authority checked whether the name is ours, and the check failed.
    FailedProof,
    /// The authority says that we ask too often.
    RateLimit,
}

impl Cost {
    fn bounds(self) -> (Duration, Duration) {
        match self {
            Cost::Little => (Duration::from_secs(5), Duration::from_secs(3600)),
            Cost::FailedProof => (Duration::from_secs(300), Duration::from_secs(12 * 3600)),
            Cost::RateLimit => (Duration::from_secs(3600), Duration::from_secs(24 * 3600)),
        }
    }
}

/// The wait after this many failures in a row. `spread` is a random number from 0 to 1, so that several machines do not ask at the same
/// time.
pub(crate) fn wait(failures: u32, cost: Cost, spread: f64) -> Duration {
    let (first, longest) = cost.bounds();
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(longest);
    doubled.mul_f64(0.75 + spread.clamp(0.0, 1.0) / 2.0)
}

/// A random number from 0 to 1.
pub(crate) fn spread() -> f64 {
    let mut octets = [0; 2];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octets);
    // Without random numbers all machines wait equally long, which does no harm.
    filled.map_or(0.5, |()| f64::from(u16::from_le_bytes(octets)) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end_at_their_bound() {
        let seconds = |failures, cost| wait(failures, cost, 0.5).as_secs();
        assert_eq!([1, 2, 3].map(|failures| seconds(failures, Cost::Little)), [5, 10, 20]);
        assert_eq!([1, 2, 30].map(|failures| seconds(failures, Cost::FailedProof)), [300, 600, 12 * 3600]);
        assert_eq!(seconds(1, Cost::RateLimit), 3600);
        assert!(wait(1, Cost::Little, 0.0) < wait(1, Cost::Little, 1.0));
        assert!((0.0..=1.0).contains(&spread()));
    }
}
