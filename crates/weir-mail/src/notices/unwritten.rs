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

    /// The next one is due at once.
    pub(super) fn first_is_written(&mut self) {
        self.notices.pop_front();
        self.again = (!self.notices.is_empty()).then(|| (Instant::now(), WAIT_FIRST));
    }

    /// Still not.
    pub(super) fn put_off(&mut self) {
        let wait = self.again.map_or(WAIT_FIRST, |(_, wait)| (wait * 2).min(WAIT_LONGEST));
        self.again = Some((Instant::now() + wait, wait));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NoticeKind, NoticeWriter, Settings};
    use super::*;
    use crate::pipeline::{Pipeline, Stage, Transit};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use weir_store::records::Records;
    use weir_store::spool::{Options, Spool};

    fn notice(user: usize) -> Notice {
        let event = NoticeEvent { kind: NoticeKind::Stopped, identity: format!("user{user}"), contact: String::new() };
        let readers = vec!["admin@example.org".to_owned()];
        Notice { event, why: None, at: ClockTime(0), readers, written: 0 }
    }

    /// Counts what is on its way.
    struct Counting(Arc<AtomicUsize>);

    impl Stage for Counting {
        fn take(&self, _: Transit) -> Option<Transit> {
            self.0.fetch_add(1, Ordering::SeqCst);
            None
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_is_written_at_a_time_and_the_next_is_due_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        let (spool, _) = Spool::open(folder.path().join("spool"), options).unwrap();
        let records = Records::sqlite(&folder.path().join("records.db")).await.unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let writer = NoticeWriter {
            settings: Settings {
                hostname: "mail.example.org".into(),
                admin: String::new(),
                webhook: None,
                link: String::new(),
                silent: false,
                tell_delays_over: Duration::ZERO,
                admin_delays: false,
                digest_every: Duration::from_secs(86_400),
            },
            calls: None,
            spool,
            records,
            held: folder.path().join("held"),
            pipeline: Pipeline::ending_in(Counting(sent.clone())),
            clock: Arc::new(|| ClockTime(1)),
        };
        let mut unwritten = Unwritten::default();
        (0..3).for_each(|user| unwritten.add(notice(user)));
        unwritten.is_due().await;
        for written in 1..=3 {
            writer.write_again(&mut unwritten).await;
            assert_eq!(sent.load(Ordering::SeqCst), written, "others have their turn in between");
            let is_due = tokio::time::timeout(Duration::from_millis(20), unwritten.is_due()).await.is_ok();
            assert_eq!(is_due, written < 3);
        }
        assert!(unwritten.is_empty());
    }
}
