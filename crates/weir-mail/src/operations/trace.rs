//! The history of one message, put together from the diary, the audit trail, and where the message is now.
//!
//! A message gets a new id when it leaves a delay queue or a quarantine; the diary links both, so any of them leads to the whole way. A
//! Message-ID leads to every message that carried it; a sample's hash to the mail that it came with.

use super::held::{HeldOperations, HeldSelection};
use super::quarantine::{QuarantineOperations, QuarantineSelection};
use super::{Backend, OperationError, OperationsParts, find, names, plural, when};
use crate::queue::QueueSelection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_store::diary::{DiaryLine, lines_about};
use weir_store::folder::DataFolder;
use weir_store::records::{AuditLine, AuditRecords};
use weir_store::spool::MessageId;
use weir_store::tracking::{Act, MessageFilter, Tracking};

/// The longest name that is asked for: a Message-ID is one line of a header.
const NAME_MAX: usize = 998;
/// Messages of one way.
const MESSAGES_MAX: usize = 32;
/// Links that are followed, one after the other.
const STEPS_MAX: usize = 8;
/// Lines of the audit trail about one message.
const AUDIT_MAX: i64 = 200;

/// What is known of a message's way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MailTrace {
    /// The messages that it was.
    pub messages: Vec<String>,
    /// Samples of the lab that came out of it, by number.
    pub samples: Vec<i64>,
    /// What happened, oldest first.
    pub lines: Vec<TraceLine>,
    /// Where it is now, in sentences; empty if it has left.
    pub now: Vec<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceLine {
    /// When, to the millisecond.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// The same in nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// `smtp`, `throttle`, `scan`, `lab`, `quarantine` or `delivery`.
    pub stage: String,
    /// What, in a word.
    pub event: String,
    /// The message; empty for what is only about a sample.
    pub message: String,
    /// The sample of the lab, if it is about one.
    pub sample: Option<i64>,
    /// And in words.
    pub text: String,
}

impl TraceLine {
    /// A line of this time.
    pub fn new(at_ns: i64, stage: &str, event: &str, message: &str, text: String) -> TraceLine {
        let (stage, event, message) = (stage.to_owned(), event.to_owned(), message.to_owned());
        TraceLine { at: to_the_millisecond(at_ns), at_ns, stage, event, message, sample: None, text }
    }

    fn of_diary(line: DiaryLine) -> TraceLine {
        let sample = line.about.iter().find_map(|thing| sample(thing));
        TraceLine { sample, ..TraceLine::new(line.at, stage_of(&line.event), &line.event, &line.id, line.text) }
    }

    fn of_audit(line: &AuditLine) -> TraceLine {
        let (noun, verb) = line.action.split_once('.').unwrap_or(("", &line.action));
        let stage = match noun {
            "held" => "throttle",
            "queue" => "delivery",
            noun => noun,
        };
        let by = if line.actor == "weir" { String::new() } else { format!(" (by {})", line.actor) };
        TraceLine::new(line.at, stage, verb, &line.subject, format!("{}: {}{by}", line.action, line.detail))
    }
}

fn stage_of(event: &str) -> &'static str {
    match event {
        "accepted" | "found" => "smtp",
        "held" | "let-go" | "released" | "decided" | "deleted" => "throttle",
        "scanned" | "failed" | "pending" | "late" | "verdict" => "scan",
        "sample" | "opinion" | "analysed" => "lab",
        "freed" | "quarantined" => "quarantine",
        _ => "delivery",
    }
}

/// Finds the way of a message. Cheap to clone.
#[derive(Clone)]
pub struct TraceOperations {
    audit: AuditRecords,
    folder: Arc<DataFolder>,
    backend: Arc<dyn Backend>,
    tracking: Tracking,
    held: HeldOperations,
    quarantine: QuarantineOperations,
}

impl TraceOperations {
    pub(super) fn new(
        parts: &OperationsParts,
        held: &HeldOperations,
        quarantine: &QuarantineOperations,
    ) -> TraceOperations {
        TraceOperations {
            audit: parts.foundation.records.audit(),
            folder: Arc::clone(&parts.foundation.folder),
            backend: Arc::clone(&parts.backend),
            tracking: parts.tracking.clone(),
            held: held.clone(),
            quarantine: quarantine.clone(),
        }
    }

