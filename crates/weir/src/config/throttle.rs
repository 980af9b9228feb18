//! `[throttle]`: the parameters of Williamson's email virus throttle, for a user without a profile.

use super::reader::Section;
use crate::units::Rate;
use std::time::Duration;

/// Which address leaves a full working set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replacement {
    Fifo,
    Lru,
}

#[derive(Debug, Clone)]
pub(crate) struct Throttle {
    pub(crate) rate: Rate,
    pub(crate) multi_rate: Rate,
    pub(crate) working_set: u32,
    pub(crate) replacement: Replacement,
    pub(crate) max_slack: u32,
    pub(crate) max_multi_slack: u32,
    pub(crate) stop_at: u32,
    pub(crate) messages_per_day_max: u32,
    pub(crate) new_recipients_per_day_max: u32,
}

impl Throttle {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Throttle {
        let rate = |count: f64, secs: u64| Rate { count, per: Duration::from_secs(secs) };
        let rates = || rate(1.0, 86_400)..=rate(1000.0, 1);
        Throttle {
            rate: s.bounded(
                "rate",
                rate(1.0, 60),
                rates(),
                "How often a user may mail a new address, and how fast the delay queue drains",
            ),
            multi_rate: s.bounded(
                "multi_rate",
                rate(1.0, 60),
                rates(),
                "How fast credit for mail to several recipients grows",
            ),
            working_set: s.bounded(
                "working_set",
                5,
                0..=10_000,
                "How many recently mailed addresses a user may mail again without delay",
            ),
            replacement: s.choice(
                "replacement",
                &[("fifo", Replacement::Fifo), ("lru", Replacement::Lru)],
                "Which address leaves a full working set: the oldest or the least recently used",
            ),
            max_slack: s.bounded(
                "max_slack",
                1,
                0..=10_000,
                "How many mails to new addresses a quiet user may send at once",
            ),
            max_multi_slack: s.bounded(
                "max_multi_slack",
                15,
                0..=100_000,
                "How many recipients of mail to several people a quiet user may reach at once",
            ),
            stop_at: s.bounded(
                "stop_at",
                20,
                1..=1_000_000,
                "A user with more than so many recipients in the delay queue is stopped",
            ),
            messages_per_day_max: s.bounded(
                "messages_per_day_max",
                0,
                0..=u32::MAX,
                "Most messages of a user a day; 0 is no cap",
            ),
            new_recipients_per_day_max: s.bounded(
                "new_recipients_per_day_max",
                0,
                0..=u32::MAX,
                "Most new recipients of a user a day; 0 is no cap",
            ),
        }
    }
}
