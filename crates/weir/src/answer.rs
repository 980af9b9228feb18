//! What the gate answered, for people: fields of a JSON document, and times as we write them.

use serde::Serialize;
use serde_json::Value;
use std::io::Write;

/// Prints the document and nothing else.
pub(crate) fn print_json(out: &mut dyn Write, answer: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, answer)?;
    writeln!(out)?;
    Ok(())
}

/// A field that is text; empty if it is not there.
pub(crate) fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// A field that is a whole number.
pub(crate) fn number(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap_or_default()
}

/// The elements of a field that is a list.
pub(crate) fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The texts of a field that is a list of texts.
pub(crate) fn texts(of: &Value, field: &str) -> Vec<String> {
    list(of, field).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// A time as people read it, in UTC; `-` if there is none.
pub(crate) fn time(of: &Value, field: &str) -> String {
    match text(of, field) {
        "" => "-".to_owned(),
        at => at.replace('T', " ").trim_end_matches('Z').to_owned(),
    }
}

/// `1 message`, `2 messages`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Bytes as people read them.
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", number as f64 / *unit as f64),
        None => format!("{number} B"),
    }
}

/// A rate by the minute, in the unit in which it reads best.
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
    fn fields_that_are_not_there_are_empty() {
        let answer = serde_json::json!({ "at": "2026-11-15T04:27:13Z", "to": ["a", 3] });
        assert_eq!((time(&answer, "at").as_str(), time(&answer, "x").as_str()), ("2026-11-15 04:27:13", "-"));
        assert_eq!((texts(&answer, "to"), number(&answer, "to"), text(&answer, "no")), (vec!["a".to_owned()], 0, ""));
    }
}
