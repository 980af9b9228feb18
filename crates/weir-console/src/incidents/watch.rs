//! The I/O around the list of incidents: takes looks at the gates, follows the audit trail, stores incidents and reports them.

use super::book::{Book, BookEntry, STOPPED_MAX};
use super::kind::IncidentKind;
use super::rules::{self, Counts, DAY_S, LATELY_S, LookFindings};
use super::story;
use crate::evidence::Evidence;
use crate::gates::Gates;
use crate::pulse::Pulse;
use std::time::Duration;
use weir_foundation::{Actor, OperationError};
use weir_mail::operations::HeldSelection;
use weir_store::records::{IncidentRecords, RecordsError};

/// How often the state is read if no console reads it anyway.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often viruses and malware are counted.
const COUNT_EVERY_S: i64 = 5;
/// How many names one look has.
const VIRUSES_MAX: i64 = 8;
const MALWARE_NAMED: i64 = 3;
/// How many held mails are used as evidence, and for how many accounts in one look.
const EVIDENCE_MAX: usize = 200;
const EVIDENCE_AT_ONCE: usize = 20;
/// How many lines of the audit trail are read at once, and how often in one look: more lines than that were not made by people.
const LINES_AT_ONCE: i64 = 1_000;
const READS_MAX: usize = 10;
/// How far the audit trail was read.
const MARK: &str = "incidents.audit";
/// An incident that concerns the whole site is taken over from a relay that has been silent for this long, and one of a relay that
/// was never heard of again is over after a day.
const SILENT_S: i64 = 120;
const GONE_S: i64 = 86_400;
const TAKE_OVER_EVERY_S: i64 = 60;

/// Watches for incidents.
pub struct IncidentWatch {
    gates: Gates,
    records: IncidentRecords,
    relay: String,
    /// Nothing before the first look.
    book: Option<Book>,
    counts: Counts,
    counted_s: i64,
    taken_over_s: i64,
    /// How far the audit trail has been read.
    mark: Option<i64>,
}

impl IncidentWatch {
    /// A watch over these gates.
    pub fn new(gates: &Gates) -> IncidentWatch {
        let foundation = &gates.administration.foundation;
        IncidentWatch {
            records: foundation.records.incidents(),
            relay: foundation.relay.clone(),
            gates: gates.clone(),
            book: None,
            counts: Counts::default(),
            counted_s: 0,
            taken_over_s: 0,
            mark: None,
        }
    }

