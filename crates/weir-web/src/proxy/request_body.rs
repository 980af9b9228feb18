//! A request's body on its way to the backend.
//!
//! Every body is read before a slot is asked for, up to the backend's buffer into memory and the rest into a file ([`super::buffer`]): a
//! client that sends slowly makes only itself wait. If there is no room for the rest, or the route is `unbuffered`, the body streams, and
//! then the slot waits for its client. A body must come at a minimum pace: a piece from time to time, and the configured rate overall. The clock for this runs only
//! while we wait for the client. A body's size is bounded, and so is what is read ahead into memory and files ([`super::budget`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, request};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::budget::Share;
use super::buffer::{Buffer, Room};
use super::client::Client;
use super::deadline::Deadline;
use super::limits::Limits;
use crate::admission::UploadClock;

/// A request on its way to the backend.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) parts: request::Parts,
    pub(super) body: RequestBody,
    /// The head as it is sent, if it has been written already. Then only the method of the parts counts, and the response's fields are wanted as
    /// lines.
    pub(super) text: Option<Vec<u8>>,
    /// The client that is sent interim responses.
    pub(super) listener: Option<Arc<Client>>,
}

impl Outgoing {
    pub(super) fn from_request(request: Request<RequestBody>) -> Box<Outgoing> {
        let (parts, body) = request.into_parts();
        Box::new(Outgoing { parts, body, text: None, listener: None })
    }

    /// A request that consists only of a head, from a client that is sent interim responses.
    pub(super) fn from_text(method: Method, text: Vec<u8>, client: &Arc<Client>) -> Box<Outgoing> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        Box::new(Outgoing {
            parts,
            body: RequestBody::Whole(None),
            text: Some(text),
            listener: Some(Arc::clone(client)),
        })
    }

    pub(super) fn into_request(self) -> Request<RequestBody> {
        Request::from_parts(self.parts, self.body)
    }

    /// What its head takes, about.
    pub(super) fn head_bytes(&self) -> usize {
        self.text.as_ref().map_or_else(|| field_bytes(&self.parts.headers), Vec::len)
    }

    /// Whether it may be sent twice.
    pub(super) fn is_harmless(&self) -> bool {
        self.body.is_empty() && self.parts.method.is_safe()
    }
}

/// This much of a body is read even if others have taken all memory. Most forms are this small, and otherwise a few dozen networks with bodies that never end
/// could make the gate refuse everybody's forms. It is about as much as a connection's own buffers take.
const ALWAYS: usize = 16 << 10;

/// What is sent to the backend.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// All of it; None when it has been taken.
    Whole(Option<Bytes>),
    /// All of it, with the trailers that follow it.
    Trailed(Box<Trailed>),
    /// A beginning, and the rest that is still to come.
    Stream(Box<Upload>),
}

/// A body in memory with its trailers. Both are empty when they have been taken.
#[derive(Debug)]
pub(super) struct Trailed {
    pub(super) data: Bytes,
    pub(super) trailers: HeaderMap,
}

/// How a body is read before its request asks for a slot.
pub(super) struct ReadAhead {
    /// This many octets of it are kept in memory.
    pub(super) memory: u64,
    /// Where the rest goes, as long as there is room.
    pub(super) file: Option<Buffer>,
    /// The trailers that may be passed on.
    pub(super) trailers: Vec<HeaderName>,
}

/// A body that is still arriving, or is in a file.
#[derive(Debug)]
pub(super) struct Upload {
    /// What was read ahead, and what came after it.
    first: Bytes,
    behind: Option<Buffer>,
    /// Trailers that have come, and the names of those that may be passed on.
    trailers: Option<HeaderMap>,
    passed: Vec<HeaderName>,
    rest: Incoming,
    /// The rest has reached its end.
    over: bool,
    pace: Pace,
    clock: Arc<UploadClock>,
    fault: Arc<AtomicU8>,
}

/// Why a body did not reach its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the request body is too large")]
    TooLarge = 1,
    #[error("the request body comes too slowly")]
    TooSlow = 2,
    #[error("the request body broke off")]
    Broken = 3,
    #[error("there is no room for the request body")]
    NoRoom = 4,
    #[error("the request body comes too slowly while others wait")]
    Cut = 5,
    #[error("what was buffered of the request body is lost")]
    Lost = 6,
}

