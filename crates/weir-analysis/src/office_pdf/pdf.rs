//! PDF: actions, scripts and files, also inside packed object streams.
//!
//! The tables of a PDF may be wrong, so they are not used: names are searched for in all objects, written plainly or
//! with `#`-escapes, and streams from `stream` to `endstream`. Cost: linear in the file and in what its streams unpack to. Source: ISO 32000-1,
//! sections 7.3 (objects), 7.5.7 (object streams) and 12.6 (actions).

use super::limits;
use crate::findings::Findings;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use weir_scan::budget::{Budget, Exceeded, UnpackEnd};
use weir_scan::plain::shown;

/// Names that are counted.
const WATCHED: &[&str] = &[
    "JS",
    "JavaScript",
    "OpenAction",
    "AA",
    "Launch",
    "EmbeddedFile",
    "RichMedia",
    "XFA",
    "AcroForm",
    "ObjStm",
    "URI",
    "SubmitForm",
    "GoToR",
    "GoToE",
    "ImportData",
    "Encrypt",
    "JBIG2Decode",
    "Names",
    "Page",
];
/// Calls by which scripts reach outside, or hide what they do.
const CALLS: &[&str] = &[
    "eval(",
    "unescape(",
    "fromCharCode",
    "launchURL",
    "exportDataObject",
    "util.printf",
    "collectEmailInfo",
    "getIcon(",
    "newPlayer",
    "submitForm",
    "getAnnots",
    "spawnPageFromTemplate",
];
const STREAMS_MAX: usize = 20_000;
/// What of the text before a stream can be its dictionary.
const DICTIONARY_MAX: usize = 16 << 10;
const NAME_MAX: usize = 127;
const STRING_MAX: usize = 64 << 10;
const SCRIPTS_MAX: usize = 50;
const LINKS_MAX: usize = 200;
const LINK_MAX: usize = 2000;
const FILTERS_MAX: usize = 4;

pub(super) fn look(data: &[u8], findings: &mut Findings<'_>) -> Result<Value, String> {
    let (mut pdf, mut budget) = (Pdf::default(), Budget::new(&limits()));
    let streams = pdf.read(data);
    let mut limit = (pdf.left > 0).then(|| format!("more than {STREAMS_MAX} streams"));
    for stream in &streams {
        match pdf.stream(stream, &mut budget, findings) {
            Ok(Ok(())) => {}
            Ok(Err(exceeded)) => {
                limit = Some(exceeded.to_string());
                break;
            }
            Err(error) => return Err(format!("a file cannot be written: {error}")),
        }
    }
    // Scripts in streams of their own are known only when all references are.
    let scripts = std::mem::take(&mut pdf.script_objects);
    for stream in streams.iter().filter(|stream| scripts.contains(&stream.object)) {
        match stream.decoded(&mut budget) {
            Ok(Some(text)) => {
                pdf.script(&text);
                budget.release(text.len());
            }
            Ok(None) => {}
            Err(exceeded) => {
                limit.get_or_insert_with(|| exceeded.to_string());
                break;
            }
        }
    }
    Ok(pdf.told(limit.as_deref(), findings))
}

#[derive(Default)]
struct Pdf {
    counts: BTreeMap<&'static str, u64>,
    scripts: Vec<String>,
    /// Numbers of objects that hold scripts.
    script_objects: BTreeSet<u64>,
    links: BTreeSet<String>,
    files: u64,
    /// Streams that found no room.
    left: u64,
    /// Names that were written so that they would not be found.
    disguised: u64,
}

/// A stream, with the dictionary before it.
struct PdfStream<'d> {
    object: u64,
    dictionary: &'d [u8],
    body: &'d [u8],
}

