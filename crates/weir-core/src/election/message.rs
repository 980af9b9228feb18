//! The messages that nodes send each other: those of the paper, with the round, the epoch and the sender added.

use super::{Boot, Claim, Epoch, NodeId, Origin, Rank};

/// One message as the shell has received and verified it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Who sent it.
    pub from: Origin,
    /// How it came.
    pub via: Channel,
    /// What the sender claims about itself.
    pub claim: Claim,
    /// The message.
    pub message: Message,
}

impl Frame {
    /// The sender's rank.
    pub fn rank(&self) -> Rank {
        Rank::new(&self.from, self.claim)
    }
}

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// UDP broadcast with a checksum made with the sender's key: a hint, which changes no leadership.
    Datagram {
        /// Counts the sender's datagrams in this life, from 1.
        sequence: u64,
    },
    /// A connection on which both ends have shown their certificates.
    Stream,
}

/// One candidacy of one node. Answers repeat it, so that an answer to an earlier one does not count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    /// The candidate's life.
    pub boot: Boot,
    /// Counts its candidacies.
    pub number: u64,
}

/// The three questions of a candidate. Request → Confirm → Victory → elected; an abort ends any of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Broadcast, to reduce the number of candidates cheaply.
    Request,
    /// To each node over its own connection, so that loss cannot hide a better one.
    Confirm,
    /// The last chance to bully the almost elected leader.
    Victory,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// "I would lead": broadcast.
    LeaderRequest {
        /// The candidacy.
        round: Round,
    },
    /// The same over a stream.
    LeaderRequestConfirm {
        /// The candidacy.
        round: Round,
    },
    /// "I lead". Without an epoch: elected; with one: acting.
    Victory {
        /// The candidacy that was won.
        round: Round,
        /// The term of office, once the lease is taken.
        epoch: Option<Epoch>,
    },
    /// "You do not lead": only from a better rank.
    Abort {
        /// What it answers.
        phase: Phase,
        /// The candidacy that it ends.
        round: Round,
        /// In which of the two forms.
        by: Aborter,
    },
    /// "I follow you", to a victory.
    Ack {
        /// The candidacy that was won.
        round: Round,
    },
    /// The leader's beat.
    LeaderAlive {
        /// The candidacy that was won.
        round: Round,
        /// The term of office, if the leader acts.
        epoch: Option<Epoch>,
    },
    /// "I am here": the reply to a beat, and the call of a node that cannot stand for election and knows no leader.
    Present {
        /// Whether the sender follows the receiver.
        following: bool,
        /// Under which epoch.
        epoch: Option<Epoch>,
    },
    /// "I lead no more": the message of a leader that resigns.
    Resigned {
        /// The term that ended, if it ever began.
        epoch: Option<Epoch>,
        /// The best of the nodes it heard, which may skip the first two phases.
        successor: Option<NodeId>,
    },
}

/// Who aborts: a candidate follows a leader that aborts it, and only waits if a better node that is not a leader does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aborter {
    /// A better node that is not the leader: the candidate waits T2.
    Better,
    /// The leader: the candidate follows it.
    Leader(Option<Epoch>),
}

impl Message {
    /// Whether only an eligible node may say this.
    pub fn is_of_eligible(&self) -> bool {
        !matches!(self, Message::Ack { .. } | Message::Present { .. })
    }

    /// Whether this counts only over a stream: what it says changes leadership.
    pub fn needs_stream(&self) -> bool {
        !matches!(self, Message::LeaderRequest { .. } | Message::LeaderAlive { .. } | Message::Present { .. })
    }
}
