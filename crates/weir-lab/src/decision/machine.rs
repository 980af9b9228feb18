//! A machine as the leader knows it: a group of VMs with names.

use super::{Equipment, PluginName};
use std::time::Duration;
use weir_core::runq::{GroupId, VmId};
use weir_core::time::Instant;

/// So many refusals in a row may be chance; from the next on a machine rests a second, and twice as long each time.
const CHANCE: u32 = 2;
/// A machine rests no longer than this.
const REST_MAX: Duration = Duration::from_secs(60);

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
    /// What it stores cannot be fetched from there.
    pub(super) outside: bool,
    /// What it offers, in the core's order.
    pub(super) vms: Vec<VmOffer>,
    /// The memory of each, as far as it has said.
    pub(super) vm_memory: Vec<Option<u64>>,
    pub(super) equipment: Equipment,
    /// Attempts that it refused since it last brought a good result.
    refusals: u32,
    rests_until: Instant,
    /// VMs that became ready while it rests.
    ready: Vec<VmId>,
}

impl Machine {
    pub(super) fn new(node: &str, group: GroupId, vms: &[VmOffer]) -> Machine {
        Machine {
            node: node.to_owned(),
            group,
            draining: false,
            outside: false,
            vms: vms.to_vec(),
            vm_memory: vec![None; vms.len()],
            equipment: Equipment::default(),
            refusals: 0,
            rests_until: Instant::ZERO,
            ready: Vec::new(),
        }
    }

    /// It refuses an attempt: how long it rests from now on.
    pub(super) fn refuses(&mut self, now: Instant) -> Duration {
        self.refusals = self.refusals.saturating_add(1);
        let Some(beyond) = self.refusals.checked_sub(CHANCE + 1) else { return Duration::ZERO };
        let rest = Duration::from_secs(1 << beyond.min(16)).min(REST_MAX);
        self.rests_until = now + rest;
        rest
    }

    /// It has brought a good result.
    pub(super) fn works(&mut self) {
        self.refusals = 0;
    }

    /// Whether a VM that says that it is ready may be used; while the machine rests it is noted.
    pub(super) fn is_ready(&mut self, now: Instant, vm: VmId) -> bool {
        let rests = now < self.rests_until;
        if rests && !self.ready.contains(&vm) {
            self.ready.push(vm);
        }
        !rests
    }

    /// The VMs that may be used now that it has rested.
    pub(super) fn rested(&mut self, now: Instant) -> Vec<VmId> {
        if now < self.rests_until || self.draining { Vec::new() } else { std::mem::take(&mut self.ready) }
    }

    /// When [`Machine::rested`] has something.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        (!self.ready.is_empty() && !self.draining).then_some(self.rests_until)
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
