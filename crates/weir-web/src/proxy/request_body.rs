//! A request's body on its way to the backend.
//!
//! A body up to the backend's buffer is read before a slot is asked for, so that a slow client holds no slot. A larger one
//! streams, and must keep its pace: a piece now and then, and the configured rate on the whole. All of it is bounded in size.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode, request};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::lateness::Lateness;
use super::settings::Limits;

/// A request on its way to the backend.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) parts: request::Parts,
    pub(super) body: RequestBody,
    /// The head as it goes out, where it is written already; of the parts only the method counts then, and the answer's fields are wanted as
    /// lines.
    pub(super) text: Option<Vec<u8>>,
}

impl Outgoing {
    pub(super) fn from_request(request: Request<RequestBody>) -> Box<Outgoing> {
        let (parts, body) = request.into_parts();
        Box::new(Outgoing { parts, body, text: None })
    }

    /// A request that has nothing but a head.
    pub(super) fn from_text(method: Method, text: Vec<u8>) -> Box<Outgoing> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        Box::new(Outgoing { parts, body: RequestBody::Whole(None), text: Some(text) })
    }

    pub(super) fn into_request(self) -> Request<RequestBody> {
        Request::from_parts(self.parts, self.body)
    }

    /// Whether it may be sent twice.
    pub(super) fn is_harmless(&self) -> bool {
        self.body.is_empty() && self.parts.method.is_safe()
    }
}

/// What the backend is sent.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// All of it; None when it has been given out.
    Whole(Option<Bytes>),
    /// A beginning, and what is still to come.
    Stream(Box<Upload>),
}

/// A body that still comes in.
#[derive(Debug)]
pub(super) struct Upload {
    first: VecDeque<Frame<Bytes>>,
    rest: Incoming,
    pace: Pace,
    fault: Arc<AtomicU8>,
}

/// Why a body did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the request body is too large")]
    TooLarge = 1,
    #[error("the request body comes too slowly")]
    TooSlow = 2,
    #[error("the request body broke off")]
    Broken = 3,
}

impl BodyFault {
    /// What the client hears.
    pub(super) fn status(self) -> StatusCode {
        match self {
            BodyFault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Broken => StatusCode::BAD_REQUEST,
        }
    }

    fn from_code(code: u8) -> Option<BodyFault> {
        [BodyFault::TooLarge, BodyFault::TooSlow, BodyFault::Broken].into_iter().find(|fault| *fault as u8 == code)
    }
}

/// Where a stream's fault can be seen after it was given away.
#[derive(Debug, Default, Clone)]
pub(super) struct FaultFlag(Option<Arc<AtomicU8>>);

impl FaultFlag {
    pub(super) fn fault(&self) -> Option<BodyFault> {
        BodyFault::from_code(self.0.as_ref()?.load(Ordering::Relaxed))
    }
}

impl RequestBody {
    /// Reads up to `buffer` octets of it.
    pub(super) async fn gather(body: Incoming, buffer: u64, limits: &Limits) -> Result<RequestBody, BodyFault> {
        if body.is_end_stream() {
            return Ok(RequestBody::Whole(None));
        }
        let announced = body.size_hint().exact();
        if announced.is_some_and(|size| size > limits.body_bytes) {
            return Err(BodyFault::TooLarge);
        }
        let mut upload = Upload::new(body, limits);
        if announced.is_none_or(|size| size <= buffer) {
            upload.read_ahead(buffer).await?;
        }
        Ok(upload.whole_if_ended())
    }

    /// What it holds in memory.
    pub(super) fn held(&self) -> u32 {
        let octets = match self {
            RequestBody::Whole(all) => all.as_ref().map_or(0, Bytes::len),
            RequestBody::Stream(upload) => upload.first.iter().filter_map(Frame::data_ref).map(Bytes::len).sum(),
        };
        u32::try_from(octets).unwrap_or(u32::MAX)
    }

    /// Whether it is of unknown length.
    pub(super) fn is_chunked(&self) -> bool {
        matches!(self, RequestBody::Stream(_)) && self.size_hint().exact().is_none()
    }

