//! A connection to one of the directory's servers. TLS is set up first; then requests are made one after another.

use super::DirectoryError;
use super::message::{self, Entry, Said, Search};
use super::settings::DirectoryServer;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Result codes (RFC 4511, 4.1.9).
const SUCCESS: u32 = 0;
const SIZE_LIMIT: u32 = 4;
const NO_SUCH_OBJECT: u32 = 32;
const INVALID_NAME: u32 = 34;
const INAPPROPRIATE: u32 = 48;
const INVALID_CREDENTIALS: u32 = 49;

trait DirectoryStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> DirectoryStream for T {}

pub(super) struct Connection {
    stream: Box<dyn DirectoryStream>,
    /// Octets that were read but belong to the next message.
    ahead: Vec<u8>,
    id: u32,
}

impl Connection {
    /// Connects to the server. Without `trust`, nothing is encrypted.
    pub(super) async fn open(
        server: &DirectoryServer,
        trust: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, DirectoryError> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
        let Some(trust) = trust else { return Ok(Connection::over(stream)) };
        let stream = if server.secure { stream } else { start_tls(stream).await? };
        let secure = TlsConnector::from(trust).connect(name, stream).await.map_err(DirectoryError::Tls)?;
        Ok(Connection::over(secure))
    }

    fn over(stream: impl DirectoryStream + 'static) -> Connection {
        Connection { stream: Box::new(stream), ahead: Vec::new(), id: 0 }
    }

    /// Whether this is the password of that entry. An empty password is always wrong: servers take a bind with an empty password as an
    /// anonymous one, and answer it with success.
    pub(super) async fn bind(&mut self, name: &str, password: &str) -> Result<bool, DirectoryError> {
        if name.is_empty() || password.is_empty() {
            return Ok(false);
        }
        self.id += 1;
        self.stream.write_all(&message::bind(self.id, name, password)).await?;
        match self.answer().await? {
            Said::Done(SUCCESS, _) => Ok(true),
            Said::Done(INVALID_CREDENTIALS | NO_SUCH_OBJECT | INVALID_NAME | INAPPROPRIATE, _) => Ok(false),
            Said::Done(code, words) => Err(DirectoryError::Refused(code, words)),
            _ => Err(DirectoryError::Strange),
        }
    }

    /// The entries that match the search. Parts of the answer that are on other servers are skipped.
    pub(super) async fn search(&mut self, search: Search<'_>) -> Result<Vec<Entry>, DirectoryError> {
        self.id += 1;
        let most = search.most as usize;
        self.stream.write_all(&message::search(self.id, search)).await?;
        let mut entries = Vec::new();
        loop {
            match self.answer().await? {
                Said::Entry(entry) if entries.len() < most => entries.push(entry),
                Said::Entry(_) => return Err(DirectoryError::Strange),
                Said::Reference => {}
                Said::Done(SUCCESS | SIZE_LIMIT | NO_SUCH_OBJECT | INVALID_NAME, _) => return Ok(entries),
                Said::Done(code, words) => return Err(DirectoryError::Refused(code, words)),
            }
        }
    }

    /// Tells the server that we are leaving. It does not matter whether the server receives this.
    pub(super) async fn close(mut self) {
        let _ = self.stream.write_all(&message::unbind(self.id + 1)).await;
        let _ = self.stream.shutdown().await;
    }

    async fn answer(&mut self) -> Result<Said, DirectoryError> {
        let octets = next_message(&mut self.stream, &mut self.ahead).await?;
        message::read(&octets, self.id).ok_or(DirectoryError::Strange)
    }
}

/// Asks the server to switch to TLS. Anything that arrives between its answer and TLS was not encrypted, so somebody else may have sent it:
/// that is an error.
async fn start_tls(mut stream: TcpStream) -> Result<TcpStream, DirectoryError> {
    stream.write_all(&message::start_tls(1)).await?;
    let mut ahead = Vec::new();
    let octets = next_message(&mut stream, &mut ahead).await?;
    match message::read(&octets, 1) {
        Some(Said::Done(SUCCESS, _)) if ahead.is_empty() => Ok(stream),
        Some(Said::Done(code, words)) => Err(DirectoryError::NoTls(code, words)),
        _ => Err(DirectoryError::Strange),
    }
}

async fn next_message(stream: &mut (impl AsyncRead + Unpin), ahead: &mut Vec<u8>) -> Result<Vec<u8>, DirectoryError> {
    loop {
        if let Some(whole) = message::whole(ahead).map_err(|()| DirectoryError::Strange)?
            && ahead.len() >= whole
        {
            let behind = ahead.split_off(whole);
            return Ok(std::mem::replace(ahead, behind));
        }
        if stream.read_buf(ahead).await? == 0 {
            return Err(DirectoryError::Ended);
        }
    }
}
