//! The header of a part, as far as it decides what the part is: type, encoding, names.
//!
//! A header can say a thing twice, and mail programs differ in which they believe. All names are kept; what cannot be
//! kept side by side (two boundaries, two types), and what is longer than any program writes it, is reported as ambiguous. Cost: linear.
//! Sources: RFC 2045, 2047, 2183, 2231.

use super::charset::CharsetReading;
use super::encoded_word::decoded_words;
use super::field::{Field, HeaderFields, Joined, Parameter, is_in_rare_charset, shown, unfolded};
use super::last_names::{LastNames, NAMES_MAX, undone};
use super::media_type;
use super::transfer::{Encoding, Padding};
use crate::file_name;

/// What the header of one part says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartHeader {
    /// The first type that was named, in small letters: `multipart/mixed`. Empty if none.
    pub media_type: String,
    /// Other types that some program would read instead.
    pub other_types: Vec<String>,
    /// The boundaries of a multipart: one, unless programs differ.
    pub boundaries: Vec<Vec<u8>>,
    /// What programs take for the boundary that end it at the first letter which would need quotes: `a` of `a=b`.
    pub short_boundaries: Vec<Vec<u8>>,
    /// It names an encoding that nobody knows, and that does not look like the name of any.
    pub(super) strange_encoding: bool,
    /// Whether it has a `MIME-Version`.
    pub(super) has_mime_version: bool,
    /// The encodings that were named, each once, and what programs make of them that read a name to the letter.
    pub encodings: Vec<Encoding>,
    /// Every name that some mail program could take for the file name.
    pub names: Vec<String>,
    /// Its type is written in a way in which some programs miss the boundary, and show the body as one text.
    pub loose: bool,
    /// It says that the content is packed in a way that we do not undo.
    pub(super) packed: bool,
    /// What two programs would read in two ways.
    pub ambiguous: Option<&'static str>,
}

/// No program writes a longer field; what is behind is not read.
const FIELD_MAX: usize = 16 << 10;
/// No file system takes longer names.
const NAME_MAX: usize = 1024;
/// A type is two words.
const MEDIA_TYPE_MAX: usize = 200;
/// What is said of an encoding that we cannot undo.
const UNKNOWN_ENCODING: &str = "an encoding that nobody knows";
/// Types and boundaries beyond the first that are followed.
const TYPES_MAX: usize = 4;

impl PartHeader {
    /// Reads the lines of a header, without the empty line.
    pub fn read(lines: &[u8]) -> PartHeader {
        PartHeader::read_with(lines, false)
    }

    /// The same, as those read who end a line also at a return alone.
    pub(super) fn read_with(lines: &[u8], returns: bool) -> PartHeader {
        let mut header = PartHeader::default();
        if returns && memchr::memchr(b'\r', lines).is_some() {
            let alone = |at: usize| lines[at] == b'\r' && lines.get(at + 1) != Some(&b'\n');
            let newlines = (0..lines.len()).map(|at| if alone(at) { b'\n' } else { lines[at] });
            header.fields(&newlines.collect::<Vec<u8>>());
        } else {
            header.fields(lines);
        }
        let alone = |at: usize| lines.get(at + 1) != Some(&b'\n');
        if memchr::memchr_iter(b'\r', lines).any(alone) {
            // Not every reader finds the fields then; one that does not shows the body as it is.
            (header.has_mime_version, header.loose) = (false, true);
            header.also_plain();
        }
        if memchr::memchr(0, lines).is_some() {
            // Some programs leave it out, some end a text there.
            let before = (header.media_type.clone(), header.boundaries.clone(), header.encodings.clone());
            header.fields(&lines.iter().filter(|byte| **byte != 0).copied().collect::<Vec<u8>>());
            if before != (header.media_type.clone(), header.boundaries.clone(), header.encodings.clone()) {
                header.doubt("a NUL in its header");
            }
        }
        let is_text = header.media_type.starts_with("text/") && header.names.is_empty();
        if header.strange_encoding && !is_text {
            header.doubt(UNKNOWN_ENCODING);
        }
        if header.types().any(is_multipart) && header.boundaries.is_empty() {
            header.doubt("a multipart type and no boundary");
        }
        header
    }

