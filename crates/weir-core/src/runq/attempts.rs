//! How an attempt at a sample ends (results, failure, or the time limit THRESHOLD), and what happens to the sample then.
//!
//! Results are keyed by attempt. The first valid result for a pair of sample and plugin is accepted, whichever attempt it comes from; later
//! ones are duplicates. An attempt without a result counts against its sample, and a sample with too many of them (the cap) is quarantined.
//! So a sample starts at most cap + plugins attempts, and one more each time that it is put off. Being put off is not the sample's fault,
//! and whoever puts it off decides when it goes on.

use super::group::{GroupId, VmId};
use super::needs::{Needs, PluginId, Plugins};
use super::needs_class::ClassId;
use super::output::{Output, StopReason};
use super::priority::PriorityClass;
use super::sample::{AttemptId, SampleEnd, SampleId, SampleState, Waiting};
use super::scheduler::Scheduler;
use super::vm::{Run, VmState};
use crate::time::Instant;
use core::time::Duration;

/// What was made of a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResultStatus {
    /// The first valid one for its sample and plugin.
    Accepted,
    /// There is an accepted one already: it should be kept, but does not count.
    Duplicate,
    /// It was not valid.
    Invalid,
    /// Its sample was cancelled.
    Cancelled,
    /// No such attempt, or it was not started for this plugin.
    Unknown,
}

impl Scheduler {
    /// A result has come in; `valid` says whether it passed the shell's checks.
    pub fn result(&mut self, now: Instant, attempt: AttemptId, plugin: PluginId, valid: bool) -> ResultStatus {
        self.advance(now);
        if !self.is_possible(attempt, plugin) {
            return ResultStatus::Unknown;
        }
        let index = attempt.sample.0.index;
        if self.samples[index].place == SampleState::Ended(SampleEnd::Cancelled) {
            return ResultStatus::Cancelled;
        }
        let verdict = match (self.remaining(index).contains(plugin), valid) {
            (false, _) => ResultStatus::Duplicate,
            (true, false) => ResultStatus::Invalid,
            (true, true) => ResultStatus::Accepted,
        };
        if let Some(run) = self.run_of(attempt) {
            run.pending = run.pending.without(plugin);
            run.fruitful |= verdict == ResultStatus::Accepted;
        }
        if verdict == ResultStatus::Accepted {
            self.accept(index, plugin);
        }
        self.finish_if_over(index);
        self.schedule();
        verdict
    }

    /// A valid result that no attempt here brought: an attempt under an earlier leader did, or there is one for the same
    /// content.
    pub fn known(&mut self, now: Instant, sample: SampleId, plugin: PluginId) -> ResultStatus {
        self.advance(now);
        let index = sample.0.index;
        let Some(known) = self.samples.get(sample.0) else { return ResultStatus::Unknown };
        let (asked, place) = (known.asked, known.place);
        if !self.classes.at(asked).needs.plugins.contains(plugin) {
            return ResultStatus::Unknown;
        }
        if place == SampleState::Ended(SampleEnd::Cancelled) {
            return ResultStatus::Cancelled;
        }
        if !self.remaining(index).contains(plugin) {
            return ResultStatus::Duplicate;
        }
        self.accept(index, plugin);
        self.finish_if_over(index);
        self.schedule();
        ResultStatus::Accepted
    }

    /// An attempt ended without (more) results; its VM is on revert. False if it does not run.
    pub fn failed(&mut self, now: Instant, attempt: AttemptId) -> bool {
        self.advance(now);
        if self.run_of(attempt).is_none() {
            return false;
        }
        if let SampleState::Running { group, vm } = self.samples[attempt.sample.0.index].place {
            self.fail(group, vm);
            self.settle(group);
            self.schedule();
        }
        true
    }

    /// An attempt ended through no fault of its sample: nothing is charged, its VM is on revert, and the sample is in no queue until
    /// [`resume`](Scheduler::resume). False if it does not run.
    pub fn put_off(&mut self, now: Instant, attempt: AttemptId) -> bool {
        self.advance(now);
        if self.run_of(attempt).is_none() {
            return false;
        }
        if let SampleState::Running { group, vm } = self.samples[attempt.sample.0.index].place {
            self.vacate(group, vm);
            self.settle(group);
            self.schedule();
        }
        true
    }

