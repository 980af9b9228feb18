//! What an operator may choose about the throttle of one user.
//!
//! [`PARAMS`] says everything that there is to know about each parameter. The configuration, a user's own parameters, the
//! stored state, the API and the command line read it there, so that a new parameter is a field, a default and a row here,
//! and the rule that uses it.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

/// The throttle's parameters. [`Params::default`] is the paper's advice (section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// `rate`: one recipient each such period, for mails with one recipient.
    pub rate_period: Duration,
    /// `multi_rate`: one recipient each such period, for mails with several. Mostly the same.
    pub multi_rate_period: Duration,
    /// How many recently mailed addresses are remembered; mail to them is not limited.
    pub working_set: usize,
    /// Which address leaves a full working set.
    pub replacement: Replacement,
    /// So many mails to new addresses may go at once after a quiet time.
    pub max_slack: u32,
    /// So many recipients of mails with several recipients may go at once after a quiet time.
    pub max_multi_slack: u32,
    /// More entries than this in the delay queue stop the user.
    pub stop_at: u32,
    /// More mails than this in a day stop the user.
    pub messages_a_day: Option<u32>,
    /// More recipients outside the working set than this in a day stop the user.
    pub new_recipients_a_day: Option<u32>,
}

/// Which address leaves a full working set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replacement {
    /// First in, first out: the address that entered first.
    #[default]
    Fifo,
    /// The address that was mailed least recently.
    Lru,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            rate_period: Duration::from_secs(60),
            multi_rate_period: Duration::from_secs(60),
            working_set: 5,
            replacement: Replacement::Fifo,
            max_slack: 1,
            max_multi_slack: 15,
            stop_at: 20,
            messages_a_day: None,
            new_recipients_a_day: None,
        }
    }
}

/// Every parameter, in the order in which they are stored and shown.
pub static PARAMS: [Param; 9] = [
    Param {
        name: "rate",
        field: "rate_per_min",
        stored: "rate_ns",
        about: "How often a user may mail a new address, and how fast the delay queue drains",
        short: "rate",
        options: &["rate"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.rate_period),
        set: |p, value| p.rate_period = Duration::from_nanos(value),
    },
    Param {
        name: "multi_rate",
        field: "multi_rate_per_min",
        stored: "multi_rate_ns",
        about: "The same for recipients of mail to several people",
        short: "multi-rate",
        options: &["multi-rate"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.multi_rate_period),
        set: |p, value| p.multi_rate_period = Duration::from_nanos(value),
    },
    Param {
        name: "working_set",
        field: "working_set",
        stored: "working_set",
        about: "How many recently mailed addresses a user may mail again without delay",
        short: "working set",
        options: &["working-set"],
        // It is searched in a line, and an idle user must stay small.
        kind: ParamKind::Count(0..=128),
        get: |p| p.working_set as u64,
        set: |p, value| p.working_set = usize::try_from(value).unwrap_or(usize::MAX),
    },
    Param {
        name: "replacement",
        field: "replacement",
        stored: "lru",
        about: "Which address leaves a full working set: the oldest or the least recently used",
        short: "replacement",
        options: &["replacement"],
        kind: ParamKind::Choice(["fifo", "lru"]),
        get: |p| u64::from(p.replacement == Replacement::Lru),
        set: |p, value| p.replacement = if value == 0 { Replacement::Fifo } else { Replacement::Lru },
    },
    Param {
        name: "max_slack",
        field: "max_slack",
        stored: "max_slack",
        about: "How many mails to new addresses a quiet user may send at once",
        short: "slack",
        options: &["max-slack"],
        kind: ParamKind::Count(0..=1_000_000),
        get: |p| p.max_slack.into(),
        set: |p, value| p.max_slack = count(value),
    },
    Param {
        name: "max_multi_slack",
        field: "max_multi_slack",
        stored: "max_multi_slack",
        about: "How many recipients of mail to several people a quiet user may reach at once",
        short: "multi-slack",
        options: &["max-multi-slack"],
        kind: ParamKind::Count(0..=1_000_000),
        get: |p| p.max_multi_slack.into(),
        set: |p, value| p.max_multi_slack = count(value),
    },
    Param {
        name: "stop_at",
        field: "stop_at",
        stored: "stop_at",
        about: "A user with more than so many recipients in the delay queue is stopped",
        short: "stop above",
        options: &["stop-at"],
        kind: ParamKind::Count(Params::STOP_AT),
        get: |p| p.stop_at.into(),
        set: |p, value| p.stop_at = count(value),
    },
    Param {
        name: "messages_a_day",
        field: "messages_a_day",
        stored: "messages_a_day",
        about: "A user who sends more messages a day is stopped; 0 is no cap",
        short: "messages a day",
        options: &["messages-per-day", "messages-a-day"],
        kind: ParamKind::Cap,
        get: |p| of_cap(p.messages_a_day),
        set: |p, value| p.messages_a_day = to_cap(value),
    },
    Param {
        name: "new_recipients_a_day",
        field: "new_recipients_a_day",
        stored: "new_recipients_a_day",
        about: "A user who mails more new recipients a day is stopped; 0 is no cap",
        short: "new recipients a day",
        options: &["new-recipients-per-day", "new-recipients-a-day"],
        kind: ParamKind::Cap,
        get: |p| of_cap(p.new_recipients_a_day),
        set: |p, value| p.new_recipients_a_day = to_cap(value),
    },
];

