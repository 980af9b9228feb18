//! A request's way: checked, routed, identified, admitted, sent, answered.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::answer::{Answer, Reply, Sent, Upgrade};
use super::client::{Client, End};
use super::headers::{self, Fault};
use super::link::Link;
use super::patience::Offer;
use super::refusal::{Refusal, redirect, refuse, refuse_body};
use super::request_body::{Outgoing, RequestBody, UploadWatch};
use super::request_head::RequestHead;
use super::response_body::ResponseBody;
use super::site::{Place, Site};
use super::thread::Thread;
use super::upstream::{Flight, Held, Kept, Lost, Pool, Sender, Way, hand_over};
use super::visit::{Asked, Visit};
use super::wire::Wire;
use crate::admission::{Ask, Class, Entry, Permit};
use crate::health::Server;
use crate::identity::{Fields, Identity};

/// Answers a request.
pub(super) fn serve(
    thread: Arc<Thread>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> {
    // On the heap at once: it goes through many hands, and each would have room for a copy.
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
    let mut visit = Visit::new(&thread, &client, &Asked::of(&request.parts));
    let site = thread.site();
    let errand = Errand { thread: &thread, client: &client, site: &site };
    let close = before + 1 >= site.limits.requests;
    let mut response = match errand.run(request, body, &mut visit).await {
        Ok(answer) => answer.into_reply(&thread, &site, visit).0,
        Err(refusal) => refusal.into_response(&site, &client, visit),
    };
    if close && client.end() == End::Open {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        client.finish(End::Drain);
    }
    if let Some(offer) = Offer::current() {
        offer.is_made();
    }
    Ok(response)
}

/// A request that has nothing but a head: looked at, and ready to be sent.
pub(super) struct Ready {
    visit: Visit,
    site: Arc<Site>,
    task: Result<Task, Refusal>,
    /// No other may follow it.
    last: bool,
}

/// Looks at a request that has nothing but a head.
pub(super) fn prepare(thread: &Arc<Thread>, client: &Arc<Client>, head: &RequestHead<'_>) -> Ready {
    let before = client.begin();
    client.hints.begin();
    let RequestHead { method, target, fields, .. } = head;
    let mut visit = Visit::new(thread, client, &Asked { method, target, version: Version::HTTP_11, fields: *fields });
    let site = thread.site();
    let task = Errand { thread, client, site: &site }.prepare(head, &mut visit);
    Ready { visit, task, last: before + 1 >= site.limits.requests, site }
}

/// Sends a request that was made ready, and answers it.
pub(super) async fn fulfil(thread: &Arc<Thread>, client: &Arc<Client>, ready: Ready) -> Reply {
    let Ready { mut visit, site, task, last } = ready;
    let errand = Errand { thread, client, site: &site };
    let outcome = match task {
        Ok(task) => errand.fulfil(task, &mut visit).await,
        Err(refusal) => Err(refusal),
    };
    let reply = match outcome {
        Ok(answer) => answer.into_reply(thread, &site, visit),
        Err(refusal) => (refusal.into_response(&site, client, visit), None),
    };
    if last {
        client.finish(End::Drain);
    }
    reply
}

struct Errand<'a> {
    thread: &'a Arc<Thread>,
    client: &'a Arc<Client>,
    site: &'a Site,
}

/// A request with where it goes and who pays for it.
struct Task {
    request: Box<Outgoing>,
    place: Arc<Place>,
    identity: Identity,
    class: Class,
    upgrade: Option<Upgrade>,
}

