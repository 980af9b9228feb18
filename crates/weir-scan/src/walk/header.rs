//! The header of a part, as far as it decides what the part is: type, encoding, names.
//!
//! A header can say a thing twice, and mail programs differ in which they believe. All names are kept; what cannot be
//! kept side by side (two boundaries, two types), and what is longer than any program writes it, is reported as ambiguous. Cost: linear.
//! Sources: RFC 2045, 2047, 2183, 2231.

use super::encoded_word::{decoded_words, percent_decoded, text_of};
use super::transfer::{Encoding, Padding};

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
    /// What two programs would read in two ways.
    pub ambiguous: Option<&'static str>,
}

/// No program writes a longer field; what is behind is not read.
const FIELD_MAX: usize = 16 << 10;
/// No file system takes longer names.
const NAME_MAX: usize = 1024;
/// A header can name a part in a few ways, not in hundreds.
const NAMES_MAX: usize = 16;
const PARAMETERS_MAX: usize = 128;
/// A type is two words.
const MEDIA_TYPE_MAX: usize = 200;

impl PartHeader {
    /// Reads the lines of a header, without the empty line.
    pub fn read(lines: &[u8]) -> PartHeader {
        let mut header = PartHeader::default();
        for (name, value) in Fields(lines) {
            if name.eq_ignore_ascii_case(b"content-type") {
                let field = header.field(value);
                header.content_type(&field);
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                let field = header.field(value);
                header.transfer_encoding(&field);
            } else if name.eq_ignore_ascii_case(b"content-disposition") {
                let field = header.field(value);
                header.name(&field.parameters, "filename");
                header.name(&field.parameters, "name");
            }
        }
        if header.media_type.starts_with("multipart/") && header.boundary.is_empty() {
            header.doubt("a multipart type and no boundary");
        }
        header
    }

    /// What it takes in memory, about.
    pub fn weight(&self) -> usize {
        let names: usize = self.names.iter().map(String::len).sum();
        size_of::<PartHeader>() + self.media_type.len() + self.boundary.len() + names
    }

    /// Whether its body is made of parts.
    pub fn is_multipart(&self) -> bool {
        self.media_type.starts_with("multipart/") && !self.boundary.is_empty()
    }

    /// Whether its body is a message as it stands.
    pub fn is_message(&self) -> bool {
        is_message(&self.media_type)
    }

    /// Whether its body is written as it is.
    pub fn is_plain(&self) -> bool {
        self.encodings.iter().all(|encoding| *encoding == Encoding::Plain)
    }

    /// A structured field, as far as it is read.
    fn field(&mut self, value: &[u8]) -> Field {
        let mut value = unfolded(value);
        if value.len() > FIELD_MAX {
            value.truncate(FIELD_MAX);
            self.doubt("a field of more than 16 KiB");
        }
        let field = Field::read(&value);
        if let Some(what) = field.fault {
            self.doubt(what);
        }
        field
    }

    /// Two programs would read it in two ways.
    pub fn doubt(&mut self, what: &'static str) {
        self.ambiguous.get_or_insert(what);
    }

    fn content_type(&mut self, field: &Field) {
        let word = &field.word[..field.word.len().min(MEDIA_TYPE_MAX)];
        let media_type = String::from_utf8_lossy(word).to_ascii_lowercase();
        if self.media_type.is_empty() {
            self.media_type = media_type;
        } else if self.media_type != media_type {
            self.doubt("two content types");
        }
        self.boundaries(&field.parameters);
        self.name(&field.parameters, "name");
        self.name(&field.parameters, "filename");
    }

    fn boundaries(&mut self, parameters: &[Parameter]) {
        let written = || parameters.iter().filter(|parameter| parameter.name == "boundary");
        let whole = written().filter(|parameter| parameter.section.is_none());
        let mut found: Vec<Vec<u8>> = whole.map(|parameter| parameter.octets().1).collect();
        found.extend(Joined::of(parameters, "boundary").map(|joined| joined.octets));
        if written().any(|parameter| parameter.extended || parameter.section.is_some()) {
            self.doubt("a boundary in a form that few programs read");
        }
        for boundary in found {
            let plain = boundary.trim_ascii_end();
            if plain.len() < boundary.len() {
                self.doubt("a boundary that ends with a blank");
            }
            if self.boundary.is_empty() {
                self.boundary = plain.to_vec();
            } else if self.boundary != plain {
                self.doubt("two boundaries");
            }
        }
    }

