//! A small backend to try the gate with: a page that says what this is, a slow endpoint, an echo, and a WebSocket.
//!
//! `/` the page; `/slow?ms=N` answers after N milliseconds (at most 10 000), however many ask; `/work?ms=N` after one of eight workers had N
//! milliseconds for it, first come, first served; `/echo` sends the request back; `/big?kib=N` sends N KiB (at
//! most 65 536); `/events` sends server-sent events; `/ws` is a WebSocket that repeats what it hears. It is what `weir up --demo` serves
//! until a backend is configured, and what the tests ask.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Interval, interval};

/// How many requests to `/work` are processed at once.
const WORKERS: usize = 8;

/// What the backend has counted.
#[derive(Debug)]
pub struct BackendCounters {
    pub requests: AtomicU64,
    /// Requests at work now.
    pub working: AtomicU32,
    /// The most that were in progress at once.
    pub working_most: AtomicU32,
    workers: Semaphore,
}

impl Default for BackendCounters {
    fn default() -> BackendCounters {
        let [working, working_most] = [AtomicU32::new(0), AtomicU32::new(0)];
        BackendCounters { requests: AtomicU64::new(0), working, working_most, workers: Semaphore::new(WORKERS) }
    }
}

/// Serves for ever; run it as a task.
pub async fn serve(listener: TcpListener, seen: Arc<BackendCounters>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&seen), request));
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(120));
            let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

/// A request at work, until it is dropped.
struct Working(Arc<BackendCounters>);

impl Working {
    fn begin(seen: &Arc<BackendCounters>) -> Working {
        seen.requests.fetch_add(1, Ordering::Relaxed);
        let now = seen.working.fetch_add(1, Ordering::Relaxed) + 1;
        seen.working_most.fetch_max(now, Ordering::Relaxed);
        Working(Arc::clone(seen))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(seen: Arc<BackendCounters>, request: Request<Incoming>) -> Result<Response<Reply>, Infallible> {
    let working = Working::begin(&seen);
    let number = |name: &str, most: u64| asked(request.uri().query().unwrap_or_default(), name).min(most);
    Ok(match request.uri().path() {
        "/" => page(),
        "/slow" => {
            // Like most servers, it continues when its client leaves.
            let wait = Duration::from_millis(number("ms", 10_000));
            let work = tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                drop(working);
            });
            let _ = work.await;
            text(StatusCode::OK, format!("That took {} ms.\n", wait.as_millis()))
        }
        "/work" => {
            let work = Duration::from_millis(number("ms", 10_000));
            let worked = tokio::spawn(async move {
                let _worker = seen.workers.acquire().await;
                tokio::time::sleep(work).await;
                drop(working);
            });
            let _ = worked.await;
            text(StatusCode::OK, format!("That took {} ms of work.\n", work.as_millis()))
        }
        "/echo" => echo(request).await,
        "/big" => text(StatusCode::OK, Bytes::from(vec![b'x'; (number("kib", 65_536) as usize) << 10])),
        "/trailers" => Response::builder()
            .header(header::TRAILER, "x-sum")
            .body(Reply::Pieces(vec![
                Frame::trailers(sum()),
                Frame::data("second".into()),
                Frame::data("first ".into()),
            ]))
            .unwrap_or_default(),
        "/events" => events(),
        "/ws" => websocket(request),
        _ => text(StatusCode::NOT_FOUND, "There is no such page.\n"),
    })
}

fn asked(query: &str, name: &str) -> u64 {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn sum() -> HeaderMap {
    HeaderMap::from_iter([(header::HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))])
}

/// What is sent back.
enum Reply {
    Whole(Option<Bytes>),
    /// The last piece comes first.
    Pieces(Vec<Frame<Bytes>>),
    Ticks(Interval, u32),
}

