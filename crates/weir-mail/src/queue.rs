//! Outgoing mail that waits for delivery, as people see and change it. Each stage of the pipeline has a part of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::{OperationError, OperationFuture};

/// The queue of outgoing mail, for people.
pub trait Queue: Send + Sync {
    /// What waits, the oldest first, at most so many.
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> OperationFuture<'a, QueueList>;

    /// Tries the selected mail again now; the messages concerned.
    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Vec<String>>;

    /// Drops the selected mail without telling its senders. What is just being delivered is not called back, and not tried again. An
    /// error means that nothing was dropped.
    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Dropped>;
}

/// What was dropped, also if not all went well.
#[derive(Debug, Default)]
pub struct Dropped {
    /// The messages.
    pub messages: Vec<DroppedMessage>,
    /// Why others may still be there, or some of these again after a restart.
    pub problem: Option<OperationError>,
}

/// A message that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedMessage {
    /// Its id.
    pub message: String,
    /// Recipients who did not have it yet.
    pub recipients: u64,
}

impl Dropped {
    pub(crate) fn add(&mut self, message: String, recipients: usize) {
        self.messages.push(DroppedMessage { message, recipients: recipients as u64 });
    }

    /// The first problem is the one that is told.
    pub(crate) fn note(&mut self, problem: impl Into<OperationError>) {
        self.problem.get_or_insert_with(|| problem.into());
    }
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

impl QueueSelection {
    /// Whether a message is meant.
    pub fn takes(&self, message: &str, user: &str, recipients: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        let domain =
            |address: &str| address.rsplit_once('@').is_some_and(|(_, of)| of.eq_ignore_ascii_case(&self.domain));
        (self.messages.is_empty() || self.messages.iter().any(|wanted| wanted.eq_ignore_ascii_case(message)))
            && (self.user.is_empty() || self.user == user)
            && (self.domain.is_empty() || recipients.into_iter().any(|address| domain(address.as_ref())))
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
