//! Formats numbers, sizes, times and rates for people.

use crate::html;
use crate::html::Html;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_foundation::date::Date;
pub(crate) use weir_foundation::date::parse_rfc3339 as parsed;

/// `1 mail`, `12 mails`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(0);
    let ending = match noun {
        noun if number == 1 || noun.is_empty() => "",
        noun if noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(number))
}

/// With a capital as its first letter, as a sentence begins.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The beginning of a text that strangers wrote, at most this many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// 12 345 as people write it.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// 1.5 KiB.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    let digits = if unit == "B" || value >= 100.0 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {unit}")
}

/// 12 ms, 3.4 s, 5 min.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".to_owned(),
        v if v < 0.000_5 => "0 ms".to_owned(),
        v if v < 0.01 => format!("{:.1} ms", v * 1e3),
        v if v < 1.0 => format!("{:.0} ms", v * 1e3),
        v if v < 10.0 => format!("{v:.1} s"),
        v if v < 120.0 => format!("{v:.0} s"),
        v if v < 7_200.0 => format!("{:.0} min", v / 60.0),
        v if v < 172_800.0 => format!("{:.0} h", v / 3_600.0),
        v => format!("{:.0} days", v / 86_400.0),
    }
}

/// A rate with the unit that makes it a handy number: 12/s, 3/min.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if !r.is_finite() => "–".to_owned(),
        r if r >= 10.0 => format!("{}/s", grouped(r.round() as u64)),
        r if r >= 1.0 => format!("{r:.1}/s"),
        r if r * 60.0 >= 10.0 || r == 0.0 => format!("{:.0}/min", r * 60.0),
        r => format!("{:.1}/min", r * 60.0),
    }
}

pub(crate) fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.1 { format!("{:.1} %", share * 100.0) } else { format!("{:.0} %", share * 100.0) }
}

/// Now, in seconds since the epoch.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// A time: how long ago or how soon, and exactly on hover.
pub(crate) fn time(text: &str) -> Html {
    time_as_of(text, now())
}

/// Nanoseconds since the epoch, likewise.
pub(crate) fn time_ns(at: i64) -> Html {
    time(&Date::new(weir_core::time::Instant(at.max(0) as u64)).rfc3339())
}

fn time_as_of(text: &str, now: i64) -> Html {
    let Some(at) = parsed(text) else { return html!("{}", if text.is_empty() { "–" } else { text }) };
    let exact = text.get(..19).unwrap_or(text).replace('T', " ");
    html!("<time datetime=\"{}\" title=\"{} UTC\">{}</time>", text, exact, relative(at - now))
}

/// How far from now, in words.
pub(crate) fn relative(seconds: i64) -> String {
    let far = seconds.unsigned_abs();
    let words = match far {
        0..5 => return "now".to_owned(),
        5..60 => format!("{far} s"),
        60..3_600 => format!("{} min", far / 60),
        3_600..172_800 => format!("{} h", far / 3_600),
        _ => format!("{} days", far / 86_400),
    };
    if seconds < 0 { format!("{words} ago") } else { format!("in {words}") }
}

/// `14:02` of a time, in UTC.
pub(crate) fn clock(text: &str) -> String {
    text.get(11..16).unwrap_or("–").to_owned()
}

/// A number with at most four decimals, without trailing zeros.
pub(crate) fn decimal(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_form_that_people_read() {
        assert_eq!((count(1_u64, "mail"), count(0_i64, "mail")), ("1 mail".into(), "0 mails".into()));
        assert_eq!([cut("ééé", 2), cut("ééé", 3)], ["éé…", "ééé"]);
        assert_eq!(count(12_345_usize, "address"), "12\u{202f}345 addresses");
        assert_eq!([size(0), size(1023), size(1536), size(1 << 30)], ["0 B", "1023 B", "1.5 KiB", "1 GiB"]);
        assert_eq!(
            [seconds(0.0031), seconds(0.25), seconds(3.44), seconds(600.0)],
            ["3.1 ms", "250 ms", "3.4 s", "10 min"]
        );
        assert_eq!(
            [rate(0.0), rate(0.05), rate(0.2), rate(2.5), rate(1234.0)],
            ["0/min", "3.0/min", "12/min", "2.5/s", "1\u{202f}234/s"]
        );
    }

    #[test]
    fn times_are_relative_and_exact_on_hover() {
        let at = "2026-11-15T14:02:10Z";
        let seconds = parsed(at).unwrap();
        for known in [0, 951_782_400, 1_794_751_330, 4_102_444_799] {
            let written = Date::new(weir_core::time::Instant(known * 1_000_000_000)).rfc3339();
            assert_eq!(parsed(&written), Some(known as i64));
        }
        let shown = time_as_of(at, seconds + 200);
        assert_eq!(
            shown.as_str(),
            "<time datetime=\"2026-11-15T14:02:10Z\" title=\"2026-11-15 14:02:10 UTC\">3 min ago</time>"
        );
        assert_eq!(time_as_of(at, seconds - 7_200).as_str().matches("in 2 h").count(), 1);
        for wrong in
            ["", "yesterday", "2026-13-15T14:02:10Z", "<script>", "2026-11-15é14:02:10Z", "2026-11-15T1é:02:10Z"]
        {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(clock(at), "14:02");
    }
}
