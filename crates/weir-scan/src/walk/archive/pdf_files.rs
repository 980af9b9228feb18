//! What the files are called that a PDF carries, and which streams hold them (ISO 32000-1, section 7.11).
//!
//! A stream with a file need not say that it is one: a dictionary that refers to it does. Names and references are gathered wherever they stand, as
//! keys of every system and with letters as digits; a name may be an object of its own. Cost: one pass, and a second one for such names.

use super::super::bounded_name;
use super::pdf_lock::PdfKey;
use super::pdf_text::{OBJECT_HEAD, object, object_before, plain_names, string};
use std::collections::BTreeSet;

/// The keys of names and streams: for all systems, in Unicode, and for one system each.
const KEYS: [&[u8]; 5] = [b"F", b"UF", b"DOS", b"Mac", b"Unix"];
/// As long as such a key is with each letter as `#` and two digits.
const KEY_LONGEST: usize = 12;
/// Blanks and comments between a key and its value.
const BLANKS_MAX: usize = 512;
/// No document has so many strings without an end: what stands behind them is not looked for.
const ENDLESS_MAX: usize = 5_000;
/// Strings that may be names, and so many of them.
const STRING_LONGEST: usize = 1024;
const STRINGS_MAX: usize = 10_000;

/// The names of files, and what refers to their streams.
pub(super) struct CarriedFiles {
    names: Vec<String>,
    known: BTreeSet<String>,
    names_max: usize,
    /// The objects under the keys: names, or streams.
    references: BTreeSet<u32>,
    /// Packed objects that are strings.
    strings: Vec<(u32, Vec<u8>)>,
    /// Whether some dictionary names streams with files.
    has_streams: bool,
    endless: usize,
}

impl CarriedFiles {
    /// Of a document that may have so many names.
    pub(super) fn new(names_max: usize) -> CarriedFiles {
        CarriedFiles {
            names: Vec::new(),
            known: BTreeSet::new(),
            names_max,
            references: BTreeSet::new(),
            strings: Vec::new(),
            has_streams: false,
            endless: 0,
        }
    }

    /// Names and references in the open: `/F (name)`, `/UF <feff...>`, `/EF << /F 3 0 R >>`.
    pub(super) fn gather(&mut self, data: &[u8], key: Option<&PdfKey>) {
        for at in memchr::memchr_iter(b'/', data) {
            let word = &data[at + 1..];
            let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'#';
            let (name, value) = word.split_at(word.iter().take(KEY_LONGEST).take_while(is_letter).count());
            let name = plain_names(name);
            self.has_streams |= name == b"EF";
            if !KEYS.contains(&name.as_slice()) || self.names.len() >= self.names_max {
                continue;
            }
            let value = behind_blanks(value);
            match (self.string(value), key) {
                (Some(text), Some(key)) => self.name(&key.opened_text(object_before(data, at), &text)),
                (Some(text), None) => self.name(&text),
                (None, _) => self.references.extend(reference(value)),
            }
        }
    }

