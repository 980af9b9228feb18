//! The witness: checks the invariants from outside after every step.
//!
//! It keeps its own record of VMs, attempts and results, and believes nothing else, except where a queue stands,
//! which it asks. Steps marked deep also look at every sample.

use super::workload::Arrival;
use std::collections::BTreeMap;
use weir_core::runq::{
    Assignment, AttemptId, GroupId, Needs, Offer, PluginId, Plugins, PriorityClass, PriorityRules, ResultStatus,
    SampleEnd, SampleId, Scheduler, Tags, VmId, VmStatus, Waiting, Whereabouts,
};
use weir_core::time::Instant;

/// What a VM really does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Physical {
    Free,
    Running(AttemptId),
    Reverting,
}

#[derive(Debug)]
pub(super) struct Witness {
    samples: Vec<Record>,
    by_id: BTreeMap<SampleId, usize>,
    vms: BTreeMap<VmId, (Offer, Physical)>,
    ageing: bool,
    groups_before: Vec<GroupQueues>,
    queued_before: Option<Vec<Queued>>,
    started_now: Vec<Assignment>,
}

#[derive(Debug)]
struct Record {
    id: Option<SampleId>,
    asked: Plugins,
    tags: Tags,
    class: PriorityClass,
    queue: u8,
    submitter: u64,
    accepted: Plugins,
    started: u32,
    end: Option<SampleEnd>,
}

#[derive(Debug)]
struct GroupQueues {
    group: GroupId,
    current: Vec<SampleId>,
    next: Vec<SampleId>,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    sample: usize,
    remaining: Plugins,
    since: Instant,
}

impl Witness {
    pub(super) fn new(arrivals: &[Arrival], ageing: bool) -> Witness {
        let rules = PriorityRules::default();
        let record = |arrival: &Arrival| Record {
            id: None,
            asked: arrival.submission.needs.plugins,
            tags: arrival.submission.needs.tags,
            class: rules.class(arrival.submission.directory),
            queue: arrival.submission.directory.queue(),
            submitter: arrival.submission.submitter.0,
            accepted: Plugins::NONE,
            started: 0,
            end: None,
        };
        Witness {
            samples: arrivals.iter().map(record).collect(),
            by_id: BTreeMap::new(),
            vms: BTreeMap::new(),
            ageing,
            groups_before: Vec::new(),
            queued_before: None,
            started_now: Vec::new(),
        }
    }

    pub(super) fn id(&self, sample: usize) -> Option<SampleId> {
        self.samples[sample].id
    }

    pub(super) fn physical(&self, vm: VmId) -> Option<Physical> {
        self.vms.get(&vm).map(|(_, state)| *state)
    }

    pub(super) fn offer(&self, vm: VmId) -> Offer {
        self.vms.get(&vm).map_or(Offer { plugins: Plugins::NONE, tags: Tags::NONE }, |(offer, _)| *offer)
    }

    pub(super) fn submitted(&mut self, sample: usize, id: SampleId) {
        self.samples[sample].id = Some(id);
        self.by_id.insert(id, sample);
    }

    pub(super) fn plugged(&mut self, vm: VmId, offer: Offer) {
        self.vms.insert(vm, (offer, Physical::Reverting));
    }

    pub(super) fn unplugged(&mut self, group: GroupId) {
        self.vms.retain(|vm, _| vm.group != group);
    }

    pub(super) fn reverting(&mut self, vm: VmId) {
        self.set(vm, Physical::Reverting);
    }

    pub(super) fn free(&mut self, vm: VmId) {
        self.set(vm, Physical::Free);
    }

    /// An attempt starts: on a clean VM that can run it, within the cap.
    pub(super) fn started(&mut self, given: &Assignment) -> Result<usize, String> {
        let sample = self.known(given.attempt.sample)?;
        let Some((offer, state)) = self.vms.get(&given.vm).copied() else {
            return Err(format!("a start on a machine that is gone: {given:?}"));
        };
        ensure(state == Physical::Free, || format!("a start on a VM that is {state:?}: {given:?}"))?;
        let record = &mut self.samples[sample];
        record.started += 1;
        let needs = Needs { plugins: Plugins(record.asked.0 & !record.accepted.0), tags: record.tags };
        let (runs, started, accepted) = (offer.runs(&needs), record.started, record.accepted.len());
        ensure(record.end.is_none(), || format!("sample {sample} starts after its end"))?;
        ensure(runs == given.plugins && !runs.is_empty(), || format!("the VM runs {runs:?}: {given:?}"))?;
        ensure(given.attempt.number == started, || format!("attempt {started} is numbered {}", given.attempt.number))?;
        ensure(started <= 3 + accepted, || format!("sample {sample} has {started} attempts, {accepted} results"))?;
        self.set(given.vm, Physical::Running(given.attempt));
        self.started_now.push(*given);
        Ok(sample)
    }

