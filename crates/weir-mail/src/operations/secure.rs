//! Secures a stolen account in one step: it is locked, its password is replaced, and its mail that waits is deleted, in the delay queue as
//! well as in the queue for delivery. A mail that is being delivered at this moment cannot be stopped: it may arrive, and is counted as
//! deleted, because it is not tried again.

use super::users::PasswordPlace;
use super::{Actor, Decision, HeldSelection, MailOperations, OperationError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::secret::fresh_password;

/// What the user reads when logging in fails.
const REASON: &str = "somebody else has used this account; ask your administrator for the new password";

/// What was done to a stolen account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secured {
    /// Whose.
    pub name: String,
    /// Sessions that were ended.
    pub sessions_ended: usize,
    /// Whether the password that was given is the account's now.
    pub new_password: bool,
    /// Who checks the password that the account sends mail with, if Weir does not or others do as well: the stolen one is good there until
    /// it is changed there.
    #[serde(default)]
    pub password_elsewhere: Option<String>,
    /// Held mails that were deleted.
    pub messages_deleted: usize,
    /// Recipients of these.
    pub recipients_deleted: usize,
    /// Mails that were deleted from the queue for delivery. One that a server is just being given is among them, and may still arrive.
    #[serde(default)]
    pub queued_deleted: usize,
    /// Why not all mail on its way to other servers could be deleted, if so: some of it may still go.
    #[serde(default)]
    pub queue_problem: Option<String>,
}

impl MailOperations {
    /// Locks an account, gives it the new password if there is one, and deletes what is held of it or waits for delivery, in this order:
    /// what cannot be undone comes last. Each step has its own line in the audit trail. Where another system checks the password, none is
    /// given here: it would open nothing.
    pub async fn secure(
        &self,
        name: &str,
        new_password: Option<&str>,
        actor: &Actor,
    ) -> Result<Secured, OperationError> {
        let name = &self.users.called(name).await?;
        let locked = self.users.lock(name, REASON, actor).await?;
        let PasswordPlace { is_here, opens_mail, elsewhere } = self.users.password_of(name).await?;
        let given = new_password.filter(|_| opens_mail);
        match given {
            Some(password) => self.users.set_password(name, password, actor).await?,
            // An operator who may not set a password can still make the stolen one useless.
            None if is_here => self.users.set_password(name, &fresh_password(), actor).await?,
            None => {}
        }
        let selection = HeldSelection { user: name.to_owned(), ..HeldSelection::default() };
        let (mut messages_deleted, mut recipients_deleted) = (0, 0);
        if !self.held.first(&selection, 1).await?.messages.is_empty() {
            let done = self.held.decide(&selection, Decision::Delete, actor).await?;
            (messages_deleted, recipients_deleted) = (done.messages.len(), done.recipients);
        }
        // What was done so far must be told, and the new password shown, even if the queue cannot be reached.
        let (queued_deleted, queue_problem) = match self.queue.delete_all_of(name, actor).await {
            Ok(dropped) => (dropped.messages.len(), dropped.problem.map(|problem| problem.to_string())),
            Err(error) => (0, Some(error.to_string())),
        };
        Ok(Secured {
            name: name.to_owned(),
            sessions_ended: locked.sessions_ended,
            new_password: given.is_some(),
            password_elsewhere: elsewhere.map(str::to_owned),
            messages_deleted,
            recipients_deleted,
            queued_deleted,
            queue_problem,
        })
    }
}
