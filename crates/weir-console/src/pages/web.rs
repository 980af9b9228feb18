//! The page of the web gate: who is asking and who waits, and each client's share beside the fair share.

use super::{Asking, PageResult, Sent, ended, query, refused};
use crate::api::web::{Drain, NewWeight, blocked, drained, unblocked, weighted};
use crate::frame::{Here, NARROW, Sheet, WIDE, back, empty, numbers, plot, status, times, token};
use crate::history::History;
use crate::html;
use crate::html::{Html, Text};
use crate::past::Over;
use crate::pulse::Pulse;
use crate::reading::Reading;
use crate::session::Visit;
use crate::site::Site;
use crate::trouble::Trouble;
use crate::words::{count, grouped, percent, rate, seconds, time_ns};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};
use weir_chart::Chart;
use weir_web::admission::SessionView;
use weir_web::blocks::BlockView;
use weir_web::health::WEIGHT_MAX;
use weir_web::proxy::Gate;
use weir_web::view::{BackendView, ServerView, Status};

const HERE: &str = "/web";
const SESSIONS_SHOWN: usize = 50;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let over = Over::named(query(&asked).value("over"));
    let pulse = site.pulse().await;
    let Some(web) = &pulse.web else {
        let how = html!(
            "Put Weir in front of a web server with two lines: <code>[web]</code> and <code>backends = [\"app 127.0.0.1:8080\"]</code>. <code>make run</code> serves a small one of its own."
        );
        let body = html!("<h1>Web</h1>{}", empty("No web server is configured.", &how));
        return Ok(Sheet::new("Web", Here::Web, body).page(&site, &visit).await);
    };
    let (now, history) = (Instant::now(), site.history_over(over).await);
    let refused = history.rate(|reading| reading.refused, now);
    let mut served = history
        .chart(now, "Requests served", ("requests", "requests/s"))
        .line("served", history.rate(|reading| reading.served, now))
        .when_empty("requests would fill this");
    if refused.iter().any(|(_, rate)| *rate > 0.0) {
        served = served.line("refused", refused);
    }
    let waiting = history
        .chart(now, "Requests waiting", ("waiting", "requests"))
        .steps("waiting", history.gauge(|reading| reading.web_waiting, now))
        .when_empty("a flood would fill this");
    let shares = history.shares();
    let stacked = served_by_standing(&history, now);
    let parts = [
        html!("<h1>Web</h1><p class=\"lead\">{}</p>", lead(&pulse)),
        web.backends.iter().map(pressure).collect(),
        numbers(&[
            ("served", rate(history.rate_now(|reading| reading.served, now))),
            ("connections", grouped(web.connections.into())),
            ("sessions asking now", grouped(pulse.asking as u64)),
            ("refused since the start", grouped(refused_in_all(web))),
        ]),
        html!(
            "<section><h2>Who got the servers</h2>{}<div class=\"two\">{}{}</div></section>",
            plot(&stacked, WIDE),
            plot(&served, NARROW),
            plot(&waiting, NARROW)
        ),
        times("web", over),
        sessions(&pulse, &shares),
        subnets(&pulse.sessions, &shares),
        web.backends.iter().map(|view| backend(&visit, view)).collect(),
        blocks(&visit, &site.web.as_ref().map(|gate| gate.blocks().view(SystemTime::now())).unwrap_or_default()),
    ];
    Ok(Sheet::live("Web", Here::Web, &parts).page(&site, &visit).await)
}

