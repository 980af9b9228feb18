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
use super::lines::{Lines, is_event_stream, is_for_shared_caches};
use super::patience::Offer;
use super::refusal::{Refusal, refuse};
use super::response_body::{Flow, FlowTiming, Hold, ResponseBody};
use super::thread::{Place, Thread};
use super::tunnel;
use super::upstream::{AnswerBody, Held, Sender};
use super::visit::Visit;
use crate::admission::Cut;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What came of a request that was sent.
pub(super) struct Sent {
    pub(super) response: Response<AnswerBody>,
    pub(super) held: Option<Held>,
    /// Where hyper has the connection.
    pub(super) sender: Option<Sender>,
    pub(super) server: usize,
    pub(super) wait: Duration,
}

/// A server's answer that can be passed on, and what it still occupies.
pub(super) struct Answer {
    response: Response<AnswerBody>,
    /// The fields, where they came as lines.
    lines: Option<Lines>,
    /// The piece of the body that came together with the head.
    first: Option<Frame<Bytes>>,
    hold: Hold,
    sender: Option<Sender>,
    server: usize,
    wait: Duration,
    place: Arc<Place>,
    upgrade: Option<OnUpgrade>,
    pub(super) new_cookie: Option<HeaderValue>,
}

/// What the client is sent. Where the fields came as lines, they are those; the response has none then.
pub(super) type Reply = (Response<ResponseBody>, Option<Lines>);

impl Answer {
    /// The answer, if it is one that can be passed on: what the server says must be sound as far as it is here, and what has no end must find room
    /// among the streams.
    pub(super) fn of(sent: Sent, place: &Arc<Place>, upgrade: Option<OnUpgrade>) -> Result<Answer, Refusal> {
        let Sent { mut response, held, sender, server, wait } = sent;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switches && upgrade.is_none() {
            // Nobody asked for that.
            return Err(Refusal::new(StatusCode::BAD_GATEWAY));
        }
        let lines = response.body_mut().take_lines();
        let first = here(response.body_mut())?;
        let whole = is_whole(response.body(), first.as_ref());
        let events = || lines.as_ref().map_or_else(|| is_event_stream(response.headers()), |lines| lines.events);
        let hold = match held {
            Some(Held { permit, busy }) if switches || (!whole && events()) => {
                Hold::Stream(permit.into_stream().map_err(|refused| refuse(place, refused))?, busy)
            }
            Some(held) => Hold::Slot(held),
            None => Hold::Nothing,
        };
        let place = Arc::clone(place);
        Ok(Answer { response, lines, first, hold, sender, server, wait, place, upgrade, new_cookie: None })
    }

    /// Makes it ready for the client.
    pub(super) fn into_reply(mut self, thread: &Arc<Thread>, mut visit: Visit) -> Reply {
        let status = self.response.status();
        visit.answered(status);
        let switched = (status == StatusCode::SWITCHING_PROTOCOLS).then(|| self.upgrade.take()).flatten();
        let protocol = switched.as_ref().and_then(|_| self.response.headers().get(header::UPGRADE).cloned());
        headers::incoming(self.response.headers_mut());
        if let Some(cookie) = self.new_cookie.take()
            && !self.is_for_many()
        {
            self.add(header::SET_COOKIE, cookie);
        }
        if thread.shared.settings.server_timing {
            let wait = format!("weir;dur={:.1}", self.wait.as_secs_f64() * 1e3);
            if let Ok(wait) = HeaderValue::try_from(wait) {
                self.add(SERVER_TIMING, wait);
            }
        }
        if let Some(client) = switched {
            return (self.tunnel(client, protocol, thread, visit), None);
        }
        let lines = self.lines.take();
        (self.flow(thread, visit), lines)
    }

    /// Whether a cache may give it to others: one client's cookie must not be in it.
    fn is_for_many(&self) -> bool {
        let in_map = || is_for_shared_caches(self.response.headers());
        self.lines.as_ref().map_or_else(in_map, |lines| lines.shared)
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        match &mut self.lines {
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
        let idle = thread.shared.settings.limits.tunnel_idle;
        tokio::spawn(tunnel::run(client, backend, idle, (self.hold, visit)));
        let mut response = self.response.map(|_| ResponseBody::Whole(None));
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
        response
    }

    fn flow(self, thread: &Arc<Thread>, mut visit: Visit) -> Response<ResponseBody> {
        let (parts, body) = self.response.into_parts();
        let first = self.first;
        visit.sent(first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len));
        if is_whole(&body, first.as_ref()) {
            let all = first.and_then(|frame| frame.into_data().ok());
            thread.keep_connection(self.server, (body, self.sender), self.place.settings.idle_connections);
            visit.complete();
            return Response::from_parts(parts, ResponseBody::Whole(all));
        }
        let offer = Offer::current();
        if let Hold::Slot(held) = &self.hold {
            let stream = offer.as_ref().map(|offer| Arc::clone(offer) as Arc<dyn Cut>);
            held.permit.flows(stream.unwrap_or_else(|| visit.client()));
        }
        let flow = Flow {
            first,
            rest: Some(body),
            hold: self.hold,
            server: self.server,
            sender: self.sender,
            thread: Arc::clone(thread),
            visit,
            offer,
            timing: FlowTiming::new(&self.place.settings),
        };
        Response::from_parts(parts, ResponseBody::Flow(Box::new(flow)))
    }
}

fn is_whole(body: &AnswerBody, first: Option<&Frame<Bytes>>) -> bool {
    body.is_end_stream() && first.is_none_or(Frame::is_data)
}

/// The piece of the body that has come together with the head, if one has.
fn here(body: &mut AnswerBody) -> Result<Option<Frame<Bytes>>, Refusal> {
    if body.is_end_stream() {
        return Ok(None);
    }
    let mut nobody = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut nobody) {
        Poll::Ready(Some(Err(cause))) => {
            tracing::debug!(error = %cause, "a backend's answer is not sound");
            Err(Refusal::new(StatusCode::BAD_GATEWAY))
        }
        Poll::Ready(Some(Ok(frame))) => Ok(Some(frame)),
        _ => Ok(None),
    }
}
