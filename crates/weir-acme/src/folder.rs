//! The files on the disk: the account, and for each name a file with certificate, chain and key. Only Weir's user may read them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weir_tls::{NamedCertificates, write_private};

/// The folder with the files. A certificate and its key are in one file, so that they can never come from two different renewals.
#[derive(Debug, Clone)]
pub struct CertificateFolder(PathBuf);

impl CertificateFolder {
    /// Opens the folder at `path`. It is made if it does not exist.
    pub fn open(path: &Path) -> io::Result<CertificateFolder> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(CertificateFolder(path.to_owned()))
    }

    /// Loads the stored certificates for these names. A file that cannot be used counts as missing, so the keeper gets a new certificate.
    pub fn load(&self, names: &[String]) -> NamedCertificates {
        let named = NamedCertificates::for_names(names);
        for name in names {
            let Ok(pem) = fs::read_to_string(self.file(name)) else { continue };
            if let Err(error) = named.put(name, &pem, SystemTime::now()) {
                tracing::warn!(name, %error, "the certificate that was kept for a name cannot be used");
            }
        }
        named
    }

    pub(crate) fn keep(&self, name: &str, pem: &str) -> io::Result<()> {
        write_private(&self.file(name), pem)
    }

    /// Notes that the last attempt for a name failed. Otherwise a Weir that is restarted again and again would ask the authority every
    /// time.
    pub(crate) fn note_failure(&self, name: &str) {
        let _ = write_private(&self.failure(name), "");
    }

    pub(crate) fn forget_failure(&self, name: &str) {
        let _ = fs::remove_file(self.failure(name));
    }

    pub(crate) fn has_failed(&self, name: &str) -> bool {
        self.failure(name).exists()
    }

    fn failure(&self, name: &str) -> PathBuf {
        self.file(name).with_extension("failed")
    }

    pub(crate) fn account(&self) -> Option<String> {
        fs::read_to_string(self.0.join("account.json")).ok()
    }

    pub(crate) fn keep_account(&self, json: &str) -> io::Result<()> {
        write_private(&self.0.join("account.json"), json)
    }

    fn file(&self, name: &str) -> PathBuf {
        // Names were checked, so there is no slash in them. The star of a wildcard would only annoy people in a shell.
        self.0.join(format!("{}.pem", name.to_ascii_lowercase().replace('*', "_")))
    }
}
