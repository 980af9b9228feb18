use super::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use std::process::Command;
use std::time::Duration;

const SECRET: &str = "a secret of thirty-two octets, or more of them";

/// Somebody who signs tokens, with keys as openssl makes them.
struct Signer {
    folder: tempfile::TempDir,
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

fn openssl(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let made = Command::new("openssl").args(arguments).current_dir(folder).output();
    let made = made.expect("openssl is not installed: run `make setup`");
    assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

impl Signer {
    fn new() -> Signer {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        openssl(at, &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "rsa.pem"]);
        openssl(at, &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "ec.pem"]);
        for name in ["rsa", "ec"] {
            let (private, public) = (format!("{name}.pem"), format!("{name}.pub"));
            openssl(at, &["pkey", "-in", &private, "-pubout", "-out", &public]);
        }
        let der = |name| openssl(at, &["pkcs8", "-topk8", "-nocrypt", "-in", name, "-outform", "DER"]);
        let (rsa, ec) = (der("rsa.pem"), der("ec.pem"));
        let rsa = RsaKeyPair::from_pkcs8(&rsa).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &ec, &SystemRandom::new()).unwrap();
        Signer { folder, rsa, ec }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Signed as its head says, or with the secret.
    fn token(&self, head: &str, content: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(content));
        let signature = if head.contains("RS256") {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
            signature
        } else if head.contains("ES256") {
            self.ec.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
        } else {
            by_secret(&signed, SECRET.as_bytes())
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn jwks(&self) -> String {
        let text = |octets: &[u8]| URL_SAFE_NO_PAD.encode(octets);
        let keys = read_public(&self.path("rsa.pub")).unwrap();
        let PublicKey { key: KeyKind::Rsa { n, e }, .. } = &keys[0] else { panic!("it is an RSA key") };
        let point = self.ec.public_key().as_ref();
        serde_json::json!({"keys": [
            {"kty": "oct", "k": text(SECRET.as_bytes()), "alg": "HS256"},
            {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": text(n), "e": text(e)},
            {"kty": "EC", "kid": "two", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])},
            {"kty": "RSA", "kid": "three", "use": "enc", "n": text(n), "e": text(e)},
        ]})
        .to_string()
    }
}

fn by_secret(signed: &str, secret: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes()).as_ref().to_vec()
}

fn demands() -> Demands {
    Demands { claim: "sub".into(), ..Demands::default() }
}

fn spoken(tokens: &Tokens, token: &str) -> Option<String> {
    tokens.spoken(token.as_bytes(), UNIX_EPOCH + Duration::from_secs(1_000)).map(|spoken| spoken.name)
}

const RS256: &str = r#"{"alg":"RS256","typ":"JWT"}"#;
const ES256: &str = r#"{"alg":"ES256"}"#;
const HS256: &str = r#"{"alg":"HS256"}"#;
const ANN: &str = r#"{"sub":"ann","exp":2000}"#;

#[test]
fn a_token_counts_under_the_key_that_it_is_signed_with() {
    let signer = Signer::new();
    let both = [signer.path("rsa.pub"), signer.path("ec.pub")].map(|path| std::fs::read_to_string(path).unwrap());
    for keys in [both.concat(), signer.jwks()] {
        let file = signer.write("keys", &keys);
        let tokens = Tokens::read(None, Some(&file), demands()).unwrap().unwrap();
        for head in [RS256, ES256, r#"{"alg":"RS256","kid":"one"}"#, r#"{"alg":"ES256","kid":"two"}"#] {
            let good = signer.token(head, ANN);
            assert_eq!(spoken(&tokens, &good).as_deref(), Some("ann"), "{head}");
            let (signed, signature) = good.rsplit_once('.').unwrap();
            let other = URL_SAFE_NO_PAD.encode(r#"{"sub":"eve","exp":2000}"#);
            let forged = format!("{}.{other}.{signature}", signed.split('.').next().unwrap());
            assert_eq!(spoken(&tokens, &forged), None, "{head}");
            assert_eq!(spoken(&tokens, &format!("{signed}.")), None, "{head}");
        }
        // A secret that nobody has given is not found among the public keys.
        assert_eq!(spoken(&tokens, &signer.token(HS256, ANN)), None);
        let unsigned = format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(ANN));
        assert_eq!(spoken(&tokens, &unsigned), None);
    }
}

