//! Tests with valid tokens, and with all kinds of tokens that must be refused.

use super::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

const EXPECTED: Expected<'_> =
    Expected { issuer: "https://id.example.org", client_id: "weir", nonce: "n", now_s: 1_950_000_000 };

/// Keys and tokens that were made by another program (jose, for Node.js).
const KEYS: &[u8] = include_bytes!("fuzz_keys.json");
const RS256: &str = include_str!("../../../../fuzz/seeds/identity_provider/rs256");
const ES256: &str = include_str!("../../../../fuzz/seeds/identity_provider/es256");

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A provider with a key of its own.
struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Signer { pair, random }
    }

    fn key(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({ "kty": "EC", "crv": "P-256", "kid": "k", "x": x, "y": y })
    }

    fn keys(&self) -> Keys {
        Keys::read(json!({ "keys": [self.key()] }).to_string().as_bytes()).unwrap()
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let words = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(&self.random, words.as_bytes()).unwrap();
        format!("{words}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn verified(&self, claims: &Value) -> Result<Claims, TokenProblem> {
        verify(&self.token(&json!({ "alg": "ES256", "kid": "k" }), claims), &self.keys(), EXPECTED)
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.org", "aud": "weir", "sub": "1", "exp": 1_950_000_100_u64, "iat": 1_950_000_000_u64, "nonce": "n",
    })
}

/// The claims with one of them changed; null removes it.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

