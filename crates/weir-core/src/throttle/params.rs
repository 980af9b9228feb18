//! The parameters of one user's throttle.
//!
//! [`PARAMS`] says everything that there is to know about each parameter. The configuration, a user's own parameters, the
//! stored state, the API and the command line read it there, so that a new parameter is a field, a default and a row here,
//! and the rule that uses it.

use super::LaneId;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

/// The throttle's parameters. [`Params::default`] is the paper's advice (section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// `rate`: one recipient in each such period, for mails with one recipient.
    pub rate_period: Duration,
    /// `multi_rate`: one recipient in each such period, for mails with several. Usually the same.
    pub multi_rate_period: Duration,
    /// How many recently mailed addresses are remembered; mail to them is not limited.
    pub working_set: usize,
    /// Which address leaves a full working set.
    pub replacement: Replacement,
    /// This many mails to new addresses may be sent at once after a quiet time.
    pub max_slack: u32,
    /// This many recipients of mails with several recipients may be sent to at once after a quiet time.
    pub max_multi_slack: u32,
    /// More entries than this in the delay queue stop the user.
    pub stop_at: u32,
    /// More mails than this in a day stop the user.
    pub messages_a_day: Option<u32>,
    /// More recipients outside the working set than this in a day stop the user. If recipients are classed, only strangers count.
    pub new_recipients_a_day: Option<u32>,
    /// Whether recipients are divided into classes.
    pub recipients: Recipients,
    /// Those whom the user has written to before.
    pub correspondents: ClassParams,
    /// Those of the user's own site.
    pub colleagues: ClassParams,
    /// This many networks that are new to the account may be used at once after a quiet time; 0 if networks do not count.
    pub new_networks: u32,
    /// `network_rate`: one new network in each such period.
    pub network_period: Duration,
    /// If more strangers than this wait because their mail came from a new network, the user is stopped.
    pub network_stop_at: u32,
}

/// Whether recipients are divided into classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recipients {
    /// As in the paper: a recipient who is not in the working set is new.
    #[default]
    Alike,
    /// Correspondents and colleagues have slack, drain and threshold of their own.
    Classed,
}

/// The numbers of a wider class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassParams {
    /// This many of them may be reached at once after a quiet time.
    pub slack: u32,
    /// One slack is granted in each such period in which nobody waits.
    pub rate_period: Duration,
    /// One recipient who waits is sent to in each such period.
    pub drain_period: Duration,
    /// If more than this wait, the user is stopped.
    pub stop_at: u32,
}

/// The parameters of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LaneParams {
    pub(super) slack: u32,
    pub(super) rate_period: Duration,
    pub(super) drain_period: Duration,
    pub(super) stop_at: u32,
    /// How many of those let through lately are remembered.
    pub(super) remembered: usize,
}

/// This many people of a class who were reached lately may be reached again without slack.
const PEOPLE_REMEMBERED: usize = 64;
/// This many networks are remembered as the user's.
const NETWORKS_REMEMBERED: usize = 64;

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
            recipients: Recipients::Alike,
            correspondents: ClassParams {
                slack: 20,
                rate_period: Duration::from_secs(120),
                drain_period: Duration::from_secs(50),
                stop_at: 21,
            },
            colleagues: ClassParams {
                slack: 22,
                rate_period: Duration::from_secs(180),
                drain_period: Duration::from_secs(50),
                stop_at: 21,
            },
            new_networks: 0,
            network_period: Duration::from_secs(3 * 3600),
            network_stop_at: 10,
        }
    }
}

