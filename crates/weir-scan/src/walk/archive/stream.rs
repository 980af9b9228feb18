//! Gzip, bzip2 and xz: one packed file, often a tar archive.

use super::super::kind::Kind;
use super::super::{File, Walk};
use crate::budget::Exceeded;
use crate::little_endian::u16_at;
use std::io::Read;

/// What xz may take for its dictionary.
const XZ_MEMORY_KIB: u32 = 192 << 10;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let data = file.data;
    let mut reader: Box<dyn Read + '_> = match file.kind {
        Kind::Gzip => Box::new(flate2::read::MultiGzDecoder::new(data)),
        Kind::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(data)),
        _ => Box::new(lzma_rust2::XzReader::new_mem_limit(data, true, XZ_MEMORY_KIB)),
    };
    let outer = file.names.first().map_or("", String::as_str);
    // Some programs go by the name inside, some by the name outside.
    let inside = (file.kind == Kind::Gzip).then(|| name_inside(data)).flatten();
    let names: Vec<String> = inside.into_iter().chain([without_extension(outer)]).collect();
    walk.member(&names, data.len() as u64, &mut reader, level)?;
    Ok(())
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
        "tgz" | "tbz" | "tbz2" | "txz" => format!("{stem}.tar"),
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
