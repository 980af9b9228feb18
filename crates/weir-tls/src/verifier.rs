//! A client's verifier that accepts certificates according to a given rule.
//!
//! The rule decides which certificates are good enough: any at all, for peers that need not prove their name or prove it in another way; or
//! those of one known authority, for a machine that joins a lab. In every case it is checked that the handshake was signed with the
//! certificate's key.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// The certificates that a server presents.
#[derive(Debug)]
pub struct Presented<'a> {
    /// Its certificate.
    pub end_entity: &'a CertificateDer<'a>,
    /// The certificates between it and an authority.
    pub intermediates: &'a [CertificateDer<'a>],
    /// The name of the server that we want to reach.
    pub name: &'a ServerName<'a>,
    /// The time.
    pub now: UnixTime,
}

/// Accepts every certificate.
pub fn any_certificate(provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
    certificates_by(provider, |_| Ok(()))
}

/// Accepts the certificates that the rule accepts, if this provider can check their signatures.
pub fn certificates_by(
    provider: &CryptoProvider,
    rule: impl Fn(&Presented<'_>) -> Result<(), rustls::Error> + Send + Sync + 'static,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(ByRule { rule, algorithms: provider.signature_verification_algorithms })
}

struct ByRule<F> {
    rule: F,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<F> fmt::Debug for ByRule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRule").finish_non_exhaustive()
    }
}

impl<F: Fn(&Presented<'_>) -> Result<(), rustls::Error> + Send + Sync> ServerCertVerifier for ByRule<F> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.rule)(&Presented { end_entity, intermediates, name, now }).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
