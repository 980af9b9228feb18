//! Where a scanner listens: a Unix socket, or a host and port.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// An address: `unix:/run/clamav/clamd.ctl`, `scan.example:3310`, `[::1]:3310`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Address {
    /// A Unix socket.
    Socket(PathBuf),
    /// A host by name or number, and its port.
    Host(String, u16),
}

/// A connection of either kind.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Address {
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Address::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Address::Host(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address: write \"unix:/run/clamav/clamd.ctl\", \"scan.example:3310\" or \"[::1]:3310\""
            )
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Address::Socket(path.into())) } else { Err(wrong()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain =
            !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
        if plain && (bare != host || !bare.contains(':')) {
            Ok(Address::Host(bare.to_owned(), port))
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Socket(path) => write!(f, "unix:{}", path.display()),
            Address::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

weir_settings::text_value!(Address: "\"unix:/run/clamav/clamd.ctl\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["unix:/run/clamav/clamd.ctl", "scan.example:3310", "[::1]:3310", "127.0.0.1:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "x", "unix:relative", "::1:3310", "host:0", "host:x", "a b:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
