//! Signed tokens (JWT, RFC 7519), in which somebody whom the site's owner trusts says who a client is.
//!
//! A token counts if it is signed with the shared secret (HS256) or by the owner of one of the public keys (RS256, ES256), is valid now,
//! and is meant for us. The algorithm belongs to the key: a token that names another algorithm, or none, is not checked with this key, so a
//! public key is never taken for a secret (RFC 8725, section 3.1). Keys are read from PEM or from a JWKS (RFC 7517).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

/// The keys and demands by which tokens are checked.
#[derive(Debug, Default)]
pub struct Tokens {
    pub(super) secret: Option<hmac::Key>,
    pub(super) public: Vec<PublicKey>,
    pub(super) demands: Demands,
}

/// What a token must contain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Demands {
    /// The claim that names the client.
    pub claim: String,
    /// Whom the token must be for, and who must have made it; empty for anybody.
    pub audience: String,
    pub issuer: String,
    /// The claim that says what the client weighs; empty for none.
    pub weight: String,
}

/// The client that a token names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spoken {
    pub name: String,
    pub weight: Option<u64>,
}

/// A key with which somebody else signs tokens.
#[derive(Debug)]
pub(super) struct PublicKey {
    id: Option<String>,
    key: KeyKind,
}

#[derive(Debug)]
enum KeyKind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

/// Why the keys for tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    #[error("cannot read the keys of tokens in {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: a secret of at least 32 octets is needed", path.display())]
    Secret { path: PathBuf },
    #[error(
        "{}: this is a public key or a certificate, which everybody may have, and not a secret; name it in token_keys_file",
        path.display()
    )]
    NoSecret { path: PathBuf },
    #[error(
        "{}: there is no public key for RS256 (RSA of 2048 bits or more) or ES256 (P-256); write PEM (PUBLIC KEY) or a JWKS",
        path.display()
    )]
    NoKey { path: PathBuf },
}

const SECRET_BYTES_MIN: usize = 32;
/// The largest number of keys, because a token may have to be checked with all of them.
const KEYS_MAX: usize = 16;
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
const COORDINATE_BYTES: usize = 32;

impl Tokens {
    /// Reads the secret and the public keys.
    pub fn read(
        secret: Option<&Path>,
        public: Option<&Path>,
        demands: Demands,
    ) -> Result<Option<Tokens>, TokenKeyError> {
        if secret.is_none() && public.is_none() {
            return Ok(None);
        }
        let secret = secret.map(read_secret).transpose()?;
        let public = public.map(read_public).transpose()?.unwrap_or_default();
        Ok(Some(Tokens { secret, public, demands }))
    }

    /// The client that a token names, if the token is valid.
    pub fn spoken(&self, token: &[u8], now: SystemTime) -> Option<Spoken> {
        let mut parts = token.rsplitn(2, |octet| *octet == b'.');
        let (signature, signed) = (parts.next()?, parts.next()?);
        let (head, content) = signed.split_at(signed.iter().position(|octet| *octet == b'.')?);
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let head = read(head)?;
        // The token requires extensions that must be understood, and we understand none.
        if head.get("crit").is_some() {
            return None;
        }
        let key_id = head.get("kid").and_then(Value::as_str);
        let good = match head.get("alg")?.as_str()? {
            "HS256" => hmac::verify(self.secret.as_ref()?, signed, &signature).is_ok(),
            algorithm => self.public.iter().any(|key| key.verifies(algorithm, key_id, signed, &signature)),
        };
        if !good {
            return None;
        }
        self.demands.met_by(&read(&content[1..])?, now)
    }
}

impl Demands {
    fn met_by(&self, content: &Value, now: SystemTime) -> Option<Spoken> {
        let now_s = now.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        let over = content.get("exp").is_some_and(|end| end.as_f64().is_none_or(|end| end <= now_s));
        let early = content.get("nbf").is_some_and(|begin| begin.as_f64().is_none_or(|begin| begin > now_s));
        let is_ours =
            self.audience.is_empty() || content.get("aud").is_some_and(|audience| names(audience, &self.audience));
        let is_theirs =
            self.issuer.is_empty() || content.get("iss").and_then(Value::as_str) == Some(self.issuer.as_str());
        let name = content.get(&self.claim)?.as_str().filter(|name| !name.is_empty())?;
        let weight = if self.weight.is_empty() { None } else { content.get(&self.weight).and_then(Value::as_u64) };
        (!over && !early && is_ours && is_theirs).then(|| Spoken { name: name.to_owned(), weight })
    }
}

/// Whether a claim, which may be one name or a list, contains this one.
fn names(claim: &Value, name: &str) -> bool {
    let one = claim.as_str() == Some(name);
    one || claim.as_array().is_some_and(|list| list.iter().any(|one| one.as_str() == Some(name)))
}

impl PublicKey {
    fn verifies(&self, algorithm: &str, id: Option<&str>, signed: &[u8], signature: &[u8]) -> bool {
        if id.is_some() && self.id.is_some() && id != self.id.as_deref() {
            return false;
        }
        match &self.key {
            KeyKind::Rsa { n, e } if algorithm == "RS256" => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            KeyKind::P256(point) if algorithm == "ES256" => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            _ => false,
        }
    }

