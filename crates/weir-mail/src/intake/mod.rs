//! What submission and inbound mail have in common: a message streams into the spool, its header is read on the way, and a `Received` field
//! is put on top.

mod authenticated;
pub(crate) mod forged;
pub(crate) mod header;
mod incoming;
pub(crate) mod long_lines;
mod sender;
pub(crate) mod trace;

pub(crate) use authenticated::Named;
pub(crate) use header::MailHeader;
pub use incoming::Incoming;
pub(crate) use incoming::{Care, Missing, broken_header, check_from, refusal};
pub(crate) use sender::belongs;
