//! The frames that were sent lately, kept so that a front-end that missed one can ask for it again.
//!
//! A ring of the last [`KEPT`] frames of news. For older news the sender has to send its complete state again.

use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use weir_core::time::Instant;

/// How many frames are kept: those of more than a second at full rate; at most 8 MiB.
const KEPT: usize = 4096;
/// Several front-ends that missed the same frame are served by one repetition.
const REPEAT_AFTER: Duration = Duration::from_millis(15);

#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<SentNews>,
    /// Number of the last frame.
    latest: u64,
}

#[derive(Debug)]
struct SentNews {
    frame: Bytes,
    sent_at: Instant,
}

impl Journal {
    /// Number of the last frame sent.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// Number of the oldest frame that can be repeated; one above the latest if there is none.
    pub(super) fn oldest(&self) -> u64 {
        self.latest + 1 - self.entries.len() as u64
    }

    /// Keeps the next frame.
    pub(super) fn push(&mut self, frame: Bytes, now: Instant) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(SentNews { frame, sent_at: now });
        self.latest += 1;
    }

    /// The frame of this number, unless it is gone or has just been sent.
    pub(super) fn repeat(&mut self, number: u64, now: Instant) -> Option<Bytes> {
        let place = number.checked_sub(self.oldest())?;
        let entry = self.entries.get_mut(usize::try_from(place).ok()?)?;
        if now.since(entry.sent_at) < REPEAT_AFTER {
            return None;
        }
        entry.sent_at = now;
        Some(entry.frame.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_repeats_what_it_keeps_and_not_at_once() {
        let mut journal = Journal::default();
        let (start, later) = (Instant(0), Instant(20_000_000));
        assert_eq!((journal.latest(), journal.oldest()), (0, 1));
        for number in 1..=KEPT as u64 + 5 {
            journal.push(Bytes::copy_from_slice(&number.to_le_bytes()), start);
        }
        assert_eq!((journal.latest(), journal.oldest()), (KEPT as u64 + 5, 6));
        assert_eq!(journal.repeat(6, start), None, "just sent");
        assert_eq!(journal.repeat(6, later).as_deref(), Some(&6u64.to_le_bytes()[..]));
        assert_eq!(journal.repeat(6, later), None, "just sent again");
        for absent in [0, 5, KEPT as u64 + 6, u64::MAX] {
            assert_eq!(journal.repeat(absent, later), None);
        }
    }
}
