//! How to contact a server: with which protocol, how much TLS, which login, and which time limits.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::proof::Proof;
use super::tls::TlsLevel;

/// A server to deliver to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name, for TLS and for people.
    pub name: Arc<str>,
    /// The address at which it listens.
    pub place: ServerAddress,
    /// Whether the DNS named it, and not the operator. If such a server has our own name, it is ourselves, and the mail would go round in
    /// circles. A smarthost that the operator names may well run on the same machine.
    pub by_dns: bool,
    /// What it has to prove besides the TLS settings.
    pub proof: Proof,
}

impl Host {
    /// The port on which it listens; none for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        match &self.place {
            ServerAddress::Tcp(address) => Some(address.port()),
            ServerAddress::Unix(_) => None,
        }
    }
}

/// The address at which a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// How to contact a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Approach {
    /// LMTP instead of SMTP.
    pub lmtp: bool,
    /// How much TLS is required.
    pub tls: TlsLevel,
    /// TLS from the first octet (port 465) instead of STARTTLS.
    pub implicit_tls: bool,
    /// The login at a smarthost.
    pub login: Option<Credentials>,
    /// How long each step may take.
    pub patience: Patience,
}

/// A login at a smarthost. It is sent only over TLS or within this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

/// How long each step may take. The defaults are those of RFC 5321 section 4.5.3.2, or a little less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// To connect by TCP. Default 30 s.
    pub connect: Duration,
    /// From then until the end of the greeting. Default 2 min.
    pub greeting: Duration,
    /// For the TLS handshake. Default 1 min.
    pub handshake: Duration,
    /// For the reply to a command. Default 5 min.
    pub command: Duration,
    /// Until a part of the body has been sent. Default 3 min.
    pub block: Duration,
    /// For the reply after the body. Default 10 min.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = Duration::from_secs;
        Patience {
            connect: seconds(30),
            greeting: seconds(120),
            handshake: seconds(60),
            command: seconds(300),
            block: seconds(180),
            end: seconds(600),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ServerAddress::Tcp(address) => write!(f, "{}[{address}]", self.name),
            ServerAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, …)", self.user)
    }
}
