//! Files that `lzop` packed: blocks of LZO behind a header with a name.

use super::super::{File, Walk, bounded_name};
use crate::budget::Exceeded;
use std::io::{self, Read};

/// The mark at the start.
const MAGIC: &[u8] = b"\x89LZO\0\r\n\x1a\n";
/// `lzop` itself refuses larger blocks.
const BLOCK_MAX: usize = 64 << 20;

/// Flags of a header: which sums follow the sizes of a block, and what else is in the header.
const ADLER32_UNPACKED: u32 = 0x1;
const ADLER32_PACKED: u32 = 0x2;
const EXTRA: u32 = 0x40;
const CRC32_UNPACKED: u32 = 0x100;
const CRC32_PACKED: u32 = 0x200;
const FILTER: u32 = 0x800;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let mut reader = Lzop { rest: file.data, flags: None, block: Vec::new(), at: 0 };
    let inside = name_inside(file.data);
    let outer = file.names.first().and_then(|name| name.rsplit_once('.')).map(|(stem, _)| stem.to_owned());
    let names: Vec<String> = inside.into_iter().chain(outer).filter(|name| !name.is_empty()).collect();
    // A block is unpacked as a whole.
    walk.budget.room(BLOCK_MAX)?;
    walk.member(&names, file.data.len() as u64, &mut reader, level)?;
    Ok(())
}

/// The name in the first header.
fn name_inside(data: &[u8]) -> Option<String> {
    let header = LzopHeader::read(data)?;
    Some(bounded_name(header.name))
}

struct LzopHeader<'d> {
    flags: u32,
    name: &'d [u8],
    behind: &'d [u8],
}

impl<'d> LzopHeader<'d> {
    fn read(data: &'d [u8]) -> Option<LzopHeader<'d>> {
        let mut rest = Octets(data.strip_prefix(MAGIC)?);
        let version = rest.number(2)?;
        // Versions of the library and of who may read it, method, level.
        rest.take(if version >= 0x0940 { 2 + 2 + 1 + 1 } else { 2 + 1 })?;
        let flags = rest.number(4)?;
        rest.take(if flags & FILTER != 0 { 4 } else { 0 })?;
        // Mode and times.
        rest.take(if version >= 0x0940 { 12 } else { 8 })?;
        let length = rest.number(1)? as usize;
        let name = rest.take(length)?;
        rest.take(4)?;
        if flags & EXTRA != 0 {
            let length = rest.number(4)? as usize;
            rest.take(length.checked_add(4)?)?;
        }
        Some(LzopHeader { flags, name, behind: rest.0 })
    }
}

/// Octets that are taken from their start.
struct Octets<'d>(&'d [u8]);

impl<'d> Octets<'d> {
    fn take(&mut self, count: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The first octet is the highest.
    fn number(&mut self, count: usize) -> Option<u32> {
        Some(self.take(count)?.iter().fold(0, |number, octet| number << 8 | u32::from(*octet)))
    }
}

/// One packed file behind the other.
struct Lzop<'d> {
    rest: &'d [u8],
    /// Of the file that is being read.
    flags: Option<u32>,
    block: Vec<u8>,
    at: usize,
}

impl Lzop<'_> {
    /// Unpacks the next block; whether there was one.
    fn next_block(&mut self) -> Option<bool> {
        loop {
            let flags = match self.flags {
                Some(flags) => flags,
                None if self.rest.is_empty() => return Some(false),
                None => {
                    let header = LzopHeader::read(self.rest)?;
                    self.rest = header.behind;
                    *self.flags.insert(header.flags)
                }
            };
            let mut rest = Octets(self.rest);
            let unpacked = rest.number(4)? as usize;
            if unpacked == 0 {
                // The end of a file; another one may follow.
                (self.rest, self.flags) = (rest.0, None);
                continue;
            }
            let packed = rest.number(4)? as usize;
            let sums = |of: [u32; 2]| 4 * of.into_iter().filter(|flag| flags & flag != 0).count();
            rest.take(sums([ADLER32_UNPACKED, CRC32_UNPACKED]))?;
            if packed < unpacked {
                rest.take(sums([ADLER32_PACKED, CRC32_PACKED]))?;
            }
            let block = rest.take(packed).filter(|_| unpacked <= BLOCK_MAX && packed <= unpacked)?;
            self.block = if packed == unpacked { block.to_vec() } else { lzo::decompress(block, unpacked).ok()? };
            (self.rest, self.at) = (rest.0, 0);
            return Some(true);
        }
    }
}

impl Read for Lzop<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.block.len() {
            self.block = Vec::new();
            let broken = || io::Error::other("an LZO file that breaks off, or is damaged");
            if !self.next_block().ok_or_else(broken)? {
                return Ok(0);
            }
        }
        let count = into.len().min(self.block.len() - self.at);
        into[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
