//! Compaction: copies the few messages that are left in an old segment into the active one, so that the old segment can be removed.
//!
//! The order is such that a crash at any point loses nothing: first the marks are durable beside the new place, then the chunks and the
//! commit are durable in it, then the index changes, then the old sidecar says "finished" (durable before the new segment may ever be
//! removed). After a crash in between, the message exists twice, and the newer copy, which is complete, counts. The work is done in pieces
//! of about a mebibyte, one between two batches.

use std::collections::{BTreeMap, HashMap, btree_map};
use std::fs::File;
use std::time::{Duration, Instant};

use super::SpoolError;
use super::body::{commit_payload, parse_commit};
use super::found::Marks;
use super::id::MessageId;
use super::index::IndexEntry;
use super::log::{Compaction, Segment};
use super::reader::{Wait, Wanted};
use super::record::{Commit, RecordKind};
use super::recovery::read_progress;
use super::segment::SpoolFile;
use super::writer::SpoolWriter;

const BUNCH_BYTES: u64 = 1 << 20;
const RETRY: Duration = Duration::from_secs(10);

/// Messages that move together.
type Bunch = Vec<Move>;

#[derive(Debug)]
struct Move {
    id: MessageId,
    from: IndexEntry,
    to: IndexEntry,
}

impl SpoolWriter {
    /// The oldest segment that is worth emptying.
    pub(super) fn find_job(&mut self) -> Option<Compaction> {
        self.find_job_below(self.log.newest().saturating_sub(self.shared.options.spare_newest))
    }

    fn find_job_below(&mut self, last: u32) -> Option<Compaction> {
        loop {
            let segment = self.find_thin(last)?;
            let ids = self.shared.index().in_segment(segment);
            if self.is_affordable(segment, &ids) {
                return Some(Compaction { segment, ids });
            }
            self.log.segment(segment)?.stuck = true;
        }
    }

    /// Empties all segments that are worth it, at once, except those that this itself fills.
    pub(super) fn compact_all(&mut self) {
        let last = self.log.newest();
        while let Some(job) = self.job.take().or_else(|| self.find_job_below(last)) {
            let segment = job.segment;
            self.job = Some(job);
            while self.job.is_some() {
                self.compact_a_little();
            }
            // One pass is enough: what could not be moved now is left for another time.
            if let Some(left) = self.log.segment(segment) {
                left.stuck = true;
            }
        }
        self.bury();
    }

