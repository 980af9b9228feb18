//! Identifies the client of a request: its address, subnet and session cookie, and the keys of the scheduler that follow from them.
//!
//! A client is known by the address of its connection, or by what a listed proxy says of it ([`forwarded`],
//! [`proxy_protocol`]). Its subnet is a prefix of that address, or the configured group that it lies in. Its session is a cookie that this
//! cluster signed for that very subnet, or otherwise its address. The thesis (section 3.2) shares a subnet's weight among its sessions, so
//! a client gains nothing from many of them.
//!
//! A request without a good cookie belongs to the session of its *address*, and gets a cookie for later. The cookie's own session
//! begins when the cookie comes back: a client that drops its cookies stays one session however often it asks, and so does one that forges
//! them or brings one from another subnet.
//!
//! Invariants: equal settings give equal keys at every front-end; the keys of different kinds never meet; no input panics, and the
//! work is linear in the header bytes with small bounds on candidates and hops. Cost: about 0.15 µs with a cookie seen before, under
//! 1 µs with a new one to check or to make; no lock, no allocation but for a new cookie. Memory: 512 KiB for cookies seen.

pub mod forwarded;
pub mod proxy_protocol;

mod app_sessions;
mod cookie;
mod everybody;
mod fields;
mod network;
mod secret;
mod seen;
mod settings;
mod siphash;

pub use app_sessions::{AppSessions, BroughtSessions};
pub use cookie::{Cookie, Cookies};
pub use everybody::{holds_all_ipv4, names_everybody};
pub use fields::Fields;
pub use network::{Network, NetworkError, NetworkMap, host, mapped, masked};
pub use secret::{Secret, SecretError};
pub use settings::{CookieSettings, NetworkGroup, Settings};

use forwarded::Trail;
use http::{HeaderMap, HeaderValue, header};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_core::fair::{SessionKey, SubnetKey};

#[derive(Clone, Debug)]
pub struct Identity {
    /// The client's address, IPv4-mapped IPv6 as IPv4.
    pub client: IpAddr,
    pub session: SessionKey,
    /// Its subnet or group.
    pub subnet: SubnetKey,
    /// How old the session's cookie is, if it brought one.
    pub cookie_age: Option<Duration>,
    /// Whether a list or a key says that it is known.
    pub known: bool,
    /// A `Set-Cookie` value to answer with.
    pub new_cookie: Option<HeaderValue>,
}

/// What the address of a peer alone says about it.
#[derive(Clone, Copy, Debug)]
pub struct PeerKeys {
    peer: IpAddr,
    /// Whether it is listed, so that it may name clients.
    listed: bool,
    subnet: SubnetKey,
    /// The session of requests without a cookie.
    session: SessionKey,
}

/// Finds out which client a request comes from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identities {
    rules: Arc<Rules>,
    tls: bool,
}

#[derive(Debug)]
struct Rules {
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    groups: NetworkMap<SubnetKey>,
    listed: NetworkMap<()>,
    trail: Trail,
    keys: siphash::SipKey,
    cookies: Option<Cookies>,
}

impl Identities {
    /// Identities according to these settings; all keys are hashed with the cluster's secret. Prefix lengths out of bounds are moved to the nearest bound.
    pub fn new(settings: &Settings, secret: &Secret) -> Result<Identities, SecretError> {
        let keys = secret.hash_key("weir web keys");
        let groups = settings.groups.iter().flat_map(|group| {
            let key = group_key(keys, &group.name);
            group.networks.iter().map(move |network| (*network, key))
        });
        let rules = Rules {
            ipv4_prefix: settings.ipv4_prefix.min(32),
            ipv6_prefix: settings.ipv6_prefix.min(SESSION_PREFIX),
            groups: groups.collect(),
            listed: settings.trusted.iter().map(|network| (*network, ())).collect(),
            trail: if settings.proxy_protocol { Trail::None } else { settings.trail },
            cookies: (!settings.cookie.name.is_empty()).then(|| Cookies::new(&settings.cookie, secret)).transpose()?,
            keys,
        };
        Ok(Identities { rules: Arc::new(rules), tls: false })
    }

    /// The same for a listener with TLS: its cookies are `Secure`.
    #[must_use]
    pub fn on_tls(&self) -> Identities {
        Identities { rules: Arc::clone(&self.rules), tls: true }
    }

    /// The client of a request. `peer` is the socket's (or the PROXY header's) address; headers as received.
    pub fn identify(&self, peer: IpAddr, headers: &HeaderMap, now: SystemTime) -> Identity {
        self.identify_at(&self.peer_keys(peer), headers, now, true)
    }

    /// What the address of a peer says, computed once for all of its requests.
    pub fn peer_keys(&self, peer: IpAddr) -> PeerKeys {
        let peer = peer.to_canonical();
        let (subnet, session) = (self.rules.subnet(peer), self.rules.address_session(peer));
        PeerKeys { peer, listed: self.lists(peer), subnet, session }
    }

    /// The client of a request from this peer. A client without a cookie is given one only if `offer` says so.
    pub fn identify_at(
        &self,
        peer_keys: &PeerKeys,
        headers: &(impl Fields + ?Sized),
        now: SystemTime,
        offer: bool,
    ) -> Identity {
        let rules = &*self.rules;
        let PeerKeys { peer: client, subnet, session, .. } =
            if peer_keys.listed { self.peer_keys(self.client(peer_keys.peer, headers)) } else { *peer_keys };
        let Some(cookies) = &rules.cookies else {
            return Identity { client, subnet, session, cookie_age: None, known: false, new_cookie: None };
        };
        match cookies.find(headers.lines(&header::COOKIE), subnet, now) {
            Some(cookie) => Identity {
                client,
                subnet,
                session: rules.cookie_session(cookie.id, subnet),
                cookie_age: Some(cookie.age),
                known: false,
                new_cookie: cookie.stale.then(|| cookies.renew(cookie, subnet, now, self.tls)),
            },
            None => {
                let new_cookie = offer.then(|| cookies.make(subnet, now, self.tls));
                Identity { client, subnet, session, cookie_age: None, known: false, new_cookie }
            }
        }
    }

