//! Zip, read twice: by its directory at the end, as most programs do, and by the header before each member, as some do.
//!
//! Where the two disagree, two programs would see different archives, and that is reported. So is every member that the directory does not
//! name, before the first, between others, after the last, and after the end; these are examined as well. Declared sizes are not trusted:
//! what comes out is counted. Source: PKWARE's APPNOTE 6.3.

use super::super::{Oddity, Walk, bounded_name};
use super::zip_crypt::{AesField, Lock};
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::plain::shown;
use std::io::Read;
use std::ops::Range;

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const DESCRIPTOR: &[u8] = b"PK\x07\x08";
const END: &[u8] = b"PK\x05\x06";
const END_LENGTH: usize = 22;
/// The record at the end, and the longest comment behind it.
const END_AREA: usize = END_LENGTH + 0xffff;
/// Names in Unicode that one member may have.
const NAMES_MAX: usize = 8;
/// A name inside a sentence.
const NAME_SHOWN: usize = 100;

/// Whether there is the end of a zip archive, with a directory where it says.
pub(super) fn has_directory(data: &[u8]) -> bool {
    Directory::find(data).is_some_and(|directory| directory.has_members())
}

/// Where the record at the end begins, if there is one that no reader takes for another.
pub(super) fn end(data: &[u8]) -> Option<usize> {
    let directory = Directory::find(data)?;
    (directory.has_members() && directory.fault.is_none()).then_some(directory.end)
}

/// Whether the header of a member stands at the start, as a program writes it: a version, a known way to pack, a name.
pub(super) fn is_member(data: &[u8]) -> bool {
    let Some((entry, body)) = ZipEntry::local(data, 0) else { return false };
    let known = matches!(entry.method, 0 | 1..=10 | 12 | 14 | 16 | 18..=20 | 93..=99);
    let version = data.get(4).is_some_and(|version| (10..=63).contains(version));
    let name = !entry.name.is_empty() && entry.name.len() <= 1024 && !entry.name.contains(&0);
    known && version && name && body < data.len()
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let Some(directory) = Directory::find(data) else {
        walk.odd_here(Oddity::Unreadable("a zip archive without its directory".into()));
        return unlisted(walk, data, level);
    };
    if let Some(what) = directory.fault {
        walk.odd_here(Oddity::Inconsistent(what.into()));
    }
    let taken = directory.members(walk, data, level)?;
    let gaps = gaps(walk, taken, &directory, data.len());
    for gap in gaps.into_iter().filter(|gap| memchr::memmem::find(&data[gap.clone()], LOCAL).is_some()) {
        walk.odd_here(Oddity::Inconsistent("a zip member that the directory does not name".into()));
        unlisted(walk, &data[gap], level)?;
    }
    Ok(())
}

/// Readers of streams go from header to header: so do we where no directory helps.
pub(super) fn unlisted(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(data.get(from..).unwrap_or(&[]), LOCAL).map(|at| from + at) {
        from = at + LOCAL.len();
        let Some((entry, body)) = ZipEntry::local(data, at) else { continue };
        let rest = data.get(body..).unwrap_or(&[]);
        let known = usize::try_from(entry.packed).ok().filter(|packed| *packed > 0 || !entry.sizes_behind());
        let packed = match known {
            Some(packed) => &rest[..packed.min(rest.len())],
            // What is packed knows its own end; what is not has it told behind.
            None if entry.method == 0 => &rest[..memchr::memmem::find(rest, DESCRIPTOR).unwrap_or(rest.len())],
            None => rest,
        };
        entry.body(walk, packed, level)?;
        if known.is_some() {
            from = body + packed.len();
        }
    }
    Ok(())
}

