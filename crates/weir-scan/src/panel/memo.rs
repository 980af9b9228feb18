//! One scan in flight per content, and answers remembered: by content and by the version of what looked at it.
//!
//! A scan runs as a task of its own to its end; those who asked wait for it, each for its own time at most. So a retry joins the
//! scan that is still under way, and a late answer is not lost. Entries and their age are bounded. Failures are never remembered.

use crate::verdict::Outcome;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Content and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) hash: [u8; 32],
    pub(super) version: Arc<str>,
}

/// What is remembered: any answer with outcomes.
pub(super) trait Remembered: Clone + Send + Sync + 'static {
    /// Its outcomes.
    fn outcomes(&self) -> impl Iterator<Item = &Outcome>;
}

/// The bounds of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Answers kept.
    pub entries: usize,
    /// How long.
    pub age: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { entries: 20_000, age: Duration::from_secs(3600) }
    }
}

/// Scans under way and not yet answered; more are refused.
const FLIGHTS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Memo<T> {
    bounds: Bounds,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    known: HashMap<Key, (Instant, T)>,
    /// In the order in which they came.
    order: VecDeque<(Instant, Key)>,
    flights: HashMap<Key, watch::Receiver<Option<T>>>,
}

/// What came of asking.
#[derive(Debug, PartialEq)]
pub(super) enum Asked<T> {
    /// It was known.
    Known(T),
    /// It was found out.
    Found(T),
    /// It takes longer.
    TooLong,
    /// There is no room for one more.
    TooMany,
}

impl<T: Remembered> Memo<T> {
    pub(super) fn new(bounds: Bounds) -> Arc<Memo<T>> {
        let inner = Inner { known: HashMap::new(), order: VecDeque::new(), flights: HashMap::new() };
        Arc::new(Memo { bounds, inner: Mutex::new(inner) })
    }

    /// Asks: what is known, else the scan under way, else `scan`. An answer is kept for `keep`, at most the bound's age.
    pub(super) async fn ask<F>(
        self: &Arc<Self>,
        key: Key,
        keep: Duration,
        wait: Duration,
        scan: impl FnOnce() -> F,
    ) -> Asked<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut answer = {
            let mut inner = self.lock();
            if let Some((until, known)) = inner.known.get(&key)
                && *until > Instant::now()
            {
                return Asked::Known(known.clone());
            }
            match inner.flights.get(&key) {
                Some(flight) => flight.clone(),
                None if inner.flights.len() >= FLIGHTS_MAX => return Asked::TooMany,
                None => {
                    let (sender, receiver) = watch::channel(None);
                    inner.flights.insert(key.clone(), receiver.clone());
                    tokio::spawn(self.clone().fly(key, keep, scan(), sender));
                    receiver
                }
            }
        };
        match tokio::time::timeout(wait, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().map_or(Asked::TooLong, Asked::Found),
            _ => Asked::TooLong,
        }
    }

    async fn fly(
        self: Arc<Self>,
        key: Key,
        keep: Duration,
        scan: impl Future<Output = T>,
        to: watch::Sender<Option<T>>,
    ) {
        let landing = Landing { memo: &self, key };
        let answer = scan.await;
        if answer.outcomes().all(|outcome| !matches!(outcome, Outcome::Failed { .. })) {
            self.remember(landing.key.clone(), keep, answer.clone());
        }
        drop(landing);
        let _ = to.send(Some(answer));
    }

    fn remember(&self, key: Key, keep: Duration, answer: T) {
        let keep = keep.min(self.bounds.age);
        if keep.is_zero() || self.bounds.entries == 0 {
            return;
        }
        let (now, mut inner) = (Instant::now(), self.lock());
        inner.order.push_back((now, key.clone()));
        inner.known.insert(key, (now + keep, answer));
        while inner.order.len() > self.bounds.entries
            || inner.order.front().is_some_and(|(came, _)| now.duration_since(*came) > self.bounds.age)
        {
            let Some((_, oldest)) = inner.order.pop_front() else { break };
            inner.known.remove(&oldest);
        }
    }

    /// How many answers are kept, and how many scans are under way.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.known.len(), inner.flights.len())
    }

    /// Nothing here is ever half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a flight off the list, also if it crashed.
struct Landing<'m, T: Remembered> {
    memo: &'m Memo<T>,
    key: Key,
}

impl<T: Remembered> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        self.memo.lock().flights.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    impl Remembered for Outcome {
        fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
            std::iter::once(self)
        }
    }

    fn key(n: u8, version: &str) -> Key {
        Key { hash: [n; 32], version: version.into() }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn what_is_known_is_not_asked_again_until_the_version_changes() {
        let memo = Memo::new(Bounds::default());
        let scan = || async { Outcome::Clean };
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, scan).await, Asked::Found(Outcome::Clean));
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, scan).await, Asked::Known(Outcome::Clean));
        assert_eq!(memo.ask(key(1, "b"), LONG, LONG, scan).await, Asked::Found(Outcome::Clean));
    }

    #[tokio::test]
    async fn failures_are_not_remembered() {
        let memo = Memo::new(Bounds::default());
        let failed = Outcome::Failed { problem: "x".into() };
        let again = failed.clone();
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, || async { again }).await, Asked::Found(failed));
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, || async { Outcome::Clean }).await, Asked::Found(Outcome::Clean));
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_share_one_scan_and_a_late_answer_is_kept() {
        let memo = Memo::new(Bounds::default());
        let scans = Arc::new(AtomicU32::new(0));
        let slow = || {
            let scans = scans.clone();
            async move {
                scans.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(10)).await;
                Outcome::Clean
            }
        };
        let short = Duration::from_secs(3);
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, Asked::TooLong);
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, Asked::TooLong);
        let (one, two) = tokio::join!(memo.ask(key(1, "a"), LONG, LONG, slow), memo.ask(key(1, "a"), LONG, LONG, slow));
        assert_eq!((one, two), (Asked::Found(Outcome::Clean), Asked::Found(Outcome::Clean)));
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, Asked::Known(Outcome::Clean));
        assert_eq!((scans.load(Ordering::Relaxed), memo.counts()), (1, (1, 0)));
    }

    #[tokio::test]
    async fn entries_are_bounded_and_a_crash_leaves_nothing() {
        let memo = Memo::new(Bounds { entries: 3, ..Bounds::default() });
        for n in 0..10 {
            memo.ask(key(n, "a"), LONG, LONG, || async { Outcome::Clean }).await;
        }
        assert_eq!(memo.counts(), (3, 0));
        assert_eq!(memo.ask(key(99, "a"), LONG, LONG, || async { panic!("on purpose") }).await, Asked::TooLong);
        assert_eq!(memo.counts(), (3, 0));
    }
}
