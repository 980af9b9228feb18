//! Held mail, as a person in charge sees and decides it: grouped by message, one recipient, one message, or in bulk.
//!
//! A release sends at once and uses no slack; with trust the recipients are also put on the user's list, so that mail to them
//! never waits again. A decision is one transaction a user and a few hundred recipients; what came in after the
//! decision was asked for is not touched by it. Lists are bounded, and say when there is more.

use super::throttle_view::{ParamsView, Snapshot, ThrottleView};
use super::{Actor, Desk, DeskError, names, plural, when};
use crate::throttle::{Command, Done, RELAY_SILENCE_NS};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use weir_store::records::{HeldFilter, HeldRow};
use weir_store::spool::MessageId;

/// Most recipients in one list, and in one step of a bulk decision.
const ROWS_MAX: i64 = 5_000;
/// Entries in one transaction.
const ENTRIES_MAX: usize = 500;
const MESSAGES_MAX: usize = 1_000;
const HEADER_BYTES: u64 = 16 * 1024;
const HEADER_LINES: usize = 40;

/// Which held mail. What is empty does not restrict; at least one of them must.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Held mail in the order of its queues.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldList {
    /// Grouped by message.
    pub messages: Vec<HeldMessage>,
    /// Recipients in this list.
    pub recipients: usize,
    /// There are more than fit into one list.
    pub more: bool,
}

/// One held message.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    pub since: String,
    /// Whether its user is stopped: then nothing goes by itself.
    pub stopped: bool,
    /// The relay that keeps it.
    pub relay: String,
    /// That relay is down: it goes when the relay is back.
    pub relay_down: bool,
    /// Those that wait.
    pub recipients: Vec<HeldRecipient>,
}

/// One recipient of a held message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRecipient {
    /// The address.
    pub address: String,
    /// When it goes; unknown while the user is stopped or the relay is down.
    pub expected: Option<String>,
}

/// Everything about one held message.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The throttle of its user.
    pub throttle: ThrottleView,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
    /// Relays that are down: their part is carried out when they are back.
    pub relays_down: Vec<String>,
}

/// What learn-only mode saw of one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LearnedView {
    /// Whose.
    pub user: String,
    /// The last day with mail.
    pub last_day: String,
    /// Mails seen.
    pub mails: i64,
    /// Recipients seen.
    pub recipients: i64,
    /// Recipients that would have been held.
    pub would_hold: i64,
    /// Times that the user would have been stopped.
    pub would_stop: i64,
}

impl Desk {
    /// Held mail of a selection; everything, if it is empty.
    pub async fn held_list(&self, selection: &HeldSelection) -> Result<HeldList, DeskError> {
        let mut rows = self.held_rows(selection, ROWS_MAX + 1).await?;
        let more = rows.len() as i64 > ROWS_MAX;
        rows.truncate(ROWS_MAX as usize);
        let recipients = rows.len();
        Ok(HeldList { messages: self.grouped(rows).await?, recipients, more })
    }

    /// Everything about one held message.
    pub async fn held_show(&self, message: &str) -> Result<HeldPage, DeskError> {
        let id = message_id(message)?;
        let selection = HeldSelection { messages: vec![id.to_string()], ..HeldSelection::default() };
        let held = self.held_list(&selection).await?.messages.into_iter().next();
        let held = held.ok_or_else(|| nothing_held(&selection))?;
        let row = self.records().throttle(&held.user).await?;
        let snapshot = Snapshot::of(row.as_ref(), None, self.now()).map_err(DeskError::Failed)?;
        let throttle = snapshot.view(false);
        let file = self.parts.folder.held().join(format!("{id}.eml"));
        let opened = file.clone();
        let read = tokio::task::spawn_blocking(move || header_of(opened)).await.ok().and_then(Result::ok);
        let (size_bytes, header) = read.map_or((None, Vec::new()), |(size, lines)| (Some(size), lines));
        Ok(HeldPage {
            why: snapshot.stopped().unwrap_or_else(|| why(&held, &throttle.params)),
            choices: choices(&held),
            file: size_bytes.is_some().then_some(file),
            size_bytes,
            header,
            throttle,
            held,
        })
    }

