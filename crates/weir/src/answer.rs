//! Prints answers of a gate, as one JSON document or as text for people.

use serde::Serialize;
use std::io::Write;

/// Prints the document and nothing else.
pub(crate) fn print_json(out: &mut dyn Write, answer: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, answer)?;
    writeln!(out)?;
    Ok(())
}

/// Prints an answer of the API and nothing else, with its fields sorted by name.
pub(crate) fn print_answer(out: &mut dyn Write, answer: &impl Serialize) -> anyhow::Result<()> {
    print_json(out, &serde_json::to_value(answer)?)
}

/// A time for people, in UTC.
pub(crate) fn time(at: &str) -> String {
    at.replace('T', " ").trim_end_matches('Z').to_owned()
}

/// The same, or `-` if there is no time.
pub(crate) fn time_or_dash(at: Option<&str>) -> String {
    at.map_or_else(|| "-".to_owned(), time)
}

/// The text, or `-` if it is empty.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// `1 message`, `2 messages`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or_default();
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A number of bytes for people.
pub(crate) fn bytes(number: impl TryInto<u64>) -> String {
    let number = number.try_into().unwrap_or_default();
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", number as f64 / *unit as f64),
        None => format!("{number} B"),
    }
}

/// A rate for people, in the unit in which it is a whole number. `per_min` is the rate per minute.
pub(crate) fn rate(per_min: f64) -> String {
    let whole = |number: f64| number >= 0.999 && (number - number.round()).abs() < 1e-6 * number;
    let units = [(per_min / 60.0, "s"), (per_min, "min"), (per_min * 60.0, "h"), (per_min * 1440.0, "day")];
    match units.iter().find(|(number, _)| whole(*number)) {
        Some((number, unit)) => format!("{}/{unit}", number.round()),
        None => format!("{per_min:.3}/min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((count(1, "message"), count(0, "message")), ("1 message".to_owned(), "0 messages".to_owned()));
        assert_eq!((bytes(999), bytes(1536), bytes(3 << 20)), ("999 B".into(), "1.5 KiB".into(), "3.0 MiB".into()));
        let rates = [(1.0, "1/min"), (60.0, "1/s"), (60_000.0, "1000/s"), (1.0 / 1440.0, "1/day"), (0.7, "42/h")];
        for (per_min, said) in rates {
            assert_eq!(rate(per_min), said);
        }
        assert_eq!(rate(std::f64::consts::PI), "3.142/min");
    }

    #[test]
    fn times_are_read_without_their_letters() {
        assert_eq!(time("2026-11-15T04:27:13Z"), "2026-11-15 04:27:13");
        assert_eq!((time_or_dash(None).as_str(), or_dash("").as_str()), ("-", "-"));
    }
}
