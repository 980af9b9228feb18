//! Core NATS as a carrier: one subject, every front-end publishes and subscribes.
//!
//! A small client of the text protocol, because all we need is CONNECT, SUB, PUB, MSG and PING, with our own bounds and our own way of
//! reconnecting. TLS if the URL says `tls://` or the server asks for it. Frames carry their own proof and no readable
//! keys, so the server need not be trusted; but whoever may publish on the subject can replay frames, so keep it to the front-ends.
//! A password is never sent unencrypted off this machine.

mod protocol;

use super::carrier::{CarrierError, CarrierStream, Connect, Connection};
use bytes::BytesMut;
use protocol::{Info, Login, Text};
use rustls::pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use weir_settings::{DeValue, Value};

/// Where a NATS server is.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// `nats://[user:password@|token@]host[:port]`, or `tls://…`.
    pub url: NatsUrl,
    /// The subject of this cluster.
    pub subject: String,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct NatsUrl {
    tls: bool,
    host: String,
    port: u16,
    login: Login,
}

impl std::fmt::Debug for NatsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.place())
    }
}

/// The URL as it is shown to people, without its secrets.
impl std::fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.login {
            Login::None => write!(f, "{}://{}", self.scheme(), self.place()),
            Login::Token(_) => write!(f, "{}://***@{}", self.scheme(), self.place()),
            Login::Password { user, .. } => write!(f, "{}://{user}:***@{}", self.scheme(), self.place()),
        }
    }
}

/// Shown without its password.
impl Value for NatsUrl {
    fn from_toml(value: &DeValue<'_>) -> Result<NatsUrl, String> {
        String::from_toml(value)?.parse().map_err(|error: NatsUrlError| error.to_string())
    }

    fn to_toml(&self) -> String {
        self.to_string().to_toml()
    }
}

impl NatsUrl {
    fn scheme(&self) -> &'static str {
        if self.tls { "tls" } else { "nats" }
    }

    fn place(&self) -> String {
        let NatsUrl { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl std::str::FromStr for NatsUrl {
    type Err = NatsUrlError;

    fn from_str(text: &str) -> Result<NatsUrl, NatsUrlError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(NatsUrlError::Scheme),
        };
        let (login, place) = rest
            .trim_end_matches('/')
            .rsplit_once('@')
            .map_or((None, rest.trim_end_matches('/')), |(login, place)| (Some(login), place));
        let login = match login {
            None => Login::None,
            Some(login) => match login.split_once(':') {
                None => Login::Token(login.to_owned()),
                Some((user, password)) => Login::Password { user: user.to_owned(), password: password.to_owned() },
            },
        };
        let (host, port) = place_of(place).ok_or(NatsUrlError::Place)?;
        Ok(NatsUrl { tls, host, port, login })
    }
}

fn place_of(place: &str) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let sound = !host.is_empty() && !host.contains(['/', ' ', '?', '#']);
    let port = port.map_or(Some(4222), |port| port.parse().ok().filter(|port| *port > 0))?;
    sound.then(|| (host.to_owned(), port))
}

/// Why a text is not a URL of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsUrlError {
    #[error("a NATS URL begins with nats:// or tls://")]
    Scheme,
    /// No host, or a port that is not a number.
    #[error("a NATS URL is nats://[user:password@]host[:port]")]
    Place,
}

/// Whether a text can be a subject: words separated by dots, with nothing that has a special meaning for NATS.
pub fn is_subject(text: &str) -> bool {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    text.len() <= 128 && text.split('.').all(word)
}

/// A NATS server to connect to.
pub(super) struct Nats {
    settings: NatsSettings,
}

const INFO_BYTES_MAX: usize = 64 * 1024;

impl Nats {
    pub(super) fn new(settings: NatsSettings) -> Nats {
        Nats { settings }
    }

