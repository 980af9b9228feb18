//! DNS queries for authentication. There are three possible answers: the records of a name, that it has none, or that this cannot be found
//! out.
//!
//! The three are kept apart everywhere: RFC 7208 counts empty answers, and a name server that fails is never "no record".

use hickory_resolver::TokioResolver;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData};
use std::net::IpAddr;

/// The longest name in the DNS, as text.
pub(crate) const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Why there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// The name does not exist.
    NoName,
    /// The name exists and has no such record.
    Empty,
    /// Nobody can say: no answer, or a failure.
    Unknown,
}

impl NoRecord {
    /// Whether somebody said so.
    pub(crate) fn is_an_answer(self) -> bool {
        self != NoRecord::Unknown
    }
}

/// Asks the DNS.
#[derive(Clone)]
pub(crate) struct DnsResolver(pub(crate) TokioResolver);

impl DnsResolver {
    /// The TXT records of a name, each with its strings joined.
    pub(crate) async fn txt(&self, name: &str) -> Result<Vec<Vec<u8>>, NoRecord> {
        let found = self.0.txt_lookup(absolute(name)?).await;
        records(found, |data| match data {
            RData::TXT(txt) => Some(txt.txt_data.iter().flat_map(|part| part.iter().copied()).collect()),
            _ => None,
        })
    }

    /// The addresses of a name in the family of `like`.
    pub(crate) async fn addresses(&self, name: &str, like: IpAddr) -> Result<Vec<IpAddr>, NoRecord> {
        let name = absolute(name)?;
        let found = match like {
            IpAddr::V4(_) => self.0.ipv4_lookup(name).await,
            IpAddr::V6(_) => self.0.ipv6_lookup(name).await,
        };
        records(found, |data| match data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
            _ => None,
        })
    }

    /// The mail exchangers of a domain, in the order of their preference.
    pub(crate) async fn exchangers(&self, domain: &str) -> Result<Vec<String>, NoRecord> {
        let found = self.0.mx_lookup(absolute(domain)?).await;
        let mut exchangers = records(found, |data| match data {
            RData::MX(mx) => Some((mx.preference, text(&mx.exchange))),
            _ => None,
        })?;
        exchangers.sort();
        Ok(exchangers.into_iter().map(|(_, name)| name).collect())
    }

    /// The names that an address claims to have.
    pub(crate) async fn claimed_names(&self, address: IpAddr) -> Result<Vec<String>, NoRecord> {
        let found = self.0.reverse_lookup(address).await;
        records(found, |data| match data {
            RData::PTR(name) => Some(text(name)),
            _ => None,
        })
    }
}

fn records<T>(found: Result<Lookup, NetError>, read: impl Fn(&RData) -> Option<T>) -> Result<Vec<T>, NoRecord> {
    let found = found.map_err(|error| why(&error))?;
    let records: Vec<T> = found.answers().iter().filter_map(|record| read(&record.data)).collect();
    if records.is_empty() { Err(NoRecord::Empty) } else { Ok(records) }
}

fn why(error: &NetError) -> NoRecord {
    match error {
        _ if error.is_nx_domain() => NoRecord::NoName,
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => NoRecord::Empty,
        _ => NoRecord::Unknown,
    }
}

/// A name by its labels as they stand: a backslash in it is a backslash, and no search list applies. What cannot be a name does not exist.
fn absolute(name: &str) -> Result<Name, NoRecord> {
    if !can_be_name(name) {
        return Err(NoRecord::NoName);
    }
    let labels = name.strip_suffix('.').unwrap_or(name).split('.').map(str::as_bytes);
    let mut name = Name::from_labels(labels).map_err(|_| NoRecord::NoName)?;
    name.set_fqdn(true);
    Ok(name)
}

/// Whether the DNS can have such a name: labels of 1 to 63 octets, not too long in all.
pub(crate) fn can_be_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= NAME_MAX && name.split('.').all(|label| (1..=LABEL_MAX).contains(&label.len()))
}

/// A name by its labels, as [`absolute`] reads it.
fn text(name: &Name) -> String {
    let labels: Vec<_> = name.iter().map(String::from_utf8_lossy).collect();
    labels.join(".").to_ascii_lowercase()
}
