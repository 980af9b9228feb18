//! Answers the challenges of a certificate authority: HTTP-01 (RFC 8555, 8.3) and TLS-ALPN-01 (RFC 8737).
//!
//! There is something to answer only while one of our own orders is under way, and only for the host name of that order and the token that
//! the authority gave for it. All other requests are passed on. At most one challenge for each name is open.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use ring::digest::{SHA256, digest};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// The path at which an authority asks for the answer of HTTP-01.
pub const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";
/// The protocol of TLS-ALPN-01, which consists of a handshake and nothing more.
pub const CHALLENGE_PROTOCOL: &str = "acme-tls/1";

/// Longer tokens are refused.
const TOKEN_MAX: usize = 256;

/// The challenges of orders that are under way.
#[derive(Debug, Default)]
pub struct Challenges {
    open: RwLock<HashMap<String, Challenge>>,
}

#[derive(Debug)]
struct Challenge {
    token: String,
    answer: String,
    certificate: Arc<CertifiedKey>,
}

impl Challenges {
    /// From now on, answers challenges for `name` with this token and its key authorization.
    pub fn open(&self, name: &str, token: &str, answer: &str) -> Result<(), ChallengeError> {
        if token.is_empty() || token.len() > TOKEN_MAX || !token.bytes().all(is_base64url) {
            return Err(ChallengeError::Token);
        }
        let certificate = Arc::new(certificate(name, answer)?);
        let challenge = Challenge { token: token.to_owned(), answer: answer.to_owned(), certificate };
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_ascii_lowercase(), challenge);
        Ok(())
    }

    /// Ends the challenge of this name, because its order is over.
    pub fn close(&self, name: &str) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&name.to_ascii_lowercase());
    }

    /// The answer to a request for `path` at `host`, which may end with a port; None if the request is not for an open challenge.
    pub fn answer(&self, host: &str, path: &str) -> Option<String> {
        let token = path.strip_prefix(CHALLENGE_PATH)?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&name).filter(|challenge| challenge.token == token).map(|challenge| challenge.answer.clone())
    }

    /// The certificate that proves this name in a handshake.
    pub(crate) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(name).map(|challenge| Arc::clone(&challenge.certificate))
    }
}

fn is_base64url(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_'
}

fn certificate(name: &str, answer: &str) -> Result<CertifiedKey, ChallengeError> {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()])?;
    let proof = digest(&SHA256, answer.as_bytes());
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(proof.as_ref())];
    let key = rcgen::KeyPair::generate()?;
    let chain = vec![params.self_signed(&key)?.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = rustls::crypto::ring::default_provider();
    // This pair is not checked like others, because only an authority understands its critical extension.
    Ok(CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?))
}

/// Why a challenge cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    /// The token could not be a part of a path.
    #[error("the authority gave a token that is not base64url")]
    Token,
    /// The certificate of TLS-ALPN-01 could not be made.
    #[error("no certificate can be made for this challenge: {0}")]
    Make(#[from] rcgen::Error),
    /// rustls does not accept it.
    #[error("the certificate for this challenge cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_of_an_open_order_is_answered_and_only_for_its_name() {
        let challenges = Challenges::default();
        let path = format!("{CHALLENGE_PATH}to-ken_1");
        assert_eq!(challenges.answer("www.example", &path), None);
        challenges.open("WWW.example", "to-ken_1", "to-ken_1.thumb").unwrap();
        for host in ["www.example", "www.EXAMPLE", "www.example:80"] {
            assert_eq!(challenges.answer(host, &path).as_deref(), Some("to-ken_1.thumb"), "{host}");
        }
        for (host, path) in [
            ("other.example", path.as_str()),
            ("", path.as_str()),
            ("www.example", "/.well-known/acme-challenge/"),
            ("www.example", "/.well-known/acme-challenge/to-ken_2"),
            ("www.example", "/.well-known/acme-challenge/to-ken_1/"),
            ("www.example", "/to-ken_1"),
        ] {
            assert_eq!(challenges.answer(host, path), None, "{host} {path}");
        }
        assert!(challenges.certificate("www.example").is_some() && challenges.certificate("other.example").is_none());
        challenges.close("www.example");
        assert_eq!(challenges.answer("www.example", &path), None);
    }

    #[test]
    fn a_token_that_is_no_token_is_refused() {
        let challenges = Challenges::default();
        for token in ["", "../../etc/passwd", "a b", "<script>", "a\r\nb", &"a".repeat(TOKEN_MAX + 1)] {
            assert!(matches!(challenges.open("www.example", token, "x"), Err(ChallengeError::Token)), "{token:?}");
        }
    }
}
