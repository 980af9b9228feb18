//! The SMTP server: listeners, connections, limits, shutdown.
//!
//! Each connection has a task. A connection above a limit, or from a banned address, gets a reply with the reason and is closed without a
//! session. Connections, addresses, users and bans are counted for all listeners of a server together; the other limits are those of each
//! listener's settings.

use std::future::poll_fn;
use std::io;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_core::time::Instant;

use super::connection::{Connection, Exit, linger};
use super::counters::{CounterValues, Counters};
use super::leash::Leash;
use super::limits::SmtpLimits;
use super::peer::{SmtpPeer, TlsFacts};
use super::reception::Reception;
use super::registry::Registry;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::{CloseReason, Ending, Session};
use super::settings::{Purpose, Settings};
use weir_tls::Tls;

/// A running server. Dropping it closes the listeners, but sessions go on. [`SmtpServer::shutdown`] ends both.
pub struct SmtpServer<R: Reception> {
    shared: Arc<ServerState<R>>,
    stop: watch::Sender<bool>,
}

/// How a listener uses TLS.
#[derive(Clone, Debug, Default)]
pub enum TlsMode {
    /// Not at all.
    #[default]
    Off,
    /// By STARTTLS.
    StartTls(Arc<Tls>),
    /// From the first octet (port 465).
    Implicit(Arc<Tls>),
}

struct Endpoint {
    settings: Arc<Settings>,
    tls: TlsMode,
}

/// How long to wait if the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

impl<R: Reception> SmtpServer<R> {
    /// A server for submission, without listeners. `limits` bounds connections, users and bans for all listeners together.
    pub fn new(reception: R, limits: SmtpLimits) -> SmtpServer<R> {
        SmtpServer::with_purpose(reception, limits, Purpose::Submission)
    }

    /// The same, for this purpose.
    pub fn with_purpose(reception: R, limits: SmtpLimits, purpose: Purpose) -> SmtpServer<R> {
        let registry = Registry::new(limits, purpose);
        let shared = Arc::new(ServerState::new(reception, purpose, registry));
        SmtpServer { shared, stop: watch::Sender::new(false) }
    }

    /// Listens on `address`; returns the address with the port that was chosen if it was 0.
    pub fn listen(&self, address: SocketAddr, settings: Settings, tls: TlsMode) -> io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        tokio::spawn(self.serve(TcpListener::from_std(listener)?, settings, tls));
        Ok(address)
    }

    /// Serves a listener that is already bound, until the server is shut down.
    pub fn serve(
        &self,
        listener: TcpListener,
        settings: Settings,
        tls: TlsMode,
    ) -> impl Future<Output = ()> + Send + use<R> {
        let starttls = matches!(tls, TlsMode::StartTls(_));
        let dsn = self.shared.purpose == Purpose::Submission;
        let limits = settings.limits.clone().bounded();
        let settings = Arc::new(Settings { starttls, dsn, limits, ..settings });
        let endpoint = Arc::new(Endpoint { settings, tls });
        accept_all(Arc::clone(&self.shared), listener, endpoint, self.stop.subscribe())
    }

    /// Ends all sessions of a user at once with `reply` (421). Returns how many there were.
    pub fn end_user(&self, user: &str, reply: &Reply) -> usize {
        self.shared.registry.end_user(user, reply)
    }

    /// The clients that are connected, and the bans.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// The clock for bans. It counts from the start of the server.
    pub fn clock(&self) -> Arc<dyn Fn() -> Instant + Send + Sync> {
        self.shared.clock()
    }

    /// The counters.
    pub fn counters(&self) -> CounterValues {
        self.shared.counters.values()
    }

    /// The gate behind the server.
    pub fn reception(&self) -> &R {
        &self.shared.reception
    }

    /// Stops listening, gives messages that are coming in the time `grace` to finish, sends 421 to everybody, and returns when the last
    /// session has ended.
    pub async fn shutdown(&self, grace: Duration) {
        self.stop.send_replace(true);
        self.shared.registry.end_all(Ending::AfterMessage);
        if timeout(grace, self.shared.registry.empty()).await.is_err() {
            self.shared.registry.end_all(Ending::AtOnce);
            self.shared.registry.empty().await;
        }
    }
}

async fn accept_all<R: Reception>(
    shared: Arc<ServerState<R>>,
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => admit(&shared, &endpoint, stream, address),
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; raise the limit of open files if this goes on");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn admit<R: Reception>(shared: &Arc<ServerState<R>>, endpoint: &Arc<Endpoint>, stream: TcpStream, address: SocketAddr) {
    let trusted = endpoint.settings.trusts(address.ip());
    match shared.registry.admit(address.ip(), trusted, shared.now()) {
        Ok(admission) => {
            shared.counters.connections.up();
            let Ok(local) = stream.local_addr() else { return };
            let peer = SmtpPeer::new(admission.id(), address, local);
            let session = Session::new(Arc::clone(&endpoint.settings), peer, shared.now());
            // It is boxed because the future that serves it would contain it more than once.
            let connection = Box::new(Connection::new(Arc::clone(shared), session, admission));
            tokio::spawn(converse(connection, Arc::clone(endpoint), stream));
        }
        Err(reply) => {
            shared.counters.connections_refused.up();
            tracing::debug!(%address, reply = reply.text(), "connection refused");
            turn_away(stream, &reply, matches!(endpoint.tls, TlsMode::Implicit(_)));
        }
    }
}

