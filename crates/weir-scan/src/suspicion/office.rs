//! Documents that fetch something or run a command: relations, fields, formulas, controls.

use super::place::{Distance, distance, is_foreign_server};
use super::{has, name_ends, name_has};
use crate::little_endian::u32_at;
use crate::markup::{self, Tag};
use crate::walk::File;
use crate::walk::kind::Kind;

/// What is behind is not looked at.
const TEXT_MAX: usize = 8 << 20;

fn text<'f>(file: &File<'f>) -> &'f [u8] {
    &file.data[..file.data.len().min(TEXT_MAX)]
}

/// The targets outside of a document that relations of some kind name.
fn targets(file: &File<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    if !(name_ends(file, ".rels") || is_flat(file)) {
        return Vec::new();
    }
    let outside = |tag: &Tag<'_>| tag.value("TargetMode").is_some_and(|mode| mode.eq_ignore_ascii_case(b"external"));
    let kind = |tag: &Tag<'_>| {
        let kind = String::from_utf8_lossy(&tag.value("Type").unwrap_or_default()).to_ascii_lowercase();
        kind.rsplit('/').next().unwrap_or_default().trim().to_owned()
    };
    markup::tags(text(file))
        .filter(|tag| tag.is("Relationship") && outside(tag) && wanted(&kind(tag)))
        .filter_map(|tag| tag.value("Target"))
        .collect()
}

/// A document of today's Word in one XML file, or of Word 2003.
fn is_flat(file: &File<'_>) -> bool {
    let head = &file.data[..file.data.len().min(4096)];
    file.kind == Kind::Xml && (has(head, "office/2006/xmlPackage") || has(head, "office/word/2003/wordml"))
}

fn is_object(kind: &str) -> bool {
    matches!(kind, "oleobject" | "frame" | "afchunk" | "subdocument" | "control" | "package")
}

fn is_template(kind: &str) -> bool {
    kind == "attachedtemplate"
}

fn is_far(target: &[u8]) -> bool {
    distance(target).0 == Distance::Far
}

pub(super) fn remote_template(file: &File<'_>) -> bool {
    rtf_template(file).is_some_and(|target| is_far(&target))
        || targets(file, is_template).iter().any(|target| is_far(target))
}

/// The template of an RTF document, with its escapes read.
fn rtf_template(file: &File<'_>) -> Option<Vec<u8>> {
    const WORD: &[u8] = b"\\template";
    let whole = |at: &usize| !file.data.get(at + WORD.len()).is_some_and(u8::is_ascii_alphanumeric);
    let found = || memchr::memmem::find_iter(file.data, WORD).find(whole);
    let at = (file.kind == Kind::Rtf).then(found).flatten()? + WORD.len();
    let rest = &file.data[at..file.data.len().min(at + 8192)];
    Some(rtf_text(&rest[..group_end(rest)]))
}

/// Where the group ends that this stands in.
fn group_end(text: &[u8]) -> usize {
    let mut depth = 0u32;
    let end = text.iter().enumerate().position(|(at, byte)| {
        let plain = at == 0 || text[at - 1] != b'\\';
        match byte {
            b'{' if plain => depth += 1,
            b'}' if plain && depth == 0 => return true,
            b'}' if plain => depth -= 1,
            _ => {}
        }
        false
    });
    end.unwrap_or(text.len())
}

/// Without control words and groups, and with letters that are written as numbers.
fn rtf_text(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    // So many letters behind one of Unicode stand for it in old readers.
    let (mut behind_letter, mut skipped) = (1, 0usize);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (*first, behind.first().copied()) {
            (b'\\', Some(sign @ (b'\\' | b'{' | b'}'))) => {
                out.push(sign);
                rest = &behind[1..];
            }
            (b'\\', Some(b'\'')) => {
                let digits = behind.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
                let octet = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match skipped {
                    0 => out.extend(octet),
                    _ => skipped -= 1,
                }
                rest = behind.get(3..).unwrap_or_default();
            }
            (b'\\', _) => {
                if let Some(letter) = rtf_number(behind, b"u") {
                    let unit = [letter.rem_euclid(0x1_0000) as u16];
                    out.extend(String::from_utf16_lossy(&unit).into_bytes());
                    skipped = behind_letter;
                } else if let Some(count) = rtf_number(behind, b"uc") {
                    behind_letter = usize::try_from(count.clamp(0, 16)).unwrap_or(1);
                }
                let word = behind.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
                rest = &behind[word.max(1).min(behind.len())..];
                rest = rest.strip_prefix(b" ").unwrap_or(rest);
            }
            (b'{' | b'}', _) => skipped = 0,
            (b'\r' | b'\n', _) => {}
            _ if skipped > 0 => skipped -= 1,
            (byte, _) => out.push(byte),
        }
    }
    out
}

