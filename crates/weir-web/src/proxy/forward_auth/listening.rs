//! The sockets of the forward-auth door: HTTP requests over TCP or a Unix socket, and log lines as datagrams.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use weir_foundation::sockets;

use super::super::door_settings::DoorSettings;
use super::super::error::GateError;
use super::Door;
use super::answer::answer;
use super::held_slots::SlotEffect;
use super::log_line::{LINE_BYTES_MAX, ended};

/// How often slots are looked for whose time is over.
const LOOK: Duration = Duration::from_millis(50);
/// Those who accept rest so long after an error, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// How long a proxy may take to write the head of a question. An idle connection is closed after that, too, and the proxy opens another.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// What the kernel is asked to keep of log lines that are not read yet.
const RECEIVE_BUFFER: usize = 4 << 20;

pub(in super::super) struct Sockets {
    pub(in super::super) questions: Questions,
    pub(in super::super) logs: Logs,
}

/// Where proxies ask.
pub(in super::super) struct Questions {
    tcp: Vec<std::net::TcpListener>,
    unix: Option<std::os::unix::net::UnixListener>,
}

/// Where their logs come in.
pub(in super::super) struct Logs {
    udp: Vec<UdpSocket>,
    unix: Option<UnixDatagram>,
}

impl Sockets {
    /// Opens what is configured; then where questions and logs come in, as people write it.
    pub(super) fn open(settings: &DoorSettings) -> Result<(Sockets, Vec<String>, Vec<String>), GateError> {
        let (mut listeners, mut logs) = (Vec::new(), Vec::new());
        let mut tcp = Vec::new();
        for address in &settings.listen {
            let fail = |source| GateError::Listen { address: *address, source };
            let socket = sockets::listen(*address).map_err(fail)?;
            listeners.push(socket.local_addr().map_err(fail)?.to_string());
            tcp.push(socket);
        }
        let mut udp = Vec::new();
        for address in &settings.log_listen {
            let fail = |source| GateError::Listen { address: *address, source };
            let socket = receive(*address).map_err(fail)?;
            logs.push(socket.local_addr().map_err(fail)?.to_string());
            udp.push(socket);
        }
        let named = |path: &std::path::PathBuf, source| GateError::ListenUnix { path: path.clone(), source };
        let unix = settings.listen_unix.as_ref();
        let unix = unix.map(|path| sockets::listen_unix(path).map_err(|error| named(path, error))).transpose()?;
        let log_unix = settings.log_unix.as_ref();
        let log_unix =
            log_unix.map(|path| sockets::receive_unix(path).map_err(|error| named(path, error))).transpose()?;
        listeners.extend(settings.listen_unix.iter().map(|path| format!("unix:{}", path.display())));
        logs.extend(settings.log_unix.iter().map(|path| format!("unix:{}", path.display())));
        let sockets = Sockets { questions: Questions { tcp, unix }, logs: Logs { udp, unix: log_unix } };
        Ok((sockets, listeners, logs))
    }
}

/// A socket for datagrams, with as much room as the kernel gives us.
fn receive(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
    Ok(socket)
}

/// Answers proxies until the gate stops. Questions that wait then are let go with it.
pub(in super::super) async fn answer_questions(door: Arc<Door>, questions: Questions, mut stop: watch::Receiver<bool>) {
    let connections = Arc::new(Semaphore::new(door.settings.connections as usize));
    let mut tasks = JoinSet::new();
    for socket in questions.tcp {
        tasks.spawn(accept_tcp(Arc::clone(&door), Arc::clone(&connections), socket));
    }
    if let Some(socket) = questions.unix {
        tasks.spawn(accept_unix(Arc::clone(&door), Arc::clone(&connections), socket));
    }
    tasks.spawn(expire(door));
    // An error means that the gate is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn expire(door: Arc<Door>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let over = door.slots.expire(Instant::now());
        door.ended_by_time.fetch_add(over, Ordering::Relaxed);
    }
}

async fn accept_tcp(door: Arc<Door>, connections: Arc<Semaphore>, socket: std::net::TcpListener) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "no proxy can ask the web gate"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, proxy)) if door.settings.admits(proxy.ip()) => {
                let _ = stream.set_nodelay(true);
                begin(&door, &connections, stream);
            }
            Ok((_, proxy)) => {
                tracing::warn!(%proxy, "a machine that web.forward_auth.clients does not name asked whose turn it is");
            }
            Err(error) => rest(&error).await,
        }
    }
}

async fn accept_unix(door: Arc<Door>, connections: Arc<Semaphore>, socket: std::os::unix::net::UnixListener) {
    let listener = match UnixListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "no proxy can ask the web gate"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => begin(&door, &connections, stream),
            Err(error) => rest(&error).await,
        }
    }
}

async fn rest(error: &io::Error) {
    tracing::warn!(%error, "a proxy's connection was not accepted");
    tokio::time::sleep(AFTER_ERROR).await;
}

/// Serves a proxy's connection. If it closes while a question waits, the question is forgotten.
fn begin(door: &Arc<Door>, connections: &Arc<Semaphore>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let Ok(place) = Arc::clone(connections).try_acquire_owned() else {
        tracing::warn!("web.forward_auth.connections are all taken");
        return;
    };
    let door = Arc::clone(door);
    tokio::spawn(async move {
        let limit = door.shared.site().limits.header_bytes as usize;
        let service = service_fn(move |request| {
            let door = Arc::clone(&door);
            async move { Ok::<_, Infallible>(answer(&door, &request).await) }
        });
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .half_close(false)
            .max_buf_size(limit.max(8 << 10));
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a proxy has closed its connection");
        }
        drop(place);
    });
}

/// Reads the logs of proxies until the gate stops.
pub(in super::super) async fn hear_ends(door: Arc<Door>, logs: Logs, mut stop: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    for socket in logs.udp {
        tasks.spawn(hear_udp(Arc::clone(&door), socket));
    }
    if let Some(socket) = logs.unix {
        tasks.spawn(hear_unix(door, socket));
    }
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn hear_udp(door: Arc<Door>, socket: UdpSocket) {
    let socket = match tokio::net::UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the logs of proxies cannot be received"),
    };
    let mut line = vec![0; LINE_BYTES_MAX];
    loop {
        match socket.recv_from(&mut line).await {
            Ok((octets, proxy)) if door.settings.admits(proxy.ip()) => door.hear(&line[..octets]),
            Ok((_, proxy)) => {
                tracing::debug!(%proxy, "a log line of a machine that web.forward_auth.clients does not name");
            }
            Err(error) => rest(&error).await,
        }
    }
}

async fn hear_unix(door: Arc<Door>, socket: UnixDatagram) {
    let socket = match tokio::net::UnixDatagram::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the logs of proxies cannot be received"),
    };
    let mut line = vec![0; LINE_BYTES_MAX];
    loop {
        match socket.recv(&mut line).await {
            Ok(octets) => door.hear(&line[..octets]),
            Err(error) => rest(&error).await,
        }
    }
}

impl Door {
    /// One line of a log.
    fn hear(&self, line: &[u8]) {
        let counter = match ended(line).map(|end| self.slots.end(&end)) {
            Some(SlotEffect::Slot) => &self.ended_by_log,
            // Of a request that was refused, or left while it waited.
            Some(SlotEffect::NoSlot) => return,
            None => &self.unreadable_lines,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
