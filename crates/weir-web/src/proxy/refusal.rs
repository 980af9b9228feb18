//! Answers that the gate gives itself: errors, refusals, and redirects to HTTPS.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use weir_http1::refused::{self, Rule};

use super::client::Client;
use super::presence::ConnectionEnd;
use super::request_body::BodyFault;
use super::request_record::RequestRecord;
use super::response_body::ResponseBody;
use super::site::{ActiveBackend, Site};
use crate::admission::{AdmissionRefusal, Promise, Standing, Visit, WaitingRoom};
use crate::identity::{Identities, Identity};
use crate::route::without_port;
use crate::waiting_page::{Notice, whole_seconds};

const HTML: &str = "text/html; charset=utf-8";

/// An answer of our own.
pub(super) struct Refusal {
    status: StatusCode,
    retry_after: Option<Duration>,
    location: Option<HeaderValue>,
    /// Whether the connection can be used again.
    close: bool,
    new_cookie: Option<HeaderValue>,
    /// The text instead of the page for the status.
    said: Option<Box<RefusalBody>>,
}

enum RefusalBody {
    /// For a browser that has to wait; with its place, if it has that place only by the cookie that it is given.
    Wait(Notice, Option<PromisedPlace>),
    /// Plain text.
    Text(String),
}

/// A place that was promised to a visitor who is not in the line.
struct PromisedPlace {
    room: Arc<WaitingRoom>,
    promise: Promise,
}

impl Refusal {
    pub(super) fn new(status: StatusCode) -> Refusal {
        Refusal { status, retry_after: None, location: None, close: false, new_cookie: None, said: None }
    }

    /// An answer in plain text that has nothing to do with the site.
    pub(super) fn answer(text: String) -> Refusal {
        Refusal { said: Some(Box::new(RefusalBody::Text(text))), ..Refusal::new(StatusCode::OK) }
    }

    pub(super) fn closing(status: StatusCode) -> Refusal {
        Refusal { close: true, ..Refusal::new(status) }
    }

    /// The request has to wait; a browser is told its place.
    pub(super) fn later(promise: Promise, browser: bool) -> Refusal {
        let Promise { ahead, wait, .. } = promise;
        let notice = browser.then(|| Notice { ahead: Some(ahead), wait, again: promise.again() });
        let retry_after = Some(notice.map_or(wait, |notice| notice.again));
        Refusal {
            retry_after,
            said: notice.map(|notice| Box::new(RefusalBody::Wait(notice, None))),
            ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE)
        }
    }

    /// The same for the browser of a visitor who is not in the line, and is expected in it from now on.
    pub(super) fn later_in(room: &Arc<WaitingRoom>, promise: Promise) -> Refusal {
        let mut refusal = Refusal::later(promise, true);
        if let Some(RefusalBody::Wait(_, place)) = refusal.said.as_deref_mut() {
            *place = Some(PromisedPlace { room: Arc::clone(room), promise });
        }
        refusal
    }

    /// The same if the client does not receive this: then no visitor with this cookie is expected.
    #[must_use]
    pub(super) fn without_place(mut self) -> Refusal {
        if let Some(RefusalBody::Wait(_, place)) = self.said.as_deref_mut() {
            *place = None;
        }
        self
    }

    /// The same for a visitor who is in no line, because the queue is too long even for known visitors.
    pub(super) fn for_browser(self) -> Refusal {
        let wait = self.retry_after.unwrap_or_default();
        Refusal { said: Some(Box::new(RefusalBody::Wait(Notice { ahead: None, wait, again: wait }, None))), ..self }
    }

    /// Whether its text is made for this client. All others have the same pages.
    pub(super) fn is_written_anew(&self) -> bool {
        self.said.is_some()
    }

    /// Whether a browser is told to wait.
    fn is_waiting_page(&self) -> bool {
        matches!(self.said.as_deref(), Some(RefusalBody::Wait(..)))
    }

    /// The answer with the cookie that the client is given. A waiting page always comes with one, because the place is kept in it, and a visitor with a
    /// place is expected.
    #[must_use]
    pub(super) fn with_cookie(
        mut self,
        offered: Option<HeaderValue>,
        identity: &Identity,
        identities: &Identities,
        now: SystemTime,
    ) -> Refusal {
        self.new_cookie = offered;
        if self.is_waiting_page() && self.new_cookie.is_none() && identity.cookie_age.is_none() {
            self.new_cookie = identities.new_cookie(identity.subnet, now);
        }
        if let Some(RefusalBody::Wait(_, place)) = self.said.as_deref_mut()
            && let Some(PromisedPlace { room, promise }) = place.take()
            && let Some(session) = identities.session_from(identity, self.new_cookie.as_ref())
        {
            let waited = identity.cookie_age.unwrap_or_default();
            room.expect(&Visit { session, subnet: identity.subnet, waited }, &promise);
        }
        self
    }

    pub(super) fn into_response(
        self,
        site: &Site,
        client: &Client,
        mut record: RequestRecord,
    ) -> Response<ResponseBody> {
        let close = self.close;
        let mut response = self.into_page(site);
        record.answered(response.status());
        record.sent(response.body().len());
        record.complete();
        if close {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            client.finish(ConnectionEnd::Drain);
        }
        response.map(|page| ResponseBody::Whole(Some(page)))
    }

    /// The complete answer.
    pub(super) fn into_page(self, site: &Site) -> Response<Bytes> {
        let (kind, page) = match self.said.map(|said| *said) {
            Some(RefusalBody::Text(text)) => ("text/plain", Bytes::from(text)),
            Some(RefusalBody::Wait(notice, _)) => (HTML, site.settings.web.waiting.write(&notice)),
            None => (HTML, site.pages.page(self.status)),
        };
        let mut response = Response::new(page);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if let Some(location) = self.location {
            headers.insert(header::LOCATION, location);
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"));
        }
        if let Some(cookie) = self.new_cookie {
            headers.append(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// A request that may not be passed on, or a response that cannot be trusted.
impl From<refused::Refused> for Refusal {
    fn from(refused: refused::Refused) -> Refusal {
        let Rule { status, closes, section, reason } = refused.rule();
        tracing::debug!(reason, section, "a message is refused");
        Refusal { close: closes, ..Refusal::new(status) }
    }
}

/// There is no slot.
pub(super) fn refuse(backend: &ActiveBackend, refused: AdmissionRefusal, standing: Standing) -> Refusal {
    let status = match refused {
        AdmissionRefusal::Streams => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refusal { retry_after: Some(backend.admission.retry_after(standing)), ..Refusal::new(status) }
}

/// The request's body did not arrive completely.
pub(super) fn refuse_body(backend: &ActiveBackend, fault: BodyFault) -> Refusal {
    let refusal = Refusal::closing(fault.status());
    let again = matches!(fault, BodyFault::NoRoom | BodyFault::Cut | BodyFault::Lost);
    Refusal { retry_after: again.then(|| backend.admission.retry_after(Standing::Known)), ..refusal }
}

/// A redirect to the same address at https.
pub(super) fn redirect(method: &Method, host: &str, target: &str, port: u16) -> Refusal {
    let name = without_port(host);
    if name.is_empty() {
        return Refusal::closing(StatusCode::BAD_REQUEST);
    }
    let backend =
        if port == 443 { format!("https://{name}{target}") } else { format!("https://{name}:{port}{target}") };
    let kept = matches!(*method, Method::GET | Method::HEAD);
    let status = if kept { StatusCode::MOVED_PERMANENTLY } else { StatusCode::PERMANENT_REDIRECT };
    Refusal { location: HeaderValue::try_from(backend).ok(), ..Refusal::new(status) }
}
