//! The audit trail, as it is shown.

use super::{Desk, DeskError, names, when};
use serde::Serialize;

/// Most lines shown at once.
const LINES_MAX: i64 = 10_000;

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditView {
    /// When.
    pub at: String,
    /// Who did it.
    pub actor: String,
    /// What, such as `held.release`.
    pub action: String,
    /// To whom or what.
    pub subject: String,
    /// More, in words.
    pub detail: String,
}

impl Desk {
    /// The newest lines about `subject`, or about everything if it is empty; newest first.
    pub async fn audit_trail(&self, subject: &str, most: i64) -> Result<Vec<AuditView>, DeskError> {
        if !subject.is_empty() {
            names::login(subject)?;
        }
        let lines = self.records().audit_trail(subject, most.clamp(1, LINES_MAX)).await?;
        let view = |line: weir_store::records::AuditLine| AuditView {
            at: when(line.at),
            actor: line.actor,
            action: line.action,
            subject: line.subject,
            detail: line.detail,
        };
        Ok(lines.into_iter().map(view).collect())
    }
}
