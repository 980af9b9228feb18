//! The files of the spool: a segment `00000007.seg`, beside it the sidecar `00000007.marks`.
//!
//! Both open with 32 bytes: `WEIRSPL1`, what it is, its number, the spool's marker, a checksum. The marker also
//! stands in the file `marker`; any of these copies is enough to read everything. A segment also says that zeros are written ahead of
//! its end (`log.rs`): recovery then knows what a hole in its last batch means.

use std::path::{Path, PathBuf};

use super::record::{Marker, u32_at};

/// The bytes before the first record.
pub(super) const FILE_HEADER: u64 = 32;
const MAGIC: &[u8; 8] = b"WEIRSPL1";

/// What a file of the spool holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpoolFile {
    /// Chunks and commits.
    Segment = 1,
    /// Marks of the messages committed in the segment of the same number.
    Sidecar = 2,
}

impl SpoolFile {
    /// The path of the file with this number.
    pub(super) fn path(self, folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("{number:08}.{}", self.ending()))
    }

    pub(super) fn ending(self) -> &'static str {
        match self {
            SpoolFile::Segment => "seg",
            SpoolFile::Sidecar => "marks",
        }
    }

    /// The meaning of a file name, if it is one of ours.
    pub(super) fn of_name(name: &str) -> Option<(SpoolFile, u32)> {
        let (number, ending) = name.split_once('.')?;
        let part = [SpoolFile::Segment, SpoolFile::Sidecar].into_iter().find(|part| part.ending() == ending)?;
        let digits = number.len() >= 8 && number.bytes().all(|digit| digit.is_ascii_digit());
        Some((part, number.parse().ok().filter(|_| digits)?))
    }

    /// The 32 bytes at the beginning of the file.
    pub(super) fn header(self, number: u32, marker: Marker) -> [u8; FILE_HEADER as usize] {
        let mut bytes = [0; FILE_HEADER as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = self as u8;
        bytes[9] = u8::from(self == SpoolFile::Segment);
        bytes[12..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&marker);
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The marker in these bytes, if they are undamaged.
    pub(super) fn marker(self, bytes: &[u8; FILE_HEADER as usize]) -> Option<Marker> {
        let ours = bytes.starts_with(MAGIC) && bytes[8] == self as u8;
        let unharmed = Some(crc32fast::hash(&bytes[..28])) == u32_at(bytes, 28);
        if ours && unharmed { bytes[16..].first_chunk().copied() } else { None }
    }

    /// Whether zeros were written ahead of the end of this segment.
    pub(super) fn is_written_ahead(bytes: &[u8; FILE_HEADER as usize]) -> bool {
        SpoolFile::Segment.marker(bytes).is_some() && bytes[9] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for (name, is) in [
            ("00000007.seg", Some((SpoolFile::Segment, 7))),
            ("4294967295.marks", Some((SpoolFile::Sidecar, u32::MAX))),
            ("4294967296.seg", None),
            ("7.seg", None),
            ("+0000007.seg", None),
            ("00000007.seg.old", None),
            ("marker", None),
        ] {
            assert_eq!(SpoolFile::of_name(name), is, "{name}");
        }
        assert_eq!(SpoolFile::Sidecar.path(Path::new("d"), 7), Path::new("d/00000007.marks"));
    }

    #[test]
    fn the_marker_is_read_back_and_no_flipped_bit_passes() {
        let bytes = SpoolFile::Segment.header(9, *b"01234567");
        assert_eq!(SpoolFile::Segment.marker(&bytes), Some(*b"01234567"));
        assert_eq!(SpoolFile::Sidecar.marker(&bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SpoolFile::Segment.marker(&flipped), None, "bit {bit}");
        }
    }
}
