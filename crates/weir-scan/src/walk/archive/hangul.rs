//! Documents of Hangul (HWP 5): compound files whose streams are packed with deflate. Source: Hancom, *Hangul Document File Format 5.0*,
//! section 3.2.

use super::super::Walk;
use super::super::kind::{COMPOUND, Kind};
use crate::budget::{Exceeded, UnpackEnd};
use crate::little_endian::u32_at;
use flate2::read::DeflateDecoder;
use std::path::Path;

/// The stream that says what a document is, and how that begins.
pub(super) const HEADER: &str = "/FileHeader";
const MARK: &[u8] = b"HWP Document File";
/// Folders and streams that are packed.
const PACKED: [&str; 5] = ["BinData", "BodyText", "ViewText", "DocInfo", "Scripts"];

/// What the header says.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hangul {
    is_packed: bool,
    /// It has a password, is kept to those who have the rights, or is encrypted so that it can only be looked at.
    pub(super) is_locked: bool,
}

impl Hangul {
    pub(super) fn read(header: &[u8]) -> Hangul {
        let flags = u32_at(header, 36).filter(|_| header.starts_with(MARK)).unwrap_or_default();
        Hangul { is_packed: flags & 1 != 0, is_locked: flags & (1 << 1 | 1 << 2 | 1 << 4) != 0 }
    }

    /// Whether the stream at this path is packed.
    pub(super) fn packs(self, path: &Path) -> bool {
        let first = path.components().find_map(|part| match part {
            std::path::Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        });
        self.is_packed && first.is_some_and(|first| PACKED.iter().any(|own| first.eq_ignore_ascii_case(own)))
    }
}

/// What is packed in a stream. Single files may not be, and then they are known by their own mark.
pub(super) fn open(walk: &mut Walk<'_>, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
    let unpacked = walk.budget.unpack(data.len() as u64, &mut DeflateDecoder::new(data));
    if matches!(unpacked.end, UnpackEnd::Broken(_)) && (Kind::of(data) != Kind::Unknown || data.is_empty()) {
        walk.budget.release(unpacked.data.len());
        return Ok(());
    }
    walk.budget.entry()?;
    walk.unpacked(names, &unpacked, |walk, data| {
        // An object stands behind its length.
        match data.get(4..).filter(|object| object.starts_with(COMPOUND)) {
            Some(object) => walk.file(names, "", object, level),
            None => walk.file(names, "", data, level),
        }
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::compound;
    use crate::walk::Oddity;
    use crate::walk::seen::Seen;
    use std::io::Write;

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(data).unwrap();
        packer.finish().unwrap()
    }

    fn document(flags: u8, streams: &[(&str, &[u8])]) -> Vec<u8> {
        let header = [MARK, &[0; 19], &[flags, 0, 0, 0], &[0; 216]].concat();
        compound(&[&[(HEADER, header.as_slice())], streams].concat())
    }

    fn seen(data: &[u8]) -> Seen {
        Seen::of("a.hwp", data)
    }

    #[test]
    fn packed_streams_are_opened() {
        let program = b"MZ\x90\0 a program".as_slice();
        let object = [&[9, 9, 9, 9][..], &compound(&[("/evil", program)])].concat();
        let text = packed(b"a text");
        let picture = b"\xff\xd8\xff\xe0 as it is".as_slice();
        for file in [packed(program), packed(&object)] {
            let streams = [
                ("/BinData/BIN0001.OLE", file.as_slice()),
                ("/BodyText/Section0", &text),
                ("/BinData/BIN2.jpg", picture),
            ];
            let seen = seen(&document(1, &streams));
            assert!(seen.holds(program) && seen.holds(b"a text"));
            assert_eq!(seen.odd, []);
        }
        let broken = [("/BodyText/Section0", b"\xff\xff no deflate".as_slice()), ("/PrvText", b"\xff\xff")];
        assert!(matches!(seen(&document(1, &broken)).odd[..], [Oddity::Unreadable(_)]));
        assert_eq!(seen(&document(0, &broken)).odd, []);
        assert_eq!(seen(&compound(&broken)).odd, []);
    }

    #[test]
    fn a_document_that_is_locked_says_so() {
        for flags in [3, 5, 0x11] {
            assert_eq!(seen(&document(flags, &[("/PrvText", b"x")])).odd, [Oddity::Encrypted]);
        }
    }
}
