//! What is sent: messages of one length over so many sessions, by smtp-source.
//!
//! Several processes, each with a sender of its own; every recipient is new (`-N`), so no cache of addresses helps
//! anybody.

use crate::round::Sending;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// smtp-source processes, and senders.
const SOURCES: u32 = 4;
/// Sessions of each.
const SESSIONS: u32 = 5;

/// A load.
pub(crate) struct Load {
    /// Messages in all.
    pub(crate) messages: u32,
    /// Bytes of text each; headers come on top.
    pub(crate) length: usize,
    /// Whether connections are kept between messages; otherwise each message has its own.
    pub(crate) keep: bool,
}

impl Sending for Load {
    fn messages(&self) -> u32 {
        self.messages
    }

    fn send(&self, port: u16) -> Duration {
        let start = Instant::now();
        let sources: Vec<Child> = (0..SOURCES).map(|number| self.source(number, port)).collect();
        for mut source in sources {
            let ended = source.wait().expect("smtp-source is ours");
            assert!(ended.success(), "smtp-source was refused: {ended}");
        }
        start.elapsed()
    }
}

impl Load {
    /// What it is, in words.
    pub(crate) fn about(&self) -> String {
        let about = if self.keep { "connections kept" } else { "a connection a message" };
        format!("{} KiB, {} sessions, {about}", self.length >> 10, Load::sessions())
    }

    /// Sessions in all.
    pub(crate) fn sessions() -> u32 {
        SOURCES * SESSIONS
    }

    fn source(&self, number: u32, port: u16) -> Child {
        let mut command = Command::new("smtp-source");
        let count = |value: u32| value.to_string();
        command.args(["-s", &count(SESSIONS), "-m", &count(self.messages / SOURCES), "-l", &self.length.to_string()]);
        command.args(["-N", "-M", "client.example.com", "-f", &format!("sender{number}@example.com")]);
        command.args(["-t", &format!("to@to{number}.example.net")]);
        if self.keep {
            command.arg("-d");
        }
        command.arg(format!("127.0.0.1:{port}"));
        command.spawn().unwrap_or_else(|error| panic!("smtp-source does not start ({error}): run `make setup`"))
    }
}
