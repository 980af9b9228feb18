//! The checks that every request passes, so that no page can forget them.
//!
//! In this order:
//!
//! 1. The `Host` must be a name of ours. This refuses a name that somebody else's DNS points to us, and our own address if the request came
//!    through a proxy.
//! 2. The client must be logged in, with an account that has not changed since, or show an API token.
//! 3. Their role must be sufficient for this address. An address that is not listed here needs an administrator.
//! 4. A request that changes something must carry the session's token and come from one of our own pages.
//!
//! Every response carries a policy that forbids all scripts, styles and pictures except our own files.

use crate::api::{PREFIX, Problem, Rank, scope_of};
use crate::form::Form;
use crate::html::Piece;
use crate::noted_change::noted;
use crate::session::{TOKEN_FIELD, Visit, same};
use crate::site::Site;
use crate::trouble::{Trouble, with_troubles};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weir_foundation::OperationError;
use weir_foundation::api_tokens::Scope;
use weir_foundation::console_accounts::Role;

/// The header in which a program sends the session's token.
pub const TOKEN_HEADER: &str = "x-weir-token";
const BODY_BYTES_MAX: usize = 256 * 1024;
/// A form that takes longer to arrive is refused.
const BODY_WITHIN: Duration = Duration::from_secs(10);
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address that a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub IpAddr);

/// What a visitor needs for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Everybody.
    Nothing,
    /// Nothing, but a form must come from our own page.
    OwnPage,
    /// Somebody with at least this role.
    Role(Role),
}

/// Every request passes here.
pub(crate) async fn door(State(site): State<Site>, request: Request, next: Next) -> Response {
    let mut answer = match site.is_called(request.headers()) {
        Called::Stranger => wrong_name(),
        _ => match admit(&site, request).await {
            Ok((request, visit)) => {
                let answer = pass(&site, visit.as_ref(), request, next).await;
                with_troubles(&site, visit.as_ref(), answer)
            }
            Err(refused) => *refused,
        },
    };
    protect(answer.headers_mut());
    answer
}

/// A change that a page makes is first noted in the audit trail; the API does this itself.
async fn pass(site: &Site, visit: Option<&Visit>, request: Request, next: Next) -> Response {
    match visit.filter(|_| !request.method().is_safe() && !is_api(request.uri().path())) {
        Some(visit) => {
            let answer = noted(&site.administration.audit, &visit.actor(), request, next).await;
            answer.unwrap_or_else(|error| Trouble::from(error).page(site, Some(visit)))
        }
        None => next.run(request).await,
    }
}

/// The name by which a browser reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    /// By our address on this machine, without a proxy in between.
    Address,
    /// By a name that the configuration knows.
    Name,
    /// By a name that is not ours; or by our address through a proxy, because anybody can claim it there.
    Stranger,
}

impl Site {
    pub(crate) fn is_called(&self, headers: &HeaderMap) -> Called {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
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
        if self.configuration.hosts.iter().any(|known| *known == host || known == bare) {
            Called::Name
        } else if own.contains(&host) && !headers.contains_key(FORWARDED) {
            Called::Address
        } else {
            Called::Stranger
        }
    }

