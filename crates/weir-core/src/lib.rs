//! The five algorithms of Weir (we call them disciplines). Each decides who is served next under hostile load.
//!
//! Each module implements one published idea as a pure state machine or data structure. Nothing here opens a file, reads a clock, starts a
//! thread or draws a random number: time is passed in as [`time::Instant`], random numbers as arguments, and what the caller has to do is
//! returned as a value. `no_std` makes the compiler check this. The same code runs in the gates and under the virtual clock of `weir-sim`.

#![no_std]

extern crate alloc;
#[cfg(feature = "mutants")]
extern crate std;

pub mod address;
pub mod election;
pub mod fair;
pub mod feeds;
pub mod mutant;
mod prefetch;
pub mod runq;
pub mod throttle;
pub mod time;
