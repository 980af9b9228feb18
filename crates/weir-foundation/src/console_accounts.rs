//! Accounts of the console: who may log in there, and what they may do.
//!
//! There are few of them, so all are in one document in the records, which every check reads: a removed account or a new password takes
//! effect at once. A user of the mail gate needs no such account: with their mail login they see their own mail, and nothing else.
//!
//! If there is a directory ([`crate::directory`]), its people may log in too, with the role that their groups give them. Names that have a
//! password here are never looked up there. So people with an account here can log in even when the directory is down, and nobody in the
//! directory can take over their names. The same holds for an identity provider ([`crate::identity_provider`]).

use crate::audit::AuditTrail;
use crate::clock::Clock;
use crate::date::rfc3339;
use crate::directory::{DirectoryError, Person};
use crate::identity_provider::ProvidedPerson;
use crate::passwords::Passwords;
pub use crate::role::Role;
use crate::site_list::SiteList;
use crate::totp::StoredFactor;
use crate::{Actor, Foundation, OperationError, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_store::records::UserRecords;

const KEPT: &str = "console.accounts";
const ACCOUNTS_MAX: usize = 1_000;
/// How many people of a directory or identity provider may be signed in at once. An entry takes some two hundred octets, so this bounds memory
/// only: a university has more people who read their held mail here than it has accounts of the console.
const SIGNED_IN_MAX: usize = 50_000;
/// Gives the sessions of people of a directory a stamp of their own. It is no hash of a password, and not empty as that of mail users
/// without a password; otherwise such a session would go on as that user's when the directory's answer is too old.
const BY_DIRECTORY: &str = "\0directory";

/// An account that is to be made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// The login.
    pub name: String,
    /// What it may do: operator or admin.
    #[schemars(extend("enum" = ["operator", "admin"]))]
    pub role: Role,
    /// The password.
    pub password: String,
}

/// An account, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Account")]
pub struct AccountView {
    /// The login.
    pub name: String,
    /// What it may do.
    #[schemars(extend("enum" = ["operator", "admin"]))]
    pub role: Role,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// Whether a login needs a code besides the password.
    pub codes: bool,
}

/// The account behind a login. The login stays valid as long as [`ConsoleAccounts::known`] returns the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAccount {
    /// The login.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// A digest that changes with every new password.
    pub stamp: [u8; 32],
    /// Whether a login needs a code besides the password.
    pub code: bool,
}

/// An account as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    role: Role,
    password: String,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) second_factor: Option<StoredFactor>,
}

impl Account {
    fn wants_code(&self) -> bool {
        self.second_factor.as_ref().is_some_and(|factor| factor.confirmed)
    }

    fn view(&self) -> AccountView {
        AccountView {
            name: self.name.clone(),
            role: self.role,
            created: rfc3339(self.created_at),
            codes: self.wants_code(),
        }
    }
}

/// Somebody whose login another system has checked.
#[derive(Debug, Clone, Copy)]
struct SignedIn {
    role: Role,
    /// Says which system checked the login. If another one later vouches for the same name, the older sessions end.
    stamp: [u8; 32],
    /// Until when the answer of that system is believed.
    until: Instant,
}

/// The console's accounts. Cheap to clone.
#[derive(Clone)]
pub struct ConsoleAccounts {
    users: UserRecords,
    accounts: SiteList<Account>,
    passwords: Passwords,
    audit: AuditTrail,
    clock: Clock,
    /// People of the directory or of an identity provider who have logged in.
    signed_in: Arc<Mutex<HashMap<String, SignedIn>>>,
}

impl ConsoleAccounts {
    /// The accounts in these records, with passwords hashed and checked by `passwords`.
    pub fn new(foundation: &Foundation, passwords: Passwords) -> ConsoleAccounts {
        ConsoleAccounts {
            users: foundation.records.users(),
            accounts: SiteList::new(foundation, KEPT, "the console's accounts", |account| &account.name),
            passwords,
            audit: AuditTrail::new(foundation),
            clock: Arc::clone(&foundation.clock),
            signed_in: Arc::default(),
        }
    }

    /// All accounts, ordered by name.
    pub async fn list(&self) -> Result<Vec<AccountView>, OperationError> {
        Ok(self.accounts.read().await?.iter().map(Account::view).collect())
    }

