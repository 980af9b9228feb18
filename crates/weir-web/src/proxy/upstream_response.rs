//! A server's response on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use hyper::upgrade::OnUpgrade;
use weir_core::fair::SubnetKey;
use weir_http1::Refused;
use weir_http1::field_lines::{FieldLines, given_cookie, is_event_stream, is_for_shared_caches, is_unbuffered};
use weir_http1::hop_by_hop;

use super::expected_stream::PathKey;
use super::http2_stream::SendWatch;
use super::refusal::{Refusal, refuse};
use super::relay::{Holding, Relay, RelayStart};
use super::request_record::RequestRecord;
use super::response_body::{ResponseBody, StreamedBody};
use super::site::{ActiveBackend, Site};
use super::thread::Thread;
use super::tunnel;
use super::unit_meter::UnitMeter;
use super::unread::{alone, counted};
use super::upstream::{HeldSlot, Sender, UpstreamBody};
use crate::admission::{Reader, Standing};
use crate::identity::BroughtSessions;
use crate::units::Units;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The result of a request that was sent.
pub(super) struct Received {
    pub(super) response: Response<UpstreamBody>,
    pub(super) held: Option<HeldSlot>,
    /// The connection, if hyper has it.
    pub(super) sender: Option<Sender>,
    pub(super) server: usize,
    pub(super) wait: Duration,
    pub(super) subnet: SubnetKey,
    /// Whether the route wants it passed on as it arrives.
    pub(super) unbuffered: bool,
    /// Where it says what it has cost.
    pub(super) units: Option<Arc<Units>>,
    /// Its path, if paths that answer with streams are remembered.
    pub(super) path: Option<PathKey>,
}

impl Received {
    /// The result for a request that did not wait and has no particular client.
    pub(super) fn new(
        response: Response<UpstreamBody>,
        held: Option<HeldSlot>,
        sender: Option<Sender>,
        server: usize,
    ) -> Received {
        let (wait, subnet, unbuffered, units) = (Duration::ZERO, SubnetKey(0), false, None);
        Received { response, held, sender, server, wait, subnet, unbuffered, units, path: None }
    }
}

/// A client that wants to change to another protocol.
pub(super) struct Upgrade {
    pub(super) client: OnUpgrade,
    /// Whether it is on a stream of HTTP/2, where the client is answered 200.
    pub(super) on_stream: bool,
}

/// A server's response that can be passed on, and what it still occupies.
pub(super) struct UpstreamResponse {
    response: Response<UpstreamBody>,
    /// The fields, where they came as lines.
    lines: Option<FieldLines>,
    /// The piece of the body that came together with the head.
    first: Option<Frame<Bytes>>,
    hold: Holding,
    sender: Option<Sender>,
    server: usize,
    wait: Duration,
    subnet: SubnetKey,
    unbuffered: bool,
    meter: Option<UnitMeter>,
    backend: Arc<ActiveBackend>,
    upgrade: Option<Upgrade>,
    pub(super) new_cookie: Option<HeaderValue>,
    /// Sessions of the application that the request has brought.
    pub(super) app_sessions: BroughtSessions,
}

/// What is sent to the client.
pub(super) struct ClientResponse {
    /// Without fields, if they are in `lines`.
    pub(super) response: Response<ResponseBody>,
    /// The fields, where they came as lines.
    pub(super) lines: Option<FieldLines>,
}

