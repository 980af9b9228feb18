//! DMARC (RFC 9989): whether a sender confirmed by SPF or DKIM may use the domain that people see in From, and what that domain wants done
//! if not.
//!
//! The policy of the domain is found by walking up the DNS tree, eight questions at most. If a name has several records, none of them
//! counts. If the DNS does not answer, that is a result of its own, but only if the answer could have changed the outcome: the silence of a
//! name server that the sender chose proves nothing about the domain in From.

mod record;

pub use record::Wish;

use super::names::{DnsResolver, NoRecord};
use record::{DmarcRecord, Suffix};
use std::net::{IpAddr, Ipv4Addr};

/// What DMARC says of a domain in From.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The domain.
    pub domain: String,
    /// Whether somebody answers for it.
    pub result: DmarcResult,
    /// What it wants done with mail that fails.
    pub wish: Wish,
    /// Of how many failing messages in a hundred it wants that.
    pub percent: u8,
}

/// Whether somebody answers for a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmarcResult {
    /// It has no policy.
    None,
    /// Somebody does.
    Pass,
    /// Nobody does.
    Fail,
    /// The DNS did not tell.
    TempError,
}

impl DmarcResult {
    fn as_str(self) -> &'static str {
        match self {
            DmarcResult::None => "none",
            DmarcResult::Pass => "pass",
            DmarcResult::Fail => "fail",
            DmarcResult::TempError => "temperror",
        }
    }
}

/// A domain for which SPF or a signature said something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    /// The domain.
    pub domain: String,
    /// By a signature, not by SPF.
    pub by_dkim: bool,
    /// It passed; otherwise the DNS did not say.
    pub passed: bool,
}

/// The policy of a domain in From, before any sender is compared with it.
#[derive(Debug)]
pub(super) struct Policy {
    domain: String,
    found: Result<Option<Applicable>, NoRecord>,
}

/// A policy that applies.
#[derive(Debug)]
struct Applicable {
    /// The domain that all of one owner's domains are below.
    organization: String,
    record: DmarcRecord,
    wish: Wish,
}

/// Records on the way up from a domain, the longest name first.
type Walk = Vec<(String, DmarcRecord)>;

impl Policy {
    /// Finds the policy for a domain in From.
    pub(super) async fn of(names: &DnsResolver, domain: &str) -> Policy {
        Policy { domain: domain.to_owned(), found: applicable(names, domain).await }
    }

    /// What is said if there was no time to ask.
    pub(super) fn unknown(domain: &str) -> Policy {
        Policy { domain: domain.to_owned(), found: Err(NoRecord::Unknown) }
    }

    /// Whether the DNS told.
    pub(super) fn is_known(&self) -> bool {
        self.found.is_ok()
    }

    /// What is said if there was no time to hold anybody against it.
    pub(super) fn undecided(&self) -> Finding {
        let (wish, percent) = match &self.found {
            Ok(Some(policy)) => (policy.wish, policy.record.percent),
            _ => (Wish::None, 100),
        };
        Finding { domain: self.domain.clone(), result: DmarcResult::TempError, wish, percent }
    }

    /// Holds what is confirmed against the policy.
    pub(super) async fn judge(&self, names: &DnsResolver, confirmed: &[Confirmed]) -> Finding {
        let finding = |result, wish, percent| Finding { domain: self.domain.clone(), result, wish, percent };
        let applicable = match &self.found {
            Err(_) => return finding(DmarcResult::TempError, Wish::None, 100),
            Ok(None) => return finding(DmarcResult::None, Wish::None, 100),
            Ok(Some(applicable)) => applicable,
        };
        let mut result = DmarcResult::Fail;
        for one in confirmed {
            match self.aligns(names, one, applicable).await {
                Ok(true) if one.passed => {
                    result = DmarcResult::Pass;
                    break;
                }
                Ok(false) => {}
                Ok(true) | Err(_) => result = DmarcResult::TempError,
            }
        }
        finding(result, applicable.wish, applicable.record.percent)
    }

