//! Documents that fetch something or run a command: relations, fields, formulas, controls.

use super::dde::{fields, symbolic};
use super::document::{field_arguments, is_flat, rtf_links, rtf_templates, text};
use super::link::{dense, is_search};
use super::place::{Distance, distance, is_foreign_server};
use super::{has, is_stream, name_ends, name_has};
use crate::little_endian::u32_at;
use crate::markup::{self, Tag};
use crate::walk::File;
use crate::walk::kind::Kind;

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
    rtf_templates(file).any(|target| is_far(&target)) || targets(file, is_template).iter().any(|target| is_far(target))
}

pub(super) fn remote_object(file: &File<'_>) -> bool {
    targets(file, is_object).iter().any(|target| is_far(target))
        || targets(file, |kind| kind == "image").iter().any(|target| is_foreign_server(target))
        || targets(file, |_| true).iter().any(|target| target.to_ascii_lowercase().starts_with(b"mhtml:"))
        || field_arguments(&fields(file).text).iter().any(|(word, target)| fetches(word, target))
        || rtf_links(file).any(|target| fetches("HYPERLINK", &target))
        || linked_object(file)
}

/// `INCLUDEPICTURE "\\\\server\\share\\a.png"`, and a link that Outlook asks a stranger's server about (`file:…!x`).
fn fetches(word: &str, target: &[u8]) -> bool {
    let moniker = word != "HYPERLINK" || memchr::memchr(b'!', target).is_some();
    // A text from the web is a whole document, with all that is in it.
    let text = word == "INCLUDETEXT" && is_far(target);
    text || is_search(&dense(target)) || (moniker && is_foreign_server(target))
}

/// An object of OLE 1 that is only a link (MS-OLEDS, section 2.2.6), or one of OLE 2 behind a moniker, to something far away.
fn linked_object(file: &File<'_>) -> bool {
    const URL_MONIKER: &[u8] = b"\xe0\xc9\xea\x79\xf9\xba\xce\x11\x8c\x82\x00\xaa\x00\x4b\xa9\x0b";
    if !is_stream(file, "object") && !is_stream(file, "Ole") {
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
    rtf_templates(file).any(|target| near(&target))
        || targets(file, |kind| is_template(kind) || is_object(kind)).iter().any(|target| near(target))
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

/// What runs something when a document is opened or pointed at: a slide's action, a ribbon from elsewhere, controls that are whole browsers, a
/// script of LibreOffice.
pub(super) fn document_action(file: &File<'_>) -> bool {
    let old_slide = || is_stream(file, "PowerPoint Document") && starts_program(file.data);
    let slide = || name_has(file, "ppt/") && has(&text(file).to_ascii_lowercase(), "ppaction://program");
    let ribbon = || {
        name_has(file, "customui/")
            && markup::tags(text(file))
                .any(|tag| tag.is("customUI") && tag.value("onLoad").is_some_and(|target| is_far(&target)))
    };
    let linked = || targets(file, |_| true).iter().any(|target| is_script(target) || is_search(&dense(target)));
    slide()
        || old_slide()
        || ribbon()
        || linked()
        || runs_script(file)
        || controls(file).any(|class| BROWSERS.contains(&class.as_str()))
}

/// A slide of PowerPoint 97 to 2003 that starts a program when something on it is pressed or pointed at (Microsoft, *[MS-PPT]*, section 2.8.7).
fn starts_program(document: &[u8]) -> bool {
    const INTERACTION: &[u8] = b"\0\0\xf3\x0f\x10\0\0\0";
    const RUNS: u8 = 2;
    memchr::memmem::find_iter(document, INTERACTION).any(|at| document.get(at + 16) == Some(&RUNS))
}

/// An address that LibreOffice runs.
fn is_script(target: &[u8]) -> bool {
    const SCHEMES: [&str; 4] = ["vnd.sun.star.script:", "vnd.libreoffice.command:", "vnd.sun.star.command:", "macro:"];
    let lower = target.trim_ascii().to_ascii_lowercase();
    SCHEMES.iter().any(|scheme| lower.starts_with(scheme.as_bytes()))
}

/// A document of LibreOffice, in one file or in an archive, that runs a script or a program. A button that runs a macro of the document itself does
/// so when somebody presses it, and that the document has macros is told.
fn runs_script(file: &File<'_>) -> bool {
    const PRESSED: [&str; 6] =
        ["dom:click", "on-click", "form:performaction", "form:approveaction", "performaction", "click"];
    let known = matches!(file.kind, Kind::Xml | Kind::Unknown)
        && ["opendocument", "openoffice.org"].iter().any(|word| has(text(file), word));
    known
        && markup::tags(text(file)).any(|tag| {
            let listens = tag.is("event-listener") || tag.is("event");
            let event = String::from_utf8_lossy(&tag.value("event-name").unwrap_or_default()).to_ascii_lowercase();
            let own =
                || tag.value("href").or_else(|| tag.value("macro-name")).is_some_and(|script| !is_elsewhere(&script));
            let pressed = listens && PRESSED.contains(&event.as_str()) && own();
            let named = listens && tag.value("language").is_some() && tag.value("macro-name").is_some();
            let started = tag.value("action").is_some_and(|action| action.eq_ignore_ascii_case(b"execute"));
            let runs = tag.attributes().any(|(_, value)| value.len() > 6 && is_script(&markup::resolved(value)));
            ((runs || named) && !pressed) || (listens && started)
        })
}

/// A script that is not in the document that names it.
fn is_elsewhere(script: &[u8]) -> bool {
    let lower = script.to_ascii_lowercase();
    is_script(script) && !has(&lower, "location=document")
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
