//! Real files and messages: what is found, and where.

use crate::mail::{Member, attached, base64, eicar, examined, found, gzipped, member, zip};
use std::path::Path;
use weir_scan::budget::Limits;
use weir_scan::examine::{Examiner, Setup};
use weir_scan::test_files::compound;

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
fn padding_in_the_midst_of_base64_hides_nothing() {
    let mut data = zip(&[member("invoice.exe", b"x")]);
    data.resize(data.len().next_multiple_of(3) + 1, 0);
    let text = String::from_utf8(base64(&data)).unwrap();
    let message = |text: &str| {
        format!("Content-Type: application/zip; name=a.zip\r\nContent-Transfer-Encoding: base64\r\n\r\n{text}")
    };
    let whole = "forbidden the extension .exe: invoice.exe @ a.zip > invoice.exe";
    let found = |text: &str| found(&examined(message(text).as_bytes())).join("; ");
    assert_eq!(found(&text), whole);
    // Behind one, two and three characters, where some programs pass over it.
    for at in 1..4 {
        let padded = format!("{}{}{}", &text[..at], if at == 1 { "====" } else { "=" }, &text[at..]);
        assert!(found(&padded).contains(whole), "{padded}");
    }
    // An archive that ends with padding, and so much behind it that its end is out of sight.
    let ended = String::from_utf8(base64(&[b"A", data.as_slice()].concat())).unwrap() + &"A".repeat(100_000);
    assert!(found(&ended).contains(whole), "{}", found(&ended));
    // A mailing list's footer below is nothing.
    let footer = format!("{}\r\n-- \r\nThe list of all lists\r\n", text.trim_end());
    assert_eq!(found(&footer), whole);
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
fn a_zip_cannot_hide_members_from_its_directory() {
    let found = |data: &[u8]| found(&examined(&attached("x.zip", data))).join("; ");
    let (good, evil) = (zip(&[member("good.txt", b"x")]), zip(&[member("evil.js", b"y")]));
    let empty = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".as_slice();
    let unnamed = "forbidden a zip member that the directory does not name @ x.zip";
    let js = "forbidden the extension .js: evil.js @ x.zip > evil.js";
    // An empty end behind an archive: some readers see nothing, others the archive before.
    let said = found(&[&evil, empty].concat());
    assert!(said.contains("two ends of one zip archive") && said.contains(js), "{said}");
    // Two archives, one behind the other: readers of directories see the last, readers of streams the first.
    let said = found(&[evil.as_slice(), &good].concat());
    assert!(said.contains(unnamed) && said.contains(js), "{said}");
    // A member behind the last one that is named, and one before the first.
    let hidden = Member { listed: false, ..member("evil.js", b"y") };
    let said = found(&zip(&[member("good.txt", b"x"), hidden]));
    assert!(said.contains(unnamed) && said.contains(js), "{said}");
    let hidden = Member { listed: false, ..member("evil.js", b"y") };
    let said = found(&zip(&[hidden, member("good.txt", b"x")]));
    assert!(said.contains(unnamed) && said.contains(js), "{said}");
    // Behind the end, where a comment would be.
    let said = found(&[good.as_slice(), &evil[..40]].concat());
    assert!(said.contains(unnamed), "{said}");
    // A directory with more entries than it counts.
    let mut two = zip(&[member("good.txt", b"x"), member("evil.js", b"y")]);
    let end = two.len() - 22;
    (two[end + 8], two[end + 10]) = (1, 1);
    let said = found(&two);
    assert!(said.contains("names more members than it counts") && said.contains(js), "{said}");
}

#[test]
fn a_zip_is_found_wherever_it_begins_and_whatever_its_end_says() {
    let said = |data: &[u8]| found(&examined(&attached("notes.bin", data))).join("; ");
    let evil = zip(&[member("evil.js", b"y")]);
    let js = "forbidden the extension .js: evil.js @ notes.bin > evil.js";
    // Its beginning is missing, or not what it was.
    assert!(said(&evil[8..]).contains(js), "{}", said(&evil[8..]));
    let mut false_size = [b"Q", &evil[1..]].concat();
    let end = false_size.len() - 22;
    false_size[end + 12] += 1;
    assert!(said(&false_size).contains(js), "{}", said(&false_size));
    // It counts nothing and names something.
    let mut uncounted = [b"A", evil.as_slice()].concat();
    (uncounted[end + 9], uncounted[end + 11]) = (0, 0);
    assert!(said(&uncounted).contains(js), "{}", said(&uncounted));
    // Any number of false ends behind it.
    let ends = [b"A", evil.as_slice(), &b"PK\x05\x06".repeat(100)].concat();
    let both = said(&ends);
    assert!(both.contains(js) && both.contains("two ends of one zip archive"), "{both}");
}

#[test]
fn a_second_name_keeps_no_archive_closed() {
    // To a reader of messages an empty line ends the header.
    let data = zip(&[member("read\n\nme.txt", b"x"), member("invoice.exe", b"y")]);
    let message = String::from_utf8(attached("x.eml", &data)).unwrap();
    for name in ["x.zip", "x.eml"] {
        let message = message.replace("filename=\"x.eml\"", &format!("filename=\"{name}\""));
        let said = found(&examined(message.as_bytes())).join("; ");
        assert!(said.contains("the extension .exe: invoice.exe @ x.eml > invoice.exe"), "{said}");
    }
    let plain = [b"Content-Type: message/rfc822; name=x.zip\r\n\r\n".as_slice(), &data].concat();
    let said = found(&examined(&plain)).join("; ");
    assert!(said.contains("the extension .exe: invoice.exe @ x.zip > invoice.exe"), "{said}");
}

#[test]
fn an_archive_behind_something_else_is_not_clean() {
    let said = |name: &str, data: &[u8]| found(&examined(&attached(name, data))).join("; ");
    let none = "it cannot be read: the name of an archive, and none that we know";
    let behind = "it cannot be read: an archive behind something else";
    for (name, mark) in
        [("a.rar", &b"Rar!\x1a\x07\x01\0"[..]), ("a.7z", b"7z\xbc\xaf\x27\x1c"), ("a.cab", b"MSCF\0\0\0\0")]
    {
        assert_eq!(said(name, &[b"A", mark].concat()), format!("not scanned {behind} @ {name}"));
        let in_zip = [zip(&[member("a.txt", b"x")]).as_slice(), mark].concat();
        assert!(said(name, &in_zip).contains(behind), "{name}");
    }
    assert_eq!(said("a.rar", b"something"), format!("not scanned {none} @ a.rar"));
    assert_eq!(said("a.txt\0.zip", b"something"), format!("not scanned {none} @ a.txt·.zip"));
    let inner = zip(&[member("deep.tgz", b"something")]);
    assert_eq!(said("a.zip", &inner), format!("not scanned {none} @ a.zip > deep.tgz"));
    // A message in a message, written as it is, whose name is that of an archive.
    let named = b"Content-Type: message/rfc822; name=a.rar\r\n\r\nARar!\x1a\x07\x01\0";
    assert!(found(&examined(named)).join("; ").contains(behind));
}

#[test]
fn what_only_has_the_name_of_an_archive_passes() {
    assert!(is_clean(&attached("empty.zip", b"")));
    assert!(is_clean(&attached("empty.tar", &[0; 10240])));
    assert!(is_clean(&attached("really_a_zip.rar", &zip(&[member("a.txt", b"a")]))));
    assert!(is_clean(&attached("photos.zip", b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ")));
    assert!(is_clean(
        b"Content-Type: message/rfc822; name=\"Re: photos.zip\"\r\n\r\nSubject: Re: photos.zip\r\n\r\nthanks\r\n"
    ));
}

#[test]
fn usual_zips_are_not_odd() {
    // An archive in an archive, packed and not: its own end stands inside a member.
    let inner = zip(&[member("a.txt", b"a")]);
    assert!(is_clean(&attached("x.zip", &zip(&[member("inner.zip", &inner), member("b.txt", b"b")]))));
    assert!(is_clean(&attached("x.zip", &stored_zip("inner.zip", &inner))));
    let commented = [&inner[..inner.len() - 2], b"\x05\0hello"].concat();
    assert!(is_clean(&attached("x.zip", &commented)));
    assert!(is_clean(&attached("x.zip", &[inner.as_slice(), b"\r\n"].concat())));
}

/// One member that is not packed.
fn stored_zip(name: &str, data: &[u8]) -> Vec<u8> {
    let sizes = [[0; 4], (data.len() as u32).to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    let length = (name.len() as u16).to_le_bytes();
    let local =
        [b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0", sizes.as_slice(), &length, &[0; 2], name.as_bytes(), data].concat();
    let central =
        [b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0", sizes.as_slice(), &length, &[0; 16], name.as_bytes()].concat();
    let end = [
        b"PK\x05\x06\0\0\0\0\x01\0\x01\0".as_slice(),
        &(central.len() as u32).to_le_bytes(),
        &(local.len() as u32).to_le_bytes(),
        &[0; 2],
    ]
    .concat();
    [local, central, end].concat()
}

#[test]
fn a_part_that_two_programs_read_in_two_ways_is_refused() {
    let inner = "--x\r\nContent-Type: text/plain; name=evil.js\r\n\r\ny\r\n--x--\r\n";
    let unclosed = format!("Content-Type: multipart/mixed; name=\"a; boundary=x\r\n\r\n{inner}");
    let said = found(&examined(unclosed.as_bytes())).join("; ");
    assert!(said.contains("a quote or comment that does not end") && said.contains("evil.js"), "{said}");
    let long = attached(&format!("{}.pdf.exe", "a".repeat(2000)), b"x");
    let said = found(&examined(&long)).join("; ");
    assert!(said.contains("second extension .exe") && said.contains("a name of more than 1024 characters"), "{said}");
    let piece = b"Content-Type: message/partial; id=1; number=1; total=2\r\n\r\nhello\r\n";
    assert!(found(&examined(piece)).join("; ").contains("not scanned it cannot be read: a piece of a message"));
}

#[test]
fn no_boundary_hides_a_part() {
    let part = "Content-Type: text/plain; name=evil.js\r\n\r\ny\r\n";
    // A line that ends the parts for some programs only.
    for line in ["--b--x", "--bx"] {
        let message = format!(
            "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhi\r\n{line}\r\n--b\r\n{part}--b--\r\n"
        );
        let said = found(&examined(message.as_bytes())).join("; ");
        assert!(said.contains("a line that begins like its boundary") && said.contains("evil.js"), "{said}");
    }
    // A part behind the end.
    let message =
        format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhi\r\n--b--\r\n--b\r\n{part}--b--\r\n");
    let said = found(&examined(message.as_bytes())).join("; ");
    assert!(said.contains("a part behind its last boundary") && said.contains("evil.js"), "{said}");
    // A boundary that few programs read.
    for boundary in ["boundary*=us-ascii''b", "boundary*0=b", "boundary=\"b \""] {
        let message = format!("Content-Type: multipart/mixed; {boundary}\r\n\r\n--b\r\n{part}--b--\r\n");
        let said = found(&examined(message.as_bytes())).join("; ");
        assert!(said.contains("a part with a boundary") && said.contains("evil.js"), "{boundary}: {said}");
    }
    // One that never comes: the body is a file.
    let message =
        [b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--c\r\n\r\n".as_slice(), &eicar(), b"\r\n--c--\r\n"];
    let said = found(&examined(&message.concat())).join("; ");
    assert!(said.contains("a boundary that never comes") && said.contains("EICAR"), "{said}");
}

#[test]
fn what_is_not_opened_says_so() {
    let said = found(&examined(&attached("a.dat", b"MSWIM\0\0\0rest")));
    assert_eq!(said, ["not scanned a WIM image is not opened here @ a.dat"]);
    let said = found(&examined(&attached("a.dat", b"Rar!\x1a\x07\x01\0rest"))).join("; ");
    assert!(said.starts_with("not scanned it cannot be read: a RAR archive: ") && said.ends_with(" @ a.dat"), "{said}");
    let said = found(&examined(&attached("winmail.dat", b"\x78\x9f\x3e\x22\x01\0\x02\x0f\x80\x06\0\xff\0\0\0rest")));
    assert_eq!(said, ["not scanned it cannot be read: a TNEF file that breaks off @ winmail.dat"]);
}

#[test]
fn the_program_in_the_test_files_of_clamav_is_found_without_clamav() {
    for name in [
        "clam.7z",
        "clam.arj",
        "clam.bz2.zip",
        "clam.cab",
        "clam.exe.bz2",
        "clam.exe.rtf",
        "clam.ole.doc",
        "clam.pdf",
        "clam.ppt",
        "clam.tar.gz",
        "clam.tnef",
        "clam.zip",
    ] {
        let path = Path::new(weir_peers::TEST_FILES).join(name);
        let said = found(&examined(&attached("a.dat", &std::fs::read(&path).unwrap()))).join("; ");
        assert!(said.contains("forbidden") && (said.contains("program") || said.contains(".exe")), "{name}: {said}");
    }
}

#[test]
fn every_file_in_a_text_is_found() {
    let message = b"Subject: x\r\n\r\nbegin 644 a.txt\n#0V%T\n`\nend\nbegin 644 b.exe\n#0V%T\n`\nend\n";
    assert_eq!(found(&examined(message)), ["forbidden the extension .exe: b.exe @ b.exe"]);
    let quoted = b"Content-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nbegin=20644 b.exe\n#0V%T\n`\nend\n";
    assert_eq!(found(&examined(quoted)), ["forbidden the extension .exe: b.exe @ b.exe"]);
}

#[test]
fn reasons_are_short_and_plain() {
    let name: &'static str = Box::leak(format!("a\u{1b}[2J\u{202e}{}.txt", "x".repeat(5000)).into_boxed_str());
    let mut odd = member("b.txt", b"x");
    odd.local_name = Some(name);
    let report = examined(&attached("x.zip", &zip(&[odd])));
    let said = found(&report).join("; ");
    assert!(said.contains("two names in a zip archive: b.txt and a·[2J·xxx"), "{said}");
    for finding in &report.findings {
        let words = format!("{:?} {}", finding.outcome, finding.place);
        assert!(words.chars().count() < 1200 && !words.contains("u{1b}") && !words.contains('\u{202e}'), "{words}");
    }
}

#[test]
fn a_stream_of_a_compound_file_that_does_not_fit_is_told() {
    let document = compound(&[("/big", &vec![1; 3 << 20]), ("/small", b"x")]);
    let limits = Limits { held_bytes: 9 << 20, bytes: 8 << 20, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let said = found(&Examiner::new(setup).unwrap().examine(&attached("a.doc", &document))).join("; ");
    assert!(said.is_empty(), "{said}");
    let limits = Limits { bytes: 5 << 20, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let said = found(&Examiner::new(setup).unwrap().examine(&attached("a.doc", &document))).join("; ");
    assert!(said.contains("not scanned unpacks to more than 5 MiB"), "{said}");
}

#[test]
fn folders_without_end_in_a_compound_file_are_told() {
    let path = format!("{}/x", "/folder".repeat(20));
    let said = found(&examined(&attached("a.doc", &compound(&[(&path, b"x")])))).join("; ");
    assert!(said.contains("not scanned more than 16 archives inside each other"), "{said}");
}

#[test]
fn a_message_that_is_too_large_is_not_read() {
    let limits = Limits { message_bytes: 1000, ..Limits::default() };
    let mut examiner = Examiner::new(Setup { limits, ..Setup::default() }).unwrap();
    let large = [b"Subject: x\r\n\r\n".as_slice(), &eicar(), &vec![b'x'; 1000]].concat();
    let report = examiner.examine(&large);
    assert_eq!(report.findings.len(), 2);
    assert!(
        found(&report).iter().all(|finding| finding.starts_with("not scanned the message is larger")),
        "{report:?}"
    );
    assert!(examiner.too_large(1000).is_none() && examiner.too_large(u64::MAX).is_some());
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

fn tar(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.extend_from_slice(data);
    header.resize(header.len().next_multiple_of(512) + 1024, 0);
    header
}
