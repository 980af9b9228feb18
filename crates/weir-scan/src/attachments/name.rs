//! What is wrong with a file name under a policy, and which names are a disguise.

use super::policy::Policy;
use crate::file_name::{bare, best_fit, extension, readings};
use crate::plain::shown;
use crate::walk::kind::Kind;

/// A name inside a sentence.
const SHOWN: usize = 120;

/// What is wrong with a name under a policy, in words; none if nothing is.
pub fn fault(name: &str, policy: &Policy) -> Option<String> {
    let shown = shown(name, SHOWN);
    if name.chars().any(is_reversing) {
        return Some(format!("a name that is shown backwards: {shown}"));
    }
    if has_long_gap(name) {
        return Some(format!("a name with its end out of sight: {shown}"));
    }
    extension_fault(name, &shown, policy)
        .or_else(|| bundle_fault(name, &shown))
        .or_else(|| class_fault(name, &shown))
        .or_else(|| best_fit(name).and_then(|fitted| extension_fault(&fitted, &shown, policy)))
}

/// An extension that does not pass.
fn extension_fault(name: &str, shown: &str, policy: &Policy) -> Option<String> {
    readings(name).find_map(|reading| {
        let (stem, last) = reading.rsplit_once('.')?;
        let last = bare(last);
        let second = stem.rsplit_once('.').is_some_and(|(_, before)| is_harmless_looking(&bare(before)));
        if policy.forbidden.contains(&last) {
            let how = if second { "a second extension" } else { "the extension" };
            return Some(format!("{how} .{last}: {shown}"));
        }
        (second && policy.forbidden_second.contains(&last)).then(|| format!("a second extension .{last}: {shown}"))
    })
}

/// What macOS opens as one program though it is a folder.
const BUNDLES: [&str; 12] = [
    "action",
    "app",
    "mpkg",
    "pkg",
    "plugin",
    "prefpane",
    "qlgenerator",
    "saver",
    "scptd",
    "service",
    "wdgt",
    "workflow",
];

/// Finds a file in such a folder, because an archive need not have an entry for the folder itself. Source folders may also be called
/// `com.example.app`; only what is inside makes a folder a program.
fn bundle_fault(name: &str, shown: &str) -> Option<String> {
    let parts: Vec<&str> = name.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".").collect();
    parts.windows(2).find_map(|pair| {
        let (_, own) = pair[0].rsplit_once('.')?;
        let own = bare(own);
        let inside = pair[1].eq_ignore_ascii_case("Contents") || pair[1].eq_ignore_ascii_case("Info.plist");
        (inside && BUNDLES.contains(&own.as_str())).then(|| format!("a folder that is a program (.{own}): {shown}"))
    })
}

/// If a name ends with the id of a class, Windows opens the file with that class, whatever the file is.
fn class_fault(name: &str, shown: &str) -> Option<String> {
    let class = |last: &str| {
        let number = last.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        number.is_some_and(|number| number.len() == 36 && number.chars().all(|c| c.is_ascii_hexdigit() || c == '-'))
    };
    let named = readings(name).any(|reading| reading.rsplit_once('.').is_some_and(|(_, last)| class(last)));
    named.then(|| format!("a name that Windows opens as something else: {shown}"))
}