    fn fields(&mut self, lines: &[u8]) {
        let mut last = LastNames::default();
        for (name, value) in HeaderFields(lines) {
            let is = |wanted: &[u8]| is_name(name, wanted);
            // Only as Dovecot reads it: without blanks or returns.
            self.has_mime_version |= name.eq_ignore_ascii_case(b"mime-version");
            if is(b"content-type") {
                let field = self.field(value);
                self.content_type(&field);
            } else if is(b"content-transfer-encoding") {
                let field = self.field(value);
                self.transfer_encoding(&field);
            } else if is(b"content-disposition") {
                let field = self.field(value);
                last.is_attachment |= field.word.eq_ignore_ascii_case(b"attachment");
                self.name(&field.parameters, "filename");
                self.name(&field.parameters, "name");
            } else if is(b"content-encoding") {
                // A field of HTTP, which some programs go by; what gzip packs is known by its mark.
                let coding = self.field(value).word.to_ascii_lowercase();
                let usual: [&[u8]; 7] = [b"", b"identity", b"7bit", b"8bit", b"binary", b"gzip", b"x-gzip"];
                self.packed |= !usual.contains(&coding.as_slice());
            } else if is(b"content-location") {
                last.location = unfolded(value);
            } else if is(b"content-description") {
                last.description = unfolded(value);
            } else if is(b"content-id") {
                last.id = unfolded(value);
            } else if is(b"content-name") || is(b"x-sun-data-name") {
                // Thunderbird goes by them; they are read like a parameter of that name.
                last.other_fields.push(unfolded(value));
            }
        }
        self.last_names(&last);
    }

    /// What programs go by that find no name: other fields, and what the type is called elsewhere.
    fn last_names(&mut self, last: &LastNames) {
        if self.names.iter().any(|name| file_name::extension(name).is_some()) || self.types().any(is_multipart) {
            return;
        }
        let is_text = self.types().all(|kind| kind.is_empty() || kind.starts_with("text/"));
        let shown = |kind: &str| ["image/", "audio/", "video/", "font/"].iter().any(|main| kind.starts_with(main));
        let is_media = self.types().all(shown);
        self.add_names(last.names(is_text, is_media));
        // The files of a saved page have the address that they came from, and are not saved as files of their own.
        let of_page = last.is_address() && !last.is_attachment;
        if self.names.iter().any(|name| file_name::extension(name).is_some()) || of_page {
            return;
        }
        let extensions: Vec<String> = self.types().filter_map(media_type::extension).map(str::to_owned).collect();
        self.add_names(extensions.into_iter().map(|extension| format!("without a name.{extension}")).collect());
    }

    /// What it takes in memory, about.
    pub fn weight(&self) -> usize {
        let texts: usize = self.names.iter().chain(&self.other_types).map(String::len).sum();
        let boundaries: usize = self.boundaries.iter().chain(&self.short_boundaries).map(Vec::len).sum();
        size_of::<PartHeader>() + self.media_type.len() + boundaries + texts
    }

    /// Every type that some program reads.
    fn types(&self) -> impl Iterator<Item = &str> {
        [&self.media_type].into_iter().chain(&self.other_types).map(String::as_str)
    }

    /// Whether its body is made of parts, at least to some.
    pub fn is_multipart(&self) -> bool {
        !self.boundaries.is_empty() && self.types().any(is_multipart)
    }

    /// Whether its body is a message as it stands, at least to some: Python reads all of `message` so.
    pub fn is_message(&self) -> bool {
        self.types().any(|kind| kind.starts_with("message/") && kind != "message/delivery-status")
    }

    /// Whether Sun's old mail program wrote it, whose messages have parts of another form. Thunderbird reads them.
    pub(super) fn is_of_sun(&self) -> bool {
        self.types().any(|kind| kind == "x-sun-attachment")
    }

