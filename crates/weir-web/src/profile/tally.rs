//! Visits by subnet, counted from live traffic, and the history document kept current with them.
//!
//! Admission notes a request only while its backend is not saturated: an attack must not become history. A session counts once an hour, and
//! a subnet grows by no more than a day allows ([`weir_core::fair::visits`]). Counts grow old with a half-life, so the document follows the
//! traffic of the last weeks. Front-ends take turns: the next version is made by the one whose turn it is, from the document in use and
//! what it has counted itself since its last turn. What others have added since then counts towards what a subnet may grow, so it makes no
//! difference at how many front-ends it asks.
//!
//! Cost of a note: a shard's lock, tried once (a lost note among many does no harm), and one hash. Memory: [`SUBNETS_MAX`] subnets at most;
//! further ones are only counted together.

use super::document::{Document, Remainder, SUBNETS_MAX};
use crate::identity::Network;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_core::fair::visits::{Hour, allowance, hour_of};
use weir_core::fair::{SessionKey, SubnetKey};

/// What was counted since the last turn.
#[derive(Debug)]
pub struct Tally {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    subnets: HashMap<Network, Present>,
    /// Subnets beyond the limit, together.
    rest: f64,
    rest_hour: Hour<64>,
}

/// A subnet that was there lately.
#[derive(Debug, Default)]
struct Present {
    /// Visits since the last turn.
    visits: f64,
    hour: Hour<4>,
}

const SHARDS: usize = 16;

impl Default for Tally {
    fn default() -> Tally {
        Tally { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Tally {
    /// A request of a session came from `network` while nobody had to wait.
    pub fn note(&self, subnet: SubnetKey, session: SessionKey, network: Network, at: SystemTime) {
        let Some(shard) = self.shards.get(subnet.0 as usize % SHARDS) else { return };
        let Ok(mut shard) = shard.try_lock() else { return };
        let unix_s = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        shard.note(session, network, hour_of(i64::try_from(unix_s).unwrap_or(i64::MAX)));
    }

    /// Takes all counts. Visitors of this hour are remembered, so that they do not count a second time.
    pub fn take(&self) -> Counted {
        let mut all = Counted::default();
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).take_into(&mut all);
        }
        all
    }
}

impl Shard {
    fn note(&mut self, session: SessionKey, network: Network, hour: i64) {
        let known = self.subnets.contains_key(&network) || self.subnets.len() < SUBNETS_MAX / SHARDS;
        if known {
            let present = self.subnets.entry(network).or_default();
            present.visits += f64::from(u8::from(present.hour.is_visit(session.0, hour)));
        } else {
            self.rest += f64::from(u8::from(self.rest_hour.is_visit(session.0, hour)));
        }
    }

    fn take_into(&mut self, all: &mut Counted) {
        let latest = self.subnets.values().map(|present| present.hour.hour()).max();
        for (network, present) in &mut self.subnets {
            if present.visits > 0.0 {
                all.counts.insert(*network, std::mem::take(&mut present.visits));
            }
        }
        self.subnets.retain(|_, present| Some(present.hour.hour()) == latest);
        all.rest += std::mem::take(&mut self.rest);
    }
}

/// Since when counts were gathered, and the document in use at that time.
#[derive(Clone, Debug, Default)]
pub struct Since {
    pub unix_s: u64,
    /// None if there was none, or if it is the one that is continued.
    pub document: Option<Arc<Document>>,
}

/// Counts taken out of a tally.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    counts: HashMap<Network, f64>,
    rest: f64,
}

impl Counted {
    /// Adds other counts to these; used when a new version was not accepted.
    pub fn add(&mut self, other: Counted) {
        for (network, count) in other.counts {
            *self.counts.entry(network).or_default() += count;
        }
        self.rest += other.rest;
        if self.counts.len() > SUBNETS_MAX {
            self.counts.retain(|_, count| *count > 1.0);
        }
    }

