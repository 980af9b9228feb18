//! The plugin `elf-pe`: programs for Linux and Windows, as their headers describe them.
//!
//! It reports sections with their entropy, imports, data behind the end of the program, and signs of a packer. A packed program is
//! `suspicious`: few honest ones are. So is one whose imports together serve to run code in other processes, or to fetch a program and
//! start it. Everything else is `info`. Lists are bounded, entropy is computed of at most a few times the file however often its sections
//! overlap.

mod elf;
mod pe;

use crate::entropy;
use crate::findings::Findings;
use crate::sample::Sample;
use serde_json::{Value, json};
use weir_scan::plain::shown;

/// Sections, segments, libraries and imports that a report shows.
const LISTED_MAX: usize = 256;
const IMPORTS_LISTED_MAX: usize = 2000;
const NAME_MAX: usize = 100;
/// Code is hardly ever more random than this, and packed code is hardly ever less.
const PACKED_BITS: f64 = 7.2;
/// Of fewer bytes nothing can be said.
const PACKED_BYTES_MIN: u64 = 1024;

/// What a program is.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let program = match &*sample.data {
        data @ [0x7f, b'E', b'L', b'F', ..] => elf::read(data),
        data @ [b'M', b'Z', ..] => pe::read(data),
        _ => return Ok(json!({ "format": null })),
    };
    Ok(program.told(&sample.data, findings))
}

/// A program as its headers describe it.
#[derive(Debug, Default)]
struct Program {
    format: &'static str,
    /// What cannot be read of it.
    damage: Option<String>,
    machine: String,
    kind: String,
    entry: u64,
    regions: Vec<Region>,
    libraries: Vec<String>,
    imports: Vec<String>,
    /// Where what the headers describe ends.
    end: u64,
    packers: Vec<&'static str>,
    signature: bool,
    /// More that only one format has.
    more: Vec<(&'static str, Value)>,
}

/// A section or a segment.
#[derive(Debug, Clone, Default)]
struct Region {
    name: String,
    offset: u64,
    bytes: u64,
    address: u64,
    memory_bytes: u64,
    writable: bool,
    executable: bool,
    /// Whether it is what gets loaded, not only a name for a part of that.
    loaded: bool,
}

impl Region {
    fn data<'d>(&self, file: &'d [u8]) -> &'d [u8] {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).min(file.len());
        let length = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(file.len() - start);
        &file[start..start + length]
    }

    fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|inside| inside < self.memory_bytes.max(self.bytes))
    }
}

/// Names of sections and the packers that leave them.
const PACKER_SECTIONS: &[(&str, &str)] = &[
    ("UPX", "UPX"),
    (".UPX", "UPX"),
    (".aspack", "ASPack"),
    (".adata", "ASPack"),
    (".petite", "Petite"),
    ("petite", "Petite"),
    ("FSG!", "FSG"),
    ("MEW", "MEW"),
    (".MPRESS", "MPRESS"),
    ("PEC2", "PECompact"),
    (".pec", "PECompact"),
    (".nsp", "NsPack"),
    ("nsp", "NsPack"),
    (".themida", "Themida"),
    (".vmp", "VMProtect"),
    (".enigma", "Enigma"),
    (".yP", "yoda"),
    ("yC", "yoda"),
    (".Upack", "Upack"),
    (".ByDwing", "Upack"),
    ("WWP32", "WWPack"),
    (".WWPACK", "WWPack"),
];

impl Program {
    fn name_packers(&mut self) {
        for region in &self.regions {
            let by_name = PACKER_SECTIONS.iter().find(|(start, _)| region.name.starts_with(start));
            if let Some((_, packer)) = by_name.filter(|(_, packer)| !self.packers.contains(packer)) {
                self.packers.push(*packer);
            }
        }
    }

    fn told(mut self, data: &[u8], findings: &mut Findings<'_>) -> Value {
        self.name_packers();
        findings.info("format", format!("{} {} {}", self.format, self.machine, self.kind).trim());
        if let Some(damage) = &self.damage {
            findings.info("damaged", damage.as_str());
        }
        for packer in &self.packers {
            findings.suspicious("packer", *packer);
        }
        let regions = self.regions_told(data, findings);
        let noted = judge_imports(&self.imports, findings);
        if self.signature {
            findings.info("signature", "present, not checked");
        }
        let overlay = data.get(usize::try_from(self.end).unwrap_or(usize::MAX)..).filter(|rest| !rest.is_empty());
        let overlay = overlay.filter(|_| self.end > 0).map(|rest| {
            findings.info("overlay", format!("{} bytes behind the program", rest.len()));
            json!({ "offset": self.end, "bytes": rest.len(), "entropy": entropy::of(rest) })
        });
        let shown_all = |names: &[String], most: usize| -> Vec<String> {
            names.iter().take(most).map(|name| shown(name, NAME_MAX)).collect()
        };
        let mut full = json!({
            "format": self.format, "machine": self.machine, "kind": self.kind, "entry": format!("{:#x}", self.entry),
            "regions": regions, "libraries": shown_all(&self.libraries, LISTED_MAX),
            "imports": shown_all(&self.imports, IMPORTS_LISTED_MAX), "import_count": self.imports.len(), "noted_imports": noted,
            "packers": self.packers, "overlay": overlay, "signature_present": self.signature, "damage": self.damage,
        });
        for (name, value) in self.more {
            full[name] = value;
        }
        full
    }

