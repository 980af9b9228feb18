//! Several front-ends over real HTTP.
//!
//! The thesis's own test (its chapter 4), and part (c): three front-ends, clients at one or several of them, totals against max-min
//! shares with no exchange, with a relay, with NATS, with a fifth of all frames lost, and after the kill of a front-end.
//! Front-ends, hitserver and NATS are processes; backends and clients live here. Clients are told apart by loopback addresses.

mod backend;
mod client;
mod cluster;
mod shares;
mod thesis;

use crate::Plan;
use std::io;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The thesis's test.
pub(crate) fn thesis(plan: &Plan) -> io::Result<Vec<String>> {
    runtime()?.block_on(thesis::run(plan)).map_err(|error| io::Error::other(error.to_string()))
}

/// Part (c).
pub(crate) fn shares(plan: &Plan) -> io::Result<Vec<String>> {
    runtime()?.block_on(shares::run(plan)).map_err(|error| io::Error::other(error.to_string()))
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
