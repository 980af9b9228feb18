//! A request's way: checked, routed, identified, admitted, sent, answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, request};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::client::{Client, End};
use super::headers::{self, Fault};
use super::request_body::{FaultFlag, Outgoing, RequestBody};
use super::response_body::{Flow, FlowTiming, Hold, ResponseBody};
use super::thread::{Place, Site, Thread};
use super::tunnel;
use super::upstream::{AnswerBody, Flight, Kept, Lost, Pool, Sender, Way, connect, connect_wire};
use super::visit::Visit;
use crate::admission::{Ask, Class, Entry, Permit, Refused};
use crate::health::Server;
use crate::identity::Identity;
use crate::route::without_port;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Answers a request.
pub(super) fn serve(
    thread: Arc<Thread>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> {
    // On the heap at once: it goes through many hands, and each would have room for a copy.
    let (parts, body) = request.into_parts();
    answer(thread, client, Box::new(Outgoing { parts, body: RequestBody::Whole(None) }), body)
}

async fn answer(
    thread: Arc<Thread>,
    client: Arc<Client>,
    request: Box<Outgoing>,
    body: Incoming,
) -> Result<Response<ResponseBody>, Infallible> {
    let before = client.begin();
    let mut visit = Visit::new(&thread, &client, &request.parts);
    let site = thread.site();
    let errand = Errand { thread: &thread, client: &client, site };
    let close = before + 1 >= thread.shared.settings.limits.requests;
    let mut response = match errand.run(request, body, &mut visit).await {
        Ok(answer) => answer.into_response(&thread, visit),
        Err(refusal) => refusal.into_response(site, &client, visit),
    };
    if close && client.end() == End::Open {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        client.finish(End::Drain);
    }
    Ok(response)
}

struct Errand<'a> {
    thread: &'a Arc<Thread>,
    client: &'a Arc<Client>,
    site: &'a Site,
}

/// A backend's answer and what it still occupies.
struct Answer {
    response: Response<AnswerBody>,
    permit: Option<Permit>,
    /// Where hyper has the connection.
    sender: Option<Sender>,
    server: usize,
    place: Arc<Place>,
    wait: Duration,
    new_cookie: Option<HeaderValue>,
    upgrade: Option<OnUpgrade>,
}

/// An answer of our own.
struct Refusal {
    status: StatusCode,
    retry_after: Option<Duration>,
    location: Option<HeaderValue>,
    /// Whether the connection can be used again.
    close: bool,
    new_cookie: Option<HeaderValue>,
}

impl Refusal {
    fn new(status: StatusCode) -> Refusal {
        Refusal { status, retry_after: None, location: None, close: false, new_cookie: None }
    }

    fn closing(status: StatusCode) -> Refusal {
        Refusal { close: true, ..Refusal::new(status) }
    }

    fn into_response(self, site: &Site, client: &Client, mut visit: Visit) -> Response<ResponseBody> {
        let page = site.pages.page(self.status);
        visit.answered(self.status);
        visit.sent(page.len());
        visit.complete();
        let mut response = Response::new(ResponseBody::Whole(Some(page)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil() as u64));
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
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            client.finish(End::Drain);
        }
        response
    }
}

