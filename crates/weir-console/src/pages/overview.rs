//! The first page: is everything all right, what is under attack, what needs a decision.

use super::{Asking, PageResult, query};
use crate::flow;
use crate::frame::{Here, LivePart, NARROW, Sheet, numbers, plot, status, times};
use crate::health::{Health, HealthProblem, HealthVerdict};
use crate::history::History;
use crate::html;
use crate::html::Html;
use crate::past::Over;
use crate::pulse::Pulse;
use crate::site::Site;
use crate::words::{capital, clock, count, grouped, percent, rate, seconds};
use axum::Extension;
use axum::extract::{RawQuery, State};
use std::time::Instant;
use weir_mail::delivery::next_hops::NextHopView;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let over = Over::named(query(&asked).value("over"));
    let (pulse, history) = (site.pulse().await, site.history_over(over).await);
    let parts = parts(&pulse, &history);
    let part = |(id, html): &LivePart| html!("<div id=\"{}\" class=\"part {}\">{}</div>", *id, *id, html);
    let shown: Html = parts.iter().map(part).collect();
    let body = html!("<h1 class=\"unseen\">Overview</h1><div class=\"overview\">{}</div>{}", shown, times("", over));
    Ok(Sheet::new("Overview", Here::Overview, body).with_parts(parts).page(&site, &visit).await)
}

/// The parts of the page, each of which may change separately.
fn parts(pulse: &Pulse, history: &History) -> Vec<LivePart> {
    let now = Instant::now();
    let health = Health::of(pulse);
    vec![
        ("lead", lead(pulse, &health)),
        ("needs", needs_list(&health.problems)),
        ("flow", flow::picture(pulse, history, now)),
        ("gate-throttle", throttle(pulse, history, now)),
        ("gate-scan", scan(pulse, history, now)),
        ("gate-web", web(pulse, history, now)),
        ("gate-lab", lab(pulse, history, now)),
    ]
}

/// The verdict, and which attacks are going on.
fn lead(pulse: &Pulse, health: &Health) -> Html {
    let attack = attacks(pulse);
    let words = match (health.verdict, attack.as_str()) {
        (HealthVerdict::Well, "") => format!("{} Nothing needs you.", health.says),
        (HealthVerdict::Well, attack) => format!("{attack} Nothing needs you."),
        (_, attack) => format!("{attack} {}", health.says),
    };
    html!("<p class=\"lead\">{}{}</p>", words.trim(), open_incidents(pulse))
}

/// How many incidents are open, as a link to their stories.
fn open_incidents(pulse: &Pulse) -> Html {
    let (to, words) = match (pulse.incidents.count, pulse.incidents.first.first()) {
        (0, _) => return Html::none(),
        (1, Some((id, _))) => (format!("incidents/{id}"), "1 open incident".to_owned()),
        (open, _) => ("incidents".to_owned(), count(open, "open incident")),
    };
    html!(" <a href=\"/{}\">{}</a>", to, words)
}

/// Which attacks are going on, and what is done about them.
fn attacks(pulse: &Pulse) -> String {
    let mut said = Vec::new();
    let totals = pulse.status.as_ref().map(|status| status.totals).unwrap_or_default();
    if totals.stopped > 0 {
        let held = count(totals.held_messages, "mail");
        said.push(match totals.stopped {
            1 => format!("One account is stopped, {held} held."),
            stopped => format!("{stopped} accounts are stopped, {held} held."),
        });
    }
    if pulse.web_waiting() > 0 {
        let waiting = count(pulse.web_waiting() as u64, "request");
        said.push(format!("{waiting} wait for the web servers, in fair order."));
    }
    said.join(" ")
}

fn needs_list(problems: &[HealthProblem]) -> Html {
    if problems.is_empty() {
        return Html::none();
    }
    let item = |problem: &HealthProblem| {
        // A problem of a user begins with the user's name, which is not changed.
        let of_user = problem.page.starts_with("/throttle/users");
        let word = if of_user { "Decide" } else { "Look" };
        let says = problem.says.trim_end_matches('.');
        let says = if of_user { says.to_owned() } else { capital(says) };
        let way = match problem.page.as_str() {
            "" => Html::none(),
            page => html!("<a class=\"button\" href=\"/{}\">{}</a>", page.trim_start_matches('/'), word),
        };
        let class = if problem.verdict == HealthVerdict::Failing { "failing" } else { "look" };
        html!("<li class=\"{}\"><span>{}.</span>{}</li>", class, says, way)
    };
    html!(
        "<h2 class=\"unseen\">What needs you</h2><ul class=\"needs\">{}</ul>",
        problems.iter().map(item).collect::<Html>()
    )
}

