//! Quarantined mail as people see it: one entry per message. Lists are bounded and say when there is more.
//!
//! A decision releases or deletes a message for some of its recipients. An administrator may decide about everything; an operator too,
//! but may not release infected mail; a user may only decide about spam to their own addresses. Every decision is audited under the
//! message's id.

use super::message_file::{header_of, message_id};
use super::{Actor, Backend, OperationError, OperationsParts, names, plural, when};
use crate::queue::QueueSelection;
use crate::scan::{QuarantineQueue, Scanning};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_core::address::canonical;
use weir_foundation::clock::Clock;
use weir_smtp::mailbox::Mailbox;
use weir_store::folder::DataFolder;
use weir_store::records::{
    AuditLine, AuditRecords, Fate, QuarantineFilter, QuarantineRecords, QuarantineRow, QuarantineTotal, Quarantined,
};

/// Most messages in one list, and in one step of a bulk decision.
const MESSAGES_MAX: usize = 1_000;

/// Most rows that are read in one step for messages that were named.
const ROWS_MAX: usize = 20_000;
/// Only so many characters of a text are searched for.
const TEXT_MAX: usize = 200;
/// Verdicts that we wrote are shorter than this.
const VERDICT_MAX: u64 = 64 << 10;

/// How long the reason must be for which infected mail is released, and how much of it is written down.
const REASON_MIN: usize = 5;
const REASON_MAX: usize = 500;

/// Which quarantined mail. An empty field selects everything; a decision needs at least one that is not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuarantineSelection {
    /// These messages.
    pub messages: Vec<String>,
    /// In this quarantine: `virus`, `ext`, `spam`, `error` or `limit`.
    pub queue: String,
    /// To this recipient.
    pub recipient: String,
    /// From this envelope sender.
    pub sender: String,
    /// That have been here for so many seconds.
    pub older_than_s: u64,
    /// With these words in the id, subject, sender, recipient, user or reason.
    pub text: String,
    /// Like this message: in the same quarantine, with the same subject and for the same reason but for numbers, of the newest thousand.
    pub like: String,
    /// Everything, if nothing else is given.
    pub all: bool,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// About everything. Infected mail is released a message at a time, and only for a reason, which is written down.
    Administrator {
        /// Why infected mail is released; empty where none is.
        reason: String,
    },
    /// About everything, but infected mail is not released.
    Operator,
    /// About spam to these addresses.
    User {
        /// Their own addresses.
        addresses: Vec<String>,
    },
}

/// Quarantined mail, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineList {
    /// One a message.
    pub entries: Vec<QuarantineEntry>,
    /// How much there is in all, whatever the selection.
    pub totals: Vec<QuarantineTotal>,
    /// There are more than fit into one list.
    pub more: bool,
}

/// One quarantined message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineEntry {
    /// Its id.
    pub message: String,
    /// Which quarantine.
    #[schemars(extend("enum" = ["virus", "ext", "spam", "error", "limit"]))]
    pub queue: String,
    /// Why.
    pub reason: String,
    /// The envelope sender.
    pub sender: String,
    /// Those that it was meant for.
    pub recipients: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The client that handed it in.
    pub source: String,
    /// The user who sent it; empty for mail from outside.
    pub user: String,
    /// Its size.
    pub size_bytes: i64,
    /// Since when it is here.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// When it is deleted; earlier if there is too much. Unknown while no gate runs.
    #[schemars(extend("format" = "date-time"))]
    #[serde(default)]
    pub until: Option<String>,
    /// The relay that keeps it.
    pub relay: String,
}

/// Everything about one quarantined message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinePage {
    /// As in a list.
    #[serde(flatten)]
    pub entry: QuarantineEntry,
    /// What each scanner said; unknown if another relay keeps it.
    pub verdict: Value,
    /// What can be done.
    pub choices: Vec<String>,
    /// The message itself, as any tool reads it; unknown if another relay keeps it.
    pub file: Option<PathBuf>,
    /// The first lines of its header.
    pub header: Vec<String>,
}

/// What to do with quarantined mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuarantineDecision {
    /// Send it, unscanned.
    Release,
    /// Send it, unscanned, to this address instead of whom it was for.
    ReleaseTo(Mailbox),
    /// Drop it; nobody is told.
    Delete,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineDone {
    /// Messages that it was about.
    pub messages: Vec<String>,
    /// Recipients of these.
    pub recipients: usize,
}

