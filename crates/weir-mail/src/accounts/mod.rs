//! Accounts: who somebody is, and whether they may submit mail now.
//!
//! Logins are checked against the records, or against Dovecot's authentication socket where the site has its
//! users there; where there is a directory (LDAP), names without a password in the records are looked up there. A user who is locked, by a
//! person or by the throttle, gets the reason instead of a login. If a login cannot be checked now, the answer says so: that is neither a
//! right nor a wrong password.

mod dovecot;
mod guessing;
pub(crate) mod spelling;
pub(crate) mod stop_lock;
mod strangers;

pub use dovecot::Dovecot;
pub use guessing::{GuessedAt, WrongLogins};

use crate::counted::wait;
use dovecot::DovecotError;
use guessing::Guessing;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use strangers::Strangers;
use weir_foundation::directory::DirectoryError;
use weir_foundation::passwords::{PasswordError, Passwords};
use weir_store::records::{Records, RecordsError, ThrottleRecords, UserRecords, UserRow};

/// Checks logins.
#[derive(Debug, Clone)]
pub struct Accounts {
    users: UserRecords,
    throttles: ThrottleRecords,
    passwords: Passwords,
    dovecot: Option<Dovecot>,
    /// The throttle only learns: it stops nobody.
    learn_only: bool,
    strangers: Arc<Strangers>,
    guessing: Arc<Guessing>,
}

/// What became of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Right: this is the user.
    Right(Box<UserRow>),
    /// Wrong name or password; nothing says which.
    Wrong,
    /// Right, but the account is locked: why, in words for the user.
    Locked(String),
    /// It could not be checked.
    Unavailable(String),
    /// It was not checked: too many wrong passwords have been tried for this account from networks that it does not use.
    Slowed,
}

impl Accounts {
    /// Accounts in `records`, or in Dovecot with parameters in the records. If the throttle only learns, its stops do not count.
    pub fn new(records: &Records, passwords: Passwords, dovecot: Option<Dovecot>, learn_only: bool) -> Accounts {
        let (users, throttles) = (records.users(), records.throttles());
        Accounts {
            users,
            throttles,
            passwords,
            dovecot,
            learn_only,
            strangers: Arc::default(),
            guessing: Arc::default(),
        }
    }

    /// Checks a name and a password that came from this address.
    pub async fn login(&self, name: &str, password: &str, from: IpAddr) -> Login {
        let Some(_turn) = self.guessing.turn(name, from).await else { return Login::Slowed };
        match self.check(name, password, from).await {
            Ok(Some(user)) => {
                self.guessing.succeeded(name, from, Instant::now());
                self.unless_locked(user).await
            }
            Ok(None) => {
                self.note_wrong_login(name, password, from);
                Login::Wrong
            }
            Err(error) => Login::Unavailable(error.to_string()),
        }
    }

    /// A password was wrong, here or elsewhere that the account can log in, as on the console: who guesses there guesses as well.
    pub fn note_wrong_login(&self, name: &str, password: &str, from: IpAddr) {
        if self.guessing.failed(name, password, from, Instant::now()) {
            tracing::warn!(name, "many wrong passwords for one account; logins from new networks are slowed");
        }
    }

    /// Failed logins of an account lately.
    pub fn wrong_logins(&self, name: &str) -> WrongLogins {
        self.guessing.wrong(name, Instant::now())
    }

    /// Accounts that somebody guesses at now, from many networks.
    pub fn guessed_at(&self) -> Vec<GuessedAt> {
        self.guessing.guessed(Instant::now())
    }

    /// A user for whom a trusted peer vouches: no password, but locks count.
    pub async fn vouched(&self, name: &str) -> Login {
        let user = match self.spelled(name).await {
            Ok(name) => self.user(&name).await,
            Err(error) => Err(error),
        };
        match user {
            Ok(Some(user)) => self.unless_locked(user).await,
            Ok(None) => Login::Wrong,
            Err(error) => Login::Unavailable(error.to_string()),
        }
    }