/// Marks that turn the direction of writing (the trick of `exe.fdp` shown as `pdf.exe`).
fn is_reversing(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a name has so many spaces that they push its real extension out of the window.
fn has_long_gap(name: &str) -> bool {
    let mut run = 0;
    name.trim_end().chars().any(|c| {
        run = if c.is_whitespace() || matches!(c, '\u{2800}' | '\u{3164}') { run + 1 } else { 0 };
        run >= 12
    })
}

/// What a victim takes for a document, picture, sound, text or archive.
fn is_harmless_looking(extension: &str) -> bool {
    const KNOWN: &str = "pdf doc docx docm xls xlsx xlsm xlsb ppt pptx rtf odt ods odp txt csv log jpg jpeg png gif bmp tif tiff webp heic \
         svg mp3 wav mp4 avi mov mpg mpeg zip rar 7z gz tar htm html xml eml msg ics vcf ps eps dwg";
    KNOWN.split(' ').any(|known| known == extension)
}

/// Whether a name promises something that the content is not, in a way that only a disguise explains.
pub fn is_disguise(name: &str, kind: Kind) -> bool {
    let Some(extension) = extension(name) else { return false };
    let promised = match extension.as_str() {
        "jpg" | "jpeg" | "png" | "gif" | "bmp" | "tif" | "tiff" | "webp" | "heic" => Kind::Picture,
        "mp3" | "wav" | "mp4" | "avi" | "mov" | "mpg" | "mpeg" | "ogg" => Kind::Media,
        "pdf" => Kind::Pdf,
        "txt" | "csv" | "log" | "ics" | "vcf" => Kind::Unknown,
        _ => return false,
    };
    // A picture that is another picture, or a PDF that is text, happens; a picture that is an archive does not.
    let dangerous =
        kind.is_program() || kind.is_archive() || matches!(kind, Kind::Ole | Kind::Disc | Kind::OneNote | Kind::Html);
    dangerous && kind != promised && !(promised == Kind::Unknown && kind == Kind::Html)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty(name: &str) -> bool {
        fault(name, &Policy::default()).is_some()
    }

    #[test]
    fn tricks_are_seen_through() {
        for name in [
            "a.exe",
            "A.ExE",
            "invoice.pdf.exe",
            "invoice.pdf.html",
            "a.exe.",
            "a.exe . .",
            "a.exe\0.txt",
            "a.exe:stream.txt",
            "x:evil.exe",
            "C:evil.exe",
            "a.txt\0.exe",
            "a.e\0xe",
            "a.exe\u{feff}",
            "dir/a.js",
            "dir\\a.vbs",
            "a.exe/",
            "photo\u{202e}gpj.exe",
            "invoice.pdf                    .txt",
            "x.exe\u{200b}",
            "x.exe\u{3164}",
            "x.e\u{34f}xe",
            "x.js\u{fe0f}",
            "x.exe/.",
            "x.exe\\..",
            "x.exe\u{7}.pdf",
            "x.\u{ff45}\u{ff58}\u{ff45}",
            "x\u{2024}exe",
            "x\u{ff0e}exe",
            "Invoice.app/Contents/MacOS/run",
            "Invoice.prefPane/Contents/Info.plist",
            "a/Clock.wdgt/Info.plist",
            "Install.tool",
            "Invoice.{3050f4d8-98B5-11CF-BB82-00AA00BDCE0B}",
        ] {
            assert!(faulty(name), "{name:?}");
        }
    }

    #[test]
    fn usual_names_pass() {
        for name in [
            "a.pdf",
            "page.html",
            "my file (1).docx",
            "archive.tar.gz",
            "exe",
            "",
            ".",
            "...",
            "v1.2.3 notes.txt",
            "a b  c.txt",
            "Re: the notes.pdf",
            "12:30.txt",
            "letter to example.com\tof May.pdf",
            "請求書。.pdf",
            "報告．ｐｄｆ",
            "com.example.app/src/main.txt",
            "nginx.service",
            "notes.{draft}",
            "{3050f4d8-98B5-11CF-BB82-00AA00BDCE0B}.png",
            "Contents/Info.plist",
        ] {
            assert!(!faulty(name), "{name:?}");
        }
    }

    #[test]
    fn reasons_name_the_trick() {
        let reason = |name| fault(name, &Policy::default()).unwrap();
        assert_eq!(reason("invoice.pdf.exe"), "a second extension .exe: invoice.pdf.exe");
        assert_eq!(reason("setup.exe"), "the extension .exe: setup.exe");
    }

    #[test]
    fn disguises() {
        assert!(is_disguise("photo.jpg", Kind::WindowsProgram));
        assert!(is_disguise("photo.jpg", Kind::Zip));
        assert!(is_disguise("invoice.pdf", Kind::Html));
        assert!(!is_disguise("photo.jpg", Kind::Picture));
        assert!(!is_disguise("notes.txt", Kind::Html));
        assert!(!is_disguise("letter.doc", Kind::Rtf));
        assert!(!is_disguise("report.docx", Kind::Zip));
    }
}
