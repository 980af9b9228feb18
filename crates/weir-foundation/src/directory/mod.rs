//! Logins checked by a directory (LDAP, RFC 4511): finds the person, checks the password, and derives the role from the person's groups.
//!
//! Each login has a connection of its own, which is encrypted before anything is sent, and logins take turns ([`LoginQueue`]). The entry of
//! a login is searched for, or has a fixed form of name; then the password is tried by a bind. A login that does not exist takes as many
//! queries as one that does, so that the time does not tell them apart. Referrals are not followed, no answer is cached, and everything
//! that the server says is bounded in length and time. If a login cannot be checked now, that is an error, not a wrong password.

mod ber;
mod connection;
mod filter;
pub(crate) mod fuzz;
mod message;
mod settings;

pub use settings::{DirectoryServer, DirectorySettings};

use crate::login_queue::LoginQueue;
use crate::role::Role;
use crate::role_rule::RoleRule;
use connection::Connection;
use filter::{ENTRY, LOGIN, SearchFilter, escaped_name};
use message::{Entry, Search};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_rustls::rustls::{ClientConfig, crypto};

/// At most so many logins are checked at once, and so many wait in each of the two lines of the queue.
const AT_ONCE: usize = 32;
const WAITING_MAX: usize = 256;
/// At most this many groups of one person are read.
const GROUPS_MAX: u32 = 1_000;
/// The attribute in which some directories keep the groups of an entry.
const MEMBER_OF: &str = "memberOf";
/// Longer names of users are refused.
const NAME_BYTES_MAX: usize = 255;
/// Longer logins and passwords are refused without asking the directory.
const TYPED_BYTES_MAX: usize = 1_000;

/// Somebody who has an entry in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name, as the directory spells it.
    pub name: String,
    /// What their groups let them do at the console.
    pub role: Role,
}

/// A directory whose people may sign in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Directory {
    shared: Arc<OpenDirectory>,
}

#[derive(Debug)]
struct OpenDirectory {
    settings: DirectorySettings,
    filter: SearchFilter,
    groups: SearchFilter,
    reader_password: String,
    /// The certificates to trust; none if nothing is encrypted.
    trust: Option<Arc<ClientConfig>>,
    login_queue: LoginQueue,
    /// Why the last login could not be checked; none if it could.
    problem: Mutex<Option<String>>,
}

impl Directory {
    /// Reads the files that the settings name. None if no directory is configured.
    pub fn open(settings: &DirectorySettings) -> Result<Option<Directory>, DirectoryError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let reader_password = match &settings.reader_password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|problem| DirectoryError::File { path: path.clone(), problem })?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            None => String::new(),
        };
        let filter = |text: &str| SearchFilter::read(text).map_err(DirectoryError::Settings);
        let groups = format!("(|(member={ENTRY})(uniqueMember={ENTRY})(memberUid={LOGIN}))");
        Ok(Some(Directory {
            shared: Arc::new(OpenDirectory {
                filter: filter(&settings.filter)?,
                groups: filter(&groups)?,
                reader_password,
                trust: trust(settings)?,
                login_queue: LoginQueue::new(AT_ONCE, WAITING_MAX),
                problem: Mutex::default(),
                settings: settings.clone(),
            }),
        }))
    }

    /// How long somebody stays signed in before the directory is asked again.
    pub fn session(&self) -> Duration {
        self.shared.settings.session
    }

    /// The person, if the password is right.
    pub async fn login(&self, login: &str, password: &str, from: IpAddr) -> Result<Option<Person>, DirectoryError> {
        let typed = |text: &str| !text.is_empty() && text.len() <= TYPED_BYTES_MAX && !text.contains('\0');
        if !typed(login) || !typed(password) || login.chars().any(char::is_control) {
            return Ok(None);
        }
        let turn = self.shared.login_queue.enter(Some(from)).await.ok_or(DirectoryError::Busy)?;
        let asked = tokio::time::timeout(self.shared.settings.timeout, self.shared.check(login, password)).await;
        let answer = asked.unwrap_or(Err(DirectoryError::Silent));
        if matches!(answer, Ok(None)) {
            turn.failed();
        }
        *self.shared.lock_problem() = answer.as_ref().err().map(DirectoryError::to_string);
        answer
    }

    /// Why the last login could not be checked; none if it could, or if nobody has logged in yet.
    pub fn problem(&self) -> Option<String> {
        self.shared.lock_problem().clone()
    }
}

