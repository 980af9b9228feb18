//! Our own SMTP and LMTP client.
//!
//! [`transaction::Transaction`] and [`reply::ReplyParser`] are the protocol without I/O; [`session::Session`] gives them a
//! line, TLS and time. Nothing a server says can panic, grow memory past a stated bound or hold a message longer
//! than [`approach::Patience`] allows, and every recipient ends with an outcome of its own.

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
