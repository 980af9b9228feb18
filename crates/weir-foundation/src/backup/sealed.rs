//! Backups that are sealed with a passphrase: only somebody who knows it can read the files, or change them unnoticed.
//!
//! Argon2id derives a key from the passphrase. That key decrypts a second key of 32 random octets in the manifest, from which every file
//! gets a key of its own (HKDF over its name and 16 random octets). A file is sealed in pieces with ChaCha20-Poly1305 in the STREAM
//! construction, as `age` does it: the nonce counts the pieces and marks the last one, so that no piece can be left out, moved or cut off.
//! The names and lengths of files stay visible. The proof in the manifest covers the sums of all files, so that no file can be left out
//! either. All backups of one folder share the second key, and therefore also the files that have not changed; each backup encrypts that
//! key anew.

use super::BackupManifest;
use crate::OperationError;
use crate::random::random;
use argon2::{Algorithm, Argon2, Params, Version};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MAGIC: &[u8; 16] = b"weir, sealed 1\n\n";
const SALT_BYTES: usize = 16;
const PIECE_BYTES: usize = 64 * 1024;
const TAG_BYTES: usize = 16;
/// The length of a sealed file's head, before the first piece.
const HEAD_BYTES: usize = MAGIC.len() + SALT_BYTES;
/// The cost of deriving the key: what RFC 9106 recommends where memory is scarce.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
/// Bounds for what is read from a manifest. One that asks for more was not written by us.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 16;
/// Shorter passphrases can be guessed.
const PASSPHRASE_CHARS_MIN: usize = 8;

/// What a person types to open a backup.
#[derive(Clone)]
pub struct Passphrase(String);

/// How the key of a backup is encrypted, and the proof that nothing was left out. Part of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Seal {
    /// The random salt of Argon2id, in hexadecimal digits.
    pub salt: String,
    /// The memory that Argon2id uses.
    pub memory_kib: u32,
    /// The number of passes of Argon2id.
    pub passes: u32,
    /// The key of the backup, encrypted with the key that is derived from the passphrase.
    pub key: String,
    /// HMAC-SHA256 over the time, the relay, the version, the sum of all sums, and whether the records are in the backup.
    pub proof: String,
}

#[derive(Clone)]
pub(super) struct BackupKey([u8; 32]);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

impl fmt::Debug for BackupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackupKey(…)")
    }
}

impl Passphrase {
    /// A passphrase as it was typed.
    pub fn new(text: &str) -> Result<Passphrase, OperationError> {
        match text.chars().count() {
            0..PASSPHRASE_CHARS_MIN => {
                let what = format!("a passphrase of fewer than {PASSPHRASE_CHARS_MIN} characters is guessed");
                Err(OperationError::invalid(what, "take several words"))
            }
            _ => Ok(Passphrase(text.to_owned())),
        }
    }

