//! Files that a PDF carries, and the objects that it packs.
//!
//! A PDF is looked through from its first octet to its last for streams, whatever its tables say: readers repair broken tables, each in its own
//! way. Opened are streams with embedded files and those with packed objects, in which actions and the names of files stand.
//! Source: ISO 32000-1, sections 7.3 to 7.5 and 7.11.

use super::super::{Oddity, Walk, bounded_name};
use super::pdf_lock;
use super::pdf_text::{hex, plain_names, string};
use crate::budget::Exceeded;

/// A dictionary before a stream is a few lines.
const DICTIONARY_MAX: usize = 4096;
const NAMES_MAX: usize = 12;
/// The name under which packed objects are shown.
pub(crate) const OBJECTS: &str = "packed objects";

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    if pdf_lock::needs_password(data) {
        walk.odd_here(Oddity::Encrypted);
        return Ok(());
    }
    let (mut names, locked) = (file_names(data), pdf_lock::is_locked(data));
    for stream in Streams::of(data).filter(|stream| stream.is("/ObjStm")) {
        if locked {
            continue;
        }
        let unpacked = stream.unpacked(walk)?;
        names.extend(file_names(&unpacked));
        walk.file(&[OBJECTS.into()], "", &unpacked, level)?;
        walk.budget.release(unpacked.len());
    }
    names.truncate(NAMES_MAX);
    for stream in Streams::of(data).filter(|stream| stream.is("/EmbeddedFile") && !stream.is("/EmbeddedFiles")) {
        if locked {
            // Anybody opens the document, but its streams are encrypted all the same.
            walk.odd(&names, Oddity::Encrypted);
            continue;
        }
        if !stream.is_readable() {
            walk.odd(&names, Oddity::Unreadable("a file in a PDF, packed in an unusual way".into()));
        }
        let unpacked = stream.unpacked(walk)?;
        walk.file(&names, "", &unpacked, level)?;
        walk.budget.release(unpacked.len());
    }
    Ok(())
}

/// A stream and the dictionary before it.
struct Stream<'d> {
    dictionary: Vec<u8>,
    body: &'d [u8],
}

struct Streams<'d> {
    data: &'d [u8],
    at: usize,
}

impl<'d> Streams<'d> {
    fn of(data: &'d [u8]) -> Streams<'d> {
        Streams { data, at: 0 }
    }
}

impl<'d> Iterator for Streams<'d> {
    type Item = Stream<'d>;

    fn next(&mut self) -> Option<Stream<'d>> {
        loop {
            let found = self.at + memchr::memmem::find(self.data.get(self.at..)?, b"stream")?;
            self.at = found + 6;
            let rest = &self.data[self.at..];
            let Some(body) =
                rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")).or_else(|| rest.strip_prefix(b"\r"))
            else {
                continue;
            };
            if self.data[..found].ends_with(b"end") {
                continue;
            }
            let before = &self.data[found.saturating_sub(DICTIONARY_MAX)..found];
            let from = memchr::memmem::rfind(before, b" obj").unwrap_or(0);
            let end = memchr::memmem::find(body, b"endstream").unwrap_or(body.len());
            self.at += end;
            return Some(Stream { dictionary: plain_names(&before[from..]), body: &body[..end] });
        }
    }
}

impl Stream<'_> {
    fn is(&self, name: &str) -> bool {
        memchr::memmem::find(&self.dictionary, name.as_bytes()).is_some()
    }

    /// The filters in their order.
    fn filters(&self) -> Vec<&'static str> {
        const KNOWN: [(&str, &str); 6] = [
            ("/FlateDecode", "flate"),
            ("/Fl ", "flate"),
            ("/ASCIIHexDecode", "hex"),
            ("/ASCII85Decode", "85"),
            ("/LZWDecode", "other"),
            ("/Crypt", "other"),
        ];
        let mut found: Vec<(usize, &str)> = KNOWN
            .iter()
            .filter_map(|(name, short)| Some((memchr::memmem::find(&self.dictionary, name.as_bytes())?, *short)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, short)| short).collect()
    }

    fn is_readable(&self) -> bool {
        !self.filters().contains(&"other")
    }

    /// What comes out of it, as far as it goes. The caller releases its length.
    fn unpacked(&self, walk: &mut Walk<'_>) -> Result<Vec<u8>, Exceeded> {
        walk.budget.entry()?;
        let mut data = self.body.to_vec();
        for filter in self.filters() {
            data = match filter {
                "flate" => {
                    let unpacked =
                        walk.budget.unpack(data.len() as u64, &mut flate2::read::ZlibDecoder::new(data.as_slice()));
                    if let crate::budget::End::Exceeded(exceeded) = unpacked.end {
                        return Err(exceeded);
                    }
                    walk.budget.release(unpacked.data.len());
                    unpacked.data
                }
                "hex" => hex(&data),
                "85" => ascii85(&data),
                _ => data,
            };
        }
        walk.budget.hold(data.len())?;
        Ok(data)
    }
}

/// What stands as the name of a file anywhere: `/F (name)`, `/UF <feff...>`.
fn file_names(data: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for at in memchr::memmem::find_iter(data, b"F") {
        let key = &data[at.saturating_sub(2)..=at];
        if !(key.ends_with(b"/F") || key.ends_with(b"/UF")) || names.len() >= NAMES_MAX {
            continue;
        }
        let Some(text) = string(data[at + 1..].trim_ascii_start()) else { continue };
        let name = match text.strip_prefix(b"\xfe\xff") {
            Some(wide) => {
                let units: Vec<u16> = wide.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
                String::from_utf16_lossy(&units)
            }
            None => bounded_name(&text),
        };
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn ascii85(text: &[u8]) -> Vec<u8> {
    let (mut out, mut group) = (Vec::with_capacity(text.len()), Vec::new());
    for byte in text.iter().take_while(|byte| **byte != b'~') {
        match byte {
            b'z' if group.is_empty() => out.extend([0; 4]),
            b'!'..=b'u' => group.push(byte - b'!'),
            _ => {}
        }
        if group.len() == 5 {
            flush(&mut group, &mut out);
        }
    }
    if group.len() > 1 {
        flush(&mut group, &mut out);
    }
    out
}

fn flush(group: &mut Vec<u8>, out: &mut Vec<u8>) {
    let count = group.len();
    group.resize(5, 84);
    let value = group.iter().fold(0u32, |sum, digit| sum.wrapping_mul(85).wrapping_add(u32::from(*digit)));
    out.extend_from_slice(&value.to_be_bytes()[..count - 1]);
    group.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_names() {
        assert_eq!(file_names(b"/F (a.exe) /UF<feff0062002e006a0073> /Font"), ["a.exe", "b.js"]);
    }

    #[test]
    fn other_alphabets() {
        assert_eq!(ascii85(b"87cURD]i,\"Ebo80~>"), b"Hello World!");
        assert_eq!(hex(b"4 1 4"), b"A@");
    }

    #[test]
    fn streams_are_found_whatever_the_tables_say() {
        let data = b"1 0 obj\n<</Type/EmbeddedFile>>stream\r\nabc\nendstream endobj 2 0 obj <<>> stream\nxyz";
        let bodies: Vec<&[u8]> = Streams::of(data).map(|stream| stream.body).collect();
        assert_eq!(bodies, [&b"abc\n"[..], b"xyz"]);
    }
}
