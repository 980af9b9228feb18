//! Entries of a relay that is down: the queue skips them as if they were not in it.
//!
//! If several relays share one throttle, each keeps the held mail that it accepted. While one of them is down, nobody can send that mail;
//! without this rule such an entry at the head of the queue would block everybody behind it.

use super::{EntryId, Released, Throttle};
use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::vec::Vec;

impl Throttle {
    /// As [`Throttle::advance`], with the entries `absent` taken out of the queue for the moment. They keep their places, and a period in which
    /// only they wait grants slack. While the user is stopped nothing moves, as always. O(queue + absent · log absent).
    pub fn advance_past(&mut self, now: Instant, absent: &[EntryId]) -> Vec<Released> {
        if absent.is_empty() || self.stopped().is_some() || planted(Mutant::ThrottleWaitsForTheAbsent) {
            return self.advance(now);
        }
        let away: Vec<_> = self.queues_mut().map(|queue| queue.take_all(absent)).collect();
        let released = self.advance(now);
        self.queues_mut().zip(away).for_each(|(queue, away)| queue.put_back(away));
        self.check_invariants();
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Params, RecipientKey};
    use core::time::Duration;

    #[test]
    fn others_go_while_a_relay_is_absent_and_its_entries_keep_their_places() {
        let at = |minutes: u64| Instant::ZERO + Duration::from_secs(60 * minutes);
        let mut user = Throttle::new(Params { max_slack: 0, ..Params::default() }, at(0)).unwrap();
        for key in 0..4 {
            user.submit(at(0), &[RecipientKey(key)]);
        }
        let absent = [EntryId(2), EntryId(0), EntryId(77)];
        let released: Vec<_> = user.advance_past(at(5), &absent).iter().map(|r| (r.entry.0, r.at)).collect();
        assert_eq!(released, [(1, at(1)), (3, at(2))]);
        assert_eq!(user.held().map(|held| held.entry.0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(user.advance(at(6)).first().map(|r| r.entry), Some(EntryId(0)));
    }
}