    /// Decides on held mail.
    pub async fn held_decide(
        &self,
        selection: &HeldSelection,
        decision: Decision,
        actor: &Actor,
    ) -> Result<HeldDone, DeskError> {
        if *selection == HeldSelection::default() {
            let hint = "name messages, a user or a recipient, or say that you mean all";
            return Err(DeskError::invalid("which held mail is meant?", hint));
        }
        let asked_at = self.now().0 as i64;
        let mut sum = Sum::default();
        loop {
            let mut rows = self.held_rows(selection, ROWS_MAX).await?;
            rows.retain(|row| row.held_at <= asked_at);
            let before = sum.recipients;
            for (identity, rows) in by_identity(rows) {
                self.decide_for(&identity, &rows, decision, &mut sum).await?;
            }
            if sum.recipients == before {
                break;
            }
        }
        if sum.recipients == 0 {
            return Err(nothing_held(selection));
        }
        self.parts.house.wake();
        self.audit_decision(decision, &sum, actor).await?;
        Ok(sum.done(&self.relays_down().await?))
    }

    async fn decide_for(
        &self,
        identity: &str,
        rows: &[HeldRow],
        decision: Decision,
        sum: &mut Sum,
    ) -> Result<(), DeskError> {
        if decision == Decision::Trust {
            let addresses: Vec<String> = rows.iter().map(|row| row.recipient.clone()).collect();
            sum.trusted.extend(self.trust(identity, &addresses).await?);
        }
        let was_stopped = self.is_stopped(identity).await?;
        for rows in rows.chunks(ENTRIES_MAX) {
            let entries = rows.iter().map(|row| row.entry).collect();
            let command = match decision {
                Decision::Release | Decision::Trust => Command::Release(entries),
                Decision::Delete => Command::Delete(entries),
            };
            let Done { going, dropped, .. } = self.parts.throttling.command(identity, command).await?;
            sum.add(identity, rows, (going + dropped).min(rows.len()));
        }
        if was_stopped && !self.is_stopped(identity).await? {
            sum.stops_ended.push(identity.to_owned());
        }
        Ok(())
    }

    async fn is_stopped(&self, identity: &str) -> Result<bool, DeskError> {
        Ok(self.records().throttle(identity).await?.is_some_and(|row| row.stopped_at.is_some()))
    }

    async fn audit_decision(&self, decision: Decision, sum: &Sum, actor: &Actor) -> Result<(), DeskError> {
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
            self.audit(actor, action, user, detail).await?;
        }
        Ok(())
    }

    async fn held_rows(&self, selection: &HeldSelection, most: i64) -> Result<Vec<HeldRow>, DeskError> {
        if selection.messages.len() > MESSAGES_MAX {
            let hint = "use a user, a recipient or everything instead";
            return Err(DeskError::invalid(format!("at most {MESSAGES_MAX} messages can be named at once"), hint));
        }
        let mut filter = HeldFilter {
            identity: selection.user.clone(),
            message: String::new(),
            recipient: selection.recipient.clone(),
        };
        if selection.messages.is_empty() {
            return Ok(self.records().held(&filter, most).await?);
        }
        let mut rows = Vec::new();
        for message in &selection.messages {
            filter.message = message_id(message)?.to_string();
            rows.extend(self.records().held(&filter, most - rows.len() as i64).await?);
        }
        Ok(rows)
    }

    async fn grouped(&self, rows: Vec<HeldRow>) -> Result<Vec<HeldMessage>, DeskError> {
        let down = self.relays_down().await?;
        let mut messages: Vec<HeldMessage> = Vec::new();
        for (identity, rows) in by_identity(rows) {
            let throttle = self.records().throttle(&identity).await?;
            let snapshot = Snapshot::of(throttle.as_ref(), None, self.now()).map_err(DeskError::Failed)?;
            let first = messages.len();
            for row in rows {
                let relay_down = down.contains(&row.relay);
                let expected = snapshot.expected(row.entry).filter(|_| !relay_down).map(|at| when(at.0 as i64));
                let recipient = HeldRecipient { address: row.recipient.clone(), expected };
                let known = messages.iter_mut().skip(first).rev().find(|held| held.message == row.message);
                match known {
                    Some(held) => held.recipients.push(recipient),
                    None => messages.push(HeldMessage::new(row, snapshot.stopped().is_some(), relay_down, recipient)),
                }
            }
        }
        Ok(messages)
    }

    /// Relays that are down, other than this one.
    async fn relays_down(&self) -> Result<Vec<String>, DeskError> {
        let mut down = self.records().relays_silent_since((self.now().0 as i64) - RELAY_SILENCE_NS).await?;
        down.retain(|relay| *relay != self.parts.rules.relay);
        Ok(down)
    }

    /// What learn-only mode saw in the last `days`, the worst first.
    pub async fn learned(&self, days: i64) -> Result<Vec<LearnedView>, DeskError> {
        let today = (self.now().0 / DAY_NS) as i64;
        let learned = self.records().learned(today - days.clamp(1, 36_500) + 1).await?;
        let view = |seen: weir_store::records::Learned| LearnedView {
            last_day: when(seen.day.saturating_mul(DAY_NS as i64)).chars().take(10).collect(),
            user: seen.identity,
            mails: seen.mails,
            recipients: seen.recipients,
            would_hold: seen.would_hold,
            would_stop: seen.would_stop,
        };
        Ok(learned.into_iter().map(view).collect())
    }
}

