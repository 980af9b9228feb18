//! The agent: the first process of the guest. It takes a sample over virtio-serial, runs it and tells what it did.
//!
//! `weir-guest launch USER PROGRAM` is what it starts to become the sample. `weir-guest follow PROGRAM` is for its tests and for whoever works
//! on it: it runs a program where it is, as who it is, and prints what it did. That keeps nothing away from anything.

mod calls;
mod capture;
mod companion;
mod conversation;
mod disguise;
mod dropped;
mod filter;
mod internet;
mod launch;
mod peek;
mod persistence;
mod port;
mod program;
mod record;
mod room;
mod serve;
mod sleep;
mod stage;
mod sys;
mod tls;
mod trace;
mod watch;
mod windows;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, verb, user, program] if verb == "launch" => launch::run(user, program),
        [_, verb, program] if verb == "follow" => watch::follow(program),
        _ => serve::serve(),
    }
}