    fn regions_told(&self, data: &[u8], findings: &mut Findings<'_>) -> Vec<Value> {
        // Sections may overlap, so that all together are many times the file.
        let mut purse = 4 * data.len() as u64;
        let (mut told, mut known) = (Vec::new(), !self.packers.is_empty());
        for region in self.regions.iter().take(LISTED_MAX) {
            let content = region.data(data);
            let affordable = purse.checked_sub(content.len() as u64);
            purse = affordable.unwrap_or(purse);
            let bits = affordable.map(|_| entropy::of(content));
            let name = shown(&region.name, NAME_MAX);
            if region.executable && region.loaded && !known {
                if content.len() as u64 >= PACKED_BYTES_MIN && bits.is_some_and(|bits| bits >= PACKED_BITS) {
                    findings.suspicious(
                        "packed",
                        format!("code in {name} looks packed or encrypted ({:.2} bits)", bits.unwrap_or(0.0)),
                    );
                    known = true;
                } else if region.bytes == 0 && region.memory_bytes > 0 && region.writable && region.holds(self.entry) {
                    findings.suspicious("packed", format!("it starts in {name}, which is empty in the file"));
                    known = true;
                }
            }
            if region.executable && region.writable && region.loaded {
                findings.info("writable-code", &*name);
            }
            told.push(json!({
                "name": name, "offset": region.offset, "bytes": region.bytes, "address": format!("{:#x}", region.address),
                "memory_bytes": region.memory_bytes, "writable": region.writable, "executable": region.executable, "entropy": bits,
            }));
        }
        told
    }
}

/// Functions that say what a program is about; the first letters of each.
const NOTED: &[(&str, &str)] = &[
    ("VirtualAllocEx", "memory of other processes"),
    ("WriteProcessMemory", "memory of other processes"),
    ("NtWriteVirtualMemory", "memory of other processes"),
    ("CreateRemoteThread", "threads in other processes"),
    ("NtCreateThreadEx", "threads in other processes"),
    ("RtlCreateUserThread", "threads in other processes"),
    ("QueueUserAPC", "threads in other processes"),
    ("SetThreadContext", "threads in other processes"),
    ("NtUnmapViewOfSection", "memory of other processes"),
    ("IsDebuggerPresent", "looks for a debugger"),
    ("CheckRemoteDebuggerPresent", "looks for a debugger"),
    ("NtQueryInformationProcess", "looks for a debugger"),
    ("URLDownloadToFile", "fetches files"),
    ("InternetOpenUrl", "fetches files"),
    ("WinHttpOpen", "fetches files"),
    ("WinExec", "starts programs"),
    ("ShellExecute", "starts programs"),
    ("CreateProcess", "starts programs"),
    ("SetWindowsHookEx", "hooks"),
    ("GetAsyncKeyState", "reads the keyboard"),
    ("AdjustTokenPrivileges", "raises privileges"),
    ("CreateService", "makes services"),
    ("RegSetValueEx", "writes the registry"),
    ("CryptEncrypt", "encrypts"),
    ("ptrace", "controls processes"),
    ("process_vm_writev", "memory of other processes"),
    ("memfd_create", "files in memory"),
    ("fexecve", "starts programs"),
    ("init_module", "loads kernel modules"),
    ("finit_module", "loads kernel modules"),
];

/// Which functions are worth a word; what some of them do together is worth more.
fn judge_imports(imports: &[String], findings: &mut Findings<'_>) -> Vec<Value> {
    let mut noted: Vec<(&str, &str)> = Vec::new();
    for import in imports {
        let known = NOTED.iter().find(|(name, _)| import.strip_prefix(name).is_some_and(is_variant));
        noted.extend(known.filter(|known| !noted.contains(known)));
    }
    let does = |what: &str| noted.iter().any(|(_, about)| *about == what);
    let named = |name: &str| noted.iter().any(|(known, _)| *known == name);
    if does("memory of other processes") && does("threads in other processes") && !named("ptrace") {
        findings.suspicious("imports", "it can run code in other processes");
    }
    if (named("URLDownloadToFile") || named("InternetOpenUrl")) && does("starts programs") {
        findings.suspicious("imports", "it can fetch a program and start it");
    }
    noted.into_iter().map(|(name, about)| json!({ "name": name, "about": about })).collect()
}

