//! `[throttle]`: the parameters of Williamson's email virus throttle, for persons, and beside them those of the
//! other profiles.

use super::calls::Calls;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::throttle::{PARAMS, Param, ParamKind, Params};
use weir_settings::Section;
use weir_settings::units::Rate;

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

/// Every row of the core's table as a key of this section.
fn params(s: &mut Section<'_, '_>, default: Params) -> Params {
    let mut params = default;
    for param in &PARAMS {
        let value = read(s, param, param.value(&default));
        param.set(&mut params, value);
    }
    params
}

fn read(s: &mut Section<'_, '_>, param: &'static Param, default: u64) -> u64 {
    let number = u32::try_from(default).unwrap_or(u32::MAX);
    let (name, about) = (param.name, param.about);
    match &param.kind {
        ParamKind::Rate => {
            let (slowest, fastest) = (rate(0.003, 86_400), rate(1000.0, 1));
            let period = s.bounded(name, written(Duration::from_nanos(default)), slowest..=fastest, about).period();
            u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
        }
        ParamKind::Count(bounds) => s.bounded(name, number, bounds.clone(), about).into(),
        ParamKind::Cap => s.bounded(name, number, 0..=u32::MAX, about).into(),
        ParamKind::Choice([first, second]) => s.choice(name, &[(*first, 0), (*second, 1)], about),
    }
}

fn rate(count: f64, secs: u64) -> Rate {
    Rate { count, per: Duration::from_secs(secs) }
}

/// A default as a rate: by the second or by the minute.
fn written(period: Duration) -> Rate {
    if period <= SECOND { rate(1.0 / period.as_secs_f64(), 1) } else { rate(60.0 / period.as_secs_f64(), 60) }
}
