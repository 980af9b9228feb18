//! A connection to a server, driven by the task of the request that uses it.
//!
//! Most requests have no body, or one that is here already. They need no task and no channel of their own on the way to the server:
//! the request is written, and its response read, in the task that waits for them. Uploads that stream and upgrades go through hyper
//! ([`super::upstream`]).
//!
//! A response's head is bounded; a body is read as fast as the client takes it. A connection is used again only if its last response ended
//! where it should and nothing came after it.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncReadExt, AsyncWrite};
use weir_http1::Refused;
use weir_http1::body_framing::{BodyFraming, Piece};
use weir_http1::field_lines::FieldLines;
use weir_http1::response_head::{self, FieldsInto, ResponseHead};
use weir_http1::write::{write_request, write_trailed_request};

use super::request_body::{Outgoing, RequestBody};
use super::server_stream::ServerStream;

#[derive(Debug)]
pub(super) struct UpstreamConnection {
    stream: ServerStream,
    /// Kept until its response is here.
    request: Option<Box<Outgoing>>,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    /// Everything that was written has been sent.
    flushed: bool,
    /// Nothing more can be written, or should be.
    broken: bool,
    /// Some of a response has arrived.
    heard: bool,
    /// It has carried a response before.
    used: bool,
}

/// How much is read at once: enough for heads and small bodies, and for bodies that stream.
const HEAD_ROOM: usize = 8 << 10;
const BODY_ROOM: usize = 64 << 10;
/// The largest head.
const HEAD_BYTES: usize = 256 << 10;
/// How much of a request's buffer is kept from one request to the next.
const OUTPUT_KEPT: usize = 8 << 10;

impl UpstreamConnection {
    pub(super) fn new(stream: ServerStream) -> Box<UpstreamConnection> {
        let (input, output) = (BytesMut::new(), Vec::new());
        Box::new(UpstreamConnection {
            stream,
            request: None,
            input,
            output,
            written: 0,
            flushed: true,
            broken: false,
            heard: false,
            used: false,
        })
    }

    /// Whether an idle connection can still be used.
    pub(super) fn is_good(&mut self) -> bool {
        self.stream.is_good()
    }

    /// The request, if it can be sent again: it is safe, and the server may have closed before it came.
    pub(super) fn take_unanswered(&mut self) -> Option<Box<Outgoing>> {
        let may_be_late = self.used && !self.heard;
        self.request.take_if(|request| may_be_late && request.is_harmless())
    }

    /// Begins to send a request.
    pub(super) fn begin(&mut self, request: Box<Outgoing>) {
        (self.written, self.flushed, self.heard) = (0, false, false);
        self.output.clear();
        match &request.text {
            Some(text) => self.output.extend_from_slice(text),
            None => match &request.body {
                RequestBody::Trailed(body) => {
                    write_trailed_request(&mut self.output, &request.parts, &body.data, &body.trailers);
                }
                body => write_request(&mut self.output, &request.parts, body.whole()),
            },
        }
        self.request = Some(request);
    }

    /// Sends the request that was begun, and reads the head of its response.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ResponseHead, ResponseFields), UpstreamError>> {
        self.poll_send(cx);
        loop {
            if self.heard
                && let Some(head) = self.take_head()?
            {
                return Poll::Ready(Ok(head));
            }
            if self.input.len() > HEAD_BYTES {
                return Poll::Ready(Err(Refused::ResponseTooLarge.into()));
            }
            if ready!(self.poll_read(cx, HEAD_ROOM))? == 0 {
                return Poll::Ready(Err(UpstreamError::Closed));
            }
            self.heard = true;
        }
    }

    fn take_head(&mut self) -> Result<Option<(ResponseHead, ResponseFields)>, Refused> {
        let Some(request) = &mut self.request else { return Ok(None) };
        let mut lines = request.text.is_some().then(FieldLines::new);
        loop {
            let fields = match &mut lines {
                Some(lines) => FieldsInto::Lines(lines),
                None => FieldsInto::Map(&mut request.parts.headers),
            };
            let Some(head) = response_head::take(&mut self.input, &request.parts.method, fields)? else {
                return Ok(None);
            };
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                let headers = std::mem::take(&mut request.parts.headers);
                self.request = None;
                return Ok(Some((head, ResponseFields { headers, lines })));
            }
            // The final response is still to come. Clients that hyper serves get no interim responses.
            if let (Some(client), Some(lines)) = (&request.listener, &lines) {
                client.interim.add(head.status, lines);
            }
        }
    }

    /// A server may answer and close before it has read everything. Its response is still read.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while !self.broken && self.written < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..]) {
                Poll::Ready(Ok(octets)) if octets > 0 => self.written += octets,
                Poll::Ready(_) => self.broken = true,
                Poll::Pending => return,
            }
        }
        if !self.broken && !self.flushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(outcome) => (self.flushed, self.broken) = (outcome.is_ok(), outcome.is_err()),
                Poll::Pending => {}
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
        !self.broken && self.flushed && self.input.is_empty() && self.written == self.output.len()
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

/// A response's fields: as lines if the request was text, and in a map otherwise.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    headers: HeaderMap,
    lines: Option<FieldLines>,
}

/// A response's body, with the connection that it comes on.
#[derive(Debug)]
pub(super) struct ConnectionBody {
    connection: Box<UpstreamConnection>,
    framing: BodyFraming,
    keep: bool,
    lines: Option<FieldLines>,
}

