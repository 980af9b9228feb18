//! A certificate and its key in two files, read again when one of them changes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;

use crate::TlsError;

/// The files of a certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate, and those that sign it.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// `cert.pem` and `key.pem` in the folder. They are made if one of them does not exist.
    pub fn self_signed(folder: &Path, names: &[String]) -> Result<CertificateFiles, TlsError> {
        let files = CertificateFiles { chain: folder.join("cert.pem"), key: folder.join("key.pem") };
        if !files.chain.exists() || !files.key.exists() {
            make_pair(folder, &files, names)?;
        }
        Ok(files)
    }
}

/// The pair as it was when it was last read.
#[derive(Debug)]
pub(crate) struct FilePair {
    pub(crate) files: CertificateFiles,
    key: RwLock<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
    /// The state of the files when they were last read.
    seen: Mutex<Option<Stamp>>,
}

impl FilePair {
    pub(crate) fn read(files: CertificateFiles, provider: Arc<CryptoProvider>) -> Result<FilePair, TlsError> {
        let stamp = Stamp::of(&files);
        let key = read_pair(&files, &provider)?;
        Ok(FilePair { files, key: RwLock::new(Arc::new(key)), provider, seen: Mutex::new(stamp) })
    }

    pub(crate) fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the certificate is for this host name.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        let (Ok(name), current) = (ServerName::try_from(name), self.current()) else { return false };
        let parsed = current.cert.first().and_then(|first| webpki::EndEntityCert::try_from(first).ok());
        parsed.is_some_and(|parsed| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }

    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let stamp = Stamp::of(&self.files);
        let key = read_pair(&self.files, &self.provider)?;
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
        Ok(())
    }

    /// Reads the files again if they have changed, and returns whether they had.
    pub(crate) fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let unchanged = *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == Stamp::of(&self.files);
        if unchanged {
            return Ok(false);
        }
        self.reload().map(|()| true)
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
    write_private(&files.key, &key.serialize_pem()).map_err(TlsError::write(&files.key))?;
    write_private(&files.chain, &certificate.pem()).map_err(TlsError::write(&files.chain))
}

/// Writes a file that only its owner can read. The text is first written to another file, which is then renamed, so that nobody ever reads
/// half a key. When this returns, the file would survive a power cut.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    // What a crash left behind may have other permissions, or may be open in another program.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_an_earlier_try_left_behind_does_not_open_a_private_file_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("key.pem"), folder.path().join("key.pem.new"));
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "not ours").unwrap();
        let wide =
            || fs::write(&beside, "half").and_then(|()| fs::set_permissions(&beside, PermissionsExt::from_mode(0o666)));
        let link = || symlink(&elsewhere, &beside);
        for leave in [&wide as &dyn Fn() -> io::Result<()>, &link] {
            leave().unwrap();
            let reader = fs::File::open(&beside).unwrap();
            write_private(&path, "secret").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
            assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode(), 0o100_600);
            assert_ne!(
                io::read_to_string(reader).unwrap(),
                "secret",
                "whoever had the old file open must not read the new"
            );
            assert!(!beside.exists());
        }
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "not ours");
    }
}
