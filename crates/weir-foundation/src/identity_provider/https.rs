//! Calls the provider: only over HTTPS, with a new connection for each request, and with a bound on the size of the answer. Redirects are
//! not followed. The caller limits the time.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};

/// Metadata, key sets and tokens have a few kilobytes, so this is plenty.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Calls the provider.
#[derive(Clone)]
pub(super) struct HttpsClient {
    tls: TlsConnector,
}

impl HttpsClient {
    /// A client that trusts the certificates in this file, or those that the machine trusts if there is none.
    pub(super) fn new(ca_file: Option<&Path>) -> io::Result<HttpsClient> {
        let roots = weir_tls::roots(ca_file).map_err(io::Error::other)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(HttpsClient { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Fetches a document, with this `Authorization` header if there is one.
    pub(super) async fn get(&self, address: &str, authorization: Option<&str>) -> io::Result<(StatusCode, Bytes)> {
        self.send(Method::GET, address, authorization, String::new()).await
    }

    /// Posts a form.
    pub(super) async fn post(
        &self,
        address: &str,
        authorization: Option<&str>,
        form: String,
    ) -> io::Result<(StatusCode, Bytes)> {
        self.send(Method::POST, address, authorization, form).await
    }

    async fn send(
        &self,
        method: Method,
        address: &str,
        authorization: Option<&str>,
        form: String,
    ) -> io::Result<(StatusCode, Bytes)> {
        let uri = parsed(address).ok_or_else(|| io::Error::other(format!("{address:?} is not an https:// address")))?;
        let host = uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut request = Request::builder().method(method.clone()).header(header::ACCEPT, "application/json");
        request = request.uri(uri.path_and_query().map_or("/", |target| target.as_str()));
        request = request.header(header::HOST, uri.authority().map_or(host, |authority| authority.as_str()));
        request = request.header(header::USER_AGENT, "weir");
        if let Some(words) = authorization {
            request = request.header(header::AUTHORIZATION, words);
        }
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.body(Full::new(Bytes::from(form))).map_err(io::Error::other)?;
        let stream = TcpStream::connect((bare.as_str(), uri.port_u16().unwrap_or(443))).await?;
        let name = ServerName::try_from(bare).map_err(io::Error::other)?;
        let stream = self.tls.connect(name, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // The connection's task ends with this call, even if the caller stops waiting.
        let mut connections = tokio::task::JoinSet::new();
        connections.spawn(connection);
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        Ok((status, body.to_bytes()))
    }
}

/// Whether this is an address that can be called or that browsers can be sent to: HTTPS, printable, with a host and without a login.
pub(super) fn is_address(text: &str) -> bool {
    parsed(text).is_some()
}

fn parsed(text: &str) -> Option<Uri> {
    let plain = text.len() <= 2_000 && text.bytes().all(|octet| octet.is_ascii_graphic());
    let uri: Uri = text.parse().ok().filter(|_| plain)?;
    let host = uri.host().filter(|host| !host.is_empty() && uri.scheme_str() == Some("https"));
    let no_login = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    host.is_some_and(|_| no_login).then_some(uri)
}

/// Percent-encodes a value for a query or a form.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, octet| {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(octet)),
            octet => {
                let _ = write!(out, "%{octet:02X}");
            }
        }
        out
    })
}

/// Encodes fields as `a=1&b=2`.
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}
