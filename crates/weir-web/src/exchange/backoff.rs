//! How long to wait before the next attempt to connect to a relay or NATS server.

use std::time::Duration;

/// Doubles from 50 ms to 2 s, less a random quarter so that front-ends do not all reconnect at the same time.
#[derive(Debug)]
pub(super) struct Backoff {
    tries: u32,
    seed: u64,
}

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

impl Backoff {
    pub(super) fn new(seed: u64) -> Backoff {
        Backoff { tries: 0, seed }
    }

    /// A connection worked, so the next wait is short again.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    pub(super) fn wait(&mut self) -> Duration {
        let whole = (FIRST * (1 << self.tries.min(10))).min(LONGEST);
        self.tries += 1;
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        whole - whole.mul_f64((self.seed >> 40) as f64 / f64::from(1 << 24) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<Duration> = (0..50).map(|_| backoff.wait()).collect();
        assert!(waits[0] <= FIRST && waits[1] > FIRST);
        assert!(waits.iter().all(|wait| *wait <= LONGEST) && *waits.last().unwrap() >= LONGEST.mul_f64(0.75));
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
    }
}
