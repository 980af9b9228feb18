//! Documents that carry whole files without being archives: calendars, notes, signed mail, RTF.

use super::super::kind::Kind;
use super::super::pkcs7::Pkcs7;
use super::super::transfer::{Padding, base64, nibble};
use super::super::{File, Oddity, Walk, bounded_name};
use super::entity;
use super::ole::packaged;
use crate::budget::Exceeded;
use crate::file_name;
use crate::little_endian::{u32_at, u64_at};
use flate2::read::ZlibDecoder;

/// Files in a calendar (RFC 5545, section 3.8.1.1): `ATTACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME=name:content`, folded.
pub(super) fn calendar(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let (mut at, upper) = (0, data.to_ascii_uppercase());
    while let Some(found) = memchr::memmem::find(&upper[at..], b"\nATTACH") {
        let from = at + found + 1;
        let line = unfolded(&data[from..]);
        at = from + 1;
        let Some(colon) = value_begins(&line) else { continue };
        let (head, value) = (&line[..colon], &line[colon + 1..]);
        let upper = head.to_ascii_uppercase();
        if memchr::memmem::find(&upper, b"BASE64").is_none() && memchr::memmem::find(&upper, b"BINARY").is_none() {
            continue;
        }
        let names: Vec<String> = ["X-FILENAME=", "FILENAME=", "X-APPLE-FILENAME=", "X-ORACLE-FILENAME="]
            .iter()
            .filter_map(|key| {
                let at = memchr::memmem::find(&upper, key.as_bytes())? + key.len();
                let text = head[at..].strip_prefix(b"\"").map_or_else(
                    || head[at..].split(|byte| *byte == b';').next(),
                    |quoted| quoted.split(|byte| *byte == b'"').next(),
                )?;
                Some(bounded_name(text))
            })
            .collect();
        let content = base64(value, Padding::EndsGroup);
        walk.budget.entry()?;
        walk.holding(&content, |walk, content| walk.file(&names, "", content, level))?;
    }
    Ok(())
}

/// The line at the start, with those that go on with it.
fn unfolded(text: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    for (number, piece) in text.split(|byte| *byte == b'\n').enumerate() {
        let piece = piece.strip_suffix(b"\r").unwrap_or(piece);
        match (number, piece.strip_prefix(b" ").or_else(|| piece.strip_prefix(b"\t"))) {
            (0, _) => line.extend_from_slice(piece),
            (_, Some(more)) => line.extend_from_slice(more),
            (_, None) => break,
        }
    }
    line
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

/// Files in a section of OneNote. Their names stand elsewhere; their content says what they are.
pub(super) fn notes(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for at in memchr::memmem::find_iter(data, NOTE_FILE) {
        let from = at + 16 + 20;
        let length = u64_at(data, at + 16).and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        let rest = data.get(from..).unwrap_or_default();
        if length > rest.len() {
            walk.odd_here(Oddity::Unreadable("a OneNote section that breaks off".into()));
        }
        walk.odd_here(Oddity::EmbeddedObject);
        walk.stored(&["embedded in a note".into()], &rest[..length.min(rest.len())], level)?;
    }
    Ok(())
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
            let unpacked = walk.budget.unpack(octets.len() as u64, &mut ZlibDecoder::new(octets.as_slice()));
            walk.unpacked(&names, &unpacked, |walk, data| entity(walk, &names, "packed.eml", data, level))?;
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
        walk.depth += 1;
        walk.budget.depth(walk.depth)?;
        walk.holding(&decoded, |walk, decoded| pkcs7(walk, file, decoded, level))?;
        walk.depth -= 1;
    } else if signed() {
        walk.odd_here(Oddity::Unreadable("the name of a signed file, and none that we know".into()));
    }
    Ok(())
}

/// Objects in RTF, written as hexadecimal digits.
pub(super) fn rtf(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for at in memchr::memmem::find_iter(data, b"\\objdata") {
        walk.budget.entry()?;
        let object = digits(&data[at + 8..]);
        walk.odd_here(Oddity::EmbeddedObject);
        walk.holding(&object, |walk, object| {
            if let Some((names, content)) = native(object).and_then(packaged) {
                walk.file(&names, "", content, level)?;
            }
            // A compound file behind a header of OLE 1.
            let inside = memchr::memmem::find(&object[..object.len().min(512)], b"\xd0\xcf\x11\xe0").unwrap_or(0);
            if inside > 0 {
                walk.file(&["object".into()], "", &object[inside..], level)?;
            }
            walk.file(&["object".into()], "", object, level)
        })?;
    }
    Ok(())
}

/// The data of an object of OLE 1, from its length on: behind two numbers and three texts with their lengths.
fn native(object: &[u8]) -> Option<&[u8]> {
    let mut at = 8;
    for _ in 0..3 {
        at = (at + 4usize).checked_add(u32_at(object, at)? as usize)?;
    }
    object.get(at..)
}

/// Digits up to the end of the group; white space and control words between them do not count.
fn digits(text: &[u8]) -> Vec<u8> {
    let (mut out, mut high, mut word, mut depth) = (Vec::new(), None, false, 0i32);
    for byte in text {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b'\\' => word = true,
            _ if word => word = !byte.is_ascii_whitespace() && byte.is_ascii_alphanumeric(),
            byte if byte.is_ascii_hexdigit() => match high.take() {
                None => high = Some(nibble(*byte)),
                Some(first) => out.push(first << 4 | nibble(*byte)),
            },
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_calendar_are_joined() {
        assert_eq!(unfolded(b"ATTACH;X=\"a:b\":AB\r\n CD\r\n\tEF\r\nSUMMARY:x"), b"ATTACH;X=\"a:b\":ABCDEF");
        assert_eq!(value_begins(b"ATTACH;X=\"a:b\":AB"), Some(14));
    }

    #[test]
    fn digits_of_an_object() {
        assert_eq!(digits(b" 4d\r\n5a \\par 90{\\*\\x 00} }ff"), b"MZ\x90\0");
    }
}
