//! Scripts of two readings: a shell does nothing with them, and Python, which their names call for, does.
//!
//! Linux runs a script with the interpreter in its first line, and so does the lab. Who calls `python setup.py`, or opens the file on Windows,
//! has another one read it, to which the first line is a remark. The lab's guests have not seen what that does.

use weir_scan::file_name::extension;

/// How much of the first line is read.
const LINE_MAX: usize = 256;

const SHELLS: [&str; 9] = ["sh", "ash", "bash", "dash", "ksh", "mksh", "rbash", "zsh", "busybox"];

/// Extensions, and the interpreters that belong to them, without their versions.
const FAMILIES: [(&[&str], &[&str]); 9] = [
    (&["sh", "bash", "ksh", "zsh"], &SHELLS),
    (&["csh"], &["csh", "tcsh"]),
    (&["py", "pyw"], &["python", "pypy"]),
    (&["pl"], &["perl"]),
    (&["rb"], &["ruby", "jruby"]),
    (&["php"], &["php"]),
    (&["lua"], &["lua", "luajit", "texlua"]),
    (&["awk"], &["awk", "gawk", "mawk", "nawk", "original-awk"]),
    (&["js", "mjs", "cjs"], &["node", "nodejs", "deno", "bun", "gjs", "qjs"]),
];

/// The interpreter that such a file names in its first line, if its name has another one read it.
pub(crate) fn other_interpreter(name: &str, data: &[u8]) -> Option<String> {
    let line = data.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(LINE_MAX)]);
    let extension = extension(name)?;
    let (_, own) = FAMILIES.iter().find(|(extensions, _)| extensions.contains(&extension.as_str()))?;
    let named = interpreter(&line);
    let plain = named.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    (!own.contains(&plain)).then(|| named.to_owned())
}

/// Its name without the folders; of `env` what that looks for.
fn interpreter(line: &str) -> &str {
    fn base(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }
    let mut words = line.split_ascii_whitespace();
    match words.next().map(base).unwrap_or_default() {
        "env" => words.find(|word| !word.starts_with('-') && !word.contains('=')).map(base).unwrap_or_default(),
        first => first,
    }
}

#[cfg(test)]
mod tests {
    use super::other_interpreter;

    #[test]
    fn the_first_line_and_the_name_say_the_same_or_not() {
        for (name, line, expected) in [
            ("setup.py", "#!/usr/bin/env python3", None),
            ("setup.py", "#!/usr/bin/python3.11 -u", None),
            ("setup.PY", "#! /usr/bin/env -S A=/x/sh pypy3 -u", None),
            ("setup.py", "#!/bin/sh", Some("sh")),
            ("setup.pyw. ", "#!/bin/true", Some("true")),
            ("setup.py", "#!/opt/python3/bin/sh", Some("sh")),
            ("setup.py", "#!", Some("")),
            ("run.sh", "#!/bin/bash -e\r", None),
            ("run.sh", "#!/bin/busybox sh", None),
            ("run.sh", "#!/bin/true", Some("true")),
            ("run.sh", "#!/usr/bin/env perl", Some("perl")),
            ("server.js", "#!/usr/bin/env node", None),
            ("server.js", "#!/bin/sh", Some("sh")),
            ("page.php", "#!/usr/bin/php8.2", None),
            ("report.pl", "#!/usr/bin/perl5.36-x86 -w", Some("perl5.36-x86")),
            ("list.awk", "#!/usr/bin/gawk -f", None),
            ("run", "#!/bin/true", None),
            ("setup.run", "#!/bin/sh", None),
            ("setup.bat", "#!/bin/sh", None),
            ("setup.py", "print(1)", None),
            ("", "#!/bin/sh", None),
        ] {
            let told = other_interpreter(name, format!("{line}\nexit 0\n").as_bytes());
            assert_eq!(told.as_deref(), expected, "{name} {line}");
        }
    }
}
