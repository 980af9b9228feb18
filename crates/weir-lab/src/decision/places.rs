//! What each place (a VM or a slot for a plugin process) on each machine is doing, as the leader sees it.

use super::Decision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::runq::VmStatus;

/// How many places are reported at most.
const PLACES_MAX: usize = 2_000;

/// A place where samples are analysed: a VM, or room for a child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LabPlace")]
pub struct PlaceLine {
    /// Its machine.
    pub node: String,
    /// Its name on that machine.
    pub name: String,
    /// `FREE`, `IN_USE` or `ON_REVERT`.
    #[schemars(extend("enum" = ["FREE", "IN_USE", "ON_REVERT"]))]
    pub state: String,
    /// The sample that runs there.
    pub sample: Option<i64>,
    /// What it can run.
    pub plugins: Vec<String>,
    /// Its memory in bytes: a VM's own, or the most that a plugin may use.
    pub memory: Option<u64>,
}

impl Decision {
    /// All places, in order of machine.
    pub fn places(&self) -> Vec<PlaceLine> {
        let mut machines: Vec<_> = self.machines.values().collect();
        machines.sort_by(|a, b| a.node.cmp(&b.node));
        let mut places = Vec::new();
        for machine in machines {
            let offers = machine.vms.iter().zip(&machine.vm_memory);
            for ((_, _, status), (offer, memory)) in self.scheduler.vms(machine.group).zip(offers) {
                let (state, sample) = match status {
                    VmStatus::Free => ("FREE", None),
                    VmStatus::OnRevert => ("ON_REVERT", None),
                    VmStatus::InUse(attempt) => ("IN_USE", self.samples.get(&attempt.sample).map(|held| held.row)),
                };
                let plugins = offer.plugins.iter().map(|(name, _)| name.clone()).collect();
                let (node, name, memory) = (machine.node.clone(), offer.name.clone(), *memory);
                places.push(PlaceLine { node, name, state: state.to_owned(), sample, plugins, memory });
                if places.len() >= PLACES_MAX {
                    return places;
                }
            }
        }
        places
    }
}
