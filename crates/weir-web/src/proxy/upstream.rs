//! The way to the backend: connections that are kept, and requests in flight.
//!
//! Each thread keeps its own idle connections, so taking and returning one crosses no thread. A request in flight belongs to its
//! slot, not to its client: if the client goes, the answer is awaited all the same, and only then is the slot free.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::request_body::RequestBody;
use crate::admission::Permit;

/// One connection to a server.
pub(super) type Sender = http1::SendRequest<RequestBody>;

/// The idle connections of one thread, by the number of their server.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Vec<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// The connection that was used last, and how long ago.
    pub(super) fn take(&self, server: usize) -> Option<(Sender, Duration)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let list = idle.get_mut(server)?;
        let mut at = list.len();
        while at > 0 {
            at -= 1;
            let sender = &list[at].sender;
            if sender.is_closed() {
                list.swap_remove(at);
            } else if sender.is_ready() {
                let idle = list.swap_remove(at);
                return Some((idle.sender, idle.since.elapsed()));
            }
        }
        None
    }

    /// Keeps a connection.
    pub(super) fn put(&self, server: usize, sender: Sender, most: u32) {
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() <= server {
            idle.resize_with(server + 1, Vec::new);
        }
        if idle[server].len() < most as usize {
            idle[server].push(Idle { sender, since: Instant::now() });
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn sweep(&self, limit: impl Fn(usize) -> Duration) {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, list) in idle.iter_mut().enumerate() {
            let limit = limit(server);
            list.retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < limit);
        }
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum()
    }
}

/// Opens a connection.
pub(super) async fn connect(address: &str, limit: Duration) -> Option<Sender> {
    let open = async {
        let stream = TcpStream::connect(address).await.ok()?;
        let _ = stream.set_nodelay(true);
        let mut client = http1::Builder::new();
        client.max_buf_size(BUFFER_BYTES);
        let (sender, connection) = client.handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a backend ended");
            }
        });
        Some(sender)
    };
    timeout(limit, open).await.ok().flatten()
}

/// Heads of responses, and one piece of a body, are no larger.
const BUFFER_BYTES: usize = 256 << 10;

/// What becomes of a request.
pub(super) type Outcome = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;
type Answer = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A request at the backend. Dropped, it flies on by itself until the backend has answered.
pub(super) struct Flight {
    inner: Option<(Answer, Permit)>,
    /// When the backend has taken too long. The admission's tick wakes us then, so no timer is needed ...
    limit: Instant,
    /// ... but where it only observes, since a request may have left its shadow.
    timer: Option<Pin<Box<Sleep>>>,
    stream_after: Duration,
    stops_early: bool,
}

impl Flight {
    /// Sends a request.
    pub(super) fn start(
        sender: &mut Sender,
        request: Request<RequestBody>,
        permit: Permit,
        backend: &super::settings::Backend,
    ) -> Flight {
        let answer = Box::pin(sender.try_send_request(request));
        let limit = Instant::now() + backend.response;
        Flight {
            inner: Some((answer, permit)),
            limit,
            timer: backend.admission.observe.then(|| Box::pin(sleep_until(limit))),
            stream_after: backend.admission.stream_after,
            stops_early: backend.stops_early,
        }
    }
}

impl Future for Flight {
    /// None if the backend took too long.
    type Output = (Option<Outcome>, Option<Permit>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let flight = &mut *self;
        let Some((answer, _)) = &mut flight.inner else { return Poll::Ready((None, None)) };
        let outcome = match answer.as_mut().poll(cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if Instant::now() >= flight.limit => None,
            Poll::Pending => {
                let late = flight.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready());
                if !late {
                    return Poll::Pending;
                }
                None
            }
        };
        Poll::Ready((outcome, flight.inner.take().map(|(_, permit)| permit)))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some((answer, permit)) = self.inner.take() else { return };
        if self.stops_early {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let left = self.limit.saturating_duration_since(Instant::now());
            runtime.spawn(fly_on(answer, permit, left, self.stream_after));
        }
    }
}

/// Nobody waits for the answer any more, but the backend works on it.
async fn fly_on(answer: Answer, permit: Permit, left: Duration, stream_after: Duration) {
    match timeout(left, answer).await {
        Ok(Ok(response)) => drain(response.into_body(), permit, stream_after).await,
        // The upload broke off with its client. The backend may have begun, so the slot is kept for as long as usual.
        Ok(Err(_)) => {
            let rest = permit.usual_cost().saturating_sub(permit.held()).min(left);
            tokio::time::sleep(rest).await;
        }
        Err(_) => {}
    }
}

/// Reads the rest of a response for nobody, holding its slot.
pub(super) async fn drain(mut body: Incoming, permit: Permit, limit: Duration) {
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(limit, all).await;
    drop(permit);
}
