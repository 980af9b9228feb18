//! A search for tracked messages: the conditions that a message has to meet.

use super::message::TrackedMessage;

/// The most messages of one answer.
pub const PAGE_MAX: usize = 200;

/// What messages must fit. What is empty does not restrict; words may end in `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Words in any field.
    pub text: String,
    /// The sender: an address, a name before the `@`, or a domain.
    pub from: String,
    /// A recipient, likewise.
    pub to: String,
    /// Words of the subject.
    pub subject: String,
    /// The address of the client.
    pub client: String,
    /// The user who sent it.
    pub login: String,
    /// Words of what the scan found.
    pub verdict: String,
    /// Words of where it has got to.
    pub state: String,
    /// The Message-ID.
    pub name: String,
    /// Not before, in nanoseconds since the Unix epoch.
    pub since: Option<i64>,
    /// Before.
    pub until: Option<i64>,
    /// Only what comes after a message at this place: that of the last message of the page before.
    pub before: Option<i64>,
}

/// Some messages, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundMessages {
    /// The messages.
    pub messages: Vec<TrackedMessage>,
    /// There are more.
    pub more: bool,
    /// The newest lines of the diary have not been read yet, so the newest messages may be missing.
    pub behind: bool,
}

impl MessageFilter {
    /// The first place, and the one behind the last.
    pub(super) fn places(&self) -> (i64, i64) {
        let first = self.since.map_or(i64::MIN, first_place);
        let end = self.until.map_or(i64::MAX, first_place);
        (first, self.before.map_or(end, |before| before.min(end)))
    }
}

/// Room for messages of one millisecond.
const PLACES_OF_A_MILLISECOND: i64 = 256;

/// The first place of messages of a time.
pub(super) fn first_place(at_ns: i64) -> i64 {
    (at_ns / 1_000_000).saturating_mul(PLACES_OF_A_MILLISECOND)
}
