//! Pages that were saved as a program for archives keeps them (WARC, ISO 28500) or as Safari does (`.webarchive`): each with the files that belong to it.

use super::super::field::HeaderFields;
use super::super::transfer::{Padding, base64};
use super::super::{File, Oddity, Walk, bounded_name};
use super::is_of_apple;
use crate::budget::Exceeded;
use crate::{file_name, markup};
use flate2::read::{DeflateDecoder, ZlibDecoder};
use std::io::Read;

/// A record has a dozen fields.
const HEADER_MAX: usize = 64 << 10;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if file.data.starts_with(b"WARC/") {
        return walk.deeper(|walk| records(walk, file.data, level));
    }
    let by_name = |name: &String| file_name::extensions(name).any(|own| own == "webarchive");
    let named = file.declared.contains("webarchive") || file.names.iter().any(by_name);
    let of_safari = || named || memchr::memmem::find(file.data, b"WebResourceData").is_some();
    if file.data.starts_with(b"bplist00") && of_safari() {
        return walk.deeper(|walk| binary_list(walk, file.data, level));
    }
    let head = if named { file.data } else { &file.data[..file.data.len().min(4096)] };
    if memchr::memmem::find(head, b"<plist").is_some() && of_safari() {
        return walk.deeper(|walk| list(walk, file.data, level));
    }
    if named && !file.data.is_empty() && !is_of_apple(file.data) {
        walk.odd_here(Oddity::Unreadable("the name of a saved page, and none that we know".into()));
    }
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

fn record(walk: &mut Walk<'_>, header: &[u8], content: &[u8], level: u32) -> Result<(), Exceeded> {
    let address = field(header, "warc-target-uri").unwrap_or_default();
    let address = address.strip_prefix(b"<").and_then(|text| text.strip_suffix(b">")).unwrap_or(address);
    let path = address.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(b"record");
    let kind = String::from_utf8_lossy(field(header, "warc-type").unwrap_or_default()).to_ascii_lowercase();
    // Others than these say something about the archive.
    let is_about = matches!(kind.as_str(), "request" | "metadata" | "warcinfo" | "revisit");
    let names = [if is_about { "record".into() } else { bounded_name(name) }];
    if !content.starts_with(b"HTTP/") {
        return walk.stored(&names, content, level);
    }
    if let Some((header, body)) = split(content) {
        return answer(walk, &names, header, body, level);
    }
    if content.len() > HEADER_MAX {
        walk.odd_here(Oddity::Unreadable("an answer in a web archive whose header has no end".into()));
    }
    walk.stored(&names, content, level)
}

/// What a server sent. Its header says how the body was cut into pieces (RFC 9112, section 7), and how it was packed before that.
fn answer(walk: &mut Walk<'_>, names: &[String], header: &[u8], body: &[u8], level: u32) -> Result<(), Exceeded> {
    match codings(header, "transfer-encoding").as_str() {
        "" => unpacked(walk, names, header, body, level),
        "chunked" => {
            walk.budget.room(body.len())?;
            let (joined, is_whole) = unchunked(body);
            // Some programs keep the body in one piece, and the field as it was.
            if joined.is_empty() {
                return unpacked(walk, names, header, body, level);
            }
            if !is_whole {
                walk.odd_here(Oddity::Unreadable("an answer in a web archive that breaks off".into()));
            }
            walk.holding(&joined, |walk, joined| unpacked(walk, names, header, joined, level))
        }
        _ => {
            walk.odd_here(Oddity::Unreadable("an answer in a web archive, sent in an unusual way".into()));
            unpacked(walk, names, header, body, level)
        }
    }
}