    /// An attempt is stopped: it must be the one that runs there.
    pub(super) fn stopped(&self, attempt: AttemptId, vm: VmId) -> Result<(), String> {
        let state = self.physical(vm);
        ensure(state == Some(Physical::Running(attempt)), || {
            format!("{attempt:?} is stopped on a VM that is {state:?}")
        })
    }

    /// A sample ends: once, or again as done by a late result.
    pub(super) fn ended(&mut self, id: SampleId, end: SampleEnd) -> Result<usize, String> {
        let sample = self.known(id)?;
        let record = &mut self.samples[sample];
        let before = record.end.replace(end);
        let late = end == SampleEnd::Done && matches!(before, Some(SampleEnd::Quarantined | SampleEnd::Unserviceable));
        ensure(before.is_none() || late, || format!("sample {sample} ends as {end:?} after {before:?}"))?;
        let complete = record.accepted == record.asked;
        ensure((end == SampleEnd::Done) == complete, || {
            format!("sample {sample} ends as {end:?}, complete: {complete}")
        })?;
        Ok(sample)
    }

    /// A result is judged: accepted if and only if it is the first valid one.
    pub(super) fn reported(
        &mut self,
        attempt: AttemptId,
        plugin: PluginId,
        valid: bool,
        verdict: ResultStatus,
    ) -> Result<(), String> {
        let sample = self.known(attempt.sample)?;
        let record = &mut self.samples[sample];
        let expected = match (record.end, record.accepted.contains(plugin), valid) {
            (Some(SampleEnd::Cancelled), _, _) => ResultStatus::Cancelled,
            (_, true, _) => ResultStatus::Duplicate,
            (_, false, false) => ResultStatus::Invalid,
            (_, false, true) => ResultStatus::Accepted,
        };
        if expected == ResultStatus::Accepted {
            record.accepted = record.accepted.with(plugin);
        }
        ensure(verdict == expected, || format!("a result of sample {sample} is {verdict:?}, should be {expected:?}"))
    }

    /// Looks around before a step.
    pub(super) fn before(&mut self, scheduler: &Scheduler, deep: bool) {
        let queues = |group| GroupQueues {
            group,
            current: scheduler.waiting(group, Waiting::Current),
            next: scheduler.waiting(group, Waiting::Next),
        };
        self.groups_before = scheduler.groups().map(queues).collect();
        self.queued_before = deep.then(|| self.queued(scheduler));
        self.started_now.clear();
    }

    /// Looks around after a step.
    pub(super) fn after(&self, scheduler: &Scheduler) -> Result<(), String> {
        for given in &self.started_now {
            self.check_next_after_current(scheduler, given)?;
            self.check_idle_last(scheduler, given)?;
        }
        let Some(before) = &self.queued_before else { return Ok(()) };
        scheduler.audit()?;
        self.check_vms(scheduler)?;
        self.check_order(scheduler, before)?;
        self.check_no_vm_stands_idle(scheduler)
    }

    /// After the last event: everything has ended and nothing is left.
    pub(super) fn at_the_end(&self, scheduler: &Scheduler) -> Result<(), String> {
        scheduler.audit()?;
        match self.samples.iter().position(|record| record.end.is_none()) {
            Some(sample) => {
                let why = self.samples[sample].id.map(|id| scheduler.why(id));
                Err(format!("all is healed, but sample {sample} never ends: {why:?}"))
            }
            None => ensure(scheduler.run_queues().is_empty(), || "samples are left in the run queues".into()),
        }
    }

    fn check_next_after_current(&self, scheduler: &Scheduler, given: &Assignment) -> Result<(), String> {
        let Some(before) = self.groups_before.iter().find(|queues| queues.group == given.vm.group) else {
            return Ok(());
        };
        let Some((offer, _)) = self.vms.get(&given.vm) else { return Ok(()) };
        if !before.next.contains(&given.attempt.sample) {
            return Ok(());
        }
        let waits = scheduler.waiting(given.vm.group, Waiting::Current);
        let passed_over = |id: &&SampleId| waits.contains(id) && self.can_run(scheduler, offer, **id);
        match before.current.iter().find(passed_over) {
            Some(id) => Err(format!("{given:?} comes from next, though {id:?} waits in current for the same VM")),
            None => Ok(()),
        }
    }

