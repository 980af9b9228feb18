//! The web gate over real sockets: one test binary, a harness, one file a subject.

mod bad_servers;
mod buffers;
mod capacity;
mod crowd;
mod forwarding;
mod harness;
mod hostile;
mod hostile_h2;
mod plain;
mod queueing;
mod reload;
mod secure;
mod slot_streams;
mod streams_h2;
mod uploads;
