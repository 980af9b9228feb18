//! How a machine renews its certificate: it asks for a new one when two thirds of its lifetime are over.
//!
//! A machine that may lead opens the authority itself. Others ask the leader, or any machine that may lead, over a connection
//! on which both have shown their certificates. The key and the registration stay as they are. A machine that was away until
//! its certificate expired must join again.

use super::authority::{Authority, Issue};
use super::connection::{Caller, Lines};
use super::credential_store::CredentialStore;
use super::elector::Post;
use super::enrolment::Welcome;
use super::identity::Identity;
use super::registry::Registry;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::watch;
use weir_core::election::Role;
use weir_store::records::Records;

/// From a call to its answer.
const CALL: Duration = Duration::from_secs(5);
/// Because clocks may be set, a machine checks its own at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Where a new certificate comes from.
pub(crate) enum Way {
    /// From the authority, whose key this machine can open.
    Own {
        /// The records that have it.
        records: Records,
        /// How long certificates are valid.
        life: Duration,
    },
    /// From a machine that can do this.
    Ask {
        /// Who leads.
        post: watch::Receiver<Post>,
        /// The addresses of the leader and the others.
        registry: Registry,
        /// How it is called.
        caller: Caller,
    },
}

/// Renews the credentials for ever.
pub(crate) async fn keep(store: CredentialStore, way: Way) {
    loop {
        let active = store.active();
        let (now, due) = (store.clock.now(), active.renew_at());
        if now < due {
            tokio::time::sleep(due.duration_since(now).unwrap_or_default().min(LOOK_EVERY)).await;
            continue;
        }
        match renew(&store, &way).await {
            Ok(()) => tracing::info!(until = ?store.active().until(), "the certificate of this machine was renewed"),
            Err(problem) => {
                let left = active.until().duration_since(now).unwrap_or_default();
                tracing::warn!(%problem, left_s = left.as_secs(), "the certificate of this machine cannot be renewed");
                tokio::time::sleep((left / 20).clamp(Duration::from_millis(500), LOOK_EVERY)).await;
            }
        }
    }
}

/// Gets a new certificate and uses it.
pub(crate) async fn renew(store: &CredentialStore, way: &Way) -> Result<(), String> {
    let welcome = match way {
        Way::Own { records, life } => own(store, records, *life).await?,
        Way::Ask { post, registry, caller } => ask_any(post, registry, caller).await?,
    };
    store.renew(welcome.certificate, welcome.authority).map_err(|error| error.to_string())
}

/// Gets a certificate as a machine that may lead and whose priority was changed, and uses it.
pub(crate) async fn certify_as(
    store: &CredentialStore,
    records: &Records,
    life: Duration,
    identity: &Identity,
) -> Result<(), String> {
    let welcome = certified(store, records, life, identity).await?;
    store.renew_as(identity, welcome.certificate, welcome.authority).map_err(|error| error.to_string())
}

async fn own(store: &CredentialStore, records: &Records, life: Duration) -> Result<Welcome, String> {
    let (identity, _) = store.identity().map_err(|error| error.to_string())?;
    certified(store, records, life, &identity).await
}

async fn certified(
    store: &CredentialStore,
    records: &Records,
    life: Duration,
    identity: &Identity,
) -> Result<Welcome, String> {
    let active = store.active();
    let seal = active.credentials.seal.ok_or("this machine cannot open the lab's authority")?;
    let (_, fingerprint) = store.identity().map_err(|error| error.to_string())?;
    let nodes = records.lab_nodes().all().await.map_err(|error| error.to_string())?;
    let known = nodes.iter().find(|node| node.node == identity.name);
    if known.is_none_or(|node| node.fingerprint != super::identity::hex(&fingerprint.0)) {
        return Err("this machine is not registered in the lab".into());
    }
    let issue = Issue { now: store.clock.now(), life };
    let authority = Authority::open(records, &seal, issue).await.map_err(|error| error.to_string())?;
    let shown = CertificateDer::from_pem_slice(active.credentials.certificate.as_bytes()).ok();
    let key = shown.as_ref().and_then(Identity::public_key).ok_or("the certificate has no key")?;
    Welcome::new(&authority, &active.credentials, identity, key)
}

/// Asks the leader first.
async fn ask_any(post: &watch::Receiver<Post>, registry: &Registry, caller: &Caller) -> Result<Welcome, String> {
    let leader = match *post.borrow() {
        Post::Following(leader) => registry.address(leader),
        _ => None,
    };
    let others = registry.addresses(&[Role::Eligible]).into_iter().filter(|address| Some(*address) != leader);
    let mut problem = String::from("no machine is known that could do it");
    for address in leader.into_iter().chain(others) {
        match ask(address, caller).await {
            Ok(welcome) => return Ok(welcome),
            Err(why) => problem = format!("{address}: {why}"),
        }
    }
    Err(problem)
}

async fn ask(address: IpAddr, caller: &Caller) -> Result<Welcome, String> {
    let said = |error: std::io::Error| error.to_string();
    let stream = caller.call_eligible(address, "renew", CALL).await.map_err(said)?;
    let mut lines = Lines::new(stream);
    let answer = tokio::time::timeout(CALL, lines.line()).await.map_err(|_| "it does not answer")?.map_err(said)?;
    Welcome::read(&answer.unwrap_or_default())
}
