//! A client for tests over real sockets, with real TLS, and a server with the test shell behind it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::settings::Settings;
use weir_tls::Tls;

use crate::shell::{Memory, settings};

/// A test that waits longer than this for one reply has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client<S> {
    stream: S,
    /// Octets that were read but not returned yet.
    pending: Vec<u8>,
}

impl Client<TcpStream> {
    /// Connects without reading the greeting.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Client { stream: TcpStream::connect(address).await.unwrap(), pending: Vec::new() }
    }

    /// Connects, reads the greeting and says EHLO.
    pub(crate) async fn greeted(address: SocketAddr) -> Self {
        let mut client = Client::connect(address).await;
        assert!(client.reply().await.starts_with("220 "));
        assert!(client.say("EHLO test.example").await.starts_with("250-"));
        client
    }

    /// Shakes hands as a client that trusts only `certificate`.
    pub(crate) async fn encrypted(self, certificate: &Path) -> Client<TlsStream<TcpStream>> {
        self.try_encrypted(certificate, rustls::DEFAULT_VERSIONS).await.unwrap()
    }

    pub(crate) async fn try_encrypted(
        self,
        certificate: &Path,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> std::io::Result<Client<TlsStream<TcpStream>>> {
        assert!(self.pending.is_empty());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("mx.example").unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, self.stream);
        let stream = timeout(PATIENCE, connecting).await.unwrap()?;
        Ok(Client { stream, pending: Vec::new() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Sends a line and waits for its reply.
    pub(crate) async fn say(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.reply().await
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends octets that the server may no longer read.
    pub(crate) async fn send_if_possible(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Reads one reply with all its lines; empty if the server has closed the connection.
    pub(crate) async fn reply(&mut self) -> String {
        timeout(PATIENCE, self.read_reply()).await.expect("no reply")
    }

    async fn read_reply(&mut self) -> String {
        let mut reply = String::new();
        loop {
            while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                reply += std::str::from_utf8(&line).unwrap();
                if line.get(3) != Some(&b'-') {
                    return reply;
                }
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece).await {
                Ok(0) | Err(_) => return reply,
                Ok(length) => self.pending.extend_from_slice(&piece[..length]),
            }
        }
    }

    /// Sends a small message. Returns the reply to its end.
    pub(crate) async fn send_message(&mut self, to: &str) -> String {
        assert!(self.say("MAIL FROM:<a@a.example>").await.starts_with("250 2.1.0"));
        assert!(self.say(&format!("RCPT TO:<{to}>")).await.starts_with("250 2.1.5"));
        assert!(self.say("DATA").await.starts_with("354 "));
        self.say("Subject: hi\r\n\r\ntext\r\n.").await
    }

    /// Waits until the server has closed the connection. Returns what it sent before.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.pending);
        let reading = async {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = self.stream.read(&mut piece).await {
                rest.extend_from_slice(&piece[..length]);
            }
        };
        timeout(PATIENCE, reading).await.expect("the server did not close");
        String::from_utf8(rest).unwrap()
    }
}

pub(crate) const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server with the test shell on a port of its own.
pub(crate) fn serve(
    limits: SmtpLimits,
    adjust: impl FnOnce(&mut Settings),
    tls: TlsMode,
) -> (SmtpServer<Memory>, SocketAddr) {
    let server = SmtpServer::new(Memory::default(), limits.clone());
    let mut settings = Settings { limits, ..settings() };
    adjust(&mut settings);
    let address = server.listen(LOCALHOST, settings, tls).unwrap();
    (server, address)
}

/// A self-signed certificate for `mx.example` in a folder of its own.
pub(crate) fn certificate() -> (tempfile::TempDir, Arc<Tls>) {
    let folder = tempfile::tempdir().unwrap();
    let tls = Tls::self_signed(folder.path(), &["mx.example".into()]).unwrap();
    (folder, Arc::new(tls))
}