    async fn aligns(&self, names: &DnsResolver, one: &Confirmed, policy: &Applicable) -> Result<bool, NoRecord> {
        let strict = if one.by_dkim { policy.record.strict_dkim } else { policy.record.strict_spf };
        if one.domain == self.domain {
            return Ok(true);
        }
        if strict || !is_at_or_below(&one.domain, &policy.organization) {
            return Ok(false);
        }
        let walk = walk(names, &one.domain).await?;
        Ok(organization(&walk, &one.domain) == policy.organization)
    }

    /// Writes a finding into the results, if it can be written.
    pub(super) fn written(finding: &Finding) -> String {
        format!(
            ";\r\n\tdmarc={} header.from={} policy.dmarc={}",
            finding.result.as_str(),
            finding.domain,
            finding.wish.as_str()
        )
    }
}

impl Finding {
    /// What is to be done with a message that failed, which of a hundred it is. Mail outside the percentage gets a level less.
    pub fn wish_for(&self, number: u8) -> Wish {
        match self.result {
            DmarcResult::Fail if number < self.percent => self.wish,
            DmarcResult::Fail => self.wish.softened(),
            _ => Wish::None,
        }
    }
}

async fn applicable(names: &DnsResolver, domain: &str) -> Result<Option<Applicable>, NoRecord> {
    let walk = walk(names, domain).await?;
    let organization = organization(&walk, domain);
    let own = walk.iter().find(|(name, _)| name == domain);
    let other = || walk.iter().find(|(name, _)| *name == organization).or(walk.last());
    let (record, wish) = match own {
        Some((_, record)) => (record, record.wish),
        None => {
            let Some((_, record)) = other() else { return Ok(None) };
            let absent = record.absent != record.below && !exists(names, domain).await?;
            (record, if absent { record.absent } else { record.below })
        }
    };
    let Some(wish) = wish.filter(|_| record.wish.is_some()) else { return Ok(None) };
    let wish = if record.testing { wish.softened() } else { wish };
    Ok(Some(Applicable { organization, record: record.clone(), wish }))
}

/// The records on the way up from a domain. From a name of more than eight labels the way goes straight to seven.
async fn walk(names: &DnsResolver, domain: &str) -> Result<Walk, NoRecord> {
    let labels: Vec<&str> = domain.split('.').collect();
    let mut found = Walk::new();
    let mut count = labels.len();
    while count >= 1 {
        let name = labels.get(labels.len() - count..).unwrap_or_default().join(".");
        let texts = match names.txt(&format!("_dmarc.{name}")).await {
            Ok(texts) => texts,
            Err(NoRecord::NoName | NoRecord::Empty) => Vec::new(),
            Err(NoRecord::Unknown) => return Err(NoRecord::Unknown),
        };
        let mut records = texts.iter().filter_map(|text| DmarcRecord::parse(text));
        if let (Some(record), None) = (records.next(), records.next()) {
            let last = record.suffix != Suffix::Unsaid;
            found.push((name, record));
            if last {
                break;
            }
        }
        count = if count >= 8 { 7 } else { count - 1 };
    }
    Ok(found)
}

/// The domain that all of one owner's domains are below.
fn organization(walk: &Walk, start: &str) -> String {
    for (name, record) in walk {
        match record.suffix {
            Suffix::No => return name.clone(),
            Suffix::Yes if name != start => return one_label_below(name, start),
            _ => {}
        }
    }
    walk.last().map_or_else(|| start.to_owned(), |(name, _)| name.clone())
}

fn one_label_below(suffix: &str, start: &str) -> String {
    let wanted = suffix.split('.').count() + 1;
    let labels: Vec<&str> = start.split('.').collect();
    labels.get(labels.len().saturating_sub(wanted)..).unwrap_or_default().join(".")
}

async fn exists(names: &DnsResolver, domain: &str) -> Result<bool, NoRecord> {
    match names.addresses(domain, IpAddr::V4(Ipv4Addr::UNSPECIFIED)).await {
        Ok(_) | Err(NoRecord::Empty) => Ok(true),
        Err(NoRecord::NoName) => Ok(false),
        Err(NoRecord::Unknown) => Err(NoRecord::Unknown),
    }
}

fn is_at_or_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
