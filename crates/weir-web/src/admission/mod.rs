//! Who may use the backend next: the fair queue with its slots, costs and bounds.
//!
//! One [`Admission`] a backend, shared by all proxy threads behind one short lock. Whoever has a request asks; below
//! saturation the answer is a [`Permit`] at once, with no await and no wake-up. Otherwise it is a [`Waiting`], a future that
//! the scheduler ([`weir_core::fair`]) resolves in the order of distributed fair queueing, or that ends by timeout. The
//! permit is the slot: it is held until the backend has answered, and given back when it is dropped.
//!
//! Cost is slot time: an estimate at dispatch ([`estimate`]), charged further every 100 ms while a request overruns, and made
//! true at its end. A response that goes on for long after its first byte, and every upgraded connection, stops being a
//! request and becomes a *stream*: the slot is free, and streams are bounded (`streams`). Where there may be no more of them, and while an
//! upload waits for its own client (`upload`), the slot is taken away as soon as anybody else needs it.
//!
//! Invariants: every ticket is ended exactly once; a waiting request that is dropped leaves nothing behind and is charged
//! nothing; bytes and requests that wait are bounded, and no subnet keeps another out by filling the queue (`crowd`). In observe
//! mode nobody waits, and the same scheduler computes who would have (`observe`).

mod board;
mod counters;
mod crowd;
pub mod estimate;
mod limit;
mod lives;
mod observe;
mod permit;
mod place;
mod settings;
mod streams;
mod upload;
mod view;
mod waiting;

pub use counters::{CounterValues, History, WAIT_BOUNDS_MS};
pub use estimate::Class;
pub use permit::{Permit, Stream};
pub use settings::{Settings, Slots};
pub use upload::UploadClock;
pub use view::{SessionView, View};
pub use waiting::Waiting;

use crate::exchange::BoardId;
use counters::Counters;
use crowd::{Crowd, Scarce};
use estimate::{Estimates, Moved};
use limit::Limit;
use observe::Shadow;
use place::{Place, Places, State};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use streams::{Streams, Who};
use tokio::time::Instant;
use weir_core::fair::{self, Fair, Profile, Refusal, SessionKey, SubnetKey, Ticket, Weight, Work};

/// The fair queue of one backend.
#[derive(Debug)]
pub struct Admission {
    name: String,
    board: BoardId,
    observe: bool,
    start: Instant,
    inner: Mutex<Inner>,
}

/// What is behind the lock.
#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    fair: Fair,
    places: Places,
    estimates: Estimates,
    /// None where the number of slots is fixed.
    limit: Option<Limit>,
    slots: u32,
    waiting_bytes: u64,
    /// Estimated cost of all that waits.
    waiting_ns: u64,
    crowd: Crowd,
    streams: Streams,
    shadow: Option<Shadow>,
    counters: Counters,
    profile: Arc<Profile>,
    /// As far as they are told to the next queue.
    lives: u32,
}

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The session that pays.
    pub session: SessionKey,
    /// Its subnet.
    pub subnet: SubnetKey,
    /// Shown in views.
    pub client: IpAddr,
    /// What it is expected to cost.
    pub class: Class,
    /// What it keeps in memory while it waits.
    pub bytes: u32,
}

impl Ask {
    fn who(&self) -> Who {
        Who { session: self.session, subnet: self.subnet }
    }
}

/// A response that can be broken off.
pub trait Cut: fmt::Debug + Send + Sync {
    /// Breaks it off.
    fn cut(&self);
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Entry {
    /// A slot is free.
    Now(Permit),
    /// The request waits for one.
    Wait(Waiting),
}

/// Why a request may not even wait, or not any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// As many wait as may, and no other subnet has more of them.
    QueueFull,
    /// What waits takes as much memory as it may, and no other subnet has more of it.
    QueueBytes,
    /// As many sessions are known as may be, and none is idle.
    Sessions,
    /// There are as many open streams as there may be: of the session, of its subnet, or in all.
    Streams,
    /// It waited for as long as it may.
    Timeout,
    /// Its body came so slowly that its slot went to somebody else.
    Upload,
    /// The queue was full, and somebody of a subnet that has less waiting came.
    PushedOut,
}

