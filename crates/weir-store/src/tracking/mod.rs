//! Message tracking: an index by which every message can be found.
//!
//! Events are written once, into the [`crate::diary`]. Tracking reads the diary afterwards and makes an index of it: a row for each message
//! with what happened to it, and the words by which it is found. Its position in the diary is written in the same transaction. So after a
//! kill it continues where it was, and if its file is lost it begins at the oldest line that the diary still has. Accepting and delivering
//! mail never wait for it.
//!
//! It is kept longer than the diary, and bounded by size and by age: the oldest goes first. With PostgreSQL all relays write to the same
//! tables, and each of them finds the mail of all.

mod database;
mod fates;
mod message;
mod search;
mod words;

pub use message::{Act, STATES, TrackedMessage};
pub use search::{FoundMessages, MessageFilter, PAGE_MAX};

use crate::diary::{Diary, DiaryLine, DiaryPart, read_on};
use crate::records::{Database, Records, RecordsError};
use crate::spool::MessageId;
use database::{Batch, Tracked, TrackingDatabase};
use search::first_place;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Mutex, OnceCell};

/// How often the diary is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// After indexing a part of the diary it rests for so many times as long, because mail needs the processor more.
const REST: u32 = 3;
/// If more of the diary than this is unread, it does not rest: the diary drops its oldest file, read or not.
const HURRY_BYTES: u64 = 8 << 20;
/// How long somebody who looks for a message waits until the newest is there.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the size is checked, and how many messages are removed at once.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
const PRUNE_AT_ONCE: i64 = 2_000;
/// How far a place is looked for beside others of the same time.
const NEIGHBOURS_MAX: usize = 4_096;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackingLimits {
    /// Octets, with all indexes; 0 for none at all.
    pub bytes_max: u64,
    /// How long.
    pub age_max: Duration,
}

/// Where tracking reads and writes.
#[derive(Debug, Clone)]
pub struct TrackingParts {
    /// The records, which it joins if they are shared.
    pub records: Records,
    /// The file that it makes otherwise.
    pub file: PathBuf,
    /// This relay's name.
    pub relay: String,
    /// The diary and its folder.
    pub diary: Diary,
    /// The folder of the diary.
    pub diary_folder: PathBuf,
    /// How much is kept.
    pub limits: TrackingLimits,
}

/// Message tracking. Cheap to clone; the default one tracks nothing.
#[derive(Debug, Clone, Default)]
pub struct Tracking {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    parts: TrackingParts,
    /// Opened by whoever is the first to need it.
    database: OnceCell<TrackingDatabase>,
    /// One reads the diary at a time.
    turn: Mutex<()>,
    /// Lines of the diary were dropped before they were read.
    missed: AtomicBool,
}

impl Tracking {
    /// Tracking with these parts. Opens nothing yet.
    pub fn new(parts: TrackingParts) -> Tracking {
        if parts.limits.bytes_max == 0 {
            return Tracking::default();
        }
        let (database, turn, missed) = (OnceCell::new(), Mutex::new(()), AtomicBool::new(false));
        Tracking { shared: Some(Arc::new(Shared { parts, database, turn, missed })) }
    }