/// The number of a control word, if it is this one.
fn rtf_number(text: &[u8], word: &[u8]) -> Option<i64> {
    let rest = text.strip_prefix(word)?;
    let length = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    std::str::from_utf8(&rest[..length]).ok()?.parse().ok()
}

pub(super) fn remote_object(file: &File<'_>) -> bool {
    targets(file, is_object).iter().any(|target| is_far(target))
        || targets(file, |kind| kind == "image").iter().any(|target| is_foreign_server(target))
        || targets(file, |_| true).iter().any(|target| target.to_ascii_lowercase().starts_with(b"mhtml:"))
        || has_remote_field(&fields(file))
        || linked_object(file)
}

/// `INCLUDEPICTURE "\\\\server\\share\\a.png"`, and a link that Outlook asks a stranger's server about (`file:…!x`).
fn has_remote_field(fields: &[u8]) -> bool {
    const FIELDS: [&str; 5] = ["INCLUDEPICTURE", "INCLUDETEXT", "IMPORT", "LINK", "HYPERLINK"];
    let upper = fields.to_ascii_uppercase();
    FIELDS.iter().any(|word| {
        memchr::memmem::find_iter(&upper, word.as_bytes()).take(1000).any(|at| {
            let whole = at == 0 || !fields[at - 1].is_ascii_alphanumeric();
            let target = argument(&fields[at + word.len()..]);
            let moniker = *word != "HYPERLINK" || memchr::memchr(b'!', &target).is_some();
            whole && moniker && is_foreign_server(&target)
        })
    })
}

/// The first argument of a field, in quotes or not; two backslashes are one.
fn argument(text: &[u8]) -> Vec<u8> {
    let text = text[..text.len().min(2048)].trim_ascii_start();
    let end = match text.strip_prefix(b"\"") {
        Some(quoted) => memchr::memchr(b'"', quoted).map(|end| end + 1),
        None => text.iter().position(u8::is_ascii_whitespace),
    };
    let target = text[..end.unwrap_or(text.len())].strip_prefix(b"\"").unwrap_or(&text[..end.unwrap_or(text.len())]);
    String::from_utf8_lossy(target)
        .replace("\\\\", "\\")
        .replacen("\\", "\\\\", usize::from(target.starts_with(b"\\")))
        .into_bytes()
}

/// An object of OLE 1 that is only a link (MS-OLEDS, section 2.2.6), or one of OLE 2 behind a moniker, to something far away.
fn linked_object(file: &File<'_>) -> bool {
    const URL_MONIKER: &[u8] = b"\xe0\xc9\xea\x79\xf9\xba\xce\x11\x8c\x82\x00\xaa\x00\x4b\xa9\x0b";
    let named = |own: &str| file.names.iter().any(|name| name == own);
    if !named("object") && !named("Ole") {
        return false;
    }
    let narrow: Vec<u8> = file.data.iter().take(64 << 10).filter(|byte| **byte != 0).copied().collect();
    let far = || {
        ["http://", "https://", "mhtml:", "script:"].iter().any(|word| has(&narrow.to_ascii_lowercase(), word))
            || memchr::memmem::find(&narrow, b"\\\\")
                .is_some_and(|at| is_foreign_server(&narrow[at..narrow.len().min(at + 256)]))
    };
    let link = u32_at(file.data, 0) == Some(0x0501) && u32_at(file.data, 4) == Some(1);
    (link || memchr::memmem::find(file.data, URL_MONIKER).is_some()) && far()
}