    async fn introduce(
        &self,
        stream: &mut dyn CarrierStream,
        tls: bool,
        codec: &mut Text,
    ) -> Result<BytesMut, CarrierError> {
        let local = is_loopback(&self.settings.url.host);
        if !tls && !local && self.settings.url.login != Login::None {
            let why = "the password would cross the network unencrypted: use tls:// in the NATS URL";
            return Err(CarrierError::Setting(why.to_owned()));
        }
        let hello = protocol::hello(&self.settings.url.login, &self.settings.subject, tls);
        stream.write_all(hello.as_bytes()).await?;
        stream.flush().await?;
        let mut buffer = BytesMut::new();
        loop {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(CarrierError::Closed);
            }
            if codec.first_pong(&mut buffer)? {
                return Ok(buffer);
            }
        }
    }

    fn tls_config(&self) -> Result<rustls::ClientConfig, CarrierError> {
        let roots = weir_tls::roots(self.settings.ca_file.as_deref());
        let roots = roots.map_err(|error| CarrierError::Setting(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CarrierError::Setting(error.to_string()))?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

impl Connect for Nats {
    fn name(&self) -> String {
        format!("{:?}", self.settings.url)
    }

    async fn connect(&self) -> Result<Connection, CarrierError> {
        let url = &self.settings.url;
        let mut socket = TcpStream::connect((url.host.as_str(), url.port)).await?;
        socket.set_nodelay(true)?;
        let info = read_info(&mut socket).await?;
        let tls = url.tls || info.tls_required;
        let mut stream: Box<dyn CarrierStream> = if tls {
            let name = ServerName::try_from(url.host.clone());
            let name = name.map_err(|_| CarrierError::Setting("the host is no name for TLS".to_owned()))?;
            Box::new(TlsConnector::from(Arc::new(self.tls_config()?)).connect(name, socket).await?)
        } else {
            Box::new(socket)
        };
        let mut codec = Text::new(&self.settings.subject);
        let read = self.introduce(&mut *stream, tls, &mut codec).await?;
        Ok(Connection { stream, codec: Box::new(codec), read })
    }
}

/// The server sends one line first. It is read byte by byte, because what follows may belong to the TLS handshake.
async fn read_info(socket: &mut TcpStream) -> Result<Info, CarrierError> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() > INFO_BYTES_MAX {
            return Err(CarrierError::Protocol("an endless INFO"));
        }
        line.push(socket.read_u8().await?);
    }
    Info::parse(&line)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_subjects() {
        let shown = |text: &str| text.parse::<NatsUrl>().map(|url| format!("{url:?}"));
        assert_eq!(shown("nats://example.org"), Ok("nats://example.org:4222".into()));
        assert_eq!(shown("127.0.0.1:99"), Ok("nats://127.0.0.1:99".into()));
        assert_eq!(shown("tls://a:b@[::1]:9/"), Ok("tls://[::1]:9".into()), "no password shows");
        let told = |text: &str| text.parse::<NatsUrl>().map(|url| url.to_string());
        assert_eq!(told("tls://a:b@[::1]:9/"), Ok("tls://a:***@[::1]:9".into()));
        assert_eq!(told("nats://token@h"), Ok("nats://***@h:4222".into()));
        assert_eq!(told("h"), Ok("nats://h:4222".into()));
        for wrong in [
            "http://a",
            "nats://",
            "nats://a:0",
            "nats://a:b:c",
            "nats://a:99999",
            "nats://[::1",
            "nats://[::1]9",
            "nats://[::1]x:9",
            "nats://::1",
            "nats://a b",
        ] {
            assert!(wrong.parse::<NatsUrl>().is_err(), "{wrong}");
        }
        let login = |text: &str| text.parse::<NatsUrl>().unwrap().login;
        assert!(login("nats://t@h") == Login::Token("t".into()));
        assert!(login("nats://u:p@h") == Login::Password { user: "u".into(), password: "p".into() });
        assert!(is_subject("weir.web-1.exchange"));
        for wrong in ["", "a..b", "a.*", "a.>", "a b", ".", "a\r\nPUB x"] {
            assert!(!is_subject(wrong), "{wrong:?}");
        }
    }
}
