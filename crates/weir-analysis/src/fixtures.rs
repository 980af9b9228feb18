//! Samples for tests: documents with macros, archives, programs that look packed. All are harmless. The EICAR test file is assembled
//! only when a test asks for it, so that a virus scanner finds nothing in the source.

use std::io::{Cursor, Write};

/// The test file that every scanner must find.
pub fn eicar() -> Vec<u8> {
    weir_scan::eicar::eicar().into_bytes()
}

/// A zip archive of these members, packed.
pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        let packed = packer.write_all(data).and_then(|()| packer.finish()).unwrap_or_default();
        let mut head = vec![20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0x50];
        head.extend_from_slice(&crc(data).to_le_bytes());
        head.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        head.extend_from_slice(&(data.len() as u32).to_le_bytes());
        head.extend_from_slice(&(name.len() as u16).to_le_bytes());
        head.extend_from_slice(&[0, 0]);
        let offset = archive.len() as u32;
        directory.extend_from_slice(b"PK\x01\x02\x14\0");
        directory.extend_from_slice(&head);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
        archive.extend_from_slice(b"PK\x03\x04");
        archive.extend_from_slice(&head);
        archive.extend_from_slice(name.as_bytes());
        archive.extend_from_slice(&packed);
    }
    let (count, offset, size) = (members.len() as u16, archive.len() as u32, directory.len() as u32);
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend_from_slice(&[count.to_le_bytes(), count.to_le_bytes()].concat());
    archive.extend_from_slice(&[size.to_le_bytes(), offset.to_le_bytes()].concat());
    archive.extend_from_slice(&[0, 0]);
    archive
}

fn crc(data: &[u8]) -> u32 {
    let mut state = u32::MAX;
    for byte in data {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { (state >> 1) ^ 0xedb8_8320 } else { state >> 1 };
        }
    }
    !state
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// What Info-ZIP's `zip -P infected` makes of the test file, named `eicar.com`.
pub fn eicar_in_locked_zip() -> Vec<u8> {
    unhex(
        "504b03040a0009000000006021503ccf516850000000440000000900000065696361722e636f6d7cd4051f069f7745e7341e75bfb28a
         c618c9265c98779716e01ffb1ce4e877e4bf8fc71911240500b249b25395acdd5f4f079f464764bab746e89d22a996071e877a05b3e5
         2169cebdfb4385a5dbbc9950 4b07083ccf51685000000044000000504b01021e030a0009000000006021503ccf5168500000004400
         0000090000000000000001000000a4810000000065696361722e636f6d504b0506000000000100010037000000870000000000",
    )
}

/// What `zip -P secret` makes of `hello`, named `hello.txt`.
pub fn hello_in_zip_of_another_password() -> Vec<u8> {
    unhex(
        "504b03040a00090000000060215086a6103611000000050000000900000068656c6c6f2e747874ef07b14e31fd0c36e868a0df1b15f5
         4e6c504b070886a610361100000005000000504b01021e030a00090000000060215086a6103611000000050000000900000000000000
         01000000a4810000000068656c6c6f2e747874504b0506000000000100010037000000480000000000",
    )
}

/// What pyzipper makes of `hello`, named `hello.txt`, with the password `infected`: AES with keys of 128 and of 256 bits.
pub fn hello_in_aes_zips() -> [Vec<u8>; 2] {
    [
        "504b03041400010063007d866f5d000000001b0000000500000009000b0068656c6c6f2e74787401990700020041450108007d9a168f
         c5af34033604cebcd66be8f89e38f9d27b09c697ca56a2504b010214031400010063007d866f5d000000001b0000000500000009000b
         00000000000000000080010000000068656c6c6f2e7478740199070002004145010800504b0506000000000100010042000000
         4d0000000000",
        "504b03041400010063007d866f5d00000000230000000500000009000b0068656c6c6f2e74787401990700020041450308006715f4e9
         e4712c4547b37470df4c95cb203db8eb0158a91161e5afbac48311413c5ea2504b010214031400010063007d866f5d00000000230000
         000500000009000b00000000000000000080010000000068656c6c6f2e7478740199070002004145030800504b050600000000010001
         0042000000550000000000",
    ]
    .map(unhex)
}

/// An old Office document whose one module, `ThisDocument`, has this source.
pub fn macro_doc(source: &str) -> Vec<u8> {
    compound(&[("/WordDocument", b"\xec\xa5\xc1\0".as_slice())], Some(source), "/Macros")
}

