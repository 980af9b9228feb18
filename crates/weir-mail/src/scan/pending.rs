//! Mail that waits for the laboratory's verdict.
//!
//! A letter comes here from the scan: every scanner lets it pass, and the policy wants something in it analysed. It is in the spool
//! with the mark `scan pending`, so a kill loses nothing. Here it is only an entry: no worker and no feed waits for it. A task of its own
//! hands its files in ([`handing_in`]); one task for all asks for verdicts and decides, so a letter is decided once.
//!
//! Detained → handed in → answered → passed or kept. From any of the first three: its deadline passes → passed or kept by the
//! policy; a person deletes it → gone. Count and octets are bounded by the settings, and an entry is a letter and a few names.

mod deciding;
mod handing_in;
mod verdict;
mod view;

pub(super) use deciding::watch;
pub(super) use view::PendingLetter;
pub use view::{PendingCounts, PendingView};

use super::ScanShared;
use super::decision::Passed;
use super::laboratory::{AskedFile, LabVerdict, Opinion};
use super::mark::ScanMark;
use super::settings::LabSettings;
use super::state::WaitingLetter;
use super::worker::ScanEnd;
use crate::letter::Letter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use weir_core::time::Instant;
use weir_foundation::date::Date;
use weir_scan::samples::Candidate;
use weir_scan::verdict::Verdict;
use weir_store::diary::DiaryLine;
use weir_store::spool::{MessageId, SpoolError};

/// A laboratory that has not answered by then is not there.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A mark has at most 64 KiB.
const MARK_TEXT_MAX: usize = 48 << 10;
/// Messages whose files are got out at once: the processes that open mail have other work.
const HANDS: usize = 1;

/// Everything that waits, and who looks after it.
pub(super) struct PendingMail {
    list: Mutex<Pending>,
    /// Somebody answered, or a letter came.
    stirred: Notify,
    hands: Semaphore,
}

impl Default for PendingMail {
    fn default() -> PendingMail {
        PendingMail { list: Mutex::default(), stirred: Notify::new(), hands: Semaphore::new(HANDS) }
    }
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Pending {
    entries: BTreeMap<MessageId, PendingEntry>,
    bytes: u64,
    /// Questions in a row that the laboratory did not answer.
    silences: u32,
    counts: PendingCounts,
}

/// A letter that waits.
#[derive(Debug, Clone)]
pub(super) struct PendingEntry {
    waiting: WaitingLetter,
    detention: Detention,
    /// What is known so far.
    answers: BTreeMap<AskedFile, FileProgress>,
    /// What went wrong last.
    problem: String,
    /// It could not be decided, and is not tried again before this.
    rests_until: Instant,
    task: Option<AbortHandle>,
}

/// How far one file is.
#[derive(Debug, Clone)]
enum FileProgress {
    /// It is being analysed as this sample.
    Awaited(i64),
    /// It was.
    Known(Opinion),
}

/// Why and until when a letter waits, and what the scanners said: what its mark holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Detention {
    /// Since when, in nanoseconds since the Unix epoch.
    since: u64,
    /// Until when.
    until: u64,
    passed: Passed,
    verdict: Verdict,
}

impl Detention {
    fn files(&self) -> &[Candidate] {
        &self.verdict.samples
    }

    /// For its mark. What scanners say at length is cut where it would not fit.
    fn written(&mut self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        if text.len() <= MARK_TEXT_MAX {
            return text;
        }
        self.verdict.suspicious.clear();
        self.verdict.findings.truncate(4);
        serde_json::to_string(self).unwrap_or_default()
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.files().iter().map(|file| file.name.as_str()).collect();
        names.join(", ")
    }
}

impl PendingEntry {
    /// Files that nothing is known of yet.
    fn unasked(&self) -> Vec<Candidate> {
        let files = self.detention.files().iter();
        files.filter(|file| !self.answers.contains_key(&AskedFile::from(*file))).cloned().collect()
    }

