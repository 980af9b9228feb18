//! What kind of program a file is, and what keeps this guest from running it.

/// Processors by their numbers in the header of an ELF file.
const MACHINES: [(u16, &str); 12] = [
    (2, "SPARC"),
    (3, "x86"),
    (4, "Motorola 68000"),
    (8, "MIPS"),
    (20, "PowerPC"),
    (21, "PowerPC 64"),
    (22, "IBM S/390"),
    (40, "ARM"),
    (42, "SuperH"),
    (62, "x86-64"),
    (183, "ARM 64"),
    (243, "RISC-V"),
];

pub(crate) fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

/// Whether a file that begins so is compiled Python: the number of the version, a line end, and flags of which there are two.
pub(crate) fn is_python(head: &[u8]) -> bool {
    matches!(head, &[a, b, b'\r', b'\n', flags, 0, 0, 0, ..] if (3000..4000).contains(&u16::from_le_bytes([a, b])) && flags < 4)
}

/// Whether it is of the version that this guest has, whose own files begin in the same way.
pub(crate) fn is_of_our_python(head: &[u8]) -> bool {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.filter(|path| path.to_string_lossy().contains("/python3."));
    let files = folders.filter_map(|path| std::fs::read_dir(path.join("__pycache__")).ok()?.flatten().next());
    files.filter_map(|file| std::fs::read(file.path()).ok()).any(|own| own.get(..4) == head.get(..4))
}

/// The interpreter that a script names in its first line; of `env` what it is to look for.
pub(crate) fn interpreter(head: &[u8]) -> Option<&str> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(256))?).ok()?;
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let is_env = first.ends_with("/env");
    if is_env { words.find(|word| !word.starts_with('-') && !word.contains('=')).or(Some(first)) } else { Some(first) }
}

/// Why a file that begins so was not run, in words.
pub(crate) fn obstacle(head: &[u8], errno: i32) -> String {
    if is_python(head) {
        return "it is compiled for another version of Python than this guest has".into();
    }
    match (is_elf(head), interpreter(head)) {
        (true, _) if errno == libc::ENOEXEC => {
            format!("it is a program for {}, which this guest does not run", machine(head))
        }
        (true, _) if errno == libc::ENOENT => "the loader that it wants is not in this guest".into(),
        (_, Some(path)) if errno == libc::ENOENT => format!("its interpreter {path} is not in this guest"),
        _ => format!("the system refused it ({})", nix::errno::Errno::from_raw(errno).desc()),
    }
}

fn machine(head: &[u8]) -> String {
    let bytes: [u8; 2] = head.get(18..20).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    // The sixth byte says which end of a number comes first.
    let number = if head.get(5) == Some(&2) { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    let known = MACHINES.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| format!("processor {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16, big: bool) -> Vec<u8> {
        let mut head = b"\x7fELF\x01\x01\x01".to_vec();
        head.resize(18, 0);
        head[5] = if big { 2 } else { 1 };
        head.extend(if big { machine.to_be_bytes() } else { machine.to_le_bytes() });
        head
    }

    #[test]
    fn what_does_not_run_is_told_in_words() {
        let said = |head: &[u8], errno| obstacle(head, errno);
        assert_eq!(said(&elf(40, false), libc::ENOEXEC), "it is a program for ARM, which this guest does not run");
        assert_eq!(said(&elf(8, true), libc::ENOEXEC), "it is a program for MIPS, which this guest does not run");
        assert!(said(&elf(999, true), libc::ENOEXEC).contains("processor 999"));
        assert!(said(&elf(62, false), libc::ENOENT).contains("loader"));
        assert_eq!(said(b"#!/usr/bin/node\nx", libc::ENOENT), "its interpreter /usr/bin/node is not in this guest");
        assert!(said(b"", libc::EACCES).contains("Permission denied"));
    }

    #[test]
    fn compiled_python_is_known_by_its_first_bytes() {
        let of_311 = b"\xa7\r\r\n\0\0\0\0and then the time";
        assert!(is_python(of_311) && !is_python(b"\xa7\r\r\n\xff\xff\xff\xff") && !is_python(b"\xa7\r\r\n"));
        assert!(!is_python(b"ab\r\n\0\0\0\0") && !is_python(b"#!/bin/sh\n"));
        assert!(obstacle(of_311, libc::ENOEXEC).contains("another version of Python"));
        assert!(!is_of_our_python(b"\0\0\r\n"));
    }

    #[test]
    fn interpreters() {
        for (head, expected) in [
            (&b"#!/bin/sh\necho"[..], Some("/bin/sh")),
            (b"#! /usr/bin/env -S python3 -u\n", Some("python3")),
            (b"#!/usr/bin/env A=1 perl\n", Some("perl")),
            (b"#!/usr/bin/env", Some("/usr/bin/env")),
            (b"#!\n", None),
            (b"echo", None),
        ] {
            assert_eq!(interpreter(head), expected);
        }
    }
}
