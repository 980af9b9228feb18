//! The requests of one backend that wait or run, in a table by their ticket's index.
//!
//! Constant time. An entry belongs to a ticket until it is removed; an older ticket of the same index finds nothing.
//! The table is as long as there were requests at once, which the scheduler bounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use weir_core::fair::Ticket;

use super::ask::{Ask, Reader};
use super::estimate::Class;
use super::server_model::ServerVisit;
use super::streams::Owner;
use super::upload::UploadClock;

/// Waiting → Granted (the scheduler has chosen it) → Running (its task knows), or any of them → gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Waiting,
    Granted,
    Running,
}

#[derive(Clone, Debug)]
pub(super) struct RequestEntry {
    pub(super) ticket: Ticket,
    pub(super) state: State,
    pub(super) owner: Owner,
    /// The session and subnet under which it is queued.
    pub(super) lane: Owner,
    pub(super) client: IpAddr,
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) patience: Duration,
    pub(super) asked_ns: u64,
    /// What has been charged, or will be at dispatch.
    pub(super) charged_ns: u64,
    /// How long it would have waited if first come were first served.
    pub(super) fcfs_ns: u64,
    pub(super) dispatched_ns: u64,
    pub(super) first_byte_ns: Option<u64>,
    /// Whether few others ran when it was dispatched.
    pub(super) unloaded: bool,
    /// In observe mode: how long the server worked on it, and its visit there.
    pub(super) took_ns: Option<u64>,
    pub(super) visit: Option<ServerVisit>,
    /// The task to wake: first the one that waits for the slot, then the one that waits for the response.
    pub(super) waker: Option<Waker>,
    /// While its body is still arriving.
    pub(super) upload: Option<Arc<UploadClock>>,
    /// The client side of its response, once it streams.
    pub(super) reader: Option<Arc<dyn Reader>>,
    /// Its position in the list of those that the scheduler has chosen.
    chosen_at: u32,
}

/// What is known of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now_ns: u64,
    pub(super) cost_ns: u64,
    /// How long it would wait if first come were first served.
    pub(super) fcfs_ns: u64,
}

impl RequestEntry {
    pub(super) fn waiting(ticket: Ticket, ask: &Ask, lane: Owner, arrival: Arrival) -> RequestEntry {
        RequestEntry {
            ticket,
            state: State::Waiting,
            owner: ask.owner(),
            lane,
            client: ask.client,
            class: ask.class,
            bytes: ask.bytes,
            patience: ask.patience,
            asked_ns: arrival.now_ns,
            charged_ns: arrival.cost_ns,
            fcfs_ns: arrival.fcfs_ns,
            dispatched_ns: 0,
            first_byte_ns: None,
            unloaded: false,
            took_ns: None,
            visit: None,
            waker: None,
            upload: None,
            reader: None,
            chosen_at: 0,
        }
    }

    /// How long the backend has worked on it, without the time that its client took.
    pub(super) fn worked_ns(&self, now_ns: u64) -> u64 {
        let waited = self.upload.as_ref().map_or(Duration::ZERO, |upload| upload.waited());
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        now_ns.saturating_sub(self.dispatched_ns).saturating_sub(waited_ns)
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestTable {
    table: Vec<Option<RequestEntry>>,
    /// Those that the scheduler has chosen, in no order.
    chosen: Vec<Ticket>,
}

impl RequestTable {
    pub(super) fn take(&mut self, request: RequestEntry) {
        let index = request.ticket.index();
        if index >= self.table.len() {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(request);
    }

    /// Whether the ticket still has its entry.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        matches!(self.table.get(ticket.index()), Some(Some(request)) if request.ticket == ticket)
    }

    /// The entry of a ticket that has one.
    pub(super) fn at(&self, ticket: Ticket) -> &RequestEntry {
        self.table[ticket.index()].as_ref().expect("only tickets that have an entry are looked up")
    }

    /// The entry of a ticket that has one.
    pub(super) fn at_mut(&mut self, ticket: Ticket) -> &mut RequestEntry {
        self.table[ticket.index()].as_mut().expect("only tickets that have an entry are looked up")
    }

    pub(super) fn state(&self, ticket: Ticket) -> State {
        self.at(ticket).state
    }

    pub(super) fn grant(&mut self, ticket: Ticket) {
        let at = self.chosen.len() as u32;
        let request = self.at_mut(ticket);
        request.chosen_at = at;
        if request.state == State::Waiting {
            request.state = State::Granted;
        }
        self.chosen.push(ticket);
    }

    pub(super) fn start(&mut self, ticket: Ticket, waker: &Waker) {
        let request = self.at_mut(ticket);
        request.state = State::Running;
        request.waker = Some(waker.clone());
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> RequestEntry {
        let request = self.table[ticket.index()].take().expect("only tickets that have an entry are removed");
        let at = request.chosen_at as usize;
        if self.chosen.get(at) == Some(&ticket) {
            self.chosen.swap_remove(at);
            if let Some(moved) = self.chosen.get(at).copied() {
                self.at_mut(moved).chosen_at = at as u32;
            }
        }
        request
    }

    /// Those that the scheduler has chosen.
    pub(super) fn running_tickets(&self) -> Vec<Ticket> {
        self.chosen.clone()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RequestEntry> {
        self.table.iter_mut().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RequestEntry> {
        self.table.iter().flatten()
    }
}
