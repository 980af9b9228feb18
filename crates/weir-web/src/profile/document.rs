//! The history document: reads its text within bounds, or refuses it, and makes a profile for the scheduler from it.

use crate::identity::{Identities, Network};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use weir_core::fair::visits::weight_in_averages;
use weir_core::fair::{Profile, SubnetKey, Weight};

/// Most subnets in a document.
pub const SUBNETS_MAX: usize = 100_000;
/// Longest text of a document.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
const FORMAT: u32 = 1;

/// The history document. Its text is JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Counts up with every change; front-ends take the highest.
    pub version: u64,
    /// When it was made, in seconds since 1970.
    pub made_unix_s: u64,
    /// The average over all subnets that were seen, G, in visits.
    pub average: f64,
    /// How many subnets were seen, those left out included.
    pub seen: u64,
    /// How often each of them was there, H, in visits.
    pub subnets: BTreeMap<Network, f64>,
}

/// The text as JSON fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    weir_history: u32,
    version: u64,
    made_unix_s: u64,
    average: f64,
    seen: u64,
    subnets: BTreeMap<String, f64>,
}

impl Document {
    /// A document of these counts; subnets beyond the maximum are left out, the smallest first.
    pub fn new(version: u64, made_unix_s: u64, counts: HashMap<Network, f64>, left_out: Remainder) -> Document {
        let seen = counts.len() as u64 + left_out.subnets;
        let requests = counts.values().sum::<f64>() + left_out.requests;
        let mut counts: Vec<(Network, f64)> = counts.into_iter().filter(|(_, count)| *count > 0.0).collect();
        if counts.len() > SUBNETS_MAX {
            counts.select_nth_unstable_by(SUBNETS_MAX, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            counts.truncate(SUBNETS_MAX);
        }
        let average = if requests > 0.0 { requests / seen.max(1) as f64 } else { 1.0 };
        Document { version, made_unix_s, average, seen, subnets: counts.into_iter().collect() }
    }

    pub fn parse(text: &[u8]) -> Result<Document, DocumentError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(DocumentError::Long);
        }
        let raw: Raw = serde_json::from_slice(text)?;
        if raw.weir_history != FORMAT {
            return Err(DocumentError::Format(raw.weir_history));
        }
        let sound = |count: f64| count.is_finite() && count > 0.0;
        if !sound(raw.average) || raw.version == 0 {
            return Err(DocumentError::Average);
        }
        if raw.subnets.len() > SUBNETS_MAX {
            return Err(DocumentError::Crowded);
        }
        let subnets = raw.subnets.into_iter().map(|(text, count)| match text.parse::<Network>() {
            Ok(network) if sound(count) => Ok((network, count)),
            _ => Err(DocumentError::Subnet(text)),
        });
        let subnets: BTreeMap<Network, f64> = subnets.collect::<Result<_, _>>()?;
        let seen = raw.seen.max(subnets.len() as u64);
        Ok(Document { version: raw.version, made_unix_s: raw.made_unix_s, average: raw.average, seen, subnets })
    }

    pub fn text(&self) -> String {
        let raw = Raw {
            weir_history: FORMAT,
            version: self.version,
            made_unix_s: self.made_unix_s,
            average: self.average,
            seen: self.seen,
            subnets: self.subnets.iter().map(|(network, count)| (network.to_string(), round(*count))).collect(),
        };
        // Strings and finite numbers always have a text.
        serde_json::to_string_pretty(&raw).unwrap_or_default() + "\n"
    }

    /// What the schedulers need of it. Networks that count as one for these identities are added up.
    pub fn profile(&self, identities: &Identities) -> Profile {
        let mut merged: HashMap<SubnetKey, f64> = HashMap::with_capacity(self.subnets.len());
        for (network, count) in &self.subnets {
            *merged.entry(identities.subnet(network.first())).or_default() += count;
        }
        let folded = (self.subnets.len() - merged.len()) as f64;
        let average = self.average * self.seen as f64 / (self.seen as f64 - folded).max(1.0);
        merged.into_iter().fold(Profile::default(), |profile, (subnet, count)| {
            match weight_in_averages(count, average) {
                Some(weight) => profile.with(subnet, Weight::from_ratio(weight)),
                None => profile,
            }
        })
    }

    /// How many subnets have a history above the average. For the others it makes no difference.
    pub fn above_average(&self) -> usize {
        self.subnets.values().filter(|count| **count > self.average).count()
    }
}

/// Counts of subnets that are not kept one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remainder {
    pub subnets: u64,
    /// How many visits they made together.
    pub requests: f64,
}

/// Three decimals are enough, and keep the text short.
fn round(count: f64) -> f64 {
    ((count * 1e3).round() / 1e3).max(1e-3)
}

