//! What is compared: one or more servers that take mail, have it scanned, and pass on what is clean.

use crate::server::Server;
use std::time::Duration;

/// One side.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    /// The first takes the mail.
    servers: Vec<Server>,
}

impl Side {
    pub(crate) fn new(name: &'static str, servers: Vec<Server>) -> Side {
        Side { name, servers }
    }

    pub(crate) fn port(&self) -> u16 {
        self.servers[0].port()
    }

    /// What all of its processes have in memory, in MB; clamd is not among them.
    pub(crate) fn rss_mb(&self) -> f64 {
        self.servers.iter().map(|server| server.usage().rss_mb()).sum()
    }

    /// The same, with what processes share counted once.
    pub(crate) fn pss_mb(&self) -> f64 {
        self.servers.iter().map(|server| server.usage().pss_mb()).sum()
    }

    /// Processor time of all of its processes.
    pub(crate) fn cpu(&self) -> Duration {
        self.servers.iter().map(|server| server.usage().cpu).sum()
    }
}