impl Errand<'_> {
    async fn run(&self, mut request: Box<Outgoing>, body: Incoming, visit: &mut Visit) -> Result<Answer, Refusal> {
        let parts = &mut request.parts;
        let host = self.check(parts)?;
        if let Some(port) = self.client.redirect {
            return Err(redirect(parts, &host, port));
        }
        let route = self.site.routes.find(host.to_str().unwrap_or_default(), parts.uri.path());
        let Some(route) = route else { return Err(Refusal::new(StatusCode::NOT_FOUND)) };
        let place = Arc::clone(&self.site.backends[route.backend]);
        let mut identity = self.identify(&parts.headers);
        visit.identified(&identity, place.admission.name());
        let new_cookie = identity.new_cookie.take();

        let limits = &self.thread.shared.settings.limits;
        let upgrade_to = headers::upgrade(parts);
        if !body.is_end_stream() {
            // What only some requests need has no room in every waiting one.
            let gathered = Box::pin(RequestBody::gather(body, place.settings.request_buffer, limits)).await;
            request.body = gathered.map_err(|fault| Refusal::closing(fault.status()))?;
        }
        let Outgoing { parts, body } = &mut *request;
        let class = Class::new(route.number, &parts.method);
        let upgrade = upgrade_to.as_ref().and_then(|_| parts.extensions.remove::<OnUpgrade>());
        headers::outgoing(parts, host, &self.client.origin, upgrade_to);
        if body.is_chunked() {
            parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        } else if let RequestBody::Whole(Some(all)) = body {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(all.len()));
        }
        let outcome = self.admit_and_send(&place, &identity, class, request).await;
        let (response, permit, sender, server, wait) = match outcome {
            Ok(sent) => sent,
            Err(mut refusal) => {
                refusal.new_cookie = new_cookie;
                return Err(refusal);
            }
        };
        visit.waited(wait);
        Ok(Answer { response, permit, sender, server, place, wait, new_cookie, upgrade })
    }

    /// Who asks. Clients that take no cookies are not given one with every answer.
    fn identify(&self, headers: &HeaderMap) -> Identity {
        let (client, now) = (self.client, self.thread.wall_time());
        let identity = client.identities.identify_and_offer(client.peer, headers, now, client.may_be_offered());
        if identity.new_cookie.is_some() {
            client.was_offered();
        }
        identity
    }

    fn check(&self, parts: &request::Parts) -> Result<HeaderValue, Refusal> {
        let host = headers::check(parts).map_err(|fault| match fault {
            Fault::Method => Refusal::closing(StatusCode::METHOD_NOT_ALLOWED),
            Fault::Bad(why) => {
                tracing::debug!(why, "a bad request");
                Refusal::closing(StatusCode::BAD_REQUEST)
            }
        })?;
        // The octets say what hyper has put right: such a request is refused (RFC 9112 section 6.3).
        if self.client.saw_both_lengths() && parts.headers.contains_key(header::TRANSFER_ENCODING) {
            return Err(Refusal::closing(StatusCode::BAD_REQUEST));
        }
        Ok(host)
    }

    async fn admit_and_send(
        &self,
        place: &Arc<Place>,
        identity: &Identity,
        class: Class,
        request: Box<Outgoing>,
    ) -> Result<(Response<AnswerBody>, Option<Permit>, Option<Sender>, usize, Duration), Refusal> {
        let ask = Ask {
            session: identity.session,
            subnet: identity.subnet,
            client: identity.client,
            class,
            bytes: request.body.held().saturating_add(REQUEST_BYTES),
        };
        let asked = std::future::poll_fn(|cx| Poll::Ready(place.admission.ask(&ask, cx.waker()))).await;
        let (permit, wait) = match asked {
            Ok(Entry::Now(permit)) => {
                self.tally(place, identity);
                (permit, Duration::ZERO)
            }
            Ok(Entry::Wait(waiting)) => {
                let begun = Instant::now();
                (waiting.await.map_err(|refused| refuse(place, refused))?, begun.elapsed())
            }
            Err(refused) => return Err(refuse(place, refused)),
        };
        let sent = self.send(place, permit, request).await?;
        Ok((sent.0, sent.1, sent.2, sent.3, wait))
    }

    /// What is asked for while nobody has to wait is history. Who only observes lets nobody wait, so a free slot says nothing there.
    fn tally(&self, place: &Place, identity: &Identity) {
        if let Some(tally) = &self.thread.shared.settings.tally
            && !place.settings.admission.observe
        {
            tally.note(identity.subnet, self.client.identities.network(identity.client));
        }
    }

    /// Sends the request to a server, and to another if it never got there.
    async fn send(
        &self,
        place: &Place,
        mut permit: Permit,
        mut request: Box<Outgoing>,
    ) -> Result<(Response<AnswerBody>, Option<Permit>, Option<Sender>, usize), Refusal> {
        let mut tried: Vec<usize> = Vec::new();
        let mut kept = true;
        loop {
            let Some(server) = place.servers.pick(&tried) else { return Err(Refusal::new(StatusCode::BAD_GATEWAY)) };
            let fault = request.body.fault_flag();
            let (way, sender) = match self.way(place, server, request, kept).await {
                Ok(way) => way,
                Err(unsent) => {
                    place.servers.failed(server);
                    tried.push(server.number);
                    request = unsent;
                    continue;
                }
            };
            let busy = server.busy();
            let (outcome, held) = Flight::start(way, permit, &place.settings).await;
            drop(busy);
            let Lost { again, cause } = match outcome {
                Some(Ok(response)) => {
                    place.servers.worked(server);
                    return Ok((response, held, sender, server.number));
                }
                None => {
                    place.servers.failed(server);
                    return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT));
                }
                Some(Err(lost)) => lost,
            };
            tracing::debug!(error = %cause, "a backend did not answer");
            match (again, held) {
                // A kept connection may have been closed just now. The next one is new: what kills servers is sent twice at most.
                (Some(next), Some(held)) if kept => (request, permit, kept) = (next, held, false),
                _ => return Err(self.lost(place, server, &fault)),
            }
        }
    }

    /// A connection to the server with the request on it, or the request back.
    async fn way(
        &self,
        place: &Place,
        server: &Server,
        request: Box<Outgoing>,
        kept: bool,
    ) -> Result<(Way, Option<Sender>), Box<Outgoing>> {
        if matches!(request.body, RequestBody::Whole(_)) && !request.parts.headers.contains_key(header::UPGRADE) {
            let wire = match self.kept(&self.thread.wires, server, (kept, request.is_harmless())) {
                Some(wire) => Some(wire),
                None => Box::pin(connect_wire(&server.address, place.settings.connect)).await,
            };
            return match wire {
                Some(wire) => Ok((Way::wire(wire, request), None)),
                None => Err(request),
            };
        }
        let sender = match self.kept(&self.thread.senders, server, (kept, false)) {
            Some(sender) => Some(sender),
            None => Box::pin(connect(&server.address, place.settings.connect)).await,
        };
        match sender {
            Some(mut sender) => Ok((Way::hyper(&mut sender, *request), Some(sender))),
            None => Err(request),
        }
    }

    /// A kept connection, if one may be used. What cannot be sent again takes none that may have been closed just now.
    fn kept<T: Kept>(&self, pool: &Pool<T>, server: &Server, (kept, again): (bool, bool)) -> Option<T> {
        let (connection, idle) = kept.then(|| pool.take(server.number)).flatten()?;
        (again || idle < RISKY_IDLE).then_some(connection)
    }

    /// The backend has closed the connection without an answer, or the client's body came to no good.
    fn lost(&self, place: &Place, server: &Server, fault: &FaultFlag) -> Refusal {
        match fault.fault() {
            Some(fault) => Refusal::closing(fault.status()),
            None => {
                place.servers.failed(server);
                Refusal::new(StatusCode::BAD_GATEWAY)
            }
        }
    }
}