/// What may be done to quarantined mail. Cheap to clone.
#[derive(Clone)]
pub struct QuarantineOperations {
    quarantine: QuarantineRecords,
    audit: AuditRecords,
    clock: Clock,
    folder: Arc<DataFolder>,
    backend: Arc<dyn Backend>,
}

impl QuarantineOperations {
    pub(super) fn new(parts: &OperationsParts) -> QuarantineOperations {
        QuarantineOperations {
            quarantine: parts.foundation.records.quarantine(),
            audit: parts.foundation.records.audit(),
            clock: Arc::clone(&parts.foundation.clock),
            folder: Arc::clone(&parts.foundation.folder),
            backend: Arc::clone(&parts.backend),
        }
    }

    /// How much is in each quarantine.
    pub async fn totals(&self) -> Result<Vec<QuarantineTotal>, OperationError> {
        Ok(self.quarantine.totals("").await?)
    }

    /// Quarantined mail of a selection; everything, if it is empty.
    pub async fn list(&self, selection: &QuarantineSelection) -> Result<QuarantineList, OperationError> {
        let (entries, more) = self.newest(selection, MESSAGES_MAX).await?;
        Ok(QuarantineList { entries, totals: self.totals().await?, more })
    }

    /// The newest messages of a selection, and whether there are more; nothing else is counted. At most `most`, unless they are named.
    pub async fn newest(
        &self,
        selection: &QuarantineSelection,
        most: usize,
    ) -> Result<(Vec<QuarantineEntry>, bool), OperationError> {
        let selection = self.with_those_alike(selection).await?;
        let Quarantined { rows, more } = self.rows(&selection, most.min(MESSAGES_MAX)).await?;
        Ok((entries(rows, self.keep_for()), more))
    }

    /// Everything about one quarantined message.
    pub async fn show(&self, message: &str) -> Result<QuarantinePage, OperationError> {
        let id = message_id(message)?;
        let selection = QuarantineSelection { messages: vec![id.to_string()], ..QuarantineSelection::default() };
        let Quarantined { rows, .. } = self.rows(&selection, MESSAGES_MAX).await?;
        let Some(entry) = entries(rows, self.keep_for()).into_iter().next() else {
            return Err(self.not_kept(&id.to_string()).await);
        };
        let file = self.folder.quarantine().join(format!("{id}.eml"));
        let opened = file.clone();
        let read =
            tokio::task::spawn_blocking(move || (verdict_in(&opened.with_extension("verdict")), header_of(opened)));
        let (verdict, header) = read.await.map_err(|error| OperationError::Failed(error.to_string()))?;
        let read = header.ok();
        Ok(QuarantinePage {
            verdict,
            choices: choices(&entry),
            file: read.is_some().then_some(file),
            header: read.map(|(_, lines)| lines).unwrap_or_default(),
            entry,
        })
    }

    /// How long mail is kept, where a gate runs that deletes it then.
    fn keep_for(&self) -> Option<Duration> {
        self.backend.scanning().map(Scanning::keeps_for)
    }

    /// Why a message is not in quarantine; it may still be decided whether it comes here.
    async fn not_kept(&self, message: &str) -> OperationError {
        let messages = vec![message.to_owned()];
        let waits = QueueSelection { messages: messages.clone(), ..QueueSelection::default() };
        // If no gate runs, the whole spool would have to be read for this.
        let listed = match self.backend.vital() {
            Some(_) => self.backend.queue().list(&waits, 1).await.ok(),
            None => None,
        };
        let answer = listed.and_then(|list| list.messages.into_iter().next()?.recipients.into_iter().next());
        match answer.filter(|to| to.last_answer.starts_with("waits ")) {
            Some(to) => OperationError::unknown(
                format!("message {message} is not in quarantine: it {}", to.last_answer),
                format!("`weir trace {message}` tells its way so far"),
            ),
            None => nothing_there(&QuarantineSelection { messages, ..QuarantineSelection::default() }),
        }
    }

    /// Decides on quarantined mail.
    pub async fn decide(
        &self,
        selection: &QuarantineSelection,
        decision: &QuarantineDecision,
        authority: &Authority,
        actor: &Actor,
    ) -> Result<QuarantineDone, OperationError> {
        if *selection == QuarantineSelection::default() {
            let hint = "name messages, a queue, a sender or a recipient, or say that you mean all";
            return Err(OperationError::invalid("which quarantined mail is meant?", hint));
        }
        // Once: it is not there any more when it is decided on.
        let selection = &self.with_those_alike(selection).await?;
        if decision.sends()
            && let Authority::Administrator { reason } = authority
        {
            self.refuse_infected(selection, reason).await?;
        }
        let mut done = QuarantineDone::default();
        loop {
            let mut rows = self.rows(selection, MESSAGES_MAX).await?.rows;
            let found = rows.len();
            rows.retain(|row| authority.may(row, decision));
            if done.recipients == 0 && rows.is_empty() && found > 0 {
                return Err(not_yours(authority));
            }
            if rows.is_empty() {
                break;
            }
            self.decide_rows(&rows, (decision, authority), actor, &mut done).await?;
        }
        if done.recipients == 0 {
            return Err(nothing_there(selection));
        }
        self.backend.wake();
        Ok(done)
    }