impl UpstreamResponse {
    /// The response, if it can be passed on: what has arrived of it must be valid, and for a response without an end there must be room among the
    /// streams.
    pub(super) fn of(
        sent: Received,
        backend: &Arc<ActiveBackend>,
        upgrade: Option<Upgrade>,
    ) -> Result<UpstreamResponse, Refusal> {
        let Received { mut response, held, sender, server, wait, subnet, unbuffered, units, path } = sent;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switches && upgrade.is_none() {
            return Err(Refused::Switched.into());
        }
        if !switches && response.status().is_success() && upgrade.as_ref().is_some_and(|upgrade| upgrade.on_stream) {
            // The client would mistake this for a tunnel, and there is none.
            return Err(Refused::NoTunnel.into());
        }
        let lines = response.body_mut().take_lines();
        let first = here(response.body_mut())?;
        let whole = is_whole(response.body(), first.as_ref());
        let headers = response.headers();
        let events = !whole && lines.as_ref().map_or_else(|| is_event_stream(headers), |lines| lines.events);
        let at_once = || lines.as_ref().map_or_else(|| is_unbuffered(headers), |lines| lines.unbuffered);
        let unbuffered = unbuffered || events || (!whole && at_once());
        let is_stream = switches || (events && units.is_none());
        if let (Some(paths), Some(path)) = (&backend.stream_paths, path) {
            if is_stream && events {
                paths.remember(path);
            } else if response.status().is_success() {
                paths.is_mixed(path);
            }
        }
        // The server is told at once that nobody reads.
        let too_many = |refused| {
            response.body().reset_when_dropped();
            refuse(backend, refused, Standing::Known)
        };
        let hold = match held {
            Some(HeldSlot { permit, busy }) if is_stream && !backend.settings.streams_hold_slots => {
                Holding::Stream(permit.into_stream().map_err(too_many)?, busy)
            }
            Some(mut held) if is_stream => match held.permit.hold_as_stream() {
                Ok(()) => Holding::Slot(held),
                Err(refused) => {
                    // How long it lingers says nothing about how fast the server answers.
                    held.permit.answered();
                    held.linger(backend.settings.admission.stream_after);
                    return Err(too_many(refused));
                }
            },
            Some(mut held) => {
                held.permit.ends();
                Holding::Slot(held)
            }
            None => Holding::Nothing,
        };
        let meter = units.map(|units| {
            let all_events = lines.as_ref().map_or_else(|| is_event_stream(headers), |lines| lines.events);
            UnitMeter::new(units, all_events, |name| match &lines {
                Some(lines) => lines.find(name.as_str()),
                None => headers.get(name).map(HeaderValue::as_bytes),
            })
        });
        let (backend, new_cookie) = (Arc::clone(backend), None);
        Ok(UpstreamResponse {
            response,
            lines,
            first,
            hold,
            sender,
            server,
            wait,
            subnet,
            unbuffered,
            meter,
            backend,
            upgrade,
            new_cookie,
            app_sessions: BroughtSessions::default(),
        })
    }

    /// Prepares it for the client.
    pub(super) fn into_client_response(
        mut self,
        thread: &Arc<Thread>,
        site: &Site,
        mut record: RequestRecord,
    ) -> ClientResponse {
        let status = self.response.status();
        record.answered(status);
        let switched = (status == StatusCode::SWITCHING_PROTOCOLS).then(|| self.upgrade.take()).flatten();
        let protocol = switched.as_ref().and_then(|_| self.response.headers().get(header::UPGRADE).cloned());
        hop_by_hop::strip(self.response.headers_mut());
        if self.signs_in(thread, &site.settings.web.sign_in_cookie) {
            self.new_cookie = record.client().identities.vouched_cookie(self.subnet, thread.wall_time());
        }
        if let Some(cookie) = self.new_cookie.take()
            && !self.is_for_many()
        {
            self.add(header::SET_COOKIE, cookie);
        }
        if site.settings.web.server_timing {
            let wait = format!("weir;dur={:.1}", self.wait.as_secs_f64() * 1e3);
            if let Ok(wait) = HeaderValue::try_from(wait) {
                self.add(SERVER_TIMING, wait);
            }
        }
        if let Some(client) = switched {
            let response = self.tunnel(client, protocol, site.limits.tunnel_idle, record);
            return ClientResponse { response, lines: None };
        }
        let lines = self.lines.take();
        // Fields are lines only where no HTTP/2 is.
        let stream = if lines.is_none() { SendWatch::current() } else { None };
        ClientResponse { response: self.stream_body(thread, record, stream), lines }
    }

    /// Whether a cache may give it to other clients: then one client's cookie must not be in it. A 304 is for what caches have kept already, and they put its
    /// fields there.
    fn is_for_many(&self) -> bool {
        if self.response.status() == StatusCode::NOT_MODIFIED {
            return true;
        }
        let in_map = || is_for_shared_caches(self.response.headers());
        self.lines.as_ref().map_or_else(in_map, FieldLines::is_for_shared_caches)
    }

