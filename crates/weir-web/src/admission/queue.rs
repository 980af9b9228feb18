//! The state of one backend's queue: the scheduler and the backlog of the core, and what is known of each request beside them.
//!
//! One short lock around [`QueueState`]. Every method of it takes the time, and collects the wakers that are to be woken once the lock is released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::fair::{Fair, FairRefusal, Profile, QueueBounds, Room, Scarce, Ticket, Work};

use super::ask::{AdmissionRefusal, Ask, Cost};
use super::counters::{Counters, History};
use super::estimate::{Class, Estimates, Moved};
use super::incarnations;
use super::limit::Limit;
use super::places::Places;
use super::rate::Rate;
use super::request_table::{Arrival, RequestEntry, RequestTable, State};
use super::settings::{Settings, Slots};
use super::shadow::Shadow;
use super::standing;
use super::strain::Strain;
use super::streams::{Owner, Streams};
use super::waiting_room::WaitingRoom;
use crate::exchange::QueueId;

/// The fair queue of one backend.
#[derive(Debug)]
pub struct Admission {
    pub(super) name: String,
    pub(super) queue_id: QueueId,
    pub(super) observe: bool,
    pub(super) start: Instant,
    /// Where newcomers wait until it is their turn to ask.
    pub(super) room: Arc<WaitingRoom>,
    pub(super) inner: Mutex<QueueState>,
}

/// The state behind the lock.
#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) settings: Arc<Settings>,
    pub(super) fair: Fair,
    pub(super) requests: RequestTable,
    pub(super) estimates: Estimates,
    /// None where the number of slots is fixed.
    pub(super) limit: Option<Limit>,
    pub(super) slots: u32,
    /// Estimated cost of all that waits.
    pub(super) waiting_ns: u64,
    pub(super) backlog: Places,
    pub(super) streams: Streams,
    /// Streams that hold a slot.
    pub(super) slot_streams: Streams,
    pub(super) shadow: Option<Shadow>,
    pub(super) counters: Counters,
    /// How fast strangers are served while some wait.
    pub(super) strangers_rate: Rate,
    pub(super) strain: Strain,
    pub(super) profile: Arc<Profile>,
    /// The number of incarnations that other queues of this process know of.
    pub(super) incarnations: u32,
}

impl Admission {
    /// Nanoseconds since just before the start: never zero, which stands for "not yet".
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// The first number of slots, and the search for the right number. If a number was in use before, the search continues from it.
pub(super) fn slots_of(settings: &Settings, used: Option<u32>) -> (u32, Option<Limit>) {
    match settings.slots {
        Slots::Fixed(slots) => (slots, None),
        Slots::Auto { start, least, most } => {
            let start = used.unwrap_or(start).clamp(least, most);
            (start, (!settings.observe).then(|| Limit::new(start, least, most)))
        }
    }
}

impl QueueState {
    pub(super) fn change(&mut self, settings: Settings, routes: &[Option<u16>]) {
        if settings.slots != self.settings.slots {
            (self.slots, self.limit) = slots_of(&settings, Some(self.slots));
        }
        self.estimates.change(routes, settings.first_estimate, settings.debt_cap);
        self.estimates.tell(&settings.route_costs);
        let moved = Moved::new(routes);
        self.requests.iter_mut().for_each(|request| request.class = request.class.after(&moved));
        self.fair.change(settings.fair(self.slots));
        if settings.strangers != self.settings.strangers || settings.weights != self.settings.weights {
            self.fair.set_profile(standing::with_strangers(Profile::clone(&self.profile), &settings));
        }
        self.settings = Arc::new(settings);
    }

    pub(super) fn arrive(
        &mut self,
        ask: &Ask,
        now_ns: u64,
        wakers: &mut Vec<Waker>,
    ) -> Result<Ticket, AdmissionRefusal> {
        self.counters.asked += 1;
        let lane = standing::lane(ask, &self.profile, &self.settings);
        if let Err(refused) = self.find_room(lane, ask, wakers) {
            self.counters.refuse(refused);
            return Err(refused);
        }
        let cost_ns = self.estimates.cost_ns(ask.class);
        let ticket = self.fair.arrive(lane.session, lane.subnet, Work(cost_ns)).map_err(|refusal| {
            let refused = match refusal {
                FairRefusal::TooManyRequests => AdmissionRefusal::QueueFull,
                FairRefusal::TooManySessions | FairRefusal::TooManyPeers => AdmissionRefusal::Sessions,
            };
            self.counters.refuse(refused);
            refused
        })?;
        let fcfs_ns = self.waiting_ns / u64::from(self.slots.max(1));
        self.requests.take(RequestEntry::waiting(ticket, ask, lane, Arrival { now_ns, cost_ns, fcfs_ns }));
        self.waiting_ns = self.waiting_ns.saturating_add(cost_ns);
        Ok(ticket)
    }

