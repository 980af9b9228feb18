//! The lab's certificate authority: a key that the database keeps sealed, so that any eligible machine can admit another.
//!
//! What opens the seal is in the credentials of eligible machines only. The database alone admits nobody.

use super::identity::{Identity, hex, unhex};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SignatureAlgorithm,
};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::time::{Duration, SystemTime};
use weir_store::records::{Records, RecordsError};

/// Every machine answers to this name; who it is says another.
pub(super) const SERVER_NAME: &str = "lab.weir.internal";
/// Clocks of machines that join may be late.
const BACKDATED: Duration = Duration::from_secs(2 * 3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 86_400);
const NODE_LIFE: Duration = Duration::from_secs(5 * 365 * 86_400);
/// The names of the two secrets in the database.
const SEALED: &str = "lab-authority-key";
const CERTIFICATE: &str = "lab-authority";

/// The authority, open.
pub struct Authority {
    key: KeyPair,
    /// Its certificate, PEM.
    pub certificate: String,
}

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// There is one.
    #[error("these records hold a lab already; a machine enters it with `weir lab join`")]
    Exists,
    /// There is none.
    #[error("these records hold no lab; `weir lab init` makes one")]
    Missing,
    /// This machine may not use it.
    #[error("this machine cannot open the lab's authority: only eligible machines can")]
    Sealed,
    /// A certificate could not be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The records say no.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// The system has no random numbers.
    #[error("{0}")]
    Random(#[from] std::io::Error),
}

impl Authority {
    /// Makes a lab in these records, which have none; sealed with `seal`.
    pub async fn found(records: &Records, seal: &[u8; 32]) -> Result<Authority, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate = authority_params().self_signed(&key)?.pem();
        let sealed = sealed(seal, key.serialized_der())?;
        if records.secret(SEALED, &sealed).await? != sealed {
            // A lab without a machine was begun by one that was killed: nobody has what opens it.
            if !records.lab_nodes().await?.is_empty() {
                return Err(AuthorityError::Exists);
            }
            records.secret_set(SEALED, &sealed).await?;
        }
        records.secret_set(CERTIFICATE, &certificate).await?;
        Ok(Authority { key, certificate })
    }

    /// Opens the authority of these records.
    pub async fn open(records: &Records, seal: &[u8; 32]) -> Result<Authority, AuthorityError> {
        let missing = || AuthorityError::Missing;
        let kept = records.secret_if_any(SEALED).await?.ok_or_else(missing)?;
        let certificate = records.secret_if_any(CERTIFICATE).await?.ok_or_else(missing)?;
        let der = opened(seal, &kept).ok_or(AuthorityError::Sealed)?;
        let key = KeyPair::try_from(der.as_slice())?;
        Ok(Authority { key, certificate })
    }

    /// A certificate, PEM, for this machine and its public key.
    pub fn certify(&self, identity: &Identity, public_key: [u8; 32]) -> Result<String, AuthorityError> {
        let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
        params.subject_alt_names.push(SanType::URI(identity.uri().try_into()?));
        params.distinguished_name = named(&identity.name);
        (params.not_before, params.not_after) = life(NODE_LIFE);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let issuer = Issuer::new(authority_params(), &self.key);
        Ok(params.signed_by(&RawKey(public_key), &issuer)?.pem())
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Weir lab");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = life(AUTHORITY_LIFE);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn life(length: Duration) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let now = SystemTime::now();
    ((now - BACKDATED).into(), (now + length).into())
}

/// An Ed25519 public key.
struct RawKey([u8; 32]);

impl PublicKeyData for RawKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

/// Nonce and sealed bytes in hexadecimal digits.
fn sealed(seal: &[u8; 32], bytes: &[u8]) -> std::io::Result<String> {
    let mut nonce = [0; 12];
    weir_store::random(&mut nonce)?;
    let mut text = bytes.to_vec();
    let sealed = UnboundKey::new(&CHACHA20_POLY1305, seal).map(LessSafeKey::new).and_then(|key| {
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(SEALED), &mut text)
    });
    sealed.map_err(|_| std::io::Error::other("a secret cannot be sealed"))?;
    Ok(hex(&[&nonce[..], &text].concat()))
}

fn opened(seal: &[u8; 32], kept: &str) -> Option<Vec<u8>> {
    let kept = unhex(kept)?;
    let (nonce, text) = kept.split_first_chunk::<12>()?;
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, seal).ok()?);
    let mut text = text.to_vec();
    let open = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(SEALED), &mut text).ok()?;
    Some(open.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use weir_core::election::{Priority, Role};

    #[tokio::test]
    async fn a_lab_is_founded_once_and_any_who_has_the_seal_can_certify() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        assert!(matches!(Authority::open(&records, &[1; 32]).await, Err(AuthorityError::Missing)));
        Authority::found(&records, &[3; 32]).await.unwrap();
        Authority::found(&records, &[1; 32]).await.expect("the first was killed before it had a machine");
        let first = Identity::new("n0", Role::Eligible, Priority(3)).unwrap();
        let row = crate::cluster::registry::row(&first, weir_core::election::KeyId([0; 32]), "", 0);
        assert!(records.lab_register(&row).await.unwrap());
        assert!(matches!(Authority::found(&records, &[1; 32]).await, Err(AuthorityError::Exists)));
        assert!(matches!(Authority::open(&records, &[2; 32]).await, Err(AuthorityError::Sealed)));
        let authority = Authority::open(&records, &[1; 32]).await.unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let identity = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let pem = authority.certify(&identity, key.der_bytes().try_into().unwrap()).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(Identity::certified(&der).unwrap().0, identity);
    }
}
