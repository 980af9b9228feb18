//! Finds what is suspicious in HTML pages, SVG pictures, XML style sheets, scripts and calendar entries: code where a reader expects none,
//! code that hides what it does, and pages that put a file together in the browser (HTML smuggling), where no scanner sees it arrive.

use super::place::is_foreign_server;
use super::{has, name_ends};
use crate::file_name;
use crate::markup::{self, LOOKED_THROUGH, Tag};
use crate::obfuscation::{is_obfuscated, is_packed};
use crate::walk::kind::Kind;
use crate::walk::{File, page};
use std::borrow::Cow;

/// What is looked through of a file: all of it, or what acts in it if it is long. The walk says so where more acts than that. In the parts of
/// documents, which are read by other rules, nothing acts; of a long one the beginning is enough here.
pub(super) fn text<'f>(file: &File<'f>) -> Cow<'f, [u8]> {
    if file.data.len() <= LOOKED_THROUGH {
        return Cow::Borrowed(file.data);
    }
    if file.in_archive && !is_attached_page(file) {
        return Cow::Borrowed(&file.data[..LOOKED_THROUGH]);
    }
    let mut acting = markup::acting(file.data);
    acting.truncate(LOOKED_THROUGH);
    Cow::Owned(acting)
}

pub(super) fn svg_script(file: &File<'_>) -> bool {
    let head = || file.data[..file.data.len().min(1024)].to_ascii_lowercase();
    let svg = name_ends(file, ".svg")
        || file.declared.starts_with("image/svg")
        || (file.kind != Kind::Html && has(&head(), "<svg"));
    if svg {
        let lower = text(file).to_ascii_lowercase();
        return ["<script", "javascript:", "<foreignobject"].iter().any(|word| has(&lower, word))
            || markup::tags(&text(file)).any(|tag| is_active(&tag));
    }
    // A browser runs the scripts of any XML document that has them in the name of HTML or SVG.
    let xml = name_ends(file, ".xml") || matches!(file.declared, "text/xml" | "application/xml");
    xml && !file.in_archive
        && ["1999/xhtml", "2000/svg"].iter().any(|space| has(&text(file), space))
        && markup::tags(&text(file)).any(|tag| tag.is("script"))
}

/// An element that runs something by itself or by an event, whatever its prefix.
fn is_active(tag: &Tag<'_>) -> bool {
    let transformed = tag.is("?xml-stylesheet") && has(&tag.text.to_ascii_lowercase(), "xsl");
    let event = |name: &[u8]| {
        name.len() > 4 && name[..2].eq_ignore_ascii_case(b"on") && name.iter().all(u8::is_ascii_alphabetic)
    };
    transformed
        || tag.is("script")
        || tag.is("foreignObject")
        || tag.attributes().any(|(name, value)| event(name) || (value.len() > 10 && runs(value)))
}

/// An address that is a script or a page; browsers pass over white space in it.
fn runs(value: &[u8]) -> bool {
    let dense: Vec<u8> = markup::beginning(value)
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_control())
        .map(u8::to_ascii_lowercase)
        .collect();
    ["javascript:", "vbscript:", "data:text/html", "data:image/svg+xml;base64,phn2z"]
        .iter()
        .any(|start| dense.starts_with(start.as_bytes()))
}

/// A style sheet that runs something where XML is turned into something else: a script in Microsoft's processor, Java in others.
pub(super) fn stylesheet_script(file: &File<'_>) -> bool {
    const JAVA: [&str; 4] = ["xml.apache.org/xalan/java", "xml.apache.org/xslt/java", "icl.com/saxon/java", "=\"java:"];
    let named = [".xsl", ".xslt", ".xml"].iter().any(|end| name_ends(file, end));
    if !(file.kind == Kind::Xml || named || file.declared.ends_with("xml")) {
        return false;
    }
    let text = text(file);
    let lower = text.to_ascii_lowercase();
    let is_sheet = has(&lower, "xsl/transform") || has(&lower, "stylesheet");
    let of_sheet = |tag: &Tag<'_>| tag.is("script") && tag.value("implements-prefix").is_some();
    (is_sheet && JAVA.iter().any(|space| has(&lower, space))) || markup::tags(&text).any(|tag| of_sheet(&tag))
}

/// An attachment that is a page; the text of a mail runs no scripts.
pub(super) fn is_attached_page(file: &File<'_>) -> bool {
    const PAGES: [&str; 7] = ["htm", "html", "xht", "xhtml", "shtml", "svg", "hta"];
    let framed = file.names.iter().any(|name| name == page::WRITTEN) && file.kind == Kind::Html;
    framed || file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| PAGES.contains(&own.as_str()))
}

pub(super) fn html_smuggling(file: &File<'_>) -> bool {
    if !is_attached_page(file) {
        return false;
    }
    let text = text(file).to_ascii_lowercase();
    let acts = ["<script", "javascript:", " onload=", " onerror=", " onclick=", ":script"];
    let saves = [
        ".download",
        "mssave",
        "download=",
        "navigator.ms",
        ".click()",
        "location.href",
        "location.replace",
        "location=",
        "location =",
        "savefilepicker",
    ];
    [&acts[..], &saves].iter().all(|words| words.iter().any(|word| has(&text, word)))
        && (makes_files(&text) || makes_files(&joined(&text)))
        && !is_export(&text)
}

