//! Connections to both doors, the port and the socket: a bounded number, each with who is at its other end on every request.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Something that takes connections, and knows who makes them.
pub(crate) trait Accepts: Sync {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Who is at its other end.
    type Who: Clone + Send + Sync + 'static;

    /// The next connection; none of one that is not heard.
    fn accept(&self) -> impl Future<Output = io::Result<Option<(Self::Stream, Self::Who)>>> + Send;
}

/// Serves for ever, at most so many connections at once.
pub(crate) async fn serve(door: &impl Accepts, router: Router, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match door.accept().await {
            Ok(Some((stream, who))) => {
                let router = router.clone();
                tokio::spawn(async move {
                    converse(stream, who, router).await;
                    drop(place);
                });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

async fn converse<W: Clone + Send + Sync + 'static>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    who: W,
    router: Router,
) {
    let router = router.layer(from_fn(move |mut request: Request, next: Next| {
        request.extensions_mut().insert(who.clone());
        next.run(request)
    }));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(64 * 1024);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        tracing::debug!(%error, "a conversation ended early");
    }
}
