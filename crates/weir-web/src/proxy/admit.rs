//! Gets a slot for a request that is ready to be sent: the waiting room for newcomers, then the queue. Clients that have to come again
//! later get their answer here.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::client::Client;
use super::refusal::{Refusal, refuse};
use super::site::ActiveBackend;
use crate::admission::{AdmissionRefusal, Ask, Class, Entered, Grant, Inside, Permit, Standing, Visit};
use crate::identity::Identity;

/// A client and its request, as the queue sees them.
pub(super) struct Asker<'a> {
    pub(super) identity: &'a Identity,
    pub(super) class: Class,
    /// Whether a browser asks for a page to display.
    pub(super) browser: bool,
    /// Whether it will hold its slot as a stream.
    pub(super) stream: bool,
}

/// A slot, and how long it was waited for. `client` is the connection, if it is one of the gate's own; it shows whether the client is still there.
/// `bytes` is what the request holds meanwhile, and a browser that is not known gets the waiting page after `page_after`.
pub(super) async fn admit(
    client: Option<&Client>,
    backend: &Arc<ActiveBackend>,
    asker: &Asker<'_>,
    page_after: Duration,
    bytes: u32,
) -> Result<(Permit, Duration), Refusal> {
    let Asker { identity, class, browser, .. } = *asker;
    let settings = &backend.settings.admission;
    let mut standing = standing(identity, settings.standing_after);
    // Programs without a cookie are served, or refused, in the same way whatever else they are.
    if standing == Standing::New || (browser && standing == Standing::Stranger) {
        standing = backend.admission.standing_in(identity.subnet, standing);
    }
    let gets_page = browser && standing != Standing::Known;
    let patience = if gets_page { page_after } else { settings.queue_timeout };
    let Identity { session, subnet, client: address, .. } = *identity;
    let mut ask = Ask { session, subnet, standing, client: address, class, bytes, patience };
    let mut inside = None;
    if standing == Standing::New && !backend.admission.observes() {
        // Boxed, because most requests do not go through the waiting room.
        inside = Some(Box::pin(be_let_in(client, backend, asker, patience)).await?);
        ask.patience = settings.queue_timeout;
    }
    let before = inside.as_ref().map_or(Duration::ZERO, |(_, waited)| *waited);
    let asked = std::future::poll_fn(|cx| Poll::Ready(backend.admission.ask(&ask, cx.waker()))).await;
    match asked {
        Ok(Grant::Now(permit)) => Ok((permit, before)),
        Ok(Grant::Wait(waiting)) => {
            let (begun, _waits) = (Instant::now(), client.map(Client::waits));
            let permit = waiting.await.map_err(|refused| turn_away(backend, refused, asker, standing))?;
            Ok((permit, before + begun.elapsed()))
        }
        Err(refused) => Err(turn_away(backend, refused, asker, standing)),
    }
}

/// Waits in the room until it is this visitor's turn; returns how long it took.
async fn be_let_in(
    client: Option<&Client>,
    backend: &Arc<ActiveBackend>,
    asker: &Asker<'_>,
    patience: Duration,
) -> Result<(Inside, Duration), Refusal> {
    let mut entering = pin!(backend.admission.room().enter(asker.visit(), patience));
    let at_once = std::future::poll_fn(|cx| Poll::Ready(entering.as_mut().poll(cx))).await;
    let (entered, waited) = match at_once {
        Poll::Ready(entered) => (entered, Duration::ZERO),
        Poll::Pending => {
            let (begun, _waits) = (Instant::now(), client.map(Client::waits));
            (entering.await, begun.elapsed())
        }
    };
    match entered {
        Entered::Inside(inside) => Ok((inside, waited)),
        Entered::Later(promise) => Err(Refusal::later(promise, asker.browser)),
    }
}

impl Asker<'_> {
    fn visit(&self) -> Visit {
        let Identity { session, subnet, cookie_age, .. } = *self.identity;
        Visit { session, subnet, waited: cookie_age.unwrap_or_default() }
    }
}

/// What a client is told for which there is no slot now.
pub(super) fn wait_elsewhere(backend: &ActiveBackend, asker: &Asker<'_>) -> Refusal {
    let shown = standing(asker.identity, backend.settings.admission.standing_after);
    let standing = backend.admission.standing_in(asker.identity.subnet, shown);
    turn_away(backend, AdmissionRefusal::Timeout, asker, standing)
}

/// There is no slot. A newcomer with a browser is told its place, and takes that place when it comes back.
fn turn_away(backend: &ActiveBackend, refused: AdmissionRefusal, asker: &Asker<'_>, standing: Standing) -> Refusal {
    let refusal = refuse(backend, refused, standing);
    match standing {
        _ if !asker.browser => refusal,
        Standing::Known => refusal.for_browser(),
        Standing::New | Standing::Stranger => {
            let room = backend.admission.room();
            Refusal::later_in(room, room.promise(&asker.visit()))
        }
    }
}

/// What a client shows: a list or a key that names it, or the age of the cookie that it brings.
fn standing(identity: &Identity, after: Duration) -> Standing {
    match identity.cookie_age {
        _ if identity.known => Standing::Known,
        Some(age) if age >= after => Standing::Known,
        Some(_) => Standing::New,
        None => Standing::Stranger,
    }
}
