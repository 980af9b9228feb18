//! Whether a running upload waits for its client or for the backend.
//!
//! A request may hold a slot while its body still comes in. The time that its client takes is not the backend's time, and nobody else
//! should have to wait for it. The clock tells the two apart, and gives up an upload whose slot others need.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

/// The time of one upload, from its dispatch.
#[derive(Debug)]
pub struct UploadClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Since when its client has nothing for us.
    waits_since: Option<Instant>,
    /// Earlier waits of that kind.
    waited: Duration,
    /// When the backend took a piece.
    moved: Instant,
    cut: bool,
    waker: Option<Waker>,
}

impl Default for UploadClock {
    fn default() -> UploadClock {
        let state = State { waits_since: None, waited: Duration::ZERO, moved: Instant::now(), cut: false, waker: None };
        UploadClock { state: Mutex::new(state) }
    }
}

impl UploadClock {
    /// The backend has taken a piece.
    pub fn moves(&self) {
        let mut state = self.lock();
        state.moved = Instant::now();
        state.waited = state.waited();
        state.waits_since = None;
    }

    /// The backend wants more, and the client has nothing. False if the upload has been given up; `waker` is woken when that happens.
    pub fn waits(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        state.waits_since.get_or_insert_with(Instant::now);
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        !state.cut
    }

    /// How long the client was waited for.
    pub fn waited(&self) -> Duration {
        self.lock().waited()
    }

    /// Since when the backend is waited for; None while the client is.
    pub fn moved(&self) -> Option<Instant> {
        let state = self.lock();
        state.waits_since.is_none().then_some(state.moved)
    }

    /// Gives the upload up. Returns whether it was not given up before.
    pub(super) fn cut(&self) -> bool {
        let mut state = self.lock();
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        !std::mem::replace(&mut state.cut, true)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waited(&self) -> Duration {
        self.waited + self.waits_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_clients_time_is_counted() {
        let clock = UploadClock::default();
        let pass = |ms| tokio::time::advance(Duration::from_millis(ms));
        pass(100).await;
        assert_eq!(clock.waited(), Duration::ZERO);
        assert!(clock.waits(Waker::noop()) && clock.moved().is_none());
        pass(30).await;
        assert!(clock.waits(Waker::noop()), "asked again, it still waits");
        pass(10).await;
        clock.moves();
        let moved = clock.moved().unwrap();
        pass(500).await;
        assert_eq!((clock.waited(), moved.elapsed()), (Duration::from_millis(40), Duration::from_millis(500)));
        assert!(clock.cut() && !clock.cut() && !clock.waits(Waker::noop()));
    }
}
