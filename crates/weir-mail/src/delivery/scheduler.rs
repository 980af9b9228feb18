//! Decides which parcel is delivered next: round robin between senders, a window for each destination, and a bound on all deliveries.
//!
//! A parcel is what one delivery takes: some recipients of one message, one destination. Parcels of one sender for one
//! destination wait in a lane, first come first served. A lane whose destination has room holds a *ticket*; senders
//! with tickets stand in one ring, and each turn of the ring redeems one. A lane that finds its destination full queues
//! there, and every place that becomes free is promised to the lane at the head of that queue, whose sender redeems
//! such a promise before its other tickets. So a sender with a hundred thousand parcels takes every other turn beside a
//! sender with one, at each destination and in all, and a slow destination holds up nobody. Every step costs O(1)
//! amortised (timers O(log n)); parcels that were removed are passed over when their turn comes. Time is passed in;
//! nothing here waits, knows names, or sends.
//!
//! States of a parcel: `Waiting → UnderWay → Deferred → Waiting`, `UnderWay → Waiting` (the destination was not
//! reached), and from any of them to gone; one that is under way goes only by [`Scheduler::complete`].

use std::collections::{BTreeSet, HashMap, VecDeque};

use weir_core::time::Instant;

use super::slots::{Slot, Slots};
use super::window::{Feedback, Window, WindowBounds};

/// Names a parcel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ParcelId(Slot);

/// Names a sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SenderId(pub u64);

/// Names a destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DestinationId(pub u64);

/// What becomes of a parcel after a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It is over.
    Gone,
    /// It waits until then.
    Later(Instant),
    /// It keeps its place: it was not the parcel that failed.
    Again,
}

/// Whose parcel goes next. `P` is whatever the caller keeps with a parcel.
#[derive(Debug)]
pub struct Scheduler<P> {
    bounds: WindowBounds,
    /// The most deliveries at once.
    most: usize,
    under_way: usize,
    parcels: Slots<Parcel<P>>,
    senders: HashMap<SenderId, Sender>,
    destinations: HashMap<DestinationId, Destination>,
    lanes: HashMap<(SenderId, DestinationId), Lane>,
    /// Senders with tickets, each once.
    ring: VecDeque<SenderId>,
    timers: BTreeSet<(Instant, Timer)>,
}

#[derive(Debug)]
struct Parcel<P> {
    sender: SenderId,
    destination: DestinationId,
    state: State,
    load: P,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    UnderWay,
    Deferred(Instant),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Parcel(ParcelId),
    Destination(DestinationId),
}

#[derive(Debug, Default)]
struct Sender {
    /// Where a place is promised, in the order to redeem them.
    promises: VecDeque<DestinationId>,
    /// Where there was room; these are redeemed when there are no promises.
    tickets: VecDeque<DestinationId>,
    in_ring: bool,
    parcels: usize,
}

#[derive(Debug)]
struct Destination {
    window: Window,
    under_way: usize,
    /// Places that are promised, and tickets that are out in all.
    promised: usize,
    tickets: usize,
    /// Senders whose lane found no room, each once.
    ring: VecDeque<SenderId>,
    parcels: usize,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Lane {
    parcels: VecDeque<ParcelId>,
    /// Those of them that were not removed.
    live: usize,
    claim: Claim,
}

/// How a lane stands to its destination. `None → Ticket | Queued`, `Queued → Promise`, and a ticket or promise that
/// is redeemed leads to any of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Claim {
    #[default]
    None,
    Ticket,
    Queued,
    Promise,
}

/// How many parcels there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// In all.
    pub parcels: usize,
    /// Being delivered.
    pub under_way: usize,
    /// Waiting for their next attempt.
    pub deferred: usize,
}

/// How a destination is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestinationLoad {
    /// Which.
    pub id: DestinationId,
    /// Parcels that wait for a place.
    pub waiting: usize,
    /// Deliveries under way.
    pub under_way: usize,
    /// How many may be.
    pub window: u32,
    /// Until when it is left alone.
    pub closed_until: Option<Instant>,
}