impl Pdf {
    /// Reads everything outside streams; the streams.
    fn read<'d>(&mut self, data: &'d [u8]) -> Vec<PdfStream<'d>> {
        let (mut from, mut at, mut streams) = (0, 0, Vec::new());
        while let Some(place) = memchr::memmem::find(&data[at..], b"stream").map(|place| at + place) {
            let Some(body) = body_start(data, from, place) else {
                at = place + 6;
                continue;
            };
            let outside = &data[from..place];
            self.objects(outside);
            let end = memchr::memmem::find(&data[body..], b"endstream").map_or(data.len(), |end| body + end);
            if streams.len() < STREAMS_MAX {
                streams.push(PdfStream::new(outside, &data[body..end]));
            } else {
                self.left += 1;
            }
            from = (end + 9).min(data.len());
            at = from;
        }
        self.objects(&data[from..]);
        streams
    }

    /// Names, scripts and links in text that holds objects.
    fn objects(&mut self, text: &[u8]) {
        let mut names = PdfNames { text, at: 0 };
        while let Some((name, disguised)) = names.next() {
            let Some(known) = WATCHED.iter().find(|known| known.as_bytes() == &*name) else { continue };
            *self.counts.entry(*known).or_default() += 1;
            self.disguised += u64::from(disguised);
            let value = text[names.at..].trim_ascii_start();
            match *known {
                // A string that never ends may be read only so often.
                "JS" if matches!(value.first(), Some(b'(' | b'<')) && self.counts["JS"] <= 10 * SCRIPTS_MAX as u64 => {
                    self.script(&string(value));
                }
                "JS" => self.script_objects.extend(number(value)),
                "URI" if value.first() == Some(&b'(') && self.counts["URI"] <= 10 * LINKS_MAX as u64 => {
                    let link = string(&value[..value.len().min(LINK_MAX)]);
                    let link = shown(&String::from_utf8_lossy(&link), LINK_MAX);
                    self.links.extend((link.contains("://") && self.links.len() < LINKS_MAX).then_some(link));
                }
                _ => {}
            }
        }
    }

    fn script(&mut self, text: &[u8]) {
        // Text in UTF-16 begins with its mark.
        let text: Cow<'_, [u8]> = match text {
            [0xfe, 0xff, rest @ ..] => rest.iter().copied().filter(|byte| *byte != 0).collect(),
            text => text.into(),
        };
        if self.scripts.len() < SCRIPTS_MAX && !text.is_empty() {
            self.scripts.push(String::from_utf8_lossy(&text[..text.len().min(STRING_MAX)]).into_owned());
        }
    }

    /// A stream that holds objects or a file.
    fn stream(
        &mut self,
        stream: &PdfStream<'_>,
        budget: &mut Budget,
        findings: &mut Findings<'_>,
    ) -> std::io::Result<Result<(), Exceeded>> {
        let kind = stream.kind();
        if !matches!(&*kind, b"ObjStm" | b"EmbeddedFile") {
            return Ok(budget.time());
        }
        let text = match stream.decoded(budget) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Ok(())),
            Err(exceeded) => return Ok(Err(exceeded)),
        };
        if &*kind == b"ObjStm" {
            self.objects(&text);
        } else {
            self.files += 1;
            findings.child(&format!("embedded-{}", self.files), &text)?;
        }
        budget.release(text.len());
        Ok(Ok(()))
    }

    fn told(&self, limit: Option<&str>, findings: &mut Findings<'_>) -> Value {
        let has = |name: &str| self.counts.contains_key(name);
        let scripted = has("JS") || has("JavaScript");
        let calls: Vec<&str> =
            CALLS.iter().copied().filter(|call| self.scripts.iter().any(|script| script.contains(call))).collect();
        let by_itself = has("OpenAction") || has("AA");
        if scripted && by_itself {
            findings.suspicious("script", "runs when the document is opened");
        } else if scripted && has("EmbeddedFile") {
            findings.suspicious("script", "it has JavaScript and a file");
        } else if scripted {
            findings.info("script", "it has JavaScript");
        }
        if !calls.is_empty() {
            let names: Vec<&str> = calls.iter().map(|call| call.trim_end_matches('(')).collect();
            findings.suspicious("script", format!("uses {}", names.join(", ")));
        }
        if has("Launch") {
            findings.suspicious("launch", "starts a program");
        }
        if self.disguised > 0 && (scripted || has("Launch")) {
            findings.suspicious("disguised", format!("{} names written so that they are not found", self.disguised));
        }
        if self.files > 0 || has("EmbeddedFile") {
            findings.info("embedded", self.files.to_string());
        }
        for (name, what) in
            [("RichMedia", "media"), ("XFA", "form with a script of its own kind"), ("Encrypt", "has a password")]
        {
            if has(name) {
                findings.info("has", what);
            }
        }
        for link in &self.links {
            findings.observable("url", link);
        }
        if let Some(exceeded) = limit {
            findings.unknown("limit", exceeded);
        }
        let scripts: Vec<String> = self.scripts.iter().take(10).map(|script| shown(script, 2000)).collect();
        json!({
            "format": "PDF", "names": self.counts, "scripts": scripts, "script_calls": calls, "embedded_files": self.files,
            "links": self.links, "disguised_names": self.disguised, "limit": limit,
        })
    }
}

