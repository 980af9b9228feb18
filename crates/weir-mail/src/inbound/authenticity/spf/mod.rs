//! SPF (RFC 7208): whether a client may send for a domain.
//!
//! Limits: ten terms that ask the DNS, of which two may get empty answers, ten mail exchangers and ten claimed names; more is `permerror`.
//! Explanations (`exp=`) are parsed but never fetched, because nobody here would read them. mail-auth has a check of its own, but it
//! accepts records that the grammar does not allow, takes the first of several, and does not count empty answers.

mod domain_spec;
mod record;

use super::names::{DnsResolver, NoRecord, can_be_name};
use domain_spec::{DomainSpec, Values};
use mail_auth::SpfResult;
use record::{Directive, Mechanism, Prefixes, SpfRecord, is_spf};
use std::net::IpAddr;
use std::pin::Pin;

/// Terms of a check that ask the DNS.
const LOOKUPS_MAX: u32 = 10;
/// How many of them may ask in vain.
const VOID_MAX: u32 = 2;
/// Exchangers of one domain, and claimed names of one client.
const NAMES_MAX: usize = 10;

/// Who is checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpfIdentity<'a> {
    pub(super) client: IpAddr,
    pub(super) helo: &'a str,
    /// The part before the `@`; empty for none.
    pub(super) local: &'a str,
    pub(super) domain: &'a str,
}

/// Whether this client may send for the domain of this sender.
pub(super) async fn check(names: &DnsResolver, identity: SpfIdentity<'_>) -> SpfResult {
    let local = if identity.local.is_empty() { "postmaster" } else { identity.local };
    let identity = SpfIdentity { client: identity.client.to_canonical(), local, ..identity };
    let mut check = Check { names, identity, lookups: 0, void: 0, confirmed_name: None };
    check.host(identity.domain.to_owned()).await
}

struct Check<'a> {
    names: &'a DnsResolver,
    identity: SpfIdentity<'a>,
    lookups: u32,
    void: u32,
    confirmed_name: Option<String>,
}

/// What ends a check at once.
type SpfStep<T> = Result<T, SpfResult>;

