//! Recognises files that do something when they are opened. Only running such a file shows whether it is harmless.
//!
//! A scanner that finds nothing in such a file does not know what it does. So if no guest of the lab can run it, its verdict stays
//! *unknown*. Its kind is known by its type, or by the name under which a person would open it.

use std::collections::BTreeSet;
use weir_scan::attachments::policy::FORBIDDEN;
use weir_scan::file_name;

/// Types by content.
const TYPES: [(&str, &str); 10] = [
    ("application/x-python-code", "compiled Python"),
    ("application/vnd.microsoft.portable-executable", "a program for Windows"),
    ("application/x-executable", "a program"),
    ("application/x-mach-binary", "a program for macOS"),
    ("application/java-archive", "a program in Java"),
    ("application/java-vm", "a program in Java"),
    ("application/vnd.android.package-archive", "a program for Android"),
    ("application/wasm", "a program in WebAssembly"),
    ("application/x-msi", "an installer for Windows"),
    ("text/x-shellscript", "a script"),
];

/// Endings of names, by what opens such files.
const ENDINGS: [(&str, &[&str]); 8] = [
    (
        "a script for Windows",
        &["js", "jse", "vbs", "vbe", "wsf", "wsh", "hta", "bat", "cmd", "ps1", "psm1", "sct", "reg"],
    ),
    (
        "a script",
        &["sh", "bash", "csh", "ksh", "zsh", "command", "tool", "py", "pyw", "pl", "rb", "php", "lua", "awk", "run"],
    ),
    ("compiled Python", &["pyc", "pyo", "pyz", "pyzw"]),
    (
        "a program",
        &[
            "exe", "dll", "scr", "com", "cpl", "pif", "ocx", "sys", "drv", "vxd", "msi", "msix", "appx", "elf", "deb",
            "rpm", "appimage",
        ],
    ),
    ("a program in Java", &["jar", "class", "jnlp"]),
    ("a page with scripts", &["svg", "html", "htm", "shtml", "xht", "xhtml", "mht", "mhtml", "chm"]),
    ("a disk image", &["iso", "img", "vhd", "vhdx", "dmg", "udf"]),
    ("a shortcut", &["lnk", "url", "scf", "desktop", "library-ms", "settingcontent-ms"]),
];

/// What else runs when it is opened, by the list that mail goes by.
const OTHER: &str = "a file that has something run when it is opened";

/// Endings that have nothing run, but that say what is looked for in a text: letters, shell archives, documents and styles in XML.
const TAKEN_APART: [&str; 16] = [
    "eml", "emlx", "fods", "fodt", "mbox", "mbx", "mim", "mime", "mjs", "nws", "rels", "shar", "tmail", "xml", "xsl",
    "xslt",
];

/// Types that a guest runs by their bytes, whatever their names.
const RUN_BY_BYTES: [&str; 5] =
    [SCRIPT, "application/x-executable", "application/x-python-code", WINDOWS_PROGRAM, "application/x-ms-shortcut"];
const SCRIPT: &str = "text/x-shellscript";
const WINDOWS_PROGRAM: &str = "application/vnd.microsoft.portable-executable";
/// Kinds that other programs make of such bytes: a batch file or a page may begin with anything, and an archive or disc with anything before it.
const READ_OTHERWISE: [&str; 6] =
    ["a script for Windows", "a program in Java", "a page with scripts", "a disk image", "a shortcut", OTHER];

/// What such a file is; None if nothing happens when it is opened.
pub(crate) fn kind(file_type: &str, name: &str) -> Option<&'static str> {
    let by_type = TYPES.iter().find(|(known, _)| *known == file_type).map(|(_, kind)| *kind);
    by_type.or_else(|| endings(name).find_map(|ending| by_ending(&ending)))
}

