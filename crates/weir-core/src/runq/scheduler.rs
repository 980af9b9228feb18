//! The whole scheduler: samples and machines in, assignments out.
//!
//! A state machine: every input takes `now`, and after it everything that can start has been started. What the caller has to do is polled
//! with [`Scheduler::poll`] (drain it after each input, because it keeps what was not polled). [`Scheduler::next_deadline`] says when to
//! call [`Scheduler::tick`].
//!
//! Invariants (checked by [`Scheduler::audit`]): every sample is in exactly one place; a VM carries at most one
//! attempt, none while on revert; attempts that brought nothing ≤ cap; the run queues' own. Cost of an input:
//! O(classes + machines), never O(samples).

use super::demand::Demand;
use super::group::{Group, GroupId, Strain, VMS_MAX, VmId};
use super::list::List;
use super::needs::{Needs, Offer};
use super::needs_class::{ClassId, NeedsClass, NeedsClasses, Numbered};
use super::output::{Output, StopReason};
use super::priority::Directory;
use super::run_queues::RunQueues;
use super::sample::{Sample, SampleEnd, SampleId, SampleState, SubmitterId, Waiting};
use super::settings::{RunqRefusal, Settings};
use super::slab::Slab;
use super::vm::VmState;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Samples that one tick ends at most because no machine could serve them: a whole queue at once would be a very large batch.
const UNSERVICEABLE_A_TICK: usize = 1_000;

/// A sample that somebody submits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The directory, which is the priority.
    pub directory: Directory,
    /// Who submits it.
    pub submitter: SubmitterId,
    /// The plugins to run and the tags that their VMs must have.
    pub needs: Needs,
}

/// The scheduler decision of a lab.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(super) settings: Settings,
    pub(super) now: Instant,
    pub(super) samples: Slab<Sample>,
    pub(super) classes: NeedsClasses,
    pub(super) queues: RunQueues,
    pub(super) groups: Slab<Group>,
    pub(super) demand: Demand,
    /// Samples that run, in the order of their starts, which is also that of their deadlines.
    pub(super) running: List,
    /// Samples in the *idle* queues of all groups.
    pub(super) idle_waiting: usize,
    pub(super) outputs: VecDeque<Output>,
    /// How long recent attempts have taken.
    pub(super) mean_run: Option<Duration>,
}

impl Scheduler {
    /// A scheduler without samples and machines.
    pub fn new(mut settings: Settings) -> Scheduler {
        settings.attempts_max = settings.attempts_max.max(1);
        let classes = NeedsClasses::new(settings.classes_max as usize);
        Scheduler {
            demand: Demand::new(&settings),
            settings,
            now: Instant::ZERO,
            samples: Slab::default(),
            classes,
            queues: RunQueues::default(),
            groups: Slab::default(),
            running: List::EMPTY,
            idle_waiting: 0,
            outputs: VecDeque::new(),
            mean_run: None,
        }
    }

    /// Accepts a sample, or says why not.
    pub fn submit(&mut self, now: Instant, submission: &Submission) -> Result<SampleId, RunqRefusal> {
        self.submit_charged(now, submission, 0)
    }

    /// The same for a sample that earlier leaders have tried: `charged` attempts brought no result. A sample that has no attempt left
    /// is put off, because the last attempt may still bring its result. If it does not, [`resume`](Scheduler::resume) ends the sample.
    pub fn submit_charged(
        &mut self,
        now: Instant,
        submission: &Submission,
        charged: u8,
    ) -> Result<SampleId, RunqRefusal> {
        self.advance(now);
        let Submission { directory, submitter, needs } = *submission;
        if needs.plugins.is_empty() {
            return Err(RunqRefusal::NothingToRun);
        }
        if self.samples.len() >= self.settings.samples_max as usize {
            return Err(RunqRefusal::Full);
        }
        let class = self.classes.take(needs).ok_or(RunqRefusal::TooManyClasses)?;
        let class = self.learn(class, &needs);
        // It is used twice: for what was asked, and for what is still to be run.
        self.classes.take_again(class);
        let key = self.samples.insert(Sample::new(directory, submitter, class)).ok_or(RunqRefusal::Full)?;
        self.samples[key.index].charged = charged.min(self.settings.attempts_max);
        if self.has_attempts(key.index) {
            self.enqueue(key.index);
            self.schedule();
        }
        Ok(SampleId(key))
    }

    /// Cancels a sample, wherever it is. False if it has ended already, or is unknown.
    pub fn cancel(&mut self, now: Instant, sample: SampleId) -> bool {
        self.advance(now);
        let index = sample.0.index;
        match self.samples.get(sample.0).map(|sample| sample.place) {
            None | Some(SampleState::Ended(_)) => return false,
            Some(SampleState::Nowhere) => {}
            Some(SampleState::Queued { .. }) => self.dequeue(index),
            Some(SampleState::Waiting { group, list }) => {
                self.leave(group, index, list);
                self.settle(group);
            }
            Some(SampleState::Running { group, vm }) => {
                self.stop(group, vm, StopReason::Cancelled);
                self.settle(group);
            }
        }
        self.end(index, SampleEnd::Cancelled);
        self.schedule();
        true
    }

