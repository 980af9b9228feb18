//! Outgoing mail that waits for delivery, as a person in charge sees and changes it. The queue itself is behind the operations.

use super::message_file::message_id;
use super::{Actor, Backend, OperationError, OperationsParts, names, plural};
use crate::queue::{Dropped, DroppedMessage, QueueList, QueueSelection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_foundation::audit::AuditTrail;
use weir_store::diary::{DiaryLine, Facts};

/// Most messages in one list.
const LIST_MAX: usize = 1_000;
const MESSAGES_MAX: usize = 1_000;
/// Messages that a line of the audit trail names.
const NAMED_MAX: usize = 5;

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueDone {
    /// The messages concerned.
    pub messages: Vec<String>,
}

/// What may be done to mail that waits for delivery. Cheap to clone.
#[derive(Clone)]
pub struct QueueOperations {
    audit: AuditTrail,
    backend: Arc<dyn Backend>,
}

impl QueueOperations {
    pub(super) fn new(parts: &OperationsParts) -> QueueOperations {
        QueueOperations { audit: AuditTrail::new(&parts.foundation), backend: Arc::clone(&parts.backend) }
    }

    /// What waits for delivery.
    pub async fn list(&self, selection: &QueueSelection) -> Result<QueueList, OperationError> {
        check(selection)?;
        self.backend.queue().list(selection, LIST_MAX).await
    }

    /// Tries mail again now instead of at its time.
    pub async fn retry(&self, selection: &QueueSelection, actor: &Actor) -> Result<QueueDone, OperationError> {
        refuse_unnamed(selection)?;
        let messages = self.backend.queue().retry(selection).await?;
        if messages.is_empty() {
            return Err(nothing_waits(selection));
        }
        let names = messages.iter().map(String::as_str);
        self.write_down("queue.retry", selection, (messages.len(), names), actor).await?;
        Ok(QueueDone { messages })
    }

    /// Drops mail that waits; its senders are not told.
    pub async fn delete(&self, selection: &QueueSelection, actor: &Actor) -> Result<QueueDone, OperationError> {
        refuse_unnamed(selection)?;
        let Dropped { messages, problem } = self.drop_mail(selection, actor).await?;
        match problem {
            Some(problem) => Err(half_done(messages.len(), &problem)),
            None if messages.is_empty() => Err(nothing_waits(selection)),
            None => Ok(QueueDone { messages: messages.into_iter().map(|one| one.message).collect() }),
        }
    }

    /// Drops all that waits of a user.
    pub(super) async fn delete_all_of(&self, user: &str, actor: &Actor) -> Result<Dropped, OperationError> {
        let selection = QueueSelection { user: user.to_owned(), ..QueueSelection::default() };
        self.drop_mail(&selection, actor).await
    }

    /// It is in the audit trail before it is done, because it cannot be undone.
    async fn drop_mail(&self, selection: &QueueSelection, actor: &Actor) -> Result<Dropped, OperationError> {
        let queue = self.backend.queue();
        let waits = queue.list(selection, NAMED_MAX).await?;
        if waits.total > 0 {
            let names = waits.messages.iter().map(|entry| entry.message.as_str());
            self.write_down("queue.delete", selection, (waits.total, names), actor).await?;
        }
        let dropped = queue.delete(selection).await?;
        // A list does not look at all of very many, so something may go that was not seen before.
        if waits.total == 0 && !dropped.messages.is_empty() {
            let names = dropped.messages.iter().map(|one| one.message.as_str());
            self.write_down("queue.delete", selection, (dropped.messages.len(), names), actor).await?;
        }
        self.note_dropped(&dropped.messages, actor).await;
        Ok(dropped)
    }

    /// For whoever asks after one of the messages later.
    async fn note_dropped(&self, messages: &[DroppedMessage], actor: &Actor) {
        let diary = self.backend.diary();
        for DroppedMessage { message, recipients } in messages {
            let text = format!("deleted from the delivery queue by {}", actor.as_str());
            let facts = Facts { concerns: *recipients, ..Facts::default() };
            diary.note(DiaryLine::new(message, "dropped", text).with(facts));
        }
        // A verb on a folder at rest ends with its answer.
        let _ = tokio::task::spawn_blocking(move || diary.settle()).await;
    }

    /// Writes a line about so many messages, of which the first are named.
    async fn write_down(
        &self,
        action: &str,
        selection: &QueueSelection,
        (count, names): (usize, impl Iterator<Item = &str>),
        actor: &Actor,
    ) -> Result<(), OperationError> {
        let named: Vec<&str> = names.take(NAMED_MAX).collect();
        let more = if count > named.len() { " …" } else { "" };
        let detail = format!("{count} message{}: {}{more}", plural(count), named.join(", "));
        let subject = if selection.user.is_empty() { "queue" } else { &selection.user };
        self.audit.write(actor, action, subject, detail).await
    }
}

fn half_done(dropped: usize, problem: &OperationError) -> OperationError {
    OperationError::Failed(format!(
        "{dropped} message{} deleted, but some mail may still be there, or be there again after a restart: {problem}",
        if dropped == 1 { " was" } else { "s were" }
    ))
}

fn refuse_unnamed(selection: &QueueSelection) -> Result<(), OperationError> {
    if *selection == QueueSelection::default() {
        let hint = "name messages, a user or a domain, or say that you mean all";
        return Err(OperationError::invalid("which outgoing mail is meant?", hint));
    }
    check(selection)
}

fn check(selection: &QueueSelection) -> Result<(), OperationError> {
    if selection.messages.len() > MESSAGES_MAX {
        let hint = "use a user, a domain or everything instead";
        return Err(OperationError::invalid(format!("at most {MESSAGES_MAX} messages can be named at once"), hint));
    }
    selection.messages.iter().try_for_each(|message| message_id(message).map(drop))
}

fn nothing_waits(selection: &QueueSelection) -> OperationError {
    let what = match (selection.messages.as_slice(), selection.user.as_str(), selection.domain.as_str()) {
        ([], "", "") => "nothing waits for delivery".to_owned(),
        ([message], ..) => format!("the message {} does not wait for delivery (any more)", names::shown(message)),
        _ => "nothing of that waits for delivery".to_owned(),
    };
    OperationError::unknown(what, "`weir queue list` shows what waits, `weir held list` what the throttle holds")
}