    fn transfer_encoding(&mut self, field: &Field) {
        let encoding = Encoding::named(&field.word).unwrap_or_else(|| {
            self.doubt("an encoding that nobody knows");
            Encoding::Plain
        });
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
    }

    fn name(&mut self, parameters: &[Parameter], wanted: &str) {
        let whole = parameters.iter().filter(|p| p.name == wanted && p.section.is_none());
        let mut found: Vec<String> = whole.flat_map(Parameter::texts).collect();
        if let Some(joined) = Joined::of(parameters, wanted) {
            found.extend(joined.texts());
            if joined.twice {
                self.doubt("two beginnings of one name");
            }
        }
        for name in found.into_iter().filter(|name| !name.is_empty()) {
            let (name, cut) = both_ends(&name);
            if cut {
                self.doubt("a name of more than 1024 characters");
            }
            if self.names.contains(&name) {
                continue;
            }
            match self.names.len() {
                NAMES_MAX.. => self.doubt("more than 16 names"),
                _ => self.names.push(name),
            }
        }
    }
}

/// Whether what is of this type is a message.
pub fn is_message(media_type: &str) -> bool {
    matches!(media_type, "message/rfc822" | "message/global" | "message/news")
}

/// A name that is not too long, and whether it was: the beginning is what people see, the end is what opens it.
fn both_ends(name: &str) -> (String, bool) {
    let length = name.chars().count();
    if length <= NAME_MAX {
        return (name.to_owned(), false);
    }
    let half = NAME_MAX / 2;
    (name.chars().take(half).chain(name.chars().skip(length - half)).collect(), true)
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

/// A structured field: the word at its start, its parameters, and what is wrong with how it is written.
struct Field {
    word: Vec<u8>,
    parameters: Vec<Parameter>,
    fault: Option<&'static str>,
}

impl Field {
    fn read(value: &[u8]) -> Field {
        let mut field = Field::read_once(value);
        if field.fault.is_some() {
            // Some programs read on behind a quote or comment that has no end: what they see counts too.
            let open: Vec<u8> = value.iter().filter(|byte| !b"\"()".contains(byte)).copied().collect();
            let Field { word, parameters, .. } = Field::read_once(&open);
            field.word = word;
            field.parameters.extend(parameters);
        }
        field
    }

    fn read_once(value: &[u8]) -> Field {
        let mut scanner = Scanner { rest: value, unclosed: false };
        let word = scanner.until(b";");
        let mut parameters = Vec::new();
        while !scanner.rest.is_empty() && parameters.len() < PARAMETERS_MAX {
            scanner.skip(1);
            let name = scanner.until(b"=;");
            if scanner.rest.first() != Some(&b'=') {
                continue;
            }
            scanner.skip(1);
            let value = scanner.until(b";");
            parameters.push(parameter(&name, value));
        }
        let fault = if scanner.unclosed {
            Some("a quote or comment that does not end")
        } else {
            (!scanner.rest.is_empty()).then_some("more than 128 parameters")
        };
        Field { word, parameters, fault }
    }
}

/// `name`, `name*`, `name*3`, `name*3*`.
fn parameter(name: &[u8], value: Vec<u8>) -> Parameter {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let mut pieces = name.split('*');
    let (base, second, third) = (pieces.next().unwrap_or("").to_owned(), pieces.next(), pieces.next());
    let (section, extended) = match (second, third) {
        (None, _) => (None, false),
        (Some(""), _) => (None, true),
        (Some(number), third) => (Some(number.parse().unwrap_or(0)), third.is_some()),
    };
    Parameter { name: base, section, extended, value }
}

impl Parameter {
    /// The charset of a value that is whole, and its octets.
    fn octets(&self) -> (&[u8], Vec<u8>) {
        if !self.extended {
            return (b"", self.value.clone());
        }
        let (charset, value) = charset(&self.value);
        (charset, percent_decoded(value))
    }

    /// A value that is whole, as it is shown here and there.
    fn texts(&self) -> Vec<String> {
        let (charset, octets) = self.octets();
        shown(charset, &octets)
    }
}

/// Text after RFC 2231 with its charset, and encoded words in it: they do not belong there, and some programs decode them. Each
/// way to read them once.
fn shown(charset: &[u8], octets: &[u8]) -> Vec<String> {
    let known;
    let octets = if charset.is_empty() {
        octets
    } else {
        known = text_of(charset, octets);
        known.as_bytes()
    };
    let mut texts = Vec::from(Padding::ALL.map(|padding| decoded_words(octets, padding)));
    texts.dedup();
    texts
}

struct Scanner<'a> {
    rest: &'a [u8],
    /// Something was opened and never closed.
    unclosed: bool,
}

