//! Requests by subnet, counted from live traffic, and the history document kept current with them.
//!
//! Admission notes a request only while its backend is not saturated: an attack must not become history. Counts grow old with a
//! half-life, so the document follows the traffic of the last weeks. Front-ends take turns: the next version is made by the one whose
//! turn it is, from the document in use and what it has counted itself since its last turn.
//!
//! Cost of a note: a shard's lock, tried once (a lost note among many does no harm), and one hash. Memory: [`SUBNETS_MAX`] subnets at most;
//! further ones are only counted together.

use super::document::{Document, Remainder, SUBNETS_MAX};
use crate::identity::Network;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_core::fair::SubnetKey;

/// What was counted since the last turn.
#[derive(Debug)]
pub struct Tally {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    counts: HashMap<Network, f64>,
    /// Requests of subnets past the bound.
    rest: f64,
}

const SHARDS: usize = 16;

impl Default for Tally {
    fn default() -> Tally {
        Tally { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Tally {
    /// A request came from `network` while nobody had to wait.
    pub fn note(&self, subnet: SubnetKey, network: Network) {
        let Some(shard) = self.shards.get(subnet.0 as usize % SHARDS) else { return };
        let Ok(mut shard) = shard.try_lock() else { return };
        shard.note(network);
    }

    /// Takes all counts out.
    pub fn take(&self) -> Counted {
        let mut all = Counted::default();
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            all.counts.extend(shard.counts);
            all.rest += shard.rest;
        }
        all
    }
}

impl Shard {
    fn note(&mut self, network: Network) {
        if let Some(count) = self.counts.get_mut(&network) {
            *count += 1.0;
        } else if self.counts.len() < SUBNETS_MAX / SHARDS {
            self.counts.insert(network, 1.0);
        } else {
            self.rest += 1.0;
        }
    }
}

/// Counts taken out of a tally.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    counts: HashMap<Network, f64>,
    rest: f64,
}

impl Counted {
    /// Puts other counts to these; used when a turn was in vain.
    pub fn add(&mut self, other: Counted) {
        for (network, count) in other.counts {
            *self.counts.entry(network).or_default() += count;
        }
        self.rest += other.rest;
        if self.counts.len() > SUBNETS_MAX {
            self.counts.retain(|_, count| *count > 1.0);
        }
    }

    /// The next version: what `old` says, aged, and these counts.
    pub fn next_document(&self, old: Option<&Document>, now_unix_s: u64, half_life: Duration) -> Document {
        let Some(old) = old else {
            return Document::new(1, now_unix_s, self.counts.clone(), self.remainder());
        };
        let age_s = now_unix_s.saturating_sub(old.made_unix_s) as f64;
        let kept = (-age_s / half_life.as_secs_f64().max(1.0)).exp2();
        let mut counts = self.counts.clone();
        for (network, count) in &old.subnets {
            *counts.entry(*network).or_default() += count * kept;
        }
        // Less than a thousandth of a request is forgotten.
        counts.retain(|_, count| *count >= 1e-3);
        let named: f64 = old.subnets.values().sum();
        let unnamed = (old.average * old.seen as f64 - named).max(0.0) * kept;
        let rest = Remainder {
            subnets: ((old.seen - old.subnets.len() as u64) as f64 * kept) as u64,
            requests: unnamed + self.rest,
        };
        Document::new(old.version.saturating_add(1), now_unix_s.max(old.made_unix_s), counts, rest)
    }

    fn remainder(&self) -> Remainder {
        Remainder { subnets: 0, requests: self.rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn counts_become_history_and_history_grows_old() {
        let tally = Tally::default();
        for (text, count) in [("192.0.2.0/24", 30), ("198.51.100.0/24", 10)] {
            (0..count).for_each(|_| tally.note(SubnetKey(count), net(text)));
        }
        let first = tally.take().next_document(None, 1000, Duration::from_secs(100));
        assert_eq!((first.version, first.average, first.seen), (1, 20.0, 2));
        assert_eq!(tally.take().counts.len(), 0, "all were taken out");
        tally.note(SubnetKey(1), net("192.0.2.0/24"));
        let second = tally.take().next_document(Some(&first), 1100, Duration::from_secs(100));
        assert_eq!(second.version, 2);
        assert_eq!(second.subnets[&net("192.0.2.0/24")], 16.0);
        assert_eq!(second.subnets[&net("198.51.100.0/24")], 5.0);
        let late = Counted::default().next_document(Some(&second), 1_000_000, Duration::from_secs(100));
        assert_eq!(late.subnets.len(), 0);
        assert!(Document::parse(late.text().as_bytes()).is_ok());
    }

    #[test]
    fn a_flood_of_subnets_is_bounded() {
        let tally = Tally::default();
        for i in 0..SUBNETS_MAX as u32 * 2 {
            tally.note(SubnetKey(u64::from(i)), Network::new(std::net::Ipv4Addr::from_bits(i << 8).into(), 24));
        }
        let counted = tally.take();
        assert_eq!(counted.counts.values().sum::<f64>() + counted.rest, SUBNETS_MAX as f64 * 2.0, "each is counted");
        assert_eq!(counted.counts.len(), SUBNETS_MAX);
        let document = counted.next_document(None, 0, Duration::from_secs(1));
        assert!(document.text().len() < crate::profile::TEXT_BYTES_MAX);
    }
}
