//! Content transfer encodings (RFC 2045, section 6), read as leniently as mail programs do.
//!
//! What one program refuses another shows, so nothing is refused: characters outside the alphabet are skipped, and data after padding is
//! read in every way in which some program reads it.

/// How the body of a part is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As it is.
    Plain,
    /// Base64.
    Base64,
    /// Quoted-printable.
    QuotedPrintable,
    /// Uuencode, which was never a standard and is still read.
    Uuencode,
}

impl Encoding {
    /// By its name in the header.
    pub fn named(name: &[u8]) -> Option<Encoding> {
        match name.to_ascii_lowercase().as_slice() {
            b"" | b"7bit" | b"7-bit" | b"8bit" | b"8-bit" | b"binary" => Some(Encoding::Plain),
            b"base64" => Some(Encoding::Base64),
            b"quoted-printable" => Some(Encoding::QuotedPrintable),
            b"uuencode" | b"x-uuencode" | b"uue" | b"x-uue" => Some(Encoding::Uuencode),
            _ => None,
        }
    }

    /// Decodes; nothing where the text is what it is, with or without files in it ([`uuencoded`]). Never longer than what it came from.
    pub fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Encoding::Plain | Encoding::Uuencode => None,
            Encoding::Base64 => Some(base64(text, Padding::EndsGroup)),
            Encoding::QuotedPrintable => Some(quoted_printable(text)),
        }
    }

    /// Whether a body is written in it as the standard says. Some programs show what is not as it stands.
    pub fn is_kept(self, text: &[u8]) -> bool {
        match self {
            Encoding::Plain | Encoding::Uuencode => true,
            Encoding::Base64 => {
                let (letters, strangers) = base64_letters(text);
                strangers == 0 && letters % 4 != 1
            }
            Encoding::QuotedPrintable => memchr::memchr_iter(b'=', text).all(|at| match &text[at + 1..] {
                [b'\r', b'\n', ..] | [b'\n', ..] => true,
                [high, low, ..] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
                _ => false,
            }),
        }
    }

    /// The other ways to decode it: some if it is base64 that goes on behind padding, or a line that goes on behind a sign and blanks.
    pub fn other_readings(self, text: &[u8]) -> &'static [Decode] {
        let goes_on = |at: usize| text[at..].iter().any(|byte| is_base64(*byte));
        let blanks =
            |at: usize| matches!(text.get(at + 1), Some(b' ' | b'\t')) && soft_break(&text[at + 1..]).is_some();
        match self {
            Encoding::Base64 if memchr::memchr(b'=', text).is_some_and(goes_on) => {
                &[|text| base64(text, Padding::Foreign), |text| base64(text, Padding::EndsText)]
            }
            Encoding::QuotedPrintable if memchr::memchr_iter(b'=', text).any(blanks) => {
                &[|text| quoted_printable_with(text, |_| None)]
            }
            _ => &[],
        }
    }
}

/// A way to decode a text.
pub type Decode = fn(&[u8]) -> Vec<u8>;

/// What programs make of padding in base64 that more follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// A new group begins behind it.
    EndsGroup,
    /// It is passed over, as other characters are that do not belong there (PHP).
    Foreign,
    /// It is passed over where it cannot be padding, and else the text ends with it (Python).
    EndsText,
}

impl Padding {
    /// All of them.
    pub const ALL: [Padding; 3] = [Padding::EndsGroup, Padding::Foreign, Padding::EndsText];
}

const NO: u8 = 0xff;

/// How many letters of base64 a text has, and how many that are neither letters nor padding nor blanks. Every large attachment is counted whole, so
/// this is written for the compiler to take many octets at once: comparisons instead of the table, and counts of one octet for each piece.
pub(super) fn base64_letters(text: &[u8]) -> (usize, usize) {
    let (mut letters, mut blanks) = (0, 0);
    for piece in text.chunks(usize::from(u8::MAX)) {
        let (mut of_letters, mut of_blanks) = (0u8, 0u8);
        for byte in piece {
            let is_letter = byte.is_ascii_alphanumeric() | (*byte == b'+') | (*byte == b'/');
            let is_blank = (*byte == b'=') | (*byte == b' ') | (*byte == b'\t') | (*byte == b'\r') | (*byte == b'\n');
            of_letters += u8::from(is_letter);
            of_blanks += u8::from(is_blank);
        }
        letters += usize::from(of_letters);
        blanks += usize::from(of_blanks);
    }
    (letters, text.len() - letters - blanks)
}

