//! Logging in and out: a password, and a code where the account wants one.

use super::{Asking, Sent, Trouble, local, query};
use crate::door::{PeerAddress, cookie};
use crate::frame::{Here, Sheet};
use crate::html;
use crate::html::{Html, Piece};
use crate::logins::everywhere;
use crate::session::{TOKEN_FIELD, Visit, Way};
use crate::site::Site;
use crate::words::seconds;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;
use weir_foundation::console_accounts::{KnownAccount, Role};
use weir_foundation::secret::fresh_token;
use weir_foundation::{Actor, OperationError};

pub(super) async fn page(State(site): State<Site>, headers: HeaderMap, asked: RawQuery) -> Response {
    form(&site, &headers, query(&asked).value("next"), None)
}

pub(super) fn form(site: &Site, headers: &HeaderMap, next: &str, problem: Option<&str>) -> Response {
    let fields = html!(
        "<label>Name <input name=\"name\" autocomplete=\"username\" autocapitalize=\"none\" required autofocus maxlength=\"255\"></label>\
         <label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\" required maxlength=\"1000\"></label>\
         <button class=\"main\">Log in</button>"
    );
    let elsewhere = site.configuration.identity_provider.as_ref().map(|provider| {
        let next = local(next).unwrap_or_default();
        html!(
            "<p><a class=\"button\" href=\"/login/oidc?next={}\">Log in with {}</a></p>",
            Piece(next),
            provider.host()
        )
    });
    let about = html!(
        "{}<p class=\"faint\">The first start of <code>weir up</code> printed a password for <b>admin</b>, or left it in the file <code>first-password</code> of the data folder. \
         If it is lost, <code>weir console passwd admin</code> makes another. With the name and password of a mail account one sees one's own \
         held mail.</p>",
        elsewhere
    );
    bound_form(site, headers, ("login", next), (&fields, &about), problem)
}

/// The second form, after the right password.
fn code_form(site: &Site, headers: &HeaderMap, (step, next): (&str, &str), problem: Option<&str>) -> Response {
    let fields = html!(
        "<input type=\"hidden\" name=\"step\" value=\"{}\"><label>Code of your authenticator <input name=\"code\" inputmode=\"numeric\" \
         autocomplete=\"one-time-code\" required autofocus maxlength=\"40\"></label><button class=\"main\">Log in</button>",
        step
    );
    let about = html!(
        "<p class=\"faint\">If the authenticator is lost, use one of your recovery codes; each works once. If they are lost too: \
         <code>weir console codes-off NAME</code> on the machine.</p>"
    );
    bound_form(site, headers, ("login/code", next), (&fields, &about), problem)
}

/// A form for somebody who is not logged in yet. A cookie binds it to the browser that asked for it.
pub(super) fn bound_form(
    site: &Site,
    headers: &HeaderMap,
    (to, next): (&str, &str),
    (fields, about): (&Html, &Html),
    problem: Option<&str>,
) -> Response {
    let token = fresh_token();
    let problem = problem.map(|problem| html!("<p class=\"said not\" role=\"alert\">{}</p>", problem));
    let next = local(next).map(|next| html!("<input type=\"hidden\" name=\"next\" value=\"{}\">", next));
    let body = html!(
        "<section class=\"login\"><h1>Weir</h1>{}<form method=\"post\" action=\"/{}\">\
         <input type=\"hidden\" name=\"{}\" value=\"{}\">{}{}</form>{}</section>",
        problem,
        to,
        TOKEN_FIELD,
        token,
        next,
        fields,
        about
    );
    let mut answer = Sheet::new("Log in", Here::Nowhere, body).bare(site, None);
    let bound = site.set_cookie(headers, &site.login_cookie(), &token);
    answer.headers_mut().append(header::SET_COOKIE, bound);
    answer
}

/// The address from which a request comes.
pub(super) fn from(site: &Site, headers: &HeaderMap, peer: Option<Extension<PeerAddress>>) -> IpAddr {
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |Extension(PeerAddress(from))| from);
    site.client(headers, peer)
}

pub(super) async fn log_in(
    State(site): State<Site>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Extension(sent): Sent,
) -> Response {
    let from = from(&site, &headers, peer);
    let (name, password, next) = (sent.value("name"), sent.exact("password"), sent.value("next"));
    let again = |(status, problem): (StatusCode, String)| with(form(&site, &headers, next, Some(&problem)), status);
    let tried = tried(&site, name, (from, from), site.administration.accounts.login(name, password, from));
    let known = match tried.await {
        Ok(Some(known)) => known,
        Ok(None) => {
            site.mail.users.note_wrong_login(name, password, from);
            return again((StatusCode::FORBIDDEN, "The name or the password is wrong.".to_owned()));
        }
        Err(refused) => return again(refused),
    };
    if known.code {
        let step = site.sessions.steps.begin(known, Instant::now());
        return code_form(&site, &headers, (&step, next), None);
    }
    match begin(&site, &headers, (known, Way::Password), from).await {
        Ok(visit) => welcome(&site, &headers, &visit, next),
        Err(error) => again(not_begun(error)),
    }
}

