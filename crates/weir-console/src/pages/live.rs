//! Pages that stay current: a stream of server-sent events with the parts of a page that have changed.
//!
//! For every look at the gates the page is drawn again as a request for it would be, and compared part by part ([`LiveParts`]). So a page
//! need not know that it is kept current, its parts are of one moment, and a part cannot show more than the page itself would. One event
//! is a JSON object of element ids and their new markup, escaped as on every page. The number of streams is bounded. A stream
//! ends with its session, also if the account is removed, gets a new password or loses the role that it needs.

use super::{pages, query};
use crate::door;
use crate::frame::{self, LivePart, LiveParts};
use crate::looks::EVERY;
use crate::session::Visit;
use crate::site::Site;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router, extract::RawQuery};
use http_body::Frame;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tower::ServiceExt;
use weir_foundation::console_accounts::Role;

/// Something is sent at least this often, so that a broken connection is noticed.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// The stream of one page: the page at the address `page`, or only how much waits on each page.
pub(crate) async fn live(State(site): State<Site>, Extension(visit): Extension<Visit>, asked: RawQuery) -> Response {
    let Ok(place) = Arc::clone(&site.streams).try_acquire_owned() else {
        let words = "too many pages are open; this one is not kept current\n";
        return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    };
    let address = query(&asked).value("page").to_owned();
    let (sender, events) = mpsc::channel(4);
    tokio::spawn(keep_current(site, visit, address, sender));
    let body = Body::new(Events { events, _place: place });
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

async fn keep_current(site: Site, visit: Visit, address: String, sender: mpsc::Sender<Bytes>) {
    let page = WatchedPage { router: pages().with_state(site.clone()), visit: visit.unheard(), address };
    let mut known: BTreeMap<&'static str, String> = BTreeMap::new();
    let mut spoken = Instant::now();
    while may_watch(&site, &visit).await {
        let pulse = site.pulse().await;
        let mut parts = page.parts().await.unwrap_or_else(|| frame::badges(&pulse));
        parts.retain(|(id, html)| {
            let settled = html.without_times();
            let news = known.get(id) != Some(&settled);
            known.insert(id, settled);
            news
        });
        let text = match parts.is_empty() {
            true if spoken.elapsed() < QUIET_MAX => None,
            true => Some(": quiet\n\n".to_owned()),
            false => Some(event(&parts)),
        };
        if let Some(text) = text {
            spoken = Instant::now();
            if sender.send(Bytes::from(text)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = site.looks.taken() => {}
            () = tokio::time::sleep(EVERY) => {}
            () = sender.closed() => return,
        }
    }
}

/// A page that somebody has open.
struct WatchedPage {
    router: Router,
    visit: Visit,
    /// Its path and query, as in the browser.
    address: String,
}

impl WatchedPage {
    /// Its parts as they are now; None if there is no such page, or this person may not see it, or it cannot be drawn.
    async fn parts(&self) -> Option<Vec<LivePart>> {
        let path = super::local(&self.address)?.split('?').next()?;
        if path == "/live" || !door::may_look(&self.visit, path) {
            return None;
        }
        let request = Request::get(self.address.as_str()).extension(self.visit.clone()).body(Body::empty()).ok()?;
        let answer = self.router.clone().oneshot(request).await.ok()?;
        answer.extensions().get::<LiveParts>().map(|LiveParts(parts)| parts.clone())
    }
}

/// An open page counts as activity, up to the greatest age of a session. If the database does not answer at the moment, nothing ends.
async fn may_watch(site: &Site, visit: &Visit) -> bool {
    let Some(open) = site.sessions.find(&visit.id, Instant::now()) else { return false };
    match door::current(site, open).await {
        Ok(current) => current.is_some_and(|visit| visit.may(Role::Operator)),
        Err(_) => true,
    }
}

fn event(parts: &[LivePart]) -> String {
    let parts: BTreeMap<&str, &str> = parts.iter().map(|(id, html)| (*id, html.as_str())).collect();
    let json = serde_json::to_string(&parts).unwrap_or_default();
    format!("event: parts\ndata: {json}\n\n")
}

/// A body that ends when nothing writes to it any more.
struct Events {
    events: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html;
    use crate::html::Html;

    #[test]
    fn an_event_is_one_line_of_json() {
        let text = event(&[("a", html!("<b>\n{}</b>", "x\"\ny")), ("b", Html::none())]);
        let data = text.strip_prefix("event: parts\ndata: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        assert!(!data.contains('\n'));
        let read: BTreeMap<String, String> = serde_json::from_str(data).unwrap();
        assert_eq!(read["a"], "<b>\nx&quot;\ny</b>");
    }
}
