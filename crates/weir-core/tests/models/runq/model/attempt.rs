//! What a VM does with a sample: from its start to its end.

use super::{At, Model, Vm};
use weir_core::runq::{Assignment, AttemptId, Output, PluginId, SampleEnd, StopReason, Strain, VmId, Waiting};

impl Model {
    pub(super) fn stop(&mut self, vm: VmId, reason: StopReason) {
        let group = self.groups.iter().find(|g| g.id == vm.group).unwrap();
        let Vm::InUse { sample, number, .. } = group.vms[usize::from(vm.number)].1 else { panic!("nothing runs") };
        let attempt = AttemptId { sample: self.samples[sample].id, number };
        self.outputs.push(Output::Stop { attempt, vm, reason });
    }

    pub(super) fn vacate(&mut self, vm: VmId) {
        let group = self.groups.iter_mut().find(|g| g.id == vm.group).unwrap();
        group.vms[usize::from(vm.number)].1 = Vm::OnRevert;
    }

    pub(super) fn running(&self, attempt: AttemptId) -> Option<(usize, usize)> {
        let is_it = |state: &Vm| {
            matches!(state, Vm::InUse { sample, number, .. }
                if *number == attempt.number && self.samples[*sample].id == attempt.sample)
        };
        self.groups
            .iter()
            .enumerate()
            .find_map(|(g, group)| group.vms.iter().position(|(_, state)| is_it(state)).map(|v| (g, v)))
    }

    pub(super) fn fail(&mut self, g: usize, v: usize) {
        let Vm::InUse { sample, fruitful, .. } = self.groups[g].vms[v].1 else { return };
        self.groups[g].vms[v].1 = Vm::OnRevert;
        self.samples[sample].charged += u8::from(!fruitful);
        if self.samples[sample].charged >= self.settings.attempts_max {
            self.end(sample, SampleEnd::Quarantined);
        } else {
            self.enqueue(sample);
        }
    }

    pub(super) fn accept(&mut self, s: usize, plugin: PluginId) {
        let at = self.samples[s].at;
        if at == At::Queued {
            self.dequeue(s);
        }
        self.samples[s].remaining = self.samples[s].remaining.without(plugin);
        let needs = self.samples[s].needs();
        match at {
            At::Queued => self.end_or_enqueue(s),
            At::Waiting(id, _) => {
                let group = self.groups.iter().find(|g| g.id == id).unwrap();
                if !group.vms.iter().any(|(offer, _)| !offer.runs(&needs).is_empty()) {
                    self.leave(s);
                    self.end_or_enqueue(s);
                }
            }
            At::Ended(_) if needs.plugins.is_empty() => self.end(s, SampleEnd::Done),
            At::PutOff => {
                let sample = &mut self.samples[s];
                if sample.charged == self.settings.attempts_max {
                    sample.charged -= 1;
                }
                if needs.plugins.is_empty() {
                    self.end(s, SampleEnd::Done);
                }
            }
            At::Ended(_) | At::Running(_) => {}
        }
    }

    fn end_or_enqueue(&mut self, s: usize) {
        if self.samples[s].remaining.is_empty() {
            self.end(s, SampleEnd::Done);
        } else {
            self.enqueue(s);
        }
    }

    pub(super) fn finish_if_over(&mut self, s: usize) {
        let At::Running(vm) = self.samples[s].at else { return };
        let g = self.groups.iter().position(|g| g.id == vm.group).unwrap();
        let state = self.groups[g].vms[usize::from(vm.number)].1;
        let Vm::InUse { pending, fruitful, .. } = state else { panic!("{vm:?} should run {s}") };
        let remaining = self.samples[s].remaining;
        if !pending.and(remaining).is_empty() {
            return;
        }
        if pending.is_empty() && !fruitful && !remaining.is_empty() {
            return self.fail(g, usize::from(vm.number));
        }
        if !pending.is_empty() {
            self.stop(vm, StopReason::Satisfied);
        }
        self.vacate(vm);
        let list = match self.samples[s].what.directory {
            _ if self.is_idle(s) => Waiting::Idle,
            d if self.settings.priority.returns_to_current(d) => Waiting::Current,
            _ => Waiting::Next,
        };
        let needs = self.samples[s].needs();
        let room = match list {
            Waiting::Idle => self.groups[g].strain != Strain::FULL && self.groups[g].idle.len() < self.room(g),
            _ => self.has_room(g, &needs),
        };
        if room && self.able(g, &needs).count() > 0 {
            self.samples[s].at = At::Waiting(vm.group, list);
            match list {
                Waiting::Current => self.enter_current(g, s),
                Waiting::Next => self.groups[g].next.push(s),
                Waiting::Idle => self.groups[g].idle.push(s),
            }
        } else {
            self.end_or_enqueue(s);
        }
    }

    pub(super) fn start(&mut self, g: usize, s: usize) {
        self.leave(s);
        self.counter += 1;
        let needs = self.samples[s].needs();
        let v = self.best(g, self.free(g, &needs), &needs).unwrap();
        let plugins = self.groups[g].vms[v].0.runs(&needs);
        self.samples[s].started += 1;
        let number = self.samples[s].started;
        let vm = VmId { group: self.groups[g].id, number: v as u8 };
        self.samples[s].at = At::Running(vm);
        let (since, order) = (self.now, self.counter);
        self.groups[g].vms[v].1 =
            Vm::InUse { sample: s, number, since, order, plugins, pending: plugins, fruitful: false };
        let attempt = AttemptId { sample: self.samples[s].id, number };
        let deadline = self.now + self.settings.threshold;
        self.outputs.push(Output::Start(Assignment { attempt, vm, plugins, deadline }));
    }
}
