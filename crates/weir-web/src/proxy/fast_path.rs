//! The fast path: an HTTP/1 connection for as long as its requests are plain ([`weir_http1::request_head`]).
//!
//! Most requests of most clients are plain. They go from the client's octets to the server's and back without a map of headers, a task or a
//! channel between. The first request that is not plain ends the fast path: hyper gets the connection, with all octets from the beginning of
//! that request, and keeps it.
//!
//! If a client closes while its request waits or is answered, the request is given up. Memory: what was read ahead, at most the limit
//! of heads, and the response's head; bodies pass piece by piece. While a piece cannot go out, the
//! server is read on into a buffer ([`super::relay`]), so that it does not wait for a slow client.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body, Frame};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use weir_http1::field_lines::{FieldLines, write_line};
use weir_http1::head_end;
use weir_http1::request_head::{FIELDS, HeadStatus, read};
use weir_http1::write::{LAST_CHUNK, ResponseFraming, write_chunk_size, write_status_line};

use super::client::Client;
use super::forward::{ReadyRequest, prepare, send_and_receive};
use super::presence::ConnectionEnd;
use super::relay::BodyBroken;
use super::response_body::ResponseBody;
use super::thread::Thread;
use super::upstream_response::ClientResponse;
use crate::log::http_date;

/// Serves plain requests. Returns the octets with which hyper has to begin, or None if the connection is over.
pub(super) async fn serve<S>(
    thread: &Arc<Thread>,
    client: &Arc<Client>,
    stream: &mut S,
    ahead: Vec<u8>,
) -> Option<BytesMut>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let input = BytesMut::from(&ahead[..]);
    drop(ahead);
    let head_most = thread.site().limits.header_bytes as usize;
    let mut connection =
        FastPath { thread, client, stream, head_most, input, searched: 0, output: Vec::new(), written: 0 };
    loop {
        match poll_fn(|cx| connection.poll_request(cx)).await {
            ReadOutcome::Request(ready, method) => {
                let response = connection.respond_to(ready).await?;
                let close = client.end() != ConnectionEnd::Open;
                if connection.send(response, &method, close).await.is_err() {
                    return None;
                }
                if close {
                    break;
                }
            }
            ReadOutcome::Other => return Some(connection.input),
            ReadOutcome::End => break,
        }
    }
    let _ = poll_fn(|cx| connection.poll_shutdown(cx)).await;
    None
}

struct FastPath<'a, S> {
    thread: &'a Arc<Thread>,
    client: &'a Arc<Client>,
    stream: &'a mut S,
    /// The longest head, in octets.
    head_most: usize,
    /// Octets that were read and not used yet.
    input: BytesMut,
    /// In this many of them no end of a head was found.
    searched: usize,
    /// What is to be written, and how much of it has been.
    output: Vec<u8>,
    written: usize,
}

#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and a box would be an allocation for each request"
)]
enum ReadOutcome {
    Request(ReadyRequest, Method),
    Other,
    End,
}

