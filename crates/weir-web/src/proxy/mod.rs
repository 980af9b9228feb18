//! HTTP in, HTTP out.
//!
//! A gate has threads of its own, each with its own listeners (the kernel spreads connections over them), its own connections
//! to the backends and its own sweep; they share the fair queues and the counts. One more thread minds the queues' time and the
//! servers' health. Every bound is in [`Limits`]. What goes wrong with one client ends that client's request or
//! connection and nothing else.

mod answer;
mod answer_body;
mod answer_head;
mod budget;
mod census;
mod client;
mod connection;
mod express;
mod forward;
mod head_watch;
mod headers;
mod lateness;
mod lines;
mod minder;
mod patience;
mod refusal;
mod request_body;
mod request_head;
mod response_body;
mod settings;
mod thread;
mod tunnel;
mod upstream;
mod visit;
mod wire;

pub use settings::{Backend, Limits, Listener, Settings};

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use weir_tls::TlsError;

use crate::admission::{Admission, SessionView};
use crate::exchange::{self, Board, Exchange, ExchangeError};
use crate::health::Server;
use crate::log::{AccessLog, LogBuffer};
use crate::pages::Pages;
use crate::route::RouteError;
use crate::view::{BackendView, ListenerView, ServerView, Status};
use budget::Budget;
use census::Census;
use client::End;
use thread::{Place, Shared, Site, Thread};

/// A running web gate. Dropped, it stops without waiting; [`Gate::shutdown`] lets what is under way finish.
pub struct Gate {
    shared: Arc<Shared>,
    threads: Vec<Arc<Thread>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    addresses: Vec<SocketAddr>,
    log: Option<Arc<AccessLog>>,
    exchange: OnceLock<Exchange>,
    stop: watch::Sender<bool>,
}

/// Connections that the kernel keeps for us while we are busy.
const BACKLOG: u32 = 4_096;
/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How often the clock of a thread moves.
const CLOCK_STEP: Duration = Duration::from_millis(100);
/// Steps of the clock between two sweeps.
const SWEEP_STEPS: u32 = 5;

impl Gate {
    /// Listens and serves.
    pub fn start(mut settings: Settings) -> Result<Gate, GateError> {
        settings.limits = settings.limits.bounded();
        settings.threads = settings.threads.clamp(1, 256);
        let pages = match &settings.pages {
            Some(folder) => {
                Pages::read(folder).map_err(|source| GateError::Pages { folder: folder.clone(), source })?
            }
            None => Pages::default(),
        };
        let log = match &settings.log {
            Some(log) => {
                Some(AccessLog::open(log).map_err(|source| GateError::Log { path: log.path.clone(), source })?)
            }
            None => None,
        };
        let site = Site::new(&settings, pages)?;
        let shared = Arc::new(Shared {
            census: Arc::new(Census::default()),
            bodies: Budget::new(settings.limits.body_buffers),
            site,
            draining: AtomicBool::new(false),
            settings,
        });
        let mut gate = Gate {
            shared,
            threads: Vec::new(),
            handles: Mutex::default(),
            addresses: Vec::new(),
            log,
            exchange: OnceLock::new(),
            stop: watch::Sender::new(false),
        };
        gate.start_threads()?;
        Ok(gate)
    }