impl Refused {
    /// All reasons, in the order of the counters.
    pub const ALL: [Refused; 7] = [
        Refused::QueueFull,
        Refused::QueueBytes,
        Refused::Sessions,
        Refused::Streams,
        Refused::Timeout,
        Refused::Upload,
        Refused::PushedOut,
    ];

    /// The reason in one word, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Refused::QueueFull => "queue_full",
            Refused::QueueBytes => "queue_bytes",
            Refused::Sessions => "sessions",
            Refused::Streams => "streams",
            Refused::Timeout => "timeout",
            Refused::Upload => "upload",
            Refused::PushedOut => "pushed_out",
        }
    }
}

/// How often [`Admission::tick`] wants to be called.
pub const TICK: Duration = Duration::from_millis(100);

impl Admission {
    /// An empty queue.
    pub fn new(settings: Settings) -> Arc<Admission> {
        let settings = settings.bounded();
        let (slots, limit) = slots_of(&settings, None);
        let (name, board, observe) = (settings.name.clone(), settings.board, settings.observe);
        let lives = lives::first();
        let inner = Inner {
            fair: Fair::new(fair::Settings { first_life: lives, ..settings.fair(slots) }, Profile::default()),
            places: Places::default(),
            estimates: Estimates::new(settings.routes, settings.first_estimate, settings.debt_cap),
            limit,
            slots,
            waiting_bytes: 0,
            waiting_ns: 0,
            crowd: Crowd::default(),
            streams: Streams::default(),
            shadow: settings.observe.then(Shadow::default),
            counters: Counters::default(),
            profile: Arc::default(),
            lives,
            settings: Arc::new(settings),
        };
        Arc::new(Admission { name, board, observe, start: Instant::now(), inner: Mutex::new(inner) })
    }

    /// Changes how the queue is set up; whoever waits or runs keeps its place. `routes` says for each route from now on which number it had
    /// before, so that what was measured of it stays with it. Name and observe mode cannot be changed.
    pub fn change(&self, settings: &Settings, routes: &[Option<u16>]) {
        let settings = Settings { name: self.name.clone(), board: self.board, observe: self.observe, ..*settings };
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        inner.change(settings.bounded(), routes);
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
    }

    /// Whether nobody is made to wait here.
    pub fn observes(&self) -> bool {
        self.observe
    }

    /// Whether nothing waits, runs or streams.
    pub fn is_idle(&self) -> bool {
        let inner = self.lock();
        inner.fair.waiting() == 0 && inner.fair.running() == 0 && inner.streams.open() == 0
    }

    /// Whether other front-ends are still to hear of something.
    pub fn has_news(&self) -> bool {
        self.lock().fair.has_reports()
    }

    /// Asks for a slot. `waker` is woken at every tick if the request still runs without an answer after `answer_within`,
    /// so that its task needs no timer; not in observe mode.
    pub fn ask(self: &Arc<Admission>, ask: &Ask, waker: &Waker) -> Result<Entry, Refused> {
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let ticket = match inner.arrive(ask, now_ns, &mut wakers) {
            Ok(ticket) => ticket,
            Err(refused) => {
                drop(inner);
                wake(wakers);
                // Counted, and served all the same.
                let served = self.observe.then(|| Permit::new(Arc::clone(self), None, ask.who(), now_ns));
                return served.map(Entry::Now).ok_or(refused);
            }
        };
        inner.pump(now_ns, &mut wakers);
        inner.begin_waiting(ticket);
        let running = inner.places.state(ticket) == State::Granted;
        if running || inner.shadow.is_some() {
            inner.places.start(ticket, waker);
        }
        let timeout = inner.settings.queue_timeout;
        drop(inner);
        wake(wakers);
        if running || self.observe {
            return Ok(Entry::Now(Permit::new(Arc::clone(self), Some(ticket), ask.who(), now_ns)));
        }
        let deadline = Instant::now() + timeout;
        Ok(Entry::Wait(Waiting::new(Arc::clone(self), ticket, ask.who(), deadline)))
    }

