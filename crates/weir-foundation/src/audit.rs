//! The audit trail: who did what, when. Every change that somebody makes is written here.
//!
//! A change that is asked for over the API, a page or the command line is noted before it begins ([`AuditTrail::begin`]), and
//! refused if that cannot be written. If Weir ends in the middle of it, the next start adds a line that says so: a change may
//! stay half done, but never without a trace.

use crate::clock::Clock;
use crate::date::rfc3339;
use crate::{Actor, Foundation, OperationError, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_store::records::{AuditFilter, AuditLine, AuditRecords, BegunChange};

/// At most this many lines are returned at once.
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

/// The result of checking the seals of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditCheckView {
    /// Whether every line is as it was written and none is missing.
    pub whole: bool,
    /// Lines whose seal is right.
    pub sealed: i64,
    /// Lines that an older version wrote without seals; whether they were changed cannot be told.
    pub older: i64,
    /// The newest seal that is right. Note it somewhere else: if the trail is still whole later, this seal is one of its seals.
    pub seal: String,
    /// What is wrong, in words; empty if nothing is wrong.
    pub problem: String,
}

/// A change that has begun, by its number in the records.
#[derive(Debug)]
#[must_use = "a change that is not ended is reported as interrupted"]
pub struct OpenChange {
    number: i64,
    change: BegunChange,
}

/// The audit trail of the site. Cheap to clone.
#[derive(Clone)]
pub struct AuditTrail {
    lines: AuditRecords,
    clock: Clock,
    relay: String,
}

impl AuditTrail {
    /// The trail in these records.
    pub fn new(foundation: &Foundation) -> AuditTrail {
        let relay = foundation.relay.clone();
        AuditTrail { lines: foundation.records.audit(), clock: foundation.clock.clone(), relay }
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

    /// Writes a line whose text came from outside, such as the name of a login that failed. Control characters are dropped, and long text
    /// is cut.
    pub async fn note(&self, actor: &Actor, action: &str, subject: &str, detail: &str) -> Result<(), OperationError> {
        let detail = detail.chars().filter(|c| !c.is_control()).take(1_000).collect();
        let subject: String = subject.chars().filter(|c| !c.is_control()).take(255).collect();
        self.write(actor, action, &subject, detail).await
    }

    /// Notes that a change begins. If this fails, the change must not be made.
    pub async fn begin(&self, actor: &Actor, what: &str) -> Result<OpenChange, OperationError> {
        let what = what.chars().filter(|c| !c.is_control()).take(255).collect();
        let begun = BegunChange { at: (self.clock)().0 as i64, actor: actor.as_str().to_owned(), what };
        Ok(OpenChange { number: self.lines.begun(&self.relay, &begun).await?, change: begun })
    }

    /// Notes that a change has ended. The lines that belong to the change are already written.
    pub async fn end(&self, begun: OpenChange) {
        if let Err(error) = self.lines.ended(begun.number).await {
            tracing::warn!(%error, "the end of a change could not be written down; the next start will call it interrupted");
        }
    }

    /// For a change that ended because Weir itself failed, so that nobody knows how much of it was done, or whether its line was written.
    /// If this note cannot be written either, the next start writes it.
    pub async fn doubt(&self, begun: OpenChange) {
        let detail = format!("begun at {}; it ended in an error: see what became of it", rfc3339(begun.change.at));
        let actor = Actor::new(&begun.change.actor);
        match self.write(&actor, "interrupted", &begun.change.what, detail).await {
            Ok(()) => self.end(begun).await,
            Err(error) => {
                tracing::warn!(%error, "a change that failed could not be written into the audit trail; the next start will do it");
            }
        }
    }

    /// Checks whether a line could be written now, without writing one.
    pub async fn try_write(&self) -> Result<(), OperationError> {
        Ok(self.lines.try_write().await?)
    }

    /// Writes a line for every change of this relay that had begun but not ended when Weir was killed. Call it once, after the records are
    /// opened.
    pub async fn report_interrupted(&self) {
        if let Err(error) = self.write_interrupted().await {
            tracing::warn!(%error, "changes that were interrupted could not be written into the audit trail");
        }
    }

    async fn write_interrupted(&self) -> Result<(), OperationError> {
        for (number, begun) in self.lines.interrupted(&self.relay).await? {
            let detail =
                format!("begun at {}; Weir ended before it had ended: see what became of it", rfc3339(begun.at));
            self.write(&Actor::new(&begun.actor), "interrupted", &begun.what, detail).await?;
            self.lines.ended(number).await?;
        }
        Ok(())
    }

    /// Reads the whole trail and compares every seal.
    pub async fn check(&self) -> Result<AuditCheckView, OperationError> {
        let check = self.lines.check().await?;
        let problem = |(number, what): (i64, &str)| format!("line {number}: {what}");
        Ok(AuditCheckView {
            whole: check.broken.is_none(),
            sealed: check.sealed,
            older: check.older,
            seal: check.seal,
            problem: check.broken.map(problem).unwrap_or_default(),
        })
    }

    /// The newest lines about `subject`, or about everything if it is empty; newest first.
    pub async fn newest(&self, subject: &str, most: i64) -> Result<Vec<AuditView>, OperationError> {
        if !subject.is_empty() {
            names::login(subject)?;
        }
        let lines = self.lines.trail(subject, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(AuditView::from).collect())
    }

    /// The newest lines that match the filter, newest first.
    pub async fn filtered(&self, filter: &AuditFilter, most: i64) -> Result<Vec<AuditView>, OperationError> {
        if !filter.subject.is_empty() {
            names::login(&filter.subject)?;
        }
        let lines = self.lines.filtered(filter, most.clamp(1, LINES_MAX)).await?;
        Ok(lines.into_iter().map(AuditView::from).collect())
    }

    /// The lines after the one with this number, oldest first, each with its number.
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