/// A template or an object on a server of the house that wrote the document.
pub(super) fn house_link(file: &File<'_>) -> bool {
    let near = |target: &[u8]| distance(target).0 == Distance::House;
    rtf_template(file).is_some_and(|target| near(&target))
        || targets(file, |kind| is_template(kind) || is_object(kind)).iter().any(|target| near(target))
}

/// What the fields of a document say.
fn fields(file: &File<'_>) -> Vec<u8> {
    if file.kind == Kind::Rtf {
        return rtf_fields(file.data);
    }
    let document = is_flat(file) || (name_has(file, "word/") && name_ends(file, ".xml"));
    if !document {
        return Vec::new();
    }
    let (data, mut out) = (text(file), Vec::new());
    for tag in markup::tags(data) {
        if tag.is("instrText") {
            let rest = data.get(tag.end()..).unwrap_or_default();
            out.extend(markup::resolved(&rest[..memchr::memchr(b'<', rest).unwrap_or(rest.len())]));
        } else if let Some(field) = tag.is("fldSimple").then(|| tag.value("instr")).flatten() {
            out.extend([b"\n".as_slice(), &field, b"\n"].concat());
        }
    }
    out
}

fn rtf_fields(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for at in memchr::memmem::find_iter(data, b"\\fldinst").take(1000) {
        out.push(b'\n');
        out.extend(rtf_text(&data[at + 8..data.len().min(at + 8 + 2048)]));
    }
    out
}

pub(super) fn dde(file: &File<'_>) -> bool {
    has_dde(&fields(file)) || old_document(file) || sheet(file)
}

/// Whether a field is called so; the words in quotes are its arguments.
fn has_dde(fields: &[u8]) -> bool {
    let unquoted = fields.split(|byte| *byte == b'"').step_by(2);
    let mut words = unquoted.flat_map(|text| text.split(|byte| !byte.is_ascii_alphanumeric()));
    words.any(|word| word.eq_ignore_ascii_case(b"dde") || word.eq_ignore_ascii_case(b"ddeauto"))
}

/// Old Word marks the start of a field with one control character, in octets or in UTF-16.
fn old_document(file: &File<'_>) -> bool {
    let named = file.names.iter().any(|name| name == "WordDocument");
    named
        && memchr::memchr_iter(0x13, text(file)).any(|at| {
            let near = &file.data[at + 1..file.data.len().min(at + 65)];
            let letters: Vec<u8> = near.iter().filter(|byte| **byte != 0).copied().collect();
            let field = letters.trim_ascii_start();
            field.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"dde"))
        })
}

/// Formulas that ask another program: in a table of any format.
fn sheet(file: &File<'_>) -> bool {
    let named = || [".csv", ".tsv", ".tab"].iter().any(|end| name_ends(file, end));
    let csv = || named() && text(file).split(|byte| b"\n,;\t".contains(byte)).any(is_command);
    let page = || {
        is_table(file) && text(file).split(|byte| b"<>".contains(byte)).any(|cell| is_command(&markup::resolved(cell)))
    };
    let linked = || name_has(file, "xl/externallinks/") && has(file.data, "ddeLink");
    csv() || page() || linked() || symbolic(file).any(is_command) || open_document(file)
}

fn is_table(file: &File<'_>) -> bool {
    let excel = || ["xls", "xlsx", "xlt", "xlsb", "csv"].iter().any(|own| name_ends(file, &format!(".{own}")));
    matches!(file.kind, Kind::Html | Kind::Xml) && (excel() || has(text(file), "office:excel"))
}

/// `=cmd|'/c calc'!A0`.
fn is_command(cell: &[u8]) -> bool {
    let cell = cell.trim_ascii().strip_prefix(b"\"").unwrap_or(cell.trim_ascii());
    let formula = matches!(cell.first(), Some(b'=' | b'+' | b'-' | b'@'));
    let pipe = memchr::memchr(b'|', cell).filter(|at| *at > 1);
    formula && pipe.is_some_and(|at| memchr::memchr(b'!', &cell[at..]).is_some() && !cell[..at].contains(&b' '))
}

/// The formulas of a symbolic link file (SYLK), which Excel opens under many names.
fn symbolic<'f>(file: &File<'f>) -> impl Iterator<Item = &'f [u8]> {
    let known = file.data.starts_with(b"ID;") || file.data.starts_with(b"\xef\xbb\xbfID;");
    let formulas = if known { text(file) } else { &[] };
    let fields = formulas.split(|byte| b"\r\n;".contains(byte));
    fields.filter_map(|field| field.strip_prefix(b"E"))
}

