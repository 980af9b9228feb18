//! The pages of incidents: the list, and the story of one.

use super::{Asking, PageResult};
use crate::frame::{Here, Sheet, empty, status};
use crate::html;
use crate::html::{Html, Piece};
use crate::incidents::{Incident, IncidentLine, Incidents};
use crate::site::Site;
use crate::words::{clock, count, parsed, seconds, time};
use axum::Extension;
use axum::extract::{Path, State};
use weir_foundation::audit::AuditView;

pub(super) async fn list(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let incidents = Incidents::new(&site.administration.foundation).list().await?;
    let open = incidents.iter().filter(|incident| incident.is_open()).count();
    let lead = match (incidents.len(), open) {
        (0, _) => "Nothing has happened that Weir would call an incident.".to_owned(),
        (_, 0) => "None of these is open any more. The newest comes first.".to_owned(),
        (_, 1) => "One incident is open.".to_owned(),
        (_, open) => format!("{open} incidents are open."),
    };
    let rows = if incidents.is_empty() { none() } else { table(&incidents) };
    let parts = [html!("<h1>Incidents</h1><p class=\"lead\">{}</p>", lead), rows];
    Ok(Sheet::live("Incidents", Here::Incidents, &parts).page(&site, &visit).await)
}

fn none() -> Html {
    let how = html!(
        "A stopped account, a flood on a web backend, a scanner that does not answer, a burst of one virus, unusual malware in the lab, a new leader of the lab, \
         a gate that fails, a disk that fills and a certificate that ends are written down here. <code>weir demo</code> shows some."
    );
    empty("No incidents.", &how)
}

fn table(incidents: &[Incident]) -> Html {
    html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>What</th><th>Began</th><th>Lasted</th><th>State</th></tr></thead>\
         <tbody>{}</tbody></table></div>",
        incidents.iter().map(row).collect::<Html>()
    )
}

fn row(incident: &Incident) -> Html {
    let first = incident.seen.first().map_or("", |line| line.text.as_str());
    html!(
        "<tr><td class=\"main\"><a href=\"/incidents/{}\">{}</a><br><small>{}</small></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        incident.id,
        incident.headline(),
        first,
        time(&incident.began),
        lasted(incident),
        state(incident)
    )
}

fn state(incident: &Incident) -> Html {
    if incident.is_open() { status("waiting", "open") } else { status("", "over") }
}

/// How long it lasted; empty while it is not over.
fn lasted(incident: &Incident) -> String {
    let ended = incident.ended.as_deref().and_then(parsed);
    match parsed(&incident.began).zip(ended) {
        Some((began, ended)) if ended > began => seconds((ended - began) as f64),
        Some(_) => "a moment".to_owned(),
        None => "–".to_owned(),
    }
}

pub(super) async fn show(State(site): State<Site>, Extension(visit): Asking, Path(id): Path<String>) -> PageResult {
    let incident = Incidents::new(&site.administration.foundation).show(&id).await?;
    let parts = [head(&incident), happened(&incident), weir_did(&incident), people_did(&incident), cost(&incident)];
    Ok(Sheet::live(incident.headline(), Here::Incidents, &parts).page(&site, &visit).await)
}

fn head(incident: &Incident) -> Html {
    let when = match &incident.ended {
        Some(ended) => {
            html!("It began {} and was over {}, after {}.", time(&incident.began), time(ended), lasted(incident))
        }
        None => html!("It began {}.", time(&incident.began)),
    };
    let again = match incident.began_again {
        0 => Html::none(),
        1 => html!(" It began again once after it had seemed to be over."),
        times => html!(" It began again {} after it had seemed to be over.", count(times, "time")),
    };
    let relay = match incident.relay.as_str() {
        "" => Html::none(),
        relay => html!(" On {}.", relay),
    };
    html!(
        "<p><a href=\"/incidents\">All incidents</a></p><h1>{}</h1><p class=\"lead\">{} {}{}{}</p>",
        incident.headline(),
        state(incident),
        when,
        again,
        relay
    )
}

fn happened(incident: &Incident) -> Html {
    let line = |line: &IncidentLine| {
        html!("<li><span class=\"clock\" title=\"{}\">{}</span> {}</li>", line.at, at(&line.at), line.text)
    };
    let lines: Html = incident.seen.iter().map(line).collect();
    html!(
        "<section><h2>What happened</h2><p class=\"faint\">Times are in UTC, of {}.</p><ol class=\"timeline\">{}</ol>{}</section>",
        day(incident),
        lines,
        names(incident)
    )
}

/// Its subjects, with links to their pages.
fn names(incident: &Incident) -> Html {
    if incident.names.is_empty() {
        return Html::none();
    }
    let link = |name: &String| html!("<li><a href=\"/throttle/users/{}\">{}</a></li>", Piece(name), name);
    html!("<h3>The accounts</h3><ul class=\"bare\">{}</ul>", incident.names.iter().map(link).collect::<Html>())
}

/// The day on which it began.
fn day(incident: &Incident) -> String {
    incident.began.get(..10).unwrap_or_default().to_owned()
}

/// `14:02:10` of a time, in UTC: a story uses the clock, however long ago it was.
fn at(time: &str) -> String {
    time.get(11..19).map_or_else(|| clock(time), str::to_owned)
}

fn weir_did(incident: &Incident) -> Html {
    html!("<section><h2>What Weir did</h2><p>{}</p></section>", incident.weir_did)
}

fn people_did(incident: &Incident) -> Html {
    let act = |line: &AuditView| {
        html!(
            "<li><span class=\"clock\" title=\"{}\">{}</span> <b>{}</b> {} <a href=\"/search?q={}\">{}</a> <span class=\"faint\">{}</span></li>",
            line.at,
            at(&line.at),
            line.actor,
            line.action,
            Piece(&line.subject),
            line.subject,
            line.detail
        )
    };
    let acts = match incident.people_did.as_slice() {
        [] => html!("<p>Nobody has changed anything that has to do with it.</p>"),
        acts => html!("<ol class=\"timeline\">{}</ol>", acts.iter().map(act).collect::<Html>()),
    };
    let more = match incident.people_did_more {
        0 => Html::none(),
        more => html!("<p>And {}: see the <a href=\"/audit\">audit</a>.</p>", count(more, "more change")),
    };
    let way = match incident.page.as_str() {
        "" => Html::none(),
        page => html!(" <a href=\"/{}\">Go there</a>", page.trim_start_matches('/')),
    };
    let to_do = if incident.is_open() { html!("<p>{}{}</p>", incident.to_do, way) } else { Html::none() };
    html!("<section><h2>What people did</h2>{}{}{}</section>", acts, more, to_do)
}

fn cost(incident: &Incident) -> Html {
    let sentences: Html = incident.cost.iter().map(|sentence| html!("<li>{}</li>", sentence)).collect();
    html!("<section><h2>What it cost others</h2><ul class=\"evidence\">{}</ul></section>", sentences)
}
