//! Formats dates for headers and for people, in UTC. The calendar arithmetic is Howard Hinnant's days algorithm.

use crate::OperationError;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_core::time::Instant;

/// A point in time, split into year, month, day and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: i64,
    month: u32,
    day: u32,
    weekday: u32,
    second_of_day: u32,
}

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Date {
    /// The date of a time in nanoseconds since the Unix epoch.
    pub fn new(at: Instant) -> Date {
        let seconds = at.0 / 1_000_000_000;
        let days = (seconds / 86_400) as i64;
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = (if march_month < 10 { march_month + 3 } else { march_month - 9 }) as u32;
        Date {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: (day_of_year - (153 * march_month + 2) / 5 + 1) as u32,
            weekday: (days.rem_euclid(7)) as u32,
            second_of_day: (seconds % 86_400) as u32,
        }
    }

    /// The form of a Date header (RFC 5322).
    pub fn rfc5322(&self) -> String {
        let (weekday, month) = (DAYS[self.weekday as usize % 7], MONTHS[(self.month as usize + 11) % 12]);
        let (hour, minute, second) = self.clock();
        format!("{weekday}, {} {month} {} {hour:02}:{minute:02}:{second:02} +0000", self.day, self.year)
    }

    /// The form for programs (RFC 3339), to the second.
    pub fn rfc3339(&self) -> String {
        let (hour, minute, second) = self.clock();
        format!("{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", self.year, self.month, self.day)
    }

    /// Hours and minutes, for people.
    pub fn hour_minute(&self) -> String {
        let (hour, minute, _) = self.clock();
        format!("{hour:02}:{minute:02} UTC")
    }

    fn clock(&self) -> (u32, u32, u32) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }
}

/// Formats nanoseconds since the Unix epoch as RFC 3339, to the second.
pub fn rfc3339(unix_ns: i64) -> String {
    Date::new(Instant(unix_ns.max(0) as u64)).rfc3339()
}

/// Parses `2026-11-15T14:02:10Z`, or `2026-11-15` as its midnight, into seconds since the Unix epoch; none if the text is neither.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let text = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let field = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        digits?.parse::<i64>().ok()
    };
    let marks = [(4, '-'), (7, '-'), (10, 'T'), (13, ':'), (16, ':')];
    if text.len() < 20
        || !text.ends_with('Z')
        || marks.iter().any(|(at, mark)| text.get(*at..).is_none_or(|rest| !rest.starts_with(*mark)))
    {
        return None;
    }
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The inverse of the days algorithm above: years begin in March.
    let shifted = if month > 2 { year } else { year - 1 };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + field(11, 13)? * 3_600 + field(14, 16)? * 60 + field(17, 19)?)
}

/// Writes nanoseconds since the Unix epoch as RFC 3339, to the second. For `#[serde(with = "…")]`.
pub mod as_rfc3339 {
    use super::{parse_rfc3339, rfc3339};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the time.
    pub fn serialize<S: Serializer>(unix_ns: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(*unix_ns))
    }

    /// Reads the time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seconds = parse_rfc3339(&text).ok_or_else(|| Error::custom(format!("{text:?} is no time (RFC 3339)")))?;
        Ok(seconds.saturating_mul(1_000_000_000))
    }
}

/// The same for a time that may be missing.
pub mod as_rfc3339_or_null {
    use super::{as_rfc3339, rfc3339};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    struct Time(#[serde(with = "as_rfc3339")] i64);

    /// Writes the time, or null.
    pub fn serialize<S: Serializer>(unix_ns: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        unix_ns.map(rfc3339).serialize(serializer)
    }

    /// Reads the time, or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        Ok(Option::<Time>::deserialize(deserializer)?.map(|Time(unix_ns)| unix_ns))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = self.clock();
        write!(f, "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", self.year, self.month, self.day)
    }
}

