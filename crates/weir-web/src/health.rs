//! The servers of a backend: which of them live, and which to ask next.
//!
//! A server that fails several times in a row (no connection, no answer, or a failed check) is left alone for a while. Checks ask
//! every server in turn, and a success brings it back at once. If all are down, the one that has rested longest is tried: better
//! than refusing everybody. Among those that live, the one with the fewest requests is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Its number among all servers of the gate.
    pub number: usize,
    /// Where it is, as `host:port`.
    pub address: String,
    failures: AtomicU32,
    /// Until when it is left alone, in milliseconds since the start; 0 if it lives.
    down_until: AtomicU64,
    in_flight: AtomicU32,
}

/// The servers of one backend.
#[derive(Debug)]
pub struct Servers {
    list: Vec<Arc<Server>>,
    next: AtomicUsize,
    failures_max: u32,
    rest: Duration,
    start: Instant,
}

/// A request at a server, until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Server>);

impl Servers {
    /// Servers that are all taken to live.
    pub fn new(list: Vec<Arc<Server>>, failures_max: u32, rest: Duration) -> Servers {
        Servers { list, next: AtomicUsize::new(0), failures_max: failures_max.max(1), rest, start: Instant::now() }
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Server>] {
        &self.list
    }

    /// The server to ask next, other than those in `tried`.
    pub fn pick(&self, tried: &[usize]) -> Option<&Arc<Server>> {
        if let [only] = &self.list[..] {
            return (!tried.contains(&only.number)).then_some(only);
        }
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..self.list.len()).map(|step| &self.list[(from + step) % self.list.len()]);
        let left = turn.filter(|server| !tried.contains(&server.number));
        let now = self.now();
        left.min_by_key(|server| {
            let down = server.down_until.load(Ordering::Relaxed);
            let down = if down > now { down } else { 0 };
            (down, server.in_flight.load(Ordering::Relaxed))
        })
    }

    /// A server has answered, or passed a check.
    pub fn worked(&self, server: &Server) {
        // Written only on change: this is on the way of every request.
        if server.failures.load(Ordering::Relaxed) > 0 {
            server.failures.store(0, Ordering::Relaxed);
        }
        if server.down_until.load(Ordering::Relaxed) > 0 {
            server.down_until.store(0, Ordering::Relaxed);
            tracing::info!(server = %server.address, "server is back");
        }
    }

    /// A server could not be reached, did not answer, or failed a check.
    pub fn failed(&self, server: &Server) {
        let failures = server.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= self.failures_max {
            let until = self.now() + u64::try_from(self.rest.as_millis()).unwrap_or(u64::MAX >> 1);
            if server.down_until.swap(until.max(1), Ordering::Relaxed) == 0 {
                tracing::warn!(server = %server.address, failures, "server is down");
            }
        }
    }

    /// Whether a server is taken to live.
    pub fn is_up(&self, server: &Server) -> bool {
        server.down_until.load(Ordering::Relaxed) <= self.now()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX >> 1)
    }
}

impl Server {
    /// A server that has not been asked yet.
    pub fn new(number: usize, address: String) -> Arc<Server> {
        Arc::new(Server {
            number,
            address,
            failures: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
        })
    }

    /// Counts a request at this server.
    pub fn busy(self: &Arc<Server>) -> Busy {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// How many requests are at this server.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Servers {
        let list = (0..count).map(|number| Server::new(number, format!("s{number}:80"))).collect();
        Servers::new(list, 2, Duration::from_secs(3600))
    }

    #[test]
    fn the_least_busy_that_lives_is_asked() {
        let servers = servers(3);
        let _busy = (servers.all()[0].busy(), servers.all()[2].busy());
        assert_eq!(servers.pick(&[]).unwrap().number, 1);
        servers.failed(&servers.all()[1]);
        assert!(servers.is_up(&servers.all()[1]), "once is no proof");
        servers.failed(&servers.all()[1]);
        assert!(!servers.is_up(&servers.all()[1]));
        assert_ne!(servers.pick(&[]).unwrap().number, 1);
        servers.worked(&servers.all()[1]);
        assert_eq!(servers.pick(&[]).unwrap().number, 1);
    }

    #[test]
    fn if_all_are_down_one_is_tried_all_the_same_but_none_twice() {
        let servers = servers(2);
        for _ in 0..2 {
            servers.all().iter().for_each(|server| servers.failed(server));
        }
        let first = servers.pick(&[]).unwrap().number;
        let second = servers.pick(&[first]).unwrap().number;
        assert_ne!(first, second);
        assert!(servers.pick(&[first, second]).is_none());
    }
}
