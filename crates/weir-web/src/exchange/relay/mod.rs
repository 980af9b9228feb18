//! The built-in relay, the thesis's *hitserver*: every frame goes to every other front-end.
//!
//! TLS 1.3 always, with a certificate made at start that nobody checks: instead both sides prove that they have the shared key, over a value
//! that only the two ends of this very TLS connection know (RFC 5705 exporter). So there are no certificates to hand out, and an attacker
//! in between, with a connection to each side, can prove nothing to either.
//!
//! On the wire a frame is its length (u32, little-endian) and its bytes. Length zero is a sign of life.

mod client;
mod handshake;
mod lengths;
mod server;
mod unproven;

pub(super) use client::Relay;
pub use client::RelaySettings;
pub use server::{Hitserver, HitserverSettings, RelayCounters, RelayError};
