//! Connections, counted in all and per address.
//!
//! An IPv6 address counts by its /64. One lock, taken when a connection comes and goes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::host;

/// Who is connected.
#[derive(Debug, Default)]
pub(super) struct Census {
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    all: u32,
    by_address: HashMap<IpAddr, u32>,
    accepted: u64,
    refused: u64,
}

/// A connection's place in the count, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    census: Arc<Census>,
    /// Proxies that are listed are not counted by their own address.
    address: Option<IpAddr>,
}

impl Census {
    /// A seat if there is one; `address` is none for a peer that speaks for many.
    pub(super) fn admit(self: &Arc<Census>, address: Option<IpAddr>, most: u32, per_address: u32) -> Option<Seat> {
        let address = address.map(host);
        let mut count = self.lock();
        let here = address.and_then(|address| count.by_address.get(&address).copied()).unwrap_or(0);
        if count.all >= most || here >= per_address {
            count.refused += 1;
            return None;
        }
        count.all += 1;
        count.accepted += 1;
        if let Some(address) = address {
            count.by_address.insert(address, here + 1);
        }
        Some(Seat { census: Arc::clone(self), address })
    }

    /// Connections now, accepted so far, refused so far.
    pub(super) fn counts(&self) -> (u32, u64, u64) {
        let count = self.lock();
        (count.all, count.accepted, count.refused)
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The connection of a peer that speaks for many turns out to be this client's: it is counted there, if there is a seat.
    pub(super) fn taken_by(mut self, address: IpAddr, per_address: u32) -> Option<Seat> {
        let address = host(address);
        let mut count = self.census.lock();
        let here = count.by_address.get(&address).copied().unwrap_or(0);
        if here >= per_address {
            count.refused += 1;
            count.accepted -= 1;
            drop(count);
            return None;
        }
        count.by_address.insert(address, here + 1);
        drop(count);
        self.address = Some(address);
        Some(self)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut count = self.census.lock();
        count.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(here) = count.by_address.get_mut(&address) {
            *here -= 1;
            if *here == 0 {
                count.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_bounded_and_come_back() {
        let census = Arc::new(Census::default());
        let ask = |address: &str| census.admit(Some(address.parse().unwrap()), 3, 2);
        let first = ask("192.0.2.1").unwrap();
        let _second = ask("::ffff:192.0.2.1").unwrap();
        assert!(ask("192.0.2.1").is_none());
        drop(first);
        let _third = ask("2001:db8::1").unwrap();
        let _fourth = ask("2001:db8::ffff").unwrap();
        assert!(ask("198.51.100.1").is_none(), "three in all");
        assert_eq!(census.counts(), (3, 4, 2));
        assert!(census.admit(None, 4, 0).is_none() && census.admit(None, 4, 1).is_some());
    }

    #[test]
    fn a_connection_that_changes_hands_is_one() {
        let census = Arc::new(Census::default());
        let client = "192.0.2.1".parse().unwrap();
        let seat = census.admit(None, 2, 1).unwrap().taken_by(client, 1).unwrap();
        assert_eq!(census.counts(), (1, 1, 0));
        assert!(census.admit(None, 2, 1).unwrap().taken_by(client, 1).is_none());
        assert_eq!(census.counts(), (1, 1, 1));
        drop(seat);
        assert!(census.admit(Some(client), 2, 1).is_some() && census.lock().by_address.is_empty());
    }
}
