//! A webhook: one POST of JSON, HTTP/1.1, over TCP or TLS, with a short patience. Calls are made one after the other in a task of
//! their own, so a server that hangs keeps no mail waiting; what it falls behind with is bounded.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};

const PATIENCE: Duration = Duration::from_secs(10);
/// Calls that may wait, a few kilobytes each; more are dropped, and the log says so.
const WAITING_MAX: usize = 1000;

/// Where to call.
#[derive(Debug, Clone)]
pub struct Webhook {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Webhook {
    /// Reads `http://host[:port]/path` or `https://…`.
    pub fn parse(url: &str) -> Result<Webhook, String> {
        let wrong = || format!("{url:?} is not a webhook: write http://host:port/path or https://host/path");
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong());
        }
        let (tls, rest) = match url.split_once("://").ok_or_else(wrong)? {
            ("http", rest) => (false, rest),
            ("https", rest) => (true, rest),
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let default = if tls { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (authority, default),
        };
        if host.is_empty() || host.contains('@') {
            return Err(wrong());
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Webhook { tls, host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Posts `json`; anything but a 2xx is an error.
    async fn call(&self, json: &serde_json::Value) -> io::Result<()> {
        tokio::time::timeout(PATIENCE, self.post(json)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn post(&self, json: &serde_json::Value) -> io::Result<()> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.port)).await?;
        if !self.tls {
            return self.converse(stream, json).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.converse(TlsConnector::from(trust()?).connect(name, stream).await?, json).await
    }

    async fn converse(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        json: &serde_json::Value,
    ) -> io::Result<()> {
        let body = json.to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: weir\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.path,
            self.host,
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        match &status {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', _, _] => Ok(()),
            other => Err(io::Error::other(format!("it answered {:?}", String::from_utf8_lossy(other)))),
        }
    }
}

/// Who calls a webhook. The task ends with it.
#[derive(Debug)]
pub(super) struct Caller {
    calls: mpsc::Sender<serde_json::Value>,
}

impl Caller {
    pub(super) fn start(webhook: Webhook) -> Caller {
        let (calls, mut waiting) = mpsc::channel::<serde_json::Value>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(json) = waiting.recv().await {
                if let Err(error) = webhook.call(&json).await {
                    tracing::warn!(%error, event = %json["event"], "the webhook did not take a notice");
                }
            }
        });
        Caller { calls }
    }

    /// Does not wait.
    pub(super) fn call(&self, json: serde_json::Value) {
        if let Err(error) = self.calls.try_send(json) {
            tracing::error!(%error, "a call of the webhook was dropped: it is far behind");
        }
    }
}

fn trust() -> io::Result<Arc<ClientConfig>> {
    let roots = weir_tls::roots(None).map_err(io::Error::other)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let hook = Webhook::parse("https://hooks.example.org/weir?x=1").unwrap();
        assert_eq!(
            (hook.tls, hook.host.as_str(), hook.port, hook.path.as_str()),
            (true, "hooks.example.org", 443, "/weir?x=1")
        );
        assert_eq!(Webhook::parse("http://[::1]:8080").unwrap().port, 8080);
        for url in ["", "ftp://x/", "http://", "http://a b/", "http://x:y/", "http://u@x/", "http://x/\r\nEvil: y"] {
            assert!(Webhook::parse(url).is_err(), "{url:?}");
        }
    }

    #[tokio::test]
    async fn a_post_reaches_its_server() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", server.local_addr().unwrap());
        let answered = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut seen = vec![0; 4096];
            let mut length = 0;
            while !seen[..length].ends_with(b"{\"a\":1}") {
                length += stream.read(&mut seen[length..]).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&seen[..length]).into_owned()
        });
        Webhook::parse(&url).unwrap().call(&serde_json::json!({ "a": 1 })).await.unwrap();
        assert!(answered.await.unwrap().starts_with("POST /hook HTTP/1.1\r\n"));
    }
}
