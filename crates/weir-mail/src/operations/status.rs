//! The state of the whole mail gate at a glance.

use super::backend::Vital;
use super::{Backend, OperationError, OperationsParts};
use crate::submission::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use weir_foundation::Foundation;
use weir_store::records::Totals;
use weir_store::spool::{Spool, Stats};

/// How the whole is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MailStatus")]
pub struct MailStatus {
    /// The program's version.
    pub version: String,
    /// Whether a process serves this folder.
    pub running: bool,
    /// How it is doing, if one does.
    pub gate: Option<Vital>,
    /// The data folder.
    pub data: PathBuf,
    /// The database: `sqlite` or `postgresql`.
    #[schemars(extend("enum" = ["sqlite", "postgresql"]))]
    pub records: String,
    /// The name of this relay among those that share the records.
    pub relay: String,
    /// The throttle only learns.
    pub learn_only: bool,
    /// Users and held mail.
    pub totals: Totals,
    /// Mail in transit.
    pub spool: SpoolView,
}

/// Mail in transit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Spool")]
pub struct SpoolView {
    /// Messages that are not finished.
    pub messages: usize,
    /// The bodies of these.
    pub body_bytes: u64,
    /// What the segments take on the disk.
    pub disk_bytes: u64,
    /// Segments.
    pub segments: usize,
    /// What recovery found damaged at start, each in words.
    pub damage: Vec<String>,
    /// Whether there is too little free disk space to take mail (452).
    #[serde(default)]
    pub full: bool,
}

/// Reports the state of the whole mail gate. Cheap to clone.
#[derive(Clone)]
pub struct StatusOperations {
    foundation: Foundation,
    settings: Arc<Settings>,
    backend: Arc<dyn Backend>,
}

impl StatusOperations {
    pub(super) fn new(parts: &OperationsParts) -> StatusOperations {
        StatusOperations {
            foundation: parts.foundation.clone(),
            settings: Arc::clone(&parts.settings),
            backend: Arc::clone(&parts.backend),
        }
    }

    /// How the process that serves this folder is doing, if one does. Nothing is counted.
    pub fn vital(&self) -> Option<Vital> {
        self.backend.vital()
    }

    /// How the whole is doing.
    pub async fn show(&self) -> Result<MailStatus, OperationError> {
        let gate = self.vital();
        let spool = match self.backend.has_spool() {
            true => spool_view(&self.backend.spool().await?),
            false => SpoolView::default(),
        };
        Ok(MailStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running: gate.is_some(),
            gate,
            data: self.foundation.folder.path().to_owned(),
            records: self.foundation.database().to_owned(),
            relay: self.settings.relay.clone(),
            learn_only: self.settings.learn_only,
            totals: self.foundation.records.totals().await?,
            spool,
        })
    }
}

fn spool_view(spool: &Spool) -> SpoolView {
    let Stats { messages, body_bytes, disk_bytes, segments, .. } = spool.stats();
    let damage = spool.damage().iter().map(ToString::to_string).collect();
    SpoolView { messages, body_bytes, disk_bytes, segments, damage, full: spool.is_full() }
}