impl Check<'_> {
    /// `check_host()` for a domain.
    fn host(&mut self, domain: String) -> Pin<Box<dyn Future<Output = SpfResult> + Send + '_>> {
        Box::pin(async move {
            match self.record(&domain).await {
                Ok(record) => self.evaluate(&domain, &record).await.unwrap_or_else(|ended| ended),
                Err(ended) => ended,
            }
        })
    }

    /// The one record of a domain.
    async fn record(&self, domain: &str) -> SpfStep<SpfRecord> {
        if !can_be_name(domain) || !domain.trim_end_matches('.').contains('.') {
            return Err(SpfResult::None);
        }
        let texts = match self.names.txt(domain).await {
            Ok(texts) => texts,
            Err(NoRecord::Unknown) => return Err(SpfResult::TempError),
            Err(NoRecord::NoName | NoRecord::Empty) => return Err(SpfResult::None),
        };
        let mut records = texts.iter().filter(|text| is_spf(text));
        match (records.next(), records.next()) {
            (None, _) => Err(SpfResult::None),
            (Some(text), None) => SpfRecord::parse(text).map_err(|_| SpfResult::PermError),
            (Some(_), Some(_)) => Err(SpfResult::PermError),
        }
    }

    async fn evaluate(&mut self, domain: &str, record: &SpfRecord) -> SpfStep<SpfResult> {
        for Directive { result, mechanism } in &record.directives {
            if self.matches(domain, mechanism).await? {
                return Ok(*result);
            }
        }
        let Some(target) = &record.redirect else { return Ok(SpfResult::Neutral) };
        self.count_lookup()?;
        let target = self.expand(target, domain).await?;
        match self.host(target).await {
            SpfResult::None => Err(SpfResult::PermError),
            result => Ok(result),
        }
    }

    async fn matches(&mut self, domain: &str, mechanism: &Mechanism) -> SpfStep<bool> {
        let client = self.identity.client;
        match mechanism {
            Mechanism::All => Ok(true),
            Mechanism::Network(network, bits) => Ok(is_within(client, *network, *bits)),
            Mechanism::Include(target) => self.includes(domain, target).await,
            Mechanism::Address(target, prefixes) => {
                let target = self.target(domain, target.as_ref()).await?;
                let addresses = self.names.addresses(&target, client).await;
                Ok(self.found(addresses)?.iter().any(|address| prefixes.cover(client, *address)))
            }
            Mechanism::Exchangers(target, prefixes) => {
                let target = self.target(domain, target.as_ref()).await?;
                self.is_exchanger(&target, *prefixes).await
            }
            Mechanism::ClaimedName(target) => {
                let target = self.target(domain, target.as_ref()).await?;
                let confirmed = self.confirmed_names(true).await?;
                Ok(confirmed.iter().any(|name| is_at_or_below(name, &target)))
            }
            Mechanism::Exists(target) => {
                let target = self.target(domain, Some(target)).await?;
                // Always by an IPv4 address, whatever the client has.
                let like = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
                let addresses = self.names.addresses(&target, like).await;
                Ok(!self.found(addresses)?.is_empty())
            }
        }
    }

    async fn includes(&mut self, domain: &str, target: &DomainSpec) -> SpfStep<bool> {
        let target = self.target(domain, Some(target)).await?;
        match self.host(target).await {
            SpfResult::Pass => Ok(true),
            SpfResult::Fail | SpfResult::SoftFail | SpfResult::Neutral => Ok(false),
            SpfResult::TempError => Err(SpfResult::TempError),
            SpfResult::PermError | SpfResult::None => Err(SpfResult::PermError),
        }
    }

    async fn is_exchanger(&mut self, domain: &str, prefixes: Prefixes) -> SpfStep<bool> {
        let exchangers = self.names.exchangers(domain).await;
        let exchangers = self.found(exchangers)?;
        if exchangers.len() > NAMES_MAX {
            return Err(SpfResult::PermError);
        }
        for name in exchangers {
            match self.names.addresses(&name, self.identity.client).await {
                Ok(found) if found.iter().any(|address| prefixes.cover(self.identity.client, *address)) => {
                    return Ok(true);
                }
                Ok(_) | Err(NoRecord::NoName | NoRecord::Empty) => {}
                Err(NoRecord::Unknown) => return Err(SpfResult::TempError),
            }
        }
        Ok(false)
    }

    /// The names that the client claims and that lead back to it. A failure here means that nothing matches; it is not an error.
    async fn confirmed_names(&mut self, counted: bool) -> SpfStep<Vec<String>> {
        let client = self.identity.client;
        let claimed = match self.names.claimed_names(client).await {
            Ok(claimed) => claimed,
            Err(NoRecord::NoName | NoRecord::Empty) if counted => {
                self.count_void()?;
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let mut confirmed = Vec::new();
        for name in claimed.into_iter().take(NAMES_MAX) {
            if self.names.addresses(&name, client).await.is_ok_and(|found| found.contains(&client)) {
                confirmed.push(name);
            }
        }
        Ok(confirmed)
    }

    /// The domain that a term is about; the term counts as one that asks the DNS.
    async fn target(&mut self, domain: &str, target: Option<&DomainSpec>) -> SpfStep<String> {
        self.count_lookup()?;
        match target {
            Some(target) => self.expand(target, domain).await,
            None => Ok(domain.to_owned()),
        }
    }

    async fn expand(&mut self, spec: &DomainSpec, domain: &str) -> SpfStep<String> {
        if spec.wants_confirmed_name() && self.confirmed_name.is_none() {
            let names = self.confirmed_names(false).await?;
            // The domain itself is the best answer, then a name below it, then any.
            let best = names.iter().find(|name| name.eq_ignore_ascii_case(domain));
            let best = best.or_else(|| names.iter().find(|name| is_at_or_below(name, domain))).or(names.first());
            self.confirmed_name = Some(best.map_or_else(|| "unknown".to_owned(), Clone::clone));
        }
        Ok(spec.expand(&Values {
            client: self.identity.client,
            helo: self.identity.helo,
            local: self.identity.local,
            sender_domain: self.identity.domain,
            domain,
            confirmed_name: self.confirmed_name.as_deref().unwrap_or("unknown"),
        }))
    }

    /// What was found, which may be nothing a few times.
    fn found<T>(&mut self, answer: Result<Vec<T>, NoRecord>) -> SpfStep<Vec<T>> {
        match answer {
            Ok(found) => Ok(found),
            Err(NoRecord::Unknown) => Err(SpfResult::TempError),
            Err(NoRecord::NoName | NoRecord::Empty) => self.count_void().map(|()| Vec::new()),
        }
    }

    fn count_lookup(&mut self) -> SpfStep<()> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_MAX { Err(SpfResult::PermError) } else { Ok(()) }
    }

    fn count_void(&mut self) -> SpfStep<()> {
        self.void += 1;
        if self.void > VOID_MAX { Err(SpfResult::PermError) } else { Ok(()) }
    }
}

impl Prefixes {
    fn cover(self, client: IpAddr, address: IpAddr) -> bool {
        is_within(client, address, if address.is_ipv4() { self.v4 } else { self.v6 })
    }
}

/// Whether the first bits of two addresses of one family are the same.
fn is_within(client: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (client, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(32 - bits.min(32)).unwrap_or(0) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(128 - bits.min(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn is_at_or_below(name: &str, domain: &str) -> bool {
    let (name, domain) = (name.to_ascii_lowercase(), domain.trim_end_matches('.').to_ascii_lowercase());
    name.strip_suffix(&domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_all_lengths() {
        let within =
            |client: &str, network: &str, bits| is_within(client.parse().unwrap(), network.parse().unwrap(), bits);
        assert!(within("192.0.2.7", "192.0.2.0", 24) && !within("192.0.3.7", "192.0.2.0", 24));
        assert!(within("1.2.3.4", "192.0.2.0", 0) && within("::1", "2001:db8::", 0));
        assert!(within("192.0.2.7", "192.0.2.7", 32) && !within("192.0.2.6", "192.0.2.7", 32));
        assert!(!within("192.0.2.7", "::ffff:192.0.2.7", 0));
        assert!(is_at_or_below("a.B.example", "b.example.") && !is_at_or_below("ab.example", "b.example"));
    }
}
