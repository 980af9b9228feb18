//! The second stage of an attack: a sample that fetches a program gets one of ours. That program makes a file, and so we see that it was
//! run.
//!
//! One text is a script for shells and for Python at once; names that end like programs get a program, Perl gets Perl. So it does not matter
//! how a sample starts what it fetched: by a pipe into a shell, from memory, with `eval`, as a file.

/// Where stages make their files; a number follows.
const MARK: &str = "/tmp/.X11-stage-";
/// Numbers that are given out.
pub(crate) const STAGES_MAX: usize = 256;

/// The stage that makes this file.
pub(crate) fn number(path: &str) -> Option<usize> {
    path.strip_prefix(MARK)?.parse().ok().filter(|number| *number < STAGES_MAX)
}

/// What is given out for a path, to this program, and its type.
pub(crate) fn content(path: &str, agent: &str, number: usize) -> (Vec<u8>, &'static str) {
    let mark = format!("{MARK}{number}");
    let path = path.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
    match () {
        () if path == "/" || ends(&[".html", ".htm", "/"]) => (b"<html><body>ok</body></html>\n".to_vec(), "text/html"),
        () if ends(&[".json"]) => (b"{\"status\":\"ok\"}\n".to_vec(), "application/json"),
        () if ends(&[".png", ".jpg", ".gif", ".ico", ".css", ".woff2"]) => (Vec::new(), "application/octet-stream"),
        () if ends(&[".pl"]) || agent.to_ascii_lowercase().contains("perl") => (perl(&mark), "text/plain"),
        () if ends(&[".exe", ".dll", ".scr"])
            && let Some(program) = windows_program() =>
        {
            (program, "application/octet-stream")
        }
        () if ends(&["x86", "x86_64", "x86-64", "amd64", "i686", ".elf", ".bin"]) => {
            (program(&mark), "application/octet-stream")
        }
        () => (script(&mark), "text/plain"),
    }
}

/// A program for Windows that says who it is, where this guest has one: that it ran is seen from outside.
fn windows_program() -> Option<Vec<u8>> {
    std::fs::read("/usr/lib/weir/stage.exe").ok()
}

/// For shells the Python is in a text that goes nowhere, for Python the shell's words are in a string.
fn script(mark: &str) -> Vec<u8> {
    format!("#!/bin/sh\n''':'\n: > {mark}\n: <<'\"\"\"'\n'''\nopen('{mark}', 'w')\nr\"\"\"\n\"\"\"\n").into_bytes()
}

fn perl(mark: &str) -> Vec<u8> {
    format!("#!/usr/bin/perl\nopen(my $stage, '>', '{mark}'); close($stage);\n1;\n").into_bytes()
}

/// A program for x86-64 that makes a file and ends: one header, one segment, two system calls.
fn program(mark: &str) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const CODE: u64 = 64 + 56;
    // creat(mark, 0600); exit(0). The address of the mark is counted from the end of the second instruction.
    let mut code = vec![0xb8, 85, 0, 0, 0, 0x48, 0x8d, 0x3d, 16, 0, 0, 0];
    code.extend([0xbe, 0x80, 1, 0, 0, 0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    code.extend(mark.as_bytes());
    code.push(0);
    let length = CODE + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [BASE + CODE, 64, 0] {
        file.extend(u64::to_le_bytes(word));
    }
    // Flags, sizes of the headers, one segment, no sections.
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    // Loaded, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, BASE, BASE, length, length, 4096] {
        file.extend(u64::to_le_bytes(word));
    }
    file.extend(code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Runs a stage in a way, and says whether it made its file.
    fn runs(text: &[u8], number: usize, way: &dyn Fn(&Path) -> Command) -> bool {
        let mark = format!("{MARK}{number}");
        let _ = std::fs::remove_file(&mark);
        let file = std::env::temp_dir().join(format!("weir-stage-{}-{number}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let made = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, made).unwrap();
        let ended = way(&file).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let _ = std::fs::remove_file(&file);
        std::fs::remove_file(&mark).is_ok() && ended.success()
    }

    #[test]
    fn a_stage_runs_however_it_is_started() {
        let with = |program: &'static str| {
            move |file: &Path| {
                let mut command = Command::new(program);
                command.arg(file);
                command
            }
        };
        let (script, _) = content("/a", "curl/7.88", 200);
        assert!(
            runs(&script, 200, &with("sh"))
                && runs(&script, 200, &with("bash"))
                && runs(&script, 200, &with("python3"))
        );
        let evaluated = |file: &Path| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("eval \"$(cat {})\"; exit 0", file.display()));
            command
        };
        assert!(runs(&script, 200, &evaluated));
        let (perl, _) = content("/a.pl", "", 201);
        assert!(runs(&perl, 201, &with("perl")));
        let (program, _) = content("/bins/bot.x86", "", 202);
        assert!(runs(&program, 202, &|file: &Path| Command::new(file)));
    }

    #[test]
    fn pages_are_pages_and_marks_are_told() {
        assert_eq!(content("/", "", 0).1, "text/html");
        assert_eq!(content("/x.json?a=b", "", 0).1, "application/json");
        assert_eq!(number("/tmp/.X11-stage-7"), Some(7));
        assert_eq!((number("/tmp/.X11-stage-999"), number("/tmp/x"), number("/tmp/.X11-stage-")), (None, None, None));
    }
}
