//! A request that waits for a slot.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};
use weir_core::fair::Ticket;

use super::place::State;
use super::streams::Who;
use super::{Admission, Permit, Refused, wake};

/// Resolves to a permit, or to a refusal when the time is over. Dropped, the request is forgotten and charged nothing.
#[derive(Debug)]
pub struct Waiting {
    admission: Arc<Admission>,
    ticket: Ticket,
    who: Who,
    timeout: Pin<Box<Sleep>>,
    done: bool,
}

impl Waiting {
    pub(super) fn new(admission: Arc<Admission>, ticket: Ticket, who: Who, deadline: Instant) -> Waiting {
        Waiting { admission, ticket, who, timeout: Box::pin(sleep_until(deadline)), done: false }
    }

    fn permit(&mut self, cx: &Context<'_>) -> Option<Permit> {
        let mut inner = self.admission.lock();
        let place = inner.places.at_mut(self.ticket);
        if place.state != State::Granted {
            if !place.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                place.waker = Some(cx.waker().clone());
            }
            return None;
        }
        let since_ns = place.dispatched_ns;
        inner.places.start(self.ticket, cx.waker());
        drop(inner);
        self.done = true;
        Some(Permit::new(Arc::clone(&self.admission), Some(self.ticket), self.who, since_ns))
    }

    fn leave(&mut self) -> bool {
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let left = !std::mem::replace(&mut self.done, true);
        if left {
            self.admission.lock().withdraw(self.ticket, now_ns, &mut wakers);
        }
        wake(wakers);
        left
    }
}

impl Future for Waiting {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit, Refused>> {
        if self.done {
            return Poll::Pending;
        }
        if let Some(permit) = self.permit(cx) {
            return Poll::Ready(Ok(permit));
        }
        if self.timeout.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.leave();
        self.admission.lock().counters.refuse(Refused::Timeout);
        Poll::Ready(Err(Refused::Timeout))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.leave() {
            self.admission.lock().counters.left += 1;
        }
    }
}
