//! Fields of a header with a structure: a word and its parameters.
//!
//! Mail programs differ in what they make of quotes, comments, blanks and parameters in sections, so each reading is given, and what is
//! wrong with how a field is written. Cost: linear. Sources: RFC 2045, 2183, 2231.

use super::charset::{CharsetReading, is_rare, text_of};
use super::encoded_word::{Words, decoded_words, has_rare_charset, percent_decoded, words_decoded};
use super::transfer::Padding;

/// No program writes more; what is behind is not read.
const PARAMETERS_MAX: usize = 128;

/// The fields of a header: name and value as they stand, folded.
pub(super) struct HeaderFields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for HeaderFields<'a> {
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

/// The value of a field as one line.
pub(super) fn unfolded(value: &[u8]) -> Vec<u8> {
    value.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).copied().collect()
}

/// One parameter of a structured field; `section` and `extended` are those of RFC 2231.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) section: Option<u32>,
    pub(super) extended: bool,
    value: Vec<u8>,
    /// As it stands, with quotes and comments.
    raw: Vec<u8>,
    /// It stands where the word should.
    misplaced: bool,
}

/// A structured field: the word at its start, its parameters, and what is wrong with how it is written.
pub(super) struct Field {
    pub(super) word: Vec<u8>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) fault: Option<&'static str>,
    /// The value as it stands.
    pub(super) raw: Vec<u8>,
    /// If it is a type: whether some programs would not read it as one.
    pub(super) is_odd_type: bool,
    /// Whether it is written to the letter of RFC 2045: programs that know nothing else find all of its parameters.
    pub(super) is_strict: bool,
}

impl Field {
    /// Reads a value that is unfolded.
    pub(super) fn read(value: &[u8]) -> Field {
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
        // A semicolon that is missing, or nothing before the first parameter.
        let pieces = word.split(u8::is_ascii_whitespace).chain([word.as_slice()]);
        let mut parameters: Vec<Parameter> = pieces.filter_map(misplaced).collect();
        let is_misplaced = !parameters.is_empty();
        while !scanner.rest.is_empty() && parameters.len() < PARAMETERS_MAX {
            scanner.skip(1);
            let name = scanner.until(b"=;");
            if scanner.rest.first() != Some(&b'=') {
                continue;
            }
            scanner.skip(1);
            let before = scanner.rest;
            let value = scanner.until(b";");
            parameters.push(parameter(&name, value, &before[..before.len() - scanner.rest.len()]));
        }
        let fault = if scanner.unclosed {
            Some("a quote or comment that does not end")
        } else {
            (!scanner.rest.is_empty()).then_some("more than 128 parameters")
        };
        let is_odd_type = is_misplaced || !is_plain_type(value);
        Field { word, parameters, fault, raw: value.to_vec(), is_odd_type, is_strict: is_strict(value) }
    }
}

/// A parameter that stands where the word should.
fn misplaced(text: &[u8]) -> Option<Parameter> {
    let at = memchr::memchr(b'=', text).filter(|at| *at > 0)?;
    Some(Parameter { misplaced: true, ..parameter(&text[..at], text[at + 1..].to_vec(), &text[at + 1..]) })
}

/// `name`, `name*`, `name*3`, `name*3*`.
fn parameter(name: &[u8], value: Vec<u8>, raw: &[u8]) -> Parameter {
    // Behind something that is no parameter, some programs find the name all the same.
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    // A blank before the star is passed over.
    let name = name.split('*').map(str::trim).collect::<Vec<_>>().join("*");
    let name = name.rsplit(char::is_whitespace).find(|word| !word.is_empty()).unwrap_or_default();
    let mut pieces = name.split('*');
    let (base, second, third) = (pieces.next().unwrap_or("").to_owned(), pieces.next(), pieces.next());
    let (section, extended) = match (second, third) {
        (None, _) => (None, false),
        (Some(""), _) => (None, true),
        (Some(number), third) => (Some(number.parse().unwrap_or(0)), third.is_some()),
    };
    Parameter { name: base, section, extended, value, raw: raw.to_vec(), misplaced: false }
}

impl Parameter {
    /// The charset of a value that is whole, and its octets.
    pub(super) fn octets(&self) -> (&[u8], Vec<u8>) {
        if !self.extended {
            return (b"", self.value.clone());
        }
        let (charset, value) = charset(&self.value);
        (charset, percent_decoded(value))
    }

