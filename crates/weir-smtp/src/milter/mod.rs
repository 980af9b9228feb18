//! The filter's side of the milter protocol (versions 2 to 6), without I/O: octets go in, commands come out, and answers are written as
//! octets.
//!
//! A packet consists of its length in four octets, a letter, and data. [`Conversation`] reads packets, checks that their order makes sense,
//! and knows which of them must be answered. Nothing here makes decisions. If a peer does not follow the protocol, the connection is closed
//! with a reason ([`Garbled`]). At most one packet and the data of the last read are buffered.

mod answer;
mod command;
mod conversation;
mod negotiation;
mod packet;

pub use answer::Answer;
pub use command::{MilterCommand, Stage};
pub use conversation::Conversation;
pub use negotiation::{Actions, Agreed, Offer};
pub use packet::{PACKET_MAX, Packets};

/// Why the connection of a mail server is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// A packet without a command.
    #[error("a packet without a command")]
    Empty,
    /// A packet that is too long.
    #[error("a packet of {0} octets; {PACKET_MAX} are the most")]
    Long(u32),
    /// A letter that is no command.
    #[error("the unknown command {0:?}")]
    Unknown(char),
    /// Data that does not fit its command.
    #[error("the data of {0:?} cannot be read")]
    Data(char),
    /// A command that cannot come now.
    #[error("{0:?} out of turn")]
    Order(char),
    /// The server speaks only a version that is not supported.
    #[error("version {0} of the protocol; 2 to 6 are spoken here")]
    Version(u32),
    /// The server does not allow the actions that are needed.
    #[error(
        "the server does not offer the actions that are needed here (it offers {offered:#x}, needed are {needed:#x})"
    )]
    Actions {
        /// What it offers.
        offered: u32,
        /// What is needed.
        needed: u32,
    },
    /// More recipients, or other things, than a message can have.
    #[error("more {0} than a message can have")]
    Many(&'static str),
}
