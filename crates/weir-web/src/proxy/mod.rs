//! The reverse proxy: HTTP in, HTTP out.
//!
//! A gate has threads of its own, each with its own listeners (the kernel spreads connections over them), its own connections
//! to the backends and its own sweep; they share the fair queues and the counts. One more thread (`maintenance`) ticks the queues and
//! checks the servers' health. Every bound is in [`Limits`]. What goes wrong with one client ends that client's request or connection and
//! nothing else.

mod admit;
mod backend;
mod budget;
mod buffer;
mod client;
mod connection;
mod connection_count;
mod deadline;
mod door_settings;
mod error;
mod expected_stream;
mod fast_path;
mod forward;
pub mod forward_auth;
mod headers;
mod http2_control;
mod http2_query;
mod http2_stream;
mod interim_responses;
mod limits;
mod listener;
mod maintenance;
mod origin;
mod presence;
mod readers;
mod refusal;
mod relay;
mod request_body;
mod request_record;
mod response_body;
mod server_stream;
mod settings;
mod site;
mod socket;
mod thread;
mod tunnel;
mod unit_meter;
mod unread;
mod upstream;
mod upstream_connection;
mod upstream_response;
mod vouching;
mod web_settings;

pub use backend::{Backend, BackendRule, Trust};
pub use door_settings::DoorSettings;
pub use error::GateError;
pub use limits::Limits;
pub use listener::Listener;
pub use server_stream::TrustError;
pub use settings::Settings;
pub use web_settings::{CertificateRule, WebSettings};

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use weir_foundation::date::rfc3339;
use weir_foundation::{sockets, supervision};

use crate::admission::{Admission, SessionView};
use crate::blocks::Blocks;
use crate::exchange::{self, Exchange, ExchangeError};
use crate::health::UpstreamServer;
use crate::identity::Identities;
use crate::log::{AccessLog, LogBuffer};
use crate::view::{BackendView, ListenerView, ServerView, Status};
use forward_auth::Door;
use presence::ConnectionEnd;
use site::{ActiveBackend, Site};
use thread::{ProxyShared, Thread};

/// A running web gate. When it is dropped, it stops without waiting; [`Gate::shutdown`] lets requests in progress finish.
pub struct Gate {
    shared: Arc<ProxyShared>,
    threads: Vec<Arc<Thread>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    addresses: Vec<SocketAddr>,
    log: Option<Arc<AccessLog>>,
    /// The listeners where other proxies ask, if they may.
    door: Option<Arc<Door>>,
    /// One reload at a time.
    reloading: Mutex<()>,
    stop: watch::Sender<bool>,
}

/// What a reload has changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// Backends that are new.
    pub added: Vec<String>,
    /// Backends that are gone; requests in progress there continue.
    pub removed: Vec<String>,
    /// Backends that stay, with their queues.
    pub kept: Vec<String>,
    /// Routes there are now.
    pub routes: usize,
}

/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How long a gate that stops waits for the first octets of clients that have just connected.
const PATIENCE_FOR_ARRIVALS: Duration = Duration::from_secs(2);
/// How often the clock of a thread moves.
const CLOCK_STEP: Duration = Duration::from_millis(100);
/// Steps of the clock between two sweeps.
const SWEEP_STEPS: u32 = 5;

impl Gate {
    pub fn start(mut settings: Settings) -> Result<Gate, GateError> {
        settings.limits = settings.limits.bounded();
        settings.web.threads = settings.web.thread_count();
        let log = match &settings.web.log {
            Some(log) => {
                Some(AccessLog::open(log).map_err(|source| GateError::Log { path: log.path.clone(), source })?)
            }
            None => None,
        };
        let shared = Arc::new(ProxyShared::new(settings)?);
        let mut gate = Gate {
            shared,
            threads: Vec::new(),
            handles: Mutex::default(),
            addresses: Vec::new(),
            log,
            door: None,
            reloading: Mutex::default(),
            stop: watch::Sender::new(false),
        };
        gate.start_threads()?;
        Ok(gate)
    }

