//! The codes of an authenticator (RFC 6238: HMAC-SHA-1, six digits, half a minute), as they are stored and checked.

use crate::random::random;
use crate::secret::{BASE32, base32, digest};
use ring::hmac;
use serde::{Deserialize, Serialize};

pub(crate) const STEP_S: u64 = 30;
const DIGITS: u32 = 6;
/// Codes from one step before and after are accepted too, because clocks differ and people type slowly.
const STEPS_AROUND: u64 = 1;
/// Twenty bytes, as RFC 4226 section 4 recommends.
const SECRET_BYTES: usize = 20;
/// The number of recovery codes, for somebody who loses the authenticator.
pub const RECOVERY_CODES: usize = 8;

/// A second factor as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFactor {
    /// The secret, in base 32.
    pub(crate) secret: String,
    /// Whether a right code has been entered. Before that, logins need no code.
    pub(crate) confirmed: bool,
    /// The step (half minute) of the last code that was accepted. Older codes are refused.
    #[serde(default)]
    used_step: u64,
    /// Digests of the recovery codes that are not used up.
    #[serde(default)]
    recovery: Vec<String>,
}

impl StoredFactor {
    pub(crate) fn fresh() -> StoredFactor {
        let secret = base32(&random::<SECRET_BYTES>()).to_ascii_uppercase();
        StoredFactor { secret, confirmed: false, used_step: 0, recovery: Vec::new() }
    }

    /// Accepts a code if it is right, and uses it up.
    pub(crate) fn takes(&mut self, code: &str, now_s: u64) -> bool {
        let typed: String = code.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
        let (Some(secret), now) = (from_base32(&self.secret), now_s / STEP_S) else { return false };
        let steps = now.saturating_sub(STEPS_AROUND)..=now + STEPS_AROUND;
        let found = steps.filter(|step| *step > self.used_step).find(|step| {
            let expected = format!("{:0width$}", code_at(&secret, *step, DIGITS), width = DIGITS as usize);
            same(&expected, &typed)
        });
        if let Some(step) = found {
            self.used_step = step;
            return true;
        }
        let digest = digest(&typed.to_ascii_lowercase());
        let place = self.recovery.iter().position(|known| *known == digest);
        place.map(|place| self.recovery.remove(place)).is_some()
    }

    pub(crate) fn new_recovery_codes(&mut self) -> Vec<String> {
        let code = || base32(&random::<10>()).chars().collect::<Vec<_>>();
        let codes: Vec<Vec<char>> = (0..RECOVERY_CODES).map(|_| code()).collect();
        self.recovery = codes.iter().map(|code| digest(&code.iter().collect::<String>())).collect();
        codes.iter().map(|code| code.chunks(4).map(String::from_iter).collect::<Vec<_>>().join("-")).collect()
    }
}

/// The code of one step (RFC 4226 section 5.3).
fn code_at(secret: &[u8], step: u64, digits: u32) -> u32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let bytes = tag.as_ref();
    let offset = usize::from(bytes.last().copied().unwrap_or(0) & 0xf);
    let four: [u8; 4] = bytes.get(offset..offset + 4).and_then(|four| four.try_into().ok()).unwrap_or_default();
    (u32::from_be_bytes(four) & 0x7fff_ffff) % 10_u32.pow(digits)
}

/// What an authenticator with this secret shows.
#[cfg(test)]
pub(crate) fn code_of(secret: &str, now_s: u64) -> String {
    let code = code_at(&from_base32(secret).unwrap_or_default(), now_s / STEP_S, DIGITS);
    format!("{code:0width$}", width = DIGITS as usize)
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = BASE32.iter().position(|known| *known == letter.to_ascii_lowercase())?;
        (held, bits) = ((held << 5 | value as u32) & 0xfff, bits + 5);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

/// Compares in a time that does not tell where the texts differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows for SHA-1 of RFC 6238, appendix B.
    #[test]
    fn the_vectors_of_the_rfc() {
        let secret = b"12345678901234567890";
        for (at_s, expected) in [
            (59, 94_287_082),
            (1_111_111_109, 7_081_804),
            (1_111_111_111, 14_050_471),
            (1_234_567_890, 89_005_924),
            (2_000_000_000, 69_279_037),
            (20_000_000_000_u64, 65_353_130),
        ] {
            assert_eq!(code_at(secret, at_s / STEP_S, 8), expected, "{at_s}");
        }
    }

    /// RFC 4226, appendix D.
    #[test]
    fn the_vectors_of_the_older_rfc() {
        let expected = [755_224, 287_082, 359_152, 969_429, 338_314, 254_676, 287_922, 162_583, 399_871, 520_489];
        for (step, expected) in expected.into_iter().enumerate() {
            assert_eq!(code_at(b"12345678901234567890", step as u64, 6), expected, "{step}");
        }
    }

    #[test]
    fn a_code_is_good_once_and_around_its_time() {
        let mut factor = StoredFactor { secret: "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ".into(), ..StoredFactor::fresh() };
        assert_eq!(from_base32(&factor.secret).as_deref(), Some(&b"12345678901234567890"[..]));
        assert!(!factor.takes("287083", 59) && !factor.takes("", 59) && !factor.takes("28708", 59));
        assert!(!factor.takes("287082", 120), "too late");
        assert!(factor.takes("287 082", 60), "half a minute late");
        assert!(!factor.takes("287082", 60), "used up");
        assert!(factor.takes("359152", 60) && !factor.takes("359152", 61));
    }

    #[test]
    fn recovery_codes_are_good_once_and_kept_as_digests() {
        let mut factor = StoredFactor::fresh();
        let codes = factor.new_recovery_codes();
        assert_eq!(codes.len(), RECOVERY_CODES);
        let stored = serde_json::to_string(&factor).unwrap();
        assert!(codes.iter().all(|code| !stored.contains(&code.replace('-', ""))));
        assert!(factor.takes(&codes[3].to_uppercase(), 0) && !factor.takes(&codes[3], 0));
        assert!(factor.takes(&codes[0], 0));
        assert_eq!(factor.recovery.len(), RECOVERY_CODES - 2);
    }
}
