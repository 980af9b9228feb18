//! Samples in the form in which people share them: a zip archive with the password "infected", so that nothing starts by accident and no
//! scanner on the way removes it.
//!
//! Written with PKWARE's traditional cipher, which every program opens; it hides the content but does not protect it. When such a file is
//! handed in, it is opened here only if all its members have that cipher and that password; any other archive is handed in as it is, and
//! the plugins open it. Declared sizes are never trusted. Source: PKWARE's APPNOTE 6.3, section 6.1.

use std::io::{Read, Write};
use weir_scan::little_endian::{u16_at, u32_at};
use weir_scan::walk::zip_cipher::Keys;

/// The password that is usual for malware.
pub const PASSWORD: &[u8] = b"infected";
/// How many members of one archive are opened.
const MEMBERS_MAX: usize = 256;
const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const ENCRYPTED: u16 = 1;
const SIZES_BEHIND: u16 = 8;
const UTF8: u16 = 0x800;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// What stands before an encrypted member.
const HEADER: usize = 12;

/// A file that was in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, without folders.
    pub name: String,
    pub content: Vec<u8>,
}

/// Why an archive cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum NotNeutered {
    /// Zip without extensions cannot be larger.
    #[error("a sample of 4 GiB or more does not fit into such an archive")]
    TooLarge,
    /// More than may be unpacked.
    #[error("the archive holds more than {0} bytes")]
    TooMuch(u64),
    /// More files than may be unpacked.
    #[error("the archive holds more than {MEMBERS_MAX} files")]
    TooMany,
    /// It cannot be packed or unpacked.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Packs a sample. `random` are eleven bytes that make two archives of the same sample differ.
pub fn wrapped(name: &str, content: &[u8], random: [u8; 11]) -> Result<Vec<u8>, NotNeutered> {
    let crc = crc32fast::hash(content);
    let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    deflate.write_all(content)?;
    let packed = deflate.finish()?;
    let mut keys = Keys::new(PASSWORD);
    let check = (crc >> 24) as u8;
    let plain = random.into_iter().chain([check]).chain(packed);
    let body: Vec<u8> = plain.map(|byte| keys.encrypted(byte)).collect();
    let too_large = |_| NotNeutered::TooLarge;
    let (packed, size) =
        (u32::try_from(body.len()).map_err(too_large)?, u32::try_from(content.len()).map_err(too_large)?);
    let name: Vec<u8> = name.bytes().take(1024).collect();
    // Version 2.0, and a fixed date: when it was packed should not be visible.
    let mut about = Vec::new();
    for number in [20, ENCRYPTED | UTF8, DEFLATED, 0, 0x21] {
        about.extend(number.to_le_bytes());
    }
    for number in [crc, packed, size] {
        about.extend(number.to_le_bytes());
    }
    about.extend((name.len() as u16).to_le_bytes());
    let mut zip = [LOCAL, &about, &[0, 0], &name, &body].concat();
    let directory_at = u32::try_from(zip.len()).map_err(too_large)?;
    // Made by version 2.0; no extra field, no comment, first disk, no attributes, at the beginning.
    zip.extend([CENTRAL, &[20, 0], &about, &[0; 2 + 2 + 2 + 2 + 4 + 4], &name].concat());
    let directory = u32::try_from(zip.len()).map_err(too_large)? - directory_at;
    zip.extend(
        [END, &[0, 0, 0, 0, 1, 0, 1, 0], &directory.to_le_bytes(), &directory_at.to_le_bytes(), &[0, 0]].concat(),
    );
    Ok(zip)
}

/// The files of such an archive, `most` bytes of them at most; None if it is another kind of file.
pub fn unwrapped(data: &[u8], most: u64) -> Result<Option<Vec<Member>>, NotNeutered> {
    let Some(entries) = directory(data) else { return Ok(None) };
    let (mut members, mut left) = (Vec::new(), most);
    for entry in entries.iter().filter(|entry| !entry.is_folder()) {
        if members.len() == MEMBERS_MAX {
            return Err(NotNeutered::TooMany);
        }
        let Some(content) = entry.opened(data, left) else { return Ok(None) };
        if content.len() as u64 > left {
            return Err(NotNeutered::TooMuch(most));
        }
        if crc32fast::hash(&content) != entry.crc {
            // Another password, which by chance has the same check.
            return Ok(None);
        }
        left -= content.len() as u64;
        members.push(Member { name: entry.file_name(), content });
    }
    Ok(Some(members).filter(|members| !members.is_empty()))
}