    /// A key of a JWKS, if it is for a kind of signature that is known here.
    fn from_jwk(jwk: &Value) -> Option<PublicKey> {
        let text = |key: &str| jwk.get(key).and_then(Value::as_str);
        let octets = |key: &str| URL_SAFE_NO_PAD.decode(text(key)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let (algorithm, key) = match text("kty")? {
            "RSA" => ("RS256", KeyKind::rsa(&octets("n")?, &octets("e")?)?),
            "EC" if text("crv") == Some("P-256") => ("ES256", KeyKind::p256(&octets("x")?, &octets("y")?)?),
            _ => return None,
        };
        text("alg")
            .is_none_or(|named| named == algorithm)
            .then(|| PublicKey { id: text("kid").map(str::to_owned), key })
    }

    /// A key as X.509 writes it: what it is for, and its bits (RFC 5280, section 4.1).
    fn from_der(der: &[u8]) -> Option<PublicKey> {
        let (info, _) = element(der, SEQUENCE)?;
        let (purpose, bits) = element(info, SEQUENCE)?;
        let (bits, _) = element(bits, BIT_STRING)?;
        let (unused, bits) = bits.split_first()?;
        let (kind, parameters) = element(purpose, OBJECT_ID)?;
        let key = match (kind, *unused) {
            (RSA_KEY, 0) => {
                let (numbers, _) = element(bits, SEQUENCE)?;
                let (n, rest) = element(numbers, INTEGER)?;
                KeyKind::rsa(n, element(rest, INTEGER)?.0)?
            }
            (EC_KEY, 0) if element(parameters, OBJECT_ID)?.0 == P256_CURVE => {
                let (form, point) = bits.split_first()?;
                let (x, y) = point.split_at_checked(COORDINATE_BYTES).filter(|_| *form == UNCOMPRESSED)?;
                KeyKind::p256(x, y)?
            }
            _ => return None,
        };
        Some(PublicKey { id: None, key })
    }
}

impl KeyKind {
    fn rsa(n: &[u8], e: &[u8]) -> Option<KeyKind> {
        let bare = |number: &[u8]| number.iter().copied().skip_while(|octet| *octet == 0).collect::<Vec<u8>>();
        let (n, e) = (bare(n), bare(e));
        (RSA_BYTES.contains(&n.len()) && !e.is_empty()).then_some(KeyKind::Rsa { n, e })
    }

    fn p256(x: &[u8], y: &[u8]) -> Option<KeyKind> {
        let whole = x.len() == COORDINATE_BYTES && y.len() == COORDINATE_BYTES;
        whole.then(|| KeyKind::P256([&[UNCOMPRESSED], x, y].concat()))
    }
}

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;
const INTEGER: u8 = 0x02;
const UNCOMPRESSED: u8 = 4;
const RSA_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// The content of a DER element of this kind, and what is behind it.
fn element(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (octets, rest) = rest.split_at_checked(long - 0x80).filter(|(octets, _)| octets.len() <= 4)?;
            (octets.iter().fold(0, |length, octet| length << 8 | usize::from(*octet)), rest)
        }
    };
    if *found == kind { rest.split_at_checked(length) } else { None }
}

fn read(part: &[u8]) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn read_file(path: &Path) -> Result<Vec<u8>, TokenKeyError> {
    std::fs::read(path).map_err(|source| TokenKeyError::Read { path: path.to_owned(), source })
}

fn read_secret(path: &Path) -> Result<hmac::Key, TokenKeyError> {
    let secret = read_file(path)?;
    let secret = secret.trim_ascii_end();
    if secret.trim_ascii_start().starts_with(b"-----BEGIN")
        || serde_json::from_slice::<Value>(secret).is_ok_and(|it| it.is_object())
    {
        return Err(TokenKeyError::NoSecret { path: path.to_owned() });
    }
    if secret.len() < SECRET_BYTES_MIN {
        return Err(TokenKeyError::Secret { path: path.to_owned() });
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, secret))
}

fn read_public(path: &Path) -> Result<Vec<PublicKey>, TokenKeyError> {
    let text = String::from_utf8_lossy(&read_file(path)?).into_owned();
    let mut keys: Vec<PublicKey> = match serde_json::from_str::<Value>(&text) {
        Ok(set) => match set.get("keys").and_then(Value::as_array) {
            Some(keys) => keys.iter().filter_map(PublicKey::from_jwk).collect(),
            None => PublicKey::from_jwk(&set).into_iter().collect(),
        },
        Err(_) => pem_blocks(&text).iter().filter_map(|der| PublicKey::from_der(der)).collect(),
    };
    keys.truncate(KEYS_MAX);
    if keys.is_empty() { Err(TokenKeyError::NoKey { path: path.to_owned() }) } else { Ok(keys) }
}

/// What is in the blocks of a PEM file that hold public keys.
fn pem_blocks(text: &str) -> Vec<Vec<u8>> {
    let blocks = text.split("-----BEGIN PUBLIC KEY-----").skip(1);
    let content = blocks.filter_map(|block| block.split("-----END PUBLIC KEY-----").next());
    content.filter_map(|block| STANDARD.decode(block.split_whitespace().collect::<String>()).ok()).collect()
}

#[cfg(test)]
mod tests;