    /// Makes an account.
    pub async fn add(&self, new: NewAccount, actor: &Actor) -> Result<AccountView, OperationError> {
        names::login(&new.name)?;
        names::password(&new.password)?;
        if new.role == Role::User {
            let hint = "users of the mail gate log in with their own name and password; make them with `weir user add`";
            return Err(OperationError::invalid("an account of the console is an operator or an admin", hint));
        }
        let password = self.passwords.hash(&new.password).await?;
        let created_at = (self.clock)().0 as i64;
        let account = Account { name: new.name, role: new.role, password, created_at, second_factor: None };
        let view = account.view();
        let add = |accounts: &mut Vec<Account>| {
            if accounts.iter().any(|known| known.name == account.name) {
                let hint = format!("give it a new password with `weir console passwd {}`", names::shown(&account.name));
                return Err(OperationError::conflict(format!("there is already an account {}", account.name), hint));
            }
            if accounts.len() >= ACCOUNTS_MAX {
                return Err(OperationError::conflict(format!("there are {ACCOUNTS_MAX} accounts"), "remove one first"));
            }
            accounts.push(account.clone());
            Ok(())
        };
        self.accounts.change(add).await?;
        self.audit.write(actor, "console.add", &view.name, format!("role {}", view.role.as_str())).await?;
        Ok(view)
    }

    /// Gives an account a new password. Sessions that began with the old password end.
    pub async fn set_password(&self, name: &str, password: &str, actor: &Actor) -> Result<(), OperationError> {
        names::password(password)?;
        let hash = self.passwords.hash(password).await?;
        let set = |accounts: &mut Vec<Account>| {
            account_in(accounts, name)?.password.clone_from(&hash);
            Ok(())
        };
        self.accounts.change(set).await?;
        self.audit.write(actor, "console.passwd", name, "a new password".to_owned()).await
    }

    /// Removes an account. The last administrator cannot be removed.
    pub async fn remove(&self, name: &str, actor: &Actor) -> Result<(), OperationError> {
        let remove = |accounts: &mut Vec<Account>| {
            let place = accounts.iter().position(|account| account.name == name).ok_or_else(|| no_account(name))?;
            let removed = accounts.remove(place);
            if removed.role == Role::Admin && !accounts.iter().any(|account| account.role == Role::Admin) {
                let hint = "make another administrator first: `weir console add NAME --role admin`";
                return Err(OperationError::conflict(format!("{name} is the last administrator"), hint));
            }
            Ok(removed)
        };
        let removed = self.accounts.change(remove).await?;
        self.audit.write(actor, "console.remove", name, format!("role {}", removed.role.as_str())).await
    }

    /// The account, if the password is right. If an account and a mail user have the same name, the account counts.
    pub async fn login(
        &self,
        name: &str,
        password: &str,
        from: IpAddr,
    ) -> Result<Option<KnownAccount>, OperationError> {
        let found = self.stored(name).await?.filter(|(_, hash)| !hash.is_empty());
        if found.is_none()
            && let Some(known) = self.ask_directory(name, password, from).await?
        {
            return Ok(Some(known));
        }
        let hash = found.as_ref().map(|(_, hash)| hash.as_str());
        // A name that does not exist must take as much time as one that does.
        let right = self.passwords.verify(name, password, hash, from).await?;
        Ok(found.filter(|_| right).map(|(known, _)| known))
    }

    /// The account that a name has now; none if there is none.
    pub async fn known(&self, name: &str) -> Result<Option<KnownAccount>, OperationError> {
        match self.stored(name).await? {
            Some((known, hash)) if !hash.is_empty() => Ok(Some(known)),
            other => Ok(self.signed_in(name).or(other.map(|(known, _)| known))),
        }
    }

    /// Asks the directory for somebody of this name and password.
    async fn ask_directory(
        &self,
        login: &str,
        password: &str,
        from: IpAddr,
    ) -> Result<Option<KnownAccount>, OperationError> {
        let Some(directory) = self.passwords.directory() else { return Ok(None) };
        let failed = |error: DirectoryError| OperationError::Failed(error.to_string());
        let Some(Person { name, role }) = directory.login(login, password, from).await.map_err(failed)? else {
            return Ok(None);
        };
        // The directory may spell the name differently from what was typed. It must not turn the person into somebody who has an account
        // here.
        if self.is_local(&name).await? {
            return Ok(None);
        }
        Ok(Some(self.known_from_directory(&name, role, directory.session())?))
    }

