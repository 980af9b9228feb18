//! Small archives that we make ourselves, one for each format: a scanner that finds the test file in one can open such archives.
//!
//! The test file is packed by gzip before it is put into the archive, because a scanner may find it in the raw octets of an archive that it
//! cannot open. Nothing else is packed, so each format is written in a few lines.

use crate::eicar::eicar;
use flate2::{Compression, Crc};
use std::io::{self, Cursor, Write};
use std::path::Path;

/// The formats by name, each with an archive of it that holds the test file.
pub fn all() -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let member = gzipped(eicar().as_bytes())?;
    Ok(vec![
        ("zip", zip("test.gz", &member)),
        ("tar", tar("test.gz", &member)),
        ("RAR", rar("test.gz", &member)),
        ("ARJ", arj("test.gz", &member)),
        ("LHA", lha("test.gz", &member)),
        ("ISO 9660", iso("TEST.GZ", &member)),
        ("TNEF", tnef("test.gz", &member)),
        ("Zstandard", zstd(&member)),
    ])
}

/// Packed by gzip.
pub fn gzipped(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(data)?;
    packer.finish()
}

fn crc32(data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(data);
    crc.sum()
}

/// The sum of LHA (CRC-16 with the polynomial 0xa001).
fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0u16, |crc, octet| {
        (0..8).fold(crc ^ u16::from(*octet), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 })
    })
}

fn length(data: &[u8]) -> [u8; 4] {
    (data.len() as u32).to_le_bytes()
}

/// A zip archive with one member.
pub fn zip(name: &str, data: &[u8]) -> Vec<u8> {
    let name_length = (name.len() as u16).to_le_bytes();
    let sizes = [crc32(data).to_le_bytes(), length(data), length(data)].concat();
    let fixed = [b"\0\0\0\0\0\0\x21\0".as_slice(), &sizes].concat();
    let local = [b"PK\x03\x04\x14\0".as_slice(), &fixed, &name_length, &[0; 2], name.as_bytes(), data].concat();
    let entry = [b"PK\x01\x02\x14\0\x14\0".as_slice(), &fixed, &name_length, &[0; 16], name.as_bytes()].concat();
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0".as_slice(), &length(&entry), &length(&local), &[0; 2]].concat();
    [local, entry, end].concat()
}

/// A tar archive with one member.
pub fn tar(name: &str, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\x000000000\0");
    put(124, format!("{:011o}\0", data.len()).as_bytes());
    put(136, b"00000000000\0        0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|octet| u32::from(*octet)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut out = [header.as_slice(), data].concat();
    out.resize(out.len().next_multiple_of(512) + 1024, 0);
    out
}

/// A RAR archive of version 4 with one member.
pub fn rar(name: &str, data: &[u8]) -> Vec<u8> {
    let block = |body: &[u8]| [&(crc32(body) as u16).to_le_bytes()[..], body].concat();
    let mut file = vec![0x74, 0x00, 0x80];
    file.extend((32 + name.len() as u16).to_le_bytes());
    file.extend([length(data), length(data)].concat());
    file.push(3);
    file.extend(crc32(data).to_le_bytes());
    file.extend([0, 0, 0x21, 0x5a, 20, 0x30]);
    file.extend((name.len() as u16).to_le_bytes());
    file.extend([0xa4, 0x81, 0, 0]);
    file.extend(name.bytes());
    let main = block(&[0x73, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0]);
    [b"Rar!\x1a\x07\0".as_slice(), &main, &block(&file), data, &block(&[0x7b, 0, 0x40, 7, 0])].concat()
}

/// An ARJ archive with one member.
pub fn arj(name: &str, data: &[u8]) -> Vec<u8> {
    let header = |kind: u8, name: &str, sizes: &[u8]| {
        let mut body = vec![30, 11, 1, 0, 0x10, 0, kind, 0];
        body.extend([0, 0, 0x21, 0x5a]);
        body.extend(sizes);
        body.resize(30, 0);
        body.extend(name.bytes().chain([0, 0]));
        let sum = crc32(&body).to_le_bytes();
        [b"\x60\xea".as_slice(), &(body.len() as u16).to_le_bytes(), &body, &sum, &[0; 2]].concat()
    };
    let sizes = [length(data), length(data), crc32(data).to_le_bytes()].concat();
    [header(2, "test.arj", &[]), header(0, name, &sizes), data.to_vec(), b"\x60\xea\0\0".to_vec()].concat()
}

/// An LHA archive with one member.
pub fn lha(name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = b"-lh0-".to_vec();
    body.extend([length(data), length(data), [0, 0, 0x21, 0x5a]].concat());
    body.extend([0x20, 0, name.len() as u8]);
    body.extend(name.bytes());
    body.extend(crc16(data).to_le_bytes());
    let sum = body.iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet));
    [&[body.len() as u8, sum][..], &body, data, &[0]].concat()
}

