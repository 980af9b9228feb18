//! DKIM keys: creates them, stores them as PEM, reads them, and makes the DNS record that publishes them.
//!
//! Every receiver can check RSA with 2048 bits. Ed25519 is shorter and faster, but large receivers do not support it yet. ring cannot make
//! RSA keys, so the rsa crate does; it is used for nothing else, and never signs.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rsa::pkcs8::EncodePrivateKey;
use rsa::pkcs8::EncodePublicKey;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

const RSA_BITS: usize = 2048;

/// The algorithm of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// rsa-sha256 with 2048 bits.
    Rsa,
    /// ed25519-sha256.
    Ed25519,
}

impl Algorithm {
    /// Its name in `a=`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rsa => "rsa-sha256",
            Algorithm::Ed25519 => "ed25519-sha256",
        }
    }
}

/// A private key, with its domain and selector.
pub struct SigningKey {
    domain: String,
    selector: String,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair, SystemRandom),
    Ed25519(Ed25519KeyPair),
}

/// What to publish in the DNS.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct DnsRecord {
    /// The name of the TXT record.
    pub name: String,
    /// Its text.
    pub value: String,
}

impl DnsRecord {
    /// The record as a line of a zone file. A string in the DNS holds at most 255 octets, so a long text is split into several.
    pub fn zone_line(&self) -> String {
        let parts = self.value.as_bytes().chunks(255).map(|part| format!("\"{}\"", String::from_utf8_lossy(part)));
        format!("{}. IN TXT ( {} )", self.name, parts.collect::<Vec<_>>().join(" "))
    }
}

/// Makes a key. Returns the private part as PEM, and the record to publish. RSA takes about a second.
pub fn generate(domain: &str, selector: &str, algorithm: Algorithm) -> Result<(String, DnsRecord), KeyError> {
    check_name(domain)?;
    check_name(selector)?;
    let failed = |problem: String| KeyError::Make(problem);
    let (der, public) = match algorithm {
        Algorithm::Rsa => {
            let key =
                rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, RSA_BITS).map_err(|e| failed(e.to_string()))?;
            let der = key.to_pkcs8_der().map_err(|e| failed(e.to_string()))?.as_bytes().to_vec();
            let public = key.to_public_key().to_public_key_der().map_err(|e| failed(e.to_string()))?;
            (der, format!("k=rsa; p={}", STANDARD.encode(public.as_bytes())))
        }
        Algorithm::Ed25519 => {
            let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|e| failed(e.to_string()))?;
            let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).map_err(|e| failed(e.to_string()))?;
            (der.as_ref().to_vec(), format!("k=ed25519; p={}", STANDARD.encode(pair.public_key())))
        }
    };
    let name = format!("{selector}._domainkey.{}", domain.to_ascii_lowercase());
    Ok((pem(&der), DnsRecord { name, value: format!("v=DKIM1; {public}") }))
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

/// Checks a domain or selector, which is used in a header, in a file name and in the DNS.
fn check_name(name: &str) -> Result<(), KeyError> {
    let label = |label: &str| {
        let inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        (1..=63).contains(&label.len()) && inside && !label.starts_with('-') && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(label) { Ok(()) } else { Err(KeyError::Name(name.to_owned())) }
}

impl SigningKey {
    /// Reads a key from a file.
    pub fn read(path: &Path, domain: &str, selector: &str) -> Result<SigningKey, KeyError> {
        let file = |problem: String| KeyError::File { path: path.to_owned(), problem };
        let text = fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
        SigningKey::from_pem(&text, domain, selector).map_err(|error| file(error.to_string()))
    }

    /// Reads a key from PEM: PKCS#8, or PKCS#1 for RSA.
    pub fn from_pem(text: &str, domain: &str, selector: &str) -> Result<SigningKey, KeyError> {
        check_name(domain)?;
        check_name(selector)?;
        let der =
            PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| KeyError::Unusable(error.to_string()))?;
        let rsa =
            |pair: Result<RsaKeyPair, ring::error::KeyRejected>| pair.map(|pair| Pair::Rsa(pair, SystemRandom::new()));
        let pair = match &der {
            PrivateKeyDer::Pkcs1(der) => rsa(RsaKeyPair::from_der(der.secret_pkcs1_der())),
            PrivateKeyDer::Pkcs8(der) => {
                let ed25519 = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
                ed25519.map(Pair::Ed25519).or_else(|_| rsa(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())))
            }
            _ => return Err(KeyError::Unusable("neither RSA nor Ed25519".into())),
        };
        let pair = pair.map_err(|error| KeyError::Unusable(error.to_string()))?;
        Ok(SigningKey { domain: domain.to_ascii_lowercase(), selector: selector.to_owned(), pair })
    }

    /// The domain for which it signs.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The name under which it is published.
    pub fn selector(&self) -> &str {
        &self.selector
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            Pair::Rsa(..) => Algorithm::Rsa,
            Pair::Ed25519(_) => Algorithm::Ed25519,
        }
    }

    /// Signs; none if the system has no random numbers for the blinding.
    pub(super) fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            Pair::Rsa(pair, random) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, text, &mut signature).ok()?;
                Some(signature)
            }
            // RFC 8463: the signature is made over the hash of the text.
            Pair::Ed25519(pair) => {
                let hash = ring::digest::digest(&ring::digest::SHA256, text);
                Some(pair.sign(hash.as_ref()).as_ref().to_vec())
            }
        }
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({} {}, {})", self.selector, self.domain, self.algorithm().name())
    }
}

/// Why there is no usable key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// A file or folder cannot be read or used.
    #[error("{}: {problem}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The text is not a key that we can use.
    #[error("not a usable private key: {0}; it must be PEM, RSA (2048 bits or more) or Ed25519")]
    Unusable(String),
    /// The key could not be made.
    #[error("the key could not be made: {0}")]
    Make(String),
    /// The domain or selector cannot be a name in the DNS.
    #[error("{0:?} cannot be a name in the DNS: letters, digits and hyphens, parts separated by dots")]
    Name(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for name in ["", "a b", "../x", "a..b", "-a", "a/b", "a;b", &"x".repeat(64)] {
            assert_eq!(check_name(name), Err(KeyError::Name(name.into())), "{name}");
        }
        assert!(check_name("mail.example.org").is_ok() && check_name("s_1").is_ok());
    }

    #[test]
    fn a_long_record_is_several_strings() {
        let record = DnsRecord { name: "s._domainkey.a".into(), value: "x".repeat(400) };
        assert_eq!(
            record.zone_line(),
            format!("s._domainkey.a. IN TXT ( \"{}\" \"{}\" )", "x".repeat(255), "x".repeat(145))
        );
    }

    #[test]
    fn keys_are_read_back() {
        let (pem, record) = generate("Example.org", "s1", Algorithm::Ed25519).unwrap();
        assert!(record.value.starts_with("v=DKIM1; k=ed25519; p=") && record.name == "s1._domainkey.example.org");
        let key = SigningKey::from_pem(&pem, "Example.org", "s1").unwrap();
        assert_eq!((key.domain(), key.algorithm()), ("example.org", Algorithm::Ed25519));
        assert!(SigningKey::from_pem("nonsense", "a", "b").is_err());
    }
}
