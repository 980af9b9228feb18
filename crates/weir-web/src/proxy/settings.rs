//! How the proxy is set up, and every bound of it in one place.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_tls::Tls;

use crate::admission;
use crate::identity::Identities;
use crate::log::LogSettings;
use crate::profile::tally::Tally;
use crate::route::Rule;

/// Everything that the proxy needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listeners: Vec<Listener>,
    /// Threads that carry traffic.
    pub threads: usize,
    /// The certificate, for listeners with TLS.
    pub tls: Option<Arc<Tls>>,
    pub identities: Identities,
    /// What clients may use.
    pub limits: Limits,
    /// Who does the work.
    pub backends: Vec<Backend>,
    /// Which requests go to which backend.
    pub rules: Vec<Rule>,
    /// Where requests are written down.
    pub log: Option<LogSettings>,
    /// A folder with pages such as `503.html`; those that are missing are built in.
    pub pages: Option<PathBuf>,
    /// Whether responses say how long the request waited.
    pub server_timing: bool,
    /// Counts requests that found nobody waiting, for the history profile.
    pub tally: Option<Arc<Tally>>,
}

/// One address to listen on.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address; port 0 is any free one.
    pub address: SocketAddr,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Whether listed peers begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether every request is sent to the same place under https; the port there.
    pub redirect: Option<u16>,
}

impl Listener {
    pub fn plain(address: SocketAddr) -> Listener {
        Listener { address, tls: false, proxy_protocol: false, redirect: None }
    }
}

/// Servers that do the same work, behind one fair queue.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its name, and how its queue is set up.
    pub admission: admission::Settings,
    /// Its servers, as `host:port`, or `https://host:port` for TLS.
    pub servers: Vec<String>,
    /// Whom those with TLS have to be.
    pub trust: Trust,
    /// What to ask of a server to see whether it lives; a connection is enough if there is no path.
    pub health_path: Option<String>,
    /// How often to ask; zero is never.
    pub health_every: Duration,
    /// Failures in a row that make a server count as down.
    pub failures: u32,
    /// How long a server that failed is left alone.
    pub rest: Duration,
    /// To connect.
    pub connect: Duration,
    /// From a request to the first byte of its response.
    pub response: Duration,
    /// Between two pieces of a response.
    pub piece: Duration,
    /// How long an idle connection is kept.
    pub idle: Duration,
    /// Idle connections to one server that a thread keeps.
    pub idle_connections: u32,
    /// Whether the server stops working when its client goes: then a slot is free as soon as that happens.
    pub stops_early: bool,
    /// Request bodies up to this size are read before a slot is asked for.
    pub request_buffer: u64,
}

impl Default for Backend {
    fn default() -> Backend {
        Backend {
            admission: admission::Settings::default(),
            servers: Vec::new(),
            trust: Trust::default(),
            health_path: None,
            health_every: Duration::from_secs(5),
            failures: 3,
            rest: Duration::from_secs(5),
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            piece: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            idle_connections: 1_024,
            stops_early: false,
            request_buffer: 64 << 10,
        }
    }
}

/// Whom servers with TLS have to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// A file with the certificates of authorities to trust, as PEM; none for those that the machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The name that they have to prove, and are asked for; none for that of their address.
    pub name: Option<String>,
    /// Whether any certificate will do.
    pub unverified: bool,
}

/// What clients may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once, in all; no subnet has more than are left for others.
    pub connections: u32,
    /// Connections at once from one address.
    pub connections_per_address: u32,
    /// Octets of a request's head.
    pub header_bytes: u32,
    /// Octets of a request's body.
    pub body_bytes: u64,
    /// Octets of all request bodies together that are read before their requests ask for a slot.
    pub body_buffers: u64,
    /// From the connection, or the first byte of a request, to the end of its head.
    pub header: Duration,
    pub idle: Duration,
    /// Between two pieces of a request's body.
    pub body_piece: Duration,
    /// A whole request body takes no longer than this plus its size at `body_rate`.
    pub body_grace: Duration,
    /// Octets a second that a request body must bring.
    pub body_rate: u32,
    /// A client that takes nothing of its response for this long is gone.
    pub send: Duration,
    /// An upgraded connection on which nothing happens.
    pub tunnel_idle: Duration,
    pub tls_handshake: Duration,
    /// HTTP/2 streams at once on a connection.
    pub streams: u32,
    /// Requests that a client may give up on one connection within ten seconds before it is closed.
    pub resets: u32,
    /// Requests on one connection before it is closed.
    pub requests: u32,
    /// Protocols that a client may change to.
    pub upgrades: Vec<String>,
    /// How long a stop waits for what is under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let second = Duration::from_secs(1);
        Limits {
            connections: 20_000,
            connections_per_address: 2_000,
            header_bytes: 32 << 10,
            body_bytes: 1 << 30,
            body_buffers: 256 << 20,
            header: 10 * second,
            idle: 75 * second,
            body_piece: 30 * second,
            body_grace: 30 * second,
            body_rate: 1_024,
            send: 30 * second,
            tunnel_idle: 600 * second,
            tls_handshake: 10 * second,
            streams: 128,
            resets: 100,
            requests: 1_000_000,
            upgrades: vec!["websocket".into()],
            drain: 10 * second,
        }
    }
}

impl Limits {
    /// The same limits with every number inside its bounds.
    pub fn bounded(self) -> Limits {
        let time = |time: Duration| time.clamp(Duration::from_millis(10), Duration::from_secs(24 * 3_600));
        Limits {
            connections: self.connections.clamp(1, 1_000_000),
            connections_per_address: self.connections_per_address.clamp(1, 1_000_000),
            header_bytes: self.header_bytes.clamp(8 << 10, 1 << 20),
            header: time(self.header),
            idle: time(self.idle),
            body_piece: time(self.body_piece),
            body_grace: time(self.body_grace),
            body_rate: self.body_rate.max(1),
            send: time(self.send),
            tunnel_idle: time(self.tunnel_idle),
            tls_handshake: time(self.tls_handshake),
            streams: self.streams.clamp(1, 10_000),
            resets: self.resets.max(1),
            requests: self.requests.max(1),
            drain: time(self.drain),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_inside_their_bounds() {
        assert_eq!(Limits::default().bounded(), Limits::default());
    }

    #[test]
    fn absurd_numbers_are_brought_back() {
        let absurd =
            Limits { connections: 0, header_bytes: u32::MAX, idle: Duration::MAX, streams: 0, ..Limits::default() };
        let sane = absurd.bounded();
        assert_eq!((sane.connections, sane.header_bytes, sane.streams), (1, 1 << 20, 1));
        assert_eq!(sane.idle, Duration::from_secs(24 * 3_600));
    }
}
