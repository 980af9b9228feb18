//! A machine as the leader knows it: a group of VMs with names.

use super::PluginName;
use weir_core::runq::{GroupId, VmId};

/// A machine that is plugged in. One that comes back is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub(super) u64);

/// What a VM offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmOffer {
    /// Its name on its machine.
    pub name: String,
    /// The plugins that it can run.
    pub plugins: Vec<PluginName>,
    /// Its tags.
    pub tags: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) node: String,
    pub(super) group: GroupId,
    /// Gets no new samples, and is unplugged when nothing runs there.
    pub(super) draining: bool,
    /// In the core's order.
    vms: Vec<String>,
}

impl Machine {
    pub(super) fn new(node: &str, group: GroupId, vms: &[VmOffer]) -> Machine {
        Machine { node: node.to_owned(), group, draining: false, vms: vms.iter().map(|vm| vm.name.clone()).collect() }
    }

    pub(super) fn vm(&self, name: &str) -> Option<VmId> {
        let number = self.vms.iter().position(|vm| vm == name)?;
        Some(VmId { group: self.group, number: u8::try_from(number).ok()? })
    }

    pub(super) fn vms(&self) -> Vec<VmId> {
        let count = u8::try_from(self.vms.len()).unwrap_or(u8::MAX);
        (0..count).map(|number| VmId { group: self.group, number }).collect()
    }

    pub(super) fn vm_name(&self, number: u8) -> Option<&str> {
        self.vms.get(usize::from(number)).map(String::as_str)
    }
}
