//! One scan in flight per content, and answers remembered: by content and by the version of what looked at it.
//!
//! A scan runs as a task of its own to its end; those who asked wait for it, each for its own time at most. So a retry joins the
//! scan that is still under way, and a late answer is not lost. Entries, their bytes and their age are bounded; the oldest goes first.
//! Failures are never remembered.

use crate::memory_bounds::Bounds;
use crate::verdict::Outcome;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Content, version, and as what it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContentKey {
    pub(crate) hash: [u8; 32],
    pub(crate) version: Arc<str>,
    /// Whether it was looked at as a file, and not only as a message.
    pub(crate) is_file: bool,
}

/// What is remembered: any answer with outcomes.
pub(crate) trait Remembered: Clone + Send + Sync + 'static {
    /// Its outcomes.
    fn outcomes(&self) -> impl Iterator<Item = &Outcome>;
    /// What it takes in memory, about.
    fn weight(&self) -> usize;
}

/// Scans under way and not yet answered; more are refused.
const FLIGHTS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Memo<T> {
    bounds: Bounds,
    inner: Mutex<MemoState<T>>,
}

#[derive(Debug)]
struct MemoState<T> {
    known: HashMap<ContentKey, StoredAnswer<T>>,
    /// In the order in which they came.
    order: BTreeMap<u64, ContentKey>,
    /// Answers that ever came.
    count: u64,
    bytes: usize,
    flights: HashMap<ContentKey, watch::Receiver<Option<T>>>,
}

/// An answer that is kept.
#[derive(Debug)]
struct StoredAnswer<T> {
    answer: T,
    came: Instant,
    until: Instant,
    number: u64,
    bytes: usize,
}

/// What came of asking.
#[derive(Debug, PartialEq)]
pub(crate) enum MemoAnswer<T> {
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
    pub(crate) fn new(bounds: Bounds) -> Arc<Memo<T>> {
        let inner =
            MemoState { known: HashMap::new(), order: BTreeMap::new(), count: 0, bytes: 0, flights: HashMap::new() };
        Arc::new(Memo { bounds, inner: Mutex::new(inner) })
    }

    /// Asks: what is known, else the scan under way, else `scan`. An answer is kept for `keep`, at most the bound's age.
    pub(crate) async fn ask<F>(
        self: &Arc<Self>,
        key: ContentKey,
        keep: Duration,
        wait: Duration,
        scan: impl FnOnce() -> F,
    ) -> MemoAnswer<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut answer = {
            let mut inner = self.lock();
            if let Some(known) = inner.known.get(&key)
                && known.until > Instant::now()
            {
                return MemoAnswer::Known(known.answer.clone());
            }
            match inner.flights.get(&key) {
                Some(flight) => flight.clone(),
                None if inner.flights.len() >= FLIGHTS_MAX => return MemoAnswer::TooMany,
                None => {
                    let (sender, receiver) = watch::channel(None);
                    inner.flights.insert(key.clone(), receiver.clone());
                    tokio::spawn(self.clone().fly(key, keep, scan(), sender));
                    receiver
                }
            }
        };
        match tokio::time::timeout(wait, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().map_or(MemoAnswer::TooLong, MemoAnswer::Found),
            _ => MemoAnswer::TooLong,
        }
    }

    async fn fly(
        self: Arc<Self>,
        key: ContentKey,
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

    fn remember(&self, key: ContentKey, keep: Duration, answer: T) {
        let keep = keep.min(self.bounds.age);
        if keep.is_zero() || self.bounds.entries == 0 {
            return;
        }
        let bytes = answer.weight() + size_of::<StoredAnswer<T>>() + 2 * (size_of::<ContentKey>() + key.version.len());
        if bytes > self.bounds.bytes {
            return;
        }
        let (now, mut inner) = (Instant::now(), self.lock());
        inner.forget(&key);
        inner.count += 1;
        inner.bytes += bytes;
        let number = inner.count;
        inner.order.insert(number, key.clone());
        inner.known.insert(key, StoredAnswer { answer, came: now, until: now + keep, number, bytes });
        while let Some((_, oldest)) = inner.order.first_key_value() {
            let oldest = oldest.clone();
            let old = inner.known.get(&oldest).is_none_or(|known| now.duration_since(known.came) > self.bounds.age);
            if !old && inner.known.len() <= self.bounds.entries && inner.bytes <= self.bounds.bytes {
                break;
            }
            inner.forget(&oldest);
        }
    }

    /// How many answers are kept, and how many scans are under way.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.known.len(), inner.flights.len())
    }

    /// Nothing here is ever half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, MemoState<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> MemoState<T> {
    /// An answer goes, and its place in the order with it: one that came again has a new place.
    fn forget(&mut self, key: &ContentKey) {
        if let Some(known) = self.known.remove(key) {
            self.order.remove(&known.number);
            self.bytes -= known.bytes;
        }
    }
}