    /// Where a request comes from. Behind our web gate it is the last address of the list, which the gate added; anybody can write the ones
    /// before it.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let last = headers.get_all(FORWARDED).iter().next_back().and_then(|line| line.to_str().ok());
        let last = last.and_then(|line| line.rsplit(',').next()?.trim().parse().ok());
        last.filter(|_| peer.is_loopback() && self.is_called(headers) == Called::Name).unwrap_or(peer)
    }

    /// The name of the session's cookie; it distinguishes several Weirs on one machine.
    pub(crate) fn cookie(&self) -> String {
        format!("weir-{}", self.address.port())
    }

    /// The cookie to which a login form is bound.
    pub(crate) fn login_cookie(&self) -> String {
        format!("weir-{}-login", self.address.port())
    }

    /// A cookie that only we can read, and that no other site can make a browser send.
    pub(crate) fn set_cookie(&self, headers: &HeaderMap, name: &str, value: &str) -> HeaderValue {
        // Names are reached through the web gate, with TLS; loopback is without.
        let secure = if self.is_called(headers) == Called::Address { "" } else { "; Secure" };
        let gone = if value.is_empty() { "; Max-Age=0" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{gone}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }

    /// The cookie of a sign-in that is under way at the identity provider. The provider's redirect must bring it back, so browsers send it
    /// even if another site caused the request. Nothing else accepts it.
    pub(crate) fn set_sign_in_cookie(&self, headers: &HeaderMap, value: &str) -> HeaderValue {
        let secure = if self.is_called(headers) == Called::Address { "" } else { "; Secure" };
        let age_s = if value.is_empty() { 0 } else { 600 };
        let name = self.sign_in_cookie();
        let text = format!("{name}={value}; Path=/login/oidc; HttpOnly; SameSite=Lax{secure}; Max-Age={age_s}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }

    pub(crate) fn sign_in_cookie(&self) -> String {
        format!("weir-{}-oidc", self.address.port())
    }

    /// The address of one of our pages as the asking browser knows it. The name was checked at the door.
    pub(crate) fn absolute(&self, headers: &HeaderMap, path: &str) -> String {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let scheme = if self.is_called(headers) == Called::Address { "http" } else { "https" };
        format!("{scheme}://{host}{path}")
    }
}

/// The value of a cookie.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn looks(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// Who may ask for this path: the one list of pages with the role that each needs.
fn need(method: &Method, path: &str) -> Need {
    let under = |folder: &str| path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let looks = looks(method);
    match path {
        "/style.css" | "/console.js" | "/icon.svg" | "/healthz" | "/readyz" | "/metrics" if looks => Need::Nothing,
        "/login" | "/login/code" => Need::OwnPage,
        // Browsers are sent here from another site: a sign-in is bound to its browser by a sealed cookie.
        "/login/oidc" | "/login/oidc/callback" if looks => Need::OwnPage,
        _ if under("/link") => Need::OwnPage,
        "/logout" | "/me" | "/me/delete" | "/me/release" | "/me/password" | "/me/contact" => Need::Role(Role::User),
        _ if under("/me/quarantine") => Need::Role(Role::User),
        "/" | "/live" | "/search" | "/audit" | "/web" | "/feeds" if looks => Need::Role(Role::Operator),
        _ if under("/docs") && looks => Need::Role(Role::User),
        _ if (under("/trace") || under("/incidents")) && looks => Need::Role(Role::Operator),
        "/web/drain" | "/web/weight" | "/web/block" | "/web/unblock" => Need::Role(Role::Operator),
        // Whether a machine takes part is an administrator's decision, as in the API.
        "/lab/drain" | "/lab/remove" | "/lab/priority" | "/lab/invite" => Need::Role(Role::Admin),
        _ if ["/throttle", "/quarantine", "/queue", "/bans", "/senders", "/rules", "/lab", "/account"]
            .into_iter()
            .any(under) =>
        {
            Need::Role(Role::Operator)
        }
        _ if under(PREFIX) => Need::Role(of_programs(method, path)),
        _ => Need::Role(Role::Admin),
    }
}

/// Whether somebody with this role may see a page.
pub(crate) fn may_look(visit: &Visit, path: &str) -> bool {
    match need(&Method::GET, path) {
        Need::Nothing | Need::OwnPage => false,
        Need::Role(role) => visit.may(role),
    }
}

/// The role that an operation of the API needs. For a path that does not exist, the right to read is enough: the caller then learns
/// that it does not exist.
fn of_programs(method: &Method, path: &str) -> Role {
    scope_for(method, path).role()
}

/// The least scope of a token for an address that programs may ask.
fn scope_for(method: &Method, path: &str) -> Scope {
    let asked = if *method == Method::HEAD { "get" } else { method.as_str() };
    let scope = match path {
        "/metrics" => Some(Scope::Metrics),
        _ => path.strip_prefix(PREFIX).and_then(|path| scope_of(asked, path)),
    };
    // Only administrators may know anything about accounts and tokens.
    let secret = path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with("/console"));
    match scope {
        Some(scope) => scope,
        None if looks(method) && !secret => Scope::Read,
        None => Scope::Admin,
    }
}

type Admitted = (Request, Option<Visit>);

async fn admit(site: &Site, mut request: Request) -> Result<Admitted, Box<Response>> {
    let mut need = need(request.method(), request.uri().path());
    // Programs on this machine may read the metrics; under a public name one has to be logged in.
    if request.uri().path() == "/metrics" && site.is_called(request.headers()) == Called::Name {
        need = Need::Role(Role::Operator);
    }
    if need == Need::Nothing {
        return Ok((request, None));
    }
    let programs = is_api(request.uri().path());
    if (programs || request.uri().path() == "/metrics")
        && let Some(token) = bearer(request.headers())
    {
        return Ok((program(site, request, need, &token).await?, None));
    }
    let visit = visitor(site, request.headers()).await?;
    if let Need::Role(role) = need {
        let Some(visit) = &visit else { return Err(Box::new(log_in_first(&request, programs))) };
        if visit.known.role < role {
            return Err(Box::new(not_allowed(site, visit, request.uri().path(), programs)));
        }
        no_backup(&request)?;
        request.extensions_mut().insert(visit.actor());
        request.extensions_mut().insert(Rank(visit.known.role));
        request.extensions_mut().insert(visit.clone());
    }
    if looks(request.method()) {
        return Ok((request, visit));
    }
    let expected = match need {
        Need::OwnPage => cookie(request.headers(), &site.login_cookie()),
        _ => visit.as_ref().map(|visit| visit.token.clone()),
    };
    let own = match programs {
        true => own_program(request, expected.as_deref()).map_err(|problem| Box::new(problem.into_response()))?,
        false => {
            let form = own_form(request, expected.as_deref()).await;
            form.map_err(|trouble| Box::new(trouble.page(site, visit.as_ref())))?
        }
    };
    Ok((own, visit))
}

fn is_api(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The token that a program sends.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// A program with a token may do what the token's scope allows. A browser never sends this header by itself, so no page of another site can
/// misuse it.
async fn program(site: &Site, mut request: Request, need: Need, token: &str) -> Result<Request, Box<Response>> {
    let refuse = |problem: Problem| Box::new(problem.into_response());
    let Some(token) = site.administration.tokens.known(token).await.map_err(|error| refuse(error.into()))? else {
        let hint = "it may have been revoked, or its time is over; `weir console token add` makes another";
        return Err(refuse(Problem::unauthorised("this token is not known", hint)));
    };
    let enough = match need {
        Need::Role(role) => {
            let wanted = scope_for(request.method(), request.uri().path());
            token.scope >= wanted && token.scope.role() >= role && (token.scope.may_change() || looks(request.method()))
        }
        Need::Nothing | Need::OwnPage => true,
    };
    if !enough {
        let words = format!("the scope {} does not reach so far", token.scope.as_str());
        return Err(refuse(Problem::refused(
            words,
            "make a token with a wider scope: metrics, read, operate or admin",
        )));
    }
    no_backup(&request)?;
    request.extensions_mut().insert(token.actor());
    request.extensions_mut().insert(Rank(token.scope.role()));
    Ok(request)
}

/// Somebody elsewhere must not make the process write to a folder of their choice.
fn no_backup(request: &Request) -> Result<(), Box<Response>> {
    if request.uri().path().starts_with(&format!("{PREFIX}/backup")) {
        let problem = Problem::refused("a backup is not made over the console", "run `weir backup` on the machine");
        return Err(Box::new(problem.into_response()));
    }
    Ok(())
}

/// A change over the API with a session, which must show the session's token.
fn own_program(request: Request, expected: Option<&str>) -> Result<Request, Problem> {
    let sent = request.headers().get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
    let right = sent.zip(expected).is_some_and(|(sent, expected)| same(sent, expected));
    if right && comes_from_us(request.headers()) {
        return Ok(request);
    }
    let hint = "a change over the API needs the session's token in the header x-weir-token, or a token for programs";
    Err(Problem::refused("the request does not come from a page of this console", hint))
}

/// A form, read here once, which must carry the session's token.
async fn own_form(request: Request, expected: Option<&str>) -> Result<Request, Trouble> {
    let own = comes_from_us(request.headers());
    let (mut parts, body) = request.into_parts();
    let form = Form::read(&whole(body, BODY_WITHIN).await?);
    let right = expected.is_some_and(|expected| same(form.value(TOKEN_FIELD), expected));
    if !own || !right {
        return Err(Trouble::new(
            StatusCode::FORBIDDEN,
            "Nothing was done: this request does not come from a page of this console.",
            "If it was you, the page was an old one. Go back, load it again, and try again.",
        ));
    }
    parts.extensions.insert(form);
    Ok(Request::from_parts(parts, Body::empty()))
}

/// The body, if it comes in time and is not too long.
async fn whole(body: Body, within: Duration) -> Result<Bytes, Trouble> {
    match tokio::time::timeout(within, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let words = "That was too much at once.";
            Err(Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, words, "Choose less, and try again."))
        }
        Err(_) => {
            let words = "The rest of the form did not come in time.";
            Err(Trouble::new(StatusCode::REQUEST_TIMEOUT, words, "Nothing was done. Try again."))
        }
    }
}

