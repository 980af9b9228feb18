//! Whether a client has a request under way on its connection, and how the connection is to be closed.
//!
//! This is separate from the rest of what is known about a client, because the count of connections ([`super::connection_count`]) reads it
//! too.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

#[derive(Debug)]
pub(super) struct Presence {
    /// Since when there has been no request, in milliseconds of the thread's clock.
    quiet_since: AtomicU64,
    in_flight: AtomicU32,
    /// How many of them wait for their own client: to send the rest of a body, or to read what is there for it.
    at_own_pace: AtomicU32,
    /// Since when the last of them waits for it.
    at_own_pace_since: AtomicU64,
    end: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

/// A connection that can only wait for its client. Those that come first in this order are closed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Standstill {
    /// A request is in progress all the same.
    pub(super) asks: bool,
    /// Since when, in milliseconds of the thread's clock.
    pub(super) since: u64,
}

/// How a connection is to end: Open → Drain → Cut, or Open → Cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum ConnectionEnd {
    Open = 0,
    Drain = 1,
    Cut = 2,
}

impl Presence {
    /// The presence of a new connection.
    pub(super) fn new(now: u64) -> Presence {
        Presence {
            quiet_since: AtomicU64::new(now),
            in_flight: AtomicU32::new(0),
            at_own_pace: AtomicU32::new(0),
            at_own_pace_since: AtomicU64::new(now),
            end: AtomicU8::new(ConnectionEnd::Open as u8),
            waker: Mutex::new(None),
        }
    }

    /// A request has begun.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is over.
    pub(super) fn over(&self, now: u64) {
        self.quiet_since.store(now, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Since when there has been no request; None while there is one.
    pub(super) fn quiet_since(&self) -> Option<u64> {
        (self.in_flight.load(Ordering::Relaxed) == 0).then(|| self.quiet_since.load(Ordering::Relaxed))
    }

    /// One of its requests waits for the client from now on.
    pub(super) fn waits_for_client(&self, now: u64) {
        self.at_own_pace_since.store(now, Ordering::Relaxed);
        self.at_own_pace.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its requests no longer waits for the client.
    pub(super) fn has_client(&self) {
        self.at_own_pace.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether, and since when, the connection can only wait for its client.
    pub(super) fn standstill(&self) -> Option<Standstill> {
        if let Some(since) = self.quiet_since() {
            return Some(Standstill { asks: false, since });
        }
        let all = self.at_own_pace.load(Ordering::Relaxed) >= self.in_flight.load(Ordering::Relaxed);
        all.then(|| Standstill { asks: true, since: self.at_own_pace_since.load(Ordering::Relaxed) })
    }

    /// The task that polls the connection.
    pub(super) fn polled_by(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// How the connection is to end.
    pub(super) fn end(&self) -> ConnectionEnd {
        match self.end.load(Ordering::Relaxed) {
            0 => ConnectionEnd::Open,
            1 => ConnectionEnd::Drain,
            _ => ConnectionEnd::Cut,
        }
    }

    pub(super) fn finish(&self, end: ConnectionEnd) {
        if self.end() >= end {
            return;
        }
        self.end.store(end as u8, Ordering::Relaxed);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}
