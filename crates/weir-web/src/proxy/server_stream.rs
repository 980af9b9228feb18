//! The octets between us and a server: plain, over a Unix socket, or inside TLS.
//!
//! A server that is written as `https://host:port` is spoken to over TLS, and must prove its name with a certificate that leads to a trusted authority,
//! unless the backend says that it need not. Errors say which server, and what was wrong with it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_tls::any_certificate;

use super::backend::Trust;
use crate::health::UpstreamServer;

/// An open connection to a server.
#[derive(Debug)]
pub(super) enum ServerStream {
    Plain(TcpStream),
    Unix(UnixStream),
    /// Boxed, because it is large and few connections use it.
    Tls(Box<TlsStream<TcpStream>>),
}

impl ServerStream {
    /// Opens a connection, within `limit`.
    pub(super) async fn open(
        server: &UpstreamServer,
        secure: Option<&UpstreamTls>,
        limit: Duration,
    ) -> io::Result<ServerStream> {
        let open = async {
            if let Some(path) = server.socket() {
                return UnixStream::connect(path).await.map(ServerStream::Unix);
            }
            let stream = TcpStream::connect(server.authority()).await?;
            let _ = stream.set_nodelay(true);
            match secure.filter(|_| server.is_secure()) {
                None if server.is_secure() => Err(io::Error::other("TLS is not set up")),
                None => Ok(ServerStream::Plain(stream)),
                Some(secure) => secure.begin(server, stream).await.map(|stream| ServerStream::Tls(Box::new(stream))),
            }
        };
        timeout(limit, open).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends with a reset, so that the server's next write fails. After a plain end only the write after that would fail.
    pub(super) fn reset_when_dropped(&self) {
        let _ = match self {
            ServerStream::Plain(stream) => stream.set_zero_linger(),
            ServerStream::Tls(stream) => stream.get_ref().0.set_zero_linger(),
            ServerStream::Unix(_) => Ok(()),
        };
    }

    /// Whether an idle connection can still be used: it is not closed, and nothing has arrived that was not asked for. Needs no system call if so.
    pub(super) fn is_good(&mut self) -> bool {
        match self {
            ServerStream::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            ServerStream::Unix(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // This reads TLS messages such as session tickets, which are no response.
            ServerStream::Tls(stream) => {
                let mut room = [0; 1];
                let mut nobody = Context::from_waker(Waker::noop());
                Pin::new(stream).poll_read(&mut nobody, &mut ReadBuf::new(&mut room)).is_pending()
            }
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            ServerStream::Plain(stream) => Pin::new(stream).poll_read(cx, room),
            ServerStream::Unix(stream) => Pin::new(stream).poll_read(cx, room),
            ServerStream::Tls(stream) => Pin::new(stream).poll_read(cx, room),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write(cx, octets),
            ServerStream::Unix(stream) => Pin::new(stream).poll_write(cx, octets),
            ServerStream::Tls(stream) => Pin::new(stream).poll_write(cx, octets),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            ServerStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            ServerStream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            ServerStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            ServerStream::Plain(stream) => stream.is_write_vectored(),
            ServerStream::Unix(stream) => stream.is_write_vectored(),
            ServerStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            ServerStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ServerStream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            ServerStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            ServerStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ServerStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            ServerStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// How the servers of a backend prove who they are over TLS.
#[derive(Clone)]
pub(super) struct UpstreamTls {
    connector: TlsConnector,
    /// The name that they have to prove, if it is another one than in their address.
    name: Option<ServerName<'static>>,
}

impl std::fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamTls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl UpstreamTls {
    /// Reads the certificates to trust.
    pub(super) fn new(trust: &Trust) -> Result<UpstreamTls, TrustError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TrustError::Provider)?;
        let mut config = if trust.unverified {
            let anyone = any_certificate(&provider);
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        } else {
            let roots = weir_tls::roots(trust.ca_file.as_deref())?;
            if roots.is_empty() {
                return Err(TrustError::Nobody);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = trust.name.as_ref().map(|name| named(name)).transpose()?;
        Ok(UpstreamTls { connector: TlsConnector::from(Arc::new(config)), name })
    }

    async fn begin(&self, server: &UpstreamServer, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => named(server.host()).map_err(io::Error::other)?,
        };
        let secure = self.connector.connect(name, stream).await;
        secure.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))
    }
}

fn named(name: &str) -> Result<ServerName<'static>, TrustError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TrustError::Name(name.to_owned()))
}

/// Why servers cannot be reached over TLS.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file of root certificates.
    #[error(transparent)]
    Roots(#[from] weir_tls::RootsError),
    /// There is no authority at all.
    #[error(
        "this machine trusts no certificate authority, so no server could prove its name; name a file of them, or say that the backend is unverified"
    )]
    Nobody,
    /// A name that no certificate can have.
    #[error("{0:?} is no name that a certificate can prove")]
    Name(String),
    /// rustls refuses the protocol versions.
    #[error("TLS cannot be set up: {0}")]
    Provider(rustls::Error),
}
