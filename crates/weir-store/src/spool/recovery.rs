//! Recovery at start: reads from the files which messages there are, where they are, and which marks they have.
//!
//! Each segment is read once, in order, with its sidecar. An incomplete record at the end is cut off. Damage is reported and the file kept
//! in `broken/`; the intact records around it are used. If a message is in two segments (because compaction was interrupted), the newer
//! copy is used. Memory: the index, the envelopes and marks that are handed out, and one window.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::error::Damage;
use super::found::{FoundMessage, Marks};
use super::id::{MessageId, random_u64};
use super::index::{Index, IndexEntry, Span};
use super::log::Segment;
use super::record::{ChunkPlace, Commit, Marker, RecordHeader, RecordKind};
use super::scan::{Ending, Sight, scan};
use super::segment::{FILE_HEADER, SpoolFile};
use super::{SNAPSHOT_PREFIX, SpoolError};

/// At most this many damaged places are remembered.
const DAMAGE_MAX: usize = 1000;

/// Everything that was found in the files.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) marker: Marker,
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) index: Index,
    pub(super) found: Vec<FoundMessage>,
    pub(super) damage: Vec<Damage>,
    /// How often there was damage, including what is not remembered.
    harms: u64,
    /// The number of the next segment.
    pub(super) next: u32,
    /// Records that sidecars need, because a message was in two places, and only one of them counts.
    pub(super) amends: Vec<(u32, RecordKind, MessageId)>,
    folder: PathBuf,
    disk: Disk,
    /// Chunks of drafts that have no commit so far.
    chunks: HashMap<MessageId, Vec<ChunkPlace>>,
}

/// What a sidecar says of one message.
#[derive(Debug, Default)]
pub(super) struct MessageProgress {
    pub(super) marks: Marks,
    finished: bool,
    void: bool,
}

/// Reads the spool in `folder`.
pub(super) fn recover(folder: &Path, disk: &Disk, index: Index) -> Result<Recovery, SpoolError> {
    let fail = |source| SpoolError::io("read", folder, source);
    let numbers = tidy(folder, disk).map_err(fail)?;
    let mut recovery = Recovery {
        marker: marker(folder, &numbers).map_err(fail)?,
        segments: BTreeMap::new(),
        index,
        found: Vec::new(),
        damage: Vec::new(),
        harms: 0,
        next: numbers.last().map_or(1, |last| last.saturating_add(1)),
        amends: Vec::new(),
        folder: folder.to_owned(),
        disk: disk.clone(),
        chunks: HashMap::new(),
    };
    for number in numbers {
        recovery.segment(number)?;
    }
    recovery.settle();
    Ok(recovery)
}

impl Recovery {
    fn segment(&mut self, number: u32) -> Result<(), SpoolError> {
        let path = SpoolFile::Segment.path(&self.folder, number);
        let fail = |source| SpoolError::io("recover", &path, source);
        let harmed_before = self.harms;
        let file = self.disk.open(&path).map_err(fail)?;
        if file_marker(&file, SpoolFile::Segment).is_some_and(|marker| marker != self.marker) {
            self.harm(&path, (0, 0), "this segment belongs to another spool; it is not read");
            return Ok(());
        }
        let progress = self.sidecar(number)?;
        let unsynced = number.saturating_add(1) == self.next && header(&file).is_some_and(|header| header == [0; _]);
        let ahead = unsynced || header(&file).is_some_and(|header| SpoolFile::is_written_ahead(&header));
        let (none, mut commits, mut holes) = (HashMap::new(), 0, Vec::new());
        let what = "not what was written; messages in it are lost, those around it are not";
        let mut ending = scan(&file, self.marker, ahead, &mut |sight| match sight {
            Sight::Record { at, header, payload } => {
                if header.follows_sync {
                    holes.drain(..).for_each(|hole| self.harm(&path, hole, what));
                }
                commits += u32::from(header.kind == RecordKind::Commit);
                self.record((number, at), &header, payload, progress.as_ref().unwrap_or(&none));
            }
            // It may belong to the last batch, which was not acknowledged.
            Sight::Damage { at, length, hole } if hole && ahead => holes.push((at, length)),
            Sight::Damage { at, length, .. } => self.harm(&path, (at, length), what),
        })
        .map_err(fail)?;
        if let Some((first, _)) = holes.first() {
            self.forget_unfinished((number, *first), progress.as_ref().unwrap_or(&none));
            ending.torn |= holes.last().is_some_and(|(last, _)| *last == ending.valid);
        }
        if progress.is_none() && commits > 0 {
            let marks = SpoolFile::Sidecar.path(&self.folder, number);
            self.harm(&marks, (0, 0), "the marks are missing: messages of this segment may be sent again");
        }
        if unsynced {
            // The next start must treat the same holes in the same way, also when this is no longer the newest segment.
            let header = SpoolFile::Segment.header(number, self.marker);
            self.disk.write(&file, &path, &header, 0).map_err(fail)?;
        }
        self.close(&path, &file, ending).map_err(fail)?;
        let damaged = self.harms > harmed_before;
        if damaged {
            self.keep_aside(&path, number, SpoolFile::Segment);
        }
        self.segments.insert(number, Segment { length: ending.valid, damaged, ..Segment::default() });
        Ok(())
    }