const SECTOR: usize = 2048;

/// An image of a disc with one file.
pub fn iso(name: &str, data: &[u8]) -> Vec<u8> {
    let both16 = |value: u16| [value.to_le_bytes(), value.to_be_bytes()].concat();
    let both32 = |value: u32| [value.to_le_bytes(), value.to_be_bytes()].concat();
    let record = |sector: u32, size: u32, folder: bool, name: &[u8]| {
        let mut record = vec![0, 0];
        record.extend([both32(sector), both32(size)].concat());
        record.extend([120, 1, 1, 0, 0, 0, 0, if folder { 2 } else { 0 }, 0, 0]);
        record.extend(both16(1));
        record.push(name.len() as u8);
        record.extend(name);
        record.resize(record.len().next_multiple_of(2), 0);
        record[0] = record.len() as u8;
        record
    };
    let (root, file) = (20, 21);
    let sectors = file + data.len().div_ceil(SECTOR) as u32;
    let mut primary = b"\x01CD001\x01\0".to_vec();
    primary.extend([b' '; 64]);
    primary.extend([0; 8]);
    primary.extend(both32(sectors));
    primary.extend([0; 32]);
    primary.extend([both16(1), both16(1), both16(SECTOR as u16), both32(10)].concat());
    primary.extend([18u32.to_le_bytes(), [0; 4], 19u32.to_be_bytes(), [0; 4]].concat());
    primary.extend(record(root, SECTOR as u32, true, &[0]));
    primary.resize(SECTOR, b' ');
    primary[881] = 1;
    let mut folder = [record(root, SECTOR as u32, true, &[0]), record(root, SECTOR as u32, true, &[1])].concat();
    folder.extend(record(file, data.len() as u32, false, format!("{name};1").as_bytes()));
    let table = |order: fn(u32) -> [u8; 4]| [&[1, 0][..], &order(root), &[0, 0, 0, 0]].concat();
    let mut out = vec![0; 16 * SECTOR];
    for sector in [primary, b"\xffCD001\x01".to_vec(), table(u32::to_le_bytes), table(u32::to_be_bytes), folder] {
        out.extend(sector);
        out.resize(out.len().next_multiple_of(SECTOR), 0);
    }
    out.extend(data);
    out.resize(out.len().next_multiple_of(SECTOR), 0);
    out
}

/// A `winmail.dat` with one attachment.
pub fn tnef(name: &str, data: &[u8]) -> Vec<u8> {
    let attribute = |id: u32, value: &[u8]| {
        let sum = value.iter().fold(0u16, |sum, octet| sum.wrapping_add(u16::from(*octet)));
        [&[2][..], &id.to_le_bytes(), &length(value), value, &sum.to_le_bytes()].concat()
    };
    let title = [name.as_bytes(), &[0]].concat();
    let parts = [attribute(0x0006_9002, &[0; 14]), attribute(0x0001_8010, &title), attribute(0x0006_800f, data)];
    [b"\x78\x9f\x3e\x22\x01\0".to_vec(), parts.concat()].concat()
}

/// A frame of Zstandard that is not packed, for up to 255 octets.
pub fn zstd(data: &[u8]) -> Vec<u8> {
    let data = &data[..data.len().min(255)];
    let block = (data.len() as u32) << 3 | 1;
    [b"\x28\xb5\x2f\xfd\x20".as_slice(), &[data.len() as u8], &block.to_le_bytes()[..3], data].concat()
}

/// A compound file with these streams, and the folders that they are in. Panics if a path is not allowed in a compound file.
pub fn compound(streams: &[(&str, &[u8])]) -> Vec<u8> {
    let written = || {
        let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new()))?;
        for (path, data) in streams {
            file.create_storage_all(Path::new(path).parent().unwrap_or(Path::new("/")))?;
            file.create_stream(path)?.write_all(data)?;
        }
        file.flush()?;
        io::Result::Ok(file.into_inner().into_inner())
    };
    written().expect("memory can be written, and the paths are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::seen::Seen;

    #[test]
    fn our_own_walk_opens_all_of_them() {
        for (format, archive) in all().unwrap() {
            let seen = Seen::of("a", &archive);
            assert!(seen.holds(eicar().as_bytes()) && seen.odd.is_empty(), "{format}: {:?}", seen.odd);
            assert!(memchr::memmem::find(&archive, &eicar().as_bytes()[..20]).is_none(), "{format}");
        }
    }
}
