//! `[throttle]`: the parameters of Williamson's email virus throttle, for a user without a profile.

use super::reader::Section;
use crate::units::Rate;
use std::time::Duration;
use weir_core::throttle::{Params, Replacement};

pub(super) fn read(s: &mut Section<'_, '_>) -> Params {
    let rate = |count: f64, secs: u64| Rate { count, per: Duration::from_secs(secs) };
    let rates = || rate(0.003, 86_400)..=rate(1000.0, 1);
    let minute = rate(1.0, 60);
    let cap = |cap: u32| Some(cap).filter(|cap| *cap > 0);
    let about_rate = "How often a user may mail a new address, and how fast the delay queue drains";
    let about_multi_rate = "The same for recipients of mail to several people";
    let about_set = "How many recently mailed addresses a user may mail again without delay";
    let about_leaves = "Which address leaves a full working set: the oldest or the least recently used";
    let about_slack = "How many mails to new addresses a quiet user may send at once";
    let about_multi_slack = "How many recipients of mail to several people a quiet user may reach at once";
    let about_stop = "A user with more than so many recipients in the delay queue is stopped";
    let about_mails = "A user who sends more messages a day is stopped; 0 is no cap";
    let about_new = "A user who mails more new recipients a day is stopped; 0 is no cap";
    Params {
        rate_period: s.bounded("rate", minute, rates(), about_rate).period(),
        multi_rate_period: s.bounded("multi_rate", minute, rates(), about_multi_rate).period(),
        working_set: s.bounded("working_set", 5, 0..=128, about_set) as usize,
        replacement: s.choice("replacement", &[("fifo", Replacement::Fifo), ("lru", Replacement::Lru)], about_leaves),
        max_slack: s.bounded("max_slack", 1, Params::SLACK, about_slack),
        max_multi_slack: s.bounded("max_multi_slack", 15, Params::SLACK, about_multi_slack),
        stop_at: s.bounded("stop_at", 20, Params::STOP_AT, about_stop),
        messages_a_day: cap(s.bounded("messages_a_day", 0, 0..=u32::MAX, about_mails)),
        new_recipients_a_day: cap(s.bounded("new_recipients_a_day", 0, 0..=u32::MAX, about_new)),
    }
}