    /// Reads a sidecar and prepares it for appending; None if there is none.
    fn sidecar(&mut self, number: u32) -> Result<Option<HashMap<MessageId, MessageProgress>>, SpoolError> {
        let path = SpoolFile::Sidecar.path(&self.folder, number);
        let fail = |source| SpoolError::io("recover", &path, source);
        let there = path.exists();
        let file = if there { self.disk.open(&path) } else { self.disk.create(&path) }.map_err(fail)?;
        if !there {
            self.disk.sync_folder(&self.folder).map_err(fail)?;
        }
        let mut damage = Vec::new();
        let (progress, ending) =
            read_progress(&file, self.marker, &mut |at, length| damage.push((at, length))).map_err(fail)?;
        if !damage.is_empty() {
            self.keep_aside(&path, number, SpoolFile::Sidecar);
        }
        for place in damage {
            self.harm(&path, place, "marks are lost: what they said may be done again");
        }
        self.make_fit(&path, &file, (number, ending)).map_err(fail)?;
        Ok(there.then_some(progress))
    }

    fn record(
        &mut self,
        (segment, at): (u32, u64),
        header: &RecordHeader,
        payload: &[u8],
        progress: &HashMap<MessageId, MessageProgress>,
    ) {
        let Ok(at) = u32::try_from(at) else { return };
        match header.kind {
            RecordKind::Chunk => {
                let place = ChunkPlace { segment, at, length: header.length };
                self.chunks.entry(header.id).or_default().push(place);
            }
            RecordKind::Commit => {
                let chunks = self.chunks.remove(&header.id).unwrap_or_default();
                let place = ChunkPlace { segment, at, length: header.length };
                match Commit::decode(payload) {
                    Some(commit) => self.commit(header.id, (place, &commit), &chunks, progress.get(&header.id)),
                    None => {
                        let path = SpoolFile::Segment.path(&self.folder, segment);
                        let stretch = (u64::from(at), header.record_length());
                        self.harm(&path, stretch, "a commit that cannot be understood; its message is lost");
                    }
                }
            }
            RecordKind::Mark | RecordKind::Finish | RecordKind::Reset | RecordKind::Void => {}
        }
    }

