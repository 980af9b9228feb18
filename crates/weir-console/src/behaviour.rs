//! What a sample did when it ran, and the indicators that others can watch for. The sample's page and its report both use this.
//!
//! All of it comes from a guest that ran malware, or from hostile files. So it is shown as text only, and bounded.

use crate::html;
use crate::html::Html;
use crate::process_tree;
use crate::words::{self, count, size};
use weir_lab::report::{
    Act, Acted, Behaviour, Capture, FileChange, Ioc, IocKind, Network, Persistence, RegistryChange, Screen,
    TimelineEvent,
};

/// How many events are shown at first.
const EVENTS_OPEN: usize = 25;

/// How much of the behaviour is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Lines of one table.
    pub(crate) lines: usize,
    /// Characters of one text.
    pub(crate) text: usize,
}

impl Bounds {
    /// The beginning of a text that strangers wrote.
    pub(crate) fn cut(self, text: &str) -> String {
        words::cut(text, self.text)
    }

    /// A table of these rows; empty if there are none.
    fn table(self, head: &Html, rows: impl Iterator<Item = Html>, all: usize) -> Html {
        if all == 0 {
            return Html::none();
        }
        let more = match all.saturating_sub(self.lines) {
            0 => Html::none(),
            more => html!("<p class=\"faint\">… and {} more; the raw report has them.</p>", more),
        };
        html!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}",
            head,
            rows.take(self.lines).collect::<Html>(),
            more
        )
    }
}

/// The behaviour in a sentence, in order of time, as a tree of processes, and in tables.
pub(crate) fn draw(acted: &Acted, events: &[TimelineEvent], bounds: Bounds) -> Html {
    let seen = &acted.seen;
    let processes = match seen.processes.is_empty() {
        true => html!("<p class=\"faint\">None was seen.</p>"),
        false => process_tree::draw(acted),
    };
    html!(
        "<p>{} <span class=\"faint\">In {}, {}.</span></p>{}<h3>Processes</h3>{}{}{}{}{}{}{}{}{}{}",
        sentence(seen, bounds),
        if acted.machine.is_empty() { "a VM".to_owned() } else { bounds.cut(&acted.machine) },
        if acted.accelerator.is_empty() { "accelerator unknown".to_owned() } else { bounds.cut(&acted.accelerator) },
        timeline(events, bounds),
        processes,
        stays(&seen.persistence, bounds),
        network(&seen.network, bounds),
        seen.capture.as_ref().map(packets),
        files(&seen.files, bounds),
        registry(&seen.registry, bounds),
        texts("What it showed", &seen.windows, bounds),
        screens(&seen.screens),
        acts(&seen.acts, bounds),
        texts("What it loaded that is not Wine's", &seen.modules, bounds)
    )
}

/// All events in the order in which they happened. A sample may do a thousand things: the first of them are shown, and the others after a click.
fn timeline(events: &[TimelineEvent], bounds: Bounds) -> Html {
    let row = |event: &TimelineEvent| {
        let techniques: Vec<&str> = event.techniques.iter().copied().collect();
        let pid = if event.pid == 0 { String::new() } else { event.pid.to_string() };
        html!(
            "<tr><td class=\"number\">{}</td><td class=\"main\"><span class=\"faint\">{}</span> <code>{}</code></td><td>{}</td><td class=\"number\">{}</td></tr>",
            event.at_ms.map(seconds),
            event_word(event.kind),
            bounds.cut(&event.text),
            techniques.join(" "),
            pid
        )
    };
    let head = html!(
        "<th class=\"number\">After</th><th class=\"main\">What</th><th>Techniques</th><th class=\"number\">Process</th>"
    );
    let table = |events: &[TimelineEvent], bounds: Bounds| bounds.table(&head, events.iter().map(row), events.len());
    let (first, rest) = events.split_at(events.len().min(EVENTS_OPEN));
    let more = match rest.is_empty() {
        true => Html::none(),
        false => html!(
            "<details><summary>{} after that</summary>{}</details>",
            count(rest.len() as u64, "event"),
            table(rest, bounds)
        ),
    };
    titled("In order of time", &html!("{}{}", table(first, bounds), more))
}

fn seconds(at_ms: u64) -> String {
    format!("{}.{:03} s", at_ms / 1000, at_ms % 1000)
}

fn event_word(kind: &str) -> &'static str {
    match kind {
        "process" => "process",
        "file" => "file",
        "network" => "network",
        "registry" => "registry",
        "stays" => "stays",
        _ => "other",
    }
}

/// Indicators that others can watch for; empty if there are none. They are text and not links, so that nobody opens one by accident.
pub(crate) fn indicators(iocs: &[Ioc], bounds: Bounds) -> Html {
    let row = |ioc: &Ioc| {
        let kind = match ioc.kind {
            IocKind::Url => "link",
            IocKind::Ip => "address",
            IocKind::Domain => "name",
            IocKind::Email => "mail address",
        };
        let (value, from) = (bounds.cut(&ioc.value), bounds.cut(&ioc.from));
        html!("<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>", kind, value, from)
    };
    let table = bounds.table(&html!("<th>Kind</th><th>Value</th><th>Found by</th>"), iocs.iter().map(row), iocs.len());
    if iocs.is_empty() { table } else { html!("<h2>Indicators</h2>{}", table) }
}