/// For whom the servers worked over time, as parts of the whole.
fn served_by_standing(history: &History, now: Instant) -> Chart {
    let of = |counter: fn(&Reading) -> f64| history.rate(counter, now);
    let (known, new, strange) =
        (of(|reading| reading.slots_known), of(|reading| reading.slots_new), of(|reading| reading.slots_strange));
    let x: Vec<f64> = known.iter().map(|(x, _)| *x).collect();
    let part = |points: &[(f64, f64)]| -> Vec<f64> {
        let whole = |at: usize| known[at].1 + new.get(at).map_or(0.0, |p| p.1) + strange.get(at).map_or(0.0, |p| p.1);
        let part = |(at, (_, slots)): (usize, &(f64, f64))| {
            if whole(at) > 0.0 { 100.0 * slots / whole(at) } else { 0.0 }
        };
        points.iter().take(known.len()).enumerate().map(part).collect()
    };
    let parts = [("known", part(&known)), ("newcomers", part(&new)), ("strangers", part(&strange))];
    let idle = parts.iter().all(|(_, values)| values.iter().all(|value| *value == 0.0));
    let chart = history.chart(now, "Slot time of the servers by whom it was for", ("slot time", "%"));
    let chart = chart.when_empty("requests would fill this: known visitors, newcomers and strangers");
    if idle {
        return chart;
    }
    let looks = of(|reading| reading.fair_looks);
    let fair = |sums: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        let mean = |((x, sum), (_, looks)): ((f64, f64), &(f64, f64))| (*looks > 0.0).then(|| (x, 100.0 * sum / looks));
        sums.into_iter().zip(&looks).filter_map(mean).collect()
    };
    let (known, new) = (fair(of(|reading| reading.fair_known)), fair(of(|reading| reading.fair_new)));
    let chart = chart.stack(&x, parts).dashed_for("known", "fair to known", known.clone());
    // If there are no newcomers, the second line would hide the first.
    let apart = known.iter().zip(&new).any(|((_, known), (_, new))| new - known > 1.0);
    if apart { chart.dashed_for("newcomers", "and to newcomers", new) } else { chart }
}

fn refused_in_all(web: &Status) -> u64 {
    web.backends.iter().map(|backend| backend.queue.counters.refused.iter().sum::<u64>()).sum()
}

fn lead(pulse: &Pulse) -> String {
    match (pulse.web_waiting(), pulse.asking) {
        (0, 0) => "There are no requests now.".to_owned(),
        (0, asking) => format!(
            "Nobody waits: {} served at once.",
            if asking == 1 { "1 session is".to_owned() } else { format!("{asking} sessions are") }
        ),
        (waiting, asking) => format!(
            "{} of {} wait. Each session gets its share, however much it asks for.",
            count(waiting as u64, "request"),
            count(asking as u64, "session")
        ),
    }
}

/// Where most requests come from, who has to wait because of them, and which settings could be changed.
fn pressure(backend: &BackendView) -> Html {
    let queue = &backend.queue;
    let mut said = queue.pressure.sentences();
    if queue.room.visitors > 0 {
        said.push(format!(
            "{} from {} in the waiting room; a new visitor waits about {}.",
            count(queue.room.visitors as u64, "newcomer"),
            count(queue.room.networks as u64, "network"),
            seconds(queue.room.wait_s)
        ));
    }
    said.extend(queue.pressure.advice.iter().map(|advice| format!("{advice}.")));
    if said.is_empty() {
        return Html::none();
    }
    let mark = if queue.pressure.attack { "down" } else { "waiting" };
    let word = if queue.pressure.attack { "attack" } else { "busy" };
    let line = |line: String| html!("<li>{}</li>", line);
    html!(
        "<section class=\"pressure\"><h2>{} {}</h2><ul class=\"bare\">{}</ul></section>",
        status(mark, word),
        queue.backend,
        said.into_iter().map(line).collect::<Html>()
    )
}

/// The ideal part of each session: its weight among those with requests.
fn ideals(sessions: &[SessionView]) -> HashMap<&str, f64> {
    let sum: f64 = sessions.iter().map(|session| session.weight).sum();
    sessions.iter().map(|session| (session.session.as_str(), session.weight / sum.max(f64::MIN_POSITIVE))).collect()
}

fn share(part: Option<f64>) -> Html {
    match part {
        Some(part) => {
            html!("<meter min=\"0\" max=\"1\" value=\"{}\"></meter> {}", Text(format!("{part:.4}")), percent(part))
        }
        None => html!("<span class=\"faint\">–</span>"),
    }
}

