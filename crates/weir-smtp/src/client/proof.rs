//! What a server has to prove in addition to the TLS settings, because of DANE (RFC 7672) or MTA-STS (RFC 8461).

use rustls::pki_types::{CertificateDer, TrustAnchor};
use rustls::{CertificateError, ClientConfig};
use std::sync::Arc;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use weir_tls::{Presented, certificates_by};

/// What a server has to prove.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Proof {
    /// Only what the TLS settings demand.
    #[default]
    AsAsked,
    /// That it can do TLS. The DNS demands this, but says nothing about the certificate that we understand.
    Encryption,
    /// One of the certificates that these records name.
    Dane(Arc<[CertificateRecord]>),
    /// A certificate for its name from a trusted authority.
    Name,
}

/// A TLSA record that can be used (RFC 7672 section 3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateRecord {
    /// Whether it names an authority (usage 2), or the server's own certificate (usage 3).
    pub authority: bool,
    /// Whether it is about the public key (selector 1), or the whole certificate (selector 0).
    pub key_only: bool,
    /// How `data` names the certificate or the key.
    pub matching: Matching,
    /// The certificate, the key, or the hash of it.
    pub data: Vec<u8>,
}

/// How a record names a certificate or a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matching {
    /// It contains the certificate or the key itself.
    Whole,
    /// By its SHA-256 hash.
    Sha256,
    /// By its SHA-512 hash.
    Sha512,
}

impl CertificateRecord {
    fn names(&self, certificate: &CertificateDer<'_>) -> bool {
        let key;
        let named: &[u8] = if self.key_only {
            let Ok(read) = EndEntityCert::try_from(certificate) else { return false };
            key = read.subject_public_key_info();
            &key
        } else {
            certificate
        };
        match self.matching {
            Matching::Whole => named == self.data,
            Matching::Sha256 => ring::digest::digest(&ring::digest::SHA256, named).as_ref() == self.data,
            Matching::Sha512 => ring::digest::digest(&ring::digest::SHA512, named).as_ref() == self.data,
        }
    }

    /// Whether a server's certificates fit the record. For the server's own certificate, neither the name in it nor its validity period
    /// matter (RFC 7672 section 3.1.1). An authority must have signed a valid certificate for the name.
    fn accepts(&self, presented: &Presented<'_>) -> bool {
        if !self.authority {
            return self.names(presented.end_entity);
        }
        let carried = CertificateDer::from(self.data.as_slice());
        let in_record = (!self.key_only && self.matching == Matching::Whole).then_some(&carried);
        let shown = presented.intermediates.iter().filter(|certificate| self.names(certificate));
        shown.chain(in_record).any(|authority| leads_to(authority, presented))
    }
}

fn leads_to(authority: &CertificateDer<'_>, presented: &Presented<'_>) -> bool {
    let Ok(anchor) = anchor_from_trusted_cert(authority) else { return false };
    let Ok(own) = EndEntityCert::try_from(presented.end_entity) else { return false };
    let anchors: [TrustAnchor<'_>; 1] = [anchor];
    let path = own.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        presented.intermediates,
        presented.now,
        KeyUsage::server_auth(),
        None,
        None,
    );
    path.is_ok() && own.verify_is_valid_for_subject_name(presented.name).is_ok()
}

/// The TLS configuration for a server that must have one of the certificates that these records name.
pub(super) fn by_records(records: &Arc<[CertificateRecord]>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let records = Arc::clone(records);
    let verifier = certificates_by(&provider, move |presented| {
        let accepted = records.iter().any(|record| record.accepts(presented));
        if accepted { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}
