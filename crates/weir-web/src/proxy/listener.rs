//! An address on which the gate listens.

use std::net::SocketAddr;

/// One address to listen on.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address; port 0 is any free one.
    pub address: SocketAddr,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Whether listed peers begin with a PROXY header.
    pub proxy_protocol: bool,
    /// If set, every request is redirected to https on this port.
    pub redirect: Option<u16>,
}

impl Listener {
    pub fn plain(address: SocketAddr) -> Listener {
        Listener { address, tls: false, proxy_protocol: false, redirect: None }
    }
}
