//! The lab: who leads, what waits, samples and their reports.

use super::frame::{Here, Sheet, WIDE, back, empty, numbers, plot, status, token};
use super::trouble::sentence;
use super::{Answer, Asking, Sent, Trouble, ended, query};
use crate::html;
use crate::html::{Html, Piece};
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, size, time_ns};
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use std::time::Instant;
use weir_lab::desk::{AttemptLine, LabStatus, ResultLine, SampleFilter, SampleLine, SamplePage};
use weir_lab::node::Node;
use weir_lab::verdict::Verdict;

const SAMPLES_SHOWN: i64 = 100;
/// Reports come from plugins that looked at hostile files: only so much of one is drawn.
const REPORT_DEPTH: usize = 8;
const REPORT_ITEMS: usize = 400;

pub(super) async fn list(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> Answer {
    let Some(node) = &site.lab else {
        let how = html!("Set <code>lab.enabled = true</code> and start Weir again; <code>make run</code> does it too.");
        let body = html!("<h1>Lab</h1>{}", empty("This machine analyses no samples.", &how));
        return Ok(Sheet::new("Lab", Here::Lab, body).page(&site, &visit).await);
    };
    let asked = query(&asked);
    let lab = node.status().await?;
    let filter = SampleFilter {
        hash: asked.value("hash").to_ascii_lowercase(),
        state: asked.value("state").to_owned(),
        verdict: Verdict::named(asked.value("verdict")).map(Verdict::number),
        before: asked.value("before").parse().ok(),
    };
    let samples = node.list(&filter, SAMPLES_SHOWN).await?;
    let (now, history) = (Instant::now(), site.history());
    let open = history
        .chart(now, "Samples that are not done", ("open", "samples"))
        .steps("open", history.gauge(|reading| reading.samples_open, now))
        .when_empty("samples would fill this: weir lab submit FILE");
    let body = html!(
        "<h1>Lab</h1><p class=\"lead\">{}</p>{}{}<section><h2>Samples</h2>{}{}</section>{}",
        lead(&lab),
        figures(&lab),
        plot(&open, WIDE),
        tabs(&lab, &filter.state),
        table(&samples, &filter.state),
        about(&lab)
    );
    Ok(Sheet::new("Lab", Here::Lab, body).page(&site, &visit).await)
}

fn lead(lab: &LabStatus) -> String {
    let leader = match &lab.leader {
        Some(leader) if lab.leads_here => format!("{leader}, this machine, leads since epoch {}.", lab.epoch),
        Some(leader) => format!("{leader} leads since epoch {}.", lab.epoch),
        None => "Nobody leads at the moment: samples are taken in and wait.".to_owned(),
    };
    match lab.open {
        Some(0) => format!("{leader} Every sample has its report."),
        Some(open) => format!(
            "{leader} {} not done yet.",
            if open == 1 { "1 sample is".to_owned() } else { format!("{open} samples are") }
        ),
        None => leader,
    }
}

fn figures(lab: &LabStatus) -> Html {
    let states: Vec<(&str, String)> =
        lab.states.iter().map(|count| (count.state.as_str(), grouped(count.samples.max(0) as u64))).collect();
    if states.is_empty() { Html::none() } else { numbers(&states) }
}

fn tabs(lab: &LabStatus, current: &str) -> Html {
    let tab = |state: &str, name: &str, number: i64| {
        let marked = if state == current { "page" } else { "false" };
        html!(
            "<li><a href=\"/lab?state={}\" aria-current=\"{}\">{} <b>{}</b></a></li>",
            Piece(state),
            marked,
            name,
            grouped(number.max(0) as u64)
        )
    };
    let all = tab("", "all", lab.states.iter().map(|count| count.samples).sum());
    let each: Html = lab.states.iter().map(|count| tab(&count.state, &count.state, count.samples)).collect();
    html!("<ul class=\"tabs\">{}{}</ul>", all, each)
}

fn table(samples: &[SampleLine], state: &str) -> Html {
    if samples.is_empty() {
        let how = html!(
            "<code>weir lab submit FILE</code> hands one in, or copy it to the directory <code>analysis/32</code>."
        );
        return empty("There is no sample here.", &how);
    }
    let row = |sample: &SampleLine| {
        html!(
            "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td class=\"main\"><a href=\"/lab/samples/{}\">{}</a><br><small>{}</small></td><td>{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            sample.sample,
            status(&sample.state, &sample.state),
            status(&sample.verdict, &sample.verdict),
            sample.sample,
            if sample.name.is_empty() { "(no name)" } else { &sample.name },
            sample.hash.get(..16).unwrap_or(&sample.hash),
            sample.file_type,
            size(sample.size.max(0) as u64),
            sample.priority,
            sample.submitter,
            time_ns(sample.arrived_at)
        )
    };
    let more = match samples.last() {
        Some(last) if samples.len() as i64 == SAMPLES_SHOWN => {
            html!("<p><a href=\"/lab?state={}&amp;before={}\">Older samples</a></p>", Piece(state), last.sample)
        }
        _ => Html::none(),
    };
    html!(
        "<div class=\"scroll\"><table class=\"rows\"><thead><tr><th class=\"number\">Number</th><th>State</th><th>Verdict</th><th>Name and hash</th><th>Type</th><th class=\"number\">Size</th>\
         <th class=\"number\">Priority</th><th>From</th><th>Came</th></tr></thead><tbody>{}</tbody></table></div>{}",
        samples.iter().map(row).collect::<Html>(),
        more
    )
}

fn about(lab: &LabStatus) -> Html {
    html!(
        "<section><h2>This machine</h2><dl class=\"facts\"><dt>Plugins</dt><dd>{}</dd><dt>Samples come from</dt><dd><code>{}</code></dd></dl></section>",
        if lab.plugins.is_empty() { "none".to_owned() } else { lab.plugins.join(", ") },
        lab.analysis
    )
}

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, Path(which): Path<String>) -> Answer {
    let page = node(&site)?.page(&which).await?;
    let sample = &page.sample;
    let cancel = if sample.ended_at.is_none() { cancel_form(&visit, sample) } else { Html::none() };
    let body = html!(
        "<h1>{}</h1><p>{} {} <span class=\"faint\">Sample {}</span></p>{}<section class=\"why\"><h2>Now</h2><p>{}</p>{}</section>\
         <section><h2>The sample</h2><dl class=\"facts\"><dt>SHA-256</dt><dd><code>{}</code></dd><dt>Type</dt><dd>{}</dd><dt>Size</dt><dd>{}</dd>\
         <dt>Priority</dt><dd>{}</dd><dt>Handed in by</dt><dd>{}</dd><dt>Came</dt><dd>{}</dd><dt>Ended</dt><dd>{}</dd>{}</dl></section>{}{}{}",
        if sample.name.is_empty() { "(no name)" } else { &sample.name },
        status(&sample.state, &sample.state),
        status(&sample.verdict, &sample.verdict),
        sample.sample,
        why_so(&page),
        sentence(&page.now),
        cancel,
        sample.hash,
        sample.file_type,
        size(sample.size.max(0) as u64),
        sample.priority,
        sample.submitter,
        time_ns(sample.arrived_at),
        sample.ended_at.map_or_else(|| html!("not yet"), time_ns),
        sample.parent.map(|parent| {
            html!("<dt>Found in</dt><dd><a href=\"/lab/samples/{}\">sample {}</a></dd>", parent, parent)
        }),
        inside(&page),
        reports(&page),
        timeline(&page.attempts)
    );
    Ok(Sheet::new("Sample", Here::Lab, body).page(&site, &visit).await)
}

