//! A slot of the backend, as long as it is held.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::fair::{SessionKey, Ticket};

use super::{Admission, wake};

/// One slot. Dropped, the slot is free and the request is charged for as long as it was held.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    ticket: Ticket,
    session: SessionKey,
    since_ns: u64,
    done: bool,
}

impl Permit {
    pub(super) fn new(admission: Arc<Admission>, ticket: Ticket, session: SessionKey, since_ns: u64) -> Permit {
        Permit { admission, ticket, session, since_ns, done: false }
    }

    /// The backend has begun to answer, and there is more to come.
    pub fn answered(&self) {
        let now_ns = self.admission.now_ns();
        self.admission.lock().answered(self.ticket, now_ns);
    }

    /// Since when it is held.
    pub fn since(&self) -> Instant {
        self.admission.start + Duration::from_nanos(self.since_ns)
    }

    /// How long the slot has been held.
    pub fn held(&self) -> Duration {
        Duration::from_nanos(self.admission.now_ns().saturating_sub(self.since_ns))
    }

    /// What requests like this one usually cost.
    pub fn usual_cost(&self) -> Duration {
        let inner = self.admission.lock();
        let class = inner.places.holds(self.ticket).then(|| inner.places.at(self.ticket).class);
        Duration::from_nanos(class.map_or(0, |class| inner.estimates.cost_ns(class)))
    }

    /// The connection has been upgraded: the slot is free, and the session has one stream more until the result is dropped.
    pub fn into_stream(mut self) -> Stream {
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.admission.lock();
        // In observe mode there are no slots to free, and streams are not bounded.
        if inner.shadow.is_some() {
            inner.end(self.ticket, now_ns);
        } else if inner.places.holds(self.ticket) {
            inner.make_stream(self.ticket, now_ns);
        }
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
        self.done = true;
        Stream { admission: Arc::clone(&self.admission), session: self.session }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let now_ns = self.admission.now_ns();
        let mut wakers = Vec::new();
        let mut inner = self.admission.lock();
        if !inner.end(self.ticket, now_ns) && inner.shadow.is_none() {
            // It went on for so long that it had become a stream.
            inner.end_stream(self.session);
        }
        inner.pump(now_ns, &mut wakers);
        drop(inner);
        wake(wakers);
    }
}

/// An open stream of a session, as long as it lives.
#[derive(Debug)]
pub struct Stream {
    admission: Arc<Admission>,
    session: SessionKey,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.admission.lock().end_stream(self.session);
    }
}
