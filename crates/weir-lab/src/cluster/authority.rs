//! The lab's certificate authority: keys that the database keeps sealed, so that any eligible machine can admit another.
//!
//! Only eligible machines have the key to the seal, in their credentials. With the database alone nobody can admit a machine.
//!
//! Authorities replace each other over time. One lives as long as four certificates of machines; the next is made when five eighths of that
//! are left, and signs when a quarter of its own life is over. By then every machine has renewed its certificate, and so knows the new
//! authority. Every certificate expires before the authority that signed it.

use super::identity::{Identity, hex, unhex};
use super::validity::{BACKDATED, Issued, Validity};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SignatureAlgorithm,
};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::{Duration, SystemTime};
use weir_store::records::{Records, RecordsError};

/// Every machine uses this name for TLS; another one in the certificate says which machine it is.
pub(crate) const SERVER_NAME: &str = "lab.weir.internal";
/// An authority is valid for as long as this many certificates of machines.
const LIVES: u32 = 4;
/// The names of the two secrets of the first authority in the database; later authorities have one secret each.
const SEALED: &str = "lab-authority-key";
const CERTIFICATE: &str = "lab-authority";

/// The authority, with its secret key opened.
pub struct Authority {
    signer: Generation,
    /// Certificates that are trusted, PEM; the one that signs comes first.
    pub certificates: String,
    now: SystemTime,
    life: Duration,
}

/// When something is signed, and how long it should be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issue {
    pub now: SystemTime,
    /// How long a certificate of a machine counts.
    pub life: Duration,
}