/// Why the verdict is what it is.
fn why_so(page: &SamplePage) -> Html {
    if page.reasons.is_empty() {
        return Html::none();
    }
    let reasons: Html = page.reasons.iter().map(|reason| html!("<li>{}</li>", reason)).collect();
    html!("<section><h2>Why it is {}</h2><ul>{}</ul></section>", page.sample.verdict, reasons)
}

/// What was found in it.
fn inside(page: &SamplePage) -> Html {
    if page.children.is_empty() && page.left_out == 0 {
        return Html::none();
    }
    let left_out = match page.left_out {
        0 => Html::none(),
        left => html!("<p class=\"faint\">{} found in it and not taken.</p>", count(left as u64, "file")),
    };
    // One less than a page of them: there is no next page here.
    let shown = page.children.get(..SAMPLES_SHOWN as usize - 1).unwrap_or(&page.children);
    let children = if shown.is_empty() { Html::none() } else { table(shown, "") };
    html!("<section><h2>Found in it</h2>{}{}</section>", children, left_out)
}

fn node(site: &Site) -> Result<&Node, Trouble> {
    let nothing =
        || Trouble::new(StatusCode::NOT_FOUND, "this machine has no lab", "set lab.enabled, and start Weir again");
    site.lab.as_ref().ok_or_else(nothing)
}

