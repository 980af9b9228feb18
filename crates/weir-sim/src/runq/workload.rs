//! The lab that is simulated: its machines, and the samples that arrive.
//!
//! Invented, not measured: the paper gives no figures of its lab. One submitter of several floods with half of
//! all samples; a tenth is real-time, a fifth of the idle class; a plugin takes about a minute.

use super::Experiment;
use super::faults::Fault;
use crate::rng::Rng;
use std::time::Duration;
use weir_core::runq::{Directory, Needs, Offer, Plugins, Submission, SubmitterId, Tags};
use weir_core::time::Instant;

/// How long one plugin takes on average.
pub const PLUGIN_MEAN_S: f64 = 60.0;
/// How long a revert takes.
pub const REVERT_S: f64 = 10.0;
/// How many VMs a sample occupies on average, times how long: what a sample costs.
const SAMPLE_COST_S: f64 = 1.5 * PLUGIN_MEAN_S + 1.3 * REVERT_S;
/// Plugins that VMs have; the one after the last exists nowhere.
const PLUGINS: u64 = 4;

/// What arrives, and what the world knows of it that the scheduler does not.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) submission: Submission,
    /// How long each of its plugins takes.
    pub(super) plugin_takes: Duration,
    /// Whether it kills every VM it runs on.
    pub(super) kills: bool,
}

/// The machines, each a list of VMs.
pub(super) fn machines(experiment: &Experiment, rng: &mut Rng) -> Vec<Vec<Offer>> {
    let mut machines: Vec<Vec<Offer>> = (0..experiment.machines).map(|_| machine(rng)).collect();
    // Somebody must be able to serve what arrives.
    let versatile = Offer { plugins: Plugins((1 << PLUGINS) - 1), tags: Tags(0b11) };
    if let Some(first) = machines.first_mut() {
        first.push(versatile);
    }
    machines
}

fn machine(rng: &mut Rng) -> Vec<Offer> {
    let vm = |rng: &mut Rng| Offer {
        plugins: Plugins(u128::from(rng.between(1, (1 << PLUGINS) - 1))),
        tags: Tags(if rng.chance(0.5) { 0b11 } else { 0b01 }),
    };
    (0..rng.between(1, 4)).map(|_| vm(rng)).collect()
}

/// The samples in order of arrival, so many that the lab is loaded as the experiment says.
pub(super) fn arrivals(experiment: &Experiment, vms: usize, rng: &mut Rng) -> Vec<Arrival> {
    let mean_gap_s = SAMPLE_COST_S / (vms as f64 * experiment.load);
    let mut at_s = 0.0;
    let mut one = |_| {
        at_s += rng.exponential(mean_gap_s);
        arrival(experiment, at_s, rng)
    };
    (0..experiment.samples).map(&mut one).collect()
}

fn arrival(experiment: &Experiment, at_s: f64, rng: &mut Rng) -> Arrival {
    let takes_s = rng.exponential(PLUGIN_MEAN_S).clamp(1.0, 5.0 * PLUGIN_MEAN_S);
    Arrival {
        at: Instant::from_secs_f64(at_s),
        submission: Submission {
            directory: directory(rng),
            submitter: submitter(experiment, rng),
            needs: needs(experiment, rng),
        },
        plugin_takes: Duration::from_secs_f64(takes_s),
        kills: experiment.faults.has(Fault::Killer) && rng.chance(0.02),
    }
}

fn directory(rng: &mut Rng) -> Directory {
    let number = match rng.below(20) {
        0 => rng.below(3),
        1 => rng.between(3, 31),
        2..=11 => 32,
        12..=15 => rng.between(32, 95),
        _ => rng.between(96, 127),
    };
    Directory::new(number).unwrap_or(Directory::DEFAULT)
}

/// The first submitter hands in half of everything.
fn submitter(experiment: &Experiment, rng: &mut Rng) -> SubmitterId {
    let others = u64::from(experiment.submitters) - 1;
    SubmitterId(if others == 0 || rng.chance(0.5) { 0 } else { 1 + rng.below(others) })
}

fn needs(experiment: &Experiment, rng: &mut Rng) -> Needs {
    let one = 1u128 << rng.below(PLUGINS);
    let more = if rng.chance(0.4) { 1u128 << rng.below(PLUGINS) } else { 0 };
    let nowhere = experiment.faults.has(Fault::Unserviceable) && rng.chance(0.02);
    let plugins = Plugins(one | more | if nowhere { 1 << PLUGINS } else { 0 });
    Needs { plugins, tags: Tags(if rng.chance(0.2) { 0b10 } else { 0 }) }
}
