//! The maintenance thread: it ticks the queues, checks the health of servers, and forgets removed backends once they have drained.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::request_body::RequestBody;
use super::server_stream::ServerStream;
use super::site::{ActiveBackend, Site};
use super::thread::ProxyShared;
use crate::admission::TICK;
use crate::health::UpstreamServer;

/// Runs until it is told to stop.
pub(super) async fn run(shared: Arc<ProxyShared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = mind(&shared) => {}
    }
    // Requests that are finished while the gate drains still need the queues.
    let until = Instant::now() + shared.site().limits.drain;
    while Instant::now() < until && shared.connections.totals().open > 0 {
        tokio::time::sleep(TICK).await;
        tick(&shared);
    }
}

async fn mind(shared: &Arc<ProxyShared>) {
    let mut site = shared.site();
    // These tasks end when they are replaced.
    let mut _checks = check_site(&site);
    loop {
        tokio::time::sleep(TICK).await;
        let now = shared.site();
        if !Arc::ptr_eq(&site, &now) {
            _checks = check_site(&now);
            site = now;
        }
        tick(shared);
        shared.drop_drained();
    }
}

fn tick(shared: &ProxyShared) {
    shared.site().backends.iter().for_each(|backend| backend.admission.tick());
    shared.retired().iter().for_each(|backend| backend.admission.tick());
    shared.relieve_buffers();
}

/// Tasks that check the servers of a site, until they are dropped.
fn check_site(site: &Site) -> JoinSet<()> {
    let mut checks = JoinSet::new();
    for backend in site.backends.iter().filter(|backend| !backend.settings.health_every.is_zero()) {
        checks.spawn(check_for_ever(Arc::clone(backend)));
    }
    checks
}

async fn check_for_ever(backend: Arc<ActiveBackend>) {
    loop {
        check_all(&backend).await;
        tokio::time::sleep(backend.settings.health_every).await;
    }
}

async fn check_all(backend: &ActiveBackend) {
    for server in backend.servers.all() {
        check(server, backend).await;
    }
}

/// Whether a server is up: it accepts a connection, proves its name if it has to, and answers below 500 if there is a path to request.
async fn check(server: &UpstreamServer, backend: &ActiveBackend) {
    let (servers, limit) = (&backend.servers, backend.settings.connect.max(Duration::from_secs(1)));
    let link = match ServerStream::open(server, backend.secure.as_ref(), limit).await {
        Ok(link) => link,
        Err(error) => return servers.unreached(server, &error.to_string()),
    };
    let Some(path) = backend.settings.health_path.as_deref() else { return servers.reached(server) };
    let answered = timeout(limit, ask(link, server, path)).await;
    match answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(()) => servers.worked(server),
        Err(error) => servers.unanswered(server, &error.to_string()),
    }
}

/// Requests this path, and wants an answer below 500.
async fn ask(link: ServerStream, server: &UpstreamServer, path: &str) -> io::Result<()> {
    let (mut sender, connection) =
        http1::handshake::<_, RequestBody>(TokioIo::new(link)).await.map_err(io::Error::other)?;
    let driven = tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, server.authority()).header(header::USER_AGENT, "weir-health");
    let request = request.body(RequestBody::Whole(None)).map_err(io::Error::other)?;
    let answer = sender.send_request(request).await;
    driven.abort();
    let status = answer.map_err(io::Error::other)?.status();
    if status.as_u16() < 500 { Ok(()) } else { Err(io::Error::other(format!("{path} says {status}"))) }
}
