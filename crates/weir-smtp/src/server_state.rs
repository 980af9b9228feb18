//! The state that all connections of a server share: the gate behind it, who is connected, its counters and its clock.

use super::counters::Counters;
use super::registry::Registry;
use super::settings::Purpose;
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;

/// What all connections of a server share.
pub(crate) struct ServerState<R> {
    pub(crate) reception: R,
    pub(crate) purpose: Purpose,
    pub(crate) registry: Arc<Registry>,
    pub(crate) counters: Counters,
    start: tokio::time::Instant,
}

impl<R> ServerState<R> {
    pub(crate) fn new(reception: R, purpose: Purpose, registry: Arc<Registry>) -> ServerState<R> {
        ServerState { reception, purpose, registry, counters: Counters::default(), start: tokio::time::Instant::now() }
    }

    /// The clock for bans. It counts from the start of the server.
    pub(crate) fn clock(&self) -> Arc<dyn Fn() -> Instant + Send + Sync> {
        let start = self.start;
        Arc::new(move || elapsed(start))
    }

    /// The time since the server started.
    pub(crate) fn now(&self) -> Instant {
        elapsed(self.start)
    }

    pub(crate) fn tokio_instant(&self, at: Instant) -> tokio::time::Instant {
        after(self.start, at)
    }
}

fn elapsed(start: tokio::time::Instant) -> Instant {
    Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Converts the session's time into tokio's.
fn after(start: tokio::time::Instant, at: Instant) -> tokio::time::Instant {
    const FAR: Duration = Duration::from_secs(30 * 86_400);
    start + Duration::from_nanos(at.0).min(start.elapsed() + FAR)
}
