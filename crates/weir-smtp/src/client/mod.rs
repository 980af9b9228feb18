//! Our own SMTP and LMTP client.
//!
//! [`transaction::Transaction`] and [`reply::ReplyParser`] are the protocol without I/O; [`session::Session`] adds the connection, TLS and
//! time limits. Nothing that a server says can panic, grow memory beyond a stated bound, or hold up a message for longer than
//! [`approach::Patience`] allows. Every recipient gets an outcome of its own.

pub mod approach;
pub mod auth;
pub mod capabilities;
pub mod command;
pub mod content;
pub mod fitness;
pub mod proof;
pub mod reply;
pub mod session;
pub mod stuffing;
pub mod tls;
pub mod transaction;
pub mod wire;