/// The same function for letters of another width.
fn is_variant(rest: &str) -> bool {
    matches!(rest, "" | "A" | "W" | "ExA" | "ExW" | "Ex")
}

/// Text up to its end.
fn text_at(data: &[u8], at: usize) -> Option<String> {
    const TEXT_MAX: usize = 256;
    let rest = data.get(at..)?;
    let rest = &rest[..rest.len().min(TEXT_MAX)];
    let text = &rest[..memchr::memchr(0, rest)?];
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;
    use crate::fixtures;
    use weir_lab::job::Level;

    pub(super) fn said(data: &[u8]) -> (Value, Vec<(Level, String)>) {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("elf-pe", &mut shelf);
        let full = look(&Sample::of_bytes("a", data), &mut findings).unwrap();
        let report = findings.report(&full).unwrap();
        let lines = report.summary.taxonomies.into_iter();
        (full, lines.map(|line| (line.level, format!("{} {}", line.predicate, line.value))).collect())
    }

    fn suspicions(data: &[u8]) -> Vec<String> {
        said(data).1.into_iter().filter(|(level, _)| *level >= Level::Suspicious).map(|(_, text)| text).collect()
    }

    #[test]
    fn a_program_of_this_machine() {
        let data = std::fs::read("/bin/true").unwrap();
        let (full, _) = said(&data);
        assert_eq!((&full["format"], &full["overlay"], &full["damage"]), (&"ELF".into(), &Value::Null, &Value::Null));
        assert!(full["libraries"][0].as_str().unwrap().starts_with("libc.so"), "{full}");
        assert!(full["imports"].as_array().unwrap().iter().any(|name| name == "exit"), "{full}");
        assert!(full["regions"].as_array().unwrap().iter().any(|region| region["name"] == ".text"), "{full}");
        assert_eq!(suspicions(&data), Vec::<String>::new());
        let more = [&data[..], b"behind the end"].concat();
        assert_eq!(said(&more).0["overlay"]["bytes"], 14);
    }

    #[test]
    fn a_packed_program_is_suspicious() {
        assert_eq!(suspicions(&fixtures::packed_elf()), ["packer UPX"]);
        let nameless: Vec<u8> =
            fixtures::packed_elf().iter().map(|byte| if *byte == b'!' { b'?' } else { *byte }).collect();
        assert!(suspicions(&nameless)[0].contains("packed or encrypted"), "{:?}", suspicions(&nameless));
    }

    #[test]
    fn programs_of_windows_that_others_packed() {
        for (file, packer) in
            [("clam-upx.exe", "packer UPX"), ("clam-aspack.exe", "packer ASPack"), ("clam-petite.exe", "packer Petite")]
        {
            let data = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join(file)).unwrap();
            assert!(suspicions(&data).contains(&packer.to_owned()), "{file}: {:?}", said(&data));
        }
        let plain = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join("clam.exe")).unwrap();
        assert_eq!(said(&plain).0["format"], "PE");
        assert_eq!(suspicions(&plain), Vec::<String>::new());
    }

    #[test]
    fn imports_of_windows() {
        let data = fixtures::pe(&["VirtualAllocEx", "WriteProcessMemory", "CreateRemoteThread"], b"");
        let (full, _) = said(&data);
        assert_eq!((&full["machine"], &full["libraries"][0]), (&"x86-64".into(), &"KERNEL32.dll".into()));
        assert_eq!(full["imports"], json!(["VirtualAllocEx", "WriteProcessMemory", "CreateRemoteThread"]));
        assert_eq!(suspicions(&data), ["imports it can run code in other processes"]);
        let fetcher = fixtures::pe(&["URLDownloadToFileW", "WinExec"], b"tail");
        assert_eq!(suspicions(&fetcher), ["imports it can fetch a program and start it"]);
        assert_eq!(said(&fetcher).0["overlay"]["bytes"], 4);
        assert_eq!(suspicions(&fixtures::pe(&["ExitProcess"], b"")), Vec::<String>::new());
    }

    #[test]
    fn what_breaks_off_is_told() {
        assert_eq!(said(b"hello").0["format"], Value::Null);
        for whole in [std::fs::read("/bin/true").unwrap(), fixtures::packed_elf(), fixtures::pe(&["ExitProcess"], b"")]
        {
            for cut in (0..whole.len().min(2000)).chain((2000..whole.len()).step_by(509)) {
                let _ = said(&whole[..cut]);
            }
        }
        assert!(said(b"\x7fELF\x02\x01\x01").0["damage"].is_string());
        assert!(said(b"MZ only").0["damage"].is_string());
    }
}
