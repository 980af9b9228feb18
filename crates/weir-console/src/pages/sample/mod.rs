//! The page of one sample: the verdict and its reasons, what one can do, what the sample did, what it is, and at the end the raw reports of
//! the plugins.
//!
//! All of it comes from hostile files. Whatever a plugin says is text, cut to what a person reads; the raw reports are folded
//! away at the end, as text too.

mod choices;
mod facts;
mod findings;

use super::audit;
use super::lab;
use super::machines::node;
use super::{Asking, PageResult, Sent, Trouble, done, ended};
use crate::behaviour::{self, Bounds};
use crate::frame::{Here, Sheet, status};
use crate::html;
use crate::html::Html;
use crate::rule_proposal::Proposal;
use crate::session::Visit;
use crate::site::Site;
use crate::trouble::sentence;
use crate::words::{count, size, time_ns};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_lab::node::Node;
use weir_lab::operations::{AttemptLine, HandedIn, ResultLine, SampleLine, SamplePage};
use weir_lab::report::{Acted, Merged, Technique};

/// How many children the table has.
const CHILDREN_SHOWN: usize = 99;
/// How many characters of a raw report are shown, and of all of them.
const RAW_MAX: usize = 20_000;
const RAW_ALL_MAX: usize = 200_000;
/// How many reasons are shown, and how many characters of one text from a report.
const REASONS_MAX: usize = 30;
const TEXT_MAX: usize = 300;
/// How many lines one table has.
const LINES_MAX: usize = 100;
const BOUNDS: Bounds = Bounds { lines: LINES_MAX, text: TEXT_MAX };

/// The beginning of a text that strangers wrote.
fn cut(text: &str) -> String {
    BOUNDS.cut(text)
}

/// The name of a sample for people.
fn name(sample: &SampleLine) -> String {
    if sample.name.is_empty() { "(no name)".to_owned() } else { cut(&sample.name) }
}

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, Path(which): Path<String>) -> PageResult {
    let page = node(&site)?.page(&which).await?;
    let subject = format!("sample-{}", page.sample.sample);
    // Megabytes of reports may have to be read, so this is not done on a thread that serves.
    let merged = tokio::task::spawn_blocking(move || Merged::new(page, Vec::new())).await;
    let merged = merged.map_err(|_| unreadable())?;
    let proposal = Proposal::of(&merged, site.mail.rules.list().await?);
    let trail = audit::trail(&site, &subject, 20).await?;
    let (page, sample) = (&merged.page, &merged.page.sample);
    let head = html!(
        "<h1>{}</h1><p>{} {} <span class=\"faint\">Sample {}</span></p>\
         <section class=\"why\"><h2>Verdict</h2><p>{}</p>{}{}<h2>What you can do</h2>{}</section>",
        name(sample),
        status(&sample.verdict, &sample.verdict),
        status(&sample.state, &sample.state),
        sample.sample,
        verdict(sample),
        reasons(page),
        now(page),
        choices::choices(&visit, &merged, &proposal)
    );
    let parts = [
        head,
        acted(&merged),
        inside(page),
        facts::facts(&merged),
        findings::findings(page),
        techniques(&merged),
        indicators(&merged),
        timeline(&page.attempts),
        trail,
        raw(&page.results),
    ];
    Ok(Sheet::live("Sample", Here::Lab, &parts).page(&site, &visit).await)
}

fn unreadable() -> Trouble {
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    Trouble::new(status, "The reports of this sample could not be read.", "`weir lab report --json` prints them.")
}

/// The verdict in words.
fn verdict(sample: &SampleLine) -> &'static str {
    match (sample.verdict.as_str(), sample.ended_at) {
        ("malicious", _) => "This is malware.",
        ("suspicious", _) => "This behaves or looks in a way that is rare for honest files.",
        ("clean", Some(_)) => "Nothing bad was found in it.",
        (_, None) => "There is no verdict yet.",
        _ => "Nobody can say that it is harmless.",
    }
}

fn reasons(page: &SamplePage) -> Html {
    if page.reasons.is_empty() {
        return Html::none();
    }
    let reasons: Html = page.reasons.iter().take(REASONS_MAX).map(|reason| html!("<li>{}</li>", cut(reason))).collect();
    let more = match page.reasons.len().saturating_sub(REASONS_MAX) {
        0 => Html::none(),
        more => html!("<li class=\"faint\">and {}</li>", count(more as u64, "more reason")),
    };
    html!("<ul>{}{}</ul>", reasons, more)
}

/// Where it is, if it has not ended; how it ended, if not normally.
fn now(page: &SamplePage) -> Html {
    match page.sample.state.as_str() {
        "done" => Html::none(),
        _ => html!("<h2>Now</h2><p>{}</p>", sentence(&cut(&page.now))),
    }
}

/// Its behaviour, for each time that it was run.
fn acted(merged: &Merged) -> Html {
    let one = |acted: &Acted| {
        html!("<section><h2>What it did</h2>{}</section>", behaviour::draw(acted, &merged.timeline(acted), BOUNDS))
    };
    merged.behaviour.iter().map(|(_, acted)| one(acted)).collect()
}

