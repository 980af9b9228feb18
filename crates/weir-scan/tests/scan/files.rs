//! Real files and messages: what is found, and where.

use crate::mail::{Member, attached, base64, eicar, examined, found, gzipped, member, zip};
use std::path::Path;

const TESTFILES: &str = "/usr/share/clamav-testfiles";

fn testfile(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(TESTFILES).join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}: is clamav-testfiles installed? Run `make setup`"))
}

fn is_clean(message: &[u8]) -> bool {
    let report = examined(message);
    let clean = found(&report).is_empty();
    assert_eq!(report.findings.len() == 2, clean, "{report:?}");
    clean
}

#[test]
fn usual_mail_is_clean() {
    assert!(is_clean(b"Subject: hi\r\n\r\nhello\r\n"));
    assert!(is_clean(&attached("notes.txt", b"some notes")));
    assert!(is_clean(&attached("notes.zip", &zip(&[member("a.txt", b"a"), member("b/c.pdf", b"%PDF-1.4")]))));
    assert!(is_clean(&attached("notes.txt.gz", &gzipped(b"some notes"))));
    assert!(is_clean(b""));
}

#[test]
fn eicar_is_found_in_every_wrapping() {
    let inner = zip(&[member("deep/eicar.txt", &eicar())]);
    let tar = tar("eicar.txt", &eicar());
    for (name, data, place) in [
        ("eicar.txt", eicar(), "eicar.txt"),
        ("a.zip", inner.clone(), "a.zip > deep/eicar.txt"),
        ("b.zip", zip(&[member("a.zip", &inner)]), "b.zip > a.zip > deep/eicar.txt"),
        ("a.tgz", gzipped(&tar), "a.tgz > a.tar > eicar.txt"),
        ("mail.eml", attached("eicar.txt", &eicar()), "mail.eml > eicar.txt"),
        (
            "mail.zip",
            zip(&[member("mail.eml", &attached("x.zip", &inner))]),
            "mail.zip > mail.eml > x.zip > deep/eicar.txt",
        ),
    ] {
        let report = examined(&attached(name, &data));
        assert_eq!(found(&report), [format!("infected EICAR_test_file @ {place}")], "{name}");
    }
}

#[test]
fn eicar_in_the_text_itself_and_in_odd_encodings() {
    let text = eicar();
    let printable = |message: Vec<u8>| found(&examined(&message));
    let plain = [b"Subject: x\r\n\r\n".as_slice(), &text].concat();
    assert_eq!(printable(plain), ["infected EICAR_test_file @ "]);
    let header = "Content-Transfer-Encoding: 7bit\r\nContent-Transfer-Encoding: base64\r\nContent-Type: text/plain; name=a.txt\r\n\r\n";
    assert_eq!(printable([header.as_bytes(), &base64(&text)].concat()), ["infected EICAR_test_file @ a.txt"]);
    let forwarded = [
        b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n".as_slice(),
        &base64(&attached("e.txt", &text)),
    ];
    assert_eq!(printable(forwarded.concat()), ["infected EICAR_test_file @ e.txt"]);
}

#[test]
fn forbidden_names_at_any_depth() {
    let inside = zip(&[member("readme.txt", b"x"), member("invoice.pdf.exe", b"x")]);
    for (message, reason) in [
        (attached("invoice.pdf.exe", b"x"), "forbidden a second extension .exe: invoice.pdf.exe @ invoice.pdf.exe"),
        (
            attached("invoice.zip", &inside),
            "forbidden a second extension .exe: invoice.pdf.exe @ invoice.zip > invoice.pdf.exe",
        ),
        (attached("photo.jpg", b"MZ\x90\0"), "forbidden a Windows program named photo.jpg @ photo.jpg"),
        (attached("photo.jpg", &inside), "forbidden a zip archive named photo.jpg @ photo.jpg"),
    ] {
        assert_eq!(found(&examined(&message))[0], reason);
    }
}

