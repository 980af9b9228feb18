//! The settings of inbound mail in the form that the code uses.

use super::dnsbl::DnsblSettings;
use super::evaluator::EvaluatorSettings;
use super::rates::RateSettings;
use super::recipients::RecipientRule;
use crate::delivery::resolver::Dns;
use crate::domains::Domains;
use std::net::{IpAddr, SocketAddr};
use weir_smtp::network::IpNetwork;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::settings::Settings as SmtpSettings;

/// How inbound mail is taken.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where SMTP listens.
    pub listen: Vec<SocketAddr>,
    /// Where LMTP listens.
    pub listen_lmtp: Vec<SocketAddr>,
    /// Sessions: name, limits, listed peers. There are no logins.
    pub smtp: SmtpSettings,
    /// The domains that we take mail for.
    pub domains: Domains,
    /// How it is found out whether a recipient exists.
    pub recipients: RecipientRule,
    /// Whether mail of listed peers is handed back to them (delivery has the route).
    pub hand_back: bool,
    /// How much mail strangers may bring.
    pub rates: RateSettings,
    /// The DNS blocklists in which the addresses of strangers are looked up.
    pub dnsbl: DnsblSettings,
    /// The DNS servers that are asked about these lists.
    pub dns: Dns,
    /// How SPF, DKIM and DMARC are evaluated; None if they are not.
    pub evaluation: Option<EvaluatorSettings>,
}

impl Settings {
    /// Whether this peer may send mail to any domain. Its address must be listed, and if it speaks for another client (XCLIENT), that
    /// client's address must be listed as well.
    pub(super) fn relays_for(&self, peer: &SmtpPeer) -> bool {
        let listed = |address: IpAddr| lists(&self.smtp.trusted, address.to_canonical());
        listed(peer.socket.ip()) && listed(peer.client)
    }

    /// Whether this peer is a stranger: neither listed nor on this machine.
    pub(super) fn is_stranger(&self, peer: &SmtpPeer) -> bool {
        !self.relays_for(peer) && !peer.client.is_loopback()
    }
}

fn lists(networks: &[IpNetwork], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}
