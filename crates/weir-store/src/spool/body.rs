//! Reads a message back from the spool: its envelope, and its body as a stream of pieces or as a file.
//!
//! A body can be read while compaction moves its message. When a segment has been removed, the message is looked up again; chunks keep
//! their boundaries, so the stream continues where it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;

use super::id::MessageId;
use super::index::{IndexEntry, Piece};
use super::reader::{Wait, Wanted};
use super::record::{CHUNK_MAX, ChunkPlace, Commit, HEADER, RecordKind};
use super::{SpoolError, SpoolShared};

/// How often a message is looked up again when its segment is gone.
const MOVES_MAX: usize = 3;

/// The body of a message, to be read from beginning to end.
#[derive(Debug)]
pub struct Body {
    cursor: Cursor,
}

impl Body {
    pub(super) fn new(shared: Arc<SpoolShared>, id: MessageId) -> Result<Body, SpoolError> {
        let (size, kept) = {
            let index = shared.index();
            let size = index.entry(id).ok_or(SpoolError::Unknown(id))?.size;
            (size, index.kept(id))
        };
        Ok(Body { cursor: Cursor { shared, id, size, kept, layout: None, next: 0, crc: Hasher::new() } })
    }

    /// How long it is in all.
    pub fn size(&self) -> u64 {
        self.cursor.size
    }