    /// Whether messages are tracked at all.
    pub fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    /// Reads the diary as it grows and forgets what is old, until the task is dropped.
    pub async fn run(self) {
        let Some(shared) = &self.shared else { return std::future::pending().await };
        let (mut failing, mut pruned) = (false, None::<Instant>);
        loop {
            let mut rest = EVERY;
            let begun = Instant::now();
            let stepped = shared.step().await;
            failing &= stepped.is_err();
            match stepped {
                Ok(0) => {}
                Ok(behind) if behind > HURRY_BYTES => rest = Duration::ZERO,
                Ok(_) => rest = begun.elapsed() * REST,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "message tracking cannot go on; mail is not concerned, and it is tried again");
                }
                Err(_) => {}
            }
            if pruned.is_none_or(|at| at.elapsed() >= PRUNE_EVERY) {
                match shared.prune().await {
                    Ok(0) => pruned = Some(Instant::now()),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "old messages cannot be forgotten"),
                }
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// Returns when everything that was noted before can be found, or after a while; whether it can.
    pub async fn catch_up(&self, patience: Duration) -> Result<bool, TrackingError> {
        let Some(shared) = &self.shared else { return Ok(true) };
        let diary = shared.parts.diary.clone();
        let _ = tokio::task::spawn_blocking(move || diary.settle()).await;
        let begun = Instant::now();
        while shared.step().await? > 0 {
            if begun.elapsed() >= patience {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Messages that fit, the newest first, at most [`PAGE_MAX`].
    pub async fn search(&self, filter: &MessageFilter, most: usize) -> Result<FoundMessages, TrackingError> {
        let Some(shared) = &self.shared else { return Ok(FoundMessages::default()) };
        let behind = !self.catch_up(PATIENCE).await?;
        let most = most.clamp(1, PAGE_MAX);
        let mut messages = shared.database().await?.search(filter, most + 1).await?;
        let more = messages.len() > most;
        messages.truncate(most);
        Ok(FoundMessages { messages, more, behind })
    }

    /// The message with one of these ids, and what happened to it.
    pub async fn message(&self, id: &str) -> Result<Option<(TrackedMessage, Vec<Act>)>, TrackingError> {
        let Some(shared) = &self.shared else { return Ok(None) };
        self.catch_up(PATIENCE).await?;
        let database = shared.database().await?;
        let places = database.places_of(&BTreeSet::from([id])).await?.into_values().collect();
        let found = database.messages_at(&places).await?.into_iter().next();
        Ok(found.map(|(message, acts)| {
            let acts = message.told(acts);
            (message, acts)
        }))
    }

    /// Those of these ids that no message has.
    pub async fn unknown(&self, ids: &[String]) -> Result<Vec<String>, TrackingError> {
        let Some(shared) = &self.shared else { return Ok(Vec::new()) };
        let known = shared.database().await?.places_of(&ids.iter().map(String::as_str).collect()).await?;
        Ok(ids.iter().filter(|id| !known.contains_key(*id)).cloned().collect())
    }

    /// Octets that it uses on the disk.
    pub async fn octets(&self) -> Result<u64, TrackingError> {
        match &self.shared {
            Some(shared) => Ok(shared.database().await?.octets().await?),
            None => Ok(0),
        }
    }

    /// Whether lines of the diary were dropped before they were read, so that messages are missing.
    pub fn has_missed(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.missed.load(Ordering::Relaxed))
    }

    /// Ends all connections.
    pub async fn close(&self) {
        if let Some(database) = self.shared.as_ref().and_then(|shared| shared.database.get())
            && !database.db.is_shared()
        {
            Records::of(database.db.clone()).close().await;
        }
    }
}

impl Shared {
    async fn database(&self) -> Result<&TrackingDatabase, TrackingError> {
        self.database.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<TrackingDatabase, TrackingError> {
        let shared = self.parts.records.database();
        if shared.is_shared() {
            let database = TrackingDatabase { db: shared };
            database.prepare().await?;
            return Ok(database);
        }
        match open_file(&self.parts.file).await {
            Err(error) if is_broken(&error) => {
                // Everything in it can be made again from the diary; only what the diary has forgotten is lost.
                tracing::warn!(%error, file = %self.parts.file.display(), "the file of message tracking is damaged and is built again");
                remove(&self.parts.file)?;
                Ok(open_file(&self.parts.file).await?)
            }
            opened => Ok(opened?),
        }
    }

    /// Takes in one part of the diary; how much of the diary is behind it, and 0 at the end.
    async fn step(&self) -> Result<u64, TrackingError> {
        let _turn = self.turn.lock().await;
        let database = self.database().await?;
        let (relay, folder) = (&self.parts.relay, self.parts.diary_folder.clone());
        let from = database.position(relay).await?;
        let part = tokio::task::spawn_blocking(move || read_on(&folder, from)).await.map_err(io::Error::other)??;
        if part.missed && !self.missed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the diary was faster than message tracking: some messages cannot be found (store.diary_size)"
            );
        }
        if part.next == from {
            return Ok(0);
        }
        let batch = gather(database, &part).await?;
        database.write(relay, &batch).await?;
        Ok(part.behind)
    }

    /// Forgets some messages if there are too many or if they are too old; how many.
    async fn prune(&self) -> Result<usize, TrackingError> {
        let _turn = self.turn.lock().await;
        let (database, TrackingLimits { bytes_max, age_max }) = (self.database().await?, self.parts.limits);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = i64::try_from(now.saturating_sub(age_max).as_nanos()).unwrap_or(i64::MAX);
        let gone = database.forget(Some(oldest), PRUNE_AT_ONCE).await?;
        if gone == 0 && database.octets().await? > bytes_max {
            return Ok(database.forget(None, PRUNE_AT_ONCE).await?);
        }
        Ok(gone)
    }
}

/// What the lines of a part change.
async fn gather(database: &TrackingDatabase, part: &DiaryPart) -> Result<Batch, TrackingError> {
    let lines: Vec<&DiaryLine> = part.lines.iter().filter(|line| is_message(&line.id)).collect();
    let named = |line: &&'_ DiaryLine| line.about.iter().filter(|thing| is_message(thing)).cloned().collect::<Vec<_>>();
    let others: Vec<String> = lines.iter().flat_map(named).collect();
    let ids: BTreeSet<&str> =
        lines.iter().map(|line| line.id.as_str()).chain(others.iter().map(String::as_str)).collect();
    let mut places = database.places_of(&ids).await?;
    let known = database.messages_at(&places.values().copied().collect()).await?;
    let mut messages: BTreeMap<i64, (Tracked, bool)> =
        known.into_iter().map(|tracked| (tracked.0.place, (tracked, false))).collect();
    let wanted = lines.iter().filter(|line| place_of(line, &places).is_none()).map(|line| wanted_place(line));
    let taken = database.taken(&wanted.collect()).await?;
    for line in lines {
        let place = match place_of(line, &places).filter(|place| messages.contains_key(place)) {
            Some(place) => place,
            None => {
                let place = free_place(database, &messages, &taken, line).await?;
                messages.insert(place, ((TrackedMessage::new(place, line), Vec::new()), true));
                place
            }
        };
        places.insert(line.id.clone(), place);
        if let Some(((message, acts), _)) = messages.get_mut(&place) {
            message.apply(line, acts);
        }
    }
    Ok(Batch { messages, position: part.next })
}

/// The place of the message that a line is about: by its own id, or by the one that it had before.
fn place_of(line: &DiaryLine, places: &BTreeMap<String, i64>) -> Option<i64> {
    let before = || line.about.iter().find_map(|thing| places.get(thing));
    places.get(&line.id).or_else(before).copied()
}

/// Where a new message would be: by its time, and inside a millisecond by its id.
fn wanted_place(line: &DiaryLine) -> i64 {
    let id = line.id.parse::<MessageId>().map_or(0, |id| (id.as_u128() & 0xff) as i64);
    first_place(line.at).saturating_add(id)
}

/// The wanted place, or the next one that nobody has. Of `taken` it is known without asking.
async fn free_place(
    database: &TrackingDatabase,
    messages: &BTreeMap<i64, (Tracked, bool)>,
    taken: &BTreeSet<i64>,
    line: &DiaryLine,
) -> Result<i64, TrackingError> {
    let wanted = wanted_place(line);
    if !messages.contains_key(&wanted) && !taken.contains(&wanted) {
        return Ok(wanted);
    }
    let mut place = wanted;
    for _ in 0..NEIGHBOURS_MAX {
        place = place.saturating_add(1);
        if !messages.contains_key(&place) && database.taken(&BTreeSet::from([place])).await?.is_empty() {
            break;
        }
    }
    Ok(place)
}

fn is_message(id: &str) -> bool {
    id.parse::<MessageId>().is_ok()
}

async fn open_file(path: &std::path::Path) -> Result<TrackingDatabase, RecordsError> {
    let database = TrackingDatabase { db: Database::sqlite_beside(path).await? };
    database.prepare().await?;
    Ok(database)
}

/// Whether the file itself is at fault.
fn is_broken(error: &RecordsError) -> bool {
    let RecordsError::Database(sqlx::Error::Database(error)) = error else { return false };
    // SQLITE_CORRUPT and SQLITE_NOTADB.
    error.code().is_some_and(|code| code == "11" || code == "26")
}

fn remove(path: &std::path::Path) -> io::Result<()> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        crate::unless_gone(std::fs::remove_file(name))?;
    }
    Ok(())
}

/// Why messages cannot be tracked or found.
#[derive(Debug, thiserror::Error)]
pub enum TrackingError {
    /// The database.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// The diary.
    #[error("the diary cannot be read: {0}")]
    Diary(#[from] io::Error),
}
