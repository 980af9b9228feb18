//! Macros of Office: where they are, their source, and what they would do.
//!
//! The stream `dir` of a project names its modules and where in its stream the packed source of each begins (MS-OVBA, section 2.3.4.2). If it cannot
//! be read, packed source is looked for in every stream. It is unpacked by the code of the scan gate. Compiled code is not examined: a
//! project whose modules have no source is reported as such.

use super::compound::{Compound, last, read};
use crate::findings::Findings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use weir_scan::little_endian::{u16_at, u32_at};
use weir_scan::plain::is_plain;
use weir_scan::walk::vba::{source, unpacked};

const MODULES_MAX: usize = 200;
/// What is read in all.
const READ_MAX: usize = 128 << 20;
/// All source together.
const SOURCE_MAX: usize = 8 << 20;
/// What a report shows of a module.
const SHOWN_MAX: usize = 8 << 10;
const RECORDS_MAX: usize = 10_000;

/// Names of procedures that run by themselves.
const AUTO: &[&str] = &[
    "AutoExec",
    "AutoOpen",
    "AutoClose",
    "AutoExit",
    "AutoNew",
    "Auto_Open",
    "Auto_Close",
    "Document_Open",
    "Document_Close",
    "Document_New",
    "DocumentOpen",
    "DocumentBeforeClose",
    "Document_BeforeClose",
    "Workbook_Open",
    "Workbook_Activate",
    "Workbook_BeforeClose",
    "Workbook_Close",
    "WorkbookOpen",
    "Worksheet_Activate",
    "Presentation_Open",
    "SlideShowBegin",
    "OnSlideShowPageChange",
    "UserForm_Initialize",
    "InkPicture1_Painted",
];
/// What reaches outside the document.
const CALLS: &[&str] = &[
    "Shell",
    "ShellExecute",
    "WScript.Shell",
    "Shell.Application",
    "CreateObject",
    "GetObject",
    "CreateProcess",
    "CreateThread",
    "VirtualAlloc",
    "VirtualProtect",
    "RtlMoveMemory",
    "WriteProcessMemory",
    "URLDownloadToFile",
    "MSXML2.XMLHTTP",
    "MSXML2.ServerXMLHTTP",
    "WinHttp.WinHttpRequest",
    "ADODB.Stream",
    "SaveToFile",
    "Scripting.FileSystemObject",
    "Win32_Process",
    "winmgmts",
    "powershell",
    "cmd.exe",
    "mshta",
    "rundll32",
    "regsvr32",
    "certutil",
    "bitsadmin",
    "RegWrite",
    "CallByName",
    "MacScript",
    "ExecuteExcel4Macro",
    "VBProject",
    "EnumSystemLocales",
    "Kill",
];
/// Functions that hide what a macro does. Many of them in one module are no accident.
const HIDING: &[&str] = &["Chr(", "ChrW(", "Chr$(", "StrReverse", "Xor ", "Mid$(", "FromBase64String"];
const HIDING_MANY: usize = 40;

/// The macros of a document.
#[derive(Debug, Default)]
pub(super) struct Project {
    modules: Vec<Module>,
    /// Modules that the project names and that have no source.
    missing: Vec<String>,
    /// Counted over all streams, because one stream can have many names.
    bytes_read: usize,
}

#[derive(Debug)]
struct Module {
    name: String,
    source: String,
}

/// The project in a compound file, if it has one.
pub(super) fn project(compound: &mut Compound<'_>, streams: &[PathBuf]) -> Option<Project> {
    let has = |name: &str| streams.iter().any(|path| last(path).eq_ignore_ascii_case(name));
    if !has("_VBA_PROJECT") && !has("PROJECTwm") {
        return None;
    }
    let mut project = Project::default();
    for dir in streams.iter().filter(|path| last(path).eq_ignore_ascii_case("dir")) {
        let Some(folder) = dir.parent() else { continue };
        let entries = project.read(compound, dir).map(|packed| modules(&unpacked(&packed))).unwrap_or_default();
        for entry in entries {
            project.take(compound, folder, &entry);
        }
    }
    if project.modules.is_empty() {
        project.search(compound, streams);
    }
    Some(project)
}

