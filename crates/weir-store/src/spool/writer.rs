//! The one thread that changes the spool: gathers requests, writes them in one go, syncs once, answers all.
//!
//! No delay is added to collect a batch: while one sync runs, the requests for the next batch arrive. Order within a batch: marks to the
//! page cache, bodies and commits to the segment, one sync, then the index and the answers. Between batches: marks made durable, dead
//! segments removed, a little compaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::id::MessageId;
use super::index::IndexEntry;
use super::log::{Compaction, Log, Setback};
use super::queue::{Chunk, Committal, Request};
use super::receipt::Receipt;
use super::record::{ChunkPlace, Commit, Marker, RecordKind, append_after};
use super::recovery;
use super::sidecar::Sidecars;
use super::{SpoolError, SpoolShared, Stats};

/// If something failed between batches, it is tried again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// A batch buffer that grew larger than this is given back.
const BUFFER_KEPT: usize = 1 << 20;

/// The state of the writer's thread.
#[derive(Debug)]
pub(super) struct SpoolWriter {
    pub(super) shared: Arc<SpoolShared>,
    pub(super) log: Log,
    pub(super) sidecars: Sidecars,
    pub(super) marker: Marker,
    pub(super) job: Option<Compaction>,
    /// When to look for segments worth compacting; `None` until something changes.
    pub(super) look_at: Option<Instant>,
    /// The records of the batch that is being gathered.
    pub(super) buffer: Vec<u8>,
    drafts: HashMap<MessageId, OpenDraft>,
    pending: Vec<Pending>,
    flushes: Vec<oneshot::Sender<Result<(), SpoolError>>>,
    /// Marks taken from the queue that are not in the page cache.
    unwritten: usize,
    marks_at: Option<Instant>,
    bury_at: Option<Instant>,
    marks_every: Duration,
    /// The last batch failed, and the log says so.
    troubled: bool,
    /// Where the first record of the batch will be, or why it cannot be written.
    ground: Result<(u32, u64), SpoolError>,
}

/// A draft whose chunks are in the log. Open → committed, abandoned, or failed (and then waits for either).
#[derive(Debug)]
enum OpenDraft {
    Open(Vec<ChunkPlace>),
    Failed(SpoolError),
}

/// A commit that waits for the sync of its batch.
#[derive(Debug)]
struct Pending {
    id: MessageId,
    entry: IndexEntry,
    /// The body, if it is small enough to be kept.
    body: Option<Vec<u8>>,
    reply: oneshot::Sender<Result<Receipt, SpoolError>>,
}

impl SpoolWriter {
    pub(super) fn new(
        shared: Arc<SpoolShared>,
        log: Log,
        sidecars: Sidecars,
        marker: Marker,
        marks_every: Duration,
    ) -> SpoolWriter {
        let now = Instant::now();
        SpoolWriter {
            shared,
            log,
            sidecars,
            marker,
            job: None,
            look_at: Some(now),
            buffer: Vec::new(),
            drafts: HashMap::new(),
            pending: Vec::new(),
            flushes: Vec::new(),
            unwritten: 0,
            marks_at: Some(now),
            bury_at: Some(now),
            marks_every,
            troubled: false,
            ground: Err(SpoolError::Closed),
        }
    }

