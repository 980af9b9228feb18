//! The segments as the writer sees them: the active one, which grows, and the sealed ones, whose messages are finished one after another.
//!
//! Life of a segment: active (appended to) → sealed (synced, never changed again) → dead (no message and no draft needs it) → removed.
//! After a write or a sync has failed, nothing behind the last good byte is trusted: the segment is cut off there, and after a failed sync
//! also sealed, because the kernel no longer knows which parts of it were not written.
//!
//! Zeros are written ahead of the end of the active segment. A sync of bytes that lie in them is one write of the disk; where a file
//! grows, the file system has to commit its journal as well, which takes two to three times as long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::SpoolError;
use super::disk::Disk;
use super::id::MessageId;
use super::index::{IndexEntry, Span};
use super::reader::Reader;
use super::record::Marker;
use super::segment::{FILE_HEADER, SpoolFile};
use super::sidecar::Sidecars;

/// Zeros are written ahead in steps of this length.
const AHEAD: u64 = 1 << 20;
/// A batch of this length is worth a commit of the journal; writing zeros as well would only be more to write.
const LONG_BATCH: usize = 256 << 10;
static ZEROS: [u8; AHEAD as usize] = [0; AHEAD as usize];

/// All segments.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    disk: Disk,
    marker: Marker,
    segment_bytes: u64,
    segments: BTreeMap<u32, Segment>,
    active: Option<Active>,
    next: u32,
    /// The disk is full, and mail is more important: no zeros are written until a segment has been sealed.
    no_zeros: bool,
    /// How long the last sync took.
    pub(super) last_sync: Duration,
}

/// What is known of one segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) length: u64,
    /// How many messages need it.
    pub(super) live: u32,
    pub(super) live_bytes: u64,
    /// How many drafts have chunks in it.
    pub(super) drafts: u32,
    /// Whether marks elsewhere must be durable before it may be removed: those of messages that had only a part here, or
    /// that came here from another segment.
    pub(super) entangled: bool,
    /// Recovery found damage in it or in its sidecar.
    pub(super) damaged: bool,
    /// Compaction cannot empty it for now.
    pub(super) stuck: bool,
}

/// A segment that is being emptied, and the messages that still have to leave it.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) segment: u32,
    pub(super) ids: Vec<MessageId>,
}

#[derive(Debug)]
struct Active {
    number: u32,
    path: PathBuf,
    file: File,
    length: u64,
    synced: u64,
    /// The file has zeros behind its end, up to here.
    ahead: u64,
}

/// A failure of the active segment, and which of its bytes must not be relied on because of it.
#[derive(Debug)]
pub(super) struct Setback {
    pub(super) error: SpoolError,
    /// The segment and the first byte that is lost.
    pub(super) lost: Option<(u32, u64)>,
    /// Whether the lost bytes may come back after a restart.
    pub(super) may_return: bool,
}

impl Log {
    /// The log in `folder`; `segments` exist already, and the next one gets the number `next`.
    pub(super) fn new(
        (folder, disk): (PathBuf, Disk),
        marker: Marker,
        segment_bytes: u64,
        (segments, next): (BTreeMap<u32, Segment>, u32),
    ) -> Log {
        Log {
            folder,
            disk,
            marker,
            segment_bytes,
            segments,
            active: None,
            next,
            no_zeros: false,
            last_sync: Duration::ZERO,
        }
    }

    /// Makes sure that there is an active segment with space left; returns which it is and how long.
    pub(super) fn ready(&mut self, sidecars: &mut Sidecars) -> Result<(u32, u64), Setback> {
        if self.active.as_ref().is_some_and(|active| active.length >= self.segment_bytes) {
            self.seal()?;
        }
        if self.active.is_none() {
            self.active = Some(self.create(sidecars).map_err(Setback::new)?);
        }
        let end = self.active.as_ref().map(|active| (active.number, active.length));
        end.ok_or_else(|| Setback::new(SpoolError::Closed))
    }

