//! Values with units, as people type them: `"1/min"`, `"10s"`, `"25MiB"`.
//!
//! Each parses from text and prints back to text that parses to the same value. The command line and the
//! configuration share them, so a value means the same in both.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How often: `1/min`, `60/min`, `2/s`, `500/day`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// How many times …
    pub count: f64,
    /// … in each period of this length.
    pub per: Duration,
}

/// How long: `10s`, `500ms`, `1m30s`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// How many bytes: `250000`, `4KiB`, `25MiB`, `10kB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Rate {
    /// Events a second, which is what two rates are compared by.
    fn per_second(self) -> f64 {
        self.count / self.per.as_secs_f64()
    }

    /// The time between two events at this rate.
    pub fn period(self) -> Duration {
        Duration::try_from_secs_f64(self.per.as_secs_f64() / self.count).unwrap_or(Duration::MAX)
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Rate) -> bool {
        self.per_second() == other.per_second()
    }
}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Rate) -> Option<std::cmp::Ordering> {
        self.per_second().partial_cmp(&other.per_second())
    }
}

/// A value with a unit as a declaration writes it: as text, or as the number that it is.
pub trait WrittenValue<U> {
    /// The value.
    fn value(self) -> U;
}

impl<U: FromStr<Err = String>> WrittenValue<U> for &str {
    fn value(self) -> U {
        self.parse().unwrap_or_else(|error| unreachable!("a declared setting: {error}"))
    }
}

impl WrittenValue<Span> for Duration {
    fn value(self) -> Span {
        Span(self)
    }
}

impl WrittenValue<Size> for u64 {
    fn value(self) -> Size {
        Size(self)
    }
}

const RATE_UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("day", 86_400)];
const SPAN_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong =
            || format!("{text:?} is not a rate: write a number and a unit, such as \"1/min\", \"5/s\" or \"200/day\"");
        let (count, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let count: f64 = count.trim().parse().map_err(|_| wrong())?;
        let (_, secs) = RATE_UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        if !(count.is_finite() && count > 0.0) {
            return Err(format!("{text:?} is not a rate: the number must be greater than zero"));
        }
        Ok(Rate { count, per: Duration::from_secs(*secs) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = RATE_UNITS.iter().find(|(_, secs)| *secs == self.per.as_secs()).map_or("?", |(name, _)| name);
        write!(f, "{}/{unit}", self.count)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong =
            || format!("{text:?} is not a duration: write numbers with units, such as \"10s\", \"500ms\" or \"1m30s\"");
        let mut rest = text.trim();
        let mut millis: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let (number, after) = split_number(rest);
            let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, next) = after.split_at(letters);
            let number: f64 = number.parse().map_err(|_| wrong())?;
            let (_, scale) = SPAN_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            let part = number * *scale as f64;
            if part > 1e15 {
                return Err(format!("{text:?} is too long a duration"));
            }
            millis = millis.saturating_add(part.round() as u64);
            rest = next.trim_start();
        }
        Ok(Span(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.0.as_millis() as u64;
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, scale) in SPAN_UNITS {
            if millis >= scale {
                write!(f, "{}{unit}", millis / scale)?;
                millis %= scale;
            }
        }
        Ok(())
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || {
            format!(
                "{text:?} is not a size: write bytes or a number and a unit, such as \"250000\", \"4KiB\" or \"25MiB\""
            )
        };
        let (number, unit) = split_number(text.trim());
        let (_, scale) = SIZE_UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * *scale as f64;
        if bytes > (1u64 << 53) as f64 {
            return Err(format!("{text:?} is too large a size"));
        }
        Ok(Size(bytes.round() as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SIZE_UNITS[..3].iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale));
        match exact {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["1/min", "2/s", "0.5/h", "200/day"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["10s", "500ms", "1m30s", "2h", "7d", "0s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["250000", "4KiB", "25MiB", "0", "1GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("1.5kB".parse::<Size>().unwrap(), Size(1500));
        assert_eq!("60/min".parse::<Rate>().unwrap().period(), Duration::from_secs(1));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "1", "1/fortnight", "x/min", "-1/min", "0/min", "inf/s", "nan/s"] {
            assert!(text.parse::<Rate>().unwrap_err().contains("is not a rate"), "{text}");
        }
        for text in ["", "10", "s", "10 parsecs", "1s2", "-5s", "ä"] {
            assert!(text.parse::<Span>().unwrap_err().contains("is not a duration"), "{text}");
        }
        for text in ["", "MiB", "1XB", "-1", "1.2.3kB", "ä"] {
            assert!(text.parse::<Size>().unwrap_err().contains("is not a size"), "{text}");
        }
        assert!("99999999999999999999d".parse::<Span>().unwrap_err().contains("too long"));
        assert!("99999999999GiB".parse::<Size>().unwrap_err().contains("too large"));
    }
}
