//! The keys with which a provider signs (JSON Web Key Set, RFC 7517). Two kinds are supported: RSA for RS256, and P-256 for ES256. Without
//! I/O.
//!
//! A key is used only for its own algorithm. Whatever a token claims, a public key is never used as a shared secret (HS256), and a
//! signature is always required (no `none`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Further keys are ignored. No provider has so many.
const KEYS_MAX: usize = 64;

/// The algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    pub(super) fn read(name: &str) -> Option<Algorithm> {
        match name {
            "RS256" => Some(Algorithm::Rs256),
            "ES256" => Some(Algorithm::Es256),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
        }
    }
}

/// The keys of a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Vec<ProviderKey>);

#[derive(Debug, Clone)]
struct ProviderKey {
    id: Option<String>,
    algorithm: Algorithm,
    public: Public,
}

#[derive(Debug, Clone)]
enum Public {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The point on the curve, uncompressed.
    P256(Vec<u8>),
}

#[derive(Deserialize)]
struct StoredKeys {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct StoredKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Reads a key set. Keys of other kinds are left out.
    pub(super) fn read(octets: &[u8]) -> Result<Keys, String> {
        let stored: StoredKeys =
            serde_json::from_slice(octets).map_err(|error| format!("its keys cannot be read: {error}"))?;
        let key = |value| serde_json::from_value(value).ok().and_then(|stored: StoredKey| stored.key());
        Ok(Keys(stored.keys.into_iter().take(KEYS_MAX).filter_map(key).collect()))
    }

    /// Whether there is a key that may have signed a token with this algorithm and key id.
    pub(super) fn knows(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        self.fitting(algorithm, id).next().is_some()
    }

    /// Whether one of these keys has signed this text.
    pub(super) fn signed(&self, algorithm: Algorithm, id: Option<&str>, words: &[u8], signature: &[u8]) -> bool {
        self.fitting(algorithm, id).any(|key| key.public.signed(words, signature))
    }

    fn fitting<'a>(&'a self, algorithm: Algorithm, id: Option<&'a str>) -> impl Iterator<Item = &'a ProviderKey> {
        let fits =
            move |key: &&ProviderKey| key.algorithm == algorithm && id.is_none_or(|id| key.id.as_deref() == Some(id));
        self.0.iter().filter(fits)
    }
}

impl StoredKey {
    fn key(self) -> Option<ProviderKey> {
        let octets = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let (algorithm, public) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let without_zeros = |octets: Vec<u8>| octets.into_iter().skip_while(|octet| *octet == 0).collect();
                let (n, e) = (without_zeros(octets(self.n)?), without_zeros(octets(self.e)?));
                (Algorithm::Rs256, Public::Rsa { n, e })
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (octets(self.x)?, octets(self.y)?);
                ((x.len(), y.len()) == (32, 32)).then_some(())?;
                (Algorithm::Es256, Public::P256([&[4][..], &x, &y].concat()))
            }
            _ => return None,
        };
        let for_signing = self.usage.is_none_or(|usage| usage == "sig");
        let own = self.alg.is_none_or(|alg| alg == algorithm.name());
        (for_signing && own).then_some(ProviderKey { id: self.kid, algorithm, public })
    }
}

impl Public {
    fn signed(&self, words: &[u8], signature: &[u8]) -> bool {
        match self {
            Public::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, words, signature).is_ok()
            }
            Public::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(words, signature).is_ok()
            }
        }
    }
}
