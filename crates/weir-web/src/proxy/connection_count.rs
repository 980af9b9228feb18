//! Client connections, counted in all, per address and per subnet.
//!
//! An IPv6 address counts by its /64. No subnet has more connections than are left for others: however many addresses one subnet has, the
//! next subnet can still connect. Where there is no room, a connection makes room on which there is nothing to do but to wait for its client:
//! one of the largest subnet, and there the one that has been quiet for longest, or if none is, the one whose body or reading is waited for.
//! A newcomer may push out only somebody of its own subnet, or of one that has more connections than its own, so a subnet with few
//! connections cannot be driven out by one with many. A connection with a request under way goes only if its subnet still has as many as the
//! newcomer's afterwards: a slow upload is not cut off for somebody who has no less than it. One lock, taken when a connection comes and
//! goes.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_core::fair::SubnetKey;

use super::limits::Limits;
use super::presence::{ConnectionEnd, Presence, Standstill};
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
    pushed_out: u64,
    /// Those that may have to make room, by number.
    known: HashMap<u64, OpenConnection>,
    /// The same numbers by subnet.
    by_subnet: HashMap<SubnetKey, BTreeSet<u64>>,
    next: u64,
    /// Connections found by the last search through all of them, the first to be closed last; and when that search found none.
    idle: Vec<u64>,
    nobody_at: Option<Instant>,
    /// Since when the first of them has stayed, because nobody came for whom it had to go.
    stays_since: Option<Instant>,
}

/// A connection that may have to make room.
#[derive(Debug)]
struct OpenConnection {
    holder: Holder<IpAddr>,
    presence: Arc<Presence>,
}

/// The totals, for the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ConnectionTotals {
    pub(super) open: u32,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) pushed_out: u64,
}

/// For whom a connection is counted.
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
    /// Its number, if it may have to make room.
    number: Option<u64>,
}

/// After a search through all connections that found none idle, the next one is not before this.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How many connections of listed proxies may be open above the limit before their header has been read.
const UNREAD_LEAST: u32 = 64;
/// How many are found by one search.
const FOUND_MOST: usize = 256;

impl ConnectionCount {
    /// Counts a connection if there may be one more. `holder` is None for a listed proxy, which carries many clients.
    pub(super) fn admit(
        self: &Arc<ConnectionCount>,
        holder: Option<Holder<IpAddr>>,
        limits: ConnectionLimits,
    ) -> Option<CountedConnection> {
        let mut count = self.lock();
        let left = limits.total.saturating_sub(count.open);
        let has_room = |count: &Count| left > 0 && holder.is_none_or(|holder| count.has_room(holder, left, limits));
        if !has_room(&count) && !holder.is_some_and(|holder| count.make_room(holder, limits)) {
            count.refused += 1;
            return None;
        }
        count.open += 1;
        count.accepted += 1;
        if let Some(holder) = holder {
            count.clients.add(holder);
        }
        Some(CountedConnection { count: Arc::clone(self), holder, number: None })
    }

    /// Counts a listed proxy's connection until its PROXY header says for which client it is. There is some room for these above the limit, because only
    /// then is it known who has to make room for whom.
    pub(super) fn admit_proxied(self: &Arc<ConnectionCount>, limits: ConnectionLimits) -> Option<CountedConnection> {
        let unread = (limits.total / 8).max(UNREAD_LEAST);
        self.admit(None, ConnectionLimits { total: limits.total.saturating_add(unread), ..limits })
    }

    pub(super) fn totals(&self) -> ConnectionTotals {
        let Count { open, accepted, refused, pushed_out, .. } = *self.lock();
        ConnectionTotals { open, accepted, refused, pushed_out }
    }

