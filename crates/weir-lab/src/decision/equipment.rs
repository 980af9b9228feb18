//! What machines report about themselves besides their VMs (load and free memory), and how that affects scheduling: of machines that fit a
//! sample equally well, the least strained one gets it; one whose memory is used up gets none.

use super::{Decision, MachineId, Now};
use crate::wire::{Ask, Message};
use std::collections::HashMap;
use weir_core::runq::Strain;

/// What a machine has, as far as it has reported it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Equipment {
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// How much of it is free.
    pub memory_free: Option<u64>,
    /// Its processors.
    pub cores: Option<u32>,
    /// Programs that run or wait for a processor, the mean of a minute, in hundredths.
    pub load: Option<u32>,
    /// Its processing index.
    pub index: Option<u16>,
    /// Its VMs that could take a sample now.
    pub slots: Option<u32>,
}

impl Equipment {
    /// What is asked to find it out.
    pub const ASKED: [Ask; 6] = [Ask::Memory, Ask::MemoryFree, Ask::Cores, Ask::Load, Ask::Index, Ask::Slots];

    /// How strained it is. Figures that it has not reported do not count. The steps are wide, so that small changes of the load do not
    /// change where samples go.
    fn strain(&self, memory_free_min: u64) -> Strain {
        if self.memory_free.is_some_and(|free| free < memory_free_min) {
            return Strain::FULL;
        }
        let of_each = self.load.unwrap_or(0) / self.cores.unwrap_or(1).max(1);
        let load = match of_each {
            0..=100 => 0,
            101..=200 => 1,
            201..=400 => 2,
            _ => 3,
        };
        let scarce = self.memory.zip(self.memory_free).is_some_and(|(all, free)| free < all / 10);
        Strain(load + u8::from(scarce))
    }
}

impl Decision {
    /// A machine reports what it, or one of its VMs, has.
    pub fn has(&mut self, now: Now, id: MachineId, message: &Message) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let equipment = &mut machine.equipment;
        match message {
            Message::Memory(bytes) => equipment.memory = Some(*bytes),
            Message::MemoryFree(bytes) => equipment.memory_free = Some(*bytes),
            Message::Cores(cores) => equipment.cores = Some(*cores),
            Message::Load(load) => equipment.load = Some(*load),
            Message::Index(index) => equipment.index = Some(*index),
            Message::Slots(slots) => equipment.slots = Some(*slots),
            Message::VmMemory(vm, bytes) => {
                if let Some(place) = machine.vms.iter().position(|known| known.name == *vm) {
                    machine.vm_memory[place] = Some(*bytes);
                }
            }
            _ => {}
        }
        self.weigh(now, id);
    }

    /// Notes how strained a machine is.
    fn weigh(&mut self, now: Now, id: MachineId) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| !machine.draining) else { return };
        let strain = machine.equipment.strain(self.rules.memory_free_min);
        let before = std::mem::replace(&mut machine.strain, strain);
        if strain == before {
            return;
        }
        let (node, free) = (&machine.node, machine.equipment.memory_free.unwrap_or(0));
        match (strain == Strain::FULL, before == Strain::FULL) {
            (true, false) => {
                tracing::warn!(node, free, "a machine has no memory left: it gets no samples until it has");
            }
            (false, true) => tracing::info!(node, free, "a machine has memory again"),
            _ => {}
        }
        self.scheduler.set_strain(now.clock, machine.group, strain);
        self.drain(now);
    }

    /// The machines that get no samples because their memory is used up.
    pub(super) fn full(&self) -> Vec<&str> {
        let full = self.machines.values().filter(|machine| machine.strain == Strain::FULL);
        full.map(|machine| machine.node.as_str()).collect()
    }

    /// What the connected machines have, by node.
    pub fn equipment(&self) -> HashMap<String, Equipment> {
        self.machines.values().map(|machine| (machine.node.clone(), machine.equipment)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strain_is_the_load_of_a_processor_and_the_want_of_memory() {
        let equipped = |load, cores, memory_free| Equipment {
            memory: Some(1_000),
            memory_free,
            cores: Some(cores),
            load: Some(load),
            ..Equipment::default()
        };
        for (load, cores, free, strain) in [
            (90, 1, Some(500), Strain(0)),
            (150, 1, Some(500), Strain(1)),
            (150, 2, Some(500), Strain(0)),
            (900, 2, Some(500), Strain(3)),
            (90, 1, Some(99), Strain(1)),
            (90, 1, Some(9), Strain::FULL),
            (90, 0, None, Strain(0)),
        ] {
            assert_eq!(equipped(load, cores, free).strain(10), strain, "{load} of {cores}, {free:?}");
        }
        assert_eq!(Equipment::default().strain(10), Strain(0), "silence is no strain");
        assert_eq!(equipped(0, 1, Some(0)).strain(0), Strain(1), "0 switches it off");
    }
}
