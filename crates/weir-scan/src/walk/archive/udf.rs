//! Images of discs after UDF (ECMA-167): the file system that Windows and macOS prefer where a disc has two.
//!
//! Partitions of the plain kind are read. Content behind defect tables, virtual tables or metadata files is reported as not readable.

use super::super::{Oddity, Walk, bounded_name};
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at, u64_at};
use std::collections::BTreeSet;
use std::io::{self, Read};

const SECTOR: usize = 2048;
const FOLDERS_MAX: usize = 10_000;
/// How many names are read between two looks at the clock.
const NAMES_AT_ONCE: usize = 1024;

/// Kinds of descriptors.
const ANCHOR: u16 = 2;
const POINTER: u16 = 3;
const PARTITION: u16 = 5;
const LOGICAL_VOLUME: u16 = 6;
const TERMINATOR: u16 = 8;
const FILE_SET: u16 = 256;
const IDENTIFIER: u16 = 257;
const FILE: u16 = 261;
const EXTENDED_FILE: u16 = 266;

/// Whether an image has this file system, perhaps beside another.
pub(super) fn is_udf(data: &[u8]) -> bool {
    data.chunks(SECTOR).skip(16).take(32).any(|sector| matches!(sector.get(1..6), Some(b"NSR02" | b"NSR03")))
}

/// Whether there is a directory to walk.
pub(super) fn has_directory(data: &[u8]) -> bool {
    is_udf(data) && Volume::read(data).is_some_and(|(volume, root)| volume.entry(root).is_some())
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let Some((volume, root)) = Volume::read(data) else {
        walk.odd_here(Oddity::Unreadable(
            "a disc image after UDF that is damaged, or of a kind that is not read".into(),
        ));
        return Ok(());
    };
    let (mut todo, mut seen) = (vec![root], BTreeSet::from([root]));
    while let Some(block) = todo.pop() {
        walk.budget.time()?;
        let Some(entry) = volume.entry(block) else {
            broken(walk);
            continue;
        };
        let mut names = Vec::new();
        walk.budget.room(data.len())?;
        let read = volume.reader(&entry).take(data.len() as u64).read_to_end(&mut names);
        let mut identifiers = Identifiers(&names);
        for (number, found) in identifiers.by_ref().enumerate() {
            if number % NAMES_AT_ONCE == 0 {
                walk.budget.time()?;
            }
            let folder = found.flags & 2 != 0;
            // One that was deleted, and the way back.
            if found.flags & 0b1100 != 0 {
                continue;
            }
            if folder {
                if seen.contains(&found.block) {
                    continue;
                }
                if seen.len() >= FOLDERS_MAX {
                    return Err(Exceeded::Entries(FOLDERS_MAX as u32));
                }
                seen.insert(found.block);
                todo.push(found.block);
                continue;
            }
            let shown = [found.name];
            match volume.entry(found.block) {
                Some(entry) => _ = walk.member(&shown, data.len() as u64, &mut volume.reader(&entry), level)?,
                None => walk.locked(&shown, Oddity::Unreadable("a disc image that breaks off".into()), level)?,
            }
        }
        // Behind a name that cannot be read there may be others.
        if read.is_err() || identifiers.0.iter().any(|octet| *octet != 0) {
            broken(walk);
        }
    }
    Ok(())
}

fn broken(walk: &mut Walk<'_>) {
    walk.odd_here(Oddity::Unreadable("a disc image that breaks off".into()));
}

/// The partition with the files.
struct Volume<'d> {
    data: &'d [u8],
    begin: usize,
}

/// A file or folder.
struct FileEntry<'d> {
    length: u64,
    /// How its places are written: 0 short, 1 long, 3 the content itself.
    places: u16,
    written: &'d [u8],
}

