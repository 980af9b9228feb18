//! Sparse files in tar archives: of a file with holes only what is between them is kept, with a map of where that belongs.
//!
//! The map stands in the header and in blocks behind it (GNU tar's old format), in an extended header (its formats 0.0 and 0.1), or before the
//! data (its format 1.0). Source: the manual of GNU tar, *Sparse Formats*.

use super::super::tar_header::{BLOCK, number};
use std::collections::VecDeque;
use std::io::{self, Read};

/// No file that somebody sends has more pieces.
const PIECES_MAX: usize = 1 << 16;

/// Which pieces of a file are there, each with its place and length, and how long the whole is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SparseMap {
    pieces: Vec<(u64, u64)>,
    size: Option<u64>,
    /// Where the next piece belongs, if only that was told yet.
    place: Option<u64>,
    /// The map stands before the data.
    is_inside: bool,
    /// There is more than can be read, or other than there may be.
    is_damaged: bool,
}

impl SparseMap {
    /// From the header of a member of the old kind and the blocks behind it; and what is behind these.
    pub(super) fn old<'d>(header: &[u8], mut behind: &'d [u8]) -> (SparseMap, &'d [u8]) {
        let mut map = SparseMap { size: header.get(483..495).and_then(wide), ..SparseMap::default() };
        map.entries(header.get(386..482).unwrap_or_default());
        let mut more = header.get(482).is_some_and(|more| *more != 0);
        while let (true, Some((block, rest))) = (more, behind.split_at_checked(BLOCK)) {
            map.entries(&block[..504]);
            (more, behind) = (block[504] != 0, rest);
        }
        (map, behind)
    }

    fn entries(&mut self, entries: &[u8]) {
        for entry in entries.chunks_exact(24).take_while(|entry| entry[0] != 0) {
            match (wide(&entry[..12]), wide(&entry[12..])) {
                (Some(place), Some(length)) => self.piece(place, length),
                _ => self.is_damaged = true,
            }
        }
    }

    fn piece(&mut self, place: u64, length: u64) {
        match self.pieces.len() {
            PIECES_MAX.. => self.is_damaged = true,
            _ => self.pieces.push((place, length)),
        }
    }

    /// A record of an extended header; none if it cannot be read.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"GNU.sparse.major" => self.is_inside = decimal(value)? >= 1,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" | b"SCHILY.realsize" => self.size = Some(decimal(value)?),
            b"GNU.sparse.offset" => self.place = Some(decimal(value)?),
            b"GNU.sparse.numbytes" => {
                let place = self.place.take()?;
                self.piece(place, decimal(value)?);
            }
            b"GNU.sparse.map" => {
                self.pieces.clear();
                let mut numbers = value.split(|byte| *byte == b',').map(decimal);
                while let Some(place) = numbers.next() {
                    self.piece(place?, numbers.next()??);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Whether it says anything.
    pub(super) fn is_map(&self) -> bool {
        self.is_inside || self.is_damaged || !self.pieces.is_empty()
    }

    /// The file as it is unpacked; none if the map and the data do not fit together.
    pub(super) fn whole(mut self, body: &[u8]) -> Option<Whole<'_>> {
        let mut rest = if self.is_inside { self.leading(body)? } else { body };
        if self.is_damaged {
            return None;
        }
        let (mut steps, mut end) = (VecDeque::new(), 0u64);
        for (place, length) in self.pieces {
            let hole = place.checked_sub(end)?;
            let (piece, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (end, rest) = (place.checked_add(length)?, behind);
            steps.extend([SparseRun::Hole(hole), SparseRun::Data(piece)]);
        }
        steps.push_back(SparseRun::Hole(self.size.unwrap_or(end).checked_sub(end)?));
        Some(Whole(steps))
    }

    /// A map before the data: how many pieces, and place and length of each, every number in a line of its own, filled up to whole blocks.
    fn leading<'d>(&mut self, body: &'d [u8]) -> Option<&'d [u8]> {
        let mut at = 0;
        let mut line = || {
            let rest = body.get(at..)?;
            let length = memchr::memchr(b'\n', &rest[..rest.len().min(21)])?;
            at += length + 1;
            decimal(&rest[..length])
        };
        let count = line()?;
        self.pieces.clear();
        for _ in 0..count {
            self.piece(line()?, line()?);
            if self.is_damaged {
                return None;
            }
        }
        body.get(at.next_multiple_of(BLOCK)..)
    }
}

