//! Which hosts take mail for a domain (RFC 5321 section 5.1, RFC 7505), by DNS.
//!
//! MX in order of preference, equals in random order; without MX the domain itself. A domain that does not exist and a
//! null MX are permanent, a name server that does not answer or fails is temporary. Hosts that are ourselves and those
//! behind us are left out, so mail does not go in circles. Failures are remembered for a while, which hickory does not do.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::{Resolver, TokioResolver};
use weir_core::time::Instant;

use super::failure_cache::FailureCache;
use weir_smtp::client::approach::{Host, ServerAddress};
use weir_smtp::client::proof::Proof;
use weir_smtp::outcome::{DeliveryOutcome, Status};

/// The most mail exchangers of a domain that are tried.
const EXCHANGERS_MAX: usize = 5;
/// How long all questions about a domain may take.
const QUESTIONS_MAX: Duration = Duration::from_secs(30);
/// The most addresses in all.
const HOSTS_MAX: usize = 10;

/// Finds hosts.
pub struct MailResolver {
    resolver: TokioResolver,
    ourselves: Ourselves,
    failures: Mutex<FailureCache>,
    random: RandomState,
    turn: AtomicU64,
}

/// What is meant by "ourselves", and where others listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ourselves {
    /// Our names, as they may stand in an MX.
    pub names: Vec<String>,
    /// Where we listen for mail from others.
    pub addresses: Vec<SocketAddr>,
    /// The port of other servers. Default 25.
    pub port: u16,
    /// Whether an MX may lead to a loopback address. Default no: it would be this machine.
    pub loopback: bool,
}

impl Default for Ourselves {
    fn default() -> Ourselves {
        Ourselves { names: Vec::new(), addresses: Vec::new(), port: 25, loopback: false }
    }
}

/// How to reach the DNS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Dns {
    /// As `/etc/resolv.conf` says.
    #[default]
    System,
    /// This server, with so long for a question.
    Server(SocketAddr, Duration),
}

impl MailResolver {
    /// A resolver.
    pub fn new(dns: &Dns, ourselves: Ourselves) -> Result<MailResolver, ResolverError> {
        let resolver = resolver(dns)?;
        let (failures, random, turn) = (Mutex::default(), RandomState::new(), AtomicU64::new(0));
        Ok(MailResolver { resolver, ourselves, failures, random, turn })
    }

