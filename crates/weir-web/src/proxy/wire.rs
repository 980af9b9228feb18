//! A connection to a server, worked by the task of the request that uses it.
//!
//! Most requests have no body, or one that is here already. Those need no task, channel or queue of their own on the way to the server:
//! the request is written and its answer read where they are waited for. Uploads that stream and upgrades go through hyper ([`super::upstream`]).
//!
//! An answer's head is bounded; a body is read as fast as the client takes it. A connection is used again only if its last answer ended
//! where it should and nothing came after it.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::answer_body::{Framing, Piece};
use super::answer_head::{self, BadAnswer, Head};
use super::lines::Lines;
use super::request_body::{Outgoing, RequestBody};

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// Until its answer is here.
    request: Option<Box<Outgoing>>,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    /// Nothing more can be written, or should be.
    broken: bool,
    /// Something of an answer has come.
    heard: bool,
    /// It has brought an answer before.
    used: bool,
}

/// Room for what is read at once: heads and small bodies, and bodies that flow.
const HEAD_ROOM: usize = 8 << 10;
const BODY_ROOM: usize = 64 << 10;
/// A head is no larger.
const HEAD_BYTES: usize = 256 << 10;
/// Room for a request that is kept from one to the next.
const OUTPUT_KEPT: usize = 8 << 10;

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Box<Wire> {
        let (input, output) = (BytesMut::new(), Vec::new());
        Box::new(Wire { stream, request: None, input, output, written: 0, broken: false, heard: false, used: false })
    }

    /// Whether an idle connection is still good: neither closed, nor has anything come that nobody asked for. No system call if so.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The request, if it can be sent again: it changes nothing, and may only have come too late.
    pub(super) fn take_unheard(&mut self) -> Option<Box<Outgoing>> {
        let may_be_late = self.used && !self.heard;
        self.request.take_if(|request| may_be_late && request.is_harmless())
    }

    /// Begins to send a request.
    pub(super) fn begin(&mut self, request: Box<Outgoing>) {
        (self.written, self.heard) = (0, false);
        self.output.clear();
        match &request.text {
            Some(text) => self.output.extend_from_slice(text),
            None => write(&mut self.output, &request),
        }
        self.request = Some(request);
    }

    /// Sends the request that was begun, and reads the head of its answer.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Head, Fields), WireFault>> {
        self.poll_send(cx);
        loop {
            if self.heard
                && let Some(head) = self.take_head()?
            {
                return Poll::Ready(Ok(head));
            }
            if self.input.len() > HEAD_BYTES {
                return Poll::Ready(Err(BadAnswer::TooLarge.into()));
            }
            if ready!(self.poll_read(cx, HEAD_ROOM))? == 0 {
                return Poll::Ready(Err(WireFault::Closed));
            }
            self.heard = true;
        }
    }

    fn take_head(&mut self) -> Result<Option<(Head, Fields)>, BadAnswer> {
        let Some(request) = &mut self.request else { return Ok(None) };
        let mut lines = request.text.is_some().then(Lines::new);
        loop {
            let fields = match &mut lines {
                Some(lines) => answer_head::Fields::Lines(lines),
                None => answer_head::Fields::Map(&mut request.parts.headers),
            };
            let Some(head) = answer_head::take(&mut self.input, &request.parts.method, fields)? else {
                return Ok(None);
            };
            // Answers that say that the answer is still to come are not passed on.
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                let headers = std::mem::take(&mut request.parts.headers);
                self.request = None;
                return Ok(Some((head, Fields { headers, lines })));
            }
        }
    }

    /// Whoever answers before it has read everything may close: what it says is read all the same.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while !self.broken && self.written < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..]) {
                Poll::Ready(Ok(octets)) if octets > 0 => self.written += octets,
                Poll::Ready(_) => self.broken = true,
                Poll::Pending => return,
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < room / 4 {
            self.input.reserve(room);
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }

    /// Whether another request may follow.
    fn is_at_rest(&self) -> bool {
        !self.broken && self.input.is_empty() && self.written == self.output.len()
    }

    fn rest(&mut self) {
        self.used = true;
        if self.output.capacity() > OUTPUT_KEPT {
            self.output = Vec::new();
            self.written = 0;
        }
        if self.input.capacity() > HEAD_ROOM {
            self.input = BytesMut::new();
        }
    }
}

fn write(output: &mut Vec<u8>, Outgoing { parts, body, .. }: &Outgoing) {
    output.extend_from_slice(parts.method.as_str().as_bytes());
    output.push(b' ');
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    output.extend_from_slice(target.as_bytes());
    output.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &parts.headers {
        // A length without a body would take the next request for one.
        if *name == header::CONTENT_LENGTH && body.is_empty() && value != "0" {
            continue;
        }
        output.extend_from_slice(name.as_str().as_bytes());
        output.extend_from_slice(b": ");
        output.extend_from_slice(value.as_bytes());
        output.extend_from_slice(b"\r\n");
    }
    output.extend_from_slice(b"\r\n");
    if let RequestBody::Whole(Some(body)) = body {
        output.extend_from_slice(body);
    }
}

/// An answer's fields: as lines if the request was text, and in a map otherwise.
#[derive(Debug, Default)]
pub(super) struct Fields {
    headers: HeaderMap,
    lines: Option<Lines>,
}

/// An answer's body, with the connection that it comes on.
#[derive(Debug)]
pub(super) struct WireBody {
    wire: Box<Wire>,
    framing: Framing,
    keep: bool,
    lines: Option<Lines>,
}

