//! Long-lived tasks that belong to no gate, such as the one that serves the control socket.
//!
//! If such a task panics or ends, nothing else has to be stopped before it can start again. So it is started again by itself, after a pause
//! ([`BackOff`]).

use super::back_off::BackOff;
use super::panics::caught;
use super::supervisor::with_planted_panic;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;
use tokio::time::Instant;

static RESTARTS: AtomicU64 = AtomicU64::new(0);

/// Runs what `start` makes for as long as the process runs: whenever that panics or ends, it is made anew.
pub fn keep_running<F>(name: &'static str, mut start: impl FnMut() -> F + Send + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        let (begun, mut back_off) = (Instant::now(), BackOff::default());
        loop {
            let ended = caught(async { with_planted_panic(name, start()).await }).await;
            let why = ended.err().unwrap_or_else(|| "it ended by itself".to_owned());
            let pause = back_off.failed(weir_core::time::Instant::ZERO + begun.elapsed());
            RESTARTS.fetch_add(1, Ordering::Relaxed);
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

/// How often such tasks have been started again.
pub fn restarts() -> u64 {
    RESTARTS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn what_panics_or_ends_is_started_again() {
        let (starts, before) = (Arc::new(AtomicU64::new(0)), restarts());
        let counted = Arc::clone(&starts);
        let task = keep_running("test", move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            assert!(number != 2, "no future is made");
            async move {
                match number {
                    0 => panic!("boom"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((starts.load(Ordering::Relaxed), restarts() - before), (4, 3));
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
