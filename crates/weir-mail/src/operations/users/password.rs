//! The password of a user, where it is ours to give.
//!
//! A password in the records counts for logins here and on the console. Where Dovecot, a directory or another mail server checks the logins,
//! a new one here would open nothing, and a stolen one would go on opening everything.

use super::UserOperations;
use crate::accounts::stop_lock;
use crate::counted::count;
use crate::operations::{Actor, OperationError, names};
use weir_smtp::network::IpNetwork;
use weir_store::records::UserRow;

/// Where the password of a user is.
pub(in crate::operations) struct PasswordPlace {
    /// There is one in the records.
    pub(in crate::operations) is_here: bool,
    /// And the user sends mail with it.
    pub(in crate::operations) opens_mail: bool,
    /// Who else checks one.
    pub(in crate::operations) elsewhere: Option<&'static str>,
}

impl UserOperations {
    /// Gives a user a new password. That also ends a lock that took over from a stop, for whoever sent then has the old one.
    pub async fn set_password(&self, name: &str, password: &str, actor: &Actor) -> Result<(), OperationError> {
        names::password(password)?;
        let _changing = self.changing.lock().await;
        let user = self.user(name).await?;
        if stop_lock::is_only_a_lock(&user) {
            let who = self.password_elsewhere(&user).unwrap_or(NOBODY);
            let what = format!("{} has no password here: {who}", names::shown(name));
            let hint = format!("give it a new one there, and then end the lock: `weir user unlock {name}`");
            return Err(OperationError::conflict(what, hint));
        }
        let hash = self.passwords.hash(password).await?;
        let set = |user: &mut UserRow| {
            user.password.clone_from(&hash);
            // Whoever sent has Dovecot's password, if that is what counts.
            Ok(!self.settings.dovecot && stop_lock::end(user))
        };
        let unlocked = match self.change(name, set).await? {
            true => ", and the lock after a stop ended",
            false => "",
        };
        // Somebody logged in with the old password may be the reason for the new one.
        let ended = self.backend.end_sessions(name, "the password was changed; log in with the new one");
        self.audit
            .write(actor, "user.passwd", name, format!("a new password ({} ended){unlocked}", count(ended, "session")))
            .await
    }

    /// Where the password of a user is.
    pub(in crate::operations) async fn password_of(&self, name: &str) -> Result<PasswordPlace, OperationError> {
        let user = self.user(name).await?;
        let also = self.is_told_of_users().then_some("mail servers that name users to Weir check their own passwords");
        let elsewhere = self.password_elsewhere(&user);
        Ok(PasswordPlace {
            is_here: !user.password.is_empty(),
            opens_mail: elsewhere.is_none(),
            elsewhere: elsewhere.or(also),
        })
    }

    /// Who checks the password that a user sends mail with, if we do not.
    pub(super) fn password_elsewhere(&self, user: &UserRow) -> Option<&'static str> {
        if self.settings.dovecot {
            return Some("Dovecot checks it");
        }
        match user.password.is_empty() {
            false => None,
            true if user.name.parse::<IpNetwork>().is_ok() => {
                Some("a machine is known by its address, and never logs in")
            }
            true if self.passwords.directory().is_some() => Some("the directory checks it"),
            true if self.is_told_of_users() => Some("the mail server that names this user to Weir checks it"),
            true => Some(NOBODY),
        }
    }

    /// Whether other mail servers say whose mail it is.
    fn is_told_of_users(&self) -> bool {
        self.settings.asked_by_servers || !self.settings.received_from.is_empty()
    }
}

const NOBODY: &str = "nobody can log in here as this user";