    /// A sample that was put off may run again: it goes to the tail of its run queue, or to quarantine if it has no attempt
    /// left. False if it was not put off.
    pub fn resume(&mut self, now: Instant, sample: SampleId) -> bool {
        self.advance(now);
        if self.samples.get(sample.0).map(|sample| sample.place) != Some(SampleState::Nowhere) {
            return false;
        }
        match self.has_attempts(sample.0.index) {
            true => self.end_or_enqueue(sample.0.index),
            false => self.end(sample.0.index, SampleEnd::Quarantined),
        }
        self.schedule();
        true
    }

    /// Whether a sample may be tried once more.
    pub(super) fn has_attempts(&self, index: u32) -> bool {
        self.samples[index].charged < self.settings.attempts_max
    }

    /// What a sample still needs to run.
    pub(super) fn remaining(&self, index: u32) -> Plugins {
        match self.samples[index].class {
            ClassId::NOTHING => Plugins::NONE,
            class => self.classes.at(class).needs.plugins,
        }
    }

    /// Ends the attempt that a VM carries, if any, as failed: the sample goes to the tail of its run queue, or to quarantine.
    pub(super) fn fail(&mut self, group: u32, vm: u8) {
        let Some(run) = self.vacate(group, vm) else { return };
        self.samples[run.sample].charged += u8::from(!run.fruitful);
        let charged = self.samples[run.sample].charged;
        debug_assert!(charged <= self.settings.attempts_max, "more attempts than the cap");
        if self.has_attempts(run.sample) {
            self.enqueue(run.sample);
        } else {
            self.end(run.sample, SampleEnd::Quarantined);
        }
    }

    /// THRESHOLD has passed for the attempt of a VM.
    pub(super) fn expire(&mut self, group: u32, vm: u8) {
        self.tell_to_stop(group, vm, StopReason::Expired);
        self.fail(group, vm);
    }

    /// Stops the attempt of a VM; afterwards its sample is in no list.
    pub(super) fn stop(&mut self, group: u32, vm: u8, reason: StopReason) {
        self.tell_to_stop(group, vm, reason);
        self.vacate(group, vm);
    }

    /// Whether such an attempt was started, and for that plugin, as far as this is still known.
    fn is_possible(&mut self, attempt: AttemptId, plugin: PluginId) -> bool {
        let Some(sample) = self.samples.get(attempt.sample.0) else { return false };
        let started = (1..=sample.started).contains(&attempt.number);
        let asked = self.classes.at(sample.asked).needs.plugins.contains(plugin);
        started && asked && self.run_of(attempt).is_none_or(|run| run.plugins.contains(plugin))
    }

    /// The run of an attempt, if it still runs.
    fn run_of(&mut self, attempt: AttemptId) -> Option<&mut Run> {
        let SampleState::Running { group, vm } = self.samples.get(attempt.sample.0)?.place else { return None };
        self.groups[group].run(vm).filter(|run| run.number == attempt.number)
    }

    /// One plugin less is to be run, wherever the sample is.
    fn accept(&mut self, index: u32, plugin: PluginId) {
        let before = self.samples[index].class;
        match self.samples[index].place {
            SampleState::Queued { .. } => {
                self.dequeue(index);
                self.narrow(index, plugin);
                self.end_or_enqueue(index);
            }
            SampleState::Waiting { group, list } => {
                self.narrow(index, plugin);
                self.accept_in_group(index, group, list, before);
            }
            place @ (SampleState::Ended(_) | SampleState::Nowhere) => {
                if place == SampleState::Nowhere && !self.has_attempts(index) {
                    // The attempt that was charged last has brought a result after all.
                    self.samples[index].charged -= 1;
                }
                self.narrow(index, plugin);
                if self.remaining(index).is_empty() {
                    self.end(index, SampleEnd::Done);
                }
            }
            SampleState::Running { .. } => self.narrow(index, plugin),
        }
    }

