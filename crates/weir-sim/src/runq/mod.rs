//! A simulated lab around the scheduler: machines, VMs, samples and faults. Every step is checked.
//!
//! Each run draws a lab and its samples from a seed, lets things go wrong until the last sample has arrived, then
//! heals everything and demands that every sample ends. The invariants are checked from outside at every step,
//! by a witness that believes only what it saw itself. A failure carries the command that replays it.

mod faults;
mod lab;
mod report;
mod witness;
mod workload;

pub use faults::{Fault, Faults, NAMES as FAULT_NAMES};
pub use report::{Ends, Fairness, PriorityClasses, RunQueueReport, Series, SubmitterShare, Waits};
pub use workload::{PLUGIN_MEAN_S, REVERT_S};

use crate::input::InputError;
use report::RunTotals;
use std::time::Duration;

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Machines in the lab, 1–64, each with 1–4 VMs.
    pub machines: u32,
    /// Samples that arrive, 1–1 000 000.
    pub samples: u32,
    /// The seed of the first run; the next run has the next seed.
    pub seed: u64,
    /// What may go wrong.
    pub faults: Faults,
    /// How many runs.
    pub runs: u32,
    /// How much arrives, as a share of what the VMs could do.
    pub load: f64,
    /// Who hands samples in; the first of them hands in half of all.
    pub submitters: u32,
    /// Samples that a machine fetches ahead, a VM.
    pub waiting_per_vm: u32,
    /// Ageing: what one run queue less is worth in waiting.
    pub ageing: Option<Duration>,
}

impl Default for Experiment {
    fn default() -> Self {
        Experiment {
            machines: 8,
            samples: 1_000,
            seed: 1,
            faults: Faults::default(),
            runs: 1,
            load: 1.0,
            submitters: 5,
            waiting_per_vm: 2,
            ageing: None,
        }
    }
}

/// An invariant that did not hold, or progress that was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, {at_s:.3} s into the run: {what}\n  replay: {replay}", at_s = *at_ms as f64 / 1e3)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// When, in virtual milliseconds.
    pub at_ms: u64,
    /// What.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
}

