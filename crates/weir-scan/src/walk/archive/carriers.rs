//! Documents that carry whole files without being archives: calendars, notes, signed mail.

use super::super::kind::{COMPOUND, Kind};
use super::super::pkcs7::Pkcs7;
use super::super::transfer::{Padding, base64};
use super::super::{File, Oddity, Walk, bounded_name};
use super::{entity, is_of_apple};
use crate::budget::Exceeded;
use crate::file_name;
use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::markup;
use flate2::read::ZlibDecoder;
use std::collections::BTreeSet;

/// The parameters in which programs keep the name of an attached file.
const CALENDAR_NAMES: [&str; 5] = ["X-FILENAME=", "FILENAME=", "X-APPLE-FILENAME=", "X-ORACLE-FILENAME=", "LABEL="];

/// Files in a calendar (RFC 5545, section 3.8.1.1): `ATTACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME=name:content`, folded anywhere.
pub(super) fn calendar(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    attached(walk, data, level)?;
    let alone = |at: usize| data[at] == b'\r' && data.get(at + 1) != Some(&b'\n');
    if !memchr::memchr_iter(b'\r', data).any(alone) {
        return Ok(());
    }
    // Some end a line at a return alone.
    let lines: Vec<u8> = (0..data.len()).map(|at| if alone(at) { b'\n' } else { data[at] }).collect();
    walk.holding(&lines, |walk, lines| attached(walk, lines, level))
}

/// The same where something else stands before the calendar, and only its name or type says what it is.
pub(super) fn named_calendar(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let named = file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| own == "ics" || own == "vcs");
    let is_calendar = file.kind == Kind::Unknown && (named || file.declared == "text/calendar");
    if is_calendar { calendar(walk, file.data, level) } else { Ok(()) }
}

fn attached(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut rest = data;
    while !rest.is_empty() {
        let (line, behind) = unfolded(rest);
        rest = behind;
        if line.get(..6).is_none_or(|name| !name.eq_ignore_ascii_case(b"ATTACH")) {
            continue;
        }
        let Some(colon) = value_begins(&line) else { continue };
        let (head, value) = (&line[..colon], &line[colon + 1..]);
        let upper = head.to_ascii_uppercase();
        if memchr::memmem::find(&upper, b"BASE64").is_none() && memchr::memmem::find(&upper, b"BINARY").is_none() {
            continue;
        }
        let named = CALENDAR_NAMES.iter().filter_map(|key| {
            let at = memchr::memmem::find(&upper, key.as_bytes())? + key.len();
            let text = head[at..].strip_prefix(b"\"").map_or_else(
                || head[at..].split(|byte| *byte == b';').next(),
                |quoted| quoted.split(|byte| *byte == b'"').next(),
            )?;
            Some(bounded_name(text))
        });
        let names: Vec<String> = named.collect();
        let content = base64(value, Padding::EndsGroup);
        walk.budget.entry()?;
        walk.holding(&content, |walk, content| walk.file(&names, "", content, level))?;
    }
    Ok(())
}

/// The line at the start, with those that go on with it, and what is behind them.
fn unfolded(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut line, mut rest) = (Vec::new(), text);
    loop {
        let (piece, behind) = rest.split_at(memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1));
        let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
        line.extend_from_slice(piece.strip_suffix(b"\r").unwrap_or(piece));
        match behind {
            [b' ' | b'\t', more @ ..] => rest = more,
            _ => return (line, behind),
        }
    }
}

/// The colon that no quotes are around.
fn value_begins(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().position(|byte| {
        quoted ^= *byte == b'"';
        *byte == b':' && !quoted
    })
}

/// What stands before each file in a section of OneNote (Microsoft, *[MS-ONESTORE]*, section 2.6.13).
const NOTE_FILE: &[u8] = b"\xe7\x16\xe3\xbd\x65\x26\x11\x45\xa4\xc4\x8d\x4d\x0b\x7a\x9e\xac";