    /// To release infected mail, a person must name that one message and say why.
    async fn refuse_infected(&self, selection: &QuarantineSelection, reason: &str) -> Result<(), OperationError> {
        let virus = QuarantineQueue::Virus.as_str();
        if !selection.queue.is_empty() && selection.queue != virus {
            return Ok(());
        }
        let among = QuarantineSelection { queue: virus.to_owned(), ..selection.clone() };
        let infected = self.rows(&among, 1).await?.rows;
        if infected.is_empty() || selection.messages.len() == 1 && reason.trim().chars().count() >= REASON_MIN {
            return Ok(());
        }
        let what = match selection.messages.as_slice() {
            [message] => format!("message {message} is infected: say why it is released"),
            _ => "there is infected mail among these: it is released a message at a time, with a reason".to_owned(),
        };
        let hint = format!(
            "give a reason of {REASON_MIN} letters or more (`--reason`), or choose another quarantine with --queue"
        );
        Err(OperationError::conflict(what, hint))
    }

    async fn decide_rows(
        &self,
        rows: &[QuarantineRow],
        (decision, authority): (&QuarantineDecision, &Authority),
        actor: &Actor,
        done: &mut QuarantineDone,
    ) -> Result<(), OperationError> {
        let (fate, action, to) = match decision {
            QuarantineDecision::Release => (Fate::Go, "quarantine.release", ""),
            QuarantineDecision::ReleaseTo(to) => (Fate::Go, "quarantine.release", to.as_str()),
            QuarantineDecision::Delete => (Fate::Drop, "quarantine.delete", ""),
        };
        let instead = if to.is_empty() { String::new() } else { format!("to <{to}> instead; ") };
        // The audit line comes first: no mail may be released without one.
        let lines: Vec<AuditLine> = rows
            .chunk_by(|a, b| a.message == b.message)
            .filter_map(|rows| Some((rows.first()?, rows.len())))
            .map(|(row, count)| AuditLine {
                at: (self.clock)().0 as i64,
                actor: actor.as_str().to_owned(),
                action: action.to_owned(),
                subject: row.message.clone(),
                detail: format!(
                    "{}{instead}{} from <{}> for {count} recipient{}: {}",
                    authority.reason(),
                    row.queue,
                    row.sender,
                    plural(count),
                    row.reason
                ),
            })
            .collect();
        self.audit.write_all(&lines).await?;
        let keys: Vec<(String, i64)> = rows.iter().map(|row| (row.message.clone(), row.place)).collect();
        done.recipients += self.quarantine.decide_for(&keys, fate, actor.as_str(), to).await? as usize;
        done.messages.extend(lines.into_iter().map(|line| line.subject));
        Ok(())
    }

    /// The same selection with the messages themselves, if it means those that are like one.
    async fn with_those_alike(&self, selection: &QuarantineSelection) -> Result<QuarantineSelection, OperationError> {
        if selection.like.is_empty() {
            return Ok(selection.clone());
        }
        let one = QuarantineSelection { messages: vec![selection.like.clone()], ..QuarantineSelection::default() };
        let Some(model) = entries(self.rows(&one, 1).await?.rows, None).into_iter().next() else {
            return Err(self.not_kept(&selection.like).await);
        };
        let same_queue = QuarantineSelection { queue: model.queue.clone(), ..selection.clone() };
        let found = entries(self.rows(&same_queue, MESSAGES_MAX).await?.rows, None);
        let alike = found.into_iter().filter(|entry| entry.likeness() == model.likeness()).map(|entry| entry.message);
        let messages: Vec<String> = alike.collect();
        if messages.is_empty() {
            return Err(nothing_there(selection));
        }
        Ok(QuarantineSelection { messages, like: String::new(), ..selection.clone() })
    }