    /// Appends to the active segment, without a sync.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Setback> {
        let Some(active) = self.active.as_mut() else { return Ok(()) };
        match self.disk.write(&active.file, &active.path, bytes, active.length) {
            Ok(()) => {
                active.length += bytes.len() as u64;
                if bytes.len() < LONG_BATCH && !self.no_zeros {
                    self.no_zeros = active.write_ahead(&self.disk, self.segment_bytes).is_err();
                }
                self.note_length();
                Ok(())
            }
            Err(source) => {
                let error = SpoolError::io("write", &active.path, source);
                let keep = active.length;
                Err(self.retreat(error, keep))
            }
        }
    }

    /// Makes everything appended so far durable.
    pub(super) fn sync(&mut self) -> Result<(), Setback> {
        let Some(active) = self.active.as_mut().filter(|active| active.synced < active.length) else { return Ok(()) };
        let start = Instant::now();
        let synced = self.disk.sync(&active.file, &active.path);
        self.last_sync = start.elapsed();
        match synced {
            Ok(()) => {
                active.synced = active.length;
                Ok(())
            }
            Err(source) => {
                // Some file systems report only here that they are full.
                self.no_zeros = true;
                let error = SpoolError::io("sync", &active.path, source);
                let keep = active.synced;
                let setback = self.retreat(error, keep);
                self.active = None;
                Err(Setback { may_return: true, ..setback })
            }
        }
    }

    /// Ends the active segment; the next write begins a new one.
    pub(super) fn seal(&mut self) -> Result<(), Setback> {
        self.sync()?;
        if let Some(active) = self.active.take().filter(|active| active.ahead > active.length) {
            // What stays there only takes space.
            let _ = self.disk.cut(&active.file, &active.path, active.length);
        }
        self.no_zeros = false;
        Ok(())
    }

    /// Whether everything that was appended to the active segment is durable.
    pub(super) fn is_synced(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.synced == active.length)
    }

    /// A message has arrived at its place.
    pub(super) fn enter(&mut self, entry: &IndexEntry) {
        for (span, is_home) in parts(entry) {
            let Some(segment) = self.segments.get_mut(&span.segment) else { continue };
            segment.live += 1;
            segment.live_bytes += u64::from(span.bytes);
            segment.entangled |= !is_home;
        }
    }

    /// A message has left its place.
    pub(super) fn leave(&mut self, entry: &IndexEntry) {
        for (span, _) in parts(entry) {
            if let Some(segment) = self.segments.get_mut(&span.segment) {
                segment.live = segment.live.saturating_sub(1);
                segment.live_bytes = segment.live_bytes.saturating_sub(u64::from(span.bytes));
                segment.stuck = false;
            }
        }
    }

    /// What is known of a segment, to be changed.
    pub(super) fn segment(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(&number)
    }

    /// No segment is removed before all marks are durable.
    pub(super) fn entangle_all(&mut self) {
        self.segments.values_mut().for_each(|segment| segment.entangled = true);
    }

    /// The number of the newest segment.
    pub(super) fn newest(&self) -> u32 {
        self.segments.keys().next_back().copied().unwrap_or(0)
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.segments.iter().map(|(number, segment)| (*number, segment))
    }

    /// The sealed segments, oldest first.
    pub(super) fn sealed(&self) -> impl Iterator<Item = (u32, &Segment)> {
        let active = self.active.as_ref().map(|active| active.number);
        self.segments().filter(move |(number, _)| Some(*number) != active)
    }

    /// Removes segments that are no longer needed, oldest first, up to the first failure. The caller tries again later.
    pub(super) fn bury(&mut self, sidecars: &mut Sidecars, reader: &Reader) -> Result<(), SpoolError> {
        let is_dead = |segment: &Segment| segment.live == 0 && segment.drafts == 0;
        let dead: Vec<(u32, bool)> = self
            .sealed()
            .filter(|(_, segment)| is_dead(segment))
            .map(|(number, segment)| (number, segment.entangled))
            .collect();
        if dead.is_empty() {
            return Ok(());
        }
        if dead.iter().any(|(_, entangled)| *entangled) {
            sidecars.sync_all()?;
        }
        let mut gone = Vec::new();
        let mut result = Ok(());
        for (number, _) in dead {
            let path = SpoolFile::Segment.path(&self.folder, number);
            result = self.disk.remove(&path).map_err(|source| SpoolError::io("remove", &path, source));
            if result.is_err() {
                break;
            }
            reader.forget(number);
            gone.push(number);
        }
        // A sidecar may be removed only when its segment cannot come back, because otherwise its finished messages would come back too.
        let durable = self.disk.sync_folder(&self.folder);
        durable.map_err(|source| SpoolError::io("sync", &self.folder, source))?;
        for number in gone {
            self.segments.remove(&number);
            if let Err(error) = sidecars.remove(number) {
                tracing::debug!(segment = number, %error, "an orphaned sidecar stays until the next start");
            }
        }
        result
    }

    fn create(&mut self, sidecars: &mut Sidecars) -> Result<Active, SpoolError> {
        let number = self.next;
        self.next = self.next.checked_add(1).ok_or(SpoolError::Closed)?;
        let path = SpoolFile::Segment.path(&self.folder, number);
        let created = self.create_files(number, &path, sidecars);
        match created {
            Ok(file) => {
                self.segments.insert(number, Segment { length: FILE_HEADER, ..Segment::default() });
                Ok(Active { number, path, file, length: FILE_HEADER, synced: 0, ahead: FILE_HEADER })
            }
            Err(error) => {
                // What cannot be removed holds no record, and is removed at the next start.
                let _ = self.disk.remove(&path);
                let _ = sidecars.remove(number);
                Err(error)
            }
        }
    }

    fn create_files(&self, number: u32, path: &std::path::Path, sidecars: &mut Sidecars) -> Result<File, SpoolError> {
        let fail = |source| SpoolError::io("create", path, source);
        let file = self.disk.create(path).map_err(fail)?;
        self.disk.write(&file, path, &SpoolFile::Segment.header(number, self.marker), 0).map_err(fail)?;
        sidecars.create(number)?;
        self.disk.sync_folder(&self.folder).map_err(fail)?;
        Ok(file)
    }

    /// Cuts the active segment off behind `keep`. If that fails too, the segment is given up: the part that is not
    /// durable will never be synced, so it is lost as well.
    fn retreat(&mut self, error: SpoolError, keep: u64) -> Setback {
        let Some(active) = self.active.as_mut() else { return Setback::new(error) };
        let cut = self.disk.cut(&active.file, &active.path, keep).is_ok();
        let keep = if cut { keep } else { active.synced };
        active.length = keep.max(FILE_HEADER);
        active.ahead = active.length;
        let lost = Some((active.number, keep));
        self.note_length();
        if !cut {
            self.active = None;
        }
        Setback { error, lost, may_return: !cut }
    }

    fn note_length(&mut self) {
        if let Some(active) = &self.active
            && let Some(segment) = self.segments.get_mut(&active.number)
        {
            segment.length = active.length;
        }
    }
}

impl Active {
    /// Writes zeros behind the end, if none are left there. The next sync makes them durable.
    fn write_ahead(&mut self, disk: &Disk, segment_bytes: u64) -> io::Result<()> {
        let (end, wanted) = (self.ahead.max(self.length), (self.length + AHEAD).min(segment_bytes));
        if self.length <= self.ahead || wanted <= end {
            self.ahead = end;
            return Ok(());
        }
        let zeros = &ZEROS[..(wanted - end) as usize];
        self.ahead = wanted;
        disk.write(&self.file, &self.path, zeros, end).inspect_err(|_| {
            if disk.cut(&self.file, &self.path, end).is_ok() {
                self.ahead = end;
            }
        })
    }
}

impl Setback {
    /// A failure in which nothing that had been written is lost.
    pub(super) fn new(error: SpoolError) -> Setback {
        Setback { error, lost: None, may_return: false }
    }
}

/// Every segment that an entry needs; true for its home.
fn parts(entry: &IndexEntry) -> impl Iterator<Item = (Span, bool)> {
    let home = Span { segment: entry.home, bytes: entry.home_bytes };
    std::iter::once((home, true)).chain(entry.spans.iter().map(|span| (*span, false)))
}