    /// The login that a peer means who vouches for `name`, which is what the client typed: whoever is known under this name, in whatever
    /// capitals (`spelling`), or else the name in small letters.
    pub async fn spelled(&self, name: &str) -> Result<String, RecordsError> {
        let known = spelling::known_as(&self.users, &self.throttles, name).await?;
        Ok(known.unwrap_or_else(|| name.to_lowercase()))
    }

    /// A user by name. Where Dovecot or a directory has the users, a name that is not in the records is a guest's.
    pub async fn user(&self, name: &str) -> Result<Option<UserRow>, RecordsError> {
        let known = self.users.find(name).await?;
        let elsewhere = self.dovecot.is_some() || self.passwords.directory().is_some();
        Ok(known.or_else(|| elsewhere.then(|| guest(name))))
    }

    /// The account of a client address or network, under the name that its throttle has. Few have one: a new one may take a moment
    /// to be seen.
    pub async fn of_address(&self, name: &str) -> Result<Option<UserRow>, RecordsError> {
        let now = Instant::now();
        if self.strangers.has(name, now) {
            return Ok(None);
        }
        let known = self.users.find(name).await?;
        if known.is_none() {
            self.strangers.note(name, now);
        }
        Ok(known)
    }

    async fn check(&self, name: &str, password: &str, from: IpAddr) -> Result<Option<UserRow>, CheckError> {
        if let Some(dovecot) = &self.dovecot {
            let Some(name) = dovecot.login(name, password, from).await? else {
                return Ok(None);
            };
            // Dovecot writes a name as it was typed, if it is told to: `Ann` and `ann` are one user, with one lock and one throttle.
            return Ok(self.user(&self.spelled(&name).await?).await?);
        }
        let user = self.users.find(name).await?.filter(|user| !user.password.is_empty());
        if user.is_none()
            && let Some(person) = self.ask_directory(name, password, from).await?
        {
            return Ok(Some(person));
        }
        // A name that does not exist costs the same time as one that does.
        let stored = user.as_ref().map(|user| user.password.as_str());
        let right = self.passwords.verify(name, password, stored, from).await?;
        Ok(user.filter(|_| right))
    }

    /// Somebody of the directory, under the name that the directory writes: `Ann` and `ann` may be one person there, with one throttle here.
    async fn ask_directory(&self, name: &str, password: &str, from: IpAddr) -> Result<Option<UserRow>, CheckError> {
        let Some(directory) = self.passwords.directory() else { return Ok(None) };
        let Some(person) = directory.login(name, password, from).await? else { return Ok(None) };
        // A user who has a password here must not be reached with a password of the directory.
        if self.users.has_own_password(&person.name).await? {
            return Ok(None);
        }
        let known = spelling::known_as(&self.users, &self.throttles, &person.name).await?;
        Ok(self.user(known.as_deref().unwrap_or(&person.name)).await?)
    }

    async fn unless_locked(&self, user: UserRow) -> Login {
        if user.locked_at.is_some() {
            return Login::Locked(format!("the account is locked: {}", user.locked_reason));
        }
        if self.learn_only {
            return Login::Right(Box::new(user));
        }
        match self.throttles.find(&user.name).await {
            Err(error) => Login::Unavailable(error.to_string()),
            Ok(Some(throttle)) if throttle.stopped_at.is_some() && user.profile != "exempt" => Login::Locked(format!(
                "the account is stopped: {} for your decision after unusual mail; see the notice at your contact address",
                wait(throttle.held, "recipient")
            )),
            Ok(_) => Login::Right(Box::new(user)),
        }
    }
}

/// Why a login could not be checked.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Dovecot(#[from] DovecotError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error(transparent)]
    Passwords(#[from] PasswordError),
}

/// A user known elsewhere alone: may send as the login's own address.
pub(crate) fn guest(name: &str) -> UserRow {
    UserRow {
        name: name.to_owned(),
        password: String::new(),
        addresses: vec![name.to_owned()],
        contact: String::new(),
        profile: "person".to_owned(),
        params: "{}".to_owned(),
        locked_at: None,
        locked_reason: String::new(),
        created_at: 0,
    }
}