/// The value of each character, or [`NO`].
const SEXTETS: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut table, mut i) = ([NO; 256], 0);
    while i < 64 {
        table[alphabet[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// Whether a character is of the alphabet of base64.
pub(super) fn is_base64(letter: u8) -> bool {
    SEXTETS[usize::from(letter)] != NO
}

/// Base64; whatever is not of its alphabet is passed over.
pub fn base64(text: &[u8], padding: Padding) -> Vec<u8> {
    // Three octets come of four characters, and never more.
    let mut out = Decoded { bytes: vec![0; text.len() / 4 * 3 + 3], length: 0 };
    let (mut group, mut count, mut rest, mut padded) = (0u32, 0, text, 0);
    while !rest.is_empty() {
        // Most of a body is lines of whole groups.
        if count == 0 {
            rest = out.groups(rest);
        }
        let [first, behind @ ..] = rest else { break };
        rest = behind;
        match (SEXTETS[usize::from(*first)], first) {
            (NO, b'=') => match padding {
                Padding::EndsGroup => {
                    out.finish(group, count);
                    (group, count) = (0, 0);
                }
                Padding::EndsText if count >= 2 => {
                    padded += 1;
                    if count + padded >= 4 {
                        break;
                    }
                }
                Padding::EndsText | Padding::Foreign => {}
            },
            (NO, _) => {}
            (sextet, _) => {
                group = group << 6 | u32::from(sextet);
                (count, padded) = (count + 1, 0);
                if count == 4 {
                    out.push(&group.to_be_bytes()[1..]);
                    (group, count) = (0, 0);
                }
            }
        }
    }
    out.finish(group, count);
    out.bytes.truncate(out.length);
    out.bytes
}

/// Octets that are written into memory that is there already: a vector that grows by three is several times slower.
struct Decoded {
    bytes: Vec<u8>,
    length: usize,
}

impl Decoded {
    /// Takes whole groups from the start of a text, as long as there are such; the rest of it.
    fn groups<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let mut taken = 0;
        let space = self.bytes[self.length..].chunks_exact_mut(3);
        for (group, space) in text.chunks_exact(4).zip(space) {
            let [a, b, c, d] = *group else { break };
            let (a, b) = (SEXTETS[usize::from(a)], SEXTETS[usize::from(b)]);
            let (c, d) = (SEXTETS[usize::from(c)], SEXTETS[usize::from(d)]);
            if a | b | c | d > 63 {
                break;
            }
            let group = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
            // One by one: a call that copies three octets takes longer than to decode them.
            if let ([_, one, two, three], [to_one, to_two, to_three]) = (group.to_be_bytes(), space) {
                (*to_one, *to_two, *to_three) = (one, two, three);
            }
            taken += 1;
        }
        self.length += 3 * taken;
        &text[4 * taken..]
    }

    fn push(&mut self, octets: &[u8]) {
        if let Some(space) = self.bytes.get_mut(self.length..self.length + octets.len()) {
            space.copy_from_slice(octets);
            self.length += octets.len();
        }
    }

    /// What is left of a group that is not whole.
    fn finish(&mut self, group: u32, count: u32) {
        match count {
            2 => self.push(&[(group >> 4) as u8]),
            3 => self.push(&((group >> 2) as u16).to_be_bytes()),
            _ => {}
        }
    }
}

/// Quoted-printable; what is not an escape stays as it is.
pub fn quoted_printable(text: &[u8]) -> Vec<u8> {
    quoted_printable_with(text, soft_break)
}

/// The same with what a sign is that neither an escape nor the end of its line follows: perhaps a line that goes on (Python does not think so).
fn quoted_printable_with(text: &[u8], soft_break: fn(&[u8]) -> Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'=', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = match &rest[at..] {
            [_, b'\r', b'\n', behind @ ..] | [_, b'\n', behind @ ..] => behind,
            [_, high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                behind
            }
            [sign, behind @ ..] => match soft_break(behind) {
                Some(behind) => behind,
                None => {
                    out.push(*sign);
                    behind
                }
            },
            [] => &[],
        };
    }
    out.extend_from_slice(rest);
    out
}

/// Spaces between the sign and the end of its line do not count (RFC 2045, section 6.7, rule 3).
fn soft_break(behind: &[u8]) -> Option<&[u8]> {
    let blank = behind.iter().take(80).take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    behind[blank..].strip_prefix(b"\n")
}

/// A hexadecimal digit's value; other characters count as zero.
pub(super) fn nibble(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or(0) as u8
}

/// The uuencoded files in a text: their names and what is in them. A line that begins one ends the one before, so the
/// cost is linear.
///
/// A line of no length ends a file to most programs, and some pass over it (Python's mail library). Where data follow it, the file is told
/// twice: as it is to the former, and whole.
pub fn uuencoded(text: &[u8]) -> Uuencoded<'_> {
    Uuencoded {
        rest: text,
        fresh: true,
        whole: None,
        value: |letter| letter.wrapping_sub(32) & 63,
        is_letter: |letter| matches!(letter, b' '..=b'`'),
    }
}

