//! The spool: mail in transit, in append-only segments, durable before it is acknowledged.
//!
//! A message is a [`Draft`] until [`Draft::commit`] returns; then it survives a kill, a power cut and a full disk until it is
//! [finished](Spool::finish). One thread writes: it gathers the waiting requests, writes them in one go, syncs once and answers all
//! (`writer.rs`). Progress goes to a sidecar beside each segment; both are removed together when their last message is finished. Envelope
//! and marks are opaque bytes here. At start the segments themselves say what is there (`recovery.rs`); there is no other index.
//! docs/spool.md has the format and the reasons.

mod body;
mod compaction;
mod disk;
mod draft;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod file;
mod found;
mod id;
mod index;
mod log;
mod queue;
mod reader;
mod receipt;
mod record;
mod recovery;
mod scan;
mod segment;
mod shares;
mod sidecar;
mod snapshot;
mod space;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

pub use body::Body;
pub use draft::Draft;
pub use error::{Damage, Limit, SpoolError};
pub use found::{FoundMessage, Marks};
pub use id::{MessageId, NotAnId};
pub use index::Piece;
pub use record::{BODY_MAX, ENVELOPE_MAX, MARK_MAX};
pub use shares::{MailLocation, Share, ShareLimits, Shares};

use crate::diary::Diary;
use crate::folder::Lock;
use disk::Disk;
use id::IdSource;
use index::{Index, IndexEntry};
use log::Log;
use queue::{QueueMemory, Request, RequestQueue};
use reader::{Reader, Wait};
use record::RecordKind;
use recovery::Recovery;
use sidecar::Sidecars;
use snapshot::SNAPSHOT_PREFIX;
use space::Space;
use writer::SpoolWriter;

/// How a spool behaves. The defaults suit a mail server.
#[derive(Clone, Debug)]
pub struct Options {
    /// A segment that has reached this length is followed by a new one. Default 64 MiB.
    pub segment_bytes: u64,
    /// Bodies and envelopes on their way to the disk take at most this much memory. Default 8 MiB.
    pub queue_bytes: usize,
    /// Bodies of small messages just committed are kept in at most this much memory. Default 4 MiB.
    pub keep_bytes: usize,
    /// With less free space than this no new mail is accepted, so that there is room for marks. Default 64 MiB; 0 for none.
    pub free_floor_bytes: u64,
    /// Marks become durable after this time at the latest. Default 50 ms; zero for every batch.
    pub marks_every: Duration,
    /// A segment with less than this part still needed is emptied by compaction. Default 0.1, at most 0.5; 0 for never.
    pub compact_below: f64,
    /// How many of the newest segments are not compacted. Default 2.
    pub spare_newest: u32,
    /// Test-only: a disk that fails on command.
    #[cfg(feature = "faults")]
    pub faults: Option<Arc<faults::Faults>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            queue_bytes: 8 << 20,
            keep_bytes: 4 << 20,
            free_floor_bytes: 64 << 20,
            marks_every: Duration::from_millis(50),
            compact_below: 0.1,
            spare_newest: 2,
            #[cfg(feature = "faults")]
            faults: None,
        }
    }
}

impl Options {
    /// Offsets have 32 bits, and a batch may exceed the end by its own length.
    fn bounded(self) -> Options {
        Options {
            segment_bytes: self.segment_bytes.clamp(1024, 1 << 30),
            queue_bytes: self.queue_bytes.min(1 << 30),
            // A segment that is more than half needed costs more to move than it gives back.
            compact_below: self.compact_below.clamp(0.0, 0.5),
            ..self
        }
    }

    fn disk(&self) -> Disk {
        Disk {
            #[cfg(feature = "faults")]
            faults: self.faults.clone(),
        }
    }
}

/// A handle on the spool; clones share it. When the last one is dropped, everything that was requested is still written, and
/// the folder is released.
#[derive(Clone, Debug)]
pub struct Spool {
    shared: Arc<SpoolShared>,
    thread: Arc<WriterThread>,
    /// Every stage that handles a message has the spool, so its diary goes with it.
    diary: Diary,
}