impl ConnectionBody {
    /// The response, once its head has arrived.
    pub(super) fn answer(
        connection: Box<UpstreamConnection>,
        head: ResponseHead,
        ResponseFields { headers, lines }: ResponseFields,
    ) -> Response<ConnectionBody> {
        let mut response =
            Response::new(ConnectionBody { connection, framing: head.framing, keep: head.keep_alive, lines });
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        if let Some(reason) = head.reason.and_then(|reason| ReasonPhrase::try_from(reason).ok()) {
            response.extensions_mut().insert(reason);
        }
        response
    }

    /// The response's fields, where they came as lines.
    pub(super) fn take_lines(&mut self) -> Option<FieldLines> {
        self.lines.take()
    }

    /// The connection, if another request may follow on it.
    pub(super) fn into_connection(mut self) -> Option<Box<UpstreamConnection>> {
        if !self.keep || !self.framing.is_over() || !self.connection.is_at_rest() {
            return None;
        }
        self.connection.rest();
        Some(self.connection)
    }

    /// Whether the chunks that have arrived can be parsed. At most what was read at once is checked.
    pub(super) fn is_sound_so_far(&self) -> bool {
        let BodyFraming::Chunks(_) = self.framing else { return true };
        if self.connection.input.is_empty() {
            return true;
        }
        let (mut framing, mut input) = (self.framing, self.connection.input.clone());
        loop {
            match framing.take(&mut input) {
                Ok(Piece::Data(_)) => {}
                Ok(Piece::More | Piece::End | Piece::Trailers(_)) => return true,
                Err(_) => return false,
            }
        }
    }

    pub(super) fn reset_when_dropped(&self) {
        self.connection.stream.reset_when_dropped();
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, UpstreamError>> {
        loop {
            match self.framing.take(&mut self.connection.input)? {
                Piece::More => {}
                piece => return Poll::Ready(Ok(piece)),
            }
            self.connection.poll_send(cx);
            match ready!(self.connection.poll_read(cx, self.room())) {
                Ok(1..) => {}
                Ok(0) => {
                    self.keep = false;
                    let over = self.framing.ends_with_connection();
                    return Poll::Ready(if over { Ok(Piece::End) } else { Err(UpstreamError::Closed) });
                }
                Err(error) => {
                    // Otherwise the next read would see the end of the connection, which is the end of some bodies.
                    self.framing = BodyFraming::Broken;
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }

    fn room(&self) -> usize {
        match self.framing {
            BodyFraming::Length(left) => usize::try_from(left).unwrap_or(BODY_ROOM).clamp(HEAD_ROOM, BODY_ROOM),
            _ => BODY_ROOM / 2,
        }
    }
}

impl Body for ConnectionBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
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
            BodyFraming::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}

/// Why there is no response, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("the server closed the connection")]
    Closed,
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("the server's answer is not valid: {0}")]
    Bad(#[from] Refused),
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Box<UpstreamConnection>, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (UpstreamConnection::new(ServerStream::Plain(near)), listener.accept().await.unwrap().0)
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

    async fn ask(
        connection: &mut UpstreamConnection,
        far: &mut TcpStream,
        answer: &[u8],
    ) -> Result<(ResponseHead, ResponseFields), UpstreamError> {
        connection.begin(request(None));
        let (head, ()) = tokio::join!(poll_fn(|cx| connection.poll_head(cx)), async {
            // A length that nothing follows is not passed on.
            assert_eq!(heard(far).await, "GET /a?b HTTP/1.1\r\nhost: h\r\n\r\n");
            far.write_all(answer).await.unwrap();
        });
        head
    }

    #[tokio::test]
    async fn one_request_follows_another() {
        let (mut connection, mut far) = pair().await;
        for _ in 0..3 {
            let answer = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
            let (head, fields) = ask(&mut connection, &mut far, answer).await.unwrap();
            assert!(!fields.headers.contains_key("link") && !fields.headers.contains_key("host"));
            let mut response = ConnectionBody::answer(connection, head, fields);
            assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "hi");
            assert!(response.body().is_end_stream());
            connection = response.into_body().into_connection().expect("at rest");
            assert!(connection.is_good());
        }
        drop(far);
        let ServerStream::Plain(stream) = &connection.stream else { panic!("it is plain") };
        stream.readable().await.unwrap();
        assert!(!connection.is_good());
    }

    #[tokio::test]
    async fn what_comes_unasked_ends_the_connection() {
        let (mut connection, mut far) = pair().await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n";
        let (head, headers) = ask(&mut connection, &mut far, answer).await.unwrap();
        let mut body = ConnectionBody::answer(connection, head, headers).into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hi");
        assert!(body.into_connection().is_none());
    }

    #[tokio::test]
    async fn only_a_harmless_request_that_may_be_late_is_given_back() {
        for (used, body, again) in [(true, None, true), (false, None, false), (true, Some(&b"123456789"[..]), false)] {
            let (mut connection, far) = pair().await;
            drop(far);
            connection.used = used;
            connection.begin(request(body));
            assert!(poll_fn(|cx| connection.poll_head(cx)).await.is_err());
            assert_eq!(connection.take_unanswered().is_some(), again, "{used} {body:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_is_no_end_however_often_it_is_asked_for() {
        let (mut connection, mut far) = pair().await;
        let (head, headers) = ask(&mut connection, &mut far, b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        far.set_zero_linger().unwrap();
        drop(far);
        let mut body = ConnectionBody::answer(connection, head, headers).into_body();
        for _ in 0..3 {
            assert!(body.frame().await.expect("no end").is_err() && !body.is_end_stream());
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_end() {
        let (mut connection, mut far) = pair().await;
        let (head, headers) =
            ask(&mut connection, &mut far, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi").await.unwrap();
        drop(far);
        let body = ConnectionBody::answer(connection, head, headers).into_body();
        assert!(body.collect().await.is_err());
    }
}