    /// The next version: the counts of `old`, aged, and these counts, as far as a subnet may grow since they were begun.
    pub fn next_document(
        &self,
        old: Option<&Document>,
        since: &Since,
        now_unix_s: u64,
        half_life: Duration,
    ) -> Document {
        let mut counts = self.grown(old, since, now_unix_s);
        let Some(old) = old else {
            return Document::new(1, now_unix_s, counts, self.remainder());
        };
        let age_s = now_unix_s.saturating_sub(old.made_unix_s) as f64;
        let kept = (-age_s / half_life.as_secs_f64().max(1.0)).exp2();
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

    /// The counts, none larger than what its subnet may still add: what it may grow by in this time, without what others have added meanwhile.
    fn grown(&self, old: Option<&Document>, since: &Since, now_unix_s: u64) -> HashMap<Network, f64> {
        let days = now_unix_s.saturating_sub(since.unix_s) as f64 / 86_400.0;
        let visits = |document: Option<&Document>, network: &Network| {
            document.and_then(|document| document.subnets.get(network)).copied().unwrap_or(0.0)
        };
        let grown = |network: &Network, count: f64| {
            let before = visits(since.document.as_deref().or(old), network);
            let by_others = (visits(old, network) - before).max(0.0);
            count.min((allowance(before, days) - by_others).max(0.0))
        };
        self.counts.iter().map(|(network, count)| (*network, grown(network, *count))).collect()
    }

    fn remainder(&self) -> Remainder {
        Remainder { subnets: 0, requests: self.rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const HALF_LIFE: Duration = Duration::from_secs(100 * DAY);

    fn since(unix_s: u64) -> Since {
        Since { unix_s, document: None }
    }

    fn net(text: &str) -> Network {
        text.parse().unwrap()
    }

    /// This many sessions of a subnet make this many requests in each of these hours.
    fn visit(tally: &Tally, text: &str, sessions: u64, hours: std::ops::Range<u64>) {
        for (hour, session, _) in
            hours.flat_map(|hour| (0..sessions).flat_map(move |s| (0..3).map(move |n| (hour, s, n))))
        {
            let at = UNIX_EPOCH + Duration::from_secs(hour * 3_600 + 60);
            tally.note(SubnetKey(7), SessionKey(session), net(text), at);
        }
    }

    #[test]
    fn visits_become_history_and_history_grows_old() {
        let tally = Tally::default();
        visit(&tally, "192.0.2.0/24", 3, 0..10);
        visit(&tally, "198.51.100.0/24", 1, 0..10);
        let first = tally.take().next_document(None, &since(0), 10 * DAY, HALF_LIFE);
        assert_eq!((first.version, first.average, first.seen), (1, 20.0, 2));
        assert_eq!(first.subnets[&net("192.0.2.0/24")], 30.0, "requests do not count, visits do");
        assert_eq!(tally.take().counts.len(), 0, "all were taken out");
        visit(&tally, "192.0.2.0/24", 1, 240..241);
        let second = tally.take().next_document(Some(&first), &since(10 * DAY), 110 * DAY, HALF_LIFE);
        assert_eq!(second.version, 2);
        assert_eq!(second.subnets[&net("192.0.2.0/24")], 16.0);
        assert_eq!(second.subnets[&net("198.51.100.0/24")], 5.0);
        let late = Counted::default().next_document(Some(&second), &since(110 * DAY), 10_000 * DAY, HALF_LIFE);
        assert_eq!(late.subnets.len(), 0);
        assert!(Document::parse(late.text().as_bytes()).is_ok());
    }

    #[test]
    fn nobody_counts_twice_in_an_hour_however_often_counts_are_taken() {
        let tally = Tally::default();
        let mut all = Counted::default();
        for _ in 0..50 {
            visit(&tally, "192.0.2.0/24", 2, 5..6);
            all.add(tally.take());
        }
        assert_eq!(all.counts[&net("192.0.2.0/24")], 2.0);
    }

    /// One subnet asks with hundreds of cookies in a quiet minute; twenty others have one visitor each.
    #[test]
    fn a_history_cannot_be_bought_in_a_minute() {
        let (tally, attacker) = (Tally::default(), net("192.0.2.0/24"));
        visit(&tally, "192.0.2.0/24", 400, 0..1);
        for number in 0..20 {
            visit(&tally, &format!("10.0.{number}.0/24"), 1, 0..1);
        }
        let counted = tally.take();
        let mut document = counted.next_document(None, &since(0), 3_600, HALF_LIFE);
        assert!(document.subnets[&attacker] / document.average < 1.01, "{document:?}");
        // This goes on for days: its history at most doubles each day.
        let mut before = document.subnets[&attacker];
        for day in 1..6 {
            let now = 3_600 + day * DAY;
            let greedy = Counted { counts: HashMap::from([(attacker, 1e6)]), rest: 0.0 };
            document = greedy.next_document(Some(&document), &since(now - DAY), now, HALF_LIFE);
            let after = document.subnets[&attacker];
            assert!(after <= 2.0 * before.max(24.0), "{before} became {after}");
            before = after;
        }
    }

    /// Four front-ends take turns of a day each. A subnet that always asks at the same one loses nothing by it, and one that asks everywhere gains nothing.
    #[test]
    fn a_turn_counts_for_all_the_time_since_the_last_one() {
        let (faithful, everywhere) = (net("192.0.2.0/24"), net("198.51.100.0/24"));
        let first = Document::new(1, 0, HashMap::from([(faithful, 24.0), (everywhere, 24.0)]), Remainder::default());
        let mut in_use = Arc::new(first);
        let mut since: Vec<Since> = vec![Since { unix_s: 0, document: Some(Arc::clone(&in_use)) }; 4];
        for day in 1..=16 {
            let (maker, now) = (day as usize % 4, day * DAY);
            let mut counts = HashMap::from([(everywhere, 1e6)]);
            if maker == 0 {
                counts.insert(faithful, 4.0 * 24.0);
            }
            let counted = Counted { counts, rest: 0.0 };
            let before = since[maker].document.as_ref().map_or(0.0, |document| document.subnets[&everywhere]);
            let old = in_use.subnets[&faithful];
            in_use = Arc::new(counted.next_document(Some(&in_use), &since[maker], now, Duration::from_secs(1 << 40)));
            let days = (now - since[maker].unix_s) as f64 / DAY as f64;
            since[maker] = Since { unix_s: now, document: Some(Arc::clone(&in_use)) };
            let grown = in_use.subnets[&everywhere] - before;
            assert!(
                grown <= allowance(before, days) * 1.001,
                "on day {day}: {grown} in {days} days on top of {before}"
            );
            if maker == 0 {
                assert!(
                    in_use.subnets[&faithful] - old > 95.9,
                    "on day {day}: {} became {}",
                    old,
                    in_use.subnets[&faithful]
                );
            }
        }
    }

    #[test]
    fn a_flood_of_subnets_is_bounded() {
        let tally = Tally::default();
        for i in 0..SUBNETS_MAX as u32 * 2 {
            let network = Network::new(std::net::Ipv4Addr::from_bits(i << 8).into(), 24);
            tally.note(SubnetKey(u64::from(i)), SessionKey(u64::from(i)), network, UNIX_EPOCH);
        }
        let counted = tally.take();
        assert_eq!(counted.counts.len(), SUBNETS_MAX);
        assert!(counted.rest > 4_000.0, "the others count together: {}", counted.rest);
        let document = counted.next_document(None, &since(0), DAY, Duration::from_secs(1));
        assert!(document.text().len() < crate::profile::TEXT_BYTES_MAX);
    }
}
