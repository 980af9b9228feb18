//! Streams of an HTTP/2 connection, each with an end if its client takes nothing.
//!
//! Where HTTP/1 has a socket that takes no more, HTTP/2 has a window that is empty: the connection is well, and the stream stands still. So each stream's
//! task keeps in mind since when its client has been offered something, and is dropped when that was too long ago; h2 then resets the stream,
//! and the others go on.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::Instant;

use super::lateness::Lateness;
use crate::admission::Cut;

tokio::task_local! {
    static OFFER: Arc<Offer>;
}

/// What the client of a stream is offered.
#[derive(Debug, Default)]
pub(super) struct Offer {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when something is there for it to take.
    since: Option<Instant>,
    cut: bool,
    waker: Option<Waker>,
}

impl Offer {
    /// That of the stream in whose task this is called; none for other protocols.
    pub(super) fn current() -> Option<Arc<Offer>> {
        OFFER.try_with(Arc::clone).ok()
    }

    /// Something new is there to take; what was before has been taken.
    pub(super) fn is_made(&self) {
        self.lock().since = Some(Instant::now());
    }

    /// Nothing is there to take.
    pub(super) fn is_void(&self) {
        self.lock().since = None;
    }

    fn poll_over(&self, limit: Duration, lateness: &mut Lateness, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.cut {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        match state.since {
            Some(since) => lateness.poll(since + limit, cx),
            None => Poll::Pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cut for Offer {
    fn cut(&self) {
        let mut state = self.lock();
        state.cut = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// Runs the streams of a connection; how long an offer stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience(pub(super) Duration);

impl<F> Executor<F> for Patience
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Patience(limit) = *self;
        let offer = Arc::new(Offer::default());
        let (own, mut stream, mut lateness) = (Arc::clone(&offer), Box::pin(stream), Lateness::default());
        let watched = poll_fn(move |cx| match stream.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => own.poll_over(limit, &mut lateness, cx),
        });
        tokio::spawn(OFFER.scope(offer, watched));
    }
}
