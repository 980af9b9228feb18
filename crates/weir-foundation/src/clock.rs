//! The time of day, and how code is told which clock to use.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_core::time::Instant;

/// Tells the time. Tests pass in a clock that only they move.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The system's time, in nanoseconds since the Unix epoch.
pub fn wall_clock() -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