impl Default for Reply {
    fn default() -> Reply {
        Reply::Whole(None)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Reply::Whole(all) => Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            Reply::Pieces(pieces) => Poll::Ready(pieces.pop().map(Ok)),
            Reply::Ticks(interval, count) => interval.poll_tick(cx).map(|_| {
                *count += 1;
                Some(Ok(Frame::data(format!("data: {count}\n\n").into())))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Reply::Whole(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Reply::Whole(all) => http_body::SizeHint::with_exact(all.as_ref().map_or(0, |all| all.len() as u64)),
            _ => http_body::SizeHint::default(),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn page() -> Response<Reply> {
    let mut response = text(StatusCode::OK, PAGE);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn events() -> Response<Reply> {
    let mut response = Response::new(Reply::Ticks(interval(Duration::from_millis(200)), 0));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

const ECHO_BYTES_MAX: usize = 16 << 20;

/// The request's head and body as text.
async fn echo(request: Request<Incoming>) -> Response<Reply> {
    let (parts, body) = request.into_parts();
    let mut said = String::new();
    let _ = writeln!(said, "{} {}", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        let _ = writeln!(said, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let Ok(body) = Limited::new(body, ECHO_BYTES_MAX).collect().await else {
        return text(StatusCode::BAD_REQUEST, "The body broke off.\n");
    };
    for (name, value) in body.trailers().into_iter().flatten() {
        let _ = writeln!(said, "trailer {name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let mut said = BytesMut::from(format!("{said}\n").as_bytes());
    said.extend_from_slice(&body.to_bytes());
    text(StatusCode::OK, said.freeze())
}

/// Answers the handshake of RFC 6455 and repeats every frame.
fn websocket(mut request: Request<Incoming>) -> Response<Reply> {
    let Some(key) = request.headers().get("sec-websocket-key").cloned() else {
        return text(StatusCode::UPGRADE_REQUIRED, "This is a WebSocket.\n");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let _ = repeat(TokioIo::new(upgraded)).await;
        }
    });
    let mut response = Response::new(Reply::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers
        .extend(HeaderValue::try_from(accept_key(key.as_bytes())).ok().map(|key| (header::SEC_WEBSOCKET_ACCEPT, key)));
    response
}

fn accept_key(key: &[u8]) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(digest.finish())
}

/// The longest frame that is repeated.
const FRAME_BYTES_MAX: u64 = 1 << 20;
const OP_CLOSE: u8 = 8;
const OP_PING: u8 = 9;
const OP_PONG: u8 = 10;

async fn repeat<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    loop {
        let mut start = [0; 2];
        stream.read_exact(&mut start).await?;
        let length = match start[1] & 127 {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        if length > FRAME_BYTES_MAX || start[1] & 128 == 0 {
            return Ok(());
        }
        let mut mask = [0; 4];
        stream.read_exact(&mut mask).await?;
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data).await?;
        data.iter_mut().zip(mask.iter().cycle()).for_each(|(octet, mask)| *octet ^= mask);
        let code = start[0] & 15;
        let first = if code == OP_PING { start[0] & 0xf0 | OP_PONG } else { start[0] };
        stream.write_all(&frame(first, &data)).await?;
        if code == OP_CLOSE {
            return stream.shutdown().await;
        }
    }
}

fn frame(first: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match data.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=65_535 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(data);
    frame
}

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Weir's web gate</title>
<style>
  body { font: 1.05rem/1.55 system-ui, sans-serif; max-width: 40rem; margin: 10vh auto; padding: 0 1rem; color: #222 }
  code, output { font-family: ui-monospace, monospace }
  button { font: inherit; padding: .2rem .7rem }
  @media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd } a { color: #9cf } }
</style>
<h1>Weir's web gate works</h1>
<p>This page came through it, from a small backend that is built in. Name your own as <code>backends</code> under <code>[web]</code>;
when more is asked of it than it can do, the gate gives every client its fair share.</p>
<ul>
  <li><a href="/slow?ms=1000">/slow?ms=1000</a> answers after a second</li>
  <li><a href="/work?ms=100">/work?ms=100</a> is a tenth of a second of work for one of eight workers</li>
  <li><a href="/echo">/echo</a> shows your request as the backend sees it</li>
  <li><a href="/events">/events</a> sends events for as long as you listen</li>
  <li><button id="ask">Ask the WebSocket</button> <output id="said"></output></li>
</ul>
<script>
  document.getElementById("ask").onclick = () => {
    const socket = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/ws");
    socket.onopen = () => socket.send("hello at " + new Date().toLocaleTimeString());
    socket.onmessage = event => { document.getElementById("said").textContent = "it repeats: " + event.data; socket.close(); };
    socket.onerror = () => { document.getElementById("said").textContent = "no connection"; };
  };
</script>
</html>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_rfc_6455() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_of_all_lengths() {
        assert_eq!(frame(0x81, b"ab"), [0x81, 2, b'a', b'b']);
        assert_eq!(frame(0x82, &[0; 200])[..4], [0x82, 126, 0, 200]);
        assert_eq!(frame(0x82, &[0; 70_000])[..4], [0x82, 127, 0, 0]);
    }
}
