//! SMTP and related protocols, without policy: the gate that uses this crate decides who may send what, and what is stored where.
//!
//! The receiving side (submission, inbound mail and LMTP): [`session::Session`] is the protocol as a state machine without
//! I/O; [`server::SmtpServer`] gives it sockets, TLS and time; a gate plugs in with [`reception::Reception`]. A message is streamed
//! from the read buffer to the gate's [`reception::BodySink`] and never held whole. Every size, count and time is bounded by
//! [`limits::SmtpLimits`].
//!
//! Other mail servers ask Weir about their mail in the milter protocol ([`milter`]) or in Postfix's policy protocol ([`policy`]). Both are
//! implemented here without I/O.
//!
//! The sending side is [`client`]; it returns a [`outcome::DeliveryOutcome`] for each recipient. [`dkim`] signs. docs/smtp.md explains the
//! rules.

pub mod address_key;
pub mod ban;
pub mod body;
mod buffer;
pub mod client;
mod command;
mod connection;
pub mod counters;
pub mod dkim;
pub mod envelope;
#[doc(hidden)]
pub mod fuzz;
pub mod header_field;
pub mod leash;
pub mod limits;
mod line;
pub mod mailbox;
pub mod milter;
pub mod network;
pub mod outcome;
pub mod peer;
pub mod policy;
pub mod reception;
pub mod registry;
pub mod reply;
pub mod sasl;
pub mod server;
mod server_state;
pub mod session;
pub mod settings;
pub mod trusted;
pub mod xtext;
