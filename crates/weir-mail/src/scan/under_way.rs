//! Which messages are being scanned right now, in a file with a place for each worker.
//!
//! The file is written *before* a scan, into the page cache: this survives a kill, and costs a microsecond and no sync. A process that
//! finds a message here at start knows that its scan was interrupted, perhaps because the message itself ended the process, and counts
//! that as an attempt. So a message cannot end the process again and again (the poison guard). A power cut may lose the file; that does
//! not matter, because a message cannot cause one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use weir_store::spool::MessageId;

/// Bytes of a place: an id, a count, a line end.
const PLACE: usize = 32;
/// A file of ours is shorter; anything else is not read.
const FILE_MAX: u64 = 4 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct UnderWay {
    file: File,
}

impl UnderWay {
    /// Opens the file, and says which messages were under way, each with the number of the attempt.
    pub(super) fn open(path: &Path) -> io::Result<(UnderWay, BTreeMap<MessageId, u32>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut text = Vec::new();
        (&mut file).take(FILE_MAX).read_to_end(&mut text)?;
        let found = text.chunks(PLACE).filter_map(read_place);
        let mut interrupted = BTreeMap::new();
        for (id, attempt) in found {
            let known: &mut u32 = interrupted.entry(id).or_default();
            *known = attempt.max(*known);
        }
        file.set_len(0)?;
        Ok((UnderWay { file }, interrupted))
    }

    /// A worker begins the attempt of this number.
    pub(super) fn begin(&self, worker: usize, id: MessageId, attempt: u32) -> io::Result<()> {
        let text = format!("{:<width$}\n", format!("{id} {attempt}"), width = PLACE - 1);
        self.file.write_all_at(text.as_bytes(), (worker * PLACE) as u64)
    }

    /// A worker is idle.
    pub(super) fn end(&self, worker: usize) -> io::Result<()> {
        let text = format!("{:<width$}\n", "-", width = PLACE - 1);
        self.file.write_all_at(text.as_bytes(), (worker * PLACE) as u64)
    }

    /// Nothing is under way.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }
}

fn read_place(place: &[u8]) -> Option<(MessageId, u32)> {
    let (id, attempt) = std::str::from_utf8(place).ok()?.trim_end().split_once(' ')?;
    Some((id.parse().ok()?, attempt.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_is_known_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("under-way");
        let ids: [MessageId; 2] = ["38exdmxn6hex5qydvved", "38exdmxn6hex5qydvvef"].map(|id| id.parse().unwrap());
        let (file, found) = UnderWay::open(&path).unwrap();
        assert!(found.is_empty());
        file.begin(3, ids[0], 1).unwrap();
        file.begin(0, ids[1], 4_000_000_000).unwrap();
        file.begin(1, ids[1], 2).unwrap();
        file.end(1).unwrap();
        drop(file);
        let (file, found) = UnderWay::open(&path).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(ids[0], 1), (ids[1], 4_000_000_000)]);
        file.begin(0, ids[0], 1).unwrap();
        file.clear().unwrap();
        drop(file);
        assert!(UnderWay::open(&path).unwrap().1.is_empty());
        std::fs::write(&path, [0xff; 1000]).unwrap();
        assert!(UnderWay::open(&path).unwrap().1.is_empty());
    }
}
