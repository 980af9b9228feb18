//! Whether a server answers with errors to nearly everybody, so that others should be preferred to it.
//!
//! It counts clients and not answers: subnets are hashed into 64 buckets, and a bucket is bad if all that was heard in it within ten
//! seconds were errors (500, 502, 503 or 504). So a page that always fails, asked for again and again from one network, is one bad bucket. A server that is
//! broken for half of at least eight buckets gets no requests for a while, unless there is no other server.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::fair::SubnetKey;

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Buckets of subnets from which an answer was seen, and those from which a good answer was seen.
    heard: AtomicU64,
    good: AtomicU64,
    since_ms: AtomicU64,
}

const WINDOW_MS: u64 = 10_000;
/// Answers in fewer buckets than this say nothing.
const BUCKETS_MIN: u32 = 8;

impl Breaker {
    /// A server has answered; returns whether it should be left alone now, because this part of the buckets has seen only errors.
    pub(crate) fn heard(&self, subnet: SubnetKey, error: bool, part: f64, now_ms: u64) -> bool {
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(since_ms) > WINDOW_MS {
            self.clear(now_ms);
        }
        let bucket = 1 << (subnet.0 % 64);
        set(&self.heard, bucket);
        if !error {
            set(&self.good, bucket);
            return false;
        }
        part > 0.0 && self.bad_part().is_some_and(|bad| bad >= part)
    }

    /// Whether enough was heard, and in fewer than this part of the buckets only errors.
    pub(crate) fn is_well(&self, part: f64) -> bool {
        self.bad_part().is_some_and(|bad| bad < part)
    }

    /// In which part of the buckets only errors were heard; None if there are too few to tell.
    fn bad_part(&self) -> Option<f64> {
        let heard = self.heard.load(Ordering::Relaxed);
        let bad = heard & !self.good.load(Ordering::Relaxed);
        let all = heard.count_ones();
        (all >= BUCKETS_MIN).then(|| f64::from(bad.count_ones()) / f64::from(all))
    }

    /// Starts again without answers.
    pub(crate) fn clear(&self, now_ms: u64) {
        self.since_ms.store(now_ms, Ordering::Relaxed);
        self.heard.store(0, Ordering::Relaxed);
        self.good.store(0, Ordering::Relaxed);
    }
}

/// Written only on change, because this runs for every answer.
fn set(bits: &AtomicU64, bucket: u64) {
    if bits.load(Ordering::Relaxed) & bucket == 0 {
        bits.fetch_or(bucket, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_nearly_everybody_break_it_and_those_of_one_network_do_not() {
        let breaker = Breaker::default();
        for _ in 0..1_000 {
            assert!(!breaker.heard(SubnetKey(1), true, 0.5, 1));
        }
        for subnet in 2..9 {
            assert!(!breaker.heard(SubnetKey(subnet), false, 0.5, 1));
        }
        assert!(!breaker.heard(SubnetKey(1), true, 0.5, 1), "one of eight");
        for subnet in 10..15 {
            assert!(!breaker.heard(SubnetKey(subnet), true, 0.5, 1));
        }
        assert!(breaker.heard(SubnetKey(15), true, 0.5, 1), "seven of fourteen");
        assert!(!breaker.heard(SubnetKey(16), true, 0.0, 1), "it is off");
        assert!(!breaker.heard(SubnetKey(16), true, 0.5, WINDOW_MS + 2), "that was long ago");
    }
}