/// The techniques in MITRE's ATT&CK to which it belongs; empty if there are none.
fn techniques(merged: &Merged) -> Html {
    let row = |technique: &Technique| {
        let findings = cut(&technique.findings.join("; "));
        html!(
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"main\">{}</td></tr>",
            technique.id,
            technique.name,
            findings
        )
    };
    let rows: Html = merged.techniques.iter().map(row).collect();
    if merged.techniques.is_empty() {
        return Html::none();
    }
    html!(
        "<section><h2>Techniques (MITRE ATT&amp;CK)</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Id</th><th>Technique</th>\
         <th>Seen</th></tr></thead><tbody>{}</tbody></table></div></section>",
        rows
    )
}

fn indicators(merged: &Merged) -> Html {
    match merged.iocs.as_slice() {
        [] => Html::none(),
        iocs => html!("<section>{}</section>", behaviour::indicators(iocs, BOUNDS)),
    }
}

/// In which sample it was found, and what was found in it.
fn inside(page: &SamplePage) -> Html {
    let parent = page.sample.parent.map(|parent| {
        html!(
            "<p>It was found in <a href=\"/lab/samples/{}\">sample {}</a>, {} deep.</p>",
            parent,
            parent,
            count(page.sample.depth.max(0) as u64, "file")
        )
    });
    let left_out = match page.left_out {
        0 => Html::none(),
        left => html!(
            "<p class=\"faint\">{} found in it and not analysed: too many, too large or too deep.</p>",
            count(left as u64, "file")
        ),
    };
    if parent.is_none() && page.children.is_empty() && page.left_out == 0 {
        return Html::none();
    }
    let shown = page.children.get(..CHILDREN_SHOWN).unwrap_or(&page.children);
    let children = if shown.is_empty() { Html::none() } else { lab::table(shown, ("", "")) };
    html!(
        "<section><h2>{}</h2>{}{}{}</section>",
        if page.children.is_empty() {
            "Where it comes from".to_owned()
        } else {
            format!("{} in it", count(page.children.len() as u64, "file"))
        },
        parent,
        children,
        left_out
    )
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
            "<li>{} on {} <span class=\"faint\">begun {}{}, given out by the leader of epoch {}</span></li>",
            status(outcome, outcome),
            cut(&place),
            time_ns(attempt.started_at),
            attempt.ended_at.map(|at| html!(", ended {}", time_ns(at))),
            attempt.epoch
        )
    };
    html!(
        "<section><h2>{}</h2><ol class=\"timeline\">{}</ol></section>",
        count(attempts.len() as u64, "attempt"),
        attempts.iter().take(LINES_MAX).map(line).collect::<Html>()
    )
}

/// What plugins wrote, as text.
fn raw(results: &[ResultLine]) -> Html {
    if results.is_empty() {
        return Html::none();
    }
    let mut left = RAW_ALL_MAX;
    let report = |result: &ResultLine| {
        let whole = result.report.get();
        let text: String = whole.chars().take(RAW_MAX.min(left)).collect();
        left = left.saturating_sub(text.len());
        let more = if text.len() < whole.len() { "\n… `weir lab report --json` prints all of it" } else { "" };
        let counts = if result.accepted { "" } else { ", does not count" };
        html!(
            "<details class=\"raw\"><summary>{} {} <span class=\"faint\">{}, {}{}</span></summary><pre>{}{}</pre></details>",
            cut(&result.plugin),
            cut(&result.version),
            result.outcome,
            size(whole.len() as u64),
            counts,
            text,
            more
        )
    };
    html!("<section><h2>Raw reports</h2>{}</section>", results.iter().take(LINES_MAX).map(report).collect::<Html>())
}

/// Cancels a sample.
pub(super) async fn cancel(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let node = node(&site)?;
    let taken_back = async {
        let which = noted(&site, node, &visit, ("lab.cancel", sent.value("sample"))).await?;
        Ok::<_, Trouble>(node.take_back(which).await?)
    };
    let words = taken_back.await.map(|sample| format!("Sample {} is cancelled.", sample.sample));
    Ok(ended(&site, &visit, &sent, ("/lab", words)))
}

/// Analyses a sample again: a new sample with the same content, to which the browser goes.
pub(super) async fn rerun(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let node = node(&site)?;
    let again = async {
        let which = noted(&site, node, &visit, ("lab.rerun", sent.value("sample"))).await?;
        Ok::<_, Trouble>(node.rerun(which, visit.actor().as_str()).await?)
    };
    Ok(match again.await {
        Ok(HandedIn { sample, .. }) => {
            let words = format!("It is analysed again, as sample {sample}.");
            done(&site, &visit, words, &format!("/lab/samples/{sample}"))
        }
        Err(trouble) => ended(&site, &visit, &sent, ("/lab", Err(trouble))),
    })
}

