//! Scripts that do one thing when they are run by their first line, and another when somebody calls an interpreter with them.
//!
//! Linux, and with it the lab's guest, runs a script with the interpreter and the options in its first line. Whoever calls `python setup.py` or
//! `bash run.sh`, or opens the file on Windows, ignores that line. So a script whose first line says `/bin/true`, `/bin/bash --version` or, in
//! `setup.py`, `/bin/sh`, can look harmless in a guest and do its work elsewhere: what the guest saw says nothing about it.

use weir_scan::file_name::extension;

/// The kernel reads no more of a first line.
const LINE_MAX: usize = 255;

/// Interpreters that run the same language.
struct Family {
    /// The extensions of its scripts.
    extensions: &'static [&'static str],
    /// Their names, without versions.
    interpreters: &'static [&'static str],
    /// Options of one letter with which they still do what the script says.
    letters: &'static str,
}

const FAMILIES: [Family; 9] = [
    Family {
        extensions: &["sh", "bash", "ksh", "zsh"],
        interpreters: &["sh", "ash", "bash", "dash", "ksh", "mksh", "rbash", "zsh", "busybox"],
        letters: "aefhlmpuvx",
    },
    Family { extensions: &["csh"], interpreters: &["csh", "tcsh"], letters: "efvx" },
    Family { extensions: &["py", "pyw"], interpreters: &["python", "pypy"], letters: "BEIOPSbsu" },
    Family { extensions: &["pl"], interpreters: &["perl"], letters: "TWtw" },
    Family { extensions: &["rb"], interpreters: &["ruby", "jruby"], letters: "Ww" },
    Family { extensions: &["php"], interpreters: &["php"], letters: "q" },
    Family { extensions: &["lua"], interpreters: &["lua", "luajit", "texlua"], letters: "" },
    Family { extensions: &["awk"], interpreters: &["awk", "gawk", "mawk", "nawk", "original-awk"], letters: "" },
    Family {
        extensions: &["js", "mjs", "cjs"],
        interpreters: &["node", "nodejs", "deno", "bun", "gjs", "qjs"],
        letters: "",
    },
];

/// Why running a script by its first line may not show what it does, if that is so.
pub(crate) fn doubt(name: &str, data: &[u8]) -> Option<String> {
    let line = data.strip_prefix(b"#!")?;
    let length = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    if length > LINE_MAX {
        return Some("its first line is longer than Linux reads".into());
    }
    let line = String::from_utf8_lossy(&line[..length]);
    let line = line.trim_matches(BLANKS);
    let (program, options) = called(line);
    let named = base(program);
    let by_name = extension(name).and_then(|own| FAMILIES.iter().find(|family| family.extensions.contains(&&*own)));
    let family = match by_name {
        Some(family) if !family.has(named) => {
            return Some(format!("it is run by {named:?}, and by its name something else reads it"));
        }
        Some(family) => family,
        None => match FAMILIES.iter().find(|family| family.has(named)) {
            Some(family) => family,
            // What looks like a first line can be something else, such as the `#![...]` of Rust.
            None if !line.starts_with('/') => return None,
            None => return Some(format!("it is run by {named:?}, which is no known interpreter of scripts")),
        },
    };
    (!family.bears(named, options))
        .then(|| format!("it is run by {named:?} with {options:?}, and without that it may do something else"))
}

const BLANKS: [char; 2] = [' ', '\t'];

/// The program that a first line calls, and what is handed to it before the script. Where `env` looks for a program, it is that one, unless `env` is
/// told more than its name.
fn called(line: &str) -> (&str, &str) {
    fn split(line: &str) -> (&str, &str) {
        line.split_once(BLANKS).map_or((line, ""), |(first, rest)| (first, rest.trim_start_matches(BLANKS)))
    }
    match split(line) {
        (env, rest) if base(env) == "env" => match rest.strip_prefix("-S") {
            Some(rest) if rest.starts_with(BLANKS) => split(rest.trim_start_matches(BLANKS)),
            _ => (rest, ""),
        },
        plain => plain,
    }
}

/// The name of a program without its folders.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

impl Family {
    fn has(&self, named: &str) -> bool {
        let plain = named.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        self.interpreters.contains(&plain)
    }

