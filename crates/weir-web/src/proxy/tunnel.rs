//! Upgraded connections: copies octets in both directions until both sides have closed, or nothing has been sent either way for too long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::relay::Holding;
use super::request_record::RequestRecord;

/// Joins the two sides once both have switched.
pub(super) async fn run(
    client: OnUpgrade,
    backend: OnUpgrade,
    idle: Duration,
    _hold: Holding,
    mut record: RequestRecord,
) {
    match tokio::try_join!(client, backend) {
        Ok((client, backend)) => join(TokioIo::new(client), TokioIo::new(backend), idle).await,
        Err(error) => tracing::debug!(%error, "an upgrade came to nothing"),
    }
    record.complete();
}

/// How many octets are carried at a time.
const PIECE_BYTES: usize = 16 << 10;

async fn join(client: impl AsyncRead + AsyncWrite, backend: impl AsyncRead + AsyncWrite, idle: Duration) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_backend, to_backend) = tokio::io::split(backend);
    let activity = Activity::new();
    // The end of one direction is passed on, and the other direction continues.
    let both =
        async { tokio::join!(carry(from_client, to_backend, &activity), carry(from_backend, to_client, &activity)) };
    tokio::select! {
        _ = both => {}
        () = activity.idle_for(idle) => {}
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, activity: &Activity) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        activity.touch();
        if to.write_all(&piece[..read]).await.is_err() {
            break;
        }
        activity.touch();
    }
    let _ = to.shutdown().await;
}

/// When something was last carried, in either direction.
struct Activity {
    start: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn new() -> Activity {
        Activity { start: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    fn touch(&self) {
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Waits until nothing has been carried for this long.
    async fn idle_for(&self, idle: Duration) {
        loop {
            let due = self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + idle;
            if Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    const IDLE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn one_direction_keeps_the_other_alive() {
        let ((mut client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let joined = tokio::spawn(join(near, far, IDLE));
        let begun = Instant::now();
        for _ in 0..10 {
            tokio::time::sleep(IDLE / 2).await;
            backend.write_all(b"x").await.unwrap();
            client.read_u8().await.unwrap();
        }
        client.write_all(b"y").await.unwrap();
        assert_eq!(backend.read_u8().await.unwrap(), b'y', "still open after {:?}", begun.elapsed());
        joined.await.unwrap();
        assert!(begun.elapsed() >= 6 * IDLE, "then it is still: {:?}", begun.elapsed());
        assert!(begun.elapsed() < 7 * IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_passed_on_and_who_takes_nothing_has_one_too() {
        let ((client, near), (far, mut backend)) = (duplex(64), duplex(64));
        let joined = tokio::spawn(join(near, far, IDLE));
        drop(client);
        assert_eq!(backend.read(&mut [0; 8]).await.unwrap(), 0);
        // More than fits, and nobody reads it: the tunnel ends all the same.
        backend.write_all(&[0; 32]).await.unwrap();
        tokio::time::timeout(2 * IDLE, joined).await.unwrap().unwrap();
    }
}
