//! One message of a trace of arrivals: when it arrives and how large it is, and when and where its scan starts.

use crate::time::Instant;

/// A message comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When; traces are in order of time.
    pub at: Instant,
    /// Its size in bytes.
    pub size: u64,
}

/// A message whose scan has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its size in bytes.
    pub size: u64,
    /// Its class, from 0.
    pub class: usize,
    /// The feed that scans it, from 0.
    pub feed: usize,
    /// How long it waited.
    pub wait_ns: u64,
    /// How long its scan takes.
    pub service_ns: u64,
}
