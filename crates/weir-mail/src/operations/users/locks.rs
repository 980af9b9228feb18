//! Locking an account, and unlocking it.

use super::{UserOperations, no_user};
use crate::accounts::{spelling, stop_lock};
use crate::counted::count;
use crate::operations::{Actor, OperationError, names, plural};
use crate::throttle::ThrottleCommand;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_store::records::UserRow;

/// What a lock did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockDone {
    /// Whose.
    pub name: String,
    /// Sessions that were ended.
    pub sessions_ended: usize,
}

/// What an unlock did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnlockDone {
    /// Whose.
    pub name: String,
    /// A person's lock was taken away.
    pub lock_ended: bool,
    /// The throttle's stop was ended.
    pub stop_ended: bool,
    /// Recipients that still wait in the delay queue, which drains again.
    pub held: usize,
}

impl UserOperations {
    /// Locks an account: logins fail with the reason, sessions end, what waits stands still.
    pub async fn lock(&self, name: &str, reason: &str, actor: &Actor) -> Result<LockDone, OperationError> {
        names::reason(reason)?;
        let name = &self.called(name).await?;
        let _changing = self.changing.lock().await;
        self.known(name).await?;
        let now = (self.clock)().0 as i64;
        let lock = |user: &mut UserRow| {
            user.locked_at.get_or_insert(now);
            user.locked_reason = reason.to_owned();
            Ok(())
        };
        self.change(name, lock).await?;
        if self.throttles.find(name).await?.is_some() {
            self.throttling.command(name, ThrottleCommand::Stop).await?;
        }
        let sessions_ended = self.backend.end_sessions(name, &format!("the account is locked: {reason}"));
        self.audit
            .write(actor, "user.lock", name, format!("{reason} ({} ended)", count(sessions_ended, "session")))
            .await?;
        Ok(LockDone { name: name.to_owned(), sessions_ended })
    }

    /// Locks an account if it is stopped, before what waits is deleted: the stop ends with the last entry, and whatever sent
    /// that would go on. Deleting must not end a stop, whoever does it. Whether it is locked by this.
    pub async fn lock_if_stopped(&self, name: &str, why: &str, actor: &Actor) -> Result<bool, OperationError> {
        let _changing = self.changing.lock().await;
        let is_locked = spelling::account_of(&self.users, name).await?.is_some_and(|user| user.locked_at.is_some());
        if is_locked || !self.situation(name).await?.1 {
            return Ok(false);
        }
        stop_lock::lock(&self.users, name, why, (self.clock)()).await?;
        self.audit.write(actor, "user.lock", name, format!("stopped, and {why}")).await?;
        Ok(true)
    }

    /// Ends a person's lock and the throttle's stop; what still waits drains again. So does a stop under the same name in other capitals
    /// that has no account, for it stops this one's mail too.
    pub async fn unlock(&self, name: &str, actor: &Actor) -> Result<UnlockDone, OperationError> {
        let name = &self.called(name).await?;
        let _changing = self.changing.lock().await;
        let user = self.users.find(name).await?;
        let throttle = self.throttles.find(name).await?;
        let beside = spelling::stops_beside(&self.users, &self.throttles, name).await?;
        if user.is_none() && throttle.is_none() {
            return Err(no_user(name));
        }
        let lock_ended = match user {
            Some(user) if stop_lock::is_only_a_lock(&user) => {
                self.users.remove_account(name).await? && user.locked_at.is_some()
            }
            Some(user) if user.locked_at.is_some() => {
                let unlock = |user: &mut UserRow| {
                    user.locked_reason.clear();
                    Ok(user.locked_at.take().is_some())
                };
                self.change(name, unlock).await?
            }
            _ => false,
        };
        let mut done = match throttle {
            Some(_) => self.throttling.command(name, ThrottleCommand::Unlock).await?,
            None => Default::default(),
        };
        for other in &beside {
            let more = self.throttling.command(other, ThrottleCommand::Unlock).await?;
            done.unlocked |= more.unlocked;
            done.queue += more.queue;
        }
        self.backend.wake();
        let what = |ended: bool, what: &str| if ended { format!("{what} ended; ") } else { String::new() };
        let detail = format!(
            "{}{}{} recipient{} wait{}",
            what(lock_ended, "lock"),
            what(done.unlocked, "stop"),
            done.queue,
            plural(done.queue),
            if done.queue == 1 { "s" } else { "" }
        );
        self.audit.write(actor, "user.unlock", name, detail).await?;
        Ok(UnlockDone { name: name.to_owned(), lock_ended, stop_ended: done.unlocked, held: done.queue })
    }
}