    /// The way of a message, by any of its ids, its Message-ID, or the hash of a sample that it brought.
    pub async fn find(&self, what: &str) -> Result<MailTrace, OperationError> {
        let what = named(what)?;
        let (diary, folder) = (self.backend.diary(), self.folder.diary());
        let asked = what.clone();
        let read = tokio::task::spawn_blocking(move || {
            diary.settle();
            follow(&folder, &asked)
        });
        let found = read.await.map_err(|error| OperationError::Failed(error.to_string()))?;
        let (mut messages, mut lines) =
            found.map_err(|error| OperationError::Failed(format!("the diary cannot be read: {error}")))?;
        if lines.is_empty() && !is_hash(&what) {
            // The diary has forgotten it, or another relay had it.
            let (ids, acts) = self.tracked(&what).await?;
            messages.extend(ids);
            lines = acts;
        }
        let samples: BTreeSet<i64> =
            lines.iter().flat_map(|line| &line.about).filter_map(|thing| sample(thing)).collect();
        let mut trace = MailTrace {
            samples: samples.into_iter().collect(),
            lines: lines.into_iter().map(TraceLine::of_diary).collect(),
            ..MailTrace::default()
        };
        for message in &messages {
            let audit = self.audit.trail(message, AUDIT_MAX).await?;
            trace.lines.extend(audit.iter().map(TraceLine::of_audit));
            trace.now.extend(self.whereabouts(message).await?);
        }
        if trace.lines.is_empty() && trace.now.is_empty() {
            return Err(nothing_known(&what));
        }
        trace.messages = messages.into_iter().collect();
        trace.lines.sort_by_key(|line| line.at_ns);
        trace.lines.dedup();
        Ok(trace)
    }

    /// The ids and lines of a message that is tracked.
    async fn tracked(&self, what: &str) -> Result<(Vec<String>, Vec<DiaryLine>), OperationError> {
        let id = match is_message(what) {
            true => what.to_owned(),
            false => {
                let filter = MessageFilter { name: what.to_owned(), ..MessageFilter::default() };
                let found = self.tracking.search(&filter, 1).await.map_err(|error| find::failed(&error))?;
                found.messages.into_iter().flat_map(|message| message.ids).next().unwrap_or_default()
            }
        };
        let Some((message, acts)) = self.tracking.message(&id).await.map_err(|error| find::failed(&error))? else {
            return Ok((Vec::new(), Vec::new()));
        };
        let line = |act: Act| DiaryLine {
            at: act.at,
            id: act.id,
            event: act.event,
            text: act.text,
            about: act.about,
            facts: None,
        };
        Ok((message.ids, acts.into_iter().map(line).collect()))
    }

    /// Where a message is now: in a delay queue, in quarantine, or on its way.
    async fn whereabouts(&self, message: &str) -> Result<Vec<String>, OperationError> {
        let messages = vec![message.to_owned()];
        let mut places = Vec::new();
        let held = HeldSelection { messages: messages.clone(), ..HeldSelection::default() };
        for held in self.held.list(&held).await?.messages {
            let next = held.recipients.iter().filter_map(|to| to.expected.as_deref()).min();
            let when = next.map_or("when somebody decides".to_owned(), |at| format!("the next at {at}"));
            places.push(format!("{message}: {} held since {}, {when}", counted(held.recipients.len()), held.since));
        }
        let kept = QuarantineSelection { messages: messages.clone(), ..QuarantineSelection::default() };
        for entry in self.quarantine.list(&kept).await?.entries {
            places.push(format!("{message}: in quarantine/{} since {}: {}", entry.queue, entry.since, entry.reason));
        }
        let waits = QueueSelection { messages, ..QueueSelection::default() };
        for entry in self.backend.queue().list(&waits, 1).await?.messages {
            let answer = entry.recipients.first().map_or("", |to| to.last_answer.as_str());
            let answer = if answer.is_empty() { "waits for delivery" } else { answer };
            places.push(format!("{message}: {} on the way: {answer}", counted(entry.recipients.len())));
        }
        Ok(places)
    }
}

/// Follows links from message to message; which there are, and every line about them.
fn follow(folder: &std::path::Path, what: &str) -> std::io::Result<(BTreeSet<String>, Vec<DiaryLine>)> {
    let first = lines_about(folder, &[what.to_owned()])?;
    let mut messages = BTreeSet::new();
    if is_message(what) {
        messages.insert(what.to_owned());
    }
    if is_hash(what) {
        // The sample may have come with many mails, each of which has a way of its own.
        let all: BTreeSet<&String> = first.iter().map(|line| &line.id).collect();
        messages.extend(all.into_iter().take(MESSAGES_MAX).cloned());
        return Ok((messages, first));
    }
    let mut lines = first;
    for _ in 0..STEPS_MAX {
        let things = lines.iter().flat_map(|line| line.about.iter().chain([&line.id]));
        let linked: BTreeSet<&String> =
            things.filter(|thing| is_message(thing) && !messages.contains(*thing)).collect();
        let room = MESSAGES_MAX.saturating_sub(messages.len());
        if linked.is_empty() || room == 0 {
            break;
        }
        messages.extend(linked.into_iter().take(room).cloned());
        lines = lines_about(folder, &messages.iter().cloned().collect::<Vec<_>>())?;
    }
    Ok((messages, lines))
}

