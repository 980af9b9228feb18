//! Where the console listens: plain HTTP on loopback, a bounded number of connections.

use crate::door::PeerAddress;
use crate::serving::{self, Accepts};
use axum::Router;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use weir_foundation::sockets;

const CONNECTIONS_MAX: usize = 256;

/// A port that listens.
#[derive(Debug)]
pub struct ConsoleListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl ConsoleListener {
    /// Listens at `address`.
    pub fn bind(address: SocketAddr) -> io::Result<ConsoleListener> {
        let listener = TcpListener::from_std(sockets::listen(address)?)?;
        let address = listener.local_addr()?;
        Ok(ConsoleListener { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the pages for ever; run it as a task.
    pub async fn serve(self, router: Router) {
        serving::serve(&self, router, CONNECTIONS_MAX).await;
    }
}

impl Accepts for ConsoleListener {
    type Stream = TcpStream;
    type Who = PeerAddress;

    async fn accept(&self) -> io::Result<Option<(TcpStream, PeerAddress)>> {
        let (stream, peer) = self.listener.accept().await?;
        Ok(Some((stream, PeerAddress(peer.ip()))))
    }
}