    /// Whether it is a report for programs, and nothing else to anybody.
    pub(super) fn is_report(&self) -> bool {
        self.types().all(is_report)
    }

    /// Whether parts of it that do not say what they are are messages.
    pub(super) fn is_digest(&self) -> bool {
        self.types().any(|kind| kind == "multipart/digest")
    }

    /// It stands in a digest and does not say what it is: a message then (RFC 2046, section 5.1.5).
    pub(super) fn is_in_digest(&mut self) {
        self.media_type = "message/rfc822".into();
    }

    /// Whether some program would show the body of a multipart or message as one file.
    pub(super) fn is_also_file(&self) -> bool {
        let usual = match self.is_multipart() {
            true => self.types().all(is_multipart) && self.names.is_empty(),
            // Dovecot opens no other kind of message, and offers it as a file.
            false => self.types().all(|kind| kind == "message/rfc822"),
        };
        !usual || self.loose || !self.is_plain() || self.ambiguous.is_some()
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
        self.content_type_named(type_named(&field.word));
        self.loose |= !field.is_strict;
        let container = |kind: &str| is_multipart(kind) || kind.starts_with("message");
        if field.is_odd_type && self.types().any(container) {
            self.doubt("a type that not all programs read");
        }
        self.boundaries(&field.parameters);
        self.name(&field.parameters, "name");
        self.name(&field.parameters, "filename");
    }

    fn content_type_named(&mut self, kind: String) {
        if self.media_type.is_empty() {
            self.media_type = kind;
        } else if !self.types().any(|known| known == kind) {
            self.doubt("two content types");
            if self.other_types.len() < TYPES_MAX {
                self.other_types.push(kind);
            }
        }
    }

    fn boundaries(&mut self, parameters: &[Parameter]) {
        let written = || parameters.iter().filter(|parameter| parameter.name == "boundary");
        let whole = written().filter(|parameter| parameter.section.is_none());
        let mut found: Vec<Vec<u8>> = whole.clone().map(|parameter| parameter.octets().1).collect();
        found.extend(Joined::of(parameters, "boundary").map(|joined| joined.octets));
        if written().any(|parameter| parameter.extended || parameter.section.is_some()) {
            self.doubt("a boundary in a form that few programs read");
        }
        found.extend(whole.clone().flat_map(|parameter| parameter.otherwise()));
        let room = TYPES_MAX.saturating_sub(self.short_boundaries.len());
        self.short_boundaries.extend(whole.filter_map(Parameter::token).take(room));
        for boundary in found {
            let plain = boundary.trim_ascii_end();
            if plain.len() < boundary.len() {
                self.doubt("a boundary that ends with a blank");
            }
            self.boundary(plain);
        }
    }

    fn boundary(&mut self, boundary: &[u8]) {
        if boundary.is_empty() || self.boundaries.iter().any(|known| known == boundary) {
            return;
        }
        if !self.boundaries.is_empty() {
            self.doubt("two boundaries");
        }
        if self.boundaries.len() < TYPES_MAX {
            self.boundaries.push(boundary.to_vec());
        }
    }

    fn transfer_encoding(&mut self, field: &Field) {
        let decoded = decoded_words(&field.word, Padding::EndsGroup, CharsetReading::Named);
        let encoding = Encoding::named(decoded.as_bytes()).unwrap_or_else(|| {
            // Some programs write the charset there, which encodes nothing.
            match is_like_an_encoding(&decoded) {
                true => self.doubt(UNKNOWN_ENCODING),
                false => self.strange_encoding = true,
            }
            Encoding::Plain
        });
        self.encoding(encoding);
        // Who compares to the letter finds no encoding in `base64 (so to speak)`.
        if encoding != Encoding::Plain && Encoding::named(field.raw.trim_ascii_start()) != Some(encoding) {
            self.encoding(Encoding::Plain);
        }
    }

    /// It is the header of a message. Without `MIME-Version` Dovecot shows the body as it stands, whatever else the header says.
    pub(super) fn is_of_message(&mut self) {
        if !self.has_mime_version {
            self.loose = true;
            self.also_plain();
        }
    }

