//! How samples get from the run queues to groups and from groups to VMs.
//!
//! Whenever something changed: *current* runs in order (the most urgent first) on free VMs that can run its samples; when it holds nothing
//! that a free VM could run and *next* does, *next* becomes *current*; then samples are chosen from the run queues
//! as long as some group has a free VM or room for them; and at last, where *current* and *next* are empty, *idle*
//! runs. So no VM is free while a sample waits that it could run.

use super::group::{Group, GroupId, Strain, VmId};
use super::list::List;
use super::output::{Assignment, Output};
use super::priority::PriorityClass;
use super::sample::{AttemptId, Sample, SampleId, SampleState, Waiting};
use super::scheduler::Scheduler;
use super::vm::{Run, VmState};
use crate::mutant::{Mutant, planted};
use core::cmp::Reverse;

impl Scheduler {
    /// Starts everything that can start.
    pub(super) fn schedule(&mut self) {
        while let Some(key) = self.queues.choose(&mut self.samples, &self.demand.servable) {
            self.classes.at_mut(self.samples[key.index].class).queued -= 1;
            self.place(key.index);
        }
        if self.idle_waiting > 0 {
            self.run_all_idle();
        }
        debug_assert!(
            self.queues.len() + self.running.len() + self.idle_waiting <= self.samples.len(),
            "a sample is in two places"
        );
    }

    /// Runs what waits in a group as far as its VMs allow, and notes what it can take afterwards.
    pub(super) fn settle(&mut self, group: u32) {
        while let Some((list, index)) = self.eligible(group) {
            match list {
                Waiting::Next => self.next_becomes_current(group),
                list => self.start(group, list, index),
            }
        }
        self.demand.refresh(&mut self.groups[group], self.classes.len());
    }

    /// Takes a sample out of a group's queue.
    pub(super) fn leave(&mut self, group: u32, index: u32, list: Waiting) {
        self.groups[group].remove(&mut self.samples, index, list);
        self.samples[index].place = SampleState::Nowhere;
        self.idle_waiting -= usize::from(list == Waiting::Idle);
    }

    /// Puts a sample at the end of a group's queue; in *current* before what is less urgent, because otherwise samples fetched
    /// ahead would go before real-time ones.
    pub(super) fn enter(&mut self, group: u32, index: u32, list: Waiting) {
        if list == Waiting::Current {
            let urgency = |sample: &Sample| self.demand.servable.urgency(sample.directory.queue(), sample.queued_at);
            let own = urgency(&self.samples[index]);
            self.groups[group].push_current(&mut self.samples, index, |other| own < urgency(other));
        } else {
            self.groups[group].push(&mut self.samples, index, list);
        }
        self.samples[index].place = SampleState::Waiting { group, list };
        self.idle_waiting += usize::from(list == Waiting::Idle);
    }

    /// Puts a sample that was chosen into a group that can take it; there is at least one.
    fn place(&mut self, index: u32) {
        let idle = self.settings.priority.class(self.samples[index].directory) == PriorityClass::Idle;
        match self.group_for(index, idle) {
            None => self.enqueue(index),
            Some(group) if idle => {
                self.enter(group, index, Waiting::Idle);
                self.run_idle(group);
            }
            Some(group) => {
                self.enter(group, index, Waiting::Current);
                self.settle(group);
            }
        }
    }

    /// The group for a sample: one with a free VM for it rather than one with room; then one whose VM runs most
    /// of it; then the one with the least strain, as its machine reports it; then the least loaded; then the first.
    fn group_for(&self, index: u32, idle: bool) -> Option<u32> {
        let class = self.samples[index].class;
        let needs = &self.classes.at(class).needs;
        let takes = |g: &Group| (if idle { &g.takes_idle } else { &g.takes }).contains(class);
        let fit = |g: &Group| {
            let free = g.free_for(class);
            let vms = if free == 0 { g.able(class) } else { free };
            let runs = g.best(vms, needs).map_or(0, |vm| g.vms[usize::from(vm)].offer.runs(needs).len());
            let strain = if planted(Mutant::RunqIgnoresStrain) { Strain::default() } else { g.strain };
            (free != 0, runs, Reverse(strain), Reverse(g.load() * 1_000_000 / g.vms.len()))
        };
        let groups = self.groups.iter().filter(|(_, g)| takes(g));
        groups.max_by_key(|(key, g)| (fit(g), Reverse(key.index))).map(|(key, _)| key.index)
    }

    fn eligible(&self, group: u32) -> Option<(Waiting, u32)> {
        let group = &self.groups[group];
        if !group.has_free() {
            return None;
        }
        let first = |list| Some((list, group.eligible(&self.samples, list)?));
        if planted(Mutant::RunqNextBeforeCurrent) {
            return first(Waiting::Next).or_else(|| first(Waiting::Current));
        }
        first(Waiting::Current).or_else(|| first(Waiting::Next))
    }

    fn next_becomes_current(&mut self, group: u32) {
        let entry = &mut self.groups[group];
        let mut next = core::mem::replace(&mut entry.next, List::EMPTY);
        let place = SampleState::Waiting { group, list: Waiting::Current };
        next.for_each(&mut self.samples, |sample| sample.place = place);
        if planted(Mutant::RunqNextBeforeCurrent) {
            core::mem::swap(&mut next, &mut entry.current);
        }
        entry.current.append(&mut self.samples, &mut next);
    }

    fn run_all_idle(&mut self) {
        let mut from = 0;
        while let Some(group) = self.groups.occupied_from(from) {
            if !self.groups[group].idle.is_empty() {
                self.run_idle(group);
            }
            from = group + 1;
        }
    }

    fn run_idle(&mut self, group: u32) {
        while self.groups[group].len() == 0
            && let Some(index) = self.groups[group].eligible(&self.samples, Waiting::Idle)
        {
            self.start(group, Waiting::Idle, index);
        }
        self.demand.refresh(&mut self.groups[group], self.classes.len());
    }

    fn start(&mut self, group: u32, list: Waiting, index: u32) {
        self.leave(group, index, list);
        let id = GroupId(self.groups.key(group));
        let sample = &mut self.samples[index];
        let needs = &self.classes.at(sample.class).needs;
        let entry = &mut self.groups[group];
        let Some(vm) = entry.best(entry.free_for(sample.class), needs) else { return };
        let plugins = entry.vms[usize::from(vm)].offer.runs(needs);
        sample.started = sample.started.saturating_add(1);
        sample.place = SampleState::Running { group, vm };
        let number = sample.started;
        let run = Run { sample: index, number, since: self.now, plugins, pending: plugins, fruitful: false };
        entry.set_state(vm, VmState::InUse(run));
        self.running.push_back(&mut self.samples, index);
        self.outputs.push_back(Output::Start(Assignment {
            attempt: AttemptId { sample: SampleId(self.samples.key(index)), number },
            vm: VmId { group: id, number: vm },
            plugins,
            deadline: self.now + self.settings.threshold,
        }));
    }
}
