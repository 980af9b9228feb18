//! What each plugin says of a sample, the gravest first.

use super::{LINES_MAX, cut};
use crate::frame::{empty, status};
use crate::html;
use crate::html::Html;
use std::cmp::Reverse;
use weir_lab::job::{Level, Report};
use weir_lab::operations::{ResultLine, SamplePage};

struct FindingLine {
    plugin: String,
    /// None for a plugin that failed.
    level: Option<Level>,
    words: String,
    /// The sample for which it was made, if that is another one of the same content.
    of_sample: Option<i64>,
}

pub(super) fn findings(page: &SamplePage) -> Html {
    let mut lines: Vec<FindingLine> = page.results.iter().flat_map(lines).collect();
    if lines.is_empty() {
        let nothing = empty("No plugin has returned a result yet.", &Html::none());
        return html!("<section><h2>What the plugins say</h2>{}</section>", nothing);
    }
    lines.sort_by_key(|line| Reverse(gravity(line.level)));
    let more = match lines.len().saturating_sub(LINES_MAX) {
        0 => Html::none(),
        more => html!("<p class=\"faint\">… and {} more; the raw reports have them.</p>", more),
    };
    html!(
        "<section><h2>What the plugins say</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Level</th><th>Finding</th><th>Plugin</th></tr></thead>\
         <tbody>{}</tbody></table></div>{}</section>",
        lines.iter().take(LINES_MAX).map(row).collect::<Html>(),
        more
    )
}

fn row(line: &FindingLine) -> Html {
    let (kind, word) = match line.level {
        Some(Level::Malicious) => ("malicious", "malicious"),
        Some(Level::Suspicious) => ("suspicious", "suspicious"),
        Some(Level::Unknown) => ("", "doubt"),
        Some(Level::Safe) => ("clean", "clean"),
        Some(Level::Info) => ("", "noted"),
        None => ("failed", "failed"),
    };
    let other = line.of_sample.map(|sample| {
        html!("<br><small>from <a href=\"/lab/samples/{}\">sample {}</a> of the same content</small>", sample, sample)
    });
    html!(
        "<tr><td>{}</td><td class=\"main\">{}</td><td>{}{}</td></tr>",
        status(kind, word),
        line.words,
        line.plugin,
        other
    )
}

fn gravity(level: Option<Level>) -> u8 {
    match level {
        Some(Level::Malicious) => 5,
        Some(Level::Suspicious) => 4,
        None => 3,
        Some(Level::Unknown) => 2,
        Some(Level::Safe) => 1,
        Some(Level::Info) => 0,
    }
}

/// The findings of one result. One that does not count has none, unless it failed.
fn lines(result: &ResultLine) -> Vec<FindingLine> {
    let line = |level: Option<Level>, words: String| FindingLine {
        plugin: cut(&result.plugin),
        level,
        words,
        of_sample: result.of_sample,
    };
    match Report::read(result.report.get().as_bytes()) {
        Ok(report) if result.accepted => {
            let found = report.summary.taxonomies.iter();
            found.map(|one| line(Some(one.level), format!("{}: {}", cut(&one.predicate), cut(&one.value)))).collect()
        }
        Ok(_) => Vec::new(),
        Err(why) => vec![line(None, cut(&why.to_string()))],
    }
}
