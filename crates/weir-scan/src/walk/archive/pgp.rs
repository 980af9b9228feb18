//! OpenPGP (RFC 9580): armoured in a text, or as it is in a file. Not all of it is encrypted: a message may be only signed or packed, and
//! then everybody reads it. Packets that are encrypted stay closed.

use super::super::transfer::{Padding, base64};
use super::super::{File, Oddity, Walk, bounded_name};
use super::{entity, is_of_apple};
use crate::budget::Exceeded;
use crate::file_name;
use std::borrow::Cow;
use std::io::Read;

/// Before the kind of an armoured block, which begins a line.
const BEGIN: &[u8] = b"-----BEGIN PGP ";
/// A mail has one block, a thread that quotes others a few.
const BLOCKS_MAX: usize = 32;
/// A message has three packets and a signature, or a key for each reader.
const PACKETS_MAX: usize = 1024;

/// Tags of packets.
const KEY_FOR_READER: u8 = 1;
const KEY_FROM_PASSWORD: u8 = 3;
const SIGNED: u8 = 4;
const PACKED: u8 = 8;
const ENCRYPTED: u8 = 9;
const LITERAL: u8 = 11;
const ENCRYPTED_SUMMED: u8 = 18;
const ENCRYPTED_AEAD: u8 = 20;

/// What was met in one message.
#[derive(Default)]
struct Met {
    opened: bool,
    password: bool,
    reader: bool,
    encrypted: bool,
}

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let mut armoured = false;
    for (kind, packets) in Blocks(file.data).take(BLOCKS_MAX) {
        armoured = true;
        walk.holding(&packets, |walk, packets| {
            let met = message(walk, file, packets, level)?;
            // It says that it is a message for somebody, whatever is in it.
            let silent = kind.starts_with(b"MESSAGE") && !met.opened;
            seal(walk, file, &met, silent, level)
        })?;
    }
    let names = || file.names.iter().flat_map(|name| file_name::extensions(name));
    let promised = names().any(|own| matches!(own.as_str(), "gpg" | "pgp")) || file.declared.contains("/pgp-encrypted");
    if armoured || file.data.is_empty() || is_of_apple(file.data) || !(promised || begins_message(file.data)) {
        return Ok(());
    }
    let met = message(walk, file, file.data, level)?;
    seal(walk, file, &met, false, level)?;
    // The first part of a PGP/MIME message is a line with a version.
    if promised && !looks_like_packets(file.data) && !file.data.trim_ascii_start().starts_with(b"Version") {
        walk.odd_here(Oddity::Unreadable("the name of an OpenPGP message, and none that we know".into()));
    }
    Ok(())
}

/// What is encrypted is told, and its name is judged as that of a locked member of an archive.
fn seal(walk: &mut Walk<'_>, file: &File<'_>, met: &Met, silent: bool, level: u32) -> Result<(), Exceeded> {
    if !met.encrypted && !silent {
        return Ok(());
    }
    let names = inner_names(file, None);
    if !names.is_empty() {
        walk.stored(&names, &[], level)?;
    }
    let oddity = if met.password && !met.reader { Oddity::Encrypted } else { Oddity::Sealed };
    walk.odd_here(oddity);
    Ok(())
}

/// The packets of a message, and those of what is packed in it.
fn message(walk: &mut Walk<'_>, file: &File<'_>, data: &[u8], level: u32) -> Result<Met, Exceeded> {
    walk.deeper(|walk| packets(walk, file, data, level))
}

fn packets(walk: &mut Walk<'_>, file: &File<'_>, data: &[u8], level: u32) -> Result<Met, Exceeded> {
    let mut met = Met::default();
    let mut rest = data;
    for _ in 0..PACKETS_MAX {
        let Some(Packet { tag, body, behind }) = packet(rest) else { break };
        rest = behind;
        match tag {
            LITERAL => {
                met.opened = true;
                literal(walk, file, &body, level)?;
            }
            PACKED => met.join(&packed(walk, file, &body, level)?),
            KEY_FOR_READER => met.reader = true,
            KEY_FROM_PASSWORD => met.password = true,
            ENCRYPTED | ENCRYPTED_SUMMED | ENCRYPTED_AEAD => met.encrypted = true,
            _ => {}
        }
    }
    Ok(met)
}

impl Met {
    fn join(&mut self, inner: &Met) {
        self.opened |= inner.opened;
        self.password |= inner.password;
        self.reader |= inner.reader;
        self.encrypted |= inner.encrypted;
    }
}

/// A file with its name: how it is written, the name, a date, the content.
fn literal(walk: &mut Walk<'_>, file: &File<'_>, body: &[u8], level: u32) -> Result<(), Exceeded> {
    let length = body.get(1).map_or(0, |length| usize::from(*length));
    let name = body.get(2..2 + length).unwrap_or_default();
    let content = body.get(2 + length + 4..).unwrap_or_default();
    walk.budget.entry()?;
    let names = inner_names(file, Some(name));
    walk.holding(content, |walk, content| entity(walk, &names, "opened.eml", content, level))
}

