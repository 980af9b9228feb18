//! How a file is opened as its user would: programs by themselves, libraries by `rundll32`, installers, batch files, scripts and shortcuts by what
//! Windows opens them with. What Wine cannot run is not tried: it would end at once, and that would look harmless.

use super::pe::Pe;

/// How to run a sample, or why it is not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The words for Wine.
    Run(Vec<String>),
    /// Why not, in words.
    NotRun(String),
}

/// Shortcuts begin so.
const SHORTCUT: &[u8] = b"\x4c\0\0\0\x01\x14\x02\0";
/// The beginning of installers, and of other files with parts.
const PARTS: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// Whether a file that begins so is a program or an installer, whatever its name: also one of Linux, which Wine runs as well.
pub(crate) fn is_program(head: &[u8]) -> bool {
    [b"MZ".as_slice(), PARTS, b"\x7fELF", b"#!"].iter().any(|begin| head.starts_with(begin))
}

/// Whether a file that begins so can hold or start other files: an archive, a document, a shortcut.
pub(crate) fn holds_others(head: &[u8]) -> bool {
    let begins = [b"PK\x03\x04".as_slice(), b"Rar!", b"7z\xbc\xaf", b"MSCF", b"{\\rt", b"%PDF", SHORTCUT];
    begins.iter().any(|begin| head.starts_with(begin))
}

/// What to do with a file of this name in Windows (a whole path) that begins so.
pub(crate) fn plan(path: &str, head: &[u8]) -> Plan {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    if head.starts_with(b"MZ") {
        return match Pe::read(head) {
            Some(pe) => program(path, &pe),
            None => not_run("it is a program for DOS, or only the beginning of one, which this guest does not run"),
        };
    }
    if head.starts_with(SHORTCUT) {
        return run(&["C:\\windows\\system32\\start.exe", "/wait", path]);
    }
    match ending.as_str() {
        "msi" if head.starts_with(PARTS) => run(&["C:\\windows\\system32\\msiexec.exe", "/i", path, "/qn"]),
        "bat" | "cmd" => run(&["C:\\windows\\system32\\cmd.exe", "/c", path]),
        "js" | "vbs" => run(&["C:\\windows\\system32\\wscript.exe", path]),
        "jse" | "vbe" => not_run("it is an encoded script, which this guest's wscript does not read"),
        "hta" => not_run("it is an HTML application, and this guest has no browser to run it"),
        "ps1" | "psm1" => not_run("it is a script for PowerShell, which this guest has not"),
        "wsf" | "wsh" => not_run("it is a script in XML, which this guest's wscript does not read"),
        _ => not_run("it is nothing that this guest can open"),
    }
}

fn program(path: &str, pe: &Pe) -> Plan {
    if let Some(why) = pe.obstacle() {
        return Plan::NotRun(why);
    }
    if !pe.is_library() {
        return run(&[path]);
    }
    // Its beginning runs whenever it is loaded; of its functions the one that installers call is tried.
    let loader =
        if pe.is_short() { "C:\\windows\\syswow64\\rundll32.exe" } else { "C:\\windows\\system32\\rundll32.exe" };
    run(&[loader, &format!("{path},DllRegisterServer")])
}

fn run(words: &[&str]) -> Plan {
    Plan::Run(words.iter().map(|word| (*word).to_owned()).collect())
}

fn not_run(why: &str) -> Plan {
    Plan::NotRun(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::pe::tests::head;
    use super::*;

    #[test]
    fn files_are_opened_as_their_user_would() {
        let first = |path: &str, head: &[u8]| match plan(path, head) {
            Plan::Run(words) => words.into_iter().next().unwrap(),
            Plan::NotRun(why) => format!("not: {why}"),
        };
        let end = |text: String| text.rsplit('\\').next().unwrap_or_default().to_owned();
        assert_eq!(first("C:\\a.exe", &head(0x8664, 2, 2, false)), "C:\\a.exe");
        assert_eq!(first("C:\\holiday.jpg", &head(0x14c, 2, 2, false)), "C:\\holiday.jpg", "by content, not by name");
        assert_eq!(first("C:\\a.dll", &head(0x14c, 0x2002, 2, false)), "C:\\windows\\syswow64\\rundll32.exe");
        assert_eq!(end(first("C:\\a.CMD", b"echo")), "cmd.exe");
        assert_eq!(end(first("C:\\a.js", b"x")), "wscript.exe");
        assert_eq!(end(first("C:\\a.msi", PARTS)), "msiexec.exe");
        assert_eq!(end(first("C:\\a.lnk", SHORTCUT)), "start.exe");
        for (path, head) in [
            ("C:\\a.hta", &b"x"[..]),
            ("C:\\a.ps1", b"x"),
            ("C:\\a.jse", b"x"),
            ("C:\\a.msi", b"x"),
            ("C:\\a.txt", b"x"),
            ("C:\\a.exe", b"MZ"),
            ("C:\\a.exe", &head(0x8664, 2, 2, true)),
        ] {
            assert!(first(path, head).starts_with("not: "), "{path}");
        }
    }
}