/// The body of an answer. Some packed files are known by their mark; one of zlib or none is unpacked here (RFC 9110, section 8.4).
fn unpacked(walk: &mut Walk<'_>, names: &[String], header: &[u8], body: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut reader: Box<dyn Read + '_> = match codings(header, "content-encoding").as_str() {
        // Servers send both under this name.
        "deflate" if body.first().is_some_and(|first| first & 0xf == 8) => Box::new(ZlibDecoder::new(body)),
        "deflate" => Box::new(DeflateDecoder::new(body)),
        coding => {
            if !matches!(coding, "" | "gzip" | "x-gzip" | "zstd") {
                walk.odd_here(Oddity::Unreadable("a record of a web archive, packed in an unusual way".into()));
            }
            return walk.stored(names, body, level);
        }
    };
    walk.member(names, body.len() as u64, &mut *reader, level).map(|_| ())
}

/// A body in pieces, joined, and whether it has its end. Before each piece stands its length, in hexadecimal digits.
fn unchunked(body: &[u8]) -> (Vec<u8>, bool) {
    let (mut whole, mut rest) = (Vec::new(), body);
    while let Some((length, behind)) = chunk_length(rest) {
        if length == 0 {
            return (whole, true);
        }
        let (piece, behind) = behind.split_at(length.min(behind.len()));
        whole.extend_from_slice(piece);
        rest = behind.strip_prefix(b"\r").unwrap_or(behind).strip_prefix(b"\n").unwrap_or_default();
    }
    (whole, false)
}

fn chunk_length(text: &[u8]) -> Option<(usize, &[u8])> {
    let end = memchr::memchr(b'\n', &text[..text.len().min(HEADER_MAX)])?;
    let digits = text[..end].split(|byte| *byte == b';').next()?.trim_ascii();
    let length = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((length, &text[end + 1..]))
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = &text[..text.len().min(HEADER_MAX)];
    let wide = memchr::memmem::find(head, b"\r\n\r\n").map(|at| (at, at + 4));
    let narrow = memchr::memmem::find(head, b"\n\n").map(|at| (at, at + 2));
    let (end, body) = [wide, narrow].into_iter().flatten().min()?;
    Some((&text[..end], &text[body..]))
}

fn fields<'t>(header: &'t [u8], name: &str) -> impl Iterator<Item = &'t [u8]> {
    HeaderFields(header)
        .filter(move |(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value.trim_ascii())
}

fn field<'t>(header: &'t [u8], name: &str) -> Option<&'t [u8]> {
    fields(header, name).next()
}

/// What was done to a body, by all fields of this name, in small letters with commas between them.
fn codings(header: &[u8], name: &str) -> String {
    let all: Vec<String> =
        fields(header, name).map(|value| String::from_utf8_lossy(value).to_ascii_lowercase()).collect();
    let all = all.iter().flat_map(|value| value.split(',')).map(str::trim);
    all.filter(|coding| !matches!(*coding, "" | "identity")).collect::<Vec<_>>().join(",")
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
    let (objects, mut is_damaged) = binary_objects(data);
    for object in objects {
        let Some(content) = object else {
            is_damaged = true;
            continue;
        };
        walk.stored(&["page.html".into()], content, level)?;
    }
    if is_damaged {
        walk.odd_here(Oddity::Unreadable("a saved page that is damaged".into()));
    }
    Ok(())
}

