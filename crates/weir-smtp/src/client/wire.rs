//! The connection to a server: sends bytes and reads replies, each within a time limit.
//!
//! There is one deadline for a whole reply, so a server that sends one octet a minute gains nothing. The read buffer holds what came after
//! the last reply, at most two lines.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::reply::{LINE_MAX, Reply, ReplyError, ReplyParser};

const READ_BYTES: usize = 2 * LINE_MAX;

/// A connection to a server.
#[derive(Debug)]
pub struct Wire {
    stream: SmtpStream,
    buffer: Vec<u8>,
    parser: ReplyParser,
}

/// The kind of connection.
#[derive(Debug)]
pub enum SmtpStream {
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
    /// A Unix socket (LMTP).
    Unix(UnixStream),
}

impl Wire {
    /// A new connection.
    pub fn new(stream: SmtpStream) -> Wire {
        Wire { stream, buffer: Vec::new(), parser: ReplyParser::default() }
    }

    /// Sends all octets.
    pub async fn send(&mut self, bytes: &[u8], within: Duration) -> Result<(), WireError> {
        timeout(within, self.stream.write_all(bytes)).await.map_err(|_| WireError::Slow)??;
        // A TLS stream may hold bytes back until it is flushed; on TCP this does nothing.
        timeout(within, self.stream.flush()).await.map_err(|_| WireError::Slow)??;
        Ok(())
    }

    /// Reads the next reply.
    pub async fn reply(&mut self, within: Duration) -> Result<Reply, WireError> {
        if let Some(reply) = self.parse()? {
            return Ok(reply);
        }
        timeout(within, self.read_reply()).await.map_err(|_| WireError::Silent)?
    }

    /// Returns when the server says something unasked or closes the connection.
    pub async fn disturbed(&mut self) {
        let mut octet = [0; 1];
        if self.buffer.is_empty() && self.stream.read(&mut octet).await.is_ok_and(|count| count == 1) {
            self.buffer.push(octet[0]);
        }
    }

    /// Whether the server has sent something that no command asked for.
    pub fn has_unread(&self) -> bool {
        !self.buffer.is_empty() || self.parser.is_midway()
    }

    /// The TCP stream of a connection that is not encrypted.
    pub fn into_tcp(self) -> Option<TcpStream> {
        match self.stream {
            SmtpStream::Tcp(stream) => Some(stream),
            SmtpStream::Tls(_) | SmtpStream::Unix(_) => None,
        }
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, SmtpStream::Tls(_))
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        let tcp = match &self.stream {
            SmtpStream::Tcp(tcp) => tcp,
            SmtpStream::Tls(tls) => tls.get_ref().0,
            SmtpStream::Unix(_) => return true,
        };
        tcp.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }

    fn parse(&mut self) -> Result<Option<Reply>, WireError> {
        let (used, reply) = self.parser.take(&self.buffer)?;
        self.buffer.drain(..used);
        Ok(reply)
    }

    async fn read_reply(&mut self) -> Result<Reply, WireError> {
        loop {
            // The parser fails at LINE_MAX, so there is always room.
            self.buffer.reserve(READ_BYTES.saturating_sub(self.buffer.len()));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(WireError::Ended);
            }
            if let Some(reply) = self.parse()? {
                return Ok(reply);
            }
        }
    }
}

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broke(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server hung up")]
    Ended,
    /// No reply came in time.
    #[error("the server did not answer in time")]
    Silent,
    /// The server does not accept what we send.
    #[error("the server did not read in time")]
    Slow,
    /// The server sent something that is not a reply.
    #[error("{0}")]
    Nonsense(#[from] ReplyError),
}

impl AsyncRead for SmtpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SmtpStream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            SmtpStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            SmtpStream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SmtpStream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            SmtpStream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            SmtpStream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SmtpStream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            SmtpStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            SmtpStream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SmtpStream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            SmtpStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            SmtpStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
