//! Tells scanners that fail for every message apart from a single message that makes them fail.
//!
//! The state goes from Working to Out when three different messages have failed and none was scanned in between, or when a harmless test
//! message fails too. It goes back to Working with the first verdict, or, if fewer than three messages failed, when a harmless test message
//! is scanned. While out, one message at a time is tried, less and less often; the others wait and use up no attempts.

use crate::time::Instant;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// How many different messages must fail in a row.
const MESSAGES: usize = 3;
/// The wait between two tries during an outage; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LONGEST: Duration = Duration::from_secs(30);

/// Whether the scanners work.
#[derive(Debug, Default)]
pub struct Outage {
    /// Different messages that failed in a row.
    failing: Vec<u64>,
    out: Option<Out>,
}

#[derive(Debug)]
struct Out {
    since: Instant,
    problem: String,
    next_try: Instant,
    wait: Duration,
    /// The message that is tried.
    trying: Option<u64>,
}

impl Outage {
    /// A message failed; returns whether an outage begins with it.
    pub fn failed(&mut self, message: u64, problem: &str, now: Instant) -> bool {
        if self.failing.len() < MESSAGES && !self.failing.contains(&message) {
            self.failing.push(message);
        }
        (self.out.is_some() || self.failing.len() >= MESSAGES) && self.silent(message, problem, now)
    }

    /// The scanners fail on every message, whatever it is; returns whether an outage begins with this.
    pub fn silent(&mut self, message: u64, problem: &str, now: Instant) -> bool {
        let Some(out) = &mut self.out else {
            let (problem, wait) = (problem.to_owned(), WAIT_FIRST);
            self.out = Some(Out { since: now, problem, next_try: now + wait, wait, trying: None });
            return true;
        };
        out.problem = problem.to_owned();
        // Other messages were being scanned when the outage began: their failure is nothing new.
        if out.trying == Some(message) {
            out.trying = None;
            out.wait = (out.wait * 2).min(WAIT_LONGEST);
            out.next_try = now + out.wait;
        }
        false
    }

    /// The scanners have scanned the harmless test message; returns how long the outage was that ends with this, if any. What three messages have
    /// shown counts more than the test.
    pub fn answered(&mut self, now: Instant) -> Option<Duration> {
        let out = self.out.take_if(|_| self.failing.len() < MESSAGES)?;
        Some(now.since(out.since))
    }

    /// A message was scanned; returns how long the outage was that ends with this, if any.
    pub fn worked(&mut self, now: Instant) -> Option<Duration> {
        self.failing.clear();
        self.out.take().map(|out| now.since(out.since))
    }

    /// A message is gone without having been scanned. If it was the one that was being tried, another one may be tried at once.
    pub fn gone(&mut self, message: u64) {
        if let Some(out) = self.out.as_mut().filter(|out| out.trying == Some(message)) {
            out.trying = None;
        }
    }

    /// Whether the scan of a message may begin now. During an outage only one message is tried at a time.
    pub fn may_begin(&mut self, message: u64, now: Instant) -> bool {
        match &mut self.out {
            None => true,
            Some(out) if out.trying.is_none() && out.next_try <= now => {
                out.trying = Some(message);
                true
            }
            Some(_) => false,
        }
    }

    /// When the next try is due; nothing while one is under way, or while there is no outage.
    pub fn next_try(&self) -> Option<Instant> {
        self.out.as_ref().filter(|out| out.trying.is_none()).map(|out| out.next_try)
    }

    /// Since when there is an outage, and what the scanners report.
    pub fn now(&self) -> Option<(Instant, &str)> {
        self.out.as_ref().map(|out| (out.since, out.problem.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_message_is_no_outage_and_three_are() {
        let mut outage = Outage::default();
        let now = Instant(1_000_000_000);
        assert!((0..50).all(|i| !outage.failed(1 + i % 2, "x", now) && outage.may_begin(9, now)));
        assert!(outage.failed(3, "refused", now));
        assert_eq!(outage.now(), Some((now, "refused")));
        assert!(!outage.may_begin(1, now));
        let then = now + WAIT_FIRST;
        assert!(outage.may_begin(1, then) && !outage.may_begin(2, then), "one at a time");
        assert!(!outage.failed(1, "x", then));
        assert_eq!(outage.next_try(), Some(then + WAIT_FIRST * 2));
        assert_eq!(outage.worked(then + WAIT_FIRST), Some(WAIT_FIRST * 2));
        assert!(outage.may_begin(1, then) && outage.now().is_none() && outage.worked(then).is_none());
    }

    #[test]
    fn scanners_that_fail_before_they_see_mail_are_an_outage_whatever_the_count() {
        let (mut outage, now) = (Outage::default(), Instant(1_000_000_000));
        assert!(!outage.failed(1, "refused", now) && outage.silent(1, "refused", now));
        let then = now + WAIT_FIRST;
        assert!(!outage.may_begin(2, now) && outage.may_begin(2, then));
        assert!(!outage.silent(2, "refused", then));
        assert_eq!(outage.next_try(), Some(then + WAIT_FIRST * 2));
        assert_eq!(outage.answered(then), Some(WAIT_FIRST), "and it ends when they answer again");
        assert!(outage.now().is_none() && outage.answered(then).is_none());
        assert!((2..=3).any(|message| outage.failed(message, "x", now)), "three messages in a row, as before");
        assert_eq!(outage.answered(then), None);
        assert_eq!(outage.worked(then), Some(WAIT_FIRST));
    }

    #[test]
    fn a_try_that_is_gone_makes_room_for_the_next() {
        let mut outage = Outage::default();
        let now = Instant(1_000_000_000);
        assert!((0..3).any(|message| outage.failed(message, "x", now)));
        let then = now + WAIT_FIRST;
        assert!(outage.may_begin(7, then));
        outage.gone(8);
        assert!(!outage.may_begin(8, then), "another one is still tried");
        outage.gone(7);
        assert!(outage.may_begin(8, then), "nothing was learned of the scanners, so there is no need to wait");
    }

    #[test]
    fn only_the_one_that_was_tried_makes_the_wait_longer() {
        let mut outage = Outage::default();
        let now = Instant(1_000_000_000);
        assert!((0..3).any(|message| outage.failed(message, "x", now)));
        let due = outage.next_try();
        assert!((3..50).all(|message| !outage.failed(message, "x", now)));
        assert_eq!(outage.next_try(), due, "scans that were under way when it began");
        assert!(outage.may_begin(7, now + WAIT_FIRST));
        outage.failed(50, "x", now + WAIT_FIRST);
        assert_eq!(outage.next_try(), None, "it is still under way");
    }

    #[test]
    fn a_verdict_in_between_starts_the_count_anew() {
        let mut outage = Outage::default();
        for message in 0..50 {
            assert!(!outage.failed(message, "x", Instant(0)));
            if message % 2 == 1 {
                outage.worked(Instant(0));
            }
        }
    }
}
