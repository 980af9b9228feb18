//! Compound files, through `cfb`: old Office documents, Outlook's MSG, installers.
//!
//! Every stream is shown. A document with a password says so in a stream of its own, or in its main one. Macros are unpacked to their source
//! ([`super::vba`]); objects embedded by "Packager" and attachments of MSG files get their own names.

use super::super::{Oddity, Walk, bounded_name};
use super::hangul::{self, Hangul};
use super::{rtf_packed, slides, vba, workbook};
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};
use cfb::CompoundFile;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Windows Installer's class, as it stands in the root.
const INSTALLER: &str = "000c1084-0000-0000-c000-000000000046";
/// MSG: an attachment's bytes, and its names, in UTF-16 and in octets: long, short, shown, and the extension alone.
const ATTACHED_DATA: &str = "__substg1.0_37010102";
const ATTACHED_NAMES: [&str; 8] = [
    "__substg1.0_3707001F",
    "__substg1.0_3704001F",
    "__substg1.0_3707001E",
    "__substg1.0_3704001E",
    "__substg1.0_3001001F",
    "__substg1.0_3001001E",
    "__substg1.0_3703001F",
    "__substg1.0_3703001E",
];
/// Streams of what only some can open: a document of today's formats with a password, the summary of an old one, and a document that a server
/// keeps the rights to.
const ENCRYPTED: [&str; 3] = ["EncryptedPackage", "EncryptedSummary", "\tDRMContent"];
/// MSG: the text of a message, packed, in small letters.
const MESSAGE_TEXT: &str = "__substg1.0_10090102";
/// Folders inside each other; a message in a message in a message takes six.
const FOLDERS_MAX: usize = 16;
/// As long as a name may be that somebody made long to hide its end.
const NAME_MAX: usize = 64 << 10;

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
    let streams = streams(walk, &compound)?;
    let has = |name: &str| streams.iter().any(|path| last(path).eq_ignore_ascii_case(name));
    if has("_VBA_PROJECT") || has("PROJECTwm") {
        walk.odd_here(Oddity::Macros);
    }
    let hangul = Hangul::read(&beginning(&mut compound, Path::new(hangul::HEADER), 256));
    if ENCRYPTED.iter().any(|name| has(name)) || hangul.is_locked {
        walk.odd_here(Oddity::Encrypted);
    }
    streams.iter().try_for_each(|path| stream(walk, &mut compound, path, hangul.packs(path), level))?;
    walk.budget.release(streams.iter().map(|path| weight(path)).sum());
    Ok(())
}

/// The paths of all streams; the budget holds their weight.
fn streams(walk: &mut Walk<'_>, compound: &Compound<'_>) -> Result<Vec<PathBuf>, Exceeded> {
    let (most, mut streams) = (walk.budget.limits().entries, Vec::new());
    for entry in compound.walk() {
        walk.budget.time()?;
        if entry.path().components().count() > FOLDERS_MAX {
            return Err(Exceeded::Depth(FOLDERS_MAX as u32));
        }
        if !entry.is_stream() {
            continue;
        }
        if streams.len() >= most as usize {
            return Err(Exceeded::Entries(most));
        }
        walk.budget.hold(weight(entry.path()))?;
        streams.push(entry.path().to_owned());
    }
    Ok(streams)
}

fn weight(path: &Path) -> usize {
    size_of::<PathBuf>() + path.as_os_str().len()
}

/// The first `most` octets of a stream; nothing if there is no such stream.
fn beginning(compound: &mut Compound<'_>, path: &Path, most: usize) -> Vec<u8> {
    use std::io::Read;
    let mut data = Vec::new();
    let read = compound.open_stream(path).map(|stream| stream.take(most as u64).read_to_end(&mut data));
    if matches!(read, Ok(Ok(_))) { data } else { Vec::new() }
}

fn stream(
    walk: &mut Walk<'_>,
    compound: &mut Compound<'_>,
    path: &Path,
    is_packed: bool,
    level: u32,
) -> Result<(), Exceeded> {
    let mut names = attached_names(compound, path);
    if names.is_empty() {
        // Some names begin with a control character, which says nothing.
        names.push(last(path).trim_start_matches(char::is_control).to_owned());
    }
    let packed = compound.entry(path).map_or(0, |entry| entry.len());
    let opened = compound.open_stream(path);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return walk.locked(&names, Oddity::Unreadable(format!("a compound file: {error}")), level),
    };
    walk.budget.entry()?;
    let unpacked = walk.budget.unpack(packed, &mut reader);
    walk.unpacked(&names, &unpacked, |walk, data| {
        look(walk, &names, data, level)?;
        if is_packed { hangul::open(walk, &names, data, level) } else { Ok(()) }
    })
    .map(drop)
}

/// A stream, and what is packed inside it in ways of its own.
fn look(walk: &mut Walk<'_>, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
    walk.file(names, "", data, level)?;
    let name = names.first().map_or("", String::as_str);
    document(walk, names, data, level)?;
    if let Some(source) = vba::source(data) {
        walk.holding(&source, |walk, source| walk.file(&[format!("{name}.macro")], "", source, level))?;
    }
    match packaged(data).filter(|_| name.eq_ignore_ascii_case("Ole10Native")) {
        Some((names, content)) => {
            walk.odd_here(Oddity::EmbeddedObject);
            walk.stored(&names, content, level)
        }
        None => Ok(()),
    }
}

