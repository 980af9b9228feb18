//! A secret that the front-ends of a cluster share, and the keys derived from it.
//!
//! Every use has its own key, the HMAC-SHA256 of the use's name, so knowing one key reveals nothing about the others.

use super::siphash;
use ring::hmac;
use std::fmt;

/// A secret of at least [`Secret::LEAST_BYTES`]. It is not shown in logs.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// The least length of a secret.
    pub const LEAST_BYTES: usize = 16;
    /// The greatest length of a secret.
    pub const MOST_BYTES: usize = 4096;

    /// A secret from bytes.
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretError> {
        match bytes.len() {
            ..Secret::LEAST_BYTES => Err(SecretError::Short),
            Secret::LEAST_BYTES..=Secret::MOST_BYTES => Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))),
            _ => Err(SecretError::Long),
        }
    }

    /// A secret from the text of a key file; white space around it is ignored.
    pub fn from_text(text: &str) -> Result<Secret, SecretError> {
        Secret::new(text.trim().as_bytes())
    }

    /// A random secret for one process.
    pub fn random() -> Result<Secret, SecretError> {
        Secret::new(&random_bytes::<32>()?)
    }

    /// 256 bits for one use.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hmac::sign(&self.0, purpose.as_bytes()).as_ref());
        bytes
    }

    /// A key to authenticate with.
    pub fn hmac_key(&self, purpose: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.derive(purpose))
    }

    /// A key for a short hash.
    pub(crate) fn hash_key(&self, purpose: &str) -> siphash::SipKey {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.derive(purpose)[..16]);
        siphash::SipKey::from_bytes(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Bytes from the system's generator.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], SecretError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
    Ok(bytes)
}

/// Why there is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too easy to guess.
    #[error("a secret needs at least {} bytes; `openssl rand -hex 32` makes a good one", Secret::LEAST_BYTES)]
    Short,
    /// Not a secret but some other file.
    #[error("a secret has at most {} bytes", Secret::MOST_BYTES)]
    Long,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_has_its_own_key_and_none_shows() {
        let secret = Secret::from_text("  0123456789abcdef\n").unwrap();
        assert_eq!(secret.derive("a"), Secret::new(b"0123456789abcdef").unwrap().derive("a"));
        assert_ne!(secret.derive("a"), secret.derive("b"));
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_eq!(Secret::new(b"short").unwrap_err(), SecretError::Short);
        assert_eq!(Secret::new(&[7; 5000]).unwrap_err(), SecretError::Long);
    }
}