    /// The hosts for a domain, best first.
    pub async fn exchangers(&self, domain: &str, now: Instant) -> Result<Vec<Host>, DeliveryOutcome> {
        if let Some(address) = literal(domain) {
            return self.usable(vec![self.host(domain, address)]);
        }
        if let Some(known) = self.failures.lock().unwrap_or_else(PoisonError::into_inner).find(domain, now) {
            return Err(known);
        }
        let found = match tokio::time::timeout(QUESTIONS_MAX, self.look_up(domain)).await {
            Ok(found) => found,
            Err(_) => {
                Err(DeliveryOutcome::temporary(Status(4, 4, 3), &format!("the DNS takes too long over {domain}")))
            }
        };
        if let Err(outcome) = &found {
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).add(domain, outcome, now);
        }
        found
    }

    /// The addresses of a host by its name, for smarthosts: loops are the operator's own doing there.
    pub async fn addresses(&self, name: &str, port: u16) -> Result<Vec<Host>, DeliveryOutcome> {
        let to_host = |address| Host {
            name: name.into(),
            place: ServerAddress::Tcp(SocketAddr::new(address, port)),
            by_dns: false,
            proof: Proof::AsAsked,
        };
        if let Ok(address) = name.parse() {
            return Ok(vec![to_host(address)]);
        }
        match self.resolver.lookup_ip(name).await {
            Ok(found) => Ok(found.iter().take(HOSTS_MAX).map(to_host).collect()),
            // The operator named this host, so it is the operator who will mend it.
            Err(error) => Err(DeliveryOutcome::temporary(
                Status(4, 4, 3),
                &format!("the host {name} cannot be resolved: {error}"),
            )),
        }
    }

    async fn look_up(&self, domain: &str) -> Result<Vec<Host>, DeliveryOutcome> {
        let name = absolute(domain)?;
        let exchangers = match self.resolver.mx_lookup(name).await {
            Ok(found) => {
                let records = found.answers().iter();
                records
                    .filter_map(|record| if let RData::MX(mx) = &record.data { Some(mx.clone()) } else { None })
                    .collect()
            }
            Err(error) if is_empty(&error) => Vec::new(),
            Err(error) => return Err(failure(domain, &error)),
        };
        if exchangers.is_empty() {
            return self.implicit(domain).await;
        }
        if exchangers.iter().any(|mx| mx.exchange.is_root()) {
            let text = format!("{domain} says that it takes no mail (null MX)");
            return Err(DeliveryOutcome::permanent(Status(5, 1, 10), &text));
        }
        let exchangers: Vec<_> = exchangers.iter().map(|mx| (mx.preference, host_name(&mx.exchange))).collect();
        self.explicit(domain, exchangers).await
    }

    /// No MX: the domain is its own host.
    async fn implicit(&self, domain: &str) -> Result<Vec<Host>, DeliveryOutcome> {
        match self.resolver.lookup_ip(absolute(domain)?).await {
            Ok(found) => self.usable(found.iter().map(|address| self.host(domain, address)).collect()),
            Err(error) if is_empty(&error) => {
                let text = format!("{domain} has neither a mail exchanger nor an address");
                Err(DeliveryOutcome::permanent(Status(5, 4, 4), &text))
            }
            Err(error) => Err(failure(domain, &error)),
        }
    }

    async fn explicit(&self, domain: &str, mut exchangers: Vec<(u16, String)>) -> Result<Vec<Host>, DeliveryOutcome> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        exchangers.sort_by_cached_key(|(preference, name)| (*preference, self.random.hash_one((turn, name))));
        let ours = exchangers.iter().find(|(_, name)| self.is_our_name(name)).map(|(preference, _)| *preference);
        exchangers.retain(|(preference, _)| ours.is_none_or(|ours| *preference < ours));
        if exchangers.is_empty() {
            return Err(loops(domain));
        }
        let (mut hosts, mut last) = (Vec::new(), None);
        for (_, name) in exchangers.iter().take(EXCHANGERS_MAX) {
            match self.resolver.lookup_ip(absolute(name)?).await {
                Ok(found) => hosts.extend(found.iter().map(|address| self.host(name, address))),
                Err(error) => last = Some(self.worse(last, name, &error)),
            }
        }
        match last {
            Some(outcome) if hosts.is_empty() => Err(outcome),
            _ => self.usable(hosts),
        }
    }

    /// Of several failures a passing one counts: it may be mended.
    fn worse(&self, before: Option<DeliveryOutcome>, name: &str, error: &NetError) -> DeliveryOutcome {
        let permanent = is_empty(error) || error.is_nx_domain();
        let text = format!("the mail exchanger {name} cannot be resolved: {error}");
        match before {
            Some(before) if before.status.0 == 4 => before,
            _ if permanent => DeliveryOutcome::permanent(Status(5, 4, 4), &text),
            _ => DeliveryOutcome::temporary(Status(4, 4, 3), &text),
        }
    }

    /// Leaves out addresses that are ourselves or nobody.
    fn usable(&self, hosts: Vec<Host>) -> Result<Vec<Host>, DeliveryOutcome> {
        let name = hosts.first().map(|host| host.name.clone());
        let hosts: Vec<_> = hosts.into_iter().filter(|host| !self.is_ourselves(host)).take(HOSTS_MAX).collect();
        if !hosts.is_empty() {
            return Ok(hosts);
        }
        Err(loops(name.as_deref().unwrap_or("the domain")))
    }

    fn is_our_name(&self, name: &str) -> bool {
        self.ourselves.names.iter().any(|own| own.trim_end_matches('.').eq_ignore_ascii_case(name))
    }

    fn is_ourselves(&self, host: &Host) -> bool {
        let ServerAddress::Tcp(address) = &host.place else { return false };
        let ip = address.ip().to_canonical();
        let nowhere = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        let own = self.ourselves.addresses.iter().any(|own| {
            let any = own.ip().is_unspecified() && ip.is_loopback();
            own.port() == address.port() && (own.ip().to_canonical() == ip || any)
        });
        nowhere || own || (ip.is_loopback() && !self.ourselves.loopback)
    }

    fn host(&self, name: &str, address: IpAddr) -> Host {
        Host {
            name: name.into(),
            place: ServerAddress::Tcp(SocketAddr::new(address, self.ourselves.port)),
            by_dns: true,
            proof: Proof::AsAsked,
        }
    }
}

/// Our resolver: positive answers are kept at most an hour, negative ones five minutes.
pub(crate) fn resolver(dns: &Dns) -> Result<TokioResolver, ResolverError> {
    let failed = |error: NetError| ResolverError(error.to_string());
    let mut builder = match dns {
        Dns::System => TokioResolver::builder_tokio().map_err(failed)?,
        Dns::Server(server, _) => {
            let connection = |mut connection: ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let connections = vec![connection(ConnectionConfig::udp()), connection(ConnectionConfig::tcp())];
            let server = NameServerConfig::new(server.ip(), true, connections);
            Resolver::builder_with_config(
                ResolverConfig::from_name_servers(vec![server]),
                TokioRuntimeProvider::default(),
            )
        }
    };
    adjust(builder.options_mut(), dns);
    builder.with_tls_config(no_tls()?).build().map_err(failed)
}

