//! Where the console listens: plain HTTP on loopback, a bounded number of connections.

use crate::door::Peer;
use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const CONNECTIONS_MAX: usize = 256;
const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A port that listens.
#[derive(Debug)]
pub struct ConsoleListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl ConsoleListener {
    /// Listens at `address`.
    pub async fn bind(address: SocketAddr) -> io::Result<ConsoleListener> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(ConsoleListener { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the pages for ever; run it as a task.
    pub async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        converse(stream, peer, router).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the console cannot accept");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }
}

async fn converse(stream: TcpStream, peer: SocketAddr, router: Router) {
    let router =
        router.layer(axum::middleware::from_fn(move |mut request: Request, next: axum::middleware::Next| async move {
            request.extensions_mut().insert(Peer(peer.ip()));
            next.run(request).await
        }));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(64 * 1024);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        tracing::debug!(%error, "a conversation with a browser ended early");
    }
}