/// Words with which a script makes a file.
fn makes_files(lower: &[u8]) -> bool {
    let makes =
        ["new blob", "mssaveoropenblob", "mssaveblob", "createobjecturl", "uint8array", "new file(", "savefilepicker"];
    makes.iter().any(|word| has(lower, word))
}

/// A text whose strings are joined where a script adds them up: `URL["createObject" + "URL"]`.
fn joined(text: &[u8]) -> Vec<u8> {
    let quote = |rest: &[u8]| rest.first().is_some_and(|byte| b"\"'`".contains(byte));
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memchr3(b'"', b'\'', b'`', rest) {
        let (before, behind) = (&rest[..at], &rest[at + 1..]);
        out.extend_from_slice(before);
        let next = behind.trim_ascii_start().strip_prefix(b"+").map(<[u8]>::trim_ascii_start);
        rest = match next.filter(|next| quote(next)) {
            Some(next) => &next[1..],
            None => {
                out.push(rest[at]);
                behind
            }
        };
    }
    out.extend_from_slice(rest);
    out
}

/// A button that saves a table of the page itself: a text that is not decoded from anything, under the name of a text.
fn is_export(lower: &[u8]) -> bool {
    const TEXTS: [&str; 8] = ["csv", "txt", "json", "ics", "tsv", "md", "vcf", "log"];
    const DECODES: [&str; 14] = [
        "atob(",
        "fromcharcode",
        "charcodeat",
        "uint8array",
        "decodeuri",
        "unescape(",
        "base64",
        "parseint(",
        "\\x",
        "xmlhttprequest",
        "decompressionstream",
        "textdecoder",
        "fetch(",
        "octet-stream",
    ];
    let is_text = ["text/csv", "text/plain", "application/json", "text/calendar"].iter().any(|kind| has(lower, kind));
    let names: Vec<&[u8]> =
        memchr::memmem::find_iter(lower, b"download").filter_map(|at| quoted(&lower[at + 8..])).collect();
    let harmless = |name: &&[u8]| {
        let extension = memchr::memrchr(b'.', name).map(|at| &name[at + 1..]);
        extension.is_some_and(|own| TEXTS.iter().any(|text| text.as_bytes() == own))
    };
    is_text
        && !names.is_empty()
        && names.iter().all(harmless)
        && !DECODES.iter().any(|word| has(lower, word))
        && !has_long_run(lower)
}

/// `="name"` at the start.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let value = text.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let quote = value.first().filter(|byte| matches!(byte, b'"' | b'\'' | b'`'))?;
    Some(&value[1..=memchr::memchr(*quote, &value[1..])?])
}

/// A long text without a blank, as data in digits have it.
fn has_long_run(text: &[u8]) -> bool {
    text.split(|byte| !(byte.is_ascii_alphanumeric() || b"+/=_-%".contains(byte))).any(|run| run.len() >= 200)
}

/// Scripts, and the scripts of attached pages.
fn script(file: &File<'_>) -> Option<Vec<u8>> {
    const SCRIPTS: [&str; 12] = ["bat", "cmd", "hta", "js", "jse", "mjs", "ps1", "psm1", "vbe", "vbs", "wsf", "wsh"];
    let mut extensions = file.names.iter().flat_map(|name| file_name::extensions(name));
    let is_script = extensions.any(|own| SCRIPTS.contains(&own.as_str()))
        || file.kind == Kind::Script
        || file.declared.ends_with("javascript");
    let in_page = || is_attached_page(file).then(|| scripts(&text(file)));
    match file.data.get(..LOOKED_THROUGH) {
        _ if !is_script => in_page(),
        // A page by its name may begin as a script does.
        Some(begun) => Some([begun, &in_page().unwrap_or_default()].concat()),
        None => Some(file.data.to_vec()),
    }
}

pub(super) fn obfuscated_script(file: &File<'_>) -> bool {
    script(file).is_some_and(|script| is_obfuscated(&script))
}

pub(super) fn packed_script(file: &File<'_>) -> bool {
    script(file).is_some_and(|script| is_packed(&script))
}

/// The scripts of a page, and what its events run.
pub(super) fn scripts(page: &[u8]) -> Vec<u8> {
    let (lower, mut found) = (page.to_ascii_lowercase(), Vec::new());
    markup::scripts(page).for_each(|script| found.extend_from_slice(script));
    for event in ["onload=", "onerror=", "javascript:"] {
        for at in memchr::memmem::find_iter(&lower, event.as_bytes()).take(100) {
            found.push(b'\n');
            found.extend_from_slice(&page[at..page.len().min(at + 4096)]);
        }
    }
    found
}

pub(super) fn calendar_script(file: &File<'_>) -> bool {
    file.kind == Kind::Calendar && {
        let text = file.data.to_ascii_lowercase();
        let foreign = |at: usize| is_foreign_server(text[at..].split(|byte| *byte == b'\n').next().unwrap_or_default());
        has(&text, "javascript:")
            || has(&text, "ms-msdt:")
            || has(&text, ":search-ms:")
            || has(&text, "action:procedure")
            || memchr::memmem::find_iter(&text, b"file://").take(1000).any(foreign)
    }
}