/// The form in which OneDrive and SharePoint hand out a section: where its header says so, and how (section 2.8.1).
const NOTE_FORM: std::ops::Range<usize> = 48..64;
const OF_SERVER: &[u8] = b"\x2f\xe9\x8d\x63\xd4\xa6\xc1\x4b\x9a\x36\xb3\xfc\x25\x11\xa5\xb7";

/// As long as a name may be, in units of two octets.
const NOTE_NAME_LONGEST: usize = 260;

/// Files in a section of OneNote, and their names. Which of them is that of which file is told by tables that are not read here, so each name is
/// judged by itself: under that of another one, an honest file would be in disguise.
pub(super) fn notes(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    if data.get(NOTE_FORM) == Some(OF_SERVER) {
        let why = "a OneNote section as OneDrive and SharePoint write it, whose files are not opened here";
        walk.odd_here(Oddity::Unreadable(why.into()));
    }
    let mut has_files = false;
    for at in memchr::memmem::find_iter(data, NOTE_FILE) {
        has_files = true;
        let from = at + 16 + 20;
        let length = u64_at(data, at + 16).and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        let rest = data.get(from..).unwrap_or_default();
        if length > rest.len() {
            walk.odd_here(Oddity::Unreadable("a OneNote section that breaks off".into()));
        }
        walk.odd_here(Oddity::EmbeddedObject);
        walk.stored(&["embedded in a note".into()], &rest[..length.min(rest.len())], level)?;
    }
    if !has_files {
        return Ok(());
    }
    let names = note_names(data, walk.budget.limits().entries as usize);
    names.iter().try_for_each(|name| walk.stored(std::slice::from_ref(name), &[], level))
}

/// The names of files in a section: texts in UTF-16 that end with a NUL, with their length before them (Microsoft, *[MS-ONE]*, section 2.2.71).
/// Paragraphs are written so, too, and in these `.com` is a domain.
fn note_names(data: &[u8], most: usize) -> Vec<String> {
    let (mut names, mut behind) = (BTreeSet::new(), 0);
    for dot in memchr::memmem::find_iter(data, b".\0") {
        if dot < behind || names.len() >= most {
            continue;
        }
        let unit = |at: usize| u16_at(data, at).filter(|unit| *unit >= 0x20);
        let before = (1..=NOTE_NAME_LONGEST).take_while(|units| dot.checked_sub(2 * units).and_then(unit).is_some());
        let after = (1..=NOTE_NAME_LONGEST).take_while(|units| unit(dot + 2 * units).is_some());
        let (begin, end) = (dot - 2 * before.count(), dot + 2 * (1 + after.count()));
        behind = end;
        let told = begin.checked_sub(4).and_then(|at| u32_at(data, at));
        if told != u32::try_from(end + 2 - begin).ok() || u16_at(data, end) != Some(0) {
            continue;
        }
        let units: Vec<u16> = (begin..end).step_by(2).filter_map(|at| u16_at(data, at)).collect();
        let name = String::from_utf16_lossy(&units);
        if file_name::extension(&name).is_some_and(|own| !own.is_empty() && own != "com") {
            names.insert(name);
        }
    }
    names.into_iter().collect()
}