    /// Reads the passphrase from the first line of a file.
    pub fn read(file: &Path) -> Result<Passphrase, OperationError> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let what = format!("the passphrase cannot be read: {}: {error}", file.display());
            OperationError::conflict(what, "name a file whose first line is the passphrase")
        })?;
        Passphrase::new(text.lines().next().unwrap_or_default())
    }

    /// The passphrase as text, to be sent to the process that makes the backup.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl BackupKey {
    pub(super) fn fresh() -> BackupKey {
        BackupKey(random())
    }

    /// Opens the key of a backup with its passphrase. Takes a fraction of a second and tens of megabytes of memory.
    pub(super) fn open(seal: &Seal, passphrase: &Passphrase) -> Result<BackupKey, OperationError> {
        let bad = || OperationError::conflict("the manifest of the backup is not one that Weir writes", "take another");
        if seal.memory_kib > MEMORY_KIB_MAX || seal.passes > PASSES_MAX {
            return Err(bad());
        }
        let (salt, mut wrapped) = (unhex(&seal.salt).ok_or_else(bad)?, unhex(&seal.key).ok_or_else(bad)?);
        let outer = derived(passphrase, &salt, seal.memory_kib, seal.passes).ok_or_else(bad)?;
        let opened = outer.open_in_place(nonce(0, true), Aad::empty(), &mut wrapped);
        let opened = opened.ok().and_then(|key| <[u8; 32]>::try_from(&*key).ok()).map(BackupKey);
        opened.ok_or_else(|| {
            let hint = "the one that it was made with opens it, and nothing else does";
            OperationError::conflict("the passphrase is wrong: it does not open this backup", hint)
        })
    }

    /// This key as a manifest holds it, still without the proof.
    pub(super) fn wrapped(&self, passphrase: &Passphrase) -> Result<Seal, OperationError> {
        let failed = || OperationError::Failed("the key of the backup cannot be sealed".to_owned());
        let salt: [u8; SALT_BYTES] = random();
        let outer = derived(passphrase, &salt, MEMORY_KIB, PASSES).ok_or_else(failed)?;
        let mut key = self.0.to_vec();
        // Every salt gives a key of its own, which encrypts only this one text, so the nonce may always be the same.
        outer.seal_in_place_append_tag(nonce(0, true), Aad::empty(), &mut key).map_err(|_| failed())?;
        let hex = weir_store::hex;
        Ok(Seal { salt: hex(&salt), memory_kib: MEMORY_KIB, passes: PASSES, key: hex(&key), proof: String::new() })
    }

    /// The proof that belongs in the manifest of a sealed backup.
    pub(super) fn proof(&self, manifest: &BackupManifest) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let said = [&manifest.at, &manifest.relay, &manifest.version, &manifest.sums].map(String::as_str).join("\n");
        weir_store::hex(hmac::sign(&key, format!("weir backup\n{}\n{said}", manifest.records).as_bytes()).as_ref())
    }

    /// Writes `from` sealed to the new file `to`. `name` is its path in the backup.
    pub(super) fn seal_file(&self, name: &Path, from: &Path, to: &Path) -> io::Result<()> {
        let (mut from, mut to) = (File::open(from)?, new_file(to)?);
        let salt: [u8; SALT_BYTES] = random();
        let key = self.file_key(&salt, name)?;
        to.write_all(MAGIC)?;
        to.write_all(&salt)?;
        in_pieces(&mut from, PIECE_BYTES, |count, last, piece| {
            key.seal_in_place_append_tag(nonce(count, last), Aad::empty(), piece).map_err(|_| too_long())?;
            to.write_all(piece)
        })
    }

    /// Decrypts a sealed file and writes its content; an error if the file was changed.
    pub(super) fn open_file(&self, name: &Path, from: &Path, to: &mut dyn Write) -> io::Result<()> {
        let changed = || io::Error::new(io::ErrorKind::InvalidData, "it is not as it was sealed");
        let mut from = File::open(from)?;
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head).map_err(|_| changed())?;
        let (magic, salt) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(changed());
        }
        let key = self.file_key(salt, name)?;
        in_pieces(&mut from, PIECE_BYTES + TAG_BYTES, |count, last, piece| {
            let plain = key.open_in_place(nonce(count, last), Aad::empty(), piece).map_err(|_| changed())?;
            to.write_all(plain)
        })
    }

    /// Like [`BackupKey::open_file`], but writes to a new file.
    pub(super) fn open_to(&self, name: &Path, from: &Path, to: &Path) -> io::Result<()> {
        self.open_file(name, from, &mut new_file(to)?)
    }

    fn file_key(&self, salt: &[u8], name: &Path) -> io::Result<LessSafeKey> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let about = [b"weir backup file\n".as_slice(), name.as_os_str().as_bytes()];
        let key = secret.expand(&about, &CHACHA20_POLY1305).map_err(|_| too_long())?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// The length of a file of `plain` bytes after sealing.
