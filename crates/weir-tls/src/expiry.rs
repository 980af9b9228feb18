//! Reads when the certificate in a file expires.

use crate::{TlsError, Validity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// When the first certificate in a PEM file expires, in seconds since the Unix epoch.
pub fn not_after(chain: &Path) -> Result<i64, TlsError> {
    let unreadable = |problem: String| TlsError::Read { path: chain.to_owned(), problem };
    let first = CertificateDer::from_pem_file(chain).map_err(|error| unreadable(error.to_string()))?;
    let validity = Validity::of(&first);
    let until = validity.and_then(|validity| validity.until.duration_since(UNIX_EPOCH).ok());
    let until = until.ok_or_else(|| unreadable("the certificate does not say until when it is valid".to_owned()))?;
    Ok(until.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["mail.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, month, day);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    fn ends(certificate: &[u8]) -> Option<i64> {
        let until = Validity::of(&certificate.into())?.until;
        Some(until.duration_since(UNIX_EPOCH).ok()?.as_secs().cast_signed())
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_dates() {
        assert_eq!(ends(certificate(2027, 3, 1).der()), Some(1_803_859_200));
        assert_eq!(ends(certificate(2096, 2, 29).der()), Some(3_981_312_000), "from 2050 on it is a GeneralizedTime");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cert.pem");
        std::fs::write(&file, certificate(2027, 3, 1).pem()).unwrap();
        assert_eq!(not_after(&file).unwrap(), 1_803_859_200);
        std::fs::write(&file, "nothing").unwrap();
        assert!(not_after(&file).is_err());
    }

    #[test]
    fn what_is_cut_or_changed_gives_no_panic() {
        let whole = certificate(2027, 3, 1).der().to_vec();
        for cut in 0..whole.len() {
            let _ = ends(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut other = whole.clone();
                other[at] = value;
                let _ = ends(&other);
            }
        }
        assert_eq!(ends(&[]), None);
    }
}
