//! TLS: a certificate from files, renewed without restart, or self-signed at first start.
//!
//! rustls with ring, TLS 1.2 and 1.3. New handshakes use the newest certificate that could be read; a file pair that does
//! not fit together (half of a renewal) leaves the old one in use and is tried again at the next look. Sessions that
//! are under way are not touched. A crate of its own, because the mail gate and the web gate both need it and do not
//! know each other.

mod expiry;
mod roots;
mod verifier;

pub use expiry::not_after;
pub use roots::{RootsError, roots};
pub use verifier::{Presented, any_certificate, certificates_by};

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The TLS side of a server.
#[derive(Debug)]
pub struct Tls {
    files: CertificateFiles,
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    /// What the files looked like when they were last read.
    seen: Mutex<Option<Stamp>>,
}

/// Where certificate and key are, both PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate and those that sign it.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(files: CertificateFiles) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let stamp = Stamp::of(&files);
        let key = read_pair(&files, &provider)?;
        let current = Arc::new(Current { key: RwLock::new(Arc::new(key)), provider: Arc::clone(&provider) });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Provider)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        // One is enough to resume with, and each ticket costs memory and a write.
        config.send_tls13_tickets = 1;
        Ok(Tls { files, config: Arc::new(config), current, seen: Mutex::new(stamp) })
    }

    /// Reads `cert.pem` and `key.pem` of the folder; makes a self-signed pair there if there is none.
    pub fn self_signed(folder: &Path, names: &[String]) -> Result<Tls, TlsError> {
        let files = CertificateFiles { chain: folder.join("cert.pem"), key: folder.join("key.pem") };
        if !files.chain.exists() || !files.key.exists() {
            make_pair(folder, &files, names)?;
        }
        Tls::load(files)
    }

    /// The same, offering these protocols (ALPN), the preferred one first.
    #[must_use]
    pub fn speaking(mut self, protocols: &[&str]) -> Tls {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.config = Arc::new(config);
        self
    }

    /// Reads the files again.
    pub fn reload(&self) -> Result<(), TlsError> {
        let stamp = Stamp::of(&self.files);
        let key = read_pair(&self.files, &self.current.provider)?;
        *self.current.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
        Ok(())
    }

    /// Reads the files again if they have changed, and returns whether they had.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let unchanged = *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == Stamp::of(&self.files);
        if unchanged {
            return Ok(false);
        }
        self.reload().map(|()| true)
    }

    /// Checks the files every `period`, without end; run it as a task.
    pub async fn watch(self: Arc<Tls>, period: Duration) {
        let mut complained_of = None;
        loop {
            tokio::time::sleep(period).await;
            let tls = Arc::clone(&self);
            let Ok(outcome) = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await else { return };
            match outcome {
                Ok(true) => tracing::info!(certificate = %self.files.chain.display(), "certificate renewed"),
                Ok(false) => {}
                Err(error) => {
                    let stamp = Stamp::of(&self.files);
                    if complained_of.replace(stamp) != Some(stamp) {
                        tracing::warn!(%error, "the new certificate cannot be used; the old one stays");
                    }
                }
            }
        }
    }

    /// The configuration for handshakes.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The files in use.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }
}

/// The certificate in use, as rustls asks for it.
#[derive(Debug)]
struct Current {
    key: RwLock<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Modification time, size and inode of both files: if one of these differs, a file was replaced or rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp([(i64, i64, u64, u64); 2]);

impl Stamp {
    fn of(files: &CertificateFiles) -> Option<Stamp> {
        let look = |path: &Path| {
            let facts = fs::metadata(path).ok()?;
            Some((facts.mtime(), facts.mtime_nsec(), facts.size(), facts.ino()))
        };
        Some(Stamp([look(&files.chain)?, look(&files.key)?]))
    }
}

fn read_pair(files: &CertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| TlsError::Read { path, problem: error.to_string() }
    };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(&files.chain).and_then(Iterator::collect).map_err(unreadable(&files.chain))?;
    if chain.is_empty() {
        return Err(TlsError::Read { path: files.chain.clone(), problem: "no certificate in it".into() });
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|problem| TlsError::Pair { files: files.clone(), problem })
}

fn make_pair(folder: &Path, files: &CertificateFiles, names: &[String]) -> Result<(), TlsError> {
    let mut params = rcgen::CertificateParams::new(names.to_vec()).map_err(TlsError::Make)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(name) = names.first() {
        params.distinguished_name.push(rcgen::DnType::CommonName, name.as_str());
    }
    let key = rcgen::KeyPair::generate().map_err(TlsError::Make)?;
    let certificate = params.self_signed(&key).map_err(TlsError::Make)?;
    fs::create_dir_all(folder).map_err(TlsError::write(folder))?;
    write_private(&files.key, &key.serialize_pem())?;
    write_private(&files.chain, &certificate.pem())
}

/// Writes beside the file and renames, so that a half-written key is never read; only we may read it.
fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    let beside = path.with_extension("pem.new");
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(TlsError::write(path))
}

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds nothing useful.
    #[error("cannot read {}: {problem}; it must be PEM", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Certificate and key do not fit together, or the key is of an unknown kind.
    #[error("{} and {} cannot be used together: {problem}", files.chain.display(), files.key.display())]
    Pair {
        /// Which files.
        files: CertificateFiles,
        /// What is wrong.
        problem: rustls::Error,
    },
    /// The self-signed certificate could not be made.
    #[error("cannot make a self-signed certificate: {0}; check the host name")]
    Make(rcgen::Error),
    /// The self-signed certificate could not be stored.
    #[error("cannot write {}: {problem}", path.display())]
    Write {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        problem: std::io::Error,
    },
    /// rustls refuses the protocol versions.
    #[error("TLS cannot be set up: {0}")]
    Provider(rustls::Error),
}

impl TlsError {
    fn write(path: &Path) -> impl FnOnce(std::io::Error) -> TlsError {
        let path = path.to_owned();
        move |problem| TlsError::Write { path, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["mail.example".into()]
    }

    fn leaf(tls: &Tls) -> Vec<u8> {
        tls.current.key.read().unwrap().cert.first().unwrap().to_vec()
    }

    #[test]
    fn a_self_signed_pair_is_made_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let first = leaf(&Tls::self_signed(folder.path(), &names()).unwrap());
        let again = Tls::self_signed(folder.path(), &names()).unwrap();
        assert_eq!(leaf(&again), first);
        assert_eq!(fs::metadata(&again.files().key).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_changed_pair_is_taken_and_a_broken_one_is_not() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tls = Tls::self_signed(folder.path(), &names()).unwrap();
        let fresh = Tls::self_signed(other.path(), &names()).unwrap();
        let first = leaf(&tls);
        assert!(!tls.reload_if_changed().unwrap());

        // Half of a renewal: the new certificate with the old key.
        fs::copy(&fresh.files().chain, &tls.files().chain).unwrap();
        assert!(matches!(tls.reload_if_changed(), Err(TlsError::Pair { .. })));
        assert_eq!(leaf(&tls), first);

        fs::copy(&fresh.files().key, &tls.files().key).unwrap();
        assert!(tls.reload_if_changed().unwrap());
        assert_eq!(leaf(&tls), leaf(&fresh));

        fs::write(&tls.files().chain, "nonsense").unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Read { .. })));
        assert_eq!(leaf(&tls), leaf(&fresh));
    }

    #[test]
    fn a_missing_file_is_named() {
        let files = CertificateFiles { chain: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
        let error = Tls::load(files).unwrap_err().to_string();
        assert!(error.contains("/nowhere/cert.pem"), "{error}");
    }
}