    fn start_threads(&mut self) -> Result<(), GateError> {
        let site = self.shared.site();
        let threads = site.settings.web.threads;
        let mut sockets: Vec<Vec<ListeningSocket>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, listener) in site.settings.listeners.iter().enumerate() {
            let address = listener.address;
            let fail = |source| GateError::Listen { address, source };
            let open = sockets::listen_shared(address, threads).map_err(fail)?;
            self.addresses.extend(open.first().map(std::net::TcpListener::local_addr).transpose().map_err(fail)?);
            for (at, socket) in open.into_iter().enumerate() {
                sockets[at % threads].push(ListeningSocket { number, socket });
            }
        }
        for (number, sockets) in sockets.into_iter().enumerate() {
            let log = self.log.as_ref().map(|log| LogBuffer::new(Arc::clone(log)));
            let thread = Arc::new(Thread::new(Arc::clone(&self.shared), log));
            self.threads.push(Arc::clone(&thread));
            self.spawn(&format!("web-{number}"), "web thread", serve(thread, sockets, self.stop.subscribe()))?;
        }
        let maintenance = maintenance::run(Arc::clone(&self.shared), self.stop.subscribe());
        self.spawn("web-maintenance", "web maintenance", maintenance)?;
        self.open_door(&site.settings.door)
    }

    /// Opens the listeners for other proxies, if they are configured. The end of requests is read by a thread of its own, because the kernel drops what it has no room for.
    fn open_door(&mut self, settings: &DoorSettings) -> Result<(), GateError> {
        if !settings.is_on() {
            return Ok(());
        }
        let (door, sockets) = Door::open(Arc::clone(&self.shared), settings)?;
        let questions = forward_auth::answer_questions(Arc::clone(&door), sockets.questions, self.stop.subscribe());
        self.spawn("web-door", "web forward-auth", questions)?;
        let ends = forward_auth::hear_ends(Arc::clone(&door), sockets.logs, self.stop.subscribe());
        self.spawn("web-door-log", "web forward-auth log", ends)?;
        self.door = Some(door);
        Ok(())
    }

    /// Runs a future on a thread of its own, watched by the supervisor of the gate.
    fn spawn(
        &mut self,
        thread: &str,
        task: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), GateError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(GateError::Thread)?;
        let run = supervision::watched_elsewhere(task, run);
        let run = move || runtime.block_on(run);
        let handle = std::thread::Builder::new().name(thread.into()).spawn(run).map_err(GateError::Thread)?;
        self.handles.get_mut().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// Where it listens, in the order of the settings.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The settings in force now.
    pub fn settings(&self) -> Settings {
        self.shared.site().settings.clone()
    }

    /// The fair queues, one for each backend.
    pub fn admissions(&self) -> Vec<Arc<Admission>> {
        self.shared.site().backends.iter().map(|backend| Arc::clone(&backend.admission)).collect()
    }

    /// Joins the other front-ends, once. The queues must have been configured to report.
    pub fn join(&self, settings: &exchange::Settings) -> Result<&Exchange, ExchangeError> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exchange) = self.shared.exchange.get() {
            return Ok(exchange);
        }
        let (site, queues) = (self.shared.site(), self.shared.queues());
        let exchange = Exchange::start(settings, &site.settings.identities, queues, site.settings.tally.clone())?;
        Ok(self.shared.exchange.get_or_init(|| exchange))
    }

    /// The state of the whole gate.
    pub fn status(&self) -> Status {
        let connections = self.shared.connections.totals();
        let sum = |count: &dyn Fn(&Thread) -> u64| self.threads.iter().map(|thread| count(thread)).sum();
        let class = |at: usize| sum(&|thread: &Thread| thread.responses[at].load(Ordering::Relaxed));
        let site = self.shared.site();
        Status {
            listeners: site
                .settings
                .listeners
                .iter()
                .zip(&self.addresses)
                .map(|(listener, address)| listener_view(listener, address))
                .collect(),
            threads: self.threads.len(),
            connections: connections.open,
            connections_accepted: connections.accepted,
            connections_refused: connections.refused,
            connections_pushed_out: connections.pushed_out,
            idle_connections: self.threads.iter().map(|thread| thread.idle_connections()).sum(),
            responses: [class(1), class(2), class(3), class(4), class(5)],
            given_up: sum(&|thread: &Thread| thread.given_up.load(Ordering::Relaxed)),
            buffered_bytes: self.shared.bodies.held() + self.shared.responses.held(),
            buffered_file_bytes: self.shared.body_files.held() + self.shared.response_files.held(),
            readers_cut: self.shared.readers.cut() + self.shared.unread.cut(),
            log_lines_dropped: self.log.as_ref().map_or(0, |log| log.dropped()),
            backends: site.backends.iter().map(|backend| backend_view(backend, &site.settings.identities)).collect(),
            exchange: self.shared.exchange.get().map(Exchange::status),
            forward_auth: self.door.as_ref().map(|door| door.view()),
        }
    }

    /// Sessions that have requests at a backend; those with the most come first, at most `most` for each backend.
    pub fn sessions(&self, most: usize) -> Vec<SessionView> {
        self.admissions().iter().flat_map(|admission| admission.session_views(most)).collect()
    }

    /// With `true` a server gets no new requests from now on, with `false` it gets them again. Returns in how many backends it is.
    pub fn drain(&self, address: &str, draining: bool) -> usize {
        let site = self.shared.site();
        let servers = site.backends.iter().flat_map(|backend| backend.servers.all());
        servers.filter(|server| server.address == address).map(|server| server.drain(draining)).count()
    }

    /// From now on a server gets this many requests for each one of a server with the weight 1. Returns in how many backends it is.
    pub fn set_weight(&self, address: &str, weight: u32) -> usize {
        let site = self.shared.site();
        let servers = site.backends.iter().flat_map(|backend| backend.servers.all());
        servers.filter(|server| server.address == address).map(|server| server.set_weight(weight)).count()
    }

    /// Networks that are refused for a while.
    pub fn blocks(&self) -> &Blocks {
        &self.shared.blocks
    }

    /// Opens the access log again, because it may have been renamed.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Uses other settings from now on. Requests in progress end where they began; requests that wait for a backend that stays keep their places;
    /// a backend that is removed finishes its requests. On an error nothing has changed. Addresses, threads, the place of the log and the tally stay as
    /// they were; so must the keys of sessions and subnets, by which queues and other front-ends know them.
    pub fn reload(&self, settings: Settings) -> Result<Reloaded, GateError> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.shared.site();
        let settings = lasting(&before.settings, settings);
        let site = Arc::new(Site::after(|name| self.shared.backend(name), settings, &self.shared.numbers)?);
        site.settle(&before);
        self.shared.put_site(&site);
        self.threads.iter().for_each(|thread| thread.put_site(&site));
        Ok(difference(&before, &site))
    }

    /// Stops listening, lets requests in progress finish within the configured time, and returns when everything has ended.
    pub fn shutdown(&self) {
        self.stop.send_replace(true);
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            let _ = handle.join();
        }
        if let Some(log) = &self.log {
            log.close();
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// The new settings, except that what only a restart can change stays as it was.
fn lasting(before: &Settings, settings: Settings) -> Settings {
    let addresses =
        |settings: &Settings| settings.listeners.iter().map(|listener| listener.address).collect::<Vec<_>>();
    let same = addresses(before) == addresses(&settings);
    Settings {
        listeners: if same { settings.listeners } else { before.listeners.clone() },
        web: WebSettings { threads: before.web.threads, log: before.web.log.clone(), ..settings.web },
        tally: before.tally.clone(),
        door: before.door.clone(),
        limits: settings.limits.bounded(),
        ..settings
    }
}

fn difference(before: &Site, site: &Site) -> Reloaded {
    let names =
        |site: &Site| site.backends.iter().map(|backend| backend.admission.name().to_owned()).collect::<Vec<_>>();
    let (old, new) = (names(before), names(site));
    let (kept, added) = new.into_iter().partition(|name| old.contains(name));
    let removed = old.into_iter().filter(|name| site.backend(name).is_none()).collect();
    Reloaded { added, removed, kept, routes: site.settings.rules.len() }
}

fn listener_view(listener: &Listener, address: &SocketAddr) -> ListenerView {
    let mut about = String::from(if listener.tls { "HTTPS" } else { "HTTP" });
    if listener.proxy_protocol {
        about.push_str(", PROXY header from trusted peers");
    }
    if let Some(port) = listener.redirect {
        about.push_str(&format!(", redirects to https port {port}"));
    }
    ListenerView { address: address.to_string(), about }
}

fn backend_view(backend: &ActiveBackend, identities: &Identities) -> BackendView {
    let server = |server: &Arc<UpstreamServer>| ServerView {
        address: server.address.clone(),
        up: backend.servers.is_up(server),
        tried: server.was_tried(),
        trouble: server.trouble(),
        failing_since: server.failing_since_unix_s().map(|at| rfc3339((at as i64).saturating_mul(1_000_000_000))),
        in_flight: server.in_flight(),
        weight: server.weight(),
        draining: server.is_draining(),
        broken: server.is_broken(),
    };
    let mut queue = backend.admission.view();
    queue.pressure.name(|client| identities.network(client).to_string());
    BackendView { queue, servers: backend.servers.all().iter().map(server).collect() }
}

/// A socket from which one thread accepts.
struct ListeningSocket {
    /// Of the listener, whose settings may change.
    number: usize,
    socket: std::net::TcpListener,
}

/// Runs one thread, until it is told to stop and everything has ended.
async fn serve(thread: Arc<Thread>, sockets: Vec<ListeningSocket>, mut stop: watch::Receiver<bool>) {
    let accept = |listening| supervision::spawn("web listener", accept(Arc::clone(&thread), listening));
    let accepting: Vec<_> = sockets.into_iter().map(accept).collect();
    let sweeping = supervision::spawn("web sweep", sweep(Arc::clone(&thread)));
    // An error means that the gate is gone.
    let _ = stop.wait_for(|stop| *stop).await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    thread.shared.draining.store(true, Ordering::Relaxed);
    thread.end_all(ConnectionEnd::Drain);
    // A client that has just connected is about to send a request, and should not be closed without an answer.
    let patient = tokio::time::Instant::now() + PATIENCE_FOR_ARRIVALS;
    let gone = async {
        while thread.connections() > 0 || (thread.is_arriving() && tokio::time::Instant::now() < patient) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(thread.site().limits.drain, gone).await;
    thread.end_all(ConnectionEnd::Cut);
    sweeping.abort();
    if let Some(log) = &thread.log {
        tokio::task::yield_now().await;
        log.flush();
    }
}

async fn accept(thread: Arc<Thread>, ListeningSocket { number, socket }: ListeningSocket) {
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the web gate cannot accept"),
    };
    loop {
        match socket.accept().await {
            Ok((stream, address)) => {
                let site = thread.site();
                if let Some(listener) = site.settings.listeners.get(number) {
                    let run =
                        connection::run(thread.arriving(), Arc::clone(&thread), listener.clone(), stream, address);
                    tokio::spawn(run);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the web gate cannot accept");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

async fn sweep(thread: Arc<Thread>) {
    let mut step = 0_u32;
    loop {
        tokio::time::sleep(CLOCK_STEP).await;
        thread.tell_time();
        step = step.wrapping_add(1);
        if step.is_multiple_of(SWEEP_STEPS) {
            thread.sweep();
        }
    }
}