    /// From now on this connection makes room for others while it is idle. Returns the number under which it is known.
    fn know(&self, holder: Holder<IpAddr>, presence: Arc<Presence>) -> u64 {
        let mut count = self.lock();
        let number = count.next;
        count.next += 1;
        count.known.insert(number, OpenConnection { holder, presence });
        count.by_subnet.entry(holder.subnet).or_default().insert(number);
        number
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn has_room(&self, holder: Holder<IpAddr>, left: u32, limits: ConnectionLimits) -> bool {
        self.clients.has_room(holder, ShareLimits { per_client: limits.per_address, per_subnet: left })
    }

    /// Closes an idle connection to make room for a new one, if one has to make room for it.
    fn make_room(&mut self, newcomer: Holder<IpAddr>, limits: ConnectionLimits) -> bool {
        let own = ShareLimits { per_client: limits.per_address, per_subnet: u32::MAX };
        if !self.clients.has_room(newcomer, own) {
            return false;
        }
        loop {
            let Some(number) = self.next_idle() else { return self.push_out_neighbour(newcomer.subnet) };
            let Some(OpenConnection { holder, presence }) = self.known.get(&number) else { continue };
            let Some(standstill) = presence.standstill() else { continue };
            let newcomers = self.clients.of_subnet(newcomer.subnet) + u32::from(standstill.asks);
            let larger = self.clients.of_subnet(holder.subnet) > newcomers;
            if holder.subnet != newcomer.subnet && !larger {
                self.idle.push(number);
                self.stays_since.get_or_insert_with(Instant::now);
                return self.push_out_neighbour(newcomer.subnet);
            }
            self.push_out(number);
            return true;
        }
    }

    /// A client that finds no idle connection in a larger subnet takes the place of a neighbour: of the connection that has been quiet for longest. Otherwise
    /// a client in the same network as those that hold all places idle would never get in.
    fn push_out_neighbour(&mut self, subnet: SubnetKey) -> bool {
        let neighbours = self.by_subnet.get(&subnet).into_iter().flatten();
        let quiet = neighbours.filter_map(|number| Some((self.known.get(number)?.presence.standstill()?, *number)));
        let Some((_, number)) = quiet.min() else { return false };
        self.push_out(number);
        true
    }

    fn push_out(&mut self, number: u64) {
        if let Some(known) = self.known.get(&number) {
            known.presence.finish(ConnectionEnd::Cut);
            self.pushed_out += 1;
        }
        self.forget(number);
    }

    /// The next connection to close. Only now and then are all connections searched.
    fn next_idle(&mut self) -> Option<u64> {
        // Others may have fallen idle meanwhile, who go before one that did not have to go.
        if self.stays_since.is_some_and(|since| since.elapsed() >= LOOK_EVERY) {
            (self.idle, self.stays_since) = (Vec::new(), None);
        }
        if let Some(number) = self.idle.pop() {
            return Some(number);
        }
        if self.nobody_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return None;
        }
        self.idle = self.look_for_idle();
        self.nobody_at = self.idle.is_empty().then(Instant::now);
        self.idle.pop()
    }

    /// Idle connections in the order in which they are closed, the first one last: always one of the subnet that has the most at that point, and of this subnet
    /// the one that has been quiet for longest.
    fn look_for_idle(&self) -> Vec<u64> {
        let mut subnets: HashMap<SubnetKey, Vec<(Standstill, u64)>> = HashMap::new();
        for (number, known) in &self.known {
            if let Some(standstill) = known.presence.standstill() {
                subnets.entry(known.holder.subnet).or_default().push((standstill, *number));
            }
        }
        let mut largest: BinaryHeap<Largest> = BinaryHeap::new();
        for (subnet, mut quiet) in subnets {
            quiet.sort_unstable_by(|a, b| b.cmp(a));
            largest.push(Largest { connections: self.clients.of_subnet(subnet), quiet });
        }
        let mut found = Vec::new();
        while found.len() < FOUND_MOST
            && let Some(mut subnet) = largest.pop()
        {
            let Some((_, number)) = subnet.quiet.pop() else { continue };
            found.push(number);
            subnet.connections -= 1;
            largest.push(subnet);
        }
        found.reverse();
        found
    }