impl Errand<'_> {
    async fn run(&self, mut request: Box<Outgoing>, body: Incoming, visit: &mut Visit) -> Result<Answer, Refusal> {
        let parts = &mut request.parts;
        let host = self.check(parts)?;
        let on_stream = headers::is_on_stream(parts);
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let place = (host.to_str().unwrap_or_default(), target, parts.uri.path());
        let (place, identity, class) = self.look_at(&parts.method, place, &parts.headers, visit)?;
        let limits = &self.site.limits;
        let upgrade_to = headers::upgrade(parts, &limits.upgrades);
        if upgrade_to.is_none() && on_stream {
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED));
        }
        let mut share = self.thread.shared.bodies.share(identity.subnet);
        if !body.is_end_stream() {
            // What only some requests need has no room in every waiting one.
            let buffer = place.settings.request_buffer;
            let gathered = Box::pin(RequestBody::gather(body, buffer, limits, &mut share)).await;
            request.body = gathered.map_err(|fault| refuse_body(&place, fault))?;
        }
        let Outgoing { parts, body, .. } = &mut *request;
        let upgrade = upgrade_to.as_ref().and_then(|_| parts.extensions.remove::<OnUpgrade>());
        if on_stream {
            headers::into_handshake(parts);
        }
        headers::outgoing(parts, host, (&self.client.origin, identity.client), upgrade_to);
        if !parts.headers.contains_key(header::HOST) {
            // Of a client that is older than that field.
            parts.headers.insert(header::HOST, place.default_host.clone());
        }
        if body.is_chunked() {
            parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        } else if let RequestBody::Whole(Some(all)) = body {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(all.len()));
        }
        let upgrade = upgrade.map(|upgrade| Upgrade { client: upgrade, on_stream });
        self.fulfil(Task { request, place, identity, class, upgrade }, visit).await
    }

    fn prepare(&self, head: &RequestHead<'_>, visit: &mut Visit) -> Result<Task, Refusal> {
        let place = (head.host, head.target, head.path());
        let (place, identity, class) = self.look_at(&head.method, place, head.fields, visit)?;
        let text = head.for_server(&self.client.origin, identity.client);
        let request = Outgoing::from_text(head.method.clone(), text, self.client);
        Ok(Task { request, place, identity, class, upgrade: None })
    }

    /// Where a request goes and who asks, by its host, target and path.
    fn look_at(
        &self,
        method: &Method,
        (host, target, path): (&str, &str, &str),
        fields: &(impl Fields + ?Sized),
        visit: &mut Visit,
    ) -> Result<(Arc<Place>, Identity, Class), Refusal> {
        if let Some(port) = self.client.redirect {
            return Err(redirect(method, host, target, port));
        }
        let Some(route) = self.site.routes.find(host, path) else { return Err(Refusal::new(StatusCode::NOT_FOUND)) };
        let place = Arc::clone(&self.site.backends[route.backend]);
        let identity = self.identify(fields);
        visit.identified(&identity, place.admission.name());
        Ok((place, identity, Class::new(route.number, method)))
    }

    async fn fulfil(&self, task: Task, visit: &mut Visit) -> Result<Answer, Refusal> {
        let Task { request, place, mut identity, class, upgrade } = task;
        let new_cookie = identity.new_cookie.take();
        let outcome = self.admit_and_send(&place, &identity, class, request).await;
        let answered = outcome.and_then(|sent| {
            visit.waited(sent.wait);
            Answer::of(sent, &place, upgrade)
        });
        match answered {
            Ok(mut answer) => {
                answer.new_cookie = new_cookie;
                Ok(answer)
            }
            Err(mut refusal) => {
                refusal.new_cookie = new_cookie;
                Err(refusal)
            }
        }
    }

    /// Who asks. Clients that take no cookies are not given one with every answer.
    fn identify(&self, fields: &(impl Fields + ?Sized)) -> Identity {
        let (client, now) = (self.client, self.thread.wall_time());
        let identity = client.identities.identify_at(&client.home, fields, now, client.may_be_offered());
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
    ) -> Result<Sent, Refusal> {
        let ask = Ask {
            session: identity.session,
            subnet: identity.subnet,
            client: identity.client,
            class,
            bytes: REQUEST_BYTES + u32::try_from(request.body.held() + request.head_bytes()).unwrap_or(u32::MAX >> 1),
        };
        let asked = std::future::poll_fn(|cx| Poll::Ready(place.admission.ask(&ask, cx.waker()))).await;
        let (permit, wait) = match asked {
            Ok(Entry::Now(permit)) => {
                self.tally(place, identity);
                (permit, Duration::ZERO)
            }
            Ok(Entry::Wait(waiting)) => {
                let (begun, _waits) = (Instant::now(), self.client.waits());
                (waiting.await.map_err(|refused| refuse(place, refused))?, begun.elapsed())
            }
            Err(refused) => return Err(refuse(place, refused)),
        };
        let newest = if wait.is_zero() { None } else { self.newest(place) };
        let sent = self.send(newest.as_ref().unwrap_or(place), permit, request).await?;
        Ok(Sent { wait, ..sent })
    }

    /// The backend as it is now, if it was set up anew while a request waited for it: its servers may be others.
    fn newest(&self, place: &Arc<Place>) -> Option<Arc<Place>> {
        let site = self.thread.site();
        site.place_of(&place.admission).filter(|newest| !Arc::ptr_eq(newest, place)).cloned()
    }

    /// What is asked for while nobody has to wait is history. Who only observes lets nobody wait, so a free slot says nothing there.
    fn tally(&self, place: &Place, identity: &Identity) {
        if let Some(tally) = &self.site.settings.tally
            && !place.settings.admission.observe
        {
            tally.note(identity.subnet, self.client.identities.network(identity.client));
        }
    }

    /// Sends the request to a server, and to another if it never got there.
    async fn send(&self, place: &Place, mut permit: Permit, mut request: Box<Outgoing>) -> Result<Sent, Refusal> {
        let mut tried: Vec<usize> = Vec::new();
        let mut kept = true;
        loop {
            let Some(server) = place.servers.pick(&tried) else { return Err(Refusal::new(StatusCode::BAD_GATEWAY)) };
            let upload = request.body.watch();
            let (way, sender) = match self.way(place, server, request, kept).await {
                Ok(way) => way,
                Err((unsent, error)) => {
                    place.servers.failed(server, &error.to_string());
                    tried.push(server.number);
                    request = unsent;
                    continue;
                }
            };
            let (held, clock) =
                (Held { permit, busy: server.busy() }, upload.as_ref().map(|watch| Arc::clone(&watch.clock)));
            let (outcome, held) = Flight::start(way, held, clock, &place.settings).await;
            let Lost { again, cause } = match outcome {
                Some(Ok(response)) => {
                    place.servers.worked(server);
                    return Ok(Sent { response, held, sender, server: server.number, wait: Duration::ZERO });
                }
                None => {
                    place.servers.failed(server, "no answer in time");
                    return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT));
                }
                Some(Err(lost)) => lost,
            };
            tracing::debug!(error = %cause, "a backend did not answer");
            match (again, held) {
                // A kept connection may have been closed just now. The next one is new: what kills servers is sent twice at most.
                (Some(next), Some(held)) if kept => (request, permit, kept) = (next, held.permit, false),
                _ => return Err(self.lost(place, server, (upload.as_ref(), &cause.to_string()))),
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
    ) -> Result<(Way, Option<Sender>), (Box<Outgoing>, io::Error)> {
        // On the heap: most requests find a connection that is open.
        let open = || Box::pin(Link::open(server, place.secure.as_ref(), place.settings.connect));
        if matches!(request.body, RequestBody::Whole(_)) && !request.parts.headers.contains_key(header::UPGRADE) {
            let wire = match self.kept(&self.thread.wires, server, (kept, request.is_harmless())) {
                Some(wire) => Ok(wire),
                None => open().await.map(Wire::new),
            };
            return match wire {
                Ok(wire) => Ok((Way::wire(wire, request), None)),
                Err(error) => Err((request, error)),
            };
        }
        let sender = match self.kept(&self.thread.senders, server, (kept, false)) {
            Some(sender) => Ok(sender),
            None => match open().await {
                Ok(link) => hand_over(link).await,
                Err(error) => Err(error),
            },
        };
        match sender {
            Ok(mut sender) => Ok((Way::hyper(&mut sender, *request), Some(sender))),
            Err(error) => Err((request, error)),
        }
    }

    /// A kept connection, if one may be used. What cannot be sent again takes none that may have been closed just now.
    fn kept<T: Kept>(&self, pool: &Pool<T>, server: &Server, (kept, again): (bool, bool)) -> Option<T> {
        let (connection, idle) = kept.then(|| pool.take(server.number)).flatten()?;
        (again || idle < RISKY_IDLE).then_some(connection)
    }

    /// The backend has closed the connection without an answer, or the client's body came to no good.
    fn lost(&self, place: &Place, server: &Server, (upload, cause): (Option<&UploadWatch>, &str)) -> Refusal {
        match upload.and_then(UploadWatch::fault) {
            Some(fault) => refuse_body(place, fault),
            None => {
                place.servers.failed(server, cause);
                Refusal::new(StatusCode::BAD_GATEWAY)
            }
        }
    }
}

/// What a waiting request holds besides its head and body: buffers of its connection, its task (tests/scale.rs).
const REQUEST_BYTES: u32 = 20 << 10;
/// After this time a server may have closed an idle connection without our having heard of it: not for what cannot be sent again.
const RISKY_IDLE: Duration = Duration::from_millis(500);
