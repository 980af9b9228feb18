//! Upgraded connections: octets in both directions until either side ends, or nothing happens for too long.

use std::io;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::visit::Visit;
use crate::admission::Stream;

/// Joins the two sides once both have switched.
pub(super) async fn run(client: OnUpgrade, backend: OnUpgrade, idle: Duration, (_stream, mut visit): (Stream, Visit)) {
    let (client, backend) = match tokio::try_join!(client, backend) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "an upgrade came to nothing"),
    };
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_backend, mut to_backend) = tokio::io::split(TokioIo::new(backend));
    let up = carry(&mut from_client, &mut to_backend, idle);
    let down = carry(&mut from_backend, &mut to_client, idle);
    // The end of one direction is passed on; both must end, or be idle together.
    let _ = tokio::join!(up, down);
    visit.complete();
}

/// Octets that are carried at a time.
const PIECE_BYTES: usize = 16 << 10;

async fn carry<R, W>(from: &mut R, to: &mut W, idle: Duration) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut piece = vec![0; PIECE_BYTES];
    let outcome = loop {
        let read = match timeout(idle, from.read(&mut piece)).await {
            Ok(Ok(0)) => break Ok(()),
            Ok(Ok(read)) => read,
            Ok(Err(error)) => break Err(error),
            Err(_) => break Err(io::ErrorKind::TimedOut.into()),
        };
        match timeout(idle, to.write_all(&piece[..read])).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => break Err(error),
            Err(_) => break Err(io::ErrorKind::TimedOut.into()),
        }
    };
    let _ = to.shutdown().await;
    outcome
}
