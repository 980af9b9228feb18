//! The result of a plugin that a machine reports for an attempt.

use super::PluginName;
use crate::verdict::Brief;
use crate::wire::PluginOutcome;

/// The result of a plugin, as a dispatcher reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginResult {
    pub attempt: i64,
    pub plugin: PluginName,
    /// Done if its report is valid.
    pub outcome: PluginOutcome,
    pub report: String,
    /// The parts of the report that the leader needs.
    pub brief: Brief,
}

impl PluginResult {
    pub(super) fn is_valid(&self) -> bool {
        self.outcome == PluginOutcome::Done
    }
}
