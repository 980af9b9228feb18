//! Secrets that are shown once and stored only as digests: session ids, tokens, recovery codes, generated passwords.

use crate::random::random;
use sha2::{Digest, Sha256};

/// The alphabet of base 32 (RFC 4648 section 6) in small letters.
pub const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A secret that cannot be guessed: 256 random bits as text.
pub fn fresh_token() -> String {
    weir_store::hex(&random::<32>())
}

/// A random password that can be read out: a hundred bits in four groups.
pub fn fresh_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let letters: Vec<char> = random::<20>().iter().map(|byte| char::from(LETTERS[*byte as usize % 32])).collect();
    letters.chunks(5).map(String::from_iter).collect::<Vec<_>>().join("-")
}

/// The digest of a secret, which the records keep. It does not reveal the secret.
pub fn digest(secret: &str) -> String {
    weir_store::hex(&Sha256::digest(secret.as_bytes()))
}

/// Bytes in base 32, without padding.
pub fn base32(bytes: &[u8]) -> String {
    let bits = bytes.len() * 8;
    let bit = |i: usize| bytes.get(i / 8).map_or(0, |byte| byte >> (7 - i % 8) & 1);
    let letter = |start: usize| (start..start + 5).fold(0usize, |value, i| value << 1 | usize::from(bit(i)));
    (0..bits).step_by(5).map(|start| char::from(BASE32[letter(start)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_password_is_long_readable_and_never_the_same() {
        let (one, other) = (fresh_password(), fresh_password());
        assert_eq!((one.len(), one.split('-').count()), (23, 4));
        assert_ne!(one, other);
    }

    #[test]
    fn base32_is_right() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
    }
}
