//! The door: what every request passes, so that no page can forget it.
//!
//! In this order: the name by which we were called must be ours (a name that somebody else's DNS points to us is not); who asks
//! must be logged in, with an account that is still the same; their role must suffice for this address, and an address that is
//! not listed here needs the highest; what changes something must carry the session's token and come from a page of ours. Every
//! answer leaves with a policy that forbids all scripts, styles and pictures but our own files.

use crate::api::{PREFIX, Problem};
use crate::form::Form;
use crate::pages::{self, Trouble};
use crate::session::{Visit, same};
use crate::site::Site;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use std::net::IpAddr;
use std::time::Instant;
use weir_mail::desk::Role;

/// The header in which a program sends the session's token.
pub const TOKEN_HEADER: &str = "x-weir-token";
/// The field of a form that carries it.
pub(crate) const TOKEN_FIELD: &str = "token";
const BODY_BYTES_MAX: usize = 256 * 1024;

/// The address that a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Who an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Everybody.
    Nothing,
    /// Everybody, but what is sent must come from our own page.
    OwnPage,
    /// Somebody with at least this role.
    Role(Role),
}

/// Everything passes here.
pub(crate) async fn door(State(site): State<Site>, request: Request, next: Next) -> Response {
    let called = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut answer = match site.is_called(called) {
        Called::Stranger => wrong_name(),
        _ => match admit(&site, request).await {
            Ok((request, visit)) => {
                let answer = next.run(request).await;
                pages::with_troubles(&site, visit.as_ref(), answer)
            }
            Err(refused) => *refused,
        },
    };
    protect(answer.headers_mut());
    answer
}

/// How a browser called us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    /// By our address on this machine.
    Address,
    /// By a name that the configuration knows.
    Name,
    /// By a name that is not ours.
    Stranger,
}

impl Site {
    pub(crate) fn is_called(&self, host: &str) -> Called {
        let host = host.to_ascii_lowercase();
        let port = self.address.port();
        let own = [
            self.address.to_string(),
            format!("localhost:{port}"),
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
        ];
        let bare = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let bare = bare.map_or(host.as_str(), |(name, _)| name);
        if own.contains(&host) {
            Called::Address
        } else if self.hosts.iter().any(|known| *known == host || known == bare) {
            Called::Name
        } else {
            Called::Stranger
        }
    }

    /// The session's cookie; its name tells several Weirs on one machine apart.
    pub(crate) fn cookie(&self) -> String {
        format!("weir-{}", self.address.port())
    }

    /// The cookie that a login form is bound to.
    pub(crate) fn login_cookie(&self) -> String {
        format!("weir-{}-login", self.address.port())
    }

    /// A cookie that only we read, and that no other site can make a browser send.
    pub(crate) fn set_cookie(&self, headers: &HeaderMap, name: &str, value: &str) -> HeaderValue {
        let called = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // Names are reached through the web gate, under TLS; loopback is plain.
        let secure = if self.is_called(called) == Called::Name { "; Secure" } else { "" };
        let gone = if value.is_empty() { "; Max-Age=0" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{gone}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// The value of a cookie.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn need(method: &Method, path: &str) -> Need {
    let under = |folder: &str| path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let looks = method == Method::GET || method == Method::HEAD;
    match path {
        "/style.css" | "/console.js" | "/icon.svg" | "/healthz" | "/readyz" | "/metrics" if looks => Need::Nothing,
        "/login" => Need::OwnPage,
        "/logout" | "/me" | "/me/delete" => Need::Role(Role::User),
        "/" | "/live" | "/search" | "/audit" | "/web" | "/feeds" if looks => Need::Role(Role::Operator),
        _ if under("/throttle") || under("/quarantine") || under("/lab") => Need::Role(Role::Operator),
        _ if under(PREFIX) && looks => Need::Role(Role::Operator),
        _ => Need::Role(Role::Admin),
    }
}

type Admitted = (Request, Option<Visit>);

async fn admit(site: &Site, mut request: Request) -> Result<Admitted, Box<Response>> {
    let mut need = need(request.method(), request.uri().path());
    let called = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // Figures are for programs on this machine; under a public name they are for those who are logged in.
    if request.uri().path() == "/metrics" && site.is_called(called) == Called::Name {
        need = Need::Role(Role::Operator);
    }
    if need == Need::Nothing {
        return Ok((request, None));
    }
    let visit = visitor(site, request.headers()).await?;
    let programs = request.uri().path().starts_with(PREFIX);
    if let Need::Role(role) = need {
        let Some(visit) = &visit else { return Err(Box::new(log_in_first(&request, programs))) };
        if visit.known.role < role {
            return Err(Box::new(not_allowed(site, visit, request.uri().path(), programs)));
        }
        if request.uri().path().starts_with(&format!("{PREFIX}/backup")) {
            let problem = Problem::refused("a backup is not made over the console", "run `weir backup` on the machine");
            return Err(Box::new(problem.into_response()));
        }
        request.extensions_mut().insert(visit.actor());
        request.extensions_mut().insert(visit.clone());
    }
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return Ok((request, visit));
    }
    let expected = match need {
        Need::OwnPage => cookie(request.headers(), &site.login_cookie()),
        _ => visit.as_ref().map(|visit| visit.token.clone()),
    };
    let own = comes_from_us(request.headers());
    if programs {
        let sent = request.headers().get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
        let right = own && sent.zip(expected.as_deref()).is_some_and(|(sent, expected)| same(sent, expected));
        let hint = "a change over the API needs the session's token in the header x-weir-token";
        return if right {
            Ok((request, visit))
        } else {
            Err(Box::new(
                Problem::refused("the request does not come from a page of this console", hint).into_response(),
            ))
        };
    }
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let trouble =
            Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, "That was too much at once.", "Choose less, and try again.");
        Box::new(trouble.page(site, visit.as_ref()))
    })?;
    let form = Form::read(&body);
    let right = expected.is_some_and(|expected| same(form.value(TOKEN_FIELD), &expected));
    if !own || !right {
        let trouble = Trouble::new(
            StatusCode::FORBIDDEN,
            "Nothing was done: this request does not come from a page of this console.",
            "If it was you, the page was an old one. Go back, load it again, and try again.",
        );
        return Err(Box::new(trouble.page(site, visit.as_ref())));
    }
    parts.extensions.insert(form);
    Ok((Request::from_parts(parts, Body::empty()), visit))
}

