//! A picture of what the machines and VMs of the lab ran lately: a lane for each machine or VM, a bar for each attempt, from its start to
//! its end.
//!
//! A green bar brought a report, an amber one still runs, a red one brought nothing.

use crate::html;
use crate::html::Html;
use crate::words::{cut, seconds};
use std::collections::BTreeMap;
use weir_store::records::AttemptRow;

/// How many lanes one picture has; the others are counted.
const LANES_MAX: usize = 16;
const LANE: f64 = 30.0;
const FOOT: f64 = 24.0;
/// The least width of a bar, so that one can point at it.
const BAR_MIN: f64 = 4.0;
/// The greatest width of a character of a name.
const LETTER: f64 = 7.5;
/// How many minutes the picture may cover.
const SPANS_MIN: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// How wide a picture is, and how much of that is for names.
type Widths = (f64, f64);
const DESK: Widths = (1_040.0, 190.0);
const TELEPHONE: Widths = (340.0, 96.0);

/// The lanes of these attempts, as seen at a time in nanoseconds; None if there are no recent ones. `names` are those of machines by their ids.
pub(crate) fn picture(attempts: &[AttemptRow], names: &BTreeMap<String, String>, now_ns: i64) -> Html {
    let ago_min = |at: i64| (now_ns - at).max(0) as f64 / 60e9;
    let longest = SPANS_MIN[SPANS_MIN.len() - 1];
    let lately: Vec<&AttemptRow> =
        attempts.iter().filter(|attempt| attempt.ended_at.is_none_or(|ended| ago_min(ended) < longest)).collect();
    let oldest = lately.iter().map(|attempt| ago_min(attempt.started_at)).fold(0.0, f64::max);
    let span = SPANS_MIN.into_iter().find(|span| oldest <= *span).unwrap_or(longest);
    let mut lanes: BTreeMap<String, Vec<&AttemptRow>> = BTreeMap::new();
    for attempt in lately {
        let machine = names.get(&attempt.node).unwrap_or(&attempt.node);
        lanes.entry(format!("{machine} {}", attempt.vm).trim_end().to_owned()).or_default().push(attempt);
    }
    if lanes.is_empty() {
        return Html::none();
    }
    let view = View { span, now_ns };
    let more = match lanes.len().saturating_sub(LANES_MAX) {
        0 => Html::none(),
        more => html!("<p class=\"faint\">And {} more places.</p>", more),
    };
    html!(
        "<section><h2>What ran where</h2><figure class=\"plot lanes\"><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></figure>{}</section>",
        view.drawn(&lanes, DESK),
        view.drawn(&lanes, TELEPHONE),
        more
    )
}

/// The time that is shown.
struct View {
    /// In minutes.
    span: f64,
    now_ns: i64,
}

impl View {
    fn drawn(&self, lanes: &BTreeMap<String, Vec<&AttemptRow>>, (width, names): Widths) -> Html {
        let shown = || lanes.iter().take(LANES_MAX).zip(0_u8..);
        let lane = |((name, attempts), at): ((&String, &Vec<&AttemptRow>), u8)| {
            let top = f64::from(at) * LANE;
            let bars: Html = attempts.iter().map(|attempt| self.bar(attempt, top, (width, names))).collect();
            html!(
                "<text x=\"0\" y=\"{}\">{}</text><line class=\"g\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>{}",
                top + 19.0,
                cut(name, (names / LETTER) as usize - 1),
                names,
                width,
                top + LANE,
                top + LANE,
                bars
            )
        };
        let height = shown().count() as f64 * LANE;
        let ticks = [self.span, self.span / 2.0, 0.0].map(|ago| {
            let x = names + (1.0 - ago / self.span) * (width - names);
            let (word, anchor) =
                if ago == 0.0 { ("now".to_owned(), "end") } else { (format!("−{}", seconds(ago * 60.0)), "start") };
            html!(
                "<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
                x,
                height + 16.0,
                anchor,
                word
            )
        });
        html!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" aria-label=\"What the machines and VMs of the lab ran\">{}{}</svg>",
            width,
            height + FOOT,
            shown().map(lane).collect::<Html>(),
            ticks.as_slice()
        )
    }

    fn bar(&self, attempt: &AttemptRow, top: f64, (width, names): Widths) -> Html {
        let place = |at: i64| {
            let ago = (self.now_ns - at).max(0) as f64 / 60e9;
            names + (1.0 - (ago / self.span).min(1.0)) * (width - names)
        };
        let (from, to) = (place(attempt.started_at), place(attempt.ended_at.unwrap_or(self.now_ns)));
        let wide = (to - from).max(BAR_MIN);
        html!(
            "<a href=\"/lab/samples/{}\"><title>{}</title><rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"18\" rx=\"2\"/></a>",
            attempt.sample,
            said(attempt, self.now_ns),
            class(&attempt.outcome),
            format!("{:.1}", from.min(width - wide)),
            top + 6.0,
            format!("{wide:.1}")
        )
    }
}

