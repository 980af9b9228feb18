//! One sample's report as one page that stands alone: no script, nothing fetched, every word of the sample escaped.
//!
//! It can be mailed and opened anywhere. Reports come from plugins that examined hostile files, so the amount that is shown is bounded.

use crate::behaviour::{self, Bounds};
use crate::html;
use crate::html::Html;
use crate::trouble::sentence;
use crate::words::{count, size};
use weir_lab::job::{Level, Report, Taxonomy};
use weir_lab::operations::{ResultLine, SamplePage};
use weir_lab::report::{Acted, Merged, Technique};

/// Lines of one list.
const LINES_MAX: usize = 500;
const BOUNDS: Bounds = Bounds { lines: LINES_MAX, text: 500 };

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--faint:#777}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{overflow-wrap:anywhere;margin-bottom:.2rem}h2{margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;overflow-wrap:anywhere}
th{font-weight:600}.number{text-align:right}.scroll{overflow-x:auto}tr+tr td{border-top:1px solid var(--line)}
code,.tree{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}
.faint{color:var(--faint)}.verdict{display:inline-block;padding:.1rem .7rem;border-radius:1rem;border:1px solid;font-weight:600}
.malicious{color:#c22}.suspicious{color:#b60}.clean{color:#283}.unknown{color:var(--faint)}
figure{margin:0 0 1rem}img{max-width:100%;border:1px solid var(--line)}.tree{list-style:none;padding:0}.tree ul{list-style:none;padding-left:1.4rem;border-left:1px solid var(--line)}
";

pub(crate) fn page(merged: &Merged) -> Html {
    let sample = &merged.page.sample;
    let name = if sample.name.is_empty() { "A sample without a name" } else { &sample.name };
    html!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\
         <meta name=\"referrer\" content=\"no-referrer\"><title>{}</title>{}</head><body><h1>{}</h1><p>{} <span class=\"faint\">sample {}, {}</span></p>\
         {}<h2>The sample</h2><table><tr><th>SHA-256</th><td><code>{}</code></td></tr><tr><th>Type</th><td>{}</td></tr>\
         <tr><th>Size</th><td>{}</td></tr><tr><th>Handed in by</th><td>{}</td></tr>{}</table>{}{}{}{}{}</body></html>",
        cut(name),
        Html::style(STYLE),
        cut(name),
        verdict(&sample.verdict),
        sample.sample,
        sample.state,
        reasons(&merged.page),
        sample.hash,
        sample.file_type,
        size(sample.size.max(0) as u64),
        cut(&sample.submitter),
        chosen(merged),
        parts(merged),
        merged.behaviour.iter().map(|(sample, acted)| ran(merged, *sample, acted)).collect::<Html>(),
        techniques(merged),
        behaviour::indicators(&merged.iocs, BOUNDS),
        std::iter::once(&merged.page).chain(&merged.parts).map(findings).collect::<Html>()
    )
}

/// Who may be told, and the other choices that were made when it was submitted.
fn chosen(merged: &Merged) -> Html {
    let row = |label: &str, text: &str| {
        html!("<tr><th>{}</th><td>{}</td></tr>", sentence(label).trim_end_matches('.'), cut(text))
    };
    let words = merged.page.choices.words();
    let rows: Html = words.iter().filter(|(label, _)| *label != "TLP").map(|(label, text)| row(label, text)).collect();
    html!("{}{}", row("TLP", merged.tlp().label()), rows)
}

fn cut(text: &str) -> String {
    BOUNDS.cut(text)
}

fn verdict(word: &str) -> Html {
    let class = match word {
        "malicious" | "suspicious" | "clean" => word,
        _ => "unknown",
    };
    html!("<span class=\"verdict {}\">{}</span>", class, word)
}

fn reasons(page: &SamplePage) -> Html {
    if page.reasons.is_empty() {
        return Html::none();
    }
    html!("<ul>{}</ul>", page.reasons.iter().map(|reason| html!("<li>{}</li>", cut(reason))).collect::<Html>())
}

/// The samples found in it, each below the one in which it was found.
fn parts(merged: &Merged) -> Html {
    if merged.parts.is_empty() {
        return Html::none();
    }
    let row = |part: &SamplePage| {
        let found = &part.sample;
        html!(
            "<tr><td>{}</td><td>{} <span class=\"faint\">in sample {}</span></td><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            verdict(&found.verdict),
            cut(&found.name),
            found.parent.unwrap_or(0),
            found.file_type,
            size(found.size.max(0) as u64),
            found.hash
        )
    };
    html!(
        "<h2>{} in it</h2><table><tr><th>Verdict</th><th>Name</th><th>Type</th><th>Size</th><th>SHA-256</th></tr>{}</table>",
        count(merged.parts.len() as u64, "file"),
        merged.parts.iter().take(LINES_MAX).map(row).collect::<Html>()
    )
}

/// The techniques in MITRE's ATT&CK to which it belongs. Text only, as everywhere here, so that nothing can be clicked.
fn techniques(merged: &Merged) -> Html {
    let row = |technique: &Technique| {
        let findings = cut(&technique.findings.join("; "));
        html!("<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>", technique.id, technique.name, findings)
    };
    titled("Techniques (MITRE ATT&CK)", merged.techniques.iter().take(LINES_MAX).map(row).collect())
}

fn ran(merged: &Merged, sample: i64, acted: &Acted) -> Html {
    html!("<h2>What sample {} did</h2>{}", sample, behaviour::draw(acted, &merged.timeline(acted), BOUNDS))
}

fn titled(title: &str, rows: Vec<Html>) -> Html {
    if rows.is_empty() {
        return Html::none();
    }
    html!("<h2>{}</h2><table>{}</table>", title, rows.into_iter().collect::<Html>())
}

fn findings(page: &SamplePage) -> Html {
    let name = if page.sample.name.is_empty() { &page.sample.hash } else { &page.sample.name };
    let rows: Vec<Html> = page.results.iter().flat_map(lines).take(LINES_MAX).collect();
    titled(&format!("Findings on {}", cut(name)), rows)
}

fn lines(result: &ResultLine) -> Vec<Html> {
    // Not parsed into a tree of values, because long reports of plugins are not shown on this page.
    let found = match Report::read(result.report.get().as_bytes()) {
        Ok(report) if result.accepted => report.summary.taxonomies,
        Ok(_) => return Vec::new(),
        Err(why) => {
            return vec![html!(
                "<tr><td>{}</td><td class=\"faint\">failed</td><td>{}</td></tr>",
                result.plugin,
                cut(&why.to_string())
            )];
        }
    };
    let row = |finding: &Taxonomy| {
        let level = match finding.level {
            Level::Info => "info",
            Level::Safe => "safe",
            Level::Unknown => "doubt",
            Level::Suspicious => "suspicious",
            Level::Malicious => "malicious",
        };
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}: {}</td></tr>",
            result.plugin,
            level,
            cut(&finding.predicate),
            cut(&finding.value)
        )
    };
    found.iter().map(row).collect()
}
