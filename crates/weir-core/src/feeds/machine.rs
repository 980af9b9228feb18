//! Who scans: workers, and the processors that they share.

use alloc::vec::Vec;

/// Who scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Workers of each feed.
    pub workers: Vec<usize>,
    /// Processors that they share; at least one.
    pub cpus: usize,
}
