//! The operations on held mail, which is listed by message. Lists are bounded, and say when there is more.

mod analysis;
mod decision;

pub use crate::brought::Attachment;
pub use decision::{Decision, HeldDone};

use super::message_file::{header_of, message_id};
use super::throttle_view::{Snapshot, ThrottleView};
use super::{Backend, OperationError, OperationsParts, UserOperations, decimal, names, when};
use crate::brought::Brought;
use crate::throttle::{RELAY_SILENCE_NS, Throttling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::throttle::Params;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_store::folder::DataFolder;
use weir_store::records::{Fate, HeldFilter, HeldRecords, HeldRow, RelayRecords, ThrottleRecords};

/// Most recipients in one list, and in one step of a bulk decision.
const ROWS_MAX: i64 = 5_000;
const MESSAGES_MAX: usize = 1_000;

/// Which held mail. What is empty does not restrict; at least one of them must.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeldSelection {
    /// These messages.
    pub messages: Vec<String>,
    /// Of this user.
    pub user: String,
    /// To this recipient.
    pub recipient: String,
    /// Everything, if nothing else is given.
    pub all: bool,
}

impl HeldSelection {
    fn takes(&self, row: &HeldRow) -> bool {
        (self.messages.is_empty() || self.messages.contains(&row.message))
            && (self.user.is_empty() || self.user == row.identity)
            && (self.recipient.is_empty() || self.recipient == row.recipient)
    }
}

/// Held mail in the order of its queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldList {
    /// Grouped by message.
    pub messages: Vec<HeldMessage>,
    /// Recipients in this list.
    pub recipients: usize,
    /// There are more than fit into one list.
    pub more: bool,
}

/// One held message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMessage {
    /// Its id.
    pub message: String,
    /// Whose.
    pub user: String,
    /// The envelope sender.
    pub sender: String,
    /// The subject.
    pub subject: String,
    /// The client that handed it in.
    pub source: String,
    /// Since when.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// Whether its user is stopped: then nothing goes by itself.
    pub stopped: bool,
    /// The relay that keeps it.
    pub relay: String,
    /// That relay is down: it goes when the relay is back.
    pub relay_down: bool,
    /// The file of the message is not where this relay keeps it: it cannot go.
    pub file_missing: bool,
    /// Those that wait.
    pub recipients: Vec<HeldRecipient>,
}

/// One recipient of a held message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldRecipient {
    /// The address.
    pub address: String,
    /// When it goes; unknown while the user is stopped or the relay is down.
    #[schemars(extend("format" = "date-time"))]
    pub expected: Option<String>,
}

/// Everything about one held message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldPage {
    /// As in a list.
    #[serde(flatten)]
    pub held: HeldMessage,
    /// Why it is held.
    pub why: String,
    /// What can be done.
    pub choices: Vec<String>,
    /// Bytes of the message; unknown if another relay keeps it.
    pub size_bytes: Option<u64>,
    /// The message itself, as any tool reads it.
    pub file: Option<PathBuf>,
    /// The first lines of its header.
    pub header: Vec<String>,
    /// What it brings along.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// Why there may be more of that than is listed.
    #[serde(default)]
    pub attachments_unseen: Option<String>,
    /// The throttle of its user.
    pub throttle: ThrottleView,
}

/// What may be done to held mail. Cheap to clone.
#[derive(Clone)]
pub struct HeldOperations {
    held: HeldRecords,
    throttles: ThrottleRecords,
    relays: RelayRecords,
    clock: Clock,
    audit: AuditTrail,
    folder: Arc<DataFolder>,
    /// This relay's name: only its own held mail is in the folder.
    relay: Arc<str>,
    throttling: Throttling,
    backend: Arc<dyn Backend>,
    /// A release with trust changes a user.
    users: UserOperations,
}

impl HeldOperations {
    pub(super) fn new(parts: &OperationsParts, users: &UserOperations) -> HeldOperations {
        HeldOperations {
            held: parts.foundation.records.held(),
            throttles: parts.foundation.records.throttles(),
            relays: parts.foundation.records.relays(),
            clock: Arc::clone(&parts.foundation.clock),
            audit: AuditTrail::new(&parts.foundation),
            folder: Arc::clone(&parts.foundation.folder),
            relay: parts.settings.relay.as_str().into(),
            throttling: parts.throttling.clone(),
            backend: Arc::clone(&parts.backend),
            users: users.clone(),
        }
    }