/// A new Office document with the same.
pub fn macro_docm(source: &str) -> Vec<u8> {
    let project = compound(&[], Some(source), "");
    zip(&[
        ("[Content_Types].xml", b"<Types><Override PartName=\"/word/vbaProject.bin\"/></Types>"),
        ("_rels/.rels", b"<Relationships/>"),
        ("word/document.xml", b"<w:document/>"),
        ("word/vbaProject.bin", &project),
    ])
}

/// An old Office document with a file in it, as Windows' Packager puts it there.
pub fn packaged_object(name: &str, content: &[u8]) -> Vec<u8> {
    let mut native = vec![0, 0, 0, 0, 2, 0];
    for text in [name, name] {
        native.extend_from_slice(text.as_bytes());
        native.push(0);
    }
    native.extend_from_slice(&[0, 0, 3, 0]);
    native.extend_from_slice(&(name.len() as u32 + 1).to_le_bytes());
    native.extend_from_slice(name.as_bytes());
    native.push(0);
    native.extend_from_slice(&(content.len() as u32).to_le_bytes());
    native.extend_from_slice(content);
    compound(&[("/WordDocument", b"\xec\xa5\xc1\0"), ("/ObjectPool/_1/\u{1}Ole10Native", &native)], None, "")
}

fn compound(streams: &[(&str, &[u8])], source: Option<&str>, folder: &str) -> Vec<u8> {
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).expect("memory can be written");
    let mut write = |path: &str, data: &[u8]| {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !parent.is_empty() {
            file.create_storage_all(parent).expect("a folder can be made");
        }
        file.create_stream(path).and_then(|mut stream| stream.write_all(data)).expect("a stream can be written");
    };
    for (path, data) in streams {
        write(path, data);
    }
    if let Some(source) = source {
        let module = format!("Attribute VB_Name = \"ThisDocument\"\r\n{source}");
        // Compiled code comes first; its length is what `dir` calls the offset.
        let stream = [b"compiled".as_slice(), &vba_packed(module.as_bytes())].concat();
        write(&format!("{folder}/VBA/dir"), &vba_packed(&dir(8)));
        write(&format!("{folder}/VBA/ThisDocument"), &stream);
        write(&format!("{folder}/VBA/_VBA_PROJECT"), b"\xcc\x61\xff\xff\0\0\0");
        write(&format!("{folder}/PROJECT"), b"Document=ThisDocument/&H00000000\r\n");
    }
    file.flush().expect("memory can be written");
    file.into_inner().into_inner()
}

/// The records of a project with one module, whose source is at this place in its stream.
fn dir(offset: u32) -> Vec<u8> {
    let record =
        |id: u16, content: &[u8]| [&id.to_le_bytes()[..], &(content.len() as u32).to_le_bytes(), content].concat();
    let wide: Vec<u8> = "ThisDocument".encode_utf16().flat_map(u16::to_le_bytes).collect();
    [
        record(0x01, &3_u32.to_le_bytes()),
        record(0x03, &1252_u16.to_le_bytes()),
        record(0x04, b"Project"),
        [&9_u16.to_le_bytes()[..], &4_u32.to_le_bytes(), &[1, 0, 0, 0, 2, 0]].concat(),
        record(0x0f, &1_u16.to_le_bytes()),
        record(0x13, &[0xff, 0xff]),
        record(0x19, b"ThisDocument"),
        record(0x47, &wide),
        record(0x1a, b"ThisDocument"),
        record(0x32, &wide),
        record(0x31, &offset.to_le_bytes()),
        record(0x22, &[]),
        record(0x2b, &[]),
        record(0x10, &[]),
    ]
    .concat()
}

/// Packed as MS-OVBA has it, section 2.4.1, with nothing but literals: a chunk holds 3 640 of them.
fn vba_packed(data: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    for chunk in data.chunks(3640) {
        let tokens: Vec<u8> = chunk.chunks(8).flat_map(|eight| [&[0][..], eight].concat()).collect();
        out.extend_from_slice(&(0xb000 | (tokens.len() as u16 - 1)).to_le_bytes());
        out.extend_from_slice(&tokens);
    }
    out
}

