//! The operations on users.

mod contact;
mod locks;
mod password;

pub use contact::OWN_CONTACT;
pub use locks::{LockDone, UnlockDone};
pub(super) use password::PasswordPlace;

use self::contact::elsewhere;
use super::own_throttle::{OwnThrottle, in_force};
use super::throttle_view::{Snapshot, ThrottleView};
use super::{Actor, Backend, OperationError, OperationsParts, names, when};
use crate::accounts::{WrongLogins, guest, spelling, stop_lock};
use crate::counted::count;
use crate::own::Own;
use crate::own_link::{self, Owner};
use crate::submission::Settings;
use crate::throttle::{ThrottleCommand, Throttling, correspondents_in, machine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Mutex;
use weir_core::address::canonical;
use weir_core::throttle::Params;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_foundation::passwords::Passwords;
use weir_store::records::{CorrespondentRecords, SecretRecords, ThrottleRecords, ThrottleRow, UserRecords, UserRow};

/// What kind of sender a user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A person: the parameters of `[throttle]`.
    #[default]
    Person,
    /// Somebody who writes to lists of people.
    List,
    /// A program.
    Application,
    /// Never throttled.
    Exempt,
}

impl Profile {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Person => "person",
            Profile::List => "list",
            Profile::Application => "application",
            Profile::Exempt => "exempt",
        }
    }
}

/// A user to be made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The login.
    pub name: String,
    /// The password; none for a user whose password another system checks.
    pub password: Option<String>,
    /// Addresses to send as; the login itself if it is one and nothing is given.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Where notices go.
    #[serde(default)]
    pub contact: String,
    /// What kind of sender.
    #[serde(default)]
    pub profile: Profile,
    /// Mailboxes that are the user's besides the one that the login names: they see the spam that is kept for these.
    #[serde(default)]
    pub reads: Vec<String>,
}

/// What to change about a user. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UserChange")]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// All addresses to send as.
    pub addresses: Option<Vec<String>>,
    /// Where notices go; empty for nowhere.
    pub contact: Option<String>,
    /// What kind of sender.
    pub profile: Option<Profile>,
    /// The user's own throttle parameters.
    pub throttle: OwnThrottle,
    /// Recipients to trust from now on.
    pub trust: Vec<String>,
    /// Recipients to trust no longer.
    pub distrust: Vec<String>,
    /// All mailboxes that the user reads besides their own: they see the spam that is kept for these.
    pub reads: Option<Vec<String>>,
}

/// A user in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "User")]
pub struct UserView {
    /// The login.
    pub name: String,
    /// Addresses to send as.
    pub addresses: Vec<String>,
    /// Where notices go.
    pub contact: String,
    /// Whether that is a mailbox of the account itself, as it may be from before this was refused: then only a thief would hear of a stop.
    #[serde(default)]
    pub contact_is_own: bool,
    /// What kind of sender.
    pub profile: String,
    /// `active`, `locked` by a person, or `stopped` by the throttle.
    #[schemars(extend("enum" = ["active", "locked", "stopped"]))]
    pub state: String,
    /// Recipients in the delay queue.
    pub held: i64,
    /// Since when a person has locked the account.
    #[schemars(extend("format" = "date-time"))]
    pub locked_since: Option<String>,
    /// Why.
    pub locked_reason: String,
    /// When it was made; empty if there is no account here.
    pub created: String,
}

/// Users in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserList {
    /// These.
    pub users: Vec<UserView>,
    /// Ask again from after this name: there are more.
    pub next: Option<String>,
}

/// Everything about one user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserPage {
    /// As in a list.
    #[serde(flatten)]
    pub user: UserView,
    /// Whether there is a password here; if not, another system checks it.
    pub has_password: bool,
    /// Who checks the password when this user sends mail, if Weir does not: a new one has to be given there.
    #[serde(default)]
    pub password_elsewhere: Option<String>,
    /// SMTP sessions open now.
    pub sessions: usize,
    /// The throttle.
    pub throttle: ThrottleView,
    /// Which of its parameters are the user's own.
    pub own_parameters: Vec<String>,
    /// Recipients whose mail needs no asking.
    pub trusted: Vec<String>,
    /// The mailboxes of this user, who sees the spam that is kept for them; sending as an address is not reading its mail.
    #[serde(default)]
    pub reads: Vec<String>,
    /// How many people outside the site are remembered as written to before.
    pub correspondents: i64,
    /// Logins that failed lately, at the mail server and on the console.
    #[serde(default)]
    pub wrong_logins: WrongLogins,
}