    /// A connection has gone, or is about to.
    fn forget(&mut self, number: u64) {
        if let Some(known) = self.known.remove(&number) {
            self.open -= 1;
            self.clients.remove(known.holder);
            if let Some(numbers) = self.by_subnet.get_mut(&known.holder.subnet) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_subnet.remove(&known.holder.subnet);
                }
            }
        }
    }
}

/// A subnet with idle connections; the one that has been quiet for longest is the last.
#[derive(PartialEq, Eq)]
struct Largest {
    connections: u32,
    quiet: Vec<(Standstill, u64)>,
}

impl Ord for Largest {
    fn cmp(&self, other: &Largest) -> std::cmp::Ordering {
        // Among equals the one with the older connection.
        self.connections.cmp(&other.connections).then_with(|| other.quiet.last().cmp(&self.quiet.last()))
    }
}

impl PartialOrd for Largest {
    fn partial_cmp(&self, other: &Largest) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl CountedConnection {
    /// Counts a listed proxy's connection for the client that its PROXY header names; None if that client may have no more.
    pub(super) fn counted_for(mut self, holder: Holder<IpAddr>, limits: ConnectionLimits) -> Option<CountedConnection> {
        let mut count = self.count.lock();
        // This connection is already one of the open ones.
        let left = limits.total.saturating_sub(count.open - 1);
        if !count.has_room(holder, left, limits) && !count.make_room(holder, limits) {
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

    /// From now on it may have to make room for others.
    pub(super) fn may_make_room(&mut self, presence: &Arc<Presence>) {
        if let Some(holder) = self.holder {
            self.number = Some(self.count.know(holder, Arc::clone(presence)));
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut count = self.count.lock();
        match (self.number, self.holder) {
            (Some(number), _) => count.forget(number),
            (None, holder) => {
                count.open -= 1;
                if let Some(holder) = holder {
                    count.clients.remove(holder);
                }
            }
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
        let ConnectionTotals { open, accepted, refused, .. } = count.totals();
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

    struct Counting {
        count: Arc<ConnectionCount>,
        limits: ConnectionLimits,
    }

    impl Counting {
        fn of(total: u32) -> Counting {
            Counting { count: Arc::default(), limits: limits(total, 1_000) }
        }

        /// Opens a connection that is idle since a certain time, or busy.
        fn open(&self, subnet: u64, since: Option<u64>) -> Option<(Arc<Presence>, CountedConnection)> {
            let address = IpAddr::from([10, 0, subnet as u8, 1]);
            let mut counted = self.count.admit(Some(holder(address, SubnetKey(subnet))), self.limits)?;
            let presence = Arc::new(Presence::new(since.unwrap_or(0)));
            if since.is_none() {
                presence.begin();
            }
            counted.may_make_room(&presence);
            Some((presence, counted))
        }
    }

    fn gone(all: &[(Arc<Presence>, CountedConnection)]) -> Vec<usize> {
        (0..all.len()).filter(|at| all[*at].0.end() == ConnectionEnd::Cut).collect()
    }

    #[test]
    fn who_is_new_finds_a_place_while_anything_idles() {
        let room = Counting::of(101);
        let all: Vec<_> = (0..100).map(|number| room.open(number / 2, Some(number + 1)).unwrap()).collect();
        let new: Vec<_> = (200..251).map(|subnet| room.open(subnet, None).unwrap()).collect();
        assert_eq!(
            gone(&all),
            (0..100).step_by(2).collect::<Vec<_>>(),
            "one of each pair, the one that was quiet for longer"
        );
        assert_eq!(room.count.totals(), ConnectionTotals { open: 101, accepted: 151, refused: 0, pushed_out: 50 });
        assert!(room.open(200, None).is_none(), "nobody has more than its subnet");
        drop((all, new));
        assert_eq!(room.count.totals().open, 0);
        assert!(room.count.lock().known.is_empty() && room.count.lock().clients.is_empty());
    }

    #[test]
    fn who_shares_a_network_with_those_that_idle_takes_the_place_of_a_neighbour() {
        let room = Counting::of(11);
        let all: Vec<_> = (0..10).map(|number| room.open(number / 2, Some(number + 1)).unwrap()).collect();
        let new = room.open(3, None).expect("a neighbour makes room");
        assert_eq!(gone(&all), [6], "the one of its subnet that was quiet for longer");
        let another = room.open(3, None).expect("the other one, too");
        assert_eq!(gone(&all), [6, 7]);
        assert!(room.open(3, None).is_none(), "nothing idles there any more, and no other subnet is larger");
        drop((all, new, another));
        let count = room.count.lock();
        assert!(count.open == 0 && count.by_subnet.is_empty());
    }

    #[test]
    fn behind_a_listed_proxy_who_is_new_finds_a_place_too() {
        let room = Counting::of(10);
        let all: Vec<_> = (0..10).map(|number| room.open(number / 2, Some(number + 1)).unwrap()).collect();
        let new = room.count.admit_proxied(room.limits).expect("its header is read first");
        let new = new.counted_for(at("192.0.2.1", 99), room.limits).expect("an idle one makes room");
        assert_eq!((gone(&all).len(), room.count.totals().open), (1, 10));
        let unread: Vec<_> = (0..100).map_while(|_| room.count.admit_proxied(room.limits)).collect();
        assert_eq!(unread.len() as u32, UNREAD_LEAST, "they are bounded");
        drop((all, new, unread));
        assert_eq!(room.count.totals().open, 0);
    }

    #[test]
    fn the_largest_subnet_pays_and_the_busy_stay() {
        let room = Counting::of(10);
        let mut all: Vec<_> = (0..4).map(|_| room.open(1, None).unwrap()).collect();
        all.extend((0..3).map(|number| room.open(2, Some(number + 5)).unwrap()));
        all.extend([room.open(3, Some(1)).unwrap(), room.open(4, Some(2)).unwrap(), room.open(5, Some(3)).unwrap()]);
        let _new = room.open(6, None).unwrap();
        assert_eq!(gone(&all), [4], "the busy subnet has more, but nothing idle");
        assert!(room.open(1, None).is_none(), "a subnet that has many drives out nobody who has fewer");
        let _more: Vec<_> = (7..10).map(|subnet| room.open(subnet, None).unwrap()).collect();
        assert_eq!(gone(&all), [4, 5, 7, 8], "then, of subnets of the same size, by how long they were quiet");
    }

    /// Two subnets have one connection more each than a third one, whose body is being waited for.
    #[test]
    fn a_slow_upload_is_not_cut_off_by_those_who_have_no_more_than_it() {
        let room = Counting::of(6);
        let uploads: Vec<_> = (0..2).map(|_| room.open(1, None).unwrap()).collect();
        uploads.iter().for_each(|(presence, _)| presence.waits_for_client(1));
        let busy: Vec<_> = [2, 3, 4, 5].map(|subnet| room.open(subnet, None).unwrap()).into();
        assert!(room.open(2, None).is_none(), "both would have one less, and the one who came last two");
        assert!(gone(&uploads).is_empty());
        let _new = room.open(6, None).expect("who has none is let in");
        assert_eq!(gone(&uploads), [0], "and the larger subnet still has as many");
        assert!(room.open(7, None).is_none(), "a subnet's only upload is not cut off");
        // While it stands still, another connection has nothing more to do.
        busy[0].0.over(5);
        std::thread::sleep(2 * LOOK_EVERY);
        assert!(room.open(7, None).is_some() && gone(&busy) == [0], "who is idle goes before it");
        assert_eq!(gone(&uploads), [0]);
    }

    #[test]
    fn a_full_house_is_looked_through_now_and_then() {
        let room = Counting::of(50);
        let _all: Vec<_> = (0..50).map(|subnet| room.open(subnet, None).unwrap()).collect();
        for _ in 0..1_000 {
            assert!(room.open(99, None).is_none());
        }
        assert_eq!(room.count.totals().refused, 1_000);
    }
}
