//! 7z, through `sevenz-rust2`: LZMA, LZMA2, bzip2, deflate and their filters.

use super::super::{Oddity, Walk};
use crate::budget::Exceeded;
use sevenz_rust2::{Archive, ArchiveReader, Error, Password};
use std::io::{Cursor, Read};

/// What a dictionary may take.
const DICTIONARY_MAX: u64 = 192 << 20;
/// Passwords are tried on archives up to this size.
const TRIED_MAX: usize = 32 << 20;
/// How many passwords are tried, if a try costs no more than in archives made by 7-Zip itself: half a million hashes.
const PASSWORDS_MAX: usize = 4;
const ROUNDS_MAX: u8 = 19;
const AES: &[u8] = &[0x06, 0xf1, 0x07, 0x01];
const LZMA: &[u8] = &[0x03, 0x01, 0x01];
const LZMA2: &[u8] = &[0x21];

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let archive = match Archive::read(&mut Cursor::new(data), &Password::empty()) {
        Ok(archive) => archive,
        Err(error) => return locked_names(walk, data, &error, level),
    };
    bear(&archive)?;
    let coders = archive.blocks.iter().flat_map(|block| &block.coders);
    let mut locks = coders.filter(|coder| coder.encoder_method_id() == AES).peekable();
    if locks.peek().is_none() {
        return members(walk, archive, data, "", level);
    }
    let cheap = data.len() <= TRIED_MAX && locks.all(|coder| rounds(coder.properties()) <= ROUNDS_MAX);
    let fits = if cheap { fitting(walk, data)? } else { None };
    match fits {
        Some(password) => {
            walk.odd_here(Oddity::PasswordInMail);
            members(walk, archive, data, &password, level)
        }
        None => {
            let files = archive.files.iter().filter(|file| !file.is_directory());
            files.into_iter().try_for_each(|file| walk.locked(&[file.name().to_owned()], Oddity::Encrypted, level))
        }
    }
}

/// Checks that its dictionaries fit into the memory that we give them.
fn bear(archive: &Archive) -> Result<(), Exceeded> {
    let coders = archive.blocks.iter().flat_map(|block| &block.coders);
    let largest =
        coders.map(|coder| dictionary(coder.encoder_method_id(), coder.properties())).max().unwrap_or_default();
    if largest > DICTIONARY_MAX { Err(Exceeded::Dictionary(largest)) } else { Ok(()) }
}

/// An archive that could not be read: perhaps because its names have a password as well, which may stand in the message.
fn locked_names(walk: &mut Walk<'_>, data: &[u8], error: &Error, level: u32) -> Result<(), Exceeded> {
    let cheap = data.len() <= TRIED_MAX && header_rounds(data).is_some_and(|rounds| rounds <= ROUNDS_MAX);
    let passwords = if cheap { walk.passwords.iter().take(PASSWORDS_MAX).cloned().collect() } else { Vec::new() };
    for password in passwords {
        walk.budget.time()?;
        let Ok(archive) = Archive::read(&mut Cursor::new(data), &Password::from(password.as_str())) else { continue };
        bear(&archive)?;
        walk.odd_here(Oddity::PasswordInMail);
        return members(walk, archive, data, &password, level);
    }
    walk.odd_here(oddity(error));
    Ok(())
}

/// How often the key of the header is hashed, if it has a password. The header stands where the first 32 octets say, and names its
/// coder in the clear: four octets, the length of its properties, and these.
fn header_rounds(data: &[u8]) -> Option<u8> {
    let number = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
    let begin = usize::try_from(number(12)?).ok()?.checked_add(32)?;
    let end = begin.checked_add(usize::try_from(number(20)?).ok()?)?;
    let header = data.get(begin..end)?;
    let at = memchr::memmem::find(header, AES)?;
    header.get(at + AES.len() + 1..).map(rounds)
}

/// How often the key is hashed, as a power of two.
fn rounds(properties: &[u8]) -> u8 {
    properties.first().map_or(u8::MAX, |first| first & 0x3f)
}

/// The password with which the first file opens.
fn fitting(walk: &mut Walk<'_>, data: &[u8]) -> Result<Option<String>, Exceeded> {
    for password in walk.passwords.iter().take(PASSWORDS_MAX).cloned().collect::<Vec<_>>() {
        walk.budget.time()?;
        let Ok(mut reader) = ArchiveReader::new(Cursor::new(data), Password::from(password.as_str())) else { continue };
        reader.set_thread_count(1);
        let mut whole = true;
        // Any password decrypts the first octets to something; the checksum of the file is right only with the right password. One in 256 makes of them what
        // ends at once, without a fault and without a checksum: then less comes out than the archive says.
        let read = reader.for_each_entries(|entry, from| {
            let most = walk.budget.limits().held_bytes / 4;
            // Entries without content come after the others, also where those did not open.
            let copied = |from| std::io::copy(from, &mut std::io::sink());
            whole &=
                entry.is_directory() || copied(&mut from.take(most)).is_ok_and(|size| size == entry.size().min(most));
            Ok(whole && entry.is_directory())
        });
        if whole && read.is_ok() {
            return Ok(Some(password));
        }
    }
    Ok(None)
}

fn members(walk: &mut Walk<'_>, archive: Archive, data: &[u8], password: &str, level: u32) -> Result<(), Exceeded> {
    let password = if password.is_empty() { Password::empty() } else { Password::from(password) };
    let mut reader = ArchiveReader::from_archive(archive, Cursor::new(data), password);
    reader.set_thread_count(1);
    let (mut exceeded, mut short) = (None, false);
    let walked = reader.for_each_entries(|entry, from| {
        if entry.is_directory() {
            return Ok(true);
        }
        let mut from = Counted { from, octets: 0 };
        match walk.member(&[entry.name().to_owned()], data.len() as u64, &mut from, level) {
            Ok(_) => {
                short |= from.octets < entry.size();
                Ok(true)
            }
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
    } else if short {
        walk.odd_here(Oddity::Unreadable("a 7z archive: a file in it is shorter than it says".into()));
    }
    Ok(())
}

/// How much of a file has come out.
struct Counted<R> {
    from: R,
    octets: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let octets = self.from.read(buffer)?;
        self.octets += octets as u64;
        Ok(octets)
    }
}

fn oddity(error: &Error) -> Oddity {
    match error {
        Error::PasswordRequired | Error::MaybeBadPassword(_) => Oddity::Encrypted,
        Error::UnsupportedCompressionMethod(method) if method.to_ascii_lowercase().contains("aes") => Oddity::Encrypted,
        Error::UnsupportedCompressionMethod(method) => Oddity::Unreadable(format!(
            "a 7z archive packed with {}, which is not undone here",
            crate::plain::shown(method, 40)
        )),
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
        assert!(rounds(&[0x53, 7]) <= ROUNDS_MAX && rounds(&[0x58]) > ROUNDS_MAX && rounds(&[]) > ROUNDS_MAX);
    }
}
