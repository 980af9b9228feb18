//! Files that a PDF carries, and the objects that it packs.
//!
//! A PDF is looked through from its first octet to its last for streams, whatever its tables say: readers repair broken tables, each in its own
//! way. Opened are streams with embedded files and those with packed objects, in which actions and the names of files stand.
//! Source: ISO 32000-1, sections 7.3 to 7.5 and 7.11.

use super::super::{Oddity, Walk};
use super::pdf_files::CarriedFiles;
use super::pdf_lock;
use super::pdf_text::{OBJECT_HEAD, hex, object, object_before, plain_names, string};
use crate::budget::{Exceeded, UnpackEnd};
use std::borrow::Cow;

/// How far back the dictionary is searched for, of what only looks like a stream within another one.
const WITHIN_MAX: usize = 512;
/// Names that each file may have. Which of them is that of which file is not told.
const NAMES_MAX: usize = 12;
/// The name under which packed objects are shown.
pub(crate) const OBJECTS: &str = "packed objects";
/// The name under which scripts and forms are shown that have a stream of their own.
pub(crate) const FORM: &str = "script or form";
/// Scripts and forms are shorter, and there are not so many streams that could be one.
const FORM_MAX: usize = 1 << 20;
const FORMS_MAX: usize = 256;
/// Nobody packs a stream more often.
const FILTERS_MAX: usize = 8;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    if pdf_lock::needs_password(data) {
        walk.odd_here(Oddity::Encrypted);
        return Ok(());
    }
    let locked = pdf_lock::is_locked(data);
    let mut active = acts(data);
    let key = locked.then(|| pdf_lock::PdfKey::of(data)).flatten();
    if locked && key.is_none() {
        walk.odd_here(Oddity::Unreadable("a PDF, locked in an unusual way".into()));
    }
    let mut files = CarriedFiles::new(NAMES_MAX + walk.budget.limits().entries as usize);
    files.gather(data, key.as_ref());
    for mut stream in Streams::of(data).filter(|stream| stream.is("/ObjStm")) {
        match &key {
            Some(key) => stream.unlock(key),
            None if locked => continue,
            None => {}
        }
        if !stream.is_readable() {
            walk.odd_here(Oddity::Unreadable("objects of a PDF, packed in an unusual way".into()));
        }
        let unpacked = stream.unpacked(walk)?;
        files.gather_packed(&unpacked, stream.number("/First", 0));
        active |= acts(&unpacked);
        walk.file(&[OBJECTS.into()], "", &unpacked, level)?;
        walk.budget.release(unpacked.len());
    }
    files.resolve(data, key.as_ref());
    if files.is_endless() {
        walk.odd_here(Oddity::Unreadable("a PDF with strings that do not end".into()));
    }
    if let Some(key) = &key {
        let texts = locked_texts(data, key);
        if !texts.is_empty() {
            walk.holding(&texts, |walk, texts| walk.file(&[OBJECTS.into()], "", texts, level))?;
        }
    }
    if active && (!locked || key.is_some()) {
        forms(walk, data, key.as_ref(), level)?;
    }
    carried(walk, data, (locked, key.as_ref()), &files, level)
}

/// The files. What a stream says of itself is not needed: what refers to it says it, too.
fn carried(
    walk: &mut Walk<'_>,
    data: &[u8],
    (locked, key): (bool, Option<&pdf_lock::PdfKey>),
    files: &CarriedFiles,
    level: u32,
) -> Result<(), Exceeded> {
    let is_file = |stream: &Stream<'_>| stream.is_whole("/EmbeddedFile") || files.is_file(stream.object.0);
    let (names, further) = files.names().split_at(files.names().len().min(NAMES_MAX));
    let mut has_files = false;
    for mut stream in Streams::of(data).filter(is_file) {
        has_files = true;
        match key {
            Some(key) if !key.has_other_for_files => stream.unlock(key),
            // Anybody opens the document, but its streams are encrypted all the same.
            _ if locked => {
                walk.odd(names, Oddity::Encrypted);
                continue;
            }
            _ => {}
        }
        if !stream.is_readable() {
            walk.odd(names, Oddity::Unreadable("a file in a PDF, packed in an unusual way".into()));
        }
        let unpacked = stream.unpacked(walk)?;
        walk.file(names, "", &unpacked, level)?;
        walk.budget.release(unpacked.len());
    }
    let mut further = further.iter().filter(|_| has_files);
    further.try_for_each(|name| walk.stored(std::slice::from_ref(name), &[], level))
}

