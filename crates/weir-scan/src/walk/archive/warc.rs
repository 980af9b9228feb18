//! Pages that were saved as a program for archives keeps them (WARC, ISO 28500) or as Safari does (`.webarchive`): each with the files that belong to it.

use super::super::transfer::{Padding, base64};
use super::super::{File, Oddity, Walk, bounded_name};
use crate::budget::Exceeded;
use crate::markup;

/// A record has a dozen fields.
const HEADER_MAX: usize = 64 << 10;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if file.data.starts_with(b"WARC/") {
        return inside(walk, |walk| records(walk, file.data, level));
    }
    let of_safari = |data: &[u8]| memchr::memmem::find(data, b"WebResourceData").is_some();
    if file.data.starts_with(b"bplist00") && of_safari(file.data) {
        return inside(walk, |walk| binary_list(walk, file.data, level));
    }
    let head = &file.data[..file.data.len().min(4096)];
    if memchr::memmem::find(head, b"<plist").is_some() && of_safari(file.data) {
        return inside(walk, |walk| list(walk, file.data, level));
    }
    Ok(())
}

fn inside<'w>(walk: &mut Walk<'w>, open: impl FnOnce(&mut Walk<'w>) -> Result<(), Exceeded>) -> Result<(), Exceeded> {
    walk.depth += 1;
    walk.budget.depth(walk.depth)?;
    open(walk)?;
    walk.depth -= 1;
    Ok(())
}

/// A header of lines, an empty line, so many octets as the header says, two empty lines.
fn records(walk: &mut Walk<'_>, mut rest: &[u8], level: u32) -> Result<(), Exceeded> {
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        let Some((header, body)) = split(rest).filter(|_| rest.starts_with(b"WARC/")) else {
            walk.odd_here(Oddity::Unreadable("a web archive that is damaged".into()));
            return Ok(());
        };
        let length = field(header, "content-length").and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
        if length.is_none_or(|length: usize| length > body.len()) {
            walk.odd_here(Oddity::Unreadable("a record of a web archive that breaks off".into()));
        }
        let (content, behind) = body.split_at(length.unwrap_or(body.len()).min(body.len()));
        record(walk, header, content, level)?;
        rest = behind;
    }
}

/// What a server sent has a header of its own.
fn record(walk: &mut Walk<'_>, header: &[u8], content: &[u8], level: u32) -> Result<(), Exceeded> {
    let address = field(header, "warc-target-uri").unwrap_or_default();
    let address = address.strip_prefix(b"<").and_then(|text| text.strip_suffix(b">")).unwrap_or(address);
    let path = address.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(b"record");
    let kind = String::from_utf8_lossy(field(header, "warc-type").unwrap_or_default()).to_ascii_lowercase();
    let content = match split(content) {
        Some((answer, body)) if content.starts_with(b"HTTP/") => unpacked(walk, answer, body),
        _ => content,
    };
    // Others than these say something about the archive.
    if matches!(kind.as_str(), "request" | "metadata" | "warcinfo" | "revisit") {
        return walk.stored(&["record".into()], content, level);
    }
    walk.stored(&[bounded_name(name)], content, level)
}

/// The body of an answer. What a server packed is known by its mark; nobody here undoes the rest.
fn unpacked<'a>(walk: &mut Walk<'_>, header: &[u8], body: &'a [u8]) -> &'a [u8] {
    let coding = String::from_utf8_lossy(field(header, "content-encoding").unwrap_or_default()).to_ascii_lowercase();
    if !matches!(coding.trim(), "" | "identity" | "gzip" | "x-gzip" | "zstd") {
        walk.odd_here(Oddity::Unreadable("a record of a web archive, packed in an unusual way".into()));
    }
    body
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = &text[..text.len().min(HEADER_MAX)];
    let wide = memchr::memmem::find(head, b"\r\n\r\n").map(|at| (at, at + 4));
    let narrow = memchr::memmem::find(head, b"\n\n").map(|at| (at, at + 2));
    let (end, body) = [wide, narrow].into_iter().flatten().min()?;
    Some((&text[..end], &text[body..]))
}

/// The value of a field.
fn field<'t>(header: &'t [u8], name: &str) -> Option<&'t [u8]> {
    header.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
    })
}

/// Apple's list as XML: what is in base64 are files.
fn list(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    for tag in markup::tags(data).filter(|tag| tag.is("data")) {
        let rest = data.get(tag.end()..).unwrap_or_default();
        let length = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        walk.budget.entry()?;
        walk.budget.room(length)?;
        let decoded = base64(&rest[..length], Padding::EndsGroup);
        walk.holding(&decoded, |walk, decoded| walk.file(&["page.html".into()], "", decoded, level))?;
    }
    Ok(())
}

/// The same in octets: a table at the end says where each object begins, and the first half of its first octet what it is.
fn binary_list(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let number = |from: usize, length: usize| {
        let octets = data.get(from..from.checked_add(length)?).filter(|octets| octets.len() <= 8)?;
        usize::try_from(octets.iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet))).ok()
    };
    let trailer = data.len().saturating_sub(32);
    let width = data.get(trailer + 6).map_or(0, |width| usize::from(*width));
    let (Some(count), Some(table)) = (number(trailer + 8, 8), number(trailer + 24, 8)) else { return Ok(()) };
    for object in 0..count.min(data.len()) {
        let place = object.checked_mul(width).and_then(|offset| number(table.checked_add(offset)?, width));
        let Some(at) = place.filter(|at| data.get(*at).is_some_and(|mark| mark >> 4 == 4)) else { continue };
        // Longer ones have their length as a number of its own.
        let (begin, length) = match data[at] & 0xf {
            0xf => {
                let size = 1 << data.get(at + 1).map_or(0, |mark| mark & 3);
                (at + 2 + size, number(at + 2, size).unwrap_or(usize::MAX))
            }
            short => (at + 1, usize::from(short)),
        };
        let rest = data.get(begin..trailer).unwrap_or_default();
        walk.stored(&["page.html".into()], &rest[..length.min(rest.len())], level)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_fields() {
        let (header, body) =
            split(b"WARC/1.0\r\nContent-Length: 3\r\nWARC-Target-URI:<http://a/b>\r\n\r\nabc").unwrap();
        assert_eq!((field(header, "content-length"), body), (Some(&b"3"[..]), &b"abc"[..]));
        assert_eq!(field(header, "warc-target-uri"), Some(&b"<http://a/b>"[..]));
        assert!(split(b"WARC/1.0\r\nno end").is_none());
    }
}