#[test]
fn a_zip_that_shows_two_things_is_refused() {
    let one = |change: fn(&mut Member)| {
        let mut odd = member("a.txt", b"hello");
        change(&mut odd);
        found(&examined(&attached("x.zip", &zip(&[member("first.txt", b"x"), odd, member("last.txt", b"y")]))))
            .join("; ")
    };
    assert_eq!(
        one(|m| m.local_name = Some("b.exe")),
        "forbidden two names in a zip archive: a.txt and b.exe @ x.zip > a.txt; forbidden the extension .exe: b.exe @ x.zip > b.exe"
    );
    assert_eq!(one(|m| m.size = Some(3)), "forbidden a zip member whose size is false @ x.zip > a.txt");
    assert_eq!(one(|m| m.listed = false), "forbidden a zip member that the directory does not name @ x.zip");
    assert_eq!(one(|m| m.flags = 1), "not scanned it has a password @ x.zip > a.txt");
}

#[test]
fn a_zip_behind_something_else_is_opened() {
    let hidden = [b"\x89PNG\r\n\x1a\n....".as_slice(), &zip(&[member("evil.js", b"x")])].concat();
    assert_eq!(
        found(&examined(&attached("photo.png", &hidden))),
        ["forbidden the extension .js: evil.js @ photo.png > evil.js"]
    );
}

#[test]
fn the_formats_of_the_test_files_are_opened() {
    for (name, inside) in [
        ("clam.zip", "clam.exe"),
        ("clam.7z", "clam.exe"),
        ("clam.cab", "clam.exe"),
        ("clam.tar.gz", "clam.exe"),
        ("clam.bz2.zip", "clam.exe"),
    ] {
        let findings = found(&examined(&attached(name, &testfile(name))));
        assert!(
            findings.iter().any(|finding| finding.starts_with("forbidden") && finding.ends_with(inside)),
            "{name}: {findings:?}"
        );
    }
    let findings = found(&examined(&attached("clam.ole.doc", &testfile("clam.ole.doc"))));
    assert!(!findings.is_empty(), "an embedded program is not found");
}

#[test]
fn a_document_with_a_macro_that_drops_is_found() {
    let source =
        b"Attribute VB_Name = \"x\"\r\nSub AutoOpen()\r\nURLDownloadToFile 0, u, f, 0, 0\r\nShell (f)\r\nEnd Sub\r\n";
    let document =
        compound(&[("/Macros/VBA/_VBA_PROJECT", b"\xcc\x61"), ("/Macros/VBA/ThisDocument", &packed_macro(source))]);
    let docm = zip(&[member("word/document.xml", b"<w/>"), member("word/vbaProject.bin", &document)]);
    for (name, data) in [("report.doc", &document), ("report.docm", &docm)] {
        let report = examined(&attached(name, data));
        let findings = found(&report);
        assert!(findings.len() == 1 && findings[0].starts_with("infected Macro_dropper @ "), "{findings:?}");
        assert!(report.suspicious.iter().any(|why| why.contains("a document with macros")), "{:?}", report.suspicious);
    }
}

/// Sixteen plain tokens a flag byte: packed, and no shorter.
fn packed_macro(source: &[u8]) -> Vec<u8> {
    let tokens: Vec<u8> = source.chunks(8).flat_map(|eight| [&[0][..], eight].concat()).collect();
    let header = 0xb000 | (tokens.len() as u16 - 1);
    [b"some code".as_slice(), &[1], &header.to_le_bytes(), &tokens].concat()
}

fn compound(streams: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut file = cfb::CompoundFile::create(std::io::Cursor::new(Vec::new())).unwrap();
    for (path, data) in streams {
        file.create_storage_all(Path::new(path).parent().unwrap()).unwrap();
        file.create_stream(path).unwrap().write_all(data).unwrap();
    }
    file.flush().unwrap();
    file.into_inner().into_inner()
}

fn tar(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    header.extend_from_slice(data);
    header.resize(header.len().next_multiple_of(512) + 1024, 0);
    header
}
