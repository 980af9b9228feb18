//! The page of banned addresses, which the mail servers refuse for a while: which they are, until when, and a button to let one in again.

use super::{Asking, PageResult, Sent, ended, refused};
use crate::frame::{Here, Sheet, back, empty, status, token};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, time};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use std::time::Duration;
use weir_mail::operations::BanView;

const HERE: &str = "/bans";

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let bans = site.mail.bans.list()?;
    let now = bans.iter().filter(|ban| ban.until.is_some()).count();
    let lead = match now {
        0 => "No address is banned now.".to_owned(),
        1 => "One address is banned now.".to_owned(),
        more => format!("{more} addresses are banned now."),
    };
    let parts = [
        html!("<h1>Bans</h1><p class=\"lead\">{}</p>", lead),
        html!(
            "<p class=\"faint\">An address that fails to log in with different passwords, or writes to people who do not exist, may not \
             connect for a while; each ban lasts twice as long as the last one. <a href=\"/settings#limits\">The settings</a> say from when.</p>"
        ),
        table(&visit, &bans),
        form(&visit),
    ];
    Ok(Sheet::live("Bans", Here::Throttle, &parts).page(&site, &visit).await)
}

fn table(visit: &Visit, bans: &[BanView]) -> Html {
    if bans.is_empty() {
        return empty("Nobody was banned lately.", &Html::none());
    }
    let row = |ban: &BanView| {
        let state = match &ban.until {
            Some(until) => html!("{} {}", status("stopped", "until"), time(until)),
            None => status("", "over"),
        };
        html!(
            "<tr><td class=\"main\">{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td>{}</td><td><form method=\"post\" action=\"/bans/lift\">{}{}\
             <input type=\"hidden\" name=\"address\" value=\"{}\"><button>Let it in</button></form></td></tr>",
            ban.address,
            ban.server,
            state,
            grouped(ban.offences.into()),
            time(&ban.remembered),
            token(visit),
            back(HERE),
            ban.address
        )
    };
    html!(
        "<section><h2>Addresses</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Address</th><th>Server</th><th>Banned</th><th class=\"number\">Times</th>\
         <th>Forgotten</th><th><span class=\"unseen\">Actions</span></th></tr></thead><tbody>{}</tbody></table></div></section>",
        bans.iter().map(row).collect::<Html>()
    )
}

fn form(visit: &Visit) -> Html {
    html!(
        "<section><h2>Keep an address out</h2><form class=\"filter\" method=\"post\" action=\"/bans/add\">{}{}\
         <label>Address <input name=\"address\" required maxlength=\"64\" placeholder=\"192.0.2.7\"></label>\
         <label>Minutes <input name=\"minutes\" type=\"number\" min=\"1\" max=\"525600\" value=\"60\"></label><button>Ban</button></form>\
         <p class=\"faint\">Of an IPv6 address the network counts. Trusted peers are let in whatever stands here.</p></section>",
        token(visit),
        back(HERE)
    )
}

pub(super) async fn lift(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let lifted = site.mail.bans.lift(sent.value("address"), &visit.actor()).await;
    ended(&site, &visit, &sent, (HERE, lifted.map(|done| format!("{} may connect again.", done.address))))
}

pub(super) async fn add(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let Ok(minutes) = sent.value("minutes").parse::<u64>() else {
        return refused(&site, &visit, &sent, (HERE, "A ban lasts for a number of minutes.".to_owned()));
    };
    let length = Duration::from_secs(minutes.saturating_mul(60));
    let added = site.mail.bans.add(sent.value("address"), length, &visit.actor()).await;
    let words =
        added.map(|done| format!("{} is kept out of {}.", done.address, count(done.servers.len() as u64, "server")));
    ended(&site, &visit, &sent, (HERE, words))
}
