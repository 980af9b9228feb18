//! A simulated world: hosts with clocks of their own, an unreliable network, a database, and time.
//!
//! An experiment puts payloads of its own type `M` into the world and takes what happens out of it with
//! [`World::advance`]. The world decides when and whether a payload arrives; it holds back what comes to a
//! paused host and drops what comes to one that is down. It knows nothing of what the payloads mean.
//! Everything follows from the seed.

mod clock;
mod database;
mod fault;
mod host;
mod network;

pub use clock::DriftingClock;
pub use database::{Database, Trouble};
pub use fault::{Change, Episode, FaultKind, FaultPlan, Faults};
pub use host::{Host, Power};
pub use network::{Disturbance, Network, Transport};

use crate::events::Events;
use crate::rng::Rng;
use fault::Applied;
use std::time::Duration;
use weir_core::time::Instant;

/// Something with an address in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorldAddress {
    /// The host with this number.
    Host(usize),
    /// The database.
    Database,
}

/// What the experiment is told.
#[derive(Debug, Clone, Copy)]
pub enum Happening<M> {
    /// A payload has come to a host that is up, or to the database.
    Arrived {
        /// Where it was sent.
        from: WorldAddress,
        /// Where it has come.
        to: WorldAddress,
        /// What it is.
        payload: M,
    },
    /// The timer of this host has run out.
    Timer(usize),
    /// The experiment's own note to itself is due.
    Note(M),
}

/// The world.
#[derive(Debug)]
pub struct World<M> {
    events: Events<Event<M>>,
    rng: Rng,
    hosts: Vec<Host<M>>,
    network: Network,
    /// The one database.
    pub database: Database,
    applied: Vec<(usize, Applied)>,
}

#[derive(Debug)]
enum Event<M> {
    Arrive { from: WorldAddress, to: WorldAddress, life: Option<u64>, payload: M },
    Timer { host: usize },
    Note(M),
}

impl<M: Clone> World<M> {
    /// A world of so many hosts, all down, with clocks that differ a little in rate and a lot in offset.
    pub fn new(hosts: usize, mut rng: Rng) -> World<M> {
        let network = Network::new(hosts + 1);
        let database = Database::new(DriftingClock::random(&mut rng));
        let hosts = (0..hosts).map(|_| Host::new(DriftingClock::random(&mut rng))).collect();
        World { events: Events::default(), rng, hosts, network, database, applied: Vec::new() }
    }

    /// The true time, which no host can read.
    pub fn now(&self) -> Instant {
        self.events.now()
    }

    /// The time by a host's own clock.
    pub fn local_now(&self, host: usize) -> Instant {
        self.hosts[host].clock.read(self.now())
    }

    /// A host.
    pub fn host(&self, host: usize) -> &Host<M> {
        &self.hosts[host]
    }

    /// How many hosts there are.
    pub fn hosts_len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether a host can talk to the database.
    pub fn reaches_database(&self, host: usize) -> bool {
        self.network.is_open(host, self.hosts.len()) && self.network.is_open(self.hosts.len(), host)
    }

    /// The world's randomness, for the experiment's own choices.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Reminds the experiment at a true time.
    pub fn note_at(&mut self, at: Instant, payload: M) {
        self.events.at(at, Event::Note(payload));
    }

    /// Sets a host's one timer to a time of its own clock.
    pub fn set_timer(&mut self, host: usize, deadline: Instant) {
        let at = self.hosts[host].clock.when(deadline).max(self.now());
        if self.hosts[host].timer != Some(at) {
            self.hosts[host].timer = Some(at);
            if at < Instant::NEVER {
                self.events.at(at, Event::Timer { host });
            }
        }
    }

    /// Sends a payload; the network decides what becomes of it.
    pub fn send(&mut self, from: WorldAddress, to: WorldAddress, by: Transport, payload: M) {
        let (a, b) = (self.end(from), self.end(to));
        // An answer of the database goes to the connection that asked, which a restart ends.
        let life = match (from, to) {
            (WorldAddress::Database, WorldAddress::Host(host)) => Some(self.hosts[host].life()),
            _ => None,
        };
        let extra = if to == WorldAddress::Database { self.database.delay() } else { Duration::ZERO };
        for delay in self.network.carry(&mut self.rng, (a, b), by) {
            let event = Event::Arrive { from, to, life, payload: payload.clone() };
            self.events.at(self.events.now() + delay + extra, event);
        }
    }

    fn end(&self, place: WorldAddress) -> usize {
        match place {
            WorldAddress::Host(host) => host,
            WorldAddress::Database => self.hosts.len(),
        }
    }

    /// What happens next; none when nothing is left to happen.
    pub fn advance(&mut self) -> Option<Happening<M>> {
        loop {
            let (now, event) = self.events.next()?;
            match event {
                Event::Note(payload) => return Some(Happening::Note(payload)),
                Event::Timer { host } => {
                    let host_state = &mut self.hosts[host];
                    if host_state.power() == Power::Up && host_state.timer == Some(now) {
                        host_state.timer = None;
                        return Some(Happening::Timer(host));
                    }
                }
                Event::Arrive { from, to, life, payload } => {
                    if let Some(payload) = self.receive(from, to, life, payload) {
                        return Some(Happening::Arrived { from, to, payload });
                    }
                }
            }
        }
    }

    fn receive(&mut self, from: WorldAddress, to: WorldAddress, life: Option<u64>, payload: M) -> Option<M> {
        let WorldAddress::Host(host) = to else { return self.database.is_up().then_some(payload) };
        let host = &mut self.hosts[host];
        match host.power() {
            _ if life.is_some_and(|life| life != host.life()) => None,
            Power::Up => Some(payload),
            Power::Paused => {
                host.held.push((from, payload));
                None
            }
            Power::Down => None,
        }
    }

    /// Starts a host: a new life.
    pub fn start(&mut self, host: usize) {
        let clock = DriftingClock::random(&mut self.rng);
        self.hosts[host].start(clock, self.events.now());
    }

    /// Stops a host at once, as a power cut does.
    pub fn crash(&mut self, host: usize) {
        self.hosts[host].crash();
    }

    /// Stops a host without its knowing.
    pub fn pause(&mut self, host: usize) {
        self.hosts[host].pause();
    }

    /// Lets a paused host go on; what came meanwhile arrives now, in order.
    pub fn resume(&mut self, host: usize) {
        let life = Some(self.hosts[host].life());
        for (from, payload) in self.hosts[host].resume() {
            self.events.at(self.events.now(), Event::Arrive { from, to: WorldAddress::Host(host), life, payload });
        }
        if let Some(at) = self.hosts[host].timer {
            let at = at.max(self.events.now());
            self.hosts[host].timer = Some(at);
            self.events.at(at, Event::Timer { host });
        }
    }

    /// Changes the rate of a host's clock; its timer moves accordingly.
    pub fn set_rate(&mut self, host: usize, rate: f64) {
        let now = self.now();
        let timer = self.hosts[host].timer.filter(|at| *at < Instant::NEVER);
        let deadline = timer.map(|at| self.hosts[host].clock.read(at));
        self.hosts[host].clock.set_rate(now, rate);
        if let Some(deadline) = deadline {
            self.set_timer(host, deadline);
        }
    }
}
