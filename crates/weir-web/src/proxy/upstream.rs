//! Idle connections to the backend that are kept for later, and requests in flight.
//!
//! Each thread keeps its own idle connections, so taking and returning one crosses no thread. A request in flight belongs to its
//! slot, not to its client: if the client goes, the response is still awaited, and only then is the slot free.
//!
//! A request whose body is complete is sent with [`UpstreamConnection`], in the task that waits for the response. Streaming uploads and
//! upgrades are sent with hyper.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};
use weir_core::fair::SubnetKey;
use weir_http1::Refused;
use weir_http1::field_lines::{FieldLines, is_event_stream};
use weir_http1::is_only_chunked;

use super::deadline::Deadline;
use super::request_body::{Outgoing, RequestBody};
use super::server_stream::ServerStream;
use super::site::ActiveBackend;
use super::upstream_connection::{ConnectionBody, UpstreamConnection};
use crate::admission::{Permit, UploadClock};
use crate::health::{Busy, Trial};

/// One connection to a server that hyper drives.
pub(super) type Sender = http1::SendRequest<RequestBody>;

/// A connection that can be kept for the next request.
pub(super) trait Reusable {
    /// Whether it can never be used again.
    fn is_closed(&mut self) -> bool;
    /// Whether it can take a request now.
    fn is_ready(&self) -> bool;
}

impl Reusable for Sender {
    fn is_closed(&mut self) -> bool {
        http1::SendRequest::is_closed(self)
    }

    fn is_ready(&self) -> bool {
        http1::SendRequest::is_ready(self)
    }
}

impl Reusable for Box<UpstreamConnection> {
    fn is_closed(&mut self) -> bool {
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
    /// The thread's clock, in milliseconds.
    clock: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Idle<T> {
    kept: T,
    since_ms: u64,
}

impl<T: Reusable> Pool<T> {
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
            let kept = &mut list[at].kept;
            if kept.is_closed() {
                list.swap_remove(at);
            } else if kept.is_ready() {
                let idle = list.swap_remove(at);
                return Some((idle.kept, Duration::from_millis(self.now_ms().saturating_sub(idle.since_ms))));
            }
        }
        None
    }

    pub(super) fn put(&self, server: usize, kept: T, most: u32) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() <= server {
            idle.resize_with(server + 1, Vec::new);
        }
        if idle[server].len() < most as usize {
            idle[server].push(Idle { kept, since_ms: self.now_ms() });
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn sweep(&self, limit: impl Fn(usize) -> Duration) {
        let now_ms = self.now_ms();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, list) in idle.iter_mut().enumerate() {
            let limit = limit(server);
            let fresh = |idle: &Idle<T>| Duration::from_millis(now_ms.saturating_sub(idle.since_ms)) < limit;
            list.retain_mut(|idle| fresh(idle) && !idle.kept.is_closed());
        }
    }

    /// How many connections are kept.
    pub(super) fn len(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum()
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
}

/// Lets hyper drive an open connection.
pub(super) async fn hyper_handshake(link: ServerStream) -> std::io::Result<Sender> {
    let mut client = http1::Builder::new();
    client.max_buf_size(BUFFER_BYTES);
    let (sender, connection) = client.handshake(TokioIo::new(link)).await.map_err(std::io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a backend ended");
        }
    });
    Ok(sender)
}

/// The largest head of a response, and the largest piece of a body.
const BUFFER_BYTES: usize = 256 << 10;

/// The body of a backend's response.
#[derive(Debug)]
pub(super) enum UpstreamBody {
    Own(ConnectionBody),
    Hyper(Incoming),
}

impl UpstreamBody {
    /// The response's fields, if they came as lines.
    pub(super) fn take_lines(&mut self) -> Option<FieldLines> {
        match self {
            UpstreamBody::Own(body) => body.take_lines(),
            UpstreamBody::Hyper(_) => None,
        }
    }

    /// Whether what has been read of it can be parsed. For hyper it always says yes, because hyper checks it later.
    pub(super) fn is_sound_so_far(&self) -> bool {
        match self {
            UpstreamBody::Own(body) => body.is_sound_so_far(),
            UpstreamBody::Hyper(_) => true,
        }
    }

