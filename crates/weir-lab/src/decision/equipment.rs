//! What machines say of themselves beside their VMs: for people, nothing is decided by it.

use super::{Decision, MachineId};
use crate::wire::{Ask, Message};
use std::collections::HashMap;

/// What a machine has, as far as it has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Equipment {
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// How much of it is free.
    pub memory_free: Option<u64>,
    /// Its processors.
    pub cores: Option<u32>,
    /// Its processing index.
    pub index: Option<u16>,
    /// Its VMs that could take a sample now.
    pub slots: Option<u32>,
}

impl Equipment {
    /// What is to be asked for it.
    pub const ASKED: [Ask; 5] = [Ask::Memory, Ask::MemoryFree, Ask::Cores, Ask::Index, Ask::Slots];
}

impl Decision {
    /// A machine says what it, or one of its VMs, has.
    pub fn has(&mut self, machine: MachineId, message: &Message) {
        let Some(machine) = self.machines.get_mut(&machine) else { return };
        let equipment = &mut machine.equipment;
        match message {
            Message::Memory(bytes) => equipment.memory = Some(*bytes),
            Message::MemoryFree(bytes) => equipment.memory_free = Some(*bytes),
            Message::Cores(cores) => equipment.cores = Some(*cores),
            Message::Index(index) => equipment.index = Some(*index),
            Message::Slots(slots) => equipment.slots = Some(*slots),
            Message::VmMemory(vm, bytes) => {
                if let Some(place) = machine.vms.iter().position(|known| known.name == *vm) {
                    machine.vm_memory[place] = Some(*bytes);
                }
            }
            _ => {}
        }
    }

    /// What the machines that are plugged in have, by node.
    pub fn equipment(&self) -> HashMap<String, Equipment> {
        self.machines.values().map(|machine| (machine.node.clone(), machine.equipment)).collect()
    }
}