impl<'d> Volume<'d> {
    /// The volume, and the block of its root. None if the disc describes itself more than once and not each time in the same way: readers differ in
    /// which description they believe.
    fn read(data: &'d [u8]) -> Option<(Volume<'d>, u32)> {
        let sectors = data.len() / SECTOR;
        let anchors = [256, 512, sectors.saturating_sub(1), sectors.saturating_sub(257)];
        let mut anchors =
            anchors.into_iter().filter_map(|number| sector(data, number)).filter(|sector| is(sector, ANCHOR));
        let anchor = anchors.next()?;
        let places = anchor.get(16..32)?;
        // The first is what readers go by, and the other what they fall back on.
        let (main, reserve) = (Volume::described(data, places)?, places.get(8..16)?);
        let is_alone = reserve.iter().all(|octet| *octet == 0);
        let agree = anchors.all(|other| other.get(16..32) == Some(places))
            && (is_alone || Volume::described(data, reserve).is_some_and(|other| other == main));
        let (begin, root) = main;
        agree.then_some((Volume { data, begin }, root))
    }

    /// What a sequence of descriptors says: where the partition begins, and the block of its root.
    fn described(data: &[u8], place: &[u8]) -> Option<(usize, u32)> {
        let (length, from) = (u32_at(place, 0)? as usize, u32_at(place, 4)? as usize);
        let (mut partitions, mut logical) = (Vec::new(), Vec::new());
        for number in from..from.checked_add((length / SECTOR).min(256))? {
            let descriptor = sector(data, number)?;
            match u16_at(descriptor, 0)? {
                PARTITION => partitions.push((u16_at(descriptor, 22)?, u32_at(descriptor, 188)?)),
                LOGICAL_VOLUME => logical.push(descriptor),
                // It goes on elsewhere.
                POINTER => return None,
                TERMINATOR => break,
                _ => {}
            }
        }
        let (last, before) = logical.split_last()?;
        let said = |descriptor: &[u8]| descriptor.get(212..446).map(<[u8]>::to_vec);
        let logical = Some(*last).filter(|last| before.iter().all(|other| said(other) == said(last)))?;
        let logical = Some(logical).filter(|descriptor| u32_at(descriptor, 212) == Some(SECTOR as u32))?;
        // One map of the plain kind: a file's block is one of the partition.
        let map = logical.get(440..446).filter(|map| map[0] == 1 && u32_at(logical, 268) == Some(1))?;
        let wanted = u16_at(map, 4)?;
        let mut begins = partitions.into_iter().filter(|(number, _)| *number == wanted).map(|(_, begin)| begin);
        let begin = begins.next().filter(|first| begins.all(|other| other == *first))?;
        let volume = Volume { data, begin: (begin as usize).checked_mul(SECTOR)? };
        let set = volume.block(u32_at(logical, 252)?).filter(|set| is(set, FILE_SET))?;
        Some((volume.begin, u32_at(set, 404)?))
    }

    /// From this block of the partition on.
    fn block(&self, number: u32) -> Option<&'d [u8]> {
        let at = (number as usize).checked_mul(SECTOR)?.checked_add(self.begin)?;
        self.data.get(at..).filter(|rest| !rest.is_empty())
    }

    fn entry(&self, block: u32) -> Option<FileEntry<'d>> {
        let sector = self.block(block)?;
        let sector = &sector[..sector.len().min(SECTOR)];
        let sizes = match u16_at(sector, 0)? {
            FILE => 168,
            EXTENDED_FILE => 208,
            _ => return None,
        };
        let (attributes, places) = (u32_at(sector, sizes)? as usize, u32_at(sector, sizes + 4)? as usize);
        let from = attributes.checked_add(sizes + 8)?;
        let written = sector.get(from..from.checked_add(places)?)?;
        Some(FileEntry { length: u64_at(sector, 56)?, places: u16_at(sector, 34)? & 7, written })
    }

    fn reader(&self, entry: &FileEntry<'d>) -> Places<'d> {
        let mut places = Places { found: Vec::new(), left: entry.length, broken: false };
        let size = match entry.places {
            3 => {
                places.found.push(entry.written);
                return places;
            }
            0 => 8,
            1 => 16,
            _ => {
                places.broken = true;
                return places;
            }
        };
        for place in entry.written.chunks_exact(size) {
            let (Some(length), Some(block)) = (u32_at(place, 0), u32_at(place, 4)) else { break };
            let (kind, length) = (length >> 30, (length & 0x3fff_ffff) as usize);
            match self.block(block).and_then(|rest| rest.get(..length)) {
                _ if length == 0 => break,
                Some(content) if kind == 0 => places.found.push(content),
                // What goes on elsewhere, was never written, or lies beyond the end.
                _ => places.broken = true,
            }
        }
        places.found.reverse();
        places
    }
}