    /// When this is dropped, the server's next write fails, and not only the one after it. hyper closes in its own way.
    pub(super) fn reset_when_dropped(&self) {
        if let UpstreamBody::Own(body) = self {
            body.reset_when_dropped();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            UpstreamBody::Own(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            UpstreamBody::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Own(body) => body.is_end_stream(),
            UpstreamBody::Hyper(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Own(body) => body.size_hint(),
            UpstreamBody::Hyper(body) => body.size_hint(),
        }
    }
}

/// The result of a request.
pub(super) type Outcome = Result<Response<UpstreamBody>, NoResponse>;

/// A request without a response.
pub(super) struct NoResponse {
    /// The request, if it can be sent again: it was not sent, or may only have come too late.
    pub(super) again: Option<Box<Outgoing>>,
    pub(super) cause: Box<dyn std::error::Error + Send + Sync>,
}

type HyperResponse = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;

/// How a request is sent.
pub(super) enum Sending {
    /// The connection with the request, until the response's head is here.
    Own(Option<Box<UpstreamConnection>>),
    Hyper(Pin<Box<dyn Future<Output = HyperResponse> + Send>>),
}

impl Sending {
    /// For a request that is complete.
    pub(super) fn own(mut connection: Box<UpstreamConnection>, request: Box<Outgoing>) -> Sending {
        connection.begin(request);
        Sending::Own(Some(connection))
    }

    pub(super) fn hyper(sender: &mut Sender, request: Outgoing) -> Sending {
        Sending::Hyper(Box::pin(sender.try_send_request(request.into_request())))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Sending::Own(slot) => poll_own(slot, cx),
            Sending::Hyper(answer) => answer.as_mut().poll(cx).map(|answer| match answer {
                // hyper follows the chunks, and the length would still be passed on to the client.
                Ok(response) if has_two_lengths(&response) => {
                    Err(NoResponse { again: None, cause: Refused::ResponseLength.into() })
                }
                // hyper takes the chunks off and leaves what is inside as it is.
                Ok(response) if !is_only_chunked(response.headers()) => {
                    Err(NoResponse { again: None, cause: Refused::ResponseCoding.into() })
                }
                Ok(response) => Ok(response.map(UpstreamBody::Hyper)),
                Err(mut error) => Err(NoResponse {
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

fn poll_own(slot: &mut Option<Box<UpstreamConnection>>, cx: &mut Context<'_>) -> Poll<Outcome> {
    let Some(connection) = slot else { return Poll::Pending };
    let Poll::Ready(outcome) = connection.poll_head(cx) else { return Poll::Pending };
    let Some(mut connection) = slot.take() else { return Poll::Pending };
    Poll::Ready(match outcome {
        Ok((head, fields)) => Ok(ConnectionBody::answer(connection, head, fields).map(UpstreamBody::Own)),
        Err(cause) => Err(NoResponse { again: connection.take_unanswered(), cause: cause.into() }),
    })
}

/// What a request occupies: a slot of the backend, and one of its servers.
#[derive(Debug)]
pub(super) struct HeldSlot {
    pub(super) permit: Permit,
    pub(super) busy: Busy,
}

impl HeldSlot {
    /// Keeps the slot for a while after the connection to its server was closed, because the worker has not noticed yet.
    pub(super) fn linger(self, time: Duration) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(time).await;
                drop(self);
            });
        }
    }
}

/// Who was asked, and for whom.
pub(super) struct AskedBackend<'a> {
    pub(super) backend: &'a Arc<ActiveBackend>,
    pub(super) subnet: SubnetKey,
    /// If the request is to find out whether its server answers again.
    pub(super) trial: Option<Trial>,
}

/// A request at the backend. If this is dropped, a task of its own waits until the backend has answered.
pub(super) struct InFlight<'a> {
    inner: Option<(Sending, HeldSlot)>,
    asked: AskedBackend<'a>,
    upload: Option<Arc<UploadClock>>,
    /// The admission's tick wakes us when the backend takes too long, so no timer is needed. In observe mode there is one, because the request may
    /// have left the queue's table.
    timer: Option<Deadline>,
    /// The first poll does not check the time.
    polled: bool,
}

impl<'a> InFlight<'a> {
    /// Sends a request; the clock is that of its upload, if it has one.
    pub(super) fn start(
        sending: Sending,
        held: HeldSlot,
        upload: Option<Arc<UploadClock>>,
        asked: AskedBackend<'a>,
    ) -> InFlight<'a> {
        if let Some(clock) = &upload {
            held.permit.uploads(Arc::clone(clock));
        }
        let timer = asked.backend.settings.admission.observe.then(Deadline::default);
        InFlight { inner: Some((sending, held)), asked, upload, timer, polled: false }
    }

    /// When the backend will have taken too long, counted from when it got the request, or the latest piece of it. The time that the client takes to
    /// upload is not counted.
    fn limit(&self) -> Instant {
        let since = self.inner.as_ref().map_or_else(Instant::now, |(_, held)| held.permit.since());
        let moved = self.upload.as_ref().map(|clock| clock.moved().unwrap_or_else(Instant::now));
        moved.map_or(since, |moved| moved.max(since)) + self.asked.backend.settings.response
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        // Most requests are answered before they are polled a second time.
        if !std::mem::replace(&mut self.polled, true) && self.timer.is_none() {
            return false;
        }
        let limit = self.limit();
        Instant::now() >= limit || self.timer.as_mut().is_some_and(|timer| timer.poll(limit, cx).is_ready())
    }
}

impl Future for InFlight<'_> {
    /// None if the backend took too long.
    type Output = (Option<Outcome>, Option<HeldSlot>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let flight = &mut *self;
        let Some((sending, _)) = &mut flight.inner else { return Poll::Ready((None, None)) };
        let outcome = match sending.poll(cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if flight.is_late(cx) => None,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready((outcome, flight.inner.take().map(|(_, held)| held)))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let AskedBackend { backend, subnet, trial } = &mut self.asked;
        if self.inner.is_none() || backend.settings.stops_early {
            return;
        }
        let (backend, subnet, trial) = (Arc::clone(backend), *subnet, trial.take());
        let left = self.limit().saturating_duration_since(Instant::now());
        if let (Some((sending, held)), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            let unattended = Unattended { backend, subnet, trial, uploads: self.upload.is_some(), left };
            runtime.spawn(unattended.finish(sending, held));
        }
    }
}

/// A request whose client has left before the response began.
struct Unattended {
    backend: Arc<ActiveBackend>,
    subnet: SubnetKey,
    trial: Option<Trial>,
    /// Whether its body was still arriving.
    uploads: bool,
    /// How long the backend may still take.
    left: Duration,
}

impl Unattended {
    /// Nobody waits for the response any more, but the backend still works on it. Whether it answers counts for the server as always: otherwise one that
    /// hangs would not be found out by clients that are less patient than the gate.
    async fn finish(self, mut sending: Sending, held: HeldSlot) {
        let (servers, limits) = (&self.backend.servers, Drain::of(&self.backend.settings));
        match timeout(self.left, std::future::poll_fn(|cx| sending.poll(cx))).await {
            Ok(Ok(response)) => {
                servers.answered(held.busy.server(), self.subnet, response.status());
                drop(self.trial);
                finish_response(response, held, limits).await;
            }
            // If the upload broke off with its client, the backend may have begun, so the slot is kept for as long as usual.
            Ok(Err(lost)) => {
                // Neither a body that broke off nor an idle connection that had been closed is the server's fault.
                if !self.uploads && lost.again.is_none() {
                    servers.unanswered(held.busy.server(), &lost.cause.to_string());
                }
                let rest = held.permit.usual_cost().saturating_sub(held.permit.held()).min(self.left);
                tokio::time::sleep(rest).await;
            }
            Err(_) => servers.unanswered(held.busy.server(), "no answer in time"),
        }
    }
}

/// A response has begun for which nobody waits.
async fn finish_response(mut response: Response<UpstreamBody>, mut held: HeldSlot, limits: Drain) {
    let lines = response.body_mut().take_lines();
    let events = lines.map_or_else(|| is_event_stream(response.headers()), |lines| lines.events);
    if !events && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        held.permit.ends();
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        drop(response);
        // There is no body to read. A worker that only sends notices with its next write.
        tokio::time::sleep(limits.sending).await;
    } else {
        drain(response.into_body(), held, limits, None).await;
    }
}