/// Reads a time as people write it, or an age such as `2h`, which is subtracted from now. In nanoseconds since the Unix epoch; none for an
/// empty text.
pub fn asked_time(text: &str) -> Result<Option<i64>, OperationError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let ns = age(text).or_else(|| parse_rfc3339(text)?.checked_mul(1_000_000_000)).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        let hint = "write 2026-11-17T18:00:00Z, 2026-11-17, or an age such as 90m, 2h or 7d";
        OperationError::invalid(format!("{shown:?} is no time"), hint)
    })?;
    Ok(Some(ns))
}

fn age(text: &str) -> Option<i64> {
    let unit = text.chars().last()?;
    let number: i64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number >= 0)?;
    let seconds: i64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ago = number.checked_mul(seconds)?.checked_mul(1_000_000_000)?;
    Some(i64::try_from(now.as_nanos()).ok()?.saturating_sub(ago).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_401, 4_107_542_399] {
            assert_eq!(parse_rfc3339(&rfc3339(seconds * 1_000_000_000)), Some(seconds));
        }
        assert_eq!(parse_rfc3339("2000-02-29"), Some(951_782_400));
        for bad in
            ["", "2000-13-01", "2000-02-29T00:00:00", "2000-02-29T+1:00:00Z", "2000/02/29", "20000-02-2", "ä-ä-ä-ä"]
        {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn known_dates() {
        let date = |seconds: u64| Date::new(Instant(seconds * 1_000_000_000));
        assert_eq!(date(0).rfc5322(), "Thu, 1 Jan 1970 00:00:00 +0000");
        assert_eq!(date(951_782_399).rfc5322(), "Mon, 28 Feb 2000 23:59:59 +0000");
        assert_eq!(date(951_782_400).to_string(), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(951_782_401).rfc3339(), "2000-02-29T00:00:01Z");
        assert_eq!(date(1_794_798_240).hour_minute(), "03:04 UTC");
        assert_eq!(date(4_107_542_399).to_string(), "2100-02-28 23:59:59 UTC");
    }

    #[test]
    fn what_is_written_is_read_and_other_texts_are_not_times() {
        for seconds in [0, 951_782_400, 1_794_798_240, 4_107_542_399_i64] {
            assert_eq!(parse_rfc3339(&rfc3339(seconds * 1_000_000_000)), Some(seconds));
        }
        for text in ["", "2026-13-15T14:02:10Z", "2026-11-15T14:02:10", "2026-11-15 14:02:10Z", "é"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_texts_in_json() {
        #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
        struct Period {
            #[serde(with = "as_rfc3339")]
            at: i64,
            #[serde(with = "as_rfc3339_or_null")]
            ended: Option<i64>,
        }
        let seen = Period { at: 951_782_401_000_000_000, ended: None };
        let text = serde_json::to_string(&seen).unwrap();
        assert_eq!(text, "{\"at\":\"2000-02-29T00:00:01Z\",\"ended\":null}");
        assert_eq!(serde_json::from_str::<Period>(&text).unwrap(), seen);
        assert!(serde_json::from_str::<Period>("{\"at\":7,\"ended\":null}").is_err());
    }

    #[test]
    fn times_and_ages_are_taken_as_people_write_them() {
        assert_eq!(asked_time("").unwrap(), None);
        assert_eq!(asked_time("1970-01-02").unwrap(), Some(86_400_000_000_000));
        assert_eq!(asked_time("1970-01-01T00:00:07Z").unwrap(), Some(7_000_000_000));
        let (hour, now) = (asked_time("1h").unwrap().unwrap(), asked_time("0s").unwrap().unwrap());
        assert!((now - hour - 3_600_000_000_000).abs() < 60_000_000_000, "{hour} {now}");
        for bad in ["soon", "-1h", "99999999999999d", "h", "2026-13-01", "1x", "é"] {
            assert!(asked_time(bad).is_err(), "{bad}");
        }
    }
}