    fn check_idle_last(&self, scheduler: &Scheduler, given: &Assignment) -> Result<(), String> {
        let sample = self.known(given.attempt.sample)?;
        // With ageing, work for current may be chosen after it in the same step.
        if self.ageing || self.samples[sample].class != PriorityClass::Idle {
            return Ok(());
        }
        let waiting = |list| scheduler.waiting(given.vm.group, list).len();
        let busy = waiting(Waiting::Current) + waiting(Waiting::Next);
        ensure(busy == 0, || format!("{given:?} is of the idle class, but {busy} wait in current and next"))
    }

    fn check_vms(&self, scheduler: &Scheduler) -> Result<(), String> {
        for (vm, _, status) in scheduler.groups().flat_map(|group| scheduler.vms(group)) {
            let agree = match (status, self.physical(vm)) {
                (VmStatus::Free, Some(Physical::Free)) => true,
                (VmStatus::InUse(a), Some(Physical::Running(b))) => a == b,
                (VmStatus::OnRevert, Some(Physical::Reverting)) => true,
                _ => false,
            };
            ensure(agree, || format!("{vm:?} is {status:?} to the scheduler, but {:?}", self.physical(vm)))?;
        }
        Ok(())
    }

    /// Of samples with equal needs, those in lower run queues leave first, and those of one submitter in order.
    fn check_order(&self, scheduler: &Scheduler, before: &[Queued]) -> Result<(), String> {
        let still = self.queued(scheduler);
        let stayed = |queued: &&Queued| {
            let found = still.binary_search_by_key(&queued.sample, |s| s.sample);
            found.is_ok_and(|at| still[at].since == queued.since)
        };
        let (stayed, left): (Vec<&Queued>, Vec<&Queued>) = before.iter().partition(stayed);
        let chosen = left.into_iter().filter(|queued| self.was_chosen(scheduler, queued));
        for (x, y) in chosen.flat_map(|x| stayed.iter().map(move |y| (x, *y))) {
            let (left, stays) = (&self.samples[x.sample], &self.samples[y.sample]);
            if x.remaining != y.remaining || left.tags != stays.tags {
                continue;
            }
            let lower = !self.ageing && stays.queue < left.queue;
            let earlier = stays.queue == left.queue && stays.submitter == left.submitter && y.since < x.since;
            ensure(!lower && !earlier, || format!("sample {} was chosen before sample {}", x.sample, y.sample))?;
        }
        Ok(())
    }

    fn was_chosen(&self, scheduler: &Scheduler, queued: &Queued) -> bool {
        let view = self.samples[queued.sample].id.and_then(|id| scheduler.sample(id));
        view.is_some_and(|view| {
            matches!(view.whereabouts, Whereabouts::Waiting(..) | Whereabouts::Running(..))
                && view.remaining == queued.remaining
        })
    }

    /// No head-of-line blocking: a free VM never stands beside a queued sample that it could run.
    fn check_no_vm_stands_idle(&self, scheduler: &Scheduler) -> Result<(), String> {
        let vms = scheduler.groups().flat_map(|group| scheduler.vms(group));
        let free: Vec<Offer> =
            vms.filter(|(_, _, status)| *status == VmStatus::Free).map(|(_, offer, _)| offer).collect();
        for queued in self.queued(scheduler) {
            let record = &self.samples[queued.sample];
            let needs = Needs { plugins: queued.remaining, tags: record.tags };
            let blocked =
                record.class != PriorityClass::Idle && free.iter().any(|offer| !offer.runs(&needs).is_empty());
            ensure(!blocked, || format!("sample {} is queued beside a free VM that could run it", queued.sample))?;
        }
        Ok(())
    }

    fn queued(&self, scheduler: &Scheduler) -> Vec<Queued> {
        let look = |(sample, record): (usize, &Record)| {
            let view = scheduler.sample(record.id?)?;
            match view.whereabouts {
                Whereabouts::Queued(since) => Some(Queued { sample, remaining: view.remaining, since }),
                _ => None,
            }
        };
        let open = self.samples.iter().enumerate().filter(|(_, record)| record.end.is_none());
        open.filter_map(look).collect()
    }

    fn can_run(&self, scheduler: &Scheduler, offer: &Offer, id: SampleId) -> bool {
        let Some(view) = scheduler.sample(id) else { return false };
        let tags = self.by_id.get(&id).map_or(Tags::NONE, |sample| self.samples[*sample].tags);
        !offer.runs(&Needs { plugins: view.remaining, tags }).is_empty()
    }

    fn known(&self, id: SampleId) -> Result<usize, String> {
        self.by_id.get(&id).copied().ok_or_else(|| format!("{id:?} was never submitted"))
    }

    fn set(&mut self, vm: VmId, state: Physical) {
        if let Some((_, physical)) = self.vms.get_mut(&vm) {
            *physical = state;
        }
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
