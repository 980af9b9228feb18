//! What an operator may choose about the throttle of one user, and the bounds of each number.

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

impl Params {
    /// Bounds of both periods.
    pub const PERIOD: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(366 * 86_400);
    /// Bounds of the working set: it is searched in a line, and an idle user must stay small.
    pub const WORKING_SET: RangeInclusive<usize> = 0..=128;
    /// Bounds of both maximal slacks.
    pub const SLACK: RangeInclusive<u32> = 0..=1_000_000;
    /// Bounds of the stop threshold.
    pub const STOP_AT: RangeInclusive<u32> = 1..=100_000;

    /// Every number that is out of its bounds.
    pub fn problems(&self) -> impl Iterator<Item = ParamsError> {
        let cap = |cap: Option<u32>| cap != Some(0);
        [
            ("rate", "between 1000/s and one in 366 days", Self::PERIOD.contains(&self.rate_period)),
            ("multi_rate", "between 1000/s and one in 366 days", Self::PERIOD.contains(&self.multi_rate_period)),
            ("working_set", "between 0 and 128", Self::WORKING_SET.contains(&self.working_set)),
            ("max_slack", "between 0 and 1000000", Self::SLACK.contains(&self.max_slack)),
            ("max_multi_slack", "between 0 and 1000000", Self::SLACK.contains(&self.max_multi_slack)),
            ("stop_at", "between 1 and 100000", Self::STOP_AT.contains(&self.stop_at)),
            ("messages_a_day", "at least 1; leave it out for no cap", cap(self.messages_a_day)),
            ("new_recipients_a_day", "at least 1; leave it out for no cap", cap(self.new_recipients_a_day)),
        ]
        .into_iter()
        .filter(|(_, _, within)| !within)
        .map(|(name, bounds, _)| ParamsError { name, bounds })
    }

    /// Whether every number is within its bounds; the first that is not.
    pub fn check(&self) -> Result<(), ParamsError> {
        self.problems().next().map_or(Ok(()), Err)
    }
}

/// A parameter out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamsError {
    /// The parameter.
    pub name: &'static str,
    /// What it may be.
    pub bounds: &'static str,
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.name, self.bounds)
    }
}

impl core::error::Error for ParamsError {}

#[cfg(test)]
mod tests {
    use super::*;
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
    }
}