    /// The next piece, checked; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Piece>, SpoolError> {
        match self.cursor.step(Wait::Never)? {
            ReadStep::Piece(piece) => Ok(Some(piece)),
            ReadStep::End => Ok(None),
            ReadStep::WouldWait => {
                let mut cursor = self.cursor.clone();
                let read = move || cursor.step(Wait::Long).map(|step| (cursor, step));
                let (cursor, step) = tokio::task::spawn_blocking(read).await.map_err(|_| SpoolError::Closed)??;
                self.cursor = cursor;
                Ok(step.into_piece())
            }
        }
    }

    /// The whole body in memory, for callers that know that it is small.
    pub async fn read_all(mut self) -> Result<Vec<u8>, SpoolError> {
        let mut all = Vec::with_capacity((self.size() as usize).min(CHUNK_MAX));
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

/// How far a body has been read.
#[derive(Clone, Debug)]
struct Cursor {
    shared: Arc<SpoolShared>,
    id: MessageId,
    size: u64,
    kept: Option<Piece>,
    layout: Option<Layout>,
    next: usize,
    crc: Hasher,
}

/// The chunks of a body.
#[derive(Clone, Debug)]
struct Layout {
    places: Arc<[ChunkPlace]>,
    /// The checksum of the whole, if there is more than one chunk.
    body_crc: Option<u32>,
}

enum ReadStep {
    Piece(Piece),
    End,
    WouldWait,
}

impl ReadStep {
    fn into_piece(self) -> Option<Piece> {
        match self {
            ReadStep::Piece(piece) => Some(piece),
            ReadStep::End | ReadStep::WouldWait => None,
        }
    }
}

impl Cursor {
    fn step(&mut self, wait: Wait) -> Result<ReadStep, SpoolError> {
        if let Some(piece) = self.kept.take() {
            self.layout = Some(Layout { places: Arc::default(), body_crc: None });
            return Ok(ReadStep::Piece(piece));
        }
        for _ in 0..MOVES_MAX {
            match self.try_step(wait) {
                Err(error) if is_gone(&error) => self.layout = None,
                other => return other,
            }
        }
        self.try_step(wait)
    }

    fn try_step(&mut self, wait: Wait) -> Result<ReadStep, SpoolError> {
        let layout = match self.layout.clone() {
            Some(layout) => layout,
            None => match layout(&self.shared, self.id, wait)? {
                Some(layout) => self.layout.insert(layout).clone(),
                None => return Ok(ReadStep::WouldWait),
            },
        };
        let Some(place) = layout.places.get(self.next).copied() else { return Ok(ReadStep::End) };
        let wanted = Wanted { kind: RecordKind::Chunk, id: self.id, place };
        let Some(bytes) = self.shared.reader.payload(wanted, wait)? else { return Ok(ReadStep::WouldWait) };
        self.crc.update(&bytes);
        self.next += 1;
        let wrong = |whole: u32| self.next == layout.places.len() && self.crc.clone().finalize() != whole;
        if layout.body_crc.is_some_and(wrong) {
            return Err(self.shared.reader.damaged(place, "the chunks do not add up to the message"));
        }
        Ok(ReadStep::Piece(Piece::from(bytes)))
    }
}

/// Compaction may have removed a segment while the message is elsewhere now, so it is worth looking it up again.
fn is_gone(error: &SpoolError) -> bool {
    matches!(error, SpoolError::Failed { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn layout(shared: &SpoolShared, id: MessageId, wait: Wait) -> Result<Option<Layout>, SpoolError> {
    let entry = shared.index().entry(id).ok_or(SpoolError::Unknown(id))?;
    if entry.whole {
        let place = ChunkPlace { segment: entry.home, at: entry.at, length: entry.size as u32 };
        return Ok(Some(Layout { places: Arc::new([place]), body_crc: None }));
    }
    let Some(payload) = commit_payload(shared, id, &entry, wait)? else { return Ok(None) };
    let commit = parse_commit(shared, &entry, &payload)?;
    Ok(Some(Layout { body_crc: Some(commit.body_crc), places: commit.places.into() }))
}

/// The payload of a message's commit; None if reading it would have to wait.
pub(super) fn commit_payload(
    shared: &SpoolShared,
    id: MessageId,
    entry: &IndexEntry,
    wait: Wait,
) -> Result<Option<Vec<u8>>, SpoolError> {
    let (segment, at) = (entry.home, commit_at(entry));
    let Some(length) = shared.reader.length(segment, at, wait)? else { return Ok(None) };
    shared.reader.payload(Wanted { kind: RecordKind::Commit, id, place: ChunkPlace { segment, at, length } }, wait)
}

pub(super) fn parse_commit<'a>(
    shared: &SpoolShared,
    entry: &IndexEntry,
    payload: &'a [u8],
) -> Result<Commit<'a>, SpoolError> {
    let place = ChunkPlace { segment: entry.home, at: commit_at(entry), length: 0 };
    Commit::decode(payload).ok_or_else(|| shared.reader.damaged(place, "the commit cannot be understood"))
}

fn commit_at(entry: &IndexEntry) -> u32 {
    if entry.whole { entry.at + (HEADER as u64 + entry.size) as u32 } else { entry.at }
}

/// Reads the envelope of a message back from the disk.
pub(super) fn envelope(shared: &SpoolShared, id: MessageId, wait: Wait) -> Result<Option<Vec<u8>>, SpoolError> {
    for _ in 0..MOVES_MAX {
        match try_envelope(shared, id, wait) {
            Err(error) if is_gone(&error) => {}
            other => return other,
        }
    }
    try_envelope(shared, id, wait)
}

fn try_envelope(shared: &SpoolShared, id: MessageId, wait: Wait) -> Result<Option<Vec<u8>>, SpoolError> {
    let entry = shared.index().entry(id).ok_or(SpoolError::Unknown(id))?;
    let Some(payload) = commit_payload(shared, id, &entry, wait)? else { return Ok(None) };
    parse_commit(shared, &entry, &payload).map(|commit| Some(commit.envelope.to_vec()))
}

/// Writes a body to a file of its own: all of it or nothing, durable on return.
pub(super) fn write_file(mut body: Body, path: &Path) -> Result<(), SpoolError> {
    let fail = |source| SpoolError::io("write", path, source);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unfinished = folder.join(format!(".{}.unfinished", body.cursor.id));
    let guard = RemoveOnDrop(unfinished.clone());
    let mut file = create_private(&unfinished).map_err(fail)?;
    while let Some(piece) = body.cursor.step(Wait::Long)?.into_piece() {
        file.write_all(&piece).map_err(fail)?;
    }
    file.sync_all().map_err(fail)?;
    fs::rename(&unfinished, path).map_err(fail)?;
    std::mem::forget(guard);
    crate::folder::sync_folder(folder).map_err(fail)
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
