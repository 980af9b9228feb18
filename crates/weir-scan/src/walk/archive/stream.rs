//! Gzip, bzip2, xz, LZMA, lzip and Zstandard: one packed file, often a tar archive.

use super::super::kind::Kind;
use super::super::{File, Oddity, Walk};
use crate::budget::{Exceeded, UnpackEnd};
use crate::little_endian::{u16_at, u32_at};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, Read};

/// What xz may take for its dictionary.
const XZ_MEMORY_KIB: u32 = 192 << 10;
/// What Zstandard may look back.
const ZSTD_WINDOW: u64 = 128 << 20;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let data = file.data;
    let mut reader: Box<dyn Read + '_> = match file.kind {
        Kind::Gzip => Box::new(flate2::read::MultiGzDecoder::new(data)),
        Kind::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(data)),
        Kind::Lzip => Box::new(lzma_rust2::LzipReader::new(data)),
        Kind::Lzma => match lzma_rust2::LzmaReader::new_mem_limit(data, XZ_MEMORY_KIB, None) {
            Ok(reader) => Box::new(reader),
            Err(error) => {
                walk.odd_here(Oddity::Unreadable(format!("an LZMA file: {error}")));
                return Ok(());
            }
        },
        Kind::Zstd => Box::new(Zstd { rest: data, frame: None }),
        _ => Box::new(lzma_rust2::XzReader::new_mem_limit(data, true, XZ_MEMORY_KIB)),
    };
    let outer = file.names.first().map_or("", String::as_str);
    // Some programs go by the name inside, some by the name outside.
    let inside = (file.kind == Kind::Gzip).then(|| name_inside(data)).flatten();
    let names: Vec<String> = inside.into_iter().chain([without_extension(outer)]).collect();
    walk.member(&names, data.len() as u64, &mut reader, level)?;
    Ok(())
}

/// What comes out of the first stream here, as far as it goes: it stands in a file of another kind, and more of that may follow. Whether there is
/// any.
pub(super) fn first(walk: &mut Walk<'_>, kind: Kind, name: &str, data: &[u8], level: u32) -> Result<bool, Exceeded> {
    let mut reader: Box<dyn Read + '_> = match kind {
        Kind::Gzip => Box::new(flate2::read::GzDecoder::new(data)),
        Kind::Bzip2 => Box::new(bzip2::read::BzDecoder::new(data)),
        Kind::Lzip => Box::new(lzma_rust2::LzipReader::new(data)),
        Kind::Zstd => Box::new(Zstd { rest: data, frame: None }),
        _ => Box::new(lzma_rust2::XzReader::new_mem_limit(data, false, XZ_MEMORY_KIB)),
    };
    walk.budget.entry()?;
    let unpacked = walk.budget.unpack(data.len() as u64, &mut reader);
    if let UnpackEnd::Exceeded(exceeded) = unpacked.end {
        return Err(exceeded);
    }
    if !unpacked.data.is_empty() {
        let inside = (kind == Kind::Gzip).then(|| name_inside(data)).flatten();
        walk.file(&[inside.unwrap_or_else(|| name.to_owned())], "", &unpacked.data, level)?;
    }
    walk.budget.release(unpacked.data.len());
    Ok(!unpacked.data.is_empty())
}

/// One frame of Zstandard behind the other.
struct Zstd<'d> {
    rest: &'d [u8],
    frame: Option<StreamingDecoder<&'d [u8], FrameDecoder>>,
}

impl Read for Zstd<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(into)?;
                if read > 0 || into.is_empty() {
                    return Ok(read);
                }
                self.rest = self.frame.take().map_or(&[], StreamingDecoder::into_inner);
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            match skippable(self.rest) {
                Some(behind) => self.rest = behind,
                None => {
                    let frame = StreamingDecoder::new_with_max_window_size(self.rest, ZSTD_WINDOW);
                    self.frame = Some(frame.map_err(|error| io::Error::other(error.to_string()))?);
                }
            }
        }
    }
}

/// What is behind a frame that holds nothing.
fn skippable(data: &[u8]) -> Option<&[u8]> {
    let is = u32_at(data, 0).is_some_and(|mark| mark & 0xffff_fff0 == 0x184d_2a50);
    let length = u32_at(data, 4).filter(|_| is)? as usize;
    Some(data.get(8 + length..).unwrap_or_default())
}

/// As long as a name may be that somebody made long to hide its end.
const NAME_MAX: usize = 64 << 10;

/// The name that gzip keeps (RFC 1952, section 2.3).
fn name_inside(data: &[u8]) -> Option<String> {
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    let flags = *data.get(3)?;
    let extra = if flags & EXTRA != 0 { 2 + usize::from(u16_at(data, 10)?) } else { 0 };
    let rest = data.get(10 + extra..)?;
    let rest = &rest[..rest.len().min(NAME_MAX)];
    let name = super::super::bounded_name(&rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]);
    (flags & NAME != 0 && !name.is_empty()).then_some(name)
}

/// `report.tar.gz` holds `report.tar`, `report.tgz` too.
fn without_extension(name: &str) -> String {
    let Some((stem, extension)) = name.rsplit_once('.') else { return String::new() };
    match extension.to_ascii_lowercase().as_str() {
        "tgz" | "tbz" | "tbz2" | "txz" | "tzst" | "tlz" => format!("{stem}.tar"),
        "svgz" => format!("{stem}.svg"),
        _ => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_what_is_inside() {
        assert_eq!(without_extension("a.tgz"), "a.tar");
        assert_eq!(without_extension("a.exe.gz"), "a.exe");
        assert_eq!(without_extension("a"), "");
        assert_eq!(name_inside(b"\x1f\x8b\x08\x08\0\0\0\0\0\x03evil.exe\0rest"), Some("evil.exe".to_owned()));
        assert_eq!(name_inside(b"\x1f\x8b\x08\x08"), None);
    }
}