    async fn rows(&self, selection: &QuarantineSelection, most: usize) -> Result<Quarantined, OperationError> {
        let QuarantineSelection { messages, queue, recipient, sender, older_than_s, text, .. } = selection;
        if messages.len() > MESSAGES_MAX {
            let hint = "use a queue, a sender or a recipient instead";
            return Err(OperationError::invalid(format!("at most {MESSAGES_MAX} messages can be named at once"), hint));
        }
        let queues = QuarantineQueue::ALL.map(QuarantineQueue::as_str);
        if !queue.is_empty() && !queues.contains(&queue.as_str()) {
            let what = format!("there is no quarantine {:?}", names::shown(queue));
            return Err(OperationError::invalid(what, format!("there are {}", queues.join(", "))));
        }
        let before = match older_than_s {
            0 => 0,
            seconds => (self.clock)().0.saturating_sub(seconds.saturating_mul(1_000_000_000)).max(1) as i64,
        };
        let mut filter = QuarantineFilter {
            message: String::new(),
            queue: queue.clone(),
            recipient: recipient.clone(),
            sender: sender.clone(),
            before,
            text: text.chars().take(TEXT_MAX).collect(),
        };
        if messages.is_empty() {
            return Ok(self.quarantine.list(&filter, most).await?);
        }
        let mut found = Quarantined::default();
        for message in messages {
            filter.message = message_id(message)?.to_string();
            let Quarantined { rows, more } = self.quarantine.list(&filter, 1).await?;
            found.rows.extend(rows);
            found.more |= more;
            if found.rows.len() > ROWS_MAX {
                found.more = true;
                break;
            }
        }
        Ok(found)
    }
}

impl Authority {
    /// The reason that was given, for the audit trail.
    fn reason(&self) -> String {
        match self {
            Authority::Administrator { reason } if !reason.trim().is_empty() => {
                let plain: String = reason.chars().filter(|c| !c.is_control()).take(REASON_MAX).collect();
                format!("because \"{plain}\"; ")
            }
            _ => String::new(),
        }
    }

    fn may(&self, row: &QuarantineRow, decision: &QuarantineDecision) -> bool {
        match self {
            Authority::Administrator { .. } => true,
            Authority::Operator => !decision.sends() || row.queue != QuarantineQueue::Virus.as_str(),
            Authority::User { addresses } => {
                // A recipient such as `postmaster` has no canonical address, and neither has `@example.org`: these are nobody's.
                let Ok(recipient) = canonical(&row.recipient) else { return false };
                let own = |address: &String| canonical(address).is_ok_and(|address| address == recipient);
                let elsewhere = matches!(decision, QuarantineDecision::ReleaseTo(_));
                row.queue == QuarantineQueue::Spam.as_str() && !elsewhere && addresses.iter().any(own)
            }
        }
    }
}

impl QuarantineDecision {
    /// Sends mail on, to whom it was for if `to` is empty.
    pub fn release(to: &str) -> Result<QuarantineDecision, OperationError> {
        match to.trim() {
            "" => Ok(QuarantineDecision::Release),
            to => Mailbox::parse(to).map(QuarantineDecision::ReleaseTo).map_err(|_| {
                let what = format!("{:?} is no address", names::shown(to));
                OperationError::invalid(what, "name one such as ann@example.org")
            }),
        }
    }

    fn sends(&self) -> bool {
        *self != QuarantineDecision::Delete
    }
}

impl QuarantineEntry {
    /// What mail of the same kind has in common: its quarantine, its subject and the reason. Numbers, the case of letters, `Re:` and the
    /// names of files do not count: they are what a sender changes from one mail to the next.
    pub fn likeness(&self) -> (String, String, String) {
        let reason = self.reason.split_once(" in ").map_or(self.reason.as_str(), |(reason, _)| reason);
        let subject = skeleton(&self.subject);
        // Without a subject only mail of one sender is alike.
        let subject = if subject.is_empty() { format!("from {}", self.sender.to_lowercase()) } else { subject };
        (self.queue.clone(), subject, skeleton(reason))
    }
}

fn skeleton(text: &str) -> String {
    let mut rest = text.trim().to_lowercase();
    while let Some(after) = ["re:", "fw:", "fwd:", "aw:", "wg:"].iter().find_map(|begin| rest.strip_prefix(begin)) {
        rest = after.trim_start().to_owned();
    }
    let letters = rest.chars().map(|c| if c.is_numeric() || c == '.' || c == ',' { '#' } else { c });
    let mut plain: Vec<char> = letters.map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    plain.dedup_by(|a, b| a == b && matches!(a, '#' | ' '));
    plain.into_iter().collect()
}