    /// Its body is also looked at as it stands.
    pub(super) fn also_plain(&mut self) {
        if !self.encodings.is_empty() {
            self.encoding(Encoding::Plain);
        }
    }

    fn encoding(&mut self, encoding: Encoding) {
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
    }

    fn name(&mut self, parameters: &[Parameter], wanted: &str) {
        let whole = parameters.iter().filter(|p| p.name == wanted && p.section.is_none());
        let mut found: Vec<String> = whole.clone().flat_map(Parameter::texts).collect();
        let others = whole.flat_map(|parameter| parameter.otherwise().into_iter().chain(parameter.token()));
        found.extend(others.flat_map(|octets| shown(b"", &octets)));
        if let Some(joined) = Joined::of(parameters, wanted) {
            found.extend(joined.texts());
            found.extend(shown(joined.charset, &joined.up_to_gap));
            found.extend(Joined::otherwise(parameters, wanted).iter().flat_map(|octets| shown(joined.charset, octets)));
            if joined.twice {
                self.doubt("two beginnings of one name");
            }
        }
        if parameters.iter().any(|p| p.name == wanted && is_in_rare_charset(p)) {
            self.doubt("a name in a charset that hardly any program reads");
        }
        let otherwise: Vec<String> = found.iter().flat_map(|name| undone(name)).collect();
        found.extend(otherwise);
        self.add_names(found);
    }

