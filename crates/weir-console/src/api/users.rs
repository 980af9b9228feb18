//! The API operations on users of the mail gate.

use super::call::Call;
use super::operation::{Operation, administer, change, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use crate::incidents::{Incidents, PastStop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::console_accounts::Role;
use weir_mail::operations::{Change, LockDone, NewUser, RemoveDone, Secured, UnlockDone, UserList, UserPage};

/// Users in order of name.
pub const LIST: Operation<After, UserList> = look("/users", "Users in order of name");
/// Makes a user.
pub const ADD: Operation<NewUser, UserPage> = administer("/users", "Makes a user").makes();
/// Everything about one user.
pub const SHOW: Operation<(), UserPage> = look("/users/{name}", "Everything about one user");
/// When a user was stopped.
pub const STOPS: Operation<(), Vec<PastStop>> = look(
    "/users/{name}/stops",
    "The last times that a user was stopped: when, how much waited, how it ended and by whom",
);
/// Changes a user.
pub const SET: Operation<Change, UserPage> = change("/users/{name}", "Changes a user; what is left out stays");
/// Gives a user a new password.
pub const PASSWORD: Operation<NewPassword, UserPage> =
    administer("/users/{name}/password", "Gives a user a new password");
/// Removes a user.
pub const REMOVE: Operation<(), RemoveDone> =
    administer("/users/{name}/remove", "Removes a user of whom nothing is held; whom they wrote to is forgotten");
/// Locks a user.
pub const LOCK: Operation<Reason, LockDone> = operate("/users/{name}/lock", "Locks a user, who reads the reason");
/// Locks a stolen account, gives it another password, and deletes its mail that is held or waits for delivery.
pub const SECURE: Operation<Secure, Secured> = operate(
    "/users/{name}/secure",
    "Locks a stolen account, takes its password away, and deletes what is held of it or waits for delivery; an administrator may send a new password",
);
/// Ends a lock and a stop.
pub const UNLOCK: Operation<(), UnlockDone> =
    operate("/users/{name}/unlock", "Ends a lock and a stop; what waits drains one by one");

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table
        .with(LIST, list)
        .with(ADD, add)
        .with(SHOW, show)
        .with(STOPS, stops)
        .with(SET, set)
        .with(PASSWORD, password)
        .with(REMOVE, remove)
        .with(LOCK, lock)
        .with(SECURE, secure)
        .with(UNLOCK, unlock)
}

/// Where a list continues.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Names after this one.
    #[serde(default)]
    pub after: String,
}

/// A new password.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// The new password.
    pub password: String,
}

/// How a stolen account is secured.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "SecureUser")]
pub struct Secure {
    /// The new password, which only an administrator may set. Without one, the old password becomes invalid all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// Why somebody is locked.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// In words; the user reads them.
    pub reason: String,
}

async fn list(call: Call<Gates>, from: After) -> Result<UserList, Problem> {
    Ok(call.state.mail.users.list(&from.after).await?)
}

async fn add(call: Call<Gates>, new: NewUser) -> Result<UserPage, Problem> {
    Ok(call.state.mail.users.add(new, &call.actor).await?)
}

/// Who is meant by the name in the path.
async fn named(call: &Call<Gates>) -> Result<String, Problem> {
    Ok(call.state.mail.users.called(&call.name).await?)
}

async fn show(call: Call<Gates>, (): ()) -> Result<UserPage, Problem> {
    Ok(call.state.mail.users.show(&named(&call).await?).await?)
}

async fn stops(call: Call<Gates>, (): ()) -> Result<Vec<PastStop>, Problem> {
    let name = call.state.mail.users.show(&named(&call).await?).await?.user.name;
    Ok(Incidents::new(&call.state.administration.foundation).stops_of(&name).await?)
}

async fn set(call: Call<Gates>, change: Change) -> Result<UserPage, Problem> {
    Ok(call.state.mail.users.set(&named(&call).await?, &change, &call.actor).await?)
}

async fn password(call: Call<Gates>, new: NewPassword) -> Result<UserPage, Problem> {
    let name = named(&call).await?;
    call.state.mail.users.set_password(&name, &new.password, &call.actor).await?;
    Ok(call.state.mail.users.show(&name).await?)
}

async fn remove(call: Call<Gates>, (): ()) -> Result<RemoveDone, Problem> {
    Ok(call.state.mail.users.remove(&named(&call).await?, &call.actor).await?)
}

async fn lock(call: Call<Gates>, why: Reason) -> Result<LockDone, Problem> {
    Ok(call.state.mail.users.lock(&named(&call).await?, &why.reason, &call.actor).await?)
}

/// Whoever may lock an account may secure it, as on its page; only an administrator may set a password.
async fn secure(call: Call<Gates>, with: Secure) -> Result<Secured, Problem> {
    if with.password.is_some() && call.rank.is_some_and(|role| role < Role::Admin) {
        let hint = "leave the password out: the old one is void then, and an administrator gives the next one";
        return Err(Problem::refused("a new password is given by administrators", hint));
    }
    Ok(call.state.mail.secure(&named(&call).await?, with.password.as_deref(), &call.actor).await?)
}

async fn unlock(call: Call<Gates>, (): ()) -> Result<UnlockDone, Problem> {
    Ok(call.state.mail.users.unlock(&named(&call).await?, &call.actor).await?)
}
