//! What the owner of the site has said about a client in advance: a blocked one is refused, and one in a listed network or with a listed
//! key is known without a cookie. Also counts its requests for the history of its network, which can make later visitors from there known.

use std::time::SystemTime;

use http::StatusCode;

use super::refusal::Refusal;
use super::site::{ActiveBackend, Site};
use super::thread::ProxyShared;
use crate::identity::{Fields, Identity};
use crate::network_lists::Listed;

/// What the owner of the site has configured for this client: it is refused, or known by its network or its key.
pub(super) fn vouch(
    shared: &ProxyShared,
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

/// Counts a request in the history of its network. Call it only for a request that did not have to wait, because an attack must not become
/// history. In observe mode no request ever waits, so an attack could not be told apart, and nothing is counted.
pub(super) fn tally(site: &Site, backend: &ActiveBackend, identity: &Identity, now: SystemTime) {
    if let Some(tally) = &site.settings.tally
        && !backend.settings.admission.observe
    {
        let network = site.settings.identities.network(identity.client);
        tally.note(identity.subnet, identity.session, network, now);
    }
}