/// Whether users may let their own held mail go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayRelease {
    /// They may.
    Yes,
    /// They came by a link of another time: a stop has begun or ended since.
    OtherSituation,
    /// A password is not enough at this site.
    NotByPassword,
    /// A password is not enough while they are stopped.
    NotWhileStopped,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveDone {
    /// Who is no user any more.
    pub name: String,
    /// Sessions that were ended.
    pub sessions_ended: usize,
}

/// How long the throttle of a removed user is kept: removing somebody and making them anew must not empty a day's count, and
/// addresses in notices, which are good for seven days, must not find a throttle that has forgotten the stop that ended them.
const REMOVED_KEPT_NS: i64 = 8 * 86_400_000_000_000;

/// What may be done to users. Cheap to clone.
#[derive(Clone)]
pub struct UserOperations {
    users: UserRecords,
    throttles: ThrottleRecords,
    correspondents: CorrespondentRecords,
    secrets: SecretRecords,
    clock: Clock,
    audit: AuditTrail,
    passwords: Passwords,
    settings: Arc<Settings>,
    throttling: Throttling,
    backend: Arc<dyn Backend>,
    /// A change also concerns the throttle and the sessions: one at a time.
    changing: Arc<Mutex<()>>,
}

impl UserOperations {
    pub(super) fn new(parts: &OperationsParts) -> UserOperations {
        UserOperations {
            users: parts.foundation.records.users(),
            throttles: parts.foundation.records.throttles(),
            correspondents: parts.foundation.records.correspondents(),
            secrets: parts.foundation.records.secrets(),
            clock: Arc::clone(&parts.foundation.clock),
            audit: AuditTrail::new(&parts.foundation),
            passwords: parts.passwords.clone(),
            settings: Arc::clone(&parts.settings),
            throttling: parts.throttling.clone(),
            backend: Arc::clone(&parts.backend),
            changing: Arc::default(),
        }
    }

    /// Makes a user.
    pub async fn add(&self, new: NewUser, actor: &Actor) -> Result<UserPage, OperationError> {
        names::login(&new.name)?;
        let mut addresses = new.addresses;
        if addresses.is_empty() && new.name.contains('@') {
            addresses.push(new.name.clone());
        }
        if addresses.is_empty() && self.settings.sender_must_match {
            let what = format!("{} could not send as anybody", names::shown(&new.name));
            return Err(OperationError::invalid(what, "give at least one address, such as --address ann@example.org"));
        }
        names::addresses(&addresses)?;
        names::contact(&new.contact)?;
        let mut own = Own::default();
        set_reads(&mut own, &new.reads, &new.name)?;
        elsewhere(&new.contact, &new.name, &addresses, &own)?;
        let password = match &new.password {
            Some(password) => {
                names::password(password)?;
                self.passwords.hash(password).await?
            }
            None => String::new(),
        };
        let reads = if new.reads.is_empty() { String::new() } else { format!(", reads {}", listed(&new.reads)) };
        let detail = format!("profile {}, sends as {}{reads}", new.profile.as_str(), listed(&addresses));
        let user = UserRow {
            name: new.name.clone(),
            password,
            addresses,
            contact: new.contact,
            profile: new.profile.as_str().to_owned(),
            params: own.write(),
            locked_at: None,
            locked_reason: String::new(),
            created_at: (self.clock)().0 as i64,
        };
        self.forget_removed().await?;
        let alike = self.users.alike(&new.name.to_lowercase()).await?.into_iter().next();
        if alike.is_some() || !self.users.add(&user).await? {
            let there = alike.unwrap_or(new.name);
            let hint = format!("change it with `weir user set {there}` or `weir user passwd {there}`");
            return Err(OperationError::conflict(format!("there is already a user {there}"), hint));
        }
        self.audit.write(actor, "user.add", &new.name, detail).await?;
        // From now on they may answer anybody who writes to them, even before they have sent anything themselves.
        let addresses: Vec<String> = user.addresses.iter().filter_map(|address| canonical(address).ok()).collect();
        self.correspondents.open_letters(&addresses).await?;
        self.show(&new.name).await
    }

