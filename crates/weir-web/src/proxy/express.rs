//! HTTP/1 connections for as long as they are plain: requests that are all head ([`super::request_head`]), one after another.
//!
//! Most requests of most clients are such. They go from the client's octets to the server's and back without a map of headers, a task or a
//! channel between. The first request that is anything else ends it: the connection goes to hyper, with all octets from the beginning of
//! that request, and stays there.
//!
//! A client that closes while its request waits or is answered is gone, and its request with it. Memory: what was read ahead, at most the limit
//! of heads, and the answer's head; bodies pass piece by piece, and the next piece is asked for when the last has gone out.

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

use super::answer::Reply;
use super::answer_head::end;
use super::client::{Client, End};
use super::forward::{Ready, fulfil, prepare};
use super::lines::{Lines, write_line};
use super::request_head::{FIELDS, Reading, read};
use super::response_body::{FlowBroken, ResponseBody};
use super::thread::Thread;
use crate::log::http_date;

/// Serves plain requests. What is left to hyper: the octets that were read and not used; None if the connection is over.
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
    let mut lane = Lane { thread, client, stream, input, searched: 0, output: Vec::new(), written: 0 };
    loop {
        match poll_fn(|cx| lane.poll_request(cx)).await {
            Next::Request(ready, method) => {
                let reply = lane.reply_to(ready).await?;
                let close = client.end() != End::Open;
                if lane.send(reply, &method, close).await.is_err() {
                    return None;
                }
                if close {
                    break;
                }
            }
            Next::Other => return Some(lane.input),
            Next::End => break,
        }
    }
    let _ = poll_fn(|cx| lane.poll_shutdown(cx)).await;
    None
}

struct Lane<'a, S> {
    thread: &'a Arc<Thread>,
    client: &'a Arc<Client>,
    stream: &'a mut S,
    /// Read and not used yet.
    input: BytesMut,
    /// So much of it is known to hold no end of a head.
    searched: usize,
    /// To be written, and how much of it has been.
    output: Vec<u8>,
    written: usize,
}

enum Next {
    Request(Ready, Method),
    Other,
    End,
}