/// What no member of the directory covers; members that overlap are told.
fn gaps(walk: &mut Walk<'_>, mut taken: Vec<Range<usize>>, directory: &Directory, length: usize) -> Vec<Range<usize>> {
    taken.sort_by_key(|range| range.start);
    let (mut gaps, mut end, mut overlap) = (Vec::new(), 0, false);
    for range in taken {
        overlap |= range.start < end || range.end > directory.at;
        if end < range.start {
            gaps.push(end..range.start);
        }
        end = end.max(range.end);
    }
    if end < directory.at {
        gaps.push(end..directory.at);
    }
    if directory.end < length {
        gaps.push(directory.end..length);
    }
    if overlap {
        walk.odd_here(Oddity::Inconsistent("zip members that overlap".into()));
    }
    gaps
}

struct Directory {
    at: usize,
    /// Where the record at the end begins that belongs to it.
    end: usize,
    count: u64,
    /// How much stands before the archive; negative if its beginning is not there.
    shift: i64,
    /// Why another reader may take another directory.
    fault: Option<&'static str>,
}

impl Directory {
    /// The last one that has members; the last one if none has. Anybody can write an empty end behind an archive.
    fn find(data: &[u8]) -> Option<Directory> {
        let area = data.len().saturating_sub(END_AREA);
        let mut found = None;
        for (tried, at) in memchr::memmem::rfind_iter(&data[area..], END).enumerate() {
            match Directory::at(data, area + at) {
                Some(directory) if directory.has_members() => {
                    let fault = if tried > 0 { Some("two ends of one zip archive") } else { directory.fault };
                    return Some(Directory { fault, ..directory });
                }
                Some(directory) if found.is_none() => found = Some(directory),
                _ => {}
            }
        }
        found
    }

    /// The directory that the record at `end` describes.
    fn at(data: &[u8], end: usize) -> Option<Directory> {
        let (mut count, mut size, mut offset) = (
            u64::from(u16_at(data, end + 10)?),
            u64::from(u32_at(data, end + 12)?),
            u64::from(u32_at(data, end + 16)?),
        );
        let (mut record, mut fault) = (end, None);
        if let Some(wide) = Wide::before(data, end) {
            let same = |narrow: u64, full: u64, wide: u64| narrow == full || narrow == wide;
            let agree = same(count, 0xffff, wide.count)
                && same(size, 0xffff_ffff, wide.size)
                && same(offset, 0xffff_ffff, wide.offset);
            fault = (!agree).then_some("two directories in one zip archive");
            (record, count, size, offset) = (wide.at, wide.count, wide.size, wide.offset);
        }
        let central = |at: &usize| *at < record && data[*at..].starts_with(CENTRAL);
        let by_size = usize::try_from(size).ok().and_then(|size| record.checked_sub(size)).filter(central);
        let by_place = usize::try_from(offset).ok().filter(central);
        let at = match (by_size, by_place) {
            // With something before the archive, some count from the start of the file, some from that of the archive.
            (Some(at), Some(other)) if at != other => {
                fault = Some("two directories in one zip archive");
                at
            }
            (Some(at), _) => at,
            (None, Some(at)) => {
                fault = Some("a zip directory whose size is false");
                at
            }
            (None, None) if count == 0 && size == 0 => record,
            (None, None) => return None,
        };
        let shift = i64::try_from(at).ok()?.saturating_sub(i64::try_from(offset).unwrap_or(i64::MAX));
        Some(Directory { at, end: record, count, shift, fault })
    }

    /// Whether it names any, whatever it counts.
    fn has_members(&self) -> bool {
        self.at < self.end
    }