impl<P> Scheduler<P> {
    /// At most `most` deliveries at once, each destination within its window.
    pub fn new(most: usize, bounds: WindowBounds) -> Scheduler<P> {
        Scheduler {
            bounds,
            most: most.max(1),
            under_way: 0,
            parcels: Slots::default(),
            senders: HashMap::new(),
            destinations: HashMap::new(),
            lanes: HashMap::new(),
            ring: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// A new parcel, to go at `at` or as soon after as its turn comes.
    pub fn add(
        &mut self,
        load: P,
        (sender, destination): (SenderId, DestinationId),
        at: Instant,
        now: Instant,
    ) -> ParcelId {
        let id = ParcelId(self.parcels.insert(Parcel { sender, destination, state: State::Deferred(at), load }));
        self.senders.entry(sender).or_default().parcels += 1;
        let bounds = self.bounds;
        self.destinations.entry(destination).or_insert_with(|| Destination::new(bounds)).parcels += 1;
        if at <= now {
            self.line_up(id, false);
        } else {
            self.timers.insert((at, Timer::Parcel(id)));
        }
        id
    }

    /// What the caller keeps with a parcel.
    pub fn load(&self, id: ParcelId) -> Option<&P> {
        self.parcels.get(id.0).map(|parcel| &parcel.load)
    }

    /// What the caller keeps with a parcel, to change.
    pub fn load_mut(&mut self, id: ParcelId) -> Option<&mut P> {
        self.parcels.get_mut(id.0).map(|parcel| &mut parcel.load)
    }

    /// The next parcel to deliver, if there is a place for one. Ask until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<(ParcelId, DestinationId)> {
        self.advance(now);
        while self.under_way < self.most {
            let sender = self.ring.pop_front()?;
            if let Some(destination) = self.take_ticket(sender)
                && let Some(id) = self.redeem(sender, destination)
            {
                return Some((id, destination));
            }
        }
        None
    }

    /// A delivery has ended.
    pub fn complete(&mut self, id: ParcelId, then: Then, feedback: Feedback, now: Instant) {
        let Some(parcel) = self.parcels.get(id.0).filter(|parcel| parcel.state == State::UnderWay) else { return };
        let destination = parcel.destination;
        self.under_way -= 1;
        self.feed(destination, feedback, now);
        match then {
            Then::Gone => drop(self.forget(id)),
            Then::Later(at) => self.defer(id, at),
            Then::Again => self.line_up(id, true),
        }
        self.offer(destination);
    }

    /// Takes a parcel out, unless it is under way.
    pub fn remove(&mut self, id: ParcelId) -> Option<P> {
        let parcel = self.parcels.get(id.0)?;
        match parcel.state {
            State::UnderWay => return None,
            State::Deferred(at) => drop(self.timers.remove(&(at, Timer::Parcel(id)))),
            State::Waiting => self.leave_lane(parcel.sender, parcel.destination),
        }
        self.forget(id)
    }

    /// Lets a parcel go as soon as its turn comes, also to a destination that is being left alone.
    pub fn hasten(&mut self, id: ParcelId) {
        let Some(parcel) = self.parcels.get(id.0) else { return };
        let (state, destination) = (parcel.state, parcel.destination);
        if let State::Deferred(at) = state {
            self.timers.remove(&(at, Timer::Parcel(id)));
            self.line_up(id, false);
        }
        self.open(destination);
    }

    /// When to poll again although nothing else has happened.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// When a parcel's next attempt is due; nothing if it is waiting for its turn or under way.
    pub fn deferred_until(&self, id: ParcelId) -> Option<Instant> {
        match self.parcels.get(id.0)?.state {
            State::Deferred(at) => Some(at),
            State::Waiting | State::UnderWay => None,
        }
    }

    /// Whether a parcel is being delivered.
    pub fn is_under_way(&self, id: ParcelId) -> bool {
        self.parcels.get(id.0).is_some_and(|parcel| parcel.state == State::UnderWay)
    }

    /// How many parcels there are.
    pub fn counts(&self) -> Counts {
        let closed =
            self.destinations.values().filter(|destination| destination.window.closed_until().is_some()).count();
        let deferred = self.timers.len().saturating_sub(closed);
        Counts { parcels: self.parcels.len(), under_way: self.under_way, deferred }
    }

    /// How the destinations are doing.
    pub fn loads(&self) -> impl Iterator<Item = DestinationLoad> {
        self.destinations.iter().map(|(id, destination)| DestinationLoad {
            id: *id,
            waiting: destination.waiting,
            under_way: destination.under_way,
            window: destination.window.size(),
            closed_until: destination.window.closed_until(),
        })
    }

    /// Lets everything whose time has come line up.
    fn advance(&mut self, now: Instant) {
        while let Some((at, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Parcel(id) => self.line_up(id, false),
                Timer::Destination(id) => self.open(id),
            }
        }
    }

    /// Puts a parcel into its lane: at the end, or where it was.
    fn line_up(&mut self, id: ParcelId, first: bool) {
        let Some(parcel) = self.parcels.get_mut(id.0) else { return };
        parcel.state = State::Waiting;
        let (sender, destination) = (parcel.sender, parcel.destination);
        let lane = self.lanes.entry((sender, destination)).or_default();
        if first {
            lane.parcels.push_front(id);
        } else {
            lane.parcels.push_back(id);
        }
        lane.live += 1;
        if let Some(destination) = self.destinations.get_mut(&destination) {
            destination.waiting += 1;
        }
        self.claim(sender, destination);
        self.offer(destination);
    }

    /// Lets a lane that has parcels and no claim take a ticket, or queue if there is no room or others queue already.
    fn claim(&mut self, sender: SenderId, id: DestinationId) {
        let Some(lane) = self.lanes.get_mut(&(sender, id)).filter(|lane| lane.claim == Claim::None && lane.live > 0)
        else {
            return;
        };
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        if destination.room() <= destination.promised || !destination.ring.is_empty() {
            lane.claim = Claim::Queued;
            destination.ring.push_back(sender);
            return;
        }
        lane.claim = Claim::Ticket;
        destination.tickets += 1;
        self.enter_ring(sender, |sender| sender.tickets.push_back(id));
    }

    /// Promises free places of a destination to the lanes that queue there.
    fn offer(&mut self, id: DestinationId) {
        while let Some(destination) = self.destinations.get_mut(&id)
            && destination.promised < destination.room()
            && let Some(sender) = destination.ring.pop_front()
        {
            let Some(lane) = self.lanes.get_mut(&(sender, id)) else { continue };
            if lane.live == 0 {
                lane.claim = Claim::None;
                self.drop_if_empty(sender, id);
                continue;
            }
            lane.claim = Claim::Promise;
            destination.tickets += 1;
            destination.promised += 1;
            self.enter_ring(sender, |sender| sender.promises.push_back(id));
        }
    }

    fn enter_ring(&mut self, sender: SenderId, with: impl FnOnce(&mut Sender)) {
        let holder = self.senders.entry(sender).or_default();
        with(holder);
        if !std::mem::replace(&mut holder.in_ring, true) {
            self.ring.push_back(sender);
        }
    }

    /// The sender's next ticket; it goes to the end of the ring if it has more.
    fn take_ticket(&mut self, sender: SenderId) -> Option<DestinationId> {
        let holder = self.senders.get_mut(&sender)?;
        let ticket = holder.promises.pop_front().or_else(|| holder.tickets.pop_front());
        holder.in_ring = !holder.promises.is_empty() || !holder.tickets.is_empty();
        if holder.in_ring {
            self.ring.push_back(sender);
        }
        ticket
    }

    /// Turns a ticket into a delivery. Nothing if there is no room any more or the lane has been emptied.
    fn redeem(&mut self, sender: SenderId, id: DestinationId) -> Option<ParcelId> {
        let destination = self.destinations.get_mut(&id)?;
        let lane = self.lanes.get_mut(&(sender, id))?;
        let promised = std::mem::take(&mut lane.claim) == Claim::Promise;
        destination.tickets -= 1;
        destination.promised -= usize::from(promised);
        let next = if destination.room() > 0 { lane.pop(&self.parcels) } else { None };
        if let Some(parcel) = next.and_then(|next| self.parcels.get_mut(next.0)) {
            parcel.state = State::UnderWay;
            destination.waiting -= 1;
            destination.under_way += 1;
            self.under_way += 1;
        } else if lane.live > 0 {
            // It was this lane's turn, so it still is. Tickets are given only while nobody queues: nobody starves by this.
            lane.claim = Claim::Queued;
            destination.ring.push_front(sender);
        }
        self.claim(sender, id);
        self.offer(id);
        self.drop_if_empty(sender, id);
        next
    }

    fn feed(&mut self, id: DestinationId, feedback: Feedback, now: Instant) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        destination.under_way -= 1;
        let before = destination.window.closed_until();
        destination.window.feed(feedback, destination.under_way, now);
        if let Some(until) = destination.window.closed_until().filter(|_| before.is_none()) {
            self.timers.insert((until, Timer::Destination(id)));
        }
    }