    fn start_threads(&mut self) -> Result<(), GateError> {
        let mut listeners = self.shared.settings.listeners.clone();
        for listener in &listeners {
            refuse_taken(listener.address)?;
        }
        for number in 0..self.shared.settings.threads {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(GateError::Thread)?;
            let sockets = {
                let _inside = runtime.enter();
                listeners.iter_mut().map(listen).collect::<Result<Vec<_>, _>>()?
            };
            if number == 0 {
                self.addresses = listeners.iter().map(|listener| listener.address).collect();
            }
            let log = self.log.as_ref().map(|log| LogBuffer::new(Arc::clone(log)));
            let thread = Arc::new(Thread::new(Arc::clone(&self.shared), log));
            self.threads.push(Arc::clone(&thread));
            let (listeners, stop) = (listeners.clone(), self.stop.subscribe());
            let serve = move || runtime.block_on(serve(&thread, sockets, listeners, stop));
            self.spawn(&format!("web-{number}"), serve)?;
        }
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.subscribe());
        self.spawn("web-minder", move || minder::run(&shared, stop))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), GateError> {
        let handle = std::thread::Builder::new().name(name.into()).spawn(run).map_err(GateError::Thread)?;
        self.handles.get_mut().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// Where it listens, in the order of the settings.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The fair queues, one a backend.
    pub fn admissions(&self) -> Vec<Arc<Admission>> {
        self.shared.site.backends.iter().map(|place| Arc::clone(&place.admission)).collect()
    }

    /// Joins the other front-ends, once. The queues must have been set up to report.
    pub fn join(&self, settings: &exchange::Settings) -> Result<&Exchange, ExchangeError> {
        if let Some(exchange) = self.exchange.get() {
            return Ok(exchange);
        }
        let boards = self.admissions().into_iter().map(|admission| admission as Arc<dyn Board>).collect();
        let from = &self.shared.settings;
        let exchange = Exchange::start(settings, &from.identities, boards, from.tally.clone())?;
        Ok(self.exchange.get_or_init(|| exchange))
    }

    /// The state of the whole gate.
    pub fn status(&self) -> Status {
        let (connections, connections_accepted, connections_refused) = self.shared.census.counts();
        let sum = |count: &dyn Fn(&Thread) -> u64| self.threads.iter().map(|thread| count(thread)).sum();
        let class = |at: usize| sum(&|thread: &Thread| thread.responses[at].load(Ordering::Relaxed));
        Status {
            listeners: self.shared.settings.listeners.iter().zip(&self.addresses).map(listener_view).collect(),
            threads: self.threads.len(),
            connections,
            connections_accepted,
            connections_refused,
            idle_connections: self.threads.iter().map(|thread| thread.idle_connections()).sum(),
            responses: [class(1), class(2), class(3), class(4), class(5)],
            given_up: sum(&|thread: &Thread| thread.given_up.load(Ordering::Relaxed)),
            log_lines_dropped: self.log.as_ref().map_or(0, |log| log.dropped()),
            backends: self.shared.site.backends.iter().map(|place| backend_view(place)).collect(),
            exchange: self.exchange.get().map(Exchange::status),
        }
    }

    /// Sessions that have requests at a backend, those with the most first, at most `most` of each.
    pub fn sessions(&self, most: usize) -> Vec<SessionView> {
        self.admissions().iter().flat_map(|admission| admission.session_views(most)).collect()
    }

    /// Opens the access log anew, as it may have been renamed, and reads the certificate again.
    pub fn reload(&self) -> Result<(), TlsError> {
        if let Some(log) = &self.log {
            log.reopen();
        }
        self.shared.settings.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
    }

    /// Stops listening, lets what is under way finish within the configured time, and returns when all is over.
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

fn listener_view((listener, address): (&Listener, &SocketAddr)) -> ListenerView {
    let mut about = String::from(if listener.tls { "HTTPS" } else { "HTTP" });
    if listener.proxy_protocol {
        about.push_str(", PROXY header from trusted peers");
    }
    if let Some(port) = listener.redirect {
        about.push_str(&format!(", redirects to https port {port}"));
    }
    ListenerView { address: address.to_string(), about }
}

fn backend_view(place: &Place) -> BackendView {
    let server = |server: &Arc<Server>| ServerView {
        address: server.address.clone(),
        up: place.servers.is_up(server),
        in_flight: server.in_flight(),
    };
    BackendView { queue: place.admission.view(), servers: place.servers.all().iter().map(server).collect() }
}

/// Sockets that share their port would share it with a stranger's as well, without a word.
fn refuse_taken(address: SocketAddr) -> Result<(), GateError> {
    let alone = std::net::TcpListener::bind(address);
    alone.map(drop).map_err(|source| GateError::Listen { address, source })
}

/// Opens a socket; a port that was chosen is written back, for the other threads.
fn listen(listener: &mut Listener) -> Result<TcpListener, GateError> {
    let address = listener.address;
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let socket = open().map_err(|source| GateError::Listen { address, source })?;
    listener.address = socket.local_addr().map_err(|source| GateError::Listen { address, source })?;
    Ok(socket)
}

/// One thread's work, until it is told to stop and all is over.
async fn serve(
    thread: &Arc<Thread>,
    sockets: Vec<TcpListener>,
    listeners: Vec<Listener>,
    mut stop: watch::Receiver<bool>,
) {
    let accepting: Vec<_> = sockets
        .into_iter()
        .zip(listeners)
        .map(|(socket, listener)| tokio::spawn(accept(Arc::clone(thread), socket, Arc::new(listener))))
        .collect();
    let sweeping = tokio::spawn(sweep(Arc::clone(thread)));
    // An error means that the gate is gone.
    let _ = stop.wait_for(|stop| *stop).await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    thread.shared.draining.store(true, Ordering::Relaxed);
    thread.end_all(End::Drain);
    let gone = async {
        while thread.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(thread.shared.settings.limits.drain, gone).await;
    thread.end_all(End::Cut);
    sweeping.abort();
    if let Some(log) = &thread.log {
        tokio::task::yield_now().await;
        log.flush();
    }
}

async fn accept(thread: Arc<Thread>, socket: TcpListener, listener: Arc<Listener>) {
    loop {
        match socket.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(connection::run(Arc::clone(&thread), Arc::clone(&listener), stream, address));
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

/// Why the gate cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The error pages cannot be read.
    #[error("cannot read the error pages in {}: {source}", folder.display())]
    Pages {
        /// Where.
        folder: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log {}: {source}", path.display())]
    Log {
        /// Where.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The routes lead nowhere.
    #[error(transparent)]
    Route(#[from] RouteError),
}
