//! Answers the question "Why is this sample not running?" by naming the need that no machine meets.

use super::group::{Group, VmId};
use super::needs::{Needs, Plugins, Tags};
use super::sample::{Sample, SampleEnd, SampleId, SampleState, Waiting};
use super::scheduler::Scheduler;
use super::vm::VmState;
use crate::time::Instant;

/// How many samples of a lane are counted at most.
const AHEAD_MAX: usize = 10_000;

/// Why a sample is not running; or that it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// There is no such sample.
    Unknown,
    /// It has ended.
    Ended(SampleEnd),
    /// It was put off: its last attempt failed through no fault of its own, and it will be tried again.
    PutOff,
    /// It runs.
    Running {
        /// Where.
        vm: VmId,
        /// Since when.
        since: Instant,
        /// When THRESHOLD will have passed.
        until: Instant,
    },
    /// No machine that is plugged in could ever run it.
    NoMachine {
        /// What is missing.
        unmet: Unmet,
        /// When it will end as unserviceable.
        gives_up_at: Instant,
    },
    /// All VMs that could run it are in use or on revert.
    Busy {
        /// How many VMs could run it.
        vms: u32,
        /// How many of them are on revert.
        on_revert: u32,
        /// About when the first of them becomes free.
        until_about: Instant,
        /// Samples that go first: those in lower run queues, and those before it in its own lane (of which at most
        /// 10 000 are counted); or, if a machine has it already, those before it there.
        behind: usize,
        /// Plugins it needs that no machine has.
        missing: Plugins,
    },
    /// A VM is free, but it is of the idle class and its machines have other work.
    HeldBack {
        /// As above.
        behind: usize,
        /// As above.
        missing: Plugins,
    },
}

/// A need that no machine meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmet {
    /// There are no machines.
    AnyMachine,
    /// No VM has any of these plugins.
    Plugins(Plugins),
    /// VMs with the plugin exist, but the one that comes nearest lacks these tags.
    Tags(Tags),
}

impl Scheduler {
    /// Why a sample is not running. Costs O(VMs), and up to 10 000 steps along its line.
    pub fn why(&self, id: SampleId) -> Why {
        let Some(sample) = self.samples.get(id.0) else { return Why::Unknown };
        match sample.place {
            SampleState::Nowhere => Why::PutOff,
            SampleState::Ended(end) => Why::Ended(end),
            SampleState::Running { .. } => self.why_running(id),
            SampleState::Queued { .. } | SampleState::Waiting { .. } => self.why_waiting(id.0.index, sample),
        }
    }

    fn why_running(&self, id: SampleId) -> Why {
        match self.sample(id).map(|view| view.whereabouts) {
            Some(super::view::Whereabouts::Running(vm, since)) => {
                Why::Running { vm, since, until: since + self.settings.threshold }
            }
            _ => Why::Unknown,
        }
    }

    fn why_waiting(&self, index: u32, sample: &Sample) -> Why {
        let class = self.classes.at(sample.class);
        if class.able_groups == 0 {
            let gives_up_at = class.unserviceable_since + self.settings.unserviceable_after;
            return Why::NoMachine { unmet: self.unmet(&class.needs), gives_up_at };
        }
        let (behind, missing) = (self.behind(index, sample), self.missing(&class.needs));
        let able = || self.able_states(sample.place, &class.needs);
        if able().any(|state| state == VmState::Free) {
            return Why::HeldBack { behind, missing };
        }
        Why::Busy {
            vms: able().count() as u32,
            on_revert: able().filter(|state| *state == VmState::OnRevert).count() as u32,
            until_about: able().map(|state| self.free_about(state)).min().unwrap_or(self.now),
            behind,
            missing,
        }
    }

    /// The states of the VMs that could run the sample: only those of its machine if it has one.
    fn able_states(&self, place: SampleState, needs: &Needs) -> impl Iterator<Item = VmState> + '_ {
        let needs = *needs;
        let here = move |index: u32| !matches!(place, SampleState::Waiting { group, .. } if group != index);
        let groups = self.groups.iter().filter(move |(key, _)| here(key.index));
        // A VM of a full machine is of as little use as one that is not clean yet.
        let vms = groups.flat_map(|(_, group)| group.vms.iter().map(move |vm| (vm, group.is_full())));
        let able = vms.filter(move |(vm, _)| !vm.offer.runs(&needs).is_empty());
        able.map(|(vm, full)| if full && vm.state == VmState::Free { VmState::OnRevert } else { vm.state })
    }

    fn free_about(&self, state: VmState) -> Instant {
        match state {
            VmState::Free | VmState::OnRevert => self.now,
            VmState::InUse(run) => {
                let usual = self.mean_run.unwrap_or(self.settings.threshold).min(self.settings.threshold);
                (run.since + usual).max(self.now)
            }
        }
    }

    fn behind(&self, index: u32, sample: &Sample) -> usize {
        match sample.place {
            SampleState::Queued { .. } => {
                let queue = sample.directory.queue();
                let lower: usize = (0..queue).map(|queue| self.queues.queue_len(queue)).sum();
                lower + self.queues.ahead_in_lane(&self.samples, index, AHEAD_MAX)
            }
            SampleState::Waiting { group, list } => self.behind_in_group(index, &self.groups[group], list),
            _ => 0,
        }
    }

    fn behind_in_group(&self, index: u32, group: &Group, list: Waiting) -> usize {
        let (before, own) = match list {
            Waiting::Current => (0, &group.current),
            Waiting::Next => (group.current.len(), &group.next),
            Waiting::Idle => (group.len(), &group.idle),
        };
        before + own.iter(&self.samples).take_while(|other| *other != index).count()
    }

    /// The plugins of `needs` that no VM with its tags has.
    fn missing(&self, needs: &Needs) -> Plugins {
        let vms = self.groups.iter().flat_map(|(_, group)| &group.vms);
        let offered = vms.map(|vm| vm.offer.runs(needs).0).fold(0, |all, one| all | one);
        Plugins(needs.plugins.0 & !offered)
    }

    fn unmet(&self, needs: &Needs) -> Unmet {
        let vms = || self.groups.iter().flat_map(|(_, group)| &group.vms);
        if vms().next().is_none() {
            return Unmet::AnyMachine;
        }
        let with_plugin = vms().filter(|vm| !vm.offer.plugins.and(needs.plugins).is_empty());
        let lacking = with_plugin.map(|vm| needs.tags.missing_in(vm.offer.tags));
        lacking.min_by_key(|tags| tags.0.count_ones()).map_or(Unmet::Plugins(needs.plugins), Unmet::Tags)
    }
}
