//! Entries for fuzzers: every plugin that reads formats. They panic if a promise is broken.
//!
//! The tests run them on stable with fixed seeds, `fuzz/` with coverage.

use crate::findings::Memory;
use crate::look;
use crate::sample::Sample;
use weir_lab::job::Report;

/// Plugins that need nothing but the sample.
const PLUGINS: [&str; 5] = ["archive", "elf-pe", "identify", "office-pdf", "strings"];

/// All plugins on one file.
pub fn plugins(data: &[u8]) {
    let sample = Sample::of_bytes("sample.bin", data);
    for plugin in PLUGINS {
        let mut shelf = Memory::default();
        let report = look(plugin, &sample, &mut shelf).unwrap_or_else(|error| panic!("{plugin}: {error}"));
        assert!(report.success, "{plugin}: {}", report.error_message);
        let text = serde_json::to_vec(&report).unwrap_or_default();
        assert!(text.len() < 8 << 20, "{plugin} said {} bytes", text.len());
        assert!(Report::read(&text).is_ok(), "{plugin} left a report that is none");
        let files = report.artifacts.iter().filter(|artifact| artifact.file.is_some()).count();
        assert_eq!(files, shelf.0.len(), "{plugin}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use proptest::prelude::*;

    /// What files of all kinds begin with.
    const BEGINNINGS: [&[u8]; 10] = [
        b"",
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0",
        b"MZ\0\0",
        b"PK\x03\x04",
        b"%PDF-1.7\n1 0 obj << /Type /ObjStm /Filter /FlateDecode >> stream\n",
        b"{\\rtf1{\\object\\objdata ",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        b"7z\xbc\xaf\x27\x1c\0\x04",
        b"MSCF\0\0\0\0",
        b"\x1f\x8b\x08\0",
    ];

    fn wholes() -> Vec<Vec<u8>> {
        let source = "Sub AutoOpen()\r\nShell \"calc\"\r\nEnd Sub\r\n";
        vec![
            fixtures::macro_doc(source),
            fixtures::macro_docm(source),
            fixtures::pdf(true),
            fixtures::rtf(),
            fixtures::packed_elf(),
            fixtures::pe(&["WinExec", "ExitProcess"], b"tail"),
            fixtures::zip(&[("a", b"aaaa"), ("b/c", b"bbbb")]),
            fixtures::eicar_in_locked_zip(),
            fixtures::packaged_object("a.exe", b"MZ\x90\0"),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn garbage_behind_every_beginning(kind in 0..BEGINNINGS.len(), rest in proptest::collection::vec(any::<u8>(), 0..2000)) {
            plugins(&[BEGINNINGS[kind], &rest].concat());
        }

        #[test]
        fn damaged_and_cut_files(
            which in 0_usize..9,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            cut in any::<prop::sample::Index>(),
            whole in any::<bool>(),
        ) {
            let mut data = wholes().swap_remove(which);
            for (place, value) in changes {
                let place = place.index(data.len());
                data[place] = value;
            }
            if !whole {
                data.truncate(cut.index(data.len()));
            }
            plugins(&data);
        }
    }

    #[test]
    fn long_runs_of_what_begins_something() {
        for piece in [
            "/JS(",
            "<<>>stream\n",
            "endstream",
            "http://",
            "a.",
            "::",
            "[.]",
            "\\objdata",
            "%PDF-1.7",
            "1.2.3.4 ",
            "C:\\a b\\",
        ] {
            plugins(piece.repeat(400_000 / piece.len()).as_bytes());
            plugins(format!("%PDF-{}", piece.repeat(400_000 / piece.len())).as_bytes());
        }
    }
}
