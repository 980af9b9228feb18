//! The HTTPS client for the authority: a new connection for each request, with limits on time and size.
//!
//! An authority is called only a few times a month, so keeping connections open would gain nothing.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};

const PATIENCE: Duration = Duration::from_secs(30);
/// A certificate chain has a few kilobytes, so this is plenty.
const BODY_MAX: usize = 1 << 20;

/// Calls an authority.
pub(crate) struct AuthorityClient {
    tls: TlsConnector,
}

impl AuthorityClient {
    /// A client that trusts the certificates in this file, or those that the machine trusts if there is none.
    pub(crate) fn new(ca_file: Option<&Path>) -> io::Result<AuthorityClient> {
        let roots = weir_tls::roots(ca_file).map_err(io::Error::other)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(AuthorityClient { tls: TlsConnector::from(Arc::new(config)) })
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let sent = timeout(PATIENCE, send(&tls, request)).await;
            let sent = sent.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
            sent.map_err(|error| Error::Other(Box::new(error)))
        })
    }
}

async fn send(tls: &TlsConnector, mut request: Request<BodyWrapper<Bytes>>) -> io::Result<BytesResponse> {
    let uri = request.uri().clone();
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
    let host = host.ok_or_else(|| io::Error::other(format!("{uri} is not an https:// address")))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(443))).await?;
    let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
    let stream = tls.connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
    let authority = HeaderValue::from_str(authority).map_err(io::Error::other)?;
    request.headers_mut().insert(header::HOST, authority);
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    *request.uri_mut() = path.parse::<Uri>().map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, BODY_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
    connection.abort();
    Ok(BytesResponse { parts, body: Box::new(body) })
}
