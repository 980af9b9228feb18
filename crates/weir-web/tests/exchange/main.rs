//! The exchange over real relays and a real NATS server, with real schedulers at its ends.

mod carriers;
mod cluster;
mod shares;