impl OpenDirectory {
    fn lock_problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check(&self, login: &str, password: &str) -> Result<Option<Person>, DirectoryError> {
        let mut connection = self.connect().await?;
        let outcome = match self.settings.entry.is_empty() {
            true => self.find_and_bind(&mut connection, login, password).await,
            false => self.bind_and_read(&mut connection, login, password).await,
        };
        connection.close().await;
        outcome
    }

    /// Connects to the first server that can be reached. Each has an equal share of the time.
    async fn connect(&self) -> Result<Connection, DirectoryError> {
        let mut problem = DirectoryError::Ended;
        let each = self.settings.timeout / self.settings.servers.len().max(1) as u32;
        for server in &self.settings.servers {
            let plain = !server.secure && self.settings.without_encryption;
            let trust = self.trust.clone().filter(|_| !plain);
            match tokio::time::timeout(each, Connection::open(server, trust)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => problem = error,
                Err(_) => problem = DirectoryError::Silent,
            }
        }
        Err(problem)
    }

    /// Searches for the entry of a login, then tries the password.
    async fn find_and_bind(
        &self,
        connection: &mut Connection,
        login: &str,
        password: &str,
    ) -> Result<Option<Person>, DirectoryError> {
        let settings = &self.settings;
        if !settings.reader.is_empty() && !connection.bind(&settings.reader, &self.reader_password).await? {
            return Err(DirectoryError::Reader);
        }
        let filter = self.filter.octets(login, "");
        let found = connection.search(self.search(&settings.base, false, filter, 2)).await?;
        let [entry] = &found[..] else {
            // There is no such entry, or two. The same queries are made as for a real one, so that the time does not tell.
            let nobody = format!("cn=nobody,{}", settings.base);
            self.groups_of(connection, &Entry { name: nobody.clone(), ..Entry::default() }, login).await?;
            connection.bind(&nobody, password).await?;
            return Ok(None);
        };
        let groups = self.groups_of(connection, entry, login).await?;
        let right = connection.bind(&entry.name, password).await?;
        if right { self.person(entry, &groups).map(Some) } else { Ok(None) }
    }

    /// Puts the login into the fixed form of an entry's name, tries the password there, then reads the entry.
    async fn bind_and_read(
        &self,
        connection: &mut Connection,
        login: &str,
        password: &str,
    ) -> Result<Option<Person>, DirectoryError> {
        let name = self.settings.entry.replace(LOGIN, &escaped_name(login));
        if !connection.bind(&name, password).await? {
            return Ok(None);
        }
        let filter = SearchFilter::Present("objectClass".to_owned()).octets("", "");
        let found = connection.search(self.search(&name, true, filter, 1)).await?;
        let entry = found.first().ok_or(DirectoryError::NoName)?;
        let groups = self.groups_of(connection, entry, login).await?;
        self.person(entry, &groups).map(Some)
    }

    fn search<'a>(&'a self, base: &'a str, itself: bool, filter: Vec<u8>, most: u32) -> Search<'a> {
        let attributes = [self.settings.name_attribute.as_str(), MEMBER_OF];
        let seconds = self.settings.timeout.as_secs().clamp(1, 60) as u32;
        Search { base, itself, filter, attributes, most, seconds }
    }

