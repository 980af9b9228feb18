//! TLS to other servers: opportunistic, required or verified (RFC 3207, RFC 7435).
//!
//! Without verification, any certificate is accepted, because TLS then only has to keep out eavesdroppers; the handshake's own signature is
//! still checked. Verified means: the certificate is for the name that we want to reach, and is signed by a root that this machine (or the
//! given file) trusts. rustls with ring, TLS 1.2 and 1.3.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use weir_tls::any_certificate;

/// How much TLS is required.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsLevel {
    /// None, even if offered.
    Off,
    /// TLS if the server offers it and it works.
    #[default]
    Opportunistic,
    /// TLS always, with any certificate.
    Required,
    /// TLS always, with a valid certificate for the server's name.
    Verified,
}

/// The TLS side of a client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    unverified: Arc<ClientConfig>,
    verified: Arc<ClientConfig>,
}

impl ClientTls {
    /// Trusts the roots of this machine, or only those in a PEM file.
    pub fn new(roots: Option<&Path>) -> Result<ClientTls, ClientTlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
                .map_err(ClientTlsError::Provider)
        };
        let anyone = any_certificate(&provider);
        let unverified = builder()?.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth();
        let verified = builder()?.with_root_certificates(read_roots(roots)?).with_no_client_auth();
        Ok(ClientTls { unverified: Arc::new(unverified), verified: Arc::new(verified) })
    }

    /// The TLS configuration for a level.
    pub fn config(&self, level: TlsLevel) -> Arc<ClientConfig> {
        Arc::clone(if level == TlsLevel::Verified { &self.verified } else { &self.unverified })
    }
}

fn read_roots(file: Option<&Path>) -> Result<RootCertStore, ClientTlsError> {
    let store = weir_tls::roots(file)?;
    if store.is_empty() {
        tracing::warn!("no root certificates: mail to hosts whose certificate must be verified will wait");
    }
    Ok(store)
}

/// Why TLS cannot be set up for deliveries.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The file of root certificates cannot be used.
    #[error(transparent)]
    Roots(#[from] weir_tls::RootsError),
    /// rustls refuses the protocol versions.
    #[error("TLS cannot be set up: {0}")]
    Provider(rustls::Error),
}