    /// Whether it can be sent again after it was lost.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, RequestBody::Whole(None))
    }

    pub(super) fn fault_flag(&self) -> FaultFlag {
        match self {
            RequestBody::Whole(_) => FaultFlag(None),
            RequestBody::Stream(upload) => FaultFlag(Some(Arc::clone(&upload.fault))),
        }
    }
}

impl Upload {
    fn new(rest: Incoming, limits: &Limits) -> Upload {
        Upload { first: VecDeque::new(), rest, pace: Pace::new(limits), fault: Arc::default() }
    }

    async fn read_ahead(&mut self, buffer: u64) -> Result<(), BodyFault> {
        let mut octets = 0;
        while octets <= buffer && !self.rest.is_end_stream() {
            let Some(frame) = std::future::poll_fn(|cx| self.poll_next(cx)).await.transpose()? else { break };
            octets += frame.data_ref().map_or(0, |data| data.len() as u64);
            self.first.push_back(frame);
        }
        Ok(())
    }

    /// A body that is complete and has no trailers is sent with its length.
    fn whole_if_ended(self) -> RequestBody {
        let plain = self.first.iter().all(Frame::is_data);
        if !self.rest.is_end_stream() || !plain {
            return RequestBody::Stream(Box::new(self));
        }
        let mut pieces = self.first.into_iter().filter_map(|frame| frame.into_data().ok());
        let (Some(mut all), more) = (pieces.next(), pieces.next()) else { return RequestBody::Whole(None) };
        if let Some(more) = more {
            let mut joined = BytesMut::from(&all[..]);
            joined.extend_from_slice(&more);
            pieces.for_each(|piece| joined.extend_from_slice(&piece));
            all = joined.freeze();
        }
        RequestBody::Whole((!all.is_empty()).then_some(all))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let outcome = match Pin::new(&mut self.rest).poll_frame(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Ok(frame))) => self.pace.came(&frame).map(|()| frame),
            Poll::Ready(Some(Err(_))) => Err(BodyFault::Broken),
            Poll::Pending => match self.pace.poll_late(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => Err(BodyFault::TooSlow),
            },
        };
        if let Err(fault) = outcome {
            self.fault.store(fault as u8, Ordering::Relaxed);
        }
        Poll::Ready(Some(outcome))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut *self {
            RequestBody::Whole(all) => Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            RequestBody::Stream(upload) => match upload.first.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => upload.poll_next(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Whole(all) => all.is_none(),
            RequestBody::Stream(upload) => upload.first.is_empty() && upload.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(all) => SizeHint::with_exact(all.as_ref().map_or(0, |all| all.len() as u64)),
            RequestBody::Stream(upload) => {
                let first: u64 = upload.first.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
                match upload.rest.size_hint().exact() {
                    // An ended body of chunks has a known length of nothing, but may have trailers.
                    Some(rest) if !upload.rest.is_end_stream() => SizeHint::with_exact(first + rest),
                    _ => SizeHint::default(),
                }
            }
        }
    }
}

/// How fast a body comes.
#[derive(Debug)]
struct Pace {
    octets: u64,
    octets_max: u64,
    rate: u64,
    piece: Duration,
    due: Instant,
    /// What the whole may take; moves on with every octet.
    whole: Instant,
    lateness: Lateness,
}

impl Pace {
    fn new(limits: &Limits) -> Pace {
        let now = Instant::now();
        Pace {
            octets: 0,
            octets_max: limits.body_bytes,
            rate: u64::from(limits.body_rate.max(1)),
            piece: limits.body_piece,
            due: now + limits.body_piece,
            whole: now + limits.body_grace,
            lateness: Lateness::default(),
        }
    }

    fn came(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyFault> {
        let size = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.octets = self.octets.saturating_add(size);
        self.whole += Duration::from_nanos(size.saturating_mul(1_000_000_000) / self.rate);
        self.due = Instant::now() + self.piece;
        if self.octets > self.octets_max { Err(BodyFault::TooLarge) } else { Ok(()) }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.lateness.poll(self.due.min(self.whole), cx)
    }
}
