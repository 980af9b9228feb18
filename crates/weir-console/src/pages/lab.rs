//! The page of the lab: which machine leads, what waits and where, and the samples.

use super::{Asking, PageResult, Trouble, machines, query};
use crate::frame::{Here, Sheet, WIDE, empty, numbers, plot, status, times};
use crate::html;
use crate::html::{Html, Piece};
use crate::lanes;
use crate::past::Over;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{cut, grouped, seconds, size, time_ns};
use axum::Extension;
use axum::extract::{RawQuery, State};
use std::time::Instant;
use weir_foundation::OperationError;
use weir_foundation::clock::wall_clock;
use weir_lab::node::Node;
use weir_lab::operations::{LabStatus, PlaceLine, QueueLine, SampleFilter, SampleLine};
use weir_lab::verdict::Verdict;

const SAMPLES_SHOWN: i64 = 100;
/// For how many samples attempts are drawn.
const SAMPLES_IN_LANES: i64 = 40;
const PLACES_SHOWN: usize = 200;
/// How many characters of texts from a sample are shown in a list.
const NAME_MAX: usize = 160;

pub(super) async fn list(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let Some(node) = &site.lab else {
        let how = html!("Set <code>lab.enabled = true</code> and start Weir again; <code>make run</code> does it too.");
        let body = html!("<h1>Lab</h1>{}", empty("This machine analyses no samples.", &how));
        return Ok(Sheet::new("Lab", Here::Lab, body).page(&site, &visit).await);
    };
    let asked = query(&asked);
    let over = Over::named(asked.value("over"));
    let lab = node.status().await?;
    let filter = SampleFilter {
        hash: asked.value("hash").to_ascii_lowercase(),
        state: asked.value("state").to_owned(),
        verdict: Verdict::named(asked.value("verdict")).map(Verdict::number),
        before: asked.value("before").parse().ok(),
    };
    let samples = node.list(&filter, SAMPLES_SHOWN).await?;
    let (queues, nodes, places) = (node.queue(0).await?.queues, node.nodes().await?, node.places().await);
    let (now, history) = (Instant::now(), site.history_over(over).await);
    let open = history
        .chart(now, "Samples that are not done", ("open", "samples"))
        .steps("open", history.gauge(|reading| reading.samples_open, now))
        .when_empty("samples would fill this: weir lab submit FILE");
    let ran = ran(&site, node).await?;
    let parts = [
        html!("<h1>Lab</h1><p class=\"lead\">{}</p>", lead(&lab)),
        figures(&lab),
        html!("{}{}", plot(&open, WIDE), ran),
        times("lab", over),
        uploading(&visit),
        waiting(&queues),
        html!("<section><h2>Samples</h2>{}</section>", tabs(&lab, &filter.state, asked.value("verdict"))),
        table(&samples, (&filter.state, asked.value("verdict"))),
        vms(&places),
        machines::section(&visit, &nodes),
        about(&lab),
    ];
    Ok(Sheet::live("Lab", Here::Lab, &parts).page(&site, &visit).await)
}

/// What ran where recently: the attempts on the newest samples.
async fn ran(site: &Site, node: &Node) -> Result<Html, Trouble> {
    let records = &site.administration.foundation.records;
    let names = records.lab_nodes().all().await.map_err(OperationError::from)?;
    let names = names.into_iter().map(|row| (row.node, row.name)).collect();
    let mut attempts = Vec::new();
    for sample in node.list(&SampleFilter::default(), SAMPLES_IN_LANES).await? {
        attempts.extend(records.lab_attempts().of_sample(sample.sample).await.map_err(OperationError::from)?);
    }
    Ok(lanes::picture(&attempts, &names, wall_clock().0 as i64))
}

