//! Clients that are known by a key: an API key, or a claim of a signed token (JWT), in a header of their requests.
//!
//! A key has a name and a weight. It is one client wherever it comes from, and with weight N it gets as much as N visitors while the
//! backend is saturated. The keys are in a file that only the gate reads, a line `NAME WEIGHT KEY` for each, and are compared by their
//! hash. A token that counts ([`Tokens`]) names the client in a claim, and the file may give that name a weight (`NAME WEIGHT` without a
//! key), or else a claim of the token may. Somebody who can choose a name in a token must not pass for the holder of a key with the same
//! name, so the two are never the same client. An unknown key or a token with a wrong signature gives no advantage: its request is treated
//! like any other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use http::HeaderName;
use ring::digest;
use weir_settings::settings;

use crate::identity::Fields;
use crate::label::is_label;
use crate::tokens::{Demands, TokenKeyError, Tokens};

settings! {
    /// Clients that are known by a key.
    #[derive(PartialEq, Eq)]
    pub struct KeySettings {
        /// The header in which clients bring an API key or a signed token, such as authorization or x-api-key; empty for none
        pub header as "key_header": String = text("", "the name of a header").valid(header_name),
        /// A file of keys, "NAME WEIGHT KEY" a line: the client has as much as WEIGHT (1 to 1000) visitors while a backend is saturated
        pub file as "keys_file": Option<PathBuf> = path().optional(),
        /// A file with the secret that tokens (JWT) are signed with by HS256; empty for none
        pub token_secret_file: Option<PathBuf> = path().optional(),
        /// A file with the public keys that tokens (JWT) are signed with by RS256 or ES256, as PEM or as a JWKS; empty for none
        pub token_keys_file: Option<PathBuf> = path().optional(),
        /// The claim of a token that names the client
        pub token_claim: String = text("sub", "the name of a claim").valid(claim),
        /// The claim of a token that says what its client weighs (1 to 1000), where keys_file says nothing of the name; empty for none
        pub token_weight_claim: String = text("", "the name of a claim"),
        /// The audience (aud) that a token must be for; empty for any
        pub token_audience: String = text("", "a name"),
        /// The issuer (iss) that a token must be of; empty for any
        pub token_issuer: String = text("", "a name"),
    }
}

impl KeySettings {
    /// Whether there is a file with keys, or with which tokens are checked.
    pub fn has_keys(&self) -> bool {
        self.file.is_some() || self.token_secret_file.is_some() || self.token_keys_file.is_some()
    }

    fn demands(&self) -> Demands {
        Demands {
            claim: self.token_claim.clone(),
            audience: self.token_audience.clone(),
            issuer: self.token_issuer.clone(),
            weight: self.token_weight_claim.clone(),
        }
    }
}

fn header_name(text: &str) -> Result<(), String> {
    if text.is_empty() || HeaderName::from_bytes(text.as_bytes()).is_ok() {
        return Ok(());
    }
    Err(format!("{text:?} is not the name of a header"))
}

fn claim(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("a claim has a name".to_owned()) } else { Ok(()) }
}

#[derive(Debug)]
pub struct Keys {
    header: HeaderName,
    /// The holder of each key, by the hash of the key.
    by_key: HashMap<[u8; digest::SHA256_OUTPUT_LEN], usize>,
    /// Holders without a key in their line, by the name in their token.
    by_name: HashMap<String, usize>,
    holders: Vec<Holder>,
    tokens: Option<Tokens>,
    turn: AtomicU32,
}

/// A client that has a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub name: String,
    pub weight: u32,
    /// Whether a token names it.
    pub token: bool,
    /// Whether the file says what it weighs.
    pub listed: bool,
}

impl Holder {
    /// Its name in the queues. Names in the file have no spaces.
    pub fn account(&self) -> Cow<'_, str> {
        if self.token { Cow::Owned(format!("token {}", self.name)) } else { Cow::Borrowed(&self.name) }
    }
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the keys in {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}, line {line}: write NAME WEIGHT KEY, with a weight from 1 to 1000 and a key of at least 16 octets", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{}, line {line}: this name or key is there twice", path.display())]
    Twice { path: PathBuf, line: usize },
    #[error(transparent)]
    Token(#[from] TokenKeyError),
}

