//! Wall-clock time: a moment of the civil calendar, in nanoseconds since 1970.
//!
//! Only what past mail needs: dates as mail and logs write them, and the way back for printing. The proleptic
//! Gregorian calendar without leap seconds; days are counted from 1 March so that a leap day is the last of its
//! year. Dates outside 1980 … 2100 are not believed: a mail that claims them has a broken date.

use std::fmt;

/// A moment, in nanoseconds since the beginning of 1970 (UTC, or the log's own zone where it names none).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// A date and a time of day as they were written, before any zone is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Civil {
    pub(crate) year: i32,
    /// 1 … 12.
    pub(crate) month: u32,
    /// 1 … 31; a day past the end of its month runs into the next.
    pub(crate) day: u32,
    pub(crate) time: TimeOfDay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TimeOfDay {
    pub(crate) seconds: u32,
    pub(crate) nanos: u32,
}

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
const YEARS: std::ops::RangeInclusive<i32> = 1980..=2100;
pub(crate) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Wall {
    /// The moment of a whole second since 1970, if it lies in a year that past mail can come from.
    pub fn from_unix_seconds(seconds: i64) -> Option<Wall> {
        let wall = Wall(seconds.checked_mul(SECOND)?);
        YEARS.contains(&wall.civil().year).then_some(wall)
    }

    /// Whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// The year.
    pub fn year(self) -> i32 {
        self.civil().year
    }

    /// As JSON wants it: `2024-03-01T12:30:05Z`.
    pub fn to_rfc3339(self) -> String {
        let text = self.to_string().replace(' ', "T");
        format!("{text}Z")
    }

    fn civil(self) -> Civil {
        let seconds = self.unix_seconds();
        let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_SECONDS));
        let time =
            TimeOfDay { seconds: seconds.rem_euclid(DAY_SECONDS) as u32, nanos: self.0.rem_euclid(SECOND) as u32 };
        Civil { year, month, day, time }
    }
}

/// As a table shows it: `2024-03-01 12:30:05`.
impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, time } = self.civil();
        let TimeOfDay { seconds, .. } = time;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

impl Civil {
    /// The moment at `east_s` seconds east of Greenwich; nothing if the date is not one that mail can have.
    pub(crate) fn wall(self, east_s: i64) -> Option<Wall> {
        let real = YEARS.contains(&self.year) && (1..=12).contains(&self.month) && (1..=31).contains(&self.day);
        if !real || east_s.abs() > DAY_SECONDS {
            return None;
        }
        let days = days_from_civil(self.year, self.month, self.day);
        let seconds = days * DAY_SECONDS + i64::from(self.time.seconds) - east_s;
        Some(Wall(seconds * SECOND + i64::from(self.time.nanos)))
    }
}

impl TimeOfDay {
    pub(crate) fn new(hour: u32, minute: u32, second: u32) -> Option<TimeOfDay> {
        // A leap second is written as 60 and falls on the next minute.
        (hour < 24 && minute < 60 && second <= 60)
            .then(|| TimeOfDay { seconds: hour * 3600 + minute * 60 + second, nanos: 0 })
    }

    /// `12:30:05`, `12:30:05.123456` or `12:30`.
    pub(crate) fn parse(text: &str) -> Option<TimeOfDay> {
        let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
        let mut parts = clock.split(':');
        let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
        let second = parts.next().map_or(Some(0), digits)?;
        let time = TimeOfDay::new(hour, minute, second).filter(|_| parts.next().is_none())?;
        Some(TimeOfDay { nanos: nanos(fraction)?, ..time })
    }
}

/// The date of an mbox separator: `Mon Jan  1 12:30:05 2024`, with the zone before or after the year, or absent.
pub(crate) fn parse_from_line_date(text: &str) -> Option<Wall> {
    let mut words = text.split_ascii_whitespace().peekable();
    words.next_if(|word| ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(word))?;
    let month = month(words.next()?)?;
    let day = digits(words.next()?)?;
    let time = TimeOfDay::parse(words.next()?)?;
    let (mut year, mut east_s) = (None, 0);
    for word in words.take(3) {
        match word.len() {
            4 if year.is_none() && word.bytes().all(|b| b.is_ascii_digit()) => year = Some(digits(word)?),
            _ => east_s = parse_offset(word).unwrap_or(east_s),
        }
    }
    Civil { year: i32::try_from(year?).ok()?, month, day, time }.wall(east_s)
}

