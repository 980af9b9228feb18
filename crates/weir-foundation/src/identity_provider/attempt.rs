//! A sign-in that is under way: what Weir has to know when the browser comes back from the provider.
//!
//! This travels in a cookie of the browser, sealed with a key that lives as long as the process. So unfinished sign-ins take no memory
//! here, however many are begun, and a sign-in can only be finished in the browser that began it. A sign-in that has come back is noted, so
//! that it cannot be used twice.

use crate::random::random;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How long somebody may take to log in at the provider.
pub(super) const GOOD_FOR_S: u64 = 600;
/// How many sign-ins that came back are noted, so that none is used twice. The provider accepts a code only once anyway.
const USED_MAX: usize = 10_000;

/// A sign-in that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempt {
    /// The state, which the provider must send back.
    pub(super) state: String,
    /// The nonce, which the provider's token must contain.
    pub(super) nonce: String,
    /// The verifier that the code is bound to (PKCE, RFC 7636).
    pub(super) verifier: String,
    /// Where the provider sends the browser.
    pub(super) redirect: String,
    /// The page that the person wanted to see.
    pub(super) next: String,
    pub(super) begun_s: u64,
}

impl Attempt {
    pub(super) fn new(redirect: &str, next: &str, now_s: u64) -> Attempt {
        let fresh = || URL_SAFE_NO_PAD.encode(random::<32>());
        let (redirect, next) = (redirect.to_owned(), next.to_owned());
        Attempt { state: fresh(), nonce: fresh(), verifier: fresh(), redirect, next, begun_s: now_s }
    }

    /// The digest of the verifier, which the provider gets when the sign-in begins.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// Seals attempts, and knows which of them came back already.
pub(super) struct Attempts {
    key: LessSafeKey,
    /// The time when each state came back.
    used: Mutex<HashMap<String, u64>>,
}

impl Attempts {
    pub(super) fn new() -> Attempts {
        let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, &random::<32>()) else {
            unreachable!("a key of this cipher has 32 octets")
        };
        Attempts { key: LessSafeKey::new(key), used: Mutex::default() }
    }

    pub(super) fn seal(&self, attempt: &Attempt) -> String {
        let nonce = random::<NONCE_LEN>();
        let mut octets = serde_json::to_vec(attempt).unwrap_or_default();
        let sealed = self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut octets);
        match sealed {
            Ok(()) => URL_SAFE_NO_PAD.encode([&nonce[..], &octets].concat()),
            Err(_) => String::new(),
        }
    }

    /// The attempt that was sealed with this state; none if it is too old, was not sealed here, or came back before.
    pub(super) fn come_back(&self, sealed: &str, state: &str, now_s: u64) -> Option<Attempt> {
        let octets = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = octets.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let open = self.key.open_in_place(nonce, Aad::empty(), &mut sealed).ok()?;
        let attempt: Attempt = serde_json::from_slice(open).ok()?;
        let ours = ring::digest::digest(&ring::digest::SHA256, attempt.state.as_bytes());
        let theirs = ring::digest::digest(&ring::digest::SHA256, state.as_bytes());
        let age_s = now_s.checked_sub(attempt.begun_s)?;
        // Digests are compared, so that the time does not tell where the texts differ.
        (ours.as_ref() == theirs.as_ref() && age_s < GOOD_FOR_S && self.first_time(state, now_s)).then_some(attempt)
    }

    fn first_time(&self, state: &str, now_s: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= USED_MAX {
            used.retain(|_, at_s| now_s < *at_s + GOOD_FOR_S);
        }
        if used.len() >= USED_MAX
            && let Some(oldest) = used.iter().min_by_key(|(_, at_s)| **at_s).map(|(state, _)| state.clone())
        {
            used.remove(&oldest);
        }
        used.insert(state.to_owned(), now_s).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_comes_back_once_in_its_own_browser_and_in_time() {
        let attempts = Attempts::new();
        let attempt = Attempt::new("https://console.example/login/oidc/callback", "/lab", 1_000);
        let sealed = attempts.seal(&attempt);
        let other = Attempt::new("", "", 1_000);
        assert_eq!(attempts.come_back(&sealed, &other.state, 1_001), None, "another state");
        assert_eq!(attempts.come_back(&attempts.seal(&other), &attempt.state, 1_001), None, "another browser");
        assert_eq!(attempts.come_back(&sealed, &attempt.state, 1_000 + GOOD_FOR_S), None, "late");
        assert_eq!(attempts.come_back(&sealed, &attempt.state, 999), None, "before it began");
        assert_eq!(Attempts::new().come_back(&sealed, &attempt.state, 1_001), None, "another process");
        assert_eq!(attempts.come_back(&sealed, "", 1_001), None);
        assert_eq!(attempts.come_back(&sealed, &attempt.state, 1_001), Some(attempt.clone()));
        assert_eq!(attempts.come_back(&sealed, &attempt.state, 1_002), None, "a second time");
        for at in 0..sealed.len() {
            let mut bent = sealed.clone().into_bytes();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            assert_eq!(attempts.come_back(&bent, &attempt.state, 1_003), None, "bent at {at}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let attempts = Attempts::new();
        for n in 0..USED_MAX as u64 + 50 {
            assert!(attempts.first_time(&n.to_string(), n / 100));
        }
        assert_eq!(attempts.used.lock().unwrap().len(), USED_MAX);
        assert!(!attempts.first_time("10049", 101), "the latest are kept");
    }

    #[test]
    fn the_challenge_is_as_rfc_7636_appendix_b_has_it() {
        let mut attempt = Attempt::new("", "", 0);
        attempt.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
