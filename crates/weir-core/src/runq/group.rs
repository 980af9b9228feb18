//! A group: one machine with its VMs and its three queues, *current*, *next* and *idle* (section 5).
//!
//! Invariants: *current* and *next* together hold at most `room` samples, *idle* as many again; after
//! [`Group::eligible`] has found nothing, no free VM could run anything in *current*. Cost: O(VMs) for a VM's
//! change, O(waiting) for the search, O(classes) for what the group has to offer.
//!
//! Which VMs can run which needs class is kept as one bit mask per class.

use super::class_set::ClassSet;
use super::list::List;
use super::needs::{Needs, Offer};
use super::needs_class::ClassId;
use super::sample::{Sample, Waiting};
use super::slab::{Slab, SlabKey};
use super::vm::{Run, Vm, VmState};
use crate::mutant::{Mutant, planted};
use alloc::vec::Vec;

/// VMs that one machine may have.
pub const VMS_MAX: usize = 128;

/// A machine that the scheduler knows. A machine that comes back gets a new group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub SlabKey);

/// How strained a machine is by its own report. Of the machines that fit a sample equally well, the least strained gets it; one that
/// reports [`Strain::FULL`] gets none until it reports something else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Strain(pub u8);

impl Strain {
    /// It can take nothing more, for example because its memory is used up.
    pub const FULL: Strain = Strain(u8::MAX);
}

/// A VM that the scheduler knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmId {
    /// Its machine.
    pub group: GroupId,
    /// Its place in the list that the machine was plugged in with.
    pub number: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) vms: Vec<Vm>,
    pub(super) current: List,
    pub(super) next: List,
    pub(super) idle: List,
    /// How many samples *current* and *next* may hold.
    room: usize,
    waiting_per_vm: u32,
    pub(super) strain: Strain,
    /// Bit i is set if VM i is free.
    free: u128,
    /// By class: the VMs that can run it, whatever they do at the moment.
    able: Vec<u128>,
    /// By class: its samples in *current* and *next*.
    waiting: Vec<u32>,
    /// Classes for which it has room, and those for which it has time. Maintained by the scheduler's `Demand`.
    pub(super) takes: ClassSet,
    pub(super) takes_idle: ClassSet,
}

impl Group {
    pub(super) fn new(offers: &[Offer], waiting_per_vm: u32) -> Group {
        Group {
            vms: offers.iter().map(|offer| Vm { offer: *offer, state: VmState::OnRevert }).collect(),
            current: List::EMPTY,
            next: List::EMPTY,
            idle: List::EMPTY,
            room: offers.len().saturating_mul(waiting_per_vm as usize),
            waiting_per_vm,
            strain: Strain::default(),
            free: 0,
            able: Vec::new(),
            waiting: Vec::new(),
            takes: ClassSet::default(),
            takes_idle: ClassSet::default(),
        }
    }

    /// Works out which VMs can run a class. True if one can.
    pub(super) fn learn(&mut self, class: ClassId, needs: &Needs) -> bool {
        let mask = |(i, vm): (usize, &Vm)| u128::from(!vm.offer.runs(needs).is_empty()) << i;
        let able = self.vms.iter().enumerate().map(mask).fold(0, |all, one| all | one);
        if self.able.len() <= class.index() {
            self.able.resize(class.index() + 1, 0);
            self.waiting.resize(class.index() + 1, 0);
        }
        self.able[class.index()] = able;
        able != 0
    }

    /// Whether one of its VMs could run the class, now or later.
    pub(super) fn is_able(&self, class: ClassId) -> bool {
        self.able(class) != 0
    }

    pub(super) fn able(&self, class: ClassId) -> u128 {
        self.able.get(class.index()).copied().unwrap_or(0)
    }

    /// The VMs that could run the class at once.
    pub(super) fn free_for(&self, class: ClassId) -> u128 {
        if self.is_full() { 0 } else { self.able(class) & self.free }
    }

    /// Whether it gets no samples for now.
    pub(super) fn is_full(&self) -> bool {
        self.strain == Strain::FULL && !planted(Mutant::RunqIgnoresStrain)
    }

    pub(super) fn is_free(&self, number: u8) -> bool {
        self.free >> number & 1 == 1
    }

    pub(super) fn has_free(&self) -> bool {
        self.free != 0 && !self.is_full()
    }

    /// Whether *current* and *next* have room for one more of the class. Each class also has a limit of its own, by the VMs that can run
    /// it: otherwise samples for the only VM of its kind would fill the room for all others.
    pub(super) fn has_room(&self, class: ClassId) -> bool {
        let of_class = self.waiting.get(class.index()).copied().unwrap_or(0);
        !self.is_full()
            && self.len() < self.room
            && of_class < self.able(class).count_ones().saturating_mul(self.waiting_per_vm)
    }

