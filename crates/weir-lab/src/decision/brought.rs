//! What a machine brings of an attempt.

use super::PluginName;
use crate::verdict::Brief;
use crate::wire::Outcome;

/// What a plugin brought, as a dispatcher reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The attempt.
    pub attempt: i64,
    /// The plugin.
    pub plugin: PluginName,
    /// Done if its report is valid.
    pub outcome: Outcome,
    /// The report.
    pub report: String,
    /// What it comes to.
    pub brief: Brief,
}

impl Brought {
    pub(super) fn is_valid(&self) -> bool {
        self.outcome == Outcome::Done
    }
}
