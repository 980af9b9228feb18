//! [`Waiting`]: a request that waits for a slot, as a future. Dropping it leaves the queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};
use weir_core::fair::Ticket;

use super::ask::AdmissionRefusal;
use super::permit::Permit;
use super::queue::{Admission, wake};
use super::request_table::State;
use super::streams::Owner;

/// Resolves to a permit, or to a refusal when the time is over or somebody else needs its place more. Dropped, the request is
/// forgotten and charged nothing.
#[derive(Debug)]
pub struct Waiting {
    admission: Arc<Admission>,
    ticket: Ticket,
    owner: Owner,
    timeout: Pin<Box<Sleep>>,
    done: bool,
}

impl Waiting {
    pub(super) fn new(admission: Arc<Admission>, ticket: Ticket, owner: Owner, deadline: Instant) -> Waiting {
        Waiting { admission, ticket, owner, timeout: Box::pin(sleep_until(deadline)), done: false }
    }

    fn look(&mut self, cx: &Context<'_>) -> Option<Result<Permit, AdmissionRefusal>> {
        let mut inner = self.admission.lock();
        if !inner.requests.holds(self.ticket) {
            drop(inner);
            self.done = true;
            return Some(Err(AdmissionRefusal::PushedOut));
        }
        let request = inner.requests.at_mut(self.ticket);
        if request.state != State::Granted {
            if !request.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                request.waker = Some(cx.waker().clone());
            }
            return None;
        }
        let since_ns = request.dispatched_ns;
        inner.requests.start(self.ticket, cx.waker());
        drop(inner);
        self.done = true;
        Some(Ok(Permit::new(Arc::clone(&self.admission), Some(self.ticket), self.owner, since_ns)))
    }

    /// Whether there was a place to leave.
    fn leave(&mut self) -> bool {
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let left = self.admission.lock().withdraw(self.ticket, now_ns, &mut wakers);
        wake(wakers);
        left
    }
}

impl Future for Waiting {
    type Output = Result<Permit, AdmissionRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit, AdmissionRefusal>> {
        if self.done {
            return Poll::Pending;
        }
        if let Some(outcome) = self.look(cx) {
            return Poll::Ready(outcome);
        }
        if self.timeout.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if !self.leave() {
            return Poll::Ready(Err(AdmissionRefusal::PushedOut));
        }
        self.admission.lock().counters.refuse(AdmissionRefusal::Timeout);
        Poll::Ready(Err(AdmissionRefusal::Timeout))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.leave() {
            self.admission.lock().counters.left += 1;
        }
    }
}
