//! Compound files: old Office documents, and the part of new ones that holds the macros.

use super::compound::{last, read, streams};
use super::vba::{self, Project};
use crate::findings::Findings;
use cfb::CompoundFile;
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::Path;
use weir_scan::little_endian::u16_at;
use weir_scan::plain::shown;

/// Sheets and names of an old workbook.
const RECORDS_MAX: usize = 1_000_000;

pub(super) fn look(data: &[u8], findings: &mut Findings<'_>) -> Value {
    let opened = std::panic::catch_unwind(|| CompoundFile::open(Cursor::new(data)).map_err(|error| error.to_string()));
    let mut compound = match opened.unwrap_or_else(|_| Err("its reader gave up".into())) {
        Ok(compound) => compound,
        Err(error) => {
            findings.info("damaged", error.as_str());
            return json!({ "format": "OLE", "damage": error });
        }
    };
    let streams = streams(&compound);
    let project = vba::project(&mut compound, &streams);
    let has = |name: &str| streams.iter().any(|path| last(path).eq_ignore_ascii_case(name));
    let embedded = has("\u{1}Ole10Native");
    if embedded {
        findings.suspicious("embedded", "a file that runs when it is clicked");
    }
    if has("EncryptedPackage") {
        findings.info("locked", "the document has a password");
    }
    let sheets = ["Workbook", "Book"].iter().find_map(|name| read(&mut compound, Path::new(name)));
    let sheets = sheets.map(|stream| old_macros(&stream)).unwrap_or_default();
    if let Some(sheet) = sheets.first() {
        let hidden = sheets.iter().any(|sheet| sheet.hidden);
        let text = format!("a sheet of Excel 4 macros{}: {}", if hidden { ", hidden" } else { "" }, sheet.name);
        findings.suspicious("excel4", text);
    }
    let names: Vec<String> = streams.iter().take(200).map(|path| shown(&path.to_string_lossy(), 100)).collect();
    let macros = project.as_ref().map(|project| project.told(findings));
    json!({ "format": "OLE", "streams": names, "macros": macros, "embedded_file": embedded, "excel4_sheets": sheets.len() })
}

/// The macros in a part of another document.
pub(super) fn macros(data: &[u8]) -> Option<Project> {
    let opened = std::panic::catch_unwind(|| CompoundFile::open(Cursor::new(data)).ok()).ok()?;
    let mut compound = opened?;
    let streams = streams(&compound);
    vba::project(&mut compound, &streams)
}

/// A sheet whose cells are macros.
struct MacroSheet {
    name: String,
    hidden: bool,
}

/// Sheets of Excel 4 macros: records of the kind BOUNDSHEET whose type is 1 (MS-XLS, section 2.4.28).
fn old_macros(workbook: &[u8]) -> Vec<MacroSheet> {
    const BOUNDSHEET: u16 = 0x85;
    let (mut at, mut sheets) = (0, Vec::new());
    for _ in 0..RECORDS_MAX {
        let (Some(id), Some(length)) = (u16_at(workbook, at), u16_at(workbook, at + 2)) else { break };
        let body = workbook.get(at + 4..at + 4 + usize::from(length)).unwrap_or_default();
        if let (BOUNDSHEET, [_, _, _, _, state, 1, count, flags, name @ ..]) = (id, body)
            && sheets.len() < 16
        {
            let name = &name[..name.len().min(usize::from(*count) << (flags & 1))];
            let letters: Vec<u8> = name.iter().copied().filter(|byte| *byte != 0).collect();
            sheets.push(MacroSheet { name: shown(&String::from_utf8_lossy(&letters), 60), hidden: state & 3 != 0 });
        }
        at += 4 + usize::from(length);
    }
    sheets
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, suspicions};
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_macro_that_runs_by_itself_and_starts_a_program() {
        let source = "Sub AutoOpen()\r\n  Dim x\r\n  Set x = CreateObject(\"WScript.Shell\")\r\n  x.Run \"cmd /c calc\"\r\nEnd Sub\r\n";
        let data = fixtures::macro_doc(source);
        let (_, _, full) = said(&data);
        assert_eq!(suspicions(&data), ["macro runs by itself (AutoOpen) and uses WScript.Shell, CreateObject"]);
        assert_eq!(full["macros"]["modules"][0]["name"], "ThisDocument");
        assert!(full["macros"]["modules"][0]["source"].as_str().unwrap().contains("x.Run"), "{full}");
    }

    #[test]
    fn a_macro_that_waits_to_be_called_is_told_only() {
        let data = fixtures::macro_doc("Sub Sum()\r\n  Total = 1 + 2\r\nEnd Sub\r\n");
        assert_eq!(suspicions(&data), Vec::<String>::new());
        assert!(said(&data).0.iter().any(|(_, text)| text == "macros 1 module"), "{:?}", said(&data).0);
    }

    #[test]
    fn sheets_of_old_macros() {
        let mut book = vec![0x09, 0x08, 2, 0, 0, 0];
        book.extend_from_slice(&[0x85, 0, 13, 0, 0, 0, 0, 0, 1, 1, 5, 0]);
        book.extend_from_slice(b"Macro");
        let sheets = old_macros(&book);
        assert_eq!((sheets.len(), sheets[0].name.as_str(), sheets[0].hidden), (1, "Macro", true));
        assert!(old_macros(b"\x85\0\xff\xff").is_empty());
    }

    #[test]
    fn documents_of_other_programs_are_read() {
        let data = std::fs::read(Path::new(weir_peers::TEST_FILES).join("clam.ole.doc")).unwrap();
        let (lines, _, full) = said(&data);
        assert_eq!(full["format"], "OLE", "{lines:?}");
        assert!(!full["streams"].as_array().unwrap().is_empty());
    }
}