impl Spool {
    /// Opens the spool in `folder` (created if it does not exist) and returns which messages are in it, oldest first. Blocks
    /// for as long as it takes to read all segments once.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<(Spool, Vec<FoundMessage>), SpoolError> {
        let options = options.bounded();
        let folder = folder.as_ref().to_owned();
        let lock = lock(&folder)?;
        let disk = options.disk();
        let mut recovery = recovery::recover(&folder, &disk, Index::new(options.keep_bytes))?;
        let found = std::mem::take(&mut recovery.found);
        let sidecars = Sidecars::new(folder.clone(), disk.clone(), recovery.marker);
        let (shared, writer) = assemble(recovery, sidecars, (folder, disk), options);
        tracing::info!(messages = found.len(), damaged = shared.damage.len(), "the spool is open");
        let thread = WriterThread::start(&shared, writer, lock)?;
        Ok((Spool { shared, thread: Arc::new(thread), diary: Diary::default() }, found))
    }

    /// The same spool with a diary of what happens to its messages.
    #[must_use]
    pub fn with_diary(self, diary: Diary) -> Spool {
        Spool { diary, ..self }
    }

    /// Writes everything that was requested and closes the spool, also for those who still have a copy of it: whatever they request from now on is an error, and
    /// it can be opened again.
    pub async fn close(&self) {
        let thread = Arc::clone(&self.thread);
        // A panic there was reported there.
        let _ = tokio::task::spawn_blocking(move || thread.end()).await;
    }

    /// The diary of its messages.
    pub fn diary(&self) -> &Diary {
        &self.diary
    }

    /// Begins a message; refused as [`SpoolError::Full`] while there is too little free space.
    pub fn draft(&self) -> Result<Draft, SpoolError> {
        if self.shared.space.is_low() { Err(SpoolError::Full) } else { Ok(Draft::new(Arc::clone(&self.shared))) }
    }

    /// Whether there is too little free space to take a message.
    pub fn is_full(&self) -> bool {
        self.shared.space.is_low()
    }

    /// Records progress of a message. Does not wait for the disk; see [`Spool::flush`].
    pub fn mark(&self, id: MessageId, mark: impl Into<Box<[u8]>>) -> Result<(), SpoolError> {
        let mark = mark.into();
        record::check_length(Limit::Mark, mark.len() as u64)?;
        self.shared.index().home(id).ok_or(SpoolError::Unknown(id))?;
        self.shared.unwritten.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.push(Request::Mark(id, mark))
    }

    /// Ends a message: it is gone at once, and from the disk soon. Does not wait.
    pub fn finish(&self, id: MessageId) -> Result<(), SpoolError> {
        self.shared.finish(id)
    }

    /// How many marks and finishes a kill would lose now, because they have not been written. A caller that makes many should wait while
    /// there are many.
    pub fn unwritten(&self) -> usize {
        self.shared.unwritten.load(Ordering::Relaxed)
    }

    /// Returns once everything requested before is durable, marks and finishes included.
    pub async fn flush(&self) -> Result<(), SpoolError> {
        self.ask(Request::Flush).await?
    }

    /// The body of a message, as a stream.
    pub fn body(&self, id: MessageId) -> Result<Body, SpoolError> {
        Body::new(Arc::clone(&self.shared), id)
    }

    /// The envelope of a message, read back from the disk.
    pub async fn envelope(&self, id: MessageId) -> Result<Vec<u8>, SpoolError> {
        if let Some(envelope) = body::envelope(&self.shared, id, Wait::Never)? {
            return Ok(envelope);
        }
        let shared = Arc::clone(&self.shared);
        let envelope = blocking(move || body::envelope(&shared, id, Wait::Long)).await?;
        Ok(envelope.unwrap_or_default())
    }

    /// Whether the message is here and not finished.
    pub fn contains(&self, id: MessageId) -> bool {
        self.shared.index().home(id).is_some()
    }

    /// Writes the body to a file of its own, all or nothing, durable on return. The message stays until it is finished.
    pub async fn move_out(&self, id: MessageId, path: impl Into<PathBuf>) -> Result<(), SpoolError> {
        let (body, path) = (self.body(id)?, path.into());
        blocking(move || body::write_file(body, &path)).await
    }

    /// Copies everything acknowledged so far to an empty folder, consistently, while the spool runs. The copy
    /// can be opened as a spool.
    pub async fn snapshot(&self, to: impl Into<PathBuf>) -> Result<(), SpoolError> {
        let (staging, to) = (self.ask(Request::Snapshot).await??, to.into());
        blocking(move || snapshot::deliver(&staging, &to)).await
    }

    /// Empties all segments of which little is needed, now and also the newest. This also happens without being requested.
    pub async fn compact(&self) -> Result<(), SpoolError> {
        self.ask(Request::Compact).await
    }

    /// How much of the spool belongs to whom, as far as this was declared. What is finished no longer counts.
    pub fn shares(&self) -> &Shares {
        &self.shared.shares
    }

    /// What recovery found damaged at start.
    pub fn damage(&self) -> &[Damage] {
        &self.shared.damage
    }

    /// Figures about the spool.
    pub fn stats(&self) -> Stats {
        let (messages, body_bytes) = {
            let index = self.shared.index();
            (index.len(), index.bytes())
        };
        let vital = *self.shared.vital();
        Stats { messages, body_bytes, waiting: self.shared.queue.waiting(), ..vital }
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, SpoolError> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(request(reply))?;
        answer.await.map_err(|_| SpoolError::Closed)
    }
}

