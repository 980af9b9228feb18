//! The lab's election under faults: many seeded runs of one virtual lab, every invariant checked at every
//! step, then everything heals and the best node must lead in time.
//!
//! One run: the machines start within 0.2 s, faults begin after 3 s and have all ended at 30 s; the acting
//! leader assigns work through the fenced database all the time. A seed replays its run exactly.

mod history;
mod intruder;
mod invariants;
mod lab;
mod node;
mod report;
mod shell;
mod statements;
mod tally;
mod timeline;
mod upsets;

pub use report::{BrokenRun, ElectionReport, InvariantCount, Spread, Work};
pub use timeline::plot;

use crate::input::InputError;
use crate::world::Faults;
use invariants::Broken;
use lab::ElectionLab;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tally::Tally;
use weir_core::election::{Epoch, Frame, LeaseAnswer, LeaseOrder, Settings};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Machines: a fifth of them external, a fifth dispatchers, the rest eligible.
    pub nodes: usize,
    /// The seed of the first run; each further run takes the next.
    pub seed: u64,
    /// How many runs.
    pub runs: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// The election's timers.
    pub settings: Settings,
}

/// The least and the most machines.
pub const NODES: std::ops::RangeInclusive<usize> = 2..=200;
/// The most runs.
pub const RUNS_MAX: u64 = 100_000;

impl Options {
    /// Refuses what cannot be simulated.
    pub fn check(&self) -> Result<(), InputError> {
        if !NODES.contains(&self.nodes) {
            let (low, high) = (NODES.start(), NODES.end());
            let hint = format!("give from {low} to {high} machines");
            return Err(InputError::new("--nodes", format!("{} machines are out of range", self.nodes), hint));
        }
        if !(1..=RUNS_MAX).contains(&self.runs) {
            let hint = format!("give from 1 to {RUNS_MAX} runs");
            return Err(InputError::new("--runs", format!("{} runs are out of range", self.runs), hint));
        }
        if self.seed.checked_add(self.runs).is_none() {
            let problem = format!("{} leaves no room for {} seeds", self.seed, self.runs);
            return Err(InputError::new("--seed", problem, "give a smaller seed"));
        }
        match self.settings.problems().first() {
            Some(problem) => {
                Err(InputError::new("election settings", problem.to_string(), "see docs/algorithms/election.md"))
            }
            None => Ok(()),
        }
    }

    /// The command that runs `seed` alone.
    pub fn replay_command(&self, seed: u64) -> String {
        format!("weir sim election --nodes {} --seed {seed} --faults {}", self.nodes, self.faults)
    }
}

/// Runs all seeds on all cores. `progress` is called with the number of finished runs, from any thread.
pub fn simulate(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Result<ElectionReport, InputError> {
    options.check()?;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= options.runs {
                return;
            }
            let outcome = run_seed(options, options.seed + run);
            outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(outcome);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(options.runs as usize);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    outcomes.sort_by_key(|outcome| outcome.seed);
    Ok(ElectionReport::new(options, &outcomes))
}

/// How one run ended.
#[derive(Debug)]
struct RunOutcome {
    seed: u64,
    tally: Tally,
    checked: [u64; invariants::Invariant::ALL.len()],
    broken: Option<(Broken, Vec<String>)>,
}

/// One run, in this thread. A broken one is run again with a record of its last steps.
fn run_seed(options: &Options, seed: u64) -> RunOutcome {
    let mut lab = ElectionLab::new(options, seed);
    let ended = lab.run();
    let broken = ended.err().map(|broken| (broken, explain(options, seed)));
    RunOutcome { seed, checked: lab.invariants.checked(), tally: lab.tally, broken }
}

fn explain(options: &Options, seed: u64) -> Vec<String> {
    let mut lab = ElectionLab::new(options, seed);
    lab.history = Some(std::collections::VecDeque::new());
    let _ = lab.run();
    lab.history.into_iter().flatten().collect()
}

/// What travels in the lab, and the experiment's notes to itself.
#[derive(Debug, Clone, Copy)]
enum Payload {
    /// A message between machines; an unauthentic one is what an intruder made.
    Frame { frame: Frame, authentic: bool },
    /// A lease statement.
    Order { order: LeaseOrder, holder: u64 },
    /// What came of it.
    Answer { order: LeaseOrder, answer: LeaseAnswer },
    /// A fenced assignment of work to a machine.
    Commit { epoch: Epoch, holder: u64, to: usize },
    /// It was taken.
    Committed { epoch: Epoch, to: usize },
    /// It found no live lease of that epoch.
    FencedOut { epoch: Epoch },
    /// The work itself, from the leader to the dispatcher.
    Assignment { epoch: Epoch },
    /// Note: this machine starts.
    Start(usize),
    /// Note: this fault begins.
    Begin(usize),
    /// Note: this fault ends.
    End(usize),
    /// Note: acting leaders assign work.
    Work,
    /// Note: has the lab settled?
    Look,
    /// Note: the intruder of this fault sends something.
    Intrude(usize),
}

#[cfg(test)]
mod tests;