fn sector(data: &[u8], number: usize) -> Option<&[u8]> {
    data.get(number.checked_mul(SECTOR)?..)?.get(..SECTOR)
}

/// Whether a descriptor is of this kind, by its tag and the sum of it.
fn is(descriptor: &[u8], kind: u16) -> bool {
    let sum = descriptor.iter().take(16).enumerate().filter(|(at, _)| *at != 4);
    let sum = sum.fold(0u8, |sum, (_, octet)| sum.wrapping_add(*octet));
    u16_at(descriptor, 0) == Some(kind) && descriptor.get(4) == Some(&sum)
}

/// The places of a file, from the last to the first.
struct Places<'d> {
    found: Vec<&'d [u8]>,
    left: u64,
    broken: bool,
}

impl Read for Places<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(place) = self.found.last_mut() {
            let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
            let (taken, rest) = place.split_at(place.len().min(most));
            if taken.is_empty() && most > 0 {
                self.found.pop();
                continue;
            }
            into[..taken.len()].copy_from_slice(taken);
            (*place, self.left) = (rest, self.left - taken.len() as u64);
            return Ok(taken.len());
        }
        if self.broken || self.left > 0 {
            return Err(io::Error::other("a disc image that breaks off"));
        }
        Ok(0)
    }
}

/// The names in a folder.
struct Identifiers<'d>(&'d [u8]);

struct Identifier {
    flags: u8,
    block: u32,
    name: String,
}

impl Iterator for Identifiers<'_> {
    type Item = Identifier;

    fn next(&mut self) -> Option<Identifier> {
        let record = self.0;
        if u16_at(record, 0)? != IDENTIFIER {
            return None;
        }
        let (length, used) = (usize::from(*record.get(19)?), usize::from(u16_at(record, 36)?));
        let name = record.get(38 + used..38 + used + length)?;
        let whole = (38 + used + length).next_multiple_of(4);
        self.0 = record.get(whole..).unwrap_or_default();
        Some(Identifier { flags: record[18], block: u32_at(record, 24)?, name: named(name) })
    }
}