    /// The account of somebody whose password the directory has checked.
    fn known_from_directory(&self, name: &str, role: Role, session: Duration) -> Result<KnownAccount, OperationError> {
        self.sign_in(name, role, stamp(BY_DIRECTORY), session)
    }

    /// The account of somebody for whom an identity provider vouches; none if the name belongs to a local account, which no provider can
    /// give away.
    pub async fn provided(
        &self,
        person: &ProvidedPerson,
        session: Duration,
    ) -> Result<Option<KnownAccount>, OperationError> {
        if self.is_local(&person.name).await? {
            return Ok(None);
        }
        Ok(Some(self.sign_in(&person.name, person.role, stamp(&person.subject), session)?))
    }

    /// Whether somebody of this name has a password here. Case is ignored, because people cannot tell such names apart reliably.
    async fn is_local(&self, name: &str) -> Result<bool, OperationError> {
        let lower = name.to_lowercase();
        let same = |account: &Account| account.name.to_lowercase() == lower && !account.password.is_empty();
        if self.accounts.read().await?.iter().any(same) {
            return Ok(true);
        }
        for name in [name, &lower] {
            if self.stored(name).await?.is_some_and(|(_, hash)| !hash.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets somebody in whose login another system has checked.
    fn sign_in(
        &self,
        name: &str,
        role: Role,
        stamp: [u8; 32],
        session: Duration,
    ) -> Result<KnownAccount, OperationError> {
        let (now, mut signed_in) = (Instant::now(), self.signed_in.lock().unwrap_or_else(PoisonError::into_inner));
        if signed_in.len() >= SIGNED_IN_MAX && !signed_in.contains_key(name) {
            make_room(&mut signed_in, now)?;
        }
        signed_in.insert(name.to_owned(), SignedIn { role, stamp, until: now + session });
        Ok(KnownAccount { name: name.to_owned(), role, stamp, code: false })
    }

    /// Somebody whom the directory or an identity provider let in, as long as that is still believed.
    fn signed_in(&self, name: &str) -> Option<KnownAccount> {
        let signed_in = self.signed_in.lock().unwrap_or_else(PoisonError::into_inner);
        let SignedIn { role, stamp, .. } = *signed_in.get(name).filter(|person| person.until > Instant::now())?;
        Some(KnownAccount { name: name.to_owned(), role, stamp, code: false })
    }

    /// The account or user of this name, and the hash of the password; the hash is empty if another system checks the password.
    async fn stored(&self, name: &str) -> Result<Option<(KnownAccount, String)>, OperationError> {
        if names::login(name).is_err() {
            return Ok(None);
        }
        let known =
            |role: Role, hash: &str, code: bool| KnownAccount { name: name.to_owned(), role, stamp: stamp(hash), code };
        if let Some(account) = self.accounts.read().await?.into_iter().find(|account| account.name == name) {
            return Ok(Some((known(account.role, &account.password, account.wants_code()), account.password)));
        }
        let user = self.users.find(name).await?;
        Ok(user.map(|user| (known(Role::User, &user.password, false), user.password)))
    }

    /// Changes the accounts; see [`SiteList::change`].
    pub(crate) async fn change<R: Send>(
        &self,
        change: impl FnMut(&mut Vec<Account>) -> Result<R, OperationError> + Send,
    ) -> Result<R, OperationError> {
        self.accounts.change(change).await
    }

    pub(crate) fn audit(&self) -> &AuditTrail {
        &self.audit
    }

    pub(crate) fn now_s(&self) -> u64 {
        (self.clock)().0 / 1_000_000_000
    }
}

pub(crate) fn account_in<'a>(accounts: &'a mut [Account], name: &str) -> Result<&'a mut Account, OperationError> {
    accounts.iter_mut().find(|account| account.name == name).ok_or_else(|| no_account(name))
}

impl fmt::Debug for ConsoleAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleAccounts").finish_non_exhaustive()
    }
}

