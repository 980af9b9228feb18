//! When a certificate ends.
//!
//! Of a certificate (RFC 5280 section 4.1) only the field `validity` is wanted, so only the way to it is read: each element of DER is a
//! tag, a length and its content. What is not as it should be gives no date, never a wrong one.

use crate::TlsError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;

const SEQUENCE: u8 = 0x30;
/// `[0]`, the version, which may be missing.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the first certificate of a PEM file ends, in seconds since the Unix epoch.
pub fn not_after(chain: &Path) -> Result<i64, TlsError> {
    let unreadable = |problem: String| TlsError::Read { path: chain.to_owned(), problem };
    let first = CertificateDer::from_pem_file(chain).map_err(|error| unreadable(error.to_string()))?;
    ends(&first).ok_or_else(|| unreadable("the certificate does not say until when it is valid".to_owned()))
}

fn ends(certificate: &[u8]) -> Option<i64> {
    let (_, certificate, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = element(certificate)?;
    if let (VERSION, _, after) = element(rest)? {
        rest = after;
    }
    // Before it: the serial number, the algorithm of the signature, the issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, from_its_end) = element(validity)?;
    let (tag, text, _) = element(from_its_end)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// The first element: its tag, its content, and what comes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let field = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + field(4)? * 3_600 + field(6)? * 60 + field(8)?)
}

/// Days from 1970-01-01, with March as the first month of a year (after Howard Hinnant's algorithm).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year.rem_euclid(400);
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["mail.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, month, day);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
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
        assert_eq!((ends(&[]), time(UTC_TIME, "271301000000Z"), time(UTC_TIME, "27é")), (None, None, None));
    }
}