/// One of the authorities that succeed each other.
struct Generation {
    number: u32,
    key: KeyPair,
    certificate: String,
    validity: Validity,
}

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// There is one already.
    #[error("these records hold a lab already; a machine enters it with `weir lab join`")]
    Exists,
    /// There is none.
    #[error("these records hold no lab; `weir lab init` makes one")]
    Missing,
    /// This machine may not use it.
    #[error("this machine cannot open the lab's authority: only eligible machines can")]
    Sealed,
    /// The certificate does not belong to its key: somebody has replaced it.
    #[error("the certificate of the lab's authority in the records is not that of its key: somebody has changed it")]
    Changed,
    /// A certificate could not be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The records returned an error.
    #[error("{0}")]
    Records(#[from] RecordsError),
    /// The system has no random numbers.
    #[error("{0}")]
    Random(#[from] std::io::Error),
}

impl Authority {
    /// Founds a lab in these records, which have none; its key is sealed with `seal`.
    pub async fn found(records: &Records, seal: &[u8; 32], issue: Issue) -> Result<Authority, AuthorityError> {
        let first = Generation::new(0, issue)?;
        let sealed = sealed(seal, SEALED, first.key.serialized_der())?;
        if records.secrets().find_or_set(SEALED, &sealed).await? != sealed {
            // A lab without a machine was left by a process that was killed: nobody has the seal for it.
            if records.lab_nodes().all().await?.iter().any(|node| !node.fingerprint.is_empty()) {
                return Err(AuthorityError::Exists);
            }
            records.secrets().set(SEALED, &sealed).await?;
        }
        records.secrets().set(CERTIFICATE, &first.certificate).await?;
        let certificates = first.certificate.clone();
        Ok(Authority { signer: first, certificates, now: issue.now, life: issue.life })
    }

    /// Opens the authority of these records; makes the next one when it is time for that.
    pub async fn open(records: &Records, seal: &[u8; 32], issue: Issue) -> Result<Authority, AuthorityError> {
        let mut generations = vec![Generation::first(records, seal).await?];
        while let Some(next) = Generation::read(records, seal, generations.len()).await? {
            generations.push(next);
        }
        if generations.last().is_some_and(|newest| newest.is_due(issue.now)) {
            let next = Generation::follow(records, seal, (generations.len(), issue)).await?;
            generations.push(next);
        }
        let newest = generations.len() - 1;
        let signer = generations.iter().rposition(|generation| generation.signs(issue.now)).unwrap_or(newest);
        let signer = generations.swap_remove(signer);
        let others = generations.iter().filter(|generation| issue.now < generation.validity.until);
        let others = others.map(|generation| generation.certificate.as_str());
        let certificates = std::iter::once(signer.certificate.as_str()).chain(others).collect();
        Ok(Authority { signer, certificates, now: issue.now, life: issue.life })
    }

    /// A certificate, PEM, for this machine and its public key.
    pub fn certify(&self, identity: &Identity, public_key: [u8; 32]) -> Result<String, AuthorityError> {
        let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
        params.subject_alt_names.push(SanType::URI(identity.uri().try_into()?));
        params.distinguished_name = named(&identity.name);
        params.not_before = (self.now - BACKDATED).into();
        params.not_after = (self.now + self.life).min(self.signer.validity.until).into();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let issuer = Issuer::new(authority_params(self.signer.number, &self.signer.validity), &self.signer.key);
        Ok(params.signed_by(&RawKey(public_key), &issuer)?.pem())
    }
}

impl Generation {
    fn new(number: u32, issue: Issue) -> Result<Generation, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let life = issue.life.saturating_mul(LIVES);
        let validity = Validity { from: issue.now - BACKDATED, until: issue.now + life };
        let certificate = authority_params(number, &validity).self_signed(&key)?.pem();
        Generation::of(number, key, certificate)
    }

    fn of(number: u32, key: KeyPair, certificate: String) -> Result<Generation, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok();
        let validity = der.as_ref().and_then(Validity::of).ok_or(AuthorityError::Missing)?;
        // The key was sealed, but the certificate was not; and every machine trusts what it gets from the authority.
        if der.as_ref().and_then(Identity::public_key).is_none_or(|certified| certified != key.der_bytes()) {
            return Err(AuthorityError::Changed);
        }
        Ok(Generation { number, key, certificate, validity })
    }

    async fn first(records: &Records, seal: &[u8; 32]) -> Result<Generation, AuthorityError> {
        let missing = || AuthorityError::Missing;
        let kept = records.secrets().find(SEALED).await?.ok_or_else(missing)?;
        let certificate = records.secrets().find(CERTIFICATE).await?.ok_or_else(missing)?;
        let der = opened(seal, SEALED, &kept).ok_or(AuthorityError::Sealed)?;
        Generation::of(0, KeyPair::try_from(der.as_slice())?, certificate)
    }

    async fn read(records: &Records, seal: &[u8; 32], number: usize) -> Result<Option<Generation>, AuthorityError> {
        match records.secrets().find(&kept_as(number)).await? {
            Some(kept) => Ok(Some(Generation::unsealed(seal, number, &kept)?)),
            None => Ok(None),
        }
    }

    /// The next authority. If several machines make it at the same time, one is first, and all use that one.
    async fn follow(
        records: &Records,
        seal: &[u8; 32],
        (number, issue): (usize, Issue),
    ) -> Result<Generation, AuthorityError> {
        let next = Generation::new(u32::try_from(number).unwrap_or(u32::MAX), issue)?;
        let name = kept_as(number);
        let fresh = format!("{} {}", sealed(seal, &name, next.key.serialized_der())?, next.certificate);
        let kept = records.secrets().find_or_set(&name, &fresh).await?;
        Generation::unsealed(seal, number, &kept)
    }

    fn unsealed(seal: &[u8; 32], number: usize, kept: &str) -> Result<Generation, AuthorityError> {
        let (key, certificate) = kept.split_once(' ').ok_or(AuthorityError::Missing)?;
        let der = opened(seal, &kept_as(number), key).ok_or(AuthorityError::Sealed)?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Generation::of(number, KeyPair::try_from(der.as_slice())?, certificate.to_owned())
    }

    /// Whether the next one should be made.
    fn is_due(&self, now: SystemTime) -> bool {
        now >= self.validity.made() + self.validity.life() * 3 / 8
    }

    /// Whether every machine knows it, and it has not expired.
    fn signs(&self, now: SystemTime) -> bool {
        let known = self.number == 0 || now >= self.validity.made() + self.validity.life() / LIVES;
        known && now < self.validity.until
    }
}

/// The name of the secret of a later authority.
fn kept_as(number: usize) -> String {
    format!("{CERTIFICATE}.{number}")
}

