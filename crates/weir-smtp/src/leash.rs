//! The *leash* of a session: a handle through which other tasks tell the session to end, and see whether it is idle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_core::time::Instant;

use super::reply::Reply;
use super::session::Ending;

/// A handle to end a session from outside.
#[derive(Debug)]
pub struct Leash {
    pull: Mutex<Pull>,
    admitted: Instant,
    /// Since when we have waited for the client, in nanoseconds; [`WORKING`] while the client waits for us.
    quiet_since: AtomicU64,
    /// Whether the client has begun a mail.
    in_mail: AtomicBool,
}

const WORKING: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Pull {
    order: Option<(Reply, Ending)>,
    waker: Option<Waker>,
}

impl Leash {
    /// The leash of a session that begins now.
    pub(crate) fn new(now: Instant) -> Leash {
        let (pull, in_mail) = (Mutex::default(), AtomicBool::new(false));
        Leash { pull, admitted: now, quiet_since: AtomicU64::new(now.0), in_mail }
    }

    /// Notes that we wait for the client from now on. `in_mail` says whether it has begun a mail.
    pub(crate) fn waits(&self, now: Instant, in_mail: bool) {
        self.in_mail.store(in_mail, Ordering::Relaxed);
        self.quiet_since.store(now.0, Ordering::Relaxed);
    }

    /// Notes that the client has said something and waits for us.
    pub(crate) fn works(&self) {
        self.quiet_since.store(WORKING, Ordering::Relaxed);
    }

    /// Since when the session has been idle, if it may be closed to make room by now. A session in the middle of a mail has four times as
    /// long. A stranger that has done nothing useful for that long may be closed even if it keeps talking.
    pub(crate) fn idle_since(&self, now: Instant, after: Duration, is_stranger: bool) -> Option<Instant> {
        let quiet_since = self.quiet_since.load(Ordering::Relaxed);
        if quiet_since == WORKING {
            return None;
        }
        let since = Instant(quiet_since);
        let in_mail = self.in_mail.load(Ordering::Relaxed);
        let patience = if in_mail { after * 4 } else { after };
        let useless = is_stranger && !in_mail && now.since(self.admitted) >= after * 4;
        (useless || now.since(since) >= patience).then_some(since)
    }

    /// Orders the session to end.
    pub(crate) fn pull(&self, reply: Reply, when: Ending) {
        let mut pull = self.pull.lock().unwrap_or_else(PoisonError::into_inner);
        pull.order = Some((reply, when));
        if let Some(waker) = pull.waker.take() {
            waker.wake();
        }
    }

    /// The order to end; otherwise the task will be woken when the order comes.
    pub fn poll_order(&self, context: &mut Context<'_>) -> Poll<(Reply, Ending)> {
        let mut pull = self.pull.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = pull.order.take() {
            return Poll::Ready(order);
        }
        if !pull.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            pull.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn who_waits_for_us_or_has_begun_a_mail_is_not_idle_so_soon() {
        let leash = Leash::new(at(0));
        let idle = |now, stranger| leash.idle_since(at(now), Duration::from_secs(3), stranger);
        assert_eq!((idle(2, true), idle(3, true)), (None, Some(at(0))));
        leash.works();
        assert_eq!(idle(1_000, true), None);
        leash.waits(at(10), true);
        assert_eq!((idle(21, true), idle(22, true)), (None, Some(at(10))));
        leash.waits(at(100), false);
        assert_eq!((idle(101, false), idle(101, true)), (None, Some(at(100))), "a stranger that only talks makes room");
    }
}
