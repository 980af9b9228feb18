//! Tokens for programs: a table on the settings' page, made and revoked there.

use super::{Asking, Sent, ended, refused};
use crate::frame::{back, empty, token};
use crate::html;
use crate::html::Html;
use crate::session::Visit;
use crate::site::Site;
use crate::words::time;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_foundation::api_tokens::{NewToken, Scope, TokenView};

const HERE: &str = "/settings";

/// The tokens, as a section of a page.
pub(super) fn section(visit: &Visit, tokens: &[TokenView]) -> Html {
    let row = |made: &TokenView| {
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><details class=\"ask\"><summary class=\"button danger\">Revoke…</summary>\
             <p>Programs that show it are refused from then on.</p><form method=\"post\" action=\"/settings/tokens/revoke\">{}{}\
             <input type=\"hidden\" name=\"name\" value=\"{}\"><button class=\"danger\">Revoke {}</button></form></details></td></tr>",
            made.name,
            made.scope.as_str(),
            made.by,
            time(&made.created),
            made.expires.as_deref().map_or_else(|| html!("never"), time),
            made.used.as_deref().map_or_else(|| html!("never"), time),
            token(visit),
            back(HERE),
            made.name,
            made.name
        )
    };
    let table = if tokens.is_empty() {
        empty(
            "There is no token.",
            &html!("A program shows one instead of a password: <code>Authorization: Bearer …</code>"),
        )
    } else {
        html!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Name</th><th>Scope</th><th>Made by</th><th>Made</th><th>Ends</th><th>Last used</th><th><span class=\"unseen\">Actions</span></th></tr></thead>\
             <tbody>{}</tbody></table></div>",
            tokens.iter().map(row).collect::<Html>()
        )
    };
    html!(
        "<section><h2 id=\"tokens\">Tokens for programs</h2>{}<form class=\"filter\" method=\"post\" action=\"/settings/tokens\">{}{}\
         <label>Name <input name=\"name\" required maxlength=\"100\" placeholder=\"grafana\"></label>\
         <label>Scope <select name=\"scope\"><option value=\"metrics\">metrics: figures and health, nothing of any mail</option><option value=\"read\" selected>read: look at everything but accounts</option><option value=\"operate\">operate: what an operator may</option>\
         <option value=\"admin\">admin: everything</option></select></label>\
         <label>Good for days <input name=\"days\" type=\"number\" min=\"0\" max=\"3650\" value=\"365\"></label><button>Make a token</button></form>\
         <p class=\"faint\">0 days is for ever. <a href=\"/api/v1/openapi.json\">The API</a> is what they are for; docs/api.md explains it.</p></section>",
        table,
        token(visit),
        back(HERE)
    )
}

pub(super) async fn add(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let (Some(scope), Ok(days)) = (Scope::parse(sent.value("scope")), sent.value("days").parse()) else {
        let words = "A token has a scope, and a number of days.".to_owned();
        return refused(&site, &visit, &sent, (HERE, words));
    };
    let new = NewToken { name: sent.value("name").to_owned(), scope, days };
    let made = site.administration.tokens.add(new, &visit.actor()).await;
    let words = made.map(|made| format!("The token {} is {} and is shown only this once.", made.view.name, made.token));
    ended(&site, &visit, &sent, (HERE, words))
}

pub(super) async fn revoke(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let name = sent.value("name");
    let revoked = site.administration.tokens.revoke(name, &visit.actor()).await;
    ended(&site, &visit, &sent, (HERE, revoked.map(|()| format!("The token {name} is revoked."))))
}