    /// Charges overruns, takes slots from those who wait for their clients, and looks for the right number of slots. To be called every
    /// [`TICK`].
    pub fn tick(&self) {
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let settings = Arc::clone(&inner.settings);
        inner.expire_shadow(&settings, now_ns);
        for ticket in inner.places.running_tickets() {
            inner.charge_overrun(ticket, now_ns);
            inner.wake_if_late(ticket, settings.answer_within, now_ns);
            inner.let_go_if_long(&settings, ticket, now_ns);
        }
        inner.look(now_ns);
        inner.tell_lives();
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
    }

    /// The backend's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How this queue is set up.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.lock().settings)
    }

    /// How long a client that is refused now should stay away.
    pub fn retry_after(&self) -> Duration {
        let inner = self.lock();
        let drain_ns = inner.waiting_ns / u64::from(inner.slots.max(1));
        Duration::from_nanos(drain_ns).clamp(Duration::from_secs(1), Duration::from_secs(120))
    }

    /// The weight of each session of a subnet, if one is remembered.
    pub fn weight(&self, subnet: SubnetKey) -> Option<Weight> {
        self.lock().fair.weight(subnet)
    }

    /// Nanoseconds since just before the start: never zero, which stands for "not yet".
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// How many slots there are at first, and who looks for the right number. One that was in use is where the search goes on.
fn slots_of(settings: &Settings, used: Option<u32>) -> (u32, Option<Limit>) {
    match settings.slots {
        Slots::Fixed(slots) => (slots, None),
        Slots::Auto { start, least, most } => {
            let start = used.unwrap_or(start).clamp(least, most);
            (start, (!settings.observe).then(|| Limit::new(start, least, most)))
        }
    }
}

impl Inner {
    fn change(&mut self, settings: Settings, routes: &[Option<u16>]) {
        if settings.slots != self.settings.slots {
            (self.slots, self.limit) = slots_of(&settings, Some(self.slots));
        }
        self.estimates.change(routes, settings.first_estimate, settings.debt_cap);
        let moved = Moved::new(routes);
        self.places.iter_mut().for_each(|place| place.class = place.class.after(&moved));
        self.fair.change(settings.fair(self.slots));
        self.settings = Arc::new(settings);
    }

    fn arrive(&mut self, ask: &Ask, now_ns: u64, wakers: &mut Vec<Waker>) -> Result<Ticket, Refused> {
        self.counters.asked += 1;
        if let Err(refused) = self.find_room(ask, wakers) {
            self.counters.refuse(refused);
            return Err(refused);
        }
        let cost_ns = self.estimates.cost_ns(ask.class);
        let ticket = self.fair.arrive(ask.session, ask.subnet, Work(cost_ns)).map_err(|refusal| {
            let refused = match refusal {
                Refusal::TooManyRequests => Refused::QueueFull,
                Refusal::TooManySessions | Refusal::TooManyPeers => Refused::Sessions,
            };
            self.counters.refuse(refused);
            refused
        })?;
        let fcfs_ns = self.waiting_ns / u64::from(self.slots.max(1));
        self.places.take(Place::waiting(ticket, ask, (now_ns, cost_ns, fcfs_ns)));
        self.waiting_bytes += u64::from(ask.bytes);
        self.waiting_ns = self.waiting_ns.saturating_add(cost_ns);
        Ok(ticket)
    }