#[test]
fn tokens_of_another_program_are_believed_and_bent_ones_are_not() {
    let keys = Keys::read(KEYS).unwrap();
    for token in [RS256, ES256] {
        assert_eq!(verify(token, &keys, EXPECTED).unwrap()["preferred_username"], "ann");
        for at in 0..token.len() {
            let mut bent = token.as_bytes().to_vec();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            assert!(verify(&bent, &keys, EXPECTED).is_err(), "bent at {at}");
            assert!(verify(&token[..at], &keys, EXPECTED).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn a_token_is_of_its_issuer_for_us_now_and_for_this_sign_in() {
    let signer = Signer::new();
    assert!(signer.verified(&claims()).is_ok());
    let cases = [
        ("iss", json!("https://id.example.org/"), TokenProblem::Issuer),
        ("iss", json!(["https://id.example.org"]), TokenProblem::Issuer),
        ("iss", Value::Null, TokenProblem::Issuer),
        ("aud", json!("other"), TokenProblem::Audience),
        ("aud", json!(["other"]), TokenProblem::Audience),
        ("aud", json!([]), TokenProblem::Audience),
        ("aud", Value::Null, TokenProblem::Audience),
        // It is meant for several clients, and does not say that it was given to us.
        ("aud", json!(["weir", "other"]), TokenProblem::Audience),
        ("azp", json!("other"), TokenProblem::Audience),
        ("exp", json!(1_949_999_900_u64), TokenProblem::Expired),
        ("exp", json!("1950000100"), TokenProblem::Expired),
        ("exp", Value::Null, TokenProblem::Expired),
        ("iat", json!(1_950_000_100_u64), TokenProblem::TooEarly),
        ("iat", Value::Null, TokenProblem::TooEarly),
        ("nbf", json!(1_950_000_100_u64), TokenProblem::TooEarly),
        ("nbf", json!("soon"), TokenProblem::TooEarly),
        ("nonce", json!("other"), TokenProblem::Nonce),
        ("nonce", json!(""), TokenProblem::Nonce),
        ("nonce", Value::Null, TokenProblem::Nonce),
        ("sub", json!(""), TokenProblem::Unreadable),
        ("sub", json!(1), TokenProblem::Unreadable),
    ];
    for (name, value, problem) in cases {
        assert_eq!(signer.verified(&with(name, value.clone())), Err(problem), "{name}: {value}");
    }
    for (name, value) in [
        ("aud", json!(["weir"])),
        ("azp", json!("weir")),
        ("exp", json!(1_949_999_950.5)),
        ("nbf", json!(1_950_000_050_u64)),
    ] {
        assert!(signer.verified(&with(name, value.clone())).is_ok(), "{name}: {value}");
    }
    let nobody = Expected { nonce: "", ..EXPECTED };
    let token = signer.token(&json!({ "alg": "ES256" }), &with("nonce", json!("")));
    assert_eq!(verify(&token, &signer.keys(), nobody), Err(TokenProblem::Nonce), "an empty nonce is none");
}

#[test]
fn a_token_does_not_choose_how_it_is_checked() {
    let signer = Signer::new();
    let (keys, claims) = (signer.keys(), claims());
    let problem = |header: Value| verify(&signer.token(&header, &claims), &keys, EXPECTED).unwrap_err();
    for alg in ["none", "None", "NONE", "", "HS256", "HS512", "RS512", "ES384", "PS256", "es256", "EdDSA"] {
        assert_eq!(problem(json!({ "alg": alg, "kid": "k" })), TokenProblem::Algorithm, "{alg}");
    }
    assert_eq!(problem(json!({ "kid": "k" })), TokenProblem::Unreadable, "no algorithm");
    // The key is of another kind, or is not known.
    assert_eq!(problem(json!({ "alg": "RS256", "kid": "k" })), TokenProblem::UnknownKey);
    assert_eq!(problem(json!({ "alg": "ES256", "kid": "other" })), TokenProblem::UnknownKey);
    // Keys that the token brings along are ignored.
    let own = Signer::new();
    let header = json!({ "alg": "ES256", "kid": "k", "jwk": own.key(), "jku": "https://evil.example/keys" });
    assert_eq!(verify(&own.token(&header, &claims), &keys, EXPECTED), Err(TokenProblem::Signature));
    assert_eq!(problem(json!({ "alg": "ES256", "kid": "k", "crit": ["b64"], "b64": false })), TokenProblem::Unreadable);
    // Without a signature, and signed with the public key as if that were a shared secret.
    let words = format!("{}.{}", encode(&json!({ "alg": "none" })), encode(&claims));
    assert_eq!(verify(&format!("{words}."), &keys, EXPECTED), Err(TokenProblem::Algorithm));
    let words = format!("{}.{}", encode(&json!({ "alg": "HS256", "kid": "k" })), encode(&claims));
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.pair.public_key().as_ref());
    let forged = format!("{words}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, words.as_bytes())));
    assert_eq!(verify(&forged, &keys, EXPECTED), Err(TokenProblem::Algorithm));
    let words = format!("{}.{}", encode(&json!({ "alg": "ES256", "kid": "k" })), encode(&claims));
    assert_eq!(verify(&format!("{words}."), &keys, EXPECTED), Err(TokenProblem::Signature));
    assert_eq!(verify(&format!("{words}.{}", "A".repeat(86)), &keys, EXPECTED), Err(TokenProblem::Signature));
}

#[test]
fn keys_of_other_kinds_and_uses_are_left_out() {
    let signer = Signer::new();
    let token = signer.token(&json!({ "alg": "ES256", "kid": "k" }), &claims());
    let with = |change: &dyn Fn(&mut Value)| {
        let mut key = signer.key();
        change(&mut key);
        let keys =
            json!({ "keys": [{ "kty": "oct", "k": "AAAA" }, 5, key, { "kty": "OKP", "crv": "Ed25519", "x": "AA" }] });
        verify(&token, &Keys::read(keys.to_string().as_bytes()).unwrap(), EXPECTED)
    };
    assert!(with(&|_| {}).is_ok());
    assert!(with(&|key| key["use"] = json!("sig")).is_ok());
    assert_eq!(with(&|key| key["use"] = json!("enc")), Err(TokenProblem::UnknownKey));
    assert_eq!(with(&|key| key["alg"] = json!("ES512")), Err(TokenProblem::UnknownKey));
    assert_eq!(with(&|key| key["crv"] = json!("P-384")), Err(TokenProblem::UnknownKey));
    assert_eq!(with(&|key| key["x"] = json!("AAAA")), Err(TokenProblem::UnknownKey));
    assert!(Keys::read(b"[]").is_err() && Keys::read(b"{}").is_err());
}
