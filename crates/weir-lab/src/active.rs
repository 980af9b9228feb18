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

/// What such a file is; None if nothing happens when it is opened.
pub(crate) fn kind(file_type: &str, name: &str) -> Option<&'static str> {
    let by_type = TYPES.iter().find(|(known, _)| *known == file_type).map(|(_, kind)| *kind);
    let ending = name.trim_end_matches(['.', ' ']).rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let by_name = || {
        let ending = ending?;
        ENDINGS.iter().find(|(_, endings)| endings.contains(&ending.as_str())).map(|(kind, _)| *kind)
    };
    by_type.or_else(by_name)
}

#[cfg(test)]
mod tests {
    use super::kind;

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
}
