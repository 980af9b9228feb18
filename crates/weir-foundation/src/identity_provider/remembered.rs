//! A cache for one document of the provider. The document is kept for ten minutes; a failure to fetch it is remembered for a few seconds.

use super::ProviderError;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long a document is used before it is fetched again.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// For how long a provider that did not answer is not asked again.
const AWAY_FOR: Duration = Duration::from_secs(3);

/// The cache of one document. If several callers need it at the same time, one fetches it and the others wait for the result.
pub(super) struct Remembered<T> {
    last: Arc<Mutex<Option<Fetched<T>>>>,
}

struct Fetched<T> {
    at: Instant,
    found: Result<Arc<T>, String>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Remembered { last: Arc::default() }
    }
}

impl<T: Send + Sync + 'static> Remembered<T> {
    /// A document that is younger than this is not worth fetching again.
    pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(3);

    /// The document. If it has to be fetched, this takes at most `within`.
    pub(super) async fn value(
        &self,
        within: Duration,
        fetch: impl Future<Output = Result<T, ProviderError>> + Send + 'static,
    ) -> Result<Arc<T>, ProviderError> {
        // It is fetched in a task of its own, so that the others still get it if the caller who started this hangs up.
        let fetching = tokio::spawn(value(Arc::clone(&self.last), within, fetch));
        fetching.await.unwrap_or_else(|error| Err(ProviderError::Strange(error.to_string())))
    }

    /// Forgets a document that is older than this.
    pub(super) async fn forget_older_than(&self, age: Duration) {
        let mut last = self.last.lock().await;
        if last.as_ref().is_some_and(|fetched| fetched.at.elapsed() >= age) {
            *last = None;
        }
    }
}

async fn value<T>(
    last: Arc<Mutex<Option<Fetched<T>>>>,
    within: Duration,
    fetch: impl Future<Output = Result<T, ProviderError>>,
) -> Result<Arc<T>, ProviderError> {
    let mut last = last.lock().await;
    match &*last {
        Some(Fetched { at, found: Ok(value) }) if at.elapsed() < GOOD_FOR => return Ok(Arc::clone(value)),
        Some(Fetched { at, found: Err(words) }) if at.elapsed() < AWAY_FOR => {
            return Err(ProviderError::StillAway(words.clone()));
        }
        _ => {}
    }
    let silent = |_| Err(ProviderError::Away(io::ErrorKind::TimedOut.into()));
    let value = tokio::time::timeout(within, fetch).await.unwrap_or_else(silent).map(Arc::new);
    let found = value.as_ref().map(Arc::clone).map_err(ToString::to_string);
    *last = Some(Fetched { at: Instant::now(), found });
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_found_is_kept_and_what_was_not_is_not_asked_for_at_once() {
        let away = || async { Err(ProviderError::Away(io::ErrorKind::ConnectionRefused.into())) };
        let never = || async { unreachable!("it is not asked") };
        let kept = Remembered::<u32>::default();
        assert_eq!(*kept.value(GOOD_FOR, async { Ok(7) }).await.unwrap(), 7);
        assert_eq!(*kept.value(GOOD_FOR, never()).await.unwrap(), 7);
        kept.forget_older_than(Duration::ZERO).await;
        assert!(matches!(kept.value(GOOD_FOR, away()).await, Err(ProviderError::Away(_))));
        assert!(matches!(kept.value(GOOD_FOR, never()).await, Err(ProviderError::StillAway(_))));
    }

    #[tokio::test]
    async fn a_provider_that_is_silent_is_waited_for_once_whoever_hangs_up() {
        let kept = Remembered::<u32>::default();
        let silent = kept.value(Duration::from_millis(20), std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(1), silent).await.is_err(), "somebody hangs up");
        let next = kept.value(GOOD_FOR, async { unreachable!("it is not asked") }).await;
        assert!(matches!(next, Err(ProviderError::StillAway(_))));
    }
}