/// Packets that are packed.
fn packed(walk: &mut Walk<'_>, file: &File<'_>, body: &[u8], level: u32) -> Result<Met, Exceeded> {
    let Some(mut reader) = unpacker(body) else {
        walk.odd_here(Oddity::Unreadable("an OpenPGP message that is packed in an unknown way".into()));
        return Ok(Met::default());
    };
    walk.budget.entry()?;
    let unpacked = walk.budget.unpack(body.len() as u64, &mut reader);
    let mut met = Met::default();
    walk.unpacked(&inner_names(file, None), &unpacked, |walk, data| {
        met = message(walk, file, data, level)?;
        Ok(())
    })?;
    Ok(met)
}

/// What unpacks the body of a packet; none if it is packed in an unknown way.
fn unpacker(body: &[u8]) -> Option<Box<dyn Read + '_>> {
    let (algorithm, data) = body.split_first()?;
    match algorithm {
        0 => Some(Box::new(data)),
        1 => Some(Box::new(flate2::read::DeflateDecoder::new(data))),
        2 => Some(Box::new(flate2::read::ZlibDecoder::new(data))),
        3 => Some(Box::new(bzip2::read::BzDecoder::new(data))),
        _ => None,
    }
}

/// The name in the message, and what is left of the names outside: `report.pdf.gpg` holds `report.pdf`.
fn inner_names(file: &File<'_>, inside: Option<&[u8]>) -> Vec<String> {
    // What a sender writes who asks that nothing is kept.
    let inside = inside.filter(|name| !name.is_empty() && *name != b"_CONSOLE").map(bounded_name);
    let outside =
        file.names.iter().filter_map(|name| name.trim_end().rsplit_once('.')).map(|(stem, _)| stem.to_owned());
    inside.into_iter().chain(outside).filter(|name| !name.is_empty()).collect()
}

/// The armoured blocks of a text: of what kind, and what is in them.
struct Blocks<'t>(&'t [u8]);

impl<'t> Iterator for Blocks<'t> {
    type Item = (&'t [u8], Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = memchr::memmem::find(self.0, BEGIN)?;
            let block = &self.0[at + BEGIN.len()..];
            self.0 = block;
            // The text of this one is not encoded, and its signature is a block of its own.
            if block.starts_with(b"SIGNED MESSAGE") {
                continue;
            }
            let end = memchr::memmem::find(block, b"-----END PGP").unwrap_or(block.len());
            return Some((block, base64(armoured(&block[..end]), Padding::EndsGroup)));
        }
    }
}

/// What is behind the fields of a block and before its sum.
fn armoured(block: &[u8]) -> &[u8] {
    let mut at = memchr::memchr(b'\n', block).map_or(block.len(), |end| end + 1);
    // Fields have a colon, which base64 has not.
    while let Some(end) = memchr::memchr(b'\n', &block[at..]) {
        let line = &block[at..at + end];
        if memchr::memchr(b':', line).is_none() && !line.trim_ascii().is_empty() {
            break;
        }
        at += end + 1;
    }
    let text = &block[at..];
    let sum = memchr::memmem::find(text, b"\n=").map_or(text.len(), |sum| sum + 1);
    &text[..sum]
}

/// Whether a file that says nothing begins as a message of OpenPGP: packets of which the first fits, and which are not encrypted or
/// fill the file.
fn begins_message(data: &[u8]) -> bool {
    // An old packet without a length, as GnuPG packs: what comes out of it says whether it is one.
    if let Some(packed) = data.strip_prefix(b"\xa3") {
        let mut first = [0];
        let read = unpacker(packed).is_some_and(|mut reader| reader.read_exact(&mut first).is_ok());
        return read && matches!(packet(&[first[0], 0]).map(|packet| packet.tag), Some(LITERAL | SIGNED | PACKED | 2));
    }
    let Some(Packet { tag, body, .. }) = packet(data).filter(|_| looks_like_packets(data)) else { return false };
    match tag {
        PACKED => body.first().is_some_and(|algorithm| *algorithm <= 3),
        LITERAL => matches!(body.first(), Some(b'b' | b't' | b'u' | b'l' | b'1' | b'm')),
        KEY_FOR_READER | SIGNED => matches!(body.first(), Some(3 | 6)),
        KEY_FROM_PASSWORD => matches!(body.first(), Some(4..=6)),
        _ => false,
    }
}

/// Whether the file is packets from its beginning to its end.
fn looks_like_packets(data: &[u8]) -> bool {
    let mut rest = data;
    for _ in 0..PACKETS_MAX {
        if rest.is_empty() {
            return true;
        }
        let Some(Packet { tag, behind, .. }) = packet(rest) else { return false };
        if tag == 0 || tag > 21 {
            return false;
        }
        rest = behind;
    }
    false
}