/// Every parameter, in the order in which they are stored and shown.
pub static PARAMS: [Param; 21] = [
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
        // It is searched from one end, and an idle user must stay small.
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
        about: "A user with more recipients than this in the delay queue is stopped",
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
    Param {
        name: "recipients",
        field: "recipients",
        stored: "classed",
        about: "classed: colleagues, and people the user has written to before, have slack of their own; alike: whoever is not in the working set is new, as in the paper",
        short: "recipients",
        options: &["recipients"],
        kind: ParamKind::Choice(["alike", "classed"]),
        get: |p| u64::from(p.recipients == Recipients::Classed),
        set: |p, value| p.recipients = if value == 0 { Recipients::Alike } else { Recipients::Classed },
    },
    Param {
        name: "correspondent_slack",
        field: "correspondent_slack",
        stored: "correspondent_slack",
        about: "How many correspondents a quiet user may reach at once: people whom the user has written to before, or who have written to the user; the last 64 of them cost nothing",
        short: "correspondent slack",
        options: &["correspondent-slack"],
        kind: ParamKind::Count(0..=1_000_000),
        get: |p| p.correspondents.slack.into(),
        set: |p, value| p.correspondents.slack = count(value),
    },
    Param {
        name: "correspondent_rate",
        field: "correspondent_rate_per_min",
        stored: "correspondent_rate_ns",
        about: "How fast the slack for correspondents comes back while none of them waits",
        short: "correspondent rate",
        options: &["correspondent-rate"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.correspondents.rate_period),
        set: |p, value| p.correspondents.rate_period = Duration::from_nanos(value),
    },
    Param {
        name: "correspondent_drain",
        field: "correspondent_drain_per_min",
        stored: "correspondent_drain_ns",
        about: "How fast waiting mail to correspondents goes out",
        short: "correspondent drain",
        options: &["correspondent-drain"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.correspondents.drain_period),
        set: |p, value| p.correspondents.drain_period = Duration::from_nanos(value),
    },
    Param {
        name: "correspondent_stop_at",
        field: "correspondent_stop_at",
        stored: "correspondent_stop_at",
        about: "A user with more waiting correspondents than this is stopped",
        short: "correspondent stop above",
        options: &["correspondent-stop-at"],
        kind: ParamKind::Count(Params::STOP_AT),
        get: |p| p.correspondents.stop_at.into(),
        set: |p, value| p.correspondents.stop_at = count(value),
    },
    Param {
        name: "colleague_slack",
        field: "colleague_slack",
        stored: "colleague_slack",
        about: "How many colleagues a quiet user may reach at once: people at the site's own domains; the last 64 of them cost nothing",
        short: "colleague slack",
        options: &["colleague-slack"],
        kind: ParamKind::Count(0..=1_000_000),
        get: |p| p.colleagues.slack.into(),
        set: |p, value| p.colleagues.slack = count(value),
    },
    Param {
        name: "colleague_rate",
        field: "colleague_rate_per_min",
        stored: "colleague_rate_ns",
        about: "How fast the slack for colleagues comes back while none of them waits",
        short: "colleague rate",
        options: &["colleague-rate"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.colleagues.rate_period),
        set: |p, value| p.colleagues.rate_period = Duration::from_nanos(value),
    },
    Param {
        name: "colleague_drain",
        field: "colleague_drain_per_min",
        stored: "colleague_drain_ns",
        about: "How fast waiting mail to colleagues goes out",
        short: "colleague drain",
        options: &["colleague-drain"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.colleagues.drain_period),
        set: |p, value| p.colleagues.drain_period = Duration::from_nanos(value),
    },
    Param {
        name: "colleague_stop_at",
        field: "colleague_stop_at",
        stored: "colleague_stop_at",
        about: "A user with more waiting colleagues than this is stopped",
        short: "colleague stop above",
        options: &["colleague-stop-at"],
        kind: ParamKind::Count(Params::STOP_AT),
        get: |p| p.colleagues.stop_at.into(),
        set: |p, value| p.colleagues.stop_at = count(value),
    },
    Param {
        name: "new_networks",
        field: "new_networks",
        stored: "new_networks",
        about: "How many networks in which the account was never used before may be used at once to write to strangers; 0 is no limit",
        short: "new networks",
        options: &["new-networks"],
        kind: ParamKind::Count(0..=1_000_000),
        get: |p| p.new_networks.into(),
        set: |p, value| p.new_networks = count(value),
    },
    Param {
        name: "network_rate",
        field: "network_rate_per_min",
        stored: "network_rate_ns",
        about: "How often another new network is allowed, and how fast mail that waits for it goes out",
        short: "network rate",
        options: &["network-rate"],
        kind: ParamKind::Rate,
        get: |p| nanos(p.network_period),
        set: |p, value| p.network_period = Duration::from_nanos(value),
    },
    Param {
        name: "network_stop_at",
        field: "network_stop_at",
        stored: "network_stop_at",
        about: "A user with more strangers than this waiting because of new networks is stopped",
        short: "network stop above",
        options: &["network-stop-at"],
        kind: ParamKind::Count(Params::STOP_AT),
        get: |p| p.network_stop_at.into(),
        set: |p, value| p.network_stop_at = count(value),
    },
];

/// One parameter. Its value is a whole number, whose meaning its kind says.
#[derive(Debug)]
pub struct Param {
    /// Its key in the configuration.
    pub name: &'static str,
    /// Its field in the API's answers.
    pub field: &'static str,
    /// Its name in what is stored.
    pub stored: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// What it is called in a list of all of them.
    pub short: &'static str,
    /// Its options on the command line; all mean the same, and the first is shown.
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

    /// Whether anything is counted by the day.
    pub(super) fn is_fenced(&self) -> bool {
        self.messages_a_day.is_some() || self.new_recipients_a_day.is_some()
    }

    /// The parameters of a lane; the paper's queue has none.
    pub(super) fn lane(&self, lane: LaneId) -> LaneParams {
        let class = match lane {
            LaneId::Correspondents => self.correspondents,
            LaneId::Strangers | LaneId::Colleagues => self.colleagues,
            LaneId::Networks => {
                return LaneParams {
                    slack: self.new_networks,
                    rate_period: self.network_period,
                    drain_period: self.network_period,
                    stop_at: self.network_stop_at,
                    remembered: NETWORKS_REMEMBERED,
                };
            }
        };
        let ClassParams { slack, rate_period, drain_period, stop_at } = class;
        LaneParams { slack, rate_period, drain_period, stop_at, remembered: PEOPLE_REMEMBERED }
    }

    /// Every parameter that is out of its bounds.
    pub fn problems(&self) -> impl Iterator<Item = ParamsError> {
        let outside = PARAMS.iter().filter(|param| !param.is_within_bounds(self));
        outside.map(|param| ParamsError { name: param.name, kind: &param.kind })
    }

    /// Whether every parameter is within its bounds; otherwise the first that is not.
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

/// 0 stands for no cap, so a cap of 0 mails cannot be set.
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
