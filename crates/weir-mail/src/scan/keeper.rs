//! The keeper of the quarantines: takes mail in, carries out what people decide, and forgets what is old.
//!
//! Quarantined mail is on a shelf; the records have a row for each recipient. Files first, then rows, then the
//! message leaves the spool: a kill in between repeats the scan and finds the same place. The way back is the reverse:
//! into the spool with `cleared`, which is not scanned again, then the rows go, then the files. A kill in between is
//! noticed by `cleared`, so nothing is sent twice.

use super::decision::Queue;
use super::settings::QuarantineSettings;
use super::state::Waiting;
use super::{Site, digest};
use crate::date::Date;
use crate::letter::{Letter, Origin, Part};
use crate::outbound::Outbound;
use crate::shelf::{Shelf, ShelfError};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use weir_core::time::Instant;
use weir_store::records::{AuditLine, Fate, QuarantineRow, RecordsError};
use weir_store::spool::SpoolError;

/// Mail that may wait to be taken in before workers wait too.
const WAITING_MAX: usize = 1024;
/// Taken in with one transaction.
const BATCH_MAX: usize = 64;
/// How often the records are looked at when nothing is known to be due: another process may have decided.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often old mail is looked for.
const RETENTION_EVERY: Duration = Duration::from_secs(600);
/// Most rows carried out in one go.
const AT_ONCE_MAX: i64 = 500;
/// Who forgets old mail.
const RETENTION: &str = "weir (retention)";

/// The keeper. Cheap to clone.
pub(super) struct Keeper<O> {
    shared: Arc<Shared<O>>,
}

