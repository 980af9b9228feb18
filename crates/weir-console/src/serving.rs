//! Serves connections on both the port and the control socket: a bounded number, each request with the information who is at the other end.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait when the machine has no more file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections, and knows who makes them.
pub(crate) trait Accepts: Sync {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Who is at its other end.
    type Who: Clone + Send + Sync + 'static;

    /// The next connection; None if it is refused.
    fn accept(&self) -> impl Future<Output = io::Result<Option<(Self::Stream, Self::Who)>>> + Send;
}

/// Serves for ever, with at most `most` connections at once.
pub(crate) async fn serve(door: &impl Accepts, router: Router, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match door.accept().await {
            Ok(Some((stream, who))) => {
                let router = router.clone();
                tokio::spawn(converse(stream, who, router, Arc::new(place)));
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
    place: Arc<OwnedSemaphorePermit>,
) {
    let router = router.layer(from_fn(move |mut request: Request, next: Next| {
        request.extensions_mut().insert(who.clone());
        to_its_end(request, next, Arc::clone(&place))
    }));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(64 * 1024);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        tracing::debug!(%error, "a conversation ended early");
    }
}

/// Answers a request. A change is completed even if the client closes the connection: hyper drops the task of a connection that is gone, and
/// then something could be done without a line in the audit trail. It keeps the connection's place until it has ended, so that
/// a client that closes its connections again and again has no more changes in progress than connections.
async fn to_its_end(request: Request, next: Next, place: Arc<OwnedSemaphorePermit>) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let change = tokio::spawn(async move {
        let answer = next.run(request).await;
        drop(place);
        answer
    });
    change.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a change ended in a panic");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}
