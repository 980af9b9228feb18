//! ELF programs (Linux and others), read with goblin. Only single tables are read, because all of them would take many times the size of the
//! file in memory. If the sections cannot be read, the segments are used: these are what the system loads.

use super::{LISTED_MAX, Program, Region, text_at};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::dynamic::{DT_NEEDED, Dynamic};
use goblin::elf::header::{EM_386, EM_AARCH64, EM_ARM, EM_MIPS, EM_PPC64, EM_RISCV, EM_X86_64};
use goblin::elf::header::{ET_CORE, ET_DYN, ET_EXEC, ET_REL, Header, machine_to_str};
use goblin::elf::program_header::{PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_DYNSYM, SHT_NOBITS, SHT_NULL, SHT_SYMTAB, SectionHeader,
};
use goblin::elf::{Elf, Sym, Symtab};
use serde_json::json;
use std::panic::catch_unwind;

/// Segments that are followed, symbols that are looked at.
const SEGMENTS_MAX: usize = 64;
const SYMBOLS_MAX: usize = 20_000;
/// UPX leaves its mark behind the headers.
const MARK_AREA: usize = 4096;

pub(super) fn read(data: &[u8]) -> Program {
    // A reader by others: what it did not expect is damage.
    let parsed = catch_unwind(|| parsed(data)).unwrap_or_else(|_| Err("its reader gave up".into()));
    let mut program =
        parsed.unwrap_or_else(|damage| Program { format: "ELF", damage: Some(damage), ..Program::default() });
    if memchr::memmem::find(&data[..data.len().min(MARK_AREA)], b"UPX!").is_some() {
        program.packers.push("UPX");
    }
    program
}

