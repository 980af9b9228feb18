//! The quarantine of the scan: takes mail in, carries out what people decide, and forgets what is old.
//!
//! Quarantined mail is in a mail store; the records have a row for each recipient. Files are written first, then the audit trail, then
//! rows; then the message leaves the spool. After a kill before the rows, the scan is repeated and the message goes to the same place; a
//! message that has rows and is still in the spool is finished at the next start. The way back is the reverse: into the spool with
//! `cleared`, which is not scanned again, then the rows go, then it is sent, then the files go. After a kill in between, `cleared` shows
//! what had gone back; that is why nothing goes back before all letters of the former process are known (`decisions`). A recipient gets a
//! message twice only if the records fail in between and a kill follows.

mod decisions;

use super::Site;
use super::decision::QuarantineQueue;
use super::settings::{QuarantineSettings, Settings};
use super::state::WaitingLetter;
use crate::alarms::Alarms;
use crate::letter::{Letter, LetterPart};
use crate::mail_store::{MailStore, MailStoreError};
use crate::pipeline::Pipeline;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use weir_core::time::Instant;
use weir_store::diary::DiaryLine;
use weir_store::records::{AuditLine, Fate, QuarantineRow, RecordsError};
use weir_store::spool::SpoolError;

/// Mail that may wait to be taken in before workers wait too.
const WAITING_MAX: usize = 1024;
/// Messages that are given files at once.
const BATCH_MAX: usize = 64;
/// Rows that are written at once, unless one message alone has more.
const ROWS_MAX: usize = 1_000;
/// Between two attempts at what cannot be written; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LONGEST: Duration = Duration::from_secs(30);

/// The quarantine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Quarantine {
    shared: Arc<QuarantineShared>,
}

struct QuarantineShared {
    site: Site,
    settings: QuarantineSettings,
    hostname: String,
    next: Pipeline,
    coming: mpsc::UnboundedSender<QuarantinedLetter>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<QuarantinedLetter>>,
    room: Arc<Semaphore>,
    /// Mail that is being taken in.
    open: AtomicUsize,
    settled: Notify,
    decided: Notify,
    /// All letters of the last life are known.
    taken_up: Notify,
    store: MailStore,
    alarms: Alarms,
    /// When the administrator was told that there is too much.
    warned_at: Mutex<Option<std::time::Instant>>,
}

/// Mail to be kept.
pub(super) struct QuarantinedLetter {
    pub(super) waiting: WaitingLetter,
    pub(super) queue: QuarantineQueue,
    pub(super) reason: String,
    pub(super) detail: String,
    pub(super) at: Instant,
    /// How often its files could not be written.
    pub(super) failures: u32,
    /// Its place among those that wait, given back when it is dropped.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl QuarantinedLetter {
    /// A letter that waits becomes one that is kept, without more detail than the reason.
    pub(super) fn new(
        waiting: &WaitingLetter,
        letter: Option<Arc<Letter>>,
        queue: QuarantineQueue,
        reason: String,
        at: Instant,
    ) -> QuarantinedLetter {
        let waiting = WaitingLetter { letter, ..waiting.clone() };
        QuarantinedLetter { waiting, queue, reason, detail: String::new(), at, failures: 0, _room: None }
    }
}

impl Quarantine {
    pub(super) fn new(site: Site, settings: &Settings, next: Pipeline, alarms: Alarms) -> Quarantine {
        let (coming, incoming) = mpsc::unbounded_channel();
        let store = MailStore::new("quarantine", site.quarantine.clone(), site.spool.clone());
        Quarantine {
            shared: Arc::new(QuarantineShared {
                site,
                settings: settings.quarantine.clone(),
                hostname: settings.hostname.clone(),
                next,
                coming,
                incoming: tokio::sync::Mutex::new(incoming),
                room: Arc::new(Semaphore::new(WAITING_MAX)),
                open: AtomicUsize::new(0),
                settled: Notify::new(),
                decided: Notify::new(),
                taken_up: Notify::new(),
                store,
                alarms,
                warned_at: Mutex::default(),
            }),
        }
    }

    /// Keeps a message, when there is room.
    pub(super) async fn keep(&self, kept: QuarantinedLetter) {
        let room = Arc::clone(&self.shared.room).acquire_owned().await.ok();
        self.keep_now(QuarantinedLetter { _room: room, ..kept });
    }

    /// Keeps a message; what is already in memory anyway needs no room.
    pub(super) fn keep_now(&self, kept: QuarantinedLetter) {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let _ = self.shared.coming.send(kept);
    }

    /// Returns when everything is taken in.
    pub(super) async fn settled(&self) {
        while self.shared.open.load(Ordering::Relaxed) > 0 {
            self.shared.settled.notified().await;
        }
    }

    /// Something was decided: look at it now.
    pub(super) fn wake(&self) {
        self.shared.decided.notify_one();
    }

