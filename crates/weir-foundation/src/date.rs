//! Dates for headers and for people, in UTC: civil arithmetic after Howard Hinnant's days algorithm.

use std::fmt;
use weir_core::time::Instant;

/// A point in time, taken apart.
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
    /// The date of nanoseconds since the Unix epoch.
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

    /// As in a Date header (RFC 5322).
    pub fn rfc5322(&self) -> String {
        let (weekday, month) = (DAYS[self.weekday as usize % 7], MONTHS[(self.month as usize + 11) % 12]);
        let (hour, minute, second) = self.clock();
        format!("{weekday}, {} {month} {} {hour:02}:{minute:02}:{second:02} +0000", self.day, self.year)
    }

    /// As programs like it (RFC 3339), to the second.
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

/// Nanoseconds since the Unix epoch as programs and people read them (RFC 3339, to the second).
pub fn rfc3339(unix_ns: i64) -> String {
    Date::new(Instant(unix_ns.max(0) as u64)).rfc3339()
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = self.clock();
        write!(f, "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
