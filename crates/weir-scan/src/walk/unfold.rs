//! Scripts and pages unfolded a little: the files that they put together from pieces.
//!
//! Not an interpreter. String literals are joined where they stand beside each other, or under names that are added up; what comes of it is read as
//! base64, as hexadecimal digits, as escapes, backwards, without the letters that `replace` or `split` takes out, and under a key of XOR. Lists of numbers
//! are octets. What then begins like a program, an archive, a document or a page is handed back. Bounded: 4 MiB of text (or what acts in a longer
//! one), 400 texts, 32 MiB of octets in all. The mail scan and the lab use the same.

use super::kind::Kind;
use super::transfer::{Padding, base64};
use std::collections::HashMap;

pub(crate) const TEXT_MAX: usize = 4 << 20;
/// Of a longer text so many words, numbers, strings and signs are read, which take as much memory as those of a short one take at most.
const TOKENS_MAX: usize = TEXT_MAX;
const TEXTS_MAX: usize = 400;
const OCTETS_MAX: usize = 32 << 20;
const FOUND_MAX: usize = 16;
/// Of scripts in which words are looked for, and of what they put together; and of each text in it.
pub(crate) const WORDS_MAX: usize = 1 << 20;
const WORD_LONGEST: usize = 8 << 10;
/// A file in digits is at least so long.
const SHORTEST: usize = 16;
/// A word in numbers at least.
const NUMBERS_SHORTEST: usize = 6;
/// Runs of base64 in a page, without quotes.
const RUN_SHORTEST: usize = 64;
const KEY_LONGEST: usize = 32;
/// Shorter pieces of base64 are words.
const PIECE_SHORTEST: usize = 24;

/// The files that a script or page puts together. Of a long one the beginning is read.
pub fn unfold(text: &[u8]) -> Vec<Vec<u8>> {
    unfold_long(&text[..text.len().min(TEXT_MAX)]).found
}

/// What came of a text.
pub(crate) struct Unfolded {
    pub(crate) found: Vec<Vec<u8>>,
    /// Whether all of it was read.
    pub(crate) is_whole: bool,
}

/// The same with a text of any length, of which as much is read as there is memory for.
pub(crate) fn unfold_long(text: &[u8]) -> Unfolded {
    let (tokens, is_whole) = tokens_up_to(text, TOKENS_MAX);
    let mut unfolding = Unfolding { keys: keys(&tokens), junk: junk(&tokens), ..Unfolding::default() };
    for numbers in numbers(&tokens, SHORTEST) {
        unfolding.octets(numbers, true);
    }
    for text in pieces(&tokens).into_iter().chain(texts(&tokens, OCTETS_MAX)).chain(runs(text)) {
        unfolding.text(&text, 2);
    }
    Unfolded { found: unfolding.found, is_whole }
}

/// What the strings and numbers of scripts come to, read in the same ways: for rules that look for words in them. Of each text the beginning. Scripts
/// of one page share their names, but a quote that one of them does not close ends with it.
pub(crate) fn words<'s>(scripts: impl Iterator<Item = &'s [u8]>) -> Vec<Vec<u8>> {
    let (mut all, mut left) = (Vec::new(), WORDS_MAX);
    for script in scripts {
        if left == 0 {
            break;
        }
        let script = &script[..script.len().min(left)];
        left -= script.len();
        all.extend(tokens(script));
        all.push(Token::Sign(b';'));
    }
    let (junk, mut out) = (junk(&all), Vec::new());
    // Each has a bound of its own: many texts must not hide what numbers say.
    let numbers = numbers(&all, NUMBERS_SHORTEST).into_iter().take(TEXTS_MAX);
    for text in numbers.chain(texts(&all, WORDS_MAX)) {
        for reading in readings(&text[..text.len().min(WORD_LONGEST)], &junk) {
            out.extend(decoded(&reading));
            out.push(reading);
        }
    }
    out
}

#[derive(Default)]
struct Unfolding {
    found: Vec<Vec<u8>>,
    texts: usize,
    spent: usize,
    keys: Vec<Vec<u8>>,
    junk: Vec<Vec<u8>>,
}

impl Unfolding {
    fn is_spent(&self) -> bool {
        self.texts >= TEXTS_MAX || self.spent >= OCTETS_MAX || self.found.len() >= FOUND_MAX
    }

