//! Addresses that may not connect for a while: how operators see and change them.
//!
//! Each of the two mail servers has a table of its own (weir-smtp `ban.rs`), which grows by itself from failed logins and recipients
//! that do not exist. Changes made here survive a restart, as those bans do.

use super::backend::Banning;
use super::{Actor, Backend, OperationError, OperationsParts, names, when};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_smtp::ban::Offender;
use weir_smtp::registry::Registry;

/// Most bans in one list.
const LIST_MAX: usize = 1_000;

/// An address that has been banned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Ban")]
pub struct BanView {
    /// The server that it may not connect to: `submission` or `inbound`.
    #[schemars(extend("enum" = ["submission", "inbound"]))]
    pub server: String,
    /// The address, or the first one of an IPv6 network with its prefix.
    pub address: String,
    /// When it may connect again; nothing if it may already.
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,
    /// How often it was banned; each ban is twice as long as the one before.
    pub offences: u32,
    /// Until when that is remembered.
    #[schemars(extend("format" = "date-time"))]
    pub remembered: String,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BanDone {
    /// The address as it counts.
    pub address: String,
    /// The servers concerned.
    pub servers: Vec<String>,
    /// When a new ban ends.
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,
}

/// What may be done to bans. Cheap to clone.
#[derive(Clone)]
pub struct BanOperations {
    audit: AuditTrail,
    clock: Clock,
    backend: Arc<dyn Backend>,
}

impl BanOperations {
    pub(super) fn new(parts: &OperationsParts) -> BanOperations {
        BanOperations {
            audit: AuditTrail::new(&parts.foundation),
            clock: Arc::clone(&parts.foundation.clock),
            backend: Arc::clone(&parts.backend),
        }
    }

    /// Addresses that have been banned and are not forgotten: those that are banned now first.
    pub fn list(&self) -> Result<Vec<BanView>, OperationError> {
        let now = (self.clock)();
        let mut bans: Vec<BanView> = Vec::new();
        for Banning { server, registry, clock } in self.servers()? {
            let offenders = registry.offenders(LIST_MAX, clock());
            bans.extend(offenders.iter().map(|offender| view(server, &registry, offender, now)));
        }
        bans.sort_by(|a, b| (a.until.is_none(), &b.until).cmp(&(b.until.is_none(), &a.until)));
        bans.truncate(LIST_MAX);
        Ok(bans)
    }

    /// Lets an address connect again, and forgets its offences.
    pub async fn lift(&self, address: &str, actor: &Actor) -> Result<BanDone, OperationError> {
        let ip = parse(address)?;
        let mut servers = self.servers()?;
        servers.retain(|banning| banning.registry.pardon(ip));
        let Some(first) = servers.first() else {
            let what = format!("{} is not banned", names::shown(address));
            return Err(OperationError::unknown(what, "`weir bans list` shows who is"));
        };
        let done = BanDone { address: first.registry.name_of(ip), servers: named(&servers), until: None };
        self.audit.write(actor, "ban.lift", &done.address, done.servers.join(", ")).await?;
        Ok(done)
    }

    /// Bans an address from both servers for so long, or for as long as a ban may be (`ban_longest`).
    pub async fn add(&self, address: &str, length: Duration, actor: &Actor) -> Result<BanDone, OperationError> {
        let ip = parse(address)?;
        let servers = self.servers()?;
        let (mut until, mut name) = (None, String::new());
        for Banning { registry, clock, .. } in &servers {
            let length = registry.ban(ip, length, clock());
            until = Some(when(((self.clock)() + length).0 as i64));
            name = registry.name_of(ip);
        }
        let done = BanDone { address: name, servers: named(&servers), until };
        let detail = format!("until {} at {}", done.until.as_deref().unwrap_or("–"), done.servers.join(", "));
        self.audit.write(actor, "ban.add", &done.address, detail).await?;
        Ok(done)
    }

    fn servers(&self) -> Result<Vec<Banning>, OperationError> {
        let servers = self.backend.banning();
        if servers.is_empty() {
            let hint = "start the mail gate with `weir up`";
            return Err(OperationError::conflict("no mail server runs here, so nobody is kept out", hint));
        }
        Ok(servers)
    }
}

fn named(servers: &[Banning]) -> Vec<String> {
    servers.iter().map(|banning| banning.server.to_owned()).collect()
}

fn view(server: &str, registry: &Registry, offender: &Offender, now: Instant) -> BanView {
    let at = |after: Duration| when((now + after).0 as i64);
    BanView {
        server: server.to_owned(),
        address: registry.name_of(offender.address.address()),
        until: (!offender.banned.is_zero()).then(|| at(offender.banned)),
        offences: offender.offences,
        remembered: at(offender.remembered),
    }
}

/// `192.0.2.7`, or `2001:db8::/64` as a list shows it.
fn parse(text: &str) -> Result<IpAddr, OperationError> {
    let no_address = || {
        let what = format!("{} is no address", names::shown(text));
        OperationError::invalid(what, "name one such as 192.0.2.7 or 2001:db8::1")
    };
    let (address, prefix) = text.trim().split_once('/').unwrap_or((text.trim(), ""));
    let address: IpAddr = address.parse().map_err(|_| no_address())?;
    // An address of IPv6 stands for its /64, and is listed so.
    let whole = prefix.is_empty() || prefix == if address.is_ipv4() { "32" } else { "64" };
    whole.then_some(address).ok_or_else(|| {
        let what = format!("{} is a network, and bans are for single addresses", names::shown(text));
        OperationError::invalid(what, "a firewall keeps a whole network out")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_not_taken_for_one_of_its_addresses() {
        for (given, address) in
            [("192.0.2.7", "192.0.2.7"), (" 192.0.2.7/32", "192.0.2.7"), ("2001:db8::/64", "2001:db8::")]
        {
            assert_eq!(parse(given).ok(), address.parse().ok(), "{given}");
        }
        for network in ["0.0.0.0/0", "192.0.2.0/24", "2001:db8::/32", "192.0.2.7/x", "x"] {
            assert!(parse(network).is_err(), "{network}");
        }
    }
}