    /// Opens what it names; where these members stand.
    fn members(&self, walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<Vec<Range<usize>>, Exceeded> {
        let (mut at, mut taken, mut read) = (self.at, Vec::new(), 0);
        // Some readers go by the number, some to the end of the directory: we as far as either.
        while read < self.count || at < self.end {
            let Some((entry, next)) = ZipEntry::central(data, at) else {
                if read < self.count {
                    walk.odd_here(Oddity::Unreadable("a damaged zip directory".into()));
                }
                break;
            };
            if read == self.count {
                walk.odd_here(Oddity::Inconsistent("a zip directory that names more members than it counts".into()));
            }
            (at, read) = (next, read + 1);
            taken.extend(entry.open(walk, data, self.shift, level)?);
        }
        Ok(taken)
    }
}

/// Zip64 has its own record of the directory, and a pointer to it just before the end.
struct Wide {
    at: usize,
    count: u64,
    size: u64,
    offset: u64,
}

impl Wide {
    fn before(data: &[u8], end: usize) -> Option<Wide> {
        let pointer = end.checked_sub(20).filter(|at| data[*at..].starts_with(b"PK\x06\x07"))?;
        let told = usize::try_from(u64_at(data, pointer + 8)?).ok();
        // With something before the archive it is not where the pointer says, and is found all the same.
        let (at, record) = [told, pointer.checked_sub(56)]
            .into_iter()
            .flatten()
            .find_map(|at| Some((at, data.get(at..).filter(|record| record.starts_with(b"PK\x06\x06"))?)))?;
        Some(Wide { at, count: u64_at(record, 32)?, size: u64_at(record, 40)?, offset: u64_at(record, 48)? })
    }
}

/// A member, as the directory or its own header describes it.
struct ZipEntry {
    name: Vec<u8>,
    /// The same name in Unicode, or others that some programs believe.
    unicode: Vec<Vec<u8>>,
    flags: u16,
    method: u16,
    packed: u64,
    size: u64,
    offset: u64,
    /// What the last octet before the member of a traditional password may be.
    check: [u8; 2],
    aes: Option<AesField>,
}

const ENCRYPTED: u16 = 1;
/// The sizes come behind the member.
const SIZES_BEHIND: u16 = 8;
const STRONG: u16 = 0x40;
const UNICODE_PATH: u16 = 0x7075;
/// WinZip's way to encrypt, as a method and as an extra field.
const AES_METHOD: u16 = 99;
const AES_FIELD: u16 = 0x9901;

impl ZipEntry {
    /// From the directory, and where the next one begins.
    fn central(data: &[u8], at: usize) -> Option<(ZipEntry, usize)> {
        let head = data.get(at..)?;
        if !head.starts_with(CENTRAL) {
            return None;
        }
        let lengths = [28, 30, 32].map(|at| u16_at(head, at).map(usize::from));
        let [name, extra, comment] = [lengths[0]?, lengths[1]?, lengths[2]?];
        let mut entry = ZipEntry {
            name: head.get(46..46 + name)?.to_vec(),
            unicode: Vec::new(),
            flags: u16_at(head, 8)?,
            method: u16_at(head, 10)?,
            packed: u64::from(u32_at(head, 20)?),
            size: u64::from(u32_at(head, 24)?),
            offset: u64::from(u32_at(head, 42)?),
            check: [*head.get(19)?, *head.get(13)?],
            aes: None,
        };
        entry.widen(head.get(46 + name..46 + name + extra)?);
        Some((entry, at + 46 + name + extra + comment))
    }

    /// From the header before the member, and where its bytes begin.
    fn local(data: &[u8], at: usize) -> Option<(ZipEntry, usize)> {
        let head = data.get(at..)?;
        if !head.starts_with(LOCAL) {
            return None;
        }
        let (name, extra) = (usize::from(u16_at(head, 26)?), usize::from(u16_at(head, 28)?));
        let mut entry = ZipEntry {
            name: head.get(30..30 + name)?.to_vec(),
            unicode: Vec::new(),
            flags: u16_at(head, 6)?,
            method: u16_at(head, 8)?,
            packed: u64::from(u32_at(head, 18)?),
            size: u64::from(u32_at(head, 22)?),
            offset: at as u64,
            check: [*head.get(17)?, *head.get(11)?],
            aes: None,
        };
        entry.widen(head.get(30 + name..30 + name + extra)?);
        Some((entry, at + 30 + name + extra))
    }

