//! Machines that connect (are plugged in), are drained, and leave.

use super::machine::Machine;
use super::{Decision, MachineId, Now, VmOffer};
use crate::wire::{self, Message};
use weir_core::runq::{Offer, RunqRefusal, VmId};

impl Decision {
    /// A machine has connected. Its VMs count as on revert until it reports otherwise.
    pub fn plug(&mut self, now: Now, node: &str, vms: &[VmOffer]) -> Result<MachineId, RunqRefusal> {
        let offers: Vec<Offer> = vms.iter().map(|vm| self.offer(vm)).collect();
        let group = self.scheduler.plug(now.clock, &offers)?;
        self.machines_given += 1;
        let machine = MachineId(self.machines_given);
        self.machines.insert(machine, Machine::new(node, group, vms));
        self.drain(now);
        Ok(machine)
    }

    /// The connected machines of a node.
    pub fn machines_of(&self, node: &str) -> Vec<MachineId> {
        self.machines.iter().filter(|(_, machine)| machine.node == node).map(|(id, _)| *id).collect()
    }

    /// The node of a connected machine.
    pub fn node(&self, machine: MachineId) -> Option<&str> {
        self.machines.get(&machine).map(|machine| machine.node.as_str())
    }

    /// Machines of this node get no new samples: running attempts end normally, then the machines are unplugged.
    pub fn drain_node(&mut self, now: Now, node: &str) {
        let of_node = |(id, machine): (&MachineId, &mut Machine)| {
            (machine.node == node && !std::mem::replace(&mut machine.draining, true)).then_some(*id)
        };
        let machines: Vec<MachineId> = self.machines.iter_mut().filter_map(of_node).collect();
        for id in machines {
            let busy: Vec<VmId> = self.running.values().filter(|run| run.machine == id).map(|run| run.vm).collect();
            let vms = self.machines.get(&id).map(Machine::ids).unwrap_or_default();
            for vm in vms.into_iter().filter(|vm| !busy.contains(vm)) {
                // For the scheduler it never becomes clean again, so it gets nothing.
                self.scheduler.vm_lost(now.clock, vm);
            }
            if let Some(group) = self.machines.get(&id).map(|machine| machine.group) {
                self.scheduler.close(now.clock, group);
            }
            self.drain(now);
            self.retire(now, id);
        }
    }

    /// Unplugs a machine that is drained and runs nothing any more.
    pub(super) fn retire(&mut self, now: Now, id: MachineId) {
        let draining = self.machines.get(&id).is_some_and(|machine| machine.draining);
        if draining && !self.running.values().any(|run| run.machine == id) {
            self.work.letters.push((id, Message::Bye("this machine is drained".into())));
            self.unplug(now, id);
        }
    }

    /// A machine is gone: what ran there is charged and queued again.
    pub fn unplug(&mut self, now: Now, machine: MachineId) {
        let Some(gone) = self.machines.remove(&machine) else { return };
        let lost: Vec<i64> = self.running.iter().filter(|(_, run)| run.machine == machine).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|attempt| self.over(now, attempt, "lost"));
        self.scheduler.unplug(now.clock, gone.group);
        self.drain(now);
    }

    /// A dispatcher reports the status of a VM. One that is neither in use nor on revert is ready.
    pub fn vm_status(&mut self, now: Now, machine: MachineId, vm: &str, status: wire::VmStatus) {
        let Some(known) = self.machines.get_mut(&machine).filter(|machine| !machine.draining) else { return };
        if let Some(vm) = known.vm(vm)
            && status == wire::VmStatus::default()
            && known.rest.is_ready(now.clock, vm)
        {
            self.scheduler.ready(now.clock, vm);
            self.drain(now);
        }
    }
}
