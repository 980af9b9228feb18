//! A lane is the throttle for one class of recipients, or for networks: it has its own slack, its own delay queue that drains, and its own
//! threshold for stopping the user.
//!
//! It is the paper's idea with two changes. Slack comes back at a rate of its own, slower than the queue drains, so there can be much of
//! it, and a worm that goes on for hours still gets it only once. And a recipient who was reached lately costs nothing, not even in a mail
//! to several, because mail to them reaches nobody new.
//!
//! The invariant is the paper's: slack comes back only while nothing waits. Cost: a search of at most 64 short keys for each recipient.

use super::delay_queue::{DelayQueue, Entry};
use super::periods::PeriodClock;
use super::{EntryId, Held, LaneParams};
use crate::time::Instant;
use alloc::vec::Vec;
use core::time::Duration;

/// One lane of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lane {
    drain: PeriodClock,
    refill: PeriodClock,
    slack: u32,
    /// Keys that were let through lately; the next to be forgotten comes first.
    recent: Vec<u32>,
    pub(super) queue: DelayQueue,
}

/// A lane as plain data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedLane {
    /// When the current period of the drain ends.
    pub drain_end: Instant,
    /// When the current period of the slack ends.
    pub refill_end: Instant,
    /// Slack left.
    pub slack: u32,
    /// Keys that were let through lately; the next to be forgotten comes first.
    pub recent: Vec<u32>,
    /// What waits, in order.
    pub queue: Vec<Entry>,
}

impl Lane {
    pub(super) fn new(params: &LaneParams, now: Instant) -> Lane {
        Lane {
            drain: PeriodClock::new(params.drain_period, now, Instant::NEVER),
            refill: PeriodClock::new(params.rate_period, now, Instant::NEVER),
            slack: params.slack,
            recent: Vec::new(),
            queue: DelayQueue::default(),
        }
    }

    /// Restores a saved lane; anything beyond the present parameters is cut.
    pub(super) fn restore(params: &LaneParams, now: Instant, saved: SavedLane) -> Lane {
        let mut lane = Lane { queue: DelayQueue::restore(saved.queue), ..Lane::new(params, now) };
        lane.set_params(params, now, (saved.drain_end, saved.refill_end), saved.slack);
        let surplus = saved.recent.len().saturating_sub(params.remembered);
        lane.recent = saved.recent.get(surplus..).unwrap_or_default().to_vec();
        lane
    }

    pub(super) fn reparameterise(&mut self, params: &LaneParams, now: Instant) {
        self.set_params(params, now, (self.drain.end, self.refill.end), self.slack);
        let surplus = self.recent.len().saturating_sub(params.remembered);
        self.recent.drain(..surplus);
    }

    fn set_params(&mut self, params: &LaneParams, now: Instant, ends: (Instant, Instant), slack: u32) {
        self.drain = PeriodClock::new(params.drain_period, now, ends.0);
        self.refill = PeriodClock::new(params.rate_period, now, ends.1);
        self.slack = slack.min(params.slack);
    }

    pub(super) fn save(&self) -> SavedLane {
        SavedLane {
            drain_end: self.drain.end,
            refill_end: self.refill.end,
            slack: self.slack,
            recent: self.recent.clone(),
            queue: self.queue.iter().copied().collect(),
        }
    }

    /// Whether `key` may pass: it did lately, or there is slack, which it then takes.
    pub(super) fn passes(&mut self, key: u32, params: &LaneParams) -> bool {
        if !self.recent.contains(&key) {
            let Some(rest) = self.slack.checked_sub(1) else { return false };
            self.slack = rest;
        }
        self.remember(key, params);
        true
    }

    /// `key` was let through.
    pub(super) fn remember(&mut self, key: u32, params: &LaneParams) {
        self.recent.retain(|known| *known != key);
        self.recent.push(key);
        let surplus = self.recent.len().saturating_sub(params.remembered);
        self.recent.drain(..surplus);
    }

    /// The next entry that falls due until `now`, with its time. The caller remembers it.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Entry, Instant)> {
        let at = self.drain.end;
        if self.queue.is_empty() || at > now {
            return None;
        }
        self.drain.pass(at);
        // Something has waited until now, so these periods grant no slack.
        self.refill.pass(at);
        Some((self.queue.pop()?, at))
    }

    /// Ends all periods up to `now`, after everything due has left. They grant slack unless something waits or the user is
    /// stopped.
    pub(super) fn pass(&mut self, now: Instant, params: &LaneParams, stopped: bool) {
        self.drain.pass(now);
        let periods = self.refill.pass(now);
        if self.queue.is_empty() && !stopped {
            self.slack = super::grown(self.slack, periods, params.slack);
        }
    }

    /// The line's current period ends at `now`, and the next ones count from there.
    pub(super) fn end_period(&mut self, now: Instant) {
        self.drain.end = now;
    }

    /// Moves all times back by this much.
    pub(super) fn earlier(&mut self, by: Duration) {
        self.drain.earlier(by);
        self.refill.earlier(by);
    }

    /// When the head of the line goes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then_some(self.drain.end)
    }

    /// What waits, from place `first` on, with the time at which it will go.
    pub(super) fn held_from(&self, first: usize) -> impl Iterator<Item = Held> {
        let time = |(place, entry): (usize, &Entry)| Held { entry: entry.id, expected_at: Some(self.drain.nth(place)) };
        self.queue.iter().enumerate().map(time).skip(first)
    }

    pub(super) fn last_id(&self) -> Option<EntryId> {
        self.queue.last().map(|entry| entry.id)
    }

    pub(super) fn slack(&self) -> u32 {
        self.slack
    }

    pub(super) fn remembered(&self) -> usize {
        self.recent.len()
    }
}

/// A key shortened to 32 bits, because many are stored. The shell has hashed it with a secret, so nobody can choose two that collide.
pub(super) fn short(key: super::RecipientKey) -> u32 {
    key.0 as u32
}
