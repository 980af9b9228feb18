//! Why the lab cannot start. The other gates do not need it: the orchestrator tells the operator, and tries again.

use crate::site::SiteError;
use crate::vm::VmStartError;
use std::io;
use std::path::PathBuf;
use weir_store::records::RecordsError;

#[derive(Debug, thiserror::Error)]
pub enum LabStartError {
    #[error("the lab's samples cannot be kept in {0}: {1}")]
    Samples(PathBuf, io::Error),
    #[error("the lab's jobs cannot be prepared in {0}: {1}")]
    Jobs(PathBuf, io::Error),
    /// The plugins are not as configured. A lab must not silently do less than it should.
    #[error("{0}")]
    Plugins(String),
    #[error("{0}")]
    Vms(#[from] VmStartError),
    #[error("{0}")]
    Site(#[from] SiteError),
    #[error("the lab's records cannot be read: {0}")]
    Records(#[from] RecordsError),
}