    /// The names of the groups of somebody.
    async fn groups_of(
        &self,
        connection: &mut Connection,
        entry: &Entry,
        login: &str,
    ) -> Result<Vec<String>, DirectoryError> {
        if self.settings.groups.is_empty() || self.settings.roles.is_empty() {
            return Ok(entry.values(MEMBER_OF).map(str::to_owned).collect());
        }
        // Prefer the name as the directory spells it: what was typed may be a mail address.
        let login = entry.values(&self.settings.name_attribute).next().unwrap_or(login);
        let filter = self.groups.octets(login, &entry.name);
        let search = self.search(&self.settings.groups, false, filter, GROUPS_MAX);
        Ok(connection.search(search).await?.into_iter().map(|group| group.name).collect())
    }

    fn person(&self, entry: &Entry, groups: &[String]) -> Result<Person, DirectoryError> {
        let name = entry.values(&self.settings.name_attribute).next().ok_or(DirectoryError::NoName)?;
        if !is_usable(name) {
            return Err(DirectoryError::NoName);
        }
        let is_in = |rule: &&RoleRule| groups.iter().any(|group| same_name(group, &rule.group));
        let role = self.settings.roles.iter().filter(is_in).map(|rule| rule.role).max();
        Ok(Person { name: name.to_owned(), role: role.unwrap_or(Role::User) })
    }
}

/// Whether a name from the directory can be used here: printable, without blanks, and not to be taken for an option of a command.
fn is_usable(name: &str) -> bool {
    let bad = name.contains(|letter: char| letter.is_control() || letter.is_whitespace());
    !bad && !name.starts_with('-') && (1..=NAME_BYTES_MAX).contains(&name.len())
}

/// Whether two names of entries are the same, apart from case and blanks around commas.
fn same_name(one: &str, other: &str) -> bool {
    let parts = |name: &str| name.split(',').map(|part| part.trim().to_lowercase()).collect::<Vec<_>>();
    parts(one) == parts(other)
}

/// The certificates by which servers prove who they are; none if no connection is encrypted.
fn trust(settings: &DirectorySettings) -> Result<Option<Arc<ClientConfig>>, DirectoryError> {
    if settings.without_encryption && !settings.servers.iter().any(|server| server.secure) {
        return Ok(None);
    }
    let roots = weir_tls::roots(settings.ca_file.as_deref()).map_err(io::Error::other)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Some(Arc::new(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth())))
}

/// Why a login could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The connection could not be opened, or broke.
    #[error("the directory: {0}")]
    Socket(#[from] io::Error),
    /// The certificate is not trusted, or the handshake failed.
    #[error("the directory's TLS: {0}")]
    Tls(io::Error),
    /// The server refuses to encrypt.
    #[error("the directory does not speak TLS ({0} {1}): no password is sent to it")]
    NoTls(u32, String),
    /// No answer in time.
    #[error("the directory does not answer")]
    Silent,
    /// Too many logins wait already.
    #[error("too many logins at once; try again")]
    Busy,
    /// The server closed the connection.
    #[error("the directory ended the conversation")]
    Ended,
    /// The server sent something that is not a valid answer.
    #[error("the directory said what nobody asked for")]
    Strange,
    /// The server answered with an error.
    #[error("the directory cannot check logins now: {0} {1}")]
    Refused(u32, String),
    /// The password of the entry that searches for people is refused.
    #[error("the directory does not take the login of sign_in.ldap.reader")]
    Reader,
    /// The person's entry has no usable name.
    #[error("somebody's entry in the directory has no name that can be used here (sign_in.ldap.name_attribute)")]
    NoName,
    /// A file that the settings name cannot be read.
    #[error("{} cannot be read: {problem}", path.display())]
    File {
        /// Where it is.
        path: std::path::PathBuf,
        /// Why it cannot be read.
        problem: io::Error,
    },
    /// A setting that cannot be used.
    #[error("{0}")]
    Settings(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_compared_as_directories_do() {
        assert!(same_name("cn=Admins, ou=Groups,dc=x", "CN=admins,ou=groups , dc=x"));
        assert!(!same_name("cn=admins,ou=groups,dc=x", "cn=admins,dc=x"));
    }
}