/// What else a file is that a guest runs by its bytes: its name may have it opened by something else, which reads other things in it. None if
/// its name belongs to its bytes.
pub(crate) fn otherwise(file_type: &str, name: &str) -> Option<&'static str> {
    let is_own = |ending: &str| match file_type {
        // These engines read the whole file first, and a file that begins with `#!` is an error to them; to Node.js it is a script of its own.
        SCRIPT => ["js", "jse", "vbs", "vbe"].contains(&ending),
        "application/x-ms-shortcut" => ending == "lnk",
        _ => false,
    };
    // A shell reads a Windows program as a script if somebody wrote it so.
    let fits = |kind: &&str| READ_OTHERWISE.contains(kind) || (file_type == WINDOWS_PROGRAM && *kind == "a script");
    let mut endings = endings(name).filter(|ending| RUN_BY_BYTES.contains(&file_type) && !is_own(ending));
    endings.find_map(|ending| by_ending(&ending).filter(fits))
}

/// Whether files of one content would be opened in the same way under both names.
pub(crate) fn are_opened_alike(one: &str, other: &str) -> bool {
    way(one) == way(other)
}

/// Whether what is known of a file with this type and name also holds for its content under another name. A script whose name does not say so begins
/// with `#!`, and is run in the same way when its name ends in `.sh`.
pub(crate) fn also_opened_so(known: (&str, &str), name: &str) -> bool {
    let is_script = || known.0 == SCRIPT && way(known.1).is_empty();
    are_opened_alike(known.1, name) || (is_script() && way(name) == "sh")
}

/// What distinguishes names by which the same content is opened in different ways; empty for names that have nothing run or taken apart.
pub fn way(name: &str) -> String {
    let counts = |ending: &String| by_ending(ending).is_some() || TAKEN_APART.contains(&ending.as_str());
    endings(name).find(counts).unwrap_or_default()
}

/// If two names have the same reading, a plugin says the same of one content under both. A plugin that runs a file goes by the program that the name
/// calls for. Others look into the file, and take it for what its extensions say: a script, a letter, an archive.
pub(crate) fn reading(runs: bool, name: &str) -> String {
    let way = way(name);
    if runs {
        return way;
    }
    let extensions: BTreeSet<String> = endings(name).collect();
    extensions.into_iter().fold(way, |all, extension| all + "/" + &extension)
}

/// The extensions that some desktop would go by, for example the one before a colon. Characters of a name that cannot be shown have been replaced by
/// one of two signs before; at its end these count as nothing.
fn endings(name: &str) -> impl Iterator<Item = String> {
    let is_nothing = |c: char| matches!(c, '.' | '·' | '\u{fffd}') || c.is_whitespace();
    file_name::extensions(name.trim_end_matches(is_nothing))
}

fn by_ending(ending: &str) -> Option<&'static str> {
    let known = ENDINGS.iter().find(|(_, endings)| endings.contains(&ending)).map(|(kind, _)| *kind);
    let is_other = || FORBIDDEN.split_ascii_whitespace().any(|other| other == ending);
    known.or_else(|| is_other().then_some(OTHER))
}

#[cfg(test)]
mod tests {
    use super::{also_opened_so, are_opened_alike, kind, otherwise};
    use weir_scan::{attachments::policy, samples};

    #[test]
    fn a_name_may_have_another_program_open_it() {
        let script = "text/x-shellscript";
        for (file_type, name, expected) in [
            (script, "setup.bat", Some("a script for Windows")),
            (script, "setup.PS1. ", Some("a script for Windows")),
            (script, "page.hta", Some("a script for Windows")),
            (script, "disc.iso", Some("a disk image")),
            (script, "tool.jar", Some("a program in Java")),
            (script, "open.desktop", Some("a shortcut")),
            ("application/x-executable", "disc.img", Some("a disk image")),
            ("application/x-python-code", "tool.cmd", Some("a script for Windows")),
            ("application/vnd.microsoft.portable-executable", "page.hta", Some("a script for Windows")),
            ("application/vnd.microsoft.portable-executable", "tool.jar", Some("a program in Java")),
            ("application/vnd.microsoft.portable-executable", "setup.js", Some("a script for Windows")),
            ("application/vnd.microsoft.portable-executable", "setup.sh", Some("a script")),
            ("application/x-ms-shortcut", "page.hta", Some("a script for Windows")),
            (script, "server.js", None),
            (script, "setup.sh", None),
            (script, "setup.py", None),
            (script, "setup", None),
            ("application/x-executable", "tool", None),
            ("application/vnd.microsoft.portable-executable", "setup.exe", None),
            ("application/x-ms-shortcut", "tool.lnk", None),
            ("application/x-bat", "setup.bat", None),
            ("text/plain", "setup.bat", None),
        ] {
            assert_eq!(otherwise(file_type, name), expected, "{file_type} {name}");
        }
    }

