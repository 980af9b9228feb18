//! The audit trail, as it is shown.

use super::{Desk, DeskError, names, when};
use serde::Serialize;
use weir_store::records::AuditLine;

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

impl From<AuditLine> for AuditView {
    fn from(line: AuditLine) -> AuditView {
        AuditView {
            at: when(line.at),
            actor: line.actor,
            action: line.action,
            subject: line.subject,
            detail: line.detail,
        }
    }
}

impl Desk {
    /// The newest lines about `subject`, or about everything if it is empty; newest first.
    pub async fn audit_trail(&self, subject: &str, most: i64) -> Result<Vec<AuditView>, DeskError> {
        if !subject.is_empty() {
            names::login(subject)?;
        }
        let lines = self.records().audit_trail(subject, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(AuditView::from).collect())
    }

    /// Lines after the one with this number, oldest first, each with its number.
    pub async fn audit_after(&self, number: i64, most: i64) -> Result<Vec<(i64, AuditView)>, DeskError> {
        let lines = self.records().audit_after(number, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(|(number, line)| (number, line.into())).collect())
    }

    /// The number of the newest line.
    pub async fn audit_last(&self) -> Result<i64, DeskError> {
        Ok(self.records().audit_last().await?)
    }

    /// How far this relay has come with something that it does line by line; nothing if it never began.
    pub async fn mark(&self, name: &str) -> Result<Option<String>, DeskError> {
        Ok(self.records().kept(&self.parts.rules.relay, name).await?)
    }

    /// Remembers how far.
    pub async fn set_mark(&self, name: &str, mark: &str) -> Result<(), DeskError> {
        Ok(self.records().keep(&self.parts.rules.relay, name, mark).await?)
    }
}
