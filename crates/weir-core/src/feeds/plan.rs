//! A plan: the limits, the strategy, and who may take what under it.
//!
//! The rules of choice are written only here; [`super::Dispatch`] and [`super::evaluate`] both ask this file.

use super::Limits;
use crate::mutant::{Mutant, planted};
use core::ops::{Range, RangeInclusive};
use core::time::Duration;

/// How a message finds its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By size alone: class k waits for feed k (the paper's section III).
    Size,
    /// By size and load: the feed among k … N−1 that will be empty first; among equals, the first one (section IV).
    SizeLoad,
    /// One waiting line in order of size; a free worker takes the smallest message within its limit (ours).
    Shortest,
}

/// How much of the limits is in force: each variant reserves more workers for smaller mail than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InForce {
    /// Every worker takes every size.
    Nothing,
    /// The workers of this many feeds, from the first on, take nothing above the largest limit, and all others take every
    /// size: there is always a worker for small mail, and large mail has all the others.
    Kept(usize),
    /// Every feed keeps to its limit.
    All,
}

/// Limits with a strategy and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The feeds' limits.
    pub limits: Limits,
    /// How a message finds its worker.
    pub strategy: Strategy,
    /// Whether feed N, when it has nothing larger to do, also takes smaller mail (`SizeLoad` and `Shortest`). In the
    /// paper it does not; letting it in adds a server, so the figures of both cannot be compared.
    pub last_feed_helps: bool,
    /// `Shortest`: a message that has waited this long goes before all smaller ones. `Duration::MAX`: never.
    pub age_bound: Duration,
    /// Whether limits are in force only as far as they save waiting ([`super::Opening`]).
    pub opens: bool,
}

impl Plan {
    /// How long a message may be passed over unless the plan says otherwise.
    pub const AGE_BOUND: Duration = Duration::from_secs(60);

    /// A plan by the paper's rules: the last feed is reserved for the largest messages, and limits hold whatever they cost. The
    /// usual age bound.
    pub fn new(limits: Limits, strategy: Strategy) -> Plan {
        Plan { limits, strategy, last_feed_helps: false, age_bound: Plan::AGE_BOUND, opens: false }
    }

    /// A plan as the gate runs it: the last feed takes every size, and limits hold only while they save waiting.
    pub fn live(limits: Limits, strategy: Strategy) -> Plan {
        Plan { last_feed_helps: true, opens: true, ..Plan::new(limits, strategy) }
    }

    /// The feeds that may take a message of this class.
    pub fn feeds_for(&self, class: usize) -> Range<usize> {
        let last = self.limits.feeds() - 1;
        let class = class.min(last);
        let end = if self.last_feed_helps { last + 1 } else { last };
        match self.strategy {
            _ if class == last => last..last + 1,
            Strategy::Size => class..class + 1,
            Strategy::SizeLoad | Strategy::Shortest => class..end,
        }
    }

    /// The classes that a worker of this feed may take from the common line (`Shortest`).
    pub fn classes_for(&self, feed: usize) -> RangeInclusive<usize> {
        let last = self.limits.feeds() - 1;
        let kept = feed >= last && !self.last_feed_helps;
        if kept { last..=last } else { 0..=feed.min(last) }
    }

    /// The feeds that may take a message of this class, with so much of the limits in force.
    pub(super) fn feeds_now(&self, class: usize, in_force: InForce) -> Range<usize> {
        let feeds = self.limits.feeds();
        match in_force {
            InForce::All => self.feeds_for(class),
            InForce::Kept(kept) if self.is_largest(class) => kept.min(feeds - 1)..feeds,
            InForce::Kept(_) | InForce::Nothing => 0..feeds,
        }
    }

    /// The classes that a worker of this feed may take from the common line, with so much of the limits in force.
    pub(super) fn classes_now(&self, feed: usize, in_force: InForce) -> RangeInclusive<usize> {
        let last = self.limits.feeds() - 1;
        match in_force {
            InForce::All => self.classes_for(feed),
            InForce::Kept(kept) if feed < kept.min(last) && self.limits.largest_class() > 0 => {
                0..=self.limits.largest_class() - 1
            }
            InForce::Kept(_) | InForce::Nothing => 0..=last,
        }
    }

    /// Whether a class is above every limit that there is.
    fn is_largest(&self, class: usize) -> bool {
        let largest = self.limits.largest_class();
        largest > 0 && class >= largest
    }

    /// The rule of `SizeLoad`: the feed that is expected to be empty first; among equals, the first one.
    pub(super) fn least_loaded(rule: TieRule, feeds: Range<usize>, empty_at: impl Fn(usize) -> u64) -> usize {
        let mut best = feeds.start;
        let mut least = empty_at(best);
        for feed in feeds.skip(1) {
            let time = empty_at(feed);
            if time < least || (rule.to_highest && time == least) {
                (best, least) = (feed, time);
            }
        }
        best
    }
}

/// Whether the planted bug is in force; read once a run rather than once a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct TieRule {
    to_highest: bool,
}

impl TieRule {
    pub(super) fn read() -> TieRule {
        TieRule { to_highest: planted(Mutant::FeedsTiesToHighest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(strategy: Strategy) -> Plan {
        Plan::new(Limits::default_for(5, 250_000).unwrap(), strategy)
    }

    #[test]
    fn the_last_feed_is_kept_for_the_largest() {
        assert_eq!(plan(Strategy::Size).feeds_for(1), 1..2);
        assert_eq!(plan(Strategy::SizeLoad).feeds_for(1), 1..4);
        assert_eq!(plan(Strategy::SizeLoad).feeds_for(4), 4..5);
        assert_eq!(plan(Strategy::Shortest).classes_for(2), 0..=2);
        assert_eq!(plan(Strategy::Shortest).classes_for(4), 4..=4);
    }

    #[test]
    fn helping_is_an_option() {
        let helping = Plan { last_feed_helps: true, ..plan(Strategy::SizeLoad) };
        assert_eq!(helping.feeds_for(1), 1..5);
        assert_eq!(helping.classes_for(4), 0..=4);
    }
}
