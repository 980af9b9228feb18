//! Tasks that belong to no gate: the control socket, the webhook, certificates, and the watch for incidents where no console does that.
//!
//! Nothing has to be stopped in order when one of them panics, so it is started again by itself, after a pause that grows with each failure.
//! (The tasks of a gate are watched by its supervisor, `weir_foundation::supervision`.) The place of the panic is in the log line before.

use axum::Router;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_console::socket::ControlSocket;
use weir_foundation::supervision::BackOff;

/// What such a task does, for as long as Weir runs.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves the control socket, which is bound anew if its task fails.
pub(crate) fn serve_control(socket: ControlSocket, path: PathBuf, router: Router) -> JoinHandle<()> {
    let mut bound = Some(socket);
    keep_running("control socket", move || {
        let socket = match bound.take() {
            Some(socket) => socket,
            None => match ControlSocket::bind(&path) {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::error!(%error, "the control socket cannot be opened again; it will be tried");
                    return Some(Box::pin(std::future::ready(())));
                }
            },
        };
        Some(Box::pin(socket.serve(router.clone())))
    })
}

/// Runs what `start` makes, and starts it again when it has panicked or come to an end. Ends when `start` makes nothing.
pub(crate) fn keep_running(
    name: &'static str,
    mut start: impl FnMut() -> Option<Running> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (begun, mut back_off, mut planted) = (Instant::now(), BackOff::default(), is_planted(name));
        while let Some(running) = start() {
            let why = end_of(with_panic(std::mem::take(&mut planted), running)).await;
            let now = weir_core::time::Instant::ZERO + begun.elapsed();
            let pause = back_off.failed(now);
            tracing::error!(
                task = name,
                why,
                pause_s = pause.as_secs(),
                "a task outside the gates is gone; it is started again"
            );
            tokio::time::sleep(pause).await;
        }
    })
}

/// Runs it to its end, and says what that was.
async fn end_of(running: impl Future<Output = ()>) -> &'static str {
    let mut running = Box::pin(running);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready("it ended by itself"),
        Err(_) => Poll::Ready("it panicked"),
    })
    .await
}

/// For tests: whether this task is to panic once, as `supervision::plant_panic` has it for tasks of gates.
fn is_planted(name: &str) -> bool {
    cfg!(debug_assertions) && std::env::var("WEIR_PLANT_PANIC").is_ok_and(|task| task == name)
}

async fn with_panic(planted: bool, running: Running) {
    tokio::select! {
        () = running => {}
        () = tokio::time::sleep(Duration::from_millis(500)), if planted => panic!("a planted panic"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn what_panics_or_ends_is_started_again_until_there_is_nothing_to_start() {
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        let task = keep_running("test", move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Box::pin(async { panic!("boom") })),
            1 => Some(Box::pin(std::future::ready(()))),
            2 => Some(Box::pin(tokio::time::sleep(Duration::from_secs(3_600)))),
            _ => None,
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3, "the third one runs");
        task.await.unwrap();
        assert_eq!(starts.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn the_control_socket_comes_back_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let task = serve_control(socket, path.clone(), Router::new());
        while tokio::net::UnixStream::connect(&path).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(!path.exists(), "it is gone with its task");
    }
}
