//! The time during which a certificate is valid, read from its DER.

use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use time::{Date, Month, Time};

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DAY_S: u64 = 86_400;
const HUNDRED_YEARS_S: u64 = 36_525 * DAY_S;

/// The two dates in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The time from which it is valid.
    pub from: SystemTime,
    /// The time at which it expires.
    pub until: SystemTime,
}

impl Validity {
    /// Reads the dates; none if this is not a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let certificate = element(certificate)?.content;
        let signed = element(certificate)?.content;
        let version = element(signed)?;
        let rest = if version.tag == VERSION { version.rest } else { signed };
        let number = element(rest)?;
        let algorithm = element(number.rest)?;
        let issuer = element(algorithm.rest)?;
        let dates = element(issuer.rest)?.content;
        let from = element(dates)?;
        let until = element(from.rest)?;
        Some(Validity { from: date(&from)?, until: date(&until)? })
    }
}

/// How long something is still valid, for people: in hours or days, or "more than a hundred years" for a certificate that Weir signed
/// itself.
pub fn time_left(left: Duration) -> String {
    let (number, unit) = match left.as_secs() {
        seconds if seconds >= HUNDRED_YEARS_S => return "more than a hundred years".to_owned(),
        seconds if seconds < 2 * DAY_S => (seconds / 3_600, "hour"),
        seconds => (seconds / DAY_S, "day"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

/// An element of DER, and what follows it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let digits = usize::from(first & 0x7f);
        if !(1..=3).contains(&digits) {
            return None;
        }
        let (digits, after) = rest.split_at_checked(digits)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

fn date(element: &Element<'_>) -> Option<SystemTime> {
    let text = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    let (year, rest): (i32, &str) = match element.tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i32 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let pair = |at: usize| -> Option<u8> { rest.get(at..at + 2)?.parse().ok() };
    let day = Date::from_calendar_date(year, Month::try_from(pair(0)?).ok()?, pair(2)?).ok()?;
    let time = Time::from_hms(pair(4)?, pair(6)?, pair(8)?).ok()?;
    Some(day.with_time(time).assume_utc().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};

    fn certificate(from: u64, until: u64) -> CertificateDer<'static> {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (at(from).into(), at(until).into());
        params.self_signed(&KeyPair::generate_for(&PKCS_ED25519).unwrap()).unwrap().der().clone()
    }

    #[test]
    fn what_is_left_is_said_in_hours_in_days_or_not_at_all() {
        let words = [3_599, 3_600, 86_400, 2 * 86_400, 89 * 86_400, 36_524 * 86_400, 755_730 * 86_400];
        let words = words.map(|seconds| time_left(Duration::from_secs(seconds)));
        let years = "more than a hundred years";
        assert_eq!(words, ["0 hours", "1 hour", "24 hours", "2 days", "89 days", "36524 days", years]);
    }

    #[test]
    fn dates_are_read_as_they_were_written_in_both_forms() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (from, until) in [(7_200, 7_260), (1_800_000_000, 1_807_776_000), (1_800_000_000, 4_000_000_000)] {
            let der = certificate(from, until);
            assert_eq!(Validity::of(&der).unwrap(), Validity { from: at(from), until: at(until) });
            for end in 0..80.min(der.len()) {
                assert_eq!(Validity::of(&CertificateDer::from(der[..end].to_vec())), None, "cut at {end}");
            }
        }
    }
}
