//! Logging in and out.

use super::frame::{Here, Sheet};
use super::{Asking, Sent, local, query};
use crate::door::{Peer, TOKEN_FIELD, cookie};
use crate::html;
use crate::session::hex;
use crate::site::Site;
use crate::words::seconds;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;
use weir_mail::desk::{Actor, Role, fresh_secret};

pub(super) async fn page(State(site): State<Site>, headers: HeaderMap, asked: RawQuery) -> Response {
    form(&site, &headers, query(&asked).value("next"), None)
}

fn form(site: &Site, headers: &HeaderMap, next: &str, problem: Option<&str>) -> Response {
    let token = hex(&fresh_secret());
    let problem = problem.map(|problem| html!("<p class=\"said not\" role=\"alert\">{}</p>", problem));
    let next = local(next).map(|next| html!("<input type=\"hidden\" name=\"next\" value=\"{}\">", next));
    let body = html!(
        "<section class=\"login\"><h1>Weir</h1>{}<form method=\"post\" action=\"/login\">\
         <input type=\"hidden\" name=\"{}\" value=\"{}\">{}\
         <label>Name <input name=\"name\" autocomplete=\"username\" autocapitalize=\"none\" required autofocus maxlength=\"255\"></label>\
         <label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\" required maxlength=\"1000\"></label>\
         <button class=\"main\">Log in</button></form>\
         <p class=\"faint\">The first start of <code>weir up</code> printed a password for <b>admin</b>. \
         It is lost? <code>weir console passwd admin</code> makes another. With the name and password of a mail account one sees one's own \
         held mail.</p></section>",
        problem,
        TOKEN_FIELD,
        token,
        next
    );
    let mut answer = Sheet::new("Log in", Here::Nowhere, body).bare(site, None);
    let bound = site.set_cookie(headers, &site.login_cookie(), &token);
    answer.headers_mut().append(header::SET_COOKIE, bound);
    answer
}

pub(super) async fn log_in(
    State(site): State<Site>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Extension(sent): Sent,
) -> Response {
    let from = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |Extension(Peer(from))| from);
    let (name, password, next) = (sent.value("name"), sent.exact("password"), sent.value("next"));
    let again = |status: StatusCode, problem: &str| {
        let mut answer = form(&site, &headers, next, Some(problem));
        *answer.status_mut() = status;
        answer
    };
    if let Some(wait) = site.logins.must_wait(name, from, Instant::now()) {
        let words = format!("Too many logins have failed. Try again in {}.", seconds(wait.as_secs_f64().ceil()));
        return again(StatusCode::TOO_MANY_REQUESTS, &words);
    }
    let known = match site.desk.account_login(name, password, from).await {
        Ok(Some(known)) => known,
        Ok(None) => {
            site.logins.failed(name, from, Instant::now());
            let who = Actor::new(&format!("console:{name}"));
            let noted = site.desk.note(&who, "console.login.failed", "console", &format!("from {from}")).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "a failed login could not be written down");
            }
            return again(StatusCode::FORBIDDEN, "The name or the password is wrong.");
        }
        Err(error) => {
            let words = format!("Nobody can log in now: {error}. Mail, web and lab go on; the command line works too.");
            return again(StatusCode::SERVICE_UNAVAILABLE, &words);
        }
    };
    site.logins.succeeded(name, from);
    // A session that this browser had before ends: whoever knew its id knows nothing of the new one.
    if let Some(old) = cookie(&headers, &site.cookie()) {
        site.sessions.end(&old);
    }
    let visit = site.sessions.begin(known, Instant::now());
    let words = format!("as {} from {from}", visit.known.role.as_str());
    if let Err(error) = site.desk.note(&visit.actor(), "console.login", "console", &words).await {
        site.sessions.end(&visit.id);
        return again(StatusCode::SERVICE_UNAVAILABLE, &format!("The login could not be written down: {error}."));
    }
    let first = if visit.known.role == Role::User { "/me" } else { "/" };
    let mut answer = Redirect::to(local(next).unwrap_or(first)).into_response();
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(&headers, &site.cookie(), &visit.id));
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(&headers, &site.login_cookie(), ""));
    answer
}

pub(super) async fn log_out(State(site): State<Site>, headers: HeaderMap, Extension(visit): Asking) -> Response {
    site.sessions.end(&visit.id);
    if let Err(error) = site.desk.note(&visit.actor(), "console.logout", "console", "").await {
        tracing::warn!(%error, "a logout could not be written down");
    }
    let mut answer = Redirect::to("/login").into_response();
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(&headers, &site.cookie(), ""));
    answer
}
