//! The processing index: how long this machine takes for a fixed piece of work (paper, section 3).
//!
//! It follows the paper: computes Fibonacci numbers by recursion, several times. The core takes the median in steps of a quarter, so that
//! noise does not change who leads.

use std::hint::black_box;
use std::time::{Duration, Instant};
use weir_core::election::ProcessingIndex;

const RUNS: usize = 5;
const N: u64 = 24;

/// Measures this machine; `stored` is the earlier index. Takes a few milliseconds of a core.
pub fn measure(stored: Option<ProcessingIndex>) -> ProcessingIndex {
    let mut runs: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    ProcessingIndex::measured(&mut runs, stored)
}

fn run() -> Duration {
    let start = Instant::now();
    black_box(fibonacci(black_box(N)));
    start.elapsed()
}

fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(black_box(n - 1)) + fibonacci(n - 2) }
}