fn sessions(pulse: &Pulse, shares: &HashMap<String, f64>) -> Html {
    let sessions = &pulse.sessions;
    if sessions.is_empty() {
        let how = html!("A flood shows here: <code>wrk -c 500 -d 20s http://127.0.0.1:2480/slow?ms=50</code>");
        return html!("<section><h2>Sessions</h2>{}</section>", empty("No session has a request now.", &how));
    }
    let ideals = ideals(sessions);
    let row = |session: &SessionView| {
        html!(
            "<tr><td class=\"main\">{}<br><small>{}</small></td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"share\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            Text(session.client),
            session.session,
            session.backend,
            grouped(session.waiting.into()),
            grouped(session.running.into()),
            if session.waiting > 0 { seconds(session.oldest_wait_s) } else { "–".to_owned() },
            share(shares.get(&session.session).copied()),
            percent(ideals.get(session.session.as_str()).copied().unwrap_or(0.0)),
            seconds(session.debt_s)
        )
    };
    html!(
        "<section><h2>Sessions that ask now</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Client</th><th>Backend</th><th class=\"number\">Waiting</th>\
         <th class=\"number\">Running</th><th class=\"number\">Oldest wait</th><th>Share of service, last 20 s</th><th class=\"number\">Fair share</th><th class=\"number\">Set back</th></tr></thead>\
         <tbody>{}</tbody></table></div>{}<p class=\"faint\">A session that asks for less than its fair share gets all that it asks for; what it leaves goes to the others. \
         docs/algorithms/fair.md explains it.</p></section>",
        sessions.iter().take(SESSIONS_SHOWN).map(row).collect::<Html>(),
        match pulse.asking {
            asking if asking > SESSIONS_SHOWN => {
                html!(
                    "<p class=\"faint\">These are the {} with the most requests, of {}.</p>",
                    SESSIONS_SHOWN,
                    grouped(asking as u64)
                )
            }
            _ => Html::none(),
        }
    )
}

fn subnets(sessions: &[SessionView], shares: &HashMap<String, f64>) -> Html {
    #[derive(Default)]
    struct Subnet {
        sessions: u64,
        waiting: u64,
        share: f64,
        ideal: f64,
        example: String,
    }
    let ideals = ideals(sessions);
    let mut found: BTreeMap<&str, Subnet> = BTreeMap::new();
    for session in sessions {
        let subnet = found.entry(session.subnet.as_str()).or_default();
        subnet.sessions += 1;
        subnet.waiting += u64::from(session.waiting);
        subnet.share += shares.get(&session.session).copied().unwrap_or(0.0);
        subnet.ideal += ideals.get(session.session.as_str()).copied().unwrap_or(0.0);
        if subnet.example.is_empty() {
            subnet.example = session.client.to_string();
        }
    }
    if found.is_empty() {
        return Html::none();
    }
    let mut found: Vec<Subnet> = found.into_values().collect();
    found.sort_by_key(|subnet| std::cmp::Reverse(subnet.waiting));
    let row = |subnet: &Subnet| {
        html!(
            "<tr><td>around {}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"share\">{}</td><td class=\"number\">{}</td></tr>",
            subnet.example,
            grouped(subnet.sessions),
            grouped(subnet.waiting),
            share(Some(subnet.share)),
            percent(subnet.ideal)
        )
    };
    html!(
        "<section><h2>Subnets</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Subnet</th><th class=\"number\">Sessions</th><th class=\"number\">Waiting</th>\
         <th>Share of service, last 20 s</th><th class=\"number\">Fair share</th></tr></thead><tbody>{}</tbody></table></div></section>",
        found.iter().take(SESSIONS_SHOWN).map(row).collect::<Html>()
    )
}

fn backend(visit: &Visit, backend: &BackendView) -> Html {
    let queue = &backend.queue;
    let several = backend.servers.len() > 1;
    let server = |server: &ServerView| {
        let (kind, word) = match server {
            server if !server.up => ("down", "down"),
            server if !server.tried => ("waiting", "not asked yet"),
            server if server.draining => ("waiting", "draining"),
            server if server.broken => ("failed", "answers with errors"),
            _ => ("up", "up"),
        };
        html!(
            "<li>{} {} <span class=\"faint\">{} there now</span> <form class=\"inline\" method=\"post\" action=\"/web/drain\">{}{}<input type=\"hidden\" name=\"server\" value=\"{}\">\
             <button name=\"draining\" value=\"{}\">{}</button></form>{}</li>",
            status(kind, word),
            server.address,
            count(server.in_flight, "request"),
            token(visit),
            back(HERE),
            server.address,
            if server.draining { "no" } else { "yes" },
            if server.draining { "Give it requests again" } else { "Drain" },
            if several { weight(visit, server) } else { Html::none() }
        )
    };
    let counters = &queue.counters;
    let mean = counters.wait_s / counters.dispatched.max(1) as f64;
    html!(
        "<section><h2>Backend {}</h2>{}<ul class=\"bare\">{}</ul></section>",
        queue.backend,
        numbers(&[
            ("slots", format!("{} of {} in use", queue.running, queue.slots)),
            ("waiting", count(queue.waiting as u64, "request")),
            ("mean wait since the start", seconds(mean)),
            ("a request costs", seconds(queue.mean_cost_ms / 1e3)),
            ("sooner than first come, first served", grouped(counters.sooner)),
            ("later", grouped(counters.later)),
        ]),
        backend.servers.iter().map(server).collect::<Html>()
    )
}

