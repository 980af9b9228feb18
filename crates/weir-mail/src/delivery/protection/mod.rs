//! What the servers of a domain must prove before they get mail: DANE (RFC 7672), and MTA-STS (RFC 8461) where there is no DANE.
//!
//! Without either, TLS is opportunistic: whoever stands between us and a server can switch it off, or be the server. A domain that
//! publishes TLSA records in a signed zone, or a policy on an HTTPS server, says that its servers can do better, and mail for it waits
//! rather than go to a server that does not prove itself. DANE needs a resolver that checks signatures and that we can trust: one on this
//! machine, or one that the operator calls trusted (`delivery.dns_trusted`). If it cannot answer, that may be an attack, so the mail waits.

mod secure_dns;
pub mod sts;

pub use self::secure_dns::SecureDns;

use self::sts::{Mode, Sts};
use hickory_resolver::proto::rr::rdata::tlsa::{CertUsage, Matching as TlsaMatching, Selector};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_smtp::client::approach::Host;
use weir_smtp::client::proof::{CertificateRecord, Matching, Proof};
use weir_smtp::outcome::{DeliveryOutcome, Status};

/// Records of one host that are looked at.
const RECORDS_MAX: usize = 32;

/// What is asked about domains.
#[derive(Debug, Default)]
pub struct Protection {
    /// Whom we believe what is signed.
    pub dane: Option<SecureDns>,
    /// Policies of domains.
    pub sts: Option<Sts>,
}

impl Protection {
    /// The hosts of a domain that may be used, each with what it has to prove.
    pub async fn of(&self, domain: &str, hosts: Vec<Host>) -> Result<Vec<Host>, DeliveryOutcome> {
        if domain.starts_with('[') {
            // An address in place of a domain has no zone to ask.
            return Ok(hosts);
        }
        let hosts = match &self.dane {
            Some(dns) => by_dane(dns, domain, hosts).await?,
            None => hosts,
        };
        match &self.sts {
            // DANE counts more: a policy never weakens it (RFC 8461 section 2).
            Some(sts) if hosts.iter().any(|host| host.proof == Proof::AsAsked) => by_policy(sts, domain, hosts).await,
            _ => Ok(hosts),
        }
    }
}

/// The hosts with the records that a signed zone has for them.
async fn by_dane(dns: &SecureDns, domain: &str, hosts: Vec<Host>) -> Result<Vec<Host>, DeliveryOutcome> {
    let secured = secured_names(dns, domain).await?;
    let (mut usable, mut trouble, mut known) = (Vec::new(), None, Vec::<(Arc<str>, Result<Proof, String>)>::new());
    for host in hosts {
        let proof = match known.iter().find(|(name, _)| *name == host.name) {
            Some((_, proof)) => proof.clone(),
            None if secured.contains(&*host.name) => proof_of(dns, &host).await,
            None => Ok(Proof::AsAsked),
        };
        known.push((Arc::clone(&host.name), proof.clone()));
        match proof {
            Ok(proof) => usable.push(Host { proof, ..host }),
            Err(error) => trouble = Some(format!("what {} has to prove cannot be found out: {error}", host.name)),
        }
    }
    match trouble {
        Some(text) if usable.is_empty() => Err(DeliveryOutcome::temporary(Status(4, 7, 5), &text)),
        _ => Ok(usable),
    }
}

/// The names of the domain's hosts, as far as they are signed; none if they are not.
async fn secured_names(dns: &SecureDns, domain: &str) -> Result<BTreeSet<String>, DeliveryOutcome> {
    let Some(name) = absolute(domain) else { return Ok(BTreeSet::new()) };
    let answer = dns.ask(&name, RecordType::MX).await.map_err(|error| {
        DeliveryOutcome::temporary(
            Status(4, 4, 3),
            &format!("the mail exchangers of {domain} cannot be checked: {error}"),
        )
    })?;
    if !answer.secure {
        return Ok(BTreeSet::new());
    }
    let exchanger = |data: &RData| match data {
        RData::MX(mx) => Some(mx.exchange.to_ascii().trim_end_matches('.').to_ascii_lowercase()),
        _ => None,
    };
    let names: BTreeSet<String> = answer.records.iter().filter_map(exchanger).collect();
    // Without a mail exchanger the domain is its own host.
    Ok(if names.is_empty() { BTreeSet::from([domain.to_ascii_lowercase()]) } else { names })
}

async fn proof_of(dns: &SecureDns, host: &Host) -> Result<Proof, String> {
    let Some(name) = absolute(&host.name) else { return Ok(Proof::AsAsked) };
    // Name servers of unsigned zones may fail on questions that they do not know; those are not asked (RFC 7672 section 2.2.2).
    if !dns.ask(&name, RecordType::A).await?.secure {
        return Ok(Proof::AsAsked);
    }
    let port = host.port().unwrap_or(25);
    let Some(name) = absolute(&format!("_{port}._tcp.{}", host.name)) else { return Ok(Proof::AsAsked) };
    let answer = dns.ask(&name, RecordType::TLSA).await?;
    if !answer.secure || answer.records.is_empty() {
        return Ok(Proof::AsAsked);
    }
    let records: Arc<[CertificateRecord]> = answer.records.iter().take(RECORDS_MAX).filter_map(usable).collect();
    Ok(if records.is_empty() { Proof::Encryption } else { Proof::Dane(records) })
}

/// The record, if it is of a kind that mail servers use (RFC 7672 section 3.1.3).
fn usable(data: &RData) -> Option<CertificateRecord> {
    let RData::TLSA(tlsa) = data else { return None };
    let authority = match tlsa.cert_usage {
        CertUsage::DaneTa => true,
        CertUsage::DaneEe => false,
        _ => return None,
    };
    let key_only = match tlsa.selector {
        Selector::Full => false,
        Selector::Spki => true,
        _ => return None,
    };
    let (matching, length) = match tlsa.matching {
        TlsaMatching::Raw => (Matching::Whole, None),
        TlsaMatching::Sha256 => (Matching::Sha256, Some(32)),
        TlsaMatching::Sha512 => (Matching::Sha512, Some(64)),
        _ => return None,
    };
    let right = length.is_none_or(|length| tlsa.cert_data.len() == length);
    right.then(|| CertificateRecord { authority, key_only, matching, data: tlsa.cert_data.clone() })
}

/// The hosts that the domain's policy names.
async fn by_policy(sts: &Sts, domain: &str, hosts: Vec<Host>) -> Result<Vec<Host>, DeliveryOutcome> {
    let Some(policy) = sts.policy(domain).await else { return Ok(hosts) };
    if policy.mode != Mode::Enforce {
        return Ok(hosts);
    }
    let allowed = |host: Host| match host.proof {
        Proof::AsAsked if policy.names(&host.name) => Some(Host { proof: Proof::Name, ..host }),
        Proof::AsAsked => None,
        _ => Some(host),
    };
    let allowed: Vec<Host> = hosts.into_iter().filter_map(allowed).collect();
    if allowed.is_empty() {
        let text = format!("none of the mail exchangers of {domain} is one that its policy (MTA-STS) names");
        return Err(DeliveryOutcome::temporary(Status(4, 7, 5), &text));
    }
    Ok(allowed)
}

fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_utf8(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}