impl BodyFault {
    const ALL: [BodyFault; 6] = [
        BodyFault::TooLarge,
        BodyFault::TooSlow,
        BodyFault::Broken,
        BodyFault::NoRoom,
        BodyFault::Cut,
        BodyFault::Lost,
    ];

    /// The status that is sent to the client.
    pub(super) fn status(self) -> StatusCode {
        match self {
            BodyFault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Broken => StatusCode::BAD_REQUEST,
            BodyFault::NoRoom | BodyFault::Cut | BodyFault::Lost => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn from_code(code: u8) -> Option<BodyFault> {
        BodyFault::ALL.into_iter().find(|fault| *fault as u8 == code)
    }
}

/// What is known of a stream after it was passed on.
#[derive(Debug, Clone)]
pub(super) struct UploadWatch {
    pub(super) clock: Arc<UploadClock>,
    fault: Arc<AtomicU8>,
}

impl UploadWatch {
    pub(super) fn fault(&self) -> Option<BodyFault> {
        BodyFault::from_code(self.fault.load(Ordering::Relaxed))
    }
}

impl RequestBody {
    /// Reads its beginning into memory, and the rest into a file as long as there is room.
    pub(super) async fn gather(
        body: Incoming,
        reading: ReadAhead,
        limits: &Limits,
        share: &mut Share,
    ) -> Result<RequestBody, BodyFault> {
        if body.is_end_stream() {
            return Ok(RequestBody::Whole(None));
        }
        let ReadAhead { memory, file, trailers } = reading;
        let mut upload = Upload::new(body, limits, trailers)?;
        upload.read_ahead(memory, share).await?;
        if let Some(file) = file.filter(|_| !upload.has_ended()) {
            upload.behind = Some(file);
            upload.read_behind().await?;
        }
        // Trailers are in memory like the rest, and are counted for their sender in the same way.
        if let Some(trailers) = &upload.trailers
            && !share.grow(field_bytes(trailers))
        {
            return Err(BodyFault::NoRoom);
        }
        Ok(upload.whole_if_ended())
    }

    /// Passes it on as it comes, from the first octet. `trailers` are those that may be passed on.
    pub(super) fn as_it_comes(
        body: Incoming,
        limits: &Limits,
        trailers: Vec<HeaderName>,
    ) -> Result<RequestBody, BodyFault> {
        Upload::new(body, limits, trailers).map(Upload::whole_if_ended)
    }

    /// What it holds in memory.
    pub(super) fn held(&self) -> usize {
        match self {
            RequestBody::Whole(all) => all.as_ref().map_or(0, Bytes::len),
            RequestBody::Trailed(body) => body.data.len() + field_bytes(&body.trailers),
            RequestBody::Stream(upload) => upload.first.len() + upload.trailers.as_ref().map_or(0, field_bytes),
        }
    }

    /// Whether it is sent in chunks: its length is unknown, or something follows it.
    pub(super) fn is_chunked(&self) -> bool {
        !matches!(self, RequestBody::Whole(_)) && self.size_hint().exact().is_none()
    }

    /// Whether all of it is in memory.
    pub(super) fn is_here(&self) -> bool {
        !matches!(self, RequestBody::Stream(_))
    }

    /// All of it, if it is here and not empty, and nothing follows it.
    pub(super) fn whole(&self) -> Option<&Bytes> {
        match self {
            RequestBody::Whole(all) => all.as_ref(),
            RequestBody::Trailed(_) | RequestBody::Stream(_) => None,
        }
    }

    /// Whether it can be sent again after it was lost.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, RequestBody::Whole(None))
    }

    pub(super) fn watch(&self) -> Option<UploadWatch> {
        match self {
            RequestBody::Whole(_) | RequestBody::Trailed(_) => None,
            RequestBody::Stream(upload) => {
                Some(UploadWatch { clock: Arc::clone(&upload.clock), fault: Arc::clone(&upload.fault) })
            }
        }
    }
}

impl Upload {
    fn new(rest: Incoming, limits: &Limits, passed: Vec<HeaderName>) -> Result<Upload, BodyFault> {
        if rest.size_hint().exact().is_some_and(|size| size > limits.body_bytes) {
            return Err(BodyFault::TooLarge);
        }
        let (clock, fault) = (Arc::default(), Arc::default());
        let (first, behind, pace) = (Bytes::new(), None, Pace::new(limits));
        Ok(Upload { first, behind, trailers: None, passed, rest, over: false, pace, clock, fault })
    }