/// One gate's panel.
struct Panel {
    name: &'static str,
    question: &'static str,
    link: &'static str,
    status: Html,
    sentence: String,
    chart: Html,
    numbers: Vec<(&'static str, String)>,
}

impl Panel {
    fn html(&self) -> Html {
        html!(
            "<section class=\"panel\"><div class=\"head\"><h2><a href=\"/{}\">{}</a></h2><small>{}</small>{}</div>\
             <p class=\"sentence\">{}</p>{}{}</section>",
            self.link,
            self.name,
            self.question,
            self.status,
            self.sentence,
            self.chart,
            numbers(&self.numbers)
        )
    }
}

fn off(name: &'static str, question: &'static str, link: &'static str, how: &str) -> Html {
    html!(
        "<section class=\"panel off\"><div class=\"head\"><h2><a href=\"/{}\">{}</a></h2><small>{}</small>{}</div><p class=\"sentence\">{}</p></section>",
        link,
        name,
        question,
        status("", "off"),
        how
    )
}

fn throttle(pulse: &Pulse, history: &History, now: Instant) -> Html {
    let question = "may this user's mail go now?";
    let Some(state) = &pulse.status else {
        return off("Throttle", question, "throttle", "Its state cannot be read now.");
    };
    let totals = state.totals;
    let stopped = pulse.stopped().next();
    let sentence = match (stopped, pulse.busy.first()) {
        (Some(stopped), _) => {
            let since = stopped.throttle.stopped_since.as_deref().map(clock).unwrap_or_default();
            let held = count(stopped.throttle.held as u64, "recipient");
            format!("{} was stopped at {since} UTC, and {held} wait for a decision.", stopped.user)
        }
        (None, Some(busy)) => format!("{}: {}.", busy.user, busy.throttle.in_words),
        (None, None) if state.learn_only => {
            "It only learns: every mail goes, and mail that would be held is only recorded.".to_owned()
        }
        (None, None) => "Nobody's mail waits.".to_owned(),
    };
    let chart = history
        .chart(now, "Recipients held", ("held", "recipients"))
        .steps("held", history.gauge(|reading| reading.held, now))
        .when_empty("mail to many new people would fill this");
    let hops = state.gate.iter().flat_map(|gate| &gate.next_hops.hops);
    let (kind, word) = match (totals.stopped, totals.held_recipients) {
        (0, 0) if hops.clone().any(NextHopView::is_away) => ("stopped", "a next hop is away"),
        (0, 0) => ("served", "all mail goes"),
        (0, _) => ("held", "mail is held"),
        _ => ("stopped", "stopped"),
    };
    Panel {
        name: "Throttle",
        question,
        link: "throttle",
        status: status(kind, word),
        sentence,
        chart: plot(&chart, NARROW),
        numbers: vec![
            ("mail taken", rate(history.rate_now(|reading| reading.mails, now))),
            ("held", count(totals.held_recipients, "recipient")),
            ("users", grouped(totals.users.max(0) as u64)),
        ],
    }
    .html()
}

fn scan(pulse: &Pulse, history: &History, now: Instant) -> Html {
    let question = "which worker scans this message?";
    let Some(feeds) = &pulse.feeds else {
        return off("Scan", question, "feeds", "Mail is not scanned: scan.enabled is false.");
    };
    let quarantined = pulse.quarantined("");
    let viruses = pulse.quarantined("virus");
    let sentence = match (&feeds.outage, feeds.waiting) {
        (Some(outage), _) => format!("Scans fail: {}. Mail waits.", outage.problem),
        (None, 0) if quarantined == 0 => "No message waits for a worker, and the quarantine is empty.".to_owned(),
        (None, 0) if viruses > 0 => format!(
            "No message waits. {} in quarantine, {} infected.",
            count(quarantined, "message"),
            grouped(viruses as u64)
        ),
        (None, 0) => format!("No message waits. {} in quarantine.", count(quarantined, "message")),
        (None, waiting) => {
            format!("{} for a worker, the oldest for {}.", waits(waiting, "message"), seconds(feeds.oldest_s))
        }
    };
    let scanned = history.rate(|reading| reading.scanned, now);
    let highest = scanned.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let mut chart = history
        .chart(now, "Messages scanned", ("scanned", "messages/min"))
        .line("scanned", per_minute(scanned))
        .when_empty("mail would fill this");
    // A limit far above the traffic would make its curve flat.
    if let Some(most) = feeds.lambda_max_per_s.filter(|most| *most < 5.0 * highest) {
        chart = chart.level("the most that these feeds can handle", most * 60.0);
    }
    let (kind, word) = match (&feeds.outage, feeds.waiting) {
        (Some(_), _) => ("stopped", "scans fail"),
        (None, 0) => ("served", "keeps up"),
        _ => ("waiting", "mail waits"),
    };
    Panel {
        name: "Scan",
        question,
        link: "feeds",
        status: status(kind, word),
        sentence,
        chart: plot(&chart, NARROW),
        numbers: vec![
            ("arriving", rate(feeds.lambda_per_s)),
            ("waiting", count(feeds.waiting as u64, "message")),
            ("in quarantine", grouped(quarantined.max(0) as u64)),
        ],
    }
    .html()
}

fn web(pulse: &Pulse, history: &History, now: Instant) -> Html {
    let question = "whose request is served next?";
    let Some(web) = &pulse.web else {
        return off("Web", question, "web", "No web server is configured: [web] has no backend.");
    };
    let waiting = pulse.web_waiting();
    let servers = || web.backends.iter().flat_map(|backend| &backend.servers);
    let down = servers().filter(|server| !server.up).count();
    let sentence = match pulse.sessions.first() {
        Some(first) if waiting > 0 => {
            let asking: u32 = pulse.sessions.iter().map(|session| session.waiting + session.running).sum();
            let part = f64::from(first.waiting + first.running) / f64::from(asking.max(1));
            format!(
                "{} in the queue. {} asks for {} of everything, and gets no more than its share.",
                waits(waiting, "request"),
                first.client,
                percent(part)
            )
        }
        _ => match (down, servers().count()) {
            (0, 1..) if servers().all(|server| !server.tried) => "Nobody waits, and nobody has asked yet.".to_owned(),
            (0, _) => "Nobody waits: every request is served at once.".to_owned(),
            (1, 1) => "The only server does not answer.".to_owned(),
            (down, all) if down == all => format!("None of the {all} servers answers."),
            (1, _) => "One server does not answer; the others serve.".to_owned(),
            (down, _) => format!("{down} servers do not answer; the others serve."),
        },
    };
    let chart = history
        .chart(now, "Requests served", ("requests", "requests/s"))
        .line("served", history.rate(|reading| reading.served, now))
        .when_empty("requests would fill this");
    let refused = history.rate(|reading| reading.refused, now);
    let chart = if refused.iter().any(|(_, rate)| *rate > 0.0) { chart.line("refused", refused) } else { chart };
    Panel {
        name: "Web",
        question,
        link: "web",
        status: match (down, waiting) {
            (down, _) if down > 0 && down == servers().count() => status("stopped", "no server answers"),
            (_, 0) => status("served", "serves"),
            _ => status("waiting", "requests wait"),
        },
        sentence,
        chart: plot(&chart, NARROW),
        numbers: vec![
            ("served", rate(history.rate_now(|reading| reading.served, now))),
            ("waiting", count(waiting as u64, "request")),
            ("asking now", count(pulse.asking as u64, "session")),
        ],
    }
    .html()
}

fn lab(pulse: &Pulse, history: &History, now: Instant) -> Html {
    let question = "which machine analyses this sample?";
    let Some(lab) = &pulse.lab else {
        return off("Lab", question, "lab", "This machine analyses no samples: lab.enabled is false.");
    };
    let open = pulse.samples_open();
    let sentence = match (&lab.leader, open) {
        (None, _) => "No machine leads the lab at the moment: samples are accepted and wait.".to_owned(),
        (Some(leader), 0) => format!("{leader} leads. Every sample has its report."),
        (Some(leader), open) => format!(
            "{leader} leads. {} not done yet.",
            if open == 1 { "1 sample is".to_owned() } else { format!("{open} samples are") }
        ),
    };
    let chart = history
        .chart(now, "Samples analysed", ("analysed", "samples/min"))
        .line("analysed", per_minute(history.rate(|reading| reading.samples_done, now)))
        .when_empty("a sample would fill this: weir lab submit FILE");
    Panel {
        name: "Lab",
        question,
        link: "lab",
        status: match (&lab.leader, open) {
            (None, _) => status("stopped", "no leader"),
            (_, 0) => status("served", "idle"),
            _ => status("running", "at work"),
        },
        sentence,
        chart: plot(&chart, NARROW),
        numbers: vec![
            ("open", count(open, "sample")),
            ("done", grouped(pulse.samples("done").max(0) as u64)),
            ("plugins", grouped(lab.plugins.len() as u64)),
        ],
    }
    .html()
}

/// `1 message waits`, `3 messages wait`.
fn waits(number: usize, noun: &str) -> String {
    format!("{} wait{}", count(number as u64, noun), if number == 1 { "s" } else { "" })
}

/// A rate per second as a rate per minute.
fn per_minute(points: Vec<(f64, f64)>) -> impl Iterator<Item = (f64, f64)> {
    points.into_iter().map(|(x, y)| (x, y * 60.0))
}
