//! The throttle's slack for a crowd of unknown senders: one credit for each key, in bounded memory.
//!
//! Each key has slack up to a maximum; a message spends some, and a period without messages gives one back. A sender with no slack left is
//! told how long to wait. Nothing is queued: the sender keeps its mail and tries again later.
//!
//! A key with full slack is not remembered, because every new key has that. So only keys that have spent slack take a place, until they
//! have got it back, and no key is ever removed to make room: a flood of new keys cannot make the table forget what an old one spent. If
//! all places are taken, newcomers share one slack between them.
//!
//! Cost: the logarithm of the number of keys. Memory: [`CrowdParams::places`] entries.

use crate::mutant::{Mutant, planted};
use crate::time::Instant;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// The slack that every key has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrowdParams {
    /// Slack of one key at most.
    pub max_slack: u32,
    /// How long it takes to get one back.
    pub period: Duration,
    /// Keys that are remembered.
    pub places: usize,
}

/// The slack of a crowd, by key.
#[derive(Clone, Debug)]
pub struct Crowd {
    params: CrowdParams,
    /// When each key that has spent slack will have full slack again.
    whole_at: BTreeMap<u64, Instant>,
    /// The same, the earliest first.
    order: BTreeSet<(Instant, u64)>,
    /// The slack shared by the keys for which there is no place.
    newcomers: Instant,
}

impl Crowd {
    /// Every key has full slack.
    pub fn new(params: CrowdParams) -> Crowd {
        Crowd { params, whole_at: BTreeMap::new(), order: BTreeSet::new(), newcomers: Instant::ZERO }
    }

    /// How long a key has to wait until it can spend this much; zero if it can now. A cost above the maximum counts as the maximum.
    pub fn wait(&mut self, key: u64, cost: u32, now: Instant) -> Duration {
        self.forget_whole(now);
        self.after(key, cost, now).since(now + self.whole())
    }

    /// Spends slack of a key, or says how long it has to wait. A refusal costs nothing.
    pub fn spend(&mut self, key: u64, cost: u32, now: Instant) -> Result<(), Duration> {
        let wait = self.wait(key, cost, now);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        let after = self.after(key, cost, now);
        let known = self.whole_at.get(&key).copied();
        if known.is_none() && !self.has_room() {
            self.newcomers = after;
            return Ok(());
        }
        if let Some(before) = known {
            self.order.remove(&(before, key));
        }
        self.whole_at.insert(key, after);
        self.order.insert((after, key));
        Ok(())
    }

    /// Keys that are remembered.
    pub fn len(&self) -> usize {
        self.whole_at.len()
    }

    /// Whether every key has full slack.
    pub fn is_empty(&self) -> bool {
        self.whole_at.is_empty()
    }

    /// When the slack of a key would be complete again if it spent this much now.
    fn after(&self, key: u64, cost: u32, now: Instant) -> Instant {
        let before = match self.whole_at.get(&key) {
            Some(known) => *known,
            None if self.has_room() => now,
            None => self.newcomers,
        };
        before.max(now) + self.params.period.saturating_mul(cost.min(self.params.max_slack))
    }

    /// How long it takes until all slack is back.
    fn whole(&self) -> Duration {
        self.params.period.saturating_mul(self.params.max_slack)
    }

    fn has_room(&self) -> bool {
        self.whole_at.len() < self.params.places
    }

    /// Forgets keys with full slack: a new key has that too.
    fn forget_whole(&mut self, now: Instant) {
        if planted(Mutant::CrowdForgetsTheOldest) && !self.has_room() {
            self.forget_first();
        }
        while self.order.first().is_some_and(|(at, _)| *at <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.whole_at.remove(&key);
        }
    }
}
