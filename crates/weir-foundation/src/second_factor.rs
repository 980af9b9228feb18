//! A second factor for accounts of the console: codes of an authenticator (RFC 6238: HMAC-SHA-1, six digits, half a minute).
//!
//! It counts from the first right code on, so nobody is shut out by a secret that was never taken over. A code is good once, and for
//! half a minute before and after its own. Whoever loses the authenticator has [`RECOVERY_CODES`] codes that are good once each; of
//! these only digests are kept.

use crate::console_accounts::{ConsoleAccounts, account_in};
use crate::random::random;
use crate::secret::{BASE32, base32, digest};
use crate::{Actor, OperationError, names};
use ring::hmac;
use serde::{Deserialize, Serialize};

const STEP_S: u64 = 30;
const DIGITS: u32 = 6;
/// Clocks differ, and people type slowly.
const STEPS_AROUND: u64 = 1;
/// Twenty bytes, as RFC 4226 section 4 recommends.
const SECRET_BYTES: usize = 20;
/// Codes for whoever loses the authenticator.
pub const RECOVERY_CODES: usize = 8;

/// What an authenticator needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enrolment {
    /// The secret, to be typed.
    pub secret: String,
    /// The same as an `otpauth:` address.
    pub uri: String,
}

/// A second factor as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFactor {
    /// In base 32.
    secret: String,
    /// A right code has come: from now on it counts.
    pub(crate) confirmed: bool,
    /// The half minute of the last code that was taken.
    #[serde(default)]
    used_step: u64,
    /// Digests of codes that are good once.
    #[serde(default)]
    recovery: Vec<String>,
}

impl StoredFactor {
    fn fresh() -> StoredFactor {
        let secret = base32(&random::<SECRET_BYTES>()).to_ascii_uppercase();
        StoredFactor { secret, confirmed: false, used_step: 0, recovery: Vec::new() }
    }

    /// Takes a code, once.
    fn takes(&mut self, code: &str, now_s: u64) -> bool {
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

    fn new_recovery_codes(&mut self) -> Vec<String> {
        let code = || base32(&random::<10>()).chars().collect::<Vec<_>>();
        let codes: Vec<Vec<char>> = (0..RECOVERY_CODES).map(|_| code()).collect();
        self.recovery = codes.iter().map(|code| digest(&code.iter().collect::<String>())).collect();
        codes.iter().map(|code| code.chunks(4).map(String::from_iter).collect::<Vec<_>>().join("-")).collect()
    }
}

/// The second factor of all accounts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SecondFactor {
    accounts: ConsoleAccounts,
}

impl SecondFactor {
    /// Of these accounts: it is stored with them.
    pub fn new(accounts: ConsoleAccounts) -> SecondFactor {
        SecondFactor { accounts }
    }

    /// Begins: the secret for an authenticator. Nothing changes for the account before a right code has come.
    pub async fn begin(&self, name: &str) -> Result<Enrolment, OperationError> {
        let _changing = self.accounts.lock().await;
        let mut accounts = self.accounts.stored_accounts().await?;
        let account = account_in(&mut accounts, name)?;
        if account.second_factor.as_ref().is_some_and(|factor| factor.confirmed) {
            let hint = "switch it off first; another secret would lock the old authenticator out";
            return Err(OperationError::conflict("codes are wanted from this account already", hint));
        }
        let factor = StoredFactor::fresh();
        let secret = factor.secret.clone();
        account.second_factor = Some(factor);
        self.accounts.keep_accounts(accounts).await?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-._~".contains(c) { c } else { '_' };
        let label: String = name.chars().map(plain).collect();
        let uri =
            format!("otpauth://totp/Weir:{label}?secret={secret}&issuer=Weir&algorithm=SHA1&digits=6&period={STEP_S}");
        Ok(Enrolment { secret, uri })
    }

    /// A first right code: from now on every login wants one. Hands out the recovery codes, once.
    pub async fn confirm(&self, name: &str, code: &str, actor: &Actor) -> Result<Vec<String>, OperationError> {
        let _changing = self.accounts.lock().await;
        let mut accounts = self.accounts.stored_accounts().await?;
        let now_s = self.accounts.now_s();
        let waiting = account_in(&mut accounts, name)?.second_factor.as_mut().filter(|factor| !factor.confirmed);
        let Some(factor) = waiting else {
            return Err(OperationError::conflict("no secret waits for its first code", "begin again"));
        };
        if !factor.takes(code, now_s) {
            let hint = "type the six digits that the authenticator shows now; its clock must be right";
            return Err(OperationError::invalid("this code is not right", hint));
        }
        factor.confirmed = true;
        let codes = factor.new_recovery_codes();
        self.accounts.keep_accounts(accounts).await?;
        self.accounts.audit().write(actor, "console.codes.on", name, "every login wants a code".to_owned()).await?;
        Ok(codes)
    }

    /// Switches codes off.
    pub async fn end(&self, name: &str, actor: &Actor) -> Result<(), OperationError> {
        let _changing = self.accounts.lock().await;
        let mut accounts = self.accounts.stored_accounts().await?;
        if account_in(&mut accounts, name)?.second_factor.take().is_none() {
            return Err(OperationError::conflict(
                "no codes are wanted from this account",
                "there is nothing to switch off",
            ));
        }
        self.accounts.keep_accounts(accounts).await?;
        self.accounts.audit().write(actor, "console.codes.off", name, "a password is enough".to_owned()).await
    }

    /// Whether this is a right code of the account; it is used up.
    pub async fn takes(&self, name: &str, code: &str) -> Result<bool, OperationError> {
        if names::login(name).is_err() {
            return Ok(false);
        }
        let _changing = self.accounts.lock().await;
        let mut accounts = self.accounts.stored_accounts().await?;
        let now_s = self.accounts.now_s();
        let factor = accounts.iter_mut().find(|account| account.name == name);
        let factor = factor.and_then(|account| account.second_factor.as_mut()).filter(|factor| factor.confirmed);
        let Some(factor) = factor else { return Ok(false) };
        let right = factor.takes(code, now_s);
        if right {
            // That it is used up is durable before anybody is let in.
            self.accounts.keep_accounts(accounts).await?;
        }
        Ok(right)
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

/// In a time that does not say where they differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B: the rows of SHA-1.
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