/// We ask in the clear. Left to itself, the resolver would look for authorities whom to trust, and fail on a machine that
/// has none.
fn no_tls() -> Result<rustls::ClientConfig, ResolverError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| ResolverError(error.to_string()))?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

fn adjust(options: &mut ResolverOpts, dns: &Dns) {
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.edns0 = true;
    // A positive answer is not kept for ever, whatever it says.
    options.positive_max_ttl = Some(Duration::from_secs(3600));
    options.negative_max_ttl = Some(Duration::from_secs(300));
    if let Dns::Server(_, patience) = dns {
        (options.timeout, options.attempts) = (*patience, 1);
    }
}

/// The texts at a name; an empty list if there are none or nobody answers.
pub(super) async fn txt_records(resolver: &TokioResolver, name: Name) -> Vec<String> {
    let Ok(found) = resolver.txt_lookup(name).await else { return Vec::new() };
    let text = |data: &RData| match data {
        RData::TXT(txt) => Some(txt.txt_data.iter().map(|part| String::from_utf8_lossy(part)).collect()),
        _ => None,
    };
    found.answers().iter().filter_map(|record| text(&record.data)).collect()
}

/// `[192.0.2.1]` or `[IPv6:2001:db8::1]`.
fn literal(domain: &str) -> Option<IpAddr> {
    let inside = domain.strip_prefix('[')?.strip_suffix(']')?;
    let v6 = inside.split_at_checked(5).filter(|(tag, _)| tag.eq_ignore_ascii_case("IPv6:"));
    match v6 {
        Some((_, address)) => address.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => inside.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    }
}

/// With the last dot, so that no search list applies.
fn absolute(domain: &str) -> Result<Name, DeliveryOutcome> {
    let mut name = Name::from_utf8(domain)
        .map_err(|_| DeliveryOutcome::permanent(Status(5, 1, 2), &format!("{domain} cannot be a domain in the DNS")))?;
    name.set_fqdn(true);
    Ok(name)
}

fn host_name(name: &Name) -> String {
    let text = name.to_ascii();
    text.strip_suffix('.').unwrap_or(&text).to_ascii_lowercase()
}

/// The name exists, but has no such record.
fn is_empty(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError)
}

fn failure(domain: &str, error: &NetError) -> DeliveryOutcome {
    if error.is_nx_domain() {
        return DeliveryOutcome::permanent(Status(5, 1, 2), &format!("the domain {domain} does not exist"));
    }
    DeliveryOutcome::temporary(
        Status(4, 4, 3),
        &format!("the mail exchangers of {domain} cannot be found out: {error}"),
    )
}

fn loops(domain: &str) -> DeliveryOutcome {
    DeliveryOutcome::permanent(
        Status(5, 4, 6),
        &format!("the best mail exchanger of {domain} is this server: the mail would loop"),
    )
}

impl std::fmt::Debug for MailResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailResolver").field("ourselves", &self.ourselves).finish_non_exhaustive()
    }
}

/// Why there is no resolver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the DNS cannot be used: {0}; see /etc/resolv.conf")]
pub struct ResolverError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_addresses() {
        assert_eq!(literal("[192.0.2.1]"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(literal("[IPv6:2001:db8::1]"), Some("2001:db8::1".parse().unwrap()));
        assert_eq!((literal("[nonsense]"), literal("192.0.2.1"), literal("[")), (None, None, None));
    }

    #[tokio::test]
    async fn ourselves_is_nobody_to_send_to() {
        let server = Dns::Server("127.0.0.1:9".parse().unwrap(), Duration::from_millis(10));
        let own = Ourselves { addresses: vec!["192.0.2.1:25".parse().unwrap()], ..Ourselves::default() };
        let resolver = MailResolver::new(&server, own).unwrap();
        for domain in
            ["[192.0.2.1]", "[127.0.0.1]", "[0.0.0.0]", "[IPv6:::1]", "[IPv6:::ffff:127.0.0.1]", "[224.0.0.1]"]
        {
            let outcome = resolver.exchangers(domain, Instant::ZERO).await.unwrap_err();
            assert_eq!(outcome.status, Status(5, 4, 6), "{domain}");
        }
        assert_eq!(resolver.exchangers("[192.0.2.2]", Instant::ZERO).await.unwrap().len(), 1);
        assert_eq!(resolver.addresses("127.0.0.1", 2525).await.unwrap()[0].to_string(), "127.0.0.1[127.0.0.1:2525]");
    }
}