const WEIGHT_MAX: u32 = 1_000;
const KEY_BYTES_MIN: usize = 16;
/// A longer key or token is ignored.
const VALUE_BYTES_MAX: usize = 8 << 10;

impl Keys {
    /// The keys according to these settings; None if no header is named.
    pub fn read(settings: &KeySettings) -> Result<Option<Keys>, KeyError> {
        let Ok(header) = HeaderName::from_bytes(settings.header.as_bytes()) else { return Ok(None) };
        let (by_key, by_name, holders) = (HashMap::new(), HashMap::new(), Vec::new());
        let mut keys = Keys { header, by_key, by_name, holders, tokens: None, turn: AtomicU32::new(0) };
        if let Some(path) = &settings.file {
            keys.add_all(path)?;
        }
        let (secret, public) = (settings.token_secret_file.as_deref(), settings.token_keys_file.as_deref());
        keys.tokens = Tokens::read(secret, public, settings.demands())?;
        Ok(Some(keys))
    }

    fn add_all(&mut self, path: &Path) -> Result<(), KeyError> {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let wrong = || KeyError::Line { path: path.to_owned(), line: at + 1 };
            let holder = holder(&words).ok_or_else(wrong)?;
            let number = self.holders.len();
            let twice = match words.get(2) {
                Some(key) => self.by_key.insert(hashed(key.as_bytes()), number).is_some(),
                None => self.by_name.insert(holder.name.clone(), number).is_some(),
            };
            let named = |known: &Holder| known.name == holder.name && known.token == holder.token;
            if twice || self.holders.iter().any(named) {
                return Err(KeyError::Twice { path: path.to_owned(), line: at + 1 });
            }
            self.holders.push(holder);
        }
        Ok(())
    }

    /// A number that changes with each call, to spread a holder's requests over its sessions.
    pub fn next_turn(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Those whose weight is in the file.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The holder of the key that this request brings, if the key is valid.
    pub fn find(&self, fields: &(impl Fields + ?Sized), now: SystemTime) -> Option<Holder> {
        let value = fields.lines(&self.header).next()?.trim_ascii();
        let value = match value.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
            _ => value,
        };
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        if let Some(number) = self.by_key.get(&hashed(value)) {
            return self.holders.get(*number).cloned();
        }
        let spoken = self.tokens.as_ref()?.spoken(value, now)?;
        let known = self.by_name.get(&spoken.name).and_then(|number| self.holders.get(*number));
        let weight = spoken.weight.map_or(1, |weight| weight.clamp(1, WEIGHT_MAX.into()) as u32);
        Some(known.cloned().unwrap_or(Holder { name: spoken.name, weight, token: true, listed: false }))
    }
}

fn holder(words: &[&str]) -> Option<Holder> {
    let (name, weight) = (words.first().filter(|name| is_label(name))?, words.get(1)?.parse().ok()?);
    let good = words.len() <= 3 && words.get(2).is_none_or(|key| key.len() >= KEY_BYTES_MIN);
    let holder = || Holder { name: (*name).to_owned(), weight, token: words.len() == 2, listed: true };
    (good && (1..=WEIGHT_MAX).contains(&weight)).then(holder)
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })
}