    /// Reads the state again and again, if no console does; run it as a task.
    pub async fn run(mut self) {
        loop {
            let pulse = Pulse::take(&self.gates).await;
            self.look(&pulse).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Evaluates a look. What cannot be read or written now is tried again at the next one.
    pub(crate) async fn look(&mut self, pulse: &Pulse) {
        if let Err(error) = self.try_look(pulse, crate::words::now()).await {
            tracing::warn!(%error, "incidents cannot be kept up to date; this is tried again");
        }
    }

    async fn try_look(&mut self, pulse: &Pulse, now_s: i64) -> Result<(), OperationError> {
        if self.book.is_none() || now_s - self.taken_over_s >= TAKE_OVER_EVERY_S {
            self.read_book(now_s).await?;
        }
        self.count(now_s).await;
        let mut seen = rules::look(pulse, &self.counts, now_s);
        self.add_evidence(&mut seen).await;
        self.leave_out_nobody(&mut seen).await;
        if let Some(book) = &mut self.book {
            book.look(&seen, now_s);
        }
        self.follow_acts().await?;
        self.write(now_s).await
    }

    /// Reads what is stored: at the first look, and after that if another relay has fallen silent.
    async fn read_book(&mut self, now_s: i64) -> Result<(), OperationError> {
        self.records.end_forgotten(&self.relay, now_s - GONE_S).await?;
        let taken = self.records.take_over(&self.relay, now_s, now_s - SILENT_S).await?;
        self.taken_over_s = now_s;
        if self.book.is_none() || taken > 0 {
            let rows = self.records.of_relay(&self.relay, now_s - GONE_S).await?;
            self.book = Some(Book::new(&self.relay, rows));
        }
        Ok(())
    }

    async fn count(&mut self, now_s: i64) {
        if now_s - self.counted_s < COUNT_EVERY_S {
            return;
        }
        self.counted_s = now_s;
        let records = &self.gates.administration.foundation.records;
        let [lately, day] = [LATELY_S, DAY_S].map(|back_s| (now_s - back_s).saturating_mul(1_000_000_000));
        self.counts.viruses = noted(records.quarantine().viruses(lately, day, VIRUSES_MAX).await);
        self.counts.malware = match self.gates.lab {
            Some(_) => noted(records.lab_samples().malware(lately, day, MALWARE_NAMED).await),
            None => None,
        };
    }

    /// What the waiting mail of stopped accounts has in common, for those that are not in the book yet.
    async fn add_evidence(&self, seen: &mut LookFindings) {
        let Some(book) = &self.book else { return };
        let named = book.entries.iter().filter(|entry| entry.is_open() && entry.kind == IncidentKind::Stopped);
        let known: Vec<&str> = named.map(|entry| entry.row.subject.as_str()).collect();
        if known.len() >= STOPPED_MAX {
            return;
        }
        let new = |user: &str| !known.contains(&user);
        for sign in seen
            .signs
            .iter_mut()
            .filter(|sign| sign.kind == IncidentKind::Stopped && new(&sign.subject))
            .take(EVIDENCE_AT_ONCE)
        {
            let selection = HeldSelection { user: sign.subject.clone(), ..HeldSelection::default() };
            if let Ok(list) = self.gates.mail.held.first(&selection, EVIDENCE_MAX).await {
                sign.says.extend(Evidence::of(&list.messages, list.more).sentences());
            }
        }
    }

    /// Somebody may guess without end at names that nobody here has; that is not an incident.
    async fn leave_out_nobody(&self, seen: &mut LookFindings) {
        let mut nobody = Vec::new();
        for sign in seen.signs.iter().filter(|sign| sign.kind == IncidentKind::Guessing) {
            // If this cannot be read now, the sign counts.
            if !self.gates.mail.users.exists(&sign.subject).await.unwrap_or(true) {
                nobody.push(sign.subject.clone());
            }
        }
        seen.signs.retain(|sign| sign.kind != IncidentKind::Guessing || !nobody.contains(&sign.subject));
    }

    /// Reads the new lines of the audit trail, because what people did belongs to the story.
    async fn follow_acts(&mut self) -> Result<(), OperationError> {
        let (foundation, audit) = (&self.gates.administration.foundation, &self.gates.administration.audit);
        let mut mark = match self.mark {
            Some(mark) => mark,
            None => match foundation.progress(MARK).await?.and_then(|mark| mark.parse().ok()) {
                Some(mark) => mark,
                None => audit.last_number().await?,
            },
        };
        for _ in 0..READS_MAX {
            let lines = audit.after(mark, LINES_AT_ONCE).await?;
            let Some((last, _)) = lines.last() else { break };
            if let Some(book) = &mut self.book {
                lines.iter().for_each(|(number, line)| book.act(*number, line));
            }
            mark = *last;
        }
        // Written after the stories: a line that is read twice after a kill is reported only once.
        self.mark = Some(mark);
        Ok(())
    }

    async fn write(&mut self, now_s: i64) -> Result<(), OperationError> {
        let Some(book) = &mut self.book else { return Ok(()) };
        let mut elsewhere = Vec::new();
        for entry in book.entries.iter_mut().filter(|entry| entry.changed || entry.story.told < entry.story.changes) {
            entry.row.seen_s = now_s;
            if !store(&self.records, entry).await? {
                elsewhere.push((entry.kind, entry.row.subject.clone()));
                continue;
            }
            if entry.story.told < entry.story.changes {
                tell(&self.gates, entry).await?;
                entry.story.told = entry.story.changes;
                store(&self.records, entry).await?;
            }
            entry.changed = false;
        }
        for (kind, subject) in elsewhere {
            book.leave(kind, &subject, now_s);
        }
        let foundation = &self.gates.administration.foundation;
        if let Some(mark) = self.mark.map(|mark| mark.to_string())
            && foundation.progress(MARK).await?.as_deref() != Some(&mark)
        {
            foundation.set_progress(MARK, &mark).await?;
        }
        Ok(())
    }
}

/// Stores an incident; returns whether this relay is responsible for it.
async fn store(records: &IncidentRecords, entry: &mut BookEntry) -> Result<bool, RecordsError> {
    entry.row.story = entry.story.written();
    if entry.row.id != 0 {
        let ours = records.save(&entry.row).await?;
        if !ours {
            // Another relay is responsible for it now, because this one was silent for too long.
            entry.row.id = 0;
        }
        return Ok(ours);
    }
    match records.open(&entry.row).await? {
        Some(id) => entry.row.id = id,
        None => return Ok(false),
    }
    Ok(true)
}

/// Writes a line to the audit trail, from which the webhook learns of it.
async fn tell(gates: &Gates, entry: &BookEntry) -> Result<(), OperationError> {
    let (id, what) = (entry.row.id, entry.row.headline());
    let (action, detail) = match entry.row.closed_s {
        None if entry.story.again > 0 => ("incident.opened", format!("{what}; it began again")),
        None => {
            let first = entry.story.lines.first().map_or("", |(_, text)| text.as_str());
            ("incident.opened", format!("{what}; {first}"))
        }
        Some(_) => ("incident.closed", format!("{what}; it is over")),
    };
    let detail = story::cut(&detail, 500);
    gates.administration.audit.note(&Actor::new("weir"), action, &format!("incident-{id}"), &detail).await
}

/// A count, unless it could not be made.
fn noted<T>(counted: Result<T, RecordsError>) -> Option<T> {
    counted.map_err(|error| tracing::warn!(%error, "what the rules of incidents count cannot be read")).ok()
}
