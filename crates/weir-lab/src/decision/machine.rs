//! A machine as the leader knows it: its group of VMs with their names.

use super::{Equipment, PluginName};
use weir_core::runq::{GroupId, Rest, Strain, VmId};
use weir_core::time::Instant;

/// What a VM offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmOffer {
    /// Its name on its machine.
    pub name: String,
    /// The plugins that it can run.
    pub plugins: Vec<PluginName>,
    pub tags: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) node: String,
    pub(super) group: GroupId,
    /// Gets no new samples, and is unplugged when nothing runs there.
    pub(super) draining: bool,
    /// What it offers, in the core's order.
    pub(super) vms: Vec<VmOffer>,
    /// The memory of each, as far as it was reported.
    pub(super) vm_memory: Vec<Option<u64>>,
    pub(super) equipment: Equipment,
    /// The strain that follows from its equipment.
    pub(super) strain: Strain,
    /// Whether it gets no samples for a while because it refuses again and again.
    pub(super) rest: Rest,
}

impl Machine {
    pub(super) fn new(node: &str, group: GroupId, vms: &[VmOffer]) -> Machine {
        Machine {
            node: node.to_owned(),
            group,
            draining: false,
            vms: vms.to_vec(),
            vm_memory: vec![None; vms.len()],
            equipment: Equipment::default(),
            strain: Strain::default(),
            rest: Rest::default(),
        }
    }

    /// The VMs that may be used now that its rest is over.
    pub(super) fn rested(&mut self, now: Instant) -> Vec<VmId> {
        if self.draining { Vec::new() } else { self.rest.rested(now) }
    }

    /// When [`Machine::rested`] returns something.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rest.next_deadline().filter(|_| !self.draining)
    }

    pub(super) fn vm(&self, name: &str) -> Option<VmId> {
        let number = self.vms.iter().position(|vm| vm.name == name)?;
        Some(VmId { group: self.group, number: u8::try_from(number).ok()? })
    }

    pub(super) fn ids(&self) -> Vec<VmId> {
        let count = u8::try_from(self.vms.len()).unwrap_or(u8::MAX);
        (0..count).map(|number| VmId { group: self.group, number }).collect()
    }

    pub(super) fn vm_name(&self, number: u8) -> Option<&str> {
        self.vms.get(usize::from(number)).map(|vm| vm.name.as_str())
    }
}
