//! Who may use the backend next: the fair queue with its slots, costs and bounds.
//!
//! Each backend has one [`Admission`], shared by all proxy threads behind one short lock. A thread asks for each request; below saturation
//! the answer is a [`Permit`] at once, with no await and no wake-up. Otherwise it is a [`Waiting`], a future that the scheduler
//! ([`weir_core::fair`]) resolves in the order of distributed fair queueing, or that ends by timeout. The permit is the slot: it is held
//! until the backend has answered, and given back when it is dropped.
//!
//! Cost is slot time: an estimate at dispatch ([`estimate`]), charged further every 100 ms while a request overruns, and corrected at its
//! end. Upgraded connections and event streams stop being requests and become *streams*: the slot is free, and streams are bounded
//! (`streams`). While a response ([`Reader`]) or an upload (`upload`) keeps the server waiting for its own client, the slot is taken away
//! as soon as anybody else needs it.
//!
//! Invariants: every ticket is ended exactly once; a waiting request that is dropped leaves nothing behind and is charged
//! nothing; bytes and requests that wait are bounded, and no subnet keeps another out by filling the queue ([`fair::Backlog`]). Strangers
//! are queued as one subnet (`standing`), and newcomers among them are let in one after the other ([`WaitingRoom`]). In observe
//! mode nobody waits, and the same scheduler computes who would have (`observe`).

mod ask;
mod counters;
pub mod estimate;
mod incarnations;
mod limit;
mod observe;
mod permit;
mod places;
mod pressure;
mod queue;
mod rate;
mod request_table;
mod server_model;
mod settings;
mod shadow;
mod shared_queue;
mod standing;
mod strain;
mod streams;
mod upload;
mod view;
mod waiting;
mod waiting_room;

pub use ask::{AdmissionRefusal, Ask, Cost, Reader, Standing};
pub use counters::{CounterValues, History, WAIT_BOUNDS_MS};
pub use estimate::Class;
pub use permit::{Permit, Stream};
pub use pressure::{Crowd, Pressure, SlotHolder};
pub use queue::Admission;
pub use settings::{Settings, Slots};
pub use upload::UploadClock;
pub use view::{SessionView, View};
pub use waiting::Waiting;
pub use waiting_room::{Entered, Entering, Inside, Promise, RoomView, Visit, WaitingRoom};

use counters::Counters;
use estimate::Estimates;
use places::Places;
use queue::{QueueState, slots_of, wake};
use rate::Rate;
use request_table::{RequestTable, State};
use shadow::Shadow;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use strain::Strain;
use streams::{Owner, Streams};
use tokio::time::Instant;
use weir_core::fair::{self, Fair, Profile, SessionKey, SubnetKey, Weight};

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Grant {
    /// A slot is free.
    Now(Permit),
    /// The request waits for one.
    Wait(Waiting),
}

/// The longest time for which a client is told to stay away.
const RETRY_MAX: Duration = Duration::from_secs(120);
/// This many newcomers may be in the queue, however few slots there are.
const ROOM_LEAST: u32 = 4;

/// How often [`Admission::tick`] wants to be called.
pub const TICK: Duration = Duration::from_millis(100);

impl Admission {
    pub fn new(settings: Settings) -> Arc<Admission> {
        let settings = settings.bounded();
        let (slots, limit) = slots_of(&settings, None);
        let (name, queue_id, observe) = (settings.name.clone(), settings.queue_id, settings.observe);
        let incarnations = incarnations::first();
        let mut inner = QueueState {
            fair: Fair::new(
                fair::Settings { first_life: incarnations, ..settings.fair(slots) },
                standing::with_strangers(Profile::default(), &settings),
            ),
            requests: RequestTable::default(),
            estimates: Estimates::new(settings.routes, settings.first_estimate, settings.debt_cap),
            limit,
            slots,
            waiting_ns: 0,
            backlog: Places::default(),
            streams: Streams::default(),
            slot_streams: Streams::default(),
            shadow: settings.observe.then(Shadow::default),
            counters: Counters::default(),
            strangers_rate: Rate::default(),
            strain: Strain::default(),
            profile: Arc::default(),
            incarnations,
            settings: Arc::new(settings),
        };
        let told = inner.settings.route_costs.clone();
        inner.estimates.tell(&told);
        let room = WaitingRoom::new(inner.settings.queue);
        let admission = Admission { name, queue_id, observe, start: Instant::now(), room, inner: Mutex::new(inner) };
        admission.size_room();
        Arc::new(admission)
    }

    /// Changes the queue's settings; requests that wait or run keep their places. `routes` says for each route from now on which number it
    /// had before, so that what was measured of it stays with it. Name and observe mode cannot be changed.
    pub fn change(&self, settings: &Settings, routes: &[Option<u16>]) {
        let settings =
            Settings { name: self.name.clone(), queue_id: self.queue_id, observe: self.observe, ..settings.clone() };
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        inner.change(settings.bounded(), routes);
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
    }

    /// Whether requests never wait here.
    pub fn observes(&self) -> bool {
        self.observe
    }

