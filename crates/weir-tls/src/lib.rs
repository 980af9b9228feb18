//! TLS: certificates from files, which are read again when they change; self-signed ones, made at the first start; and certificates that
//! were obtained from an authority for a host name.
//!
//! rustls with ring, TLS 1.2 and 1.3. The certificate that a client gets depends on the host name that it asks for: one that was obtained
//! for that name ([`NamedCertificates`]), else the first of the files that is for that name, else the first of the files. New handshakes
//! use the newest certificate that could be read. If a certificate and its key do not fit together (half of a renewal), the old pair stays
//! in use, and the files are tried again at the next check. Existing sessions are not affected. This is a crate of its own because the mail
//! gate and the web gate both need it and do not import each other.

mod challenges;
mod expiry;
mod file_pair;
mod named;
mod roots;
mod validity;
mod verifier;

pub use challenges::{CHALLENGE_PATH, CHALLENGE_PROTOCOL, ChallengeError, Challenges};
pub use expiry::not_after;
pub use file_pair::{CertificateFiles, write_private};
pub use named::{CertificateState, NamedCertificates, PairError};
pub use roots::{RootsError, roots};
pub use validity::{Validity, time_left};
pub use verifier::{Presented, any_certificate, certificates_by};

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use file_pair::FilePair;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The TLS side of a server.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
}

impl Tls {
    /// Reads a certificate and its key.
    pub fn load(files: CertificateFiles) -> Result<Tls, TlsError> {
        Tls::load_all(files, Vec::new())
    }

    /// Reads several certificates. Clients that ask for a name that none of them is for get the first one.
    pub fn load_all(first: CertificateFiles, others: Vec<CertificateFiles>) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let read = |files| FilePair::read(files, Arc::clone(&provider));
        let first = read(first)?;
        let others = others.into_iter().map(read).collect::<Result<_, _>>()?;
        let current = Arc::new(Current { first, others, named: OnceLock::new() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Provider)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        // One ticket is enough to resume a session, and each costs memory and a write.
        config.send_tls13_tickets = 1;
        Ok(Tls { config: Arc::new(config), current })
    }

    /// Reads `cert.pem` and `key.pem` in the folder. If they do not exist, a self-signed pair is made.
    pub fn self_signed(folder: &Path, names: &[String]) -> Result<Tls, TlsError> {
        Tls::load(CertificateFiles::self_signed(folder, names)?)
    }

    /// The same, but offers these protocols (ALPN), the preferred one first.
    #[must_use]
    pub fn speaking(mut self, protocols: &[&str]) -> Tls {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.config = Arc::new(config);
        self
    }

    /// The same, with certificates that are obtained for host names. Clients that ask for no name get the one for `own`.
    #[must_use]
    pub fn with_names(self, named: Arc<NamedCertificates>, own: Option<&str>) -> Tls {
        let own = own.map(str::to_ascii_lowercase);
        // This succeeds, because it is set only once, while no other code has this value yet.
        let _ = self.current.named.set((named, own));
        self
    }

    /// Reads all files again. If one cannot be used, the others are read all the same.
    pub fn reload(&self) -> Result<(), TlsError> {
        let outcomes: Vec<_> = self.current.files().map(FilePair::reload).collect();
        outcomes.into_iter().collect()
    }

    /// Reads again those files that have changed. Returns whether any had.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let looks: Vec<_> = self.current.files().map(FilePair::reload_if_changed).collect();
        looks.into_iter().try_fold(false, |before, now| Ok(before | now?))
    }

    /// Checks the files every `period`, for ever; start it as a task.
    pub async fn watch(self: Arc<Tls>, period: Duration) {
        let mut complaint = String::new();
        loop {
            tokio::time::sleep(period).await;
            let tls = Arc::clone(&self);
            let Ok(outcome) = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await else { return };
            match outcome {
                Ok(true) => tracing::info!(certificate = %self.files().chain.display(), "certificate renewed"),
                Ok(false) => {}
                Err(error) if error.to_string() == complaint => {}
                Err(error) => {
                    tracing::warn!(%error, "the new certificate cannot be used; the old one stays");
                    complaint = error.to_string();
                }
            }
        }
    }

    /// The configuration for handshakes.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The files in use; if there are several pairs, those of the first.
    pub fn files(&self) -> &CertificateFiles {
        &self.current.first.files
    }

    /// Whether another one uses the same files.
    pub fn has_files_of(&self, other: &Tls) -> bool {
        self.current.files().map(|pair| &pair.files).eq(other.current.files().map(|pair| &pair.files))
    }
}

/// The certificates in use, from which rustls chooses.
#[derive(Debug)]
struct Current {
    first: FilePair,
    others: Vec<FilePair>,
    named: OnceLock<(Arc<NamedCertificates>, Option<String>)>,
}

impl Current {
    fn files(&self) -> impl Iterator<Item = &FilePair> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn of_name(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let named = self.named.get().and_then(|(named, _)| named.find(name));
        named.or_else(|| self.files().find(|pair| pair.is_for(name)).map(FilePair::current))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().map(str::to_ascii_lowercase);
        if is_challenge(&hello) {
            return self.named.get()?.0.challenges().certificate(&asked?);
        }
        let own = || self.named.get().and_then(|(_, own)| own.clone());
        let found = asked.or_else(own).and_then(|name| self.of_name(&name));
        Some(found.unwrap_or_else(|| self.first.current()))
    }
}

/// Whether this is an authority that checks a name: it offers only this protocol (RFC 8737, 3).
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(CHALLENGE_PROTOCOL.as_bytes()) && offered.next().is_none())
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
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn names() -> Vec<String> {
        vec!["mail.example".into()]
    }

    fn leaf(tls: &Tls) -> Vec<u8> {
        tls.current.first.current().cert.first().unwrap().to_vec()
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

    #[test]
    fn of_several_files_the_one_for_the_name_is_shown() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let files = |folder: &tempfile::TempDir, name: &str| {
            CertificateFiles::self_signed(folder.path(), &[name.to_owned()]).unwrap()
        };
        let (first, second) = (files(&folders[0], "a.example"), files(&folders[1], "*.b.example"));
        let tls = Tls::load_all(first.clone(), vec![second.clone()]).unwrap();
        let shown = |name| tls.current.of_name(name).map(|pair| pair.cert[0].to_vec());
        let of = |files: CertificateFiles| Some(leaf(&Tls::load(files).unwrap()));
        assert_eq!(shown("a.example"), of(first.clone()));
        assert_eq!(shown("www.b.example"), of(second));
        assert_eq!(shown("c.example"), None);
        assert!(!tls.has_files_of(&Tls::load(first).unwrap()));
    }
}
