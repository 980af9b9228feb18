//! What the main scheduler and a dispatcher say to each other (paper, section 4; docs/lab-protocol.md).
//!
//! One message is one line of words that a person can read; some are followed by as many bytes as the line says. One
//! connection is one context. Lines are bounded, and anything that is not a valid message ends the connection: nothing is guessed.
//! Authentication belongs to the connection (mutual TLS), not to the messages.

mod assignment;
mod buffer;
pub mod election;
mod message;
#[cfg(test)]
mod tests;
mod words;

pub use assignment::{Assignment, ChildLimits, PluginCall};
pub use buffer::{Inbox, Overlong};
pub(crate) use message::is_name;
pub use message::{Ask, Message, PluginOutcome, VmStatus};
pub use words::Malformed;
pub(crate) use words::one_line;

/// The longest line, with its end.
pub const LINE_MAX: usize = 64 * 1024;

/// The longest report of a plugin.
pub const REPORT_MAX: u64 = 64 << 20;
