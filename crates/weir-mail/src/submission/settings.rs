//! The settings of submission in the form that the code uses.

use crate::client_network::network_of;
use crate::domains::Domains;
use crate::letter::Letter;
use crate::own::Own;
use crate::throttle::NoticeKind;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use weir_core::address::{canonical, canonical_with_tag, names_a_way};
use weir_core::throttle::{Class, NetworkKey, Params, RecipientKey};
use weir_smtp::network::IpNetwork;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::Alarm;
use weir_store::records::UserRow;
use weir_store::spool::ShareLimits;

/// How submission behaves.
pub struct Settings {
    /// Our name, in trace headers.
    pub hostname: String,
    /// The name of this relay among those that share the records.
    pub relay: String,
    /// Whose throttle a mail counts against.
    pub identity: Identity,
    /// Where clients may be that need no login; empty for this machine alone.
    pub clients: Vec<IpNetwork>,
    /// How much of an IPv6 address says who a client is.
    pub ipv6_prefix_bits: u8,
    /// Whether Dovecot checks the logins, and not our own passwords.
    pub dovecot: bool,
    /// Only learn what the throttle would do.
    pub learn_only: bool,
    /// Whether MAIL FROM and From must belong to the login.
    pub sender_must_match: bool,
    /// Whether users may release their own delayed mail with their password.
    pub users_release: bool,
    /// Whether our Received field names the login and the client.
    pub received_names_client: bool,
    /// How much of a user's mail may wait here.
    pub share: ShareLimits,
    /// Peers whose topmost Received header names the user, as Postfix writes it.
    pub received_from: Vec<IpNetwork>,
    /// Whether other servers ask about the mail of their users, whose senders nobody here checks.
    pub asked_by_servers: bool,
    /// The parameters of each profile.
    pub profiles: BTreeMap<String, Params>,
    /// The parameters of everybody else.
    pub params: Params,
    /// The site's own domains: there a plus tag is known to be the same mailbox.
    pub own_domains: Domains,
    /// Domains of partners: their people are colleagues, as those of our own domains are.
    pub partner_domains: Domains,
    /// What recipients are hashed with.
    pub recipient_secret: [u8; 32],
    /// The console's address as users reach it, for those whose mail is held; empty for none.
    pub link: String,
    /// The user is told of a delay if the last of the mail has to wait this long.
    pub tell_delays_over: Duration,
    /// Tells people; gets the kind, the identity and the contact address. Must not block.
    pub notify: Notify,
    /// Tells the operator of an attack. Must not block.
    pub alarm: RaiseAlarm,
}

/// Tells people; must not block.
pub type Notify = Box<dyn Fn(NoticeKind, &str, &str) + Send + Sync>;

/// Tells the operator of an attack; must not block.
pub type RaiseAlarm = Box<dyn Fn(&Alarm) + Send + Sync>;

/// Whose throttle a mail counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identity {
    /// The login.
    #[default]
    Login,
    /// The client's address; of an IPv6 address the prefix, for one machine has as many addresses as it likes.
    ClientAddress,
}

/// The recipients of a letter by their places.
pub(super) struct Split {
    /// These go without asking the throttle.
    pub(super) trusted: Vec<usize>,
    /// The throttle is asked about them.
    pub(super) asked: Vec<usize>,
}

impl Settings {
    /// The throttle's parameters for this user.
    pub(crate) fn params_of(&self, user: Option<&UserRow>) -> Params {
        let profile = user.and_then(|user| self.profiles.get(&user.profile)).copied().unwrap_or(self.params);
        user.map_or(profile, |user| crate::throttle::overridden(profile, &user.params))
    }

    /// Splits the places of a letter's recipients into those that go without asking the throttle and those to ask about. All recipients of
    /// an exempt user go, and so do recipients whom the user trusts. The throttle's own split is weir-core `Throttle::submit_mail`.
    pub(super) fn split(&self, user: Option<&UserRow>, letter: &Letter) -> Split {
        let all = 0..letter.to.len();
        match user {
            Some(user) if user.profile == "exempt" => Split { trusted: all.collect(), asked: Vec::new() },
            Some(user) if Own::may_trust(&user.params) => {
                let own = Own::read(&user.params);
                let trusted = |place: &usize| letter.to.get(*place).is_some_and(|to| own.trusts(&to.address));
                let (trusted, asked) = all.partition(trusted);
                Split { trusted, asked }
            }
            _ => Split { trusted: Vec::new(), asked: all.collect() },
        }
    }

