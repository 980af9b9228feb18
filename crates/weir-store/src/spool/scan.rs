//! Reads the records of a file from front to back, through damage.
//!
//! After a bad record it searches for the next place where the marker begins a record with a correct checksum, so one broken record does
//! not affect any other. Memory: one window, which grows to the longest record that a valid header announces and that fits in the file.
//! Time: linear in the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{HEADER, Marker, RecordHeader};
use super::segment::FILE_HEADER;

const WINDOW: usize = 256 * 1024;
const BLOCK: usize = 4096;
/// What a disk writes completely or not at all.
const SECTOR: u64 = 512;

/// What the scan finds, in the order of the file.
#[derive(Debug)]
pub(super) enum Sight<'a> {
    /// A valid record.
    Record {
        /// Its first byte.
        at: u64,
        /// Its head.
        header: RecordHeader,
        /// What it holds.
        payload: &'a [u8],
    },
    /// Bytes between valid records (or at the end) that are not a record.
    Damage {
        /// The first of them.
        at: u64,
        /// How many.
        length: u64,
        /// Whether a sector of them was never written, as after a power cut.
        hole: bool,
    },
}

/// How the file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    /// Behind the last valid record.
    pub(super) valid: u64,
    /// Behind the last byte that is not zero.
    pub(super) filled: u64,
    /// Whether what follows looks like an interrupted write, and can be cut off.
    pub(super) torn: bool,
}

/// Passes every record of `file` to `see`. If the file is written `ahead`, zeros may follow the last record.
pub(super) fn scan(file: &File, marker: Marker, ahead: bool, see: &mut dyn FnMut(Sight<'_>)) -> io::Result<Ending> {
    let length = file.metadata()?.len();
    let mut window = Window { file, length, at: 0, bytes: Vec::new(), unreadable: false };
    let mut valid = FILE_HEADER.min(length);
    let mut at = valid;
    while let Some(header) = window.header(at, marker) {
        match header.filter(|header| window.checks_out(at, header)) {
            Some(header) => {
                if at > valid {
                    see(Sight::Damage { at: valid, length: at - valid, hole: window.has_hole(valid, at) });
                }
                see(Sight::Record { at, header, payload: window.payload(at, &header) });
                at += header.record_length();
                valid = at;
            }
            None => at = window.next_marker(at + 1, marker),
        }
    }
    let filled = window.filled(valid);
    // A record whose end in zeros is also the end of the file is whole; if more zeros follow, its end may be missing.
    let written = if ahead { filled } else { length };
    let torn = valid < length && (filled == valid || window.is_torn(valid, written, marker)) && !window.unreadable;
    if valid < length && !torn {
        see(Sight::Damage { at: valid, length: filled - valid, hole: window.has_hole(valid, filled) });
    }
    Ok(Ending { valid, filled, torn })
}

/// The part of the file that is in memory.
struct Window<'a> {
    file: &'a File,
    length: u64,
    at: u64,
    bytes: Vec<u8>,
    unreadable: bool,
}

impl Window<'_> {
    /// The bytes from `at` on, at least `count` of them; the caller knows that the file has them.
    fn view(&mut self, at: u64, count: usize) -> &[u8] {
        let inside = at >= self.at && at + count as u64 <= self.at + self.bytes.len() as u64;
        if !inside {
            let wanted = count.max(WINDOW).min((self.length - at) as usize);
            self.bytes.resize(wanted, 0);
            self.at = at;
            if self.file.read_exact_at(&mut self.bytes, at).is_err() {
                self.read_in_blocks();
            }
        }
        &self.bytes[(at - self.at) as usize..]
    }

    /// A bad sector must cost only its own block, not the whole window.
    fn read_in_blocks(&mut self) {
        for (number, block) in self.bytes.chunks_mut(BLOCK).enumerate() {
            if self.file.read_exact_at(block, self.at + (number * BLOCK) as u64).is_err() {
                block.fill(0);
                self.unreadable = true;
            }
        }
    }

    /// The header at `at`: `None` at the end of the file, `Some(None)` if there is none.
    fn header(&mut self, at: u64, marker: Marker) -> Option<Option<RecordHeader>> {
        if at.checked_add(HEADER as u64).is_none_or(|end| end > self.length) {
            return None;
        }
        let header = self.view(at, HEADER).first_chunk().and_then(RecordHeader::decode);
        Some(header.filter(|header| header.marker == marker))
    }

    fn checks_out(&mut self, at: u64, header: &RecordHeader) -> bool {
        at + header.record_length() <= self.length && crc32fast::hash(self.payload(at, header)) == header.payload_crc
    }

    /// What such a record holds; the caller knows that the file has it.
    fn payload(&mut self, at: u64, header: &RecordHeader) -> &[u8] {
        let length = header.record_length() as usize;
        &self.view(at, length)[HEADER..length]
    }

    /// Where the next marker is, or the end of the file.
    fn next_marker(&mut self, mut at: u64, marker: Marker) -> u64 {
        while at + HEADER as u64 <= self.length {
            let view = self.view(at, HEADER);
            if let Some(place) = find(view, &marker) {
                return at + place as u64;
            }
            at += (view.len() - marker.len() + 1) as u64;
        }
        self.length
    }

    /// An interrupted write: an incomplete header, or a record that extends beyond what was `written`.
    fn is_torn(&mut self, valid: u64, written: u64, marker: Marker) -> bool {
        if written < valid + HEADER as u64 {
            return true;
        }
        let end = self.header(valid, marker).flatten().map(|header| valid + header.record_length());
        end.is_some_and(|end| end > written && end != self.length)
    }

    /// Behind the last byte from `at` on that is not zero.
    fn filled(&mut self, mut at: u64) -> u64 {
        let mut filled = at;
        while at < self.length {
            let view = self.view(at, 1);
            let length = view.len() as u64;
            if let Some(last) = view.iter().rposition(|byte| *byte != 0) {
                filled = at + last as u64 + 1;
            }
            at += length;
        }
        filled
    }

    /// Whether all bytes of a sector, as far as it lies between these two positions, are zero.
    fn has_hole(&mut self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let end = (at + 1).next_multiple_of(SECTOR).min(to);
            let length = (end - at) as usize;
            if self.view(at, length)[..length].iter().all(|byte| *byte == 0) {
                return !self.unreadable;
            }
            at = end;
        }
        false
    }
}

