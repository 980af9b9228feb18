//! Reads records from segments at a known position, and checks them.
//!
//! The few segments that were read last stay open. A read is first tried without blocking (`RWF_NOWAIT`), so data that is in the page cache
//! needs no switch to another thread.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::SpoolError;
use super::id::MessageId;
use super::record::{ChunkPlace, HEADER, RecordHeader, RecordKind};
use super::segment::SpoolFile;

/// How many segments stay open for reading.
const OPEN_MAX: usize = 16;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Only from the page cache.
    Never,
    /// As long as it takes; must not be used on a thread that serves others.
    Long,
}

/// The record that a read expects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) kind: RecordKind,
    pub(super) id: MessageId,
    pub(super) place: ChunkPlace,
}

/// The segments as a reader sees them.
#[derive(Debug)]
pub(super) struct Reader {
    folder: PathBuf,
    open: Mutex<VecDeque<(u32, Arc<File>)>>,
}

impl Reader {
    pub(super) fn new(folder: PathBuf) -> Reader {
        Reader { folder, open: Mutex::default() }
    }

    /// The payload of a record; None if reading it would have to wait.
    pub(super) fn payload(&self, wanted: Wanted, wait: Wait) -> Result<Option<Vec<u8>>, SpoolError> {
        let file = self.file(wanted.place.segment)?;
        let (mut head, mut payload) = ([0; HEADER], vec![0; wanted.place.length as usize]);
        let at = u64::from(wanted.place.at);
        match read(&file, (&mut head, &mut payload), at, wait) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(cut) if cut.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged(wanted.place, "the file ends inside the record"));
            }
            Err(source) => return Err(self.failed(wanted.place.segment, source)),
        }
        let header =
            RecordHeader::decode(&head).ok_or_else(|| self.damaged(wanted.place, "a record's head is broken"))?;
        let same = (header.kind, header.id, header.length) == (wanted.kind, wanted.id, wanted.place.length);
        if !same {
            return Err(self.damaged(wanted.place, "another record stands in this place"));
        }
        if crc32fast::hash(&payload) != header.payload_crc {
            return Err(self.damaged(wanted.place, "a checksum does not match"));
        }
        Ok(Some(payload))
    }

    /// How long the payload of the record at a place is.
    pub(super) fn length(&self, segment: u32, at: u32, wait: Wait) -> Result<Option<u32>, SpoolError> {
        let file = self.file(segment)?;
        let mut head = [0; HEADER];
        let place = ChunkPlace { segment, at, length: 0 };
        match read(&file, (&mut head, &mut []), u64::from(at), wait) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(cut) if cut.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged(place, "the file ends inside the record"));
            }
            Err(source) => return Err(self.failed(segment, source)),
        }
        let header = RecordHeader::decode(&head).ok_or_else(|| self.damaged(place, "a record's head is broken"))?;
        Ok(Some(header.length))
    }

    /// Closes a segment that no longer exists.
    pub(super) fn forget(&self, segment: u32) {
        self.open().retain(|(number, _)| *number != segment);
    }

    pub(super) fn damaged(&self, place: ChunkPlace, what: &'static str) -> SpoolError {
        SpoolError::Damaged {
            path: SpoolFile::Segment.path(&self.folder, place.segment),
            at: u64::from(place.at),
            what,
        }
    }

    fn file(&self, segment: u32) -> Result<Arc<File>, SpoolError> {
        let mut open = self.open();
        if let Some(place) = open.iter().position(|(number, _)| *number == segment) {
            let found = open.remove(place);
            open.extend(found);
            return open.back().map(|(_, file)| Arc::clone(file)).ok_or(SpoolError::Closed);
        }
        let path = SpoolFile::Segment.path(&self.folder, segment);
        let file = Arc::new(File::open(&path).map_err(|source| SpoolError::io("open", &path, source))?);
        if open.len() == OPEN_MAX {
            open.pop_front();
        }
        open.push_back((segment, Arc::clone(&file)));
        Ok(file)
    }

    fn failed(&self, segment: u32, source: io::Error) -> SpoolError {
        SpoolError::io("read", &SpoolFile::Segment.path(&self.folder, segment), source)
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<(u32, Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills both buffers; false if that would have to wait.
fn read(file: &File, (head, payload): (&mut [u8], &mut [u8]), at: u64, wait: Wait) -> io::Result<bool> {
    if wait == Wait::Long {
        file.read_exact_at(head, at)?;
        return file.read_exact_at(payload, at + head.len() as u64).map(|()| true);
    }
    let expected = head.len() + payload.len();
    match preadv2(file, &mut [IoSliceMut::new(head), IoSliceMut::new(payload)], at, ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(count == expected),
        // Not in the page cache, or a file system that cannot tell.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR | Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