    /// Moves the places of addresses that the throttle counts as one next to the first of them.
    pub(super) fn bring_together(&self, asked: &mut [usize], letter: &Letter) {
        if asked.len() < 2 {
            return;
        }
        let key = |place: usize| letter.to.get(place).map(|to| self.key_of(&to.address));
        let mut first = HashMap::with_capacity(asked.len());
        let mut order: Vec<(usize, usize)> =
            asked.iter().map(|place| (*first.entry(key(*place)).or_insert(*place), *place)).collect();
        order.sort_unstable();
        asked.iter_mut().zip(order).for_each(|(asked, (_, place))| *asked = place);
    }

    /// A recipient as the throttle knows it. Elsewhere than at our own domains each tag counts as a person: otherwise 500 strangers
    /// at a domain where tags are mailboxes would be one.
    pub(crate) fn key_of(&self, address: &str) -> RecipientKey {
        let with_tag = canonical_with_tag(address).unwrap_or_else(|_| address.to_lowercase());
        let own = self.is_own(&with_tag);
        let canonical = if own { canonical(address).unwrap_or(with_tag) } else { with_tag };
        recipient_key(&self.recipient_secret, &canonical)
    }

    /// Who a recipient is as far as the address says it. Who has been written to before is found where the throttle decides. An address at
    /// our domain that names a way to another server may reach anybody, so it is a stranger's.
    pub(super) fn class_of(&self, address: &str) -> Class {
        if names_a_way(address) {
            return Class::Stranger;
        }
        let at = |domains: &Domains| address.rsplit_once('@').is_some_and(|(_, domain)| domains.contain(domain));
        if at(&self.own_domains) || at(&self.partner_domains) { Class::Colleague } else { Class::Stranger }
    }

    /// The network that a client is in: of IPv4 the /24, of IPv6 the /48. Where the client's address is the identity, there is none,
    /// and for a program on this machine, such as a web mailer, neither: it says nothing about where the user is.
    pub(super) fn network_of(&self, client: &str, identity: &str) -> Option<NetworkKey> {
        let is_machine = self.identity == Identity::ClientAddress && identity.parse::<IpNetwork>().is_ok();
        let client =
            client.parse().ok().filter(|client: &IpAddr| !is_machine && !client.to_canonical().is_loopback())?;
        Some(NetworkKey(keyed_hash(&self.recipient_secret, &format!("network {}", network_of(client))) as u32))
    }

    /// An address of ours in the form under which letters to it are remembered; empty if it is not ours.
    pub(crate) fn own_address(&self, address: &str) -> String {
        canonical(address).ok().filter(|address| self.is_own(address)).unwrap_or_default()
    }

    fn is_own(&self, address: &str) -> bool {
        address.rsplit_once('@').is_some_and(|(_, domain)| self.own_domains.contain(domain))
    }

    /// Whether a client may hand in mail by its address alone.
    pub(super) fn takes_from(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self.clients.as_slice() {
            [] => client.is_loopback(),
            networks => networks.iter().any(|network| network.contains(client)),
        }
    }

    /// Whether every sender of an envelope is known to be the user's own. Of users whom a peer names we may not know the addresses.
    pub(crate) fn knows_senders(&self) -> bool {
        self.sender_must_match && self.received_from.is_empty() && !self.asked_by_servers
    }

    pub(super) fn reads_received_from(&self, peer: &SmtpPeer) -> bool {
        self.received_from.iter().any(|network| network.contains(peer.socket.ip().to_canonical()))
    }
}

/// The recipient with this canonical address as the throttle knows them.
pub fn recipient_key(secret: &[u8; 32], canonical: &str) -> RecipientKey {
    RecipientKey(keyed_hash(secret, canonical))
}

/// With a secret, so that nobody outside can choose what is alike.
fn keyed_hash(secret: &[u8; 32], text: &str) -> u64 {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return 0 };
    mac.update(text.as_bytes());
    let digest: [u8; 32] = mac.finalize().into_bytes().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("hostname", &self.hostname).field("relay", &self.relay).finish_non_exhaustive()
    }
}
