//! From an accepted socket to served requests: PROXY header, TLS, then HTTP/1.1 or HTTP/2.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::HeaderValue;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use weir_http1::framing_watch::FramingWatch;
use weir_tls::CHALLENGE_PROTOCOL;

use super::client::{Accepted, Client, ClientStream, Watch};
use super::connection_count::{ConnectionLimits, holder};
use super::fast_path;
use super::forward::serve;
use super::http2_control::ControlWatch;
use super::http2_query::QueryStream;
use super::http2_stream::StreamExecutor;
use super::limits::Limits;
use super::listener::Listener;
use super::origin::Origin;
use super::presence::ConnectionEnd;
use super::socket::{Socket, Watchable};
use super::thread::{Arriving, Thread};
use crate::identity::proxy_protocol::{self, Outcome, Source};

/// How a client begins that speaks HTTP/2 without TLS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How many octets are read to find out what a client speaks.
const SNIFF_BYTES: usize = 2_048;

/// Serves a connection to its end.
pub(super) async fn run(
    arriving: Arriving,
    thread: Arc<Thread>,
    listener: Listener,
    mut stream: TcpStream,
    socket: SocketAddr,
) {
    let site = thread.site();
    let (limits, identities) = (Arc::clone(&site.limits), site.settings.identities.clone());
    let tls = site.settings.tls.as_ref().filter(|_| listener.tls).map(|tls| tls.config());
    // A connection may last for long, and must not keep in memory a site that a reload has replaced.
    drop(site);
    if listener.tls && tls.is_none() {
        return;
    }
    let listed = identities.lists(socket.ip());
    let holder_of = |address| holder(address, identities.subnet(address));
    let (count, bounds) = (&thread.shared.connections, ConnectionLimits::from(&*limits));
    let proxied = listener.proxy_protocol && listed;
    let admitted = match proxied {
        true => count.admit_proxied(bounds),
        false => count.admit((!listed).then(|| holder_of(socket.ip())), bounds),
    };
    let Some(mut counted) = admitted else { return };
    let _ = stream.set_nodelay(true);
    let (mut peer, mut ahead) = (socket.ip().to_canonical(), Vec::new());
    if proxied {
        let Ok(Some(header)) = timeout(limits.header, read_proxy_header(&mut stream)).await else { return };
        if let Source::Client(client) = header.source {
            peer = client.ip().to_canonical();
            let Some(own) = counted.counted_for(holder_of(peer), bounds) else { return };
            counted = own;
        }
        ahead = header.behind;
    }
    let Ok(text) = HeaderValue::from_str(&peer.to_string()) else { return };
    let origin = Origin::new(text, identities.trail_of(peer), tls.is_some());
    let identities = if tls.is_some() { identities.on_tls() } else { identities };
    let client = Client::new(Accepted {
        peer,
        origin,
        identities,
        redirect: listener.redirect,
        clock: Arc::clone(&thread.clock),
        counted,
    });
    // Boxed, so that the task of a connection without TLS does not reserve room for TLS.
    match tls {
        Some(tls) => {
            let acceptor = TlsAcceptor::from(tls);
            let stream = ClientStream::new(Socket::new(stream), Arc::clone(&client), ahead, Watch::Nobody);
            let limit = limits.tls_handshake;
            drop(limits);
            Box::pin(serve_tls(arriving, Arc::clone(&thread), client, acceptor, limit, stream)).await;
        }
        None => {
            let sniffed = unless_cut(&client, timeout(limits.header, sniff(&mut stream, ahead))).await;
            let Some(Ok(Some(first))) = sniffed else { return };
            drop(limits);
            Box::pin(serve_stream(arriving, Arc::clone(&thread), client, stream, first)).await;
        }
    }
}

async fn serve_tls(
    arriving: Arriving,
    thread: Arc<Thread>,
    client: Arc<Client>,
    acceptor: TlsAcceptor,
    limit: Duration,
    stream: ClientStream<Socket>,
) {
    let accepted = unless_cut(&client, timeout(limit, acceptor.accept(stream))).await;
    let Some(Ok(Ok(stream))) = accepted else { return };
    let protocol = stream.get_ref().1.alpn_protocol();
    if protocol == Some(CHALLENGE_PROTOCOL.as_bytes()) {
        // An authority has seen the certificate of its challenge, and nothing more is needed.
        return;
    }
    let http2 = protocol == Some(b"h2");
    serve_stream(arriving, thread, client, stream, Sniffed { octets: Vec::new(), http2 }).await;
}

struct ProxyHeader {
    source: Source,
    behind: Vec<u8>,
}

async fn read_proxy_header(stream: &mut TcpStream) -> Option<ProxyHeader> {
    let mut octets = Vec::with_capacity(256);
    loop {
        if stream.read_buf(&mut octets).await.ok()? == 0 {
            return None;
        }
        match proxy_protocol::parse(&octets) {
            Outcome::NeedMore if octets.len() <= proxy_protocol::BYTES_MAX => {}
            Outcome::Header { consumed, source } => {
                let behind = octets.split_off(consumed.min(octets.len()));
                return Some(ProxyHeader { source, behind });
            }
            Outcome::NeedMore | Outcome::Refused(_) => return None,
        }
    }
}

/// What a connection begins with.
struct Sniffed {
    octets: Vec<u8>,
    http2: bool,
}