    /// From now on nothing more may wait here.
    pub(super) fn close(&mut self) {
        (self.room, self.waiting_per_vm) = (0, 0);
    }

    pub(super) fn idle_has_room(&self) -> bool {
        !self.is_full() && self.idle.len() < self.room
    }

    /// Samples in *current* and *next*.
    pub(super) fn len(&self) -> usize {
        self.current.len() + self.next.len()
    }

    /// Samples that wait or run here.
    pub(super) fn load(&self) -> usize {
        let in_use = self.vms.iter().filter(|vm| matches!(vm.state, VmState::InUse(_))).count();
        self.len() + self.idle.len() + in_use
    }

    pub(super) fn set_state(&mut self, number: u8, state: VmState) {
        let bit = 1u128 << number;
        self.free = if state == VmState::Free { self.free | bit } else { self.free & !bit };
        if let Some(vm) = self.vms.get_mut(usize::from(number)) {
            vm.state = state;
        }
    }

    /// The attempt that a VM carries.
    pub(super) fn run(&mut self, number: u8) -> Option<&mut Run> {
        match &mut self.vms.get_mut(usize::from(number))?.state {
            VmState::InUse(run) => Some(run),
            VmState::Free | VmState::OnRevert => None,
        }
    }

    /// Which of `vms` should run `needs`: the one that has most of the plugins; among those, the one that offers the fewest others; among
    /// those, the first.
    pub(super) fn best(&self, vms: u128, needs: &Needs) -> Option<u8> {
        let among = self.vms.iter().enumerate().filter(|(i, _)| vms >> i & 1 == 1);
        let fit = |vm: &Vm| (vm.offer.runs(needs).len(), u32::MAX - vm.offer.plugins.len());
        let (number, _) = among.max_by_key(|(i, vm)| (fit(vm), usize::MAX - i))?;
        Some(number as u8)
    }

    pub(super) fn list_mut(&mut self, list: Waiting) -> &mut List {
        match list {
            Waiting::Current => &mut self.current,
            Waiting::Next => &mut self.next,
            Waiting::Idle => &mut self.idle,
        }
    }

    pub(super) fn push(&mut self, samples: &mut Slab<Sample>, index: u32, list: Waiting) {
        self.count(samples[index].class, list, 1);
        self.list_mut(list).push_back(samples, index);
    }

    /// Puts a sample into *current*, before those that are less urgent.
    pub(super) fn push_current(
        &mut self,
        samples: &mut Slab<Sample>,
        index: u32,
        goes_before: impl Fn(&Sample) -> bool,
    ) {
        self.count(samples[index].class, Waiting::Current, 1);
        self.current.insert(samples, index, goes_before);
    }

    pub(super) fn remove(&mut self, samples: &mut Slab<Sample>, index: u32, list: Waiting) {
        self.count(samples[index].class, list, -1);
        self.list_mut(list).remove(samples, index);
    }

    /// Counts a waiting sample of another class.
    pub(super) fn reclass(&mut self, from: ClassId, to: ClassId, list: Waiting) {
        self.count(from, list, -1);
        self.count(to, list, 1);
    }

    /// The first sample of a list that a free VM could run.
    pub(super) fn eligible(&self, samples: &Slab<Sample>, list: Waiting) -> Option<u32> {
        let list = match list {
            Waiting::Current => &self.current,
            Waiting::Next => &self.next,
            Waiting::Idle => &self.idle,
        };
        list.iter(samples).find(|index| self.free_for(samples[*index].class) != 0)
    }

    fn count(&mut self, class: ClassId, list: Waiting, by: i32) {
        if let (Waiting::Current | Waiting::Next, Some(n)) = (list, self.waiting.get_mut(class.index())) {
            *n = n.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::needs::{Plugins, Tags};
    use super::*;

    #[test]
    fn a_sample_goes_where_most_of_it_runs_and_least_else_is_offered() {
        let offer = |plugins| Offer { plugins: Plugins(plugins), tags: Tags::NONE };
        let group = Group::new(&[offer(0b1111), offer(0b0001), offer(0b0011), offer(0b0011)], 2);
        let best = |plugins, vms| group.best(vms, &Needs { plugins: Plugins(plugins), tags: Tags::NONE });
        assert_eq!(best(0b0001, 0b1111), Some(1), "leaves the versatile VMs free");
        assert_eq!(best(0b0011, 0b1111), Some(2), "one run instead of two");
        assert_eq!(best(0b0011, 0b1011), Some(3));
        assert_eq!(best(0b0111, 0b1111), Some(0));
        assert_eq!(best(0b0001, 0), None);
    }
}