/// `2024-03-01T12:30:05.123+01:00`, with `Z`, `+0100` or `+01:00`.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Wall> {
    let (date, rest) = text.split_once('T')?;
    let zone_at = rest.find(['Z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone_at);
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?)?, digits(parts.next()?)?, digits(parts.next()?)?);
    let east_s = if zone == "Z" { 0 } else { parse_offset(zone)? };
    let year = i32::try_from(year).ok().filter(|_| parts.next().is_none())?;
    Civil { year, month, day, time: TimeOfDay::parse(time)? }.wall(east_s)
}

/// The number of a month's English abbreviation.
pub(crate) fn month(name: &str) -> Option<u32> {
    MONTHS.iter().position(|m| *m == name).map(|i| i as u32 + 1)
}

/// A short run of digits as a number.
pub(crate) fn digits(text: &str) -> Option<u32> {
    let short = (1..=6).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    short.then(|| text.parse().ok()).flatten()
}

/// Seconds east of Greenwich of `+0100` or `-05:30`.
fn parse_offset(text: &str) -> Option<i64> {
    let west = text.starts_with('-');
    let number = text.strip_prefix(['+', '-'])?.replace(':', "");
    let number = (number.len() == 4).then(|| digits(&number)).flatten()?;
    let seconds = i64::from(number / 100 * 3600 + number % 100 * 60);
    Some(if west { -seconds } else { seconds })
}

fn nanos(fraction: &str) -> Option<u32> {
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let kept: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    kept.parse().ok()
}

fn days_from_civil(year: i32, month: u32, day: u32) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719 468 days lie between 1 March of the year 0 and the beginning of 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i32, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as i32, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_believed_years_comes_back() {
        let mut expected = (1980, 1, 1);
        for days in days_from_civil(1980, 1, 1)..=days_from_civil(2100, 12, 31) {
            assert_eq!(civil_from_days(days), expected);
            expected = day_after(expected);
        }
        assert_eq!(expected, (2101, 1, 1));
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2024, 2, 29), 19_782);
    }

    fn day_after((year, month, day): (i32, u32, u32)) -> (i32, u32, u32) {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
        match (day == length, month == 12) {
            (false, _) => (year, month, day + 1),
            (true, false) => (year, month + 1, 1),
            (true, true) => (year + 1, 1, 1),
        }
    }

    #[test]
    fn zones_are_taken_off() {
        let same = [
            "2024-03-01T12:30:05Z",
            "2024-03-01T13:30:05+01:00",
            "2024-03-01T13:30:05+0100",
            "2024-02-29T23:30:05.000-13:00",
        ];
        for text in same {
            assert_eq!(parse_rfc3339(text).unwrap().to_string(), "2024-03-01 12:30:05", "{text}");
        }
        assert_eq!(parse_rfc3339("2024-03-01T12:30:05.25Z").unwrap().0 % SECOND, 250_000_000);
        assert_eq!(parse_rfc3339(same[0]).unwrap().to_rfc3339(), "2024-03-01T12:30:05Z");
    }

    #[test]
    fn separators_have_their_zone_anywhere_or_nowhere() {
        for text in ["Fri Mar  1 12:30:05 2024", "Fri Mar 01 12:30:05 +0000 2024", "Fri Mar 1 13:30:05 2024 +0100"] {
            assert_eq!(parse_from_line_date(text).unwrap().to_string(), "2024-03-01 12:30:05", "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_date() {
        for text in [
            "",
            "T",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "1066-10-14T09:00:00Z",
            "9999999-01-01T00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00+99:99",
            "2024-1-1-1T0:0:0Z",
            "ä-ö-üT1:2:3Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        for text in
            ["", "Mon", "Mon Jan 1", "the desk of the director", "Mon Jan 1 12:30:05", "Mon Foo 1 12:30:05 2024"]
        {
            assert_eq!(parse_from_line_date(text), None, "{text}");
        }
        assert_eq!(Wall::from_unix_seconds(i64::MAX), None);
        assert_eq!(Wall::from_unix_seconds(-5), None);
    }
}
