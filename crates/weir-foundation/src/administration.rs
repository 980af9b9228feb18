//! Everything that an administrator can do whichever gates run (accounts, tokens, audit, backup and so on), gathered in one value for the
//! console and the binary.

use crate::Foundation;
use crate::api_tokens::ApiTokens;
use crate::audit::AuditTrail;
use crate::backup::{Backup, GateBackup};
use crate::console_accounts::ConsoleAccounts;
use crate::directory::Directory;
use crate::passwords::Passwords;
use crate::second_factor::SecondFactor;
use crate::store_settings::StoreSettings;
use crate::upkeep::Upkeep;
use std::sync::Arc;

/// Everything about the site that does not belong to one gate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Administration {
    /// Who may log in at the console.
    pub accounts: ConsoleAccounts,
    /// Codes that some accounts need to log in, besides the password.
    pub second_factor: SecondFactor,
    /// A directory whose people may sign in too, besides the accounts in our own records.
    pub directory: Option<Directory>,
    /// Tokens for programs.
    pub tokens: ApiTokens,
    /// Who did what.
    pub audit: AuditTrail,
    /// Copies of the data folder.
    pub backup: Backup,
    /// Free space, and how old the last backup is.
    pub upkeep: Upkeep,
    /// The data folder and the records.
    pub foundation: Foundation,
}

impl Administration {
    /// Everything that works on this foundation. A backup asks `gate` to copy the files that change while the gate runs; `store` says how
    /// often a backup is due and whether it is sealed.
    pub fn new(
        foundation: &Foundation,
        passwords: Passwords,
        gate: Option<Arc<dyn GateBackup>>,
        store: &StoreSettings,
    ) -> Administration {
        let directory = passwords.directory().cloned();
        let accounts = ConsoleAccounts::new(foundation, passwords);
        Administration {
            directory,
            second_factor: SecondFactor::new(accounts.clone()),
            accounts,
            tokens: ApiTokens::new(foundation),
            audit: AuditTrail::new(foundation),
            backup: Backup::new(foundation, gate, store.backup_passphrase_file.clone()),
            upkeep: Upkeep::new(foundation, store.backup_due),
            foundation: foundation.clone(),
        }
    }
}
