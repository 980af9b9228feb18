//! The way to the backend: connections that are kept, and requests in flight.
//!
//! Each thread keeps its own idle connections, so taking and returning one crosses no thread. A request in flight belongs to its
//! slot, not to its client: if the client goes, the answer is awaited all the same, and only then is the slot free.
//!
//! What is whole goes by [`Wire`], in the task that waits for it; uploads that stream and upgrades go by hyper.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::answer_head::BadAnswer;
use super::lateness::Lateness;
use super::lines::Lines;
use super::request_body::{Outgoing, RequestBody};
use super::wire::{Wire, WireBody};
use crate::admission::{Permit, UploadClock};
use crate::health::Busy;

/// One connection to a server, as hyper has it.
pub(super) type Sender = http1::SendRequest<RequestBody>;

/// What can be kept for the next request.
pub(super) trait Kept {
    /// Whether it is of no use any more.
    fn is_closed(&self) -> bool;
    /// Whether it can take a request now.
    fn is_ready(&self) -> bool;
}

impl Kept for Sender {
    fn is_closed(&self) -> bool {
        http1::SendRequest::is_closed(self)
    }

    fn is_ready(&self) -> bool {
        http1::SendRequest::is_ready(self)
    }
}

impl Kept for Box<Wire> {
    fn is_closed(&self) -> bool {
        !self.is_good()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// The idle connections of one thread, by the number of their server.
#[derive(Debug)]
pub(super) struct Pool<T> {
    idle: Mutex<Vec<Vec<Idle<T>>>>,
    /// The thread's, in milliseconds.
    clock: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Idle<T> {
    kept: T,
    since_ms: u64,
}

impl<T: Kept> Pool<T> {
    pub(super) fn new(clock: Arc<AtomicU64>) -> Pool<T> {
        Pool { idle: Mutex::default(), clock }
    }

    /// The connection that was used last, and about how long ago.
    pub(super) fn take(&self, server: usize) -> Option<(T, Duration)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let list = idle.get_mut(server)?;
        let mut at = list.len();
        while at > 0 {
            at -= 1;
            let kept = &list[at].kept;
            if kept.is_closed() {
                list.swap_remove(at);
            } else if kept.is_ready() {
                let idle = list.swap_remove(at);
                return Some((idle.kept, Duration::from_millis(self.now_ms().saturating_sub(idle.since_ms))));
            }
        }
        None
    }

    /// Keeps a connection.
    pub(super) fn put(&self, server: usize, kept: T, most: u32) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() <= server {
            idle.resize_with(server + 1, Vec::new);
        }
        if idle[server].len() < most as usize {
            idle[server].push(Idle { kept, since_ms: self.now_ms() });
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn sweep(&self, limit: impl Fn(usize) -> Duration) {
        let now_ms = self.now_ms();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, list) in idle.iter_mut().enumerate() {
            let limit = limit(server);
            let fresh = |idle: &Idle<T>| Duration::from_millis(now_ms.saturating_sub(idle.since_ms)) < limit;
            list.retain(|idle| fresh(idle) && !idle.kept.is_closed());
        }
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum()
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
}

/// Opens a connection.
pub(super) async fn connect(address: &str, limit: Duration) -> Option<Sender> {
    let open = async {
        let mut client = http1::Builder::new();
        client.max_buf_size(BUFFER_BYTES);
        let (sender, connection) = client.handshake(TokioIo::new(stream(address).await?)).await.ok()?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a backend ended");
            }
        });
        Some(sender)
    };
    timeout(limit, open).await.ok().flatten()
}

/// Opens a connection that the request's own task works.
pub(super) async fn connect_wire(address: &str, limit: Duration) -> Option<Box<Wire>> {
    timeout(limit, stream(address)).await.ok().flatten().map(Wire::new)
}

async fn stream(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).await.ok()?;
    let _ = stream.set_nodelay(true);
    Some(stream)
}

/// Heads of responses, and one piece of a body, are no larger.
const BUFFER_BYTES: usize = 256 << 10;

/// The body of a backend's answer.
#[derive(Debug)]
pub(super) enum AnswerBody {
    Wire(WireBody),
    Hyper(Incoming),
}