impl Scanner<'_> {
    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or(&[]);
    }

    /// Reads up to one of `ends`, which stays; quotes are taken off, comments are left out.
    fn until(&mut self, ends: &[u8]) -> Vec<u8> {
        let (mut out, mut quoted, mut comments, mut solid) = (Vec::new(), false, 0u32, 0);
        while let Some((first, rest)) = self.rest.split_first() {
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
        self.unclosed |= quoted || comments > 0;
        out.truncate(solid);
        out
    }
}

/// A value in sections (RFC 2231, section 3), put together in their order.
struct Joined<'p> {
    charset: &'p [u8],
    octets: Vec<u8>,
    /// Whether one of the sections is there twice, differently.
    twice: bool,
}

impl<'p> Joined<'p> {
    fn of(parameters: &'p [Parameter], wanted: &str) -> Option<Joined<'p>> {
        let sectioned = parameters.iter().filter(|p| p.name == wanted && p.section.is_some());
        let mut sections: Vec<&Parameter> = sectioned.collect();
        sections.sort_by_key(|p| p.section);
        let twice =
            sections.windows(2).any(|pair| pair[0].section == pair[1].section && pair[0].value != pair[1].value);
        sections.dedup_by_key(|p| p.section);
        let (first, others) = sections.split_first()?;
        let (charset, mut octets) = first.octets();
        for section in others {
            let value = section.value.as_slice();
            octets.extend(if section.extended { percent_decoded(value) } else { value.to_vec() });
        }
        Some(Joined { charset, octets, twice })
    }

    fn texts(&self) -> Vec<String> {
        shown(self.charset, &self.octets)
    }
}

/// The charset before an extended value: `utf-8'en'text`.
fn charset(value: &[u8]) -> (&[u8], &[u8]) {
    let mut pieces = value.splitn(3, |byte| *byte == b'\'');
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some(set), Some(_), Some(text)) => (set, text),
        _ => (b"", value),
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
        assert_eq!(names("Content-Type: x; name=\"=?utf-7?Q?inv+AC4-e+AHg-e?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Disposition: x; filename*=utf-7''inv%2BAC4-exe"), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name==?utf-32?B?AAAAYQAAAC4AAABqAAAAcw==?="), ["a.js"]);
        assert_eq!(names("Content-Type: x; name*0=\"=?utf-8?B?aW52\"; name*1=\"LmV4ZQ==?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name*=utf-8''%3D?utf-8?B?aW52LmV4ZQ==?%3D"), ["inv.exe"]);
        // Programs differ in what they make of padding that more follows.
        let padded = names("Content-Type: x; name=\"=?utf-8?B?a====W52LmV4ZQ==?=\"");
        assert!(padded.len() == 2 && padded[1] == "inv.exe", "{padded:?}");
    }

    #[test]
    fn an_unclosed_quote_or_comment_hides_nothing() {
        for value in ["name=\"a; boundary=x", "(a; boundary=x", "name=\"a\\\"; boundary=x"] {
            let header = PartHeader::read(format!("Content-Type: multipart/mixed; {value}\r\n").as_bytes());
            assert_eq!(header.ambiguous, Some("a quote or comment that does not end"), "{value}");
            assert_eq!(header.boundary, b"x", "{value}");
        }
    }