/// A 64-bit program for Linux as UPX leaves one: no sections, its mark behind the headers, code that looks random. It does not run.
pub fn packed_elf() -> Vec<u8> {
    let size = 16_384_u64;
    let mut data = b"\x7fELF\x02\x01\x01\x03\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    data.extend_from_slice(&(0x40_0000 + size - 16).to_le_bytes());
    data.extend_from_slice(&[64_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat());
    data.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    data.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    for number in [0, 0x40_0000, 0x40_0000, size, size, 0x1000] {
        data.extend_from_slice(&u64::to_le_bytes(number));
    }
    data.extend_from_slice(b"\0\0\0\0UPX!\x0d\x16\x0e\x0a");
    data.extend(random(size as usize - data.len()));
    data
}

/// Always the same octets that look like chance.
fn random(count: usize) -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(count)
}

/// A 64-bit program for Windows with one section that imports these functions from KERNEL32.dll, and something behind it. It does not run.
pub fn pe(functions: &[&str], tail: &[u8]) -> Vec<u8> {
    const ADDRESS: u32 = 0x1000;
    let mut section = vec![0; 40];
    let library = section.len() as u32;
    section.extend_from_slice(b"KERNEL32.dll\0");
    let mut entries = Vec::new();
    for function in functions {
        entries.extend_from_slice(&u64::from(ADDRESS + section.len() as u32).to_le_bytes());
        section.extend_from_slice(&[0, 0]);
        section.extend_from_slice(function.as_bytes());
        section.push(0);
    }
    let lookup = section.len() as u32;
    section.extend_from_slice(&entries);
    section.extend_from_slice(&[0; 8]);
    for (at, value) in [(0, lookup), (12, library), (16, lookup)] {
        section[at..at + 4].copy_from_slice(&(ADDRESS + value).to_le_bytes());
    }
    section.resize(section.len().next_multiple_of(512), 0);
    let mut data = pe_headers(ADDRESS, section.len() as u32);
    data.extend_from_slice(&section);
    data.extend_from_slice(tail);
    data
}

fn pe_headers(address: u32, length: u32) -> Vec<u8> {
    let mut data = vec![0; 0x40];
    data[..2].copy_from_slice(b"MZ");
    data[0x3c] = 0x40;
    data.extend_from_slice(b"PE\0\0\x64\x86\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\xf0\0\x22\0");
    let mut optional = vec![0; 240];
    optional[..2].copy_from_slice(&0x20b_u16.to_le_bytes());
    for (at, value) in [(16, address), (60, 512), (108, 16), (120, address), (124, 40)] {
        optional[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    optional[68] = 3;
    data.extend_from_slice(&optional);
    data.extend_from_slice(b".text\0\0\0");
    for number in [length, address, length, 512, 0, 0, 0, 0x6000_0020] {
        data.extend_from_slice(&u32::to_le_bytes(number));
    }
    data.resize(512, 0);
    data
}

/// A PDF whose script runs when it is opened; the action may be in a packed object stream.
pub fn pdf(packed: bool) -> Vec<u8> {
    let action = "<< /Type /Catalog /OpenAction << /S /JavaScript /JS (eval\\(unescape\\('%61'\\)\\)) >> >>";
    let mut data = b"%PDF-1.5\n".to_vec();
    if packed {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        let text = format!("1 0 {action}");
        let stream = packer.write_all(text.as_bytes()).and_then(|()| packer.finish()).unwrap_or_default();
        let head = format!(
            "2 0 obj << /Type /ObjStm /N 1 /First 4 /Filter /FlateDecode /Length {} >>\nstream\r\n",
            stream.len()
        );
        data.extend_from_slice(head.as_bytes());
        data.extend_from_slice(&stream);
        data.extend_from_slice(b"\nendstream\nendobj\n");
    } else {
        data.extend_from_slice(format!("1 0 obj {action} endobj\n").as_bytes());
    }
    data.extend_from_slice(b"trailer << /Root 1 0 R >>\n%%EOF\n");
    data
}

/// An RTF document with an object that runs when it is opened.
pub fn rtf() -> Vec<u8> {
    b"{\\rtf1\\ansi{\\object\\objemb\\objupdate{\\*\\objdata 010500000200000008000000\r\nd0cf11e0a1b11ae1000000}}}"
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_scan::walk::vba::unpacked;

    #[test]
    fn what_is_packed_can_be_unpacked() {
        let long: Vec<u8> = random(20_000).collect();
        assert_eq!(unpacked(&vba_packed(&long)), long);
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }
}