fn authority_params(number: u32, validity: &Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = match number {
        0 => named("Weir lab"),
        number => named(&format!("Weir lab {number}")),
    };
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = (validity.from.into(), validity.until.into());
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
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
fn sealed(seal: &[u8; 32], name: &str, bytes: &[u8]) -> std::io::Result<String> {
    let mut nonce = [0; 12];
    weir_store::random(&mut nonce)?;
    let mut text = bytes.to_vec();
    let sealed = UnboundKey::new(&CHACHA20_POLY1305, seal)
        .map(LessSafeKey::new)
        .and_then(|key| key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut text));
    sealed.map_err(|_| std::io::Error::other("a secret cannot be sealed"))?;
    Ok(hex(&[&nonce[..], &text].concat()))
}

fn opened(seal: &[u8; 32], name: &str, kept: &str) -> Option<Vec<u8>> {
    let kept = unhex(kept)?;
    let (nonce, text) = kept.split_first_chunk::<12>()?;
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, seal).ok()?);
    let mut text = text.to_vec();
    let open = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(name), &mut text).ok()?;
    Some(open.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::election::{Priority, Role};

    const LIFE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Issue {
        Issue { now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds), life: LIFE }
    }

    #[tokio::test]
    async fn a_lab_is_founded_once_and_any_who_has_the_seal_can_certify() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        assert!(matches!(Authority::open(&records, &[1; 32], at(0)).await, Err(AuthorityError::Missing)));
        Authority::found(&records, &[3; 32], at(0)).await.unwrap();
        Authority::found(&records, &[1; 32], at(0)).await.expect("the first was killed before it had a machine");
        let first = Identity::new("n0", Role::Eligible, Priority(3)).unwrap();
        let row = crate::cluster::registry::row(&first, weir_core::election::KeyId([0; 32]), "");
        assert!(records.lab_nodes().register(&row).await.unwrap());
        assert!(matches!(Authority::found(&records, &[1; 32], at(0)).await, Err(AuthorityError::Exists)));
        assert!(matches!(Authority::open(&records, &[2; 32], at(0)).await, Err(AuthorityError::Sealed)));
        let authority = Authority::open(&records, &[1; 32], at(0)).await.unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let identity = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let pem = authority.certify(&identity, key.der_bytes().try_into().unwrap()).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(Identity::certified(&der).unwrap().0, identity);
        assert_eq!(Validity::of(&der).unwrap().life(), LIFE);
        let another = Generation::new(0, at(0)).unwrap();
        records.secrets().set(CERTIFICATE, &another.certificate).await.unwrap();
        assert!(matches!(Authority::open(&records, &[1; 32], at(0)).await, Err(AuthorityError::Changed)));
    }

    #[tokio::test]
    async fn authorities_follow_each_other_and_none_signs_before_it_is_known_or_beyond_its_end() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        Authority::found(&records, &[1; 32], at(0)).await.unwrap();
        let identity = Identity::new("n1", Role::Dispatcher, Priority(3)).unwrap();
        // What was trusted one lifetime ago is known to all machines by now.
        let mut known: Vec<(u64, String)> = Vec::new();
        let mut signers = std::collections::BTreeSet::new();
        for second in (0..1_000).step_by(5) {
            let authority = Authority::open(&records, &[1; 32], at(second)).await.unwrap();
            let signer = &authority.signer;
            let der = authority.certify(&identity, [7; 32]).unwrap();
            let der = CertificateDer::from_pem_slice(der.as_bytes()).unwrap();
            let validity = Validity::of(&der).unwrap();
            assert!(validity.until <= signer.validity.until && validity.life() == LIFE, "at {second}: {validity:?}");
            assert!(authority.certificates.starts_with(&signer.certificate));
            if let Some((_, before)) = known.iter().rev().find(|(at, _)| at + LIFE.as_secs() <= second) {
                assert!(before.contains(&signer.certificate), "at {second} not everybody knows {}", signer.number);
            }
            signers.insert(signer.number);
            known.push((second, authority.certificates));
        }
        assert!(signers.len() >= 5, "{signers:?}");
    }
}
