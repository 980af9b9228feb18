//! What a recipient is to the user (stranger, correspondent or colleague), and the network that a mail comes from.

use super::RecipientKey;

/// Who a recipient is to the user. The wider a class, the more of it a user may reach at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Class {
    /// Somebody the user is not known to write to: the paper's rules apply.
    #[default]
    Stranger,
    /// The user has written to them before, or they have written to the user.
    Correspondent,
    /// They belong to the user's own site, or to a partner of it.
    Colleague,
}

/// One recipient of a mail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipient {
    /// To whom.
    pub key: RecipientKey,
    /// Who that is to the user.
    pub class: Class,
}

impl Recipient {
    /// A recipient about whom nothing is known.
    pub fn stranger(key: RecipientKey) -> Recipient {
        Recipient { key, class: Class::Stranger }
    }
}

/// The network that a client is in, as the shell hashed it with a secret: equal networks, equal keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NetworkKey(pub u32);

/// A mail as the throttle sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mail<'a> {
    /// To whom, each once.
    pub to: &'a [Recipient],
    /// The client's network; none if the network says nothing about the user.
    pub from: Option<NetworkKey>,
}

/// The lane in which an entry waits. Each drains at its own rate, and stops the user at its own threshold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum LaneId {
    /// The delay queue of the paper.
    #[default]
    Strangers,
    /// Mail to correspondents above their slack.
    Correspondents,
    /// Mail to colleagues above their slack.
    Colleagues,
    /// Mail to strangers from networks that are new to the account.
    Networks,
}

impl LaneId {
    /// The lanes beside the paper's queue, in the order in which they are stored.
    pub const WIDER: [LaneId; 3] = [LaneId::Correspondents, LaneId::Colleagues, LaneId::Networks];

    /// The place among the wider lanes; none for the paper's queue.
    pub(super) fn wider(self) -> Option<usize> {
        LaneId::WIDER.iter().position(|lane| *lane == self)
    }
}

impl From<Class> for LaneId {
    fn from(class: Class) -> LaneId {
        match class {
            Class::Stranger => LaneId::Strangers,
            Class::Correspondent => LaneId::Correspondents,
            Class::Colleague => LaneId::Colleagues,
        }
    }
}