    fn commit(
        &mut self,
        id: MessageId,
        (at, commit): (ChunkPlace, &Commit<'_>),
        chunks: &[ChunkPlace],
        progress: Option<&MessageProgress>,
    ) {
        if progress.is_some_and(|progress| progress.void) {
            return;
        }
        let former = self.index.home(id);
        let total: u64 = commit.places.iter().map(|place| u64::from(place.length)).sum();
        let mut seen = chunks.iter();
        let intact = total == commit.size && commit.places.iter().all(|place| seen.any(|chunk| chunk == place));
        let elsewhere = former.filter(|former| *former != at.segment);
        if !intact && former.is_some() {
            self.amends.extend(elsewhere.map(|_| (at.segment, RecordKind::Void, id)));
            return;
        }
        self.amends.extend(elsewhere.map(|former| (former, RecordKind::Finish, id)));
        if former == Some(at.segment) {
            self.found.retain(|found| found.id != id);
        }
        if former.is_some() {
            self.index.remove(id);
        }
        if progress.is_some_and(|progress| progress.finished) {
            return;
        }
        self.index.insert(id, entry(at, commit));
        let marks = progress.map(|progress| progress.marks.clone()).unwrap_or_default();
        let envelope = commit.envelope.into();
        self.found.push(FoundMessage { id, envelope, size: commit.size, marks, intact, home: at.segment });
    }

    /// Messages behind a hole in the batch that a power cut interrupted, whose bodies are in the hole. Nobody was told that they had been
    /// accepted, so they are forgotten. One that the sidecar knows was accepted earlier, and is a copy that compaction made.
    fn forget_unfinished(&mut self, (segment, hole): (u32, u64), progress: &HashMap<MessageId, MessageProgress>) {
        let index = &mut self.index;
        self.found.retain(|found| {
            let here = found.home == segment && index.entry(found.id).is_some_and(|entry| u64::from(entry.at) >= hole);
            let unfinished = here && !found.intact && !progress.contains_key(&found.id);
            if unfinished {
                index.remove(found.id);
            }
            !unfinished
        });
    }

    /// Cuts off an incomplete end, and makes sure that what was found is durable.
    fn close(&self, path: &Path, file: &File, ending: Ending) -> io::Result<()> {
        if ending.torn {
            let bytes = ending.filled - ending.valid;
            if bytes > 0 {
                tracing::info!(path = %path.display(), bytes, "a write was cut short by a crash: its bytes are dropped");
            }
            self.disk.cut(file, path, ending.valid)?;
        }
        self.disk.sync(file, path)
    }

    /// A sidecar will be appended to again: whatever follows its last record must be removed, and its header must be there.
    fn make_fit(&self, path: &Path, file: &File, (number, ending): (u32, Ending)) -> io::Result<()> {
        let length = file.metadata()?.len();
        if file_marker(file, SpoolFile::Sidecar) != Some(self.marker) || length != ending.valid {
            self.disk.cut(file, path, ending.valid)?;
            self.disk.write(file, path, &SpoolFile::Sidecar.header(number, self.marker), 0)?;
        }
        self.disk.sync(file, path)
    }

    fn harm(&mut self, path: &Path, (at, length): (u64, u64), what: &'static str) {
        self.harms += 1;
        let damage = Damage { path: path.to_owned(), at, length, what };
        if self.damage.len() < DAMAGE_MAX {
            tracing::error!(%damage, "the spool is damaged");
            self.damage.push(damage);
        }
    }

    /// Keeps a damaged file for the operator, whatever happens to the original.
    fn keep_aside(&self, path: &Path, number: u32, part: SpoolFile) {
        let broken = self.folder.join("broken");
        let keep = || {
            fs::create_dir_all(&broken)?;
            let kept = broken.join(format!("{number:08}-{}.{}", fs::metadata(path)?.ino(), part.ending()));
            match part {
                _ if kept.exists() => Ok(()),
                // A sealed segment does not change any more; a sidecar does.
                SpoolFile::Segment => fs::hard_link(path, &kept).or_else(|_| fs::copy(path, &kept).map(|_| ())),
                SpoolFile::Sidecar => fs::copy(path, &kept).map(|_| ()),
            }
        };
        if let Err(error) = keep() {
            tracing::warn!(path = %path.display(), %error, "the damaged file cannot be kept in broken/");
        }
    }

    /// If a message was found twice, only the newer copy counts; puts messages in the order of their ids.
    fn settle(&mut self) {
        let index = &self.index;
        self.found.retain(|found| index.home(found.id) == Some(found.home));
        self.found.sort_unstable_by_key(|found| found.id);
        self.found.shrink_to_fit();
        self.chunks = HashMap::new();
        self.damage.shrink_to_fit();
    }
}

/// What a sidecar says about each message.
pub(super) fn read_progress(
    file: &File,
    marker: Marker,
    harm: &mut dyn FnMut(u64, u64),
) -> io::Result<(HashMap<MessageId, MessageProgress>, Ending)> {
    let mut all: HashMap<MessageId, MessageProgress> = HashMap::new();
    let ending = scan(file, marker, false, &mut |sight| match sight {
        Sight::Damage { at, length, .. } => harm(at, length),
        Sight::Record { header, payload, .. } => {
            let progress = all.entry(header.id).or_default();
            match header.kind {
                RecordKind::Mark => progress.marks.push(payload),
                RecordKind::Finish => *progress = MessageProgress { finished: true, ..MessageProgress::default() },
                RecordKind::Void => *progress = MessageProgress { void: true, ..MessageProgress::default() },
                RecordKind::Reset => *progress = MessageProgress::default(),
                RecordKind::Chunk | RecordKind::Commit => {}
            }
        }
    })?;
    Ok((all, ending))
}

/// The place of a message in the index.
pub(super) fn entry(at: ChunkPlace, commit: &Commit<'_>) -> IndexEntry {
    let mut entry = IndexEntry::new(at.segment, at.at, commit.size);
    let mut home_bytes = at.record_length();
    let mut spans: Vec<Span> = Vec::new();
    for place in &commit.places {
        match spans.last_mut() {
            _ if place.segment == at.segment => home_bytes += place.record_length(),
            Some(span) if span.segment == place.segment => {
                span.bytes = span.bytes.saturating_add(place.record_length() as u32);
            }
            _ => spans.push(Span { segment: place.segment, bytes: place.record_length() as u32 }),
        }
    }
    if let [only] = commit.places[..]
        && only.segment == at.segment
        && u64::from(only.at) + only.record_length() == u64::from(at.at)
        && u64::from(only.length) == commit.size
    {
        entry.at = only.at;
        entry.whole = true;
    }
    entry.home_bytes = u32::try_from(home_bytes).unwrap_or(u32::MAX);
    entry.spans = spans.into_boxed_slice();
    entry
}

/// Removes what a crash left unfinished, and lists the segments.
fn tidy(folder: &Path, disk: &Disk) -> io::Result<Vec<u32>> {
    let (mut segments, mut sidecars) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str().and_then(SpoolFile::of_name) {
            Some((SpoolFile::Segment, number)) if is_blank(&entry.path())? => {
                disk.remove(&SpoolFile::Segment.path(folder, number))?;
            }
            Some((SpoolFile::Segment, number)) => segments.push(number),
            Some((SpoolFile::Sidecar, number)) => sidecars.push(number),
            None if name.to_string_lossy().starts_with(SNAPSHOT_PREFIX) => fs::remove_dir_all(entry.path())?,
            None => {}
        }
    }
    for number in sidecars {
        if !segments.contains(&number) {
            disk.remove(&SpoolFile::Sidecar.path(folder, number))?;
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

/// A segment that was only just begun.
fn is_blank(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.len() <= FILE_HEADER)
}

/// The marker of this spool: from its file, or from any other file that still has it, or a new one.
fn marker(folder: &Path, segments: &[u32]) -> io::Result<Marker> {
    let path = folder.join("marker");
    if let Some(marker) = File::open(&path).ok().and_then(|file| file_marker(&file, SpoolFile::Segment)) {
        return Ok(marker);
    }
    let mut known = segments.iter().flat_map(|number| {
        [SpoolFile::Segment, SpoolFile::Sidecar]
            .into_iter()
            .filter_map(|part| file_marker(&File::open(part.path(folder, *number)).ok()?, part))
    });
    let marker = known.next().unwrap_or_else(|| random_u64().to_le_bytes());
    let unfinished = folder.join("marker.new");
    fs::write(&unfinished, SpoolFile::Segment.header(0, marker))?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, &path)?;
    crate::folder::sync_folder(folder)?;
    Ok(marker)
}

fn header(file: &File) -> Option<[u8; FILE_HEADER as usize]> {
    let mut bytes = [0; FILE_HEADER as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

fn file_marker(file: &File, part: SpoolFile) -> Option<Marker> {
    part.marker(&header(file)?)
}

#[cfg(test)]
mod tests {
    use super::super::record::append_after;
    use super::*;

    const MARKER: Marker = *b"\x91weirxyz";

    /// A segment of these batches, each of one message of 2 000 bytes, with zeros behind them; the places of the bodies.
    struct Written {
        folder: tempfile::TempDir,
        bodies: Vec<usize>,
        bytes: Vec<u8>,
    }

    /// The first record of every batch says that all before it was durable, but for those in `unsynced`.
    fn written(batches: u128, unsynced: &[u128]) -> Written {
        let mut bytes = SpoolFile::Segment.header(1, MARKER).to_vec();
        let mut bodies = Vec::new();
        for number in 1..=batches {
            bodies.push(append_message(&mut bytes, 1, MessageId::of(number), !unsynced.contains(&number)));
        }
        bytes.resize(bytes.len() + 100_000, 0);
        Written { folder: tempfile::tempdir().unwrap(), bodies, bytes }
    }

    /// A message of 2 000 bytes in segment `segment`; where its body begins.
    fn append_message(bytes: &mut Vec<u8>, segment: u32, id: MessageId, follows_sync: bool) -> usize {
        let (body, at) = (vec![b'x'; 2_000], bytes.len());
        let crc = crc32fast::hash(&body);
        append_after(follows_sync, bytes, MARKER, (RecordKind::Chunk, id), (&body, crc));
        let place = ChunkPlace { segment, at: at as u32, length: 2_000 };
        let commit = Commit { size: 2_000, body_crc: crc, places: vec![place], envelope: b"from to" };
        let mut payload = Vec::new();
        commit.encode(&mut payload);
        let crc = crc32fast::hash(&payload);
        append_after(false, bytes, MARKER, (RecordKind::Commit, id), (&payload, crc));
        at + super::super::record::HEADER
    }

    /// A sector in this body never reached the disk.
    fn punch(bytes: &mut [u8], body: usize) {
        let at = body.next_multiple_of(512);
        bytes[at..at + 512].fill(0);
    }

    /// A segment, and the records of its sidecar: of what kind, and of which message.
    type WithSidecar<'a> = (&'a [u8], &'a [(RecordKind, u128)]);

    /// A spool of these segments, the first of which is number 1.
    fn spool_of(segments: &[WithSidecar<'_>]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("marker"), SpoolFile::Segment.header(0, MARKER)).unwrap();
        for (number, (bytes, progress)) in (1..).zip(segments) {
            fs::write(SpoolFile::Segment.path(folder.path(), number), bytes).unwrap();
            let mut sidecar = SpoolFile::Sidecar.header(number, MARKER).to_vec();
            for (kind, id) in *progress {
                append_after(false, &mut sidecar, MARKER, (*kind, MessageId::of(*id)), (b"", 0));
            }
            fs::write(SpoolFile::Sidecar.path(folder.path(), number), sidecar).unwrap();
        }
        folder
    }

    /// What a start finds: id, home and whether the message is whole; and how often damage was reported.
    fn start(folder: &tempfile::TempDir) -> (Vec<(u128, u32, bool)>, usize) {
        let recovery = recover(folder.path(), &Disk::default(), Index::new(0)).unwrap();
        let found = recovery.found.iter().map(|found| (found.id.as_u128(), found.home, found.intact)).collect();
        (found, recovery.damage.len())
    }

    impl Written {
        fn hole_in_body(mut self, number: usize) -> Written {
            punch(&mut self.bytes, self.bodies[number - 1]);
            self
        }

        /// What is found at two starts, one after the other: the messages, those that are whole, and how often damage was reported.
        fn found(&self) -> (usize, usize, usize) {
            let path = SpoolFile::Segment.path(self.folder.path(), 1);
            fs::write(&path, &self.bytes).unwrap();
            fs::write(self.folder.path().join("marker"), SpoolFile::Segment.header(0, MARKER)).unwrap();
            fs::write(SpoolFile::Sidecar.path(self.folder.path(), 1), SpoolFile::Sidecar.header(1, MARKER)).unwrap();
            let look = || {
                let recovery = recover(self.folder.path(), &Disk::default(), Index::new(0)).unwrap();
                assert_eq!(recovery.index.len(), recovery.found.len());
                let intact = recovery.found.iter().filter(|found| found.intact).count();
                (recovery.found.len(), intact, recovery.damage.len())
            };
            let first = look();
            assert_eq!(look(), first, "the second start says something else");
            first
        }
    }

    #[test]
    fn the_zeros_ahead_are_no_damage_and_go() {
        let written = written(3, &[]);
        assert_eq!(written.found(), (3, 3, 0));
        let path = SpoolFile::Segment.path(written.folder.path(), 1);
        assert_eq!(fs::metadata(path).unwrap().len() as usize, written.bytes.len() - 100_000);
    }

    #[test]
    fn a_hole_is_damage_unless_nothing_says_that_it_was_durable() {
        // In the last batch: a power cut leaves this, and nobody was told that the message had been accepted.
        assert_eq!(written(3, &[]).hole_in_body(3).found(), (2, 2, 0));
        // Before that: it was acknowledged, and its envelope can still tell the sender.
        assert_eq!(written(3, &[]).hole_in_body(2).found(), (3, 2, 1));
        // There was no sync between the two.
        assert_eq!(written(3, &[3]).hole_in_body(2).found(), (2, 2, 0));
        assert_eq!(written(4, &[3]).hole_in_body(2).found(), (4, 3, 1));
    }

    #[test]
    fn a_flipped_bit_is_damage_also_in_the_last_batch() {
        let mut flipped = written(3, &[]);
        let at = flipped.bodies[2] + 700;
        flipped.bytes[at] ^= 1;
        assert_eq!(flipped.found(), (3, 2, 1));
    }

    #[test]
    fn an_older_segment_has_no_zeros_ahead_and_every_hole_in_it_is_damage() {
        let mut old = written(3, &[1, 2, 3]).hole_in_body(3);
        old.bytes[9] = 0;
        let crc = crc32fast::hash(&old.bytes[..28]);
        old.bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(old.found(), (3, 2, 1));
    }

    #[test]
    fn a_record_that_runs_into_the_zeros_was_cut_short() {
        let mut torn = written(3, &[]);
        let at = torn.bodies[2] + 100;
        torn.bytes[at..].fill(0);
        assert_eq!(torn.found(), (2, 2, 0));
    }

    #[test]
    fn a_whole_copy_behind_a_hole_counts_though_the_original_is_damaged() {
        let mut original = SpoolFile::Segment.header(1, MARKER).to_vec();
        let body = append_message(&mut original, 1, MessageId::of(7), true);
        original[body + 700] ^= 1;
        // Compaction was copying when the power went: the batch was not acknowledged, but message 7 was, long before.
        let mut copies = SpoolFile::Segment.header(2, MARKER).to_vec();
        let other = append_message(&mut copies, 2, MessageId::of(8), false);
        append_message(&mut copies, 2, MessageId::of(7), false);
        punch(&mut copies, other);
        let folder = spool_of(&[(&original, &[]), (&copies, &[])]);
        assert_eq!(start(&folder), (vec![(7, 2, true)], 1));
    }

    #[test]
    fn a_copy_with_a_hole_is_told_where_nothing_else_is_left_of_its_message() {
        let mut original = SpoolFile::Segment.header(1, MARKER).to_vec();
        let body = append_message(&mut original, 1, MessageId::of(7), true);
        // The commit is damaged, so the first segment has no such message any more.
        original[body + 2_000 + 50] ^= 1;
        let mut copy = SpoolFile::Segment.header(2, MARKER).to_vec();
        let body = append_message(&mut copy, 2, MessageId::of(7), false);
        append_message(&mut copy, 2, MessageId::of(8), false);
        punch(&mut copy, body);
        let folder = spool_of(&[(&original, &[]), (&copy, &[(RecordKind::Reset, 7)])]);
        assert_eq!(start(&folder).0, [(7, 2, false), (8, 2, true)]);
    }

    #[test]
    fn only_the_newest_segment_may_lack_its_header_because_of_a_power_cut() {
        let segment = |number: u32, follows_sync| {
            let mut bytes = SpoolFile::Segment.header(number, MARKER).to_vec();
            bytes[..FILE_HEADER as usize].fill(0);
            let body = append_message(&mut bytes, number, MessageId::of(u128::from(number)), follows_sync);
            punch(&mut bytes, body);
            bytes
        };
        let mut last = segment(2, false);
        append_message(&mut last, 2, MessageId::of(3), false);
        let folder = spool_of(&[(&segment(1, false), &[]), (&last, &[])]);
        let expected = (vec![(1, 1, false), (3, 2, true)], 1);
        assert_eq!(start(&folder), expected);
        // There is a third segment now, so the second is no longer the newest.
        let mut third = SpoolFile::Segment.header(3, MARKER).to_vec();
        append_message(&mut third, 3, MessageId::of(4), true);
        fs::write(SpoolFile::Segment.path(folder.path(), 3), third).unwrap();
        fs::write(SpoolFile::Sidecar.path(folder.path(), 3), SpoolFile::Sidecar.header(3, MARKER)).unwrap();
        assert_eq!(start(&folder), (vec![(1, 1, false), (3, 2, true), (4, 3, true)], 1));
    }

    #[test]
    fn an_older_segment_whose_end_is_gone_is_damaged() {
        let mut old = written(3, &[1, 2, 3]);
        old.bytes.truncate(old.bytes.len() - 100_000);
        old.bytes[9] = 0;
        let crc = crc32fast::hash(&old.bytes[..28]);
        old.bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        let end = old.bytes.len();
        old.bytes[end - 30..].fill(0);
        assert_eq!(old.found(), (2, 2, 1));
    }
}
