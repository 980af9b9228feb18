//! What the lab and the agent in a VM say to each other (`docs/guest-protocol.md`).
//!
//! The agent itself is the program `weir-guest`, which runs as the first process of the guest. The lab uses this library
//! only. Both sides bound what they take: a frame has a length, and everything in it has a limit.

pub mod behaviour;
pub mod frame;
pub mod words;
