//! Logins checked by a directory (LDAP, RFC 4511): who somebody is there, whether the password is theirs, and which role their groups give them.
//!
//! Each login has a connection of its own, which is encrypted before anything is sent, and logins take turns ([`LoginQueue`]). The entry of
//! a login is looked for, or has a fixed name; then its password is tried by a bind. A login that does not exist takes as many queries as
//! one that does, so that the time tells nothing. Referrals are not followed, nothing is remembered, and everything that the server says is
//! bounded in length and time. If a login cannot be checked now, that is an error, not a wrong password.

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
use filter::{ENTRY, Filter, LOGIN, escaped_name};
use message::{Entry, Search};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_rustls::rustls::{ClientConfig, crypto};

/// Logins that the directory is asked about at once, and that wait for it in one line.
const AT_ONCE: usize = 32;
const WAITING_MAX: usize = 256;
/// Groups of one person.
const GROUPS_MAX: u32 = 1_000;
/// The attribute in which some directories keep the groups of an entry.
const MEMBER_OF: &str = "memberOf";
/// Names of users are no longer.
const NAME_BYTES_MAX: usize = 255;
/// A login or a password is no longer.
const TYPED_BYTES_MAX: usize = 1_000;

/// Somebody of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// As the directory writes it.
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
    filter: Filter,
    groups: Filter,
    reader_password: String,
    /// None where nothing is encrypted.
    trust: Option<Arc<ClientConfig>>,
    login_queue: LoginQueue,
    /// Why the last question was not answered; None if it was.
    problem: Mutex<Option<String>>,
}

impl Directory {
    /// Reads the files that the settings name; none if there is no directory.
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
        let filter = |text: &str| Filter::read(text).map_err(DirectoryError::Settings);
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

    /// Who this is, if the password is theirs.
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

    /// Why the last login could not be checked; None if it was, or if nobody has logged in yet.
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

    /// The first server that can be reached.
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

    /// Looks for the entry of a login, then tries the password.
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
            // Nobody, or two: the same questions are asked as for somebody, so that the time does not tell.
            let nobody = format!("cn=nobody,{}", settings.base);
            self.groups_of(connection, &Entry { name: nobody.clone(), ..Entry::default() }, login).await?;
            connection.bind(&nobody, password).await?;
            return Ok(None);
        };
        let groups = self.groups_of(connection, entry, login).await?;
        let right = connection.bind(&entry.name, password).await?;
        if right { self.person(entry, &groups).map(Some) } else { Ok(None) }
    }

    /// Tries the password of the entry with this login in its name, then reads it.
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
        let filter = Filter::Present("objectClass".to_owned()).octets("", "");
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

    /// The names of somebody's groups.
    async fn groups_of(
        &self,
        connection: &mut Connection,
        entry: &Entry,
        login: &str,
    ) -> Result<Vec<String>, DirectoryError> {
        if self.settings.groups.is_empty() || self.settings.roles.is_empty() {
            return Ok(entry.values(MEMBER_OF).map(str::to_owned).collect());
        }
        // As the directory writes it, if it does: what was typed may be an address.
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

/// Whether a name can be one here: printable, without blanks, and no option of a command.
fn is_usable(name: &str) -> bool {
    let bad = name.contains(|letter: char| letter.is_control() || letter.is_whitespace());
    !bad && !name.starts_with('-') && (1..=NAME_BYTES_MAX).contains(&name.len())
}

/// Whether two names of entries are the same but for case and blanks around commas.
fn same_name(one: &str, other: &str) -> bool {
    let parts = |name: &str| name.split(',').map(|part| part.trim().to_lowercase()).collect::<Vec<_>>();
    parts(one) == parts(other)
}

/// How servers prove who they are; none if no connection is encrypted.
fn trust(settings: &DirectorySettings) -> Result<Option<Arc<ClientConfig>>, DirectoryError> {
    if settings.without_encryption && !settings.servers.iter().any(|server| server.secure) {
        return Ok(None);
    }
    let roots = weir_tls::roots(settings.ca_file.as_deref()).map_err(io::Error::other)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Some(Arc::new(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth())))
}

/// Why the directory gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The connection.
    #[error("the directory: {0}")]
    Socket(#[from] io::Error),
    /// Its certificate, or the handshake.
    #[error("the directory's TLS: {0}")]
    Tls(io::Error),
    /// It refuses to encrypt.
    #[error("the directory does not speak TLS ({0} {1}): no password is sent to it")]
    NoTls(u32, String),
    /// It says nothing.
    #[error("the directory does not answer")]
    Silent,
    /// We asked it too much at once.
    #[error("too many logins at once; try again")]
    Busy,
    /// It hung up.
    #[error("the directory ended the conversation")]
    Ended,
    /// It sent something that is not a valid answer.
    #[error("the directory said what nobody asked for")]
    Strange,
    /// It cannot, or does not want to.
    #[error("the directory cannot check logins now: {0} {1}")]
    Refused(u32, String),
    /// The one who looks for people is not let in.
    #[error("the directory does not take the login of sign_in.ldap.reader")]
    Reader,
    /// Somebody without a name.
    #[error("somebody's entry in the directory has no name that can be used here (sign_in.ldap.name_attribute)")]
    NoName,
    /// A file of the settings.
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