/// Who asks. A session whose account was removed or has a new password ends here.
async fn visitor(site: &Site, headers: &HeaderMap) -> Result<Option<Visit>, Box<Response>> {
    let id = cookie(headers, &site.cookie());
    let Some(mut visit) = id.and_then(|id| site.sessions.find(&id, Instant::now())) else { return Ok(None) };
    let known = site.desk.account_known(&visit.known.name).await;
    match known.map_err(|error| Box::new(Trouble::from(error).page(site, None)))? {
        Some(known) if known.stamp == visit.known.stamp => {
            visit.known = known;
            Ok(Some(visit))
        }
        _ => {
            site.sessions.end(&visit.id);
            Ok(None)
        }
    }
}

/// Browsers say where a request comes from; programs that say nothing are caught by the token.
fn comes_from_us(headers: &HeaderMap) -> bool {
    let value = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let fetched = value(HeaderName::from_static("sec-fetch-site"));
    let origin = value(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    fetched.is_none_or(|site| matches!(site, "same-origin" | "none"))
        && origin.is_none_or(|origin| value(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(origin)))
}

fn log_in_first(request: &Request, programs: bool) -> Response {
    if programs || request.uri().path() == "/live" {
        let hint = "log in at /login and send its cookie; tokens for programs do not exist yet, use the control socket";
        return Problem::unauthorised("nobody is logged in", hint).into_response();
    }
    let mut next = String::new();
    if request.method() == Method::GET
        && let Some(wanted) =
            request.uri().path_and_query().map(|wanted| wanted.as_str()).filter(|wanted| *wanted != "/")
    {
        crate::html::Show::show(&crate::html::Piece(wanted), &mut next);
    }
    let to = if next.is_empty() { "/login".to_owned() } else { format!("/login?next={next}") };
    Redirect::to(&to).into_response()
}

fn not_allowed(site: &Site, visit: &Visit, path: &str, programs: bool) -> Response {
    if programs {
        let hint = "an operator may look over the API; changes are for administrators";
        return Problem::refused("your role does not allow this", hint).into_response();
    }
    if visit.known.role == Role::User && path == "/" {
        return Redirect::to("/me").into_response();
    }
    let words = format!("This is not for the role {}.", visit.known.role.as_str());
    Trouble::new(StatusCode::FORBIDDEN, words, "Ask an administrator to do it, or for another role.")
        .page(site, Some(visit))
}

fn wrong_name() -> Response {
    let words = "This console is not called by that name. Use the address that `weir up` printed, or add the name to console.hosts.\n";
    (StatusCode::MISDIRECTED_REQUEST, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], words).into_response()
}

/// Nothing but our own files runs, is drawn or is asked for, and nobody frames us.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

fn protect(headers: &mut HeaderMap) {
    let lines = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With no-referrer a browser would not say where our own forms come from either.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ];
    for (name, value) in lines {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_needs_an_administrator() {
        let look = |path: &str| need(&Method::GET, path);
        assert_eq!(look("/style.css"), Need::Nothing);
        assert_eq!(look("/login"), Need::OwnPage);
        assert_eq!(look("/me"), Need::Role(Role::User));
        for path in ["/", "/live", "/throttle", "/throttle/held/x", "/quarantine/x", "/lab", "/api/v1/held", "/audit"] {
            assert_eq!(look(path), Need::Role(Role::Operator), "{path}");
        }
        for path in ["/settings", "/nowhere", "/throttled", "/apis", "/style.css/x"] {
            assert_eq!(look(path), Need::Role(Role::Admin), "{path}");
        }
        for path in ["/feeds/tune", "/api/v1/users", "/style.css", "/", "/metrics"] {
            assert_eq!(need(&Method::POST, path), Need::Role(Role::Admin), "{path}");
        }
        assert_eq!(need(&Method::POST, "/throttle/decide"), Need::Role(Role::Operator));
    }

    #[test]
    fn requests_of_other_sites_are_told_apart() {
        let from = |lines: &[(&'static str, &'static str)]| {
            let headers =
                lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            comes_from_us(&headers.collect())
        };
        assert!(from(&[
            ("host", "127.0.0.1:8025"),
            ("origin", "http://127.0.0.1:8025"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(from(&[("host", "127.0.0.1:8025")]));
        assert!(!from(&[("host", "127.0.0.1:8025"), ("origin", "http://evil.example")]));
        assert!(!from(&[("host", "127.0.0.1:8025"), ("origin", "null")]));
        assert!(!from(&[("host", "127.0.0.1:8025"), ("sec-fetch-site", "cross-site")]));
        assert!(!from(&[("host", "127.0.0.1:8025"), ("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let headers =
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("a=1; weir-80-login=x;weir-80=y"))]);
        assert_eq!(cookie(&headers, "weir-80").as_deref(), Some("y"));
        assert_eq!(cookie(&headers, "weir").as_deref(), None);
    }
}
