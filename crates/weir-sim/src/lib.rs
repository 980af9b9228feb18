//! A simulated world for Weir's algorithms, and the experiments of the papers in it.
//!
//! Everything here is a function of its arguments and a seed: the same command prints the same numbers
//! on every machine, and a failure is replayed by its seed. Results are plain serialisable values; the
//! binary prints them.

pub mod election;
pub mod events;
pub mod fair;
pub mod feeds;
pub mod input;
pub mod rng;
pub mod runq;
pub mod throttle;
pub mod trace;
pub mod world;
