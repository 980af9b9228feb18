//! The steps of a request: check, route, identify, admit, send, answer.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use weir_core::fair::SubnetKey;
use weir_http1::request_head::RequestHead;
use weir_http1::{Refused, request_check};

use super::admit::{Asker, admit};
use super::client::Client;
use super::expected_stream::ExpectedStream;
use super::headers::{self, Source};
use super::http2_stream::SendWatch;
use super::presence::ConnectionEnd;
use super::refusal::{Refusal, redirect, refuse, refuse_body};
use super::request_body::{Outgoing, ReadAhead, RequestBody, UploadWatch};
use super::request_record::{RequestRecord, RequestSummary};
use super::response_body::ResponseBody;
use super::server_stream::ServerStream;
use super::site::{ActiveBackend, Site};
use super::thread::Thread;
use super::unread::{alone, counted};
use super::upstream::{AskedBackend, HeldSlot, InFlight, NoResponse, Pool, Reusable, Sender, Sending, hyper_handshake};
use super::upstream_connection::UpstreamConnection;
use super::upstream_response::{ClientResponse, Received, Upgrade, UpstreamResponse};
use super::vouching::{tally, vouch};
use crate::admission::{Class, Cost, Permit, Standing};
use crate::health::{Picked, UpstreamServer};
use crate::identity::{BroughtSessions, Fields, Identity};
use crate::units::Units;
use crate::waiting_page::is_for_browser;

pub(super) fn serve(
    thread: Arc<Thread>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> {
    // On the heap from the start, because it is moved many times, and each future on the way would reserve room for it.
    let (parts, body) = request.into_parts();
    answer(
        thread,
        client,
        Box::new(Outgoing { parts, body: RequestBody::Whole(None), text: None, listener: None }),
        body,
    )
}

async fn answer(
    thread: Arc<Thread>,
    client: Arc<Client>,
    request: Box<Outgoing>,
    body: Incoming,
) -> Result<Response<ResponseBody>, Infallible> {
    let before = client.begin();
    let mut record = RequestRecord::new(&thread, &client, &RequestSummary::of(&request.parts));
    let site = thread.site();
    let context = RequestContext { thread: &thread, client: &client, site: &site };
    let close = before + 1 >= site.limits.requests;
    let mut response = match context.run(request, body, &mut record).await {
        Ok(response) => {
            response.into_client_response(&thread, &site, record).response.map(ResponseBody::driven_by_task)
        }
        Err(refusal) => {
            let stream = SendWatch::current().filter(|_| refusal.is_written_anew());
            let response = refusal.into_response(&site, &client, record);
            response.map(|body| match (stream, body) {
                (Some(stream), ResponseBody::Whole(Some(page))) => {
                    let subnet = client.identities.subnet(client.peer);
                    ResponseBody::Whole(Some(counted(alone(page), &thread.shared, (&client, &stream), subnet)))
                }
                (_, body) => body,
            })
        }
    };
    if close && client.end() == ConnectionEnd::Open {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        client.finish(ConnectionEnd::Drain);
    }
    if let Some(send_watch) = SendWatch::current() {
        send_watch.begin();
    }
    Ok(response)
}

/// A plain request that is routed and ready to be sent.
pub(super) struct ReadyRequest {
    record: RequestRecord,
    site: Arc<Site>,
    task: Result<PreparedRequest, Refusal>,
    /// Whether the connection is closed after it.
    last: bool,
}

/// Routes and identifies a plain request.
pub(super) fn prepare(thread: &Arc<Thread>, client: &Arc<Client>, head: &RequestHead<'_>) -> ReadyRequest {
    let before = client.begin();
    client.interim.begin();
    let RequestHead { method, target, fields, .. } = head;
    let mut record = RequestRecord::new(
        thread,
        client,
        &RequestSummary { method, target, version: Version::HTTP_11, fields: *fields },
    );
    let site = thread.site();
    let task = RequestContext { thread, client, site: &site }.prepare(head, &mut record);
    ReadyRequest { record, task, last: before + 1 >= site.limits.requests, site }
}

/// Sends a request that is ready, and turns the result into the client's response.
pub(super) async fn send_and_receive(
    thread: &Arc<Thread>,
    client: &Arc<Client>,
    ready: ReadyRequest,
) -> ClientResponse {
    let ReadyRequest { mut record, site, task, last } = ready;
    let context = RequestContext { thread, client, site: &site };
    let outcome = match task {
        Ok(task) => context.send_and_receive(task, &mut record).await,
        Err(refusal) => Err(refusal),
    };
    let response = match outcome {
        Ok(response) => response.into_client_response(thread, &site, record),
        Err(refusal) => ClientResponse { response: refusal.into_response(&site, client, record), lines: None },
    };
    if last {
        client.finish(ConnectionEnd::Drain);
    }
    response
}

struct RequestContext<'a> {
    thread: &'a Arc<Thread>,
    client: &'a Arc<Client>,
    site: &'a Site,
}