    /// A cookie for a client of this subnet for which the application vouches: with it the client is known at once.
    pub fn vouched_cookie(&self, subnet: SubnetKey, now: SystemTime) -> Option<HeaderValue> {
        self.rules.cookies.as_ref().map(|cookies| cookies.make_standing(subnet, now, self.tls))
    }

    /// A new cookie for a client of this subnet.
    pub fn new_cookie(&self, subnet: SubnetKey, now: SystemTime) -> Option<HeaderValue> {
        self.rules.cookies.as_ref().map(|cookies| cookies.make(subnet, now, self.tls))
    }

    /// The session of a client when it comes the next time, if it is given this cookie now: that of the cookie that it has already, otherwise of this one.
    pub fn session_from(&self, identity: &Identity, new_cookie: Option<&HeaderValue>) -> Option<SessionKey> {
        if identity.cookie_age.is_some() {
            return Some(identity.session);
        }
        let id = self.rules.cookies.as_ref()?.id_of(new_cookie?)?;
        Some(self.rules.cookie_session(id, identity.subnet))
    }

    /// The client's address alone.
    pub fn client(&self, peer: IpAddr, headers: &(impl Fields + ?Sized)) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.lists(peer) {
            return peer;
        }
        forwarded::client(peer, headers, self.rules.trail, |hop| self.lists(hop))
    }

    /// Whether this peer is trusted, so that its PROXY header may be read.
    pub fn lists(&self, peer: IpAddr) -> bool {
        self.rules.listed.find(peer).is_some()
    }

    /// The header in which this peer names its clients; None if it is not trusted.
    pub fn trail_of(&self, peer: IpAddr) -> Option<Trail> {
        self.lists(peer).then_some(self.rules.trail)
    }

    /// The subnet or group of an address.
    pub fn subnet(&self, address: IpAddr) -> SubnetKey {
        self.rules.subnet(address.to_canonical())
    }

    /// The subnet of an address in the form in which it is displayed: the network, or the prefix that stands for it.
    pub fn network(&self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        Network::new(address, self.rules.prefix(address))
    }

    /// The subnet that stands for a client with a key, wherever it comes from.
    pub fn key_subnet(&self, name: &str) -> SubnetKey {
        SubnetKey(siphash::hash(self.rules.keys, &[&[KIND_KEY], name.as_bytes()]))
    }

    /// The subnet that stands for one part of such a client, if its token says of how many parts it consists.
    pub fn key_share(&self, name: &str, number: u32) -> SubnetKey {
        SubnetKey(siphash::hash(self.rules.keys, &[&[KIND_SHARE], &number.to_le_bytes(), name.as_bytes()]))
    }

    /// One of the sessions of a client with a key. It has as many as its weight, because no session weighs more than one visitor.
    pub fn key_session(&self, name: &str, number: u32) -> SessionKey {
        SessionKey(siphash::hash(self.rules.keys, &[&[KIND_KEY], &number.to_le_bytes(), name.as_bytes()]))
    }

    /// A number for a name; it is the same at every front-end and means nothing to anybody else.
    pub fn name_key(&self, name: &str) -> u64 {
        siphash::hash(self.rules.keys, &[&[KIND_NAME], name.as_bytes()])
    }
}

/// Clients without a cookie are counted by address; an IPv6 host has a whole /64 of them.
const SESSION_PREFIX: u8 = 64;

/// Everything that is hashed begins with its kind, so that keys of different kinds never come from the same bytes.
const KIND_SUBNET: u8 = 1;
const KIND_GROUP: u8 = 2;
const KIND_ADDRESS: u8 = 3;
const KIND_COOKIE: u8 = 4;
const KIND_NAME: u8 = 5;
const KIND_KEY: u8 = 6;
const KIND_SHARE: u8 = 7;

impl Rules {
    fn prefix(&self, address: IpAddr) -> u8 {
        if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix }
    }

    fn subnet(&self, address: IpAddr) -> SubnetKey {
        if let Some(group) = self.groups.find(address) {
            return *group;
        }
        SubnetKey(self.prefix_hash(KIND_SUBNET, address, self.prefix(address)))
    }

    fn address_session(&self, address: IpAddr) -> SessionKey {
        let prefix = if address.is_ipv4() { 32 } else { SESSION_PREFIX };
        SessionKey(self.prefix_hash(KIND_ADDRESS, address, prefix))
    }

    fn cookie_session(&self, id: u64, subnet: SubnetKey) -> SessionKey {
        let bytes = [u64::from(KIND_COOKIE), id, subnet.0].map(u64::to_le_bytes);
        SessionKey(siphash::hash(self.keys, &[bytes.as_flattened()]))
    }

    fn prefix_hash(&self, kind: u8, address: IpAddr, prefix: u8) -> u64 {
        let bits = masked(mapped(address), network::mapped_prefix(address, prefix));
        siphash::hash(self.keys, &[&[kind, prefix], &bits.to_be_bytes()])
    }
}

fn group_key(keys: siphash::SipKey, name: &str) -> SubnetKey {
    SubnetKey(siphash::hash(keys, &[&[KIND_GROUP], name.as_bytes()]))
}

#[cfg(test)]
mod tests;