    /// Whether the application signs the client in, by this cookie. What the client brings in a cookie of that name proves nothing, and a
    /// session that belongs to another network does not vouch for this one.
    fn signs_in(&self, thread: &Thread, cookie: &str) -> bool {
        if cookie.is_empty() {
            return false;
        }
        let in_map = || given_cookie(self.response.headers(), cookie);
        let given = self.lines.as_ref().map_or_else(in_map, |lines| lines.given_cookie(cookie));
        let sessions = &thread.shared.app_sessions;
        given.is_some_and(|given| sessions.vouches(&self.app_sessions, given, self.subnet, thread.wall_time()))
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
        Upgrade { client, on_stream }: Upgrade,
        protocol: Option<HeaderValue>,
        idle: Duration,
        record: RequestRecord,
    ) -> Response<ResponseBody> {
        let backend = hyper::upgrade::on(&mut self.response);
        tokio::spawn(tunnel::run(client, backend, idle, self.hold, record));
        let mut response = self.response.map(|_| ResponseBody::Whole(None));
        if on_stream {
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
            return response;
        }
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
        response
    }

    /// The body; `send_watch` is that of a stream of HTTP/2.
    fn stream_body(
        mut self,
        thread: &Arc<Thread>,
        mut record: RequestRecord,
        send_watch: Option<Arc<SendWatch>>,
    ) -> Response<ResponseBody> {
        let (parts, body) = self.response.into_parts();
        let (first, subnet) = (self.first, self.subnet);
        let stream = send_watch.as_ref().map(|watch| (record.client(), watch));
        let count = |data: Bytes| match &stream {
            Some((client, watch)) if !data.is_empty() => counted(alone(data), &thread.shared, (client, watch), subnet),
            _ => data,
        };
        if is_whole(&body, first.as_ref()) {
            let all = first.and_then(|frame| frame.into_data().ok());
            if let (Some(mut meter), Holding::Slot(held)) = (self.meter, &mut self.hold) {
                meter.see(all.as_deref().unwrap_or_default());
                held.permit.set_cost(meter.cost(held.permit.held()));
            }
            record.sent(all.as_ref().map_or(0, Bytes::len));
            thread.keep_connection(self.server, body, self.sender, self.backend.settings.idle_connections);
            record.complete();
            return Response::from_parts(parts, ResponseBody::Whole(all.map(count)));
        }
        let first = first.map(|frame| frame.map_data(count));
        let reader = match &send_watch {
            Some(send_watch) => Arc::clone(send_watch) as Arc<dyn Reader>,
            None => record.client(),
        };
        if let Holding::Slot(held) = &self.hold {
            held.permit.flows(Arc::clone(&reader));
        }
        let begun = RelayStart {
            first,
            body,
            hold: self.hold,
            server: self.server,
            sender: self.sender,
            thread: Arc::clone(thread),
            record,
            reader,
            watch: send_watch.clone(),
            subnet: self.subnet,
            unbuffered: self.unbuffered,
            meter: self.meter,
        };
        let flow = StreamedBody::new(Relay::new(begun, &self.backend.settings), send_watch);
        Response::from_parts(parts, ResponseBody::Streamed(Box::new(flow)))
    }
}

fn is_whole(body: &UpstreamBody, first: Option<&Frame<Bytes>>) -> bool {
    body.is_end_stream() && first.is_none_or(Frame::is_data)
}

/// The piece of the body that has arrived together with the head, if one has.
fn here(body: &mut UpstreamBody) -> Result<Option<Frame<Bytes>>, Refusal> {
    if body.is_end_stream() {
        return Ok(None);
    }
    let mut nobody = Context::from_waker(Waker::noop());
    match Pin::new(&mut *body).poll_frame(&mut nobody) {
        Poll::Ready(Some(Err(cause))) => {
            tracing::debug!(error = %cause, "a backend's answer is not sound");
            Err(Refusal::new(StatusCode::BAD_GATEWAY))
        }
        // What follows has arrived, too, and nothing has been sent to the client yet.
        Poll::Ready(Some(Ok(_))) if !body.is_sound_so_far() => Err(Refused::Chunk.into()),
        Poll::Ready(Some(Ok(frame))) => Ok(Some(frame)),
        _ => Ok(None),
    }
}
