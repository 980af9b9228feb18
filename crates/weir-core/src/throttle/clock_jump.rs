//! Handles a clock that was set forwards or backwards, and long times in which nothing ran.
//!
//! The shell normally handles every queue within moments of its time. So if an entry was due long ago, either nothing was running at that
//! time, or the clock was set ahead. The throttle cannot tell these apart, and the careful answer is the same for both: it goes on from now
//! with one entry a period, instead of releasing everything at once. If the clock was set back, all stored times are moved back with it;
//! otherwise nothing would be released until the clock has caught up.

use super::{State, Stop, Throttle};
use crate::time::Instant;
use core::time::Duration;

impl Throttle {
    /// The clock shows `now`; normally an entry is released within `tolerance` of its time. In each line in which an entry has been due for
    /// longer, one entry is released now and the next one a period later. This only sets times; [`Throttle::advance`] releases the entries.
    pub fn mind_gap(&mut self, now: Instant, tolerance: Duration) {
        let late = |due: Instant| due + tolerance < now;
        if self.queue.head().is_some_and(|head| late(self.periods.end(head.kind))) {
            self.periods.end_now(now);
        }
        let lanes = self.wider.iter_mut().flat_map(|lanes| lanes.iter_mut());
        lanes.filter(|lane| lane.next_deadline().is_some_and(late)).for_each(|lane| lane.end_period(now));
    }

    /// The clock shows `now`. If that is more than `tolerance` before what it last showed, it was set back: all times move with it, so
    /// that everything waits exactly as much longer as it would have.
    pub fn turn_back(&mut self, now: Instant, tolerance: Duration) {
        if self.now <= now + tolerance {
            return;
        }
        let by = self.now.since(now);
        self.now = now;
        self.periods.earlier(by);
        self.wider.iter_mut().flat_map(|lanes| lanes.iter_mut()).for_each(|lane| lane.earlier(by));
        if let State::Stopped(stop) = self.state {
            self.state = State::Stopped(Stop { since: stop.since.min(now), ..stop });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Class, Mail, Params, Recipient, RecipientKey, Recipients};
    use alloc::vec::Vec;

    const TOLERANCE: Duration = Duration::from_secs(60);

    fn at(minutes: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(60 * minutes)
    }

    /// A user with mail to ten strangers and ten colleagues waiting.
    fn waiting() -> Throttle {
        let mut params =
            Params { recipients: Recipients::Classed, max_slack: 0, max_multi_slack: 0, ..Params::default() };
        params.colleagues.slack = 0;
        let mut user = Throttle::new(params, at(1_000)).unwrap();
        for key in 0..20 {
            let class = if key < 10 { Class::Stranger } else { Class::Colleague };
            let to = [Recipient { key: RecipientKey(key), class }];
            user.submit_mail(at(1_000), &Mail { to: &to, from: None });
        }
        assert_eq!(user.held_count(), 20);
        user
    }

    fn let_go(user: &mut Throttle, now: Instant) -> usize {
        user.mind_gap(now, TOLERANCE);
        user.advance(now).len()
    }

    #[test]
    fn a_clock_set_ahead_lets_one_entry_of_each_line_go_and_then_one_a_period() {
        let mut user = waiting();
        assert_eq!(let_go(&mut user, at(9_000)), 2, "one stranger and one colleague");
        let gone: Vec<usize> = (1..=9).map(|minute| let_go(&mut user, at(9_000 + minute))).collect();
        assert!(gone.iter().all(|gone| (1..=3).contains(gone)), "{gone:?}");
        assert_eq!(user.held_count(), 0);
    }

    #[test]
    fn who_looks_in_time_sees_no_difference() {
        let (mut user, mut plain) = (waiting(), waiting());
        for second in (0..1_000).step_by(7) {
            let now = at(1_000) + Duration::from_secs(second);
            user.mind_gap(now, TOLERANCE);
            user.turn_back(now, TOLERANCE);
            assert_eq!(user.advance(now), plain.advance(now));
        }
        assert_eq!(user, plain);
    }

    #[test]
    fn a_clock_set_back_changes_nothing_for_those_who_wait() {
        let mut user = waiting();
        user.turn_back(at(10), TOLERANCE);
        assert_eq!(user.next_deadline(), Some(at(10) + Duration::from_secs(50)));
        assert_eq!([11, 12, 13].map(|minute| let_go(&mut user, at(minute))), [2, 2, 2]);
        let mut stopped = waiting();
        stopped.stop(at(1_001));
        stopped.turn_back(at(10), TOLERANCE);
        assert_eq!(stopped.stopped().map(|stop| stop.since), Some(at(10)));
    }
}