/// A request with its backend and the session that is charged for it.
struct PreparedRequest {
    request: Box<Outgoing>,
    backend: Arc<ActiveBackend>,
    identity: Identity,
    class: Class,
    unbuffered: bool,
    /// Where the response says what it has cost.
    units: Option<Arc<Units>>,
    /// Whether a browser asks for a page to display.
    browser: bool,
    /// Sessions of the application that it brings.
    app_sessions: BroughtSessions,
    stream: ExpectedStream,
    upgrade: Option<Upgrade>,
}

/// What a request asks for.
struct Target<'a> {
    host: &'a str,
    /// The path with its query.
    target: &'a str,
    path: &'a str,
}

/// Where a request goes, and which client sends it.
struct Routed {
    backend: Arc<ActiveBackend>,
    identity: Identity,
    class: Class,
    /// Whether bodies are passed on as they come, both ways.
    unbuffered: bool,
    /// Where the response says what it has cost.
    units: Option<Arc<Units>>,
    /// Whether a browser asks for a page to display.
    browser: bool,
    /// Sessions of the application that it brings.
    app_sessions: BroughtSessions,
    /// Whether it will be a stream that holds a slot.
    stream: ExpectedStream,
}

impl RequestContext<'_> {
    async fn run(
        &self,
        mut request: Box<Outgoing>,
        body: Incoming,
        record: &mut RequestRecord,
    ) -> Result<UpstreamResponse, Refusal> {
        let parts = &mut request.parts;
        let host = self.check(parts)?;
        let on_stream = headers::is_on_stream(parts);
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let target = Target { host: host.to_str().unwrap_or_default(), target, path: parts.uri.path() };
        let routed = self.route_and_identify(&parts.method, &target, &parts.headers, record)?;
        let Routed { backend, identity, class, unbuffered, units, browser, app_sessions, mut stream } = routed;
        let limits = &self.site.limits;
        let upgrade_to = headers::upgrade(parts, &limits.upgrades);
        if upgrade_to.is_none() && on_stream {
            return Err(Refused::UnknownProtocol.into());
        }
        stream.likely |= upgrade_to.is_some() && backend.settings.streams_hold_slots;
        let mut share = self.thread.shared.bodies.share(identity.subnet);
        if !body.is_end_stream() {
            let trailers = headers::trailers(&parts.headers);
            let read = if unbuffered {
                RequestBody::as_it_comes(body, limits, trailers)
            } else {
                let (memory, file) =
                    (backend.settings.request_buffer, self.thread.shared.upload_buffer(identity.subnet));
                let _sending = self.client.sends();
                // Boxed, so that requests without a body do not reserve room for it while they wait.
                Box::pin(RequestBody::gather(body, ReadAhead { memory, file, trailers }, limits, &mut share)).await
            };
            request.body = read.map_err(|fault| refuse_body(&backend, fault))?;
        }
        let Outgoing { parts, body, .. } = &mut *request;
        let upgrade = upgrade_to.as_ref().and_then(|_| parts.extensions.remove::<OnUpgrade>());
        if on_stream {
            headers::into_handshake(parts);
        }
        headers::outgoing(parts, host, &Source { origin: &self.client.origin, client: identity.client }, upgrade_to);
        if is_metered(units.as_deref()) {
            HIDES_COST.iter().for_each(|name| drop(parts.headers.remove(*name)));
        }
        if !parts.headers.contains_key(header::HOST) {
            // An HTTP/1.0 client need not send one.
            parts.headers.insert(header::HOST, backend.default_host.clone());
        }
        if body.is_chunked() {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        } else if let Some(octets @ 1..) = body.size_hint().exact() {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(octets));
        }
        let upgrade = upgrade.map(|upgrade| Upgrade { client: upgrade, on_stream });
        let prepared = PreparedRequest {
            request,
            backend,
            identity,
            class,
            unbuffered,
            units,
            browser,
            app_sessions,
            stream,
            upgrade,
        };
        self.send_and_receive(prepared, record).await
    }

    fn prepare(&self, head: &RequestHead<'_>, record: &mut RequestRecord) -> Result<PreparedRequest, Refusal> {
        let target = Target { host: head.host, target: head.target, path: head.path() };
        let Routed { backend, identity, class, unbuffered, units, browser, app_sessions, stream } =
            self.route_and_identify(&head.method, &target, head.fields, record)?;
        let without = if is_metered(units.as_deref()) { &HIDES_COST[..] } else { &[] };
        let text = self.client.origin.plain_request(head, identity.client, without);
        let request = Outgoing::from_text(head.method.clone(), text, self.client);
        let upgrade = None;
        Ok(PreparedRequest {
            request,
            backend,
            identity,
            class,
            unbuffered,
            units,
            browser,
            app_sessions,
            stream,
            upgrade,
        })
    }

    /// Where a request goes, and which client sends it.
    fn route_and_identify(
        &self,
        method: &Method,
        target: &Target<'_>,
        fields: &(impl Fields + ?Sized),
        record: &mut RequestRecord,
    ) -> Result<Routed, Refusal> {
        if let Some(answer) = self.answer_challenge(method, target) {
            return Err(answer);
        }
        if let Some(port) = self.client.redirect {
            return Err(redirect(method, target.host, target.target, port));
        }
        let Some(route) = self.site.routes.find(target.host, target.path) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND));
        };
        let backend = Arc::clone(&self.site.backends[route.backend]);
        let identity = self.identify(fields);
        record.identified(&identity, backend.admission.name());
        let identity = vouch(&self.thread.shared, self.site, identity, fields, self.thread.wall_time())?;
        let unbuffered = route.unbuffered || backend.settings.unbuffered;
        let browser = self.site.settings.web.waiting.enabled && is_for_browser(method, fields);
        let units = self.site.routes.units(route);
        let (class, app_sessions) = (Class::new(route.number, method), self.app_sessions(fields));
        // A route whose responses say their cost is charged by that, and its responses are no streams however they are sent.
        let paths = backend.stream_paths.as_ref().filter(|_| units.is_none());
        let stream = paths.map(|paths| paths.expect(class, target.path, fields)).unwrap_or_default();
        Ok(Routed { backend, identity, class, unbuffered, units, browser, app_sessions, stream })
    }

    /// The application's own sessions, if they are used.
    fn app_sessions(&self, fields: &(impl Fields + ?Sized)) -> BroughtSessions {
        match &*self.site.settings.web.sign_in_cookie {
            "" => BroughtSessions::default(),
            name => self.thread.shared.app_sessions.brought(fields.lines(&header::COOKIE), name),
        }
    }

    /// Answers an authority that checks whether a name is ours, while we have ordered a certificate for it. Other tokens are the site's own business.
    fn answer_challenge(&self, method: &Method, target: &Target<'_>) -> Option<Refusal> {
        let named = self.site.settings.named.as_ref().filter(|_| method == Method::GET)?;
        named.challenges().answer(target.host, target.path).map(Refusal::answer)
    }

    async fn send_and_receive(
        &self,
        task: PreparedRequest,
        record: &mut RequestRecord,
    ) -> Result<UpstreamResponse, Refusal> {
        let PreparedRequest {
            request,
            backend,
            mut identity,
            class,
            unbuffered,
            units,
            browser,
            app_sessions,
            stream,
            upgrade,
        } = task;
        let new_cookie = identity.new_cookie.take();
        let asker = Asker { identity: &identity, class, browser, stream: stream.likely };
        // A client that leaves before the response has said what it costs is charged what is usual.
        let cost = if units.is_some() { Cost::TimeOrUsual } else { Cost::Time };
        let outcome = self.admit_and_send(&backend, &asker, request, cost).await;
        let answered = outcome.and_then(|sent| {
            record.waited(sent.wait);
            let received = Received { unbuffered, units, subnet: identity.subnet, path: stream.path, ..sent };
            UpstreamResponse::of(received, &backend, upgrade)
        });
        match answered {
            Ok(mut answer) => {
                (answer.new_cookie, answer.app_sessions) = (new_cookie, app_sessions);
                Ok(answer)
            }
            Err(refusal) => {
                Err(refusal.with_cookie(new_cookie, &identity, &self.client.identities, self.thread.wall_time()))
            }
        }
    }

    /// Which client it is. Clients that do not accept cookies are not given one with every response.
    fn identify(&self, fields: &(impl Fields + ?Sized)) -> Identity {
        let (client, now) = (self.client, self.thread.wall_time());
        let identity = client.identities.identify_at(&client.peer_keys, fields, now, client.may_be_offered());
        if identity.new_cookie.is_some() {
            client.was_offered();
        }
        identity
    }

    fn check(&self, parts: &request::Parts) -> Result<HeaderValue, Refusal> {
        let host = request_check::check(parts, headers::is_on_stream(parts))?;
        // If a request has both fields, hyper removes Content-Length; only the framing watch has seen that it was there.
        let chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
        if self.client.saw_both_lengths() && chunked {
            return Err(Refused::RequestLengths.into());
        }
        // The watch sees nothing any more behind a length that it cannot follow.
        if self.client.saw_unclear_length() && (chunked || parts.headers.contains_key(header::CONTENT_LENGTH)) {
            return Err(Refused::RequestLength.into());
        }
        if self.client.saw_long_head() {
            return Err(Refused::RequestTooLarge.into());
        }
        Ok(host)
    }

    async fn admit_and_send(
        &self,
        backend: &Arc<ActiveBackend>,
        asker: &Asker<'_>,
        request: Box<Outgoing>,
        unattended: Cost,
    ) -> Result<Received, Refusal> {
        let bytes = REQUEST_BYTES + u32::try_from(request.body.held() + request.head_bytes()).unwrap_or(u32::MAX >> 1);
        let page_after = self.site.settings.web.waiting.after;
        let refuse_stream = |refused| refuse(backend, refused, Standing::Known);
        if asker.stream {
            let (session, subnet) = (asker.identity.session, asker.identity.subnet);
            backend.admission.expect_stream(session, subnet).map_err(refuse_stream)?;
        }
        let (mut permit, wait) = admit(Some(self.client), backend, asker, page_after, bytes).await?;
        if asker.stream {
            // Others may have taken the room while it waited.
            permit = permit.begin_as_stream().map_err(refuse_stream)?;
        }
        if wait.is_zero() {
            tally(self.site, backend, asker.identity, self.thread.wall_time());
        }
        let newest = if wait.is_zero() { None } else { self.newest(backend) };
        let subnet = asker.identity.subnet;
        let sent = self.send(newest.as_ref().unwrap_or(backend), subnet, (permit, unattended), request).await?;
        Ok(Received { wait, ..sent })
    }

    /// The backend in its present form, if a reload has changed it while the request waited: it may have other servers.
    fn newest(&self, backend: &Arc<ActiveBackend>) -> Option<Arc<ActiveBackend>> {
        let site = self.thread.site();
        site.backend_of(&backend.admission).filter(|newest| !Arc::ptr_eq(newest, backend)).cloned()
    }

    /// Sends the request to a server, and to another if it never reached the first. The permit comes with what is charged if the client leaves before the response is here.
    async fn send(
        &self,
        backend: &Arc<ActiveBackend>,
        subnet: SubnetKey,
        (mut permit, unattended): (Permit, Cost),
        mut request: Box<Outgoing>,
    ) -> Result<Received, Refusal> {
        let mut tried: Vec<usize> = Vec::new();
        let mut kept = true;
        loop {
            let Some(Picked { server, mut trial }) = backend.servers.pick(&tried) else {
                return Err(Refusal::new(StatusCode::BAD_GATEWAY));
            };
            let upload = request.body.watch();
            if upload.is_some() {
                // How long it takes is up to its client.
                trial.take().into_iter().for_each(|trial| backend.servers.pass_on(trial));
            }
            let (sending, sender) = match self.connect(backend, server, request, kept).await {
                Ok(connected) => connected,
                Err((unsent, error)) => {
                    backend.servers.unreached(server, &error.to_string());
                    tried.push(server.number);
                    request = unsent;
                    continue;
                }
            };
            permit.set_cost(unattended);
            let (held, clock) =
                (HeldSlot { permit, busy: server.busy() }, upload.as_ref().map(|watch| Arc::clone(&watch.clock)));
            let asked = AskedBackend { backend, subnet, trial };
            let (outcome, mut held) = InFlight::start(sending, held, clock, asked).await;
            held.iter_mut().for_each(|held| held.permit.set_cost(Cost::Time));
            let NoResponse { again, cause } = match outcome {
                Some(Ok(response)) => {
                    backend.servers.answered(server, subnet, response.status());
                    return Ok(Received::new(response, held, sender, server.number));
                }
                None => {
                    backend.servers.unanswered(server, "no answer in time");
                    return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT));
                }
                Some(Err(lost)) => lost,
            };
            tracing::debug!(error = %cause, "a backend did not answer");
            match (again, held) {
                // The server may just have closed the idle connection. The next one is new, so a request that crashes servers is sent twice at most.
                (Some(next), Some(held)) if kept => (request, permit, kept) = (next, held.permit, false),
                _ => return Err(self.lost(backend, server, upload.as_ref(), &cause.to_string())),
            }
        }
    }

    /// Begins to send the request on a connection to the server; on failure the request comes back.
    async fn connect(
        &self,
        backend: &ActiveBackend,
        server: &UpstreamServer,
        request: Box<Outgoing>,
        kept: bool,
    ) -> Result<(Sending, Option<Sender>), (Box<Outgoing>, io::Error)> {
        // Boxed, because most requests find an open connection.
        let open = || Box::pin(ServerStream::open(server, backend.secure.as_ref(), backend.settings.connect));
        if request.body.is_here() && !request.parts.headers.contains_key(header::UPGRADE) {
            let connection = match self.kept(&self.thread.http1_pool, server, kept, request.is_harmless()) {
                Some(connection) => Ok(connection),
                None => open().await.map(UpstreamConnection::new),
            };
            return match connection {
                Ok(connection) => Ok((Sending::own(connection, request), None)),
                Err(error) => Err((request, error)),
            };
        }
        let sender = match self.kept(&self.thread.hyper_pool, server, kept, false) {
            Some(sender) => Ok(sender),
            None => match open().await {
                Ok(stream) => hyper_handshake(stream).await,
                Err(error) => Err(error),
            },
        };
        match sender {
            Ok(mut sender) => Ok((Sending::hyper(&mut sender, *request), Some(sender))),
            Err(error) => Err((request, error)),
        }
    }

    /// An idle connection, if one may be used. A request that cannot be repeated is not sent on one that the server may just have closed.
    fn kept<T: Reusable>(&self, pool: &Pool<T>, server: &UpstreamServer, kept: bool, repeatable: bool) -> Option<T> {
        let (connection, idle) = kept.then(|| pool.take(server.number)).flatten()?;
        (repeatable || idle < RISKY_IDLE).then_some(connection)
    }

    /// The backend has closed the connection without a response, or the client's body failed.
    fn lost(
        &self,
        backend: &ActiveBackend,
        server: &UpstreamServer,
        upload: Option<&UploadWatch>,
        cause: &str,
    ) -> Refusal {
        match upload.and_then(UploadWatch::fault) {
            Some(fault) => refuse_body(backend, fault),
            None => {
                backend.servers.unanswered(server, cause);
                Refusal::new(StatusCode::BAD_GATEWAY)
            }
        }
    }
}

/// Fields with which a client could prevent a response from saying what it has cost, by asking for a part of it or for a compressed one.
const HIDES_COST: [&str; 3] = ["accept-encoding", "range", "if-range"];

fn is_metered(units: Option<&Units>) -> bool {
    units.is_some_and(Units::is_in_body)
}

/// Memory of a waiting request besides its head and body: its task and the buffers of its connection (measured in tests/scale.rs).
const REQUEST_BYTES: u32 = 20 << 10;
/// If a connection was idle for longer than this, the server may have closed it without our knowledge. Requests that cannot be repeated do not use it.
const RISKY_IDLE: Duration = Duration::from_millis(500);