#[test]
fn one_algorithm_is_never_taken_for_another() {
    let signer = Signer::new();
    let (secret, keys) = (signer.write("secret", SECRET), signer.write("keys", &signer.jwks()));
    let tokens = Tokens::read(Some(&secret), Some(&keys), demands()).unwrap().unwrap();
    assert_eq!(spoken(&tokens, &signer.token(HS256, ANN)).as_deref(), Some("ann"), "both kinds may be there");
    let swap = |token: &str, head: &str| {
        let rest = token.split_once('.').unwrap().1;
        format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head))
    };
    for (from, to) in [(RS256, ES256), (ES256, RS256), (RS256, HS256), (HS256, RS256)] {
        assert_eq!(spoken(&tokens, &swap(&signer.token(from, ANN), to)), None, "{from} as {to}");
    }
    // The public key, which everybody has, used as if it were the secret.
    for name in ["rsa.pub", "ec.pub", "keys"] {
        let public = std::fs::read(signer.path(name)).unwrap();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HS256), URL_SAFE_NO_PAD.encode(ANN));
        let forged = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(by_secret(&signed, &public)));
        assert_eq!(spoken(&tokens, &forged), None, "{name}");
        let error = Tokens::read(Some(&signer.path(name)), None, demands()).unwrap_err();
        assert!(matches!(error, TokenKeyError::NoSecret { .. }), "{name}: {error}");
    }
    for head in [
        r#"{"alg":"RS256","kid":"two"}"#,
        r#"{"alg":"RS256","kid":"three"}"#,
        r#"{"alg":"RS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"rs256","was":"RS256"}"#,
        r#"{"alg":"RS512","was":"RS256"}"#,
        r#"{"typ":"RS256"}"#,
    ] {
        assert_eq!(spoken(&tokens, &signer.token(head, ANN)), None, "{head}");
    }
}

#[test]
fn a_token_is_for_us_from_whom_we_know_and_in_its_time() {
    let signer = Signer::new();
    let (public, file) = (signer.path("ec.pub"), signer.path("ec.pub"));
    let strict = Demands { audience: "shop".into(), issuer: "https://id".into(), weight: "tier".into(), ..demands() };
    let tokens = Tokens::read(None, Some(&public), strict).unwrap().unwrap();
    let good = r#"{"sub":"ann","aud":"shop","iss":"https://id","exp":2000,"tier":7}"#;
    let said = tokens.spoken(signer.token(ES256, good).as_bytes(), UNIX_EPOCH + Duration::from_secs(1_000));
    assert_eq!(said, Some(Spoken { name: "ann".into(), weight: Some(7) }));
    let list = good.replace("\"shop\"", "[\"other\",\"shop\"]").replace("7", "\"much\"");
    let said = tokens.spoken(signer.token(ES256, &list).as_bytes(), UNIX_EPOCH + Duration::from_secs(1_000));
    assert_eq!(said, Some(Spoken { name: "ann".into(), weight: None }));
    for (from, to) in [
        ("\"aud\":\"shop\",", ""),
        ("\"shop\"", "\"shops\""),
        ("\"shop\"", "[\"other\"]"),
        ("\"https://id\"", "\"https://evil\""),
        ("\"iss\":\"https://id\",", ""),
        ("2000", "1000"),
        ("2000", "\"2000\""),
        ("\"exp\":2000", "\"exp\":2000,\"nbf\":1001"),
        ("\"ann\"", "\"\""),
        ("\"ann\"", "7"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        assert_eq!(spoken(&tokens, &signer.token(ES256, &bad)), None, "{bad}");
    }
    let any = Tokens::read(None, Some(&file), demands()).unwrap().unwrap();
    assert_eq!(spoken(&any, &signer.token(ES256, r#"{"sub":"ann"}"#)).as_deref(), Some("ann"));
}

#[test]
fn files_without_a_key_are_refused() {
    let signer = Signer::new();
    openssl(
        signer.folder.path(),
        &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", "small.pem"],
    );
    openssl(signer.folder.path(), &["pkey", "-in", "small.pem", "-pubout", "-out", "small.pub"]);
    for name in ["small.pub", "rsa.pem"] {
        let error = Tokens::read(None, Some(&signer.path(name)), demands()).unwrap_err();
        assert!(matches!(error, TokenKeyError::NoKey { .. }), "{name}: {error}");
    }
    for text in ["", "{}", "{\"keys\": []}", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        let file = signer.write("bad", text);
        assert!(matches!(Tokens::read(None, Some(&file), demands()), Err(TokenKeyError::NoKey { .. })), "{text}");
    }
    let file = signer.write("short", "short");
    assert!(matches!(Tokens::read(Some(&file), None, demands()), Err(TokenKeyError::Secret { .. })));
    assert!(Tokens::read(Some(&signer.path("gone")), None, demands()).is_err());
    assert!(Tokens::read(None, None, demands()).unwrap().is_none());
}
