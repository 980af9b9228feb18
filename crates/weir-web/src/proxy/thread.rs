//! What one proxy thread has for itself, and what all of them share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::GateError;
use super::budget::Budget;
use super::census::Census;
use super::client::{Client, End};
use super::settings::Settings;
use super::site::{Place, Site};
use super::upstream::{AnswerBody, Pool, Sender};
use super::wire::Wire;
use crate::exchange::{Board, Exchange};
use crate::log::LogBuffer;

/// Shared by all threads.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) census: Arc<Census>,
    /// What bodies hold that are read before their request asks for a slot.
    pub(super) bodies: Budget,
    pub(super) draining: AtomicBool,
    /// The next server is given this number; none is given twice, for connections are kept by it.
    pub(super) numbers: AtomicUsize,
    pub(super) exchange: OnceLock<Exchange>,
    site: Mutex<Arc<Site>>,
    /// Backends that are in no site any more, until all is over that was under way there.
    retired: Mutex<Vec<Arc<Place>>>,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Result<Shared, GateError> {
        let numbers = AtomicUsize::new(0);
        let bodies = Budget::new(settings.limits.body_buffers);
        let site = Arc::new(Site::after(|_| None, settings, &numbers)?);
        Ok(Shared {
            census: Arc::new(Census::default()),
            bodies,
            draining: AtomicBool::new(false),
            numbers,
            exchange: OnceLock::new(),
            site: Mutex::new(site),
            retired: Mutex::default(),
        })
    }

    /// The site as it is now.
    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a site in the place of the one before. What is in it no more runs dry.
    pub(super) fn put_site(&self, site: &Arc<Site>) {
        let before =
            std::mem::replace(&mut *self.site.lock().unwrap_or_else(PoisonError::into_inner), Arc::clone(site));
        self.bodies.change(site.limits.body_buffers);
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extend(before.backends.iter().cloned());
        retired.retain(|place| site.place_of(&place.admission).is_none());
        drop(retired);
        self.tell_boards();
    }

    /// A backend by its name, also one that runs dry.
    pub(super) fn place(&self, name: &str) -> Option<Arc<Place>> {
        let dry = || self.retired().into_iter().rev().find(|place| place.admission.name() == name);
        self.site().place(name).cloned().or_else(dry)
    }

    /// Backends that run dry.
    pub(super) fn retired(&self) -> Vec<Arc<Place>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets backends that have run dry. A request whose body still comes in has asked for nothing yet, but it has the place in its hand. Other
    /// front-ends must have heard the last of it, or they count its sessions for ever.
    pub(super) fn let_go(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let before = retired.len();
        retired
            .retain(|place| Arc::strong_count(place) > 1 || !place.admission.is_idle() || place.admission.has_news());
        let some_left = retired.len() < before;
        drop(retired);
        if some_left {
            self.tell_boards();
        }
    }

    /// The queues of all backends, also of those that run dry: other front-ends must hear the end of what was under way there.
    pub(super) fn boards(&self) -> Vec<Arc<dyn Board>> {
        let (site, retired) = (self.site(), self.retired());
        let all = site.backends.iter().chain(&retired);
        all.map(|place| Arc::clone(&place.admission) as Arc<dyn Board>).collect()
    }

    fn tell_boards(&self) {
        if let Some(exchange) = self.exchange.get() {
            exchange.set_boards(self.boards());
        }
    }
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
    /// The site as this thread has it.
    site: Mutex<Arc<Site>>,
    clients: Mutex<HashMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, log: Option<LogBuffer>) -> Thread {
        let clock = Arc::new(AtomicU64::new(1));
        Thread {
            site: Mutex::new(shared.site()),
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

    /// The site as it is now. The lock is this thread's own, so nobody waits for it.
    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put_site(&self, site: &Arc<Site>) {
        *self.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(site);
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
        let site = self.site();
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().for_each(|client| client.sweep(&site.limits));
        drop(clients);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{self, Ask, Class, Slots};
    use crate::identity::{self, Identities, Secret};
    use crate::proxy::settings::{Backend, Limits};
    use crate::route::Rule;
    use http::Method;
    use std::net::Ipv4Addr;
    use std::task::Waker;
    use weir_core::fair::{SessionKey, SubnetKey};

    fn settings(backend: &str) -> Settings {
        let secret = Secret::new(b"a secret of the tests").unwrap();
        let admission = admission::Settings {
            name: backend.to_owned(),
            slots: Slots::Fixed(1),
            report: true,
            ..admission::Settings::default()
        };
        Settings {
            listeners: Vec::new(),
            threads: 1,
            tls: None,
            identities: Identities::new(&identity::Settings::new(secret)).unwrap(),
            limits: Limits::default(),
            backends: vec![Backend { admission, servers: vec!["127.0.0.1:9".to_owned()], ..Backend::default() }],
            rules: vec![Rule { host: String::new(), path: "/".to_owned(), backend: backend.to_owned() }],
            log: None,
            pages: None,
            server_timing: false,
            tally: None,
        }
    }

    #[test]
    fn a_backend_that_has_run_dry_stays_until_others_know() {
        let shared = Shared::new(settings("old")).unwrap();
        let queue = Arc::clone(&shared.site().backends[0].admission);
        let ask = Ask {
            session: SessionKey(1),
            subnet: SubnetKey(1),
            client: Ipv4Addr::LOCALHOST.into(),
            class: Class::new(0, &Method::GET),
            bytes: 100,
        };
        drop(queue.ask(&ask, Waker::noop()).unwrap());
        let site = Arc::new(Site::after(|_| None, settings("new"), &shared.numbers).unwrap());
        shared.put_site(&site);
        shared.let_go();
        assert_eq!((queue.is_idle(), shared.retired().len()), (true, 1), "its session is still active elsewhere");
        let mut reports = Vec::new();
        queue.drain(10, &mut reports);
        assert!(reports.iter().all(|report| !report.active) && reports.len() == 1, "{reports:?}");
        shared.let_go();
        assert!(shared.retired().is_empty());
    }
}
