//! The lock that replaces a stop when the waiting mail of a stopped account is deleted.
//!
//! A stop ends when its last entry is gone. If the waiting mail was deleted, by a person or because nobody decided, whatever sent it could
//! then go on. So the account is locked first, until it gets a new password or an administrator unlocks it. A lock of this kind is
//! recognised by its reason; a new password does not end a lock that a person made.
//!
//! Somebody whom only a directory, Dovecot, another mail server or their address identifies has no account here that could be locked. They
//! get one for as long as they are locked ([`to_lock`]). It has no password, so that whoever checked the password before checks it on, and
//! it goes with the lock ([`is_only_a_lock`]).

use super::{guest, spelling};
use weir_core::time::Instant;
use weir_store::records::{AuditLine, Records, RecordsError, UserRecords, UserRow};

/// How the reason of such a lock begins.
const BEGINNING: &str = "stopped after unusual mail, and ";

/// Locks an account that is stopped, unless it is locked already; the account as it is now. `why` goes on after "stopped after
/// unusual mail, and". A throttle may be written in other capitals than the account: that is not to get a second one.
pub(crate) async fn lock(
    users: &UserRecords,
    identity: &str,
    why: &str,
    now: Instant,
) -> Result<UserRow, RecordsError> {
    let lock = |user: &mut UserRow| {
        if user.locked_at.is_none() {
            user.locked_at = Some(now.0 as i64);
            user.locked_reason = format!("{BEGINNING}{why}");
        }
        Ok::<_, RecordsError>(user.clone())
    };
    let known = spelling::account_of(users, identity).await?;
    let name = known.as_ref().map_or(identity, |known| &known.name);
    if let Some(user) = users.change(name, lock).await? {
        return Ok(user);
    }
    let mut user = to_lock(identity, now);
    user.locked_reason = format!("{BEGINNING}{why}");
    if !users.add(&user).await? {
        // Another relay has just made one.
        users.change(identity, lock).await?;
    }
    Ok(user)
}

/// An account of somebody who has none here, so that there is something to lock.
pub(crate) fn to_lock(name: &str, now: Instant) -> UserRow {
    let now = now.0 as i64;
    UserRow { locked_at: Some(now), created_at: now, ..guest(name) }
}

/// Whether an account is there only because somebody was locked who has none here. Whatever a person has set for it since makes it an
/// account of its own. (In records of before, such an account has no time at which it was made, or no addresses.)
pub(crate) fn is_only_a_lock(user: &UserRow) -> bool {
    let made_for_it = user.created_at == 0 || user.locked_at == Some(user.created_at);
    let bare = guest(&user.name);
    made_for_it
        && (user.addresses.is_empty() || user.addresses == bare.addresses)
        && (&user.password, &user.contact, &user.profile, &user.params)
            == (&bare.password, &bare.contact, &bare.profile, &bare.params)
}

/// Ends such a lock in `user`; whether it was one.
pub(crate) fn end(user: &mut UserRow) -> bool {
    let ours = user.locked_at.is_some() && user.locked_reason.starts_with(BEGINNING);
    if ours {
        (user.locked_at, user.locked_reason) = (None, String::new());
    }
    ours
}

/// Locks an account whose stop would end because these of its entries are taken back: their mail was refused after all, or never
/// acknowledged, and that must not end a stop either.
pub(crate) async fn before_taking_back(
    records: &Records,
    identity: &str,
    entries: usize,
    now: Instant,
) -> Result<(), RecordsError> {
    let throttle = records.throttles().find(identity).await?;
    if throttle.is_none_or(|row| row.stopped_at.is_none() || row.held > entries as i64) {
        return Ok(());
    }
    let user = spelling::account_of(&records.users(), identity).await?;
    if user.is_some_and(|user| user.locked_at.is_some() || user.profile == "exempt") {
        return Ok(());
    }
    let why = "the mail that stopped it could not be taken";
    lock(&records.users(), identity, why, now).await?;
    let detail = format!("stopped, and {why}");
    let (at, actor, action) = (now.0 as i64, "weir".to_owned(), "user.lock".to_owned());
    records.audit().write(&AuditLine { at, actor, action, subject: identity.to_owned(), detail }).await
}
