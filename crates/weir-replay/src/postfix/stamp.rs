//! The time of a log line, with or without a year.
//!
//! Traditional syslog writes no year. Two rules recover it. Within a log, each line lies in the year that brings it
//! nearest to the line before, so that January after December is the next year and December after January (logs
//! given in the wrong order) the one before. And the latest line of the log is as late as it can be without lying
//! more than a day after the log was last written.

use crate::wall::{Civil, TimeOfDay, Wall, digits, month, parse_rfc3339};

/// The time of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// RFC 3339: a moment.
    Full(Wall),
    /// `Mar  1 12:30:05`: the year is `turn` years after that of the log's first line.
    Yearless { turn: i32, month: u32, day: u32, time: TimeOfDay },
}

/// Where the years of one log lie.
#[derive(Debug, Default)]
pub(crate) struct Years {
    /// Turn and day of the line before.
    before: Option<(i32, i32)>,
    /// Turn, month, day and time of the latest line.
    latest: Option<(i32, u32, u32, u32)>,
}

/// A year counted in months of 31 days: exact enough to tell which year is nearer.
const YEAR_DAYS: i32 = 12 * 31;
const DAY_NANOS: i64 = 86_400 * 1_000_000_000;

impl Years {
    /// Reads the stamp at the beginning of a line and gives the rest of the line.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> Option<(Stamp, &'a str)> {
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            let (stamp, rest) = line.split_once(' ')?;
            return Some((Stamp::Full(parse_rfc3339(stamp)?), rest));
        }
        let (name, rest) = line.split_once(' ')?;
        let (day, rest) = rest.trim_start().split_once(' ')?;
        let (time, rest) = rest.trim_start().split_once(' ')?;
        let (month, day) = (month(name)?, digits(day).filter(|day| (1..=31).contains(day))?);
        Some((self.stamp(month, day, TimeOfDay::parse(time)?), rest))
    }

    /// The year of turn 0, if the log was last written at `written`.
    pub(crate) fn first_year(&self, written: Wall) -> i32 {
        let Some((turn, month, day, seconds)) = self.latest else { return written.year() };
        let in_year = |year| Civil { year, month, day, time: TimeOfDay { seconds, nanos: 0 } }.wall(0);
        let too_late = |year| in_year(year).is_some_and(|wall| wall.0 > written.0.saturating_add(DAY_NANOS));
        // A day after the end of the year that it was written in, a log may speak of the next one.
        let latest_year = [written.year() + 1, written.year()].into_iter().find(|year| !too_late(*year));
        latest_year.unwrap_or(written.year() - 1) - turn
    }

    /// The year of turn 0, if the latest line is of `year`.
    pub(crate) fn first_year_given(&self, year: i32) -> i32 {
        year - self.latest.map_or(0, |latest| latest.0)
    }

    fn stamp(&mut self, month: u32, day: u32, time: TimeOfDay) -> Stamp {
        let of_year = (month as i32 - 1) * 31 + day as i32;
        let turn = match self.before {
            None => 0,
            Some((turn, before)) if of_year < before - YEAR_DAYS / 2 => turn.saturating_add(1),
            Some((turn, before)) if of_year > before + YEAR_DAYS / 2 => turn.saturating_sub(1),
            Some((turn, _)) => turn,
        };
        self.before = Some((turn, of_year));
        self.latest = self.latest.max(Some((turn, month, day, time.seconds)));
        Stamp::Yearless { turn, month, day, time }
    }
}

impl Stamp {
    /// The moment, with the log's first year known.
    pub(crate) fn wall(self, first_year: i32) -> Option<Wall> {
        match self {
            Stamp::Full(wall) => Some(wall),
            Stamp::Yearless { turn, month, day, time } => {
                Civil { year: first_year.saturating_add(turn), month, day, time }.wall(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walls(lines: &[&str], written: &str) -> Vec<String> {
        let mut years = Years::default();
        let stamps: Vec<Stamp> = lines.iter().map(|line| years.read(line).unwrap().0).collect();
        let first = years.first_year(parse_rfc3339(written).unwrap());
        stamps.iter().map(|stamp| stamp.wall(first).unwrap().to_string()).collect()
    }

    #[test]
    fn the_year_turns_at_new_year() {
        let lines =
            ["Dec 30 10:00:00 h", "Dec 31 23:59:59 h", "Jan  1 00:00:01 h", "Dec 31 23:59:58 h", "Jan  2 00:00:00 h"];
        let found = walls(&lines, "2024-01-02T01:00:00Z");
        let years: Vec<&str> = found.iter().map(|f| &f[..4]).collect();
        assert_eq!(years, ["2023", "2023", "2024", "2023", "2024"]);
        assert_eq!(walls(&["Dec 31 23:59:59 h"], "2024-03-01T00:00:00Z"), ["2023-12-31 23:59:59"]);
        assert_eq!(walls(&["Mar  1 00:00:00 h"], "2024-03-01T00:00:00Z"), ["2024-03-01 00:00:00"]);
        assert_eq!(walls(&["Jan  1 00:30:00 h"], "2023-12-31T23:30:00Z"), ["2024-01-01 00:30:00"], "another zone");
    }

    #[test]
    fn logs_given_in_the_wrong_order_keep_their_years() {
        let found = walls(&["Jan 10 00:00:00 h", "Dec 20 00:00:00 h", "Nov 30 00:00:00 h"], "2024-01-11T00:00:00Z");
        assert_eq!(found, ["2024-01-10 00:00:00", "2023-12-20 00:00:00", "2023-11-30 00:00:00"]);
    }

    #[test]
    fn many_years_and_a_leap_day() {
        let found = walls(
            &["Feb 29 10:00:00 h", "Aug  1 00:00:00 h", "Nov  1 00:00:00 h", "Feb 10 10:00:00 h"],
            "2025-06-01T00:00:00Z",
        );
        assert_eq!(found, ["2024-02-29 10:00:00", "2024-08-01 00:00:00", "2024-11-01 00:00:00", "2025-02-10 10:00:00"]);
        let odd = walls(&["Feb 29 10:00:00 h"], "2025-06-01T00:00:00Z");
        assert_eq!(odd, ["2025-03-01 10:00:00"], "a leap day in a year without one runs into March");
    }

    #[test]
    fn nonsense_has_no_time() {
        let mut years = Years::default();
        for line in
            ["", " ", "Mar", "Mar 1", "Mar 1 12:00:00", "Mar 0 12:00:00 h", "Mar 1 25:00:00 h", "1 2", "2024-01-01 h"]
        {
            assert!(years.read(line).is_none(), "{line}");
        }
        assert_eq!(years.first_year(parse_rfc3339("2024-01-01T00:00:00Z").unwrap()), 2024);
    }
}
