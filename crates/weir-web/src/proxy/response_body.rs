//! A response's body on its way to the client.
//!
//! Small bodies that came together with their head are passed on whole. All others flow: the slot is held until the backend has
//! said everything, also if the client goes meanwhile, unless the backend is known to stop then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::deadline::Deadline;
use super::http2_stream::SendWatch;
use super::request_record::RequestRecord;
use super::thread::Thread;
use super::upstream::{HeldSlot, Sender, UpstreamBody, drain};
use crate::admission::Stream;
use crate::health::Busy;

/// What the client is sent.
pub(super) enum ResponseBody {
    /// All of it; None when it has been given out or there is nothing.
    Whole(Option<Bytes>),
    /// As it comes.
    Streamed(Box<StreamedBody>),
}

/// A body that still comes in.
pub(super) struct StreamedBody {
    pub(super) first: Option<Frame<Bytes>>,
    pub(super) rest: Option<UpstreamBody>,
    pub(super) hold: Holding,
    /// The server's number, and the connection if hyper has it: to be kept when the body has ended.
    pub(super) server: usize,
    pub(super) sender: Option<Sender>,
    pub(super) thread: Arc<Thread>,
    pub(super) record: RequestRecord,
    /// Of an HTTP/2 stream.
    pub(super) send_watch: Option<Arc<SendWatch>>,
    pub(super) timing: StreamTiming,
}

/// What the flow occupies at the backend.
#[derive(Debug)]
pub(super) enum Holding {
    Slot(HeldSlot),
    #[expect(dead_code, reason = "held for their drop")]
    Stream(Stream, Busy),
    Nothing,
}

/// How long pieces may take.
#[derive(Debug)]
pub(super) struct StreamTiming {
    piece: Duration,
    last: Instant,
    deadline: Deadline,
    stream_after: Duration,
    stops_early: bool,
    idle_connections: u32,
}

impl StreamTiming {
    pub(super) fn new(backend: &super::backend::Backend) -> StreamTiming {
        StreamTiming {
            piece: backend.piece,
            last: Instant::now(),
            deadline: Deadline::default(),
            stream_after: backend.admission.stream_after,
            stops_early: backend.stops_early,
            idle_connections: backend.idle_connections,
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll(self.last + self.piece, cx)
    }
}

impl StreamedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        if let Some(frame) = self.first.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        match Pin::new(rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timing.last = Instant::now();
                self.record.sent(frame.data_ref().map_or(0, Bytes::len));
                if self.rest.as_ref().is_some_and(Body::is_end_stream) {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(self.broken(BodyBroken::Broken)))),
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Pending => self.timing.poll_late(cx).map(|()| Some(Err(self.broken(BodyBroken::Late)))),
        }
    }

    /// Nothing more comes, and that is not the client's doing.
    fn broken(&mut self, how: BodyBroken) -> BodyBroken {
        self.rest = None;
        self.record.complete();
        how
    }

    /// Notes whether the client has something to take.
    fn note_send(&self, begun: bool) {
        match &self.send_watch {
            Some(send_watch) if begun => send_watch.begin(),
            Some(send_watch) => send_watch.clear(),
            None => {}
        }
    }

    /// The backend has said everything.
    fn end(&mut self) {
        self.hold = Holding::Nothing;
        self.record.complete();
        if let Some(body) = self.rest.take() {
            self.thread.keep_connection(self.server, body, self.sender.take(), self.timing.idle_connections);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyBroken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        match &mut *self {
            ResponseBody::Whole(all) => Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            ResponseBody::Streamed(flow) => {
                let next = flow.poll_next(cx);
                flow.note_send(next.is_ready());
                next
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(all) => all.is_none(),
            ResponseBody::Streamed(flow) => flow.first.is_none() && flow.rest.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(all) => SizeHint::with_exact(all.as_ref().map_or(0, |all| all.len() as u64)),
            ResponseBody::Streamed(flow) => {
                let first = flow.first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
                match flow.rest.as_ref().map(Body::size_hint).and_then(|hint| hint.exact()) {
                    Some(rest) => SizeHint::with_exact(first + rest),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        let (Some(rest), Holding::Slot(held)) = (self.rest.take(), std::mem::replace(&mut self.hold, Holding::Nothing))
        else {
            return;
        };
        // The client has gone and the backend works on.
        if !self.timing.stops_early
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(drain(rest, held, self.timing.stream_after));
        }
    }
}

/// Why a response did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum BodyBroken {
    #[error("the backend broke off its response")]
    Broken,
    #[error("the backend has stopped in the middle of its response")]
    Late,
}