/// The main stream of an old document.
fn document(walk: &mut Walk<'_>, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
    let name = names.first().map_or("", String::as_str).to_ascii_lowercase();
    let is_locked = match name.as_str() {
        "worddocument" => is_locked_text(data),
        "current user" => slides::is_locked(data),
        "powerpoint document" => slides::has_encryption(data),
        _ => false,
    };
    if is_locked {
        walk.odd_here(Oddity::Encrypted);
    }
    if name == "worddocument" && has_word_basic(data) {
        walk.odd_here(Oddity::Macros);
    }
    match name.as_str() {
        "workbook" | "book" => workbook::of_compound(walk, names, data, level),
        "powerpoint document" => slides::open(walk, data, level),
        MESSAGE_TEXT => rtf_packed::open(walk, data, level),
        _ => Ok(()),
    }
}

/// Whether a document of Word up to 2003 has a password: a flag in its first header (Microsoft, *[MS-DOC]*, section 2.5.2). Version 2 had it in the
/// same place.
fn is_locked_text(data: &[u8]) -> bool {
    u16_at(data, 10).is_some_and(|flags| flags & 0x100 != 0)
}

/// Whether a document of Word 6 or 95 has macros, which were not yet a project of their own: its header tells where the table of commands is that
/// somebody made, and one with anything in it does not end behind its mark. Word 97 and later translate such macros.
fn has_word_basic(data: &[u8]) -> bool {
    let is_old = matches!(u16_at(data, 2), Some(0x65..=0x69));
    let table = || {
        let (from, length) = (u32_at(data, 0x118)? as usize, u32_at(data, 0x11c)? as usize);
        data.get(from..from.checked_add(length)?)
    };
    is_old && matches!(table(), Some([0xff, first, _, ..]) if *first != 0x40)
}

/// What Packager wrote: size, flags, label, path, flags, path of a copy, and then the file. Some programs go by the label, some by a path.
pub(super) fn packaged(data: &[u8]) -> Option<(Vec<String>, &[u8])> {
    let text = |from: usize| {
        let rest = data.get(from..)?;
        let end = memchr::memchr(0, &rest[..rest.len().min(NAME_MAX)])?;
        Some((&rest[..end], from + end + 1))
    };
    let (label, at) = text(6)?;
    let (path, at) = text(at)?;
    let length = u32_at(data, at + 4)? as usize;
    let at = at.checked_add(8)?;
    let copy = data.get(at..at.checked_add(length)?)?;
    let at = at + length;
    let size = u32_at(data, at)? as usize;
    let content = data.get(at + 4..)?;
    let mut names: Vec<String> = Vec::new();
    for name in [label, path, copy.strip_suffix(b"\0").unwrap_or(copy)] {
        let name = bounded_name(name.rsplit(|byte| b"\\/".contains(byte)).next().unwrap_or(name));
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    Some((names, &content[..size.min(content.len())]))
}

/// The names that an attachment of a MSG file has in streams beside it; none for other streams.
fn attached_names(compound: &mut Compound<'_>, path: &Path) -> Vec<String> {
    let Some(folder) = path.parent().filter(|_| last(path).eq_ignore_ascii_case(ATTACHED_DATA)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for stream in ATTACHED_NAMES {
        let text = beginning(compound, &folder.join(stream), NAME_MAX);
        let name = if stream.ends_with('F') {
            let units: Vec<u16> = text.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            bounded_name(String::from_utf16_lossy(&units).trim_end_matches('\0').as_bytes())
        } else {
            bounded_name(text.strip_suffix(b"\0").unwrap_or(&text))
        };
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn last(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packaged_file_has_names() {
        let mut data = vec![0; 6];
        data.extend_from_slice(b"fine.txt\0C:\\evil.exe\0\0\0\x03\0\x09\0\0\0D:\\a.com\0\x04\0\0\0MZ..rest");
        let names = ["fine.txt", "evil.exe", "a.com"].map(str::to_owned).to_vec();
        assert_eq!(packaged(&data), Some((names, &b"MZ.."[..])));
        for cut in 0..data.len() {
            let _ = packaged(&data[..cut]);
        }
    }

    #[test]
    fn documents_of_word_with_a_password_or_old_macros_say_so() {
        let header = |version: u8, flags: u8, table: &[u8]| {
            let mut header = vec![0; 0x300];
            header[..12].copy_from_slice(&[0xdc, 0xa5, version, 0, 0, 0, 0, 0, 0, 0, 0, flags]);
            header[0x118..0x120].copy_from_slice(&[0, 3, 0, 0, table.len() as u8, 0, 0, 0]);
            [&header, table].concat()
        };
        assert!(is_locked_text(&header(0xc1, 1, b"")) && is_locked_text(&header(0x68, 0x81, b"")));
        assert!(!is_locked_text(&header(0xc1, 0xfe, b"")) && !is_locked_text(b"short"));
        assert!(
            has_word_basic(&header(0x68, 0, b"\xff\x01\x01\0")) && has_word_basic(&header(0x65, 0, b"\xff\x03\x40"))
        );
        assert!(
            !has_word_basic(&header(0xc1, 0, b"\xff\x01\x01\0")) && !has_word_basic(&header(0x68, 0, b"\xff\x40\0"))
        );
        assert!(!has_word_basic(&header(0x68, 0, b"")) && !has_word_basic(&header(0x68, 0, b"\xff\x01")[..0x200]));
    }

    #[test]
    fn attachments_have_names_whatever_the_case_of_their_streams() {
        let streams = [("/a/__SUBSTG1.0_37010102", b"x=1\n".as_slice()), ("/a/__SUBSTG1.0_3707001E", b"run.js\0")];
        let data = crate::test_files::compound(&streams);
        let mut compound = CompoundFile::open(Cursor::new(data.as_slice())).unwrap();
        assert_eq!(attached_names(&mut compound, Path::new("/a/__SUBSTG1.0_37010102")), ["run.js"]);
    }
}
