//! The second factor for accounts of the console: codes of an authenticator (RFC 6238: HMAC-SHA-1, six digits, half a minute).
//!
//! A code is required only after the first right one, so nobody is locked out by a secret that never reached their authenticator. Each code
//! can be used once, from half a minute before its own half minute to half a minute after it. For somebody who loses the authenticator
//! there are [`RECOVERY_CODES`] recovery codes, each of which can be used once; only their digests are stored.

use crate::console_accounts::{Account, ConsoleAccounts, account_in};
use crate::totp::{STEP_S, StoredFactor};
use crate::{Actor, OperationError, names};
use serde::Serialize;

pub use crate::totp::RECOVERY_CODES;

/// The secret for an authenticator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enrolment {
    /// The secret as text, to be typed.
    pub secret: String,
    /// The same as an `otpauth:` address, for a QR code.
    pub uri: String,
}

/// The second factor of all accounts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SecondFactor {
    accounts: ConsoleAccounts,
}

impl SecondFactor {
    /// Works on these accounts. The second factor is stored with the account.
    pub fn new(accounts: ConsoleAccounts) -> SecondFactor {
        SecondFactor { accounts }
    }

    /// Makes a new secret for the authenticator. Logins need no code before [`SecondFactor::confirm`] got a right one.
    pub async fn begin(&self, name: &str) -> Result<Enrolment, OperationError> {
        let begin = |accounts: &mut Vec<Account>| {
            let account = account_in(accounts, name)?;
            if account.second_factor.as_ref().is_some_and(|factor| factor.confirmed) {
                let hint = "switch it off first; another secret would lock the old authenticator out";
                return Err(OperationError::conflict("codes are wanted from this account already", hint));
            }
            Ok(account.second_factor.insert(StoredFactor::fresh()).secret.clone())
        };
        let secret = self.accounts.change(begin).await?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-._~".contains(c) { c } else { '_' };
        let label: String = name.chars().map(plain).collect();
        let uri =
            format!("otpauth://totp/Weir:{label}?secret={secret}&issuer=Weir&algorithm=SHA1&digits=6&period={STEP_S}");
        Ok(Enrolment { secret, uri })
    }

    /// Takes the first right code: from now on every login needs one. Returns the recovery codes, which are shown only this once.
    pub async fn confirm(&self, name: &str, code: &str, actor: &Actor) -> Result<Vec<String>, OperationError> {
        let now_s = self.accounts.now_s();
        let confirm = |accounts: &mut Vec<Account>| {
            let waiting = account_in(accounts, name)?.second_factor.as_mut().filter(|factor| !factor.confirmed);
            let Some(factor) = waiting else {
                return Err(OperationError::conflict("no secret waits for its first code", "begin again"));
            };
            if !factor.takes(code, now_s) {
                let hint = "type the six digits that the authenticator shows now; its clock must be right";
                return Err(OperationError::invalid("this code is wrong", hint));
            }
            factor.confirmed = true;
            Ok(factor.new_recovery_codes())
        };
        let codes = self.accounts.change(confirm).await?;
        self.accounts.audit().write(actor, "console.codes.on", name, "every login wants a code".to_owned()).await?;
        Ok(codes)
    }

    /// Switches the codes off.
    pub async fn end(&self, name: &str, actor: &Actor) -> Result<(), OperationError> {
        let end = |accounts: &mut Vec<Account>| match account_in(accounts, name)?.second_factor.take() {
            Some(_) => Ok(()),
            None => {
                Err(OperationError::conflict("no codes are wanted from this account", "there is nothing to switch off"))
            }
        };
        self.accounts.change(end).await?;
        self.accounts.audit().write(actor, "console.codes.off", name, "a password is enough".to_owned()).await
    }

    /// Whether this is a right code for the account. A right code is used up.
    pub async fn takes(&self, name: &str, code: &str) -> Result<bool, OperationError> {
        if names::login(name).is_err() {
            return Ok(false);
        }
        let now_s = self.accounts.now_s();
        // A right code is stored as used before anybody is let in.
        let take = |accounts: &mut Vec<Account>| {
            let factor = accounts.iter_mut().find(|account| account.name == name);
            let factor = factor.and_then(|account| account.second_factor.as_mut()).filter(|factor| factor.confirmed);
            Ok(factor.is_some_and(|factor| factor.takes(code, now_s)))
        };
        self.accounts.change(take).await
    }
}