fn lead(lab: &LabStatus) -> String {
    let leader = match &lab.leader {
        Some(leader) if lab.leads_here => format!("{leader}, this machine, leads since epoch {}.", lab.epoch),
        Some(leader) => format!("{leader} leads since epoch {}.", lab.epoch),
        None => "No machine leads at the moment: samples are accepted and wait.".to_owned(),
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

/// A file from the browser goes to the API unchanged: a form would have to be read completely before it could be refused.
fn uploading(visit: &Visit) -> Html {
    html!(
        "<form class=\"filter\" method=\"post\" action=\"/api/v1/lab/samples\" data-upload=\"{}\"><label>Hand in a sample <input type=\"file\" name=\"file\" required></label>{}{}{}\
         <button>Have it analysed</button><output class=\"faint\"></output><noscript><p>This needs scripts; <code>weir lab submit FILE</code> does not.</p></noscript></form>",
        visit.token,
        choice(
            "TLP",
            "tlp",
            &[("", "amber"), ("clear", "clear"), ("green", "green"), ("amber+strict", "amber+strict"), ("red", "red")]
        ),
        choice(
            "Run it",
            "guest",
            &[("", "where it fits"), ("linux", "in Linux"), ("windows", "in Windows"), ("none", "nowhere")]
        ),
        choice("Network", "network", &[("", "one that answers"), ("none", "none")])
    )
}

/// A choice of one of these; the first is the default.
fn choice(label: &str, name: &str, all: &[(&str, &str)]) -> Html {
    let option = |(value, word): &(&str, &str)| html!("<option value=\"{}\">{}</option>", *value, *word);
    html!("<label>{} <select name=\"{}\">{}</select></label>", label, name, all.iter().map(option).collect::<Html>())
}

fn figures(lab: &LabStatus) -> Html {
    let states: Vec<(&str, String)> =
        lab.states.iter().map(|count| (count.state.as_str(), grouped(count.samples.max(0) as u64))).collect();
    if states.is_empty() { Html::none() } else { numbers(&states) }
}

/// States with their counts, and verdicts, which are not counted.
fn tabs(lab: &LabStatus, current: &str, verdict: &str) -> Html {
    let tab = |state: &str, name: &str, number: i64| {
        let marked = if state == current && verdict.is_empty() { "page" } else { "false" };
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
    let named = |word: &str| {
        let marked = if word == verdict { "page" } else { "false" };
        html!("<li><a href=\"/lab?verdict={}\" aria-current=\"{}\">{}</a></li>", Piece(word), marked, word)
    };
    let verdicts: Html = ["malicious", "suspicious", "clean", "unknown"].into_iter().map(named).collect();
    html!(
        "<ul class=\"tabs\" aria-label=\"By state\">{}{}</ul><ul class=\"tabs\" aria-label=\"By verdict\">{}</ul>",
        all,
        each,
        verdicts
    )
}

pub(super) fn table(samples: &[SampleLine], (state, verdict): (&str, &str)) -> Html {
    if samples.is_empty() {
        let how = html!(
            "<code>weir lab submit FILE</code> hands one in, or copy it to the directory <code>analysis/32</code>."
        );
        return empty("There is no sample here.", &how);
    }
    let row = |sample: &SampleLine| {
        html!(
            "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td class=\"main\"><a href=\"/lab/samples/{}\">{}</a><br><small class=\"hash\">{}</small></td><td>{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            sample.sample,
            status(&sample.state, &sample.state),
            status(&sample.verdict, &sample.verdict),
            sample.sample,
            if sample.name.is_empty() { "(no name)".to_owned() } else { cut(&sample.name, NAME_MAX) },
            sample.hash,
            cut(&sample.file_type, NAME_MAX),
            size(sample.size.max(0) as u64),
            sample.priority,
            cut(&sample.submitter, NAME_MAX),
            time_ns(sample.arrived_at)
        )
    };
    let more = match samples.last() {
        Some(last) if samples.len() as i64 == SAMPLES_SHOWN => {
            html!(
                "<p><a href=\"/lab?state={}&amp;verdict={}&amp;before={}\">Older samples</a></p>",
                Piece(state),
                Piece(verdict),
                last.sample
            )
        }
        _ => Html::none(),
    };
    html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th class=\"number\">Number</th><th>State</th><th>Verdict</th><th>Name and hash</th><th>Type</th><th class=\"number\">Size</th>\
         <th class=\"number\">Priority</th><th>From</th><th>Came</th></tr></thead><tbody>{}</tbody></table></div>{}",
        samples.iter().map(row).collect::<Html>(),
        more
    )
}

/// The samples that wait, by priority.
fn waiting(queues: &[QueueLine]) -> Html {
    if queues.is_empty() {
        return Html::none();
    }
    let row = |queue: &QueueLine| {
        html!(
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            queue.priority,
            grouped(queue.waiting.max(0) as u64),
            grouped(queue.running.max(0) as u64),
            seconds(queue.oldest_wait_s)
        )
    };
    html!(
        "<section><h2>What waits</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th class=\"number\">Priority</th><th class=\"number\">Wait</th>\
         <th class=\"number\">Run</th><th class=\"number\">The oldest is here for</th></tr></thead><tbody>{}</tbody></table></div>\
         <p class=\"faint\">The lowest number goes first.</p></section>",
        queues.iter().map(row).collect::<Html>()
    )
}

/// The slots and VMs in which samples are analysed, and what each does.
fn vms(places: &[PlaceLine]) -> Html {
    if places.is_empty() {
        return Html::none();
    }
    let row = |place: &PlaceLine| {
        let (kind, word) = match place.state.as_str() {
            "IN_USE" => ("running", "in use"),
            "ON_REVERT" => ("", "on revert"),
            _ => ("served", "free"),
        };
        let sample = place.sample.map(|sample| html!("<a href=\"/lab/samples/{}\">sample {}</a>", sample, sample));
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"main\">{}</td></tr>",
            place.node,
            place.name,
            status(kind, word),
            sample,
            place.plugins.join(", ")
        )
    };
    html!(
        "<section><h2>VMs and other places</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Machine</th><th>Place</th><th>State</th><th>Runs</th><th>Can run</th></tr></thead>\
         <tbody>{}</tbody></table></div></section>",
        places.iter().take(PLACES_SHOWN).map(row).collect::<Html>()
    )
}

fn about(lab: &LabStatus) -> Html {
    html!(
        "<section><h2>This machine</h2><dl class=\"facts\"><dt>Plugins</dt><dd>{}</dd><dt>Samples come from</dt><dd><code>{}</code></dd></dl></section>",
        if lab.plugins.is_empty() { "none".to_owned() } else { lab.plugins.join(", ") },
        lab.analysis
    )
}