    /// Moves one bunch.
    pub(super) fn compact_a_little(&mut self) {
        let Some(mut job) = self.job.take() else { return };
        match self.move_bunch(&mut job) {
            Ok(()) if job.ids.is_empty() => {
                self.bury();
                self.look_at = Some(Instant::now());
            }
            Ok(()) => self.job = Some(job),
            Err(error) => {
                tracing::warn!(segment = job.segment, %error, "compaction stopped; it is tried again later");
                self.buffer.clear();
                self.look_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// The oldest segment of which little is needed, up to the number `last`; damaged ones in any case.
    fn find_thin(&self, last: u32) -> Option<u32> {
        let below = self.shared.options.compact_below;
        let is_thin = |segment: &Segment| (segment.live_bytes as f64) < below * segment.length as f64;
        let is_free = |segment: &Segment| segment.live > 0 && segment.drafts == 0 && !segment.stuck;
        self.log
            .sealed()
            .find(|(number, segment)| is_free(segment) && (segment.damaged || *number <= last && is_thin(segment)))
            .map(|(number, _)| number)
    }

    /// Whether a segment is worth emptying: it is not if a long message with a small part in it would cost more to move than the segment gives back.
    fn is_affordable(&mut self, segment: u32, ids: &[MessageId]) -> bool {
        let damaged = self.log.segment(segment).is_some_and(|segment| segment.damaged);
        let index = self.shared.index();
        let cost: u64 = ids.iter().filter_map(|id| index.entry(*id)).map(|entry| entry.size).sum();
        damaged || cost <= self.shared.options.segment_bytes
    }

    fn move_bunch(&mut self, job: &mut Compaction) -> Result<(), SpoolError> {
        let mut bunch = Bunch::new();
        let mut bytes = 0;
        self.take_ground()?;
        while let Some(id) = job.ids.pop() {
            let Some(from) = self.shared.index().entry(id) else { continue };
            // A long message moves alone: its chunks may fill segments of their own.
            if bytes > 0 && bytes + from.size > BUNCH_BYTES {
                job.ids.push(id);
                break;
            }
            bytes += from.size + 1;
            match self.copy(id, &from) {
                Ok(to) => bunch.push(Move { id, from, to }),
                Err(error @ SpoolError::Damaged { .. }) => self.leave_behind(job.segment, id, &error),
                Err(error) => return Err(error),
            }
        }
        self.settle(&bunch)
    }

    /// Stages a copy of a message.
    fn copy(&mut self, id: MessageId, from: &IndexEntry) -> Result<IndexEntry, SpoolError> {
        let shared = self.shared.clone();
        let staged = self.buffer.len();
        let mut copy = || {
            let payload = commit_payload(&shared, id, from, Wait::Long)?.unwrap_or_default();
            let commit = parse_commit(&shared, from, &payload)?;
            let mut places = Vec::with_capacity(commit.places.len());
            for place in &commit.places {
                let chunk = shared.reader.payload(Wanted { kind: RecordKind::Chunk, id, place: *place }, Wait::Long)?;
                let chunk = chunk.unwrap_or_default();
                places.push(self.stage(RecordKind::Chunk, id, &chunk, crc32fast::hash(&chunk))?);
                if from.size > BUNCH_BYTES && self.buffer.len() as u64 > BUNCH_BYTES {
                    self.write_buffer(true).map_err(|setback| self.retreat(setback))?;
                    self.take_ground()?;
                }
            }
            self.stage_commit(id, &Commit { places, ..commit })
        };
        let copied = copy();
        if copied.is_err() {
            self.buffer.truncate(staged);
        }
        copied
    }

    fn leave_behind(&mut self, segment: u32, id: MessageId, error: &SpoolError) {
        tracing::error!(%id, %error, "a damaged message stays where it is until it is finished");
        if let Some(segment) = self.log.segment(segment) {
            segment.stuck = true;
        }
    }

    /// Makes the copies durable, marks first, and switches to them.
    fn settle(&mut self, bunch: &Bunch) -> Result<(), SpoolError> {
        let Some(home) = bunch.first().map(|moved| moved.to.home) else { return Ok(()) };
        self.copy_marks(home, bunch)?;
        self.write_buffer(true).map_err(|setback| {
            self.disown(&setback, bunch.iter().map(|moved| moved.id).collect());
            self.retreat(setback)
        })?;
        for moved in bunch {
            self.switch(moved);
        }
        if let Some(segment) = self.log.segment(home) {
            segment.entangled = true;
        }
        self.sidecars.write();
        Ok(())
    }

    fn copy_marks(&mut self, home: u32, bunch: &Bunch) -> Result<(), SpoolError> {
        let mut by_home: BTreeMap<u32, HashMap<MessageId, Marks>> = BTreeMap::new();
        for moved in bunch {
            let marks = match by_home.entry(moved.from.home) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(vacant) => vacant.insert(self.marks_in(moved.from.home)?),
            };
            self.sidecars.append(home, (RecordKind::Reset, moved.id), &[]);
            for mark in marks.get(&moved.id).iter().flat_map(|marks| marks.iter()) {
                self.sidecars.append(home, (RecordKind::Mark, moved.id), mark);
            }
        }
        self.sidecars.sync(home)
    }

    fn marks_in(&mut self, segment: u32) -> Result<HashMap<MessageId, Marks>, SpoolError> {
        // What is in memory must be in the file before the file is read.
        self.sidecars.sync(segment)?;
        let path = SpoolFile::Sidecar.path(&self.shared.folder, segment);
        let fail = |source| SpoolError::io("read", &path, source);
        let file = File::open(&path).map_err(fail)?;
        let (progress, _) = read_progress(&file, self.marker, &mut |_, _| {}).map_err(fail)?;
        Ok(progress.into_iter().map(|(id, progress)| (id, progress.marks)).collect())
    }

    fn switch(&mut self, moved: &Move) {
        let Move { id, from, to } = moved;
        let stands = self.shared.index().relocate(*id, from, to);
        if stands {
            self.log.enter(to);
            self.log.leave(from);
            // Within one segment the later commit counts anyway, and both share their marks.
            if from.home != to.home {
                self.sidecars.append(from.home, (RecordKind::Finish, *id), &[]);
            }
        } else {
            // It was finished while it was copied; its old place is told by the queue.
            self.sidecars.append(to.home, (RecordKind::Finish, *id), &[]);
        }
    }
}
