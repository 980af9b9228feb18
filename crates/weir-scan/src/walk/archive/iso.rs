//! Images of discs after ISO 9660, with Joliet's second set of names and the long names of Rock Ridge.
//!
//! Both directories are walked: programs differ in which they show. [`super::udf`] reads the third that a disc can have.

use super::super::{Oddity, Walk, bounded_name};
use crate::budget::Exceeded;
use crate::little_endian::u32_at;

const SECTOR: usize = 2048;
/// Where descriptors begin.
const DESCRIPTORS: usize = 16;
const FOLDERS_MAX: usize = 10_000;
/// Places besides the directory in which pieces of one name stand.
const AREAS_MAX: usize = 8;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for descriptor in data.chunks(SECTOR).skip(DESCRIPTORS).take(32) {
        match (descriptor.first(), descriptor.get(1..6)) {
            (Some(kind @ (1 | 2)), Some(b"CD001")) => {
                let joliet = *kind == 2;
                if let Some((from, length)) = extent(descriptor.get(156..).unwrap_or_default()) {
                    directory(walk, data, (from, length), joliet, level)?;
                }
            }
            (Some(255), Some(b"CD001")) | (None, _) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Whether there is a directory to walk.
pub(super) fn has_directory(data: &[u8]) -> bool {
    let descriptors = data.chunks(SECTOR).skip(DESCRIPTORS).take(32);
    let is_volume =
        |descriptor: &&[u8]| matches!(descriptor.first(), Some(1 | 2)) && descriptor.get(1..6) == Some(b"CD001");
    let root = |descriptor: &[u8]| extent(descriptor.get(156..).unwrap_or_default());
    descriptors
        .filter(is_volume)
        .filter_map(root)
        .any(|(from, length)| length > 0 && data.get(from..).is_some_and(|rest| rest.len() >= length))
}

/// Where a directory record says that its file is.
fn extent(record: &[u8]) -> Option<(usize, usize)> {
    Some(((u32_at(record, 2)? as usize).checked_mul(SECTOR)?, u32_at(record, 10)? as usize))
}

/// Walks a directory and those below it, without recursion.
fn directory(walk: &mut Walk<'_>, data: &[u8], root: (usize, usize), joliet: bool, level: u32) -> Result<(), Exceeded> {
    let (mut todo, mut seen) = (vec![root], vec![root.0]);
    while let Some((from, length)) = todo.pop() {
        let Some(records) = data.get(from..from.saturating_add(length).min(data.len())) else {
            walk.odd_here(Oddity::Unreadable("a disc image that breaks off".into()));
            continue;
        };
        for sector in records.chunks(SECTOR) {
            let mut rest = sector;
            while let Some((record, next)) = rest.first().and_then(|size| rest.split_at_checked(usize::from(*size))) {
                let (Some((from, length)), Some(flags)) = (extent(record), record.get(25)) else { break };
                rest = next;
                let name = record.get(33..33 + usize::from(*record.get(32).unwrap_or(&0))).unwrap_or_default();
                if flags & 2 != 0 {
                    // The first two are the directory itself and the one above it.
                    if name.len() > 1 && !seen.contains(&from) && seen.len() < FOLDERS_MAX {
                        seen.push(from);
                        todo.push((from, length));
                    }
                    continue;
                }
                let names = [vec![named(name, joliet)], long_name(data, record).into_iter().collect()].concat();
                member(walk, data, (from, length), &names, level)?;
            }
        }
    }
    Ok(())
}

fn member(
    walk: &mut Walk<'_>,
    data: &[u8],
    (from, length): (usize, usize),
    names: &[String],
    level: u32,
) -> Result<(), Exceeded> {
    let end = from.saturating_add(length).min(data.len());
    walk.stored(names, data.get(from..end).unwrap_or_default(), level)?;
    if end - from.min(end) < length {
        walk.odd(names, Oddity::Unreadable("a disc image that breaks off".into()));
    }
    Ok(())
}

/// The name that Unix programs show (Rock Ridge, section 4.1.4): in pieces behind the usual one, some of them in another place of the image.
fn long_name(data: &[u8], record: &[u8]) -> Option<String> {
    let own = 33 + usize::from(*record.get(32)?);
    let (mut rest, mut name, mut moves) = (record.get(own.next_multiple_of(2)..)?, Vec::new(), 0);
    let mut next = None;
    loop {
        let length = rest.get(2).map_or(0, |length| usize::from(*length));
        let Some((entry, behind)) = rest.split_at_checked(length).filter(|(entry, _)| entry.len() >= 4) else {
            // As many moves as no program writes.
            let Some(place) = next.take().filter(|_| moves < AREAS_MAX) else { break };
            (rest, moves) = (place, moves + 1);
            continue;
        };
        rest = behind;
        match &entry[..2] {
            b"NM" => name.extend_from_slice(entry.get(5..).unwrap_or_default()),
            b"CE" => {
                let number = |at: usize| u32_at(entry, at).map(|number| number as usize);
                let place =
                    number(4).zip(number(12)).and_then(|(block, from)| block.checked_mul(SECTOR)?.checked_add(from));
                next = place
                    .zip(number(20))
                    .and_then(|(from, length)| data.get(from..from.checked_add(length.min(SECTOR))?));
            }
            _ => {}
        }
    }
    (!name.is_empty()).then(|| bounded_name(&name))
}

/// A name without its version.
fn named(name: &[u8], joliet: bool) -> String {
    let text = if joliet {
        let units: Vec<u16> = name.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    } else {
        bounded_name(name)
    };
    text.rsplit_once(';').map_or(text.as_str(), |(name, _)| name).trim_end_matches('.').to_owned()
}
