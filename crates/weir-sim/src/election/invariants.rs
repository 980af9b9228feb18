//! Checks the invariants of the election at every step. The checker keeps its own record and trusts neither the nodes nor the database.

use std::collections::BTreeMap;
use weir_core::election::{Epoch, Round};
use weir_core::time::Instant;

/// A rule of `docs/algorithms/election.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    EpochsGrow,
    OneLeaderAnEpoch,
    OneActsAtATime,
    AssignmentOfHighestEpoch,
    NoWorkOfOlderEpoch,
    OnlyEligibleLead,
    AbortedIsNotElected,
    TrueLeaderStays,
    ForgedChangesNothing,
    ComesToRest,
    BestActsAfterHealing,
}

impl Invariant {
    pub(super) const ALL: [(Invariant, &'static str); 11] = [
        (Invariant::EpochsGrow, "epochs grow"),
        (Invariant::OneLeaderAnEpoch, "at most one acting leader an epoch"),
        (Invariant::OneActsAtATime, "at most one node may act at any time"),
        (Invariant::AssignmentOfHighestEpoch, "no assignment below the highest epoch at its commit"),
        (Invariant::NoWorkOfOlderEpoch, "a dispatcher never starts work of an older epoch"),
        (Invariant::OnlyEligibleLead, "only eligible nodes vote, stand and lead"),
        (Invariant::AbortedIsNotElected, "an aborted candidate is not elected in that round"),
        (Invariant::TrueLeaderStays, "a lower rank does not unseat an acting leader"),
        (Invariant::ForgedChangesNothing, "forged, replayed and unauthenticated messages change nothing"),
        (Invariant::ComesToRest, "every node waits for a later time when it has nothing to do"),
        (Invariant::BestActsAfterHealing, "after the last fault the best node acts in time"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(invariant, _)| *invariant == self).map_or("?", |(_, name)| name)
    }
}

/// A broken rule.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) invariant: Invariant,
    pub(super) at: Instant,
    pub(super) detail: String,
}

/// The checker's memory and how often it has looked.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    granted: BTreeMap<u64, u64>,
    /// The highest epoch of which each machine has taken work or news.
    seen: BTreeMap<usize, u64>,
    aborted: BTreeMap<usize, Round>,
    checked: [u64; Invariant::ALL.len()],
}

impl Invariants {
    /// Looks at one rule.
    pub(super) fn demand(
        &mut self,
        invariant: Invariant,
        at: Instant,
        holds: bool,
        detail: impl FnOnce() -> String,
    ) -> Result<(), Broken> {
        self.checked[invariant as usize] += 1;
        if holds { Ok(()) } else { Err(Broken { invariant, at, detail: detail() }) }
    }

    pub(super) fn checked(&self) -> [u64; Invariant::ALL.len()] {
        self.checked
    }

    /// The database gave `epoch` to `holder`.
    pub(super) fn granted(&mut self, at: Instant, epoch: u64, holder: u64) -> Result<(), Broken> {
        let highest = self.highest();
        self.granted.insert(epoch, holder);
        self.demand(Invariant::EpochsGrow, at, epoch > highest, || format!("epoch {epoch} was given after {highest}"))
    }

    /// `holder` acts in `epoch`.
    pub(super) fn acts(&mut self, at: Instant, epoch: Epoch, holder: u64) -> Result<(), Broken> {
        let owner = self.granted.get(&epoch.0).copied();
        self.demand(Invariant::OneLeaderAnEpoch, at, owner == Some(holder), || {
            format!(
                "{} acts in epoch {}, which was given to {}",
                named(holder),
                epoch.0,
                owner.map_or("nobody".into(), named)
            )
        })
    }

    /// The database took an assignment.
    pub(super) fn committed(&mut self, at: Instant, epoch: Epoch) -> Result<(), Broken> {
        let highest = self.highest();
        self.demand(Invariant::AssignmentOfHighestEpoch, at, epoch.0 >= highest, || {
            format!("an assignment of epoch {} was committed in epoch {highest}", epoch.0)
        })
    }

    /// Machine `host` knows of `epoch`.
    pub(super) fn knows(&mut self, host: usize, epoch: Epoch) {
        let seen = self.seen.entry(host).or_default();
        *seen = epoch.0.max(*seen);
    }

    /// Machine `host` starts work of `epoch`.
    pub(super) fn started(&mut self, at: Instant, host: usize, epoch: Epoch) -> Result<(), Broken> {
        let seen = self.seen.get(&host).copied().unwrap_or(0);
        self.knows(host, epoch);
        self.demand(Invariant::NoWorkOfOlderEpoch, at, epoch.0 >= seen, || {
            format!("node {host} started work of epoch {} after it knew of epoch {seen}", epoch.0)
        })
    }

    /// Machine `host` has lost its memory.
    pub(super) fn new_life(&mut self, host: usize) {
        self.aborted.remove(&host);
    }

    /// The candidacy `round` of `host` was validly aborted.
    pub(super) fn aborted(&mut self, host: usize, round: Round) {
        self.aborted.insert(host, round);
    }

    /// `host` is elected by candidacy `round`.
    pub(super) fn elected(&mut self, at: Instant, host: usize, round: Round) -> Result<(), Broken> {
        let holds = self.aborted.get(&host) != Some(&round);
        self.demand(Invariant::AbortedIsNotElected, at, holds, || {
            format!("node {host} is elected by its candidacy {}, which was aborted", round.number)
        })
    }

    fn highest(&self) -> u64 {
        self.granted.last_key_value().map_or(0, |(epoch, _)| *epoch)
    }
}

fn named(holder: u64) -> String {
    format!("node {} in its life {}", holder >> 32, holder & 0xffff_ffff)
}