    /// Whether it does with these options what the script says.
    fn bears(&self, named: &str, options: &str) -> bool {
        match options {
            // It is many programs, and needs to be told which.
            _ if named == "busybox" => matches!(options, "sh" | "ash"),
            // Otherwise it takes the path of the script for the program.
            _ if self.extensions == ["awk"] => options == "-f",
            "" | "-" | "--" => true,
            _ => options
                .strip_prefix('-')
                .is_some_and(|letters| letters.chars().all(|letter| self.letters.contains(letter))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::doubt;

    fn doubt_of(name: &str, line: &str) -> Option<String> {
        doubt(name, format!("{line}\nexit 0\n").as_bytes())
    }

    #[test]
    fn the_first_line_and_the_name_say_the_same() {
        for (name, line) in [
            ("setup.py", "#!/usr/bin/env python3"),
            ("setup.py", "#!/usr/bin/python3.11 -u"),
            ("setup.PY", "#! /usr/bin/env -S pypy3 -Es"),
            ("run.sh", "#!/bin/bash"),
            ("run.sh", "#!/bin/bash -eu "),
            ("run.sh", "#!/bin/sh -"),
            ("run.sh", "#!\t/bin/busybox sh"),
            ("server.js", "#!/usr/bin/env node"),
            ("page.php", "#!/usr/bin/php8.2"),
            ("report.pl", "#!/usr/bin/perl -wT"),
            ("list.awk", "#!/usr/bin/gawk -f"),
            ("list", "#!/usr/bin/awk -f"),
            ("run", "#!/bin/sh"),
            ("setup.run", "#!/bin/sh -e"),
            ("setup.py", "print(1)"),
            ("lib.rs", "#![forbid(unsafe_code)]"),
            ("notes", "#! to be done"),
            ("", "#!/bin/sh"),
        ] {
            assert_eq!(doubt_of(name, line), None, "{name} {line}");
        }
    }

    #[test]
    fn the_name_has_another_interpreter_read_it() {
        for (name, line, named) in [
            ("setup.py", "#!/bin/sh", "sh"),
            ("setup.pyw. ", "#!/bin/true", "true"),
            ("setup.py", "#!/opt/python3/bin/sh", "sh"),
            ("setup.py", "#!", ""),
            ("run.sh", "#!/bin/true", "true"),
            ("run.sh", "#!/usr/bin/env perl", "perl"),
            ("run.sh", "#!/usr/bin/env -S A=1 sh", "A=1"),
            ("run.sh", "#!/bin/sh\0.py", "sh\0.py"),
            ("server.js", "#!/bin/sh", "sh"),
            ("report.pl", "#!/usr/bin/perl5.36-x86 -w", "perl5.36-x86"),
        ] {
            let expected = format!("it is run by {named:?}, and by its name something else reads it");
            assert_eq!(doubt_of(name, line), Some(expected), "{name} {line}");
        }
    }

    #[test]
    fn the_options_keep_the_interpreter_from_the_script() {
        for (name, line) in [
            ("run.sh", "#!/bin/bash --version"),
            ("run", "#!/bin/bash --help"),
            ("run.sh", "#!/bin/sh -n"),
            ("run.sh", "#!/bin/sh -c"),
            ("run.sh", "#!/bin/bash -et"),
            // One option of five characters, which bash does not have.
            ("run.sh", "#!/bin/bash -e -x"),
            ("run.sh", "#!/bin/bash -e\r"),
            ("run.sh", "#!/bin/bash /bin/true"),
            ("run", "#!/bin/busybox"),
            ("run", "#!/bin/busybox echo"),
            ("setup.py", "#!/usr/bin/python3 -h"),
            ("setup", "#!/usr/bin/python3 -cpass"),
            ("setup.py", "#!/usr/bin/env -S python3 -V"),
            ("report.pl", "#!/usr/bin/perl -v"),
            ("list.awk", "#!/usr/bin/awk"),
            ("list.awk", "#!/usr/bin/awk -W"),
        ] {
            let told = doubt_of(name, line).unwrap_or_default();
            assert!(told.ends_with("and without that it may do something else"), "{name} {line}: {told}");
        }
    }

    #[test]
    fn what_runs_it_is_no_interpreter() {
        for line in [
            "#!/bin/true",
            "#!/bin/sh\r",
            "#!/usr/bin/env",
            "#!/usr/bin/env --help",
            "#!/usr/bin/env PATH=/x",
            "#!/usr/bin/env -S",
            "#!/usr/bin/env -S -i sh",
        ] {
            let told = doubt_of("run", line).unwrap_or_default();
            assert!(told.ends_with("which is no known interpreter of scripts"), "{line}: {told}");
        }
        let long = format!("#!/bin/sh {}", "-".repeat(300));
        assert_eq!(doubt_of("run", &long).as_deref(), Some("its first line is longer than Linux reads"));
    }
}