pub(super) async fn code(
    State(site): State<Site>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Extension(sent): Sent,
) -> Response {
    let from = from(&site, &headers, peer);
    let (step, next) = (sent.value("step"), sent.value("next"));
    let Some(known) = site.sessions.steps.find(step, Instant::now()) else {
        let words = "That took too long. Begin again.";
        return with(form(&site, &headers, next, Some(words)), StatusCode::FORBIDDEN);
    };
    let again = |(status, problem): (StatusCode, String)| {
        with(code_form(&site, &headers, (step, next), Some(&problem)), status)
    };
    let name = known.name.clone();
    let check = async {
        let right = site.administration.second_factor.takes(&name, sent.value("code")).await?;
        Ok(right.then_some(known))
    };
    // Counted over all addresses: somebody who has the password must not get a million guesses at the code.
    match tried(&site, &name, (from, everywhere(&name)), check).await {
        Ok(Some(known)) => {
            site.sessions.steps.end(step);
            match begin(&site, &headers, (known, Way::Password), from).await {
                Ok(visit) => welcome(&site, &headers, &visit, next),
                Err(error) => again(not_begun(error)),
            }
        }
        Ok(None) => again((StatusCode::FORBIDDEN, "This code is wrong, or has been used already.".to_owned())),
        Err(refused) => again(refused),
    }
}

/// Makes one attempt, if one is allowed now. It is counted as a failure before it begins, and the count is taken back if it succeeds.
async fn tried(
    site: &Site,
    name: &str,
    (from, counted): (IpAddr, IpAddr),
    check: impl Future<Output = Result<Option<KnownAccount>, OperationError>>,
) -> Result<Option<KnownAccount>, (StatusCode, String)> {
    if let Err(wait) = site.sessions.logins.enter(name, counted, Instant::now()) {
        let words = format!("Too many logins have failed. Try again in {}.", seconds(wait.as_secs_f64().ceil()));
        return Err((StatusCode::TOO_MANY_REQUESTS, words));
    }
    match check.await {
        Ok(Some(known)) => {
            site.sessions.logins.succeeded(name, counted);
            Ok(Some(known))
        }
        Ok(None) => {
            let who = Actor::new(&format!("console:{name}"));
            let noted =
                site.administration.audit.note(&who, "console.login.failed", "console", &format!("from {from}")).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "a failed login could not be written down");
            }
            Ok(None)
        }
        Err(error) => {
            site.sessions.logins.taken_back(name, counted);
            let words = format!(
                "Nobody can log in now: {error}. Mail, web and lab keep running, and the command line works too."
            );
            Err((StatusCode::SERVICE_UNAVAILABLE, words))
        }
    }
}

/// Begins a session, if the audit trail can be written, and if this name has not begun too many of them.
pub(super) async fn begin(
    site: &Site,
    headers: &HeaderMap,
    (known, way): (KnownAccount, Way),
    from: IpAddr,
) -> Result<Visit, OperationError> {
    site.sessions.logins.may_begin(&known.name, way.is_link(), Instant::now()).map_err(|wait| {
        let hint = format!("try again in {}", seconds(wait.as_secs_f64().ceil()));
        OperationError::conflict("there were too many logins with this name within a minute", hint)
    })?;
    // The former session of this browser ends, so that somebody who knew its id cannot use the new one.
    if let Some(old) = cookie(headers, &site.cookie()) {
        site.sessions.end(&old);
    }
    let visit = site.sessions.begin(known, way, Instant::now());
    site.sessions.came_from(&visit.id, from);
    let by = match (way, &site.configuration.identity_provider) {
        (Way::Link { .. }, _) => " by the link of a notice".to_owned(),
        (Way::Provider, Some(provider)) => format!(" by {}", provider.host()),
        _ => String::new(),
    };
    let words = format!("as {} from {from}{by}", visit.known.role.as_str());
    let noted = site.administration.audit.note(&visit.actor(), "console.login", "console", &words).await;
    noted.inspect_err(|_| site.sessions.end(&visit.id))?;
    Ok(visit)
}

/// Sends the browser to the page that it asked for, with the session's cookie.
pub(super) fn welcome(site: &Site, headers: &HeaderMap, visit: &Visit, next: &str) -> Response {
    let first = if visit.known.role == Role::User { "/me" } else { "/" };
    let mut answer = Redirect::to(local(next).unwrap_or(first)).into_response();
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(headers, &site.cookie(), &visit.id));
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(headers, &site.login_cookie(), ""));
    answer
}

/// Why no session begins after a right login.
pub(super) fn not_begun(error: OperationError) -> (StatusCode, String) {
    match error {
        OperationError::Failed(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("The login could not be written down: {error}."))
        }
        refused => (StatusCode::TOO_MANY_REQUESTS, Trouble::from(refused).words()),
    }
}

pub(super) fn with(mut answer: Response, status: StatusCode) -> Response {
    *answer.status_mut() = status;
    answer
}

pub(super) async fn log_out(State(site): State<Site>, headers: HeaderMap, Extension(visit): Asking) -> Response {
    site.sessions.end(&visit.id);
    if let Err(error) = site.administration.audit.note(&visit.actor(), "console.logout", "console", "").await {
        tracing::warn!(%error, "a logout could not be written down");
    }
    let mut answer = Redirect::to("/login").into_response();
    answer.headers_mut().append(header::SET_COOKIE, site.set_cookie(&headers, &site.cookie(), ""));
    answer
}
