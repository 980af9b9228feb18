//! What identities are made from.

use super::forwarded::Trail;
use super::network::Network;
use super::secret::Secret;
use std::time::Duration;

/// What identities are made from; the same at every front-end of a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's secret: all keys are hashed with it.
    pub secret: Secret,
    /// How many leading bits of an IPv4 address make the subnet: 0 … 32.
    pub ipv4_prefix: u8,
    /// How many leading bits of an IPv6 address make the subnet: 0 … 64.
    pub ipv6_prefix: u8,
    /// Subnets that count as one.
    pub groups: Vec<Group>,
    /// Proxies whose word on the client's address is taken.
    pub listed_peers: Vec<Network>,
    /// Which header they speak in.
    pub trail: Trail,
    /// How sessions are remembered; without, every session is an address.
    pub cookie: Option<CookieSettings>,
}

impl Settings {
    /// The defaults: IPv4 /24, IPv6 /56, no groups, nobody listed, a cookie named `weir` that lasts 30 days.
    pub fn new(secret: Secret) -> Settings {
        Settings {
            secret,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            groups: Vec::new(),
            listed_peers: Vec::new(),
            trail: Trail::XForwardedFor,
            cookie: Some(CookieSettings::default()),
        }
    }
}

/// A proxy farm or a provider whose clients roam between subnets.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name; the same name is the same group.
    pub name: String,
    /// Its networks. Where groups overlap, the longest prefix decides.
    pub networks: Vec<Network>,
}

#[derive(Clone, Debug)]
pub struct CookieSettings {
    /// Its name, a token of RFC 6265.
    pub name: String,
    /// How long it is good for; it is renewed after half of that.
    pub lifetime: Duration,
    /// The key that signs; derived from the cluster's secret if none.
    pub key: Option<Secret>,
    /// A key that signed until lately: its cookies are still good, and renewed.
    pub previous_key: Option<Secret>,
}

impl Default for CookieSettings {
    fn default() -> CookieSettings {
        CookieSettings {
            name: "weir".to_owned(),
            lifetime: Duration::from_secs(30 * 24 * 3600),
            key: None,
            previous_key: None,
        }
    }
}