fn sentence(acted: &Behaviour, bounds: Bounds) -> String {
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
        ended => format!("{did}. It ended with {}.", bounds.cut(ended)),
    }
}

fn stays(attempts: &[Persistence], bounds: Bounds) -> Html {
    let row = |line: &Persistence| {
        html!("<tr><td>{}</td><td><code>{}</code></td></tr>", bounds.cut(&line.what), bounds.cut(&line.path))
    };
    let head = html!("<th>How</th><th>Where</th>");
    titled("How it tried to stay", &bounds.table(&head, attempts.iter().map(row), attempts.len()))
}

fn network(attempts: &[Network], bounds: Bounds) -> Html {
    let row = |line: &Network| {
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td class=\"number\">{}</td></tr>",
            network_word(&line.what, bounds),
            bounds.cut(&line.to),
            bounds.cut(&line.detail),
            line.pid
        )
    };
    let head = html!("<th>It</th><th>Whom</th><th>More</th><th class=\"number\">Process</th>");
    titled("Whom it tried to reach", &bounds.table(&head, attempts.iter().map(row), attempts.len()))
}

/// How much of the network traffic is kept; the file itself is with the other downloads.
fn packets(capture: &Capture) -> Html {
    let cut = if capture.cut { " There were more: a capture ends when it is full." } else { "" };
    html!("<p class=\"faint\">{} kept.{}</p>", count(capture.packets, "packet"), cut)
}

fn network_word(what: &str, bounds: Bounds) -> String {
    match what {
        "connect" => "connected to".to_owned(),
        "dns" => "asked for the address of".to_owned(),
        "http" => "asked over HTTP".to_owned(),
        "listen" => "listened at".to_owned(),
        "send" => "sent to".to_owned(),
        other => bounds.cut(other),
    }
}

fn files(touched: &[FileChange], bounds: Bounds) -> Html {
    let row = |file: &FileChange| {
        let hash = file.sha256.as_deref().unwrap_or_default();
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"number\">{}</td><td><code>{}</code></td></tr>",
            bounds.cut(&file.what),
            bounds.cut(&file.path),
            file.bytes.map(size),
            hash.chars().take(16).collect::<String>()
        )
    };
    let head = html!("<th>It was</th><th>File</th><th class=\"number\">Size</th><th>SHA-256</th>");
    titled("Files that it changed", &bounds.table(&head, touched.iter().map(row), touched.len()))
}

fn registry(changes: &[RegistryChange], bounds: Bounds) -> Html {
    let row = |change: &RegistryChange| {
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td><code>{}</code></td><td><code>{}</code></td></tr>",
            bounds.cut(&change.what),
            bounds.cut(&change.key),
            bounds.cut(&change.name),
            bounds.cut(&change.data)
        )
    };
    let head = html!("<th>It was</th><th>Key</th><th>Value</th><th>Data</th>");
    titled("The registry afterwards", &bounds.table(&head, changes.iter().map(row), changes.len()))
}

fn texts(title: &str, texts: &[String], bounds: Bounds) -> Html {
    let row = |text: &String| html!("<tr><td><code>{}</code></td></tr>", bounds.cut(text));
    titled(title, &bounds.table(&Html::none(), texts.iter().map(row), texts.len()))
}

/// Pictures of the screen. The lab has checked that each is a PNG in base64 and not too large.
fn screens(screens: &[Screen]) -> Html {
    let picture = |screen: &Screen| {
        let seconds = screen.at_ms / 1000;
        html!(
            "<figure><img class=\"screen\" src=\"data:image/png;base64,{}\" alt=\"The screen after {} seconds\"><figcaption>after {} s</figcaption></figure>",
            screen.png.as_str(),
            seconds,
            seconds
        )
    };
    titled("The screen", &screens.iter().filter(|screen| screen.is_picture()).map(picture).collect::<Html>())
}

fn acts(acts: &[Act], bounds: Bounds) -> Html {
    let row = |act: &Act| {
        html!(
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"number\">{}</td></tr>",
            bounds.cut(&act.what),
            bounds.cut(&act.detail),
            act.pid
        )
    };
    // What it showed has a table of its own.
    let acts: Vec<&Act> = acts.iter().filter(|act| act.what != "shows").collect();
    let head = html!("<th>It</th><th>More</th><th class=\"number\">Process</th>");
    titled("What else it did", &bounds.table(&head, acts.iter().copied().map(row), acts.len()))
}

/// A table with its title; empty if there are no rows.
fn titled(title: &str, table: &Html) -> Html {
    if table.as_str().is_empty() { Html::none() } else { html!("<h3>{}</h3>{}", title, table) }
}
