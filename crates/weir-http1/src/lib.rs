//! HTTP/1 as the web gate reads and writes it (RFC 9110, RFC 9112): octets in, messages out, and no I/O.
//!
//! Nothing here opens a socket, waits, or reads a clock. The caller owns the buffers and says when more octets have come; every reader answers
//! with a value, with "more is needed", or with a [`Refused`]. [`refused`] is the one list of what the gate refuses, and with which status.
//!
//! | part | from | to |
//! | --- | --- | --- |
//! | [`request_head`] | a client's octets | a plain request, or "leave it to hyper" |
//! | [`request_check`] | a parsed request | its host, or a refusal |
//! | [`framing_watch`] | a client's octets | whether a head had two lengths, and whether one is incomplete |
//! | [`response_head`] | a server's octets | status, fields, and how far the body goes |
//! | [`body_framing`] | a server's octets | the pieces of a response's body |
//! | [`hop_by_hop`] | fields | the same without those of one connection |
//! | [`field_lines`], [`write`](mod@write) | fields and status | octets |
//!
//! Policy stays with the caller: routes, identities, time limits, and what is written about the client.

pub mod body_framing;
pub mod field_lines;
mod fields;
pub mod framing_watch;
pub mod hop_by_hop;
pub mod refused;
pub mod request_check;
pub mod request_head;
pub mod response_head;
pub mod write;

pub use fields::{head_end, is_only_chunked};
/// A field as it was read: its name, and its value as octets.
pub use httparse::Header as Field;
pub use refused::Refused;
