//! Files that carry others, each written by hand with the member given.

use crate::mail::{base64, deflated, gzipped, member, zip};
use weir_scan::test_files;

/// A program as far as anybody looks: its mark, and a header that is mostly empty.
pub(crate) fn program() -> Vec<u8> {
    let mut program = b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff\0\0".to_vec();
    program.resize(0x3c, 0);
    program.extend(0x80u32.to_le_bytes());
    program.extend(
        b"\x0e\x1f\xba\x0e\0\xb4\x09\xcd\x21\xb8\x01\x4c\xcd\x21This program cannot be run in DOS mode.\r\r\n$",
    );
    program.resize(0x80, 0);
    program.extend(b"PE\0\0\x4c\x01\x01\0");
    program.resize(512, 0);
    program
}

/// A shortcut.
pub(crate) fn shortcut() -> Vec<u8> {
    let mut data = b"L\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0\x46".to_vec();
    data.resize(120, 0);
    data
}

pub(crate) fn leaked(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

pub(crate) fn zipped(name: &str, data: &[u8]) -> Vec<u8> {
    zip(&[member(leaked(name), data)])
}

/// A PDF that carries a file, packed or not.
pub(crate) fn pdf(name: &str, data: &[u8], packed: bool) -> Vec<u8> {
    let (filter, body) = match packed {
        true => {
            use std::io::Write;
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(data).unwrap();
            ("/Filter/FlateDecode", packer.finish().unwrap())
        }
        false => ("", data.to_vec()),
    };
    let head = format!(
        "%PDF-1.7\n1 0 obj<</Type/Catalog/Names<</EmbeddedFiles<</Names[(a) 2 0 R]>>>>>>endobj\n\
         2 0 obj<</Type/Filespec/F({name})/UF({name})/EF<</F 3 0 R>>>>endobj\n3 0 obj<</Type/EmbeddedFile{filter}/Length {}>>stream\r\n",
        body.len()
    );
    [head.as_bytes(), &body, b"\r\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF"].concat()
}

/// A calendar with an attached file.
pub(crate) fn calendar(name: &str, data: &[u8]) -> Vec<u8> {
    let text: Vec<u8> = base64(data).into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let lines: Vec<String> = text.chunks(70).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nSUMMARY:Meeting\r\nATTACH;FMTTYPE=application/octet-stream;\r\n \
         X-FILENAME=\"{name}\";ENCODING=BASE64;VALUE=BINARY:\r\n {}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
        lines.join("\r\n ")
    )
    .into_bytes()
}

pub(crate) fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[tag, 0x84][..], &length, content].concat()
}

/// A message signed with its content inside the signature; nobody here checks the signature.
pub(crate) fn opaque_signed(message: &[u8]) -> Vec<u8> {
    let data = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
    let content = [data.as_slice(), &tagged(0xa0, &tagged(0x04, message))].concat();
    let signed = [b"\x02\x01\x01".as_slice(), &tagged(0x31, &[]), &tagged(0x30, &content), &tagged(0x31, &[])].concat();
    let kind = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
    tagged(0x30, &[kind.as_slice(), &tagged(0xa0, &tagged(0x30, &signed))].concat())
}

/// A message sealed for its reader.
pub(crate) fn sealed() -> Vec<u8> {
    let kind = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x03";
    tagged(0x30, &[kind.as_slice(), &tagged(0xa0, &tagged(0x30, &[0x5a; 300]))].concat())
}

/// A section of OneNote with a file.
pub(crate) fn note(data: &[u8]) -> Vec<u8> {
    let mut out = b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3".to_vec();
    out.resize(1024, 0);
    out.extend(b"\xe7\x16\xe3\xbd\x65\x26\x11\x45\xa4\xc4\x8d\x4d\x0b\x7a\x9e\xac");
    out.extend((data.len() as u64).to_le_bytes());
    out.extend([0; 12]);
    out.extend(data);
    out
}

/// RTF with an object.
pub(crate) fn rtf(data: &[u8]) -> Vec<u8> {
    let digits: String = data.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("{{\\rtf1 Hello {{\\object\\objemb{{\\*\\objdata {digits}}}}}}}").into_bytes()
}

/// A document of today's Office formats.
pub(crate) fn document(pieces: &[(&str, &str)]) -> Vec<u8> {
    let mut members = vec![member("[Content_Types].xml", b"<?xml version=\"1.0\"?><Types/>")];
    members.extend(pieces.iter().map(|(name, text)| member(leaked(name), text.as_bytes())));
    zip(&members)
}

/// Every archive that Weir opens, with one member.
pub(crate) fn archives(name: &str, data: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let bzip2 = {
        use std::io::Write;
        let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        packer.write_all(data).unwrap();
        packer.finish().unwrap()
    };
    vec![
        ("a.zip", zipped(name, data)),
        ("stored.zip", test_files::zip(name, data)),
        ("a.tar", test_files::tar(name, data)),
        ("a.tgz", gzipped(&test_files::tar(name, data))),
        (leaked(&format!("{name}.gz")), gzipped(data)),
        (leaked(&format!("{name}.bz2")), bzip2),
        ("a.rar", test_files::rar(name, data)),
        ("renamed.dat", test_files::rar(name, data)),
        ("rar in zip.zip", zipped("a.rar", &test_files::rar(name, data))),
        ("a.arj", test_files::arj(name, data)),
        ("a.lzh", test_files::lha(name, data)),
        ("winmail.dat", test_files::tnef(name, data)),
        ("disc.dat", test_files::iso(name, data)),
        ("a.pdf", pdf(name, data, true)),
        ("plain.pdf", pdf(name, data, false)),
        ("meeting.ics", calendar(name, data)),
        ("zip in zip.zip", zipped("inner.zip", &zipped(name, data))),
        ("tar in zip.zip", zipped("inner.tar", &test_files::tar(name, data))),
        ("zip in lzh.lzh", test_files::lha("inner.zip", &zipped(name, data))),
        ("zip in tnef.dat", test_files::tnef("inner.zip", &zipped(name, data))),
        (
            "document.docx",
            zip(&[member("[Content_Types].xml", b"<?xml?>"), member(leaked(&format!("word/embeddings/{name}")), data)]),
        ),
    ]
}

/// Archives that nobody here opens: as much of them as says what they are.
pub(crate) fn closed() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let filled = |mark: &[u8]| [mark, deflated(&program()).as_slice()].concat();
    vec![
        ("five.rar", filled(b"Rar!\x1a\x07\x01\0"), "a RAR archive"),
        ("broken.dat", filled(b"Rar!\x1a\x07\0"), "a RAR archive"),
        ("a.lzo", filled(b"\x89LZO\0\r\n\x1a\n"), "an LZO file"),
        ("image.dat", filled(b"MSWIM\0\0\0"), "a WIM image is not opened"),
        ("a.ace", filled(b"\0\0\0\0\0\0\0**ACE**"), "an ACE archive is not opened"),
        ("a.cpio", filled(b"070701"), "a cpio archive is not opened"),
        ("a.hqx", filled(b"(This file must be converted with BinHex 4.0)\r\n:"), "a BinHex file is not opened"),
        ("a.ex_", filled(b"SZDD\x88\xf0\x27\x33"), "a file packed by an old installer is not opened"),
        ("a.img1", filled(b"vhdxfile"), "a disk image is not opened"),
    ]
}
