//! Why a scanner does not start, or why rules do not come into force.

use crate::yara::RulesetError;

/// A scanner that cannot start, or rules that cannot come into force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are wrong.
    #[error(transparent)]
    Rules(#[from] RulesetError),
    /// Nobody could keep to rules that people made.
    #[error("no worker looks at mail: scan.yara and scan.attachments are both off")]
    NoWorkers,
    /// The system refuses something.
    #[error("workers cannot be started: {0}")]
    System(#[from] std::io::Error),
}
