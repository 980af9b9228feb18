//! Tar: ustar, with GNU's and POSIX's long names. Members are not packed, so nothing is copied.

use super::super::{Oddity, Walk};
use crate::budget::Exceeded;

const BLOCK: usize = 512;
/// A name is shorter than this, whatever it claims.
const LONG_NAME_MAX: usize = 4096;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let (mut rest, mut long) = (data, None);
    while let Some((header, behind)) = rest.split_at_checked(BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let Some(size) = number(&header[124..136]).filter(|size| *size <= behind.len()) else {
            walk.odd_here(Oddity::Unreadable("a tar archive that breaks off".into()));
            return Ok(());
        };
        let body = &behind[..size];
        match header[156] {
            b'L' => long = Some(text(&body[..size.min(LONG_NAME_MAX)])),
            b'x' => long = pax_path(&body[..size.min(1 << 16)]).or(long),
            b'0' | b'7' | 0 => walk.stored(&long.take().unwrap_or_else(|| name(header)), body, level)?,
            // Folders, links and devices have names only.
            _ => {
                walk.budget.entry()?;
                long = None;
            }
        }
        rest = behind.get(size.next_multiple_of(BLOCK)..).unwrap_or(&[]);
    }
    Ok(())
}

/// Octal digits, or GNU's base 256 if the first bit is set.
fn number(field: &[u8]) -> Option<usize> {
    if field.first()? & 0x80 != 0 {
        let (high, low) = field.split_at(field.len() - 8);
        let fits = high.iter().skip(1).all(|byte| *byte == 0) && high[0] == 0x80;
        return usize::try_from(u64::from_be_bytes(low.try_into().ok()?)).ok().filter(|_| fits);
    }
    let digits = field.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect::<Vec<u8>>();
    let digits = std::str::from_utf8(digits.trim_ascii()).ok()?;
    if digits.is_empty() { Some(0) } else { usize::from_str_radix(digits, 8).ok() }
}

fn name(header: &[u8]) -> String {
    let (prefix, name) = (text(&header[345..500]), text(&header[..100]));
    let ustar = &header[257..262] == b"ustar" && &header[257..265] != b"ustar  \0";
    if ustar && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

fn text(field: &[u8]) -> String {
    let end = memchr::memchr(0, field).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// `LENGTH path=NAME`, among other records.
fn pax_path(records: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(records, b" path=")?;
    let value = &records[at + 6..];
    let end = memchr::memchr(b'\n', value)?;
    Some(String::from_utf8_lossy(&value[..end.min(LONG_NAME_MAX)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"zzz\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(pax_path(b"30 mtime=1\n18 path=a/evil.exe\n"), Some("a/evil.exe".to_owned()));
    }
}