    fn open(&mut self, id: DestinationId) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        if let Some(until) = destination.window.closed_until() {
            self.timers.remove(&(until, Timer::Destination(id)));
            destination.window.open();
        }
        self.offer(id);
    }

    fn defer(&mut self, id: ParcelId, at: Instant) {
        if let Some(parcel) = self.parcels.get_mut(id.0) {
            parcel.state = State::Deferred(at);
            self.timers.insert((at, Timer::Parcel(id)));
        }
    }

    fn leave_lane(&mut self, sender: SenderId, id: DestinationId) {
        if let Some(lane) = self.lanes.get_mut(&(sender, id)) {
            lane.live -= 1;
            if lane.live == 0 {
                lane.parcels.clear();
            }
        }
        if let Some(destination) = self.destinations.get_mut(&id) {
            destination.waiting -= 1;
        }
    }

    fn forget(&mut self, id: ParcelId) -> Option<P> {
        let parcel = self.parcels.remove(id.0)?;
        if let Some(sender) = self.senders.get_mut(&parcel.sender) {
            sender.parcels -= 1;
        }
        if let Some(destination) = self.destinations.get_mut(&parcel.destination) {
            destination.parcels -= 1;
        }
        self.drop_if_empty(parcel.sender, parcel.destination);
        Some(parcel.load)
    }

    /// Lanes, senders and destinations with nothing left cost nothing.
    fn drop_if_empty(&mut self, sender: SenderId, id: DestinationId) {
        if self.lanes.get(&(sender, id)).is_some_and(Lane::is_idle) {
            self.lanes.remove(&(sender, id));
        }
        if self.senders.get(&sender).is_some_and(|sender| sender.parcels == 0 && !sender.in_ring) {
            self.senders.remove(&sender);
        }
        let Some(destination) = self.destinations.get(&id).filter(|place| place.parcels == 0 && place.tickets == 0)
        else {
            return;
        };
        if let Some(until) = destination.window.closed_until() {
            self.timers.remove(&(until, Timer::Destination(id)));
        }
        // Its ring may still name lanes whose parcels were all removed.
        let ring = self.destinations.remove(&id).map(|destination| destination.ring).unwrap_or_default();
        ring.into_iter().for_each(|sender| drop(self.lanes.remove(&(sender, id))));
    }
}

impl Destination {
    fn new(bounds: WindowBounds) -> Destination {
        Destination {
            window: Window::new(bounds),
            under_way: 0,
            promised: 0,
            tickets: 0,
            ring: VecDeque::new(),
            parcels: 0,
            waiting: 0,
        }
    }

    /// How many more deliveries may run.
    fn room(&self) -> usize {
        (self.window.size() as usize).saturating_sub(self.under_way)
    }
}

impl Lane {
    /// The next parcel that was not removed.
    fn pop<P>(&mut self, parcels: &Slots<Parcel<P>>) -> Option<ParcelId> {
        let next = std::iter::from_fn(|| self.parcels.pop_front()).find(|id| parcels.get(id.0).is_some());
        self.live -= usize::from(next.is_some());
        next
    }

    fn is_idle(&self) -> bool {
        self.live == 0 && self.claim == Claim::None
    }
}

#[cfg(test)]
mod tests;
