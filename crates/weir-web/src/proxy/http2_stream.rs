//! Streams of an HTTP/2 connection, each with a time limit for sending.
//!
//! A client that takes nothing blocks its socket in HTTP/1. In HTTP/2 it leaves the stream's window empty: the connection is fine, but the
//! stream stands still. So each stream's task knows since when something is there for its client, and is dropped when that was too long
//! ago; h2 then resets the stream, and the others go on.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::Instant;

use super::client::Client;
use super::deadline::Deadline;
use crate::admission::Reader;

tokio::task_local! {
    static SEND_WATCH: Arc<SendWatch>;
}

/// Since when the client of a stream has something to read.
#[derive(Debug)]
pub(super) struct SendWatch {
    client: Arc<Client>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when something is there for it to read.
    since: Option<Instant>,
    /// Since when its response keeps a server waiting, and for how long it did before.
    blocks_since: Option<Instant>,
    blocked: Duration,
    cut: bool,
    waker: Option<Waker>,
}

impl SendWatch {
    /// The watch of the stream in whose task this is called; none for other protocols.
    pub(super) fn current() -> Option<Arc<SendWatch>> {
        SEND_WATCH.try_with(Arc::clone).ok()
    }

    /// Something new is there to read; what was there before has been read.
    pub(super) fn begin(&self) {
        if self.lock().since.replace(Instant::now()).is_none() {
            self.client.presence.waits_for_client(self.client.now());
        }
    }

    /// Nothing is there to read.
    pub(super) fn clear(&self) {
        if self.lock().since.take().is_some() {
            self.client.presence.has_client();
        }
    }

    fn poll_over(&self, limit: Duration, deadline: &mut Deadline, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.cut {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        match state.since {
            Some(since) => deadline.poll(since + limit, cx),
            None => Poll::Pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SendWatch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Reader for SendWatch {
    fn blocks(&self, blocks: bool) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.blocks_since, blocks.then(Instant::now));
        state.blocked += before.map_or(Duration::ZERO, |since| since.elapsed());
    }

    fn blocked(&self) -> Duration {
        let state = self.lock();
        state.blocked + state.blocks_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn cut(&self) {
        let mut state = self.lock();
        state.cut = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// Runs the streams of a connection.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) client: Arc<Client>,
    /// How long a client may leave what is there unread.
    pub(super) send_timeout: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let limit = self.send_timeout;
        let send_watch = Arc::new(SendWatch { client: Arc::clone(&self.client), state: Mutex::default() });
        let (own, mut stream, mut deadline) = (Arc::clone(&send_watch), Box::pin(stream), Deadline::default());
        let watched = poll_fn(move |cx| match stream.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => own.poll_over(limit, &mut deadline, cx),
        });
        tokio::spawn(SEND_WATCH.scope(send_watch, watched));
    }
}
