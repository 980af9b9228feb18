//! [`Permit`]: the right of a request to occupy a slot of the backend. Dropping it gives the slot back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::fair::Ticket;

use super::ask::{AdmissionRefusal, Cost, Reader};
use super::queue::{Admission, wake};
use super::server_model::ServerVisit;
use super::streams::Owner;
use super::upload::UploadClock;

/// One slot. Dropping it frees the slot and charges the request for the time it was held.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    /// None in observe mode for a request that would have been refused.
    ticket: Option<Ticket>,
    owner: Owner,
    since_ns: u64,
    /// In observe mode: its visit at the server.
    visit: Option<ServerVisit>,
    cost: Cost,
    /// Whether it counts as one of the streams that hold a slot.
    is_stream: bool,
}

impl Permit {
    pub(super) fn new(admission: Arc<Admission>, ticket: Option<Ticket>, owner: Owner, since_ns: u64) -> Permit {
        Permit { admission, ticket, owner, since_ns, visit: None, cost: Cost::Time, is_stream: false }
    }

    /// The same for a request that is only observed.
    pub(super) fn at(mut self, visit: Option<ServerVisit>) -> Permit {
        self.visit = visit;
        self
    }

    /// What it will be charged. In observe mode it is always the time.
    pub fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    /// The request's body is still arriving; this clock measures it.
    pub fn uploads(&self, clock: Arc<UploadClock>) {
        let mut inner = self.admission.lock();
        if let Some(ticket) = self.ticket.filter(|ticket| inner.requests.holds(*ticket)) {
            inner.requests.at_mut(ticket).upload = Some(clock);
        }
    }

    /// The backend has begun to answer, and there is more to come for this client.
    pub fn flows(&self, reader: Arc<dyn Reader>) {
        let now_ns = self.admission.now_ns();
        let mut inner = self.admission.lock();
        if let Some(ticket) = self.ticket.filter(|ticket| inner.requests.holds(*ticket)) {
            inner.answered(ticket, now_ns);
            inner.requests.at_mut(ticket).reader = Some(reader);
        }
    }

    /// The backend has answered, and the remaining time is not its own.
    pub fn answered(&self) {
        let now_ns = self.admission.now_ns();
        let mut inner = self.admission.lock();
        if let Some(ticket) = self.ticket {
            inner.answered(ticket, now_ns);
        }
    }

    /// Since when it is held.
    pub fn since(&self) -> Instant {
        self.admission.start + Duration::from_nanos(self.since_ns)
    }

    /// How long the slot has been held.
    pub fn held(&self) -> Duration {
        Duration::from_nanos(self.admission.now_ns().saturating_sub(self.since_ns))
    }

    /// What requests like this one usually cost.
    pub fn usual_cost(&self) -> Duration {
        let inner = self.admission.lock();
        let ticket = self.ticket.filter(|ticket| inner.requests.holds(*ticket));
        let class = ticket.map(|ticket| inner.requests.at(ticket).class);
        Duration::from_nanos(class.map_or(0, |class| inner.estimates.cost_ns(class)))
    }

    /// The connection has been upgraded, or the response has no end, and it continues to hold its slot. A stream may last for ever, so all
    /// streams together hold at most half of the slots, and no subnet holds more than are left for others: nobody can occupy the whole server by
    /// keeping streams open. Refused if that limit is reached.
    pub fn hold_as_stream(&mut self) -> Result<(), AdmissionRefusal> {
        let mut inner = self.admission.lock();
        let held = self.ticket.is_some_and(|ticket| inner.requests.holds(ticket));
        if !held || inner.shadow.is_some() || self.is_stream {
            return Ok(());
        }
        if !inner.has_room_for_slot_stream(self.owner) {
            inner.counters.refuse(AdmissionRefusal::Streams);
            return Err(AdmissionRefusal::Streams);
        }
        inner.slot_streams.begin(self.owner);
        drop(inner);
        self.is_stream = true;
        Ok(())
    }

    /// The same before the request is sent, if it is known that it will be a stream. If there is no room the slot is given back, and nothing is charged.
    pub fn begin_as_stream(mut self) -> Result<Permit, AdmissionRefusal> {
        match self.hold_as_stream() {
            Ok(()) => Ok(self),
            Err(refused) => {
                self.give_back();
                Err(refused)
            }
        }
    }

    /// Its response has an end after all, so it is not a stream.
    pub fn ends(&mut self) {
        if std::mem::take(&mut self.is_stream) {
            self.admission.lock().slot_streams.end(self.owner);
        }
    }

    /// Whether it counts as one of the streams that hold a slot.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    fn give_back(mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        self.admission.lock().withdraw(ticket, now_ns, &mut wakers);
        wake(wakers);
    }

    /// The connection has been upgraded, or the response has no end: the slot becomes free, and the stream counts until the result is
    /// dropped. Refused if the limit of streams is reached.
    pub fn into_stream(mut self) -> Result<Stream, AdmissionRefusal> {
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.admission.lock();
        let held = self.ticket.filter(|ticket| inner.requests.holds(*ticket));
        let settings = Arc::clone(&inner.settings);
        // In observe mode there are no slots to free, and the number of streams is not limited.
        let counted = inner.shadow.is_none();
        if let Some(ticket) = held.filter(|_| counted) {
            if !inner.streams.has_room(&settings, self.owner) {
                inner.counters.refuse(AdmissionRefusal::Streams);
                drop(inner);
                return Err(AdmissionRefusal::Streams);
            }
            inner.make_stream(ticket, now_ns);
        } else if let Some(visit) = self.visit.take() {
            inner.leave_server(held, visit, now_ns);
        }
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
        self.ticket = None;
        Ok(Stream { admission: Arc::clone(&self.admission), owner: counted.then_some(self.owner) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.ticket.is_none() && self.visit.is_none() {
            return;
        }
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.admission.lock();
        if self.is_stream {
            inner.slot_streams.end(self.owner);
        }
        match (self.visit, self.ticket) {
            (Some(visit), ticket) => inner.leave_server(ticket, visit, now_ns),
            (None, Some(ticket)) => {
                inner.end(ticket, self.cost, now_ns);
            }
            (None, None) => {}
        }
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
    }
}

/// An open stream, as long as this value lives.
#[derive(Debug)]
pub struct Stream {
    admission: Arc<Admission>,
    /// None where streams are not counted.
    owner: Option<Owner>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            self.admission.lock().streams.end(owner);
        }
    }
}
