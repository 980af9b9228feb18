//! The header of a part, as far as it decides what the part is: type, encoding, names.
//!
//! A header can say a thing twice, and mail programs differ in which they believe. All names are kept; what cannot be
//! kept side by side (two boundaries, two types) is reported as ambiguous. Sources: RFC 2045, 2047, 2183, 2231.

use super::transfer::{Encoding, base64, nibble, quoted_printable};

/// What the header of one part says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartHeader {
    /// The first type that was named, in small letters: `multipart/mixed`. Empty if none.
    pub media_type: String,
    /// The boundary of a multipart.
    pub boundary: Vec<u8>,
    /// The encodings that were named, each once.
    pub encodings: Vec<Encoding>,
    /// Every name that some mail program could take for the file name.
    pub names: Vec<String>,
    /// What is said twice, differently.
    pub ambiguous: Option<&'static str>,
}

/// A name is cut here; no file system takes longer ones.
const NAME_MAX: usize = 1024;
/// A header can name a part in a few ways, not in hundreds.
const NAMES_MAX: usize = 16;
const PARAMETERS_MAX: usize = 128;

impl PartHeader {
    /// Reads the lines of a header, without the empty line.
    pub fn read(lines: &[u8]) -> PartHeader {
        let mut header = PartHeader::default();
        for (name, value) in Fields(lines) {
            if name.eq_ignore_ascii_case(b"content-type") {
                header.content_type(&unfolded(value));
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                header.transfer_encoding(&unfolded(value));
            } else if name.eq_ignore_ascii_case(b"content-disposition") {
                let value = unfolded(value);
                let (_, parameters) = parameters(&value);
                header.name(&parameters, "filename");
                header.name(&parameters, "name");
            }
        }
        header
    }

    /// Whether its body is made of parts.
    pub fn is_multipart(&self) -> bool {
        self.media_type.starts_with("multipart/") && !self.boundary.is_empty()
    }

    /// Whether its body is a message as it stands.
    pub fn is_message(&self) -> bool {
        matches!(self.media_type.as_str(), "message/rfc822" | "message/global" | "message/news")
    }

    /// Whether its body is written as it is.
    pub fn is_plain(&self) -> bool {
        self.encodings.iter().all(|encoding| *encoding == Encoding::Plain)
    }

    fn content_type(&mut self, value: &[u8]) {
        let (media_type, parameters) = parameters(value);
        let media_type = String::from_utf8_lossy(&media_type).to_ascii_lowercase();
        if self.media_type.is_empty() {
            self.media_type = media_type;
        } else if self.media_type != media_type {
            self.ambiguous = Some("two content types");
        }
        for parameter in parameters.iter().filter(|parameter| parameter.name == "boundary") {
            if self.boundary.is_empty() {
                self.boundary.clone_from(&parameter.value);
            } else if self.boundary != parameter.value {
                self.ambiguous = Some("two boundaries");
            }
        }
        self.name(&parameters, "name");
        self.name(&parameters, "filename");
    }

    fn transfer_encoding(&mut self, value: &[u8]) {
        let (word, _) = parameters(value);
        let encoding = Encoding::named(&word);
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
    }

    fn name(&mut self, parameters: &[Parameter], wanted: &str) {
        let plain = parameters.iter().filter(|p| p.name == wanted && p.section.is_none());
        let mut found: Vec<String> = plain.map(|p| decoded_words(&p.value)).collect();
        found.extend(continued(parameters, wanted));
        for name in found {
            let name: String = name.chars().take(NAME_MAX).collect();
            if !name.is_empty() && self.names.len() < NAMES_MAX && !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

/// The fields of a header: name and value as they stand, folded.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let end = field_end(self.0)?;
            let (field, rest) = self.0.split_at(end);
            self.0 = rest;
            if let Some(colon) = memchr::memchr(b':', field) {
                return Some((field[..colon].trim_ascii(), &field[colon + 1..]));
            }
        }
    }
}

/// Where the field at the start ends: before the first line that is no continuation.
fn field_end(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let mut at = 0;
    while let Some(newline) = memchr::memchr(b'\n', &text[at..]) {
        at += newline + 1;
        if !matches!(text.get(at), Some(b' ' | b'\t')) {
            return Some(at);
        }
    }
    Some(text.len())
}