    /// Serves until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut requests = Vec::new();
        while self.shared.queue.take(&mut requests, self.wake_at()) {
            self.serve(&mut requests);
            self.tend();
            self.publish();
        }
        if let Err(error) = self.sidecars.sync_all() {
            tracing::error!(%error, "the last marks are not durable: messages may be sent again");
        }
        // Everybody who waited for a commit was answered; this only gives back the space ahead.
        let _ = self.log.seal();
    }

    fn wake_at(&self) -> Option<Instant> {
        if self.job.is_some() {
            return Some(Instant::now());
        }
        [self.marks_at, self.bury_at, self.look_at].into_iter().flatten().min()
    }

    /// One batch.
    fn serve(&mut self, requests: &mut Vec<Request>) {
        if requests.iter().any(Request::is_mail) {
            let commits = requests.iter().filter(|request| matches!(request, Request::Commit(_))).count();
            self.ground = self.find_ground(commits);
        }
        let entered: Vec<usize> = requests.iter().filter(|request| request.is_mail()).map(Request::cost).collect();
        let mut chores = Vec::new();
        for request in requests.drain(..) {
            match request {
                Request::Chunk(id, chunk) => self.chunk(id, &chunk),
                Request::Commit(committal) => self.commit(*committal),
                Request::Abandon(id) => self.abandon(id),
                Request::Mark(id, mark) => self.mark(id, &mark),
                Request::Finish(id, entry) => self.finish(id, &entry),
                Request::Flush(reply) => self.flushes.push(reply),
                Request::Compact(_) | Request::Snapshot(_) => chores.push(request),
            }
        }
        if self.sidecars.write() {
            self.marks_are_written();
        }
        self.write_batch();
        self.shared.room.leave(entered.into_iter());
        self.answer_flushes();
        for chore in chores {
            self.chore(chore);
        }
    }

    fn find_ground(&mut self, commits: usize) -> Result<(u32, u64), SpoolError> {
        if self.shared.space.is_low() {
            self.trouble(&SpoolError::Full);
            return Err(SpoolError::Full);
        }
        let before = self.log.newest();
        let ready = self.log.ready(&mut self.sidecars).and_then(|ground| {
            self.sidecars.reserve(ground.0, commits).map_err(Setback::new)?;
            Ok(ground)
        });
        let ground = ready.map_err(|setback| self.retreat(setback));
        if self.log.newest() != before {
            self.look_at.get_or_insert_with(Instant::now);
            self.bury_at.get_or_insert_with(Instant::now);
        }
        ground
    }

    fn chunk(&mut self, id: MessageId, chunk: &Chunk) {
        let place = match self.stage(RecordKind::Chunk, id, &chunk.bytes, chunk.crc) {
            Ok(place) => place,
            Err(error) => return self.fail_draft(id, error),
        };
        match self.drafts.entry(id).or_insert_with(|| OpenDraft::Open(Vec::new())) {
            OpenDraft::Failed(_) => {}
            OpenDraft::Open(places) => {
                let new_here = places.last().is_none_or(|last| last.segment != place.segment);
                places.push(place);
                if new_here && let Some(segment) = self.log.segment(place.segment) {
                    segment.drafts += 1;
                }
            }
        }
    }

    fn commit(&mut self, committal: Committal) {
        let Committal { id, last, size, body_crc, envelope, reply } = committal;
        let staged = self.close_draft(id).and_then(|mut places| {
            if !last.bytes.is_empty() {
                places.push(self.stage(RecordKind::Chunk, id, &last.bytes, last.crc)?);
            }
            let arrived: u64 = places.iter().map(|place| u64::from(place.length)).sum();
            if arrived != size {
                // Never acknowledge a body with a hole, whatever made it.
                return Err(self.shared.incomplete(arrived, size));
            }
            self.stage_commit(id, &Commit { size, body_crc, places, envelope: &envelope })
        });
        match staged {
            Ok(entry) => {
                let body = entry.whole.then_some(last.bytes);
                self.pending.push(Pending { id, entry, body, reply });
            }
            // A caller that stopped waiting needs no answer.
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn abandon(&mut self, id: MessageId) {
        // Whether it had failed before or not: nothing of the draft is needed any more.
        let _ = self.close_draft(id);
        self.bury_at.get_or_insert_with(Instant::now);
    }

    fn mark(&mut self, id: MessageId, mark: &[u8]) {
        self.unwritten += 1;
        // A message that was finished meanwhile needs no marks.
        let Some(home) = self.shared.index().home(id) else { return };
        self.sidecars.append(home, (RecordKind::Mark, id), mark);
        self.marks_at.get_or_insert_with(|| Instant::now() + self.marks_every);
    }

    fn finish(&mut self, id: MessageId, entry: &IndexEntry) {
        self.unwritten += 1;
        self.sidecars.append(entry.home, (RecordKind::Finish, id), &[]);
        self.log.leave(entry);
        let now = Instant::now();
        self.marks_at.get_or_insert(now + self.marks_every);
        self.bury_at.get_or_insert(now);
        self.look_at.get_or_insert(now + Duration::from_millis(100));
    }

    /// Adds a record to the batch and returns where it will be.
    pub(super) fn stage(
        &mut self,
        kind: RecordKind,
        id: MessageId,
        payload: &[u8],
        crc: u32,
    ) -> Result<ChunkPlace, SpoolError> {
        let (segment, start) = self.ground.clone()?;
        let at = start + self.buffer.len() as u64;
        let follows_sync = self.buffer.is_empty() && self.log.is_synced();
        append_after(follows_sync, &mut self.buffer, self.marker, (kind, id), (payload, crc));
        Ok(ChunkPlace { segment, at: at as u32, length: payload.len() as u32 })
    }

    pub(super) fn stage_commit(&mut self, id: MessageId, commit: &Commit<'_>) -> Result<IndexEntry, SpoolError> {
        let mut payload = Vec::with_capacity(32 + 12 * commit.places.len() + commit.envelope.len());
        commit.encode(&mut payload);
        let at = self.stage(RecordKind::Commit, id, &payload, crc32fast::hash(&payload))?;
        Ok(recovery::entry(at, commit))
    }

    /// Where the next records of the writer itself will be.
    pub(super) fn take_ground(&mut self) -> Result<u32, SpoolError> {
        let ground = self.log.ready(&mut self.sidecars).map_err(|setback| self.retreat(setback));
        self.ground = ground.clone();
        ground.map(|(segment, _)| segment)
    }

    /// Writes the staged records to the disk, durably if requested.
    pub(super) fn write_buffer(&mut self, durable: bool) -> Result<(), Setback> {
        let written = if self.buffer.is_empty() { Ok(()) } else { self.log.append(&self.buffer) };
        self.shared.space.spend(self.buffer.len() as u64);
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        self.ground = Err(SpoolError::Closed);
        written.and_then(|()| if durable { self.log.sync() } else { Ok(()) })
    }

    fn write_batch(&mut self) {
        let durable = !self.pending.is_empty();
        if self.buffer.is_empty() && !durable {
            return;
        }
        match self.write_buffer(durable) {
            Ok(()) => {
                self.all_is_well();
                self.acknowledge();
            }
            Err(setback) => {
                self.disown(&setback, self.pending.iter().map(|pending| pending.id).collect());
                let error = self.retreat(setback);
                for pending in self.pending.drain(..) {
                    let _ = pending.reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// The batch is durable: its messages exist.
    fn acknowledge(&mut self) {
        let mut index = self.shared.index();
        for pending in &mut self.pending {
            self.log.enter(&pending.entry);
            index.insert(pending.id, std::mem::replace(&mut pending.entry, IndexEntry::new(0, 0, 0)));
            if let Some(body) = pending.body.take() {
                index.keep(pending.id, body);
            }
        }
        drop(index);
        for pending in self.pending.drain(..) {
            // A receipt that nobody takes finishes its message.
            let _ = pending.reply.send(Ok(Receipt::new(&self.shared, pending.id)));
        }
    }

    /// Commits that failed but may still stand in the file must not count after a restart.
    pub(super) fn disown(&mut self, setback: &Setback, ids: Vec<MessageId>) {
        if let Some((segment, _)) = setback.lost.filter(|_| setback.may_return) {
            for id in ids {
                self.sidecars.append(segment, (RecordKind::Void, id), &[]);
            }
            self.sidecars.write();
            self.marks_at.get_or_insert_with(Instant::now);
        }
    }

    /// The first failure is logged; the thousandth is not.
    fn trouble(&mut self, error: &SpoolError) {
        if self.troubled {
            tracing::debug!(%error, "mail is still refused");
        } else {
            tracing::error!(%error, "mail is refused for now; nothing that was acknowledged is lost");
        }
        self.troubled = true;
    }

    fn all_is_well(&mut self) {
        if std::mem::take(&mut self.troubled) {
            tracing::info!("the disk works again: mail is accepted");
        }
    }

    /// Fails every draft that has a chunk among the bytes that were lost.
    pub(super) fn retreat(&mut self, setback: Setback) -> SpoolError {
        if let Some((segment, from)) = setback.lost {
            let hit = |place: &ChunkPlace| place.segment == segment && u64::from(place.at) >= from;
            let lost: Vec<MessageId> = self
                .drafts
                .iter()
                .filter(|(_, draft)| matches!(draft, OpenDraft::Open(places) if places.iter().any(hit)))
                .map(|(id, _)| *id)
                .collect();
            for id in lost {
                self.fail_draft(id, setback.error.clone());
            }
        }
        self.bury_at.get_or_insert_with(Instant::now);
        self.trouble(&setback.error);
        setback.error
    }

    fn fail_draft(&mut self, id: MessageId, error: SpoolError) {
        let first = self.close_draft(id).err().unwrap_or(error);
        self.drafts.insert(id, OpenDraft::Failed(first));
    }

    /// Removes a draft from the table; returns the places of its chunks, or why it failed.
    fn close_draft(&mut self, id: MessageId) -> Result<Vec<ChunkPlace>, SpoolError> {
        let places = match self.drafts.remove(&id) {
            None => return Ok(Vec::new()),
            Some(OpenDraft::Failed(error)) => return Err(error),
            Some(OpenDraft::Open(places)) => places,
        };
        let mut last = None;
        for place in &places {
            if last.replace(place.segment) != Some(place.segment)
                && let Some(segment) = self.log.segment(place.segment)
            {
                segment.drafts = segment.drafts.saturating_sub(1);
            }
        }
        Ok(places)
    }

    fn answer_flushes(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let synced = self.log.sync().map_err(|setback| self.retreat(setback));
        let result = synced.and(self.sidecars.sync_all());
        for flush in self.flushes.drain(..) {
            let _ = flush.send(result.clone());
        }
    }

    fn chore(&mut self, chore: Request) {
        match chore {
            Request::Compact(reply) => {
                self.compact_all();
                let _ = reply.send(());
            }
            Request::Snapshot(reply) => {
                let linked = self.link_snapshot();
                let _ = reply.send(linked);
            }
            _ => {}
        }
    }

    /// What is due between batches.
    fn tend(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.marks_at) {
            let synced = self.sidecars.sync_all();
            if synced.is_ok() {
                self.marks_are_written();
            }
            self.marks_at = synced.is_err().then(|| now + RETRY);
        }
        if due(self.bury_at) {
            self.bury_at = self.bury().then(|| now + RETRY);
        }
        if self.job.is_some() {
            self.compact_a_little();
        } else if due(self.look_at) {
            self.look_at = None;
            self.job = self.find_job();
        }
    }

    /// The marks taken so far are safe from a kill now.
    fn marks_are_written(&mut self) {
        self.shared.unwritten.fetch_sub(std::mem::take(&mut self.unwritten), Ordering::Relaxed);
    }

    /// Removes segments that are no longer needed; true if that must be tried again.
    pub(super) fn bury(&mut self) -> bool {
        let buried = self.log.bury(&mut self.sidecars, &self.shared.reader);
        if let Err(error) = &buried {
            tracing::warn!(%error, "a finished segment cannot be removed yet");
        }
        buried.is_err()
    }

    fn publish(&self) {
        let mut vital = Stats { open_drafts: self.drafts.len(), last_sync: self.log.last_sync, ..Stats::default() };
        for (_, segment) in self.log.segments() {
            vital.segments += 1;
            vital.disk_bytes += segment.length;
            vital.live_bytes += segment.live_bytes;
        }
        *self.shared.vital() = vital;
    }
}