impl<O> Clone for Keeper<O> {
    fn clone(&self) -> Self {
        Keeper { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<O> {
    site: Site,
    settings: QuarantineSettings,
    hostname: String,
    inner: O,
    coming: mpsc::UnboundedSender<Kept>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<Kept>>,
    room: Arc<Semaphore>,
    /// Mail that is being taken in.
    open: AtomicUsize,
    settled: Notify,
    decided: Notify,
    shelf: Shelf,
}

/// Mail to be kept.
pub(super) struct Kept {
    pub(super) waiting: Waiting,
    pub(super) queue: Queue,
    pub(super) reason: String,
    pub(super) detail: String,
    pub(super) at: Instant,
    /// Its place among those that wait, given back when it is dropped.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl<O: Outbound> Keeper<O> {
    pub(super) fn new(site: Site, settings: QuarantineSettings, hostname: &str, inner: O) -> Keeper<O> {
        let (coming, incoming) = mpsc::unbounded_channel();
        let shelf = Shelf::new("quarantine", site.quarantine.clone(), site.spool.clone());
        Keeper {
            shared: Arc::new(Shared {
                site,
                settings,
                hostname: hostname.to_owned(),
                inner,
                coming,
                incoming: tokio::sync::Mutex::new(incoming),
                room: Arc::new(Semaphore::new(WAITING_MAX)),
                open: AtomicUsize::new(0),
                settled: Notify::new(),
                decided: Notify::new(),
                shelf,
            }),
        }
    }

    /// Keeps a message, when there is room.
    pub(super) async fn keep(&self, kept: Kept) {
        let room = Arc::clone(&self.shared.room).acquire_owned().await.ok();
        self.keep_now(Kept { _room: room, ..kept });
    }

    /// Keeps a message; what is already in memory anyway needs no room.
    pub(super) fn keep_now(&self, kept: Kept) {
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
    pub(super) fn found(&self, part: &Part) {
        self.shared.shelf.memory.put_back(&part.of, &part.places);
    }

    /// Takes mail in, in batches, until the task is dropped.
    pub(super) async fn take_in(self) {
        let mut incoming = self.shared.incoming.lock().await;
        loop {
            let mut batch = Vec::new();
            if incoming.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            let mut wait = Duration::from_secs(1);
            let count = batch.len();
            let mut written = JoinSet::new();
            for kept in batch {
                written.spawn(self.clone().files_at_last(kept));
            }
            let taken: Vec<Taken> = written.join_all().await.into_iter().flatten().collect();
            while let Err(error) = self.write_rows(&taken).await {
                tracing::error!(%error, "quarantined mail cannot be written down yet; it stays in the spool");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(30));
            }
            for (kept, _) in &taken {
                let _ = self.shared.site.spool.finish(kept.waiting.id);
            }
            self.shared.open.fetch_sub(count, Ordering::Relaxed);
            self.shared.settled.notify_one();
        }
    }

    /// Gives a message files of its own; nothing if it is gone.
    async fn files_at_last(self, kept: Kept) -> Option<Taken> {
        let mut wait = Duration::from_secs(1);
        loop {
            match self.files(&kept).await {
                Ok(letter) => return Some((kept, letter)),
                Err(ShelfError::Spool(SpoolError::Unknown(_))) => return None,
                Err(error) => {
                    tracing::error!(id = %kept.waiting.id, %error, "quarantined mail cannot be written yet; it stays in the spool");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(30));
                }
            }
        }
    }

    async fn files(&self, kept: &Kept) -> Result<Arc<Letter>, ShelfError> {
        let (id, spool) = (kept.waiting.id, &self.shared.site.spool);
        let letter = match &kept.waiting.letter {
            Some(letter) => Arc::clone(letter),
            None => kept.waiting.remembered(Letter::read(&spool.envelope(id).await?).map_err(io::Error::other)?),
        };
        let shelf = &self.shared.shelf;
        shelf.write_letter(id, &letter).await?;
        match shelf.take(id).await {
            // It cannot be read, now or ever: what is known of it is kept.
            Err(SpoolError::Damaged { .. }) => shelf.write_instead(id, DAMAGED).await?,
            taken => taken?,
        }
        Ok(letter)
    }

    async fn write_rows(&self, taken: &[Taken]) -> Result<(), RecordsError> {
        let rows: Vec<QuarantineRow> = taken.iter().flat_map(|taken| self.rows(taken)).collect();
        let lines: Vec<AuditLine> = taken.iter().map(audit_line).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.shared.site.records.quarantine_add(&rows).await?;
        self.shared.site.records.audit_all(&lines).await
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
                owner: letter.owner.clone(),
                origin: format!("{:?}", letter.origin).to_lowercase(),
                size: kept.waiting.size as i64,
                at: kept.at.0 as i64,
                reason: kept.reason.chars().take(500).collect(),
                detail: if kept.detail.len() <= DETAIL_MAX { kept.detail.clone() } else { String::new() },
                decided_by: String::new(),
            })
        };
        kept.waiting.places.iter().filter_map(row).collect()
    }

    /// Carries out what is decided, forgets what is old and writes digests, until the task is dropped.
    pub(super) async fn run(self) {
        let mut retention = tokio::time::interval(RETENTION_EVERY);
        self.set_aside_unclaimed().await;
        loop {
            report("carry out what was decided", self.carry_out().await);
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.shared.decided.notified() => {}
                _ = retention.tick() => {
                    report("forget what is old", self.forget_old().await);
                    report("write digests", self.digests().await);
                }
            }
        }
    }

    async fn digests(&self) -> Result<(), RecordsError> {
        let Shared { site, settings, hostname, inner, .. } = &*self.shared;
        digest::write(site, settings, hostname, inner).await
    }

    /// Files that no row and no message in the spool need are moved to `unclaimed/`: a kill left them behind.
    async fn set_aside_unclaimed(&self) {
        let Site { records, relay, .. } = &self.shared.site;
        let needed = match records.quarantine_messages(relay).await {
            Ok(messages) => messages.into_iter().collect(),
            Err(error) => return tracing::error!(%error, "quarantined mail could not be held against the records"),
        };
        match self.shared.shelf.set_aside(needed).await {
            Ok(0) => {}
            Ok(messages) => {
                tracing::warn!(messages, "quarantined mail without a record is now in quarantine/unclaimed");
            }
            Err(error) => tracing::error!(%error, "quarantined mail could not be looked through"),
        }
    }

    /// Carries out all decisions about mail that this relay keeps.
    async fn carry_out(&self) -> Result<(), RecordsError> {
        let (records, relay) = (&self.shared.site.records, &self.shared.site.relay);
        let mut after = String::new();
        loop {
            let rows = records.quarantine_decided(relay, &after, AT_ONCE_MAX).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after.clone_from(&last.message);
            for rows in rows.chunk_by(|a, b| a.message == b.message) {
                if !self.shared.shelf.memory.rests(&rows[0].message, std::time::Instant::now()) {
                    self.settle(rows).await?;
                }
            }
        }
    }

    /// One message: what is released goes back into the spool, then the rows go.
    async fn settle(&self, rows: &[QuarantineRow]) -> Result<(), RecordsError> {
        let Some(first) = rows.first() else { return Ok(()) };
        let (message, shelf) = (&first.message, &self.shared.shelf);
        let going: Vec<&QuarantineRow> = rows.iter().filter(|row| row.fate == Fate::Go).collect();
        for rows in going.chunk_by(|a, b| a.decided_by == b.decided_by) {
            if let Err(error) = self.put_back(message, rows).await {
                shelf.trouble(message, &error);
                return Ok(());
            }
        }
        let places: Vec<i64> = rows.iter().map(|row| row.place).collect();
        let left = self.shared.site.records.quarantine_done(message, &places).await?;
        shelf.memory.settled(message, &places_of(rows));
        if left == 0 {
            shelf.forget(message);
        }
        Ok(())
    }

    async fn put_back(&self, message: &str, rows: &[&QuarantineRow]) -> Result<(), ShelfError> {
        let shelf = &self.shared.shelf;
        let places = shelf.memory.still_to_go(message, &places_of(rows.iter().copied()));
        let (Some(first), false) = (rows.first(), places.is_empty()) else { return Ok(()) };
        let mut released = shelf.letter(message).await?.for_places(places.iter().copied());
        released.origin = Origin::Released;
        released.cleared = Some(Part { of: message.to_owned(), places: places.clone() });
        released.added = format!("{}{}", self.release_line(first), released.added);
        let id = shelf.put_back(message, &released).await?;
        shelf.memory.put_back(message, &places);
        tracing::info!(%id, message, by = first.decided_by, "released from quarantine");
        let everybody = (0..released.to.len()).collect();
        self.shared.inner.send(id, Arc::new(released), everybody);
        Ok(())
    }

    fn release_line(&self, row: &QuarantineRow) -> String {
        let plain = |text: &str| -> String {
            text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(200).collect()
        };
        let when = Date::new(crate::gate::wall_clock()).rfc5322();
        format!(
            "X-Weir-Scan: {}; released from quarantine/{} by {} ({}); {when}\r\n",
            self.shared.hostname,
            row.queue,
            plain(&row.decided_by),
            plain(&row.reason)
        )
    }

    /// Mail that is too old, and the oldest of too much.
    pub(super) async fn forget_old(&self) -> Result<(), RecordsError> {
        let Site { records, relay, .. } = &self.shared.site;
        let QuarantineSettings { keep_for, bytes_max, .. } = self.shared.settings;
        let now = crate::gate::wall_clock();
        let too_old = now.0.saturating_sub(u64::try_from(keep_for.as_nanos()).unwrap_or(u64::MAX)) as i64;
        loop {
            let totals = records.quarantine_totals(relay).await?;
            let mut bytes: i64 = totals.iter().map(|total| total.bytes).sum();
            let mut gone = Vec::new();
            for (message, size, at) in records.quarantine_oldest(relay, AT_ONCE_MAX).await? {
                if at > too_old && bytes <= bytes_max as i64 {
                    break;
                }
                bytes -= size;
                gone.push(message);
            }
            if gone.is_empty() {
                return Ok(());
            }
            self.drop_messages(&gone).await?;
            self.carry_out().await?;
        }
    }

    async fn drop_messages(&self, messages: &[String]) -> Result<(), RecordsError> {
        let records = &self.shared.site.records;
        let mut keys = Vec::new();
        for message in messages {
            let filter = weir_store::records::QuarantineFilter { message: message.clone(), ..Default::default() };
            keys.extend(records.quarantine(&filter, 1).await?.into_iter().map(|row| (row.message, row.place)));
        }
        records.quarantine_decide(&keys, Fate::Drop, RETENTION).await?;
        let line = |message: &String| AuditLine {
            at: crate::gate::wall_clock().0 as i64,
            actor: RETENTION.to_owned(),
            action: "quarantine.delete".to_owned(),
            subject: message.clone(),
            detail: "its time in quarantine is over, or there is too much".to_owned(),
        };
        records.audit_all(&messages.iter().map(line).collect::<Vec<_>>()).await
    }
}

fn places_of<'a>(rows: impl IntoIterator<Item = &'a QuarantineRow>) -> Vec<usize> {
    rows.into_iter().map(|row| row.place as usize).collect()
}

/// Mail with files of its own, and its letter.
type Taken = (Kept, Arc<Letter>);

/// What stands in the place of a body that the disk has lost.
const DAMAGED: &[u8] = b"Subject: [damaged]\r\n\r\nThe disk has lost the body of this message; see Weir's log.\r\n";
/// A longer verdict is left out; the reason is always there.
const DETAIL_MAX: usize = 16 << 10;

fn audit_line((kept, letter): &Taken) -> AuditLine {
    AuditLine {
        at: kept.at.0 as i64,
        actor: "weir".to_owned(),
        action: format!("quarantine.{}", kept.queue.as_str()),
        subject: kept.waiting.id.to_string(),
        detail: format!("from <{}> to {} recipients: {}", letter.from, kept.waiting.places.len(), kept.reason),
    }
}

fn report<T>(what: &str, result: Result<T, RecordsError>) {
    if let Err(error) = result {
        tracing::error!(%error, "quarantine: this relay could not {what}");
    }
}