/// What links, actions and scripts of a locked document say outside of its streams: names and strings, as a document that is not locked has them.
fn locked_texts(data: &[u8], key: &pdf_lock::PdfKey) -> Vec<u8> {
    const KEYS: [&[u8]; 5] = [b"/URI", b"/F", b"/UF", b"/Base", b"/JS"];
    let mut out = Vec::new();
    for at in memchr::memchr_iter(b'/', data) {
        let word =
            data[at + 1..].iter().take(24).take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'#').count();
        let name = plain_names(&data[at..=at + word]);
        let text = KEYS.contains(&name.as_slice()).then(|| string(data[at + 1 + word..].trim_ascii_start())).flatten();
        let Some(text) = text.filter(|_| out.len() < FORM_MAX) else { continue };
        // That there is a script is seen without its text.
        out.extend(if name == b"/JS" { b"(".to_vec() } else { [name.as_slice(), b"("].concat() });
        for octet in key.opened_text(object_before(data, at), &text) {
            if b"()\\".contains(&octet) {
                out.push(b'\\');
            }
            out.push(octet);
        }
        out.extend(b")\n");
    }
    out
}

/// Whether these objects have a script or a form.
fn acts(data: &[u8]) -> bool {
    let plain = plain_names(data);
    ["/XFA", "/JS", "/JavaScript"].iter().any(|name| memchr::memmem::find(&plain, name.as_bytes()).is_some())
}

/// Scripts and forms (XFA) in streams of their own. Nothing in such a stream says that it is one, so those that are no pictures, fonts or
/// tables are opened, if the document has a script or a form at all.
fn forms(walk: &mut Walk<'_>, data: &[u8], key: Option<&pdf_lock::PdfKey>, level: u32) -> Result<(), Exceeded> {
    const OTHERS: [&str; 7] = ["/Image", "/FontFile", "/Length1", "/XRef", "/ObjStm", "/EmbeddedFile", "/ICCBased"];
    const WORDS: [&str; 5] = ["<script", "exportDataObject", "app.", "eval(", "unescape("];
    let may = |stream: &Stream<'_>| stream.body.len() <= FORM_MAX && !OTHERS.iter().any(|name| stream.is(name));
    for mut stream in Streams::of(data).filter(may).take(FORMS_MAX) {
        if let Some(key) = key {
            stream.unlock(key);
        }
        let unpacked = stream.unpacked(walk)?;
        if WORDS.iter().any(|word| memchr::memmem::find(&unpacked, word.as_bytes()).is_some()) {
            walk.file(&[FORM.into()], "", &unpacked, level)?;
        }
        walk.budget.release(unpacked.len());
    }
    Ok(())
}

/// A stream and the dictionary before it.
struct Stream<'d> {
    /// Its object's number and generation.
    object: (u32, u16),
    dictionary: Vec<u8>,
    body: Cow<'d, [u8]>,
}

/// Everything that is written like a stream. A comment or a string may be written so as well: what follows it is looked at all the same.
struct Streams<'d> {
    data: &'d [u8],
    at: usize,
    /// Behind the stream before, as far as its beginning.
    behind: usize,
    /// Where the last object begins.
    object: usize,
    /// The next end of a stream.
    end: usize,
}

impl<'d> Streams<'d> {
    fn of(data: &'d [u8]) -> Streams<'d> {
        Streams { data, at: 0, behind: 0, object: 0, end: 0 }
    }

    /// Where the dictionary begins of a stream that begins here: behind the last object, unless another stream has begun since.
    fn dictionary(&mut self, stream: usize) -> usize {
        let before = &self.data[self.behind..stream];
        let blank = |at: &usize| *at > 0 && matches!(before[at - 1], 0 | b'\t' | b'\n' | 0x0c | b'\r' | b' ');
        match memchr::memmem::rfind_iter(before, b"obj").find(blank) {
            Some(at) => {
                self.object = self.behind + at;
                self.object
            }
            None => self.object.max(self.behind.min(stream.saturating_sub(WITHIN_MAX))),
        }
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
            let from = self.dictionary(found);
            let begin = self.data.len() - body.len();
            self.behind = begin;
            if self.end < begin {
                let end = memchr::memmem::find(body, b"endstream");
                self.end = end.map_or(self.data.len(), |end| begin + end);
            }
            let object = object(&self.data[self.object.saturating_sub(OBJECT_HEAD)..self.object]);
            let (dictionary, body) = (plain_names(&self.data[from..found]), Cow::Borrowed(&self.data[begin..self.end]));
            return Some(Stream { object, dictionary, body });
        }
    }
}