/// Where the body of a stream begins whose keyword is here; none if it is another word.
fn body_start(data: &[u8], from: usize, place: usize) -> Option<usize> {
    if !data[from..place].trim_ascii_end().ends_with(b">>") {
        return None;
    }
    match &data[place + 6..] {
        [b'\r', b'\n', ..] => Some(place + 8),
        [b'\n' | b'\r', ..] => Some(place + 7),
        _ => None,
    }
}

impl<'d> PdfStream<'d> {
    fn new(before: &'d [u8], body: &'d [u8]) -> PdfStream<'d> {
        let near = &before[before.len().saturating_sub(DICTIONARY_MAX)..];
        // `12 0 obj << … >>`
        let start = memchr::memmem::rfind(near, b"obj").unwrap_or(0);
        let head: Vec<&[u8]> =
            near[..start].rsplit(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).take(2).collect();
        let object = head.get(1).and_then(|word| number(word)).unwrap_or(u64::MAX);
        PdfStream { object, dictionary: &near[start..], body }
    }

    /// What it says it is.
    fn kind(&self) -> Vec<u8> {
        let mut names = PdfNames { text: self.dictionary, at: 0 };
        while let Some((name, _)) = names.next() {
            if &*name == b"Type"
                && let Some((kind, _)) = names.next()
            {
                return kind.into_owned();
            }
        }
        Vec::new()
    }

    fn filters(&self) -> Vec<Vec<u8>> {
        let mut names = PdfNames { text: self.dictionary, at: 0 };
        while let Some((name, _)) = names.next() {
            if &*name == b"Filter" {
                let all = std::iter::from_fn(|| names.next()).map(|(name, _)| name.into_owned());
                let packers: [&[u8]; 6] = [b"FlateDecode", b"Fl", b"ASCIIHexDecode", b"AHx", b"ASCII85Decode", b"A85"];
                return all.take(FILTERS_MAX).take_while(|name| packers.contains(&&**name)).collect();
            }
        }
        Vec::new()
    }

    /// What is in it, held by the budget; none if it is packed in a way that we do not read.
    fn decoded(&self, budget: &mut Budget) -> Result<Option<Vec<u8>>, Exceeded> {
        let filters = self.filters();
        if filters.is_empty() {
            let packed = memchr::memmem::find(self.dictionary, b"Filter").is_some();
            return if packed { Ok(None) } else { held(self.body.to_vec(), budget).map(Some) };
        }
        let mut data: Cow<'_, [u8]> = self.body.into();
        for filter in &filters {
            let next = match &**filter {
                b"FlateDecode" | b"Fl" => inflated(&data, budget)?,
                b"ASCIIHexDecode" | b"AHx" => held(hexadecimal(&data), budget)?,
                _ => held(base85(&data), budget)?,
            };
            if let Cow::Owned(done) = std::mem::replace(&mut data, Cow::Owned(next)) {
                budget.release(done.len());
            }
        }
        Ok(Some(data.into_owned()))
    }
}

fn inflated(data: &[u8], budget: &mut Budget) -> Result<Vec<u8>, Exceeded> {
    let unpacked = budget.unpack(data.len() as u64, &mut flate2::read::ZlibDecoder::new(data));
    match unpacked.end {
        // What came before it broke is looked at: readers are patient.
        UnpackEnd::Whole | UnpackEnd::Broken(_) => Ok(unpacked.data),
        UnpackEnd::Exceeded(exceeded) => Err(exceeded),
    }
}