    /// Makes sure that one more request may wait. If there is no room, the subnet with the longest backlog loses a request.
    pub(super) fn find_room(
        &mut self,
        lane: Owner,
        ask: &Ask,
        wakers: &mut Vec<Waker>,
    ) -> Result<(), AdmissionRefusal> {
        if self.fair.running() < self.slots as usize {
            return Ok(());
        }
        let bounds = QueueBounds { requests: self.settings.queue.into(), bytes: self.settings.queue_bytes };
        loop {
            match self.backlog.room(lane, ask.subnet, ask.bytes, bounds) {
                Room::Enough => return Ok(()),
                Room::After(ticket) => self.evict(ticket, wakers),
                Room::None(Scarce::Bytes) => return Err(AdmissionRefusal::QueueBytes),
                Room::None(Scarce::Requests) => return Err(AdmissionRefusal::QueueFull),
            }
        }
    }

    /// Drops a waiting request to make room for another.
    fn evict(&mut self, ticket: Ticket, wakers: &mut Vec<Waker>) {
        self.end_waiting(ticket);
        self.fair.cancel(ticket);
        let request = self.requests.leave(ticket);
        // In observe mode it continues.
        if request.state == State::Waiting {
            wakers.extend(request.waker);
        }
        self.counters.refuse(AdmissionRefusal::PushedOut);
    }

    /// A new request waits, unless it has got a slot at once.
    pub(super) fn begin_waiting(&mut self, ticket: Ticket) {
        let request = self.requests.at(ticket);
        if request.dispatched_ns == 0 {
            self.backlog.join(ticket, request.lane, request.owner.subnet, request.bytes);
        }
    }

    /// A request stops waiting: it was chosen, or it leaves.
    pub(super) fn end_waiting(&mut self, ticket: Ticket) {
        let request = self.requests.at(ticket);
        self.waiting_ns = self.waiting_ns.saturating_sub(request.charged_ns);
        self.backlog.leave(ticket);
    }

    /// Gives the free slots to the next requests.
    pub(super) fn pump(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) {
        self.end_shadows(now_ns);
        while self.grant_next(now_ns, wakers) {}
        self.strangers_rate.set_busy(self.backlog.strangers() > 0, now_ns);
    }

    /// Gives a free slot to the request that the fair queue chooses. Returns whether there was a slot and a request.
    pub(super) fn grant_next(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) -> bool {
        let running = self.fair.running() as u32;
        let Some(ticket) = self.fair.dispatch() else { return false };
        let unloaded = match &self.limit {
            Some(limit) => limit.is_unloaded(running),
            None => 2 * (running + 1) <= self.slots,
        };
        self.end_waiting(ticket);
        let request = self.requests.at_mut(ticket);
        (request.dispatched_ns, request.unloaded) = (now_ns, unloaded);
        let wait_ns = now_ns.saturating_sub(request.asked_ns);
        self.counters.dispatch(wait_ns, request.fcfs_ns);
        if standing::is_stranger(request.lane) {
            self.strangers_rate.count(now_ns);
        }
        // In observe mode it runs already.
        if request.state == State::Waiting {
            wakers.extend(request.waker.take());
        }
        self.requests.grant(ticket);
        if let Some(shadow) = &mut self.shadow {
            shadow.dispatched(&mut self.requests, ticket, now_ns);
        }
        true
    }

    /// The client of a waiting request has left, or its time is over. A slot that was granted but not fetched yet counts as waiting.
    /// Returns whether the request was still in the table.
    pub(super) fn withdraw(&mut self, ticket: Ticket, now_ns: u64, wakers: &mut Vec<Waker>) -> bool {
        if !self.requests.holds(ticket) {
            return false;
        }
        if self.fair.cancel(ticket) {
            self.end_waiting(ticket);
        } else {
            self.fair.finish(ticket, Work::ZERO);
        }
        self.requests.leave(ticket);
        self.pump(now_ns, wakers);
        true
    }

    /// The backend's first byte is here.
    pub(super) fn answered(&mut self, ticket: Ticket, now_ns: u64) {
        if !self.requests.holds(ticket) {
            return;
        }
        let request = self.requests.at_mut(ticket);
        if request.first_byte_ns.replace(now_ns).is_some() {
            return;
        }
        let (class, subnet, unloaded) = (request.class, request.owner.subnet, request.unloaded);
        let (took_ns, full) = (request.worked_ns(now_ns), self.fair.running() as u32 >= self.slots);
        let Some(limit) = &mut self.limit else {
            // If responses tell their cost, the usual cost is not a time and cannot be compared.
            if (unloaded || full) && !self.tells_cost(class) {
                let usual_ns = self.estimates.cost_ns(class).max(1);
                self.strain.note(took_ns as f64 / usual_ns as f64, !unloaded);
            }
            return;
        };
        if unloaded {
            self.estimates.answered_unloaded(class, subnet, now_ns, took_ns);
            limit.answered_unloaded();
        } else if let Some(unloaded_ns) = self.estimates.unloaded_ns(class, subnet, now_ns) {
            limit.answered(subnet, took_ns, unloaded_ns);
        }
    }