/// How long a response is read for a client that has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// If the server is sending, its connection is closed after this time, because it notices that nobody reads.
    pub(super) sending: Duration,
    /// If the server is silent, it is still working, and the gate waits for this time.
    pub(super) silent: Duration,
}

impl Drain {
    pub(super) fn of(backend: &super::backend::Backend) -> Drain {
        Drain { sending: backend.admission.stream_after, silent: backend.response }
    }
}

/// Reads the rest of a response for nobody, while its slot is held. `last` is when its last piece came, if one has.
///
/// The connection to a server that is sending is closed, because it will notice; a silent one would not. A stream has no end to wait for. What its server
/// writes next fails, and until then its worker is busy: this is expected after the longest pause that it has made. Pieces that come together do not count
/// as a pause, because many streams begin with several at once.
pub(super) async fn drain(mut body: UpstreamBody, held: HeldSlot, limits: Drain, mut last: Option<Instant>) {
    let until = Instant::now() + limits.sending;
    let (mut busy, mut pause) = (Duration::ZERO, Duration::ZERO);
    while let Ok(Some(Ok(_))) = timeout(limits.silent, body.frame()).await {
        let now = Instant::now();
        pause = pause.max(last.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last)));
        if now >= until || (held.permit.is_stream() && pause >= limits.sending) {
            body.reset_when_dropped();
            busy = pause.max(limits.sending).min(limits.silent);
            break;
        }
    }
    drop(body);
    if held.permit.is_stream() {
        tokio::time::sleep(busy).await;
    }
    drop(held);
}