impl WireBody {
    /// The answer, once its head is here.
    pub(super) fn answer(wire: Box<Wire>, head: Head, Fields { headers, lines }: Fields) -> Response<WireBody> {
        let mut response = Response::new(WireBody { wire, framing: head.framing, keep: head.keep, lines });
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        if let Some(reason) = head.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }

    /// The answer's fields, where they came as lines.
    pub(super) fn take_lines(&mut self) -> Option<Lines> {
        self.lines.take()
    }

    /// The connection, if another request may follow on it.
    pub(super) fn into_wire(mut self) -> Option<Box<Wire>> {
        if !self.keep || !self.framing.is_over() || !self.wire.is_at_rest() {
            return None;
        }
        self.wire.rest();
        Some(self.wire)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, WireFault>> {
        loop {
            match self.framing.take(&mut self.wire.input)? {
                Piece::More => {}
                piece => return Poll::Ready(Ok(piece)),
            }
            self.wire.poll_send(cx);
            match ready!(self.wire.poll_read(cx, self.room())) {
                Ok(1..) => {}
                Ok(0) => {
                    self.keep = false;
                    let over = self.framing.ends_with_connection();
                    return Poll::Ready(if over { Ok(Piece::End) } else { Err(WireFault::Closed) });
                }
                Err(error) => {
                    // Whoever asks again would hear that the connection has ended, which some bodies end with.
                    self.framing = Framing::Broken;
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }

    fn room(&self) -> usize {
        match self.framing {
            Framing::Length(left) => usize::try_from(left).unwrap_or(BODY_ROOM).clamp(HEAD_ROOM, BODY_ROOM),
            _ => BODY_ROOM / 2,
        }
    }
}

impl Body for WireBody {
    type Data = Bytes;
    type Error = WireFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireFault>>> {
        Poll::Ready(match ready!(self.poll_piece(cx)) {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Piece::End | Piece::More) => None,
            Err(fault) => Some(Err(fault)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.framing.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireFault {
    #[error("the server closed the connection")]
    Closed,
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("the server's answer is not valid: {0}")]
    Bad(#[from] BadAnswer),
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (Box<Wire>, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Wire::new(near), listener.accept().await.unwrap().0)
    }

    fn request(body: Option<&'static [u8]>) -> Box<Outgoing> {
        let request = http::Request::builder().uri("/a?b").header("host", "h").header("content-length", "9");
        Outgoing::from_request(request.body(RequestBody::Whole(body.map(Bytes::from_static))).unwrap())
    }

    async fn heard(far: &mut TcpStream) -> String {
        let mut octets = Vec::new();
        while !octets.ends_with(b"\r\n\r\n") {
            assert!(far.read_buf(&mut octets).await.unwrap() > 0);
        }
        String::from_utf8(octets).unwrap()
    }

    async fn ask(wire: &mut Wire, far: &mut TcpStream, answer: &[u8]) -> Result<(Head, Fields), WireFault> {
        wire.begin(request(None));
        let (head, ()) = tokio::join!(poll_fn(|cx| wire.poll_head(cx)), async {
            // A length that nothing follows is not passed on.
            assert_eq!(heard(far).await, "GET /a?b HTTP/1.1\r\nhost: h\r\n\r\n");
            far.write_all(answer).await.unwrap();
        });
        head
    }

    #[tokio::test]
    async fn one_request_follows_another() {
        let (mut wire, mut far) = pair().await;
        for _ in 0..3 {
            let answer = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
            let (head, fields) = ask(&mut wire, &mut far, answer).await.unwrap();
            assert!(!fields.headers.contains_key("link") && !fields.headers.contains_key("host"));
            let mut response = WireBody::answer(wire, head, fields);
            assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "hi");
            assert!(response.body().is_end_stream());
            wire = response.into_body().into_wire().expect("at rest");
            assert!(wire.is_good());
        }
        drop(far);
        wire.stream.readable().await.unwrap();
        assert!(!wire.is_good());
    }

    #[tokio::test]
    async fn what_comes_unasked_ends_the_connection() {
        let (mut wire, mut far) = pair().await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n";
        let (head, headers) = ask(&mut wire, &mut far, answer).await.unwrap();
        let mut body = WireBody::answer(wire, head, headers).into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hi");
        assert!(body.into_wire().is_none());
    }

    #[tokio::test]
    async fn only_a_harmless_request_that_may_be_late_is_given_back() {
        for (used, body, again) in [(true, None, true), (false, None, false), (true, Some(&b"123456789"[..]), false)] {
            let (mut wire, far) = pair().await;
            drop(far);
            wire.used = used;
            wire.begin(request(body));
            assert!(poll_fn(|cx| wire.poll_head(cx)).await.is_err());
            assert_eq!(wire.take_unheard().is_some(), again, "{used} {body:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_is_no_end_however_often_it_is_asked_for() {
        let (mut wire, mut far) = pair().await;
        let (head, headers) = ask(&mut wire, &mut far, b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        far.set_zero_linger().unwrap();
        drop(far);
        let mut body = WireBody::answer(wire, head, headers).into_body();
        for _ in 0..3 {
            assert!(body.frame().await.expect("no end").is_err() && !body.is_end_stream());
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_end() {
        let (mut wire, mut far) = pair().await;
        let (head, headers) =
            ask(&mut wire, &mut far, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi").await.unwrap();
        drop(far);
        let body = WireBody::answer(wire, head, headers).into_body();
        assert!(body.collect().await.is_err());
    }
}
