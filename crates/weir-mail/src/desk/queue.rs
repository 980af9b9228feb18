//! Outgoing mail that waits for delivery, as a person in charge sees and changes it. The queue itself is behind the desk.

use super::held::message_id;
use super::{Actor, Answer, Desk, OperationError, names, plural};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most messages in one list.
const LIST_MAX: usize = 1_000;
const MESSAGES_MAX: usize = 1_000;

/// The queue of outgoing mail, for people.
pub trait Queue: Send + Sync {
    /// What waits, the oldest first, at most so many.
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> Answer<'a, QueueList>;

    /// Tries the selected mail again now; the messages concerned.
    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>>;

    /// Drops the selected mail without telling its senders; the messages concerned.
    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>>;
}

/// Which outgoing mail. What is empty does not restrict; at least one of them must.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSelection {
    /// These messages.
    pub messages: Vec<String>,
    /// Of this user.
    pub user: String,
    /// With a recipient at this domain.
    pub domain: String,
    /// Everything, if nothing else is given.
    pub all: bool,
}

/// What waits, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub struct QueueList {
    /// These.
    pub messages: Vec<QueueEntry>,
    /// Messages that fit the selection, in all.
    pub total: usize,
}

/// One message that waits for delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueEntry {
    /// Its id.
    pub message: String,
    /// Whose: a login, a client address, or empty for Weir's own mail.
    pub user: String,
    /// The envelope sender; empty for `<>`.
    pub sender: String,
    /// When it was accepted.
    #[schemars(extend("format" = "date-time"))]
    pub accepted: String,
    /// Bytes of the message.
    pub size_bytes: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried next; nothing if it is being tried, or is next in line.
    #[schemars(extend("format" = "date-time"))]
    pub next_attempt: Option<String>,
    /// Those that do not have it yet.
    pub recipients: Vec<QueueRecipient>,
}

/// One recipient of a message that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueRecipient {
    /// The address.
    pub address: String,
    /// What the last attempt heard; empty if there was none.
    pub last_answer: String,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueDone {
    /// The messages concerned.
    pub messages: Vec<String>,
}

impl QueueSelection {
    /// Whether a message is meant.
    pub fn takes(&self, message: &str, user: &str, recipients: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        let domain =
            |address: &str| address.rsplit_once('@').is_some_and(|(_, of)| of.eq_ignore_ascii_case(&self.domain));
        (self.messages.is_empty() || self.messages.iter().any(|wanted| wanted.eq_ignore_ascii_case(message)))
            && (self.user.is_empty() || self.user == user)
            && (self.domain.is_empty() || recipients.into_iter().any(|address| domain(address.as_ref())))
    }

    fn check(&self) -> Result<(), OperationError> {
        if self.messages.len() > MESSAGES_MAX {
            let hint = "use a user, a domain or everything instead";
            return Err(OperationError::invalid(format!("at most {MESSAGES_MAX} messages can be named at once"), hint));
        }
        self.messages.iter().try_for_each(|message| message_id(message).map(drop))
    }

    fn nothing(&self) -> OperationError {
        let what = match (self.messages.as_slice(), self.user.as_str(), self.domain.as_str()) {
            ([], "", "") => "nothing waits for delivery".to_owned(),
            ([message], ..) => format!("the message {} does not wait for delivery (any more)", names::shown(message)),
            _ => "nothing of that waits for delivery".to_owned(),
        };
        OperationError::unknown(what, "`weir queue list` shows what waits, `weir held list` what the throttle holds")
    }
}

impl Desk {
    /// What waits for delivery.
    pub async fn queue_list(&self, selection: &QueueSelection) -> Result<QueueList, OperationError> {
        selection.check()?;
        self.parts.backend.queue().list(selection, LIST_MAX).await
    }

    /// Tries mail again now instead of at its time.
    pub async fn queue_retry(&self, selection: &QueueSelection, actor: &Actor) -> Result<QueueDone, OperationError> {
        self.refuse_unnamed(selection)?;
        let messages = self.parts.backend.queue().retry(selection).await?;
        self.queue_done("queue.retry", selection, messages, actor).await
    }

    /// Drops mail that waits; its senders are not told.
    pub async fn queue_delete(&self, selection: &QueueSelection, actor: &Actor) -> Result<QueueDone, OperationError> {
        self.refuse_unnamed(selection)?;
        let messages = self.parts.backend.queue().delete(selection).await?;
        self.queue_done("queue.delete", selection, messages, actor).await
    }

    fn refuse_unnamed(&self, selection: &QueueSelection) -> Result<(), OperationError> {
        if *selection == QueueSelection::default() {
            let hint = "name messages, a user or a domain, or say that you mean all";
            return Err(OperationError::invalid("which outgoing mail is meant?", hint));
        }
        selection.check()
    }

    async fn queue_done(
        &self,
        action: &str,
        selection: &QueueSelection,
        messages: Vec<String>,
        actor: &Actor,
    ) -> Result<QueueDone, OperationError> {
        if messages.is_empty() {
            return Err(selection.nothing());
        }
        let named: Vec<&str> = messages.iter().take(5).map(String::as_str).collect();
        let more = if messages.len() > named.len() { " …" } else { "" };
        let detail = format!("{} message{}: {}{more}", messages.len(), plural(messages.len()), named.join(", "));
        let subject = if selection.user.is_empty() { "queue" } else { &selection.user };
        self.audit.write(actor, action, subject, detail).await?;
        Ok(QueueDone { messages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_takes_what_fits_all_of_it() {
        let to = ["bob@Example.org"];
        let takes = |selection: &QueueSelection| selection.takes("0dh3k9w2m1c8t0qzx4pn", "ann", to);
        let none = QueueSelection::default();
        assert!(takes(&none));
        assert!(takes(&QueueSelection { domain: "example.ORG".into(), user: "ann".into(), ..none.clone() }));
        assert!(!takes(&QueueSelection { domain: "ample.org".into(), ..none.clone() }));
        assert!(!takes(&QueueSelection { user: "bob".into(), ..none.clone() }));
        assert!(takes(&QueueSelection { messages: vec!["0DH3K9W2M1C8T0QZX4PN".into()], ..none }));
    }
}