    fn opinions(&self) -> BTreeMap<&AskedFile, &Opinion> {
        let known = self.answers.iter().filter_map(|(file, answer)| match answer {
            FileProgress::Known(opinion) => Some((file, opinion)),
            FileProgress::Awaited(_) => None,
        });
        known.collect()
    }

    fn awaited(&self) -> impl Iterator<Item = &AskedFile> {
        self.answers.iter().filter(|(_, answer)| matches!(answer, FileProgress::Awaited(_))).map(|(file, _)| file)
    }
}

impl LabSettings {
    /// Whether a message may wait.
    fn room(&self, verdict: &Verdict, size: u64, pending: &Pending) -> Result<(), NoRoom> {
        let files = verdict.samples.len() + verdict.samples_left_out;
        if files > self.samples_max {
            return Err(NoRoom::Files { files, most: self.samples_max });
        }
        if let Some(file) = verdict.samples.iter().find(|file| file.size > self.sample_bytes_max) {
            let most = self.sample_bytes_max;
            return Err(NoRoom::LargeFile { name: file.name.clone(), size: file.size, most });
        }
        if pending.entries.len() >= self.messages_max {
            return Err(NoRoom::Messages(pending.entries.len()));
        }
        if pending.bytes.saturating_add(size) > self.bytes_max {
            return Err(NoRoom::Bytes(pending.bytes));
        }
        Ok(())
    }
}

/// Why a message cannot wait for the laboratory.
#[derive(Debug, thiserror::Error)]
enum NoRoom {
    #[error("it has {files} files for the lab, and at most {most} of a message are sent")]
    Files { files: usize, most: usize },
    #[error("{name} has {size} bytes, and at most {most} are sent to the lab")]
    LargeFile { name: String, size: u64, most: u64 },
    #[error("{0} messages wait for the lab already")]
    Messages(usize),
    #[error("mail of {0} bytes waits for the lab already")]
    Bytes(u64),
}