impl Stream<'_> {
    /// Takes off the lock of the document.
    fn unlock(&mut self, key: &pdf_lock::PdfKey) {
        self.body = Cow::Owned(key.opened(self.object, &self.body));
    }

    fn is(&self, name: &str) -> bool {
        memchr::memmem::find(&self.dictionary, name.as_bytes()).is_some()
    }

    /// The same for a name that does not go on.
    fn is_whole(&self, name: &str) -> bool {
        let ends = |at: usize| !self.dictionary.get(at + name.len()).is_some_and(u8::is_ascii_alphanumeric);
        memchr::memmem::find_iter(&self.dictionary, name.as_bytes()).any(ends)
    }

    /// A number in the dictionary, if it stands there.
    fn number(&self, key: &str, usual: usize) -> usize {
        let Some(at) = memchr::memmem::find(&self.dictionary, key.as_bytes()) else { return usual };
        let behind = self.dictionary[at + key.len()..].trim_ascii_start();
        let digits = behind.iter().take(6).take_while(|byte| byte.is_ascii_digit());
        digits.map(|byte| char::from(*byte)).collect::<String>().parse().unwrap_or(usual)
    }

    /// The filters in their order.
    fn filters(&self) -> Vec<&'static str> {
        const KEY: &[u8] = b"/Filter";
        let whole = |at: &usize| !self.dictionary.get(at + KEY.len()).is_some_and(u8::is_ascii_alphanumeric);
        let mut found = memchr::memmem::find_iter(&self.dictionary, KEY).filter(whole);
        let Some(at) = found.next() else { return Vec::new() };
        let value = self.dictionary[at + KEY.len()..].trim_ascii_start();
        let names = match value.strip_prefix(b"[") {
            Some(list) => &list[..memchr::memchr(b']', list).unwrap_or(list.len())],
            None if value.starts_with(b"/") => {
                let end = |byte: &u8| byte.is_ascii_whitespace() || b"/<>[](){}%".contains(byte);
                &value[..value.iter().skip(1).position(end).map_or(value.len(), |end| end + 1)]
            }
            // Told elsewhere in the document.
            None => return vec!["other"],
        };
        let other = found.next().is_some()
            || names.split(|byte| *byte == b'/').next().is_some_and(|before| !before.trim_ascii().is_empty());
        let mut filters: Vec<&str> =
            names.split(|byte| *byte == b'/').skip(1).map(|name| filter(name.trim_ascii())).collect();
        if other || filters.len() > FILTERS_MAX {
            filters.truncate(FILTERS_MAX);
            filters.push("other");
        }
        filters
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
                "flate" => self.inflated(walk, &data)?,
                "runs" => runs(&data, FORM_MAX.max(data.len().saturating_mul(64))),
                "hex" => hex(&data),
                "85" => ascii85(&data),
                "lzw" => {
                    let early = !self.is("/EarlyChange 0");
                    self.unpredicted(lzw(&data, early, FORM_MAX.max(data.len().saturating_mul(64))))
                }
                _ => data,
            };
        }
        walk.budget.hold(data.len())?;
        Ok(data)
    }

    /// Readers take what comes out, whatever the checksum says, and some do without the header.
    fn inflated(&self, walk: &mut Walk<'_>, data: &[u8]) -> Result<Vec<u8>, Exceeded> {
        let unpacked = walk.budget.unpack(data.len() as u64, &mut flate2::read::ZlibDecoder::new(data));
        let unpacked = match unpacked.end {
            UnpackEnd::Exceeded(exceeded) => return Err(exceeded),
            UnpackEnd::Whole => unpacked,
            UnpackEnd::Broken(_) => {
                walk.budget.release(unpacked.data.len());
                let body = data.get(2..).unwrap_or_default();
                let again = walk.budget.unpack(data.len() as u64, &mut flate2::read::DeflateDecoder::new(body));
                if let UnpackEnd::Exceeded(exceeded) = again.end {
                    return Err(exceeded);
                }
                again
            }
        };
        walk.budget.release(unpacked.data.len());
        Ok(self.unpredicted(unpacked.data))
    }

    /// Without the predictor, which writes each octet as its difference from another (section 7.4.4.4).
    fn unpredicted(&self, data: Vec<u8>) -> Vec<u8> {
        let (colors, bits) = (self.number("/Colors", 1), self.number("/BitsPerComponent", 8));
        let columns = self.number("/Columns", 1);
        let pixel = (colors * bits).div_ceil(8).clamp(1, 64);
        let row = (colors * bits * columns).div_ceil(8).max(1);
        match self.number("/Predictor", 1) {
            2 => differences(data, pixel, row),
            10.. => png_rows(&data, pixel, row),
            _ => data,
        }
    }
}

