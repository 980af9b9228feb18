//! A server's answer on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use hyper::upgrade::OnUpgrade;

use super::headers;
use super::lines::{Lines, is_event_stream};
use super::response_body::{Flow, FlowTiming, Hold, ResponseBody};
use super::thread::{Place, Thread};
use super::tunnel;
use super::upstream::{AnswerBody, Sender};
use super::visit::Visit;
use crate::admission::Permit;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A backend's answer and what it still occupies.
pub(super) struct Answer {
    pub(super) response: Response<AnswerBody>,
    pub(super) permit: Option<Permit>,
    /// Where hyper has the connection.
    pub(super) sender: Option<Sender>,
    pub(super) server: usize,
    pub(super) place: Arc<Place>,
    pub(super) wait: Duration,
    pub(super) new_cookie: Option<HeaderValue>,
    pub(super) upgrade: Option<OnUpgrade>,
}

/// What the client is sent. Where the fields came as lines, they are those; the response has none then.
pub(super) type Reply = (Response<ResponseBody>, Option<Lines>);

impl Answer {
    /// Makes it ready for the client.
    pub(super) fn into_reply(mut self, thread: &Arc<Thread>, mut visit: Visit) -> Reply {
        let status = self.response.status();
        visit.answered(status);
        let mut lines = self.response.body_mut().take_lines();
        let switched = (status == StatusCode::SWITCHING_PROTOCOLS).then(|| self.upgrade.take()).flatten();
        let upgrade = switched.as_ref().and_then(|_| self.response.headers().get(header::UPGRADE).cloned());
        headers::incoming(self.response.headers_mut());
        if let Some(cookie) = self.new_cookie.take() {
            self.add(&mut lines, header::SET_COOKIE, cookie);
        }
        if thread.shared.settings.server_timing {
            let wait = format!("weir;dur={:.1}", self.wait.as_secs_f64() * 1e3);
            if let Ok(wait) = HeaderValue::try_from(wait) {
                self.add(&mut lines, SERVER_TIMING, wait);
            }
        }
        if let Some(client) = switched {
            return (self.tunnel(client, upgrade, thread, visit), None);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for that.
            let mut response = Response::new(ResponseBody::Whole(None));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            visit.complete();
            return (response, None);
        }
        let events = lines.as_ref().map_or_else(|| is_event_stream(self.response.headers()), |lines| lines.events);
        (self.flow(events, thread, visit), lines)
    }

    fn add(&mut self, lines: &mut Option<Lines>, name: HeaderName, value: HeaderValue) {
        match lines {
            Some(lines) => lines.append(&name, &value),
            None => {
                self.response.headers_mut().append(name, value);
            }
        }
    }

    fn tunnel(
        mut self,
        client: OnUpgrade,
        protocol: Option<HeaderValue>,
        thread: &Arc<Thread>,
        visit: Visit,
    ) -> Response<ResponseBody> {
        let backend = hyper::upgrade::on(&mut self.response);
        if let Some(permit) = self.permit.take() {
            let idle = thread.shared.settings.limits.tunnel_idle;
            tokio::spawn(tunnel::run(client, backend, idle, (permit.into_stream(), visit)));
        }
        let mut response = self.response.map(|_| ResponseBody::Whole(None));
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
        response
    }

    fn flow(self, events: bool, thread: &Arc<Thread>, mut visit: Visit) -> Response<ResponseBody> {
        let (parts, mut body) = self.response.into_parts();
        let first = if body.is_end_stream() { None } else { here(&mut body) };
        if body.is_end_stream() && first.as_ref().is_none_or(Frame::is_data) {
            let all = first.and_then(|frame| frame.into_data().ok());
            thread.keep_connection(self.server, (body, self.sender), self.place.settings.idle_connections);
            visit.sent(all.as_ref().map_or(0, Bytes::len));
            visit.complete();
            return Response::from_parts(parts, ResponseBody::Whole(all));
        }
        let hold = match self.permit {
            Some(permit) if events => Hold::Stream(permit.into_stream()),
            Some(permit) => {
                permit.answered();
                Hold::Slot(permit)
            }
            None => Hold::Nothing,
        };
        visit.sent(first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len));
        let flow = Flow {
            first,
            rest: Some(body),
            hold,
            server: self.server,
            sender: self.sender,
            thread: Arc::clone(thread),
            visit,
            timing: FlowTiming::new(&self.place.settings),
        };
        Response::from_parts(parts, ResponseBody::Flow(Box::new(flow)))
    }
}

/// The piece of the body that has come together with the head, if one has.
fn here(body: &mut AnswerBody) -> Option<Frame<Bytes>> {
    let mut nobody = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut nobody) {
        Poll::Ready(Some(Ok(frame))) => Some(frame),
        _ => None,
    }
}
