//! Limits that tuning found, kept in the records so that they hold after a restart.

use super::Site;
use serde::{Deserialize, Serialize};
use weir_core::feeds::Limits;
use weir_store::records::{RecordsError, ValueRecords};

/// Limits that were found, and those of the configuration at that time.
#[derive(Serialize, Deserialize)]
struct Stored {
    limits: Vec<u64>,
    configured: Vec<u64>,
}

const KEPT: &str = "scan.limits";

pub(super) async fn store_limits(site: &Site, limits: &[u64], configured: &[u64]) -> Result<(), RecordsError> {
    let stored = Stored { limits: limits.to_vec(), configured: configured.to_vec() };
    let text = serde_json::to_string(&stored).unwrap_or_default();
    site.records.values().set(&site.relay, KEPT, &text).await
}

/// Limits that tuning found in an earlier life of this relay; nothing if the configuration was changed since.
pub async fn stored_limits(
    values: &ValueRecords,
    relay: &str,
    configured: &Limits,
) -> Result<Option<Limits>, RecordsError> {
    let text = values.get(relay, KEPT).await?;
    let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
    let stored = stored.filter(|stored| stored.configured == configured.bytes());
    Ok(stored.and_then(|stored| Limits::new(stored.limits).ok()))
}