pub(super) fn sealed_length(plain: u64) -> u64 {
    HEAD_BYTES as u64 + plain + TAG_BYTES as u64 * plain.div_ceil(PIECE_BYTES as u64).max(1)
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn too_long() -> io::Error {
    io::Error::other("it cannot be sealed")
}

/// The nonce of a piece: its number, and whether it is the last one.
fn nonce(count: u64, last: bool) -> Nonce {
    let mut octets = [0; NONCE_LEN];
    octets[3..11].copy_from_slice(&count.to_be_bytes());
    octets[11] = u8::from(last);
    Nonce::assume_unique_for_key(octets)
}

/// Reads to the end in pieces of this length. The last piece may be shorter; it is empty only if the whole input is empty.
fn in_pieces(
    from: &mut impl Read,
    length: usize,
    mut take: impl FnMut(u64, bool, &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut read = || {
        let mut piece = Vec::with_capacity(length + TAG_BYTES);
        from.by_ref().take(length as u64).read_to_end(&mut piece).map(|_| piece)
    };
    let mut piece = read()?;
    for count in 0.. {
        let mut next = if piece.len() < length { Vec::new() } else { read()? };
        let last = next.is_empty();
        take(count, last, &mut piece)?;
        if last {
            break;
        }
        std::mem::swap(&mut piece, &mut next);
    }
    Ok(())
}

fn derived(passphrase: &Passphrase, salt: &[u8], memory_kib: u32, passes: u32) -> Option<LessSafeKey> {
    let params = Params::new(memory_kib, passes, 1, Some(32)).ok()?;
    let mut key = [0; 32];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::default(), params);
    argon2.hash_password_into(passphrase.0.as_bytes(), salt, &mut key).ok()?;
    Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).ok()?))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let even = text.len().is_multiple_of(2);
    even.then(|| text.as_bytes().chunks(2).map(digits).collect::<Option<Vec<u8>>>()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn opened(key: &BackupKey, name: &str, from: &Path) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        key.open_file(Path::new(name), from, &mut plain).map(|()| plain)
    }

    #[test]
    fn what_was_sealed_is_opened_whatever_its_length() {
        let (home, key) = (tempfile::tempdir().unwrap(), BackupKey::fresh());
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let plain: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
            let (from, to) = (home.path().join("plain"), home.path().join(format!("sealed{length}")));
            fs::write(&from, &plain).unwrap();
            key.seal_file(Path::new("held/1.eml"), &from, &to).unwrap();
            assert_eq!(fs::metadata(&to).unwrap().len(), sealed_length(length as u64));
            assert_eq!(opened(&key, "held/1.eml", &to).unwrap(), plain);
        }
    }

    #[test]
    fn no_piece_can_be_changed_cut_off_swapped_or_given_another_name() {
        let (home, key) = (tempfile::tempdir().unwrap(), BackupKey::fresh());
        let (from, to, bent) = (home.path().join("plain"), home.path().join("sealed"), home.path().join("bent"));
        fs::write(&from, vec![7; 2 * PIECE_BYTES + 100]).unwrap();
        key.seal_file(Path::new("keys/dkim"), &from, &to).unwrap();
        let sealed = fs::read(&to).unwrap();
        let piece = PIECE_BYTES + TAG_BYTES;
        let refused = |octets: &[u8]| {
            fs::write(&bent, octets).unwrap();
            assert!(opened(&key, "keys/dkim", &bent).is_err());
        };
        for at in [0, MAGIC.len(), HEAD_BYTES, HEAD_BYTES + piece, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            refused(&changed);
        }
        refused(&sealed[..HEAD_BYTES + piece]);
        refused(&sealed[..HEAD_BYTES + 2 * piece]);
        refused(&sealed[..5]);
        let (first, rest) = sealed[HEAD_BYTES..].split_at(piece);
        refused(&[&sealed[..HEAD_BYTES], &rest[..piece], first, &rest[piece..]].concat());
        assert!(opened(&key, "keys/other", &to).is_err());
        assert!(opened(&BackupKey::fresh(), "keys/dkim", &to).is_err());
        assert!(opened(&key, "keys/dkim", &to).is_ok());
    }

    #[test]
    fn only_the_passphrase_opens_the_key() {
        let right = Passphrase::new("correct horse battery").unwrap();
        let key = BackupKey::fresh();
        let seal = key.wrapped(&right).unwrap();
        assert_eq!(BackupKey::open(&seal, &right).unwrap().0, key.0);
        let wrong = BackupKey::open(&seal, &Passphrase::new("correct horse staple").unwrap()).unwrap_err();
        assert!(wrong.to_string().contains("the passphrase is wrong"), "{wrong}");
        let greedy = Seal { memory_kib: u32::MAX, ..seal.clone() };
        assert!(BackupKey::open(&greedy, &right).is_err());
        assert_ne!(key.wrapped(&right).unwrap().key, seal.key, "wrapped anew each time");
        assert!(Passphrase::new("short").is_err());
        assert_eq!(format!("{right:?}"), "Passphrase(…)");
    }
}
