//! Mail from outside over real sockets: who is let in, who exists, whose mail it is, and what SPF, DKIM and DMARC say.
#![allow(missing_docs, clippy::print_stdout)]

mod authenticity;
mod beside_dkimpy;
mod enforcement;
mod gate;
mod orders;
mod recipients;
mod relaying;
mod sessions;
#[path = "../shared/submitted.rs"]
mod submitted;
mod vectors;