fn parsed(data: &[u8]) -> Result<Program, String> {
    let error = |error: goblin::error::Error| error.to_string();
    let header = Elf::parse_header(data).map_err(error)?;
    let lazy = Elf::lazy_parse(header).map_err(error)?;
    let container = if lazy.is_64 { Container::Big } else { Container::Little };
    let context = Ctx::new(container, if lazy.little_endian { Endian::Little } else { Endian::Big });
    let mut program = Program { format: "ELF", ..Program::default() };
    let segments = ProgramHeader::parse(data, place(header.e_phoff), usize::from(header.e_phnum), context);
    let segments = segments.unwrap_or_else(|problem| {
        program.damage = Some(error(problem));
        Vec::new()
    });
    program.head(&header, &segments);
    let sections = SectionHeader::parse(data, place(header.e_shoff), usize::from(header.e_shnum), context);
    let sections = sections.unwrap_or_else(|problem| {
        program.damage = Some(error(problem));
        Vec::new()
    });
    program.sections(data, &header, &sections);
    program.imports(data, &segments, &sections, context);
    let interpreter = segments.iter().find(|segment| segment.p_type == PT_INTERP);
    let interpreter = interpreter.and_then(|segment| text_at(data, place(segment.p_offset)));
    program.more = vec![
        ("static", json!(interpreter.is_none() && program.libraries.is_empty())),
        ("interpreter", json!(interpreter)),
        ("stripped", json!(!sections.iter().any(|section| section.sh_type == SHT_SYMTAB))),
        ("sections", json!(sections.len())),
    ];
    Ok(program)
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Program {
    fn head(&mut self, header: &Header, segments: &[ProgramHeader]) {
        self.machine = machine(header.e_machine);
        self.kind = match header.e_type {
            ET_EXEC => "executable",
            ET_DYN => "shared or position-independent",
            ET_REL => "object",
            ET_CORE => "core dump",
            _ => "",
        }
        .into();
        self.entry = header.e_entry;
        let table = header.e_phoff.saturating_add(u64::from(header.e_phnum) * u64::from(header.e_phentsize));
        self.end = table.max(u64::from(header.e_ehsize));
        let loaded = segments.iter().filter(|segment| segment.p_type == PT_LOAD).take(SEGMENTS_MAX);
        for (number, segment) in loaded.enumerate() {
            self.end = self.end.max(segment.p_offset.saturating_add(segment.p_filesz));
            self.regions.push(Region {
                name: format!("segment {number}"),
                offset: segment.p_offset,
                bytes: segment.p_filesz,
                address: segment.p_vaddr,
                memory_bytes: segment.p_memsz,
                writable: segment.p_flags & PF_W != 0,
                executable: segment.p_flags & PF_X != 0,
                loaded: true,
            });
        }
    }

    fn sections(&mut self, data: &[u8], header: &Header, sections: &[SectionHeader]) {
        let length = data.len() as u64;
        let names = sections.get(usize::from(header.e_shstrndx)).map_or(u64::MAX, |section| section.sh_offset);
        for section in sections.iter().filter(|section| section.sh_type != SHT_NULL) {
            let bytes = if section.sh_type == SHT_NOBITS { 0 } else { section.sh_size };
            let ends = section.sh_offset.saturating_add(bytes);
            // A section that ends outside is a lie, and says nothing about where the file ends.
            if ends <= length {
                self.end = self.end.max(ends);
            }
            if self.regions.len() >= LISTED_MAX {
                continue;
            }
            let flag = |flag: u32| section.sh_flags & u64::from(flag) != 0;
            self.regions.push(Region {
                name: text_at(data, place(names.saturating_add(section.sh_name as u64))).unwrap_or_default(),
                offset: section.sh_offset,
                bytes,
                address: section.sh_addr,
                memory_bytes: if flag(SHF_ALLOC) { section.sh_size } else { 0 },
                writable: flag(SHF_WRITE),
                executable: flag(SHF_EXECINSTR),
                loaded: false,
            });
        }
        let table = header.e_shoff.saturating_add(sections.len() as u64 * u64::from(header.e_shentsize));
        if !sections.is_empty() && table <= length {
            self.end = self.end.max(table);
        }
    }

    /// Libraries and functions of others.
    fn imports(&mut self, data: &[u8], segments: &[ProgramHeader], sections: &[SectionHeader], context: Ctx) {
        let few = |segment: &&ProgramHeader| matches!(segment.p_type, PT_LOAD | PT_DYNAMIC);
        let few: Vec<ProgramHeader> = segments.iter().filter(few).take(SEGMENTS_MAX).cloned().collect();
        let Ok(Some(dynamic)) = Dynamic::parse(data, &few, context) else { return };
        let text = |at: u64| text_at(data, dynamic.info.strtab.checked_add(place(at))?);
        let needed = dynamic.dyns.iter().filter(|entry| entry.d_tag == DT_NEEDED).take(LISTED_MAX);
        self.libraries = needed.filter_map(|entry| text(entry.d_val)).collect();
        // Without sections nothing says how many symbols there are; their names stand behind them, as all linkers have it.
        let size = Sym::size(context.container).max(1);
        let listed =
            sections.iter().find(|section| section.sh_type == SHT_DYNSYM).map(|section| place(section.sh_size));
        let bytes = listed.or_else(|| dynamic.info.strtab.checked_sub(dynamic.info.symtab)).unwrap_or(0);
        let room = data.len().saturating_sub(dynamic.info.symtab);
        let count = (bytes.min(room) / size).min(SYMBOLS_MAX);
        let Ok(symbols) = Symtab::parse(data, dynamic.info.symtab, count, context) else { return };
        let imported = symbols.iter().filter(|symbol| symbol.st_shndx == 0 && symbol.st_name != 0);
        self.imports = imported.filter_map(|symbol| text(symbol.st_name as u64)).collect();
    }
}

fn machine(number: u16) -> String {
    match number {
        EM_386 => "x86".into(),
        EM_X86_64 => "x86-64".into(),
        EM_ARM => "ARM".into(),
        EM_AARCH64 => "ARM64".into(),
        EM_MIPS => "MIPS".into(),
        EM_PPC64 => "PowerPC 64".into(),
        EM_RISCV => "RISC-V".into(),
        other => machine_to_str(other).to_ascii_lowercase(),
    }
}
