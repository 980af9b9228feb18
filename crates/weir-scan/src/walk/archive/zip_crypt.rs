//! Zip members with a password: PKWARE's traditional cipher and WinZip's AES (AE-1 and AE-2).
//!
//! Laboratories hand malware round in archives whose password everybody knows. A password that does not fit is found by the check
//! octets before the member is opened, and by its authentication code where there is one. Cost: linear in the
//! member, and for AES a thousand rounds of HMAC for each password. Sources: PKWARE's APPNOTE 6.3.10, section 6.1; WinZip, *AES
//! Encryption Information*.

use super::zip_cipher::Keys;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use ring::{hmac, pbkdf2};
use std::num::NonZeroU32;

/// What stands before a member with a traditional password.
const HEADER: usize = 12;
/// Behind a member with AES.
const CODE: usize = 10;
const ROUNDS: NonZeroU32 = NonZeroU32::new(1000).unwrap();

/// How a member is locked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lock {
    /// With the two values that the last octet of the decrypted header may have: programs that write zip files use one or the other.
    Traditional([u8; 2]),
    /// With AES.
    Aes(AesField),
}

/// The extra field of a member with AES.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AesField {
    strength: Strength,
    /// How it is packed inside.
    pub(super) method: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strength {
    Aes128,
    Aes192,
    Aes256,
}

impl AesField {
    pub(super) fn read(field: &[u8]) -> Option<AesField> {
        let [_, _, b'A', b'E', strength, low, high, ..] = field else { return None };
        let strength = match strength {
            1 => Strength::Aes128,
            2 => Strength::Aes192,
            3 => Strength::Aes256,
            _ => return None,
        };
        Some(AesField { strength, method: u16::from_le_bytes([*low, *high]) })
    }
}

impl Lock {
    /// The member as it was packed, if the password fits.
    pub(super) fn opened(self, packed: &[u8], password: &[u8]) -> Option<Vec<u8>> {
        match self {
            Lock::Traditional(check) => traditional(packed, password, check),
            Lock::Aes(field) => field.strength.opened(packed, password),
        }
    }
}

fn traditional(packed: &[u8], password: &[u8], check: [u8; 2]) -> Option<Vec<u8>> {
    let (header, body) = packed.split_at_checked(HEADER)?;
    let mut keys = Keys::new(password);
    let last = header.iter().map(|byte| keys.decrypted(*byte)).last()?;
    check.contains(&last).then(|| body.iter().map(|byte| keys.decrypted(*byte)).collect())
}

impl Strength {
    fn key_bytes(self) -> usize {
        match self {
            Strength::Aes128 => 16,
            Strength::Aes192 => 24,
            Strength::Aes256 => 32,
        }
    }

    /// Salt, two octets that say whether the password fits, the member, and a code over it.
    fn opened(self, packed: &[u8], password: &[u8]) -> Option<Vec<u8>> {
        let key = self.key_bytes();
        let (salt, rest) = packed.split_at_checked(key / 2)?;
        let (check, rest) = rest.split_at_checked(2)?;
        let (body, code) = rest.split_at_checked(rest.len().checked_sub(CODE)?)?;
        let mut derived = [0; 66];
        let derived = derived.get_mut(..2 * key + 2)?;
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ROUNDS, salt, password, derived);
        let (keys, expected) = derived.split_at(2 * key);
        let (cipher_key, code_key) = keys.split_at(key);
        if check != expected {
            return None;
        }
        let code_key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, code_key);
        if !hmac::sign(&code_key, body).as_ref().starts_with(code) {
            return None;
        }
        Some(match self {
            Strength::Aes128 => counted(&Aes128::new_from_slice(cipher_key).ok()?, body),
            Strength::Aes192 => counted(&Aes192::new_from_slice(cipher_key).ok()?, body),
            Strength::Aes256 => counted(&Aes256::new_from_slice(cipher_key).ok()?, body),
        })
    }
}

/// Counter mode, with a counter that begins at one and has its smallest octet first.
fn counted(cipher: &impl BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>, body: &[u8]) -> Vec<u8> {
    let (mut out, mut counter) = (Vec::with_capacity(body.len()), 1_u128);
    for chunk in body.chunks(16) {
        let mut block = aes::Block::from(counter.to_le_bytes());
        cipher.encrypt_block(&mut block);
        out.extend(chunk.iter().zip(block.iter()).map(|(byte, key)| byte ^ key));
        counter = counter.wrapping_add(1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traditional_cipher_opens_what_it_locked() {
        let mut keys = Keys::new(b"infected");
        let plain = [b"eleven byte\x7f".as_slice(), b"hello"].concat();
        let locked: Vec<u8> = plain.iter().map(|byte| keys.encrypted(*byte)).collect();
        let lock = Lock::Traditional([0x7f, 0]);
        assert_eq!(lock.opened(&locked, b"infected").as_deref(), Some(&b"hello"[..]));
        assert_eq!(Lock::Traditional([1, 2]).opened(&locked, b"infected"), None);
        assert_eq!(lock.opened(&locked[..8], b"infected"), None);
    }

    #[test]
    fn fields() {
        let field = AesField::read(b"\x02\0AE\x03\x08\0").unwrap();
        assert_eq!((field.strength, field.method), (Strength::Aes256, 8));
        assert_eq!(AesField::read(b"\x02\0AE\x04\x08\0"), None);
        assert_eq!(AesField::read(b"\x02\0AE"), None);
        for length in 0..40 {
            assert_eq!(Lock::Aes(field).opened(&vec![0; length], b"infected"), None);
        }
    }
}
