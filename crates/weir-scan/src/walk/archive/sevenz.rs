//! 7z, through `sevenz-rust2`: LZMA, LZMA2, bzip2, deflate and their filters.

use super::super::{Oddity, Walk};
use crate::budget::Exceeded;
use sevenz_rust2::{Archive, ArchiveReader, Error, Password};
use std::io::Cursor;

/// What a dictionary may take.
const DICTIONARY_MAX: u64 = 192 << 20;
const AES: &[u8] = &[0x06, 0xf1, 0x07, 0x01];
const LZMA: &[u8] = &[0x03, 0x01, 0x01];
const LZMA2: &[u8] = &[0x21];

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let archive = match Archive::read(&mut Cursor::new(data), &Password::empty()) {
        Ok(archive) => archive,
        Err(error) => {
            walk.odd_here(oddity(&error));
            return Ok(());
        }
    };
    let coders = || archive.blocks.iter().flat_map(|block| &block.coders);
    if coders().any(|coder| coder.encoder_method_id() == AES) {
        for file in archive.files.iter().filter(|file| !file.is_directory()) {
            walk.locked(&[file.name().to_owned()], Oddity::Encrypted, level)?;
        }
        return Ok(());
    }
    let dictionary = coders().map(|coder| dictionary(coder.encoder_method_id(), coder.properties())).max();
    if let Some(size) = dictionary.filter(|size| *size > DICTIONARY_MAX) {
        return Err(Exceeded::Dictionary(size));
    }
    members(walk, archive, data, level)
}

fn members(walk: &mut Walk<'_>, archive: Archive, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut reader = ArchiveReader::from_archive(archive, Cursor::new(data), Password::empty());
    reader.set_thread_count(1);
    let mut exceeded = None;
    let walked = reader.for_each_entries(|entry, from| {
        if entry.is_directory() {
            return Ok(true);
        }
        match walk.member(&[entry.name().to_owned()], data.len() as u64, from, level) {
            Ok(_) => Ok(true),
            Err(why) => {
                exceeded = Some(why);
                Err(Error::FileNotFound)
            }
        }
    });
    if let Some(exceeded) = exceeded {
        return Err(exceeded);
    }
    if let Err(error) = walked {
        walk.odd_here(oddity(&error));
    }
    Ok(())
}

fn oddity(error: &Error) -> Oddity {
    match error {
        Error::PasswordRequired | Error::MaybeBadPassword(_) => Oddity::Encrypted,
        Error::UnsupportedCompressionMethod(method) if method.to_ascii_lowercase().contains("aes") => Oddity::Encrypted,
        error => Oddity::Unreadable(format!("a 7z archive: {error}")),
    }
}

/// The memory that a coder asks for.
fn dictionary(method: &[u8], properties: &[u8]) -> u64 {
    match (method, properties) {
        (LZMA, [_, a, b, c, d, ..]) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        (LZMA2, [bits, ..]) => (2 | u64::from(bits & 1)) << (u32::from(bits >> 1) + 11).min(60),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries() {
        assert_eq!(dictionary(LZMA, &[0x5d, 0, 0, 0x80, 0]), 8 << 20);
        assert_eq!(dictionary(LZMA2, &[24]), 16 << 20);
        assert!(dictionary(LZMA2, &[40]) > DICTIONARY_MAX);
    }
}
