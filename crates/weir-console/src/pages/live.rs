//! Pages that stay current: a stream of server-sent events with the parts of a page that have changed.
//!
//! One event is a JSON object of element ids and their new markup, escaped as on every page. The number of streams is bounded. A stream
//! ends with its session, also if the account is removed, gets a new password or loses the role that it needs.

use super::overview;
use crate::door;
use crate::frame;
use crate::html::Html;
use crate::looks::EVERY;
use crate::session::Visit;
use crate::site::Site;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, extract::RawQuery};
use http_body::Frame;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use weir_foundation::console_accounts::Role;

/// Something is sent at least so often, so that a broken connection is noticed.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// The stream of one page.
pub(crate) async fn live(
    State(site): State<Site>,
    Extension(visit): Extension<Visit>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(place) = Arc::clone(&site.streams).try_acquire_owned() else {
        let words = "too many pages are open; this one is not kept current\n";
        return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    };
    let overview = query.as_deref() == Some("page=overview");
    let (sender, events) = mpsc::channel(4);
    tokio::spawn(keep_current(site, visit, overview, sender));
    let body = Body::new(Events { events, _place: place });
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

async fn keep_current(site: Site, visit: Visit, overview: bool, sender: mpsc::Sender<Bytes>) {
    let mut known: BTreeMap<&'static str, Html> = BTreeMap::new();
    let mut spoken = Instant::now();
    while may_watch(&site, &visit).await {
        let pulse = site.pulse().await;
        let mut parts = frame::badges(&pulse);
        if overview {
            parts.extend(overview::parts(&pulse, &site.history()));
        }
        parts.retain(|(id, html)| known.get(id) != Some(html));
        let text = match parts.is_empty() {
            true if spoken.elapsed() < QUIET_MAX => None,
            true => Some(": quiet\n\n".to_owned()),
            false => Some(event(&parts)),
        };
        known.extend(parts);
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

/// Watching is being there, up to the life of a session. A database that does not answer now ends nothing.
async fn may_watch(site: &Site, visit: &Visit) -> bool {
    let Some(open) = site.sessions.find(&visit.id, Instant::now()) else { return false };
    match door::current(site, open).await {
        Ok(current) => current.is_some_and(|visit| visit.may(Role::Operator)),
        Err(_) => true,
    }
}

fn event(parts: &[(&'static str, Html)]) -> String {
    let parts: BTreeMap<&str, &str> = parts.iter().map(|(id, html)| (*id, html.as_str())).collect();
    let json = serde_json::to_string(&parts).unwrap_or_default();
    format!("event: parts\ndata: {json}\n\n")
}

/// A body that ends when nobody writes it any more.
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

    #[test]
    fn an_event_is_one_line_of_json() {
        let text = event(&[("a", html!("<b>\n{}</b>", "x\"\ny")), ("b", Html::none())]);
        let data = text.strip_prefix("event: parts\ndata: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        assert!(!data.contains('\n'));
        let read: BTreeMap<String, String> = serde_json::from_str(data).unwrap();
        assert_eq!(read["a"], "<b>\nx&quot;\ny</b>");
    }
}