    /// A letter found in the spool was released before: if its rows are still there, they only have to be removed.
    pub(super) fn found(&self, part: &LetterPart) {
        self.shared.store.memory.put_back(&part.of, &part.places);
    }

    /// To be called before the first letter is taken up: mail that the last life had written down leaves the spool, and files that no
    /// row and no message in the spool need are moved to `unclaimed/`. A kill left both behind.
    pub(super) async fn prepare(&self) {
        let Site { records, relay, .. } = &self.shared.site;
        let files = self.shared.store.messages().await;
        let messages = match records.quarantine().messages(relay).await {
            Ok(messages) => messages,
            Err(error) => return tracing::error!(%error, "quarantined mail could not be held against the records"),
        };
        for message in &messages {
            if self.leaves_the_spool(message) {
                tracing::info!(message, "it was quarantined before the last kill");
            }
        }
        let aside = match files {
            Ok(files) => {
                let needed: HashSet<String> = messages.into_iter().collect();
                let strays = files.into_iter().filter(|message| !needed.contains(message));
                self.shared.store.set_aside(strays.collect()).await
            }
            Err(error) => Err(error),
        };
        match aside {
            Ok(0) => {}
            Ok(messages) => {
                tracing::warn!(messages, "quarantined mail without a record is now in quarantine/unclaimed");
            }
            Err(error) => tracing::error!(%error, "quarantined mail could not be looked through"),
        }
    }

    /// Finishes a message that has rows in the spool, unless its file is missing: a backup may be older than its records. Whether it
    /// was still there.
    fn leaves_the_spool(&self, message: &str) -> bool {
        let QuarantineShared { site, store, .. } = &*self.shared;
        let Ok(id) = message.parse() else { return false };
        site.spool.contains(id) && store.eml(message).exists() && site.spool.finish(id).is_ok()
    }

    /// All letters of the last life are known: decisions may be carried out.
    pub(super) fn taken_up(&self) {
        self.shared.taken_up.notify_one();
    }

    /// Takes mail in, in batches, until the task is dropped.
    pub(super) async fn take_in(self) {
        let mut incoming = self.shared.incoming.lock().await;
        // What has no files yet waits here, so that it keeps nobody else waiting.
        let mut later = JoinSet::new();
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                count = incoming.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                Some(Ok(kept)) = later.join_next() => batch.push(kept),
            }
            let before = batch.len() + later.len();
            let taken = self.write_files(batch, &mut later).await;
            for bunch in bunches(&taken) {
                self.write_rows(bunch).await;
            }
            for (kept, _) in &taken {
                let text = format!("in quarantine/{}: {}", kept.queue.as_str(), one_line(&kept.reason));
                self.shared.site.spool.diary().note(DiaryLine::new(kept.waiting.id, "quarantined", text).at(kept.at.0));
                let _ = self.shared.site.spool.finish(kept.waiting.id);
            }
            self.shared.open.fetch_sub(before - later.len(), Ordering::Relaxed);
            self.shared.settled.notify_one();
        }
    }

    /// Gives messages files of their own.
    async fn write_files(&self, batch: Vec<QuarantinedLetter>, later: &mut JoinSet<QuarantinedLetter>) -> Vec<Taken> {
        let mut writing = JoinSet::new();
        for kept in batch {
            let quarantine = self.clone();
            writing.spawn(async move {
                let written = quarantine.files(&kept).await;
                (kept, written)
            });
        }
        let mut taken = Vec::new();
        for (kept, written) in writing.join_all().await {
            let id = kept.waiting.id;
            match written {
                Ok(letter) => taken.push((kept, letter)),
                Err(NotWritten::Gone) => {}
                Err(NotWritten::Unreadable(error)) => {
                    tracing::error!(%id, error, "the letter of quarantined mail cannot be read; it stays in the spool");
                }
                Err(NotWritten::Yet(error)) => {
                    tracing::error!(%id, %error, "quarantined mail cannot be written yet; it stays in the spool");
                    later.spawn(again_later(kept));
                }
            }
        }
        taken
    }

    async fn files(&self, kept: &QuarantinedLetter) -> Result<Arc<Letter>, NotWritten> {
        let (id, store) = (kept.waiting.id, &self.shared.store);
        let letter = match &kept.waiting.letter {
            Some(letter) => Arc::clone(letter),
            None => self.letter(&kept.waiting).await?,
        };
        if kept.detail.len() <= DETAIL_MAX {
            store.write_verdict(id, kept.detail.clone()).await?;
        }
        store.write_letter(id, &letter).await?;
        match store.take(id).await {
            // It cannot be read, now or ever: what is known of it is kept.
            Err(SpoolError::Damaged { .. }) => store.write_instead(id, DAMAGED).await?,
            taken => taken?,
        }
        Ok(letter)
    }

    /// A letter that only the spool remembers.
    async fn letter(&self, waiting: &WaitingLetter) -> Result<Arc<Letter>, NotWritten> {
        let unreadable = |error: &dyn std::fmt::Display| NotWritten::Unreadable(error.to_string());
        let envelope = match self.shared.site.spool.envelope(waiting.id).await {
            Err(error @ SpoolError::Damaged { .. }) => return Err(unreadable(&error)),
            read => read?,
        };
        Letter::read(&envelope).map(|letter| waiting.remembered(letter)).map_err(|error| unreadable(&error))
    }

    /// Writes mail down, the rows last: from then on people can decide.
    async fn write_rows(&self, taken: &[Taken]) {
        let records = &self.shared.site.records;
        let (audit, quarantine) = (records.audit(), records.quarantine());
        let lines: Vec<AuditLine> = taken.iter().map(audit_line).collect();
        let rows: Vec<QuarantineRow> = taken.iter().flat_map(|taken| self.rows(taken)).collect();
        at_last(|| audit.write_all(&lines)).await;
        at_last(|| quarantine.add(&rows)).await;
    }

    fn rows(&self, (kept, letter): &Taken) -> Vec<QuarantineRow> {
        let row = |place: &usize| {
            let to = letter.to.get(*place)?;
            Some(QuarantineRow {
                message: kept.waiting.id.to_string(),
                place: *place as i64,
                relay: self.shared.site.relay.clone(),
                queue: kept.queue.as_str().to_owned(),
                fate: Fate::Held,
                recipient: to.address.clone(),
                sender: letter.from.clone(),
                subject: letter.subject.clone(),
                source: letter.source.clone(),
                owner: letter.user().unwrap_or_default().to_owned(),
                origin: format!("{:?}", letter.origin).to_lowercase(),
                size: kept.waiting.size as i64,
                at: kept.at.0 as i64,
                reason: one_line(&kept.reason),
                decided_by: String::new(),
                release_to: String::new(),
            })
        };
        kept.waiting.places.iter().filter_map(row).collect()
    }
}