fn held(data: Vec<u8>, budget: &mut Budget) -> Result<Vec<u8>, Exceeded> {
    budget.hold(data.len())?;
    Ok(data)
}

fn hexadecimal(text: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b'>', text).unwrap_or(text.len());
    let mut digits = text[..end].iter().filter_map(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::new();
    while let Some(high) = digits.next() {
        // A digit that is missing at the end is a zero.
        out.push((high << 4 | digits.next().unwrap_or(0)) as u8);
    }
    out
}

fn base85(text: &[u8]) -> Vec<u8> {
    let (mut out, mut group) = (Vec::new(), Vec::with_capacity(5));
    for byte in text {
        match byte {
            b'~' => break,
            b'z' if group.is_empty() => out.extend_from_slice(&[0; 4]),
            b'!'..=b'u' => group.push(u32::from(byte - b'!')),
            _ => {}
        }
        if group.len() == 5 {
            out.extend_from_slice(&group_of(&group));
            group.clear();
        }
    }
    if group.len() > 1 {
        let length = group.len() - 1;
        group.resize(5, 84);
        out.extend_from_slice(&group_of(&group)[..length]);
    }
    out
}

fn group_of(digits: &[u32]) -> [u8; 4] {
    digits.iter().fold(0_u32, |sum, digit| sum.wrapping_mul(85).wrapping_add(*digit)).to_be_bytes()
}

/// Names in text that holds objects: `/Open#41ction` is `OpenAction`, and says that it was disguised.
struct PdfNames<'t> {
    text: &'t [u8],
    /// Behind the last one.
    at: usize,
}

impl<'t> PdfNames<'t> {
    fn next(&mut self) -> Option<(Cow<'t, [u8]>, bool)> {
        let start = self.at + memchr::memchr(b'/', self.text.get(self.at..)?)? + 1;
        let rest = &self.text[start..];
        let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0 || b"()<>[]{}/%".contains(byte);
        let length = rest.iter().take(NAME_MAX).position(ends).unwrap_or(rest.len().min(NAME_MAX));
        self.at = start + length;
        let name = &rest[..length];
        if !name.contains(&b'#') {
            return Some((name.into(), false));
        }
        let (mut plain, mut rest, mut letters) = (Vec::new(), name, false);
        while let [first, behind @ ..] = rest {
            let escaped = match behind {
                [high, low, ..] if *first == b'#' => {
                    let digit = |byte: u8| char::from(byte).to_digit(16);
                    digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4 | low) as u8)
                }
                _ => None,
            };
            letters |= escaped.is_some_and(|byte| byte.is_ascii_alphanumeric());
            plain.push(escaped.unwrap_or(*first));
            rest = if escaped.is_some() { &behind[2..] } else { behind };
        }
        Some((plain.into(), letters))
    }
}