/// Mail and files that are signed with their content inside (RFC 8551, section 3.5.2), packed, or sealed, which only their reader opens.
pub(super) fn pkcs7(walk: &mut Walk<'_>, file: &File<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    // `invoice.pdf.p7m` holds `invoice.pdf`; `smime.p7m` holds mail.
    let stems = file.names.iter().filter_map(|name| name.trim_end().rsplit_once('.')).map(|(stem, _)| stem);
    let names: Vec<String> = stems.filter(|stem| stem.contains('.')).map(str::to_owned).collect();
    match Pkcs7::read(data) {
        Some(Pkcs7::Sealed) => {
            if !names.is_empty() {
                walk.stored(&names, &[], level)?;
            }
            walk.odd_here(Oddity::Sealed);
        }
        Some(Pkcs7::Signed(octets)) => {
            walk.budget.entry()?;
            walk.holding(&octets, |walk, octets| entity(walk, &names, "signed.eml", octets, level))?;
        }
        Some(Pkcs7::Packed(octets)) => {
            walk.budget.entry()?;
            let unpacked = walk.budget.unpack(octets.len() as u64, &mut ZlibDecoder::new(&*octets));
            walk.unpacked(&names, &unpacked, |walk, data| entity(walk, &names, "packed.eml", data, level))?;
        }
        Some(Pkcs7::TooDeep) => {
            walk.odd_here(Oddity::Unreadable("a signed message in pieces that are too deep inside each other".into()));
        }
        // The signature is apart from what it signs.
        None => {}
    }
    Ok(())
}

/// The same as a text: in PEM, or in base64 alone, as some programs for signing write it.
pub(super) fn pkcs7_text(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let text = file.data.trim_ascii();
    let pem = [b"-----BEGIN PKCS7".as_slice(), b"-----BEGIN CMS", b"-----BEGIN PKCS #7"]
        .iter()
        .any(|mark| text.starts_with(mark));
    let extensions = || file.names.iter().flat_map(|name| file_name::extensions(name));
    let signed = || extensions().any(|own| matches!(own.as_str(), "p7m" | "p7z" | "p7x" | "tsd" | "m7m"));
    let named = file.declared.contains("pkcs7")
        || extensions().any(|own| matches!(own.as_str(), "p7s" | "p7c" | "p7b"))
        || signed();
    if !(pem || named) || text.is_empty() {
        return Ok(());
    }
    let body = if pem { &text[memchr::memchr(b'\n', text).unwrap_or(0)..] } else { text };
    let end = memchr::memmem::find(body, b"-----END").unwrap_or(body.len());
    let decoded = base64(&body[..end], Padding::EndsGroup);
    if Kind::of(&decoded) == Kind::Pkcs7 {
        walk.budget.entry()?;
        walk.deeper(|walk| walk.holding(&decoded, |walk, decoded| pkcs7(walk, file, decoded, level)))?;
    } else if signed() && !is_of_apple(file.data) {
        walk.odd_here(Oddity::Unreadable("the name of a signed file, and none that we know".into()));
    }
    Ok(())
}

/// How Office begins a file with a macro project outside of a compound file, and the same in base64.
const ACTIVE_MIME: &[u8] = b"ActiveMime";
const ACTIVE_MIME_ENCODED: &[u8] = b"QWN0aXZlTWltZ";

/// Macros in pages of Word, in XML of Word 2003, and behind a PDF that Word opens as a page: wherever the project stands, plain or in base64.
pub(super) fn active_mime(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    if data.starts_with(ACTIVE_MIME) {
        return project(walk, data, level);
    }
    for at in memchr::memmem::find_iter(data, ACTIVE_MIME_ENCODED).take(16) {
        let is = |byte: &u8| byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=".contains(byte);
        let length = data[at..].iter().take_while(|byte| is(byte)).count();
        walk.budget.room(length)?;
        let decoded = base64(&data[at..at + length], Padding::EndsGroup);
        walk.holding(&decoded, |walk, decoded| project(walk, decoded, level))?;
    }
    Ok(())
}

/// The compound file in it, packed behind a header of no fixed length.
fn project(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    walk.odd_here(Oddity::Macros);
    let packed = memchr::memchr_iter(b'x', &data[..data.len().min(1024)]).filter(|at| *at >= ACTIVE_MIME.len());
    for at in packed {
        walk.budget.time()?;
        let unpacked = walk.budget.unpack(data.len() as u64, &mut ZlibDecoder::new(&data[at..]));
        walk.budget.release(unpacked.data.len());
        if let crate::budget::UnpackEnd::Exceeded(exceeded) = unpacked.end {
            return Err(exceeded);
        }
        // Half of the signature is enough: one that is damaged behind it is shown as well.
        if unpacked.data.starts_with(&COMPOUND[..4]) {
            walk.budget.entry()?;
            return walk.holding(&unpacked.data, |walk, data| walk.file(&["editdata.mso".into()], "", data, level));
        }
    }
    Ok(())
}

