//! One round: a load through a server, from the first connection until the sink has everything.

use crate::server::Server;
use crate::sink::Sink;
use crate::usage::Usage;
use std::fmt;
use std::time::{Duration, Instant};

/// After a round both servers get this long to tidy up; it counts as their processor time.
const REST: Duration = Duration::from_millis(300);

/// What is sent in a round.
pub(crate) trait Sending {
    /// How many messages that are.
    fn messages(&self) -> u32;

    /// Sends everything to a port of this machine; how long it took until the last message was accepted.
    fn send(&self, port: u16) -> Duration;
}

/// What a round showed.
pub(crate) struct Round {
    pub(crate) accepted_per_s: f64,
    pub(crate) end_to_end_per_s: f64,
    /// Seconds of processor time for 1 000 messages.
    pub(crate) cpu_s: f64,
    /// After the round.
    pub(crate) usage: Usage,
}

/// Plays a round.
pub(crate) fn play(server: &Server, load: &impl Sending, sink: &Sink) -> Round {
    let (before, had, start) = (server.usage(), sink.messages(), Instant::now());
    let accepted = load.send(server.port());
    sink.wait(had + load.messages());
    let whole = start.elapsed();
    std::thread::sleep(REST);
    let (usage, messages) = (server.usage(), f64::from(load.messages()));
    Round {
        accepted_per_s: messages / accepted.as_secs_f64(),
        end_to_end_per_s: messages / whole.as_secs_f64(),
        cpu_s: (usage.cpu - before.cpu).as_secs_f64() / messages * 1000.0,
        usage,
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round { accepted_per_s, end_to_end_per_s, cpu_s, .. } = self;
        write!(f, "{accepted_per_s:.0} accepted/s, {end_to_end_per_s:.0} end to end/s, {cpu_s:.3} CPU s per 1000")
    }
}