/// The digits at the beginning.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// A string in brackets, or in hexadecimal digits.
fn string(text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(STRING_MAX)];
    let Some((b'(', mut rest)) = text.split_first().map(|(first, rest)| (*first, rest)) else {
        return hexadecimal(text.strip_prefix(b"<").unwrap_or(text));
    };
    let (mut out, mut depth) = (Vec::new(), 1);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'0'..=b'7', ..]) => {
                let digits: Vec<u32> = behind.iter().take(3).map_while(|byte| char::from(*byte).to_digit(8)).collect();
                out.push(digits.iter().fold(0, |sum, digit| sum << 3 | digit) as u8);
                rest = &behind[digits.len()..];
            }
            (b'\\', [escaped, behind @ ..]) => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest = behind;
            }
            (b')', _) if depth == 1 => break,
            _ => {
                depth += i32::from(*first == b'(') - i32::from(*first == b')');
                out.push(*first);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, suspicions};
    use super::*;
    use crate::fixtures;
    use weir_lab::job::Level;

    #[test]
    fn a_script_that_runs_when_the_document_is_opened() {
        for packed in [false, true] {
            let data = fixtures::pdf(packed);
            assert_eq!(
                suspicions(&data),
                ["script runs when the document is opened", "script uses eval, unescape"],
                "{packed}"
            );
            assert!(said(&data).2["scripts"][0].as_str().unwrap().contains("eval"), "{packed}");
        }
    }

    #[test]
    fn a_plain_document_is_not_suspicious() {
        let data = b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n5 0 obj << /S /URI /URI (https://fine.example/) >> endobj";
        assert_eq!(suspicions(data), Vec::<String>::new());
        assert_eq!(said(data).2["links"], json!(["https://fine.example/"]));
    }

    #[test]
    fn names_that_hide_and_programs_that_start() {
        let data = b"%PDF-1.4\n1 0 obj << /Open#41ction << /S /L#61unch /F (cmd.exe) >> >> endobj";
        assert_eq!(
            suspicions(data),
            ["launch starts a program", "disguised 2 names written so that they are not found"]
        );
    }

    #[test]
    fn what_is_behind_more_than_is_read_is_a_doubt() {
        let stream = b"7 0 obj << /Length 1 >> stream\nx\nendstream endobj\n";
        let doubts = |streams: usize| {
            let data = [&b"%PDF-1.4\n"[..], &stream.repeat(streams)].concat();
            said(&data).0.into_iter().filter(|(level, _)| *level == Level::Unknown).map(|(_, text)| text).collect()
        };
        let none: Vec<String> = doubts(STREAMS_MAX);
        assert_eq!(none, [] as [&str; 0]);
        assert_eq!(doubts(STREAMS_MAX + 1), ["limit more than 20000 streams"]);
        let files: Vec<u8> = (0..=crate::findings::CHILDREN_MAX)
            .flat_map(|n| format!("{n} 0 obj << /Type /EmbeddedFile >> stream\n{n}\nendstream endobj\n").into_bytes())
            .collect();
        let (lines, names, _) = said(&[&b"%PDF-1.4\n"[..], &files].concat());
        assert_eq!(names.len(), crate::findings::CHILDREN_MAX);
        assert!(lines.iter().any(|(level, text)| *level == Level::Unknown && text.starts_with("left 1 ")), "{lines:?}");
    }

    #[test]
    fn scripts_in_streams_and_files_inside() {
        let mut data = b"%PDF-1.4\n1 0 obj << /S /JavaScript /JS 7 0 R >> endobj\n".to_vec();
        data.extend_from_slice(
            b"7 0 obj << /Length 20 /Filter /ASCIIHexDecode >> stream\n6576616c2878293b>\nendstream endobj\n",
        );
        data.extend_from_slice(b"8 0 obj << /Type /EmbeddedFile >>\nstream\r\nMZ fake\nendstream endobj\n");
        let (lines, children, full) = said(&data);
        assert_eq!((&full["scripts"], children), (&json!(["eval(x);"]), vec!["embedded-1".to_owned()]));
        assert!(lines.iter().any(|(_, text)| text == "script uses eval"), "{lines:?}");
        assert!(lines.contains(&(Level::Suspicious, "script it has JavaScript and a file".into())), "{lines:?}");
    }

    #[test]
    fn strings_and_encodings() {
        assert_eq!(string(b"(a\\(b\\)c(d)\\101\\n) rest"), b"a(b)c(d)A\n");
        assert_eq!(string(b"<4142 4> rest"), b"AB@");
        assert_eq!(string(b"(never closed"), b"never closed");
        assert_eq!(base85(b"87cURD]i,\"Ebo80~>"), b"Hello World!");
        assert_eq!(base85(b"z!!~>"), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_flood_of_strings_that_never_end_is_read_only_so_often() {
        for flood in ["/URI(", "/JS(", "/URI(http://a.example/)"] {
            let data = [b"%PDF-1.4\n", &*flood.repeat(100_000).into_bytes()].concat();
            assert!(said(&data).2["links"].as_array().unwrap().len() <= LINKS_MAX, "{flood}");
        }
    }

    #[test]
    fn a_document_of_another_program_is_read() {
        let data = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join("clam.pdf")).unwrap();
        assert_eq!(said(&data).2["format"], "PDF");
    }
}
