//! Users whose mail waits or who are stopped, the most held first: what an overview shows without reading everybody.

use super::throttle_view::{Snapshot, ThrottleView};
use super::{Desk, OperationError};
use serde::Serialize;
use weir_store::records::QuarantineTotal;

/// Nobody reads a longer overview.
const BUSY_MAX: i64 = 1_000;

/// A user with something in the delay queue, or stopped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusyView {
    /// The login, or whatever the throttle knows them by.
    pub user: String,
    /// Their throttle.
    pub throttle: ThrottleView,
}

impl Desk {
    /// How much is in each quarantine.
    pub async fn quarantine_totals(&self) -> Result<Vec<QuarantineTotal>, OperationError> {
        Ok(self.records().quarantine_totals("").await?)
    }

    /// Who waits or is stopped, the most held first.
    pub async fn busy(&self, most: i64) -> Result<Vec<BusyView>, OperationError> {
        let rows = self.records().throttles_busy(most.clamp(1, BUSY_MAX)).await?;
        let now = self.now();
        let view = |row: weir_store::records::ThrottleRow| {
            let snapshot = Snapshot::of(Some(&row), None, now).map_err(OperationError::Failed)?;
            Ok(BusyView { user: row.identity, throttle: snapshot.view(false) })
        };
        rows.into_iter().map(view).collect()
    }
}
