//! Compound files, through `cfb`: old Office documents, Outlook's MSG, installers.
//!
//! Every stream is shown. Macros are unpacked to their source ([`super::vba`]); objects embedded by "Packager" and attachments of MSG files get their
//! own names.

use super::super::{Oddity, Walk};
use super::{u32_at, vba};
use crate::budget::Exceeded;
use cfb::CompoundFile;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Windows Installer's class, as it stands in the root.
const INSTALLER: &str = "000c1084-0000-0000-c000-000000000046";
/// MSG: an attachment's bytes, and its names.
const ATTACHED_DATA: &str = "__substg1.0_37010102";
const ATTACHED_NAMES: [&str; 2] = ["__substg1.0_3707001F", "__substg1.0_3704001F"];

type Compound<'a> = CompoundFile<Cursor<&'a [u8]>>;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut compound = match CompoundFile::open(Cursor::new(data)) {
        Ok(compound) => compound,
        Err(error) => {
            walk.odd_here(Oddity::Unreadable(format!("a compound file: {error}")));
            return Ok(());
        }
    };
    if compound.root_entry().clsid().to_string().eq_ignore_ascii_case(INSTALLER) {
        walk.odd_here(Oddity::Installer);
    }
    let most = walk.budget.limits().entries as usize + 1;
    let streams: Vec<PathBuf> =
        compound.walk().filter(|entry| entry.is_stream()).map(|entry| entry.path().to_owned()).take(most).collect();
    let has = |name: &str| streams.iter().any(|path| last(path).eq_ignore_ascii_case(name));
    if has("_VBA_PROJECT") || has("PROJECTwm") {
        walk.odd_here(Oddity::Macros);
    }
    if has("EncryptedPackage") {
        walk.odd_here(Oddity::Encrypted);
    }
    streams.iter().try_for_each(|path| stream(walk, &mut compound, path, level))
}

fn stream(walk: &mut Walk<'_>, compound: &mut Compound<'_>, path: &Path, level: u32) -> Result<(), Exceeded> {
    let name = attached_name(compound, path).unwrap_or_else(|| last(path));
    let packed = compound.entry(path).map_or(0, |entry| entry.len());
    let opened = compound.open_stream(path);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return walk.locked(&name, Oddity::Unreadable(format!("a compound file: {error}")), level),
    };
    let name = if name == "\u{1}Ole10Native" { "Ole10Native".to_owned() } else { name };
    walk.budget.entry()?;
    let unpacked = walk.budget.unpack(packed, &mut reader);
    let length = unpacked.data.len();
    let looked = look(walk, &name, &unpacked.data, level);
    walk.budget.release(length);
    looked
}

/// A stream, and what is packed inside it in ways of its own.
fn look(walk: &mut Walk<'_>, name: &str, data: &[u8], level: u32) -> Result<(), Exceeded> {
    walk.file(&[name.to_owned()], "", data, level)?;
    if let Some(source) = vba::source(data) {
        walk.holding(&source, |walk, source| walk.file(&[format!("{name}.macro")], "", source, level))?;
    }
    match packaged(data).filter(|_| name == "Ole10Native") {
        Some((file, content)) => {
            walk.odd_here(Oddity::EmbeddedObject);
            walk.stored(&file, content, level)
        }
        None => Ok(()),
    }
}

/// What Packager wrote: size, flags, label, path, flags, path of a copy, and then the file.
fn packaged(data: &[u8]) -> Option<(String, &[u8])> {
    let text = |from: usize| {
        let rest = data.get(from..)?;
        let end = memchr::memchr(0, &rest[..rest.len().min(2048)])?;
        Some((String::from_utf8_lossy(&rest[..end]).into_owned(), from + end + 1))
    };
    let (label, at) = text(6)?;
    let (path, at) = text(at)?;
    let copy = u32_at(data, at + 4)? as usize;
    let at = at.checked_add(8)?.checked_add(copy)?;
    let size = u32_at(data, at)? as usize;
    let content = data.get(at + 4..)?;
    let name = if label.is_empty() { path.rsplit(['\\', '/']).next()?.to_owned() } else { label };
    Some((name, &content[..size.min(content.len())]))
}

fn attached_name(compound: &mut Compound<'_>, path: &Path) -> Option<String> {
    use std::io::Read;
    if last(path) != ATTACHED_DATA {
        return None;
    }
    let folder = path.parent()?;
    ATTACHED_NAMES.iter().find_map(|name| {
        let mut text = Vec::new();
        compound.open_stream(folder.join(name)).ok()?.take(1024).read_to_end(&mut text).ok()?;
        let units: Vec<u16> = text.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Some(String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned())
    })
}

fn last(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packaged_file_has_a_name() {
        let mut data = vec![0; 6];
        data.extend_from_slice(b"evil.exe\0C:\\evil.exe\0\0\0\x03\0\x05\0\0\0copy\0\x04\0\0\0MZ..rest");
        assert_eq!(packaged(&data), Some(("evil.exe".to_owned(), &b"MZ.."[..])));
        for cut in 0..data.len() {
            let _ = packaged(&data[..cut]);
        }
    }
}
