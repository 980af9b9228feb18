//! The state of one proxy thread, and the state that all of them share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::budget::Budget;
use super::buffer::{Buffer, Folder};
use super::client::Client;
use super::connection_count::ConnectionCount;
use super::error::GateError;
use super::limits::Limits;
use super::presence::ConnectionEnd;
use super::readers::Readers;
use super::settings::Settings;
use super::site::{ActiveBackend, Site};
use super::upstream::{Pool, Sender, UpstreamBody};
use super::upstream_connection::UpstreamConnection;
use crate::blocks::Blocks;
use crate::exchange::{Exchange, SharedQueue};
use crate::identity::AppSessions;
use crate::log::LogBuffer;
use weir_core::fair::SubnetKey;

/// Shared by all threads.
#[derive(Debug)]
pub(super) struct ProxyShared {
    pub(super) connections: Arc<ConnectionCount>,
    /// The memory that bodies hold which are read before their request asks for a slot.
    pub(super) bodies: Arc<Budget>,
    pub(super) body_files: Arc<Budget>,
    /// The memory of responses that their clients read slowly.
    pub(super) responses: Arc<Budget>,
    pub(super) response_files: Arc<Budget>,
    pub(super) readers: Arc<Readers>,
    /// Those on HTTP/2 who leave pieces unread for which there is no room.
    pub(super) unread: Arc<Readers>,
    /// The folder for the files of both.
    pub(super) folder: Folder,
    pub(super) draining: AtomicBool,
    /// Networks that a person has blocked for a while.
    pub(super) blocks: Blocks,
    /// To which network each session of the application belongs.
    pub(super) app_sessions: AppSessions,
    /// The number of the next server. No number is used twice, because idle connections are stored by it.
    pub(super) numbers: AtomicUsize,
    pub(super) exchange: OnceLock<Exchange>,
    site: Mutex<Arc<Site>>,
    /// Backends that are no longer in any site, until they have drained.
    retired: Mutex<Vec<Arc<ActiveBackend>>>,
}

impl ProxyShared {
    pub(super) fn new(settings: Settings) -> Result<ProxyShared, GateError> {
        let numbers = AtomicUsize::new(0);
        let folder = settings.buffers.as_deref().map(Arc::from);
        let Limits { body_buffers, body_files, response_buffers, response_files, .. } = settings.limits;
        let site = Arc::new(Site::after(|_| None, settings, &numbers)?);
        Ok(ProxyShared {
            connections: Arc::default(),
            bodies: Budget::new(body_buffers),
            body_files: Budget::new(body_files),
            responses: Budget::new(response_buffers),
            response_files: Budget::new(response_files),
            readers: Arc::default(),
            unread: Arc::default(),
            folder,
            draining: AtomicBool::new(false),
            blocks: Blocks::default(),
            app_sessions: AppSessions::new()?,
            numbers,
            exchange: OnceLock::new(),
            site: Mutex::new(site),
            retired: Mutex::default(),
        })
    }

    /// The present site.
    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the site. Backends that are not in the new one drain.
    pub(super) fn put_site(&self, site: &Arc<Site>) {
        let before =
            std::mem::replace(&mut *self.site.lock().unwrap_or_else(PoisonError::into_inner), Arc::clone(site));
        self.bodies.change(site.limits.body_buffers);
        self.body_files.change(site.limits.body_files);
        self.responses.change(site.limits.response_buffers);
        self.response_files.change(site.limits.response_files);
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extend(before.backends.iter().cloned());
        retired.retain(|backend| site.backend_of(&backend.admission).is_none());
        drop(retired);
        self.share_queues();
    }

    /// Where a request body goes that is larger than what is kept in memory, if files may be used.
    pub(super) fn upload_buffer(&self, subnet: SubnetKey) -> Option<Buffer> {
        self.folder.as_ref()?;
        Some(Buffer::new(0, self.bodies.share(subnet), self.body_files.share(subnet), self.folder.clone()))
    }