fn hashed(key: &[u8]) -> [u8; digest::SHA256_OUTPUT_LEN] {
    let mut hash = [0; digest::SHA256_OUTPUT_LEN];
    hash.copy_from_slice(digest::digest(&digest::SHA256, key).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::{HeaderMap, HeaderValue};
    use ring::hmac;
    use std::time::{Duration, UNIX_EPOCH};

    const SECRET: &str = "a secret of thirty-two octets, or more of them";

    fn keys(folder: &Path, lines: &str) -> Result<Option<Keys>, KeyError> {
        std::fs::write(folder.join("keys"), lines).unwrap();
        std::fs::write(folder.join("secret"), format!("{SECRET}\n")).unwrap();
        Keys::read(&KeySettings {
            header: "Authorization".into(),
            file: Some(folder.join("keys")),
            token_secret_file: Some(folder.join("secret")),
            token_weight_claim: "tier".into(),
            ..KeySettings::default()
        })
    }

    fn token(head: &str, content: &str, secret: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(content));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn found(keys: &Keys, value: &str) -> Option<Holder> {
        let fields = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::try_from(value).unwrap())]);
        keys.find(&fields, UNIX_EPOCH + Duration::from_secs(1_000))
    }

    #[test]
    fn a_key_has_a_name_and_a_weight() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# ours\nmobile 4 0123456789abcdef\nsmall 1 fedcba9876543210\nann 9\n";
        let keys = keys(folder.path(), text).unwrap().unwrap();
        let mobile = Holder { name: "mobile".into(), weight: 4, token: false, listed: true };
        assert_eq!(found(&keys, "0123456789abcdef"), Some(mobile.clone()));
        assert_eq!(found(&keys, "Bearer 0123456789abcdef"), Some(mobile));
        assert_eq!(found(&keys, "0123456789abcdeF"), None);
        assert_eq!(found(&keys, ""), None);
        assert_eq!(keys.holders().len(), 3);
    }

    #[test]
    fn a_token_counts_if_it_is_signed_and_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path(), "ann 9\n").unwrap().unwrap();
        let head = r#"{"alg":"HS256","typ":"JWT"}"#;
        let good = token(head, r#"{"sub":"ann","exp":2000}"#, SECRET);
        let ann = Holder { name: "ann".into(), weight: 9, token: true, listed: true };
        assert_eq!(found(&keys, &format!("Bearer {good}")), Some(ann));
        let other = token(head, r#"{"sub":"bob","tier":5}"#, SECRET);
        let bob = Holder { name: "bob".into(), weight: 5, token: true, listed: false };
        assert_eq!(found(&keys, &other), Some(bob.clone()));
        for (tier, weight) in [("0", 1), ("1000000", WEIGHT_MAX), ("-3", 1), ("\"5\"", 1)] {
            let odd = token(head, &format!(r#"{{"sub":"bob","tier":{tier}}}"#), SECRET);
            assert_eq!(found(&keys, &odd), Some(Holder { weight, ..bob.clone() }), "{tier}");
        }
        for bad in [
            token(head, r#"{"sub":"ann"}"#, "another secret of thirty-two octets"),
            token(head, r#"{"sub":"ann","exp":1000}"#, SECRET),
            token(head, r#"{"sub":"ann","exp":"soon"}"#, SECRET),
            token(head, r#"{"sub":"ann","nbf":1001}"#, SECRET),
            token(r#"{"alg":"none"}"#, r#"{"sub":"ann"}"#, SECRET),
            token(head, r#"{"name":"ann"}"#, SECRET),
            good.rsplit_once('.').unwrap().0.to_owned() + ".",
            format!("{}x", good),
            "..".into(),
            ".".into(),
        ] {
            assert_eq!(found(&keys, &bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_with_the_name_of_a_key_is_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path(), "mobile 100 0123456789abcdef\nann 9\n").unwrap().unwrap();
        let named = token(r#"{"alg":"HS256"}"#, r#"{"sub":"mobile"}"#, SECRET);
        let (own, named) = (found(&keys, "0123456789abcdef").unwrap(), found(&keys, &named).unwrap());
        assert_eq!((own.weight, named.weight), (100, 1));
        assert_ne!(own.account(), named.account());
    }

    #[test]
    fn lines_that_say_nothing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for line in ["a", "a x 0123456789abcdef", "a 0 0123456789abcdef", "a 1 short", "a 1001 0123456789abcdef"] {
            assert!(matches!(keys(folder.path(), line), Err(KeyError::Line { line: 1, .. })), "{line}");
        }
        let twice = "a 1 0123456789abcdef\nb 1 0123456789abcdef\n";
        assert!(matches!(keys(folder.path(), twice), Err(KeyError::Twice { line: 2, .. })));
        assert!(Keys::read(&KeySettings::default()).unwrap().is_none(), "no header, no keys");
    }
}
