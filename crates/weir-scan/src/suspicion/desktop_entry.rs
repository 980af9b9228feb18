//! Shortcuts of Linux desktops (freedesktop's *Desktop Entry Specification*), under whatever name: a double click runs what they name.
//!
//! A desktop takes a file without a known extension for what it begins with. Its list of types looks for the group in the first 32 octets;
//! programs that read the file pass over blank lines and comments before it.

use crate::walk::File;

const GROUPS: [&[u8]; 2] = [b"[Desktop Entry]", b"[KDE Desktop Entry]"];
/// How far a desktop looks for the group, whatever stands before it.
const MARK_MAX: usize = 32;
/// Entries have a few kilobytes, most of them translations. What is longer and begins like one is taken for one.
const TEXT_MAX: usize = 1 << 20;

pub(super) fn desktop_entry(file: &File<'_>) -> bool {
    // The text of a mail is read, and not opened.
    let is_text = file.declared.is_empty() || file.declared.starts_with("text/");
    let is_body = file.names.is_empty() && is_text && !file.in_archive;
    let head = &file.data[..file.data.len().min(TEXT_MAX)];
    let is_longer = head.len() < file.data.len();
    !is_body && behind_group(head).is_some_and(|text| is_longer || lines(text).any(acts))
}

/// What follows the line that begins an entry.
fn behind_group(data: &[u8]) -> Option<&[u8]> {
    let text = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let mut begin = 0;
    while begin < text.len() {
        let rest = &text[begin..];
        let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        if GROUPS.iter().any(|group| line.starts_with(group)) {
            return Some(&rest[end..]);
        }
        let is_passed_over = line.is_empty() || line.starts_with(b"#") || line.starts_with(b";");
        begin += end + 1;
        if !is_passed_over && begin > MARK_MAX {
            return None;
        }
    }
    None
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\r' | b'\n'))
}

/// A command, an address that is opened, or a value that KDE hands to a shell before it is read (`Icon[$e]`, also with other letters: `[$ie]`).
fn acts(line: &[u8]) -> bool {
    let Some(equals) = memchr::memchr(b'=', line) else { return false };
    let (key, value) = (line[..equals].trim_ascii(), line[equals + 1..].trim_ascii());
    let name = key.split(|byte| *byte == b'[').next().unwrap_or_default().trim_ascii();
    let has_letter =
        |at: usize| key[at + 2..].iter().take_while(|byte| !b"[]".contains(byte)).any(|byte| *byte == b'e');
    let is_expanded = memchr::memmem::find_iter(key, b"[$").any(has_letter);
    !value.is_empty() && (is_expanded || name == b"Exec" || name == b"URL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::kind::Kind;

    fn found(names: &[String], declared: &str, text: &str) -> bool {
        let data = text.as_bytes();
        desktop_entry(&File { names, declared, kind: Kind::of(data), data, in_archive: false })
    }

    #[test]
    fn entries_are_known_by_what_they_say() {
        for (name, text) in [
            ("invoice", "[Desktop Entry]\nType=Application\nExec=xcalc\n"),
            ("invoice.pdf", "\u{feff}[Desktop Entry]\r\nExec = sh -c 'xcalc'\r\n"),
            ("", "# made by nobody\n\n; and so on\n  [Desktop Entry]  \nName=a\nExec=xcalc"),
            ("invoice", "[KDE Desktop Entry]\nType=Link\nURL=https://evil.example/\n"),
            ("invoice", "[Desktop Entry]\nType=Link\nURL[$e]=file:///$HOME\n"),
            (".directory", "[Desktop Entry]\nType=Directory\nIcon[$e]=$(xcalc)\n"),
            (".directory", "[Desktop Entry]\nType=Directory\nIcon[$ie]=$(xcalc)\n"),
            (".directory", "[Desktop Entry]\nType=Directory\nIcon[$i][de][$de]=$(xcalc)\n"),
            ("invoice", "x=1\n[Desktop Entry]\nType=Application\nExec=xcalc\n"),
            ("invoice", "[Desktop Entry]\nName=a\n[Desktop Action b]\nExec=xcalc\n"),
        ] {
            let text = [text.to_owned(), text.replace('\n', "\r")];
            assert!(text.iter().all(|text| found(&[name.to_owned()], "application/octet-stream", text)), "{text:?}");
        }
        let names = ["invoice".to_owned()];
        let long = format!("{}\n[Desktop Entry]\nExec=xcalc\n", "# a comment\n".repeat(10_000));
        assert!(found(&names, "", &long));
        let name = format!("[Desktop Entry]\nName={}\n", "a".repeat(TEXT_MAX));
        assert!(found(&names, "", &format!("{name}Exec=xcalc\n")));
        assert!(!found(&names, "", &name.replace("[Desktop Entry]", "[Service]")), "long, and no entry");
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "A file that begins with [Desktop Entry] and\n[Desktop Entry]\nExec=xcalc\nis a shortcut.\n",
            "[Desktop Entry]\nis how a shortcut begins.\n",
            "[Desktop Entry]\nType=Directory\nName=Office\nIcon=folder\n",
            "[Desktop Entry]\nType=Directory\nName[de]=B\u{fc}ro\nIcon[$i]=folder\nComment[$=e\n",
            "[Unit]\nDescription=a\n[Service]\nExec=a\n[Desktop Entry]\nExec=a\n",
            "Exec=xcalc\n",
            "",
        ] {
            assert!(!found(&["notes.txt".to_owned()], "text/plain", text), "{text}");
        }
        assert!(!found(&[], "text/plain", "[Desktop Entry]\nExec=xcalc\n"), "the text of a mail");
    }
}
