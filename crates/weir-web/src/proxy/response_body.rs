//! A response's body on its way to the client.
//!
//! Small bodies that came together with their head are passed on whole. All others flow through a [`Relay`]: the server is read as fast as it
//! gives, whatever the client takes, so that the slot is held for as long as the server works and no longer. What the client has not taken
//! yet is buffered, in memory and then in a file. The slot is held even if the client leaves meanwhile, unless the backend is known to stop
//! working then.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::http2_stream::SendWatch;
use super::relay::{BodyBroken, Relay};

/// What is sent to the client.
pub(super) enum ResponseBody {
    /// All of it; None when it has been taken, or if there is nothing.
    Whole(Option<Bytes>),
    /// As it arrives.
    Streamed(Box<StreamedBody>),
}

/// A body that is still arriving.
pub(super) struct StreamedBody {
    relay: Driven,
    /// The watch of an HTTP/2 stream.
    send_watch: Option<Arc<SendWatch>>,
}

/// Which task reads from the server while the client reads nothing.
#[expect(
    clippy::large_enum_variant,
    reason = "the body is in a box already, and on the fast path all are of the larger kind"
)]
enum Driven {
    /// The task that sends to the client, by [`ResponseBody::read_ahead`].
    BySender(Relay),
    /// A task of its own, because hyper does not poll a body that it cannot send.
    ByTask(Handle),
}

/// The sender's end of a shared relay. When it is dropped, the client has left.
struct Handle(Arc<SharedRelay>);

impl StreamedBody {
    pub(super) fn new(relay: Relay, send_watch: Option<Arc<SendWatch>>) -> StreamedBody {
        StreamedBody { relay: Driven::BySender(relay), send_watch }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        match &mut self.relay {
            Driven::BySender(relay) => relay.poll_next(cx),
            Driven::ByTask(handle) => handle.0.poll_next(cx),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&Relay) -> T) -> Option<T> {
        match &self.relay {
            Driven::BySender(relay) => Some(look(relay)),
            Driven::ByTask(handle) => handle.0.lock().relay.as_ref().map(look),
        }
    }

    /// Notes whether there is something for the client to read.
    fn note_send(&self, begun: bool) {
        match &self.send_watch {
            Some(send_watch) if begun => send_watch.begin(),
            Some(send_watch) => send_watch.clear(),
            None => {}
        }
    }
}

impl ResponseBody {
    /// Reads what the server sends while nothing can be sent to the client.
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        if let ResponseBody::Streamed(flow) = self
            && let Driven::BySender(relay) = &mut flow.relay
        {
            let _ = relay.poll_ahead(cx);
        }
    }

    /// From now on a task of its own reads from the server.
    pub(super) fn driven_by_task(self) -> ResponseBody {
        let ResponseBody::Streamed(flow) = self else { return self };
        let (relay, send_watch) = match *flow {
            StreamedBody { relay: Driven::BySender(relay), send_watch } => (relay, send_watch),
            driven => return ResponseBody::Streamed(Box::new(driven)),
        };
        let shared = Arc::new(SharedRelay(Mutex::new(State { relay: Some(relay), sender: None, driver: None })));
        let driver = Arc::clone(&shared);
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_ahead(cx)).await });
        ResponseBody::Streamed(Box::new(StreamedBody { relay: Driven::ByTask(Handle(shared)), send_watch }))
    }
}

/// A relay between the task that reads the server and the one that sends to the client.
struct SharedRelay(Mutex<State>);

struct State {
    /// None when the client has left.
    relay: Option<Relay>,
    /// The task that sends to the client, if it waits for the server; and the task that reads from the server, if it waits for the client.
    sender: Option<Waker>,
    driver: Option<Waker>,
}

impl SharedRelay {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        let mut state = self.lock();
        let Some(relay) = &mut state.relay else { return Poll::Ready(None) };
        let next = relay.poll_kept(cx);
        let waker = match next.is_ready() {
            true => state.driver.take(),
            false => {
                state.sender = Some(cx.waker().clone());
                None
            }
        };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        next
    }

    fn poll_ahead(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        let Some(relay) = &mut state.relay else { return Poll::Ready(()) };
        let over = relay.poll_ahead(cx);
        if over.is_pending() {
            state.driver = Some(cx.waker().clone());
        }
        let sender = state.sender.take();
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        over
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let (relay, driver) = (state.relay.take(), state.driver.take());
        drop(state);
        drop(relay);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyBroken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        match &mut *self {
            ResponseBody::Whole(all) => Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            ResponseBody::Streamed(flow) => {
                let next = flow.poll_next(cx);
                flow.note_send(next.is_ready());
                next
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(all) => all.is_none(),
            ResponseBody::Streamed(flow) => flow.with(Relay::is_over).unwrap_or(true),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(all) => SizeHint::with_exact(all.as_ref().map_or(0, |all| all.len() as u64)),
            ResponseBody::Streamed(flow) => {
                flow.with(Relay::left).flatten().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