    /// Whether one more may wait, if it has to. Where there is no room, who holds the most makes some.
    fn find_room(&mut self, ask: &Ask, wakers: &mut Vec<Waker>) -> Result<(), Refused> {
        if self.fair.running() < self.slots as usize {
            return Ok(());
        }
        let bytes = u64::from(ask.bytes);
        while self.waiting_bytes.saturating_add(bytes) > self.settings.queue_bytes {
            if !self.push_out(Scarce::Bytes, (ask.subnet, bytes), wakers) {
                return Err(Refused::QueueBytes);
            }
        }
        while self.fair.waiting() >= self.settings.queue as usize {
            if !self.push_out(Scarce::Requests, (ask.subnet, 1), wakers) {
                return Err(Refused::QueueFull);
            }
        }
        Ok(())
    }

    /// One request waits no more, for so much of this subnet; false if nobody holds more than that subnet would.
    fn push_out(&mut self, scarce: Scarce, (subnet, added): (SubnetKey, u64), wakers: &mut Vec<Waker>) -> bool {
        let Some(ticket) = self.crowd.whom_to_push_out(scarce, subnet, added) else { return false };
        self.end_waiting(ticket);
        self.fair.cancel(ticket);
        let place = self.places.leave(ticket);
        // In observe mode it runs on.
        if place.state == State::Waiting {
            wakers.extend(place.waker);
        }
        self.counters.refuse(Refused::PushedOut);
        true
    }

    /// A request that has come waits, unless it has found a slot.
    fn begin_waiting(&mut self, ticket: Ticket) {
        if self.places.at(ticket).dispatched_ns == 0 {
            self.crowd.join(&mut self.places, ticket);
        }
    }

    /// A request is chosen, or leaves before.
    fn end_waiting(&mut self, ticket: Ticket) {
        let place = self.places.at(ticket);
        self.waiting_bytes -= u64::from(place.bytes);
        self.waiting_ns = self.waiting_ns.saturating_sub(place.charged_ns);
        self.crowd.leave(&mut self.places, ticket);
    }

    /// Gives free slots to those who are next.
    fn pump(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) {
        self.end_shadows(now_ns);
        while self.grant_next(now_ns, wakers) {}
    }

    fn grant_next(&mut self, now_ns: u64, wakers: &mut Vec<Waker>) -> bool {
        let running = self.fair.running() as u32;
        let Some(ticket) = self.fair.dispatch() else { return false };
        let unpressed = self.limit.as_ref().is_some_and(|limit| limit.is_unpressed(running));
        self.end_waiting(ticket);
        let place = self.places.at_mut(ticket);
        (place.dispatched_ns, place.unpressed) = (now_ns, unpressed);
        let wait_ns = now_ns.saturating_sub(place.asked_ns);
        self.counters.dispatch(wait_ns, place.fcfs_ns);
        // In observe mode it runs already.
        if place.state == State::Waiting {
            wakers.extend(place.waker.take());
        }
        self.places.grant(ticket);
        if let Some(shadow) = &mut self.shadow {
            shadow.dispatched(&mut self.places, ticket, now_ns);
        }
        true
    }

    /// The client of a waiting request has gone, or its time is over. Granted but not yet fetched counts as waiting. Returns whether it still had
    /// its place.
    fn withdraw(&mut self, ticket: Ticket, now_ns: u64, wakers: &mut Vec<Waker>) -> bool {
        if !self.places.holds(ticket) {
            return false;
        }
        if self.fair.cancel(ticket) {
            self.end_waiting(ticket);
        } else {
            self.fair.finish(ticket, Work::ZERO);
        }
        self.places.leave(ticket);
        self.pump(now_ns, wakers);
        true
    }

