//! Notices that could not be written: the disk is full, say. They are tried again in order, and nobody waits for them meanwhile.

use super::{NoticeEvent, WAITING_MAX};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;
use weir_core::throttle::StopReason;
use weir_core::time::Instant as ClockTime;

/// Between two attempts; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LONGEST: Duration = Duration::from_secs(30);

/// A notice on its way.
pub(super) struct Notice {
    pub(super) event: NoticeEvent,
    /// Why somebody was stopped, if that is what happened.
    pub(super) why: Option<StopReason>,
    /// When that happened.
    pub(super) at: ClockTime,
    /// Who gets a mail about it.
    pub(super) readers: Vec<String>,
    /// The mails to so many of them are in the spool.
    pub(super) written: usize,
}

/// Notices that could not be written, the oldest first.
#[derive(Default)]
pub(super) struct Unwritten {
    notices: VecDeque<Notice>,
    /// When to try again, and after which wait.
    again: Option<(Instant, Duration)>,
}

impl Unwritten {
    pub(super) fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    /// One more. If there are too many, it is dropped; the records know that it is due, and the next start writes it.
    pub(super) fn add(&mut self, notice: Notice) {
        if self.notices.len() >= WAITING_MAX {
            tracing::error!(identity = notice.event.identity, "a notice was dropped: too many cannot be written");
            return;
        }
        self.notices.push_back(notice);
        self.again.get_or_insert_with(|| (Instant::now() + WAIT_FIRST, WAIT_FIRST));
    }

    /// Returns when it is time to try again; never, if there is nothing.
    pub(super) async fn is_due(&self) {
        match self.again {
            Some((at, _)) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn first(&mut self) -> Option<&mut Notice> {
        self.notices.front_mut()
    }

    pub(super) fn first_is_written(&mut self) {
        self.notices.pop_front();
        if self.notices.is_empty() {
            self.again = None;
        }
    }

    /// Still not.
    pub(super) fn put_off(&mut self) {
        let wait = self.again.map_or(WAIT_FIRST, |(_, wait)| (wait * 2).min(WAIT_LONGEST));
        self.again = Some((Instant::now() + wait, wait));
    }
}
