//! The answers of the throttle: what happens to a mail, when a held entry goes, and why a user is stopped.

use super::{EntryId, LaneId, RecipientKey};
use crate::time::Instant;
use alloc::vec::Vec;

/// What became of a mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It was accepted: answer the client only after the held part is stored.
    Accepted {
        /// The first recipients, this many, are sent to now.
        at_once: usize,
        /// The recipients after these wait, one entry each, in order.
        held: Vec<Held>,
        /// This mail stopped the user.
        stopped: Option<StopReason>,
    },
    /// The user is stopped: nothing was taken.
    Refused,
}

/// What became of a mail whose recipients have classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailDecision {
    /// It was accepted: answer the client only after the held part is stored.
    Accepted {
        /// For each recipient, in order: none if the mail is sent to it now, or the entry as which it waits.
        fates: Vec<Option<Held>>,
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
    /// To whom.
    pub recipient: RecipientKey,
    /// Which line it waited in.
    pub lane: LaneId,
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
    /// Too many correspondents waited.
    Correspondents,
    /// Too many colleagues waited.
    Colleagues,
    /// Too many strangers waited who were written to from networks that are new to the account.
    Networks,
}

impl From<LaneId> for StopReason {
    /// The reason of a stop for what waits in this line.
    fn from(lane: LaneId) -> StopReason {
        match lane {
            LaneId::Strangers => StopReason::DelayQueue,
            LaneId::Correspondents => StopReason::Correspondents,
            LaneId::Colleagues => StopReason::Colleagues,
            LaneId::Networks => StopReason::Networks,
        }
    }
}
