//! The credentials of a machine in its lab, in files that only it may read: its key, its certificate, the authority's certificate, and two
//! secrets.

use super::authority::SERVER_NAME;
use super::clock::CalendarClock;
use super::identity::{Identity, hex, unhex};
use super::validity::Validity;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_core::election::{Boot, KeyId};
use weir_tls::write_private;

/// A machine's credentials.
#[derive(Clone)]
pub struct Credentials {
    /// Its private key, PEM.
    pub key: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The certificates of authorities that are trusted, PEM; the one that signed its own comes first.
    pub authority: String,
    /// The key that signs datagrams; all machines inside the lab have it.
    pub beat_key: Option<[u8; 32]>,
    /// The seal that opens the authority; only eligible machines have it.
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
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// They do not fit together.
    #[error("the lab's credentials cannot be used: {0}")]
    Unusable(String),
}

impl Credentials {
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
        let secret_if_any = |name: &str| match secret(name) {
            Err(CredentialsError::Missing(_)) => Ok(None),
            other => other.map(Some),
        };
        Ok(Credentials {
            key: text("key.pem")?,
            certificate: text("certificate.pem")?,
            authority: text("authority.pem")?,
            beat_key: secret_if_any("beat")?,
            seal: secret_if_any("seal")?,
        })
    }

    /// Whether the folder holds valid credentials, or some that cannot be read.
    pub fn are_in(folder: &Path) -> bool {
        let until = Credentials::read(folder).map(|credentials| credentials.validity().map(|validity| validity.until));
        match until {
            Ok(Ok(until)) => std::time::SystemTime::now() < until,
            _ => folder.join("certificate.pem").exists(),
        }
    }

    /// Writes them to a folder that has none. The certificate comes last: without it the credentials do not exist.
    pub fn write(&self, folder: &Path) -> Result<(), CredentialsError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| CredentialsError::File { path: folder.to_owned(), problem: error.to_string() })?;
        // An epoch that was seen in another lab says nothing about this one.
        drop(fs::remove_file(folder.join(super::epoch_file::FILE)));
        write_in(folder, "key.pem", &self.key)?;
        for (name, secret) in [("beat", self.beat_key), ("seal", self.seal)] {
            match secret {
                Some(secret) => write_in(folder, name, &hex(&secret))?,
                // Left behind by an earlier membership in another role.
                None => drop(fs::remove_file(folder.join(name))),
            }
        }
        self.write_renewed(folder)
    }

    /// Writes what a renewal changes. The authorities to trust are written first: if the process is killed in between, it trusts enough of
    /// them.
    pub(crate) fn write_renewed(&self, folder: &Path) -> Result<(), CredentialsError> {
        write_in(folder, "authority.pem", &self.authority)?;
        write_in(folder, "certificate.pem", &self.certificate)
    }

    /// From when until when they are valid.
    pub(crate) fn validity(&self) -> Result<Validity, CredentialsError> {
        let validity = Validity::of(&certificate(&self.certificate)?);
        validity.ok_or_else(|| CredentialsError::Unusable("the certificate has no dates".into()))
    }

    /// The identity of this machine.
    pub fn identity(&self) -> Result<(Identity, KeyId), CredentialsError> {
        let certificate = certificate(&self.certificate)?;
        let identity = Identity::certified(&certificate);
        identity.ok_or_else(|| CredentialsError::Unusable("the certificate names no machine of a lab".into()))
    }

    /// SHA-256 of the certificate of the authority that signed this machine's.
    pub fn fingerprint(&self) -> Result<String, CredentialsError> {
        Ok(hex(&Sha256::digest(certificate(&self.authority)?)))
    }

    pub(crate) fn server(&self, clock: &CalendarClock) -> Result<Arc<ServerConfig>, CredentialsError> {
        let unusable = |error: &dyn std::fmt::Display| CredentialsError::Unusable(error.to_string());
        let (roots, chain, key) = self.parts()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // A machine without a certificate may only ask for one.
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).allow_unauthenticated();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(clients.build().map_err(|error| unusable(&error))?);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
        config.send_tls13_tickets = 0;
        config.time_provider = Arc::new(clock.clone());
        Ok(Arc::new(config))
    }

    pub(crate) fn client(&self, clock: &CalendarClock) -> Result<Arc<ClientConfig>, CredentialsError> {
        let unusable = |error: rustls::Error| CredentialsError::Unusable(error.to_string());
        let (roots, chain, key) = self.parts()?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(chain, key).map_err(unusable)?;
        config.resumption = Resumption::disabled();
        config.time_provider = Arc::new(clock.clone());
        Ok(Arc::new(config))
    }

    fn parts(
        &self,
    ) -> Result<(Arc<RootCertStore>, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CredentialsError> {
        let unusable = |error: &dyn std::fmt::Display| CredentialsError::Unusable(error.to_string());
        let authorities = CertificateDer::pem_slice_iter(self.authority.as_bytes()).collect::<Result<Vec<_>, _>>();
        let authorities = authorities.map_err(|error| unusable(&error))?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|error| unusable(&error))?;
        }
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| CredentialsError::Unusable(format!("the key: {error}")))?;
        // A machine that has only a token searches for its authority among the certificates that it is shown.
        let chain = std::iter::once(certificate(&self.certificate)?).chain(authorities).collect();
        Ok((Arc::new(roots), chain, key))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The TLS name that every machine of a lab uses.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).unwrap_or_else(|_| unreachable!("it is a name"))
}

/// The next life of this machine: counted on its disk, with a random part, so that a copy of the disk can be told apart.
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

fn write_in(folder: &Path, name: &str, text: &str) -> Result<(), CredentialsError> {
    let path = folder.join(name);
    write_private(&path, text).map_err(|error| CredentialsError::File { path, problem: error.to_string() })
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
