//! Programs for Windows, with a reader of our own: packers write headers that only the loader of Windows still accepts, and a reader that follows
//! every table can be led in circles without end. Source: Microsoft, *PE Format*.

use super::{LISTED_MAX, Program, Region, text_at};
use serde_json::json;
use weir_scan::little_endian::{u16_at, u32_at, u64_at};

/// The loader takes no more sections.
const SECTIONS_MAX: usize = 96;
/// Libraries, and functions of all of them together.
const LIBRARIES_MAX: usize = 256;
const FUNCTIONS_MAX: usize = 10_000;
/// UPX leaves its mark before the first section.
const MARK_AREA: usize = 4096;

const IMPORTS: usize = 1;
const CERTIFICATES: usize = 4;
const TLS: usize = 9;
const DOTNET: usize = 14;

pub(super) fn read(data: &[u8]) -> Program {
    let mut program = Program { format: "DOS", ..Program::default() };
    let Some(headers) = Headers::read(data) else {
        program.damage = Some("a DOS program, or headers that cannot be read".into());
        return program;
    };
    program.format = "PE";
    program.machine = machine(headers.machine);
    program.kind = headers.kind();
    program.entry = u64::from(headers.entry);
    program.end = headers.regions.iter().map(|region| region.offset.saturating_add(region.bytes)).max().unwrap_or(0);
    program.end = program.end.max(u64::from(headers.header_bytes)).min(data.len() as u64);
    // The certificates are addressed by their place in the file, and stand behind everything else.
    if let Some((at, bytes)) = headers.directory(CERTIFICATES) {
        program.signature = bytes > 8 && u64::from(at) < data.len() as u64;
        program.end = program.end.max(u64::from(at).saturating_add(u64::from(bytes)).min(data.len() as u64));
    }
    headers.imports(data, &mut program);
    program.more = vec![
        ("subsystem", json!(headers.subsystem())),
        ("compiled_s", json!(headers.time)),
        ("dotnet", json!(headers.directory(DOTNET).is_some())),
        ("tls", json!(headers.directory(TLS).is_some())),
        ("sections", json!(headers.section_count)),
    ];
    if memchr::memmem::find(&data[..data.len().min(MARK_AREA)], b"UPX!").is_some() {
        program.packers.push("UPX");
    }
    program.regions = headers.regions;
    program
}

struct Headers {
    machine: u16,
    characteristics: u16,
    time: u32,
    wide: bool,
    entry: u32,
    subsystem: u16,
    header_bytes: u32,
    section_count: u16,
    directories: Vec<(u32, u32)>,
    regions: Vec<Region>,
}

impl Headers {
    fn read(data: &[u8]) -> Option<Headers> {
        let start = u32_at(data, 0x3c)? as usize;
        if data.get(start..start.checked_add(4)?)? != b"PE\0\0" {
            return None;
        }
        let coff = start + 4;
        let optional = coff + 20;
        let section_count = u16_at(data, coff + 2)?;
        let wide = match u16_at(data, optional)? {
            0x10b => false,
            0x20b => true,
            _ => return None,
        };
        let directories = optional + if wide { 112 } else { 96 };
        let count = u32_at(data, directories - 4)?.min(16) as usize;
        let directory = |number: usize| {
            Some((u32_at(data, directories + 8 * number)?, u32_at(data, directories + 8 * number + 4)?))
        };
        let sections = optional + usize::from(u16_at(data, coff + 16)?);
        Some(Headers {
            machine: u16_at(data, coff)?,
            characteristics: u16_at(data, coff + 18)?,
            time: u32_at(data, coff + 4)?,
            wide,
            entry: u32_at(data, optional + 16)?,
            subsystem: u16_at(data, optional + 68)?,
            header_bytes: u32_at(data, optional + 60)?,
            section_count,
            directories: (0..count).map_while(directory).collect(),
            regions: (0..usize::from(section_count).min(SECTIONS_MAX).min(LISTED_MAX))
                .map_while(|number| region(data, sections + 40 * number))
                .collect(),
        })
    }

    /// Where a table is and how long; none if it is empty.
    fn directory(&self, number: usize) -> Option<(u32, u32)> {
        self.directories.get(number).copied().filter(|(at, _)| *at != 0)
    }

    /// From a place in memory to a place in the file.
    fn offset(&self, address: u32) -> Option<usize> {
        let address = u64::from(address);
        let region = self.regions.iter().find(|region| region.holds(address));
        match region {
            Some(region) => usize::try_from(address - region.address + region.offset).ok(),
            None if address < u64::from(self.header_bytes) => usize::try_from(address).ok(),
            None => None,
        }
    }

    fn imports(&self, data: &[u8], program: &mut Program) {
        let Some(table) = self.directory(IMPORTS).and_then(|(at, _)| self.offset(at)) else { return };
        for number in 0..LIBRARIES_MAX {
            let at = table + 20 * number;
            let (Some(lookup), Some(name), Some(thunks)) =
                (u32_at(data, at), u32_at(data, at + 12), u32_at(data, at + 16))
            else {
                return;
            };
            let Some(library) = self.offset(name).filter(|_| name != 0).and_then(|at| text_at(data, at)) else {
                return;
            };
            program.libraries.push(library);
            // Packers leave the first table out.
            let lookup = if lookup == 0 { thunks } else { lookup };
            self.functions(data, lookup, program);
        }
    }

    fn functions(&self, data: &[u8], lookup: u32, program: &mut Program) {
        let Some(table) = self.offset(lookup) else { return };
        let step = if self.wide { 8 } else { 4 };
        for number in 0..FUNCTIONS_MAX {
            let at = table + step * number;
            let entry = if self.wide { u64_at(data, at) } else { u32_at(data, at).map(u64::from) };
            let Some(entry) = entry.filter(|entry| *entry != 0 && program.imports.len() < FUNCTIONS_MAX) else {
                return;
            };
            let top = if self.wide { 63 } else { 31 };
            if entry >> top & 1 == 1 {
                program.imports.push(format!("#{}", entry & 0xffff));
                continue;
            }
            // Two octets before the name are a hint to the loader.
            let name = u32::try_from(entry).ok().and_then(|entry| self.offset(entry));
            let Some(name) = name.and_then(|at| text_at(data, at + 2)) else { return };
            program.imports.push(name);
        }
    }

    fn kind(&self) -> String {
        if self.characteristics & 0x2000 != 0 { "library".into() } else { "executable".into() }
    }

    fn subsystem(&self) -> &'static str {
        match self.subsystem {
            1 => "driver",
            2 => "windows",
            3 => "console",
            10..=13 => "EFI",
            _ => "other",
        }
    }
}

fn region(data: &[u8], at: usize) -> Option<Region> {
    let name = data.get(at..at.checked_add(8)?)?;
    let flags = u32_at(data, at + 36)?;
    Some(Region {
        name: String::from_utf8_lossy(&name[..memchr::memchr(0, name).unwrap_or(8)]).into_owned(),
        offset: u64::from(u32_at(data, at + 20)?),
        bytes: u64::from(u32_at(data, at + 16)?),
        address: u64::from(u32_at(data, at + 12)?),
        memory_bytes: u64::from(u32_at(data, at + 8)?),
        writable: flags & 0x8000_0000 != 0,
        executable: flags & 0x2000_0000 != 0,
        loaded: true,
    })
}

fn machine(number: u16) -> String {
    match number {
        0x14c => "x86".into(),
        0x8664 => "x86-64".into(),
        0x1c0 | 0x1c4 => "ARM".into(),
        0xaa64 => "ARM64".into(),
        other => format!("{other:#x}"),
    }
}