/// The longest end of a head, but for its last octet, that may come in two parts.
const END_BYTES: usize = 2;
/// Room for what is read at once.
const ROOM: usize = 4 << 10;
/// Pieces of bodies up to this size are copied behind their head, so that one write takes both.
const COPIED: usize = 4 << 10;
/// What a client may send ahead while its request waits or is answered.
const AHEAD_MOST: usize = 8 << 10;
/// Small pieces are gathered up to here.
const OUTPUT_MOST: usize = 16 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Lane<'_, S> {
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            if let Some(next) = self.next_request() {
                self.client.note_head(false);
                return Poll::Ready(next);
            }
            self.client.note_head(!self.input.is_empty());
            if self.client.end() != End::Open {
                return Poll::Ready(Next::End);
            }
            if self.input.capacity() - self.input.len() < ROOM / 2 {
                self.input.reserve(ROOM);
            }
            match ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx)) {
                Ok(octets) if octets > 0 => {}
                _ => return Poll::Ready(Next::End),
            }
        }
    }

    fn next_request(&mut self) -> Option<Next> {
        // A head that comes octet by octet is looked at once, and read once.
        let fresh = self.input.get(self.searched.saturating_sub(END_BYTES)..).unwrap_or_default();
        if fresh.is_empty() || (self.searched > 0 && end(fresh).is_none() && self.input.len() < self.head_most()) {
            self.searched = self.input.len();
            return None;
        }
        let mut room = [const { MaybeUninit::uninit() }; FIELDS];
        let (ready, method, length) = match read(&self.input, &mut room) {
            Reading::Plain(head) if head.length <= self.head_most() => {
                (prepare(self.thread, self.client, &head), head.method, head.length)
            }
            Reading::Begun if self.input.len() < self.head_most() => {
                self.searched = self.input.len();
                return None;
            }
            // Also what is too long: hyper says so.
            _ => return Some(Next::Other),
        };
        self.input.advance(length);
        self.searched = 0;
        if self.input.is_empty() && self.input.capacity() > 2 * ROOM {
            self.input = BytesMut::new();
        }
        Some(Next::Request(ready, method))
    }

    fn head_most(&self) -> usize {
        self.thread.shared.settings.limits.header_bytes as usize
    }

    /// The answer; None if the client has gone meanwhile.
    async fn reply_to(&mut self, ready: Ready) -> Option<Reply> {
        let mut reply = pin!(fulfil(self.thread, self.client, ready));
        poll_fn(|cx| match reply.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending => self.poll_gone(cx).map(|()| None),
        })
        .await
    }

    /// Ready when the client has closed. What it has sent ahead is kept; beyond a bound it is not read, and a close behind it not seen.
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

    async fn send(&mut self, (response, lines): Reply, method: &Method, close: bool) -> Result<(), Broken> {
        let (parts, mut body) = response.into_parts();
        let mut lines = lines.unwrap_or_else(|| {
            let mut lines = Lines::new();
            lines.add_all(&parts.headers);
            lines
        });
        let framing = Framing::of(&body, &lines, (parts.status, method));
        framing.announce(&body, &mut lines);
        self.write_head(parts.status, parts.extensions.get(), &lines);
        self.output.extend_from_slice(if close { b"connection: close\r\n\r\n" } else { b"\r\n" });
        if framing == Framing::Nothing {
            return self.flush().await;
        }
        if let ResponseBody::Whole(all) = &mut body {
            let all = all.take().unwrap_or_default();
            self.write_piece(&all, b"").await?;
            return self.flush().await;
        }
        self.send_flow(body, framing).await
    }

    fn write_head(&mut self, status: StatusCode, reason: Option<&ReasonPhrase>, lines: &Lines) {
        let output = &mut self.output;
        output.extend_from_slice(b"HTTP/1.1 ");
        output.extend_from_slice(status.as_str().as_bytes());
        output.push(b' ');
        let usual = status.canonical_reason().unwrap_or_default().as_bytes();
        output.extend_from_slice(reason.map_or(usual, ReasonPhrase::as_bytes));
        output.extend_from_slice(b"\r\n");
        output.extend_from_slice(lines.text());
        if !lines.dated {
            write_line(output, "date", http_date(self.thread.wall_time()).as_bytes());
        }
    }

    async fn send_flow(&mut self, mut body: ResponseBody, framing: Framing) -> Result<(), Broken> {
        while let Some(frame) = self.next_frame(&mut body).await? {
            // Trailers are for those who asked for them; hyper serves those.
            let Ok(data) = frame.into_data() else { continue };
            if framing == Framing::Length {
                self.write_piece(&data, b"").await?;
            } else if !data.is_empty() {
                self.output.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                self.write_piece(&data, b"\r\n").await?;
            }
        }
        if framing == Framing::Chunks {
            self.output.extend_from_slice(b"0\r\n\r\n");
        }
        self.flush().await
    }

    /// The next piece of the body. Before it is waited for, what is there goes out.
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

    /// Writes a piece and what follows it, or puts it to what goes out next.
    async fn write_piece(&mut self, piece: &[u8], tail: &[u8]) -> Result<(), Broken> {
        if piece.len() <= COPIED {
            self.output.extend_from_slice(piece);
            self.output.extend_from_slice(tail);
            // A client that takes nothing must not fill our memory with small pieces.
            return if self.output.len() < OUTPUT_MOST { Ok(()) } else { self.flush().await };
        }
        let (mut piece, mut tail) = (piece, tail);
        poll_fn(|cx| {
            let Lane { stream, client, output, written, .. } = &mut *self;
            loop {
                let before = &output[*written..];
                if before.is_empty() && piece.is_empty() && tail.is_empty() {
                    (*written, *output) = (0, Vec::new());
                    return Poll::Ready(Ok(()));
                }
                let slices = [before, piece, tail].map(IoSlice::new);
                let outcome = Pin::new(&mut **stream).poll_write_vectored(cx, &slices);
                client.note_write(&outcome);
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

/// How the client learns where the body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    /// There is none.
    Nothing,
    Length,
    Chunks,
}

impl Framing {
    fn of(body: &ResponseBody, lines: &Lines, (status, method): (StatusCode, &Method)) -> Framing {
        if *method == Method::HEAD || matches!(status.as_u16(), 100..200 | 204 | 304) {
            Framing::Nothing
        } else if lines.sized || body.size_hint().exact().is_some() {
            Framing::Length
        } else {
            Framing::Chunks
        }
    }

    fn announce(self, body: &ResponseBody, lines: &mut Lines) {
        match (self, body.size_hint().exact()) {
            (Framing::Length, Some(length)) if !lines.sized => {
                lines.add("content-length", length.to_string().as_bytes());
            }
            (Framing::Chunks, _) => lines.add("transfer-encoding", b"chunked"),
            _ => {}
        }
    }
}

/// Nothing more can be said to this client.
#[derive(Debug)]
struct Broken;

impl From<FlowBroken> for Broken {
    fn from(_: FlowBroken) -> Broken {
        Broken
    }
}

fn some(outcome: io::Result<usize>) -> Result<usize, Broken> {
    outcome.ok().filter(|octets| *octets > 0).ok_or(Broken)
}