    /// A waiting sample needs less than before: it keeps its place if its group can still serve it.
    fn accept_in_group(&mut self, index: u32, group: u32, list: Waiting, before: ClassId) {
        let after = self.samples[index].class;
        self.groups[group].reclass(before, after, list);
        if !self.groups[group].is_able(after) {
            self.leave(group, index, list);
            self.end_or_enqueue(index);
        }
        self.settle(group);
    }

    fn end_or_enqueue(&mut self, index: u32) {
        match self.samples[index].class {
            ClassId::NOTHING => self.end(index, SampleEnd::Done),
            _ => self.enqueue(index),
        }
    }

    /// Removes a plugin from what a sample still needs.
    fn narrow(&mut self, index: u32, plugin: PluginId) {
        let before = self.samples[index].class;
        let Needs { plugins, tags } = self.classes.at(before).needs;
        let needs = Needs { plugins: plugins.without(plugin), tags };
        let after = if needs.plugins.is_empty() {
            ClassId::NOTHING
        } else {
            let Some(numbered) = self.classes.take_anyway(needs) else { return };
            self.learn(numbered, &needs)
        };
        self.samples[index].class = after;
        self.classes.release(before);
    }

    /// Ends the attempt of a running sample if nothing for which it was started is still missing.
    fn finish_if_over(&mut self, index: u32) {
        let SampleState::Running { group, vm } = self.samples[index].place else { return };
        let remaining = self.remaining(index);
        let Some(run) = self.groups[group].run(vm) else { return };
        if !run.pending.and(remaining).is_empty() {
            return;
        }
        let (reported, fruitful) = (run.pending.is_empty(), run.fruitful);
        if reported && !fruitful && !remaining.is_empty() {
            self.fail(group, vm);
        } else {
            if !reported {
                self.tell_to_stop(group, vm, StopReason::Satisfied);
            }
            self.note_run_time(group, vm);
            self.vacate(group, vm);
            self.go_on(index, group);
        }
        self.settle(group);
    }

    /// After a run that brought a result: the sample is done, or goes on with what is left, on this machine if possible.
    fn go_on(&mut self, index: u32, group: u32) {
        let (class, directory) = (self.samples[index].class, self.samples[index].directory);
        let rules = &self.settings.priority;
        let list = match rules.class(directory) {
            PriorityClass::Idle => Waiting::Idle,
            _ if rules.returns_to_current(directory) => Waiting::Current,
            _ => Waiting::Next,
        };
        let entry = &self.groups[group];
        let room = if list == Waiting::Idle { entry.idle_has_room() } else { entry.has_room(class) };
        if class != ClassId::NOTHING && room && entry.is_able(class) {
            self.enter(group, index, list);
        } else {
            self.end_or_enqueue(index);
        }
    }

    /// Takes the attempt off a VM, which is on revert afterwards.
    fn vacate(&mut self, group: u32, vm: u8) -> Option<Run> {
        let run = *self.groups[group].run(vm)?;
        self.groups[group].set_state(vm, VmState::OnRevert);
        self.running.remove(&mut self.samples, run.sample);
        self.samples[run.sample].place = SampleState::Nowhere;
        Some(run)
    }

    fn tell_to_stop(&mut self, group: u32, vm: u8, reason: StopReason) {
        let id = GroupId(self.groups.key(group));
        let Some(run) = self.groups[group].run(vm) else { return };
        let (index, number) = (run.sample, run.number);
        let attempt = AttemptId { sample: SampleId(self.samples.key(index)), number };
        self.outputs.push_back(Output::Stop { attempt, vm: VmId { group: id, number: vm }, reason });
    }

    /// A moving mean: each run counts for an eighth.
    fn note_run_time(&mut self, group: u32, vm: u8) {
        let now = self.now;
        let Some(took) = self.groups[group].run(vm).map(|run| now.since(run.since)) else { return };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let mean = self.mean_run.map_or(took, |mean| Duration::from_nanos(nanos(mean) / 8 * 7 + nanos(took) / 8));
        self.mean_run = Some(mean);
    }
}
