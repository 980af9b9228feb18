//! The thread that minds what no request does: the queues' time, and the health of servers.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::request_body::RequestBody;
use super::thread::{Place, Shared};
use crate::admission::TICK;
use crate::health::Server;

/// Runs until it is told to stop.
pub(super) fn run(shared: &Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = mind(shared) => {}
        }
        // Requests that are finished while the gate drains still need the queues' time.
        let until = Instant::now() + shared.settings.limits.drain;
        while Instant::now() < until && shared.census.counts().0 > 0 {
            tokio::time::sleep(TICK).await;
            tick(shared);
        }
    });
}

async fn mind(shared: &Arc<Shared>) {
    for place in &shared.site.backends {
        if !place.settings.health_every.is_zero() {
            tokio::spawn(check_for_ever(Arc::clone(place)));
        }
    }
    loop {
        tokio::time::sleep(TICK).await;
        tick(shared);
    }
}

fn tick(shared: &Shared) {
    shared.site.backends.iter().for_each(|place| place.admission.tick());
}

async fn check_for_ever(place: Arc<Place>) {
    loop {
        check_all(&place).await;
        tokio::time::sleep(place.settings.health_every).await;
    }
}

async fn check_all(place: &Place) {
    for server in place.servers.all() {
        let limit = place.settings.connect.max(Duration::from_secs(1));
        match timeout(limit, check(server, place.settings.health_path.as_deref())).await {
            Ok(Some(())) => place.servers.worked(server),
            _ => place.servers.failed(server),
        }
    }
}

/// Whether a server lives: it accepts a connection, and answers below 500 if there is a path to ask for.
async fn check(server: &Server, path: Option<&str>) -> Option<()> {
    let stream = TcpStream::connect(&server.address).await.ok()?;
    let Some(path) = path else { return Some(()) };
    let (mut sender, connection) = http1::handshake::<_, RequestBody>(TokioIo::new(stream)).await.ok()?;
    let driven = tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, &server.address).header(header::USER_AGENT, "weir-health");
    let answer = sender.send_request(request.body(RequestBody::Whole(None)).ok()?).await;
    driven.abort();
    (answer.ok()?.status().as_u16() < 500).then_some(())
}