    fn add_names(&mut self, found: Vec<String>) {
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

fn is_multipart(media_type: &str) -> bool {
    media_type.strip_prefix("multipart").is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

/// The names of fields that we read, also with blanks in them, which some programs leave out.
fn is_name(name: &[u8], wanted: &[u8]) -> bool {
    name.eq_ignore_ascii_case(wanted)
        || (name.len() > wanted.len()
            && name
                .iter()
                .filter(|byte| !byte.is_ascii_whitespace())
                .map(u8::to_ascii_lowercase)
                .eq(wanted.iter().copied()))
}

/// The type that a word names: blanks around the slash do not count, and neither does what stands behind the subtype.
fn type_named(word: &[u8]) -> String {
    let text = decoded_words(&word[..word.len().min(MEDIA_TYPE_MAX)], Padding::EndsGroup, CharsetReading::Named)
        .to_ascii_lowercase();
    let token = |text: &str| text.trim().split([' ', '\t']).next().unwrap_or("").to_owned();
    match text.split_once('/') {
        // Before there was MIME, a type was one word.
        None if token(&text) == "text" => "text/plain".into(),
        None => token(&text),
        Some((main, sub)) => format!("{}/{}", token(main), token(sub)),
    }
}

/// Whether some program may take this for the name of an encoding that it knows.
fn is_like_an_encoding(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["64", "base", "quot", "print", "uu", "xx", "enc", "hex", "zip", "flate"].iter().any(|piece| name.contains(piece))
}

/// Whether what is of this type is a message.
pub fn is_message(media_type: &str) -> bool {
    matches!(media_type, "message/rfc822" | "message/global" | "message/news")
}

/// Whether what is of this type is a report for programs: fields, which no mail program shows as a message.
pub(super) fn is_report(media_type: &str) -> bool {
    matches!(
        media_type,
        "message/delivery-status"
            | "message/disposition-notification"
            | "message/feedback-report"
            | "message/global-delivery-status"
            | "message/global-disposition-notification"
            | "message/tracking-status"
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use std::time::Duration;

    fn names(header: &str) -> Vec<String> {
        PartHeader::read(header.as_bytes()).names
    }

    #[test]
    fn a_plain_header() {
        let header = PartHeader::read(
            b"Content-Type: multipart/MIXED (a comment; boundary=no);\r\n boundary=\"a b'c\"\r\nContent-Transfer-Encoding: Base64\r\n",
        );
        assert_eq!((header.media_type.as_str(), header.boundaries[0].as_slice()), ("multipart/mixed", &b"a b'c"[..]));
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
        assert!(names("Content-Disposition: x; filename=a.exe\\photo.jpg").contains(&"a.exe".to_owned()));
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?B?aW52LmV4ZQ==?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?Q?inv?=\r\n =?iso-8859-1?q?=2Eex?= e\""), ["inv.ex e"]);
        assert_eq!(names("Content-Type: x; name==?utf-16be?B?AGEALgBqAHM=?="), ["a.js"]);
        let either_order = names("Content-Type: x; name==?utf-16?B?AGEALgBqAHM=?=");
        assert_eq!((either_order[0].as_str(), either_order.len()), ("a.js", 2));
        assert_eq!(names("Content-Type: x; name=\"=?utf-8?X?odd?= =?\""), ["=?utf-8?X?odd?= =?"]);
        assert_eq!(names("Content-Type: x; name=\"=?utf-7?Q?inv+AC4-e+AHg-e?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Disposition: x; filename*=utf-7''inv%2BAC4-exe"), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name==?utf-32?B?AAAAYQAAAC4AAABqAAAAcw==?="), ["a.js"]);
        assert_eq!(names("Content-Type: x; name*0=\"=?utf-8?B?aW52\"; name*1=\"LmV4ZQ==?=\""), ["inv.exe"]);
        assert_eq!(names("Content-Type: x; name*=utf-8''%3D?utf-8?B?aW52LmV4ZQ==?%3D"), ["inv.exe"]);
        // Programs differ in what they make of padding that more follows.
        let padded = names("Content-Type: x; name=\"=?utf-8?B?a====W52LmV4ZQ==?=\"");
        assert_eq!(padded[1], "inv.exe", "{padded:?}");
    }

    #[test]
    fn an_unclosed_quote_or_comment_hides_nothing() {
        for value in ["name=\"a; boundary=x", "(a; boundary=x", "name=\"a\\\"; boundary=x"] {
            let header = PartHeader::read(format!("Content-Type: multipart/mixed; {value}\r\n").as_bytes());
            assert_eq!(header.ambiguous, Some("a quote or comment that does not end"), "{value}");
            assert_eq!(header.boundaries[0], b"x", "{value}");
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

    /// Each of these was looked through to its end once for every few bytes of it. Processor time is counted, which a busy machine does
    /// not change: eight times the length takes about eight times as long, where it took sixty-four times.
    #[test]
    fn hostile_names_take_no_longer_than_they_are() {
        for word in ["=?a?b?x", "=?a?x?x", "=?", "\""] {
            let (short, long) = (processor_time(word, 1 << 16), processor_time(word, 1 << 19));
            assert!(long < short * 32, "{word}: {short:?} and {long:?}");
        }
    }

    /// The least of three, of reading a value of about so many octets.
    fn processor_time(word: &str, octets: usize) -> Duration {
        let value = word.repeat(octets / word.len());
        let header = format!("Content-Type: x; name={value}\r\n").repeat(4);
        let read = |_| {
            let begun = clock_gettime(ClockId::ThreadCPUTime);
            for text in [value.as_str(), &format!("{value}?=")] {
                assert!(!decoded_words(text.as_bytes(), Padding::EndsGroup, CharsetReading::Named).is_empty());
            }
            PartHeader::read(header.as_bytes());
            let ended = clock_gettime(ClockId::ThreadCPUTime);
            let nanos = (ended.tv_sec - begun.tv_sec) * 1_000_000_000 + (ended.tv_nsec - begun.tv_nsec);
            Duration::from_nanos(nanos.unsigned_abs().max(1))
        };
        (0..3).map(read).min().unwrap()
    }

    #[test]
    fn a_return_alone_ends_a_field_to_some() {
        let lines = b"X: y\rContent-Type: multipart/mixed;\r\n boundary=b\r\n";
        assert!(PartHeader::read(lines).boundaries.is_empty());
        assert_eq!(PartHeader::read_with(lines, true).boundaries, [b"b"]);
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
            assert_eq!((header.boundaries[0].as_slice(), header.ambiguous), (&b"abc"[..], Some(said)), "{value}");
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
