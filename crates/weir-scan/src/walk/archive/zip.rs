//! Zip, read twice: by its directory at the end, as most programs do, and by the header before each member, as some do.
//!
//! Where the two disagree, two programs would see two archives, and that is told. Sizes are never believed: what comes out is
//! counted. Source: PKWARE's APPNOTE 6.3.

use super::super::{Oddity, Walk};
use super::{u16_at, u32_at, u64_at};
use crate::budget::Exceeded;
use std::io::Read;
use std::ops::Range;

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_LENGTH: usize = 22;
/// The record at the end, and the longest comment behind it.
const END_AREA: usize = END_LENGTH + 0xffff;

/// Whether there is the end of a zip archive, with a directory where it says.
pub(super) fn has_directory(data: &[u8]) -> bool {
    Directory::find(data).is_some_and(|directory| directory.count > 0)
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let Some(directory) = Directory::find(data) else {
        walk.odd_here(Oddity::Unreadable("a zip archive without its directory".into()));
        return without_directory(walk, data, level);
    };
    let (mut at, mut taken) = (directory.at, Vec::new());
    for _ in 0..directory.count {
        let Some((entry, next)) = Entry::central(data, at) else {
            walk.odd_here(Oddity::Unreadable("a damaged zip directory".into()));
            break;
        };
        at = next;
        if let Some(range) = entry.open(walk, data, directory.shift, level)? {
            taken.push(range);
        }
    }
    check_layout(walk, data, taken, directory.shift);
    Ok(())
}

/// Readers of streams go from header to header: so do we when there is nothing else.
fn without_directory(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(data.get(from..).unwrap_or(&[]), LOCAL).map(|at| from + at) {
        let Some((entry, body)) = Entry::local(data, at) else { break };
        let end = body.saturating_add(entry.packed as usize).min(data.len());
        entry.body(walk, &data[body.min(end)..end], level)?;
        from = end.max(at + LOCAL.len());
    }
    Ok(())
}

/// Members that overlap, and members between the members that the directory does not name.
fn check_layout(walk: &mut Walk<'_>, data: &[u8], mut taken: Vec<Range<usize>>, from: usize) {
    taken.sort_by_key(|range| range.start);
    let mut end = from;
    for range in taken {
        if range.start < end {
            return walk.odd_here(Oddity::Inconsistent("zip members that overlap".into()));
        }
        if memchr::memmem::find(&data[end.min(range.start)..range.start], LOCAL).is_some() {
            return walk.odd_here(Oddity::Inconsistent("a zip member that the directory does not name".into()));
        }
        end = range.end;
    }
}

struct Directory {
    at: usize,
    count: u64,
    /// How much stands before the archive.
    shift: usize,
}

impl Directory {
    fn find(data: &[u8]) -> Option<Directory> {
        let area = data.len().saturating_sub(END_AREA);
        let end = area + memchr::memmem::rfind(&data[area..], END)?;
        let (mut count, mut size, mut offset) = (
            u64::from(u16_at(data, end + 10)?),
            u64::from(u32_at(data, end + 12)?),
            u64::from(u32_at(data, end + 16)?),
        );
        let mut directory_end = end;
        // Zip64 has its own record, and a pointer to it just before the end.
        if count == 0xffff || size == 0xffff_ffff || offset == 0xffff_ffff {
            let record = end.checked_sub(20).filter(|at| data[*at..].starts_with(b"PK\x06\x07"));
            if let Some(record) = record.and_then(|at| usize::try_from(u64_at(data, at + 8)?).ok())
                && data.get(record..)?.starts_with(b"PK\x06\x06")
            {
                (count, size, offset) =
                    (u64_at(data, record + 32)?, u64_at(data, record + 40)?, u64_at(data, record + 48)?);
                directory_end = record;
            }
        }
        let at = directory_end.checked_sub(usize::try_from(size).ok()?)?;
        let shift = at.checked_sub(usize::try_from(offset).ok()?)?;
        let found = count == 0 || data.get(at..)?.starts_with(CENTRAL);
        found.then_some(Directory { at, count, shift })
    }
}

/// A member, as the directory or its own header describes it.
struct Entry {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    packed: u64,
    size: u64,
    offset: u64,
}

const ENCRYPTED: u16 = 1;
/// The sizes come behind the member.
const SIZES_BEHIND: u16 = 8;
const STRONG: u16 = 0x40;

impl Entry {
    /// From the directory, and where the next one begins.
    fn central(data: &[u8], at: usize) -> Option<(Entry, usize)> {
        let head = data.get(at..)?;
        if !head.starts_with(CENTRAL) {
            return None;
        }
        let lengths = [28, 30, 32].map(|at| u16_at(head, at).map(usize::from));
        let [name, extra, comment] = [lengths[0]?, lengths[1]?, lengths[2]?];
        let mut entry = Entry {
            name: head.get(46..46 + name)?.to_vec(),
            flags: u16_at(head, 8)?,
            method: u16_at(head, 10)?,
            packed: u64::from(u32_at(head, 20)?),
            size: u64::from(u32_at(head, 24)?),
            offset: u64::from(u32_at(head, 42)?),
        };
        entry.widen(head.get(46 + name..46 + name + extra)?);
        Some((entry, at + 46 + name + extra + comment))
    }