    /// Forgets a sample that has ended: results that still come are unknown from now on. False if it has not ended.
    pub fn forget(&mut self, sample: SampleId) -> bool {
        let Some(Sample { place: SampleState::Ended(_), asked, class, .. }) = self.samples.get(sample.0) else {
            return false;
        };
        let (asked, class) = (*asked, *class);
        self.classes.release(asked);
        self.classes.release(class);
        self.samples.remove(sample.0).is_some()
    }

    /// A machine was plugged in. Its VMs are on revert until each is [`ready`](Scheduler::ready).
    pub fn plug(&mut self, now: Instant, vms: &[Offer]) -> Result<GroupId, RunqRefusal> {
        self.advance(now);
        if !(1..=VMS_MAX).contains(&vms.len()) {
            return Err(RunqRefusal::VmCount);
        }
        let mut group = Group::new(vms, self.settings.waiting_per_vm);
        let classes: Vec<(ClassId, Needs)> = self.classes.iter().map(|(id, class)| (id, class.needs)).collect();
        for (class, needs) in classes {
            self.classes.at_mut(class).able_groups += u32::from(group.learn(class, &needs));
        }
        let key = self.groups.insert(group).ok_or(RunqRefusal::VmCount)?;
        self.settle(key.index);
        self.schedule();
        Ok(GroupId(key))
    }

    /// The VMs of a machine offer this in addition to what they offered before, in the same order. False if it is unknown or has another
    /// number of VMs.
    pub fn offer_more(&mut self, now: Instant, group: GroupId, vms: &[Offer]) -> bool {
        self.advance(now);
        let index = group.0.index;
        if self.groups.get(group.0).is_none_or(|entry| entry.vms.len() != vms.len()) {
            return false;
        }
        for (vm, more) in self.groups[index].vms.iter_mut().zip(vms) {
            vm.offer.plugins.0 |= more.plugins.0;
            vm.offer.tags.0 |= more.tags.0;
        }
        let classes: Vec<(ClassId, Needs)> = self.classes.iter().map(|(id, class)| (id, class.needs)).collect();
        for (class, needs) in classes {
            let before = self.groups[index].is_able(class);
            let able = self.groups[index].learn(class, &needs);
            self.classes.at_mut(class).able_groups += u32::from(able && !before);
        }
        self.settle(index);
        self.schedule();
        true
    }

    /// A machine was unplugged: what it held goes back to the run queues. Attempts that ran there are charged
    /// to their samples: one of them may have brought the machine down.
    pub fn unplug(&mut self, now: Instant, group: GroupId) -> bool {
        self.advance(now);
        let index = group.0.index;
        if self.groups.get(group.0).is_none() {
            return false;
        }
        self.give_back(index);
        (0..self.groups[index].vms.len() as u8).for_each(|vm| self.fail(index, vm));
        self.forget_group(group);
        self.schedule();
        true
    }

    /// A machine gets no new samples: what waits there goes back to the run queues, and running attempts continue. Its VMs must not become ready
    /// any more. False if it is unknown.
    pub fn close(&mut self, now: Instant, group: GroupId) -> bool {
        self.advance(now);
        let index = group.0.index;
        if self.groups.get(group.0).is_none() {
            return false;
        }
        self.groups[index].close();
        self.give_back(index);
        self.settle(index);
        self.schedule();
        true
    }

    /// A machine reports how strained it is. If it is full, what waits there goes back to the run queues, and running attempts continue.
    /// False if it is unknown.
    pub fn set_strain(&mut self, now: Instant, group: GroupId, strain: Strain) -> bool {
        self.advance(now);
        let index = group.0.index;
        if self.groups.get(group.0).is_none() {
            return false;
        }
        let was_full = self.groups[index].is_full();
        self.groups[index].strain = strain;
        let is_full = self.groups[index].is_full();
        if is_full && !was_full {
            self.give_back(index);
        }
        if is_full != was_full {
            self.settle(index);
            self.schedule();
        }
        true
    }

    /// What waits at a machine goes back to the run queues.
    fn give_back(&mut self, index: u32) {
        for list in [Waiting::Current, Waiting::Next, Waiting::Idle] {
            while let Some(sample) = self.groups[index].list_mut(list).head() {
                self.leave(index, sample, list);
                self.enqueue(sample);
            }
        }
    }