    #[test]
    fn what_is_cut_is_told_and_keeps_its_end() {
        let long = format!("Content-Type: x/y; name={}.pdf.exe\r\n", "a".repeat(3000));
        let header = PartHeader::read(long.as_bytes());
        assert!(header.names[0].ends_with(".pdf.exe") && header.names[0].len() == NAME_MAX, "{:?}", header.names);
        assert_eq!(header.ambiguous, Some("a name of more than 1024 characters"));
        let field = PartHeader::read(format!("Content-Type: {}/y\r\n", "x".repeat(20_000)).as_bytes());
        assert_eq!((field.ambiguous, field.media_type.len()), (Some("a field of more than 16 KiB"), MEDIA_TYPE_MAX));
        let many = format!("Content-Type: x/y{}; name=a.exe\r\n", ";a=b".repeat(200));
        assert_eq!(PartHeader::read(many.as_bytes()).ambiguous, Some("more than 128 parameters"));
        let many: String = (0..20).map(|n| format!("Content-Type: x/y; name={n}\r\n")).collect();
        assert_eq!(PartHeader::read(many.as_bytes()).ambiguous, Some("more than 16 names"));
        let twice = PartHeader::read(b"Content-Disposition: x; filename*0=a.txt; filename*0=a.exe\r\n");
        assert_eq!(twice.ambiguous, Some("two beginnings of one name"));
    }

    #[test]
    fn hostile_names_take_no_longer_than_they_are() {
        // Each of these was looked through to its end once for every few bytes of it.
        let begun = std::time::Instant::now();
        for word in ["=?a?b?x", "=?a?x?x", "=?", "\""] {
            let value = word.repeat((1 << 20) / word.len());
            assert!(!decoded_words(value.as_bytes(), Padding::EndsGroup).is_empty());
            let tail = format!("{value}?=");
            assert!(!decoded_words(tail.as_bytes(), Padding::EndsGroup).is_empty());
            PartHeader::read(format!("Content-Type: x; name={value}\r\n").repeat(10).as_bytes());
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn two_names_are_both_kept() {
        let header =
            "Content-Type: x/y; name=a.txt\r\nContent-Disposition: attachment; filename=b.exe; filename=c.exe\r\n";
        assert_eq!(names(header), ["a.txt", "b.exe", "c.exe"]);
    }

    #[test]
    fn a_boundary_that_few_programs_read_is_read_and_doubted() {
        for (value, said) in [
            ("boundary*=us-ascii''a%62c", "a boundary in a form that few programs read"),
            ("boundary*=abc", "a boundary in a form that few programs read"),
            ("boundary*0=a; boundary*1*=%62; boundary*2=c", "a boundary in a form that few programs read"),
            ("boundary=\"abc \"", "a boundary that ends with a blank"),
        ] {
            let header = PartHeader::read(format!("Content-Type: multipart/x; {value}\r\n").as_bytes());
            assert_eq!((header.boundary.as_slice(), header.ambiguous), (&b"abc"[..], Some(said)), "{value}");
        }
        let none = PartHeader::read(b"Content-Type: multipart/mixed\r\n");
        assert_eq!(none.ambiguous, Some("a multipart type and no boundary"));
    }

    #[test]
    fn an_encoding_that_nobody_knows_is_doubted() {
        let doubt = |name: &str| PartHeader::read(format!("Content-Transfer-Encoding: {name}\n").as_bytes()).ambiguous;
        for known in ["7bit", "8BIT", "binary (so)", "base64", "quoted-printable", "x-uuencode", "8-bit", ""] {
            assert_eq!(doubt(known), None, "{known}");
        }
        for unknown in ["x-yenc", "mac-binhex40", "base64x", "base 64", "gzip"] {
            assert_eq!(doubt(unknown), Some("an encoding that nobody knows"), "{unknown}");
        }
    }

    #[test]
    fn two_boundaries_are_ambiguous() {
        let header = PartHeader::read(b"Content-Type: multipart/x; boundary=a; boundary=b\r\n");
        assert_eq!(header.ambiguous, Some("two boundaries"));
        let header = PartHeader::read(b"Content-Type: text/plain\r\nContent-Type: multipart/x; boundary=b\r\n");
        assert_eq!(header.ambiguous, Some("two content types"));
    }
}
