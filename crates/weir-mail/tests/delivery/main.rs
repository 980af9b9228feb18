//! Delivery against servers that behave, servers that do not, a private DNS, and real peers.
#![allow(missing_docs)]

mod dkim;
mod dns;
mod hostile;
mod lmtp;
mod maildir;
mod memory_ledger;
mod order;
mod peers;
mod protection;
mod restart;
mod server;
mod sessions;
mod terms;
