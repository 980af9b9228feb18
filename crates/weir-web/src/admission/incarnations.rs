//! Where the incarnation numbers of a new queue's records start (the scheduler calls them lives).
//!
//! Other front-ends know this one by its process, and a queue by its backend's name. A queue that replaces another, after a change of
//! `observe` or when a backend comes back, must not report numbers that were used before, because the others would discard them as old. So
//! all queues of the process add what they have used to one count, and a new queue starts above it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Lives used by all queues, as far as they have reported; wraps round, as lives do.
static USED: AtomicU32 = AtomicU32::new(0);

/// More than a queue uses between two ticks, and while it finishes its requests beside the next.
const GAP: u32 = 1 << 20;

/// Where a new queue starts.
pub(super) fn first() -> u32 {
    USED.fetch_add(GAP, Ordering::Relaxed).wrapping_add(GAP)
}

/// A queue has used this many more.
pub(super) fn used(more: u32) {
    if more > 0 {
        USED.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_queue_starts_behind_what_was_used() {
        let before = first();
        used(5);
        assert!(first().wrapping_sub(before) >= GAP + 5);
    }
}