/// The action is written to the audit trail before it is done. Returns the sample, if there is one.
async fn noted<'a>(
    site: &Site,
    node: &Node,
    visit: &Visit,
    (action, which): (&str, &'a str),
) -> Result<&'a str, Trouble> {
    let sample = node.page(which).await?.sample;
    site.administration.audit.note(&visit.actor(), action, &format!("sample-{}", sample.sample), &sample.name).await?;
    Ok(which)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::RawValue;
    use weir_lab::choices::Choices;

    const EVIL: &str = "<script>alert('x')</script>\"\u{202e}";

    fn result(plugin: &str, report: &serde_json::Value) -> ResultLine {
        let report = RawValue::from_string(report.to_string()).unwrap();
        let (plugin, version, outcome) = (plugin.to_owned(), EVIL.to_owned(), "done".to_owned());
        ResultLine { plugin, version, accepted: true, outcome, of_sample: None, report }
    }

    /// A sample with only hostile and long texts, and far too many of them.
    fn hostile() -> Merged {
        let long = EVIL.repeat(2_000);
        let line = SampleLine {
            sample: 1,
            hash: "ab".repeat(32),
            name: long.clone(),
            size: -1,
            file_type: long.clone(),
            submitter: long.clone(),
            priority: 32,
            state: "quarantined".into(),
            why: long.clone(),
            arrived_at: i64::MIN,
            ended_at: Some(i64::MAX),
            verdict: "malicious".into(),
            parent: Some(7),
            depth: 2,
        };
        let process = |pid: i64| json!({ "pid": pid, "parent": pid / 2, "path": EVIL, "arguments": [EVIL, EVIL] });
        let act = json!({ "what": EVIL, "path": EVIL, "to": EVIL, "detail": EVIL, "sha256": EVIL, "pid": 1 });
        let full = json!({
            "processes": (0..10_000).map(process).collect::<Vec<_>>(), "machine": long, "ended": long,
            "files": vec![act.clone(); 5_000], "network": vec![act.clone(); 5_000], "persistence": vec![act; 5_000],
        });
        let finding = json!({ "level": "suspicious", "namespace": "x", "predicate": EVIL, "value": long });
        let region =
            json!({ "name": EVIL, "bytes": u64::MAX, "memory_bytes": 1, "writable": true, "executable": true });
        let program = json!({
            "format": long, "regions": vec![region; 5_000], "libraries": vec![EVIL; 5_000], "packers": [EVIL],
            "noted_imports": vec![json!({ "name": EVIL, "about": EVIL }); 5_000],
        });
        let results = vec![
            result("run-linux", &json!({ "success": true, "full": full })),
            result("judge", &json!({ "success": true, "summary": { "taxonomies": vec![finding; 200] } })),
            result("elf-pe", &json!({ "success": true, "full": program })),
            result("strings", &json!({ "success": true, "full": { "strings": vec![long.clone(); 500] } })),
            result("identify", &json!({ "success": true, "full": { "md5": long, "entropy_bits_per_byte": 7.9 } })),
            result(EVIL, &json!({ "success": "maybe" })),
        ];
        let attempt = AttemptLine {
            attempt: 1,
            epoch: 1,
            node: long.clone(),
            vm: EVIL.into(),
            started_at: 1,
            ended_at: None,
            outcome: EVIL.into(),
        };
        let page = SamplePage {
            reasons: vec![long; 500],
            now: EVIL.into(),
            choices: Choices { plugins: vec![EVIL.into(); 50], ..Choices::default() },
            attempts: vec![attempt; 5_000],
            results,
            children: vec![SampleLine { name: EVIL.into(), ..line.clone() }; 1_000],
            left_out: 3,
            sample: line,
        };
        Merged::new(page, Vec::new())
    }

    #[test]
    fn whatever_a_sample_says_is_text_and_bounded() {
        let merged = hostile();
        let page = &merged.page;
        let parts = [
            ("reasons", reasons(page)),
            ("now", now(page)),
            ("inside", inside(page)),
            ("timeline", timeline(&page.attempts)),
            ("raw", raw(&page.results)),
            ("acted", acted(&merged)),
            ("facts", facts::facts(&merged)),
            ("findings", findings::findings(page)),
            ("indicators", indicators(&merged)),
        ];
        for (part, html) in parts {
            let html = html.into_string();
            assert!(!html.contains("<script") && !html.contains('\u{202e}'), "{part}");
            assert!(html.len() < 3_000_000, "{part} has {} bytes", html.len());
        }
        assert!(name(&page.sample).chars().count() <= TEXT_MAX + 1);
    }

    #[test]
    fn reports_of_another_form_are_left_out() {
        let mut merged = hostile();
        for odd in [json!({}), json!({ "full": 5 }), json!({ "full": { "regions": "x" } }), json!([])] {
            merged.page.results =
                ["identify", "elf-pe", "strings", "run-linux"].map(|plugin| result(plugin, &odd)).into();
            let html = facts::facts(&merged).into_string();
            assert!(html.contains("The file") && !html.contains("The program"), "{html}");
        }
    }
}