    /// Whether nothing waits, runs or streams.
    pub fn is_idle(&self) -> bool {
        let inner = self.lock();
        let idle = inner.fair.waiting() == 0 && inner.fair.running() == 0 && inner.streams.open() == 0;
        drop(inner);
        idle && self.room.is_empty()
    }

    /// Whether other front-ends have not received everything yet.
    pub fn has_news(&self) -> bool {
        self.lock().fair.has_reports()
    }

    /// Asks for a slot. `waker` is woken at every tick if the request still runs without a response after `answer_within`,
    /// so that its task needs no timer; not in observe mode.
    pub fn ask(self: &Arc<Admission>, ask: &Ask, waker: &Waker) -> Result<Grant, AdmissionRefusal> {
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let visit = inner.begin_observed(now_ns);
        let ticket = match inner.arrive(ask, now_ns, &mut wakers) {
            Ok(ticket) => ticket,
            Err(refused) => {
                drop(inner);
                wake(wakers);
                // It is counted, and served all the same.
                let served = visit.map(|_| Permit::new(Arc::clone(self), None, ask.owner(), now_ns).at(visit));
                return served.map(Grant::Now).ok_or(refused);
            }
        };
        inner.requests.at_mut(ticket).visit = visit;
        inner.pump(now_ns, &mut wakers);
        inner.begin_waiting(ticket);
        let running = inner.requests.state(ticket) == State::Granted;
        if running || inner.shadow.is_some() {
            inner.requests.start(ticket, waker);
        }
        let timeout = inner.settings.queue_timeout.min(ask.patience);
        drop(inner);
        wake(wakers);
        if running || self.observe {
            return Ok(Grant::Now(Permit::new(Arc::clone(self), Some(ticket), ask.owner(), now_ns).at(visit)));
        }
        let deadline = Instant::now() + timeout;
        Ok(Grant::Wait(Waiting::new(Arc::clone(self), ticket, ask.owner(), deadline)))
    }

    /// A request will hold its slot as a stream. Refused if there is no room for it now, so that it need not wait in vain.
    pub fn expect_stream(&self, session: SessionKey, subnet: SubnetKey) -> Result<(), AdmissionRefusal> {
        let mut inner = self.lock();
        if inner.shadow.is_some() || inner.has_room_for_slot_stream(Owner { session, subnet }) {
            return Ok(());
        }
        inner.counters.asked += 1;
        inner.counters.refuse(AdmissionRefusal::Streams);
        Err(AdmissionRefusal::Streams)
    }

    /// Charges overruns, takes slots from requests that wait for their own clients, and looks for the right number of slots. To be called
    /// every [`TICK`].
    pub fn tick(&self) {
        let now_ns = self.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let settings = Arc::clone(&inner.settings);
        inner.expire_shadow(&settings, now_ns);
        for ticket in inner.requests.running_tickets() {
            inner.charge_overrun(ticket, now_ns);
            inner.wake_if_late(ticket, settings.answer_within, now_ns);
            inner.release_if_idle(&settings, ticket);
        }
        inner.adjust_slots(now_ns);
        inner.report_incarnations();
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
        self.size_room();
    }

    /// The room in which newcomers wait until it is their turn to ask.
    pub fn room(&self) -> &Arc<WaitingRoom> {
        &self.room
    }

    /// The standing of a client that has shown this: in a subnet with a history every client is known.
    pub fn standing_in(&self, subnet: SubnetKey, shown: Standing) -> Standing {
        let inner = self.lock();
        let known = inner.settings.strangers <= 0.0 || inner.profile.history(subnet).is_some();
        if known { Standing::Known } else { shown }
    }

    /// Lets in just enough newcomers that no slot is free while one of them waits; hardly more, because their order is fixed once they are in
    /// the queue.
    fn size_room(&self) {
        let inner = self.lock();
        let (slots, queue) = (inner.slots, inner.settings.queue);
        let guess = inner.strangers_rate.per_second().map(|rate| rate * standing::NEWCOMERS_PART);
        drop(inner);
        self.room.set_size((2 * slots).max(ROOM_LEAST), queue, guess);
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How this queue is set up.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.lock().settings)
    }

    /// How long a client that is refused now should wait before it asks again: the time in which the requests before it will have been served.
    pub fn retry_after(&self, standing: Standing) -> Duration {
        let inner = self.lock();
        let drain_ns = inner.waiting_ns / u64::from(inner.slots.max(1));
        let drain = Duration::from_nanos(drain_ns);
        let strangers = inner
            .strangers_rate
            .per_second()
            .map(|rate| Duration::try_from_secs_f64(inner.backlog.strangers() as f64 / rate).unwrap_or(RETRY_MAX));
        let wait = if standing == Standing::Known { drain } else { strangers.unwrap_or(drain) };
        wait.clamp(Duration::from_secs(1), RETRY_MAX)
    }

    /// The weight of each session of a subnet, if one is remembered.
    pub fn weight(&self, subnet: SubnetKey) -> Option<Weight> {
        self.lock().fair.weight(subnet)
    }
}

#[cfg(test)]
mod crowd_tests;
#[cfg(test)]
mod promise_tests;
#[cfg(test)]
mod tests;