    /// Cuts off clients that read their responses too slowly, if there is no room in the buffers for another client.
    pub(super) fn relieve_buffers(&self) {
        if self.readers.want_room() {
            let limits = &self.site().limits;
            let most = if self.folder.is_some() { limits.response_files } else { limits.response_buffers };
            self.readers.make_room((most / 16).max(1), limits.response_rate.into());
        }
        self.unread.look_again(|subnet, octets| self.responses.lacks_room(subnet, octets));
        if self.unread.want_room() {
            let limits = &self.site().limits;
            self.unread.make_room((limits.response_buffers / 16).max(1), limits.response_rate.into());
        }
    }

    /// A backend by its name, even if it is draining.
    pub(super) fn backend(&self, name: &str) -> Option<Arc<ActiveBackend>> {
        let dry = || self.retired().into_iter().rev().find(|backend| backend.admission.name() == name);
        self.site().backend(name).cloned().or_else(dry)
    }

    /// Backends that are draining.
    pub(super) fn retired(&self) -> Vec<Arc<ActiveBackend>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets backends that have drained. A request whose body is still arriving has not asked for a slot yet, but it holds the backend. Other
    /// front-ends must have received the last report, or they would count its sessions for ever.
    pub(super) fn drop_drained(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let before = retired.len();
        retired.retain(|backend| {
            Arc::strong_count(backend) > 1 || !backend.admission.is_idle() || backend.admission.has_news()
        });
        let some_left = retired.len() < before;
        drop(retired);
        if some_left {
            self.share_queues();
        }
    }

    /// The queues of all backends, including those that are draining, because other front-ends must learn how requests in progress there end.
    pub(super) fn queues(&self) -> Vec<Arc<dyn SharedQueue>> {
        let (site, retired) = (self.site(), self.retired());
        let all = site.backends.iter().chain(&retired);
        all.map(|backend| Arc::clone(&backend.admission) as Arc<dyn SharedQueue>).collect()
    }

    fn share_queues(&self) {
        if let Some(exchange) = self.exchange.get() {
            exchange.set_queues(self.queues());
        }
    }
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) shared: Arc<ProxyShared>,
    /// Idle connections to servers: those that hyper drives, and those that requests drive themselves.
    pub(super) hyper_pool: Pool<Sender>,
    pub(super) http1_pool: Pool<Box<UpstreamConnection>>,
    pub(super) log: Option<LogBuffer>,
    /// Milliseconds since the start, updated by the sweep.
    pub(super) clock: Arc<AtomicU64>,
    /// Responses by the first digit of their status.
    pub(super) responses: [AtomicU64; 6],
    /// Requests that their client gave up.
    pub(super) given_up: AtomicU64,
    /// Seconds of the calendar, updated with the clock.
    wall_s: AtomicU64,
    start: Instant,
    /// The site that this thread uses.
    site: Mutex<Arc<Site>>,
    clients: Mutex<HashMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
    /// Connections that were accepted and have not sent anything yet.
    arriving: AtomicUsize,
}