fn cancel_form(visit: &Visit, sample: &SampleLine) -> Html {
    html!(
        "<div class=\"actions\"><form method=\"post\" action=\"/lab/cancel\">{}{}<input type=\"hidden\" name=\"sample\" value=\"{}\">\
         <button>Take it back: it is not analysed any more</button></form></div>",
        token(visit),
        back(&format!("/lab/samples/{}", sample.sample)),
        sample.sample
    )
}

fn reports(page: &SamplePage) -> Html {
    if page.results.is_empty() {
        return html!(
            "<section><h2>Report</h2>{}</section>",
            empty("No plugin has brought anything yet.", &Html::none())
        );
    }
    let report = |result: &ResultLine| {
        let mut left = REPORT_ITEMS;
        // What was stored was JSON within bounds; were it not, its text would be shown.
        let parsed = || serde_json::from_str(result.report.get());
        let whole = parsed().unwrap_or_else(|_| Value::from(result.report.get()));
        let counts = if result.accepted { "" } else { ", does not count" };
        html!(
            "<section class=\"report\"><h2>Report of {} {}</h2><p>{}<span class=\"faint\">{}</span></p>{}</section>",
            result.plugin,
            result.version,
            status(&result.outcome, &result.outcome),
            counts,
            tree(&whole, 0, &mut left)
        )
    };
    page.results.iter().map(report).collect()
}

/// A report as a tree of names and texts. Whatever a plugin wrote is text.
fn tree(value: &Value, depth: usize, left: &mut usize) -> Html {
    *left = left.saturating_sub(1);
    if *left == 0 || depth > REPORT_DEPTH {
        return html!("<span class=\"faint\">… and more: <code>weir lab report --json</code></span>");
    }
    match value {
        Value::Null => html!("<span class=\"faint\">–</span>"),
        Value::Object(fields) => {
            let mut rows = Html::none();
            for (name, value) in fields {
                if *left == 0 {
                    break;
                }
                rows.push(&html!("<dt>{}</dt><dd>{}</dd>", name, tree(value, depth + 1, left)));
            }
            html!("<dl class=\"facts\">{}</dl>", rows)
        }
        Value::Array(items) => {
            let mut rows = Html::none();
            for value in items {
                if *left == 0 {
                    break;
                }
                rows.push(&html!("<li>{}</li>", tree(value, depth + 1, left)));
            }
            html!("<ul>{}</ul>", rows)
        }
        Value::String(text) => html!("{}", text.chars().take(2_000).collect::<String>()),
        other => html!("{}", other.to_string()),
    }
}

fn timeline(attempts: &[AttemptLine]) -> Html {
    if attempts.is_empty() {
        return Html::none();
    }
    let line = |attempt: &AttemptLine| {
        let outcome = if attempt.outcome.is_empty() { "runs" } else { &attempt.outcome };
        let place =
            if attempt.vm.is_empty() { attempt.node.clone() } else { format!("{} in {}", attempt.node, attempt.vm) };
        html!(
            "<li>{} on {} <span class=\"faint\">attempt {} of epoch {}, begun {}{}</span></li>",
            status(outcome, outcome),
            place,
            attempt.attempt,
            attempt.epoch,
            time_ns(attempt.started_at),
            attempt.ended_at.map(|at| html!(", ended {}", time_ns(at)))
        )
    };
    html!(
        "<section><h2>{}</h2><ol class=\"timeline\">{}</ol></section>",
        count(attempts.len() as u64, "attempt"),
        attempts.iter().map(line).collect::<Html>()
    )
}

pub(super) async fn cancel(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let node = node(&site)?;
    let which = sent.value("sample");
    let taken_back = async {
        let sample = node.page(which).await?.sample;
        // Who did it is written down first.
        site.desk.note(&visit.actor(), "lab.cancel", &format!("sample-{}", sample.sample), &sample.name).await?;
        Ok::<_, Trouble>(node.take_back(which).await?)
    };
    let words = taken_back.await.map(|sample| format!("Sample {} is taken back.", sample.sample));
    Ok(ended(&site, &visit, &sent, ("/lab", words)).await)
}