    fn text(&mut self, text: &[u8], rounds: u32) {
        self.texts += 1;
        if self.is_spent() || text.len() < SHORTEST {
            return;
        }
        // Escapes have been read already.
        if is_file(text) || (!text.is_ascii() && self.unlocked(text).is_some()) {
            self.octets(text.to_vec(), false);
        }
        for reading in readings(text, &self.junk) {
            for decoded in decoded(&reading) {
                self.spent += decoded.len();
                self.octets(decoded, rounds > 0);
            }
        }
    }

    /// Octets that came out: a file, a file under a key, or once more a text.
    fn octets(&mut self, octets: Vec<u8>, deeper: bool) {
        if self.is_spent() || octets.len() < 4 {
            return;
        }
        if is_file(&octets) {
            if !self.found.contains(&octets) {
                self.found.push(octets);
            }
            return;
        }
        if let Some(inflated) = inflated(&octets) {
            self.spent += inflated.len();
            if is_file(&inflated) && !self.found.contains(&inflated) {
                self.found.push(inflated);
            }
            return;
        }
        if let Some(opened) = self.unlocked(&octets) {
            self.spent += opened.len();
            self.found.push(opened);
            return;
        }
        let is_text = octets.iter().take(256).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        if deeper && is_text {
            let inner = tokens(&octets);
            // A short one may put together a long one, and there may be hundreds of them.
            let texts = texts(&inner, OCTETS_MAX.saturating_sub(self.spent).min(TEXT_MAX));
            self.spent += texts.iter().map(Vec::len).sum::<usize>();
            texts.into_iter().chain([octets]).take(16).for_each(|text| self.text(&text, 0));
        }
    }

    /// With one octet as a key, or with one of the short strings in the script.
    fn unlocked(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let head = &octets[..octets.len().min(1024)];
        // Only a key that makes the first octet of some mark is worth a try.
        let single = b"MPR7\xd0\x7fL".iter().map(|mark| vec![mark ^ head[0]]);
        let key = single.chain(self.keys.iter().cloned()).find(|key| is_certain(&locked(head, key)))?;
        Some(locked(octets, &key))
    }
}

/// A text as it stands, without the letters that the script takes out, and backwards.
fn readings(text: &[u8], junk: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let cleaned = junk.iter().fold(text.to_vec(), |text, junk| without(&text, junk));
    let mut readings = vec![text.to_vec(), cleaned, text.iter().rev().copied().collect()];
    readings.dedup();
    readings
}

/// What browsers unpack by themselves (`DecompressionStream`), if it has the mark of zlib.
fn inflated(octets: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read;
    let mark = u16::from_be_bytes([*octets.first()?, *octets.get(1)?]);
    if mark >> 8 != 0x78 || mark % 31 != 0 {
        return None;
    }
    let mut out = Vec::new();
    // What came before it broke is looked at as well.
    let _ = flate2::read::ZlibDecoder::new(octets).take(TEXT_MAX as u64).read_to_end(&mut out);
    Some(out).filter(|out| !out.is_empty())
}

fn locked(octets: &[u8], key: &[u8]) -> Vec<u8> {
    octets.iter().zip(key.iter().cycle()).map(|(octet, key)| octet ^ key).collect()
}

/// Whether this is what such scripts bring. Marks of two octets come by chance, and programs have a second one.
fn is_file(octets: &[u8]) -> bool {
    let kind = Kind::of(octets);
    if matches!(kind, Kind::WindowsProgram | Kind::Arj | Kind::OtherArchive(_)) {
        return is_certain(octets);
    }
    let known = matches!(kind, Kind::Ole | Kind::Disc | Kind::OneNote | Kind::Pdf | Kind::Rtf | Kind::Html);
    kind.is_program() || kind.is_archive() || known
}

/// The same with marks that are too long to come by chance.
fn is_certain(octets: &[u8]) -> bool {
    let program = octets.starts_with(b"MZ")
        && octets.get(0x3c..0x40).is_some_and(|place| {
            let place = u32::from_le_bytes([place[0], place[1], place[2], place[3]]) as usize;
            octets.get(place..).is_some_and(|rest| rest.starts_with(b"PE\0\0"))
        });
    let marks: [&[u8]; 7] = [
        b"PK\x03\x04",
        b"Rar!\x1a\x07",
        b"7z\xbc\xaf",
        b"\xd0\xcf\x11\xe0",
        b"\x7fELF",
        b"L\0\0\0\x01\x14\x02",
        b"MSCF\0\0",
    ];
    program
        || marks.iter().any(|mark| octets.starts_with(mark))
        || memchr::memmem::find(octets, b"This program cannot be run").is_some()
}

