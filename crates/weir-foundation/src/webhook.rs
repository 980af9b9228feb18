//! A webhook: each call is one HTTP/1.1 POST with JSON, over TCP or TLS, with a short time limit.
//!
//! If there is a secret, every call carries `X-Weir-Signature: sha256=…`, the HMAC-SHA-256 of its body, so that the receiver knows who is
//! calling. [`Calls`] makes calls one after another and tries each again with longer and longer waits; its queue is bounded.

use ring::hmac;
use std::fmt;
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
/// How calls from the queue are tried again.
const AGAIN: Again = Again { tries: 8, first: Duration::from_secs(1), longest: Duration::from_secs(64) };
/// At most this many calls wait; further ones are dropped and logged.
const WAITING_MAX: usize = 1_024;

/// Where to call, and with which secret.
#[derive(Clone)]
pub struct Webhook {
    tls: bool,
    host: String,
    port: u16,
    path: String,
    secret: String,
}

/// How a call is tried again if it was not accepted.
#[derive(Debug, Clone, Copy)]
pub struct Again {
    /// How often it is tried, including the first time.
    pub tries: u32,
    /// The wait before the second try; it doubles each time.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Parses `http://host[:port]/path` or `https://…`.
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
        // Brackets only around an address, and colons only in them: otherwise a part of the address would be taken for the port.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || host.contains('@') || (bare.is_none() && host.contains([':', '[', ']'])) {
            return Err(wrong());
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Webhook { tls, host: host.to_owned(), port, path: path.to_owned(), secret: String::new() })
    }

    /// Signs every call with this secret; with an empty secret, calls are not signed.
    #[must_use]
    pub fn signed(mut self, secret: &str) -> Webhook {
        secret.clone_into(&mut self.secret);
        self
    }

    /// Posts `json`. Any answer except 2xx is an error.
    pub async fn call(&self, json: &serde_json::Value) -> io::Result<()> {
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
             {}Connection: close\r\n\r\n{body}",
            self.path,
            self.host,
            self.port,
            body.len(),
            self.signature(&body)
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

impl Webhook {
    /// The header line with the signature; empty without a secret.
    fn signature(&self, body: &str) -> String {
        if self.secret.is_empty() {
            return String::new();
        }
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes()), body.as_bytes());
        format!("X-Weir-Signature: sha256={}\r\n", weir_store::hex(tag.as_ref()))
    }

    /// Calls until the call is accepted, or was tried often enough. A call that is given up is logged.
    pub async fn insist(&self, json: &serde_json::Value, again: Again) {
        let (event, mut wait) = (&json["id"], again.first);
        for left in (0..again.tries).rev() {
            match self.call(json).await {
                Ok(()) => return,
                Err(error) if left == 0 => {
                    return tracing::error!(%error, %event, "the webhook did not take a call, which is given up");
                }
                Err(error) => tracing::warn!(%error, %event, "the webhook did not take a call; it is tried again"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(again.longest);
        }
    }
}

/// A queue of calls. Cheap to clone; its task ends when the last clone is dropped and the queue is empty.
#[derive(Debug, Clone)]
pub struct Calls(mpsc::Sender<serde_json::Value>);

impl Calls {
    /// Starts the task that makes the calls.
    pub fn start(webhook: Webhook) -> Calls {
        let (sender, mut waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(json) = waiting.recv().await {
                webhook.insist(&json, AGAIN).await;
            }
        });
        Calls(sender)
    }

    /// Adds a call to the queue without waiting.
    pub fn add(&self, json: serde_json::Value) {
        if self.0.try_send(json).is_err() {
            tracing::error!("a call of the webhook was dropped: too many wait");
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
        assert_eq!(Webhook::parse("https://[2001:db8::1]/hook").unwrap().port, 443);
        for url in ["", "ftp://x/", "http://", "http://a b/", "http://x:y/", "http://u@x/", "http://x/\r\nEvil: y"] {
            assert!(Webhook::parse(url).is_err(), "{url:?}");
        }
        // Without brackets the last group of an address looks like a port.
        for url in
            ["http://2001:db8::1/x", "http://2001:db8::1:8080/x", "http://::1", "http://[::1]x:80/", "http://[::1/"]
        {
            assert!(Webhook::parse(url).is_err(), "{url:?}");
        }
    }

    #[tokio::test]
    async fn a_call_that_was_not_taken_is_tried_again_and_is_signed() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", server.local_addr().unwrap());
        let calls = Calls::start(Webhook::parse(&url).unwrap().signed("key"));
        calls.add(serde_json::json!({ "a": 1 }));
        drop(server.accept().await.unwrap());
        let (mut stream, _) = server.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"{\"a\":1}") {
            stream.read_buf(&mut seen).await.unwrap();
        }
        let text = String::from_utf8_lossy(&seen);
        // printf '{"a":1}' | openssl dgst -sha256 -hmac key
        let expected = "X-Weir-Signature: sha256=88a67f24bbcdaed0e6c997404bb79a743baf44c6bab2f4c27328e3009d22e342\r\n";
        assert!(text.contains(expected), "{text}");
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