    /// The same in packed objects, whose numbers and places stand before the first of them.
    pub(super) fn gather_packed(&mut self, objects: &[u8], first: usize) {
        self.gather(objects, None);
        let table = objects.get(..first).unwrap_or_default();
        let words = table.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut numbers = words.map_while(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
        while let (Some(number), Some(place)) = (numbers.next(), numbers.next()) {
            let value = objects.get(first.saturating_add(place as usize)..).unwrap_or_default();
            let Some(text) = self.string(behind_blanks(value)) else { continue };
            if text.len() <= STRING_LONGEST && self.strings.len() < STRINGS_MAX && text.contains(&b'.') {
                self.strings.push((number, text));
            }
        }
    }

    /// Names that are objects of their own, once everything else is known.
    pub(super) fn resolve(&mut self, data: &[u8], key: Option<&PdfKey>) {
        if self.references.is_empty() {
            return;
        }
        for (number, text) in std::mem::take(&mut self.strings) {
            if self.references.contains(&number) {
                self.name(&text);
            }
        }
        for at in memchr::memmem::find_iter(data, b"obj") {
            let Some(text) = self.string(behind_blanks(&data[at + 3..])) else { continue };
            let own = object(&data[at.saturating_sub(OBJECT_HEAD)..at]);
            if self.references.contains(&own.0) && self.names.len() < self.names_max {
                self.name(&key.map_or_else(|| text.clone(), |key| key.opened_text(own, &text)));
            }
        }
    }

    /// Whether a stream holds a file, by the number of its object; one whose number cannot be read may be any.
    pub(super) fn is_file(&self, object: u32) -> bool {
        self.has_streams && (object == 0 || self.references.contains(&object))
    }

    /// Whether there are more strings without an end than are looked at.
    pub(super) fn is_endless(&self) -> bool {
        self.endless >= ENDLESS_MAX
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The string at the start.
    fn string(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        if self.is_endless() {
            return None;
        }
        let found = string(value);
        self.endless += usize::from(found.is_none() && value.starts_with(b"("));
        found
    }

    fn name(&mut self, text: &[u8]) {
        let name = match text.strip_prefix(b"\xfe\xff") {
            Some(wide) => {
                let units: Vec<u16> = wide.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
                String::from_utf16_lossy(&units)
            }
            None => bounded_name(text),
        };
        if !name.is_empty() && self.known.insert(name.clone()) {
            self.names.push(name);
        }
    }
}

/// What stands behind blanks and comments.
fn behind_blanks(text: &[u8]) -> &[u8] {
    let (head, mut at) = (&text[..text.len().min(BLANKS_MAX)], 0);
    loop {
        at += head[at..].iter().take_while(|byte| matches!(byte, 0 | b'\t' | b'\n' | 0x0c | b'\r' | b' ')).count();
        if head.get(at) != Some(&b'%') {
            return &text[at..];
        }
        match memchr::memchr2(b'\r', b'\n', &head[at..]) {
            Some(end) => at += end,
            None => return &[],
        }
    }
}

/// The number of the object that a reference at the start names: `3 0 R`.
fn reference(text: &[u8]) -> Option<u32> {
    let head = &text[..text.len().min(OBJECT_HEAD)];
    let mut words = head.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (number, generation, sign) = (words.next()?, words.next()?, words.next()?);
    if !generation.iter().all(u8::is_ascii_digit) || !sign.starts_with(b"R") {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(data: &[u8]) -> CarriedFiles {
        let mut files = CarriedFiles::new(100);
        files.gather(data, None);
        files.resolve(data, None);
        files
    }

    #[test]
    fn names_under_every_key() {
        let data =
            b"/F (a.exe) /UF<feff0062002e006a0073> /Font /F2 (no) /Unix%x\n(c.js) /#46(d.js) /DOS 7 0 R 7 0 obj(e.js)";
        assert_eq!(gathered(data).names, ["a.exe", "b.js", "c.js", "d.js", "e.js"]);
        assert!(gathered(b"/FF(a) 7 0 obj(b.js) /F%").names.is_empty());
    }

    #[test]
    fn packed_names_have_their_numbers_before_them() {
        let mut files = CarriedFiles::new(100);
        files.gather_packed(b"7 0 8 9 (run.js) <</UF 7 0 R>>", 8);
        files.resolve(b"", None);
        assert_eq!(files.names, ["run.js"]);
    }

    #[test]
    fn streams_are_files_by_what_refers_to_them() {
        let files = gathered(b"<</EF<</F 3 0 R/UF\r\n4 0 R>>>> /X 5 0 R");
        assert_eq!([3, 4, 0, 5].map(|number| files.is_file(number)), [true, true, true, false]);
        assert!(!gathered(b"<</F 3 0 R>>").is_file(3), "nothing says that it carries files");
    }

    #[test]
    fn strings_without_an_end_are_not_read_for_ever() {
        assert!(gathered(&b"/F(".repeat(1 << 18)).is_endless());
        assert!(!gathered(&b"/F%".repeat(1 << 18)).is_endless());
    }
}