/// How many octets before a read may belong to the end of a head that comes in two parts.
const END_BYTES: usize = 2;
/// How much is read at once.
const ROOM: usize = 4 << 10;
/// Pieces of bodies up to this size are copied behind their head, so that one write sends both.
const COPIED: usize = 4 << 10;
/// What a client may send ahead while its request waits or is answered.
const AHEAD_MOST: usize = 8 << 10;
/// Small pieces are gathered up to here.
const OUTPUT_MOST: usize = 16 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> FastPath<'_, S> {
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<ReadOutcome> {
        loop {
            if let Some(next) = self.next_request() {
                self.client.note_head(false);
                return Poll::Ready(next);
            }
            self.client.note_head(!self.input.is_empty());
            if self.input.capacity() - self.input.len() < ROOM / 2 {
                self.input.reserve(ROOM);
            }
            match pin!(self.stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(ReadOutcome::End),
                // A request that has begun to arrive is still answered.
                Poll::Pending if self.client.end() != ConnectionEnd::Open && self.input.is_empty() => {
                    return Poll::Ready(ReadOutcome::End);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn next_request(&mut self) -> Option<ReadOutcome> {
        // A head that comes octet by octet is parsed only once, when its end is here.
        let fresh = self.input.get(self.searched.saturating_sub(END_BYTES)..).unwrap_or_default();
        if fresh.is_empty() || (self.searched > 0 && head_end(fresh).is_none() && self.input.len() < self.head_most) {
            self.searched = self.input.len();
            return None;
        }
        let mut room = [const { MaybeUninit::uninit() }; FIELDS];
        let (ready, method, length) = match read(&self.input, &mut room) {
            HeadStatus::Plain(head) if head.length <= self.head_most => {
                (prepare(self.thread, self.client, &head), head.method, head.length)
            }
            HeadStatus::Begun if self.input.len() < self.head_most => {
                self.searched = self.input.len();
                return None;
            }
            // This includes heads that are too long: hyper answers 431.
            _ => return Some(ReadOutcome::Other),
        };
        self.input.advance(length);
        self.searched = 0;
        if self.input.is_empty() && self.input.capacity() > 2 * ROOM {
            self.input = BytesMut::new();
        }
        Some(ReadOutcome::Request(ready, method))
    }

    /// The response; None if the client has gone meanwhile.
    async fn respond_to(&mut self, ready: ReadyRequest) -> Option<ClientResponse> {
        let mut response = pin!(send_and_receive(self.thread, self.client, ready));
        poll_fn(|cx| {
            let polled = response.as_mut().poll(cx);
            self.output.append(&mut self.client.interim.take());
            match polled {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending if self.poll_interim(cx).is_err() => Poll::Ready(None),
                Poll::Pending => self.poll_gone(cx).map(|()| None),
            }
        })
        .await
    }

    /// Interim responses are sent at once.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        if self.output.is_empty() {
            return Ok(());
        }
        match self.poll_flush(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(()),
        }
    }

    /// Ready when the client has closed. What it has sent ahead is kept up to a limit. Beyond that nothing is read, so a close after it is not seen.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.input.len() < AHEAD_MOST {
            let mut room = [const { MaybeUninit::uninit() }; 512];
            let mut room = ReadBuf::uninit(&mut room);
            match ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut room)) {
                Ok(()) if !room.filled().is_empty() => self.input.extend_from_slice(room.filled()),
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    async fn send(&mut self, response: ClientResponse, method: &Method, close: bool) -> Result<(), Broken> {
        let ClientResponse { response, lines } = response;
        let (parts, mut body) = response.into_parts();
        let mut lines = lines.unwrap_or_else(|| {
            let mut lines = FieldLines::new();
            lines.add_all(&parts.headers);
            lines
        });
        let length = body.size_hint().exact();
        let framing = ResponseFraming::of(method, parts.status, &lines, length);
        framing.announce(&mut lines, length);
        self.write_head(parts.status, parts.extensions.get(), &lines);
        self.output.extend_from_slice(if close { b"connection: close\r\n\r\n" } else { b"\r\n" });
        if framing == ResponseFraming::Nothing {
            return self.flush().await;
        }
        if let ResponseBody::Whole(whole) = &mut body {
            let all = whole.take().unwrap_or_default();
            self.write_piece(&all, b"", &mut body).await?;
            return self.flush().await;
        }
        self.send_flow(body, framing).await
    }

    fn write_head(&mut self, status: StatusCode, reason: Option<&ReasonPhrase>, lines: &FieldLines) {
        let output = &mut self.output;
        write_status_line(output, status, reason.map(ReasonPhrase::as_bytes));
        output.extend_from_slice(lines.text());
        if !lines.dated {
            write_line(output, "date", http_date(self.thread.wall_time()).as_bytes());
        }
    }

    async fn send_flow(&mut self, mut body: ResponseBody, framing: ResponseFraming) -> Result<(), Broken> {
        while let Some(frame) = self.next_frame(&mut body).await? {
            // Trailers are only for clients that asked for them, and hyper serves those.
            let Ok(data) = frame.into_data() else { continue };
            if framing == ResponseFraming::Length {
                self.write_piece(&data, b"", &mut body).await?;
            } else if !data.is_empty() {
                write_chunk_size(&mut self.output, data.len());
                self.write_piece(&data, b"\r\n", &mut body).await?;
            }
        }
        if framing == ResponseFraming::Chunks {
            self.output.extend_from_slice(LAST_CHUNK);
        }
        self.flush().await
    }

    /// The next piece of the body. Everything that is already here is sent before waiting for it.
    async fn next_frame(&mut self, body: &mut ResponseBody) -> Result<Option<Frame<Bytes>>, Broken> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.transpose().map_err(Broken::from));
            }
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            self.poll_gone(cx).map(|()| Err(Broken))
        })
        .await
    }

    /// Writes a piece of the body and what follows it. A small piece is copied into the output buffer. While the client reads nothing, the rest of the
    /// body is read ahead.
    async fn write_piece(&mut self, piece: &[u8], tail: &[u8], body: &mut ResponseBody) -> Result<(), Broken> {
        if piece.len() <= COPIED {
            self.output.extend_from_slice(piece);
            self.output.extend_from_slice(tail);
            // A client that reads nothing must not fill our memory with small pieces.
            if self.output.len() < OUTPUT_MOST {
                return Ok(());
            }
            return poll_fn(|cx| {
                let flushed = self.poll_flush(cx);
                if flushed.is_pending() {
                    body.read_ahead(cx);
                }
                flushed
            })
            .await;
        }
        let (mut piece, mut tail) = (piece, tail);
        poll_fn(|cx| {
            let FastPath { stream, client, output, written, .. } = &mut *self;
            loop {
                let before = &output[*written..];
                if before.is_empty() && piece.is_empty() && tail.is_empty() {
                    (*written, *output) = (0, Vec::new());
                    return Poll::Ready(Ok(()));
                }
                let slices = [before, piece, tail].map(IoSlice::new);
                let outcome = Pin::new(&mut **stream).poll_write_vectored(cx, &slices);
                client.note_write(&outcome);
                if outcome.is_pending() {
                    body.read_ahead(cx);
                }
                let octets = some(ready!(outcome))?;
                let of_before = octets.min(before.len());
                let of_piece = (octets - of_before).min(piece.len());
                *written += of_before;
                piece = &piece[of_piece..];
                tail = &tail[(octets - of_before - of_piece).min(tail.len())..];
            }
        })
        .await
    }

    async fn flush(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while self.written < self.output.len() {
            let outcome = Pin::new(&mut *self.stream).poll_write(cx, &self.output[self.written..]);
            self.client.note_write(&outcome);
            self.written += some(ready!(outcome))?;
        }
        self.written = 0;
        if self.output.capacity() > OUTPUT_MOST / 2 {
            self.output = Vec::new();
        }
        self.output.clear();
        Pin::new(&mut *self.stream).poll_flush(cx).map_err(|_| Broken)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut *self.stream).poll_shutdown(cx);
        self.client.note_write(&outcome);
        outcome
    }
}

/// Nothing more can be sent to this client.
#[derive(Debug)]
struct Broken;

impl From<BodyBroken> for Broken {
    fn from(_: BodyBroken) -> Broken {
        Broken
    }
}

fn some(outcome: io::Result<usize>) -> Result<usize, Broken> {
    outcome.ok().filter(|octets| *octets > 0).ok_or(Broken)
}