    /// Removes a user: logins fail, sessions end, and whom they wrote to is forgotten. Nothing that is held may be left behind. The throttle
    /// stays for some days: who gets the same name meanwhile goes on with its figures.
    pub async fn remove(&self, name: &str, actor: &Actor) -> Result<RemoveDone, OperationError> {
        let _changing = self.changing.lock().await;
        let user = self.user(name).await?;
        let held = self.throttles.find(name).await?.map_or(0, |row| row.held);
        if held > 0 {
            let are = if held == 1 { "is" } else { "are" };
            let what = format!("{} of {} {are} held", count(held, "recipient"), names::shown(name));
            let hint = format!("decide first: `weir held release --user {name}` or `weir held delete --user {name}`");
            return Err(OperationError::conflict(what, hint));
        }
        self.users.remove(name).await?;
        self.forget_removed().await?;
        let sessions_ended = self.backend.end_sessions(name, "the account was removed");
        let detail = format!("sent as {} ({} ended)", listed(&user.addresses), count(sessions_ended, "session"));
        self.audit.write(actor, "user.remove", name, detail).await?;
        Ok(RemoveDone { name: name.to_owned(), sessions_ended })
    }

    /// Forgets the throttles of users who were removed long ago.
    async fn forget_removed(&self) -> Result<(), OperationError> {
        let before = (self.clock)().0 as i64 - REMOVED_KEPT_NS;
        self.users.forget_removed(before).await?;
        Ok(())
    }

    /// Changes a user. New parameters are in force at once, also for what waits.
    pub async fn set(&self, name: &str, change: &Change, actor: &Actor) -> Result<UserPage, OperationError> {
        if *change == Change::default() {
            return Err(OperationError::invalid(
                "nothing to change was given",
                "`weir user set --help` lists what can be set",
            ));
        }
        names::login(name)?;
        let _changing = self.changing.lock().await;
        let set = |user: &mut UserRow| {
            let before = user.clone();
            if let Some(addresses) = &change.addresses {
                names::addresses(addresses)?;
                user.addresses.clone_from(addresses);
            }
            if let Some(contact) = &change.contact {
                names::contact(contact)?;
                user.contact.clone_from(contact);
            }
            if let Some(profile) = change.profile {
                user.profile = profile.as_str().to_owned();
            }
            let own = self.changed(change, user)?;
            if change.addresses.is_some() || change.contact.is_some() || change.reads.is_some() {
                elsewhere(&user.contact, name, &user.addresses, &own)?;
            }
            user.params = own.write();
            Ok((before, user.clone(), own))
        };
        let (before, user, own) = self.change(name, set).await?;
        if self.throttles.find(name).await?.is_some() {
            let params = in_force(&own, self.profile_params(&user));
            self.throttling.command(name, ThrottleCommand::Reparameterise(params)).await?;
            self.backend.wake();
        }
        self.audit.write(actor, "user.set", name, difference(&before, &user)).await?;
        self.show(name).await
    }

    fn changed(&self, change: &Change, user: &UserRow) -> Result<Own, OperationError> {
        let mut own = Own::read(&user.params);
        change.throttle.apply(&mut own, self.profile_params(user))?;
        for address in &change.distrust {
            own.distrust(address);
        }
        for address in &change.trust {
            trust(&mut own, address)?;
        }
        if let Some(reads) = &change.reads {
            set_reads(&mut own, reads, &user.name)?;
        }
        Ok(own)
    }

    /// Puts recipients on a user's list of trusted ones; those that were not there.
    pub(super) async fn trust(&self, name: &str, addresses: &[String]) -> Result<Vec<String>, OperationError> {
        names::login(name)?;
        let _changing = self.changing.lock().await;
        let add = |user: &mut UserRow| {
            let (mut own, mut new) = (Own::read(&user.params), Vec::new());
            for address in addresses {
                if trust(&mut own, address)? {
                    new.push(address.clone());
                }
            }
            user.params = own.write();
            Ok(new)
        };
        self.change(name, add).await
    }

    /// Changes a user as it is now, even if another relay changes it at the same time.
    async fn change<R: Send>(
        &self,
        name: &str,
        change: impl FnMut(&mut UserRow) -> Result<R, OperationError> + Send,
    ) -> Result<R, OperationError> {
        self.users.change(name, change).await?.ok_or_else(|| no_user(name))
    }

    /// Users in order of name, from after `after`.
    pub async fn list(&self, after: &str) -> Result<UserList, OperationError> {
        let rows = self.users.after(after).await?;
        let next = (rows.len() == 1000).then(|| rows.last().map(|user| user.name.clone())).flatten();
        let names: Vec<String> = rows.iter().map(|user| user.name.clone()).collect();
        let throttles = self.throttles.of(&names).await?;
        let busy: HashMap<String, (i64, bool)> =
            throttles.into_iter().map(|(name, held, stopped)| (name, (held, stopped.is_some()))).collect();
        let view = |user: UserRow| {
            let (held, stopped) = busy.get(user.name.as_str()).copied().unwrap_or_default();
            UserView::new(user, held, stopped)
        };
        Ok(UserList { users: rows.into_iter().map(view).collect(), next })
    }

