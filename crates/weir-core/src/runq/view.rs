//! Read access to the scheduler for status and tests, and a check that its state is consistent.

use super::group::{Group, GroupId, VmId};
use super::needs::{Offer, Plugins};
use super::priority::Directory;
use super::run_queues::RunQueues;
use super::sample::{AttemptId, SampleEnd, SampleId, SampleState, SubmitterId, Waiting};
use super::scheduler::Scheduler;
use super::settings::Settings;
use super::vm::VmState;
use crate::time::Instant;
use alloc::vec::Vec;

/// A sample as seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleView {
    /// Its directory.
    pub directory: Directory,
    /// Who handed it in.
    pub submitter: SubmitterId,
    /// The plugins it was handed in for.
    pub asked: Plugins,
    /// Those that have no accepted result yet.
    pub remaining: Plugins,
    /// Attempts started.
    pub started: u32,
    /// Attempts that brought nothing.
    pub charged: u8,
    /// Where it is.
    pub whereabouts: Whereabouts,
}

/// Where a sample is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// In its run queue, since then.
    Queued(Instant),
    /// In one of a machine's queues.
    Waiting(GroupId, Waiting),
    /// On a VM, since then.
    Running(VmId, Instant),
    /// At its end.
    Ended(SampleEnd),
}

/// What a VM does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmStatus {
    /// Clean and waiting.
    Free,
    /// Analysing.
    InUse(AttemptId),
    /// Being made clean again.
    OnRevert,
}

impl Scheduler {
    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The run queues.
    pub fn run_queues(&self) -> &RunQueues {
        &self.queues
    }

    /// Since when the oldest sample of a run queue has been in it. Costs O(lanes of the queue).
    pub fn oldest(&self, queue: u8) -> Option<Instant> {
        self.queues.oldest(&self.samples, queue)
    }

    /// Samples held, ended ones included.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// A sample; none if it was put off.
    pub fn sample(&self, id: SampleId) -> Option<SampleView> {
        let sample = self.samples.get(id.0)?;
        Some(SampleView {
            directory: sample.directory,
            submitter: sample.submitter,
            asked: self.classes.at(sample.asked).needs.plugins,
            remaining: self.remaining(id.0.index),
            started: sample.started,
            charged: sample.charged,
            whereabouts: self.whereabouts(sample.place, sample.queued_at)?,
        })
    }

    /// The machines.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.iter().map(|(key, _)| GroupId(key))
    }

    /// What waits in one of a machine's queues, in order.
    pub fn waiting(&self, group: GroupId, list: Waiting) -> Vec<SampleId> {
        let Some(entry) = self.groups.get(group.0) else { return Vec::new() };
        let list = match list {
            Waiting::Current => &entry.current,
            Waiting::Next => &entry.next,
            Waiting::Idle => &entry.idle,
        };
        list.iter(&self.samples).map(|index| SampleId(self.samples.key(index))).collect()
    }

    /// A machine's VMs.
    pub fn vms(&self, group: GroupId) -> impl Iterator<Item = (VmId, Offer, VmStatus)> + '_ {
        let vms = self.groups.get(group.0).into_iter().flat_map(|entry| entry.vms.iter().enumerate());
        vms.map(move |(i, vm)| (VmId { group, number: i as u8 }, vm.offer, self.status(&vm.state)))
    }

    /// Checks all invariants; returns the first that does not hold. Costs O(everything), so it is meant for tests.
    pub fn audit(&self) -> Result<(), &'static str> {
        self.queues.audit(&self.samples)?;
        let mut seen = self.queues.len();
        for (key, group) in self.groups.iter() {
            self.audit_group(key.index, group)?;
            seen += group.load();
        }
        let ended = self.samples.iter().filter(|(_, sample)| matches!(sample.place, SampleState::Ended(_))).count();
        let put_off = self.samples.iter().filter(|(_, sample)| sample.place == SampleState::Nowhere).count();
        ensure(seen + ended + put_off == self.samples.len(), "a sample is in no place, or in two")?;
        let charged = self.samples.iter().map(|(_, sample)| sample.charged).max().unwrap_or(0);
        ensure(charged <= self.settings.attempts_max, "more attempts than the cap")?;
        let queued = self.classes.iter().map(|(_, class)| class.queued as usize).sum::<usize>();
        ensure(queued == self.queues.len(), "the classes' queue lengths are wrong")
    }

    fn audit_group(&self, index: u32, group: &Group) -> Result<(), &'static str> {
        for (list, name) in
            [(group.current, Waiting::Current), (group.next, Waiting::Next), (group.idle, Waiting::Idle)]
        {
            let placed = |i| self.samples[i].place == SampleState::Waiting { group: index, list: name };
            ensure(list.iter(&self.samples).all(placed), "a waiting sample is in the wrong place")?;
            ensure(list.iter(&self.samples).count() == list.len(), "a waiting queue's length is wrong")?;
            let able = |i| group.is_able(self.samples[i].class);
            ensure(list.iter(&self.samples).all(able), "a sample waits at a machine that cannot serve it")?;
        }
        let room = group.vms.len() * self.settings.waiting_per_vm as usize;
        ensure(group.len() <= room && group.idle.len() <= room, "a machine holds more than it has room for")?;
        ensure(group.eligible(&self.samples, Waiting::Current).is_none(), "a free VM beside an eligible current")?;
        ensure(group.eligible(&self.samples, Waiting::Next).is_none(), "a free VM beside an eligible next")?;
        for (number, vm) in group.vms.iter().enumerate() {
            if let VmState::InUse(run) = vm.state {
                let here = SampleState::Running { group: index, vm: number as u8 };
                ensure(self.samples[run.sample].place == here, "a VM runs what is elsewhere")?;
            }
            let free = group.is_free(number as u8);
            ensure(free == (vm.state == VmState::Free), "the mask of free VMs is wrong")?;
        }
        Ok(())
    }

    fn whereabouts(&self, place: SampleState, queued_at: Instant) -> Option<Whereabouts> {
        Some(match place {
            SampleState::Nowhere => return None,
            SampleState::Queued { .. } => Whereabouts::Queued(queued_at),
            SampleState::Waiting { group, list } => Whereabouts::Waiting(GroupId(self.groups.key(group)), list),
            SampleState::Ended(end) => Whereabouts::Ended(end),
            SampleState::Running { group, vm } => {
                let VmState::InUse(run) = self.groups[group].vms[usize::from(vm)].state else { return None };
                Whereabouts::Running(VmId { group: GroupId(self.groups.key(group)), number: vm }, run.since)
            }
        })
    }

    fn status(&self, state: &VmState) -> VmStatus {
        match state {
            VmState::Free => VmStatus::Free,
            VmState::OnRevert => VmStatus::OnRevert,
            VmState::InUse(run) => {
                let sample = SampleId(self.samples.key(run.sample));
                VmStatus::InUse(AttemptId { sample, number: run.number })
            }
        }
    }
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
