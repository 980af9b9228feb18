//! `[throttle]`: the parameters of Williamson's email virus throttle, for persons, and beside them those of the
//! other profiles.

use super::reader::Section;
use crate::units::Rate;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::throttle::{Params, Replacement};

#[derive(Debug, Clone)]
pub(crate) struct Throttle {
    pub(crate) learn_only: bool,
    /// Of a person, which is everybody without another profile.
    pub(crate) person: Params,
    pub(crate) list: Params,
    pub(crate) application: Params,
}

impl Throttle {
    /// `[throttle]` itself; the other profiles are sections of their own.
    pub(super) fn read(s: &mut Section<'_, '_>) -> (bool, Params) {
        s.nested("list");
        s.nested("application");
        let learn_only = s.flag(
            "learn_only",
            false,
            "Hold nothing and stop nobody; only record what the throttle would have done (`weir held learned`)",
        );
        (learn_only, params(s, Params::default()))
    }

    /// Somebody who writes to many people by hand: newsletters, a club's secretary.
    pub(super) fn read_list(s: &mut Section<'_, '_>) -> Params {
        let paper = Params::default();
        params(s, Params { max_multi_slack: 500, multi_rate_period: SECOND, stop_at: 1_000, ..paper })
    }

    /// A program: many single mails, each to somebody else.
    pub(super) fn read_application(s: &mut Section<'_, '_>) -> Params {
        let (rate_period, multi_rate_period) = (SECOND, SECOND);
        params(s, Params { rate_period, multi_rate_period, max_slack: 60, stop_at: 300, ..Params::default() })
    }

    /// The profiles that have parameters of their own, by name.
    pub(crate) fn profiles(&self) -> BTreeMap<String, Params> {
        [("list", self.list), ("application", self.application)].map(|(name, params)| (name.to_owned(), params)).into()
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn params(s: &mut Section<'_, '_>, default: Params) -> Params {
    let rates = || rate(0.003, 86_400)..=rate(1000.0, 1);
    let cap = |cap: u32| (cap > 0).then_some(cap);
    let about_rate = "How often a user may mail a new address, and how fast the delay queue drains";
    let about_multi_rate = "The same for recipients of mail to several people";
    let about_set = "How many recently mailed addresses a user may mail again without delay";
    let about_leaves = "Which address leaves a full working set: the oldest or the least recently used";
    let about_slack = "How many mails to new addresses a quiet user may send at once";
    let about_multi_slack = "How many recipients of mail to several people a quiet user may reach at once";
    let about_stop = "A user with more than so many recipients in the delay queue is stopped";
    let about_mails = "A user who sends more messages a day is stopped; 0 is no cap";
    let about_new = "A user who mails more new recipients a day is stopped; 0 is no cap";
    let (rate, multi_rate) = (written(default.rate_period), written(default.multi_rate_period));
    let (mails, new) = (default.messages_a_day.unwrap_or(0), default.new_recipients_a_day.unwrap_or(0));
    Params {
        rate_period: s.bounded("rate", rate, rates(), about_rate).period(),
        multi_rate_period: s.bounded("multi_rate", multi_rate, rates(), about_multi_rate).period(),
        working_set: s.bounded("working_set", default.working_set as u32, 0..=128, about_set) as usize,
        replacement: s.choice("replacement", &[("fifo", Replacement::Fifo), ("lru", Replacement::Lru)], about_leaves),
        max_slack: s.bounded("max_slack", default.max_slack, Params::SLACK, about_slack),
        max_multi_slack: s.bounded("max_multi_slack", default.max_multi_slack, Params::SLACK, about_multi_slack),
        stop_at: s.bounded("stop_at", default.stop_at, Params::STOP_AT, about_stop),
        messages_a_day: cap(s.bounded("messages_a_day", mails, 0..=u32::MAX, about_mails)),
        new_recipients_a_day: cap(s.bounded("new_recipients_a_day", new, 0..=u32::MAX, about_new)),
    }
}

fn rate(count: f64, secs: u64) -> Rate {
    Rate { count, per: Duration::from_secs(secs) }
}

/// A default as a rate: by the second or by the minute.
fn written(period: Duration) -> Rate {
    if period <= SECOND { rate(1.0 / period.as_secs_f64(), 1) } else { rate(60.0 / period.as_secs_f64(), 60) }
}
