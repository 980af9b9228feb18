//! Passes a response from its server to its client.
//!
//! The server is read in two ways. While the client reads fast enough, each piece goes straight through. While it does not
//! ([`Relay::poll_ahead`]), pieces are kept in a [`Buffer`] as long as there is room. When there is none, the server has to wait, and that
//! counts against the client ([`Reader::blocks`]). The slot ends when the server has sent everything.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Instant;
use weir_core::fair::SubnetKey;

use super::backend::Backend;
use super::buffer::{Buffer, Room};
use super::deadline::Deadline;
use super::http2_stream::SendWatch;
use super::readers::Registered;
use super::request_record::RequestRecord;
use super::thread::Thread;
use super::unit_meter::UnitMeter;
use super::unread::counted;
use super::upstream::{Drain, HeldSlot, Sender, UpstreamBody, drain};
use crate::admission::{Cost, Reader, Stream};
use crate::health::Busy;

pub(super) struct Relay {
    first: Option<Frame<Bytes>>,
    /// None when the server has sent everything.
    rest: Option<UpstreamBody>,
    /// What comes after the last octet that is buffered.
    last: Option<Result<Frame<Bytes>, BodyBroken>>,
    /// How many octets are still to be sent to the client, if that is known.
    left: Option<u64>,
    kept: Option<Box<Kept>>,
    hold: Holding,
    /// The server's number, and the connection if hyper has it; both are needed to keep the connection when the body has ended.
    server: usize,
    sender: Option<Sender>,
    thread: Arc<Thread>,
    record: RequestRecord,
    reader: Arc<dyn Reader>,
    /// The stream's watch on HTTP/2, where a piece that was handed over stays in memory until the client takes it.
    watch: Option<Arc<SendWatch>>,
    subnet: SubnetKey,
    blocked: bool,
    timing: Timing,
    /// Where the response says what it has cost.
    meter: Option<UnitMeter>,
}

/// What is needed to begin.
pub(super) struct RelayStart {
    pub(super) first: Option<Frame<Bytes>>,
    pub(super) body: UpstreamBody,
    pub(super) hold: Holding,
    pub(super) server: usize,
    pub(super) sender: Option<Sender>,
    pub(super) thread: Arc<Thread>,
    pub(super) record: RequestRecord,
    pub(super) reader: Arc<dyn Reader>,
    /// The watch of an HTTP/2 stream. The first piece is counted for it already.
    pub(super) watch: Option<Arc<SendWatch>>,
    pub(super) subnet: SubnetKey,
    /// Whether it must not be buffered.
    pub(super) unbuffered: bool,
    pub(super) meter: Option<UnitMeter>,
}

/// What has been read ahead of the client.
struct Kept {
    buffer: Buffer,
    registered: Registered,
}

/// What the stream occupies at the backend.
#[derive(Debug)]
pub(super) enum Holding {
    Slot(HeldSlot),
    #[expect(dead_code, reason = "held for their drop")]
    Stream(Stream, Busy),
    Nothing,
}

/// How long pieces may take, and what may be kept of them.
#[derive(Debug)]
struct Timing {
    piece: Duration,
    last: Instant,
    deadline: Deadline,
    drain: Drain,
    stops_early: bool,
    idle_connections: u32,
    buffer_bytes: usize,
    unbuffered: bool,
}