    /// Everything about one user, or about an identity that has a throttle and no account here.
    pub async fn show(&self, name: &str) -> Result<UserPage, OperationError> {
        names::login(name)?;
        let row = self.throttles.find(name).await?;
        let user = match self.users.find(name).await? {
            None if self.is_guest(name, row.as_ref()).await? => guest(name),
            user => user.ok_or_else(|| no_user(name))?,
        };
        let params = self.settings.params_of(Some(&user));
        let snapshot = Snapshot::of(row.as_ref(), Some(params), (self.clock)()).map_err(OperationError::Failed)?;
        let throttle = snapshot.view(user.profile == "exempt");
        let own = Own::read(&user.params);
        Ok(UserPage {
            has_password: !user.password.is_empty(),
            password_elsewhere: self.password_elsewhere(&user).map(str::to_owned),
            sessions: self.backend.sessions_of(name),
            own_parameters: own.parameters().map(str::to_owned).collect(),
            trusted: own.trusted().to_vec(),
            reads: own.mailboxes(name, &user.addresses),
            correspondents: correspondents_in(self.correspondents.octets(name).await?),
            wrong_logins: self.backend.wrong_logins(name),
            user: UserView::new(user, throttle.held as i64, throttle.stopped_since.is_some()),
            throttle,
        })
    }

    /// A login as this user has failed on the console: it counts as one at the mail server does.
    pub fn note_wrong_login(&self, name: &str, password: &str, from: IpAddr) {
        self.backend.note_wrong_login(name, password, from);
    }

    /// Whether there is such a user, or an identity that has a throttle and no account here. Cheap: nothing else is looked up.
    pub async fn exists(&self, name: &str) -> Result<bool, OperationError> {
        if names::login(name).is_err() {
            return Ok(false);
        }
        if self.users.find(name).await?.is_some() {
            return Ok(true);
        }
        let row = self.throttles.find(name).await?;
        self.is_guest(name, row.as_ref()).await
    }

    /// The user to whose own page a link leads, and the situation that it was made in, if it is a good one.
    pub async fn of_link(&self, key: &str) -> Result<Option<(String, u32)>, OperationError> {
        let Some(name) = own_link::identity_of(key).filter(|name| names::login(name).is_ok()) else { return Ok(None) };
        let Some(secret) = self.secrets.find(own_link::SECRET).await? else { return Ok(None) };
        let Some(user) = self.users.find(&name).await? else { return Ok(None) };
        let now_s = (self.clock)().0 / 1_000_000_000;
        let (situation, _) = self.situation(&name).await?;
        let good = own_link::is_good(&secret, key, Owner { identity: &name, contact: &user.contact, situation }, now_s);
        Ok(good.then_some((name, situation)))
    }

    /// Whether somebody who is in as this user may let held mail of theirs go; `link` is the situation of the link that they came by.
    pub async fn may_release(&self, name: &str, link: Option<u32>) -> Result<MayRelease, OperationError> {
        let (situation, stopped) = self.situation(name).await?;
        Ok(match link {
            Some(then) if then == situation => MayRelease::Yes,
            Some(_) => MayRelease::OtherSituation,
            None if !self.settings.users_release => MayRelease::NotByPassword,
            None if stopped => MayRelease::NotWhileStopped,
            None => MayRelease::Yes,
        })
    }

    /// Whether an account is stopped or locked. Then its password may be in somebody else's hands, who must not decide with it.
    pub async fn is_frozen(&self, name: &str) -> Result<bool, OperationError> {
        Ok(self.user(name).await?.locked_at.is_some() || self.situation(name).await?.1)
    }

    /// The situation of somebody's throttle, and whether they are stopped.
    async fn situation(&self, name: &str) -> Result<(u32, bool), OperationError> {
        let Some(row) = self.throttles.find(name).await? else { return Ok((0, false)) };
        let throttle = machine(&row.state, None, (self.clock)()).map_err(OperationError::Failed)?;
        Ok((throttle.situation(), throttle.stopped().is_some()))
    }

    /// Whether a throttle without an account is somebody's, and not what is kept of a removed user.
    async fn is_guest(&self, name: &str, row: Option<&ThrottleRow>) -> Result<bool, OperationError> {
        let Some(row) = row else { return Ok(false) };
        let removed_at = if row.held == 0 { self.users.removed_at(name).await? } else { None };
        Ok(removed_at.is_none_or(|removed_at| row.updated_at > removed_at))
    }