/// A document of Word or PowerPoint as one XML file: each part is a file as in the zip archive that it is otherwise.
pub(super) fn flat_package(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    walk.deeper(|walk| package_parts(walk, data, level))
}

fn package_parts(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut names = Vec::new();
    for tag in markup::tags(data) {
        if tag.is("part") {
            let name = tag.value("name").unwrap_or_default();
            names = vec![bounded_name(name.strip_prefix(b"/").unwrap_or(&name))];
            continue;
        }
        let rest = data.get(tag.end()..).unwrap_or_default();
        if tag.is("binaryData") {
            let length = memchr::memchr(b'<', rest).unwrap_or(rest.len());
            walk.budget.entry()?;
            walk.budget.room(length)?;
            let decoded = base64(&rest[..length], Padding::EndsGroup);
            walk.holding(&decoded, |walk, decoded| walk.file(&names, "", decoded, level))?;
        } else if tag.is("xmlData") {
            let length = memchr::memmem::find(rest, b"xmlData").unwrap_or(rest.len());
            walk.stored(&names, &rest[..length], level)?;
        }
    }
    Ok(())
}

/// Basic of LibreOffice, in a file of its own or in a document that is one.
pub(super) fn is_basic(data: &[u8]) -> bool {
    const MARKS: [&str; 4] = ["<script:module", "<ooo:library-embedded", "<ooo:module", "<script:library-embedded"];
    let head = &data[..data.len().min(4 << 20)];
    MARKS.iter().any(|mark| memchr::memmem::find(head, mark.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::seen::Seen;

    #[test]
    fn lines_of_a_calendar_are_joined() {
        let (line, behind) = unfolded(b"ATT\r\n ACH;X=\"a:b\":AB\r\n CD\n\tEF\r\nSUMMARY:x");
        assert_eq!((line.as_slice(), behind), (&b"ATTACH;X=\"a:b\":ABCDEF"[..], &b"SUMMARY:x"[..]));
        assert_eq!(unfolded(b"\r\n ATTACH:x").0, b"ATTACH:x");
        assert_eq!(value_begins(b"ATTACH;X=\"a:b\":AB"), Some(14));
    }

    #[test]
    fn names_in_a_note_have_their_length_before_them() {
        let text = |text: &str, length: u32| {
            let units = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes);
            length.to_le_bytes().into_iter().chain(units).collect::<Vec<u8>>()
        };
        let data = [b"x".to_vec(), text("run.1.js", 18), text("a.vbs", 13), text("see a.com", 20), text("b.hta", 12)];
        assert_eq!(note_names(&data.concat(), 10), ["b.hta", "run.1.js"]);
        assert!(note_names(&b".\0".repeat(1 << 18), 10).is_empty());
    }

    #[test]
    fn a_section_in_the_form_of_a_server_is_not_clean() {
        let odd = |data: &[u8]| Seen::of("a.one", data).odd;
        let section = b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3".as_slice();
        let contents = b"\xa1\x2f\xff\x43\xd9\xef\x76\x4c\x9e\xe2\x10\xea\x57\x22\x76\x5f".as_slice();
        let usual = b"\x3f\xdd\x9a\x10\x1b\x91\xf5\x49\xa5\xd0\x17\x91\xed\xc8\xae\xd8".as_slice();
        for kind in [section, contents] {
            assert_eq!(odd(&[kind, &[7; 32], usual, &[0; 1000]].concat()), []);
            let said = odd(&[kind, &[7; 32], OF_SERVER, &[0; 1000]].concat());
            assert!(matches!(&said[..], [Oddity::Unreadable(_)]), "{said:?}");
        }
    }
}