/// One parameter. Its value is a whole number, whose meaning its kind says.
#[derive(Debug)]
pub struct Param {
    /// Its key in the configuration.
    pub name: &'static str,
    /// Its field in the API's answers.
    pub field: &'static str,
    /// Its field in what is stored.
    pub stored: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// What it is called in a list of all of them.
    pub short: &'static str,
    /// Its options on the command line; all mean the same, the first is shown.
    pub options: &'static [&'static str],
    /// What its value means, and its bounds.
    pub kind: ParamKind,
    get: fn(&Params) -> u64,
    set: fn(&mut Params, u64),
}

/// What the value of a parameter means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// The period of a rate, in nanoseconds; within [`Params::PERIOD`].
    Rate,
    /// A number within these bounds.
    Count(RangeInclusive<u32>),
    /// A 32-bit number; 0 is no cap.
    Cap,
    /// 0 or 1, for one of these words.
    Choice([&'static str; 2]),
}

impl Param {
    /// The value in `params`.
    pub fn value(&self, params: &Params) -> u64 {
        (self.get)(params)
    }

    /// Sets the value in `params`; [`Params::check`] says whether it is within bounds.
    pub fn set(&self, params: &mut Params, value: u64) {
        (self.set)(params, value);
    }

    fn is_within_bounds(&self, params: &Params) -> bool {
        let value = self.value(params);
        match &self.kind {
            ParamKind::Rate => Params::PERIOD.contains(&Duration::from_nanos(value)),
            ParamKind::Count(bounds) => u32::try_from(value).is_ok_and(|value| bounds.contains(&value)),
            ParamKind::Cap => u32::try_from(value).is_ok(),
            ParamKind::Choice(_) => value <= 1,
        }
    }
}

impl Params {
    /// Bounds of all periods.
    pub const PERIOD: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(366 * 86_400);

    /// Bounds of the stop threshold.
    pub const STOP_AT: RangeInclusive<u32> = 1..=100_000;

    /// Every number that is out of its bounds.
    pub fn problems(&self) -> impl Iterator<Item = ParamsError> {
        let outside = PARAMS.iter().filter(|param| !param.is_within_bounds(self));
        outside.map(|param| ParamsError { name: param.name, kind: &param.kind })
    }

    /// Whether every number is within its bounds; the first that is not.
    pub fn check(&self) -> Result<(), ParamsError> {
        self.problems().next().map_or(Ok(()), Err)
    }
}

fn nanos(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

fn count(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A cap of nothing at all is out of bounds: 0 stands for no cap.
fn of_cap(cap: Option<u32>) -> u64 {
    match cap {
        None => 0,
        Some(0) => u64::MAX,
        Some(cap) => cap.into(),
    }
}

fn to_cap(value: u64) -> Option<u32> {
    (value > 0).then(|| count(value))
}

/// A parameter out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamsError {
    /// The parameter.
    pub name: &'static str,
    /// What it may be; prints as its bounds.
    pub kind: &'static ParamKind,
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.name, self.kind)
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Rate => f.write_str("between 1000/s and one in 366 days"),
            ParamKind::Count(bounds) => write!(f, "between {} and {}", bounds.start(), bounds.end()),
            ParamKind::Cap => f.write_str("at least 1; leave it out for no cap"),
            ParamKind::Choice([first, second]) => write!(f, "{first} or {second}"),
        }
    }
}

impl core::error::Error for ParamsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    #[test]
    fn all_problems_are_reported_at_once() {
        assert_eq!(Params::default().check(), Ok(()));
        let bad = Params {
            rate_period: Duration::ZERO,
            multi_rate_period: Duration::MAX,
            working_set: 129,
            max_slack: u32::MAX,
            stop_at: 0,
            messages_a_day: Some(0),
            ..Params::default()
        };
        let names: Vec<_> = bad.problems().map(|p| p.name).collect();
        assert_eq!(names, ["rate", "multi_rate", "working_set", "max_slack", "stop_at", "messages_a_day"]);
        let said: Vec<_> = bad.problems().skip(2).map(|p| p.to_string()).collect();
        assert_eq!(said[0], "working_set must be between 0 and 128");
        assert_eq!(said[3], "messages_a_day must be at least 1; leave it out for no cap");
    }

    #[test]
    fn every_row_reads_what_it_writes_and_touches_nothing_else() {
        for param in &PARAMS {
            let value = match &param.kind {
                ParamKind::Rate => 7_000_000_000,
                ParamKind::Count(_) | ParamKind::Cap => 77,
                ParamKind::Choice(_) => 1,
            };
            let mut params = Params::default();
            param.set(&mut params, value);
            let changed: Vec<_> = PARAMS.iter().filter(|p| p.value(&params) != p.value(&Params::default())).collect();
            assert_eq!(changed.iter().map(|p| p.name).collect::<Vec<_>>(), [param.name]);
            assert_eq!((param.value(&params), params.check()), (value, Ok(())));
        }
    }
}
