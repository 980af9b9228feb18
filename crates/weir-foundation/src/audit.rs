//! The audit trail: who did what, when. Every change of an operation is written here.

use crate::clock::Clock;
use crate::date::rfc3339;
use crate::{Actor, Foundation, OperationError, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_store::records::{AuditLine, AuditRecords};

/// Most lines shown at once.
const LINES_MAX: i64 = 10_000;

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditLine")]
pub struct AuditView {
    /// When.
    #[schemars(extend("format" = "date-time"))]
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
            at: rfc3339(line.at),
            actor: line.actor,
            action: line.action,
            subject: line.subject,
            detail: line.detail,
        }
    }
}

/// The audit trail of the site. Cheap to clone.
#[derive(Clone)]
pub struct AuditTrail {
    lines: AuditRecords,
    clock: Clock,
}

impl AuditTrail {
    /// The trail in these records.
    pub fn new(foundation: &Foundation) -> AuditTrail {
        AuditTrail { lines: foundation.records.audit(), clock: foundation.clock.clone() }
    }

    /// Writes a line.
    pub async fn write(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: String,
    ) -> Result<(), OperationError> {
        tracing::info!(actor = actor.as_str(), action, subject, detail, "audit");
        let (actor, action, subject) = (actor.as_str().to_owned(), action.to_owned(), subject.to_owned());
        let line = AuditLine { at: (self.clock)().0 as i64, actor, action, subject, detail };
        Ok(self.lines.write(&line).await?)
    }

    /// Writes a line whose words came from outside, such as the name of a login that failed.
    pub async fn note(&self, actor: &Actor, action: &str, subject: &str, detail: &str) -> Result<(), OperationError> {
        let detail = detail.chars().filter(|c| !c.is_control()).take(1_000).collect();
        let subject: String = subject.chars().filter(|c| !c.is_control()).take(255).collect();
        self.write(actor, action, &subject, detail).await
    }

    /// The newest lines about `subject`, or about everything if it is empty; newest first.
    pub async fn newest(&self, subject: &str, most: i64) -> Result<Vec<AuditView>, OperationError> {
        if !subject.is_empty() {
            names::login(subject)?;
        }
        let lines = self.lines.trail(subject, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(AuditView::from).collect())
    }

    /// Lines after the one with this number, oldest first, each with its number.
    pub async fn after(&self, number: i64, most: i64) -> Result<Vec<(i64, AuditView)>, OperationError> {
        let lines = self.lines.after(number, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(|(number, line)| (number, line.into())).collect())
    }

    /// The number of the newest line.
    pub async fn last_number(&self) -> Result<i64, OperationError> {
        Ok(self.lines.last().await?)
    }
}

impl fmt::Debug for AuditTrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditTrail").finish_non_exhaustive()
    }
}