/// Who is asking. A session whose account was removed or has a new password ends here.
async fn visitor(site: &Site, headers: &HeaderMap) -> Result<Option<Visit>, Box<Response>> {
    let id = cookie(headers, &site.cookie());
    let Some(visit) = id.and_then(|id| site.sessions.find(&id, Instant::now())) else { return Ok(None) };
    let current = current(site, visit).await;
    current.map_err(|error| Box::new(Trouble::from(error).page(site, None)))
}

/// The visit with its account as it is now; None if the account was removed or has a new password.
pub(crate) async fn current(site: &Site, mut visit: Visit) -> Result<Option<Visit>, OperationError> {
    match site.administration.accounts.known(&visit.known.name).await? {
        // Whoever came by a link to their own page stays a plain user, even if an account with that name is made meanwhile.
        Some(known) if known.stamp == visit.known.stamp && (visit.link().is_none() || known.role == Role::User) => {
            visit.known = known;
            Ok(Some(visit))
        }
        _ => {
            site.sessions.end(&visit.id);
            Ok(None)
        }
    }
}

/// Browsers say from where a request comes; programs that say nothing are caught by the token.
fn comes_from_us(headers: &HeaderMap) -> bool {
    let value = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let fetched = value(HeaderName::from_static("sec-fetch-site"));
    let origin = value(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    fetched.is_none_or(|site| matches!(site, "same-origin" | "none"))
        && origin.is_none_or(|origin| value(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(origin)))
}

fn log_in_first(request: &Request, programs: bool) -> Response {
    if programs || request.uri().path() == "/live" {
        let hint = "send a token in the header `Authorization: Bearer …`; `weir console token add` makes one";
        return Problem::unauthorised("nobody is logged in", hint).into_response();
    }
    let wanted = request.uri().path_and_query().map(|wanted| wanted.as_str()).filter(|wanted| *wanted != "/");
    match wanted.filter(|_| request.method() == Method::GET) {
        Some(wanted) => Redirect::to(&format!("/login?next={}", Piece(wanted))).into_response(),
        None => Redirect::to("/login").into_response(),
    }
}

fn not_allowed(site: &Site, visit: &Visit, path: &str, programs: bool) -> Response {
    if programs {
        let hint = "an operator may look, and decide on mail and users; the rest is for administrators";
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

/// Only our own files are loaded and run, and no other site may frame us. Pictures may be part of the page itself, for screenshots of a
/// guest.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
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
        assert_eq!((look("/login/oidc"), look("/login/oidc/callback")), (Need::OwnPage, Need::OwnPage));
        assert_eq!(need(&Method::POST, "/login/oidc/callback"), Need::Role(Role::Admin));
        assert_eq!(look("/me"), Need::Role(Role::User));
        for path in ["/", "/live", "/throttle", "/throttle/held/x", "/quarantine/x", "/lab", "/api/v1/held", "/audit"] {
            assert_eq!(look(path), Need::Role(Role::Operator), "{path}");
        }
        for path in ["/queue", "/bans", "/senders"] {
            assert_eq!(look(path), Need::Role(Role::Operator), "{path}");
        }
        for path in
            ["/users/add", "/users/ann/remove", "/lab/drain", "/lab/remove", "/lab/invite", "/settings/sessions/end"]
        {
            assert_eq!(need(&Method::POST, path), Need::Role(Role::Admin), "{path}");
        }
        for path in ["/web/drain", "/web/weight", "/web/block", "/bans/lift", "/queue/decide", "/senders/set"] {
            assert_eq!(need(&Method::POST, path), Need::Role(Role::Operator), "{path}");
        }
        for path in ["/settings", "/nowhere", "/throttled", "/apis", "/style.css/x"] {
            assert_eq!(look(path), Need::Role(Role::Admin), "{path}");
        }
        for path in ["/feeds/tune", "/api/v1/users", "/style.css", "/", "/metrics"] {
            assert_eq!(need(&Method::POST, path), Need::Role(Role::Admin), "{path}");
        }
        assert_eq!(need(&Method::POST, "/throttle/decide"), Need::Role(Role::Operator));
        for path in ["/api/v1/console/accounts", "/api/v1/console/tokens", "/api/v1/console"] {
            assert_eq!(look(path), Need::Role(Role::Admin), "{path}");
        }
        for path in [
            "/held/release",
            "/quarantine/delete",
            "/users/a%2Fb/lock",
            "/lab/cancel",
            "/scan/rules",
            "/scan/rules/3/remove",
        ] {
            assert_eq!(need(&Method::POST, &format!("/api/v1{path}")), Need::Role(Role::Operator), "{path}");
        }
        for path in [
            "/users",
            "/users/ann",
            "/users/ann/password",
            "/users/lock",
            "/users/a/b/lock",
            "/feeds/tune",
            "/dkim",
            "/users//lock",
        ] {
            assert_eq!(need(&Method::POST, &format!("/api/v1{path}")), Need::Role(Role::Admin), "{path}");
        }
    }

    #[test]
    fn the_document_says_what_each_operation_needs() {
        for (method, path, scope) in crate::api::scopes() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            assert_eq!(need(&method, &path), Need::Role(scope.role()), "{method} {path}");
            assert!(looks(&method) || scope.may_change(), "{method} {path}");
        }
    }

    #[test]
    fn figures_are_all_that_the_narrowest_scope_reaches() {
        let reached: Vec<String> = crate::api::scopes()
            .filter(|(_, _, scope)| *scope == Scope::Metrics)
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect();
        assert_eq!(reached, ["get /api/v1/alive", "get /api/v1/health", "get /api/v1/web/metrics"]);
        assert_eq!(scope_for(&Method::GET, "/metrics"), Scope::Metrics);
        for path in
            ["/api/v1/nowhere", "/api/v1/status", "/api/v1/messages", "/api/v1/quarantine", "/api/v1/openapi.json"]
        {
            assert_eq!(scope_for(&Method::GET, path), Scope::Read, "{path}");
        }
        assert_eq!(scope_for(&Method::POST, "/api/v1/nowhere"), Scope::Admin);
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

    /// A body that never sends anything.
    struct Silent;

    impl http_body::Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Pending
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_a_form_that_does_not_come() {
        let late = whole(Body::new(Silent), Duration::from_millis(5)).await.unwrap_err();
        assert_eq!(late.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        let much = whole(Body::from(vec![0; BODY_BYTES_MAX + 1]), BODY_WITHIN).await.unwrap_err();
        assert_eq!(much.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let headers =
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("a=1; weir-80-login=x;weir-80=y"))]);
        assert_eq!(cookie(&headers, "weir-80").as_deref(), Some("y"));
        assert_eq!(cookie(&headers, "weir").as_deref(), None);
    }
}
