//! A look is a snapshot of the state of all gates. Looks are taken one at a time and shared by all pages.
//!
//! With a full store a look takes longer than a page should. So pages and streams are drawn from the last look while a task takes the
//! next ([`Site::watch`](crate::site::Site::watch)). A look is used until it is too old or until somebody changes something on the
//! console. A request that finds none takes one, and all others that wait get the same. If nobody has used the console for a while,
//! the first page shows a look that is some seconds old and starts the next one; a page with a live stream gets that as soon as it is done.

use crate::history::History;
use crate::pulse::Pulse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The pause between two looks at the gates while somebody watches.
pub(crate) const EVERY: Duration = Duration::from_secs(2);
/// A program never gets a look that is older than this. A page may, but then a new one is requested. Two looks are [`EVERY`] apart, and each may take a
/// second.
const FRESH: Duration = Duration::from_secs(4);
/// No page shows a look that is older than this: [`UNWATCHED`], and time for the look itself.
const SHOWN_MAX: Duration = Duration::from_secs(15);
/// While nobody watches, looks take at most this fraction of the time, but one is taken at least every [`UNWATCHED`].
const PARTS: u32 = 20;
const UNWATCHED: Duration = Duration::from_secs(10);

/// The looks so far: the state of all gates at several times.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    seen: Mutex<LastLook>,
    /// Held while a look is taken.
    turn: tokio::sync::Mutex<()>,
    taken: Notify,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct LastLook {
    last: Option<Arc<Pulse>>,
    history: History,
    changed: Option<Instant>,
}

impl Looks {
    /// A look for a page: the last, if it may be shown; otherwise the next, which `take` takes.
    pub(crate) async fn shown(&self, take: impl Future<Output = Pulse>) -> Arc<Pulse> {
        let pulse = self.within(SHOWN_MAX, take).await;
        if pulse.begun.elapsed() >= FRESH {
            self.wanted.notify_one();
        }
        pulse
    }

    /// A look for a program, which asks only once and so needs a fresh one.
    pub(crate) async fn fresh(&self, take: impl Future<Output = Pulse>) -> Arc<Pulse> {
        self.within(FRESH, take).await
    }

    async fn within(&self, age_max: Duration, take: impl Future<Output = Pulse>) -> Arc<Pulse> {
        if let Some(pulse) = self.good(age_max, Instant::now()) {
            return pulse;
        }
        let _turn = self.turn.lock().await;
        // Another task may have taken it meanwhile.
        match self.good(age_max, Instant::now()) {
            Some(pulse) => pulse,
            None => self.keep(take.await),
        }
    }

    /// The next look, even if the last one is still fresh.
    pub(crate) async fn next(&self, take: impl Future<Output = Pulse>) -> Arc<Pulse> {
        let _turn = self.turn.lock().await;
        self.keep(take.await)
    }

    /// Returns when the next look has been taken.
    pub(crate) async fn taken(&self) {
        self.taken.notified().await;
    }

    /// Returns when somebody was shown a look that is not fresh.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Something was changed, so a look that began before is out of date.
    pub(crate) fn changed(&self) {
        self.lock().changed = Some(Instant::now());
    }

    /// The past of all gates.
    pub(crate) fn history(&self) -> History {
        self.lock().history.clone()
    }

    fn good(&self, age_max: Duration, now: Instant) -> Option<Arc<Pulse>> {
        let seen = self.lock();
        let young = |pulse: &&Arc<Pulse>| now.duration_since(pulse.begun) < age_max;
        let after_the_change = |pulse: &&Arc<Pulse>| seen.changed.is_none_or(|changed| pulse.begun >= changed);
        seen.last.as_ref().filter(young).filter(after_the_change).cloned()
    }

    fn keep(&self, pulse: Pulse) -> Arc<Pulse> {
        let pulse = Arc::new(pulse);
        let mut seen = self.lock();
        seen.history.add(&pulse, Instant::now());
        seen.last = Some(Arc::clone(&pulse));
        drop(seen);
        self.taken.notify_waiters();
        pulse
    }

    fn lock(&self) -> MutexGuard<'_, LastLook> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after its beginning a look is followed by the next if nobody watches, given how long it took.
pub(crate) fn unwatched_pause(took: Duration) -> Duration {
    (PARTS * took).clamp(EVERY, UNWATCHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen() -> Pulse {
        Pulse::blind()
    }

    async fn never() -> Pulse {
        panic!("there is a look already")
    }

    #[tokio::test]
    async fn a_look_is_good_until_it_is_old_or_something_changes() {
        let looks = Looks::default();
        let first = looks.shown(seen()).await;
        let (again, fresh) = (looks.shown(never()).await, looks.fresh(never()).await);
        assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&first, &fresh));
        assert!(looks.good(FRESH, first.begun + FRESH).is_none(), "it is too old for a program");
        assert!(looks.good(SHOWN_MAX, first.begun + FRESH).is_some(), "and not for a page");
        assert!(looks.good(SHOWN_MAX, first.begun + SHOWN_MAX).is_none(), "but now it is");
        looks.changed();
        assert!(looks.good(SHOWN_MAX, Instant::now()).is_none(), "it is of before the change");
        let begun = first.begun;
        looks.next(async { Pulse { begun, ..Pulse::blind() } }).await;
        assert!(looks.good(SHOWN_MAX, Instant::now()).is_none(), "and so is one that was under way then");
        let second = looks.shown(seen()).await;
        assert!(!Arc::ptr_eq(&first, &second) && looks.good(FRESH, Instant::now()).is_some());
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_look_that_is_under_way() {
        let looks = Looks::default();
        let slow = async {
            tokio::task::yield_now().await;
            Pulse::blind()
        };
        let (one, two) = tokio::join!(looks.shown(slow), looks.shown(never()));
        assert!(Arc::ptr_eq(&one, &two));
    }

    #[tokio::test]
    async fn a_look_of_some_seconds_ago_is_shown_and_the_next_is_asked_for() {
        let looks = Looks::default();
        let Some(begun) = Instant::now().checked_sub(FRESH) else { return };
        looks.next(async { Pulse { begun, ..Pulse::blind() } }).await;
        assert_eq!(looks.shown(never()).await.begun, begun);
        looks.wanted().await;
        assert!(looks.fresh(seen()).await.begun > begun, "a program waits for its own");
    }

    #[test]
    fn looking_takes_little_of_the_time() {
        let millis = Duration::from_millis;
        for (took, pause) in [(1, 2_000), (100, 2_000), (300, 6_000), (5_000, 10_000)] {
            assert_eq!(unwatched_pause(millis(took)), millis(pause), "{took}");
        }
    }
}