fn class(outcome: &str) -> &'static str {
    match outcome {
        "" => "amber",
        "abandoned" | "failed" | "expired" | "lost" | "interrupted" => "red",
        _ => "green",
    }
}

/// `sample 12: yara, strings; done after 3 s`.
fn said(attempt: &AttemptRow, now_ns: i64) -> String {
    let pairs: Vec<(String, String)> = serde_json::from_str(&attempt.plugins).unwrap_or_default();
    let plugins: Vec<String> = pairs.into_iter().map(|(name, _)| name).collect();
    let took = seconds((attempt.ended_at.unwrap_or(now_ns) - attempt.started_at).max(0) as f64 / 1e9);
    let how = match attempt.outcome.as_str() {
        "" => format!("runs for {took}"),
        outcome => format!("{outcome} after {took}"),
    };
    format!("sample {}: {}; {how}", attempt.sample, cut(&plugins.join(", "), 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000_000_000;

    fn attempt(vm: &str, ago_s: i64, took_s: Option<i64>, outcome: &str) -> AttemptRow {
        let started_at = NOW - ago_s * 1_000_000_000;
        AttemptRow {
            id: 1,
            sample: 7,
            epoch: 1,
            node: "n1".into(),
            vm: vm.into(),
            plugins: "[[\"yara\",\"1\"],[\"<b>\",\"2\"]]".into(),
            started_at,
            ended_at: took_s.map(|took| started_at + took * 1_000_000_000),
            outcome: outcome.into(),
        }
    }

    #[test]
    fn every_attempt_is_a_bar_that_says_what_it_was() {
        let names = BTreeMap::from([("n1".to_owned(), "alpha".to_owned())]);
        let attempts = [
            attempt("linux-1", 100, Some(30), "done"),
            attempt("linux-2", 20, None, ""),
            attempt("linux-2", 60, Some(5), "lost"),
        ];
        let drawn = picture(&attempts, &names, NOW).into_string();
        for part in [
            "alpha linux-1",
            "class=\"green\"",
            "class=\"amber\"",
            "class=\"red\"",
            "sample 7: yara, &lt;b&gt;; done after 30 s",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert!(!drawn.contains("NaN") && !drawn.contains("inf\""));
        assert!(picture(&[attempt("x", 9_000, Some(1), "done")], &names, NOW).as_str().is_empty(), "that is long ago");
    }

    #[test]
    fn many_places_are_bounded() {
        let attempts: Vec<AttemptRow> = (0..100).map(|n| attempt(&format!("vm-{n:03}"), 5, None, "")).collect();
        let drawn = picture(&attempts, &BTreeMap::new(), NOW).into_string();
        assert_eq!(drawn.matches("<rect").count(), 2 * LANES_MAX, "on a desk and on a telephone");
        assert!(drawn.contains("And 84 more places"));
    }
}
