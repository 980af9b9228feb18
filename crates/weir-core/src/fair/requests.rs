//! Requests in a slab, and the FIFO of each session as a doubly linked list through it.
//!
//! Constant time, no allocation once the slab has grown. A waiting request stores the cost of the one behind it; the cost of the first one
//! is in the seat of its session. So taking the first request out needs no look at the second. A ticket carries a generation, so a stale
//! one finds nothing.

use crate::prefetch;
use alloc::vec::Vec;

/// Names a request from its arrival to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// A small number, which is used for another request after this one has ended: an index into the shell's own
    /// table of requests.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The index of no request.
const NIL: u32 = u32::MAX;

/// Free → Waiting → Running → Free, or Waiting → Free when it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Waiting,
    Running,
}

/// Cost, in tag units, arrival number and index of a waiting request. Arrival numbers break ties and
/// are compared by their wrapped difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) tags: u64,
    pub(super) arrival: u32,
    pub(super) index: u32,
}

impl Claim {
    /// The claim of a session that waits for nothing.
    pub(super) const NONE: Claim = Claim { tags: 0, arrival: 0, index: NIL };
}

/// Aligned, so that none lies across two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Request {
    /// The cost of the next request while it waits, what has been charged while it runs.
    tags: u64,
    /// Arrival number of the next request.
    arrival: u32,
    session: u32,
    /// For the first of a FIFO it is out of date and never read, because the request before it left without touching this one.
    prev: u32,
    next: u32,
    generation: u32,
    state: State,
}

impl Request {
    fn behind(&self) -> Option<Claim> {
        (self.next != NIL).then_some(Claim { tags: self.tags, arrival: self.arrival, index: self.next })
    }
}

/// The two ends of a session's FIFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(super) const EMPTY: Fifo = Fifo { head: NIL, tail: NIL };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    #[inline]
    pub(super) fn starts_with(&self, ticket: Ticket) -> bool {
        self.head == ticket.index
    }
}

/// All requests of a front-end.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    slab: Vec<Request>,
    free: Vec<u32>,
    arrivals: u32,
    pub(super) waiting: u32,
    pub(super) running: u32,
}

impl Requests {
    /// A request of this cost arrives at the end of `fifo`.
    #[inline]
    pub(super) fn append(&mut self, fifo: &mut Fifo, session: u32, tags: u64) -> (Ticket, Claim) {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.waiting += 1;
        let ticket = self.place(session, fifo.tail);
        let claim = Claim { tags, arrival: self.arrivals, index: ticket.index };
        match fifo.tail {
            NIL => fifo.head = ticket.index,
            tail => {
                let last = &mut self.slab[tail as usize];
                (last.next, last.tags, last.arrival) = (ticket.index, claim.tags, claim.arrival);
            }
        }
        fifo.tail = ticket.index;
        (ticket, claim)
    }

    #[inline]
    fn place(&mut self, session: u32, prev: u32) -> Ticket {
        let new = Request { tags: 0, arrival: 0, session, prev, next: NIL, generation: 0, state: State::Waiting };
        match self.free.pop() {
            Some(index) => {
                let old = &mut self.slab[index as usize];
                *old = Request { generation: old.generation, ..new };
                Ticket { index, generation: old.generation }
            }
            None => {
                self.slab.push(new);
                Ticket { index: self.slab.len() as u32 - 1, generation: 0 }
            }
        }
    }

    /// The first request of `fifo` leaves it and runs, charged `tags`. Returns the claim of the next.
    #[inline]
    pub(super) fn start(&mut self, fifo: &mut Fifo, tags: u64) -> (Ticket, Option<Claim>) {
        let index = fifo.head;
        let request = &mut self.slab[index as usize];
        let (ticket, next) = (Ticket { index, generation: request.generation }, request.behind());
        (request.tags, request.state) = (tags, State::Running);
        fifo.head = request.next;
        if fifo.head == NIL {
            fifo.tail = NIL;
        }
        self.waiting -= 1;
        self.running += 1;
        (ticket, next)
    }

    /// Takes a waiting request out of its FIFO, wherever it stands in it, and frees its slot. Returns
    /// the claim of the request behind it.
    pub(super) fn withdraw(&mut self, fifo: &mut Fifo, ticket: Ticket) -> Option<Claim> {
        let gone = self.slab[ticket.index as usize];
        let first = fifo.starts_with(ticket);
        if first {
            fifo.head = gone.next;
        } else {
            let before = &mut self.slab[gone.prev as usize];
            (before.next, before.tags, before.arrival) = (gone.next, gone.tags, gone.arrival);
        }
        match gone.next {
            NIL => fifo.tail = if first { NIL } else { gone.prev },
            next => self.slab[next as usize].prev = gone.prev,
        }
        self.waiting -= 1;
        self.free(ticket.index);
        gone.behind()
    }

    /// A running request has ended.
    #[inline]
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.running -= 1;
        self.free(ticket.index);
    }

    #[inline]
    fn free(&mut self, index: u32) {
        let request = &mut self.slab[index as usize];
        request.state = State::Free;
        request.generation = request.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// The session of a request, if it is in `state`.
    #[inline]
    pub(super) fn session(&self, ticket: Ticket, state: State) -> Option<u32> {
        let request = self.slab.get(ticket.index as usize)?;
        (request.generation == ticket.generation && request.state == state).then_some(request.session)
    }

    /// Prefetches the request at `index`.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        prefetch::soon(&self.slab, index as usize);
    }

    /// What a running request has been charged.
    #[inline]
    pub(super) fn charged(&mut self, ticket: Ticket) -> &mut u64 {
        &mut self.slab[ticket.index as usize].tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_request_leaves_and_stale_tickets_find_nothing() {
        let (mut requests, mut fifo) = (Requests::default(), Fifo::EMPTY);
        let tickets: [Ticket; 5] = core::array::from_fn(|i| requests.append(&mut fifo, 0, i as u64).0);
        let behind = requests.withdraw(&mut fifo, tickets[1]);
        assert_eq!(behind, Some(Claim { tags: 2, arrival: 3, index: 2 }));
        assert_eq!(requests.withdraw(&mut fifo, tickets[4]), None);
        assert_eq!(requests.session(tickets[1], State::Waiting), None);
        let (reused, _) = requests.append(&mut fifo, 0, 9);
        assert_eq!(reused.index, tickets[4].index);
        assert_eq!(requests.session(tickets[4], State::Waiting), None, "another generation");
        let behind: [Option<u64>; 4] = core::array::from_fn(|_| requests.start(&mut fifo, 0).1.map(|claim| claim.tags));
        assert_eq!(behind, [Some(2), Some(3), Some(9), None]);
        assert!(fifo.is_empty());
        assert_eq!((requests.waiting, requests.running), (0, 4));
    }

    #[test]
    fn two_requests_fill_a_cache_line() {
        assert_eq!(size_of::<Request>(), 32);
    }
}
