//! Client connections, counted in all, per address and per subnet.
//!
//! An IPv6 address counts by its /64. No subnet has more connections than are left for others: however many addresses one subnet has, the
//! next subnet can still connect. One lock, taken when a connection comes and goes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::fair::SubnetKey;

use super::limits::Limits;
use crate::identity::host;
use crate::shares::{Holder, ShareLimits, Shares};

/// The connections of all threads.
#[derive(Debug, Default)]
pub(super) struct ConnectionCount {
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    open: u32,
    clients: Shares<IpAddr>,
    accepted: u64,
    refused: u64,
}

/// The totals, for the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ConnectionTotals {
    pub(super) open: u32,
    pub(super) accepted: u64,
    pub(super) refused: u64,
}

/// Who a connection is counted for.
pub(super) fn holder(address: IpAddr, subnet: SubnetKey) -> Holder<IpAddr> {
    Holder { client: host(address), subnet }
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) total: u32,
    pub(super) per_address: u32,
}

impl From<&Limits> for ConnectionLimits {
    fn from(limits: &Limits) -> ConnectionLimits {
        ConnectionLimits { total: limits.connections, per_address: limits.connections_per_address }
    }
}

/// One connection, counted until this is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    count: Arc<ConnectionCount>,
    /// None for a listed proxy, which is not counted by its own address.
    holder: Option<Holder<IpAddr>>,
}

impl ConnectionCount {
    /// Counts a connection if there may be one more. `holder` is None for a listed proxy, which speaks for many clients.
    pub(super) fn admit(
        self: &Arc<ConnectionCount>,
        holder: Option<Holder<IpAddr>>,
        limits: ConnectionLimits,
    ) -> Option<CountedConnection> {
        let mut count = self.lock();
        let left = limits.total.saturating_sub(count.open);
        let has_room = holder.is_none_or(|holder| count.has_room(holder, left, limits));
        if left == 0 || !has_room {
            count.refused += 1;
            return None;
        }
        count.open += 1;
        count.accepted += 1;
        if let Some(holder) = holder {
            count.clients.add(holder);
        }
        Some(CountedConnection { count: Arc::clone(self), holder })
    }

    pub(super) fn totals(&self) -> ConnectionTotals {
        let Count { open, accepted, refused, .. } = *self.lock();
        ConnectionTotals { open, accepted, refused }
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn has_room(&self, holder: Holder<IpAddr>, left: u32, limits: ConnectionLimits) -> bool {
        self.clients.has_room(holder, ShareLimits { per_client: limits.per_address, per_subnet: left })
    }
}

impl CountedConnection {
    /// Counts a listed proxy's connection for the client that its PROXY header names; None if that client may have no more.
    pub(super) fn counted_for(mut self, holder: Holder<IpAddr>, limits: ConnectionLimits) -> Option<CountedConnection> {
        let mut count = self.count.lock();
        // This connection is among the open ones already.
        let left = limits.total.saturating_sub(count.open - 1);
        if !count.has_room(holder, left, limits) {
            count.refused += 1;
            count.accepted -= 1;
            drop(count);
            return None;
        }
        count.clients.add(holder);
        drop(count);
        self.holder = Some(holder);
        Some(self)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut count = self.count.lock();
        count.open -= 1;
        if let Some(holder) = self.holder {
            count.clients.remove(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address, and the subnet that it is said to be in.
    fn at(address: &str, subnet: u64) -> Holder<IpAddr> {
        holder(address.parse().unwrap(), SubnetKey(subnet))
    }

    fn limits(total: u32, per_address: u32) -> ConnectionLimits {
        ConnectionLimits { total, per_address }
    }

    fn totals(count: &ConnectionCount) -> (u32, u64, u64) {
        let ConnectionTotals { open, accepted, refused } = count.totals();
        (open, accepted, refused)
    }

    #[test]
    fn connections_are_bounded_and_freed() {
        let count = Arc::new(ConnectionCount::default());
        let ask = |address: &str, subnet| count.admit(Some(at(address, subnet)), limits(5, 2));
        let first = ask("192.0.2.1", 1).unwrap();
        let _second = ask("::ffff:192.0.2.1", 1).unwrap();
        assert!(ask("192.0.2.1", 1).is_none());
        drop(first);
        let _third = ask("2001:db8::1", 2).unwrap();
        let _fourth = ask("2001:db8::ffff", 2).unwrap();
        assert!(ask("2001:db8::2", 2).is_none(), "one /64 is one address");
        let _fifth = (ask("198.51.100.1", 3).unwrap(), ask("203.0.113.1", 4).unwrap());
        assert!(ask("192.0.2.129", 5).is_none(), "five in all");
        assert_eq!(totals(&count), (5, 6, 3));
        assert!(count.admit(None, limits(5, 1)).is_none() && count.admit(None, limits(6, 1)).is_some());
    }

    #[test]
    fn many_addresses_of_a_subnet_leave_connections_for_others() {
        let count = Arc::new(ConnectionCount::default());
        let all = |subnet: u8| -> Vec<CountedConnection> {
            let ask =
                |number: u8| count.admit(Some(at(&format!("10.0.{subnet}.{number}"), subnet.into())), limits(100, 1));
            (0..=255).map_while(ask).collect()
        };
        let (first, second, third) = (all(1), all(2), all(3));
        assert_eq!((first.len(), second.len(), third.len()), (50, 25, 13), "of what was left");
        drop((first, third));
        assert_eq!(all(4).len(), 38);
        drop(second);
        assert!(count.lock().clients.is_empty());
    }

    #[test]
    fn a_connection_that_changes_hands_is_one() {
        let count = Arc::new(ConnectionCount::default());
        let client = at("192.0.2.1", 1);
        let counted_for = |holder| count.admit(None, limits(2, 1)).unwrap().counted_for(holder, limits(2, 1));
        let connection = counted_for(client).unwrap();
        assert_eq!(totals(&count), (1, 1, 0));
        assert!(counted_for(client).is_none());
        assert_eq!(totals(&count), (1, 1, 1));
        let neighbour = at("192.0.2.2", 1);
        assert!(counted_for(neighbour).is_none(), "the last is for another subnet");
        assert!(counted_for(at("198.51.100.1", 2)).is_some());
        drop(connection);
        assert!(count.admit(Some(client), limits(2, 1)).is_some() && count.lock().clients.is_empty());
    }
}
