//! Connections, counted in all, per address and per subnet.
//!
//! An IPv6 address counts by its /64. No subnet has more connections than are left for others: however many addresses one has, the next
//! subnet still finds a seat. One lock, taken when a connection comes and goes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::fair::SubnetKey;

use crate::identity::host;
use crate::tally::one_less;

/// Who is connected.
#[derive(Debug, Default)]
pub(super) struct Census {
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    all: u32,
    by_address: HashMap<IpAddr, u32>,
    by_subnet: HashMap<SubnetKey, u32>,
    accepted: u64,
    refused: u64,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whose {
    address: IpAddr,
    subnet: SubnetKey,
}

impl Whose {
    pub(super) fn new(address: IpAddr, subnet: SubnetKey) -> Whose {
        Whose { address: host(address), subnet }
    }
}

/// A connection's place in the count, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    census: Arc<Census>,
    /// Proxies that are listed are not counted by their own address.
    whose: Option<Whose>,
}

impl Census {
    /// A seat if there is one; `whose` is none for a peer that speaks for many.
    pub(super) fn admit(self: &Arc<Census>, whose: Option<Whose>, most: u32, per_address: u32) -> Option<Seat> {
        let mut count = self.lock();
        let left = most.saturating_sub(count.all);
        let seated = whose.is_none_or(|whose| count.has_room(whose, left, per_address));
        if left == 0 || !seated {
            count.refused += 1;
            return None;
        }
        count.all += 1;
        count.accepted += 1;
        if let Some(whose) = whose {
            count.add(whose);
        }
        Some(Seat { census: Arc::clone(self), whose })
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

impl Count {
    /// Whether this one may have one more, where so many are left for all.
    fn has_room(&self, whose: Whose, left: u32, per_address: u32) -> bool {
        let of_address = self.by_address.get(&whose.address).copied().unwrap_or(0);
        let of_subnet = self.by_subnet.get(&whose.subnet).copied().unwrap_or(0);
        of_address < per_address && of_subnet < left
    }

    fn add(&mut self, whose: Whose) {
        *self.by_address.entry(whose.address).or_default() += 1;
        *self.by_subnet.entry(whose.subnet).or_default() += 1;
    }
}

impl Seat {
    /// The connection of a peer that speaks for many turns out to be this client's: it is counted there, if there is a seat.
    pub(super) fn taken_by(mut self, whose: Whose, most: u32, per_address: u32) -> Option<Seat> {
        let mut count = self.census.lock();
        // It is among them already.
        let left = most.saturating_sub(count.all - 1);
        if !count.has_room(whose, left, per_address) {
            count.refused += 1;
            count.accepted -= 1;
            drop(count);
            return None;
        }
        count.add(whose);
        drop(count);
        self.whose = Some(whose);
        Some(self)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut count = self.census.lock();
        count.all -= 1;
        if let Some(whose) = self.whose {
            one_less(&mut count.by_address, whose.address);
            one_less(&mut count.by_subnet, whose.subnet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address, and the subnet that it is said to be in.
    fn at(address: &str, subnet: u64) -> Whose {
        Whose::new(address.parse().unwrap(), SubnetKey(subnet))
    }

    #[test]
    fn seats_are_bounded_and_come_back() {
        let census = Arc::new(Census::default());
        let ask = |address: &str, subnet| census.admit(Some(at(address, subnet)), 5, 2);
        let first = ask("192.0.2.1", 1).unwrap();
        let _second = ask("::ffff:192.0.2.1", 1).unwrap();
        assert!(ask("192.0.2.1", 1).is_none());
        drop(first);
        let _third = ask("2001:db8::1", 2).unwrap();
        let _fourth = ask("2001:db8::ffff", 2).unwrap();
        assert!(ask("2001:db8::2", 2).is_none(), "one /64 is one address");
        let _fifth = (ask("198.51.100.1", 3).unwrap(), ask("203.0.113.1", 4).unwrap());
        assert!(ask("192.0.2.129", 5).is_none(), "five in all");
        assert_eq!(census.counts(), (5, 6, 3));
        assert!(census.admit(None, 5, 1).is_none() && census.admit(None, 6, 1).is_some());
    }

    #[test]
    fn many_addresses_of_a_subnet_leave_seats_for_others() {
        let census = Arc::new(Census::default());
        let all = |subnet: u8| -> Vec<Seat> {
            let ask = |number: u8| census.admit(Some(at(&format!("10.0.{subnet}.{number}"), subnet.into())), 100, 1);
            (0..=255).map_while(ask).collect()
        };
        let (first, second, third) = (all(1), all(2), all(3));
        assert_eq!((first.len(), second.len(), third.len()), (50, 25, 13), "of what was left");
        drop((first, third));
        assert_eq!(all(4).len(), 38);
        drop(second);
        assert!(census.lock().by_address.is_empty() && census.lock().by_subnet.is_empty());
    }

    #[test]
    fn a_connection_that_changes_hands_is_one() {
        let census = Arc::new(Census::default());
        let client = at("192.0.2.1", 1);
        let seat = census.admit(None, 2, 1).unwrap().taken_by(client, 2, 1).unwrap();
        assert_eq!(census.counts(), (1, 1, 0));
        assert!(census.admit(None, 2, 1).unwrap().taken_by(client, 2, 1).is_none());
        assert_eq!(census.counts(), (1, 1, 1));
        let neighbour = at("192.0.2.2", 1);
        assert!(
            census.admit(None, 2, 1).unwrap().taken_by(neighbour, 2, 1).is_none(),
            "the last is for another subnet"
        );
        assert!(census.admit(None, 2, 1).unwrap().taken_by(at("198.51.100.1", 2), 2, 1).is_some());
        drop(seat);
        assert!(census.admit(Some(client), 2, 1).is_some() && census.lock().by_address.is_empty());
    }
}
