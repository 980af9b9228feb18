//! The backlog of each subnet, and which request is dropped when the queue is full.
//!
//! Requests are free to make, so a full queue that refuses newcomers belongs to whoever asks most often. Instead the newest request of
//! the subnet with the longest backlog makes room, unless the newcomer's subnet would then hold as much (longest queue drop, as switches share
//! their memory between ports). A subnet that holds less than an equal share of the queue loses nothing.
//!
//! A request that finds a slot at once is not counted here. Constant time while there is room; from when there is none until half of the
//! queue has gone, subnets are kept in order: O(log subnets), and once O(subnets).

use std::collections::{BTreeSet, HashMap};

use weir_core::fair::{SubnetKey, Ticket};

use super::request_table::{Neighbours, RequestEntry, RequestTable};

/// What there is no more room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scarce {
    Requests = 0,
    Bytes = 1,
}

/// Requests and bytes, by [`Scarce`].
type Load = [u64; 2];

/// All requests of a backend that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    subnets: HashMap<SubnetKey, SubnetBacklog>,
    all: Load,
    /// None while there is room.
    orders: [Option<Order>; 2],
}

/// What one subnet has waiting.
#[derive(Debug, Default)]
struct SubnetBacklog {
    load: Load,
    newest: Option<Ticket>,
}

/// Subnets by what they hold of one thing.
#[derive(Debug)]
struct Order {
    subnets: BTreeSet<(u64, SubnetKey)>,
    /// Given up when no more than this is held in all.
    until: u64,
}

impl Backlog {
    /// A request waits from now on.
    pub(super) fn join(&mut self, requests: &mut RequestTable, ticket: Ticket) {
        let request = requests.at_mut(ticket);
        let (subnet, load) = (request.owner.subnet, load_of(request));
        let part = self.subnets.entry(subnet).or_default();
        let older = part.newest.replace(ticket);
        request.neighbours = Some(Neighbours { older, newer: None });
        if let Some(older) = neighbours(requests, older) {
            older.newer = Some(ticket);
        }
        self.account(subnet, |held, own| held + own, load);
    }

    /// A request waits no more, if it did.
    pub(super) fn leave(&mut self, requests: &mut RequestTable, ticket: Ticket) {
        let request = requests.at_mut(ticket);
        let (subnet, load) = (request.owner.subnet, load_of(request));
        let Some(Neighbours { older, newer }) = request.neighbours.take() else { return };
        if let Some(older) = neighbours(requests, older) {
            older.newer = newer;
        }
        match neighbours(requests, newer) {
            Some(newer) => newer.older = older,
            None => self.subnets.entry(subnet).or_default().newest = older,
        }
        self.account(subnet, |held, own| held - own, load);
    }

    /// The newest request of who holds the most, if that is still more than what `subnet` has with so much added.
    pub(super) fn victim(&mut self, scarce: Scarce, subnet: SubnetKey, added: u64) -> Option<Ticket> {
        let at = scarce as usize;
        let order = self.orders[at].get_or_insert_with(|| Order {
            subnets: self.subnets.iter().map(|(subnet, part)| (part.load[at], *subnet)).collect(),
            until: self.all[at] / 2,
        });
        let (most, whose) = order.subnets.last()?;
        let own = self.subnets.get(&subnet).map_or(0, |part| part.load[at]);
        if *most > own.saturating_add(added) { self.subnets.get(whose)?.newest } else { None }
    }

    fn account(&mut self, subnet: SubnetKey, sum: impl Fn(u64, u64) -> u64, load: Load) {
        let Some(part) = self.subnets.get_mut(&subnet) else { return };
        let before = part.load;
        part.load = std::array::from_fn(|at| sum(before[at], load[at]));
        self.all = std::array::from_fn(|at| sum(self.all[at], load[at]));
        let (after, gone) = (part.load, part.newest.is_none());
        for (at, kept) in self.orders.iter_mut().enumerate() {
            let Some(order) = kept else { continue };
            order.subnets.remove(&(before[at], subnet));
            if !gone {
                order.subnets.insert((after[at], subnet));
            }
            if self.all[at] <= order.until {
                *kept = None;
            }
        }
        if gone {
            self.subnets.remove(&subnet);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.subnets.is_empty() && self.all == [0, 0] && self.orders.iter().flatten().count() == 0
    }

    /// What a subnet has waiting.
    #[cfg(test)]
    pub(super) fn requests_of(&self, subnet: u64) -> u64 {
        self.subnets.get(&SubnetKey(subnet)).map_or(0, |part| part.load[0])
    }
}

fn load_of(request: &RequestEntry) -> Load {
    [1, u64::from(request.bytes)]
}

fn neighbours(requests: &mut RequestTable, of: Option<Ticket>) -> Option<&mut Neighbours> {
    requests.at_mut(of?).neighbours.as_mut()
}
