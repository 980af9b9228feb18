//! What the throttle answers: a mail's fate, an entry's time, a user's stop.

use super::EntryId;
use crate::time::Instant;
use alloc::vec::Vec;

/// What became of a mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It was taken: answer for it only after the held part is stored.
    Accepted {
        /// The first so many recipients go now.
        at_once: usize,
        /// The recipients after these wait, one entry each, in order.
        held: Vec<Held>,
        /// This mail stopped the user.
        stopped: Option<StopReason>,
    },
    /// The user is stopped: nothing was taken.
    Refused,
}

/// A held entry and when it will go if nothing else happens; unknown while the user is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which entry.
    pub entry: EntryId,
    /// The end of the period that will release it.
    pub expected_at: Option<Instant>,
}

/// An entry whose turn has come: send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Released {
    /// Which entry.
    pub entry: EntryId,
    /// The end of the period that released it.
    pub at: Instant,
}

/// Why and since when a user is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// Since when.
    pub since: Instant,
    /// Why.
    pub reason: StopReason,
}

/// Why a user was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// More than `stop_at` entries in the delay queue.
    DelayQueue,
    /// More mails today than `messages_a_day`.
    MessagesADay,
    /// More new recipients today than `new_recipients_a_day`.
    NewRecipientsADay,
    /// A person stopped the user.
    Person,
}
