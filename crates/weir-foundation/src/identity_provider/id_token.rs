//! The token in which a provider says who somebody is: a signed JSON object (RFC 7515, RFC 7519), checked as OpenID Connect Core 1.0
//! demands in section 3.1.3.7. Without I/O.

use super::keys::{Algorithm, Keys};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

/// How much the clocks of the two machines may differ.
const CLOCKS_APART_S: u64 = 60;
/// Longer tokens are refused.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// What the token says about the person.
pub(super) type Claims = Map<String, Value>;

/// What a token must contain to be accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: u64,
}

#[derive(Deserialize)]
struct JoseHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims of a token, if one of these keys signed it and it is meant for this sign-in, now.
pub(super) fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Claims, TokenProblem> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenProblem::Unreadable);
    }
    let (words, signature) = token.rsplit_once('.').ok_or(TokenProblem::Unreadable)?;
    let (header, claims) = words.split_once('.').ok_or(TokenProblem::Unreadable)?;
    let header: JoseHeader = serde_json::from_slice(&decoded(header)?).map_err(|_| TokenProblem::Unreadable)?;
    let algorithm = Algorithm::read(&header.alg).ok_or(TokenProblem::Algorithm)?;
    if header.crit.is_some() {
        return Err(TokenProblem::Unreadable);
    }
    let id = header.kid.as_deref();
    if !keys.knows(algorithm, id) {
        return Err(TokenProblem::UnknownKey);
    }
    if !keys.signed(algorithm, id, words.as_bytes(), &decoded(signature)?) {
        return Err(TokenProblem::Signature);
    }
    let claims: Claims = serde_json::from_slice(&decoded(claims)?).map_err(|_| TokenProblem::Unreadable)?;
    check(&claims, expected)?;
    Ok(claims)
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenProblem> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenProblem::Unreadable)
}

fn check(claims: &Claims, expected: Expected<'_>) -> Result<(), TokenProblem> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenProblem::Issuer);
    }
    let (here, others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == expected.client_id, false),
        Some(Value::Array(all)) => (all.iter().any(|one| one == expected.client_id), all.len() > 1),
        _ => (false, false),
    };
    // A token for several clients must say that it was given to us.
    let given_to_us = match claims.get("azp") {
        Some(party) => party == expected.client_id,
        None => !others,
    };
    if !here || !given_to_us {
        return Err(TokenProblem::Audience);
    }
    // Fractions of a second are allowed. A value that is not a number becomes NaN, so every comparison with it fails.
    let time = |name: &str| claims.get(name).map(|time| time.as_f64().unwrap_or(f64::NAN));
    let (now, apart) = (expected.now_s as f64, CLOCKS_APART_S as f64);
    if !time("exp").is_some_and(|end| now < end + apart) {
        return Err(TokenProblem::Expired);
    }
    let begun = |name: &str| time(name).is_none_or(|begin| begin <= now + apart);
    if time("iat").is_none() || !begun("iat") || !begun("nbf") {
        return Err(TokenProblem::TooEarly);
    }
    if expected.nonce.is_empty() || text("nonce") != Some(expected.nonce) {
        return Err(TokenProblem::Nonce);
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err(TokenProblem::Unreadable);
    }
    Ok(())
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// It is not a readable token, lacks the subject, or has an extension that we do not know.
    #[error("its token cannot be read")]
    Unreadable,
    /// It is unsigned, signed with a shared secret, or signed with an algorithm that is not accepted.
    #[error("its token is not signed with RS256 or ES256")]
    Algorithm,
    /// The provider does not publish such a key.
    #[error("its token is signed with a key that it does not publish")]
    UnknownKey,
    /// The token was forged or damaged.
    #[error("the signature of its token is wrong")]
    Signature,
    /// Somebody else issued it.
    #[error("its token names another issuer")]
    Issuer,
    /// It is meant for another client.
    #[error("its token is meant for another client")]
    Audience,
    /// It has expired.
    #[error("its token has expired; compare the clocks of both machines")]
    Expired,
    /// It is not valid yet, or does not say when it was issued.
    #[error("its token is not valid yet; compare the clocks of both machines")]
    TooEarly,
    /// It does not belong to this sign-in.
    #[error("its token belongs to another sign-in")]
    Nonce,
}

#[cfg(test)]
#[path = "id_token_tests.rs"]
mod tests;