    /// What programs make of it that know no comments, no quoted pairs, or end a value at a blank or behind the first quote.
    pub(super) fn otherwise(&self) -> Vec<Vec<u8>> {
        let raw = self.raw.trim_ascii();
        if self.extended {
            // Up to what may not stand there without being encoded.
            let (_, text) = charset(raw);
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"\\(),;".contains(byte);
            let first = text.split(ends).next().unwrap_or_default();
            return if first.len() < text.len() && !first.is_empty() {
                vec![percent_decoded(first)]
            } else {
                Vec::new()
            };
        }
        if raw.is_empty() {
            return Vec::new();
        }
        let first = match raw.strip_prefix(b"\"") {
            Some(inside) => &inside[..memchr::memchr(b'"', inside).unwrap_or(inside.len())],
            None => raw.split(|byte| byte.is_ascii_whitespace() || b"\"(,;".contains(byte)).next().unwrap_or(raw),
        };
        let bare = raw.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(raw);
        let mut found = vec![first.to_vec(), bare.to_vec()];
        found.retain(|other| *other != self.value && !other.is_empty());
        found.dedup();
        found
    }

    /// What is left of a value without quotes to programs that end it at the first letter which would need them; none if that is all of it,
    /// or nothing.
    pub(super) fn token(&self) -> Option<Vec<u8>> {
        let raw = self.raw.trim_ascii();
        let end = raw.iter().position(|byte| NEEDS_QUOTES.contains(byte))?;
        (end > 0 && !self.extended).then(|| raw[..end].to_vec())
    }

    /// A value that is whole, as it is shown here and there.
    pub(super) fn texts(&self) -> Vec<String> {
        let (charset, octets) = self.octets();
        shown(charset, &octets)
    }
}