impl Relay {
    pub(super) fn new(begun: RelayStart, backend: &Backend) -> Relay {
        let RelayStart {
            first,
            body,
            mut hold,
            server,
            sender,
            thread,
            record,
            reader,
            watch,
            subnet,
            unbuffered,
            mut meter,
        } = begun;
        let first_bytes = first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        if let (Some(meter), Holding::Slot(held)) = (&mut meter, &mut hold) {
            // As long as the response has not said its cost.
            held.permit.set_cost(Cost::TimeOrUsual);
            meter.see(first.as_ref().and_then(Frame::data_ref).map_or(&[][..], |data| data));
        }
        let timing = Timing {
            piece: backend.piece,
            last: Instant::now(),
            deadline: Deadline::default(),
            drain: Drain::of(backend),
            stops_early: backend.stops_early,
            idle_connections: backend.idle_connections,
            buffer_bytes: usize::try_from(backend.response_buffer).unwrap_or(usize::MAX),
            unbuffered,
        };
        Relay {
            left: body.size_hint().exact().map(|rest| first_bytes + rest),
            first,
            rest: Some(body),
            last: None,
            kept: None,
            hold,
            server,
            sender,
            thread,
            record,
            reader,
            watch,
            subnet,
            blocked: false,
            timing,
            meter,
        }
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Whether nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        let kept = self.kept.as_ref().is_none_or(|kept| kept.buffer.is_empty());
        self.first.is_none() && kept && self.last.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    /// The next piece for the client: what is buffered, or what the server sends now.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        let kept = self.poll_kept(cx);
        if kept.is_ready() || !self.is_dry() {
            return kept;
        }
        match ready!(self.poll_server(cx)) {
            Some(Ok(frame)) => {
                self.gave(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            other => Poll::Ready(other),
        }
    }

    /// The next piece for the client from what has been read; not ready if there is none yet.
    pub(super) fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        self.block(false);
        if let Some(frame) = self.first.take() {
            self.gave(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(kept) = &mut self.kept {
            match ready!(kept.buffer.poll_pop(cx)) {
                Ok(Some(data)) => {
                    kept.registered.progress.note(data.len(), kept.buffer.held());
                    let frame = Frame::data(self.counted(data));
                    self.gave(&frame);
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a buffer file of the web gate cannot be read");
                    return Poll::Ready(Some(Err(self.broken(BodyBroken::Lost))));
                }
            }
        }
        match self.last.take() {
            Some(last) => Poll::Ready(Some(last)),
            None if self.rest.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// A piece that leaves the buffer. On HTTP/2 it is still counted until the client has taken it.
    fn counted(&self, data: Bytes) -> Bytes {
        match &self.watch {
            Some(watch) => counted(data, &self.thread.shared, (&self.record.client(), watch), self.subnet),
            None => data,
        }
    }

    /// Whether nothing is buffered, so that the next piece is the server's.
    fn is_dry(&self) -> bool {
        self.rest.is_some() && self.last.is_none() && self.kept.as_ref().is_none_or(|kept| kept.buffer.is_empty())
    }

    /// Reads from the server while the client reads nothing. Ready when the server has sent everything.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.rest.is_none() {
                return Poll::Ready(());
            }
            match self.poll_room(cx) {
                Room::Enough => {}
                Room::Soon => return Poll::Pending,
                Room::None => {
                    self.block(true);
                    return Poll::Pending;
                }
            }
            match ready!(self.poll_server(cx)) {
                Some(Ok(frame)) => self.keep(frame),
                Some(Err(broken)) => self.last = Some(Err(broken)),
                None => {}
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Room {
        let Some(kept) = &mut self.kept else {
            return if self.first.is_some() && self.timing.unbuffered { Room::None } else { Room::Enough };
        };
        match kept.buffer.poll_disk(cx) {
            Poll::Ready(Err(error)) => {
                tracing::warn!(%error, "a buffer file of the web gate cannot be read");
                self.last = Some(Err(self.broken(BodyBroken::Lost)));
                Room::None
            }
            _ => kept.buffer.room(),
        }
    }

    fn keep(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                let kept = self.kept();
                kept.buffer.push(data);
                kept.registered.progress.note(0, kept.buffer.held());
            }
            Err(frame) => self.last = Some(Ok(frame)),
        }
    }

    fn kept(&mut self) -> &mut Kept {
        let Relay { kept, thread, timing, reader, subnet, .. } = self;
        kept.get_or_insert_with(|| {
            let shared = &thread.shared;
            let (memory, disk) = (shared.responses.share(*subnet), shared.response_files.share(*subnet));
            let (most, folder) =
                if timing.unbuffered { (0, None) } else { (timing.buffer_bytes, shared.folder.clone()) };
            let buffer = Buffer::new(most, memory, disk, folder);
            let registered = shared.readers.register(Arc::clone(reader), *subnet);
            Box::new(Kept { buffer, registered })
        })
    }

    /// The next piece from the server. The slot ends when the response ends or breaks off.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        match Pin::new(rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timing.last = Instant::now();
                if let (Some(meter), Some(data)) = (&mut self.meter, frame.data_ref()) {
                    meter.see(data);
                }
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
            Poll::Pending => {
                let late = self.timing.deadline.poll(self.timing.last + self.timing.piece, cx);
                late.map(|()| Some(Err(self.broken(BodyBroken::Late))))
            }
        }
    }

    /// Notes that the client keeps the server waiting, or does so no longer.
    fn block(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.reader.blocks(blocked);
            if let Some(kept) = self.kept.as_ref().filter(|_| !self.timing.unbuffered) {
                kept.registered.progress.want_room(blocked);
            }
            // The server's own time starts again.
            self.timing.last = Instant::now();
        }
    }

    fn gave(&mut self, frame: &Frame<Bytes>) {
        let octets = frame.data_ref().map_or(0, Bytes::len);
        self.left = self.left.map(|left| left.saturating_sub(octets as u64));
        self.record.sent(octets);
    }

    /// Nothing more comes, and this is not the client's fault.
    fn broken(&mut self, how: BodyBroken) -> BodyBroken {
        (self.rest, self.hold) = (None, Holding::Nothing);
        self.record.complete();
        how
    }

    /// The backend has sent everything.
    fn end(&mut self) {
        if let (Some(meter), Holding::Slot(held)) = (&self.meter, &mut self.hold) {
            held.permit.set_cost(meter.cost(held.permit.held()));
        }
        self.hold = Holding::Nothing;
        self.record.complete();
        if let Some(body) = self.rest.take() {
            self.thread.keep_connection(self.server, body, self.sender.take(), self.timing.idle_connections);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.block(false);
        let (Some(rest), Holding::Slot(held)) = (self.rest.take(), std::mem::replace(&mut self.hold, Holding::Nothing))
        else {
            return;
        };
        // The client has left and the backend goes on working.
        if !self.timing.stops_early
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(drain(rest, held, self.timing.drain, Some(self.timing.last)));
        }
    }
}

/// Why a response did not reach its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum BodyBroken {
    #[error("the backend broke off its response")]
    Broken,
    #[error("the backend has stopped in the middle of its response")]
    Late,
    #[error("what was buffered of the response is lost")]
    Lost,
}
