//! What makes a client known besides its cookie: networks and keys that the owner of the site has listed, and the history of its network.

use std::time::SystemTime;

use http::StatusCode;

use super::refusal::Refusal;
use super::site::{ActiveBackend, Site};
use super::thread::Shared;
use crate::identity::{Fields, Identity};
use crate::network_lists::Listed;

/// What the owner of the site has configured for this client: it is refused, or known by its network or its key.
pub(super) fn vouch(
    shared: &Shared,
    site: &Site,
    mut identity: Identity,
    fields: &(impl Fields + ?Sized),
    now: SystemTime,
) -> Result<Identity, Refusal> {
    if shared.blocks.refuse(identity.client, SystemTime::now()) {
        return Err(Refusal::new(StatusCode::FORBIDDEN));
    }
    match site.lists.find(identity.client) {
        Some(Listed::Denied) => return Err(Refusal::new(StatusCode::FORBIDDEN)),
        Some(Listed::Known) => identity.known = true,
        None => {}
    }
    let Some(keys) = &site.keys else { return Ok(identity) };
    if let Some(holder) = keys.find(fields, now) {
        let identities = &site.settings.identities;
        let (account, number) = (holder.account(), keys.next_turn() % holder.weight);
        identity.session = identities.key_session(&account, number);
        // The weight in the file is the subnet's history. A token contains its weight, so its client is treated as that many subnets.
        identity.subnet = match holder.listed {
            true => identities.key_subnet(&account),
            false => identities.key_share(&account, number),
        };
        identity.known = true;
        identity.new_cookie = None;
    }
    Ok(identity)
}

/// Counts a request that need not wait for the history. In observe mode no request ever waits, so none is counted.
pub(super) fn tally(site: &Site, backend: &ActiveBackend, identity: &Identity, now: SystemTime) {
    if let Some(tally) = &site.settings.tally
        && !backend.settings.admission.observe
    {
        let network = site.settings.identities.network(identity.client);
        tally.note(identity.subnet, identity.session, network, now);
    }
}