    /// Held mail of a selection; everything, if it is empty.
    pub async fn list(&self, selection: &HeldSelection) -> Result<HeldList, OperationError> {
        let mut rows = self.rows(selection, ROWS_MAX + 1).await?;
        let more = rows.len() as i64 > ROWS_MAX;
        rows.truncate(ROWS_MAX as usize);
        rows.extend(self.stuck_rows(selection).await?);
        let recipients = rows.len();
        Ok(HeldList { messages: self.grouped(rows).await?, recipients, more })
    }

    /// The first messages of a selection, at most `most`: a page need not wait for a whole list.
    pub async fn first(&self, selection: &HeldSelection, most: usize) -> Result<HeldList, OperationError> {
        // Held mail has one or two recipients in most cases; where it has many, the whole list is read.
        let few = (2 * most as i64).min(ROWS_MAX);
        let mut rows = self.rows(selection, few + 1).await?;
        let cut = rows.get(few as usize).map(|row| row.message.clone());
        rows.retain(|row| cut.as_ref() != Some(&row.message));
        rows.extend(self.stuck_rows(selection).await?);
        let mut list = HeldList { messages: self.grouped(rows).await?, recipients: 0, more: cut.is_some() };
        if list.more && list.messages.len() < most {
            list = self.list(selection).await?;
        }
        list.more |= list.messages.len() > most;
        list.messages.truncate(most);
        list.recipients = list.messages.iter().map(|held| held.recipients.len()).sum();
        Ok(list)
    }

    /// Rows that should have gone and cannot: the file of their message is missing.
    async fn stuck_rows(&self, selection: &HeldSelection) -> Result<Vec<HeldRow>, OperationError> {
        let mut rows = self.held.decided(&self.relay, "", ROWS_MAX).await?;
        rows.retain(|row| row.fate == Fate::Go && selection.takes(row) && self.is_file_missing(row));
        Ok(rows)
    }

    fn is_file_missing(&self, row: &HeldRow) -> bool {
        *row.relay == *self.relay && !self.folder.held().join(format!("{}.eml", row.message)).exists()
    }

    /// Everything about one held message.
    pub async fn show(&self, message: &str) -> Result<HeldPage, OperationError> {
        let id = message_id(message)?;
        let selection = HeldSelection { messages: vec![id.to_string()], ..HeldSelection::default() };
        let held = self.list(&selection).await?.messages.into_iter().next();
        let held = held.ok_or_else(|| nothing_held(&selection))?;
        let row = self.throttles.find(&held.user).await?;
        let snapshot = Snapshot::of(row.as_ref(), None, (self.clock)()).map_err(OperationError::Failed)?;
        let throttle = snapshot.view(false);
        let file = self.folder.held().join(format!("{id}.eml"));
        let (opened, looked_into) = (file.clone(), file.clone());
        let read = tokio::task::spawn_blocking(move || header_of(opened)).await.ok().and_then(Result::ok);
        let (size_bytes, header) = read.map_or((None, Vec::new()), |(size, lines)| (Some(size), lines));
        let brought = tokio::task::spawn_blocking(move || Brought::by_file(&looked_into)).await;
        let Brought { attachments, unseen } = brought.unwrap_or_else(|_| Ok(Brought::unknown())).unwrap_or_default();
        Ok(HeldPage {
            why: snapshot.stopped().filter(|_| !held.file_missing).unwrap_or_else(|| why(&held, &throttle.params.0)),
            choices: choices(&held),
            file: size_bytes.is_some().then_some(file),
            size_bytes,
            header,
            attachments,
            attachments_unseen: unseen,
            throttle,
            held,
        })
    }

    async fn rows(&self, selection: &HeldSelection, most: i64) -> Result<Vec<HeldRow>, OperationError> {
        if selection.messages.len() > MESSAGES_MAX {
            let hint = "use a user, a recipient or everything instead";
            return Err(OperationError::invalid(format!("at most {MESSAGES_MAX} messages can be named at once"), hint));
        }
        let mut filter = HeldFilter {
            identity: selection.user.clone(),
            message: String::new(),
            recipient: selection.recipient.clone(),
        };
        if selection.messages.is_empty() {
            return Ok(self.held.list(&filter, most).await?);
        }
        let mut rows = Vec::new();
        for message in &selection.messages {
            filter.message = message_id(message)?.to_string();
            rows.extend(self.held.list(&filter, most - rows.len() as i64).await?);
        }
        Ok(rows)
    }