/// Text after RFC 2231 with its charset, and encoded words in it: they do not belong there, and some programs decode them. Each
/// way to read them once, the usual one first.
pub(super) fn shown(charset: &[u8], octets: &[u8]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for reading in CharsetReading::ALL {
        let known;
        let octets = if charset.is_empty() {
            octets
        } else {
            known = text_of(charset, octets, reading);
            known.as_bytes()
        };
        // Without such words there is one way.
        let has_words = memchr::memmem::find(octets, b"=?").is_some();
        let paddings = Padding::ALL.iter().take(if has_words { 3 } else { 1 });
        let apart = paddings.map(|padding| words_decoded(octets, *padding, reading, Words::Apart));
        let joined =
            [Words::Octets, Words::Letters].into_iter().filter(|_| has_words && reading == CharsetReading::Named);
        for text in apart.chain(joined.map(|words| words_decoded(octets, Padding::EndsGroup, reading, words))) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    // What was encoded twice is decoded twice by programs that do so here and there.
    let twice = texts.iter().filter(|text| text.contains("=?") && text.contains("?="));
    let twice: Vec<String> =
        twice.map(|text| decoded_words(text.as_bytes(), Padding::EndsGroup, CharsetReading::Named)).collect();
    for text in twice {
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// Whether a value is in a charset in which an extension may look like anything.
pub(super) fn is_in_rare_charset(parameter: &Parameter) -> bool {
    let (charset, octets) = parameter.octets();
    is_rare(charset) || has_rare_charset(&octets)
}

/// Reads a value from its start to its end.
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
pub(super) struct Joined<'p> {
    pub(super) charset: &'p [u8],
    pub(super) octets: Vec<u8>,
    /// The same up to the first number that is missing.
    pub(super) up_to_gap: Vec<u8>,
    /// Whether one of the sections is there twice, differently.
    pub(super) twice: bool,
}

impl<'p> Joined<'p> {
    pub(super) fn of(parameters: &'p [Parameter], wanted: &str) -> Option<Joined<'p>> {
        let (sections, twice) = sections(parameters, wanted);
        Joined::of_sections(&sections, twice)
    }

    /// What programs make of it that take the first parameter for the word before it, or end a section at its second quote.
    pub(super) fn otherwise(parameters: &'p [Parameter], wanted: &str) -> Vec<Vec<u8>> {
        let (sections, _) = sections(parameters, wanted);
        let placed: Vec<&Parameter> = sections.iter().filter(|section| !section.misplaced).copied().collect();
        let cut = |section: &&Parameter| section.otherwise().into_iter().next();
        let cut_short = |sections: &[&Parameter]| -> Vec<u8> {
            sections.iter().flat_map(|section| cut(section).unwrap_or_else(|| section.octets().1)).collect()
        };
        let mut found = vec![cut_short(&sections), cut_short(&placed)];
        found.extend(Joined::of_sections(&placed, false).map(|joined| joined.octets));
        found.dedup();
        found
    }

    fn of_sections(sections: &[&'p Parameter], twice: bool) -> Option<Joined<'p>> {
        let (first, others) = sections.split_first()?;
        let (charset, mut octets) = first.octets();
        let (mut gap, mut next) = (None, first.section.map(|section| section.saturating_add(1)));
        for section in others {
            if gap.is_none() && section.section != next {
                gap = Some(octets.len());
            }
            next = section.section.map(|section| section.saturating_add(1));
            let value = section.value.as_slice();
            octets.extend(if section.extended { percent_decoded(value) } else { value.to_vec() });
        }
        let up_to_gap = octets[..gap.unwrap_or(octets.len())].to_vec();
        Some(Joined { charset, octets, up_to_gap, twice })
    }

    pub(super) fn texts(&self) -> Vec<String> {
        shown(self.charset, &self.octets)
    }
}

/// The sections of a value in their order, and whether one of them is there twice, differently.
fn sections<'p>(parameters: &'p [Parameter], wanted: &str) -> (Vec<&'p Parameter>, bool) {
    let mut sections: Vec<&Parameter> = parameters.iter().filter(|p| p.name == wanted && p.section.is_some()).collect();
    sections.sort_by_key(|p| p.section);
    let twice = sections.windows(2).any(|pair| pair[0].section == pair[1].section && pair[0].value != pair[1].value);
    sections.dedup_by_key(|p| p.section);
    (sections, twice)
}

/// What may stand in a value only between quotes (RFC 2045).
const NEEDS_QUOTES: &[u8] = b"()<>@,;:\\\"/[]?=";

/// Whether a value is a word and parameters as RFC 2045 has them: no comments, and nothing outside quotes that needs them.
fn is_strict(raw: &[u8]) -> bool {
    let token = |text: &[u8]| {
        !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !NEEDS_QUOTES.contains(byte))
    };
    let mut pieces = Vec::new();
    let (mut begin, mut quoted) = (0, false);
    for (at, byte) in raw.iter().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => return false,
            b';' if !quoted => {
                pieces.push(&raw[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&raw[begin..]);
    let value = |text: &[u8]| match text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
        Some(inside) => !inside.contains(&b'"'),
        None => token(text),
    };
    let parameter = |piece: &&[u8]| {
        let piece = piece.trim_ascii();
        let equals = memchr::memchr(b'=', piece);
        piece.is_empty() || equals.is_some_and(|at| token(&piece[..at]) && value(&piece[at + 1..]))
    };
    !quoted && pieces.iter().skip(1).all(parameter)
}

/// The charset before an extended value: `utf-8'en'text`.
fn charset(value: &[u8]) -> (&[u8], &[u8]) {
    let mut pieces = value.splitn(3, |byte| *byte == b'\'');
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some(set), Some(_), Some(text)) => (set, text),
        _ => (b"", value),
    }
}

/// Whether a type stands there as every program reads it: two words with nothing but a slash between them.
fn is_plain_type(raw: &[u8]) -> bool {
    let word = |text: &[u8]| {
        text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.+!#$&^".contains(byte)).count()
    };
    let raw = raw.trim_ascii();
    let main = word(raw);
    let Some((b'/', rest)) = raw[main..].split_first() else { return raw.is_empty() };
    let sub = word(rest);
    main > 0 && sub > 0 && rest.get(sub).is_none_or(|byte| byte.is_ascii_whitespace() || b";(".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_read_words_is_given_once() {
        // Joined words are another name, and what is left of a word stays as it is when it is decoded once more.
        let texts = shown(b"", b"=?utf-8?B?cnV?= =?utf-8?B?uLmpz?= =??=");
        assert!(texts.iter().any(|text| text.starts_with("run.js")), "{texts:?}");
        let once: std::collections::BTreeSet<&String> = texts.iter().collect();
        assert!(texts.len() > 1 && once.len() == texts.len(), "{texts:?}");
    }
}
