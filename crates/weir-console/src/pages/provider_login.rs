//! Logging in through an identity provider: sends the browser there, and handles its return.

use super::login::{begin as begin_session, form, from, not_begun, with};
use super::{local, query};
use crate::door::{PeerAddress, cookie};
use crate::form::Form;
use crate::frame::{Here, Sheet};
use crate::html;
use crate::session::{Visit, Way};
use crate::site::Site;
use crate::trouble::{Trouble, sentence};
use crate::words::seconds;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::net::IpAddr;
use std::time::Instant;
use weir_foundation::console_accounts::Role;
use weir_foundation::identity_provider::{Callback, IdentityProvider, ProviderError};
use weir_foundation::{Actor, OperationError};

/// Where the provider sends browsers.
const CALLBACK: &str = "/login/oidc/callback";
/// The name under which failures are counted; no account can have it.
const COUNTED: &str = "the identity provider";

/// Sends the browser to the provider.
pub(super) async fn begin(State(site): State<Site>, headers: HeaderMap, asked: RawQuery) -> Response {
    let Some(provider) = &site.configuration.identity_provider else { return no_provider() };
    let query = query(&asked);
    let next = local(query.value("next")).unwrap_or_default();
    match provider.begin(&site.absolute(&headers, CALLBACK), next).await {
        Ok(begun) => {
            let mut answer = Redirect::to(&begun.location).into_response();
            answer.headers_mut().append(header::SET_COOKIE, site.set_sign_in_cookie(&headers, &begun.sealed));
            answer
        }
        Err(error) => away(&site, &headers, provider, &error, next),
    }
}

/// The browser has come back from the provider.
pub(super) async fn callback(
    State(site): State<Site>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    asked: RawQuery,
) -> Response {
    let Some(provider) = &site.configuration.identity_provider else { return no_provider() };
    let from = from(&site, &headers, peer);
    if let Err(wait) = site.sessions.logins.enter(COUNTED, from, Instant::now()) {
        let words = format!("Too many logins have failed. Try again in {}.", seconds(wait.as_secs_f64().ceil()));
        return with(form(&site, &headers, "", Some(&words)), StatusCode::TOO_MANY_REQUESTS);
    }
    let mut answer = match returned(&site, provider, &headers, &query(&asked), from).await {
        Ok((visit, next)) => welcome(&site, &headers, &visit, &next),
        Err(answer) => *answer,
    };
    // The sealed cookie is used up, whatever the outcome.
    answer.headers_mut().append(header::SET_COOKIE, site.set_sign_in_cookie(&headers, ""));
    answer
}

async fn returned(
    site: &Site,
    provider: &IdentityProvider,
    headers: &HeaderMap,
    query: &Form,
    from: IpAddr,
) -> Result<(Visit, String), Box<Response>> {
    let again = |status, words: &str| Box::new(with(form(site, headers, "", Some(words)), status));
    // If a parameter comes twice, another reader might take the other value.
    let twice = ["state", "code", "iss", "error"].iter().any(|name| query.values(name).len() > 1);
    let sealed = cookie(headers, &site.sign_in_cookie()).filter(|_| !twice).unwrap_or_default();
    let parameter = |name: &str| query.has(name).then(|| query.exact(name));
    let callback = Callback {
        sealed: &sealed,
        state: query.exact("state"),
        code: query.exact("code"),
        issuer: parameter("iss"),
        error: parameter("error"),
    };
    let (person, next) = match provider.end(callback, from).await {
        Ok(found) => found,
        Err(error) if error.is_ours_to_wait_for() => {
            site.sessions.logins.taken_back(COUNTED, from);
            return Err(Box::new(away(site, headers, provider, &error, "")));
        }
        Err(error) => {
            let who = match &error {
                ProviderError::NoRole(name) => name.as_str(),
                _ => "",
            };
            failed(site, who, from, &format!("{}: {error}", provider.host())).await;
            let words = match &error {
                ProviderError::NotBegun | ProviderError::NoRole(_) => sentence(&error.to_string()),
                other => format!("{} does not let you in: {other}.", provider.host()),
            };
            return Err(again(StatusCode::FORBIDDEN, &words));
        }
    };
    let failed_here = |error: OperationError| {
        again(StatusCode::SERVICE_UNAVAILABLE, &format!("Nobody can log in with {} now: {error}.", provider.host()))
    };
    let known = site.administration.accounts.provided(&person, provider.session()).await.map_err(failed_here)?;
    let Some(known) = known else {
        let detail = format!("{}: the name is a local account's", provider.host());
        failed(site, &person.name, from, &detail).await;
        let words = format!("There is a local account with the name {}. Log in with its password.", person.name);
        return Err(again(StatusCode::FORBIDDEN, &words));
    };
    site.sessions.logins.succeeded(COUNTED, from);
    let visit = begin_session(site, headers, (known, Way::Provider), from).await.map_err(|error| {
        let (status, words) = not_begun(error);
        again(status, &words)
    })?;
    Ok((visit, next))
}

/// Notes in the audit trail that a sign-in failed.
async fn failed(site: &Site, name: &str, from: IpAddr, detail: &str) {
    let actor = Actor::new(&format!("console:{}", if name.is_empty() { "?" } else { name }));
    let detail = format!("from {from} by {detail}");
    if let Err(error) = site.administration.audit.note(&actor, "console.login.failed", "console", &detail).await {
        tracing::warn!(%error, "a failed login could not be written down");
    }
}

/// The form for local accounts, with a word about why the provider cannot be used.
fn away(site: &Site, headers: &HeaderMap, provider: &IdentityProvider, error: &ProviderError, next: &str) -> Response {
    tracing::warn!(provider = provider.host(), %error, "nobody can be signed in by the identity provider");
    let words = format!(
        "Nobody can log in with {} now: {error}. A local account, with its name and password, still works.",
        provider.host()
    );
    with(form(site, headers, next, Some(&words)), StatusCode::SERVICE_UNAVAILABLE)
}

/// Takes the browser to the page that it asked for. A redirect would still count as caused by the provider's site, and the browser would
/// not send the session's cookie with it. So it gets a page of ours that goes there.
fn welcome(site: &Site, headers: &HeaderMap, visit: &Visit, next: &str) -> Response {
    let first = if visit.known.role == Role::User { "/me" } else { "/" };
    let next = local(next).unwrap_or(first);
    let body = html!(
        "<section class=\"login\"><h1>Weir</h1><p>You are logged in as {}. <a href=\"/{}\">Go on</a></p></section>",
        visit.known.name,
        next.trim_start_matches('/')
    );
    let mut answer = Sheet::new("Logged in", Here::Nowhere, body).bare(site, None);
    if let Ok(refresh) = HeaderValue::from_str(&format!("0;url={next}")) {
        answer.headers_mut().insert(header::REFRESH, refresh);
    }
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(headers, &site.cookie(), &visit.id));
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(headers, &site.login_cookie(), ""));
    answer
}

fn no_provider() -> Response {
    Trouble::new(StatusCode::NOT_FOUND, "There is no identity provider here.", "Log in with a name and a password.")
        .into_response()
}