/// How an experiment went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be simulated.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It was, and the scheduler failed.
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl Experiment {
    /// Runs it; `progress` hears how many runs are over.
    pub fn run(&self, mut progress: impl FnMut(u32)) -> Result<RunQueueReport, Error> {
        self.check()?;
        let mut tally = RunTotals::new(self);
        for run in 0..self.runs {
            let seed = self.seed.wrapping_add(u64::from(run));
            tally.add(&lab::simulate(self, seed, lab::Lanes::BySubmitter)?);
            if self.faults == Faults::default() {
                tally.add_fifo(&lab::simulate(self, seed, lab::Lanes::One)?);
            }
            progress(run + 1);
        }
        Ok(tally.report(self))
    }

    /// The command that runs the one run of `seed`.
    pub fn replay(&self, seed: u64) -> String {
        let ageing = self.ageing.map_or(String::new(), |step| format!(" --ageing {}ms", step.as_millis()));
        format!(
            "weir sim runq --machines {} --samples {} --seed {seed} --faults {} --load {} --submitters {} --waiting-per-vm {}{ageing}",
            self.machines, self.samples, self.faults, self.load, self.submitters, self.waiting_per_vm
        )
    }

    fn check(&self) -> Result<(), InputError> {
        let within = |name: &str, value: u32, max: u32| match value {
            v if (1..=max).contains(&v) => Ok(()),
            v => Err(InputError::new(name, format!("{v} is out of range"), format!("a number from 1 to {max}"))),
        };
        within("--machines", self.machines, 64)?;
        within("--samples", self.samples, 1_000_000)?;
        within("--runs", self.runs, 100_000)?;
        within("--submitters", self.submitters, 1_000)?;
        if u64::from(self.runs) * u64::from(self.samples) > 20_000_000 {
            let problem = format!("{} runs of {} samples are too many", self.runs, self.samples);
            return Err(InputError::new("--runs", problem, "at most 20 million samples in all"));
        }
        if !(self.load.is_finite() && (0.01..=10.0).contains(&self.load)) {
            return Err(InputError::new(
                "--load",
                format!("{} is out of range", self.load),
                "a number from 0.01 to 10",
            ));
        }
        if self.waiting_per_vm > 100 {
            let problem = format!("{} is out of range", self.waiting_per_vm);
            return Err(InputError::new("--waiting-per-vm", problem, "a number from 0 to 100"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::mutant::{Mutant, plant};

    fn faulty(seed: u64) -> Experiment {
        Experiment { faults: Faults::all(), samples: 150, machines: 3, seed, ..Experiment::default() }
    }

    #[test]
    fn every_fault_over_many_seeds() {
        for seed in 0..60 {
            let report = faulty(seed).run(|_| ()).unwrap();
            assert_eq!(
                report.ends.done + report.ends.quarantined + report.ends.unserviceable + report.ends.cancelled,
                150
            );
        }
    }

    #[test]
    fn each_fault_alone_and_with_ageing() {
        for (_, name) in FAULT_NAMES {
            let faults = Faults::parse(name).unwrap();
            let ageing = Some(Duration::from_secs(20));
            let experiment = Experiment { faults, samples: 200, ageing, waiting_per_vm: 1, ..Experiment::default() };
            experiment.run(|_| ()).unwrap();
        }
    }

    #[test]
    fn without_faults_everything_is_done_and_classes_wait_in_order() {
        let experiment = Experiment { samples: 2_000, load: 2.0, ..Experiment::default() };
        let report = experiment.run(|_| ()).unwrap();
        assert_eq!((report.ends.done, report.duplicates, report.expired), (2_000, 0, 0));
        let classes = &report.classes;
        assert!(classes.real_time.mean_wait_s < classes.normal.mean_wait_s / 4.0, "{classes:?}");
        assert!(classes.normal.mean_wait_s < classes.idle.mean_wait_s, "{classes:?}");
        assert!(report.fairness.jain > 0.9, "{:?}", report.fairness);
        assert!(report.fairness.jain_fifo.unwrap() < report.fairness.jain, "{:?}", report.fairness);
        let late = Experiment { waiting_per_vm: 0, ..experiment }.run(|_| ()).unwrap();
        let (ahead_s, late_s) = (classes.real_time.mean_wait_s, late.classes.real_time.mean_wait_s);
        assert!(late_s < ahead_s / 2.0, "what is fetched ahead goes before real-time: {late_s} {ahead_s}");
    }

    #[test]
    fn a_seed_is_a_run() {
        assert_eq!(format!("{:?}", faulty(7).run(|_| ())), format!("{:?}", faulty(7).run(|_| ())));
    }

    #[test]
    fn the_mutant_is_found_and_the_failure_replays() {
        let _planted = plant(Mutant::RunqNextBeforeCurrent);
        let found = (0..40).find_map(|seed| faulty(seed).run(|_| ()).err());
        let Some(Error::Failure(failure)) = found else { panic!("the mutant survived: {found:?}") };
        assert!(failure.what.contains("next"), "{failure}");
        assert!(
            failure.replay.contains(&format!("--seed {}", failure.seed)) && failure.replay.contains("--faults all")
        );
        assert_eq!(faulty(failure.seed).run(|_| ()).unwrap_err(), Error::Failure(failure));
    }

    #[test]
    fn absurd_experiments_are_refused() {
        let refused = |experiment: Experiment| match experiment.run(|_| ()) {
            Err(Error::Input(error)) => error.place,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(Experiment { machines: 0, ..Experiment::default() }), "--machines");
        assert_eq!(refused(Experiment { samples: u32::MAX, ..Experiment::default() }), "--samples");
        assert_eq!(refused(Experiment { runs: 0, ..Experiment::default() }), "--runs");
        assert_eq!(refused(Experiment { load: f64::NAN, ..Experiment::default() }), "--load");
        assert_eq!(refused(Experiment { submitters: 0, ..Experiment::default() }), "--submitters");
        assert_eq!(refused(Experiment { runs: 100_000, ..Experiment::default() }), "--runs");
    }
}
