//! The type of a sample, such as `application/zip`, from its first bytes. The name only counts for files that Windows opens by their name
//! and whose bytes do not tell the type: scripts, batch files, installers.

use std::io::{self, Read, Seek, SeekFrom};

/// How much of the beginning is examined.
pub const HEAD: usize = 8192;

/// The type of a sample with this beginning.
pub fn of(head: &[u8]) -> &'static str {
    if let Some(kind) = infer::get(head) {
        return kind.mime_type();
    }
    if is_python(head) {
        return "application/x-python-code";
    }
    if head.starts_with(SHORTCUT) {
        return "application/x-ms-shortcut";
    }
    let text = std::str::from_utf8(head).or_else(|error| match error.error_len() {
        // It was cut in the middle of a character.
        None => std::str::from_utf8(&head[..error.valid_up_to()]),
        Some(_) => Err(error),
    });
    match text {
        Ok(text) if !text.chars().any(|c| c.is_control() && !c.is_whitespace()) => "text/plain",
        _ => "application/octet-stream",
    }
}

/// Compiled Python: the number of a version, a line end, and flags, of which two values exist.
fn is_python(head: &[u8]) -> bool {
    matches!(head, &[a, b, b'\r', b'\n', flags, 0, 0, 0, ..] if (3000..4000).contains(&u16::from_le_bytes([a, b])) && flags < 4)
}

/// Types that only the name shows, and which bytes they may have: any text is a script for a program that opens it as one.
const BY_NAME: [(&str, &str); 6] = [
    ("bat", "application/x-bat"),
    ("cmd", "application/x-bat"),
    ("js", "application/x-jscript"),
    ("jse", "application/x-jscript"),
    ("vbs", "application/x-vbscript"),
    ("vbe", "application/x-vbscript"),
];
const SHORTCUT: &[u8] = b"\x4c\0\0\0\x01\x14\x02\0";

/// The type of a sample with this name, whose type by its bytes is `kind`.
pub fn named(kind: &'static str, name: &str) -> &'static str {
    let ending = name.trim_end_matches(['.', ' ']).rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let Some(ending) = ending else { return kind };
    match kind {
        // Installers and old documents begin with the same bytes.
        "application/x-ole-storage" | "application/msword" if ending == "msi" => "application/x-msi",
        "text/plain" | "application/octet-stream" | "text/html" | "text/xml" => {
            BY_NAME.iter().find(|(known, _)| *known == ending).map_or(kind, |(_, by_name)| by_name)
        }
        _ => kind,
    }
}

/// Whether nothing happens when such a file is opened, and nothing else is in it. Its name may still say otherwise.
pub fn is_passive(kind: &str) -> bool {
    let shown = ["image/", "audio/", "video/", "font/"];
    kind == "text/plain" || shown.iter().any(|begin| kind.starts_with(begin))
}

/// The type of the content of a source, which is at its beginning before and afterwards.
pub fn of_source(source: &mut (impl Read + Seek)) -> io::Result<&'static str> {
    let mut head = Vec::new();
    source.take(HEAD as u64).read_to_end(&mut head)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(of(&head))
}

#[cfg(test)]
mod tests {
    use super::{named, of};

    #[test]
    fn names_count_where_windows_opens_by_them() {
        assert_eq!(of(b"\x4c\0\0\0\x01\x14\x02\0rest"), "application/x-ms-shortcut");
        for (kind, name, expected) in [
            ("text/plain", "invoice.pdf.JS", "application/x-jscript"),
            ("text/html", "page.js. ", "application/x-jscript"),
            ("application/octet-stream", "utf16.vbs", "application/x-vbscript"),
            ("text/plain", "run.cmd", "application/x-bat"),
            ("application/x-ole-storage", "setup.msi", "application/x-msi"),
            ("application/msword", "setup.msi", "application/x-msi"),
            ("application/msword", "letter.doc", "application/msword"),
            ("application/pdf", "letter.js", "application/pdf"),
            ("text/plain", "js", "text/plain"),
            ("text/plain", "page.hta", "text/plain"),
        ] {
            assert_eq!(named(kind, name), expected, "{kind} {name}");
        }
    }

    #[test]
    fn types() {
        let elf = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 64]].concat();
        for (head, kind) in [
            (&elf[..], "application/x-executable"),
            (b"PK\x03\x04rest of it", "application/zip"),
            (b"%PDF-1.7", "application/pdf"),
            (b"#!/bin/sh\necho", "text/x-shellscript"),
            (b"hello", "text/plain"),
            ("half a character: \u{20ac}".as_bytes().split_last().unwrap().1, "text/plain"),
            (b"\xa7\r\r\n\0\0\0\0rest", "application/x-python-code"),
            (b"\x00\x01\x02", "application/octet-stream"),
            (b"\xff\xfe\xfa", "application/octet-stream"),
            (b"", "text/plain"),
        ] {
            assert_eq!(of(head), kind, "{head:?}");
        }
    }
}