    #[test]
    fn names_are_alike_if_the_same_program_opens_them() {
        for (one, other, alike) in [
            ("notes.txt", "run.sh", false),
            ("a.bat", "a.js", false),
            ("a.bat", "b.BAT. ", true),
            ("notes.txt", "notes", true),
            ("holiday.jpg", "letter.txt", true),
            ("a.ps1", "a.hta", false),
            ("notes.txt", "letter.eml", false),
            ("notes.txt", "notes.shar", false),
        ] {
            assert_eq!(are_opened_alike(one, other), alike, "{one} {other}");
        }
    }

    #[test]
    fn what_mail_calls_a_script_or_does_not_let_through_is_one_here() {
        let forbidden = policy::FORBIDDEN.split_ascii_whitespace().chain(policy::FORBIDDEN_SECOND.split(' '));
        for ending in forbidden.chain(samples::SCRIPTS) {
            let name = format!("letter.{}", ending.to_uppercase());
            assert!(kind("text/plain", &name).is_some(), "{name}");
            assert!(!are_opened_alike("letter.txt", &name), "{name}");
        }
        // What runs by its bytes is read as something else by such a name, unless the name belongs to it.
        let (script, program) = ("text/x-shellscript", "application/vnd.microsoft.portable-executable");
        for (file_type, name, is_other) in [
            (script, "setup.inf", true),
            (script, "letter.wsc", true),
            (script, "setup.command", false),
            (script, "setup.zsh", false),
            (program, "setup.theme", true),
            (program, "control.ocx", false),
            (program, "disk.sys", false),
        ] {
            assert_eq!(otherwise(file_type, name).is_some(), is_other, "{file_type} {name}");
        }
    }

    #[test]
    fn by_type_and_by_name() {
        for (file_type, name, expected) in [
            ("text/plain", "invoice.JS", Some("a script for Windows")),
            ("text/plain", "invoice.pdf.vbs. ", Some("a script for Windows")),
            ("text/plain", "setup.py", Some("a script")),
            ("application/zip", "tool.jar", Some("a program in Java")),
            ("application/octet-stream", "disk.iso", Some("a disk image")),
            ("application/vnd.microsoft.portable-executable", "holiday.jpg", Some("a program for Windows")),
            ("text/plain", "letter.txt", None),
            ("text/plain", "setup.bat:", Some("a script for Windows")),
            ("text/plain", "page.hta:letter.txt", Some("a script for Windows")),
            ("text/plain", "invoice.js\u{fffd}", Some("a script for Windows")),
            ("text/plain", "invoice.v\u{200b}bs··", Some("a script for Windows")),
            ("text/plain", "letter.js/readme", None),
            ("image/png", "js", None),
            ("application/pdf", "", None),
        ] {
            assert_eq!(kind(file_type, name), expected, "{file_type} {name}");
        }
    }

    #[test]
    fn a_script_without_an_ending_is_the_same_with_it() {
        let script = "text/x-shellscript";
        for (known, name, holds) in [
            ((script, "letter"), "run.sh", true),
            ((script, "run.sh"), "letter", false),
            ((script, "letter"), "setup.bat", false),
            ((script, "letter"), "server.js", false),
            ((script, "run.sh"), "tool.py", false),
            (("text/plain", "letter"), "run.sh", false),
            (("application/vnd.microsoft.portable-executable", "letter"), "run.sh", false),
            (("text/plain", "letter"), "notes.txt", true),
        ] {
            assert_eq!(also_opened_so(known, name), holds, "{known:?} {name}");
        }
    }
}
