//! Learn-only mode: nothing is held and nobody is stopped, but the throttle records what would have happened.
//!
//! While no mail is really held, the throttle simulates itself: its queue fills and drains as it would, but its entries stand for no held
//! mail. When a user would have been stopped, we assume that somebody looks at once: the queue is emptied and the daily counts begin again.
//! Mail that is really held from before leaves by time or by a person's decision, and nothing is added to it.

use super::{Held, Mail, Recipient, RecipientKey, State, Throttle};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::vec::Vec;

/// What would have happened to a mail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Learned {
    /// This many of its recipients would have waited.
    pub held: usize,
    /// It would have stopped the user.
    pub stopped: bool,
}

impl Throttle {
    /// A mail to these strangers, each named once, that is sent whatever the rules say. Returns what would have happened to it. From a
    /// mail of a user who is really stopped, nothing is learned.
    pub fn learn(&mut self, now: Instant, to: &[RecipientKey]) -> Learned {
        let to: Vec<Recipient> = to.iter().copied().map(Recipient::stranger).collect();
        self.learn_mail(now, &Mail { to: &to, from: None })
    }

    /// The same for a mail whose recipients have classes.
    pub fn learn_mail(&mut self, now: Instant, mail: &Mail<'_>) -> Learned {
        self.catch_up(now);
        if self.stopped().is_some() {
            return Learned::default();
        }
        if self.nothing_waits() {
            self.state = State::Learning;
        }
        let (learning, situation) = (self.state, self.situation);
        let (fates, stopped) = self.accept_mail(mail);
        let held: Vec<Held> = fates.into_iter().flatten().collect();
        if learning == State::Open && !planted(Mutant::ThrottleLearningJoinsTheQueue) {
            for held in &held {
                let joined = self.take(held.entry);
                joined.into_iter().for_each(|entry| self.mailed(entry));
            }
        }
        if stopped.is_some() {
            if learning == State::Learning {
                self.clear_queues();
            }
            (self.state, self.situation) = (learning, situation);
            self.today.forgive();
        }
        self.check_invariants();
        Learned { held: held.len(), stopped: stopped.is_some() }
    }

    /// Whether the queue only shows what would wait, because nothing is held yet.
    pub fn is_learning(&self) -> bool {
        self.state == State::Learning
    }

    /// From now on mail is really held: entries that only would have waited are forgotten.
    pub(super) fn end_learning(&mut self) {
        if self.is_learning() {
            self.clear_queues();
            self.state = State::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{EntryId, Params};

    #[test]
    fn nothing_waits_of_what_is_learned() {
        let mut user = Throttle::new(Params { stop_at: 2, ..Params::default() }, Instant::ZERO).unwrap();
        let mut learn = |key: u64| user.learn(Instant(1), &[RecipientKey(key)]);
        let (held, stopped) = (Learned { held: 1, stopped: false }, Learned { held: 1, stopped: true });
        assert_eq!([learn(0), learn(1), learn(2), learn(3), learn(4)], [Learned::default(), held, held, stopped, held]);
        assert_eq!((user.held_count(), user.held().count(), user.next_deadline()), (0, 0, None));
        assert!(user.stopped().is_none() && !user.stop(Instant(2)) && !user.release(Instant(2), EntryId(3)));
        assert_eq!(user.advance(Instant(1_000_000_000_000)), []);
        user.submit(Instant(1_000_000_000_000), &[RecipientKey(9)]);
        assert!(!user.is_learning());
    }

    #[test]
    fn what_waits_from_before_stays_and_nothing_joins_it() {
        let mut user = Throttle::new(Params { stop_at: 1, max_slack: 0, ..Params::default() }, Instant::ZERO).unwrap();
        user.submit(Instant(1), &[RecipientKey(1)]);
        assert_eq!(user.learn(Instant(2), &[RecipientKey(2)]), Learned { held: 1, stopped: true });
        assert_eq!((user.held_count(), user.stopped(), user.is_learning()), (1, None, false));
        assert_eq!(user.advance(Instant(60_000_000_000)).len(), 1);
    }
}