/// A name in one octet a letter, or in two.
fn named(name: &[u8]) -> String {
    match name.split_first() {
        Some((16, rest)) => {
            let units: Vec<u16> = rest.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        Some((8, rest)) => rest.iter().map(|octet| char::from(*octet)).collect(),
        _ => bounded_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use crate::walk::seen::Seen;
    use std::time::Duration;

    /// An image whose root has so many names of files that were deleted, 40 octets each.
    fn deleted(count: usize) -> Vec<u8> {
        let mut image = vec![0; 262 * SECTOR];
        let mut put = |sector: usize, at: usize, octets: &[u8]| {
            image[sector * SECTOR + at..][..octets.len()].copy_from_slice(octets);
        };
        put(256, 0, &[2, 0, 0, 0, 2]);
        put(256, 16, &[0, 16, 0, 0, 1, 1]);
        put(257, 0, &[5]);
        put(257, 188, &[4, 1]);
        put(258, 0, &[6]);
        put(258, 212, &[0, 8]);
        put(258, 268, &[1]);
        put(258, 440, &[1, 6]);
        put(260, 0, &[0, 1, 0, 0, 1]);
        put(260, 404, &[1]);
        put(261, 0, &[5, 1]);
        put(261, 56, &(40 * count as u32).to_le_bytes());
        put(261, 172, &[8]);
        put(261, 176, &[(40 * count as u32).to_le_bytes(), 2u32.to_le_bytes()].concat());
        let mut name = [0; 40];
        name[..2].copy_from_slice(&IDENTIFIER.to_le_bytes());
        name[18] = 4;
        image.extend(name.repeat(count));
        image
    }

    fn opened(image: &[u8], time: Duration) -> (Result<(), Exceeded>, Vec<Oddity>) {
        let (limits, mut seen) = (Limits { time, ..Limits::default() }, Seen::default());
        let opened = open(&mut Walk::new(&mut Budget::new(&limits), &mut seen), image, 0);
        (opened, seen.odd)
    }

    /// Where the names begin.
    const NAMES: usize = 262 * SECTOR;

    #[test]
    fn more_folders_than_are_walked_are_not_left_out_without_a_word() {
        let mut image = deleted(FOLDERS_MAX);
        for (number, name) in image[NAMES..].chunks_mut(40).enumerate() {
            name[18] = 2;
            name[24..28].copy_from_slice(&(1_000_000 + number as u32).to_le_bytes());
        }
        let most = Exceeded::Entries(FOLDERS_MAX as u32);
        assert_eq!(opened(&image, Duration::from_secs(20)).0, Err(most));
        // One that was deleted is none: with the root they are as many as there may be.
        image[NAMES + 18] = 6;
        assert_eq!(opened(&image, Duration::from_secs(20)).0, Ok(()));
    }

    #[test]
    fn a_name_that_cannot_be_read_hides_no_others_without_a_word() {
        let (mut image, long) = (deleted(3), Duration::from_secs(20));
        assert_eq!(opened(&image, long), (Ok(()), vec![]));
        image[NAMES + 40] = 0;
        assert_eq!(opened(&image, long).1.len(), 1);
        image[NAMES + 40..].fill(0);
        assert_eq!(opened(&image, long), (Ok(()), vec![]), "nothing follows");
    }

    #[test]
    fn a_disc_that_describes_itself_in_two_ways_is_not_read_in_one_of_them() {
        type Change<'a> = (usize, usize, &'a [u8]);
        let is_read = |changes: &[Change<'_>]| {
            let mut image = deleted(3);
            for (sector, at, octets) in changes {
                image[sector * SECTOR + at..][..octets.len()].copy_from_slice(octets);
            }
            opened(&image, Duration::from_secs(20)).1.is_empty()
        };
        let second: Change<'_> = (5, 0, &[2, 0, 0, 0, 2]);
        let longer: Change<'_> = (256, 16, &[0, 24]);
        // Of two anchors, sequences, partitions and volumes, those that say the same, and others; and a sequence that goes on elsewhere.
        let cases: [(&[Change<'_>], bool); 9] = [
            (&[], true),
            (&[second, (5, 16, &[0, 16, 0, 0, 1, 1])], true),
            (&[second, (5, 16, &[0, 16, 0, 0, 2, 1])], false),
            (&[(256, 24, &[0, 16, 0, 0, 1, 1])], true),
            (&[(256, 24, &[0, 16, 0, 0, 2, 1])], false),
            (&[longer, (259, 0, &[5]), (259, 188, &[4, 1])], true),
            (&[longer, (259, 0, &[5]), (259, 188, &[3, 1])], false),
            (&[longer, (259, 0, &[6])], false),
            (&[longer, (259, 0, &[3])], false),
        ];
        for (changes, same) in cases {
            assert_eq!(is_read(changes), same, "{changes:?}");
        }
    }

    #[test]
    fn names_take_no_longer_than_there_is_time() {
        let soon = Duration::from_millis(1);
        let image = deleted(200_000);
        assert_eq!(opened(&image, soon), (Err(Exceeded::Time(soon)), vec![]));
        assert_eq!(opened(&image, Duration::from_secs(20)), (Ok(()), vec![]));
    }
}