/// What is asked for as the diary names it.
fn named(what: &str) -> Result<String, OperationError> {
    let what = what.trim();
    if what.is_empty() || what.len() > NAME_MAX || what.contains(char::is_control) {
        let hint = "name a message by its id or its Message-ID, or a sample by its SHA-256";
        return Err(OperationError::invalid(format!("{:?} names no message", names::shown(what)), hint));
    }
    if what.contains('@') {
        return Ok(format!("<{}>", what.trim_start_matches('<').trim_end_matches('>')));
    }
    Ok(what.to_ascii_lowercase())
}

fn nothing_known(what: &str) -> OperationError {
    OperationError::unknown(
        format!("nothing is known of {}", names::shown(what)),
        "ids are in the reply to the sender and in `weir held list`, `weir quarantine list` and `weir queue list`; what happened is \
         remembered as far back as store.diary_size and store.tracking_size allow",
    )
}

fn counted(recipients: usize) -> String {
    format!("{recipients} recipient{}", plural(recipients))
}

fn is_message(thing: &str) -> bool {
    thing.parse::<MessageId>().is_ok()
}

fn is_hash(thing: &str) -> bool {
    thing.len() == 64 && thing.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn sample(thing: &str) -> Option<i64> {
    thing.strip_prefix("sample-")?.parse().ok()
}

fn to_the_millisecond(at_ns: i64) -> String {
    let second = when(at_ns);
    format!("{}.{:03}Z", second.trim_end_matches('Z'), at_ns.max(0) / 1_000_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::diary::Diary;

    const IDS: [&str; 4] =
        ["38exdmxn6hex5qydvved", "38exdmxn6hex5qydvvef", "38exdmxn6hex5qydvveg", "38exdmxn6hex5qydvveh"];

    #[test]
    fn any_id_of_a_message_leads_to_the_whole_way() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), 1 << 20).unwrap();
        let hash = "ab".repeat(32);
        diary.note(DiaryLine::new(IDS[0], "accepted", "a").about(["<x@y>"]));
        diary.note(DiaryLine::new(IDS[1], "released", "b").about([IDS[0]]));
        diary.note(DiaryLine::new(IDS[1], "sample", "c").about([hash.as_str(), "sample-7"]));
        diary.note(DiaryLine::new(IDS[2], "freed", "d").about([IDS[1]]));
        diary.note(DiaryLine::new(IDS[3], "sample", "e").about([hash.as_str(), "sample-8"]));
        diary.settle();
        for what in [IDS[0], IDS[1], IDS[2], "<x@y>"] {
            let (messages, lines) = follow(folder.path(), what).unwrap();
            assert_eq!((messages.len(), lines.len()), (3, 4), "{what}");
        }
        let (messages, lines) = follow(folder.path(), &hash).unwrap();
        assert_eq!((messages.len(), lines.len()), (2, 2), "each mail has a way of its own");
    }

    #[test]
    fn a_link_behind_many_lines_is_followed_and_the_way_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), 1 << 20).unwrap();
        for number in 0..100 {
            diary.note(DiaryLine::new(IDS[0], "deferred", number.to_string()));
        }
        diary.note(DiaryLine::new(IDS[1], "freed", "at last").about([IDS[0]]));
        diary.settle();
        let (messages, lines) = follow(folder.path(), IDS[0]).unwrap();
        assert_eq!((messages.len(), lines.len()), (2, 101));
        let others: Vec<String> = (0..40).map(|number| format!("38exdmxn6hex5qydv{number:03}")).collect();
        for other in &others {
            diary.note(DiaryLine::new(other, "freed", "one of many").about([IDS[0]]));
        }
        diary.settle();
        assert_eq!(follow(folder.path(), IDS[0]).unwrap().0.len(), MESSAGES_MAX);
    }

    #[test]
    fn names_are_taken_as_people_write_them() {
        assert_eq!(named("x@y").unwrap(), "<x@y>");
        assert_eq!(named(" <x@Y> ").unwrap(), "<x@Y>");
        assert_eq!(named(&IDS[0].to_uppercase()).unwrap(), IDS[0]);
        assert!(named("").is_err() && named("a\nb").is_err() && named(&"x".repeat(999)).is_err());
        assert_eq!((sample("sample-12"), sample("12")), (Some(12), None));
        assert_eq!(to_the_millisecond(1_794_715_200_007_000_000), "2026-11-15T04:00:00.007Z");
    }
}
