//! The root certificates that a client trusts: those in a file, or the system's.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};

/// Reads root certificates from a PEM file, or takes those of the system. Certificates that cannot be used are left out. If a file contains
/// no usable certificate, that is an error.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    let certificates = match file {
        Some(path) => read(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (_, unusable) = store.add_parsable_certificates(certificates);
    if unusable > 0 {
        tracing::debug!(unusable, "root certificates that cannot be used are left out");
    }
    match file {
        Some(path) if store.is_empty() => Err(RootsError::new(path, "there is no certificate in it")),
        _ => Ok(store),
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, RootsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| RootsError::new(path, &error.to_string()))
}

/// Why a file with root certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the root certificates in {}: {problem}; it must be PEM", path.display())]
pub struct RootsError {
    path: PathBuf,
    problem: String,
}

impl RootsError {
    fn new(path: &Path, problem: &str) -> RootsError {
        RootsError { path: path.to_owned(), problem: problem.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_hold_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        assert!(roots(Some(&file)).is_err(), "it is not there");
        std::fs::write(&file, "no certificate\n").unwrap();
        assert!(roots(Some(&file)).unwrap_err().to_string().contains("no certificate in it"));
        let made = rcgen::generate_simple_self_signed(["ca.example".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        assert_eq!(roots(Some(&file)).unwrap().len(), 1);
    }
}