    /// Extra fields. Zip64 keeps large numbers there, in this order, those only that do not fit; Info-ZIP a name in Unicode.
    fn widen(&mut self, mut extra: &[u8]) {
        while let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
            let Some(mut field) = extra.get(4..4 + usize::from(length)) else { return };
            if id == UNICODE_PATH {
                // The last one counts to most.
                self.unicode.truncate(NAMES_MAX - 1);
                self.unicode.extend(field.get(5..).map(<[u8]>::to_vec));
            }
            if id == AES_FIELD {
                self.aes = AesField::read(field);
            }
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
    fn open(&self, walk: &mut Walk<'_>, data: &[u8], shift: i64, level: u32) -> Result<Option<Range<usize>>, Exceeded> {
        let start = i64::try_from(self.offset).ok().and_then(|offset| offset.checked_add(shift));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let Some((start, (local, body))) = start.and_then(|start| Some((start, ZipEntry::local(data, start)?))) else {
            let why = Oddity::Unreadable("a zip member that is not where it should be".into());
            walk.locked(&self.names(), why, level)?;
            return Ok(None);
        };
        if let Some(what) = self.disagrees(&local) {
            walk.odd(&self.names(), Oddity::Inconsistent(what));
            // The other reader sees the other name.
            walk.stored(&local.names(), &[], level)?;
        } else if local.unicode.iter().any(|name| *name != self.name && !self.unicode.contains(name)) {
            // A name in Unicode that only the member itself has: who reads from the beginning goes by that.
            walk.stored(&local.names(), &[], level)?;
        }
        let end = usize::try_from(self.packed).ok().and_then(|packed| body.checked_add(packed));
        let Some(end) = end.filter(|end| *end <= data.len()) else {
            walk.locked(&self.names(), Oddity::Unreadable("a zip member that breaks off".into()), level)?;
            return Ok(None);
        };
        if self.body(walk, &data[body..end], level)? < end - body {
            walk.odd(&self.names(), Oddity::Inconsistent("a zip member that ends before its end".into()));
        }
        Ok(Some(start..end))
    }

    fn disagrees(&self, local: &ZipEntry) -> Option<String> {
        let slashed = |name: &[u8]| name.iter().map(|c| if *c == b'\\' { b'/' } else { *c }).collect::<Vec<u8>>();
        if slashed(&self.name) != slashed(&local.name) {
            let [one, other] = [self, local].map(|entry| shown(&String::from_utf8_lossy(&entry.name), NAME_SHOWN));
            return Some(format!("two names in a zip archive: {one} and {other}"));
        }
        if self.method != local.method || (self.flags ^ local.flags) & ENCRYPTED != 0 {
            return Some("two ways to unpack one zip member".into());
        }
        let sizes = (self.packed, self.size) != (local.packed, local.size);
        (!local.sizes_behind() && sizes).then(|| "two sizes for one zip member".into())
    }

    /// Looks at what is in it; how many of the packed bytes that took.
    fn body(&self, walk: &mut Walk<'_>, packed: &[u8], level: u32) -> Result<usize, Exceeded> {
        if self.flags & (ENCRYPTED | STRONG) != 0 || self.method == AES_METHOD {
            return self.locked(walk, packed, level).map(|()| packed.len());
        }
        self.unlocked(walk, packed, level)
    }

    /// A member with a password, which may be among those that are tried.
    fn locked(&self, walk: &mut Walk<'_>, packed: &[u8], level: u32) -> Result<(), Exceeded> {
        let lock = match (self.method, self.aes) {
            _ if self.flags & STRONG != 0 => None,
            (AES_METHOD, Some(field)) => Some((Lock::Aes(field), field.method)),
            (AES_METHOD, None) => None,
            (method, _) => Some((Lock::Traditional(self.check), method)),
        };
        for password in walk.passwords.clone() {
            walk.budget.time()?;
            walk.budget.room(packed.len())?;
            let Some((lock, method)) = lock else { break };
            if let Some(opened) = lock.opened(packed, password.as_bytes()) {
                let flags = self.flags & !ENCRYPTED;
                let entry = ZipEntry { flags, method, name: self.name.clone(), unicode: self.unicode.clone(), ..*self };
                walk.odd_here(Oddity::PasswordInMail);
                return walk.holding(&opened, |walk, opened| entry.unlocked(walk, opened, level).map(drop));
            }
        }
        walk.locked(&self.names(), Oddity::Encrypted, level)
    }

    fn unlocked(&self, walk: &mut Walk<'_>, packed: &[u8], level: u32) -> Result<usize, Exceeded> {
        let names = self.names();
        let mut deflate = flate2::read::DeflateDecoder::new(packed);
        let mut other: Box<dyn Read + '_>;
        let reader: &mut dyn Read = match self.method {
            0 => {
                if packed.len() as u64 != self.size && !self.sizes_behind() {
                    walk.odd(&names, Oddity::Inconsistent("a zip member whose size is false".into()));
                }
                return walk.stored(&names, packed, level).map(|()| packed.len());
            }
            8 => &mut deflate,
            12 => {
                other = Box::new(bzip2::read::BzDecoder::new(packed));
                &mut *other
            }
            95 => {
                other = Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, 192 << 10));
                &mut *other
            }
            method => {
                let why = format!("a zip member packed by method {method}");
                return walk.locked(&names, Oddity::Unreadable(why), level).map(|()| packed.len());
            }
        };
        let length = walk.member(&names, packed.len() as u64, reader, level)?;
        if length.is_some_and(|length| length != self.size) && !self.sizes_behind() {
            walk.odd(&names, Oddity::Inconsistent("a zip member whose size is false".into()));
        }
        let whole = self.method != 8 || length.is_none();
        Ok(if whole { packed.len() } else { usize::try_from(deflate.total_in()).unwrap_or(packed.len()) })
    }