    /// Gathers it in one piece, because many small pieces would take far more memory than they hold.
    async fn read_ahead(&mut self, buffer: u64, share: &mut Share) -> Result<(), BodyFault> {
        let mut first = BytesMut::new();
        while first.len() as u64 <= buffer && !self.has_ended() {
            let Some(frame) = std::future::poll_fn(|cx| self.poll_next(cx)).await.transpose()? else { break };
            match frame.into_data() {
                Ok(data) if share.grow(data.len()) => first.extend_from_slice(&data),
                Ok(data) if first.len() + data.len() <= ALWAYS => {
                    share.take(data.len());
                    first.extend_from_slice(&data);
                }
                Ok(_) => return Err(BodyFault::NoRoom),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        self.first = first.freeze();
        Ok(())
    }

    /// Reads into the file, until the body is complete or there is no more room.
    async fn read_behind(&mut self) -> Result<(), BodyFault> {
        while !self.has_ended() {
            let Some(behind) = &mut self.behind else { return Ok(()) };
            match behind.room() {
                Room::Enough => {}
                Room::Soon => {
                    let written = std::future::poll_fn(|cx| behind.poll_disk(cx)).await;
                    written.map_err(|_| self.failed(BodyFault::Lost))?;
                    continue;
                }
                Room::None => return Ok(()),
            }
            let Some(frame) = std::future::poll_fn(|cx| self.poll_next(cx)).await.transpose()? else { break };
            match (frame.into_data(), &mut self.behind) {
                (Ok(data), Some(behind)) => behind.push(data),
                (Ok(_), None) => {}
                (Err(frame), _) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(())
    }

    fn behind_bytes(&self) -> u64 {
        self.behind.as_ref().map_or(0, Buffer::len)
    }

    fn has_ended(&self) -> bool {
        self.over || self.trailers.is_some() || self.rest.is_end_stream()
    }

    /// A body that is complete and in memory need not be streamed, because nothing waits for its client. One without trailers is sent with its length.
    fn whole_if_ended(mut self) -> RequestBody {
        if !self.has_ended() || self.behind_bytes() > 0 {
            return RequestBody::Stream(Box::new(self));
        }
        let data = std::mem::take(&mut self.first);
        match self.trailers.take() {
            Some(trailers) => RequestBody::Trailed(Box::new(Trailed { data, trailers })),
            None => RequestBody::Whole((!data.is_empty()).then_some(data)),
        }
    }

    /// The next piece for the backend: what was read ahead, then the rest.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if !self.first.is_empty() {
            self.clock.moves();
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.first)))));
        }
        if let Some(behind) = &mut self.behind {
            // This waits for the disk, not for the client.
            match ready!(behind.poll_pop(cx)) {
                Ok(Some(piece)) => {
                    self.clock.moves();
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Ok(None) => self.behind = None,
                Err(error) => {
                    tracing::warn!(%error, "a buffer file of the web gate cannot be read");
                    return Poll::Ready(Some(Err(self.failed(BodyFault::Lost))));
                }
            }
        }
        if let Some(trailers) = self.trailers.take() {
            self.over = true;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let next = if self.over { Poll::Ready(None) } else { self.poll_next(cx) };
        if next.is_ready() {
            self.clock.moves();
        } else if !self.clock.waits(cx.waker()) {
            return Poll::Ready(Some(Err(self.failed(BodyFault::Cut))));
        }
        next
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let outcome = match Pin::new(&mut self.rest).poll_frame(cx) {
            Poll::Ready(None) => {
                self.over = true;
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(frame))) => match self.passed_on(frame) {
                Some(frame) => self.pace.came(&frame).map(|()| frame),
                None => {
                    self.over = true;
                    return Poll::Ready(None);
                }
            },
            Poll::Ready(Some(Err(_))) => Err(BodyFault::Broken),
            Poll::Pending => match self.pace.poll_late(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => Err(BodyFault::TooSlow),
            },
        };
        Poll::Ready(Some(outcome.map_err(|fault| self.failed(fault))))
    }

    /// Data unchanged, and those trailers that may be passed on; None if none of them may.
    fn passed_on(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let came = match frame.into_trailers() {
            Ok(came) => came,
            Err(data) => return Some(data),
        };
        let named = came.iter().filter(|(name, _)| self.passed.contains(name));
        let passed = HeaderMap::from_iter(named.map(|(name, value)| (name.clone(), value.clone())));
        (!passed.is_empty()).then(|| Frame::trailers(passed))
    }

    fn failed(&self, fault: BodyFault) -> BodyFault {
        self.fault.store(fault as u8, Ordering::Relaxed);
        fault
    }
}