    /// The backend's first byte is here.
    fn answered(&mut self, ticket: Ticket, now_ns: u64) {
        if !self.places.holds(ticket) {
            return;
        }
        let place = self.places.at_mut(ticket);
        if place.headed_ns.replace(now_ns).is_some() {
            return;
        }
        let (class, subnet, unpressed) = (place.class, place.who.subnet, place.unpressed);
        let Some(limit) = &mut self.limit else { return };
        let took_ns = place.worked_ns(now_ns);
        if unpressed {
            self.estimates.answered_unpressed(class, (subnet, now_ns), took_ns);
            limit.answered_unpressed();
        } else if let Some(unpressed_ns) = self.estimates.unpressed_ns(class, (subnet, now_ns)) {
            limit.answered(subnet, took_ns, unpressed_ns);
        }
    }

    /// A running request has ended. Returns whether it still held its slot.
    fn end(&mut self, ticket: Ticket, now_ns: u64) -> bool {
        if !self.places.holds(ticket) {
            return false;
        }
        if self.shadow.is_some() {
            return self.end_observed(ticket, now_ns);
        }
        self.answered(ticket, now_ns);
        let place = self.places.leave(ticket);
        let took_ns = now_ns.saturating_sub(place.dispatched_ns);
        self.estimates.ended(place.class, place.worked_ns(now_ns));
        self.fair.finish(ticket, Work(took_ns));
        self.counters.finish(took_ns, History::of(self.profile.history(place.who.subnet)));
        true
    }

    fn charge_overrun(&mut self, ticket: Ticket, now_ns: u64) {
        let place = self.places.at_mut(ticket);
        let extra_ns = now_ns.saturating_sub(place.dispatched_ns).saturating_sub(place.charged_ns);
        if extra_ns > 0 && place.took_ns.is_none() {
            place.charged_ns += extra_ns;
            self.fair.overrun(ticket, Work(extra_ns));
        }
    }

    /// Whoever waits for an answer that is late looks at the time when it is woken.
    fn wake_if_late(&self, ticket: Ticket, limit: Duration, now_ns: u64) {
        let place = self.places.at(ticket);
        let running_ns = now_ns.saturating_sub(place.dispatched_ns);
        if place.headed_ns.is_none() && u128::from(running_ns) >= limit.as_nanos() {
            place.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// A slot that has waited for its client for long is for somebody else. A response becomes a stream; if there may be no more of them, and
    /// always before there is a response, it is given up as soon as anybody waits.
    fn let_go_if_long(&mut self, settings: &Settings, ticket: Ticket, now_ns: u64) {
        if self.shadow.is_some() {
            return;
        }
        let (others_wait, place) = (self.fair.waiting() > 0, self.places.at_mut(ticket));
        let Some(headed_ns) = place.headed_ns else {
            let slow = place.upload.as_ref().filter(|upload| upload.waited() >= settings.stream_after);
            if others_wait && slow.is_some_and(|upload| upload.cut()) {
                self.counters.refuse(Refused::Upload);
            }
            return;
        };
        if u128::from(now_ns.saturating_sub(headed_ns)) < settings.stream_after.as_nanos() {
            return;
        }
        if self.streams.has_room(settings, place.who) {
            self.make_stream(ticket, now_ns);
        } else if others_wait && let Some(response) = place.cut.take() {
            response.cut();
            self.counters.refuse(Refused::Streams);
        }
    }

    /// The slot is free; there is one stream more.
    fn make_stream(&mut self, ticket: Ticket, now_ns: u64) {
        let who = self.places.at(ticket).who;
        if self.end(ticket, now_ns) {
            self.streams.begin(who);
        }
    }

    /// The next queue starts behind what this one has used.
    fn tell_lives(&mut self) {
        let now = self.fair.lives();
        lives::used(now.wrapping_sub(std::mem::replace(&mut self.lives, now)));
    }

    fn look(&mut self, now_ns: u64) {
        let Some(limit) = &mut self.limit else { return };
        limit.look(now_ns, self.fair.running() as u32, self.fair.waiting() > 0);
        if limit.slots() != self.slots {
            self.slots = limit.slots();
            self.fair.set_slots(self.slots);
        }
    }
}

#[cfg(test)]
mod tests;