/// Makes room for one more person. Those go first whose time is over, then the user whose time ends first, who has to log in again. Operators
/// and administrators are never sent away, because somebody must be able to look after all of this.
fn make_room(signed_in: &mut HashMap<String, SignedIn>, now: Instant) -> Result<(), OperationError> {
    signed_in.retain(|_, person| person.until > now);
    if signed_in.len() < SIGNED_IN_MAX {
        return Ok(());
    }
    let users = signed_in.iter().filter(|(_, person)| person.role == Role::User);
    let first = users.min_by_key(|(_, person)| person.until).map(|(name, _)| name.clone());
    match first.and_then(|name| signed_in.remove(&name)) {
        Some(_) => Ok(()),
        None => Err(OperationError::Failed("too many people are signed in".to_owned())),
    }
}

fn stamp(hash: &str) -> [u8; 32] {
    Sha256::digest(hash.as_bytes()).into()
}

fn no_account(name: &str) -> OperationError {
    let hint = "`weir console list` shows all; users of the mail gate are changed with `weir user`";
    OperationError::unknown(format!("there is no account {} of the console", names::shown(name)), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::folder::DataFolder;
    use weir_store::records::UserRow;

    /// A user of the mail gate whose password only the directory knows.
    fn mail_user(name: &str) -> UserRow {
        UserRow {
            name: name.to_owned(),
            password: String::new(),
            addresses: vec![format!("{name}@example.org")],
            contact: String::new(),
            profile: "person".to_owned(),
            params: "{}".to_owned(),
            locked_at: None,
            locked_reason: String::new(),
            created_at: 0,
        }
    }

    #[tokio::test]
    async fn who_came_from_a_directory_signs_in_again_when_its_answer_is_too_old() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("data")).unwrap();
        let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
        foundation.records.users().add(&mail_user("ann")).await.unwrap();
        let accounts = ConsoleAccounts::new(&foundation, Passwords::new(1, [7; 32]).unwrap());
        // As the link in a notice finds her.
        let by_link = accounts.known("ann").await.unwrap().unwrap();
        assert_eq!(by_link.role, Role::User);
        let begun = accounts.known_from_directory("ann", Role::Operator, Duration::from_secs(3600)).unwrap();
        assert_eq!(accounts.known("ann").await.unwrap(), Some(begun.clone()));
        accounts.signed_in.lock().unwrap().get_mut("ann").unwrap().until = Instant::now();
        let then = accounts.known("ann").await.unwrap().unwrap();
        assert_eq!(then, by_link);
        assert_ne!(then.stamp, begun.stamp, "her session has ended");
    }

    #[tokio::test]
    async fn however_many_are_signed_in_an_administrator_gets_in() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("data")).unwrap();
        let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
        let accounts = ConsoleAccounts::new(&foundation, Passwords::new(1, [7; 32]).unwrap());
        let hour = Duration::from_secs(3600);
        let enters = |name: &str, role| accounts.known_from_directory(name, role, hour);
        (0..1_000).for_each(|n| drop(enters(&format!("u{n}"), Role::User).unwrap()));
        assert_eq!(enters("ann", Role::Admin).unwrap().role, Role::Admin);
        assert!(accounts.known("ann").await.unwrap().is_some() && accounts.known("u0").await.unwrap().is_some());
        // Where memory ends, the user goes whose time ends first, and nobody else.
        let fill = |role| {
            let mut signed_in = accounts.signed_in.lock().unwrap();
            for n in signed_in.len()..SIGNED_IN_MAX {
                let until = Instant::now() + 2 * hour;
                signed_in.insert(format!("more{n}"), SignedIn { role, stamp: [0; 32], until });
            }
        };
        fill(Role::User);
        enters("bob", Role::Admin).unwrap();
        assert!(accounts.known("u0").await.unwrap().is_none() && accounts.known("u1").await.unwrap().is_some());
        assert_eq!(accounts.signed_in.lock().unwrap().len(), SIGNED_IN_MAX);
        accounts.signed_in.lock().unwrap().retain(|_, person| person.role == Role::Admin);
        fill(Role::Operator);
        let full = enters("carl", Role::Admin).unwrap_err();
        assert_eq!(full.to_string(), "too many people are signed in");
        assert_eq!(enters("ann", Role::Admin).unwrap().name, "ann", "who is in already stays");
    }
}
