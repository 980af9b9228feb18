//! Recognises files that do something when they are opened. Only running such a file shows whether it is harmless.
//!
//! A scanner that finds nothing in such a file does not know what it does. So if no guest of the lab can run it, its verdict stays
//! *unknown*. Its kind is known by its type, or by the name under which a person would open it.

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
    ("a script", &["sh", "bash", "py", "pyw", "pl", "rb", "php", "lua", "awk", "run"]),
    ("compiled Python", &["pyc", "pyo", "pyz"]),
    ("a program", &["exe", "dll", "scr", "com", "cpl", "pif", "msi", "msix", "appx", "elf", "deb", "rpm", "appimage"]),
    ("a program in Java", &["jar", "class", "jnlp"]),
    ("a page with scripts", &["svg", "html", "htm", "xhtml", "mht", "mhtml", "chm"]),
    ("a disk image", &["iso", "img", "vhd", "vhdx", "dmg", "udf"]),
    ("a shortcut", &["lnk", "url", "scf", "desktop", "library-ms", "settingcontent-ms"]),
];

/// Types that a guest runs by their bytes, whatever their names.
const RUN_BY_BYTES: [&str; 5] =
    [SCRIPT, "application/x-executable", "application/x-python-code", WINDOWS_PROGRAM, "application/x-ms-shortcut"];
const SCRIPT: &str = "text/x-shellscript";
const WINDOWS_PROGRAM: &str = "application/vnd.microsoft.portable-executable";
/// Kinds that other programs make of such bytes: a batch file or a page may begin with anything, and an archive or disc with anything before it.
const READ_OTHERWISE: [&str; 5] =
    ["a script for Windows", "a program in Java", "a page with scripts", "a disk image", "a shortcut"];

/// What such a file is; None if nothing happens when it is opened.
pub(crate) fn kind(file_type: &str, name: &str) -> Option<&'static str> {
    let by_type = TYPES.iter().find(|(known, _)| *known == file_type).map(|(_, kind)| *kind);
    by_type.or_else(|| by_ending(&ending(name)?))
}

/// What else a file is that a guest runs by its bytes: its name may have it opened by something else, which reads other things in it. None if
/// its name belongs to its bytes.
pub(crate) fn otherwise(file_type: &str, name: &str) -> Option<&'static str> {
    let ending = ending(name).filter(|_| RUN_BY_BYTES.contains(&file_type))?;
    let is_own = match file_type {
        // These engines read the whole file first, and a file that begins with `#!` is an error to them; to Node.js it is a script of its own.
        SCRIPT => ["js", "jse", "vbs", "vbe"].contains(&ending.as_str()),
        "application/x-ms-shortcut" => ending == "lnk",
        _ => false,
    };
    // A shell reads a Windows program as a script if somebody wrote it so.
    let fits = |kind: &&str| READ_OTHERWISE.contains(kind) || (file_type == WINDOWS_PROGRAM && *kind == "a script");
    by_ending(&ending).filter(|_| !is_own).filter(fits)
}

/// Whether files of one content would be opened in the same way under both names.
pub(crate) fn are_opened_alike(one: &str, other: &str) -> bool {
    way(one) == way(other)
}

/// Whether what is known of a file with this type and name also holds for its content under another name. What is a script although its name does
/// not say so begins with `#!`, and as a `.sh` it is the same.
pub(crate) fn also_opened_so(known: (&str, &str), name: &str) -> bool {
    let is_script = || known.0 == SCRIPT && way(known.1).is_empty();
    are_opened_alike(known.1, name) || (is_script() && way(name) == "sh")
}

/// What distinguishes names by which the same content is opened in different ways; empty for names that have nothing run.
pub fn way(name: &str) -> String {
    ending(name).filter(|ending| by_ending(ending).is_some()).unwrap_or_default()
}

fn ending(name: &str) -> Option<String> {
    name.trim_end_matches(['.', ' ']).rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase())
}

fn by_ending(ending: &str) -> Option<&'static str> {
    ENDINGS.iter().find(|(_, endings)| endings.contains(&ending)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::{also_opened_so, are_opened_alike, kind, otherwise};

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
        ] {
            assert_eq!(are_opened_alike(one, other), alike, "{one} {other}");
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
