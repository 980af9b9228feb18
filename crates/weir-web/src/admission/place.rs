//! The requests of one backend that wait or run, in a table by their ticket's index.
//!
//! Constant time. A place belongs to a ticket until it leaves; whoever comes with an older ticket of the same index
//! finds nothing. The table is as long as there were requests at once, which the scheduler bounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use weir_core::fair::Ticket;

use super::crowd::Neighbours;
use super::estimate::Class;
use super::streams::Who;
use super::upload::UploadClock;
use super::{Ask, Cut};

/// Waiting → Granted (the scheduler has chosen it) → Running (its task knows), or any of them → gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Waiting,
    Granted,
    Running,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) ticket: Ticket,
    pub(super) state: State,
    pub(super) who: Who,
    pub(super) client: IpAddr,
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) asked_ns: u64,
    /// What has been charged, or will be at dispatch.
    pub(super) charged_ns: u64,
    /// How long it would have waited if first come were first served.
    pub(super) fcfs_ns: u64,
    pub(super) dispatched_ns: u64,
    pub(super) headed_ns: Option<u64>,
    /// Whether few others ran when it was dispatched.
    pub(super) unpressed: bool,
    /// In observe mode: how long it really took.
    pub(super) took_ns: Option<u64>,
    /// Whom to wake: who waits for the slot, then who waits for the answer.
    pub(super) waker: Option<Waker>,
    /// While its body still comes in.
    pub(super) upload: Option<Arc<UploadClock>>,
    /// How to break off its response.
    pub(super) cut: Option<Arc<dyn Cut>>,
    /// While it waits.
    pub(super) neighbours: Option<Neighbours>,
    /// Where it is in the list of those that the scheduler has chosen.
    chosen_at: u32,
}

impl Place {
    pub(super) fn waiting(ticket: Ticket, ask: &Ask, (asked_ns, cost_ns, fcfs_ns): (u64, u64, u64)) -> Place {
        Place {
            ticket,
            state: State::Waiting,
            who: ask.who(),
            client: ask.client,
            class: ask.class,
            bytes: ask.bytes,
            asked_ns,
            charged_ns: cost_ns,
            fcfs_ns,
            dispatched_ns: 0,
            headed_ns: None,
            unpressed: false,
            took_ns: None,
            waker: None,
            upload: None,
            cut: None,
            neighbours: None,
            chosen_at: 0,
        }
    }

    /// How long the backend has worked on it: what its client took is not counted.
    pub(super) fn worked_ns(&self, now_ns: u64) -> u64 {
        let waited = self.upload.as_ref().map_or(Duration::ZERO, |upload| upload.waited());
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        now_ns.saturating_sub(self.dispatched_ns).saturating_sub(waited_ns)
    }
}

/// All requests.
#[derive(Debug, Default)]
pub(super) struct Places {
    table: Vec<Option<Place>>,
    /// Those that the scheduler has chosen, in no order.
    chosen: Vec<Ticket>,
}

impl Places {
    pub(super) fn take(&mut self, place: Place) {
        let index = place.ticket.index();
        if index >= self.table.len() {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(place);
    }

    /// Whether the ticket still has its place.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        matches!(self.table.get(ticket.index()), Some(Some(place)) if place.ticket == ticket)
    }

    /// The place of a ticket that holds one.
    pub(super) fn at(&self, ticket: Ticket) -> &Place {
        self.table[ticket.index()].as_ref().expect("only tickets that hold a place are looked up")
    }

    /// The place of a ticket that holds one.
    pub(super) fn at_mut(&mut self, ticket: Ticket) -> &mut Place {
        self.table[ticket.index()].as_mut().expect("only tickets that hold a place are looked up")
    }

    pub(super) fn state(&self, ticket: Ticket) -> State {
        self.at(ticket).state
    }

    pub(super) fn grant(&mut self, ticket: Ticket) {
        let at = self.chosen.len() as u32;
        let place = self.at_mut(ticket);
        place.chosen_at = at;
        if place.state == State::Waiting {
            place.state = State::Granted;
        }
        self.chosen.push(ticket);
    }

    pub(super) fn start(&mut self, ticket: Ticket, waker: &Waker) {
        let place = self.at_mut(ticket);
        place.state = State::Running;
        place.waker = Some(waker.clone());
    }

    /// The place is empty from now on.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Place {
        let place = self.table[ticket.index()].take().expect("only tickets that hold a place leave it");
        let at = place.chosen_at as usize;
        if self.chosen.get(at) == Some(&ticket) {
            self.chosen.swap_remove(at);
            if let Some(moved) = self.chosen.get(at).copied() {
                self.at_mut(moved).chosen_at = at as u32;
            }
        }
        place
    }

    /// Those that the scheduler has chosen.
    pub(super) fn running_tickets(&self) -> Vec<Ticket> {
        self.chosen.clone()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.table.iter_mut().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.table.iter().flatten()
    }
}
