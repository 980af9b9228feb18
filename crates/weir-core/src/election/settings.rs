//! The timers of the election, their bounds, and the worst cases that follow from them.
//!
//! With the defaults a killed leader is replaced in 3.25 s at worst on a network that loses nothing (its
//! lease must run out first), and one that resigns in 0.75 s.

use alloc::vec::Vec;
use core::time::Duration;

/// The election's settings; the paper's letters are in the descriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// T: how long a phase waits for replies.
    pub reply_wait: Duration,
    /// T1: time between two beats of "leader alive".
    pub beat: Duration,
    /// n: after this many missed beats the leader counts as dead.
    pub missed_beats: u32,
    /// T2: how long an aborted candidate waits.
    pub abort_wait: Duration,
    /// T3: how often a follower checks whether beats are missing.
    pub check: Duration,
    /// L: how long a lease is valid without renewal.
    pub lease: Duration,
    /// How many other nodes are remembered; further ones are refused.
    pub members_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reply_wait: Duration::from_millis(250),
            beat: Duration::from_millis(500),
            missed_beats: 3,
            abort_wait: Duration::from_millis(1_000),
            check: Duration::from_millis(250),
            lease: Duration::from_millis(3_000),
            members_max: 1_024,
        }
    }
}

impl Settings {
    /// Everything that is wrong with these settings; none if they can be used.
    pub fn problems(&self) -> Vec<SettingProblem> {
        let minute = Duration::from_secs(60);
        let ms = Duration::from_millis;
        let rules = [
            (SettingProblem::ReplyWait, within(self.reply_wait, ms(10), minute)),
            (SettingProblem::Beat, within(self.beat, ms(20), minute)),
            (SettingProblem::MissedBeats, (1..=100).contains(&self.missed_beats)),
            (SettingProblem::AbortWait, within(self.abort_wait, self.phases(), minute * 10)),
            (SettingProblem::Check, within(self.check, ms(1), self.silence())),
            (SettingProblem::Lease, within(self.lease, self.reply_wait.saturating_mul(6).max(ms(100)), minute * 10)),
            (SettingProblem::MembersMax, (1..=65_536).contains(&self.members_max)),
        ];
        rules.into_iter().filter(|(_, kept)| !kept).map(|(problem, _)| problem).collect()
    }

    /// n·T1: silence that means a dead leader.
    pub fn silence(&self) -> Duration {
        self.beat.saturating_mul(self.missed_beats)
    }

    /// L − L/5 from the moment of asking: how long a leader acts on one grant, by its own clock. The
    /// difference to L covers a clock that is up to a fifth slower than the database's.
    pub fn acting_time(&self) -> Duration {
        self.lease.saturating_sub(self.lease / 5)
    }

    /// L/3: when to renew.
    pub fn renew_after(&self) -> Duration {
        self.lease / 3
    }

    /// L/6: when an unanswered order to the database is repeated.
    pub fn ask_again_after(&self) -> Duration {
        self.lease / 6
    }

    /// After this long without a message a member is forgotten.
    pub fn forget_after(&self) -> Duration {
        self.silence().saturating_mul(10)
    }

    /// n·T1 + 2T: how long a machine that the database saw at work counts as there ([`LeaseAnswer`](super::LeaseAnswer)'s
    /// `others`). This is shorter than the silence and the phases before a new leader asks for the lease, because a leader that is
    /// dead must not count: otherwise the last machine left would wait for its answer.
    pub fn counts_as_there(&self) -> Duration {
        self.silence().saturating_add(self.reply_wait.saturating_mul(2))
    }

    /// The longest time without an acting leader after a leader was killed, if no message is lost: the
    /// election and the end of the dead leader's lease run at the same time, then one more try.
    pub fn fail_over_max(&self) -> Duration {
        let election = self.silence().saturating_add(self.check).saturating_add(self.phases());
        election.max(self.lease).saturating_add(self.reply_wait)
    }

    /// The same after a leader resigned: release, the successor's victory, one more try for the lease.
    pub fn hand_over_max(&self) -> Duration {
        self.phases()
    }

    /// After the last fault the best reachable node acts within 2·(n·T1 + 3T + T2 + L).
    pub fn settle_max(&self) -> Duration {
        let once = self.silence().saturating_add(self.phases()).saturating_add(self.abort_wait);
        once.saturating_add(self.lease).saturating_mul(2)
    }

    /// 3T: the three phases of a candidacy.
    fn phases(&self) -> Duration {
        self.reply_wait.saturating_mul(3)
    }
}

fn within(value: Duration, low: Duration, high: Duration) -> bool {
    low <= value && value <= high
}

/// A setting out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingProblem {
    /// T is not within 10 ms … 60 s.
    ReplyWait,
    /// T1 is not within 20 ms … 60 s.
    Beat,
    /// n is not within 1 … 100.
    MissedBeats,
    /// T2 is not within 3T … 10 min: the aborter's own election takes 3T.
    AbortWait,
    /// T3 is not within 1 ms … n·T1.
    Check,
    /// L is not within 6T (and 100 ms) … 10 min: a renewal must fit three tries.
    Lease,
    /// The member table is not within 1 … 65 536.
    MembersMax,
}

impl core::fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SettingProblem::ReplyWait => "the reply wait T must be within 10 ms and 60 s",
            SettingProblem::Beat => "the beat T1 must be within 20 ms and 60 s",
            SettingProblem::MissedBeats => "the missed beats n must be within 1 and 100",
            SettingProblem::AbortWait => "the wait after an abort T2 must be within 3T and 10 min",
            SettingProblem::Check => "the follower's check T3 must be within 1 ms and n times T1",
            SettingProblem::Lease => "the lease L must be within 6T (at least 100 ms) and 10 min",
            SettingProblem::MembersMax => "the member table must hold within 1 and 65536 nodes",
        })
    }
}

impl core::error::Error for SettingProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_leader_does_not_count_any_more_when_another_asks_for_the_lease() {
        let settings = Settings::default();
        assert!(settings.counts_as_there() < settings.silence() + settings.phases());
    }

    #[test]
    fn the_defaults_fail_over_in_time() {
        let settings = Settings::default();
        assert_eq!(settings.problems(), []);
        assert_eq!(settings.fail_over_max(), Duration::from_millis(3_250));
        assert_eq!(settings.hand_over_max(), Duration::from_millis(750));
        assert_eq!(settings.settle_max(), Duration::from_millis(12_500));
        assert_eq!(settings.acting_time(), Duration::from_millis(2_400));
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let zero = Duration::ZERO;
        let settings = Settings {
            reply_wait: Duration::MAX,
            beat: Duration::MAX,
            missed_beats: 0,
            abort_wait: Duration::MAX,
            check: zero,
            lease: zero,
            members_max: 0,
        };
        assert_eq!(settings.problems().len(), 7);
        assert_eq!(settings.settle_max(), Duration::MAX);
        let slow = Settings { reply_wait: Duration::from_secs(2), ..Settings::default() };
        assert_eq!(slow.problems(), [SettingProblem::AbortWait, SettingProblem::Lease]);
    }
}