impl Trailed {
    fn take_frame(&mut self) -> Option<Frame<Bytes>> {
        if !self.data.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.data)));
        }
        (!self.trailers.is_empty()).then(|| Frame::trailers(std::mem::take(&mut self.trailers)))
    }
}

/// What fields take, about.
fn field_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Nothing waits for its client any more.
        self.clock.moves();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut *self {
            RequestBody::Whole(all) => Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            RequestBody::Trailed(body) => Poll::Ready(body.take_frame().map(Ok)),
            RequestBody::Stream(upload) => upload.poll_out(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Whole(all) => all.is_none(),
            RequestBody::Trailed(body) => body.data.is_empty() && body.trailers.is_empty(),
            RequestBody::Stream(upload) => {
                let given = upload.first.is_empty() && upload.behind_bytes() == 0;
                given && upload.trailers.is_none() && upload.has_ended()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(all) => SizeHint::with_exact(all.as_ref().map_or(0, |all| all.len() as u64)),
            // Trailers need chunks.
            RequestBody::Trailed(_) => SizeHint::default(),
            RequestBody::Stream(upload) => {
                let here = upload.first.len() as u64 + upload.behind_bytes();
                match upload.rest.size_hint().exact() {
                    // Trailers need chunks.
                    _ if upload.trailers.is_some() => SizeHint::default(),
                    _ if upload.has_ended() => SizeHint::with_exact(here),
                    Some(rest) => SizeHint::with_exact(here + rest),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

/// How fast a body arrives. Only the time in which the gate waits for its client counts.
#[derive(Debug)]
struct Pace {
    octets: u64,
    octets_max: u64,
    rate: u64,
    piece: Duration,
    /// How much time the whole body may take, more with every octet, and how much it has taken.
    allowed: Duration,
    taken: Duration,
    /// Since when the gate waits for the next piece.
    since: Option<Instant>,
    deadline: Deadline,
}

impl Pace {
    fn new(limits: &Limits) -> Pace {
        Pace {
            octets: 0,
            octets_max: limits.body_bytes,
            rate: u64::from(limits.body_rate.max(1)),
            piece: limits.body_piece,
            allowed: limits.body_grace,
            taken: Duration::ZERO,
            since: None,
            deadline: Deadline::default(),
        }
    }

    fn came(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyFault> {
        let size = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.octets = self.octets.saturating_add(size);
        let earned = Duration::from_nanos(size.saturating_mul(1_000_000_000) / self.rate);
        self.allowed = self.allowed.saturating_add(earned);
        self.taken += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        if self.octets > self.octets_max { Err(BodyFault::TooLarge) } else { Ok(()) }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = self.allowed.saturating_sub(self.taken);
        self.deadline.poll(since + self.piece.min(left), cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: u32) -> Pace {
        let (body_piece, body_grace) = (Duration::from_secs(10), Duration::from_secs(15));
        Pace::new(&Limits { body_piece, body_grace, body_rate: rate, ..Limits::default() })
    }

    /// Whether the body counts as too slow when the next piece is waited for over this many seconds.
    async fn waits(pace: &mut Pace, seconds: u64) -> bool {
        let late = std::future::poll_fn(|cx| pace.poll_late(cx));
        tokio::time::timeout(Duration::from_millis(seconds * 1_000 + 1), late).await.is_ok()
    }

    fn piece(octets: usize) -> Frame<Bytes> {
        Frame::data(Bytes::from(vec![0; octets]))
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_for_the_client_counts() {
        let mut pace = pace(10);
        assert!(!waits(&mut pace, 9).await);
        pace.came(&piece(10)).unwrap();
        // In the queue, or while the server reads nothing.
        tokio::time::advance(Duration::from_secs(1_000)).await;
        assert!(!waits(&mut pace, 6).await, "7 of 16 seconds are left");
        pace.came(&piece(1)).unwrap();
        assert!(waits(&mut pace, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_must_come_now_and_then_at_any_rate() {
        let mut pace = pace(1);
        pace.came(&piece(1_000)).unwrap();
        assert!(!waits(&mut pace, 9).await);
        assert!(waits(&mut pace, 1).await);
    }
}
