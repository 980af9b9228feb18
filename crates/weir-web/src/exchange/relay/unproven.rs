//! Connections that have not proven the key yet, by host; an IPv6 host has a whole /64 of addresses.
//!
//! A new connection is always accepted. If there is no room, the oldest connection of the same host is closed, or of the host that has the
//! most. So an idle connection keeps nobody out. There are [`UNPROVEN_MAX`] of them, [`UNPROVEN_PER_ADDRESS`] of one host; beside them as
//! many of each of [`PROVEN_MAX`] hosts that have proven the key before.

use crate::identity::host;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

const UNPROVEN_MAX: usize = 64;
const UNPROVEN_PER_ADDRESS: usize = 8;
const PROVEN_MAX: usize = 4096;

/// The connections that have not proven the key yet.
#[derive(Default)]
pub(super) struct UnprovenConnections(Mutex<UnprovenByAge>);

#[derive(Default)]
struct UnprovenByAge {
    /// By the order in which they came.
    waiting: BTreeMap<u64, Unproven>,
    came: u64,
    proven: HashSet<IpAddr>,
}

struct Unproven {
    host: IpAddr,
    /// When this is dropped, the connection ends.
    _stays: oneshot::Sender<Infallible>,
}

/// One of them, until it is dropped.
pub(super) struct UnprovenConnection {
    among: Arc<UnprovenConnections>,
    number: u64,
    host: IpAddr,
    /// Ready when it has to make room for another.
    pub(super) gives_way: oneshot::Receiver<Infallible>,
}

impl UnprovenConnections {
    /// Adds a connection from this address.
    pub(super) fn admit(among: &Arc<UnprovenConnections>, address: IpAddr) -> UnprovenConnection {
        let host = host(address);
        let mut crowd = among.lock();
        if let Some(oldest) = crowd.gives_way_to(host) {
            crowd.waiting.remove(&oldest);
        }
        let (stays, gives_way) = oneshot::channel();
        crowd.came += 1;
        let number = crowd.came;
        crowd.waiting.insert(number, Unproven { host, _stays: stays });
        drop(crowd);
        UnprovenConnection { among: Arc::clone(among), number, host, gives_way }
    }

    fn lock(&self) -> MutexGuard<'_, UnprovenByAge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnprovenByAge {
    /// The connection that makes room for one more from this host, if one has to.
    fn gives_way_to(&self, host: IpAddr) -> Option<u64> {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        self.waiting.values().for_each(|one| *held.entry(one.host).or_default() += 1);
        let own = held.get(&host).copied().unwrap_or(0);
        held.retain(|host, _| !self.proven.contains(host));
        let crowded = held.values().sum::<usize>() >= UNPROVEN_MAX && !self.proven.contains(&host);
        let most = held.values().copied().max().unwrap_or(0);
        let of_own = own >= UNPROVEN_PER_ADDRESS || own == most;
        let gives_way = |one: &Unproven| if of_own { one.host == host } else { held.get(&one.host) == Some(&most) };
        let full = own >= UNPROVEN_PER_ADDRESS || crowded;
        self.waiting.iter().find(|(_, one)| full && gives_way(one)).map(|(number, _)| *number)
    }
}

impl UnprovenConnection {
    /// It has proven the key.
    pub(super) fn has_proven(self) {
        let mut crowd = self.among.lock();
        if crowd.proven.len() < PROVEN_MAX {
            crowd.proven.insert(self.host);
        }
    }
}

impl Drop for UnprovenConnection {
    fn drop(&mut self) {
        self.among.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    fn admit(unproven: &Arc<UnprovenConnections>, text: &str) -> UnprovenConnection {
        UnprovenConnections::admit(unproven, text.parse().unwrap())
    }

    fn stays(unproven: &mut UnprovenConnection) -> bool {
        unproven.gives_way.try_recv() == Err(TryRecvError::Empty)
    }

    #[test]
    fn strangers_are_counted_by_host() {
        let unproven = Arc::default();
        let mut one: Vec<UnprovenConnection> = (0..20).map(|i| admit(&unproven, &format!("2001:db8::{i}"))).collect();
        let left: Vec<bool> = one.iter_mut().map(stays).collect();
        assert_eq!(left, [vec![false; 12], vec![true; UNPROVEN_PER_ADDRESS]].concat(), "the newest");
        let mapped = |i: usize| admit(&unproven, ["192.0.2.1", "::ffff:192.0.2.1"][i % 2]);
        let mut mapped: Vec<UnprovenConnection> = (0..20).map(mapped).collect();
        assert_eq!(mapped.iter_mut().map(stays).filter(|stays| *stays).count(), UNPROVEN_PER_ADDRESS);
        drop(one);
        let many: Vec<UnprovenConnection> = (0..200).map(|i| admit(&unproven, &format!("2001:db8:0:{i}::1"))).collect();
        assert_eq!(unproven.lock().waiting.len(), UNPROVEN_MAX);
        drop((mapped, many));
        assert!(unproven.lock().waiting.is_empty());
    }

    #[test]
    fn strangers_that_come_again_and_again_keep_no_front_end_out() {
        let unproven = Arc::default();
        let mut crowd: Vec<UnprovenConnection> = Vec::new();
        let again = |i: u32| admit(&unproven, &format!("192.0.2.{}", i % 8));
        crowd.extend((0..64).map(again));
        let mut front_end = admit(&unproven, "198.51.100.1");
        crowd.extend((0..1_000).map(again));
        assert!(stays(&mut front_end));
        assert_eq!(unproven.lock().waiting.len(), UNPROVEN_MAX);
    }

    #[test]
    fn hosts_that_have_proven_the_key_have_places_of_their_own() {
        let unproven = Arc::default();
        admit(&unproven, "198.51.100.1").has_proven();
        let mut front_end = admit(&unproven, "198.51.100.1");
        let mut other = admit(&unproven, "198.51.100.2");
        let crowd: Vec<UnprovenConnection> =
            (0..1_000).map(|i| admit(&unproven, &format!("2001:db8:0:{i}::1"))).collect();
        assert!(stays(&mut front_end) && !stays(&mut other));
        assert_eq!(unproven.lock().waiting.len(), UNPROVEN_MAX + 1);
        let mut more: Vec<UnprovenConnection> = (0..20).map(|_| admit(&unproven, "198.51.100.1")).collect();
        assert_eq!(more.iter_mut().map(stays).filter(|stays| *stays).count(), UNPROVEN_PER_ADDRESS);
        drop(crowd);
    }
}
