//! Files in wrappings that look closed or are not known as archives: OpenPGP and CMS that are not encrypted, files of a Macintosh, files that
//! are written as text.

use super::carriers::{opaque_signed, program, tagged};
use super::expected::{Bad, End, bad};
use crate::mail::{attached, base64, deflated};

const SCRIPT: &[u8] = b"WScript.Echo(1)\r\n";
const HEAD: &str = "From: Ann <ann@a.example>\r\nTo: bob@b.example\r\nSubject: the invoice\r\nMIME-Version: 1.0\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [open_pgp(), locked_pgp(), cms(), macintosh(), written_as_text(), mail_files(), unnamed(), closed()]
        .into_iter()
        .flatten()
        .collect()
}

fn text(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

/// A packet of OpenPGP with a long length.
fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[0xc0 | tag, 0xff][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

pub(crate) fn literal(name: &str, data: &[u8]) -> Vec<u8> {
    packet(11, &[&[b'b', name.len() as u8][..], name.as_bytes(), &[0; 4], data].concat())
}

pub(crate) fn armoured(packets: &[u8]) -> String {
    format!("-----BEGIN PGP MESSAGE-----\r\nComment: x\r\n\r\n{}=abcd\r\n-----END PGP MESSAGE-----\r\n", text(packets))
}

fn zlib(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(data).unwrap();
    packer.finish().unwrap()
}

fn bzip2(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packer.write_all(data).unwrap();
    packer.finish().unwrap()
}

fn open_pgp() -> Vec<Bad> {
    let plain = literal("run.exe", &program());
    let signed =
        [packet(4, b"\x03\0\x08\x01keykeyke\x01"), literal("run.exe", &program()), packet(2, b"\x04")].concat();
    let packed = |algorithm: u8, data: &[u8]| packet(8, &[&[algorithm][..], data].concat());
    // As GnuPG packs: an old packet that goes on to the end.
    let gnupg = [b"\xa3\x01".as_slice(), &deflated(&plain)].concat();
    let partial = {
        let body = [b"b\x07run.exe\0\0\0\0".as_slice(), &program()].concat();
        [b"\xcb\xe9".as_slice(), &body[..512], &[(body.len() - 512) as u8], &body[512..]].concat()
    };
    let forms = [
        ("a literal", plain.clone()),
        ("signed", signed),
        ("deflated", packed(1, &deflated(&plain))),
        ("packed by zlib", packed(2, &zlib(&plain))),
        ("packed by bzip2", packed(3, &bzip2(&plain))),
        ("packed in itself", packed(0, &packed(2, &zlib(&plain)))),
        ("packed as GnuPG does it", gnupg),
        ("in pieces", partial),
    ];
    let forbidden = |name: &str, message: Vec<u8>| bad("OpenPGP", name, message, &[End::Forbidden], "run.exe");
    let mut out = Vec::new();
    for (name, packets) in &forms {
        let armour = armoured(packets);
        out.push(forbidden(name, format!("{HEAD}Content-Type: text/plain\r\n\r\n{armour}").into_bytes()));
        let quoted = format!("{HEAD}Content-Type: text/plain\r\n\r\nHello,\r\n\r\n{armour}\r\nAnn\r\n");
        out.push(forbidden(name, quoted.into_bytes()));
        out.push(forbidden(name, attached("document.asc", armour.as_bytes())));
        out.push(forbidden(name, attached("document.gpg", packets)));
        out.push(forbidden(name, attached("document.dat", packets)));
        let mime = format!(
            "{HEAD}Content-Type: multipart/encrypted; protocol=\"application/pgp-encrypted\"; boundary=e\r\n\r\n--e\r\nContent-Type: application/pgp-encrypted\r\n\r\nVersion: 1\r\n\r\n\
             --e\r\nContent-Type: application/octet-stream; name=\"encrypted.asc\"\r\n\r\n{armour}--e--\r\n"
        );
        out.push(forbidden(name, mime.into_bytes()));
    }
    let mail = attached("run.exe", &program());
    let entity = armoured(&packed(2, &zlib(&literal("", &mail))));
    out.push(forbidden("mail in a literal", attached("encrypted.asc", entity.as_bytes())));
    let named = |inner: &str, outer: &str| attached(outer, &packed(1, &deflated(&literal(inner, SCRIPT))));
    out.push(bad(
        "OpenPGP",
        "the name outside",
        named("", "run.js.gpg"),
        &[End::Forbidden],
        "the extension .js: run.js",
    ));
    out.push(bad(
        "OpenPGP",
        "the name inside",
        named("run.js", "a.pgp"),
        &[End::Forbidden],
        "the extension .js: run.js",
    ));
    let other = armoured(&plain).replace("PGP MESSAGE", "PGP ARMORED FILE");
    out.push(forbidden("under another title", attached("key.asc", other.as_bytes())));
    out
}

/// What is really encrypted: its name is judged, and a password is one.
fn locked_pgp() -> Vec<Bad> {
    let for_reader = [packet(1, &[3; 100]), packet(18, &[1; 200])].concat();
    let by_password = [packet(3, b"\x04\x09\x03\x02saltsalt\xff"), packet(18, &[1; 200])].concat();
    vec![
        bad(
            "OpenPGP",
            "a locked program",
            attached("run.exe.gpg", &for_reader),
            &[End::Forbidden],
            "the extension .exe: run.exe",
        ),
        bad(
            "OpenPGP",
            "a locked script",
            attached("run.js.asc", armoured(&for_reader).as_bytes()),
            &[End::Forbidden],
            "run.js",
        ),
        bad("OpenPGP", "a password", attached("invoice.gpg", &by_password), &[End::NotOpened], "it has a password"),
        bad(
            "OpenPGP",
            "no packets",
            attached("invoice.gpg", b"nothing of the kind"),
            &[End::NotOpened],
            "none that we know",
        ),
    ]
}

fn smime_packed(message: &[u8]) -> Vec<u8> {
    let data = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
    let content = [data.as_slice(), &tagged(0xa0, &tagged(0x04, &zlib(message)))].concat();
    let algorithm = tagged(0x30, b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x03\x08");
    let fields = [b"\x02\x01\0".as_slice(), &algorithm, &tagged(0x30, &content)].concat();
    let kind = b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01\x09";
    tagged(0x30, &[kind.as_slice(), &tagged(0xa0, &tagged(0x30, &fields))].concat())
}

fn cms() -> Vec<Bad> {
    let signed = opaque_signed(&program());
    let pem = format!("-----BEGIN PKCS7-----\r\n{}-----END PKCS7-----\r\n", text(&signed));
    let mail = attached("run.exe", &program());
    let forbidden = |name: &str, message: Vec<u8>, says| bad("CMS", name, message, &[End::Forbidden], says);
    let smime = |kind: &str, data: &[u8]| {
        format!("{HEAD}Content-Type: application/pkcs7-mime; smime-type={kind}; name=\"smime.p7z\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}", text(data)).into_bytes()
    };
    // Another type of content than everybody writes.
    let other = {
        let at =
            signed.windows(11).rposition(|window| window == b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01").unwrap();
        let mut other = signed.clone();
        other[at + 10] = 0x55;
        other
    };
    vec![
        forbidden("packed mail", smime("compressed-data", &smime_packed(&mail)), "run.exe"),
        forbidden("packed mail with a name", attached("smime.p7z", &smime_packed(&mail)), "run.exe"),
        forbidden("a program", attached("fattura.pdf.p7m", &signed), "fattura.pdf.p7m > fattura.pdf"),
        forbidden("in PEM", attached("fattura.pdf.p7m", pem.as_bytes()), "a Windows program"),
        forbidden("in PEM, without a name for it", attached("fattura.txt", pem.as_bytes()), "a Windows program"),
        forbidden("in base64", attached("fattura.xml.p7m", text(&signed).as_bytes()), "a Windows program"),
        forbidden("a script", attached("fattura.js.p7m", &opaque_signed(SCRIPT)), "the extension .js: fattura.js"),
        forbidden("signed twice", attached("fattura.js.p7m.p7m", &opaque_signed(&opaque_signed(SCRIPT))), "fattura.js"),
        forbidden("of another type", attached("fattura.pdf.p7m", &other), "a Windows program"),
        forbidden("sealed", attached("fattura.exe.p7m", &super::carriers::sealed()), "the extension .exe: fattura.exe"),
        bad("CMS", "nothing of it", attached("fattura.p7m", b"no signature"), &[End::NotOpened], "none that we know"),
    ]
}

fn macintosh() -> Vec<Bad> {
    let single = |name: &[u8], data: &[u8]| {
        let mut out = [b"\0\x05\x16\0\0\x02\0\0".as_slice(), &[0; 16], &[0, 2]].concat();
        let begins = 50;
        for entry in [[3, begins, name.len() as u32], [1, begins + name.len() as u32, data.len() as u32]] {
            out.extend(entry.iter().flat_map(|number| number.to_be_bytes()));
        }
        [out.as_slice(), name, data].concat()
    };
    let binary = |name: &[u8], data: &[u8]| {
        let mut out = [&[0, name.len() as u8][..], name].concat();
        out.resize(83, 0);
        out.extend((data.len() as u32).to_be_bytes());
        out.resize(128, 0);
        out.extend(data);
        out.resize(out.len().next_multiple_of(128), 0);
        out
    };
    let forbidden =
        |name: &str, data: &[u8], says| bad("Macintosh", name, attached("photo", data), &[End::Forbidden], says);
    vec![
        forbidden("a script in AppleSingle", &single(b"run.js", SCRIPT), "the extension .js: run.js"),
        forbidden("a program in AppleSingle", &single(b"run", &program()), "a Windows program"),
        forbidden("a script in MacBinary", &binary(b"run.js", SCRIPT), "the extension .js: run.js"),
        forbidden("a program in MacBinary", &binary(b"run", &program()), "a Windows program"),
    ]
}

/// With an alphabet, of which the first letter is a zero.
fn lines(name: &str, data: &[u8], alphabet: &[u8]) -> String {
    let letter = |value: usize| alphabet[value & 63] as char;
    let mut out = format!("begin 644 {name}\r\n");
    for line in data.chunks(45) {
        out.push(letter(line.len()));
        for group in line.chunks(3) {
            let bits =
                group.iter().fold(0usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
            out.extend((0..4).map(|place| letter(bits >> (18 - 6 * place))));
        }
        out += "\r\n";
    }
    out.push(letter(0));
    out + "\r\nend\r\n"
}

fn written_as_text() -> Vec<Bad> {
    let uu: Vec<u8> = (32..96).collect();
    let xx = b"+-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let forbidden = |name: &str, content: String, says| {
        bad("written as text", name, attached(name, content.as_bytes()), &[End::Forbidden], says)
    };
    vec![
        forbidden("a.uue", lines("run.js", SCRIPT, &uu), "the extension .js: run.js"),
        forbidden("b.uue", lines("photo.dat", &program(), &uu), "a Windows program"),
        forbidden("a.uu", lines("run.js", SCRIPT, &uu), "the extension .js: run.js"),
        forbidden("a.xxe", lines("run.js", SCRIPT, xx), "the extension .js: run.js"),
        forbidden("b.xxe", lines("photo.dat", &program(), xx), "a Windows program"),
        forbidden("a.b64", text(&program()), "a Windows program"),
        forbidden("run.js.b64", text(SCRIPT), "the extension .js: run.js"),
        bad("written as text", "c.uue", attached("c.uue", b"(nothing)"), &[End::NotOpened], "none that we know"),
    ]
}

fn mail_files() -> Vec<Bad> {
    let mail = String::from_utf8(attached("run.js", SCRIPT)).unwrap();
    let other = format!("{HEAD}\r\nhello\r\n");
    let forbidden = |name: &str, content: String| {
        bad("mail files", name, attached(name, content.as_bytes()), &[End::Forbidden], "the extension .js: run.js")
    };
    vec![
        forbidden("1.emlx", format!("{}\n{mail}<?xml version=\"1.0\"?><plist/>", mail.len())),
        forbidden("a.mim", mail.clone()),
        forbidden(
            "all.mbox",
            format!("From ann Tue Nov 17 10:00:00 2026\r\n{other}\r\nFrom ann Tue Nov 17 10:00:00 2026\r\n{mail}"),
        ),
    ]
}

/// Files that have no name where names stand.
fn unnamed() -> Vec<Bad> {
    let message = |header: &str| {
        let body = text(b"x=1\r\n");
        format!("{HEAD}Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n\r\nhi\r\n--B\r\n{header}\r\nContent-Transfer-Encoding: base64\r\n\r\n{body}--B--\r\n").into_bytes()
    };
    let types = [
        ("application/x-javascript", ".js"),
        ("text/javascript", ".js"),
        ("text/vbscript", ".vbs"),
        ("application/x-bat", ".bat"),
        ("application/hta", ".hta"),
        ("application/x-msdownload", ".exe"),
    ];
    let mut out = Vec::new();
    for (kind, says) in types {
        for more in ["", "\r\nContent-Disposition: attachment", "; name=invoice"] {
            let header = format!("Content-Type: {kind}{more}");
            out.push(bad("no name", &header, message(&header), &[End::Forbidden], says));
        }
    }
    let attachment = "Content-Type: application/octet-stream\r\nContent-Disposition: attachment\r\n";
    for field in [
        "Content-Location: run.js",
        "Content-Location: =?utf-8?Q?run=2Ejs?=",
        "Content-Location: https://a.example/x/run.js?y=1",
        "Content-Description: run.js",
        "Content-ID: <run.js>",
    ] {
        out.push(bad("no name", field, message(&format!("{attachment}{field}")), &[End::Forbidden], ".js: run.js"));
    }
    for name in ["'run.js'", "run%2Ejs", "run.%6a%73"] {
        let header = format!("Content-Type: application/octet-stream; name=\"{name}\"");
        out.push(bad("no name", name, message(&header), &[End::Forbidden], ".js: run.js"));
    }
    out
}

fn closed() -> Vec<Bad> {
    let marks: [(&str, &[u8]); 6] = [
        ("a.alz", b"ALZ\x01\x0a\0\0\0BLZ\x01"),
        ("a.egg", b"EGGA\0\x01\0\0\0\0"),
        ("a.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7"),
        ("a.sit", b"SIT!\0\x01\0\0\0\0rLau\0\0"),
        ("a.zoo", b"ZOO 2.10 Archive.\x1a\0\0\xdc\xa7\xc4\xfd\0\0"),
        ("a.xar", b"xar!\0\x1c\0\x01\0\0"),
    ];
    let mut out = Vec::new();
    for (name, mark) in marks {
        let data = [mark, &program()].concat();
        out.push(bad("closed", name, attached(name, &data), &[End::NotOpened], "not opened here"));
        out.push(bad("closed", name, attached("renamed.dat", &data), &[End::NotOpened], "not opened here"));
    }
    for name in ["b.alz", "b.egg", "b.lz4", "b.sitx"] {
        out.push(bad("closed", name, attached(name, b"something"), &[End::NotOpened], "the name of an archive"));
    }
    out
}