    /// Under which name somebody is known whom a person in charge calls so: capitals do not matter, unless there are two accounts. An
    /// account counts before a throttle that is written in other capitals, as it does for mail (`accounts::spelling`).
    pub async fn called(&self, name: &str) -> Result<String, OperationError> {
        // A selection without a user names nobody.
        if names::login(name).is_err() {
            return Ok(name.to_owned());
        }
        if let Some(account) = spelling::account_of(&self.users, name).await? {
            return Ok(account.name);
        }
        Ok(spelling::known_as(&self.users, &self.throttles, name).await?.unwrap_or_else(|| name.to_owned()))
    }

    /// The same for whose mail waits: a throttle of exactly this name that holds some counts first, or nobody could decide about it by
    /// name.
    pub async fn called_in_queues(&self, name: &str) -> Result<String, OperationError> {
        let holds = self.throttles.find(name).await?.is_some_and(|throttle| throttle.held > 0);
        if holds { Ok(name.to_owned()) } else { self.called(name).await }
    }

    async fn user(&self, name: &str) -> Result<UserRow, OperationError> {
        names::login(name)?;
        self.users.find(name).await?.ok_or_else(|| no_user(name))
    }

    /// A user of ours, or somebody who has sent mail and whom only a directory, Dovecot or their address identifies. The latter get
    /// an account without a password, so that there is something to lock.
    async fn known(&self, name: &str) -> Result<UserRow, OperationError> {
        names::login(name)?;
        if let Some(user) = self.users.find(name).await? {
            return Ok(user);
        }
        let row = self.throttles.find(name).await?;
        if !self.is_guest(name, row.as_ref()).await? {
            return Err(no_user(name));
        }
        let user = stop_lock::to_lock(name, (self.clock)());
        self.users.add(&user).await?;
        Ok(user)
    }

    fn profile_params(&self, user: &UserRow) -> Params {
        let bare = UserRow { params: "{}".to_owned(), ..user.clone() };
        self.settings.params_of(Some(&bare))
    }
}

impl UserView {
    fn new(user: UserRow, held: i64, stopped: bool) -> UserView {
        let state = match (user.locked_at, stopped && user.profile != "exempt") {
            (Some(_), _) => "locked",
            (None, true) => "stopped",
            (None, false) => "active",
        };
        UserView {
            contact_is_own: contact::is_own(&user),
            name: user.name,
            addresses: user.addresses,
            contact: user.contact,
            profile: user.profile,
            state: state.to_owned(),
            held,
            locked_since: user.locked_at.map(when),
            locked_reason: user.locked_reason,
            created: if user.created_at > 0 { when(user.created_at) } else { String::new() },
        }
    }
}

fn no_user(name: &str) -> OperationError {
    let hint = "`weir user list` shows all; `weir user add` makes one";
    OperationError::unknown(format!("there is no user {}", names::shown(name)), hint)
}

fn trust(own: &mut Own, address: &str) -> Result<bool, OperationError> {
    own.trust(address).map_err(|error| {
        let what = format!("{} cannot be trusted: {error}", names::shown(address));
        OperationError::invalid(what, "a trusted recipient is one whole address, such as bob@example.org")
    })
}

fn set_reads(own: &mut Own, reads: &[String], name: &str) -> Result<(), OperationError> {
    own.set_reads(reads).map_err(|error| {
        let what = format!("these cannot be mailboxes of {}: {error}", names::shown(name));
        OperationError::invalid(what, "a mailbox is one whole address, such as info@example.org")
    })
}

fn listed(addresses: &[String]) -> String {
    if addresses.is_empty() { "nobody".to_owned() } else { addresses.join(", ") }
}

/// What changed, for the trail; never a password.
fn difference(before: &UserRow, after: &UserRow) -> String {
    let pairs = [
        ("sends as", listed(&before.addresses), listed(&after.addresses)),
        ("contact", before.contact.clone(), after.contact.clone()),
        ("profile", before.profile.clone(), after.profile.clone()),
        ("own", before.params.clone(), after.params.clone()),
    ];
    let changes =
        pairs.iter().filter(|(_, old, new)| old != new).map(|(what, old, new)| format!("{what}: {old} → {new}"));
    let changes: Vec<String> = changes.collect();
    if changes.is_empty() { "no difference".to_owned() } else { changes.join("; ") }
}