/// The objects that are octets, none for one that is not where the table says; and whether the table itself cannot be read.
fn binary_objects(data: &[u8]) -> (impl Iterator<Item = Option<&[u8]>>, bool) {
    let number = move |from: usize, length: usize| {
        let octets = data.get(from..from.checked_add(length)?)?;
        usize::try_from(octets.iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet))).ok()
    };
    let trailer = data.len().saturating_sub(32);
    let width = data.get(trailer + 6).map_or(0, |width| usize::from(*width));
    let numbers = number(trailer + 8, 8).zip(number(trailer + 24, 8));
    let fits = |(count, table): &(usize, usize)| {
        let end = count.checked_mul(width).and_then(|length| length.checked_add(*table));
        (1..=8).contains(&width) && end.is_some_and(|end| end <= trailer)
    };
    let table = numbers.filter(fits);
    let (count, table_begin) = table.unwrap_or_default();
    let object = move |index: usize| {
        let Some(at) = number(table_begin + index * width, width).filter(|at| *at < table_begin) else {
            return Some(None);
        };
        let mark = data[at];
        if mark >> 4 != 4 {
            return None;
        }
        // Longer ones have their length as a number of its own.
        let (begin, length) = match mark & 0xf {
            0xf => {
                let mark = data.get(at + 1).filter(|mark| matches!(mark, 0x10..=0x13));
                let Some(size) = mark.map(|mark| 1usize << (mark & 3)) else { return Some(None) };
                (at + 2 + size, number(at + 2, size))
            }
            short => (at + 1, Some(usize::from(short))),
        };
        Some(length.and_then(|length| data.get(begin..begin.checked_add(length)?)))
    };
    ((0..count).filter_map(object), table.is_none())
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

    #[test]
    fn all_fields_of_a_name_count() {
        let header = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\ncontent-encoding: GZIP,\r\n br\r\n";
        assert_eq!(codings(header, "content-encoding"), "gzip,br");
        assert_eq!(codings(header, "transfer-encoding"), "");
    }

    #[test]
    fn bodies_in_pieces() {
        assert_eq!(unchunked(b"3\r\nabc\r\n00A;x=y\r\n0123456789\r\n0\r\n\r\n"), (b"abc0123456789".to_vec(), true));
        assert_eq!(unchunked(b"3\nabc\n0\n\n"), (b"abc".to_vec(), true));
        assert_eq!(unchunked(b"3\r\nab"), (b"ab".to_vec(), false));
        assert_eq!(unchunked(b"3\r\nabcd\r\n"), (b"abc".to_vec(), false));
        assert_eq!(unchunked(b"MZ is a body in one piece\n"), (Vec::new(), false));
        assert_eq!(unchunked(b"ffffffffffffffff\r\nabc"), (b"abc".to_vec(), false));
    }

    #[test]
    fn objects_of_a_binary_list() {
        // Two objects, `A` as octets and a number, and the table of their places.
        let mut list = b"bplist00\x41A\x10\x05\x08\x0a".to_vec();
        list.extend([0, 0, 0, 0, 0, 0, 1, 1]);
        list.extend([2u64, 0, 12].iter().flat_map(|number| number.to_be_bytes()));
        let read = |data: &[u8]| {
            let (objects, is_damaged) = binary_objects(data);
            (objects.map(|object| object.map(<[u8]>::to_vec)).collect::<Vec<_>>(), is_damaged)
        };
        assert_eq!(read(&list), (vec![Some(b"A".to_vec())], false));
        let changed = |at: usize, octet: u8| {
            let mut list = list.clone();
            list[at] = octet;
            read(&list)
        };
        assert_eq!(changed(12, 200), (vec![None], false), "an object outside");
        assert_eq!(changed(8, 0x4f), (vec![None], false), "a length that is none");
        // The same object with its length as a number of its own, of one octet. One of sixteen octets is none that anybody writes.
        let long = |mark: u8| {
            let mut list = b"bplist00\x4f".to_vec();
            list.extend([mark, 1, b'A', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
            list.extend([0, 0, 0, 0, 0, 0, 1, 1]);
            list.extend([1u64, 0, 26].iter().flat_map(|number| number.to_be_bytes()));
            read(&list).0
        };
        assert_eq!(long(0x10), [Some(b"A".to_vec())]);
        for mark in [0x14, 0x18, 0x20, 0x50, 0xff] {
            assert_eq!(long(mark), [None], "{mark:x}");
        }
        assert_eq!(changed(20, 0), (Vec::new(), true), "a table without width");
        assert_eq!(changed(29, 200), (Vec::new(), true), "more objects than there is room for");
        assert_eq!(read(b"bplist00"), (Vec::new(), true));
    }
}
