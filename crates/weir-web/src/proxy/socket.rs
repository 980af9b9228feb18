//! A client's socket that is read in one place, while another place watches whether the client closes it.
//!
//! While a request waits for a slot, hyper reads nothing from its connection if part of an upload, or anything sent ahead, is still unread. So it does
//! not see that the client closes. The kernel knows, and tells it even if octets are unread.
//!
//! A close behind more octets than the kernel buffers has not arrived yet, and is not seen. It costs one read that finds nothing for each message, so
//! only the connections that hyper gets, and those with TLS, are watched.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::server::TlsStream;

use super::client::ClientStream;

/// A socket that can be watched.
#[derive(Debug)]
pub(super) struct Socket {
    reading: Arc<OwnedReadHalf>,
    writing: OwnedWriteHalf,
}

/// Resolves when the client has closed its side, or the connection is broken.
pub(super) type Closed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that can be watched for its end.
pub(super) trait Watchable: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    type Watched: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn watched(self) -> (Self::Watched, Closed);
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Socket {
        let (reading, writing) = stream.into_split();
        Socket { reading: Arc::new(reading), writing }
    }

    fn closed(&self) -> Closed {
        let reading = Arc::clone(&self.reading);
        Box::pin(async move {
            // Waiting for urgent data ends only with such data or with the end of the connection, and nobody sends urgent data.
            let _ = reading.ready(Interest::PRIORITY).await;
        })
    }
}

impl Watchable for TcpStream {
    type Watched = Socket;

    fn watched(self) -> (Socket, Closed) {
        let socket = Socket::new(self);
        let closed = socket.closed();
        (socket, closed)
    }
}

impl Watchable for TlsStream<ClientStream<Socket>> {
    type Watched = Self;

    fn watched(self) -> (Self, Closed) {
        let closed = self.get_ref().0.inner().closed();
        (self, closed)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = (*self.reading).as_ref();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writing).poll_write(cx, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writing).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.writing.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writing).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writing).poll_shutdown(cx)
    }
}
