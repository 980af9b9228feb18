//! The pages of the console. They use the same operations that the API serves.

mod account;
mod accounts;
mod alike;
mod assets;
mod audit;
mod bans;
mod feeds;
mod guide;
mod held;
mod incidents;
mod keys;
mod lab;
mod link;
mod live;
mod login;
mod machines;
mod mine;
mod overview;
mod own_spam;
mod provider_login;
mod quarantine;
mod queue;
mod rules;
mod sample;
mod search;
mod senders;
mod sessions;
mod settings;
mod throttle;
mod tokens;
mod trace;
mod user_admin;
mod users;
mod web;

use crate::api::Rank;
use crate::door::door;
use crate::form::Form;
use crate::html::Piece;
use crate::metrics;
use crate::noted_change::EndedInError;
use crate::session::{Said, Visit};
use crate::site::Site;
use crate::trouble::Trouble;
use axum::Router;
use axum::extract::{Extension, RawQuery, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use tower::ServiceExt;
use weir_foundation::Actor;

/// The visitor, as the door has found out.
type Asking = Extension<Visit>;
/// The form that was sent, as the door has read it.
type Sent = Extension<Form>;
/// A page, or why it cannot be shown.
type PageResult = Result<Response, Trouble>;

/// Everything that a browser can request, behind the door. `api` is the API as the control socket serves it.
pub fn router(site: Site, api: Router) -> Router {
    let door = from_fn_with_state(site.clone(), door);
    pages()
        .route("/api/v1/{*rest}", any(move |request: Request| api.clone().oneshot(only_who(request))))
        .fallback(nowhere)
        .method_not_allowed_fallback(nowhere)
        .with_state(site)
        .layer(door)
}

/// The pages alone, without the door.
fn pages() -> Router<Site> {
    Router::new()
        .route("/", get(overview::page))
        .route("/live", get(live::live))
        .route("/throttle", get(throttle::page))
        .route("/throttle/decide", post(held::decide))
        .route("/throttle/held/{message}", get(held::page))
        .route("/throttle/users/{name}", get(users::page))
        .route("/throttle/users/{name}/lock", post(users::lock))
        .route("/throttle/users/{name}/unlock", post(users::unlock))
        .route("/throttle/users/{name}/secure", post(users::secure))
        .route("/users/add", post(user_admin::add))
        .route("/users/{name}/change", post(user_admin::change))
        .route("/users/{name}/limits", post(user_admin::limits_change))
        .route("/users/{name}/password", post(user_admin::password))
        .route("/users/{name}/remove", post(user_admin::remove))
        .route("/bans", get(bans::page))
        .route("/bans/add", post(bans::add))
        .route("/bans/lift", post(bans::lift))
        .route("/senders", get(senders::page))
        .route("/senders/set", post(senders::set))
        .route("/senders/remove", post(senders::remove))
        .route("/queue", get(queue::page))
        .route("/queue/decide", post(queue::decide))
        .route("/quarantine", get(quarantine::list))
        .route("/quarantine/decide", post(quarantine::decide))
        .route("/quarantine/{message}", get(quarantine::page))
        .route("/feeds", get(feeds::page))
        .route("/feeds/tune", post(feeds::apply))
        .route("/web", get(web::page))
        .route("/web/drain", post(web::drain))
        .route("/web/weight", post(web::set_weight))
        .route("/web/block", post(web::block))
        .route("/web/unblock", post(web::unblock))
        .route("/lab", get(lab::list))
        .route("/lab/drain", post(machines::drain))
        .route("/lab/remove", post(machines::remove))
        .route("/lab/priority", post(machines::prioritise))
        .route("/lab/invite", post(machines::invite))
        .route("/lab/cancel", post(sample::cancel))
        .route("/lab/rerun", post(sample::rerun))
        .route("/lab/samples/{sample}", get(sample::page))
        .route("/rules", get(rules::page))
        .route("/rules/add", post(rules::add))
        .route("/rules/remove", post(rules::remove))
        .route("/search", get(search::page))
        .route("/trace/{id}", get(trace::page))
        .route("/incidents", get(incidents::list))
        .route("/incidents/{id}", get(incidents::show))
        .route("/audit", get(audit::page))
        .route("/settings", get(settings::page))
        .route("/docs", get(guide::contents))
        .route("/docs/{*path}", get(guide::page))
        .route("/settings/accounts/add", post(accounts::add))
        .route("/settings/accounts/password", post(accounts::password))
        .route("/settings/accounts/codes-off", post(accounts::codes_off))
        .route("/settings/accounts/remove", post(accounts::remove))
        .route("/settings/dkim", post(keys::add))
        .route("/settings/tokens", post(tokens::add))
        .route("/settings/tokens/revoke", post(tokens::revoke))
        .route("/settings/sessions/end", post(sessions::end))
        .route("/account", get(account::page))
        .route("/account/codes/begin", post(account::begin))
        .route("/account/codes/confirm", post(account::confirm))
        .route("/account/codes/end", post(account::end))
        .route("/me", get(mine::page))
        .route("/me/quarantine", get(own_spam::list).post(own_spam::decide))
        .route("/me/quarantine/{message}", get(own_spam::page))
        .route("/me/delete", post(mine::delete))
        .route("/me/release", post(mine::release))
        .route("/me/password", post(mine::password))
        .route("/me/contact", post(mine::contact))
        .route("/link", post(link::enter))
        .route("/link/{key}", get(link::page))
        .route("/login", get(login::page).post(login::log_in))
        .route("/login/code", post(login::code))
        .route("/login/oidc", get(provider_login::begin))
        .route("/login/oidc/callback", get(provider_login::callback))
        .route("/logout", post(login::log_out))
        .route("/style.css", get(assets::style))
        .route("/console.js", get(assets::script))
        .route("/icon.svg", get(assets::icon))
        .route("/healthz", get(metrics::alive))
        .route("/readyz", get(metrics::ready))
        .route("/metrics", get(metrics::page))
}

/// Removes what our own router found in the path: the next router would take it for its own.
fn only_who(mut request: Request) -> Request {
    let (actor, rank) = (request.extensions_mut().remove::<Actor>(), request.extensions_mut().remove::<Rank>());
    request.extensions_mut().clear();
    if let Some(actor) = actor {
        request.extensions_mut().insert(actor);
    }
    if let Some(rank) = rank {
        request.extensions_mut().insert(rank);
    }
    request
}

async fn nowhere() -> Trouble {
    Trouble::new(StatusCode::NOT_FOUND, "There is no such page.", "The links above lead to the pages that exist.")
}

/// The address of a user's page.
fn user_address(name: &str) -> String {
    format!("/throttle/users/{}", Piece(name))
}

/// The query behind the `?`.
fn query(RawQuery(query): &RawQuery) -> Form {
    Form::read(query.as_deref().unwrap_or_default().as_bytes())
}

/// After an action that may have failed: back to the page, with a message.
fn ended<E>(site: &Site, visit: &Visit, form: &Form, (otherwise, words): (&str, Result<String, E>)) -> Response
where
    Trouble: From<E>,
{
    match words {
        Ok(words) => done(site, visit, words, local(form.value("back")).unwrap_or(otherwise)),
        Err(error) => failed(site, visit, form, (otherwise, &Trouble::from(error))),
    }
}

/// After an action that ended in an error: back to the page, with the error. The audit trail is told if the error is one of Weir.
fn failed(site: &Site, visit: &Visit, form: &Form, (otherwise, trouble): (&str, &Trouble)) -> Response {
    let mut answer = refused(site, visit, form, (otherwise, trouble.words()));
    if trouble.is_of_weir() {
        answer.extensions_mut().insert(EndedInError);
    }
    answer
}

/// After an action: to one of our pages, which shows the result.
fn done(site: &Site, visit: &Visit, words: String, to: &str) -> Response {
    site.changed();
    site.sessions.say(&visit.id, Said { words, done: true });
    Redirect::to(to).into_response()
}

const NOT_SAID_WHAT: &str = "Nothing was chosen to be done.";
const NOT_SAID_WHICH: &str = "No mail was chosen. Tick the mails that you mean.";

/// After an action that was refused: back to the page, with the reason.
fn refused(site: &Site, visit: &Visit, form: &Form, (otherwise, words): (&str, String)) -> Response {
    site.sessions.say(&visit.id, Said { words, done: false });
    Redirect::to(local(form.value("back")).unwrap_or(otherwise)).into_response()
}

/// A path on this console; None if it leads to another site.
fn local(path: &str) -> Option<&str> {
    // Browsers drop tabs and line ends from an address, and take a backslash for a slash.
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (path.starts_with('/') && !path.starts_with("//") && plain && path.len() < 2_000).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        assert_eq!(local("/throttle?user=ann"), Some("/throttle?user=ann"));
        for evil in [
            "",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "/\u{b}/evil.example",
            "/ /evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/a\r\nb",
            "/é",
        ] {
            assert_eq!(local(evil), None, "{evil:?}");
        }
    }
}
