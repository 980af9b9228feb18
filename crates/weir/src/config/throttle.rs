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
    let rates = || rate(1.0, 86_400)..=rate(1000.0, 1);
    let cap = |cap: u32| (cap > 0).then_some(cap);
    Params {
        rate_period: s
            .bounded(
                "rate",
                written(default.rate_period),
                rates(),
                "How often a user may mail a new address, and how fast the delay queue drains",
            )
            .period(),
        multi_rate_period: s
            .bounded(
                "multi_rate",
                written(default.multi_rate_period),
                rates(),
                "How fast credit for mail to several recipients grows",
            )
            .period(),
        working_set: s.bounded(
            "working_set",
            default.working_set as u32,
            0..=*Params::WORKING_SET.end() as u32,
            "How many recently mailed addresses a user may mail again without delay",
        ) as usize,
        replacement: s.choice(
            "replacement",
            &[("fifo", Replacement::Fifo), ("lru", Replacement::Lru)],
            "Which address leaves a full working set: the oldest or the least recently used",
        ),
        max_slack: s.bounded(
            "max_slack",
            default.max_slack,
            Params::SLACK,
            "How many mails to new addresses a quiet user may send at once",
        ),
        max_multi_slack: s.bounded(
            "max_multi_slack",
            default.max_multi_slack,
            Params::SLACK,
            "How many recipients of mail to several people a quiet user may reach at once",
        ),
        stop_at: s.bounded(
            "stop_at",
            default.stop_at,
            Params::STOP_AT,
            "A user with more than so many recipients in the delay queue is stopped",
        ),
        messages_a_day: cap(s.bounded(
            "messages_per_day_max",
            default.messages_a_day.unwrap_or(0),
            0..=u32::MAX,
            "Most messages of a user a day; 0 is no cap",
        )),
        new_recipients_a_day: cap(s.bounded(
            "new_recipients_per_day_max",
            default.new_recipients_a_day.unwrap_or(0),
            0..=u32::MAX,
            "Most new recipients of a user a day; 0 is no cap",
        )),
    }
}

fn rate(count: f64, secs: u64) -> Rate {
    Rate { count, per: Duration::from_secs(secs) }
}

/// A default as a rate: by the second or by the minute.
fn written(period: Duration) -> Rate {
    if period <= SECOND { rate(1.0 / period.as_secs_f64(), 1) } else { rate(60.0 / period.as_secs_f64(), 60) }
}