impl ScanShared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A letter that every scanner lets pass waits for the laboratory, or is decided by the policy if it cannot.
    pub(super) async fn detain(
        self: &Arc<Self>,
        waiting: &WaitingLetter,
        letter: &Arc<Letter>,
        passed: Passed,
        verdict: Verdict,
        took: Duration,
    ) -> ScanEnd {
        let Some(way) = &self.lab else { return self.pass(waiting, letter, &passed, took) };
        let now = self.now();
        let until = now + way.settings.wait;
        let mut detention = Detention { since: now.0, until: until.0, passed, verdict };
        let waiting = WaitingLetter { letter: Some(Arc::clone(letter)), ..waiting.clone() };
        let room = way.settings.room(&detention.verdict, waiting.size, &self.pending());
        if let Err(no_room) = room {
            let problem = no_room.to_string();
            self.pending().counts.undecided += 1;
            tracing::warn!(id = %waiting.id, problem, "a message cannot wait for the lab; the policy decides");
            return self.carry_out(&waiting, &detention, &way.settings.without_verdict(&problem), took).await;
        }
        let mark = detention.written();
        match self.site.spool.mark(waiting.id, ScanMark::Pending(mark).write()) {
            Ok(()) => {}
            Err(SpoolError::Unknown(_)) => return ScanEnd::Gone,
            Err(error) => return ScanEnd::Failed(error.to_string().into()),
        }
        let (names, then) = (detention.names(), way.settings.on_late.word());
        tracing::info!(id = %waiting.id, files = names, "waits for the lab's verdict");
        let text =
            format!("waits for the lab's verdict on {names} until {}; without one it is {then}", Date::new(until));
        let hashes = detention.files().iter().map(|file| file.sha256.clone());
        self.note(DiaryLine::new(waiting.id, "pending", text).about(hashes));
        self.wait_for_lab(waiting, detention);
        ScanEnd::Waits { took }
    }

    /// A letter found in the spool that waited when the last life ended. Its patience begins anew: nobody could answer meanwhile.
    pub(super) fn resume_pending(self: &Arc<Self>, mut waiting: WaitingLetter, mark: &str) {
        let detention: Option<Detention> = serde_json::from_str(mark).ok();
        let (Some(mut detention), Some(way)) = (detention, &self.lab) else { return self.take(waiting) };
        match self.site.spool.body(waiting.id) {
            Ok(body) => waiting.size = body.size(),
            // It says what is wrong.
            Err(_) => return self.take(waiting),
        }
        detention.until = detention.until.max((self.now() + way.settings.wait).0);
        tracing::info!(id = %waiting.id, "goes on waiting for the lab's verdict");
        self.wait_for_lab(waiting, detention);
    }

    fn wait_for_lab(self: &Arc<Self>, waiting: WaitingLetter, detention: Detention) {
        let (id, size) = (waiting.id, waiting.size);
        let (answers, problem, rests_until) = (BTreeMap::new(), String::new(), Instant::ZERO);
        let entry = PendingEntry { waiting, detention, answers, problem, rests_until, task: None };
        let mut pending = self.pending();
        pending.counts.arrived += 1;
        pending.bytes += size;
        pending.entries.insert(id, entry);
        drop(pending);
        self.ask_again(id);
    }

    /// Takes a letter out, so that only the caller decides about it.
    fn take_pending(&self, id: MessageId) -> Option<PendingEntry> {
        let mut pending = self.pending();
        let entry = pending.entries.remove(&id)?;
        pending.bytes = pending.bytes.saturating_sub(entry.waiting.size);
        Some(entry)
    }

    /// Takes out a letter that a person deleted. Whether it waited here; if so, the caller takes it out of the spool.
    pub(super) fn delete_pending(&self, id: MessageId) -> bool {
        let Some(entry) = self.take_pending(id) else { return false };
        if let Some(task) = entry.task {
            task.abort();
        }
        true
    }

    /// Asks about a letter now, for the first time or again. Whether it waits here.
    pub(super) fn ask_again(self: &Arc<Self>, id: MessageId) -> bool {
        let mut pending = self.pending();
        let Some(entry) = pending.entries.get_mut(&id) else { return false };
        entry.rests_until = Instant::ZERO;
        if let Some(task) = entry.task.replace(tokio::spawn(handing_in::run(Arc::clone(self), id)).abort_handle()) {
            task.abort();
        }
        drop(pending);
        self.pending.stirred.notify_one();
        true
    }

    /// No task does anything from here on.
    pub(super) fn break_off_pending(&self) {
        let pending = self.pending();
        pending.entries.values().filter_map(|entry| entry.task.as_ref()).for_each(AbortHandle::abort);
    }
}

fn note_opinion(site: &super::Site, id: MessageId, hash: &str, opinion: &Opinion) {
    let Opinion { sample, verdict, reasons, .. } = opinion;
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    let text = format!("the lab on sample {sample}: {}{why}", verdict.word());
    let about = [hash.to_owned(), sample_name(*sample)];
    site.spool.diary().note(DiaryLine::new(id, "opinion", text).about(about));
}

/// As the diary and the audit name samples.
fn sample_name(sample: i64) -> String {
    if sample == 0 { String::new() } else { format!("sample-{sample}") }
}

/// Whether an earlier verdict still counts: malware stays malware, but what was harmless may have become known as bad since.
fn still_counts(opinion: &Opinion, settings: &LabSettings, now: Instant) -> bool {
    let young = opinion.at.saturating_add_unsigned(settings.known_for.as_nanos() as u64) >= now.0 as i64;
    match opinion.verdict {
        LabVerdict::Malicious => true,
        LabVerdict::Failed => false,
        _ => young,
    }
}

/// An answer, or that there is none.
async fn in_time<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("the lab has not answered for {} s", ANSWER_MAX.as_secs())),
    }
}
