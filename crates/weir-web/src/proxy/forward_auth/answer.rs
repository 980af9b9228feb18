//! The answer to another proxy's question: the request may go, has to wait, or is refused.
//!
//! `/ask` is answered with what the client should hear: Caddy and Traefik pass everything on that is not a success. `/ask/nginx` knows only success, 401 (come
//! again) and 403; for 401 nginx then asks `/page` for what the client should hear.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::super::admit::{Asker, admit, wait_elsewhere};
use super::super::refusal::Refusal;
use super::super::site::{ActiveBackend, Site};
use super::super::vouching::{tally, vouch};
use super::Door;
use super::held_slots::QuestionStatus;
use super::question::{Question, RequestId, Unclear};
use crate::admission::{Class, Permit};
use crate::identity::{Identities, Identity};
use crate::waiting_page::is_for_browser;

/// The cookie of a client that goes, for proxies that cannot pass `Set-Cookie` on under its own name.
const COOKIE: HeaderName = HeaderName::from_static("x-weir-cookie");
/// Memory of a question that waits: its task, its connection and its head.
const QUESTION_BYTES: u32 = 16 << 10;

pub(super) async fn answer(door: &Door, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let site = door.shared.site();
    let response = match request.uri().path() {
        "/ask" => door.ask(&site, request.headers(), false).await,
        "/ask/nginx" => in_nginx_words(door.ask(&site, request.headers(), true).await),
        "/page" => door.page(&site, request.headers()),
        _ => plain(StatusCode::NOT_FOUND, "Ask for /ask, /ask/nginx or /page.\n".into()),
    };
    response.map(Full::new)
}

/// Who asks for what, and where it would go.
struct AskedRequest {
    backend: Arc<ActiveBackend>,
    identities: Identities,
    identity: Identity,
    offered: Option<HeaderValue>,
    class: Class,
    browser: bool,
    id: Option<RequestId>,
    /// Whether the client hears what is answered to another question, for the page.
    page_follows: bool,
}

/// What is said instead of a slot.
enum No {
    /// The proxy has to be set up otherwise.
    Unclear(Unclear),
    /// No route leads anywhere for this host.
    Nowhere(String),
    /// The proxy has said that this request is over, or the same waits already.
    Stale,
    Refused(Refusal),
}

impl Door {
    async fn ask(&self, site: &Site, fields: &HeaderMap, page_follows: bool) -> Response<Bytes> {
        match self.grant(site, fields, page_follows).await {
            Ok(cookie) => go(cookie),
            Err(no) => self.say(no, site),
        }
    }

    /// Waits for a slot, which is held until the request is over; then the cookie for the client, if it gets one.
    async fn grant(&self, site: &Site, fields: &HeaderMap, page_follows: bool) -> Result<Option<HeaderValue>, No> {
        let asked = AskedRequest { page_follows, ..self.read(site, fields, self.settings.hears_ends())? };
        let id = asked.id.clone().unwrap_or_else(|| RequestId::own(self.next.fetch_add(1, Ordering::Relaxed)));
        let place = match self.slots.begin(id) {
            QuestionStatus::New(place) => place,
            QuestionStatus::Again => return Ok(None),
            QuestionStatus::Stale => return Err(No::Stale),
        };
        let (permit, now) = self.wait(site, &asked).await?;
        let held = if self.settings.hears_ends() { self.settings.longest } else { self.settings.lease };
        if place.hold(permit, now + held) { Ok(asked.offered) } else { Err(No::Stale) }
    }

    async fn wait(&self, site: &Site, asked: &AskedRequest) -> Result<(Permit, Instant), No> {
        let page_after = site.settings.web.waiting.after;
        match admit(None, &asked.backend, &asked.asker(), page_after, QUESTION_BYTES).await {
            Ok((permit, waited)) => {
                if waited.is_zero() {
                    tally(site, &asked.backend, &asked.identity, SystemTime::now());
                }
                Ok((permit, Instant::now()))
            }
            Err(refusal) => Err(No::Refused(asked.with_cookie(refusal))),
        }
    }

    /// What a client hears for which nginx was told 401.
    fn page(&self, site: &Site, fields: &HeaderMap) -> Response<Bytes> {
        match self.read(site, fields, false) {
            Ok(asked) => asked.with_cookie(wait_elsewhere(&asked.backend, &asked.asker())).into_page(site),
            Err(no) => self.say(no, site),
        }
    }

    fn read(&self, site: &Site, fields: &HeaderMap, with_id: bool) -> Result<AskedRequest, No> {
        let question = Question::read(fields, with_id).map_err(No::Unclear)?;
        let route = site.routes.find(question.host, question.path());
        let route = route.ok_or_else(|| No::Nowhere(question.host.to_owned()))?;
        let identities = &site.settings.identities;
        let identities = if question.secure { identities.on_tls() } else { identities.clone() };
        let now = SystemTime::now();
        let identity = identities.identify_at(&identities.peer_keys(question.client), fields, now, true);
        let mut identity = vouch(&self.shared, site, identity, fields, now).map_err(No::Refused)?;
        Ok(AskedRequest {
            backend: Arc::clone(&site.backends[route.backend]),
            offered: identity.new_cookie.take(),
            identity,
            class: Class::new(route.number, &question.method),
            browser: site.settings.web.waiting.enabled && is_for_browser(&question.method, fields),
            id: question.id,
            page_follows: false,
            identities,
        })
    }

    fn say(&self, no: No, site: &Site) -> Response<Bytes> {
        match no {
            No::Unclear(unclear) => {
                if self.unclear_questions.fetch_add(1, Ordering::Relaxed).is_multiple_of(1_000) {
                    tracing::warn!(
                        "a proxy's question cannot be answered: {unclear}; docs/doors.md shows how it is set up"
                    );
                }
                plain(StatusCode::BAD_REQUEST, format!("{unclear}\n"))
            }
            No::Nowhere(host) => {
                plain(StatusCode::NOT_FOUND, format!("no route of [web] leads anywhere for {host:?}\n"))
            }
            No::Stale => plain(StatusCode::CONFLICT, "this request is over, or waits already\n".into()),
            No::Refused(refusal) => refusal.into_page(site),
        }
    }
}

impl AskedRequest {
    fn asker(&self) -> Asker<'_> {
        Asker { identity: &self.identity, class: self.class, browser: self.browser, stream: false }
    }

    fn with_cookie(&self, refusal: Refusal) -> Refusal {
        let refusal = if self.page_follows { refusal.without_place() } else { refusal };
        refusal.with_cookie(self.offered.clone(), &self.identity, &self.identities, SystemTime::now())
    }
}

fn go(cookie: Option<HeaderValue>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Some(cookie) = cookie {
        response.headers_mut().insert(COOKIE, cookie.clone());
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn plain(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// nginx takes anything but success, 401 and 403 for an error of its own; questions that cannot be answered are to be one.
fn in_nginx_words(mut response: Response<Bytes>) -> Response<Bytes> {
    if matches!(response.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.body_mut().clear();
    }
    response
}
