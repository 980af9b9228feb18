//! ARJ archives: members stored, or packed by methods 1 to 3 ([`super::lh`]).

use super::super::{Oddity, Walk, bounded_name};
use super::lh::Unpacker;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};

const MARK: &[u8] = b"\x60\xea";
/// A flag: the member has a password.
const GARBLED: u8 = 1;
/// What the first header is about: the archive itself.
const MAIN: u8 = 2;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut rest = data;
    loop {
        let Some((header, behind)) = header(rest) else {
            walk.odd_here(Oddity::Unreadable("a damaged ARJ archive".into()));
            return Ok(());
        };
        if header.is_empty() {
            return Ok(());
        }
        let Some(next) = member(walk, header, behind, level)? else {
            walk.odd_here(Oddity::Unreadable("a damaged ARJ archive".into()));
            return Ok(());
        };
        rest = next;
    }
}

/// The header at the start, empty at the end of the archive, and what is behind it and its extensions.
fn header(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16_at(data.strip_prefix(MARK)?, 0)?);
    if length == 0 {
        return Some((&[], &[]));
    }
    let header = data.get(4..4 + length)?;
    let mut at = 4 + length + 4;
    loop {
        let more = usize::from(u16_at(data, at)?);
        at += 2;
        if more == 0 {
            return Some((header, data.get(at..)?));
        }
        at += more + 4;
    }
}

/// What is behind a member; none if its header makes no sense.
fn member<'d>(walk: &mut Walk<'_>, header: &[u8], behind: &'d [u8], level: u32) -> Result<Option<&'d [u8]>, Exceeded> {
    let (Some(fixed), Some(packed), Some(size)) = (header.get(..8), u32_at(header, 12), u32_at(header, 16)) else {
        return Ok(None);
    };
    if fixed[6] == MAIN {
        return Ok(Some(behind));
    }
    let name = header.get(usize::from(fixed[0])..).unwrap_or_default();
    let names = [bounded_name(&name[..memchr::memchr(0, name).unwrap_or(name.len())])];
    let Some((packed, next)) = behind.split_at_checked(packed as usize) else { return Ok(None) };
    match fixed[5] {
        _ if fixed[4] & GARBLED != 0 => walk.locked(&names, Oddity::Encrypted, level)?,
        0 => walk.stored(&names, packed, level)?,
        1..=3 => {
            let mut reader = Unpacker::new(packed, size.into(), 16);
            walk.member(&names, packed.len() as u64, &mut reader, level)?;
        }
        method => walk.locked(&names, Oddity::Unreadable(format!("an ARJ member of method {method}")), level)?,
    }
    Ok(Some(next))
}