/// What `dir` says of a module.
#[derive(Debug, Default, PartialEq, Eq)]
struct ModuleEntry {
    name: String,
    stream: String,
    offset: usize,
}

/// The modules of an unpacked `dir`: a list of records, each with its number, its length and its content.
fn modules(dir: &[u8]) -> Vec<ModuleEntry> {
    const VERSION: u16 = 0x0009;
    const NAME: u16 = 0x0019;
    const STREAM: u16 = 0x001a;
    const STREAM_WIDE: u16 = 0x0032;
    const OFFSET: u16 = 0x0031;
    let (mut at, mut entries) = (0, Vec::<ModuleEntry>::new());
    for _ in 0..RECORDS_MAX {
        let (Some(id), Some(length)) = (u16_at(dir, at), u32_at(dir, at + 2)) else { break };
        // One record says that it is shorter than it is.
        let length = if id == VERSION { 6 } else { length as usize };
        let Some(content) = dir.get(at + 6..).and_then(|rest| rest.get(..length)) else { break };
        if id == NAME && entries.len() < MODULES_MAX {
            entries.push(ModuleEntry { name: octets(content), ..ModuleEntry::default() });
        }
        if let Some(entry) = entries.last_mut() {
            match id {
                STREAM => entry.stream = octets(content),
                STREAM_WIDE => entry.stream = wide(content),
                OFFSET => entry.offset = u32_at(content, 0).unwrap_or(0) as usize,
                _ => {}
            }
        }
        at += 6 + length;
    }
    entries
}

/// Names are in a code page; those of modules are hardly ever more than ASCII.
fn octets(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned()
}

fn wide(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).take(255).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

impl Project {
    fn take(&mut self, compound: &mut Compound<'_>, folder: &Path, entry: &ModuleEntry) {
        let stream = if entry.stream.is_empty() { &entry.name } else { &entry.stream };
        let packed = self.read(compound, &folder.join(stream)).unwrap_or_default();
        // The place may be false on purpose: then the source is searched.
        let text = packed.get(entry.offset..).map(unpacked).filter(|text| !text.is_empty());
        match text.or_else(|| source(&packed)) {
            Some(text) => self.push(entry.name.clone(), &text),
            None => self.missing.push(entry.name.clone()),
        }
    }

    fn search(&mut self, compound: &mut Compound<'_>, streams: &[PathBuf]) {
        for path in streams.iter().take(MODULES_MAX) {
            let found = self.read(compound, path).and_then(|stream| source(&stream));
            if let Some(text) = found {
                self.push(last(path), &text);
            }
        }
    }

    fn read(&mut self, compound: &mut Compound<'_>, path: &Path) -> Option<Vec<u8>> {
        let stream = if self.bytes_read < READ_MAX { read(compound, path) } else { None };
        self.bytes_read += stream.as_ref().map_or(0, Vec::len);
        stream
    }

    fn push(&mut self, name: String, text: &[u8]) {
        let used: usize = self.modules.iter().map(|module| module.source.len()).sum();
        let text = &text[..text.len().min(SOURCE_MAX.saturating_sub(used))];
        if self.modules.len() < MODULES_MAX {
            // What is not ASCII is in some code page: names of functions are ASCII.
            let source = text.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '·' }).collect();
            self.modules.push(Module { name, source });
        }
    }

    /// Says what the macros do.
    pub(super) fn told(&self, findings: &mut Findings<'_>) -> Value {
        let (mut auto, mut calls, mut hiding) = (Vec::new(), Vec::new(), 0);
        for module in &self.modules {
            let code = code(&module.source);
            note(&mut auto, AUTO, &code);
            note(&mut calls, CALLS, &code);
            hiding += HIDING.iter().map(|word| code.matches(&word.to_ascii_lowercase()).count()).sum::<usize>();
        }
        let hidden = hiding >= HIDING_MANY;
        let count = self.modules.len();
        findings.info("macros", format!("{count} module{}", if count == 1 { "" } else { "s" }));
        if !auto.is_empty() && (!calls.is_empty() || hidden) {
            let uses =
                if calls.is_empty() { "hides what it does".to_owned() } else { format!("uses {}", calls.join(", ")) };
            findings.suspicious("macro", format!("runs by itself ({}) and {uses}", auto.join(", ")));
        } else if !auto.is_empty() {
            findings.info("macro", format!("runs by itself ({})", auto.join(", ")));
        } else if !calls.is_empty() {
            findings.info("macro", format!("uses {}", calls.join(", ")));
        }
        if !self.missing.is_empty() {
            findings.suspicious("macro", format!("{} of its modules have no source", self.missing.len()));
        }
        let shown = |text: &str| -> String {
            text.chars()
                .take(SHOWN_MAX)
                .map(|c| if is_plain(c) || matches!(c, '\n' | '\t') { c } else { ' ' })
                .collect()
        };
        let told =
            |module: &Module| json!({ "name": shown(&module.name), "source": shown(&module.source.replace('\r', "")) });
        json!({
            "modules": self.modules.iter().take(50).map(told).collect::<Vec<Value>>(), "module_count": count,
            "runs_by_itself": auto, "uses": calls, "hides": hidden, "without_source": self.missing.len(),
        })
    }
}

