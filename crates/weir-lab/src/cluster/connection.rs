//! Connections between machines: mutual TLS, lines in both directions, and the timeouts that notice a pulled cable.

use super::credential_store::CredentialStore;
use super::credentials::server_name;
use super::identity::PeerIdentity;
use crate::wire::{Inbox, LINE_MAX};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_core::election::Role;

/// A peer that sends nothing for this long on a connection between a leader and a dispatcher is gone, unless the election waits longer:
/// a lab whose machines may be silent for longer must not lose what they run.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// A connection whose other end acknowledges nothing for this long is closed: the cable may be connected again long before TCP tries again.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);
/// How much is read at a time.
const PIECE: usize = 16 * 1024;

/// How a machine calls another.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) store: CredentialStore,
    /// The address from which calls are made, because the others know this machine by it.
    pub(crate) from: IpAddr,
    pub(crate) port: u16,
    /// A peer that sends nothing for this long while it works counts as gone.
    pub(crate) silence: Duration,
}

impl Caller {
    /// Calls a machine and names the context of the connection.
    pub(crate) async fn call(&self, to: IpAddr, context: &str, within: Duration) -> io::Result<TlsStream<TcpStream>> {
        let call = async {
            let stream = connect(self.from, SocketAddr::new(to, self.port)).await?;
            tune(&stream)?;
            let mut stream =
                TlsConnector::from(self.store.active().client.clone()).connect(server_name(), stream).await?;
            stream.write_all(format!("weir-lab 1 {context}\n").as_bytes()).await?;
            Ok(stream)
        };
        tokio::time::timeout(within, call).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// The same for a machine that may lead, because no other may give orders.
    pub(crate) async fn call_eligible(
        &self,
        to: IpAddr,
        context: &str,
        within: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.call(to, context, within).await?;
        match far_end(&stream) {
            Some(shown) if shown.identity.role == Role::Eligible => Ok(stream),
            _ => Err(io::Error::other("what answers there may not lead")),
        }
    }
}

/// A connection from this address.
pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// The machine that answered a call, by its certificate.
pub(crate) fn far_end(stream: &TlsStream<TcpStream>) -> Option<PeerIdentity> {
    PeerIdentity::by(stream.get_ref().1.peer_certificates()?.first()?)
}

/// Lines are sent at once, and it is noticed if the other end is dead.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Lines and payloads from a connection.
#[derive(Debug)]
pub(crate) struct Lines<S> {
    stream: S,
    inbox: Inbox,
    piece: Box<[u8]>,
}

impl<S: AsyncRead + Unpin> Lines<S> {
    pub(crate) fn new(stream: S) -> Lines<S> {
        Lines { stream, inbox: Inbox::default(), piece: vec![0; PIECE].into() }
    }

    /// The next line; none at the end. May be dropped and called again.
    pub(crate) async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            match self.inbox.line() {
                Ok(Some(line)) => return Ok(Some(line.to_owned())),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// As many bytes as a line announced; must not be dropped half-way.
    pub(crate) async fn payload(&mut self, length: u64) -> io::Result<Vec<u8>> {
        // The announced bytes may never come, so memory is allocated as they do.
        let mut payload = Vec::with_capacity(usize::try_from(length).unwrap_or(usize::MAX).min(LINE_MAX));
        while (payload.len() as u64) < length {
            payload.extend_from_slice(self.some(length - payload.len() as u64).await?);
        }
        Ok(payload)
    }

    /// The next bytes of a payload, at most `most` and at least one.
    pub(crate) async fn some(&mut self, most: u64) -> io::Result<&[u8]> {
        while self.inbox.is_empty() {
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.inbox.payload(most))
    }

    async fn fill(&mut self) -> io::Result<bool> {
        let length = self.stream.read(&mut self.piece).await?;
        self.inbox.extend(self.piece.get(..length).unwrap_or_default());
        Ok(length > 0)
    }
}
