//! Summarises many runs.

use super::invariants::Invariant;
use super::{Options, RunOutcome};
use crate::world::FaultKind;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of `weir sim election`.
#[derive(Debug, Clone, Serialize)]
pub struct ElectionReport {
    /// Machines in the lab.
    pub nodes: usize,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub runs: u64,
    /// The set of faults.
    pub faults: String,
    /// Steps of the virtual world.
    pub steps: u64,
    /// Times that a node became a candidate with a broadcast request.
    pub candidacies: u64,
    /// Times that an elected node got the lease and acted.
    pub elections: u64,
    /// Epochs in which somebody acted, per run.
    pub epochs_per_run: f64,
    /// Messages sent, by kind; a broadcast counts once a receiver.
    pub messages: BTreeMap<&'static str, u64>,
    /// Request, confirm, victory, abort, ACK and resignation messages an election.
    pub messages_per_election: f64,
    /// From switching on to the first acting leader.
    pub first_leader_s: Spread,
    /// From the moment that the leader stopped acting or running to the next acting leader.
    pub fail_over_s: Spread,
    /// From the last fault to the best node acting and all others following it.
    pub recovery_s: Spread,
    /// What recovery may take.
    pub recovery_bound_s: f64,
    /// Assigned work.
    pub work: Work,
    /// False messages that were injected and refused.
    pub forged: u64,
    /// Faults by kind.
    pub faults_injected: BTreeMap<&'static str, u64>,
    /// The invariants and how often each was checked.
    pub invariants: Vec<InvariantCount>,
    /// Runs that broke one.
    pub broken_runs: u64,
    /// The first of them.
    pub broken: Vec<BrokenRun>,
}

/// Work of the acting leaders.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Work {
    /// Taken by the database.
    pub committed: u64,
    /// Started by a dispatcher.
    pub started: u64,
    /// Refused by a dispatcher, because it knew a higher epoch.
    pub refused_as_stale: u64,
}

/// A distribution in short.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// Values.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub max: f64,
}

/// One invariant.
#[derive(Debug, Clone, Serialize)]
pub struct InvariantCount {
    /// What it demands.
    pub name: &'static str,
    /// How often it was looked at.
    pub checked: u64,
    /// In how many runs it broke.
    pub broken: u64,
}

/// One run that broke an invariant.
#[derive(Debug, Clone, Serialize)]
pub struct BrokenRun {
    /// The seed of the run.
    pub seed: u64,
    /// When, in virtual seconds.
    pub at_s: f64,
    /// Which invariant.
    pub invariant: &'static str,
    /// How.
    pub detail: String,
    /// The command that runs it again.
    pub replay: String,
    /// The last steps before it.
    pub history: Vec<String>,
}

/// How many broken runs are described.
const DESCRIBED_MAX: usize = 3;

impl ElectionReport {
    pub(super) fn new(options: &Options, outcomes: &[RunOutcome]) -> ElectionReport {
        let sum = |count: fn(&RunOutcome) -> u64| outcomes.iter().map(count).sum::<u64>();
        let elections = sum(|o| o.tally.elections);
        let messages = messages(outcomes);
        let for_elections: u64 =
            messages.iter().filter(|(name, _)| !matches!(**name, "leader_alive" | "present")).map(|(_, n)| n).sum();
        ElectionReport {
            nodes: options.nodes,
            seed: options.seed,
            runs: options.runs,
            faults: options.faults.to_string(),
            steps: sum(|o| o.tally.steps),
            candidacies: sum(|o| o.tally.candidacies),
            elections,
            epochs_per_run: elections as f64 / outcomes.len().max(1) as f64,
            messages,
            messages_per_election: for_elections as f64 / elections.max(1) as f64,
            first_leader_s: Spread::of(outcomes.iter().filter_map(|o| o.tally.first_leader_s)),
            fail_over_s: Spread::of(outcomes.iter().flat_map(|o| o.tally.fail_overs_s.iter().copied())),
            recovery_s: Spread::of(outcomes.iter().filter_map(|o| o.tally.recovery_s)),
            recovery_bound_s: options.settings.settle_max().as_secs_f64(),
            work: Work {
                committed: sum(|o| o.tally.committed),
                started: sum(|o| o.tally.started),
                refused_as_stale: sum(|o| o.tally.fenced),
            },
            forged: sum(|o| o.tally.forged),
            faults_injected: faults(outcomes),
            invariants: Invariant::ALL.iter().map(|(invariant, _)| count(*invariant, outcomes)).collect(),
            broken_runs: sum(|o| u64::from(o.broken.is_some())),
            broken: outcomes.iter().filter_map(|o| describe(options, o)).take(DESCRIBED_MAX).collect(),
        }
    }
}

fn messages(outcomes: &[RunOutcome]) -> BTreeMap<&'static str, u64> {
    let mut messages = BTreeMap::new();
    for (name, count) in outcomes.iter().flat_map(|o| &o.tally.messages) {
        *messages.entry(*name).or_default() += count;
    }
    messages
}

fn faults(outcomes: &[RunOutcome]) -> BTreeMap<&'static str, u64> {
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (kind, count) in outcomes.iter().flat_map(|o| &o.tally.faults) {
        *faults.entry(FaultKind::name(*kind)).or_default() += count;
    }
    faults
}

fn count(invariant: Invariant, outcomes: &[RunOutcome]) -> InvariantCount {
    let checked = outcomes.iter().map(|o| o.checked[invariant as usize]).sum();
    let broke = |o: &&RunOutcome| o.broken.as_ref().is_some_and(|(broken, _)| broken.invariant == invariant);
    InvariantCount { name: invariant.name(), checked, broken: outcomes.iter().filter(broke).count() as u64 }
}

fn describe(options: &Options, outcome: &RunOutcome) -> Option<BrokenRun> {
    let (broken, history) = outcome.broken.as_ref()?;
    Some(BrokenRun {
        seed: outcome.seed,
        at_s: broken.at.as_secs_f64(),
        invariant: broken.invariant.name(),
        detail: broken.detail.clone(),
        replay: options.replay_command(outcome.seed),
        history: history.clone(),
    })
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1)));
        let value = |share| at(share).copied().unwrap_or(0.0);
        Spread { count: values.len(), p50: value(0.5), p95: value(0.95), max: value(1.0) }
    }
}
