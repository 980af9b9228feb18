//! Archives behind something else: a picture, a text, the beginning of a program that is none.
//!
//! 7-Zip, WinRAR and their like look for the mark of an archive in the first megabytes of whatever they are given. A mark counts where a
//! header follows that its format allows: of two or three octets a film has many by chance. What is found is looked at as it would be by itself.
//! Cost: one fast search for each mark.

use super::super::kind::Kind;
use super::super::{File, Walk, tar_header};
use super::{stream, zip};
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};

/// 7-Zip looks for a beginning in the first 8 MiB, WinRAR in the first 4.
const BEGIN_MAX: usize = 16 << 20;
/// Openers take the first archive that they can read.
const MOST: usize = 4;
/// What such an archive is called.
const NAME: &str = "behind something else";

/// A format that is found so: its mark, where in its header that stands, and whether these octets begin such an archive.
struct Format {
    kind: Kind,
    mark: &'static [u8],
    place: usize,
    begins: fn(&[u8]) -> bool,
}

const fn format(kind: Kind, mark: &'static [u8], place: usize, begins: fn(&[u8]) -> bool) -> Format {
    Format { kind, mark, place, begins }
}

const FORMATS: [Format; 15] = [
    format(Kind::SevenZip, b"7z\xbc\xaf\x27\x1c", 0, seven_zip),
    format(Kind::Rar, b"Rar!\x1a\x07", 0, rar),
    format(Kind::Cab, b"MSCF\0\0\0\0", 0, cab),
    format(Kind::Arj, b"\x60\xea", 0, arj),
    format(Kind::Lzh, b"-lh", 2, lzh),
    format(Kind::Wim, b"MSWIM\0\0\0", 0, |data| matches!(u32_at(data, 8), Some(0x60..=0x100))),
    format(Kind::OtherArchive("a cpio archive"), b"07070", 0, cpio),
    format(Kind::Tar, b"ustar", 257, tar_header::is_header),
    format(Kind::Zip, b"PK\x03\x04", 0, zip::is_member),
    format(Kind::Gzip, b"\x1f\x8b\x08", 0, gzip),
    format(Kind::Bzip2, b"1AY&SY", 4, |data| data.starts_with(b"BZh")),
    format(Kind::Bzip2, b"\x17\x72\x45\x38\x50\x90", 4, |data| data.starts_with(b"BZh")),
    format(Kind::Xz, b"\xfd7zXZ\0", 0, |data| {
        u32_at(data, 8).is_some_and(|sum| data.len() > 12 && sum == crc(&data[6..8]))
    }),
    format(Kind::Zstd, b"\x28\xb5\x2f\xfd", 0, |_| true),
    format(Kind::Lzip, b"LZIP\x01", 0, |data| matches!(data.get(5), Some(12..=0xff))),
];

/// Whether the files in this kind of file are found where it says that they are.
fn tells_its_files(kind: Kind) -> bool {
    kind.is_archive() || matches!(kind, Kind::Ole | Kind::Disc | Kind::OneNote | Kind::Pkcs7 | Kind::Calendar)
}

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if tells_its_files(file.kind) {
        return Ok(());
    }
    let head = &file.data[..file.data.len().min(BEGIN_MAX)];
    // Its directory is read otherwise, with whatever stands around it.
    let is_listed = zip::has_directory(file.data);
    for Format { kind, mark, place, begins } in &FORMATS {
        if *kind == Kind::Zip && is_listed {
            continue;
        }
        let found = memchr::memmem::find_iter(head, mark).filter_map(|at| at.checked_sub(*place));
        // Members of a zip archive are followed from the first one on.
        let most = if *kind == Kind::Zip { 1 } else { MOST };
        for at in found.filter(|at| *at > 0 && begins(&file.data[*at..])).take(most) {
            walk.budget.time()?;
            walk.depth += 1;
            walk.budget.depth(walk.depth)?;
            one(walk, *kind, &file.data[at..], level)?;
            walk.depth -= 1;
        }
    }
    Ok(())
}

fn one(walk: &mut Walk<'_>, kind: Kind, data: &[u8], level: u32) -> Result<(), Exceeded> {
    match kind {
        // Files of other kinds have such streams in them too: what comes out counts, and nobody minds where it ends.
        Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd | Kind::Lzip => stream::first(walk, kind, NAME, data, level),
        Kind::Zip => zip::unlisted(walk, data, level),
        _ => walk.stored(&[NAME.into()], data, level),
    }
}

fn crc(data: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(data);
    sum.sum()
}

/// The first header has a sum of its own.
fn seven_zip(data: &[u8]) -> bool {
    data.get(12..32).is_some_and(|header| u32_at(data, 8) == Some(crc(header)))
}

/// The mark of version 4 or 5, and the type of the first block: the archive itself, or that its headers have a password.
fn rar(data: &[u8]) -> bool {
    match data.get(6) {
        Some(0) => data.get(9) == Some(&0x73) && u16_at(data, 12).is_some_and(|length| length >= 7),
        Some(1) => {
            let length = data.get(12..).unwrap_or_default().iter().take(3).position(|octet| octet & 0x80 == 0);
            length.and_then(|more| data.get(13 + more)).is_some_and(|kind| matches!(kind, 1 | 4))
        }
        _ => false,
    }
}