fn wide(field: &[u8]) -> Option<u64> {
    number(field).and_then(|number| u64::try_from(number).ok())
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

enum SparseRun<'d> {
    Hole(u64),
    Data(&'d [u8]),
}

/// What comes out: holes are zeros.
pub(super) struct Whole<'d>(VecDeque<SparseRun<'d>>);

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(step) = self.0.front_mut() {
            let read = match step {
                SparseRun::Hole(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                    buffer[..length].fill(0);
                    *left -= length as u64;
                    length
                }
                SparseRun::Data(left) => left.read(buffer)?,
            };
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.0.pop_front();
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(map: SparseMap, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        map.whole(body)?.read_to_end(&mut out).unwrap();
        Some(out)
    }

    fn told(records: &[(&str, &str)]) -> SparseMap {
        let mut map = SparseMap::default();
        for (key, value) in records {
            map.record(key.as_bytes(), value.as_bytes()).unwrap();
        }
        map
    }

    const WHOLE: &[u8] = b"\0\0abc\0de\0\0";

    #[test]
    fn maps_of_every_format() {
        let pairs = [("2", "3"), ("6", "2")];
        let mut records = vec![("GNU.sparse.size", "10"), ("GNU.sparse.numblocks", "2")];
        records.extend(
            pairs.iter().flat_map(|(at, length)| [("GNU.sparse.offset", *at), ("GNU.sparse.numbytes", *length)]),
        );
        assert_eq!(read(told(&records), b"abcde").unwrap(), WHOLE);
        let listed = told(&[("GNU.sparse.size", "10"), ("GNU.sparse.map", "2,3,6,2")]);
        assert_eq!(read(listed, b"abcde").unwrap(), WHOLE);
        let inside = told(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "10")]);
        let mut body = b"2\n2\n3\n6\n2\n".to_vec();
        body.resize(BLOCK, 0);
        body.extend(b"abcde");
        assert_eq!(read(inside, &body).unwrap(), WHOLE);
        let mut header = vec![0; BLOCK];
        header[386..410].copy_from_slice(b"00000000002\x0000000000003\0");
        header[482] = 1;
        header[483..495].copy_from_slice(b"00000000012\0");
        let mut block = vec![0; BLOCK];
        block[..24].copy_from_slice(b"00000000006\x0000000000002\0");
        let all = [block, b"abcde".to_vec()].concat();
        let (map, body) = SparseMap::old(&header, &all);
        assert_eq!(read(map, body).unwrap(), WHOLE);
    }

    #[test]
    fn maps_have_a_bound_in_every_format() {
        let is_whole = |map: SparseMap| {
            assert!(map.is_map() && map.pieces.len() <= PIECES_MAX && map.pieces.capacity() <= 2 * PIECES_MAX);
            map.whole(b"").is_some()
        };
        for (count, fits) in [(PIECES_MAX, true), (PIECES_MAX + 1, false)] {
            let listed = vec!["0,0"; count].join(",");
            assert_eq!(is_whole(told(&[("GNU.sparse.map", &listed)])), fits);
            let pairs = [("GNU.sparse.offset", "0"), ("GNU.sparse.numbytes", "0")].repeat(count);
            assert_eq!(is_whole(told(&pairs)), fits);
            // One piece in the header, and the others in blocks behind it.
            let entry = b"00000000000\x0000000000000\0";
            let mut header = vec![0; BLOCK];
            header[386..410].copy_from_slice(entry);
            header[482] = 1;
            let mut blocks = Vec::new();
            for first in (1..count).step_by(21) {
                let mut block = entry.repeat((count - first).min(21));
                block.resize(BLOCK, 0);
                block[504] = u8::from(first + 21 < count);
                blocks.extend(block);
            }
            assert_eq!(is_whole(SparseMap::old(&header, &blocks).0), fits);
        }
    }

    #[test]
    fn maps_that_do_not_fit() {
        assert!(!told(&[("GNU.sparse.size", "10")]).is_map() && !SparseMap::default().is_map());
        for map in ["2,9", "2,3,1,1", "0,5,18446744073709551615,1", "2,3,6,2,20,0"] {
            let map = told(&[("GNU.sparse.size", "10"), ("GNU.sparse.map", map)]);
            assert!(map.is_map() && map.whole(b"abcde").is_none());
        }
        assert_eq!(SparseMap::default().record(b"GNU.sparse.map", b"1,x"), None);
        assert_eq!(SparseMap::default().record(b"GNU.sparse.numbytes", b"1"), None);
        let many = (0..=PIECES_MAX).map(|at| format!("{at}\n0\n")).collect::<String>();
        let many = format!("{}\n{many}{}", PIECES_MAX + 1, " ".repeat(BLOCK));
        let inside = told(&[("GNU.sparse.major", "1")]);
        assert!(inside.clone().whole(many.as_bytes()).is_none());
        let few = many.replacen(&(PIECES_MAX + 1).to_string(), &PIECES_MAX.to_string(), 1);
        assert!(inside.whole(few.as_bytes()).is_some());
        let mut header = vec![b'x'; BLOCK];
        header[482] = 0;
        let (map, _) = SparseMap::old(&header, b"");
        assert!(map.is_map() && map.whole(b"").is_none());
        for body in [b"".as_slice(), b"2\n1\n", b"99999999999999999999999\n", b"18446744073709551615\n0\n0\n"] {
            assert!(told(&[("GNU.sparse.major", "1")]).whole(body).is_none());
        }
    }
}