/// One entry per message, in the order of the rows.
fn entries(rows: Vec<QuarantineRow>, keep_for: Option<Duration>) -> Vec<QuarantineEntry> {
    let keep_ns = keep_for.and_then(|keep| i64::try_from(keep.as_nanos()).ok());
    let (mut entries, mut places): (Vec<QuarantineEntry>, BTreeMap<String, usize>) = Default::default();
    for row in rows {
        match places.get(&row.message).and_then(|place| entries.get_mut(*place)) {
            Some(entry) => entry.recipients.push(row.recipient),
            None => {
                places.insert(row.message.clone(), entries.len());
                entries.push(QuarantineEntry {
                    message: row.message,
                    queue: row.queue,
                    reason: row.reason,
                    sender: row.sender,
                    recipients: vec![row.recipient],
                    subject: row.subject,
                    source: row.source,
                    user: row.owner,
                    size_bytes: row.size,
                    since: when(row.at),
                    until: keep_ns.map(|keep| when(row.at.saturating_add(keep))),
                    relay: row.relay,
                });
            }
        }
    }
    entries
}

/// What the scanners said; null if there is no such file on this machine.
fn verdict_in(file: &Path) -> Value {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(VERDICT_MAX).read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null)
}

fn choices(entry: &QuarantineEntry) -> Vec<String> {
    let id = &entry.message;
    let danger = if entry.queue == "virus" { "; it is dangerous" } else { "" };
    vec![
        format!(
            "weir quarantine release {id}  sends it to all of them as it is{danger}; --send-to ADDRESS to somebody else"
        ),
        format!("weir quarantine delete {id}   drops it; nobody is told"),
    ]
}

fn not_yours(authority: &Authority) -> OperationError {
    let hint = match authority {
        Authority::Operator | Authority::Administrator { .. } => "an operator releases everything but infected mail",
        Authority::User { .. } => {
            "users may release and delete spam to their own addresses; ask the administrator about the rest"
        }
    };
    OperationError::conflict("only an administrator may decide on this mail", hint)
}

fn nothing_there(selection: &QuarantineSelection) -> OperationError {
    let what = match selection.messages.as_slice() {
        [message] => format!("message {} is not in quarantine (any more)", names::shown(message)),
        _ => "nothing of that kind is in quarantine".to_owned(),
    };
    OperationError::unknown(
        what,
        "`weir quarantine list` shows what is; somebody else may have decided, or its time was over",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_domain_and_a_domain_without_a_name_are_nobodys() {
        let row = |recipient: &str| QuarantineRow {
            message: String::new(),
            place: 0,
            relay: String::new(),
            queue: "spam".into(),
            fate: Fate::Held,
            recipient: recipient.into(),
            sender: String::new(),
            subject: String::new(),
            source: String::new(),
            owner: String::new(),
            origin: "received".into(),
            size: 0,
            at: 0,
            reason: String::new(),
            decided_by: String::new(),
            release_to: String::new(),
        };
        let user = Authority::User { addresses: vec!["@corp.test".into(), "ann@corp.test".into()] };
        assert!(user.may(&row("ann@corp.test"), &QuarantineDecision::Release));
        for other in ["postmaster", "", "@corp.test", "bob@corp.test"] {
            assert!(!user.may(&row(other), &QuarantineDecision::Release), "{other}");
        }
    }

    #[test]
    fn mail_of_one_campaign_is_alike() {
        let entry = |subject: &str, reason: &str| QuarantineEntry {
            message: String::new(),
            queue: "virus".into(),
            reason: reason.into(),
            sender: "a@b.example".into(),
            recipients: Vec::new(),
            subject: subject.into(),
            source: String::new(),
            user: String::new(),
            size_bytes: 0,
            since: String::new(),
            until: None,
            relay: String::new(),
        };
        let model = entry("Invoice 4711 of 17.11.", "infected: Worm.A in 4711.zip > run.exe (clamd)").likeness();
        let other = entry("RE: invoice  9 of 2.1.", "infected: Worm.A in x.zip > y.exe (clamd)").likeness();
        assert_eq!(model, other);
        assert_ne!(model, entry("Invoice 4711 of 17.11.", "infected: Worm.B in x.zip (clamd)").likeness());
        assert_ne!(model, entry("Your parcel", "infected: Worm.A in x.zip (clamd)").likeness());
        let silent = QuarantineEntry { sender: "c@d.example".into(), ..entry("", "spam") };
        assert_ne!(silent.likeness(), entry("", "spam").likeness(), "nothing in common but nothing");
    }
}
