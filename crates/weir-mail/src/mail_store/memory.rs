//! What this process knows about stored mail beyond the records: which recipients are already in the spool although their rows are still
//! there, and which messages cannot go now and are left alone for a while.
//!
//! Bounded by the rows that are decided and not yet removed, and by the letters that the start found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first wait after a failure; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// A full disk may be empty at any moment.
const WAIT_LONGEST: Duration = Duration::from_secs(5);
/// A file that is missing rarely comes back.
const WAIT_LONGEST_MISSING: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Places that are in the spool, by message.
    put_back: BTreeMap<String, BTreeSet<usize>>,
    trouble: BTreeMap<String, RetryPause>,
}

#[derive(Debug)]
struct RetryPause {
    failures: u32,
    until: Instant,
}

impl Memory {
    /// These recipients are in the spool: whatever happens to their rows, they must not go there again.
    pub(crate) fn put_back(&self, message: &str, places: &[usize]) {
        let mut inner = self.inner();
        inner.trouble.remove(message);
        inner.put_back.entry(message.to_owned()).or_default().extend(places);
    }

    /// Which of these recipients still have to go into the spool.
    pub(crate) fn still_to_go(&self, message: &str, places: &[usize]) -> Vec<usize> {
        let inner = self.inner();
        let gone = inner.put_back.get(message);
        places.iter().copied().filter(|place| !gone.is_some_and(|gone| gone.contains(place))).collect()
    }

    /// The rows of these recipients are removed.
    pub(crate) fn settled(&self, message: &str, places: &[usize]) {
        let mut inner = self.inner();
        inner.trouble.remove(message);
        if let Some(gone) = inner.put_back.get_mut(message) {
            gone.retain(|place| !places.contains(place));
            if gone.is_empty() {
                inner.put_back.remove(message);
            }
        }
    }

    /// Whether the message is left alone for now.
    pub(crate) fn rests(&self, message: &str, now: Instant) -> bool {
        self.inner().trouble.get(message).is_some_and(|trouble| now < trouble.until)
    }

    /// The message cannot go now. Returns whether this is worth reporting. A file may just be on its way to its place, so a missing file is
    /// reported only the second time.
    pub(crate) fn failed(&self, message: &str, missing: bool, now: Instant) -> bool {
        let mut inner = self.inner();
        let failures = inner.trouble.get(message).map_or(0, |trouble| trouble.failures) + 1;
        let longest = if missing { WAIT_LONGEST_MISSING } else { WAIT_LONGEST };
        let wait = (WAIT_FIRST * (1 << (failures - 1).min(10))).min(longest);
        inner.trouble.insert(message.to_owned(), RetryPause { failures, until: now + wait });
        failures == if missing { 2 } else { 1 }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_does_not_go_again_until_it_is_settled() {
        let memory = Memory::default();
        assert_eq!(memory.still_to_go("m", &[0, 2]), [0, 2]);
        memory.put_back("m", &[0, 2]);
        assert_eq!(memory.still_to_go("m", &[0, 1, 2]), [1]);
        memory.settled("m", &[0]);
        assert_eq!(memory.still_to_go("m", &[0, 2]), [0]);
        memory.settled("m", &[2]);
        assert!(memory.inner().put_back.is_empty());
    }

    #[test]
    fn trouble_is_news_once_and_waits_grow() {
        let (memory, now) = (Memory::default(), Instant::now());
        let missing = |_| memory.failed("m", true, now);
        assert_eq!((0..4).map(missing).collect::<Vec<_>>(), [false, true, false, false]);
        assert!(
            memory.rests("m", now + Duration::from_millis(7999)) && !memory.rests("m", now + Duration::from_secs(8))
        );
        assert!(!(0..20).any(missing));
        assert!(memory.rests("m", now + Duration::from_secs(599)) && !memory.rests("m", now + WAIT_LONGEST_MISSING));
        memory.failed("m", false, now);
        assert!(!memory.rests("m", now + WAIT_LONGEST));
        memory.settled("m", &[]);
        assert!(memory.failed("m", false, now), "a new trouble is news again");
    }
}