/// Source as it is looked at: small letters, without comments and without the lines that only describe the module.
fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines() {
        let line = line.trim();
        let comment = line.starts_with('\'') || line.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("rem "));
        if !comment && !line.starts_with("Attribute VB_") {
            code.push_str(&line.to_ascii_lowercase());
            code.push('\n');
        }
    }
    code
}

/// Adds the words that are in the code as words of their own.
fn note(found: &mut Vec<&'static str>, words: &[&'static str], code: &str) {
    for word in words {
        if !found.contains(word) && has_word(code, &word.to_ascii_lowercase()) {
            found.push(*word);
        }
    }
}

fn has_word(code: &str, word: &str) -> bool {
    let letter = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = code.as_bytes();
    memchr::memmem::find_iter(bytes, word).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        // `ShellExecuteA` is `ShellExecute`, and `Shell32` is not `Shell`.
        let after = bytes.get(at + word.len());
        let more = bytes.get(at + word.len() + 1);
        // `WScript.Shell` has a word of its own.
        if word == "shell" && (before == Some(&b'.') || after == Some(&b'.')) {
            return false;
        }
        !letter(before) && (!letter(after) || (matches!(after, Some(b'a' | b'w')) && !letter(more)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u16, content: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes()[..], &(content.len() as u32).to_le_bytes(), content].concat()
    }

    #[test]
    fn modules_are_named_and_placed() {
        let mut version = record(0x0009, &[0; 6]);
        version[2] = 4;
        let dir = [
            record(0x0001, &[1, 0, 0, 0]),
            version,
            record(0x0019, b"Mod"),
            record(0x001a, b"Mod_s"),
            record(0x0032, b"M\0o\0d\0_\0u\0"),
            record(0x0031, &[7, 0, 0, 0]),
            record(0x0019, b"Two"),
            record(0x0031, &[9, 0]),
        ]
        .concat();
        let two = ModuleEntry { name: "Two".into(), ..ModuleEntry::default() };
        assert_eq!(modules(&dir), [ModuleEntry { name: "Mod".into(), stream: "Mod_u".into(), offset: 7 }, two]);
        for cut in 0..dir.len() {
            let _ = modules(&dir[..cut]);
        }
    }

    #[test]
    fn words_are_words() {
        assert!(
            has_word("x = shell(y)", "shell")
                && has_word("shell", "shell")
                && has_word("shellexecutea 0", "shellexecute")
        );
        assert!(!has_word("shellfish", "shell") && !has_word("my_shell", "shell"));
        assert_eq!(code("' Shell\nRem Shell\nAttribute VB_Name = \"Shell\"\n  X\n"), "x\n");
    }

    #[test]
    fn a_macro_that_hides_what_it_does() {
        let mut project = Project::default();
        let source = format!("Sub Document_Open()\nx = {}\nEnd Sub", ["Chr(65)"; 60].join(" & "));
        project.push("a".into(), source.as_bytes());
        let mut shelf = crate::findings::Memory::default();
        let mut findings = Findings::new("t", &mut shelf);
        assert_eq!(project.told(&mut findings)["hides"], true);
        assert_eq!(findings.gravest(), Some(weir_lab::job::Level::Suspicious));
    }
}
