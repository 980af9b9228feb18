//! Observe mode: everybody passes at once, and a shadow of the queue computes who would have waited.
//!
//! In the shadow a request takes as long as the server really worked on it ([`super::server_model`]), but begins when the scheduler would have let it begin. So its
//! end in the shadow may come after its real end; those ends are kept in order of time and played when anything happens.
//! A request that would have waited for longer than the queue's timeout, or been pushed out of it, is counted and taken out.

use std::cmp::Reverse;

use weir_core::fair::{Ticket, Work};

use super::ask::AdmissionRefusal;
use super::counters::History;
use super::queue::QueueState;
use super::request_table::State;
use super::server_model::ServerVisit;
use super::settings::Settings;
use super::standing;

impl QueueState {
    /// Applies the ends that are due to the shadow queue.
    pub(super) fn end_shadows(&mut self, now_ns: u64) {
        let mut nobody = Vec::new();
        while let Some((at_ns, ticket)) = self.due(now_ns) {
            if self.requests.holds(ticket) {
                let request = self.requests.leave(ticket);
                self.fair.finish(ticket, Work(request.took_ns.unwrap_or(0)));
                while self.grant_next(at_ns, &mut nobody) {}
            }
        }
    }

    fn due(&mut self, now_ns: u64) -> Option<(u64, Ticket)> {
        let ends = &mut self.shadow.as_mut()?.ends;
        let Reverse((at_ns, _)) = *ends.peek()?;
        if at_ns > now_ns {
            return None;
        }
        ends.pop().map(|Reverse(end)| end)
    }

    /// A request is sent to the server.
    pub(super) fn begin_observed(&mut self, now_ns: u64) -> Option<ServerVisit> {
        let slots = self.slots;
        self.shadow.as_mut().map(|shadow| shadow.server.arrive(slots, now_ns))
    }

    /// A request has really ended, whatever happened to it in the shadow queue.
    pub(super) fn leave_server(&mut self, ticket: Option<Ticket>, visit: ServerVisit, now_ns: u64) {
        let slots = self.slots;
        let Some(took_ns) = self.shadow.as_mut().map(|shadow| shadow.server.end(visit, slots, now_ns)) else { return };
        if let Some(ticket) = ticket.filter(|ticket| self.requests.holds(*ticket)) {
            self.end_observed(ticket, took_ns);
        }
    }

    /// In the shadow queue a request ends as long after its dispatch as the server worked on it.
    fn end_observed(&mut self, ticket: Ticket, took_ns: u64) {
        let dispatched = self.is_dispatched(ticket);
        let request = self.requests.at_mut(ticket);
        request.took_ns = Some(took_ns);
        let (class, subnet, at_ns) =
            (request.class, request.owner.subnet, request.dispatched_ns.saturating_add(took_ns));
        let standing = standing::place(request.lane);
        self.estimates.ended(class, took_ns);
        self.counters.finish(took_ns, History::of(self.profile.history(subnet)), standing);
        if let (true, Some(shadow)) = (dispatched, &mut self.shadow) {
            shadow.ends.push(Reverse((at_ns, ticket)));
        }
    }

    fn is_dispatched(&self, ticket: Ticket) -> bool {
        self.requests.at(ticket).dispatched_ns > 0
    }

    /// Removes those that would have waited for too long.
    pub(super) fn expire_shadow(&mut self, settings: &Settings, now_ns: u64) {
        if self.shadow.is_none() {
            return;
        }
        let waiting = self.requests.iter().filter(|request| {
            let patience = request.patience.min(settings.queue_timeout);
            request.dispatched_ns == 0 && u128::from(now_ns.saturating_sub(request.asked_ns)) > patience.as_nanos()
        });
        let expired: Vec<Ticket> = waiting.map(|request| request.ticket).collect();
        for ticket in expired {
            debug_assert_eq!(self.requests.state(ticket), State::Running);
            self.end_waiting(ticket);
            self.fair.cancel(ticket);
            self.requests.leave(ticket);
            self.counters.refuse(AdmissionRefusal::Timeout);
        }
    }
}
