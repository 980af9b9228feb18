//! The backlog of each subnet, and which request is dropped when the queue is full.
//!
//! Requests cost a client nothing, so if a full queue just refused newcomers, it would belong to whoever asks most often. Instead the
//! newest request of the subnet with the longest backlog makes room, unless the newcomer's subnet would then hold as much (longest queue
//! drop, as switches share their memory between ports). A subnet that holds less than an equal share of the queue loses nothing.
//!
//! Two things are scarce: places in the queue, and the memory that waiting requests hold. Memory is looked at first, because one large
//! request may need several places.
//!
//! Cost: constant time while there is room. When the queue becomes full, subnets are kept in order until half of it has gone: O(subnets)
//! once, then O(log subnets) per call. No allocation once the tables have grown.

use super::keys::KeyMap;
use super::{SubnetKey, Ticket};
use crate::mutant::{Mutant, planted};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What there is not enough of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scarce {
    /// Places in the queue.
    Requests = 0,
    /// Memory.
    Bytes = 1,
}

/// How much may wait in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBounds {
    /// Requests.
    pub requests: u64,
    /// What they hold in memory.
    pub bytes: u64,
}

/// Whether one more request may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It may.
    Enough,
    /// It may when this one has left; ask again then.
    After(Ticket),
    /// It may not: no other subnet holds more of this than the subnet of the new request would.
    None(Scarce),
}

/// Requests and bytes, by [`Scarce`].
type Load = [u64; 2];

/// All waiting requests of a backend. One that gets a slot at once need not be counted here.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// By the index of their tickets.
    requests: Vec<Option<Waiting>>,
    subnets: KeyMap<SubnetBacklog>,
    all: Load,
    /// The order by each resource; none while there is room.
    orders: [Option<ServiceOrder>; 2],
}

/// A request that waits, linked to the older and the newer one of its subnet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    subnet: SubnetKey,
    bytes: u32,
    older: Option<Ticket>,
    newer: Option<Ticket>,
}

/// What one subnet has waiting.
#[derive(Clone, Debug, Default)]
struct SubnetBacklog {
    load: Load,
    newest: Option<Ticket>,
}

/// Subnets ordered by how much they hold of one resource.
#[derive(Clone, Debug)]
struct ServiceOrder {
    subnets: BTreeSet<(u64, SubnetKey)>,
    /// The order is dropped when all together hold no more than this.
    until: u64,
}

impl Backlog {
    /// Whether one more request of `subnet` may wait that holds this many bytes; or which request must leave first.
    pub fn room(&mut self, subnet: SubnetKey, bytes: u32, bounds: QueueBounds) -> Room {
        let bytes = u64::from(bytes);
        let (scarce, added) = if self.bytes().saturating_add(bytes) > bounds.bytes {
            (Scarce::Bytes, bytes)
        } else if self.requests() >= bounds.requests {
            (Scarce::Requests, 1)
        } else {
            return Room::Enough;
        };
        self.victim(scarce, subnet, added).map_or(Room::None(scarce), Room::After)
    }

    /// A request waits from now on.
    pub fn join(&mut self, ticket: Ticket, subnet: SubnetKey, bytes: u32) {
        let older = self.subnets.entry(subnet.0).or_default().newest.replace(ticket);
        if let Some(older) = self.waiting(older) {
            older.newer = Some(ticket);
        }
        if ticket.index() >= self.requests.len() {
            self.requests.resize(ticket.index() + 1, None);
        }
        let before = self.requests[ticket.index()].replace(Waiting { ticket, subnet, bytes, older, newer: None });
        debug_assert!(before.is_none(), "a place in the backlog is taken twice");
        self.account(subnet, |held, own| held + own, [1, u64::from(bytes)]);
    }

    /// A request waits no more. False if it did not.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let place = self.requests.get_mut(ticket.index());
        let Some(gone) = place.and_then(|place| place.take_if(|waiting| waiting.ticket == ticket)) else {
            return false;
        };
        let Waiting { subnet, bytes, older, newer, .. } = gone;
        if let Some(older) = self.waiting(older) {
            older.newer = newer;
        }
        match self.waiting(newer) {
            Some(newer) => newer.older = older,
            None => self.subnets.entry(subnet.0).or_default().newest = older,
        }
        self.account(subnet, |held, own| held - own, [1, u64::from(bytes)]);
        true
    }

    /// How many requests wait.
    pub fn requests(&self) -> u64 {
        self.all[Scarce::Requests as usize]
    }

    /// What they hold in memory.
    pub fn bytes(&self) -> u64 {
        self.all[Scarce::Bytes as usize]
    }

    /// The subnet of a request, if it waits.
    pub fn subnet_of(&self, ticket: Ticket) -> Option<SubnetKey> {
        let waiting = self.requests.get(ticket.index())?.as_ref()?;
        (waiting.ticket == ticket).then_some(waiting.subnet)
    }

    /// How many requests of a subnet wait.
    pub fn requests_of(&self, subnet: SubnetKey) -> u64 {
        self.subnets.get(&subnet.0).map_or(0, |part| part.load[Scarce::Requests as usize])
    }

    /// The newest request of the subnet that holds the most, if this is still more than `subnet` would hold with `added`.
    fn victim(&mut self, scarce: Scarce, subnet: SubnetKey, added: u64) -> Option<Ticket> {
        let at = scarce as usize;
        let order = self.orders[at].get_or_insert_with(|| ServiceOrder {
            subnets: self.subnets.iter().map(|(subnet, part)| (part.load[at], SubnetKey(*subnet))).collect(),
            until: self.all[at] / 2,
        });
        let (most, whose) = order.subnets.last()?;
        let own = self.subnets.get(&subnet.0).map_or(0, |part| part.load[at]).saturating_add(added);
        let holds_more = *most > own || (planted(Mutant::FairDropsOfAnEqual) && *most == own);
        if holds_more { self.subnets.get(&whose.0)?.newest } else { None }
    }

    fn waiting(&mut self, ticket: Option<Ticket>) -> Option<&mut Waiting> {
        self.requests.get_mut(ticket?.index())?.as_mut()
    }

    fn account(&mut self, subnet: SubnetKey, sum: impl Fn(u64, u64) -> u64, load: Load) {
        let Some(part) = self.subnets.get_mut(&subnet.0) else { return };
        let before = part.load;
        part.load = core::array::from_fn(|at| sum(before[at], load[at]));
        self.all = core::array::from_fn(|at| sum(self.all[at], load[at]));
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
            debug_assert!(after == [0, 0], "a subnet without a request holds something");
            self.subnets.remove(&subnet.0);
        }
        self.check_invariants();
    }

    /// What is always true between two calls; each costs O(1).
    fn check_invariants(&self) {
        debug_assert!(self.subnets.len() as u64 <= self.requests(), "a subnet is remembered of which nothing waits");
        debug_assert!(self.requests() > 0 || self.bytes() == 0, "nothing waits, and it holds memory");
        let complete = |order: &ServiceOrder| order.subnets.len() == self.subnets.len();
        debug_assert!(self.orders.iter().flatten().all(complete), "a subnet is missing in the order");
    }
}