/// What a waiting request holds besides its body: buffers of its connection, its head, its task (tests/scale.rs).
const REQUEST_BYTES: u32 = 20 << 10;
/// After this time a server may have closed an idle connection without our having heard of it: not for what cannot be sent again.
const RISKY_IDLE: Duration = Duration::from_millis(500);

fn refuse(place: &Place, refused: Refused) -> Refusal {
    let status = match refused {
        Refused::Streams => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refusal { retry_after: Some(place.admission.retry_after()), ..Refusal::new(status) }
}

fn redirect(parts: &request::Parts, host: &HeaderValue, port: u16) -> Refusal {
    let name = without_port(host.to_str().unwrap_or_default());
    if name.is_empty() {
        return Refusal::closing(StatusCode::BAD_REQUEST);
    }
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let place = if port == 443 { format!("https://{name}{target}") } else { format!("https://{name}:{port}{target}") };
    let kept = matches!(parts.method, Method::GET | Method::HEAD);
    let status = if kept { StatusCode::MOVED_PERMANENTLY } else { StatusCode::PERMANENT_REDIRECT };
    Refusal { location: HeaderValue::try_from(place).ok(), ..Refusal::new(status) }
}

impl Answer {
    fn into_response(mut self, thread: &Arc<Thread>, mut visit: Visit) -> Response<ResponseBody> {
        let status = self.response.status();
        visit.answered(status);
        let switched = (status == StatusCode::SWITCHING_PROTOCOLS).then(|| self.upgrade.take()).flatten();
        let upgrade = switched.as_ref().and_then(|_| self.response.headers().get(header::UPGRADE).cloned());
        let headers = self.response.headers_mut();
        headers::incoming(headers);
        if let Some(cookie) = self.new_cookie.take() {
            headers.append(header::SET_COOKIE, cookie);
        }
        if thread.shared.settings.server_timing {
            let wait = format!("weir;dur={:.1}", self.wait.as_secs_f64() * 1e3);
            headers.extend(HeaderValue::try_from(wait).ok().map(|wait| (SERVER_TIMING, wait)));
        }
        if let Some(client) = switched {
            return self.tunnel(client, upgrade, thread, visit);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for that.
            let mut response = Response::new(ResponseBody::Whole(None));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            visit.complete();
            return response;
        }
        self.flow(thread, visit)
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

    fn flow(self, thread: &Arc<Thread>, mut visit: Visit) -> Response<ResponseBody> {
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
            Some(permit) if is_event_stream(&parts.headers) => Hold::Stream(permit.into_stream()),
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

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// The piece of the body that has come together with the head, if one has.
fn here(body: &mut AnswerBody) -> Option<Frame<Bytes>> {
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    match Pin::new(body).poll_frame(&mut nobody) {
        Poll::Ready(Some(Ok(frame))) => Some(frame),
        _ => None,
    }
}