fn find(bytes: &[u8], marker: &Marker) -> Option<usize> {
    let mut from = 0;
    while let Some(step) = bytes.get(from..)?.iter().position(|byte| *byte == marker[0]) {
        if bytes[from + step..].starts_with(marker) {
            return Some(from + step);
        }
        from += step + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::id::MessageId;
    use super::super::record::{RecordKind, append};
    use super::super::segment::SpoolFile;
    use super::*;
    use std::io::Write;

    const MARKER: Marker = *b"\x91weirxyz";

    fn file_with(records: &[&[u8]], tail: &[u8]) -> (File, Vec<u8>) {
        let mut bytes = SpoolFile::Segment.header(1, MARKER).to_vec();
        for (number, payload) in records.iter().enumerate() {
            let of = (RecordKind::Chunk, MessageId::of(number as u128));
            append(&mut bytes, MARKER, of, payload, crc32fast::hash(payload));
        }
        bytes.extend_from_slice(tail);
        (file_of(&bytes), bytes)
    }

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn sights_ahead(file: &File, ahead: bool) -> (Vec<u128>, Vec<(u64, u64)>, Ending) {
        let (mut records, mut damage) = (Vec::new(), Vec::new());
        let ending = scan(file, MARKER, ahead, &mut |sight| match sight {
            Sight::Record { header, .. } => records.push(header.id.as_u128()),
            Sight::Damage { at, length, .. } => damage.push((at, length)),
        });
        (records, damage, ending.unwrap())
    }

    fn sights(file: &File) -> (Vec<u128>, Vec<(u64, u64)>, Ending) {
        sights_ahead(file, false)
    }

    #[test]
    fn a_torn_tail_is_told_from_damage() {
        for (tail, torn) in
            [(&b""[..], false), (b"\0\0\0", true), (&[0; 500][..], true), (&[9; 39][..], true), (&[9; 41], false)]
        {
            let (file, bytes) = file_with(&[b"one", b"two"], tail);
            let (records, damage, ending) = sights(&file);
            assert_eq!(records, [0, 1]);
            let valid = (bytes.len() - tail.len()) as u64;
            let filled = valid + if tail.contains(&0) { 0 } else { tail.len() as u64 };
            assert_eq!(ending, Ending { valid, filled, torn });
            assert_eq!(damage.len(), usize::from(!torn && !tail.is_empty()));
        }
        let (_, bytes) = file_with(&[b"one", b"two"], b"");
        let (records, damage, ending) = sights(&file_of(&bytes[..bytes.len() - 1]));
        assert_eq!((records, damage.len(), ending.torn), (vec![0], 0, true));
    }

    #[test]
    fn one_flipped_bit_costs_one_record() {
        let big = vec![0x91; 300_000];
        let (_, bytes) = file_with(&[b"one", &big[..60_000], b"three", b"four"], b"");
        for at in [40, 75, 76, 100, 50_000, 60_120, 60_130] {
            let mut harmed = bytes.clone();
            harmed[at] ^= 4;
            let (records, damage, ending) = sights(&file_of(&harmed));
            assert_eq!((records.len(), damage.len(), ending.torn), (3, 1, false), "byte {at}");
        }
    }

    #[test]
    fn a_last_record_that_ends_in_zeros_is_no_write_cut_short() {
        let (_, whole) = file_with(&[b"one", b"dD\x01\0\0\0"], b"");
        let payload = whole.len() - 6;
        for (at, bit) in [(payload, 1), (payload + 2, 1), (payload - 1, 128)] {
            let mut harmed = whole.clone();
            harmed[at] ^= bit;
            for ahead in [false, true] {
                let (records, damage, ending) = sights_ahead(&file_of(&harmed), ahead);
                assert_eq!((records, damage.len(), ending.torn), (vec![0], 1, false), "byte {at}, ahead: {ahead}");
            }
        }
        // Where zeros follow, the end of the record may not have been written.
        let mut cut = whole.clone();
        cut[payload + 2..].fill(0);
        cut.extend_from_slice(&[0; 1000]);
        let (records, damage, ending) = sights_ahead(&file_of(&cut), true);
        assert_eq!((records, damage.len(), ending.torn), (vec![0], 0, true));
    }

    #[test]
    fn a_record_inside_a_mail_is_not_believed() {
        let mut forged = Vec::new();
        append(
            &mut forged,
            *b"guessed!",
            (RecordKind::Commit, MessageId::of(66)),
            b"forged",
            crc32fast::hash(b"forged"),
        );
        let (_, mut bytes) = file_with(&[&forged, b"two"], b"");
        bytes[33] ^= 1;
        assert_eq!(sights(&file_of(&bytes)).0, [1]);
    }

    #[test]
    fn short_files_are_no_trouble() {
        for length in 0..80 {
            let (records, ..) = sights(&file_of(&vec![0x91; length]));
            assert!(records.is_empty());
        }
    }
}