/// The ways to read a text as octets.
fn decoded(text: &[u8]) -> Vec<Vec<u8>> {
    let text = text.rsplit(|byte| *byte == b',').next().filter(|_| text.starts_with(b"data:")).unwrap_or(text);
    let plain: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    let mut out = Vec::new();
    let digits = plain.strip_prefix(b"0x").unwrap_or(&plain);
    if digits.len() >= SHORTEST && digits.iter().all(u8::is_ascii_hexdigit) {
        out.push(digits.chunks_exact(2).filter_map(hex_octet).collect());
    }
    if plain.len() >= SHORTEST && plain.iter().all(in_alphabet) {
        let usual: Vec<u8> = plain
            .iter()
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                byte => *byte,
            })
            .collect();
        let octets = base64(&usual, Padding::EndsGroup);
        // PowerShell's commands are in UTF-16.
        if octets.len() > 8 && octets.iter().skip(1).step_by(2).take(64).all(|byte| *byte == 0) {
            out.push(octets.iter().step_by(2).copied().collect());
        }
        out.push(octets);
    }
    if memchr::memchr(b'%', text).is_some() {
        out.push(percent(text));
    }
    out
}

pub(crate) fn hex_octet(pair: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
}

fn percent(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        // Two octets in one letter: %u5a4d.
        let double = text.get(at..at + 6).filter(|escape| escape.starts_with(b"%u"));
        if let Some((high, low)) = double.and_then(|escape| hex_octet(&escape[2..4]).zip(hex_octet(&escape[4..]))) {
            out.extend([low, high]);
            at += 6;
            continue;
        }
        match text.get(at + 1..at + 3).filter(|_| text[at] == b'%').and_then(hex_octet) {
            Some(octet) => {
                out.push(octet);
                at += 3;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

fn without(text: &[u8], junk: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memmem::find(rest, junk) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + junk.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'t> {
    Name(&'t [u8]),
    Text(Vec<u8>),
    Number(u32),
    Sign(u8),
}

/// Names, strings with their escapes read, numbers and signs.
fn tokens(text: &[u8]) -> Vec<Token<'_>> {
    tokens_up_to(text, usize::MAX).0
}

/// The first so many of them, and whether these are all.
fn tokens_up_to(text: &[u8], most: usize) -> (Vec<Token<'_>>, bool) {
    let (mut out, mut at) = (Vec::new(), 0);
    // Which quotes have no end is found out for all of them at once: to look for it from each would take time by the square.
    let mut endless: Option<Endless> = None;
    while let Some(first) = text.get(at) {
        if out.len() >= most {
            return (out, false);
        }
        let run = |is: fn(&u8) -> bool| text[at..].iter().take_while(|byte| is(byte)).count();
        at += match first {
            b'"' | b'\'' | b'`' => {
                let has_no_end = endless.as_ref().is_some_and(|endless| endless.from(at + 1, *first));
                let found = if has_no_end { None } else { string(&text[at + 1..], *first) };
                if found.is_none() && !has_no_end {
                    endless = Some(Endless::of(text));
                }
                let (string, length) = found.unwrap_or_default();
                out.push(Token::Text(string));
                length + 1
            }
            b'0'..=b'9' => {
                let length = run(u8::is_ascii_alphanumeric);
                out.push(number(&text[at..at + length]).map_or(Token::Name(&text[at..at + length]), Token::Number));
                length
            }
            byte if byte.is_ascii_alphabetic() || b"_$".contains(byte) => {
                let length = run(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(byte));
                out.push(Token::Name(&text[at..at + length]));
                length
            }
            byte => {
                if !byte.is_ascii_whitespace() {
                    out.push(Token::Sign(*byte));
                }
                1
            }
        };
    }
    (out, true)
}

fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

const QUOTES: [u8; 3] = *b"\"'`";

/// From which places on a string would have no end, a bit for each kind of quote. Read from the end in one pass.
struct Endless(Vec<u8>);

impl Endless {
    fn of(text: &[u8]) -> Endless {
        const ALL: u8 = 0b111;
        let mut endless = vec![ALL; text.len() + 1];
        for at in (0..text.len()).rev() {
            let further = |step: usize| endless.get(at + step).copied().unwrap_or(ALL);
            endless[at] = match text[at] {
                b'\\' => further(1 + escape(&text[at + 1..]).1),
                // A line ends all but one kind.
                b'\n' => further(1) | 0b011,
                byte => match QUOTES.iter().position(|quote| *quote == byte) {
                    Some(kind) => further(1) & !(1 << kind),
                    None => further(1),
                },
            };
        }
        Endless(endless)
    }

    fn from(&self, at: usize, quote: u8) -> bool {
        let kind = QUOTES.iter().position(|kind| *kind == quote).unwrap_or(0);
        self.0.get(at).is_none_or(|endless| endless >> kind & 1 == 1)
    }
}

/// A string behind its first quote, and how long it is with the last one. One without an end is no string.
fn string(text: &[u8], quote: u8) -> Option<(Vec<u8>, usize)> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        match byte {
            byte if *byte == quote => return Some((out, at + 1)),
            b'\n' if quote != b'`' => break,
            b'\\' => {
                let (octet, length) = escape(&text[at + 1..]);
                out.extend(octet);
                at += length;
            }
            byte => out.push(*byte),
        }
        at += 1;
    }
    None
}

/// What an escape in a string stands for, behind its backslash, and how long it is.
pub(crate) fn escape(text: &[u8]) -> (Option<u8>, usize) {
    match text.first() {
        Some(b'x') => (text.get(1..3).and_then(hex_octet), 3),
        Some(b'u') if text.get(1) == Some(&b'{') => {
            let digits = text.iter().skip(2).take(6).take_while(|digit| digit.is_ascii_hexdigit()).count();
            let number =
                std::str::from_utf8(&text[2..2 + digits]).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
            (number.map(|number| number as u8), 3 + digits)
        }
        Some(b'u') => (text.get(3..5).and_then(hex_octet), 5),
        Some(b'\n') | None => (None, 1),
        Some(b'n') => (Some(b'\n'), 1),
        Some(b'r') => (Some(b'\r'), 1),
        Some(b't') => (Some(b'\t'), 1),
        // An octet in octal digits, as old scripts write it.
        Some(b'0'..=b'7') => {
            let digits = text.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
            let octet = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
            match octet(&text[..digits]) {
                Some(octet) => (Some(octet), digits),
                None => (octet(&text[..2]), 2),
            }
        }
        Some(other) => (Some(*other), 1),
    }
}

/// All pieces of base64 one after the other: a script may gather them from a list, or from the attributes of many elements.
fn pieces(tokens: &[Token<'_>]) -> Option<Vec<u8>> {
    let piece = |token: &&Token<'_>| matches!(token, Token::Text(text) if text.len() >= PIECE_SHORTEST && text.iter().all(in_alphabet));
    let all = tokens.iter().filter(piece).filter_map(|token| match token {
        Token::Text(text) => Some(text.as_slice()),
        _ => None,
    });
    let all: Vec<&[u8]> = all.collect();
    (all.len() > 1).then(|| all.concat())
}

fn in_alphabet(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte)
}

/// Strings joined where they stand beside each other, and what names come to hold. Once that is `most` octets, what follows is left out: a few names
/// that are added up again and again hold millions.
fn texts(tokens: &[Token<'_>], most: usize) -> Vec<Vec<u8>> {
    let mut names: HashMap<&[u8], Vec<u8>> = HashMap::new();
    let (mut out, mut at, mut held) = (Vec::new(), 0, 0);
    while at < tokens.len() && held < most {
        let (joined, length) = joined(&tokens[at..], &names, most - held);
        if length == 0 {
            at += 1;
            continue;
        }
        held += joined.len();
        match assigned(&tokens[..at]) {
            Some((name, false)) => _ = names.insert(name, joined.clone()),
            Some((name, true)) => names.entry(name).or_default().extend_from_slice(&joined),
            None => {}
        }
        out.push(joined);
        at += length;
    }
    let mut held: Vec<Vec<u8>> = names.into_values().collect();
    held.sort_by_key(|text| std::cmp::Reverse(text.len()));
    // What is longest is what the pieces come to.
    held.extend(out);
    held.dedup();
    held.retain(|text| text.len() >= SHORTEST);
    held.truncate(TEXTS_MAX);
    held
}

/// Strings and known names with `+`, `&`, `.` or `,` between them, from the start, up to the one that makes more than `most` octets of it; how many
/// tokens that takes.
fn joined(tokens: &[Token<'_>], names: &HashMap<&[u8], Vec<u8>>, most: usize) -> (Vec<u8>, usize) {
    let (mut out, mut taken, mut at) = (Vec::new(), 0, 0);
    loop {
        match tokens.get(at) {
            Some(Token::Text(text)) => out.extend_from_slice(text),
            Some(Token::Name(name)) if names.contains_key(name) && !followed(&tokens[at..]) => {
                out.extend_from_slice(&names[name]);
            }
            _ => return (out, taken),
        }
        taken = at + 1;
        if out.len() > most {
            return (out, taken);
        }
        at = taken
            + tokens[taken..]
                .iter()
                .take_while(|token| matches!(token, Token::Sign(b'+' | b'&' | b',' | b'_')))
                .count();
        if at == taken {
            return (out, taken);
        }
    }
}

/// Whether a name is about to be given a value.
fn followed(tokens: &[Token<'_>]) -> bool {
    matches!(tokens.get(1), Some(Token::Sign(b'=')))
        || matches!(tokens.get(1..3), Some([Token::Sign(b'+'), Token::Sign(b'=')]))
}

/// The name to which what follows is assigned, and whether it is added.
fn assigned<'t>(before: &[Token<'t>]) -> Option<(&'t [u8], bool)> {
    match before {
        [.., Token::Name(name), Token::Sign(b'+'), Token::Sign(b'=')] => Some((name, true)),
        [.., Token::Name(name), Token::Sign(b'=')] => Some((name, false)),
        // `x = x + "more"`.
        [.., Token::Name(name), Token::Sign(b'='), Token::Name(again), Token::Sign(b'+' | b'&')] if name == again => {
            Some((name, true))
        }
        [.., Token::Name(name), Token::Sign(b'='), Token::Sign(b'[' | b'(')] => Some((name, false)),
        _ => None,
    }
}

/// Lists of numbers that are octets.
fn numbers(tokens: &[Token<'_>], shortest: usize) -> Vec<Vec<u8>> {
    let (mut out, mut list) = (Vec::new(), Vec::new());
    for token in tokens.iter().chain([&Token::Sign(b';')]) {
        match token {
            Token::Number(number) if *number <= 255 => list.push(*number as u8),
            Token::Sign(b',') => {}
            _ => {
                if list.len() >= shortest {
                    out.push(std::mem::take(&mut list));
                }
                list.clear();
            }
        }
    }
    out
}

/// Short strings, which may be keys.
fn keys(tokens: &[Token<'_>]) -> Vec<Vec<u8>> {
    let short = tokens.iter().filter_map(|token| match token {
        Token::Text(text) if (1..=KEY_LONGEST).contains(&text.len()) => Some(text.clone()),
        _ => None,
    });
    short.take(64).collect()
}

/// What `replace("x", "")` and `split("x").join("")` take out.
fn junk(tokens: &[Token<'_>]) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for window in tokens.windows(3) {
        let [Token::Name(name), Token::Sign(b'('), third] = window else { continue };
        let lower = name.to_ascii_lowercase();
        if lower != b"replace" && lower != b"replaceall" && lower != b"split" {
            continue;
        }
        if let Token::Text(text) = third
            && (1..=8).contains(&text.len())
            && !out.contains(text)
            && out.len() < 8
        {
            out.push(text.clone());
        }
    }
    // A regular expression: /x/g.
    for window in tokens.windows(6) {
        if let [Token::Name(name), Token::Sign(b'('), Token::Sign(b'/'), middle, Token::Sign(b'/'), _] = window
            && name.eq_ignore_ascii_case(b"replace")
            && out.len() < 8
        {
            match middle {
                Token::Name(text) => out.push(text.to_vec()),
                Token::Sign(sign) => out.push(vec![*sign]),
                _ => {}
            }
        }
    }
    out
}

/// Long runs of base64 that stand in a page without quotes.
fn runs(text: &[u8]) -> Vec<Vec<u8>> {
    let is = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(byte);
    text.split(|byte| !is(byte))
        .filter(|run| {
            run.len() >= RUN_SHORTEST && run.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() >= RUN_SHORTEST
        })
        .take(32)
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests;