struct ZipEntry {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    /// In MS-DOS's format; some writers use it to check the password.
    time: u16,
    crc: u32,
    packed: usize,
    at: usize,
}

/// What the directory at the end names.
fn directory(data: &[u8]) -> Option<Vec<ZipEntry>> {
    let area = data.len().saturating_sub(22 + 0xffff);
    let end = area + data.get(area..)?.windows(END.len()).rposition(|bytes| bytes == END)?;
    let (count, mut at) = (u16_at(data, end + 10)?, u32_at(data, end + 16)? as usize);
    let mut entries = Vec::new();
    for _ in 0..count {
        let head = data.get(at..)?;
        if !head.starts_with(CENTRAL) {
            return None;
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| u16_at(head, at).map(usize::from));
        let (name, rest) = (name?, extra? + comment?);
        entries.push(ZipEntry {
            name: head.get(46..46 + name)?.to_vec(),
            flags: u16_at(head, 8)?,
            method: u16_at(head, 10)?,
            time: u16_at(head, 12)?,
            crc: u32_at(head, 16)?,
            packed: u32_at(head, 20)? as usize,
            at: u32_at(head, 42)? as usize,
        });
        at += 46 + name + rest;
    }
    Some(entries)
}

impl ZipEntry {
    fn is_folder(&self) -> bool {
        self.name.ends_with(b"/") && self.packed <= HEADER
    }

    fn file_name(&self) -> String {
        let name = String::from_utf8_lossy(&self.name);
        name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned()
    }

    /// Up to one byte more than `most`; None if it has another password.
    fn opened(&self, data: &[u8], most: u64) -> Option<Vec<u8>> {
        if self.flags & ENCRYPTED == 0 || !matches!(self.method, STORED | DEFLATED) {
            return None;
        }
        let head = data.get(self.at..).filter(|head| head.starts_with(LOCAL))?;
        let begin = 30 + usize::from(u16_at(head, 26)?) + usize::from(u16_at(head, 28)?);
        let body = head.get(begin..begin.checked_add(self.packed)?)?;
        let (header, body) = body.split_at_checked(HEADER)?;
        let mut keys = Keys::new(PASSWORD);
        let check = header.iter().map(|byte| keys.decrypted(*byte)).last()?;
        let by_time = self.flags & SIZES_BEHIND != 0 && check == (self.time >> 8) as u8;
        if check != (self.crc >> 24) as u8 && !by_time {
            return None;
        }
        let packed: Vec<u8> = body.iter().map(|byte| keys.decrypted(*byte)).collect();
        let mut content = Vec::new();
        let mut reader: Box<dyn Read + '_> = match self.method {
            STORED => Box::new(&packed[..]),
            _ => Box::new(flate2::read::DeflateDecoder::new(&packed[..])),
        };
        reader.by_ref().take(most.saturating_add(1)).read_to_end(&mut content).ok()?;
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_comes_out_again_and_is_not_to_be_seen() {
        let content = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR".repeat(50);
        let zip = wrapped("eicar.com", &content, [7; 11]).unwrap();
        assert!(!zip.windows(5).any(|bytes| bytes == b"EICAR"));
        let members = unwrapped(&zip, 1 << 20).unwrap().unwrap();
        assert_eq!(members, [Member { name: "eicar.com".into(), content: content.clone() }]);
        assert!(matches!(unwrapped(&zip, 100), Err(NotNeutered::TooMuch(100))));
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        let zip = wrapped("a/../b.exe", b"hello", [0; 11]).unwrap();
        assert_eq!(unwrapped(&zip, 10).unwrap().unwrap()[0].name, "b.exe");
        assert_eq!(unwrapped(b"hello", 10).unwrap(), None);
        assert_eq!(unwrapped(b"", 10).unwrap(), None);
        for at in 0..zip.len() {
            let mut bent = zip.clone();
            bent[at] ^= 0x41;
            let _ = unwrapped(&bent, 1 << 20);
            let _ = unwrapped(&zip[..at], 1 << 20);
        }
        // Another password.
        let at = zip.windows(4).position(|bytes| bytes == CENTRAL).unwrap();
        let mut other = zip.clone();
        other[at - 3] ^= 1;
        assert_eq!(unwrapped(&other, 10).unwrap(), None, "the sum does not fit");
    }
}