/// Mail with files of its own, and its letter.
type Taken = (QuarantinedLetter, Arc<Letter>);

/// What stands in the place of a body that the disk has lost.
const DAMAGED: &[u8] = b"Subject: [damaged]\r\n\r\nThe disk has lost the body of this message; see Weir's log.\r\n";
/// A longer verdict is left out; the reason is always there.
const DETAIL_MAX: usize = 16 << 10;

fn audit_line((kept, letter): &Taken) -> AuditLine {
    let recipients = kept.waiting.places.len();
    AuditLine {
        at: kept.at.0 as i64,
        actor: "weir".to_owned(),
        action: format!("quarantine.{}", kept.queue.as_str()),
        subject: kept.waiting.id.to_string(),
        detail: format!(
            "from <{}> to {recipients} recipient{}: {}",
            letter.from,
            if recipients == 1 { "" } else { "s" },
            one_line(&kept.reason)
        ),
    }
}

/// What scanners say is text of strangers, and no database takes all of it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(500).collect()
}

/// Parts of at most [`ROWS_MAX`] rows; the rows of a message stay together.
fn bunches(mut taken: &[Taken]) -> Vec<&[Taken]> {
    let mut bunches = Vec::new();
    while !taken.is_empty() {
        let mut rows = 0;
        let fits = |(kept, _): &&Taken| {
            rows += kept.waiting.places.len();
            rows <= ROWS_MAX
        };
        let count = taken.iter().take_while(fits).count().max(1);
        let (bunch, rest) = taken.split_at(count);
        bunches.push(bunch);
        taken = rest;
    }
    bunches
}

/// Waits for longer and longer.
async fn again_later(mut kept: QuarantinedLetter) -> QuarantinedLetter {
    let wait = WAIT_FIRST * (1 << kept.failures.min(10));
    kept.failures = kept.failures.saturating_add(1);
    tokio::time::sleep(wait.min(WAIT_LONGEST)).await;
    kept
}

/// Tries until the records take it.
async fn at_last<F: Future<Output = Result<(), RecordsError>>>(mut write: impl FnMut() -> F) {
    let mut wait = WAIT_FIRST;
    while let Err(error) = write().await {
        tracing::error!(%error, "quarantined mail cannot be written down yet; it stays in the spool");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_LONGEST);
    }
}

/// Why a message has no files.
enum NotWritten {
    /// Somebody deleted it meanwhile.
    Gone,
    /// Nobody can say whose it is, now or ever.
    Unreadable(String),
    /// It may work later.
    Yet(MailStoreError),
}

impl From<SpoolError> for NotWritten {
    fn from(error: SpoolError) -> NotWritten {
        match error {
            SpoolError::Unknown(_) => NotWritten::Gone,
            error => NotWritten::Yet(error.into()),
        }
    }
}

impl From<std::io::Error> for NotWritten {
    fn from(error: std::io::Error) -> NotWritten {
        NotWritten::Yet(error.into())
    }
}