/// Why a text is not a history document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or not these fields.
    #[error("not a history document: {0}")]
    Json(#[from] serde_json::Error),
    /// Of another version of the format.
    #[error("a history document of format {0}; this version reads {FORMAT}")]
    Format(u32),
    /// The average or the version is zero or negative.
    #[error("`average` and `version` must be above zero")]
    Average,
    /// A text that is not a subnet, or not a count.
    #[error("subnet {0:?}: a network such as 192.0.2.0/24 and a count above zero are wanted")]
    Subnet(String),
    /// More than [`SUBNETS_MAX`].
    #[error("more than {SUBNETS_MAX} subnets")]
    Crowded,
    /// More than [`TEXT_BYTES_MAX`].
    #[error("longer than {TEXT_BYTES_MAX} bytes")]
    Long,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{NetworkGroup, Secret, Settings};
    use weir_core::fair::{Fair, SessionKey, Work};

    fn net(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn identities(groups: Vec<NetworkGroup>) -> Identities {
        let secret = Secret::new(b"a secret of some length").unwrap();
        Identities::new(&Settings { groups, ..Settings::default() }, &secret).unwrap()
    }

    #[test]
    fn text_and_document_are_the_same() {
        let counts = [("192.0.2.0/24", 90.0), ("2001:db8::/56", 10.0)].map(|(text, count)| (net(text), count));
        let document = Document::new(7, 1_900_000_000, counts.into(), Remainder { subnets: 2, requests: 4.0 });
        assert_eq!((document.average, document.seen, document.above_average()), (26.0, 4, 1));
        assert_eq!(Document::parse(document.text().as_bytes()).unwrap(), document);
    }

    #[test]
    fn what_is_no_document_is_refused_with_a_reason() {
        let with = |from: &str, to: &str| {
            let good = r#"{"weir_history":1,"version":1,"made_unix_s":0,"average":1.0,"seen":1,"subnets":{"192.0.2.0/24":1.0}}"#;
            assert!(Document::parse(good.as_bytes()).is_ok());
            Document::parse(good.replace(from, to).as_bytes()).map_err(|error| error.to_string())
        };
        assert!(with("\"weir_history\":1", "\"weir_history\":9").unwrap_err().contains("format 9"));
        assert!(with("/24", "/2").unwrap_err().contains("192.0.2.0/2"));
        assert!(with("24\":1.0", "24\":-1.0").is_err());
        assert!(with("24\":1.0", "24\":1e999").is_err());
        assert!(with("\"average\":1.0", "\"average\":0").is_err());
        assert!(with("\"version\":1", "\"version\":0").is_err());
        assert!(with("seen", "sean").is_err());
        assert!(with("{", "[").is_err());
        assert!(Document::parse(b"").is_err());
        assert!(Document::parse(&vec![b' '; TEXT_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn the_profile_gives_a_proxy_farm_its_weight() {
        let farm = vec![net("192.0.2.0/24"), net("198.51.100.0/24")];
        let identities = identities(vec![NetworkGroup { name: "farm".into(), networks: farm }]);
        let counts = [("192.0.2.0/24", 60.0), ("198.51.100.0/24", 30.0), ("203.0.113.0/24", 10.0)];
        let counts = counts.map(|(text, count)| (net(text), count));
        let document = Document::new(1, 0, counts.into(), Remainder { subnets: 9, requests: 10.0 });
        // 110 requests of 11 subnets, counting the farm as one: the average is 10, and the farm has nine times that.
        let mut fair = Fair::new(weir_core::fair::Settings::default(), document.profile(&identities));
        let farm = identities.subnet("198.51.100.7".parse().unwrap());
        let weight = |fair: &mut Fair, session| {
            fair.arrive(SessionKey(session), farm, Work(1)).unwrap();
            fair.weight(farm).unwrap().ratio()
        };
        (1..=9).for_each(|session| assert_eq!(weight(&mut fair, session), 1.0));
        assert!((weight(&mut fair, 10) - 0.9).abs() < 1e-6);
    }

    #[test]
    fn the_smallest_are_left_out() {
        let counts = (0..SUBNETS_MAX as u32 + 5).map(|i| {
            let address = std::net::Ipv4Addr::from_bits(i << 8);
            (Network::new(address.into(), 24), f64::from(i + 1))
        });
        let document = Document::new(1, 0, counts.collect(), Remainder::default());
        assert_eq!((document.subnets.len(), document.seen), (SUBNETS_MAX, SUBNETS_MAX as u64 + 5));
        assert_eq!(document.subnets.values().copied().fold(f64::MAX, f64::min), 6.0);
    }
}