/// The xxencoded files in a text: as uuencode, with another alphabet.
pub fn xxencoded(text: &[u8]) -> Uuencoded<'_> {
    let value = |letter: u8| match letter {
        b'+' => 0,
        b'-' => 1,
        b'0'..=b'9' => letter - b'0' + 2,
        b'A'..=b'Z' => letter - b'A' + 12,
        b'a'..=b'z' => letter - b'a' + 38,
        _ => 0,
    };
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'-');
    Uuencoded { rest: text, fresh: true, whole: None, value, is_letter }
}

/// See [`uuencoded`].
#[derive(Debug)]
pub struct Uuencoded<'t> {
    rest: &'t [u8],
    /// Whether `rest` begins a line.
    fresh: bool,
    /// The file that was told last, as it is to whoever passes over lines of no length.
    whole: Option<(String, Vec<u8>)>,
    /// What a letter stands for.
    value: fn(u8) -> u8,
    /// Whether it is of the alphabet.
    is_letter: fn(u8) -> bool,
}

impl Iterator for Uuencoded<'_> {
    type Item = (String, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        loop {
            // A text that only tells how such files begin has none.
            if let Some(file) = self.file()? {
                return Some(file);
            }
        }
    }
}

impl<'t> Uuencoded<'t> {
    /// What the next line begins that looks like the beginning of a file: none if no line of data follows, and no end.
    fn file(&mut self) -> Option<Option<(String, Vec<u8>)>> {
        let (Begin { name, in_base64 }, body) = self.begin()?;
        (self.rest, self.fresh) = (body, true);
        let (mut out, mut is_data) = (Vec::new(), false);
        // How much there was at the first line of no length, and whether data follow it.
        let (mut pause, mut goes_on) = (None, false);
        while !self.rest.is_empty() {
            let (line, behind) = self.rest.split_at(line_length(self.rest));
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let ends = if in_base64 { line == b"====" } else { line == b"end" };
            if ends || Begin::read(line).is_some() {
                is_data |= ends && pause.is_none();
                break;
            }
            self.rest = behind;
            let length = line.first().map_or(0, |first| usize::from((self.value)(*first)));
            if line.is_empty() || (length == 0 && !in_base64) {
                is_data |= pause.is_none() && matches!(line, b"`" | b" " | b"+");
                pause.get_or_insert(out.len());
                continue;
            }
            match pause {
                None => is_data |= in_base64 || self.is_data(line, length),
                Some(_) => goes_on |= self.is_more(line, length, in_base64),
            }
            match in_base64 {
                true => out.extend_from_slice(line),
                false => decode_line(&line[1..], length, self.value, &mut out),
            }
        }
        let read = |data: &[u8]| if in_base64 { base64(data, Padding::EndsGroup) } else { data.to_vec() };
        let short = is_data.then(|| read(&out[..pause.unwrap_or(out.len())]));
        let whole = goes_on.then(|| (name.clone(), read(&out)));
        match short {
            Some(short) => {
                self.whole = whole;
                Some(Some((name, short)))
            }
            None => Some(whole),
        }
    }

    /// Whether a line is written in the alphabet as far as it tells its length. What follows is passed over by some readers.
    fn is_data(&self, line: &[u8], length: usize) -> bool {
        let letters = &line[..line.len().min(1 + length.div_ceil(3) * 4)];
        letters.len() > 1 && letters.iter().all(|letter| (self.is_letter)(*letter))
    }

    /// Whether a line behind one of no length is data, and not the text that follows a file: in the alphabet, and about as long as it tells. Blanks
    /// at its end may have been lost on the way.
    fn is_more(&self, line: &[u8], length: usize, in_base64: bool) -> bool {
        match in_base64 {
            true => line.iter().all(|letter| is_base64(*letter) || *letter == b'='),
            false => self.is_data(line, length) && 2 * line.len() > length.div_ceil(3) * 4,
        }
    }

