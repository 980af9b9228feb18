//! SMTP, the receiving side: submission, inbound mail and LMTP.
//!
//! [`session::Session`] is the protocol as a state machine without I/O; [`server::Server`] gives it sockets,
//! TLS and time; the shell plugs in with [`reception::Reception`]. A message is streamed from the read buffer
//! to the shell's [`reception::BodySink`] and never held whole. Every size, count and time is bounded by
//! [`limits::Limits`]. docs/smtp.md tells the rules in prose.

pub mod address_key;
pub mod ban;
pub mod body;
mod buffer;
mod command;
mod connection;
pub mod counters;
pub mod envelope;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
mod line;
pub mod mailbox;
pub mod network;
pub mod peer;
pub mod reception;
pub mod registry;
pub mod reply;
pub mod sasl;
pub mod server;
pub mod session;
pub mod settings;
pub(crate) mod trusted;
pub mod xtext;

/// Certificates, shared with the other gates.
pub use weir_tls as tls;