/// Its version is always the same, and its list of files stands inside it.
fn cab(data: &[u8]) -> bool {
    let (Some(length), Some(files)) = (u32_at(data, 8), u32_at(data, 16)) else { return false };
    data.get(24..26) == Some(&[3, 1]) && (36..length).contains(&files)
}

/// The first header has a sum behind it.
fn arj(data: &[u8]) -> bool {
    let length = u16_at(data, 2).map(usize::from).filter(|length| (30..=2600).contains(length));
    let header = length.and_then(|length| data.get(4..4 + length));
    header.is_some_and(|header| u32_at(data, 4 + header.len()) == Some(crc(header)))
}

/// A method, and by version the sum of the header or its length.
fn lzh(data: &[u8]) -> bool {
    let method = data.get(5).is_some_and(u8::is_ascii_alphanumeric) && data.get(6) == Some(&b'-');
    let header = || {
        let length = usize::from(*data.first()?);
        let sum = data.get(2..2 + length)?.iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet));
        Some(length >= 20 && sum == data[1])
    };
    let packed = || u32_at(data, 7).is_some_and(|packed| packed as usize <= data.len());
    method
        && match data.get(20) {
            Some(0 | 1) => header() == Some(true),
            Some(2) => u16_at(data, 0).is_some_and(|length| length >= 24) && packed(),
            Some(3) => u16_at(data, 0) == Some(4) && packed(),
            _ => false,
        }
}

/// A header of digits, in version 1 and 2 hexadecimal, before it octal; and a name as long as it says, with a NUL at its end.
fn cpio(data: &[u8]) -> bool {
    let (header, length, radix) = match data.get(5) {
        Some(b'1' | b'2') => (110, 94..102, 16),
        Some(b'7') => (76, 59..65, 8),
        _ => return false,
    };
    let digits = |place: std::ops::Range<usize>| {
        let text = std::str::from_utf8(data.get(place)?).ok()?;
        text.chars().all(|digit| digit.is_digit(radix)).then_some(text)
    };
    let named = digits(length).and_then(|length| usize::from_str_radix(length, radix).ok());
    let end = named.filter(|length| (2..=4096).contains(length)).and_then(|length| data.get(header + length - 1));
    digits(6..header).is_some() && end == Some(&0)
}

/// Flags that are known, a usual effort and a known system (RFC 1952, section 2.3).
fn gzip(data: &[u8]) -> bool {
    data.get(3).is_some_and(|flags| flags & 0xe0 == 0)
        && matches!(data.get(8), Some(0 | 2 | 4))
        && matches!(data.get(9), Some(0..=13 | 255))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(data: &[u8]) -> Vec<(usize, Kind)> {
        let mut all: Vec<(usize, Kind)> = Vec::new();
        for Format { kind, mark, place, begins } in &FORMATS {
            let places = memchr::memmem::find_iter(data, mark).filter_map(|at| at.checked_sub(*place));
            all.extend(places.filter(|at| begins(&data[*at..])).map(|at| (at, *kind)));
        }
        all
    }

    #[test]
    fn a_mark_alone_begins_no_archive() {
        for Format { mark, place, kind, .. } in &FORMATS {
            let data = [&vec![b'x'; 300][..], &vec![b'-'; *place], mark, &[b'?'; 300]].concat();
            let is_soft = matches!(kind, Kind::Zstd | Kind::Lzip);
            assert!(found(&data).is_empty() || is_soft, "{kind:?} in {:?}", found(&data));
        }
    }

    #[test]
    fn headers_that_their_formats_allow() {
        let header = [&[0; 12][..], &[7; 8]].concat();
        let seven = [b"7z\xbc\xaf\x27\x1c\0\x04".as_slice(), &crc(&header).to_le_bytes(), &header].concat();
        assert_eq!(found(&[b"hello".as_slice(), &seven].concat()), [(5, Kind::SevenZip)]);
        assert!(rar(b"Rar!\x1a\x07\0\xcf\x90\x73\0\0\x0d\0\0\0\0\0\0\0") && !rar(b"Rar!\x1a\x07 is the mark"));
        assert!(rar(b"Rar!\x1a\x07\x01\0\x33\x92\xb5\xe5\x0a\x01\x05"));
        assert!(gzip(b"\x1f\x8b\x08\0\0\0\0\0\0\x03") && !gzip(b"\x1f\x8b\x08\xff\0\0\0\0\0\x03"));
        let header = [b"070701".as_slice(), &[b'0'; 95], b"6", &[b'0'; 8]].concat();
        assert!(
            cpio(&[header.as_slice(), b"a.txt\0"].concat())
                && !cpio(&[b'0'; 300])
                && !cpio(&[header, vec![b'0'; 100]].concat())
        );
    }
}
