//! The state of a backend's queue for people: for `weir web status`, the console and the API.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::fair::SessionKey;

use super::counters::CounterValues;
use super::pressure::Pressure;
use super::queue::{Admission, QueueState};
use super::settings::Slots;
use super::standing;
use super::waiting_room::RoomView;

/// The state of one queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebQueue")]
pub struct View {
    pub backend: String,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that the backend works on now.
    pub running: usize,
    /// Slots that there are now.
    pub slots: u32,
    /// Whether that number is found by measuring.
    pub slots_auto: bool,
    /// Whether nobody is made to wait.
    pub observe: bool,
    /// Open streams, with or without a slot.
    pub streams: u32,
    /// Memory that waiting requests hold.
    pub waiting_bytes: u64,
    /// Sessions that are remembered.
    pub sessions: usize,
    /// Subnets that are remembered.
    pub subnets: usize,
    /// What a request costs on average, in milliseconds of slot time.
    pub mean_cost_ms: f64,
    /// Newcomers who wait to be let in.
    #[serde(default)]
    pub room: RoomView,
    /// What weighs on it, in words.
    #[serde(default)]
    pub pressure: Pressure,
    /// What would be fair to known visitors, to newcomers and to strangers that ask now, if all asked for more than there is: parts of 1.
    #[serde(default)]
    pub fair_by_standing: [f64; 3],
    /// Totals since the start.
    pub counters: CounterValues,
}

/// One session with requests at a backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionView {
    pub backend: String,
    /// The session's key, in hexadecimal.
    pub session: String,
    /// Its subnet's key, in hexadecimal.
    pub subnet: String,
    /// Where it asks from.
    pub client: IpAddr,
    pub waiting: u32,
    pub running: u32,
    /// How long its oldest waiting request has waited, in seconds.
    pub oldest_wait_s: f64,
    /// Its weight, in multiples of an average subnet.
    pub weight: f64,
    /// How far it is set back, in seconds of slot time.
    pub debt_s: f64,
    /// Slot time it has received here, in seconds.
    pub served_s: f64,
    /// At how many front-ends it has requests.
    pub active_at: u16,
}

impl Admission {
    /// The state of this queue.
    pub fn view(&self) -> View {
        let (room, now_ns) = (self.room.view(), self.now_ns());
        let inner = self.lock();
        let (sessions, subnets) = inner.fair.remembered();
        View {
            backend: self.name.clone(),
            waiting: inner.fair.waiting(),
            running: inner.fair.running(),
            slots: inner.slots,
            slots_auto: matches!(inner.settings.slots, Slots::Auto { .. }),
            observe: self.observe,
            streams: inner.streams.open() + inner.slot_streams.open(),
            waiting_bytes: inner.backlog.bytes(),
            sessions,
            subnets,
            mean_cost_ms: inner.estimates.mean_ns() as f64 / 1e6,
            room,
            pressure: Pressure::of(&inner, now_ns),
            fair_by_standing: fair_by_standing(&inner),
            counters: inner.counters.values(),
        }
    }

    /// The sessions that have requests here, those with the most first, at most `most`.
    pub fn session_views(&self, most: usize) -> Vec<SessionView> {
        let now_ns = self.now_ns();
        let inner = self.lock();
        let mut found: HashMap<SessionKey, SessionView> = HashMap::new();
        for request in inner.requests.iter() {
            let view = found.entry(request.owner.session).or_insert_with(|| {
                let standing = inner.fair.standing(request.lane.session);
                SessionView {
                    backend: self.name.clone(),
                    session: format!("{:016x}", request.owner.session.0),
                    subnet: format!("{:016x}", request.owner.subnet.0),
                    client: request.client,
                    waiting: 0,
                    running: 0,
                    oldest_wait_s: 0.0,
                    weight: inner.fair.weight(request.lane.subnet).map_or(0.0, |weight| weight.ratio()),
                    debt_s: standing.map_or(0.0, |standing| standing.debt.0 as f64 / 1e9),
                    served_s: standing.map_or(0.0, |standing| standing.served.0 as f64 / 1e9),
                    active_at: standing.map_or(0, |standing| standing.active_at),
                }
            });
            if request.dispatched_ns > 0 {
                view.running += 1;
            } else {
                view.waiting += 1;
                view.oldest_wait_s = view.oldest_wait_s.max(now_ns.saturating_sub(request.asked_ns) as f64 / 1e9);
            }
        }
        drop(inner);
        let mut views: Vec<SessionView> = found.into_values().collect();
        views.sort_by(|a, b| (b.waiting + b.running, &a.session).cmp(&(a.waiting + a.running, &b.session)));
        views.truncate(most);
        views
    }
}

/// The weights of all sessions that ask, by how far they are known.
fn fair_by_standing(inner: &QueueState) -> [f64; 3] {
    let (mut seen, mut weights) = (HashSet::new(), [0.0; 3]);
    for request in inner.requests.iter().filter(|request| seen.insert(request.lane.session)) {
        let weight = inner.fair.weight(request.lane.subnet).map_or(0.0, |weight| weight.ratio());
        if let Some(sum) = weights.get_mut(standing::place(request.lane)) {
            *sum += weight;
        }
    }
    let all: f64 = weights.iter().sum();
    if all > 0.0 { weights.map(|weight| weight / all) } else { weights }
}
