//! The whole scheduler: samples and machines in, assignments out.
//!
//! A state machine: every input takes `now` and ends with all that can start started; what is to be done is
//! polled with [`Scheduler::poll`] (drain it after each input: it holds what was not polled);
//! [`Scheduler::next_deadline`] says when to call [`Scheduler::tick`].
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
use super::sample::{End, Place, Sample, SampleId, SubmitterId, Waiting};
use super::settings::{Refused, Settings};
use super::slab::Slab;
use super::vm::VmState;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Samples that one tick ends at most because no machine could serve them: all of a queue would be one huge batch.
const UNSERVICEABLE_A_TICK: usize = 1_000;

/// What somebody hands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The directory, that is the priority.
    pub directory: Directory,
    /// Who hands it in.
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
    /// Samples that run, in order of their starts: so in order of their deadlines.
    pub(super) running: List,
    /// Samples in the *idle* queues of all groups.
    pub(super) idle_waiting: usize,
    pub(super) outputs: VecDeque<Output>,
    /// How long attempts have taken of late.
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

    /// Takes a sample in, or says why not.
    pub fn submit(&mut self, now: Instant, submission: &Submission) -> Result<SampleId, Refused> {
        self.submit_charged(now, submission, 0)
    }

    /// The same with a sample that earlier leaders have tried: `charged` attempts brought nothing. One that has no attempt left
    /// is put off, because the last one may still bring its result. [`resume`](Scheduler::resume) ends it if it did not.
    pub fn submit_charged(&mut self, now: Instant, submission: &Submission, charged: u8) -> Result<SampleId, Refused> {
        self.advance(now);
        let Submission { directory, submitter, needs } = *submission;
        if needs.plugins.is_empty() {
            return Err(Refused::NothingToRun);
        }
        if self.samples.len() >= self.settings.samples_max as usize {
            return Err(Refused::Full);
        }
        let class = self.classes.take(needs).ok_or(Refused::TooManyClasses)?;
        let class = self.learn(class, &needs);
        // Named twice: what was asked, and what is still to run.
        self.classes.take_again(class);
        let key = self.samples.insert(Sample::new(directory, submitter, class)).ok_or(Refused::Full)?;
        self.samples[key.index].charged = charged.min(self.settings.attempts_max);
        if self.has_attempts(key.index) {
            self.enqueue(key.index);
            self.schedule();
        }
        Ok(SampleId(key))
    }

    /// Takes a sample back, wherever it is. False if it has ended already, or is unknown.
    pub fn cancel(&mut self, now: Instant, sample: SampleId) -> bool {
        self.advance(now);
        let index = sample.0.index;
        match self.samples.get(sample.0).map(|sample| sample.place) {
            None | Some(Place::Ended(_)) => return false,
            Some(Place::Nowhere) => {}
            Some(Place::Queued { .. }) => self.dequeue(index),
            Some(Place::Waiting { group, list }) => {
                self.leave(group, index, list);
                self.settle(group);
            }
            Some(Place::Running { group, vm }) => {
                self.stop(group, vm, StopReason::Cancelled);
                self.settle(group);
            }
        }
        self.end(index, End::Cancelled);
        self.schedule();
        true
    }

    /// Forgets a sample that has ended: its results that still come are unknown from now on. False if it has not.
    pub fn forget(&mut self, sample: SampleId) -> bool {
        let Some(Sample { place: Place::Ended(_), asked, class, .. }) = self.samples.get(sample.0) else {
            return false;
        };
        let (asked, class) = (*asked, *class);
        self.classes.release(asked);
        self.classes.release(class);
        self.samples.remove(sample.0).is_some()
    }

    /// A machine was plugged in. Its VMs are on revert until each is [`ready`](Scheduler::ready).
    pub fn plug(&mut self, now: Instant, vms: &[Offer]) -> Result<GroupId, Refused> {
        self.advance(now);
        if !(1..=VMS_MAX).contains(&vms.len()) {
            return Err(Refused::VmCount);
        }
        let mut group = Group::new(vms, self.settings.waiting_per_vm);
        let classes: Vec<(ClassId, Needs)> = self.classes.iter().map(|(id, class)| (id, class.needs)).collect();
        for (class, needs) in classes {
            self.classes.at_mut(class).able_groups += u32::from(group.learn(class, &needs));
        }
        let key = self.groups.insert(group).ok_or(Refused::VmCount)?;
        self.settle(key.index);
        self.schedule();
        Ok(GroupId(key))
    }

    /// The VMs of a machine offer this beside what they offered before, in the same order. False if it is unknown or has another
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

    /// A machine gets no new samples: what waits there goes back to the run queues, what runs goes on. Its VMs must not become ready
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

    /// A machine says how strained it is. Of one that is full, what waits there goes back to the run queues, and what runs goes on.
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

    /// What is to be done next, if anything.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A clock that steps back does not turn time back here.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn vm_state(&self, vm: VmId) -> Option<VmState> {
        Some(self.groups.get(vm.group.0)?.vms.get(usize::from(vm.number))?.state)
    }

    /// Makes a class that has a number known to all groups.
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
        self.samples[index].place = Place::Nowhere;
        let key = self.samples.key(index);
        self.queues.add(&mut self.samples, key, self.now);
    }

    pub(super) fn dequeue(&mut self, index: u32) {
        self.classes.at_mut(self.samples[index].class).queued -= 1;
        let key = self.samples.key(index);
        self.queues.del(&mut self.samples, key);
    }

    pub(super) fn end(&mut self, index: u32, end: End) {
        self.samples[index].place = Place::Ended(end);
        self.outputs.push_back(Output::Ended { sample: SampleId(self.samples.key(index)), end });
    }

    fn first_running_deadline(&self) -> Option<Instant> {
        let Place::Running { group, vm } = self.samples[self.running.head()?].place else { return None };
        let VmState::InUse(run) = self.groups[group].vms[usize::from(vm)].state else { return None };
        Some(run.since + self.settings.threshold)
    }

    fn overdue(&self) -> Option<(u32, u8)> {
        self.first_running_deadline().filter(|deadline| *deadline <= self.now)?;
        match self.samples[self.running.head()?].place {
            Place::Running { group, vm } => Some((group, vm)),
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
            self.end(index, End::Unserviceable);
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
mod tests {
    use super::super::needs::{PluginId, Plugins, Tags};
    use super::super::output::Assignment;
    use super::super::why::{Unmet, Why};
    use super::*;
    use alloc::vec;

    const NOW: Instant = Instant(1_000);

    fn submission(directory: u64, submitter: u64, plugins: u128) -> Submission {
        Submission {
            directory: Directory::new(directory).unwrap(),
            submitter: SubmitterId(submitter),
            needs: Needs { plugins: Plugins(plugins), tags: Tags::NONE },
        }
    }

    fn lab(vms: &[u128]) -> (Scheduler, GroupId) {
        let mut lab = Scheduler::new(Settings::default());
        let offers: Vec<Offer> =
            vms.iter().map(|plugins| Offer { plugins: Plugins(*plugins), tags: Tags::NONE }).collect();
        let group = lab.plug(NOW, &offers).unwrap();
        (0..vms.len() as u8).for_each(|number| assert!(lab.ready(NOW, VmId { group, number })));
        (lab, group)
    }

    fn starts(lab: &mut Scheduler) -> Vec<Assignment> {
        let outputs = core::iter::from_fn(|| lab.poll());
        outputs.filter_map(|output| if let Output::Start(start) = output { Some(start) } else { None }).collect()
    }

    fn report_all(lab: &mut Scheduler, start: &Assignment) {
        for plugin in start.plugins.iter() {
            lab.result(NOW, start.attempt, plugin, true);
        }
    }

    /// The paper's example: VM1 has plugin 1, VM2 has plugins 1 and 2.
    #[test]
    fn what_ran_once_waits_in_next_while_current_has_work_for_the_vm() {
        let (mut lab, group) = lab(&[0b01, 0b11]);
        let vm2 = VmId { group, number: 1 };
        let [busy, first, other] =
            [0b11, 0b11, 0b10].map(|plugins| lab.submit(NOW, &submission(32, 0, plugins)).unwrap());
        let started = starts(&mut lab);
        assert_eq!(
            started.iter().map(|s| (s.attempt.sample, s.vm.number)).collect::<Vec<_>>(),
            [(busy, 1), (first, 0)]
        );
        report_all(&mut lab, &started[1]);
        report_all(&mut lab, &started[0]);
        assert_eq!(
            (lab.waiting(group, Waiting::Current), lab.waiting(group, Waiting::Next)),
            (vec![other], vec![first])
        );
        for expected in [other, first] {
            lab.ready(NOW, vm2);
            let start = starts(&mut lab)[0];
            assert_eq!(start.attempt.sample, expected);
            report_all(&mut lab, &start);
        }
        assert_eq!(lab.why(first), Why::Ended(End::Done));
    }

    #[test]
    fn real_time_goes_back_to_the_tail_of_current() {
        let (mut lab, group) = lab(&[0b01, 0b10]);
        let a = lab.submit(NOW, &submission(0, 0, 0b11)).unwrap();
        starts(&mut lab);
        let normal = lab.submit(NOW, &submission(40, 0, 0b11)).unwrap();
        let started = starts(&mut lab);
        assert_eq!(started[0].attempt.sample, normal);
        report_all(&mut lab, &started[0]);
        lab.result(NOW, super::super::sample::AttemptId { sample: a, number: 1 }, PluginId::new(0).unwrap(), true);
        assert_eq!(lab.waiting(group, Waiting::Current), [a], "directory 0 returns to current");
        assert_eq!(lab.waiting(group, Waiting::Next), [normal], "directory 40 goes to next");
    }

    #[test]
    fn a_sample_that_kills_its_vm_ends_in_quarantine() {
        let (mut lab, group) = lab(&[1]);
        let vm = VmId { group, number: 0 };
        let killer = lab.submit(NOW, &submission(32, 0, 1)).unwrap();
        for attempt in 1..=3 {
            assert_eq!(starts(&mut lab)[0].attempt.number, attempt);
            lab.vm_lost(NOW, vm);
            lab.ready(NOW, vm);
        }
        assert_eq!(lab.why(killer), Why::Ended(End::Quarantined));
        assert!(starts(&mut lab).is_empty());
    }

    #[test]
    fn what_is_put_off_is_not_charged_and_waits_in_no_queue() {
        let (mut lab, group) = lab(&[0b11]);
        let vm = VmId { group, number: 0 };
        let sample = lab.submit(NOW, &submission(32, 0, 0b11)).unwrap();
        for number in 1..=10 {
            let start = starts(&mut lab)[0];
            assert_eq!(start.attempt.number, number);
            assert!(lab.put_off(NOW, start.attempt) && !lab.put_off(NOW, start.attempt));
            lab.ready(NOW, vm);
            assert!(starts(&mut lab).is_empty(), "not before it is resumed");
            assert_eq!((lab.why(sample), lab.audit()), (Why::PutOff, Ok(())));
            assert!(lab.resume(NOW, sample) && !lab.resume(NOW, sample));
        }
        let start = starts(&mut lab)[0];
        lab.put_off(NOW, start.attempt);
        for plugin in [0, 1] {
            lab.known(NOW, sample, PluginId::new(plugin).unwrap());
        }
        assert_eq!(lab.why(sample), Why::Ended(End::Done), "late results count meanwhile");
        assert!(!lab.resume(NOW, sample));
        let other = lab.submit(NOW, &submission(32, 0, 0b11)).unwrap();
        lab.ready(NOW, vm);
        let start = starts(&mut lab)[0];
        lab.put_off(NOW, start.attempt);
        assert!(lab.cancel(NOW, other));
    }

    #[test]
    fn threshold_runs_from_the_start_and_a_late_first_result_counts() {
        let (mut lab, group) = lab(&[1]);
        let sample = lab.submit(NOW, &submission(32, 0, 1)).unwrap();
        let start = starts(&mut lab)[0];
        assert_eq!(lab.next_deadline(), Some(NOW + Duration::from_secs(600)));
        lab.tick(start.deadline);
        assert!(matches!(lab.poll(), Some(Output::Stop { reason: StopReason::Expired, .. })));
        lab.ready(start.deadline, VmId { group, number: 0 });
        assert_eq!(starts(&mut lab)[0].attempt.number, 2);
        use super::super::attempts::Verdict;
        let plugin = PluginId::new(0).unwrap();
        assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), Verdict::Accepted);
        assert!(matches!(lab.poll(), Some(Output::Stop { reason: StopReason::Satisfied, .. })));
        assert_eq!(lab.why(sample), Why::Ended(End::Done));
        assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), Verdict::Duplicate);
        assert!(lab.forget(sample) && lab.is_empty());
        assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), Verdict::Unknown);
    }

    #[test]
    fn why_names_the_unmet_need() {
        let (mut lab, _) = lab(&[0b01]);
        let missing = lab.submit(NOW, &submission(32, 0, 0b100)).unwrap();
        let gives_up_at = NOW + Duration::from_secs(3600);
        assert_eq!(lab.why(missing), Why::NoMachine { unmet: Unmet::Plugins(Plugins(0b100)), gives_up_at });
        let mut tagged = submission(32, 0, 0b01);
        tagged.needs.tags = Tags(0b10);
        let tagged = lab.submit(NOW, &tagged).unwrap();
        assert_eq!(lab.why(tagged), Why::NoMachine { unmet: Unmet::Tags(Tags(0b10)), gives_up_at });
        let ids: Vec<SampleId> = (0..9).map(|_| lab.submit(NOW, &submission(32, 0, 0b101)).unwrap()).collect();
        let Why::Running { until, .. } = lab.why(ids[0]) else { panic!() };
        let behind = |id| match lab.why(id) {
            Why::Busy { vms: 1, on_revert: 0, until_about, behind, missing } => {
                assert_eq!((until_about, missing), (until, Plugins(0b100)));
                behind
            }
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2, 3, 8].map(|i| behind(ids[i])), [0, 1, 0, 5], "two wait in current, six in the run queue");
        lab.tick(gives_up_at);
        assert_eq!(lab.why(missing), Why::Ended(End::Unserviceable));
    }

    #[test]
    fn a_closed_machine_holds_nothing_back() {
        let (mut lab, group) = lab(&[1]);
        let ids: Vec<SampleId> = (0..4).map(|_| lab.submit(NOW, &submission(32, 0, 1)).unwrap()).collect();
        let running = starts(&mut lab)[0];
        assert_eq!(lab.waiting(group, Waiting::Current), [ids[1], ids[2]]);
        assert!(lab.close(NOW, group));
        assert!(lab.waiting(group, Waiting::Current).is_empty() && lab.audit().is_ok());
        let other = lab.plug(NOW, &[Offer { plugins: Plugins(1), tags: Tags::NONE }; 3]).unwrap();
        (0..3).for_each(|number| assert!(lab.ready(NOW, VmId { group: other, number })));
        assert_eq!(starts(&mut lab).len(), 3);
        report_all(&mut lab, &running);
        assert_eq!(lab.why(ids[0]), Why::Ended(End::Done));
    }

    #[test]
    fn what_a_machine_offers_later_is_used() {
        let (mut lab, group) = lab(&[0b01, 0b01]);
        let sample = lab.submit(NOW, &submission(32, 0, 0b10)).unwrap();
        let none = Offer { plugins: Plugins::NONE, tags: Tags::NONE };
        assert!(!lab.offer_more(NOW, group, &[none]), "it has two");
        assert!(lab.offer_more(NOW, group, &[none, none]) && starts(&mut lab).is_empty());
        assert!(lab.offer_more(NOW, group, &[none, Offer { plugins: Plugins(0b10), ..none }]));
        let start = starts(&mut lab)[0];
        assert_eq!((start.attempt.sample, start.vm.number, start.plugins), (sample, 1, Plugins(0b10)));
        assert_eq!((lab.next_deadline(), lab.audit()), (Some(start.deadline), Ok(())));
    }

    #[test]
    fn a_queue_that_nobody_serves_ends_in_pieces() {
        let (mut lab, _) = lab(&[0b01]);
        let ids: Vec<SampleId> = (0..2_500).map(|_| lab.submit(NOW, &submission(32, 0, 0b10)).unwrap()).collect();
        let due = lab.next_deadline().unwrap();
        for left in [1_500, 500, 0] {
            lab.tick(due);
            let ended = ids.iter().filter(|id| lab.why(**id) == Why::Ended(End::Unserviceable)).count();
            assert_eq!(ended, 2_500 - left);
            assert_eq!(lab.next_deadline(), (left > 0).then_some(due));
        }
        assert_eq!(lab.audit(), Ok(()));
    }

    #[test]
    fn a_flood_of_one_submitter_delays_another_by_one_turn() {
        let (mut lab, group) = lab(&[1]);
        (0..1000).for_each(|_| assert!(lab.submit(NOW, &submission(32, 1, 1)).is_ok()));
        let late = lab.submit(NOW, &submission(32, 2, 1)).unwrap();
        let mut before = 0;
        while lab.why(late) != (Why::Ended(End::Done)) {
            let start = starts(&mut lab)[0];
            report_all(&mut lab, &start);
            lab.ready(NOW, VmId { group, number: 0 });
            before += 1;
        }
        assert_eq!(before, 5, "one that ran, two in current, one turn of the other, itself");
    }

    #[test]
    fn absurd_input_is_refused() {
        let (mut lab, group) = lab(&[1]);
        assert_eq!(lab.submit(NOW, &submission(32, 0, 0)), Err(Refused::NothingToRun));
        assert_eq!(lab.plug(NOW, &[]), Err(Refused::VmCount));
        assert_eq!(lab.plug(NOW, &[Offer { plugins: Plugins(1), tags: Tags::NONE }; 129]), Err(Refused::VmCount));
        assert!(!lab.ready(NOW, VmId { group, number: 200 }) && !lab.vm_lost(NOW, VmId { group, number: 1 }));
        assert!(lab.unplug(NOW, group) && !lab.unplug(NOW, group) && !lab.ready(NOW, VmId { group, number: 0 }));
    }
}