fn unfolded(value: &[u8]) -> Vec<u8> {
    value.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).copied().collect()
}

/// One parameter of a structured field; `section` and `extended` are those of RFC 2231.
#[derive(Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    section: Option<u32>,
    extended: bool,
    value: Vec<u8>,
}

/// The word at the start of a structured field, and its parameters.
fn parameters(value: &[u8]) -> (Vec<u8>, Vec<Parameter>) {
    let mut scanner = Scanner(value);
    let word = scanner.until(b";");
    let mut found = Vec::new();
    while !scanner.0.is_empty() && found.len() < PARAMETERS_MAX {
        scanner.skip(1);
        let name = scanner.until(b"=;");
        if scanner.0.first() != Some(&b'=') {
            continue;
        }
        scanner.skip(1);
        let value = scanner.until(b";");
        found.push(parameter(&name, value));
    }
    (word, found)
}

/// `name`, `name*`, `name*3`, `name*3*`.
fn parameter(name: &[u8], value: Vec<u8>) -> Parameter {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let mut pieces = name.split('*');
    let (base, second, third) = (pieces.next().unwrap_or("").to_owned(), pieces.next(), pieces.next());
    let (section, extended) = match (second, third) {
        (None, _) => (None, false),
        (Some(""), _) => (Some(0), true),
        (Some(number), third) => (Some(number.parse().unwrap_or(0)), third.is_some()),
    };
    Parameter { name: base, section, extended, value }
}

struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or(&[]);
    }

    /// Reads up to one of `ends`, which stays; quotes are taken off, comments are left out.
    fn until(&mut self, ends: &[u8]) -> Vec<u8> {
        let (mut out, mut quoted, mut comments, mut solid) = (Vec::new(), false, 0u32, 0);
        while let Some((first, rest)) = self.0.split_first() {
            match first {
                b'\\' if (quoted || comments > 0) && !rest.is_empty() => {
                    if quoted {
                        out.push(rest[0]);
                        solid = out.len();
                    }
                    self.skip(1);
                }
                b'"' if comments == 0 => quoted = !quoted,
                b'(' if !quoted => comments += 1,
                b')' if comments > 0 => comments -= 1,
                byte if !quoted && comments == 0 && ends.contains(byte) => break,
                _ if comments > 0 => {}
                byte => {
                    if quoted || !byte.is_ascii_whitespace() || solid > 0 {
                        out.push(*byte);
                    }
                    if quoted || !byte.is_ascii_whitespace() {
                        solid = out.len();
                    }
                }
            }
            self.skip(1);
        }
        out.truncate(solid);
        out
    }
}

/// A name in sections (RFC 2231, section 3), put together in their order.
fn continued(parameters: &[Parameter], wanted: &str) -> Option<String> {
    let mut sections: Vec<&Parameter> = parameters.iter().filter(|p| p.name == wanted && p.section.is_some()).collect();
    sections.sort_by_key(|p| p.section);
    sections.dedup_by_key(|p| p.section);
    let first = sections.first()?;
    let mut charset: &[u8] = b"";
    let mut bytes = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let mut value = section.value.as_slice();
        if at == 0 && first.extended {
            let mut pieces = value.splitn(3, |byte| *byte == b'\'');
            if let (Some(set), Some(_), Some(text)) = (pieces.next(), pieces.next(), pieces.next()) {
                (charset, value) = (set, text);
            }
        }
        bytes.extend(if section.extended { percent_decoded(value) } else { value.to_vec() });
    }
    Some(text_of(charset, &bytes))
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match behind {
            [high, low, behind @ ..] if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = behind;
            }
            _ => out.push(*first),
        }
    }
    out
}

/// Text with encoded words (RFC 2047), also inside quotes, where they do not belong and are found.
pub fn decoded_words(value: &[u8]) -> String {
    let (mut out, mut rest, mut after_word) = (String::new(), value, false);
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        let Some((text, behind)) = encoded_word(&rest[at + 2..]) else {
            out.push_str(&text_of(b"", &rest[..at + 2]));
            (rest, after_word) = (&rest[at + 2..], false);
            continue;
        };
        // White space between two encoded words is not shown.
        if !(after_word && rest[..at].iter().all(u8::is_ascii_whitespace)) {
            out.push_str(&text_of(b"", &rest[..at]));
        }
        out.push_str(&text);
        (rest, after_word) = (behind, true);
    }
    out.push_str(&text_of(b"", rest));
    out
}