/// Figures about a spool.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Messages that are not finished.
    pub messages: usize,
    /// The length of their bodies.
    pub body_bytes: u64,
    /// Segments on the disk.
    pub segments: usize,
    /// How much space they take.
    pub disk_bytes: u64,
    /// How much of it messages still need.
    pub live_bytes: u64,
    /// Drafts that have chunks on the disk.
    pub open_drafts: usize,
    /// Requests that wait for the writer.
    pub waiting: usize,
    /// How long the last sync of a batch took.
    pub last_sync: Duration,
}

impl Stats {
    /// The part of the disk space that is still needed; 1 if there is none.
    pub fn live_ratio(&self) -> f64 {
        if self.disk_bytes == 0 { 1.0 } else { self.live_bytes as f64 / self.disk_bytes as f64 }
    }
}

/// What handles, drafts, bodies and the writer have in common.
#[derive(Debug)]
pub(crate) struct SpoolShared {
    folder: PathBuf,
    options: Options,
    queue: RequestQueue,
    /// Marks and finishes that were requested and are not in the page cache yet.
    unwritten: AtomicUsize,
    room: QueueMemory,
    ids: IdSource,
    index: Mutex<Index>,
    reader: Reader,
    space: Space,
    vital: Mutex<Stats>,
    damage: Vec<Damage>,
    shares: Shares,
}

impl SpoolShared {
    fn finish(&self, id: MessageId) -> Result<(), SpoolError> {
        self.shares.release(id, MailLocation::Spool);
        let entry: IndexEntry = self.index().remove(id).ok_or(SpoolError::Unknown(id))?;
        self.unwritten.fetch_add(1, Ordering::Relaxed);
        self.queue.push(Request::Finish(id, entry))
    }

    fn incomplete(&self, arrived: u64, size: u64) -> SpoolError {
        let source = std::io::Error::other(format!("only {arrived} of {size} bytes of the body arrived"));
        SpoolError::io("commit a message to", &self.folder, source)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vital(&self) -> MutexGuard<'_, Stats> {
        self.vital.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's thread: when the last handle is dropped, it is told to stop, and waited for.
#[derive(Debug)]
struct WriterThread {
    shared: Arc<SpoolShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl WriterThread {
    fn start(shared: &Arc<SpoolShared>, writer: SpoolWriter, lock: Lock) -> Result<WriterThread, SpoolError> {
        let closer = CloseOnDrop(Arc::clone(shared));
        let run = move || {
            let _held = (closer, lock);
            writer.run();
        };
        let thread = std::thread::Builder::new().name("weir-spool".to_owned()).spawn(run);
        let thread = thread.map_err(|source| SpoolError::io("start a thread for", &shared.folder, source))?;
        Ok(WriterThread { shared: Arc::clone(shared), thread: Mutex::new(Some(thread)) })
    }
}

impl WriterThread {
    fn end(&self) {
        self.shared.queue.close();
        // Held until the thread has ended, so that a second caller waits too.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// However the writer ends, nobody may wait for it in vain.
struct CloseOnDrop(Arc<SpoolShared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.queue.close();
        self.0.room.close();
        let mut left = Vec::new();
        self.0.queue.take(&mut left, None);
    }
}

fn lock(folder: &Path) -> Result<Lock, SpoolError> {
    use std::os::unix::fs::DirBuilderExt;
    let fail = |source| SpoolError::io("open", folder, source);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    let taken = File::open(folder).and_then(Lock::take).map_err(fail)?;
    taken.map_err(|_| SpoolError::InUse(folder.to_owned()))
}

fn assemble(
    recovery: Recovery,
    mut sidecars: Sidecars,
    (folder, disk): (PathBuf, Disk),
    options: Options,
) -> (Arc<SpoolShared>, SpoolWriter) {
    let Recovery { marker, segments, next, index, damage, amends, .. } = recovery;
    let mut log = Log::new((folder.clone(), disk), marker, options.segment_bytes, (segments, next));
    index.entries().for_each(|entry| log.enter(entry));
    for (segment, kind, id) in &amends {
        sidecars.append(*segment, (*kind, *id), &[]);
    }
    if amends.iter().any(|(_, kind, _)| *kind == RecordKind::Finish) {
        log.entangle_all();
    }
    let marks_every = options.marks_every;
    let shared = Arc::new(SpoolShared {
        queue: RequestQueue::default(),
        unwritten: AtomicUsize::new(0),
        room: QueueMemory::new(options.queue_bytes),
        ids: IdSource::default(),
        index: Mutex::new(index),
        reader: Reader::new(folder.clone()),
        space: Space::new(folder.clone(), options.free_floor_bytes),
        vital: Mutex::default(),
        damage,
        shares: Shares::default(),
        folder,
        options,
    });
    let writer = SpoolWriter::new(Arc::clone(&shared), log, sidecars, marker, marks_every);
    (shared, writer)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SpoolError::Closed)?
}