impl AnswerBody {
    /// The answer's fields, where they came as lines.
    pub(super) fn take_lines(&mut self) -> Option<Lines> {
        match self {
            AnswerBody::Wire(body) => body.take_lines(),
            AnswerBody::Hyper(_) => None,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            AnswerBody::Wire(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            AnswerBody::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Wire(body) => body.is_end_stream(),
            AnswerBody::Hyper(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Wire(body) => body.size_hint(),
            AnswerBody::Hyper(body) => body.size_hint(),
        }
    }
}

/// What becomes of a request.
pub(super) type Outcome = Result<Response<AnswerBody>, Lost>;

/// A request without an answer.
pub(super) struct Lost {
    /// The request, if it can be sent again: it never left, or may only have come too late.
    pub(super) again: Option<Box<Outgoing>>,
    pub(super) cause: Box<dyn std::error::Error + Send + Sync>,
}

type HyperAnswer = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;

/// How a request goes.
pub(super) enum Way {
    /// The connection with the request, until the answer's head is here.
    Wire(Option<Box<Wire>>),
    Hyper(Pin<Box<dyn Future<Output = HyperAnswer> + Send>>),
}

impl Way {
    /// For a request that is whole.
    pub(super) fn wire(mut wire: Box<Wire>, request: Box<Outgoing>) -> Way {
        wire.begin(request);
        Way::Wire(Some(wire))
    }

    pub(super) fn hyper(sender: &mut Sender, request: Outgoing) -> Way {
        Way::Hyper(Box::pin(sender.try_send_request(request.into_request())))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Way::Wire(slot) => poll_wire(slot, cx),
            Way::Hyper(answer) => answer.as_mut().poll(cx).map(|answer| match answer {
                // hyper follows the chunks, and the length would go on to the client.
                Ok(response) if has_two_lengths(&response) => {
                    Err(Lost { again: None, cause: BadAnswer::Length.into() })
                }
                Ok(response) => Ok(response.map(AnswerBody::Hyper)),
                Err(mut error) => Err(Lost {
                    again: error.take_message().map(Outgoing::from_request),
                    cause: error.into_error().into(),
                }),
            }),
        }
    }
}

fn has_two_lengths(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

fn poll_wire(slot: &mut Option<Box<Wire>>, cx: &mut Context<'_>) -> Poll<Outcome> {
    let Some(wire) = slot else { return Poll::Pending };
    let Poll::Ready(outcome) = wire.poll_head(cx) else { return Poll::Pending };
    let Some(mut wire) = slot.take() else { return Poll::Pending };
    Poll::Ready(match outcome {
        Ok((head, fields)) => Ok(WireBody::answer(wire, head, fields).map(AnswerBody::Wire)),
        Err(cause) => Err(Lost { again: wire.take_unheard(), cause: cause.into() }),
    })
}

/// What a request occupies: a slot of the backend, and one of its servers.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) permit: Permit,
    pub(super) busy: Busy,
}

/// A request at the backend. Dropped, it flies on by itself until the backend has answered.
pub(super) struct Flight {
    inner: Option<(Way, Held)>,
    response: Duration,
    upload: Option<Arc<UploadClock>>,
    /// When the backend has taken too long, the admission's tick wakes us, so no timer is needed but where it only observes: a request may
    /// have left its shadow.
    timer: Option<Lateness>,
    stream_after: Duration,
    stops_early: bool,
    /// Once is too early to be late.
    polled: bool,
}

impl Flight {
    /// Sends a request; the clock is that of its upload, if it has one.
    pub(super) fn start(
        way: Way,
        held: Held,
        upload: Option<Arc<UploadClock>>,
        backend: &super::settings::Backend,
    ) -> Flight {
        if let Some(clock) = &upload {
            held.permit.uploads(Arc::clone(clock));
        }
        Flight {
            inner: Some((way, held)),
            response: backend.response,
            upload,
            timer: backend.admission.observe.then(Lateness::default),
            stream_after: backend.admission.stream_after,
            stops_early: backend.stops_early,
            polled: false,
        }
    }

    /// When the backend will have taken too long: it has the request, or the last piece of it that there was, since then. What the client takes is
    /// the client's.
    fn limit(&self) -> Instant {
        let since = self.inner.as_ref().map_or_else(Instant::now, |(_, held)| held.permit.since());
        let moved = self.upload.as_ref().map(|clock| clock.moved().unwrap_or_else(Instant::now));
        moved.map_or(since, |moved| moved.max(since)) + self.response
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        // Most are answered before they are looked at a second time.
        if !std::mem::replace(&mut self.polled, true) && self.timer.is_none() {
            return false;
        }
        let limit = self.limit();
        Instant::now() >= limit || self.timer.as_mut().is_some_and(|timer| timer.poll(limit, cx).is_ready())
    }
}

impl Future for Flight {
    /// None if the backend took too long.
    type Output = (Option<Outcome>, Option<Held>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let flight = &mut *self;
        let Some((way, _)) = &mut flight.inner else { return Poll::Ready((None, None)) };
        let outcome = match way.poll(cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if flight.is_late(cx) => None,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready((outcome, flight.inner.take().map(|(_, held)| held)))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.inner.is_none() || self.stops_early {
            return;
        }
        let left = self.limit().saturating_duration_since(Instant::now());
        if let (Some((way, held)), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(fly_on(way, held, left, self.stream_after));
        }
    }
}

/// Nobody waits for the answer any more, but the backend works on it.
async fn fly_on(mut way: Way, held: Held, left: Duration, stream_after: Duration) {
    match timeout(left, std::future::poll_fn(|cx| way.poll(cx))).await {
        Ok(Ok(response)) => drain(response.into_body(), held, stream_after).await,
        // The upload broke off with its client. The backend may have begun, so the slot is kept for as long as usual.
        Ok(Err(_)) => {
            let rest = held.permit.usual_cost().saturating_sub(held.permit.held()).min(left);
            tokio::time::sleep(rest).await;
        }
        Err(_) => {}
    }
}

/// Reads the rest of a response for nobody, holding its slot.
pub(super) async fn drain(mut body: AnswerBody, held: Held, limit: Duration) {
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(limit, all).await;
    drop(held);
}