/// A packet: its tag, what is in it, and what is behind.
struct Packet<'d> {
    tag: u8,
    body: Cow<'d, [u8]>,
    behind: &'d [u8],
}

/// The packet at the start. One that breaks off ends with the data.
fn packet(data: &[u8]) -> Option<Packet<'_>> {
    let (first, rest) = data.split_first()?;
    match first {
        0xc0.. => {
            let mut pieces: Cow<'_, [u8]> = Cow::Borrowed(&[]);
            let mut rest = rest;
            loop {
                let (length, head, partial) = new_length(rest)?;
                rest = rest.get(head..)?;
                let taken = length.min(rest.len());
                match pieces.is_empty() && !partial {
                    true => pieces = Cow::Borrowed(&rest[..taken]),
                    false => pieces.to_mut().extend_from_slice(&rest[..taken]),
                }
                rest = &rest[taken..];
                if !partial || rest.is_empty() {
                    return Some(Packet { tag: first & 0x3f, body: pieces, behind: rest });
                }
            }
        }
        0x80.. => {
            let octets = match first & 3 {
                3 => return Some(Packet { tag: first >> 2 & 0xf, body: Cow::Borrowed(rest), behind: &[] }),
                power => 1 << power,
            };
            let length = rest.get(..octets)?.iter().fold(0usize, |sum, octet| sum << 8 | usize::from(*octet));
            let rest = &rest[octets..];
            let taken = length.min(rest.len());
            Some(Packet { tag: first >> 2 & 0xf, body: Cow::Borrowed(&rest[..taken]), behind: &rest[taken..] })
        }
        _ => None,
    }
}

/// A length of the new form, how many octets it takes, and whether more follows.
fn new_length(data: &[u8]) -> Option<(usize, usize, bool)> {
    let first = usize::from(*data.first()?);
    match first {
        0..192 => Some((first, 1, false)),
        192..224 => Some((((first - 192) << 8) + usize::from(*data.get(1)?) + 192, 2, false)),
        224..255 => Some((1 << (first & 0x1f), 1, true)),
        _ => {
            let four: [u8; 4] = data.get(1..5)?.try_into().ok()?;
            Some((u32::from_be_bytes(four) as usize, 5, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_both_forms() {
        let body = |data: &[u8]| packet(data).map(|found| (found.tag, found.body.into_owned(), found.behind.to_vec()));
        assert_eq!(body(b"\xcb\x02abc"), Some((11, b"ab".to_vec(), b"c".to_vec())));
        assert_eq!(body(b"\xcb\xff\0\0\0\x02abc"), Some((11, b"ab".to_vec(), b"c".to_vec())));
        assert_eq!(body(b"\xcb\xe1ab\xe0c\x01de"), Some((11, b"abcd".to_vec(), b"e".to_vec())));
        assert_eq!(body(b"\xac\x02abc"), Some((11, b"ab".to_vec(), b"c".to_vec())));
        assert_eq!(body(b"\xad\0\x02abc"), Some((11, b"ab".to_vec(), b"c".to_vec())));
        assert_eq!(body(b"\xa3abc"), Some((8, b"abc".to_vec(), Vec::new())));
        assert_eq!(body(b"\xcb\x7fabc"), Some((11, b"abc".to_vec(), Vec::new())), "it breaks off");
        for none in [b"".as_slice(), b"abc", b"\xcb", b"\xcb\xff\0", b"\xae\0"] {
            assert_eq!(body(none), None, "{none:?}");
        }
    }

    #[test]
    fn armour_has_fields_and_a_sum() {
        let text = b"Hi,\n-----BEGIN PGP MESSAGE-----\r\nVersion: 1\r\nComment: x\r\n\r\nYWJj\r\nZGVm\r\n=abcd\r\n-----END PGP MESSAGE-----\r\n\
            -----BEGIN PGP SIGNED MESSAGE-----\nHash: x\n\ntext\n-----BEGIN PGP SIGNATURE-----\n\neHl6\n-----END PGP SIGNATURE-----";
        let blocks: Vec<Vec<u8>> = Blocks(text).map(|(_, packets)| packets).collect();
        assert_eq!(blocks, [b"abcdef".to_vec(), b"xyz".to_vec()]);
    }

    #[test]
    fn other_files_are_no_messages() {
        for data in [
            b"\x89PNG\r\n\x1a\n".as_slice(),
            b"\xff\xd8\xff\xe0",
            b"hello",
            b"\xc3\xa4 text in UTF-8",
            b"\x99\x01\x02\x03",
        ] {
            assert!(!begins_message(data), "{data:?}");
        }
        assert!(begins_message(b"\xcb\x0bb\x05a.exe\0\0\0\0"));
    }
}
