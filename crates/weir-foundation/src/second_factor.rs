//! The second factor for accounts of the console: codes of an authenticator (RFC 6238: HMAC-SHA-1, six digits, half a minute).
//!
//! A code is required only after the first right one, so nobody is locked out by a secret that never reached their authenticator. Each code
//! can be used once, from half a minute before its own half minute to half a minute after it. For somebody who loses the authenticator
//! there are [`RECOVERY_CODES`] recovery codes, each of which can be used once; only their digests are stored.

use crate::console_accounts::{ConsoleAccounts, account_in};
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

    /// Takes the first right code: from now on every login needs one. Returns the recovery codes, which are shown only this once.
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
            return Err(OperationError::invalid("this code is wrong", hint));
        }
        factor.confirmed = true;
        let codes = factor.new_recovery_codes();
        self.accounts.keep_accounts(accounts).await?;
        self.accounts.audit().write(actor, "console.codes.on", name, "every login wants a code".to_owned()).await?;
        Ok(codes)
    }

    /// Switches the codes off.
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

    /// Whether this is a right code for the account. A right code is used up.
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
            // The code must be stored as used before anybody is let in.
            self.accounts.keep_accounts(accounts).await?;
        }
        Ok(right)
    }
}
