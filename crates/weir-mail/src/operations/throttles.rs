//! The throttles of all users: who waits or is stopped, and what learn-only mode has found.

use super::throttle_view::{Snapshot, ThrottleView};
use super::{OperationError, OperationsParts, when};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_foundation::clock::Clock;
use weir_store::records::{Learned, ThrottleRecords, ThrottleRow};

/// Nobody reads a longer overview.
const BUSY_MAX: i64 = 1_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// A user with something in the delay queue, or stopped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusyView {
    /// The login, or whatever the throttle knows them by.
    pub user: String,
    /// Their throttle.
    pub throttle: ThrottleView,
}

/// What learn-only mode saw of one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Learned")]
pub struct LearnedView {
    /// Whose.
    pub user: String,
    /// The last day with mail.
    pub last_day: String,
    /// Mails seen.
    pub mails: i64,
    /// Recipients seen.
    pub recipients: i64,
    /// Recipients that would have been held.
    pub would_hold: i64,
    /// Times that the user would have been stopped.
    pub would_stop: i64,
}

/// The throttles, all of them. Cheap to clone.
#[derive(Clone)]
pub struct ThrottleOperations {
    throttles: ThrottleRecords,
    clock: Clock,
}

impl ThrottleOperations {
    pub(super) fn new(parts: &OperationsParts) -> ThrottleOperations {
        let foundation = &parts.foundation;
        ThrottleOperations { throttles: foundation.records.throttles(), clock: Arc::clone(&foundation.clock) }
    }

    /// Who waits or is stopped, the most held first: an overview need not read everybody.
    pub async fn busy(&self, most: i64) -> Result<Vec<BusyView>, OperationError> {
        let rows = self.throttles.busy(most.clamp(1, BUSY_MAX)).await?;
        let now = (self.clock)();
        let view = |row: ThrottleRow| {
            let snapshot = Snapshot::of(Some(&row), None, now).map_err(OperationError::Failed)?;
            Ok(BusyView { user: row.identity, throttle: snapshot.view(false) })
        };
        rows.into_iter().map(view).collect()
    }

    /// What learn-only mode saw in the last `days`, the worst first.
    pub async fn learned(&self, days: i64) -> Result<Vec<LearnedView>, OperationError> {
        let today = ((self.clock)().0 / DAY_NS) as i64;
        let learned = self.throttles.learned(today - days.clamp(1, 36_500) + 1).await?;
        let view = |seen: Learned| LearnedView {
            last_day: when(seen.day.saturating_mul(DAY_NS as i64)).chars().take(10).collect(),
            user: seen.identity,
            mails: seen.mails,
            recipients: seen.recipients,
            would_hold: seen.would_hold,
            would_stop: seen.would_stop,
        };
        Ok(learned.into_iter().map(view).collect())
    }
}