/// Reads until it is clear whether this is HTTP/2.
async fn sniff(stream: &mut TcpStream, mut octets: Vec<u8>) -> Option<Sniffed> {
    loop {
        let agreed = octets.iter().zip(PREFACE).take_while(|(octet, known)| octet == known).count();
        if agreed == PREFACE.len() {
            return Some(Sniffed { octets, http2: true });
        }
        if agreed < octets.len() {
            return Some(Sniffed { octets, http2: false });
        }
        octets.reserve_exact(SNIFF_BYTES);
        if stream.read_buf(&mut octets).await.ok()? == 0 {
            return None;
        }
    }
}

async fn serve_stream(
    arriving: Arriving,
    thread: Arc<Thread>,
    client: Arc<Client>,
    stream: impl Watchable,
    sniffed: Sniffed,
) {
    let Sniffed { octets: ahead, http2 } = sniffed;
    let number = thread.keep(Arc::clone(&client));
    drop(arriving);
    if thread.shared.draining.load(Ordering::Relaxed) {
        client.finish(ConnectionEnd::Drain);
    }
    if http2 {
        serve_http2(&thread, &client, stream, ahead).await;
    } else {
        serve_http1(&thread, &client, stream, ahead).await;
    }
    thread.forget(number);
}

/// HTTP/1: on the fast path as long as requests are plain, then by hyper.
async fn serve_http1(thread: &Arc<Thread>, client: &Arc<Client>, mut stream: impl Watchable, ahead: Vec<u8>) {
    let mut rest = None;
    {
        let mut plain = pin!(fast_path::serve(thread, client, &mut stream, ahead));
        until_end(client, |cx, _| plain.as_mut().poll(cx).map(|left| rest = left)).await;
    }
    let Some(rest) = rest else { return };
    let (stream, mut closed) = stream.watched();
    let watch = Watch::Framing(FramingWatch::new(thread.site().limits.header_bytes));
    let stream = TokioIo::new(ClientStream::new(stream, Arc::clone(client), rest.into(), watch));
    let (shared, known) = (Arc::clone(thread), Arc::clone(client));
    let service = service_fn(move |request| serve(Arc::clone(&shared), Arc::clone(&known), request));
    // Boxed, so that a connection on the fast path does not reserve room for it.
    let mut connection =
        Box::pin(http1_server(&thread.site().limits).serve_connection(stream, service).with_upgrades());
    let mut draining = false;
    until_end(client, |cx, end| {
        let mut over = connection.as_mut().poll(cx).is_ready();
        // Not earlier, because hyper closes a connection on which it has read nothing yet, and the first request may be on its way to it.
        if !over && end == ConnectionEnd::Drain && !std::mem::replace(&mut draining, true) {
            connection.as_mut().graceful_shutdown();
            over = connection.as_mut().poll(cx).is_ready();
        }
        // A client that closes while its request waits gives the request up.
        if over || (client.is_waiting() && closed.as_mut().poll(cx).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

async fn serve_http2(thread: &Arc<Thread>, client: &Arc<Client>, stream: impl Watchable, ahead: Vec<u8>) {
    let stream = ClientStream::new(stream, Arc::clone(client), ahead, Watch::Control(ControlWatch::default()));
    let stream = TokioIo::new(QueryStream::new(stream));
    let (shared, known) = (Arc::clone(thread), Arc::clone(client));
    let service = service_fn(move |request| serve(Arc::clone(&shared), Arc::clone(&known), request));
    let mut connection = Box::pin(http2_server(&thread.site().limits, client).serve_connection(stream, service));
    let mut draining = false;
    until_end(client, |cx, end| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if end == ConnectionEnd::Drain && !std::mem::replace(&mut draining, true) {
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(cx).map(drop);
        }
        Poll::Pending
    })
    .await;
}

/// Waits for something from a client that is not being served yet; None if the connection is to be closed before it comes.
async fn unless_cut<T>(client: &Client, wait: impl Future<Output = T>) -> Option<T> {
    let (mut wait, mut done) = (pin!(wait), None);
    until_end(client, |cx, _| wait.as_mut().poll(cx).map(|outcome| done = Some(outcome))).await;
    done
}

async fn until_end(client: &Client, mut poll: impl FnMut(&mut std::task::Context<'_>, ConnectionEnd) -> Poll<()>) {
    let mut known = false;
    std::future::poll_fn(|cx| {
        if !std::mem::replace(&mut known, true) {
            client.presence.polled_by(cx.waker());
        }
        match client.end() {
            ConnectionEnd::Cut => Poll::Ready(()),
            end => poll(cx, end),
        }
    })
    .await;
}

fn http1_server(limits: &Limits) -> http1::Builder {
    let mut server = http1::Builder::new();
    // Slow heads are found by the sweep, which needs no timer for each request.
    server.header_read_timeout(None).max_buf_size(limits.header_bytes as usize).half_close(false);
    server
}

fn http2_server(limits: &Limits, client: &Arc<Client>) -> http2::Builder<StreamExecutor> {
    let mut server = http2::Builder::new(StreamExecutor { client: Arc::clone(client), send_timeout: limits.send });
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.header_bytes)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(limits.resets as usize))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    if !limits.upgrades.is_empty() {
        // WebSocket on a stream (RFC 8441).
        server.enable_connect_protocol();
    }
    server
}

/// How much a client may send ahead on one stream and on a connection, and how much we buffer for it.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const SEND_BYTES: usize = 128 << 10;