/// What a filter is called here.
fn filter(name: &[u8]) -> &'static str {
    match name {
        b"FlateDecode" | b"Fl" => "flate",
        b"ASCIIHexDecode" | b"AHx" => "hex",
        b"ASCII85Decode" | b"A85" => "85",
        b"RunLengthDecode" | b"RL" => "runs",
        b"LZWDecode" | b"LZW" => "lzw",
        _ => "other",
    }
}

/// Codes of 9 to 12 bits for what came before (section 7.4.4). With `early` a code gets longer one code too soon, which is usual.
fn lzw(data: &[u8], early: bool, most: usize) -> Vec<u8> {
    const CLEAR: usize = 256;
    const END: usize = 257;
    let (mut out, mut bits, mut count, mut width) = (Vec::new(), 0u32, 0u32, 9u32);
    // Where in what came out each code from 258 on stands.
    let mut table: Vec<(usize, usize)> = Vec::new();
    let mut before: Option<(usize, usize)> = None;
    for byte in data {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        if count < width {
            continue;
        }
        count -= width;
        let code = (bits >> count & ((1 << width) - 1)) as usize;
        match code {
            CLEAR => {
                table.clear();
                (before, width) = (None, 9);
                continue;
            }
            END => break,
            _ => {}
        }
        let begin = out.len();
        match (code, table.get(code.wrapping_sub(END + 1)).copied(), before) {
            (0..CLEAR, _, _) => out.push(code as u8),
            (_, Some((from, length)), _) => out.extend_from_within(from..from + length),
            // The code that is about to be known: what came before, and its first octet again.
            (_, None, Some((from, length))) if code == END + 1 + table.len() => {
                out.extend_from_within(from..from + length);
                out.extend_from_within(from..=from);
            }
            _ => break,
        }
        if let Some((from, length)) = before
            && table.len() < 4096 - 258
        {
            table.push((from, length + 1));
        }
        before = Some((begin, out.len() - begin));
        let next = table.len() + 258 + usize::from(early);
        width = match next {
            ..512 => 9,
            512..1024 => 10,
            1024..2048 => 11,
            _ => 12,
        };
        if out.len() > most {
            break;
        }
    }
    out
}

/// Rows in which each octet is the difference from that of the pixel before.
fn differences(mut data: Vec<u8>, pixel: usize, row: usize) -> Vec<u8> {
    for row in data.chunks_mut(row) {
        for at in pixel..row.len() {
            row[at] = row[at].wrapping_add(row[at - pixel]);
        }
    }
    data
}

/// Rows with the filters of PNG, each with its own in its first octet.
fn png_rows(data: &[u8], pixel: usize, length: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(data.len());
    for (number, row) in data.chunks(length + 1).enumerate() {
        let (Some((filter, row)), begin) = (row.split_first(), number * length) else { break };
        for (at, octet) in row.iter().enumerate() {
            let before =
                |back: usize, there: bool| if there { out.get(out.len() - back).copied().unwrap_or(0) } else { 0 };
            let left = before(pixel, at >= pixel);
            let above = before(length, begin > 0);
            let corner = before(length + pixel, begin > 0 && at >= pixel);
            let guess = match filter {
                1 => left,
                2 => above,
                3 => ((u16::from(left) + u16::from(above)) / 2) as u8,
                4 => paeth(left, above, corner),
                _ => 0,
            };
            out.push(octet.wrapping_add(guess));
        }
    }
    out
}

fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let sum = i16::from(left) + i16::from(above) - i16::from(corner);
    let far = |octet: u8| (sum - i16::from(octet)).abs();
    [left, above, corner].into_iter().min_by_key(|octet| far(*octet)).unwrap_or(left)
}

/// Runs of one octet, and copies (section 7.4.5).
fn runs(data: &[u8], most: usize) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    while let [length, behind @ ..] = rest {
        let count = usize::from(*length);
        match count {
            128 => break,
            0..128 => {
                let (copied, more) = behind.split_at((count + 1).min(behind.len()));
                out.extend_from_slice(copied);
                rest = more;
            }
            _ => {
                let Some((octet, more)) = behind.split_first() else { break };
                out.resize(out.len() + 257 - count, *octet);
                rest = more;
            }
        }
        if out.len() > most {
            break;
        }
    }
    out
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
    fn runs_and_predictors() {
        assert_eq!(runs(b"\x02abc\xffx\xfey\x80zz", 100), b"abcxxyyy");
        assert_eq!(differences(vec![1, 1, 1, 5, 1, 1], 1, 3), [1, 2, 3, 5, 6, 7]);
        // Each row with another filter: none, left, above, mean, Paeth.
        let rows = [[0, 1, 2], [1, 3, 1], [2, 1, 1], [3, 2, 2], [4, 1, 1]].concat();
        assert_eq!(png_rows(&rows, 1, 2), [1, 2, 3, 4, 4, 5, 4, 6, 5, 7]);
    }

    #[test]
    fn filters_in_their_order() {
        let filters = |dictionary: &str| {
            Stream { object: (1, 0), dictionary: dictionary.into(), body: Cow::Borrowed(b"") }.filters()
        };
        assert_eq!(filters("<</Filter /FlateDecode/Length 5>>"), ["flate"]);
        assert_eq!(filters("<</Filter[/AHx /FlateDecode/FlateDecode]>>"), ["hex", "flate", "flate"]);
        assert_eq!(filters("<</Filter/LZW>>"), ["lzw"]);
        assert_eq!(filters("<</Filter 7 0 R>>"), ["other"]);
        assert_eq!(filters("<</Filter[7 0 R]>>"), ["other"]);
        assert_eq!(filters("<</Filter/Crypt>>"), ["other"]);
        assert!(filters("<</Length 5>>").is_empty());
    }

    #[test]
    fn the_example_of_the_standard() {
        let packed = [0x80, 0x0b, 0x60, 0x50, 0x22, 0x0c, 0x0c, 0x85, 0x01];
        assert_eq!(lzw(&packed, true, 100), [45, 45, 45, 45, 45, 65, 45, 45, 45, 66]);
    }

    #[test]
    fn other_alphabets() {
        assert_eq!(ascii85(b"87cURD]i,\"Ebo80~>"), b"Hello World!");
        assert_eq!(hex(b"4 1 4"), b"A@");
    }

    #[test]
    fn streams_are_found_whatever_the_tables_say() {
        let data = b"1 0 obj\n<</Type/EmbeddedFile>>stream\r\nabc\nendstream endobj 2 0 obj <<>> stream\nxyz";
        let bodies: Vec<Cow<'_, [u8]>> = Streams::of(data).map(|stream| stream.body).collect();
        let objects: Vec<(u32, u16)> = Streams::of(data).map(|stream| stream.object).collect();
        assert_eq!(objects, [(1, 0), (2, 0)]);
        assert_eq!(bodies, [&b"abc\n"[..], b"xyz"]);
    }

    #[test]
    fn what_only_looks_like_a_stream_hides_none() {
        let long = format!("<</Type/EmbeddedFile{}>>", " ".repeat(10_000));
        for (before, dictionary) in [
            ("% a stream\n3 0 obj", "<</Type/EmbeddedFile>>"),
            ("(stream\n) 3 0\nobj", "<</Type/EmbeddedFile/EmbeddedFiles 1>>"),
            ("3 0 obj", long.as_str()),
        ] {
            let data = format!("{before}{dictionary}stream\nabc\nendstream endobj");
            let found: Vec<Stream<'_>> =
                Streams::of(data.as_bytes()).filter(|stream| stream.is_whole("/EmbeddedFile")).collect();
            assert_eq!(found.len(), 1, "{before}");
            assert_eq!((found[0].object, &found[0].body[..]), ((3, 0), &b"abc\n"[..]), "{before}");
        }
    }
}