const DAY_NS: u64 = 86_400_000_000_000;

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
            recipients: vec![first],
        }
    }
}

/// What a bulk decision adds up to.
#[derive(Default)]
struct Sum {
    recipients: usize,
    users: BTreeMap<String, (usize, BTreeSet<String>)>,
    relays: BTreeSet<String>,
    trusted: Vec<String>,
    stops_ended: Vec<String>,
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
            relays_down: self.relays.into_iter().filter(|relay| down.contains(relay)).collect(),
        }
    }
}

fn by_identity(rows: Vec<HeldRow>) -> BTreeMap<String, Vec<HeldRow>> {
    let mut users: BTreeMap<String, Vec<HeldRow>> = BTreeMap::new();
    rows.into_iter().for_each(|row| users.entry(row.identity.clone()).or_default().push(row));
    users
}

pub(super) fn message_id(text: &str) -> Result<MessageId, DeskError> {
    text.parse().map_err(|error: weir_store::spool::NotAnId| {
        DeskError::invalid(
            format!("{:?} is {error}", names::shown(text)),
            "`weir held list` shows the ids of held mail",
        )
    })
}

fn nothing_held(selection: &HeldSelection) -> DeskError {
    let what = match (selection.messages.as_slice(), selection.user.as_str(), selection.recipient.as_str()) {
        ([], "", "") => "nothing is held".to_owned(),
        ([message], _, "") => format!("nothing of message {} is held (any more)", names::shown(message)),
        ([], user, "") => format!("nothing of {} is held", names::shown(user)),
        (.., recipient) => format!("nothing to {} is held there", names::shown(recipient)),
    };
    DeskError::unknown(what, "`weir held list` shows what is; it may have gone, or somebody else decided")
}

fn why(held: &HeldMessage, params: &ParamsView) -> String {
    let waits = if held.recipients.len() == 1 { "this recipient waits" } else { "these recipients wait" };
    format!(
        "{} had used up the allowance for new recipients ({:.3} a minute), so {waits} in the delay queue; each goes by itself \
         when its turn comes",
        held.user, params.rate_per_min
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
    if held.relay_down {
        choices.push(format!("the relay {} keeps the message and is down: start it again", held.relay));
    }
    choices
}

fn header_of(file: PathBuf) -> std::io::Result<(u64, Vec<String>)> {
    let file = std::fs::File::open(file)?;
    let size = file.metadata()?.len();
    let mut start = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut start)?;
    let text = String::from_utf8_lossy(&start);
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r')).take_while(|line| !line.is_empty());
    // What strangers wrote must not command the terminal that shows it.
    let clean = |line: &str| -> String {
        line.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).take(200).collect()
    };
    Ok((size, lines.take(HEADER_LINES).map(clean).collect()))
}
