//! The figures of the delivery queue, for status pages and metrics.

use serde::Serialize;

/// Figures of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QueueStats {
    /// Messages that are not finished.
    pub messages: usize,
    /// Deliveries that wait for their turn.
    pub waiting: usize,
    /// Deliveries under way.
    pub under_way: usize,
    /// Deliveries that wait for their next attempt.
    pub deferred: usize,
    /// Owners with mail in the queue.
    pub owners: usize,
    /// Since the start.
    pub totals: Totals,
    /// Destinations with mail in the queue, the busiest first, at most a hundred.
    pub destinations: Vec<DestinationStats>,
}

/// Sums since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Totals {
    /// Messages taken in.
    pub enqueued: u64,
    /// Messages that are over.
    pub finished: u64,
    /// Recipients that have their mail.
    pub delivered: u64,
    /// Recipients that never will.
    pub failed: u64,
    /// Attempts that came to nothing for now.
    pub deferred: u64,
}

/// Figures of a destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DestinationStats {
    /// What it is called.
    pub name: String,
    /// Deliveries that wait for their turn.
    pub waiting: usize,
    /// Deliveries under way.
    pub under_way: usize,
    /// How many may be.
    pub window: u32,
    /// Until when it is left alone, in milliseconds since 1970.
    pub closed_until_unix_ms: Option<u64>,
    /// Why it could not be reached last.
    pub trouble: Option<String>,
}
