//! What a machine has of its lab, in files that only it may read: its key, its certificate, the authority's, and two secrets.

use super::authority::SERVER_NAME;
use super::identity::{Identity, hex, unhex};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_core::election::{Boot, KeyId};

/// A machine's credentials.
#[derive(Clone)]
pub struct Credentials {
    /// Its private key, PEM.
    pub key: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// What datagrams are signed with; all machines inside the lab have it.
    pub beat_key: [u8; 32],
    /// What opens the authority; eligible machines only.
    pub seal: Option<[u8; 32]>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// There are none.
    #[error("this machine belongs to no lab: there is no {}\n  hint: `weir lab init` makes a lab, `weir lab join` enters one", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// They do not fit together.
    #[error("the lab's credentials cannot be used: {0}")]
    Unusable(String),
}

impl Credentials {
    /// Reads the credentials in this folder.
    pub fn read(folder: &Path) -> Result<Credentials, CredentialsError> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => CredentialsError::Missing(path),
                _ => CredentialsError::File { path, problem: error.to_string() },
            })
        };
        let secret = |name: &str| -> Result<[u8; 32], CredentialsError> {
            let bytes = unhex(text(name)?.trim()).and_then(|bytes| bytes.try_into().ok());
            bytes
                .ok_or_else(|| CredentialsError::File { path: folder.join(name), problem: "it holds no secret".into() })
        };
        let seal = match secret("seal") {
            Err(CredentialsError::Missing(_)) => None,
            other => Some(other?),
        };
        Ok(Credentials {
            key: text("key.pem")?,
            certificate: text("certificate.pem")?,
            authority: text("authority.pem")?,
            beat_key: secret("beat")?,
            seal,
        })
    }

    /// Whether the folder holds credentials.
    pub fn are_in(folder: &Path) -> bool {
        folder.join("certificate.pem").exists()
    }

    /// Writes them to a folder that has none. The certificate comes last: without it there are none.
    pub fn write(&self, folder: &Path) -> Result<(), CredentialsError> {
        let fail = |path: &Path, error: io::Error| CredentialsError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| fail(folder, error))?;
        let mut files = vec![
            ("key.pem", self.key.clone()),
            ("authority.pem", self.authority.clone()),
            ("beat", hex(&self.beat_key)),
        ];
        files.extend(self.seal.map(|seal| ("seal", hex(&seal))));
        files.push(("certificate.pem", self.certificate.clone()));
        for (name, text) in files {
            let path = folder.join(name);
            write_private(&path, &text).map_err(|error| fail(&path, error))?;
        }
        Ok(())
    }

    /// Who this machine is.
    pub fn identity(&self) -> Result<(Identity, KeyId), CredentialsError> {
        let certificate = certificate(&self.certificate)?;
        let identity = Identity::certified(&certificate);
        identity.ok_or_else(|| CredentialsError::Unusable("the certificate names no machine of a lab".into()))
    }

    /// SHA-256 of the authority's certificate.
    pub fn fingerprint(&self) -> Result<String, CredentialsError> {
        Ok(hex(&Sha256::digest(certificate(&self.authority)?)))
    }

    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, CredentialsError> {
        let unusable = |error: &dyn std::fmt::Display| CredentialsError::Unusable(error.to_string());
        let (roots, chain, key) = self.parts()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Who has no certificate may only ask for one.
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).allow_unauthenticated();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(clients.build().map_err(|error| unusable(&error))?);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, CredentialsError> {
        let unusable = |error: rustls::Error| CredentialsError::Unusable(error.to_string());
        let (roots, chain, key) = self.parts()?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(chain, key).map_err(unusable)?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn parts(
        &self,
    ) -> Result<(Arc<RootCertStore>, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CredentialsError> {
        let authority = certificate(&self.authority)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| CredentialsError::Unusable(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| CredentialsError::Unusable(format!("the key: {error}")))?;
        Ok((Arc::new(roots), vec![certificate(&self.certificate)?, authority], key))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The name that every machine of a lab answers to.
pub(super) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).unwrap_or_else(|_| unreachable!("it is a name"))
}

/// The next life of this machine: counted on its disk, with a random part, so that a copy of the disk is told apart.
pub fn next_boot(folder: &Path) -> io::Result<Boot> {
    let path = folder.join("starts");
    let before: u64 = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| io::Error::other("the count of starts cannot be read"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let starts = (before + 1) & u64::from(u32::MAX);
    write_private(&path, &starts.to_string())?;
    let mut random = [0; 4];
    weir_store::random(&mut random)?;
    Ok(Boot(starts << 32 | u64::from(u32::from_le_bytes(random))))
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, CredentialsError> {
    let read = CertificateDer::from_pem_slice(pem.as_bytes());
    read.map_err(|error| CredentialsError::Unusable(format!("a certificate: {error}")))
}

/// Beside the file first, then renamed, so that half of it is never read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_counted() {
        let home = tempfile::tempdir().unwrap();
        let lives: Vec<u64> = (0..3).map(|_| next_boot(home.path()).unwrap().0 >> 32).collect();
        assert_eq!(lives, [1, 2, 3]);
        assert!(matches!(Credentials::read(home.path()), Err(CredentialsError::Missing(_))));
    }
}