/// What follows `=?`: charset, `?`, encoding, `?`, text, `?=`.
fn encoded_word(text: &[u8]) -> Option<(String, &[u8])> {
    let (charset, text) = split_once(text, b'?')?;
    let (encoding, text) = split_once(text, b'?')?;
    let end = memchr::memmem::find(text, b"?=")?;
    let body = &text[..end];
    let bytes = match encoding {
        b"B" | b"b" => base64(body),
        b"Q" | b"q" => {
            let spaced: Vec<u8> = body.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect();
            quoted_printable(&spaced)
        }
        _ => return None,
    };
    Some((text_of(charset, &bytes), &text[end + 2..]))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr::memchr(at, text.get(..text.len().min(100))?)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Text in a charset: Unicode by its name or if it is valid, everything else as Latin 1. An extension is ASCII in nearly all charsets.
fn text_of(charset: &[u8], bytes: &[u8]) -> String {
    let named =
        |known: &str| charset.len() >= known.len() && charset[..known.len()].eq_ignore_ascii_case(known.as_bytes());
    if named("utf-16") || named("ucs-2") {
        let (big, body) = match bytes {
            [0xff, 0xfe, body @ ..] => (false, body),
            [0xfe, 0xff, body @ ..] => (true, body),
            body => (!named("utf-16le"), body),
        };
        let unit = |pair: &[u8]| {
            if big { u16::from_be_bytes([pair[0], pair[1]]) } else { u16::from_le_bytes([pair[0], pair[1]]) }
        };
        let units: Vec<u16> = body.chunks_exact(2).map(unit).collect();
        return String::from_utf16_lossy(&units);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if named("utf-8") => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(header: &str) -> Vec<String> {
        PartHeader::read(header.as_bytes()).names
    }

    #[test]
    fn a_plain_header() {
        let header = PartHeader::read(
            b"Content-Type: multipart/MIXED (a comment; boundary=no);\r\n boundary=\"a b\\\"c\"\r\nContent-Transfer-Encoding: Base64\r\n",
        );
        assert_eq!((header.media_type.as_str(), header.boundary.as_slice()), ("multipart/mixed", &b"a b\"c"[..]));
        assert_eq!(header.encodings, [Encoding::Base64]);
        assert!(header.is_multipart() && !header.is_plain() && header.ambiguous.is_none());
    }

    #[test]
    fn every_way_to_write_a_name() {
        assert_eq!(names("Content-Type: a/b; name=plain.exe"), ["plain.exe"]);
        assert_eq!(names("Content-Disposition: attachment; filename=\"two words.exe\""), ["two words.exe"]);
        assert_eq!(names("Content-Disposition: x; filename*=UTF-8''caf%C3%A9.exe"), ["café.exe"]);
        assert_eq!(
            names("Content-Disposition: x; filename*1*=%2Eexe; filename*0*=utf-8'en'inv; filename*2=.x"),
            ["inv.exe.x"]
        );
        assert_eq!(names("Content-Disposition: x; filename*0=a; filename*1=.js"), ["a.js"]);
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?B?aW52LmV4ZQ==?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?Q?inv?=\r\n =?iso-8859-1?q?=2Eex?= e\""), ["inv.ex e"]);
        assert_eq!(names("Content-Type: x; name==?utf-16?B?AGEALgBqAHM=?="), ["a.js"]);
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?X?odd?= =?\""), ["=?utf-8?X?odd?= =?"]);
    }

    #[test]
    fn two_names_are_both_kept() {
        let header =
            "Content-Type: x/y; name=a.txt\r\nContent-Disposition: attachment; filename=b.exe; filename=c.exe\r\n";
        assert_eq!(names(header), ["a.txt", "b.exe", "c.exe"]);
    }

    #[test]
    fn two_boundaries_are_ambiguous() {
        let header = PartHeader::read(b"Content-Type: multipart/x; boundary=a; boundary=b\r\n");
        assert_eq!(header.ambiguous, Some("two boundaries"));
        let header = PartHeader::read(b"Content-Type: text/plain\r\nContent-Type: multipart/x; boundary=b\r\n");
        assert_eq!(header.ambiguous, Some("two content types"));
    }
}