    /// A running request has ended. Returns whether it still held its slot.
    pub(super) fn end(&mut self, ticket: Ticket, cost: Cost, now_ns: u64) -> bool {
        if !self.requests.holds(ticket) {
            return false;
        }
        self.answered(ticket, now_ns);
        let request = self.requests.leave(ticket);
        let took_ns = now_ns.saturating_sub(request.dispatched_ns);
        let (charged_ns, usual_ns) = match cost {
            Cost::Time => (took_ns, request.worked_ns(now_ns)),
            Cost::TimeOrUsual => (took_ns.max(self.estimates.cost_ns(request.class)), request.worked_ns(now_ns)),
            Cost::Told(told) => (ns(told), ns(told)),
        };
        if let Cost::Told(told) = cost {
            self.note_strain_of_units(&request, ns(told), now_ns);
        }
        if cost != Cost::TimeOrUsual {
            self.estimates.ended(request.class, usual_ns);
        }
        self.fair.finish(ticket, Work(charged_ns));
        let history = History::of(self.profile.history(request.owner.subnet));
        self.counters.finish(took_ns, history, standing::place(request.lane));
        true
    }

    /// Whether the responses of this class tell what they have cost.
    fn tells_cost(&self, class: Class) -> bool {
        self.settings.route_units.get(class.route()).copied().unwrap_or(false)
    }

    /// Such a response is long, so it counts only if slots were free (or all in use) from its beginning to its end. The request still counts
    /// among those that run.
    fn note_strain_of_units(&mut self, request: &RequestEntry, told_ns: u64, now_ns: u64) {
        let running = self.fair.running() as u32;
        let (relaxed, pressed) = (2 * running <= self.slots, running >= self.slots);
        let steady = if request.unloaded { relaxed } else { pressed };
        if steady && self.tells_cost(request.class) {
            self.strain.note_told(request.worked_ns(now_ns), told_ns, !request.unloaded);
        }
    }

    pub(super) fn charge_overrun(&mut self, ticket: Ticket, now_ns: u64) {
        let request = self.requests.at_mut(ticket);
        let running_ns = match (&self.shadow, request.visit) {
            (Some(shadow), Some(visit)) => shadow.server.worked_ns(visit, now_ns),
            _ => now_ns.saturating_sub(request.dispatched_ns),
        };
        let extra_ns = running_ns.saturating_sub(request.charged_ns);
        if extra_ns > 0 && request.took_ns.is_none() {
            request.charged_ns += extra_ns;
            self.fair.overrun(ticket, Work(extra_ns));
        }
    }

    /// Wakes the task of a request whose response is late, so that it looks at the time.
    pub(super) fn wake_if_late(&self, ticket: Ticket, limit: Duration, now_ns: u64) {
        let request = self.requests.at(ticket);
        let running_ns = now_ns.saturating_sub(request.dispatched_ns);
        if request.first_byte_ns.is_none() && u128::from(running_ns) >= limit.as_nanos() {
            request.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Takes away a slot whose server has waited long for its client, as soon as another request waits for a slot. The client does not send
    /// its upload, or does not read its response and no buffer has room for it.
    pub(super) fn release_if_idle(&mut self, settings: &Settings, ticket: Ticket) {
        if self.shadow.is_some() {
            return;
        }
        if self.fair.waiting() == 0 {
            return;
        }
        let request = self.requests.at_mut(ticket);
        if request.first_byte_ns.is_none() {
            let slow = request.upload.as_ref().filter(|upload| upload.waited() >= settings.stream_after);
            if slow.is_some_and(|upload| upload.cut()) {
                self.counters.refuse(AdmissionRefusal::Upload);
            }
        } else if let Some(reader) = request.reader.take_if(|reader| reader.blocked() >= settings.stream_after) {
            reader.cut();
            self.counters.refuse(AdmissionRefusal::Reading);
        }
    }

    /// The slot becomes free, and there is one more stream.
    pub(super) fn make_stream(&mut self, ticket: Ticket, now_ns: u64) {
        let owner = self.requests.at(ticket).owner;
        if self.end(ticket, Cost::Time, now_ns) {
            self.streams.begin(owner);
        }
    }

    /// Whether one more stream may hold a slot: all of them together hold half.
    pub(super) fn has_room_for_slot_stream(&self, owner: Owner) -> bool {
        self.slot_streams.has_room_of((self.slots / 2).max(1), &self.settings, owner)
    }

    /// Tells the process which incarnations are used, so that the next queue starts above them.
    pub(super) fn report_incarnations(&mut self) {
        let now = self.fair.lives();
        incarnations::used(now.wrapping_sub(std::mem::replace(&mut self.incarnations, now)));
    }

    pub(super) fn adjust_slots(&mut self, now_ns: u64) {
        let Some(limit) = &mut self.limit else { return };
        limit.look(now_ns, self.fair.running() as u32, self.fair.waiting() > 0);
        if limit.slots() != self.slots {
            self.slots = limit.slots();
            self.fair.set_slots(self.slots);
        }
    }
}
