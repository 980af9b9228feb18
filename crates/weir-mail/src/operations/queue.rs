//! Outgoing mail that waits for delivery, as a person in charge sees and changes it. The queue itself is behind the operations.

use super::message_file::message_id;
use super::{Actor, Backend, OperationError, OperationsParts, names, plural};
use crate::queue::{QueueList, QueueSelection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_foundation::audit::AuditTrail;
use weir_store::diary::DiaryLine;

/// Most messages in one list.
const LIST_MAX: usize = 1_000;
const MESSAGES_MAX: usize = 1_000;

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
        self.done("queue.retry", selection, messages, actor).await
    }

    /// Drops mail that waits; its senders are not told.
    pub async fn delete(&self, selection: &QueueSelection, actor: &Actor) -> Result<QueueDone, OperationError> {
        refuse_unnamed(selection)?;
        let messages = self.backend.queue().delete(selection).await?;
        self.note_deleted(&messages, actor).await;
        self.done("queue.delete", selection, messages, actor).await
    }

    /// Drops all that waits of a user; the messages, none if nothing does.
    pub(super) async fn delete_all_of(&self, user: &str, actor: &Actor) -> Result<Vec<String>, OperationError> {
        let selection = QueueSelection { user: user.to_owned(), ..QueueSelection::default() };
        let messages = self.backend.queue().delete(&selection).await?;
        if messages.is_empty() {
            return Ok(messages);
        }
        self.note_deleted(&messages, actor).await;
        Ok(self.done("queue.delete", &selection, messages, actor).await?.messages)
    }

    /// For whoever asks after one of the messages later.
    async fn note_deleted(&self, messages: &[String], actor: &Actor) {
        let diary = self.backend.diary();
        for message in messages {
            let text = format!("deleted from the delivery queue by {}", actor.as_str());
            diary.note(DiaryLine::new(message, "dropped", text));
        }
        // A verb on a folder at rest ends with its answer.
        let _ = tokio::task::spawn_blocking(move || diary.settle()).await;
    }

    async fn done(
        &self,
        action: &str,
        selection: &QueueSelection,
        messages: Vec<String>,
        actor: &Actor,
    ) -> Result<QueueDone, OperationError> {
        if messages.is_empty() {
            return Err(nothing_waits(selection));
        }
        let named: Vec<&str> = messages.iter().take(5).map(String::as_str).collect();
        let more = if messages.len() > named.len() { " …" } else { "" };
        let detail = format!("{} message{}: {}{more}", messages.len(), plural(messages.len()), named.join(", "));
        let subject = if selection.user.is_empty() { "queue" } else { &selection.user };
        self.audit.write(actor, action, subject, detail).await?;
        Ok(QueueDone { messages })
    }
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
