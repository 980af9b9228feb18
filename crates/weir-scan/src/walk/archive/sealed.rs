//! Files that say that only some can read what they, or those beside them, hold.
//!
//! LibreOffice encrypts the members of a document one by one, and only its list of them says so; Pages, Numbers and Keynote put a file beside them.
//! A message that Microsoft's rights management protects comes as one file. Sources: OpenDocument 1.3, part 2, section 4.8; Microsoft,
//! *[MS-OXORMMS]*, section 2.1.4.

use super::super::{File, Oddity, Walk};
use crate::markup;

/// What such a message begins with, before it is packed.
const RIGHTS: &[u8] = b"\x76\xe8\x04\x60\xc4\x11\xe3\x86";

pub(super) fn told(walk: &mut Walk<'_>, file: &File<'_>) {
    if file.data.starts_with(RIGHTS) {
        walk.odd_here(Oddity::Sealed);
    }
    let named = |own: &str| {
        let ends = |name: &String| {
            let name = name.replace('\\', "/");
            let start = name.len().checked_sub(own.len());
            start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(own))
        };
        file.names.iter().any(ends)
    };
    let listed = || markup::tags(file.data).any(|tag| tag.is("encryption-data"));
    if (named("META-INF/manifest.xml") && listed()) || (file.in_archive && (named(".iwpv2") || named(".iwpv"))) {
        walk.odd_here(Oddity::Encrypted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files;
    use crate::walk::seen::Seen;

    fn odd(name: &str, data: &[u8]) -> Vec<Oddity> {
        let mut odd = Seen::of(name, data).odd;
        // A file may be looked at in more than one reading.
        odd.dedup();
        odd
    }

    #[test]
    fn documents_with_a_password_say_so() {
        let manifest = |inside: &str| {
            format!(
                "<?xml version=\"1.0\"?><manifest:manifest xmlns:manifest=\"urn:oasis:names:tc:opendocument:xmlns:manifest:1.0\">\
                 <manifest:file-entry manifest:full-path=\"content.xml\">{inside}</manifest:file-entry></manifest:manifest>"
            )
        };
        let locked = manifest("<manifest:encryption-data manifest:checksum=\"x\"/>");
        for (document, said) in [
            (test_files::zip("META-INF/manifest.xml", locked.as_bytes()), vec![Oddity::Encrypted]),
            (test_files::zip("META-INF/manifest.xml", manifest("").as_bytes()), vec![]),
            (test_files::zip("notes/encryption-data.xml", locked.as_bytes()), vec![]),
            (test_files::zip(".iwpv2", b"\x02\0\x01\0"), vec![Oddity::Encrypted]),
        ] {
            assert_eq!(odd("a.odt", &document), said);
        }
    }

    #[test]
    fn a_message_with_rights_is_for_its_reader() {
        assert_eq!(odd("message.rpmsg", &[RIGHTS, &[7; 200]].concat()), [Oddity::Sealed]);
        assert_eq!(odd("notes.txt", b"hello"), []);
    }
}
