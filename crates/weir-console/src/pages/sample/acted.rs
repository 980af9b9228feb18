//! What a sample did where it was run.

use super::{LINES_MAX, cut};
use crate::html;
use crate::html::Html;
use crate::process_tree;
use crate::words::{count, size};
use weir_lab::report::{Act, Acted, Behaviour, FileChange, Merged, Network, Persistence};

pub(super) fn acted(merged: &Merged) -> Html {
    merged.behaviour.iter().map(|(_, acted)| one(acted)).collect()
}

fn one(acted: &Acted) -> Html {
    let seen = &acted.seen;
    html!(
        "<section><h2>What it did</h2><p>{} <span class=\"faint\">In {}, {}.</span></p>{}{}{}{}<h3>Processes</h3>{}</section>",
        sentence(seen),
        if acted.machine.is_empty() { "a VM".to_owned() } else { cut(&acted.machine) },
        if acted.accelerator.is_empty() { "accelerator unknown".to_owned() } else { cut(&acted.accelerator) },
        stays(&seen.persistence),
        network(&seen.network),
        files(&seen.files),
        acts(&seen.acts),
        if seen.processes.is_empty() {
            html!("<p class=\"faint\">None was seen.</p>")
        } else {
            process_tree::draw(acted)
        }
    )
}

/// All of it in one sentence.
fn sentence(acted: &Behaviour) -> String {
    let some = |number: usize, noun: &str| (number > 0).then(|| count(number as u64, noun));
    let parts: Vec<String> = [
        some(acted.processes.len(), "process"),
        some(acted.files.len(), "changed file"),
        some(acted.network.len(), "attempt").map(|attempts| format!("{attempts} at the network")),
        some(acted.persistence.len(), "attempt").map(|attempts| format!("{attempts} to be started again")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let did = if parts.is_empty() { "Nothing was seen of it".to_owned() } else { parts.join(", ") };
    match acted.ended.as_str() {
        "" => format!("{did}."),
        ended => format!("{did}. It ended with {}.", cut(ended)),
    }
}

fn stays(attempts: &[Persistence]) -> Html {
    let row =
        |line: &Persistence| html!("<tr><td>{}</td><td><code>{}</code></td></tr>", cut(&line.what), cut(&line.path));
    let head = html!("<th>How</th><th>Where</th>");
    table("How it tried to stay", &head, attempts.iter().map(row), attempts.len())
}

fn network(attempts: &[Network]) -> Html {
    let row = |line: &Network| {
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td class=\"number\">{}</td></tr>",
            network_word(&line.what),
            cut(&line.to),
            cut(&line.detail),
            line.pid
        )
    };
    let head = html!("<th>It</th><th>Whom</th><th>More</th><th class=\"number\">Process</th>");
    table("Whom it tried to reach", &head, attempts.iter().map(row), attempts.len())
}

fn network_word(what: &str) -> String {
    match what {
        "connect" => "connected to".to_owned(),
        "dns" => "asked for the address of".to_owned(),
        "http" => "asked over HTTP".to_owned(),
        "listen" => "listened at".to_owned(),
        "send" => "sent to".to_owned(),
        other => cut(other),
    }
}

fn files(touched: &[FileChange]) -> Html {
    let row = |file: &FileChange| {
        let hash = file.sha256.as_deref().unwrap_or_default();
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"number\">{}</td><td><code>{}</code></td></tr>",
            cut(&file.what),
            cut(&file.path),
            file.bytes.map(size),
            hash.chars().take(16).collect::<String>()
        )
    };
    let head = html!("<th>It was</th><th>File</th><th class=\"number\">Size</th><th>SHA-256</th>");
    table("Files that it changed", &head, touched.iter().map(row), touched.len())
}

fn acts(acts: &[Act]) -> Html {
    let row = |act: &Act| {
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"number\">{}</td></tr>",
            cut(&act.what),
            cut(&act.detail),
            act.pid
        )
    };
    let head = html!("<th>It</th><th>More</th><th class=\"number\">Process</th>");
    table("What else it did", &head, acts.iter().map(row), acts.len())
}

/// A titled table of what there is; nothing if there is nothing.
fn table(title: &str, head: &Html, rows: impl Iterator<Item = Html>, all: usize) -> Html {
    if all == 0 {
        return Html::none();
    }
    let more = match all.saturating_sub(LINES_MAX) {
        0 => Html::none(),
        more => html!("<p class=\"faint\">… and {} more; the raw report has them.</p>", more),
    };
    html!(
        "<h3>{}</h3><div class=\"scroll\"><table class=\"rows\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}",
        title,
        head,
        rows.take(LINES_MAX).collect::<Html>(),
        more
    )
}
