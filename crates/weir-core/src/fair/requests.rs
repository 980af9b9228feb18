//! Requests in a slab, and the FIFO of each session as a doubly linked list through it.
//!
//! Constant time, no allocation once the slab has grown. A ticket carries a generation, so a stale one
//! finds nothing.

use alloc::vec::Vec;

/// Names a request from its arrival to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

/// The index of no request.
pub(super) const NIL: u32 = u32::MAX;

/// Free → Waiting → Running → Free, or Waiting → Free when it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Waiting,
    Running,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) session: u32,
    /// Estimated cost while it waits, what has been charged while it runs.
    pub(super) tags: u64,
    /// Breaks ties; compared by wrapped difference.
    pub(super) arrival: u32,
    prev: u32,
    next: u32,
    generation: u32,
    pub(super) state: State,
}

/// The two ends of a session's FIFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    pub(super) head: u32,
    tail: u32,
}

impl Fifo {
    pub(super) const EMPTY: Fifo = Fifo { head: NIL, tail: NIL };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
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
    /// A request arrives at the end of `fifo`.
    #[inline]
    pub(super) fn append(&mut self, fifo: &mut Fifo, session: u32, tags: u64) -> Ticket {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.waiting += 1;
        let index = self.free.pop().unwrap_or(self.slab.len() as u32);
        let mut request = Request {
            session,
            tags,
            arrival: self.arrivals,
            prev: fifo.tail,
            next: NIL,
            generation: 0,
            state: State::Waiting,
        };
        match self.slab.get_mut(index as usize) {
            Some(old) => {
                request.generation = old.generation;
                *old = request;
            }
            None => self.slab.push(request),
        }
        match fifo.tail {
            NIL => fifo.head = index,
            tail => self.slab[tail as usize].next = index,
        }
        fifo.tail = index;
        Ticket { index, generation: request.generation }
    }

    /// Takes a waiting request out of its FIFO, wherever it stands in it.
    #[inline]
    pub(super) fn unlink(&mut self, fifo: &mut Fifo, index: u32) {
        let Request { prev, next, .. } = self.slab[index as usize];
        match prev {
            NIL => fifo.head = next,
            prev => self.slab[prev as usize].next = next,
        }
        match next {
            NIL => fifo.tail = prev,
            next => self.slab[next as usize].prev = prev,
        }
        self.waiting -= 1;
    }

    /// The first request of `fifo` leaves it and runs.
    #[inline]
    pub(super) fn start(&mut self, fifo: &mut Fifo) -> (Ticket, u64) {
        let index = fifo.head;
        self.unlink(fifo, index);
        self.running += 1;
        let request = &mut self.slab[index as usize];
        request.state = State::Running;
        (Ticket { index, generation: request.generation }, request.tags)
    }

    /// The request of `ticket`, if it is in `state`.
    #[inline]
    pub(super) fn find(&mut self, ticket: Ticket, state: State) -> Option<&mut Request> {
        let request = self.slab.get_mut(ticket.index as usize)?;
        (request.generation == ticket.generation && request.state == state).then_some(request)
    }

    /// Gives the place of an unlinked request back.
    #[inline]
    pub(super) fn release(&mut self, ticket: Ticket) {
        let request = &mut self.slab[ticket.index as usize];
        if request.state == State::Running {
            self.running -= 1;
        }
        request.state = State::Free;
        request.generation = request.generation.wrapping_add(1);
        self.free.push(ticket.index);
    }

    /// Cost and arrival number of a FIFO's first request.
    #[inline]
    pub(super) fn first(&self, fifo: &Fifo) -> Option<(u64, u32)> {
        self.slab.get(fifo.head as usize).map(|request| (request.tags, request.arrival))
    }

    pub(super) fn is_first(&self, fifo: &Fifo, ticket: Ticket) -> bool {
        fifo.head == ticket.index
    }

    pub(super) fn index(ticket: Ticket) -> u32 {
        ticket.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_request_leaves_and_stale_tickets_find_nothing() {
        let (mut requests, mut fifo) = (Requests::default(), Fifo::EMPTY);
        let tickets: [Ticket; 4] = core::array::from_fn(|i| requests.append(&mut fifo, 0, i as u64));
        requests.unlink(&mut fifo, tickets[1].index);
        requests.release(tickets[1]);
        assert!(requests.find(tickets[1], State::Waiting).is_none());
        let reused = requests.append(&mut fifo, 0, 9);
        assert_eq!(reused.index, tickets[1].index);
        assert!(requests.find(tickets[1], State::Waiting).is_none(), "another generation");
        let order: [u64; 4] = core::array::from_fn(|_| requests.start(&mut fifo).1);
        assert_eq!(order, [0, 2, 3, 9]);
        assert!(fifo.is_empty());
        assert_eq!((requests.waiting, requests.running), (0, 4));
    }
}
