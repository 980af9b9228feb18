//! What one proxy thread has for itself, and what all of them share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

use super::budget::Budget;
use super::census::Census;
use super::client::{Client, End};
use super::settings::{Backend, Settings};
use super::upstream::{AnswerBody, Pool, Sender};
use super::wire::Wire;
use crate::admission::Admission;
use crate::exchange::BoardId;
use crate::health::{Server, Servers};
use crate::log::LogBuffer;
use crate::pages::Pages;
use crate::route::{RouteError, Routes};

/// Shared by all threads.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) census: Arc<Census>,
    /// What bodies hold that are read before their request asks for a slot.
    pub(super) bodies: Budget,
    pub(super) site: Site,
    pub(super) draining: AtomicBool,
}

/// Where requests go.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) routes: Routes,
    pub(super) backends: Vec<Arc<Place>>,
    pub(super) pages: Pages,
}

/// One backend at work.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) settings: Backend,
    pub(super) admission: Arc<Admission>,
    pub(super) servers: Servers,
    /// What requests are for that name no host.
    pub(super) default_host: HeaderValue,
}

impl Site {
    pub(super) fn new(settings: &Settings, pages: Pages) -> Result<Site, RouteError> {
        let identities = &settings.identities;
        let mut numbers = 0..;
        let names: Vec<&str> = settings.backends.iter().map(|backend| backend.admission.name.as_str()).collect();
        let routes = Routes::new(&settings.rules, &names)?;
        let places = settings.backends.iter().zip(routes.counts()).map(|(backend, count)| {
            let mut settings = backend.clone();
            settings.admission.routes = *count;
            settings.admission.answer_within = settings.response;
            settings.admission.board = BoardId(identities.name_key(&settings.admission.name));
            let list = settings.servers.iter().zip(&mut numbers);
            let list = list.map(|(address, number)| Server::new(number, address.clone())).collect();
            Arc::new(Place {
                admission: Admission::new(settings.admission.clone()),
                servers: Servers::new(list, settings.failures, settings.rest),
                default_host: default_host(&settings.servers),
                settings,
            })
        });
        Ok(Site { backends: places.collect(), routes, pages })
    }
}

/// The first server's, as it would be asked by somebody who comes to it.
fn default_host(servers: &[String]) -> HeaderValue {
    let first = servers.first().and_then(|server| HeaderValue::from_str(server).ok());
    first.unwrap_or(HeaderValue::from_static("localhost"))
}

/// Of one thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) shared: Arc<Shared>,
    /// Connections that hyper works, and those that requests work themselves.
    pub(super) senders: Pool<Sender>,
    pub(super) wires: Pool<Box<Wire>>,
    pub(super) log: Option<LogBuffer>,
    /// Milliseconds since the start, moved on by the sweep.
    pub(super) clock: Arc<AtomicU64>,
    /// Responses by the first digit of their status.
    pub(super) responses: [AtomicU64; 6],
    /// Requests that their client gave up.
    pub(super) given_up: AtomicU64,
    /// Seconds of the calendar, moved on with the clock.
    wall_s: AtomicU64,
    start: Instant,
    clients: Mutex<HashMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, log: Option<LogBuffer>) -> Thread {
        let clock = Arc::new(AtomicU64::new(1));
        Thread {
            shared,
            senders: Pool::new(Arc::clone(&clock)),
            wires: Pool::new(Arc::clone(&clock)),
            log,
            clock,
            responses: Default::default(),
            given_up: AtomicU64::new(0),
            wall_s: AtomicU64::new(wall_s()),
            start: Instant::now(),
            clients: Mutex::new(HashMap::new()),
            next_client: AtomicU64::new(0),
        }
    }

    pub(super) fn site(&self) -> &Site {
        &self.shared.site
    }

    /// Keeps a connection in mind until [`Thread::forget`].
    pub(super) fn keep(&self, client: Arc<Client>) -> u64 {
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(number, client);
        number
    }

    pub(super) fn forget(&self, number: u64) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    pub(super) fn connections(&self) -> usize {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Keeps the connection that an answer came on, if it can be used again.
    pub(super) fn keep_connection(&self, server: usize, (body, sender): (AnswerBody, Option<Sender>), most: u32) {
        match (body, sender) {
            (AnswerBody::Wire(body), _) => {
                if let Some(wire) = body.into_wire() {
                    self.wires.put(server, wire, most);
                }
            }
            (AnswerBody::Hyper(_), Some(sender)) if !sender.is_closed() => self.senders.put(server, sender, most),
            (AnswerBody::Hyper(_), _) => {}
        }
    }

    /// Idle connections to the servers.
    pub(super) fn idle_connections(&self) -> usize {
        self.senders.len() + self.wires.len()
    }

    /// Moves the clock on.
    pub(super) fn tell_time(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.clock.store(now.max(1), Ordering::Relaxed);
        self.wall_s.store(wall_s(), Ordering::Relaxed);
    }

    /// The time of day, to the second.
    pub(super) fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.wall_s.load(Ordering::Relaxed))
    }

    /// Ends connections that are too slow or idle, on both sides, and hands over the log.
    pub(super) fn sweep(&self) {
        let limits = &self.shared.settings.limits;
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().for_each(|client| client.sweep(limits));
        drop(clients);
        let site = self.site();
        let servers = site
            .backends
            .iter()
            .flat_map(|place| place.servers.all().iter().map(|server| (server.number, place.settings.idle)));
        let limits: HashMap<usize, _> = servers.collect();
        let limit = |server| limits.get(&server).copied().unwrap_or_default();
        self.senders.sweep(limit);
        self.wires.sweep(limit);
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self, end: End) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().for_each(|client| client.finish(end));
    }
}

fn wall_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
