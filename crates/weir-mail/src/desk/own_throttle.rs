//! Throttle parameters of one user, as they are asked for: rates by the minute, no field for what stays.

use super::DeskError;
use crate::own::Own;
use crate::throttle::overridden;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::throttle::Params;

/// What shall be different for one user. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnThrottle {
    /// First forget everything that was different until now.
    pub reset: bool,
    /// Recipients a minute, for mail to one.
    pub rate_per_min: Option<f64>,
    /// Recipients a minute, for mail to several.
    pub multi_rate_per_min: Option<f64>,
    /// Addresses remembered.
    pub working_set: Option<u32>,
    /// Whether the least recently mailed address leaves a full working set, instead of the oldest.
    pub lru: Option<bool>,
    /// Mails to new addresses at once.
    pub max_slack: Option<u32>,
    /// Recipients of mail to several at once.
    pub max_multi_slack: Option<u32>,
    /// More in the delay queue stop the user.
    pub stop_at: Option<u32>,
    /// Most messages a day; 0 is no cap.
    pub messages_a_day: Option<u32>,
    /// Most new recipients a day; 0 is no cap.
    pub new_recipients_a_day: Option<u32>,
}

impl OwnThrottle {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == OwnThrottle::default()
    }

    /// Changes `own` so, if every number lies within its bounds over the profile's `params`.
    pub(super) fn apply(&self, own: &mut Own, params: Params) -> Result<(), DeskError> {
        if self.reset {
            own.forget_parameters();
        }
        for (name, rate) in [("rate_ns", self.rate_per_min), ("multi_rate_ns", self.multi_rate_per_min)] {
            if let Some(rate) = rate {
                own.set(name, period_ns(rate)?);
            }
        }
        let numbers = [
            ("working_set", self.working_set),
            ("max_slack", self.max_slack),
            ("max_multi_slack", self.max_multi_slack),
            ("stop_at", self.stop_at),
        ];
        numbers.into_iter().filter_map(|(name, value)| Some((name, value?))).for_each(|(name, v)| own.set(name, v));
        if let Some(lru) = self.lru {
            own.set("lru", lru);
        }
        for (name, cap) in
            [("messages_a_day", self.messages_a_day), ("new_recipients_a_day", self.new_recipients_a_day)]
        {
            if let Some(cap) = cap {
                own.set(name, (cap > 0).then_some(cap));
            }
        }
        self.check(params)
    }

    /// Stored parameters out of bounds would be ignored as a whole: refuse them here, each by name.
    fn check(&self, params: Params) -> Result<(), DeskError> {
        let period = |rate: Option<f64>, otherwise| match rate {
            Some(rate) => period_ns(rate).map(Duration::from_nanos),
            None => Ok(otherwise),
        };
        let asked = Params {
            rate_period: period(self.rate_per_min, params.rate_period)?,
            multi_rate_period: period(self.multi_rate_per_min, params.multi_rate_period)?,
            working_set: self.working_set.map_or(params.working_set, |n| n as usize),
            max_slack: self.max_slack.unwrap_or(params.max_slack),
            max_multi_slack: self.max_multi_slack.unwrap_or(params.max_multi_slack),
            stop_at: self.stop_at.unwrap_or(params.stop_at),
            ..params
        };
        let problems: Vec<String> = asked.problems().map(|problem| problem.to_string()).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(DeskError::invalid(
            problems.join("; "),
            "docs/config.md has the bounds of every parameter under [throttle]",
        ))
    }
}

/// The parameters in force for `own` over the profile's.
pub(super) fn in_force(own: &Own, profile: Params) -> Params {
    overridden(profile, &own.write())
}

fn period_ns(rate_per_min: f64) -> Result<u64, DeskError> {
    let seconds = 60.0 / rate_per_min;
    let period = Duration::try_from_secs_f64(seconds).ok().filter(|period| Params::PERIOD.contains(period));
    let ns = period.and_then(|period| u64::try_from(period.as_nanos()).ok());
    ns.ok_or_else(|| {
        let what = format!("{rate_per_min} a minute is not a possible rate");
        DeskError::invalid(what, "a rate lies between one in 366 days and 1000 a second")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_in_force_and_the_rest_is_the_profiles() {
        let mut own = Own::read("{\"max_slack\":9}");
        let asked = OwnThrottle {
            rate_per_min: Some(5.0),
            stop_at: Some(50),
            messages_a_day: Some(100),
            new_recipients_a_day: Some(0),
            lru: Some(true),
            ..OwnThrottle::default()
        };
        let profile = Params { new_recipients_a_day: Some(3), ..Params::default() };
        asked.apply(&mut own, profile).unwrap();
        let params = in_force(&own, profile);
        assert_eq!(params.rate_period, Duration::from_secs(12));
        assert_eq!((params.stop_at, params.max_slack, params.max_multi_slack), (50, 9, 15));
        assert_eq!((params.messages_a_day, params.new_recipients_a_day), (Some(100), None));
        OwnThrottle { reset: true, ..OwnThrottle::default() }.apply(&mut own, profile).unwrap();
        assert_eq!(in_force(&own, profile), profile);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        let refused = |asked: OwnThrottle| asked.apply(&mut Own::default(), Params::default()).unwrap_err().to_string();
        let none = OwnThrottle::default();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e18, 1e-18] {
            assert!(refused(OwnThrottle { rate_per_min: Some(rate), ..none.clone() }).contains("not a possible rate"));
        }
        let both = OwnThrottle { stop_at: Some(0), working_set: Some(129), ..none };
        let said = refused(both);
        assert!(said.contains("stop_at must be") && said.contains("working_set must be"), "{said}");
    }
}
