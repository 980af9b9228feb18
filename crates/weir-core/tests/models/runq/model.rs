//! The scheduler again, without cleverness: vectors, linear scans, everything worked out anew each time.

mod attempt;
mod choice;

use std::collections::BTreeMap;
use weir_core::runq::{
    AttemptId, GroupId, Needs, Offer, Output, PluginId, Plugins, PriorityClass, ResultStatus, RunqRefusal, SampleEnd,
    SampleId, Settings, StopReason, Strain, Submission, VmId, Waiting,
};
use weir_core::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Queued,
    Waiting(GroupId, Waiting),
    Running(VmId),
    Ended(SampleEnd),
    PutOff,
}

#[derive(Debug, Clone)]
pub(super) struct ModelSample {
    pub(super) id: SampleId,
    what: Submission,
    pub(super) remaining: Plugins,
    pub(super) at: At,
    queued_at: Instant,
    ticket: u64,
    pub(super) started: u32,
    pub(super) charged: u8,
}

impl ModelSample {
    fn needs(&self) -> Needs {
        Needs { plugins: self.remaining, tags: self.what.needs.tags }
    }

    fn queue(&self) -> u8 {
        self.what.directory.queue()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vm {
    Free,
    OnRevert,
    InUse { sample: usize, number: u32, since: Instant, order: u64, plugins: Plugins, pending: Plugins, fruitful: bool },
}

#[derive(Debug, Clone)]
pub(super) struct ModelGroup {
    pub(super) id: GroupId,
    vms: Vec<(Offer, Vm)>,
    pub(super) current: Vec<usize>,
    pub(super) next: Vec<usize>,
    pub(super) idle: Vec<usize>,
    strain: Strain,
}

#[derive(Debug)]
pub(super) struct Model {
    settings: Settings,
    now: Instant,
    pub(super) samples: Vec<ModelSample>,
    pub(super) groups: Vec<ModelGroup>,
    /// By run queue, submitter and needs: when the submitter was served last, and when that lane was.
    turns: BTreeMap<(u8, u64, Needs), (u64, u64)>,
    unserviceable_since: BTreeMap<Needs, Instant>,
    counter: u64,
    pub(super) outputs: Vec<Output>,
}

impl Model {
    pub(super) fn new(settings: Settings) -> Model {
        Model {
            settings,
            now: Instant::ZERO,
            samples: Vec::new(),
            groups: Vec::new(),
            turns: BTreeMap::new(),
            unserviceable_since: BTreeMap::new(),
            counter: 0,
            outputs: Vec::new(),
        }
    }

    pub(super) fn would_refuse(&self, what: &Submission) -> Option<RunqRefusal> {
        let mut used: Vec<Needs> = self.samples.iter().map(|s| s.what.needs).collect();
        used.extend(self.samples.iter().filter(|s| !s.remaining.is_empty()).map(ModelSample::needs));
        used.sort();
        used.dedup();
        if what.needs.plugins.is_empty() {
            Some(RunqRefusal::NothingToRun)
        } else if self.samples.len() >= self.settings.samples_max as usize {
            Some(RunqRefusal::Full)
        } else if !used.contains(&what.needs) && used.len() >= self.settings.classes_max as usize {
            Some(RunqRefusal::TooManyClasses)
        } else {
            None
        }
    }

    pub(super) fn submit(&mut self, now: Instant, what: Submission, charged: u8, id: SampleId) {
        self.now = now;
        self.samples.push(ModelSample {
            id,
            what,
            remaining: what.needs.plugins,
            at: At::PutOff,
            queued_at: now,
            ticket: 0,
            started: 0,
            charged: charged.min(self.settings.attempts_max),
        });
        if charged < self.settings.attempts_max {
            self.enqueue(self.samples.len() - 1);
            self.schedule();
        }
    }

    pub(super) fn plug(&mut self, now: Instant, id: GroupId, vms: &[Offer]) {
        self.now = now;
        let vms = vms.iter().map(|offer| (*offer, Vm::OnRevert)).collect();
        self.groups.push(ModelGroup { id, vms, current: vec![], next: vec![], idle: vec![], strain: Strain(0) });
        self.groups.sort_by_key(|group| group.id.0.index);
        self.schedule();
    }

    pub(super) fn unplug(&mut self, now: Instant, id: GroupId) {
        self.now = now;
        let g = self.groups.iter().position(|g| g.id == id).unwrap();
        let group = self.groups[g].clone();
        for sample in group.current.iter().chain(&group.next).chain(&group.idle) {
            self.enqueue(*sample);
        }
        (0..group.vms.len()).for_each(|vm| self.fail(g, vm));
        self.groups.remove(g);
        for (needs, since) in &mut self.unserviceable_since {
            if group.vms.iter().any(|(offer, _)| !offer.runs(needs).is_empty()) {
                *since = now;
            }
        }
        self.schedule();
    }

    pub(super) fn set_strain(&mut self, now: Instant, id: GroupId, strain: Strain) {
        self.now = now;
        let g = self.groups.iter().position(|g| g.id == id).unwrap();
        self.groups[g].strain = strain;
        if strain == Strain::FULL {
            let group = &mut self.groups[g];
            let lists = [&mut group.current, &mut group.next, &mut group.idle].map(std::mem::take);
            lists.into_iter().flatten().for_each(|sample| self.enqueue(sample));
        }
        self.schedule();
    }

    pub(super) fn ready(&mut self, now: Instant, vm: VmId) -> bool {
        self.now = now;
        let Some(g) = self.groups.iter().position(|g| g.id == vm.group) else { return false };
        let state = &mut self.groups[g].vms[usize::from(vm.number)].1;
        if *state != Vm::OnRevert {
            return false;
        }
        *state = Vm::Free;
        self.schedule();
        true
    }

    pub(super) fn vm_lost(&mut self, now: Instant, vm: VmId) {
        self.now = now;
        let g = self.groups.iter().position(|g| g.id == vm.group).unwrap();
        self.fail(g, usize::from(vm.number));
        self.groups[g].vms[usize::from(vm.number)].1 = Vm::OnRevert;
        self.schedule();
    }

    pub(super) fn cancel(&mut self, now: Instant, id: SampleId) -> bool {
        self.now = now;
        let Some(s) = self.samples.iter().position(|s| s.id == id) else { return false };
        match self.samples[s].at {
            At::Ended(_) => return false,
            At::PutOff => {}
            At::Queued => self.dequeue(s),
            At::Waiting(..) => self.leave(s),
            At::Running(vm) => {
                self.stop(vm, StopReason::Cancelled);
                self.vacate(vm);
            }
        }
        self.end(s, SampleEnd::Cancelled);
        self.schedule();
        true
    }

    pub(super) fn forget(&mut self, id: SampleId) -> bool {
        let ended = self.samples.iter().position(|s| s.id == id && matches!(s.at, At::Ended(_)));
        let Some(gone) = ended else { return false };
        self.samples.remove(gone);
        let shift = |s: &mut usize| *s -= usize::from(*s > gone);
        for group in &mut self.groups {
            group.current.iter_mut().chain(&mut group.next).chain(&mut group.idle).for_each(shift);
            for (_, vm) in &mut group.vms {
                if let Vm::InUse { sample, .. } = vm {
                    shift(sample);
                }
            }
        }
        true
    }

    pub(super) fn result(&mut self, now: Instant, attempt: AttemptId, plugin: PluginId, valid: bool) -> ResultStatus {
        self.now = now;
        let Some(s) = self.samples.iter().position(|s| s.id == attempt.sample) else { return ResultStatus::Unknown };
        let sample = &self.samples[s];
        let running = self.running(attempt);
        let wrong_vm = matches!(running.map(|(g, v)| self.groups[g].vms[v].1),
            Some(Vm::InUse { plugins, .. }) if !plugins.contains(plugin));
        let started = attempt.number >= 1 && attempt.number <= sample.started;
        if !started || !sample.what.needs.plugins.contains(plugin) || wrong_vm {
            return ResultStatus::Unknown;
        }
        if sample.at == At::Ended(SampleEnd::Cancelled) {
            return ResultStatus::Cancelled;
        }
        let verdict = match (sample.remaining.contains(plugin), valid) {
            (false, _) => ResultStatus::Duplicate,
            (true, false) => ResultStatus::Invalid,
            (true, true) => ResultStatus::Accepted,
        };
        if let Some((g, v)) = running
            && let Vm::InUse { pending, fruitful, .. } = &mut self.groups[g].vms[v].1
        {
            *pending = pending.without(plugin);
            *fruitful |= verdict == ResultStatus::Accepted;
        }
        if verdict == ResultStatus::Accepted {
            self.accept(s, plugin);
        }
        self.finish_if_over(s);
        self.schedule();
        verdict
    }

    pub(super) fn known(&mut self, now: Instant, id: SampleId, plugin: PluginId) -> ResultStatus {
        self.now = now;
        let Some(s) = self.samples.iter().position(|s| s.id == id) else { return ResultStatus::Unknown };
        let sample = &self.samples[s];
        if !sample.what.needs.plugins.contains(plugin) {
            return ResultStatus::Unknown;
        }
        if sample.at == At::Ended(SampleEnd::Cancelled) {
            return ResultStatus::Cancelled;
        }
        if !sample.remaining.contains(plugin) {
            return ResultStatus::Duplicate;
        }
        self.accept(s, plugin);
        self.finish_if_over(s);
        self.schedule();
        ResultStatus::Accepted
    }

    pub(super) fn resume(&mut self, now: Instant, id: SampleId) -> bool {
        self.now = now;
        let Some(s) = self.samples.iter().position(|s| s.id == id && s.at == At::PutOff) else { return false };
        if self.samples[s].charged < self.settings.attempts_max {
            self.enqueue(s);
        } else {
            self.end(s, SampleEnd::Quarantined);
        }
        self.schedule();
        true
    }

    pub(super) fn failed(&mut self, now: Instant, attempt: AttemptId) -> bool {
        self.now = now;
        let Some((g, v)) = self.running(attempt) else { return false };
        self.fail(g, v);
        self.schedule();
        true
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.now = now;
        while let Some((_, since, vm)) = self.runs().min()
            && since + self.settings.threshold <= now
        {
            self.stop(vm, StopReason::Expired);
            let g = self.groups.iter().position(|g| g.id == vm.group).unwrap();
            self.fail(g, usize::from(vm.number));
        }
        let mut over: Vec<usize> =
            (0..self.samples.len()).filter(|s| self.gives_up(*s).is_some_and(|at| at <= now)).collect();
        over.sort_by_key(|s| self.samples[*s].ticket);
        for s in over {
            self.dequeue(s);
            self.end(s, SampleEnd::Unserviceable);
        }
        self.schedule();
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let expiries = self.runs().map(|(_, since, _)| since + self.settings.threshold);
        expiries.chain((0..self.samples.len()).filter_map(|s| self.gives_up(s))).min()
    }

    pub(super) fn queue_len(&self, queue: u8) -> usize {
        self.samples.iter().filter(|s| s.at == At::Queued && s.queue() == queue).count()
    }

    pub(super) fn oldest(&self, queue: u8) -> Option<Instant> {
        self.samples.iter().filter(|s| s.at == At::Queued && s.queue() == queue).map(|s| s.queued_at).min()
    }

    fn runs(&self) -> impl Iterator<Item = (u64, Instant, VmId)> + '_ {
        self.groups.iter().flat_map(|group| {
            group.vms.iter().enumerate().filter_map(|(v, (_, state))| match state {
                Vm::InUse { since, order, .. } => Some((*order, *since, VmId { group: group.id, number: v as u8 })),
                _ => None,
            })
        })
    }

    fn gives_up(&self, s: usize) -> Option<Instant> {
        let needs = self.samples[s].needs();
        let able = |(offer, _): &(Offer, Vm)| !offer.runs(&needs).is_empty();
        let hopeless = self.samples[s].at == At::Queued && !self.groups.iter().any(|g| g.vms.iter().any(able));
        hopeless.then(|| self.unserviceable_since[&needs] + self.settings.unserviceable_after)
    }

    fn lane(&self, s: usize) -> (u8, u64, Needs) {
        let sample = &self.samples[s];
        (sample.queue(), sample.what.submitter.0, sample.needs())
    }

    fn enqueue(&mut self, s: usize) {
        self.counter += 1;
        let needs = self.samples[s].needs();
        let is_first = |queued: bool, others: &[ModelSample], same: &dyn Fn(&ModelSample) -> bool| {
            !others.iter().any(|o| (o.at == At::Queued) == queued && same(o))
        };
        if is_first(true, &self.samples, &|o| o.needs() == needs) {
            self.unserviceable_since.insert(needs, self.now);
        }
        let lane = self.lane(s);
        self.turns.entry(lane).or_insert((self.counter, self.counter));
        let sample = &mut self.samples[s];
        (sample.at, sample.queued_at, sample.ticket) = (At::Queued, self.now, self.counter);
    }

    fn dequeue(&mut self, s: usize) {
        let lane = self.lane(s);
        self.samples[s].at = At::Ended(SampleEnd::Cancelled);
        if !(0..self.samples.len()).any(|o| self.samples[o].at == At::Queued && self.lane(o) == lane) {
            self.turns.remove(&lane);
        }
    }

    fn end(&mut self, s: usize, end: SampleEnd) {
        self.samples[s].at = At::Ended(end);
        self.outputs.push(Output::Ended { sample: self.samples[s].id, end });
    }

    fn is_idle(&self, s: usize) -> bool {
        self.settings.priority.class(self.samples[s].what.directory) == PriorityClass::Idle
    }

    fn leave(&mut self, s: usize) {
        for group in &mut self.groups {
            for list in [&mut group.current, &mut group.next, &mut group.idle] {
                list.retain(|other| *other != s);
            }
        }
    }
}