/// The weight of a server among those of its backend.
fn weight(visit: &Visit, server: &ServerView) -> Html {
    html!(
        " <form class=\"inline\" method=\"post\" action=\"/web/weight\">{}{}<input type=\"hidden\" name=\"server\" value=\"{}\">\
         <label>Weight <input name=\"weight\" type=\"number\" min=\"1\" max=\"{}\" value=\"{}\" required></label><button>Set</button></form>",
        token(visit),
        back(HERE),
        server.address,
        WEIGHT_MAX,
        server.weight
    )
}

/// Networks that somebody has blocked for a while, and the form for one more.
fn blocks(visit: &Visit, blocks: &[BlockView]) -> Html {
    let row = |block: &BlockView| {
        html!(
            "<tr><td class=\"main\">{}</td><td>{}</td><td><form method=\"post\" action=\"/web/unblock\">{}{}<input type=\"hidden\" name=\"network\" value=\"{}\">\
             <button>Serve it again</button></form></td></tr>",
            block.network,
            time_ns((block.until_unix_s as i64).saturating_mul(1_000_000_000)),
            token(visit),
            back(HERE),
            block.network
        )
    };
    let table = match blocks {
        [] => html!("<p class=\"faint\">No network is blocked by hand.</p>"),
        some => html!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Network</th><th>Until</th><th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div>",
            some.iter().map(row).collect::<Html>()
        ),
    };
    html!(
        "<section><h2 id=\"blocks\">Blocked networks</h2>{}<form class=\"filter\" method=\"post\" action=\"/web/block\">{}{}\
         <label>Address or network <input name=\"network\" required maxlength=\"64\" placeholder=\"192.0.2.0/24\"></label>\
         <label>Minutes <input name=\"minutes\" type=\"number\" min=\"1\" max=\"43200\" value=\"60\"></label><button>Block</button></form>\
         <p class=\"faint\">Every request of a blocked network is refused. A restart forgets these; <code>web.denied_networks</code> stays. \
         Nobody has to be blocked for the others to be served: whoever asks for too much waits.</p></section>",
        table,
        token(visit),
        back(HERE)
    )
}

pub(super) async fn drain(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let asked = Drain { server: sent.value("server").to_owned(), draining: sent.value("draining") == "yes" };
    let done = drained(gate(&site)?, &site.administration.audit, &asked, &visit.actor()).await;
    let alone = !gate(&site)?.status().only_servers_of(&asked.server).is_empty();
    let what = match asked.draining {
        true if alone => "still gets requests until its backend has another server for them",
        true => "gets no new requests",
        false => "gets requests again",
    };
    Ok(ended(&site, &visit, &sent, (HERE, done.map(|()| format!("{} {what}.", asked.server)))))
}

pub(super) async fn set_weight(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let Ok(weight) = sent.value("weight").parse::<u32>() else {
        return Ok(refused(&site, &visit, &sent, (HERE, "A weight is a number.".to_owned())));
    };
    let asked = NewWeight { server: sent.value("server").to_owned(), weight };
    let done = weighted(gate(&site)?, &site.administration.audit, &asked, &visit.actor()).await;
    Ok(ended(&site, &visit, &sent, (HERE, done.map(|()| format!("{} has the weight {weight}.", asked.server)))))
}

pub(super) async fn block(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let Ok(minutes) = sent.value("minutes").parse::<u64>() else {
        return Ok(refused(&site, &visit, &sent, (HERE, "A block lasts for a number of minutes.".to_owned())));
    };
    let asked = (sent.value("network"), Duration::from_secs(minutes.saturating_mul(60)));
    let done = blocked(gate(&site)?, &site.administration.audit, asked, &visit.actor()).await;
    Ok(ended(&site, &visit, &sent, (HERE, done.map(|network| format!("{network} is refused from now on.")))))
}

pub(super) async fn unblock(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let done = unblocked(gate(&site)?, &site.administration.audit, sent.value("network"), &visit.actor()).await;
    Ok(ended(&site, &visit, &sent, (HERE, done.map(|network| format!("{network} is served again.")))))
}

fn gate(site: &Site) -> Result<&Gate, Trouble> {
    let nothing = || Trouble::new(StatusCode::NOT_FOUND, "the web gate does not run here", "give [web] a backend");
    site.web.as_deref().ok_or_else(nothing)
}