/// Sends the reason if that is possible without waiting. Under implicit TLS it is not, because that needs a handshake.
fn turn_away(stream: TcpStream, reply: &Reply, implicit_tls: bool) {
    if implicit_tls {
        return;
    }
    let mut text = Vec::new();
    reply.write_to(&mut text);
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(&text);
    }
}

async fn converse<R: Reception>(mut connection: Box<Connection<R>>, endpoint: Arc<Endpoint>, stream: TcpStream) {
    // Replies are written as a whole, so waiting to join them with later ones would only cost time.
    let _ = stream.set_nodelay(true);
    tracing::debug!(session = connection.session.peer().session, address = %connection.session.peer().socket, "connected");
    let verdict = connection.shared.reception.connect(connection.session.peer()).await;
    connection.session.connection_answered(verdict);
    let timer = tokio::time::sleep(endpoint.settings.limits.first_command);
    tokio::pin!(timer);
    let reason = serve_stream(&mut connection, &endpoint, stream, timer.as_mut()).await;
    tracing::debug!(session = connection.session.peer().session, ?reason, "disconnected");
}

async fn serve_stream<R: Reception>(
    connection: &mut Connection<R>,
    endpoint: &Endpoint,
    mut stream: TcpStream,
    mut timer: std::pin::Pin<&mut Sleep>,
) -> CloseReason {
    if let TlsMode::Implicit(tls) = &endpoint.tls {
        return encrypted(connection, tls, stream, timer).await;
    }
    match connection.run(&mut stream, timer.as_mut()).await {
        Exit::StartTls => match &endpoint.tls {
            TlsMode::StartTls(tls) => encrypted(connection, tls, stream, timer).await,
            TlsMode::Off | TlsMode::Implicit(_) => CloseReason::NotSmtp,
        },
        Exit::Closed(reason) => {
            part(connection, reason, &mut stream).await;
            reason
        }
    }
}

async fn encrypted<R: Reception>(
    connection: &mut Connection<R>,
    tls: &Arc<Tls>,
    stream: TcpStream,
    timer: std::pin::Pin<&mut Sleep>,
) -> CloseReason {
    let handshake_max = connection.session.settings().limits.tls_handshake;
    let Some(mut stream) = handshake(tls, stream, handshake_max, connection.admission.leash()).await else {
        connection.shared.counters.tls_failures.up();
        return CloseReason::NotSmtp;
    };
    connection.shared.counters.tls_handshakes.up();
    connection.session.tls_started(facts(&stream), connection.shared.now());
    match connection.run(&mut stream, timer).await {
        Exit::StartTls => CloseReason::NotSmtp,
        Exit::Closed(reason) => {
            part(connection, reason, &mut *stream).await;
            // Tells the client that the connection was ended on purpose and not cut by somebody else.
            let _ = timeout(handshake_max, stream.shutdown()).await;
            reason
        }
    }
}

/// Shakes hands. The handshake is boxed, so that connections without TLS do not pay for its size.
async fn handshake(tls: &Tls, stream: TcpStream, max: Duration, leash: &Leash) -> Option<Box<TlsStream<TcpStream>>> {
    let accepting = Box::pin(TlsAcceptor::from(tls.config()).accept(stream));
    let accepted = tokio::select! {
        accepted = timeout(max, accepting) => accepted,
        // Before the handshake is done, no reply can be sent.
        _ = poll_fn(|context| leash.poll_order(context)) => return None,
    };
    match accepted {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            None
        }
    }
}

fn facts(stream: &TlsStream<TcpStream>) -> TlsFacts {
    let (_, connection) = stream.get_ref();
    TlsFacts {
        version: connection.protocol_version().and_then(|version| version.as_str()).unwrap_or("TLS"),
        cipher: connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown"),
    }
}

/// A client that said QUIT reads its last reply and leaves. Others get time to read it.
async fn part<R, S>(connection: &mut Connection<R>, reason: CloseReason, stream: &mut S)
where
    R: Reception,
    S: AsyncRead + AsyncWrite + Unpin,
{
    count_end(&connection.shared.counters, reason);
    if !matches!(reason, CloseReason::Quit | CloseReason::Gone) {
        linger(stream).await;
    }
}

fn count_end(counters: &Counters, reason: CloseReason) {
    match reason {
        CloseReason::Timeout => counters.timeouts.up(),
        CloseReason::Errors | CloseReason::Commands | CloseReason::Endless | CloseReason::NotSmtp => {
            counters.abuses.up();
        }
        CloseReason::Quit | CloseReason::Logins | CloseReason::Ended | CloseReason::Refused | CloseReason::Gone => {}
    }
}
