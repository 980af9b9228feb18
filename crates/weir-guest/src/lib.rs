//! The protocol between the lab and the agent in a VM (`docs/guest-protocol.md`).
//!
//! The agent itself is the program `weir-guest`, which runs as the first process of the guest. The lab uses only this library.
//! Both sides limit what they accept: the length of a frame, and everything in it.

pub mod behaviour;
pub mod frame;
pub mod pcap;
pub mod secret;
pub mod windows_paths;
pub mod words;