/// Takes a flight off the list, also if it crashed.
struct Landing<'m, T: Remembered> {
    memo: &'m Memo<T>,
    key: ContentKey,
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

        fn weight(&self) -> usize {
            Outcome::weight(self)
        }
    }

    fn key(n: u8, version: &str) -> ContentKey {
        ContentKey { hash: [n; 32], version: version.into(), is_file: false }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn what_is_known_is_not_asked_again_until_the_version_changes() {
        let memo = Memo::new(Bounds::default());
        let scan = || async { Outcome::Clean };
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, scan).await, MemoAnswer::Found(Outcome::Clean));
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, scan).await, MemoAnswer::Known(Outcome::Clean));
        assert_eq!(memo.ask(key(1, "b"), LONG, LONG, scan).await, MemoAnswer::Found(Outcome::Clean));
    }

    #[tokio::test]
    async fn failures_are_not_remembered() {
        let memo = Memo::new(Bounds::default());
        let failed = Outcome::Failed { problem: "x".into() };
        let again = failed.clone();
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, || async { again }).await, MemoAnswer::Found(failed));
        assert_eq!(
            memo.ask(key(1, "a"), LONG, LONG, || async { Outcome::Clean }).await,
            MemoAnswer::Found(Outcome::Clean)
        );
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
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, MemoAnswer::TooLong);
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, MemoAnswer::TooLong);
        let (one, two) = tokio::join!(memo.ask(key(1, "a"), LONG, LONG, slow), memo.ask(key(1, "a"), LONG, LONG, slow));
        assert_eq!((one, two), (MemoAnswer::Found(Outcome::Clean), MemoAnswer::Found(Outcome::Clean)));
        assert_eq!(memo.ask(key(1, "a"), LONG, short, slow).await, MemoAnswer::Known(Outcome::Clean));
        assert_eq!((scans.load(Ordering::Relaxed), memo.counts()), (1, (1, 0)));
    }

    #[tokio::test]
    async fn an_answer_that_came_again_is_not_forgotten_with_its_old_place() {
        let memo = Memo::new(Bounds { entries: 3, ..Bounds::default() });
        let scan = || async { Outcome::Clean };
        for n in [1, 2, 1, 3, 4] {
            // As if the answer had grown old: it is asked for anew.
            memo.lock().known.values_mut().for_each(|known| known.until = Instant::now());
            memo.ask(key(n, "a"), LONG, LONG, scan).await;
        }
        memo.lock().known.values_mut().for_each(|known| known.until = Instant::now() + LONG);
        assert_eq!(memo.ask(key(1, "a"), LONG, LONG, scan).await, MemoAnswer::Known(Outcome::Clean));
        assert_eq!(memo.ask(key(2, "a"), LONG, LONG, scan).await, MemoAnswer::Found(Outcome::Clean), "the oldest went");
        assert_eq!((memo.counts(), memo.lock().order.len()), ((3, 0), 3));
    }

    #[tokio::test]
    async fn long_answers_are_bounded_by_their_bytes() {
        let memo = Memo::new(Bounds { bytes: 100_000, ..Bounds::default() });
        let long = || async { Outcome::Infected { name: "x".repeat(10_000) } };
        for n in 0..50 {
            memo.ask(key(n, "a"), LONG, LONG, long).await;
        }
        assert!((5..=9).contains(&memo.counts().0), "{:?}", memo.counts());
        assert!(memo.lock().bytes <= 100_000);
        let endless = || async { Outcome::Infected { name: "x".repeat(200_000) } };
        memo.ask(key(99, "a"), LONG, LONG, endless).await;
        assert!(memo.counts().0 >= 5, "what does not fit pushes nothing out");
    }

    #[tokio::test]
    async fn entries_are_bounded_and_a_crash_leaves_nothing() {
        let memo = Memo::new(Bounds { entries: 3, ..Bounds::default() });
        for n in 0..10 {
            memo.ask(key(n, "a"), LONG, LONG, || async { Outcome::Clean }).await;
        }
        assert_eq!(memo.counts(), (3, 0));
        assert_eq!(memo.ask(key(99, "a"), LONG, LONG, || async { panic!("on purpose") }).await, MemoAnswer::TooLong);
        assert_eq!(memo.counts(), (3, 0));
    }
}
