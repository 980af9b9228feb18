//! Reads the diary on from a remembered position, in the order in which it was written.

use super::{DiaryLine, files};
use crate::unless_gone;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Read at once. No line is longer.
const READ_BYTES: usize = 1 << 20;

/// How far the diary has been read: a file and the octets of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiaryPosition {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// Some lines of the diary.
#[derive(Debug, Default)]
pub(crate) struct DiaryPart {
    pub(crate) lines: Vec<DiaryLine>,
    /// Where the next part begins.
    pub(crate) next: DiaryPosition,
    /// Octets of the diary behind it, as far as is known.
    pub(crate) behind: u64,
    /// The files between the last part and this one are gone.
    pub(crate) missed: bool,
}

/// The lines behind a position; none at the end. Blocks.
pub(crate) fn read_on(folder: &Path, from: DiaryPosition) -> io::Result<DiaryPart> {
    let files = files(folder)?;
    let Some((first, _)) = files.first() else { return Ok(DiaryPart { next: from, ..DiaryPart::default() }) };
    let last = files.last().map_or(0, |(number, _)| *number);
    // A restored diary may have smaller numbers than the one that was read before.
    let missed = from.file > 0 && from.file < *first;
    let mut at = if from.file < *first || from.file > last { DiaryPosition { file: *first, offset: 0 } } else { from };
    let begin = at.file;
    for (number, path) in files.iter().filter(|(number, _)| *number >= begin) {
        if *number > at.file {
            at = DiaryPosition { file: *number, offset: 0 };
        }
        let Some(mut file) = unless_gone(File::open(path))? else { continue };
        let length = file.metadata()?.len();
        if at.offset > length {
            at.offset = 0;
        }
        let (lines, read) = lines_from(&mut file, at.offset)?;
        if read == 0 {
            continue;
        }
        at.offset += read;
        let later = files.iter().filter(|(later, _)| later > number);
        let later: u64 = later.filter_map(|(_, path)| Some(path.metadata().ok()?.len())).sum();
        return Ok(DiaryPart { lines, next: at, behind: later + length.saturating_sub(at.offset), missed });
    }
    Ok(DiaryPart { next: at, missed, ..DiaryPart::default() })
}

/// Whole lines from an offset on, and how many octets they are.
fn lines_from(file: &mut File, offset: u64) -> io::Result<(Vec<DiaryLine>, u64)> {
    file.seek(SeekFrom::Start(offset))?;
    let mut octets = Vec::with_capacity(READ_BYTES);
    file.take(READ_BYTES as u64).read_to_end(&mut octets)?;
    let end = match octets.iter().rposition(|octet| *octet == b'\n') {
        Some(at) => at + 1,
        // No diary of ours has such a line.
        None if octets.len() == READ_BYTES => READ_BYTES,
        None => 0,
    };
    octets.truncate(end);
    let lines = octets.split(|octet| *octet == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok((lines.collect(), end as u64))
}

#[cfg(test)]
mod tests {
    use super::super::Diary;
    use super::*;
    use std::fs;

    fn all(folder: &Path, mut at: DiaryPosition) -> (Vec<String>, DiaryPosition, bool) {
        let (mut ids, mut missed) = (Vec::new(), false);
        loop {
            let part = read_on(folder, at).unwrap();
            missed |= part.missed;
            if part.lines.is_empty() && part.next == at {
                return (ids, at, missed);
            }
            ids.extend(part.lines.into_iter().map(|line| line.id));
            at = part.next;
        }
    }

    #[test]
    fn every_line_is_read_once_over_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::open(folder.path(), 64 << 10).unwrap();
        let (mut at, mut read) = (DiaryPosition::default(), Vec::new());
        for number in 0..60 {
            diary.note(DiaryLine::new(format!("m{number}"), "accepted", "x".repeat(500)));
            diary.settle();
            if number % 7 == 0 {
                let (ids, next, missed) = all(folder.path(), at);
                assert!(!missed);
                read.extend(ids);
                at = next;
            }
        }
        read.extend(all(folder.path(), at).0);
        assert_eq!(read, (0..60).map(|number| format!("m{number}")).collect::<Vec<_>>());
    }

    #[test]
    fn half_a_line_waits_and_lost_files_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0000000004.jsonl");
        fs::write(&path, "{\"at\":1,\"id\":\"a\",\"event\":\"e\",\"text\":\"\"}\n{\"at\":1,\"id\":\"b\"").unwrap();
        let (ids, at, missed) = all(folder.path(), DiaryPosition { file: 2, offset: 7 });
        assert_eq!((ids, missed), (vec!["a".to_owned()], true));
        let more = ",\"event\":\"e\",\"text\":\"\"}\n";
        fs::write(&path, fs::read_to_string(&path).unwrap() + more).unwrap();
        assert_eq!(all(folder.path(), at).0, ["b"]);
        let (ids, ..) = all(folder.path(), DiaryPosition { file: 9, offset: 7 });
        assert_eq!(ids.len(), 2, "a diary of before begins again");
    }
}
