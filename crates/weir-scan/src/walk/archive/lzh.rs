//! LHA archives (`.lzh`): headers of levels 0 to 2, members stored or packed ([`super::lh`]).

use super::super::{Oddity, Walk, bounded_name};
use super::lh::Unpacker;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};

/// Up to the level, which says how the rest is written.
const FIXED: usize = 21;

struct LzhHeader<'d> {
    method: &'d [u8],
    packed: usize,
    size: u64,
    name: String,
    /// Where the member begins.
    length: usize,
}

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut rest = data;
    while rest.first().is_some_and(|first| *first != 0) {
        let Some(header) = LzhHeader::read(rest) else {
            walk.odd_here(Oddity::Unreadable("a damaged LHA archive".into()));
            return Ok(());
        };
        let behind = rest.get(header.length..).unwrap_or_default();
        let (packed, next) = behind.split_at(header.packed.min(behind.len()));
        header.member(walk, packed, level)?;
        if packed.len() < header.packed {
            walk.odd_here(Oddity::Unreadable("an LHA archive that breaks off".into()));
        }
        rest = next;
    }
    Ok(())
}

impl LzhHeader<'_> {
    fn read(data: &[u8]) -> Option<LzhHeader<'_>> {
        let fixed = data.get(..FIXED)?;
        let (method, packed, size) = (&fixed[2..7], u32_at(data, 7)? as usize, u32_at(data, 11)?.into());
        let mut header = LzhHeader { method, packed, size, name: String::new(), length: 0 };
        match fixed[20] {
            0 | 1 => {
                header.length = usize::from(fixed[0]) + 2;
                let name = data.get(22..22 + usize::from(*data.get(21)?))?;
                header.name = bounded_name(name);
                if fixed[20] == 1 {
                    let before = header.length;
                    header.extended(data, header.length.checked_sub(2)?)?;
                    header.packed = header.packed.checked_sub(header.length - before)?;
                }
            }
            2 => {
                header.extended(data, 24)?;
                header.length = usize::from(u16_at(data, 0)?);
            }
            _ => return None,
        }
        (header.length >= FIXED).then_some(header)
    }

    /// Further headers, each behind the number that says how long it is.
    fn extended(&mut self, data: &[u8], from: usize) -> Option<()> {
        let (mut at, mut folder) = (from, String::new());
        loop {
            let length = usize::from(u16_at(data, at)?);
            at += 2;
            if length == 0 {
                break;
            }
            let body = data.get(at..at.checked_add(length.checked_sub(2)?)?)?;
            match body.split_first() {
                Some((1, name)) => self.name = bounded_name(name),
                Some((2, path)) => folder = bounded_name(path).replace('\u{fffd}', "/"),
                _ => {}
            }
            at += length - 2;
        }
        self.length = at;
        self.name.insert_str(0, &folder);
        Some(())
    }

    fn member(&self, walk: &mut Walk<'_>, packed: &[u8], level: u32) -> Result<(), Exceeded> {
        let names = [self.name.clone()];
        let window = match self.method {
            b"-lhd-" => return Ok(()),
            b"-lh0-" | b"-lz4-" | b"-pm0-" => return walk.stored(&names, packed, level),
            b"-lh4-" => 12,
            b"-lh5-" => 13,
            b"-lh6-" => 15,
            b"-lh7-" => 16,
            method => {
                let why = format!("an LHA member packed as {}", String::from_utf8_lossy(method));
                return walk.locked(&names, Oddity::Unreadable(why), level);
            }
        };
        walk.member(&names, packed.len() as u64, &mut Unpacker::new(packed, self.size, window), level)?;
        Ok(())
    }
}