    fn sizes_behind(&self) -> bool {
        self.flags & SIZES_BEHIND != 0
    }

    /// Every name that some reader would give it.
    fn names(&self) -> Vec<String> {
        let mut names = vec![bounded_name(&self.name)];
        for name in self.unicode.iter().map(|name| bounded_name(name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::seen::Seen;

    /// An archive with one member that has these extra fields.
    fn archive(local: &[u8], central: &[u8]) -> Vec<u8> {
        let plain = crate::test_files::zip("a.txt", b"x");
        let directory = memchr::memmem::find(&plain, CENTRAL).unwrap();
        let end = memchr::memmem::find(&plain, END).unwrap();
        let length = |extra: &[u8]| (extra.len() as u16).to_le_bytes();
        let mut first = plain[..directory].to_vec();
        first[28..30].copy_from_slice(&length(local));
        first.splice(35..35, local.iter().copied());
        let mut entry = plain[directory..end].to_vec();
        entry[30..32].copy_from_slice(&length(central));
        entry.extend(central);
        let sizes = [entry.len() as u32, first.len() as u32].map(u32::to_le_bytes).concat();
        [&first, &entry, &plain[end..end + 12], &sizes, &[0, 0]].concat()
    }

    fn named(name: &str) -> Vec<u8> {
        let head = [UNICODE_PATH.to_le_bytes(), (5 + name.len() as u16).to_le_bytes()].concat();
        [&head, &[1, 0, 0, 0, 0][..], name.as_bytes()].concat()
    }

    #[test]
    fn every_name_in_unicode_is_a_name() {
        let seen = |local: &[u8], central: &[u8]| {
            let Seen { files, odd } = Seen::of("a.zip", &archive(local, central));
            assert_eq!(odd, []);
            files.iter().filter(|file| file.in_archive).map(|file| file.names.join("|")).collect::<Vec<_>>()
        };
        let (run, same, notes) = (named("run.js"), named("a.txt"), named("b.txt"));
        assert_eq!(seen(&same, &same), ["a.txt"]);
        assert_eq!(seen(&run, &run), ["a.txt|run.js"]);
        assert_eq!(seen(b"", &run), ["a.txt|run.js"]);
        assert_eq!(seen(&run, b""), ["a.txt|run.js", "a.txt"]);
        assert_eq!(seen(b"", &[run.clone(), notes.clone()].concat()), ["a.txt|run.js|b.txt"]);
        let many: Vec<u8> = (0..20).flat_map(|number| named(&format!("{number}.txt"))).chain(run).collect();
        assert!(seen(b"", &many)[0].ends_with("|6.txt|run.js"));
    }
}