/// Macros of Excel 4 in a symbolic link file.
pub(super) fn symbolic_macros(file: &File<'_>) -> bool {
    const CALLS: [&[u8]; 6] = [b"EXEC(", b"CALL(", b"REGISTER(", b"RUN(", b"FOPEN(", b"ALERT("];
    let calls = |formula: &[u8]| {
        let upper = formula.to_ascii_uppercase();
        CALLS.iter().any(|call| memchr::memmem::find(&upper, call).is_some())
    };
    symbolic(file).any(calls)
}

/// A sheet with macros of Excel 4, wherever it lies: its type and the relation to it say what it is.
pub(super) fn declares_macro_sheet(file: &File<'_>) -> bool {
    let known = name_ends(file, "[content_types].xml") || name_ends(file, ".rels") || is_flat(file);
    let head = &file.data[..file.data.len().min(4096)];
    if name_ends(file, ".xml") && markup::tags(head).any(|tag| tag.is("macrosheet")) {
        return true;
    }
    let says = |value: Option<Vec<u8>>| value.is_some_and(|value| has(&value.to_ascii_lowercase(), "macrosheet"));
    known
        && markup::tags(text(file)).any(|tag| {
            let kind = (tag.is("Override") || tag.is("Default")) && says(tag.value("ContentType"));
            kind || (tag.is("Relationship") && says(tag.value("Type")))
        })
}

/// A formula of LibreOffice that asks another program, or a link to one that is not LibreOffice.
fn open_document(file: &File<'_>) -> bool {
    let known = name_ends(file, "content.xml") || name_ends(file, ".fods") || name_ends(file, ".fodt");
    known
        && markup::tags(text(file)).any(|tag| {
            let formula = tag
                .value("formula")
                .is_some_and(|formula| memchr::memmem::find(&formula.to_ascii_uppercase(), b"DDE(").is_some());
            formula || tag.value("dde-application").is_some_and(|own| !own.eq_ignore_ascii_case(b"soffice"))
        })
}

/// What runs something when a document is opened or pointed at: a slide's action, a ribbon from elsewhere, controls that are whole browsers.
pub(super) fn document_action(file: &File<'_>) -> bool {
    let slide = || name_has(file, "ppt/") && has(&text(file).to_ascii_lowercase(), "ppaction://program");
    let ribbon = || {
        name_has(file, "customui/")
            && markup::tags(text(file))
                .any(|tag| tag.is("customUI") && tag.value("onLoad").is_some_and(|target| is_far(&target)))
    };
    slide() || ribbon() || controls(file).any(|class| BROWSERS.contains(&class.as_str()))
}

/// Internet Explorer as a control, pages and scripts as objects, Flash.
const BROWSERS: [&str; 6] = [
    "8856f961-340a-11d0-a96b-00c04fd705a2",
    "eab22ac3-30c1-11cf-a7eb-0000c05bae0b",
    "25336920-03f9-11cf-8fd0-00aa00686f13",
    "0e59f1d5-1fbe-11d0-8ff2-00a0d10038bc",
    "06290bd5-48aa-11d2-8432-006008c3fbfc",
    "d27cdb6e-ae6d-11cf-96b8-444553540000",
];

/// The classes of controls in a document.
fn controls(file: &File<'_>) -> impl Iterator<Item = String> {
    let known = name_has(file, "activex/") && name_ends(file, ".xml");
    let parts = if known { text(file) } else { &[] };
    let classes = markup::tags(parts).filter_map(|tag| tag.value("classid"));
    classes.map(|class| String::from_utf8_lossy(&class).trim_matches(['{', '}', ' ']).to_ascii_lowercase())
}

pub(super) fn activex(file: &File<'_>) -> bool {
    controls(file).next().is_some()
}

/// Formulas of the editor that Microsoft withdrew for its holes.
pub(super) fn equation(file: &File<'_>) -> bool {
    file.names.iter().any(|name| name.eq_ignore_ascii_case("Equation Native"))
}