/// A connection until it is registered.
pub(super) struct Arriving(Arc<Thread>);

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Thread {
    pub(super) fn new(shared: Arc<ProxyShared>, log: Option<LogBuffer>) -> Thread {
        let clock = Arc::new(AtomicU64::new(1));
        Thread {
            site: Mutex::new(shared.site()),
            shared,
            hyper_pool: Pool::new(Arc::clone(&clock)),
            http1_pool: Pool::new(Arc::clone(&clock)),
            log,
            clock,
            responses: Default::default(),
            given_up: AtomicU64::new(0),
            wall_s: AtomicU64::new(wall_s()),
            start: Instant::now(),
            clients: Mutex::new(HashMap::new()),
            next_client: AtomicU64::new(0),
            arriving: AtomicUsize::new(0),
        }
    }

    /// The present site. The lock is this thread's own, so nobody waits for it.
    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put_site(&self, site: &Arc<Site>) {
        *self.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(site);
    }

    /// Registers a connection until [`Thread::forget`].
    pub(super) fn keep(&self, client: Arc<Client>) -> u64 {
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(number, client);
        number
    }

    pub(super) fn forget(&self, number: u64) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// A connection was accepted.
    pub(super) fn arriving(self: &Arc<Thread>) -> Arriving {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        Arriving(Arc::clone(self))
    }

    /// Whether a client has connected and not sent anything yet.
    pub(super) fn is_arriving(&self) -> bool {
        self.arriving.load(Ordering::Relaxed) > 0
    }

    pub(super) fn connections(&self) -> usize {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Keeps the connection on which a response came, if it can be used again.
    pub(super) fn keep_connection(&self, server: usize, body: UpstreamBody, sender: Option<Sender>, most: u32) {
        match (body, sender) {
            (UpstreamBody::Own(body), _) => {
                if let Some(connection) = body.into_connection() {
                    self.http1_pool.put(server, connection, most);
                }
            }
            (UpstreamBody::Hyper(_), Some(sender)) if !sender.is_closed() => self.hyper_pool.put(server, sender, most),
            (UpstreamBody::Hyper(_), _) => {}
        }
    }

    /// Idle connections to the servers.
    pub(super) fn idle_connections(&self) -> usize {
        self.hyper_pool.len() + self.http1_pool.len()
    }

    /// Updates the clock.
    pub(super) fn tell_time(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.clock.store(now.max(1), Ordering::Relaxed);
        self.wall_s.store(wall_s(), Ordering::Relaxed);
    }

    /// The time of day, to the second.
    pub(super) fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.wall_s.load(Ordering::Relaxed))
    }

    /// Ends connections that are too slow or idle, on both sides, and passes the log buffer on.
    pub(super) fn sweep(&self) {
        let site = self.site();
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().for_each(|client| client.sweep(&site.limits));
        drop(clients);
        let servers = site
            .backends
            .iter()
            .flat_map(|backend| backend.servers.all().iter().map(|server| (server.number, backend.settings.idle)));
        let limits: HashMap<usize, _> = servers.collect();
        let limit = |server| limits.get(&server).copied().unwrap_or_default();
        self.hyper_pool.sweep(limit);
        self.http1_pool.sweep(limit);
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    pub(super) fn end_all(&self, end: ConnectionEnd) {
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
    use crate::proxy::{Backend, DoorSettings, Limits, WebSettings};
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
            web: WebSettings { threads: 1, ..WebSettings::default() },
            tls: None,
            named: None,
            identities: Identities::new(&identity::Settings::default(), &secret).unwrap(),
            limits: Limits::default(),
            backends: vec![Backend { admission, servers: vec!["127.0.0.1:9".to_owned()], ..Backend::default() }],
            rules: vec![Rule::all_to(backend)],
            tally: None,
            buffers: None,
            door: DoorSettings::default(),
        }
    }

    #[test]
    fn a_backend_that_has_run_dry_stays_until_others_know() {
        let shared = ProxyShared::new(settings("old")).unwrap();
        let queue = Arc::clone(&shared.site().backends[0].admission);
        let ask = Ask {
            session: SessionKey(1),
            subnet: SubnetKey(1),
            standing: admission::Standing::Known,
            client: Ipv4Addr::LOCALHOST.into(),
            class: Class::new(0, &Method::GET),
            bytes: 100,
            patience: Duration::MAX,
        };
        drop(queue.ask(&ask, Waker::noop()).unwrap());
        let site = Arc::new(Site::after(|_| None, settings("new"), &shared.numbers).unwrap());
        shared.put_site(&site);
        shared.drop_drained();
        assert_eq!((queue.is_idle(), shared.retired().len()), (true, 1), "its session is still active elsewhere");
        let mut reports = Vec::new();
        queue.drain(10, &mut reports);
        assert!(reports.iter().all(|report| !report.active) && reports.len() == 1, "{reports:?}");
        shared.drop_drained();
        assert!(shared.retired().is_empty());
    }
}