    /// From the header before the member, and where its bytes begin.
    fn local(data: &[u8], at: usize) -> Option<(Entry, usize)> {
        let head = data.get(at..)?;
        if !head.starts_with(LOCAL) {
            return None;
        }
        let (name, extra) = (usize::from(u16_at(head, 26)?), usize::from(u16_at(head, 28)?));
        let mut entry = Entry {
            name: head.get(30..30 + name)?.to_vec(),
            flags: u16_at(head, 6)?,
            method: u16_at(head, 8)?,
            packed: u64::from(u32_at(head, 18)?),
            size: u64::from(u32_at(head, 22)?),
            offset: at as u64,
        };
        entry.widen(head.get(30 + name..30 + name + extra)?);
        Some((entry, at + 30 + name + extra))
    }

    /// Zip64 keeps large numbers in an extra field, in this order, those only that do not fit.
    fn widen(&mut self, mut extra: &[u8]) {
        while let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
            let Some(mut field) = extra.get(4..4 + usize::from(length)) else { return };
            if id == 1 {
                for number in [&mut self.size, &mut self.packed, &mut self.offset] {
                    if let (0xffff_ffff, Some(wide)) = (*number, u64_at(field, 0)) {
                        (*number, field) = (wide, &field[8..]);
                    }
                }
            }
            extra = &extra[4 + usize::from(length)..];
        }
    }

    /// Opens a member of the directory; where it stands in the file.
    fn open(
        &self,
        walk: &mut Walk<'_>,
        data: &[u8],
        shift: usize,
        level: u32,
    ) -> Result<Option<Range<usize>>, Exceeded> {
        let start = usize::try_from(self.offset).ok().and_then(|offset| offset.checked_add(shift));
        let Some((start, (local, body))) = start.and_then(|start| Some((start, Entry::local(data, start)?))) else {
            walk.locked(
                &self.shown(),
                Oddity::Unreadable("a zip member that is not where it should be".into()),
                level,
            )?;
            return Ok(None);
        };
        if let Some(what) = self.disagrees(&local) {
            walk.odd(&[self.shown()], Oddity::Inconsistent(what));
            // The other reader sees the other name.
            walk.stored(&local.shown(), &[], level)?;
        }
        let end = usize::try_from(self.packed).ok().and_then(|packed| body.checked_add(packed));
        let Some(end) = end.filter(|end| *end <= data.len()) else {
            walk.locked(&self.shown(), Oddity::Unreadable("a zip member that breaks off".into()), level)?;
            return Ok(None);
        };
        self.body(walk, &data[body..end], level)?;
        Ok(Some(start..end))
    }

    fn disagrees(&self, local: &Entry) -> Option<String> {
        let plain = |name: &[u8]| name.iter().map(|c| if *c == b'\\' { b'/' } else { *c }).collect::<Vec<u8>>();
        if plain(&self.name) != plain(&local.name) {
            return Some(format!("two names in a zip archive: {} and {}", self.shown(), local.shown()));
        }
        if self.method != local.method || (self.flags ^ local.flags) & ENCRYPTED != 0 {
            return Some("two ways to unpack one zip member".into());
        }
        let sizes = (self.packed, self.size) != (local.packed, local.size);
        (local.flags & SIZES_BEHIND == 0 && sizes).then(|| "two sizes for one zip member".into())
    }

    fn body(&self, walk: &mut Walk<'_>, packed: &[u8], level: u32) -> Result<(), Exceeded> {
        let name = self.shown();
        if self.flags & (ENCRYPTED | STRONG) != 0 || self.method == 99 {
            return walk.locked(&name, Oddity::Encrypted, level);
        }
        let mut reader: Box<dyn Read + '_> = match self.method {
            0 => {
                if packed.len() as u64 != self.size && self.flags & SIZES_BEHIND == 0 {
                    walk.odd(
                        std::slice::from_ref(&name),
                        Oddity::Inconsistent("a zip member whose size is false".into()),
                    );
                }
                return walk.stored(&name, packed, level);
            }
            8 => Box::new(flate2::read::DeflateDecoder::new(packed)),
            12 => Box::new(bzip2::read::BzDecoder::new(packed)),
            95 => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, 192 << 10)),
            method => {
                let why = format!("a zip member packed by method {method}");
                return walk.locked(&name, Oddity::Unreadable(why), level);
            }
        };
        let length = walk.member(&name, packed.len() as u64, &mut reader, level)?;
        if length.is_some_and(|length| length != self.size) && self.flags & SIZES_BEHIND == 0 {
            walk.odd(&[name], Oddity::Inconsistent("a zip member whose size is false".into()));
        }
        Ok(())
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}