    /// The next line that begins a file, and what follows.
    fn begin(&mut self) -> Option<(Begin, &'t [u8])> {
        memchr::memmem::find_iter(self.rest, b"begin").find_map(|at| {
            let fresh = if at == 0 { self.fresh } else { self.rest[at - 1] == b'\n' };
            if !fresh {
                return None;
            }
            let (line, behind) = self.rest[at..].split_at(line_length(&self.rest[at..]));
            Some((Begin::read(line)?, behind))
        })
    }
}

/// Up to and with the end of the first line.
fn line_length(text: &[u8]) -> usize {
    memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1)
}

/// The line that begins a file: `begin 644 NAME`, `begin-base64 0644 NAME`, and with the name in base64 `begin-encoded 644 NAME`. The mode
/// may have any length, and to Outlook two blanks stand for one.
struct Begin {
    name: String,
    in_base64: bool,
}

impl Begin {
    fn read(line: &[u8]) -> Option<Begin> {
        let end = line.iter().position(u8::is_ascii_whitespace)?;
        let (word, rest) = line.split_at(end);
        let in_base64 = word.starts_with(b"begin-base64");
        let name_encoded = match word {
            b"begin" | b"begin-base64" => false,
            b"begin-encoded" | b"begin-base64-encoded" => true,
            _ => return None,
        };
        let digits = rest.trim_ascii_start();
        let mode = digits.iter().take_while(|c| matches!(c, b'0'..=b'7')).count();
        let name = match digits.get(mode) {
            Some(b' ' | b'\t') if (1..=8).contains(&mode) => &digits[mode..],
            _ if rest.starts_with(b"  ") => rest,
            _ => return None,
        };
        let name = name.trim_ascii();
        let decoded = name_encoded.then(|| base64(name, Padding::EndsGroup));
        let name = super::bounded_name(decoded.as_deref().unwrap_or(name));
        (!name.is_empty()).then_some(Begin { name, in_base64 })
    }
}

/// The files in a text that are written in yEnc: their names and what is in them.
pub fn yencoded(text: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let begins = |at: &usize| (*at == 0 || rest[at - 1] == b'\n') && matches!(rest.get(at + 7), Some(b' ' | b'\t'));
        let at = memchr::memmem::find_iter(rest, b"=ybegin").find(begins)?;
        let (line, body) = rest[at..].split_at(line_length(&rest[at..]));
        let name = memchr::memmem::find(line, b"name=").map_or(&b""[..], |at| line[at + 5..].trim_ascii());
        let name = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
        let end = memchr::memmem::find(body, b"\n=yend").unwrap_or(body.len());
        rest = &body[end..];
        Some((super::bounded_name(name), ydecoded(&body[..end])))
    })
}

/// Whether there is a file in a text in the form that old Macintoshes give it: a line that says so, and soon a colon with which the data begin.
pub(super) fn has_binhex(text: &[u8]) -> bool {
    const MARK: &[u8] = b"(This file must be converted with BinHex";
    memchr::memmem::find_iter(text, MARK).any(|at| {
        let mut lines = text[at..].split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii);
        (at == 0 || text[at - 1] == b'\n')
            && lines.find(|line| !line.is_empty()).is_some_and(|line| line.starts_with(b":") && line.len() > 20)
    })
}

fn ydecoded(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"=ypart")) {
        let mut octets = line.iter().filter(|byte| **byte != b'\r');
        while let Some(octet) = octets.next() {
            match (octet, octet == &b'=') {
                (_, true) => out.extend(octets.next().map(|octet| octet.wrapping_sub(64 + 42))),
                (octet, false) => out.push(octet.wrapping_sub(42)),
            }
        }
    }
    out
}

/// The last group may be cut, where blanks at the end of a line were lost on the way.
fn decode_line(sextets: &[u8], length: usize, value: fn(u8) -> u8, out: &mut Vec<u8>) {
    let before = out.len();
    for group in sextets.chunks(4) {
        let missing = 4 - group.len();
        let group = group.iter().fold(0u32, |group, c| group << 6 | u32::from(value(*c))) << (6 * missing);
        out.extend_from_slice(&group.to_be_bytes()[1..]);
    }
    out.truncate(before + length);
}

#[cfg(test)]
mod tests;
