//! Decisions about held mail: one recipient, one message, or in bulk.
//!
//! A release sends at once and uses no slack; with trust the recipients are also put on the user's list, so that mail to them
//! never waits again. A decision is one transaction for each user and a few hundred recipients. It does not touch mail that came in after
//! it was asked for.

use super::{HeldOperations, HeldSelection, ROWS_MAX, by_identity, nothing_held};
use crate::mail_store;
use crate::operations::{Actor, OperationError, plural};
use crate::throttle::{Done, ThrottleCommand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::HeldRow;

/// Entries in one transaction.
const ENTRIES_MAX: usize = 500;

/// What to do with held mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send it now.
    Release,
    /// Send it now, and never hold mail of this user to these recipients again.
    Trust,
    /// Drop it; its senders are not told.
    Delete,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HeldDone {
    /// Recipients that it was about.
    pub recipients: usize,
    /// Messages that these belong to.
    pub messages: Vec<String>,
    /// Whose.
    pub users: Vec<String>,
    /// Recipients that are trusted now and were not before.
    pub trusted: Vec<String>,
    /// Users whose stop ended, because nothing of theirs is left to decide.
    pub stops_ended: Vec<String>,
    /// Users who were stopped and are locked now, because all that waited was deleted: they need a new password, or to be unlocked.
    #[serde(default)]
    pub locked: Vec<String>,
    /// Relays that are down: their part is carried out when they are back.
    pub relays_down: Vec<String>,
}

impl HeldOperations {
    /// Decides on held mail.
    pub async fn decide(
        &self,
        selection: &HeldSelection,
        decision: Decision,
        actor: &Actor,
    ) -> Result<HeldDone, OperationError> {
        if *selection == HeldSelection::default() {
            let hint = "name messages, a user or a recipient, or say that you mean all";
            return Err(OperationError::invalid("which held mail is meant?", hint));
        }
        // What is held meanwhile is not meant; what was held while a clock was ahead is.
        let asked_at = self.held.newest().await?.unwrap_or(0).max((self.clock)().0 as i64);
        let mut sum = Sum::default();
        loop {
            let mut rows = self.rows(selection, ROWS_MAX).await?;
            rows.retain(|row| row.held_at <= asked_at);
            let before = sum.recipients;
            for (identity, rows) in by_identity(rows) {
                self.decide_for(&identity, &rows, (decision, actor), &mut sum).await?;
            }
            if sum.recipients == before {
                break;
            }
        }
        if decision == Decision::Delete {
            self.strike_out_stuck(selection, &mut sum).await?;
        }
        if sum.recipients == 0 {
            return Err(nothing_held(selection));
        }
        self.backend.wake();
        self.note_decision(decision, &sum, actor).await;
        self.audit_decision(decision, &sum, actor).await?;
        Ok(sum.done(&self.relays_down().await?))
    }

    async fn decide_for(
        &self,
        identity: &str,
        rows: &[HeldRow],
        (decision, actor): (Decision, &Actor),
        sum: &mut Sum,
    ) -> Result<(), OperationError> {
        if decision == Decision::Trust {
            let addresses: Vec<String> = rows.iter().map(|row| row.recipient.clone()).collect();
            sum.trusted.extend(self.users.trust(identity, &addresses).await?);
        }
        let was_stopped = self.is_stopped(identity).await?;
        if decision == Decision::Delete && was_stopped && self.are_all_of(identity, rows.len()).await? {
            let locks = self.users.lock_if_stopped(identity, "what waited was deleted", actor).await?;
            sum.locked.extend(locks.then(|| identity.to_owned()));
        }
        for rows in rows.chunks(ENTRIES_MAX) {
            let entries = rows.iter().map(|row| row.entry).collect();
            let command = match decision {
                Decision::Release | Decision::Trust => ThrottleCommand::Release(entries),
                Decision::Delete => ThrottleCommand::Delete(entries),
            };
            let Done { going, dropped, .. } = self.throttling.command(identity, command).await?;
            sum.add(identity, rows, (going + dropped).min(rows.len()));
        }
        if was_stopped && decision != Decision::Delete && !self.is_stopped(identity).await? {
            sum.stops_ended.push(identity.to_owned());
        }
        Ok(())
    }

    /// What should have gone and cannot, because its file is missing, can only be forgotten.
    async fn strike_out_stuck(&self, selection: &HeldSelection, sum: &mut Sum) -> Result<(), OperationError> {
        for (identity, rows) in by_identity(self.stuck_rows(selection).await?) {
            let messages: BTreeSet<&str> = rows.iter().map(|row| row.message.as_str()).collect();
            for message in messages {
                self.held.strike(message).await?;
                if self.held.of_message(message).await? == 0 {
                    mail_store::forget(&self.folder.held(), message);
                }
            }
            sum.add(&identity, &rows, rows.len());
        }
        Ok(())
    }

    /// Whether so many recipients are all that waits of a user.
    async fn are_all_of(&self, identity: &str, recipients: usize) -> Result<bool, OperationError> {
        let all = HeldSelection { user: identity.to_owned(), ..HeldSelection::default() };
        let most = i64::try_from(recipients + 1).unwrap_or(ROWS_MAX);
        Ok(self.rows(&all, most).await?.len() <= recipients)
    }

    async fn is_stopped(&self, identity: &str) -> Result<bool, OperationError> {
        Ok(self.throttles.find(identity).await?.is_some_and(|row| row.stopped_at.is_some()))
    }

    /// For whoever asks after one of the messages later.
    async fn note_decision(&self, decision: Decision, sum: &Sum, actor: &Actor) {
        let (event, what) = match decision {
            Decision::Release => ("decided", "released"),
            Decision::Trust => ("decided", "released, with trust,"),
            Decision::Delete => ("deleted", "deleted"),
        };
        let diary = self.backend.diary();
        for (message, recipients) in &sum.messages {
            let text = format!("{what} from the delay queue by {}", actor.as_str());
            let facts = Facts { concerns: *recipients, ..Facts::default() };
            diary.note(DiaryLine::new(message, event, text).with(facts));
        }
        // A verb on a folder at rest ends with its answer.
        let _ = tokio::task::spawn_blocking(move || diary.settle()).await;
    }

    async fn audit_decision(&self, decision: Decision, sum: &Sum, actor: &Actor) -> Result<(), OperationError> {
        let action = match decision {
            Decision::Release => "held.release",
            Decision::Trust => "held.trust",
            Decision::Delete => "held.delete",
        };
        for (user, (recipients, messages)) in &sum.users {
            let named: Vec<&str> = messages.iter().take(5).map(String::as_str).collect();
            let more = if messages.len() > named.len() { " …" } else { "" };
            let detail = format!(
                "{recipients} recipient{} of {} message{}: {}{more}",
                plural(*recipients),
                messages.len(),
                plural(messages.len()),
                named.join(", ")
            );
            self.audit.write(actor, action, user, detail).await?;
        }
        Ok(())
    }
}

/// What a bulk decision adds up to.
#[derive(Default)]
struct Sum {
    recipients: usize,
    users: BTreeMap<String, (usize, BTreeSet<String>)>,
    /// Recipients of each message.
    messages: BTreeMap<String, u64>,
    relays: BTreeSet<String>,
    trusted: Vec<String>,
    stops_ended: Vec<String>,
    locked: Vec<String>,
}

impl Sum {
    fn add(&mut self, identity: &str, rows: &[HeldRow], decided: usize) {
        if decided == 0 {
            return;
        }
        self.recipients += decided;
        let (recipients, messages) = self.users.entry(identity.to_owned()).or_default();
        *recipients += decided;
        messages.extend(rows.iter().map(|row| row.message.clone()));
        rows.iter().for_each(|row| *self.messages.entry(row.message.clone()).or_default() += 1);
        self.relays.extend(rows.iter().map(|row| row.relay.clone()));
    }

    fn done(self, down: &[String]) -> HeldDone {
        let messages: BTreeSet<String> = self.users.values().flat_map(|(_, messages)| messages.clone()).collect();
        HeldDone {
            recipients: self.recipients,
            messages: messages.into_iter().collect(),
            users: self.users.into_keys().collect(),
            trusted: self.trusted,
            stops_ended: self.stops_ended,
            locked: self.locked,
            relays_down: self.relays.into_iter().filter(|relay| down.contains(relay)).collect(),
        }
    }
}