    async fn grouped(&self, rows: Vec<HeldRow>) -> Result<Vec<HeldMessage>, OperationError> {
        let down = self.relays_down().await?;
        let mut messages: Vec<HeldMessage> = Vec::new();
        for (identity, rows) in by_identity(rows) {
            let throttle = self.throttles.find(&identity).await?;
            let snapshot = Snapshot::of(throttle.as_ref(), None, (self.clock)()).map_err(OperationError::Failed)?;
            let first = messages.len();
            for row in rows {
                let relay_down = down.contains(&row.relay);
                let expected = snapshot.expected(row.entry).filter(|_| !relay_down).map(|at| when(at.0 as i64));
                let recipient = HeldRecipient { address: row.recipient.clone(), expected };
                let known = messages.iter_mut().skip(first).rev().find(|held| held.message == row.message);
                match known {
                    Some(held) => held.recipients.push(recipient),
                    None => {
                        let file_missing = self.is_file_missing(&row);
                        let held = HeldMessage::new(row, snapshot.stopped().is_some(), relay_down, recipient);
                        messages.push(HeldMessage { file_missing, ..held });
                    }
                }
            }
        }
        Ok(messages)
    }

    /// Relays that are down, other than this one.
    async fn relays_down(&self) -> Result<Vec<String>, OperationError> {
        let mut down = self.relays.silent_since(((self.clock)().0 as i64) - RELAY_SILENCE_NS).await?;
        down.retain(|relay| **relay != *self.relay);
        Ok(down)
    }
}

impl HeldMessage {
    fn new(row: HeldRow, stopped: bool, relay_down: bool, first: HeldRecipient) -> HeldMessage {
        HeldMessage {
            message: row.message,
            user: row.identity,
            sender: row.sender,
            subject: row.subject,
            source: row.source,
            since: when(row.held_at),
            stopped,
            relay: row.relay,
            relay_down,
            file_missing: false,
            recipients: vec![first],
        }
    }
}

fn by_identity(rows: Vec<HeldRow>) -> BTreeMap<String, Vec<HeldRow>> {
    let mut users: BTreeMap<String, Vec<HeldRow>> = BTreeMap::new();
    rows.into_iter().for_each(|row| users.entry(row.identity.clone()).or_default().push(row));
    users
}

fn nothing_held(selection: &HeldSelection) -> OperationError {
    let what = match (selection.messages.as_slice(), selection.user.as_str(), selection.recipient.as_str()) {
        ([], "", "") => "nothing is held".to_owned(),
        ([message], _, "") => format!("nothing of message {} is held (any more)", names::shown(message)),
        ([], user, "") => format!("nothing of {} is held", names::shown(user)),
        (.., recipient) => format!("nothing to {} is held there", names::shown(recipient)),
    };
    OperationError::unknown(what, "`weir held list` shows what is; it may have gone, or somebody else decided")
}

fn why(held: &HeldMessage, params: &Params) -> String {
    if held.file_missing {
        return "its file is missing, so it cannot go; it may have been removed by hand, or lost with a disk"
            .to_owned();
    }
    let waits = if held.recipients.len() == 1 { "this recipient waits" } else { "these recipients wait" };
    format!(
        "{} had used up the allowance for new recipients ({} a minute), so {waits} in the delay queue; each goes by itself \
         when its turn comes",
        held.user,
        decimal(60.0 / params.rate_period.as_secs_f64())
    )
}

fn choices(held: &HeldMessage) -> Vec<String> {
    let id = &held.message;
    let mut choices = vec![
        format!("weir held release {id}          sends it to all who wait, now"),
        format!("weir held release {id} --trust  the same, and mail of {} to them never waits again", held.user),
        format!("weir held delete {id}           drops it; nobody is told"),
    ];
    if held.stopped {
        choices.push(format!("weir user unlock {}                           lets what waits go one by one", held.user));
    }
    if held.file_missing {
        choices.push(format!("put {id}.eml and {id}.json back into the folder held/ of {}; then it goes", held.relay));
    }
    if held.relay_down {
        choices.push(format!("the relay {} keeps the message and is down: start it again", held.relay));
    }
    choices
}