    /// A VM is clean: its revert was verified. False if it was not on revert, or is unknown.
    pub fn ready(&mut self, now: Instant, vm: VmId) -> bool {
        self.advance(now);
        if self.vm_state(vm) != Some(VmState::OnRevert) {
            return false;
        }
        self.groups[vm.group.0.index].set_state(vm.number, VmState::Free);
        self.settle(vm.group.0.index);
        self.schedule();
        true
    }

    /// A VM died or must not be used: whatever it did, it is on revert now. False if it is unknown.
    pub fn vm_lost(&mut self, now: Instant, vm: VmId) -> bool {
        self.advance(now);
        if self.vm_state(vm).is_none() {
            return false;
        }
        self.fail(vm.group.0.index, vm.number);
        self.groups[vm.group.0.index].set_state(vm.number, VmState::OnRevert);
        self.settle(vm.group.0.index);
        self.schedule();
        true
    }

    /// Time has passed: attempts beyond THRESHOLD are stopped, and samples that no machine could serve for too
    /// long end, a bounded number at a time: the next deadline may be due already.
    pub fn tick(&mut self, now: Instant) {
        self.advance(now);
        while let Some((group, vm)) = self.overdue() {
            self.expire(group, vm);
            self.settle(group);
        }
        self.end_unserviceable();
        self.schedule();
    }

    /// When [`tick`](Scheduler::tick) has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let patience = self.settings.unserviceable_after;
        let waiting = self.classes.iter().filter(|(_, class)| class.is_unserviceable());
        let unserviceable = waiting.map(|(_, class)| class.unserviceable_since + patience).min();
        [self.first_running_deadline(), unserviceable].into_iter().flatten().min()
    }

    /// The next thing to be done, if any.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// If the clock steps back, the time here stays.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn vm_state(&self, vm: VmId) -> Option<VmState> {
        Some(self.groups.get(vm.group.0)?.vms.get(usize::from(vm.number))?.state)
    }

    /// Tells all groups about a class that has a number.
    pub(super) fn learn(&mut self, numbered: Numbered, needs: &Needs) -> ClassId {
        let Numbered { class, is_new } = numbered;
        if is_new {
            for (_, group) in self.groups.iter_mut() {
                self.classes.at_mut(class).able_groups += u32::from(group.learn(class, needs));
                self.demand.refresh_class(group, class);
            }
        }
        class
    }

    pub(super) fn enqueue(&mut self, index: u32) {
        let class = self.classes.at_mut(self.samples[index].class);
        if class.queued == 0 {
            class.unserviceable_since = self.now;
        }
        class.queued += 1;
        self.samples[index].place = SampleState::Nowhere;
        let key = self.samples.key(index);
        self.queues.add(&mut self.samples, key, self.now);
    }

    pub(super) fn dequeue(&mut self, index: u32) {
        self.classes.at_mut(self.samples[index].class).queued -= 1;
        let key = self.samples.key(index);
        self.queues.del(&mut self.samples, key);
    }

    pub(super) fn end(&mut self, index: u32, end: SampleEnd) {
        self.samples[index].place = SampleState::Ended(end);
        self.outputs.push_back(Output::Ended { sample: SampleId(self.samples.key(index)), end });
    }

    fn first_running_deadline(&self) -> Option<Instant> {
        let SampleState::Running { group, vm } = self.samples[self.running.head()?].place else { return None };
        let VmState::InUse(run) = self.groups[group].vms[usize::from(vm)].state else { return None };
        Some(run.since + self.settings.threshold)
    }

    fn overdue(&self) -> Option<(u32, u8)> {
        self.first_running_deadline().filter(|deadline| *deadline <= self.now)?;
        match self.samples[self.running.head()?].place {
            SampleState::Running { group, vm } => Some((group, vm)),
            _ => None,
        }
    }

    fn end_unserviceable(&mut self) {
        let patience = self.settings.unserviceable_after;
        let late = |since: Instant| since + patience <= self.now;
        let over = |class: &NeedsClass| class.is_unserviceable() && late(class.unserviceable_since);
        let classes = self.classes.iter().filter(|(_, class)| over(class));
        let samples = classes.flat_map(|(id, _)| self.queues.of_class(&self.samples, id));
        let mut samples: Vec<u32> = samples.take(UNSERVICEABLE_A_TICK).collect();
        samples.sort_by_key(|index| self.samples[*index].ticket);
        for index in samples {
            self.dequeue(index);
            self.end(index, SampleEnd::Unserviceable);
        }
    }

    fn forget_group(&mut self, id: GroupId) {
        let Some(mut group) = self.groups.remove(id.0) else { return };
        let known = self.classes.len();
        self.demand.forget(&mut group, known);
        for class in (0..known as u32).map(ClassId).filter(|class| group.is_able(*class)) {
            let class = self.classes.at_mut(class);
            class.able_groups -= 1;
            class.unserviceable_since = self.now;
        }
    }
}

#[cfg(test)]
mod tests;
