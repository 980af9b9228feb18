//! The scheduler beside a naive model of itself: random operations, the same answers, the same state.

mod model;
mod rest;

use model::{At, Model};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::time::Duration;
use weir_core::mutant::{Mutant, plant};
use weir_core::runq::{
    Assignment, Directory, GroupId, Needs, Offer, Output, PluginId, Plugins, QUEUES, SampleId, Scheduler, Settings,
    Strain, Submission, SubmitterId, Tags, VmId, Waiting, Whereabouts, Why,
};
use weir_core::time::Instant;

/// What can happen to a scheduler. Numbers pick among what there is at that moment.
#[derive(Debug, Clone)]
enum Op {
    Submit { directory: u8, who: u8, plugins: u8, tags: u8, charged: u8 },
    Plug(u8),
    Unplug(u8),
    Ready(u8),
    AllReady,
    VmLost(u8),
    Result { attempt: u8, plugin: u8, valid: bool },
    Failed(u8),
    Cancel(u8),
    Forget(u8),
    Pass(u16),
    Known { sample: u8, plugin: u8 },
    Resume(u8),
    Strain { group: u8, strain: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    // Few priorities, submitters and needs, so that samples meet in a lane.
    let directory = prop_oneof![0..8u8, 30..34u8, 92..100u8, 127..128u8];
    let plugins = prop_oneof![12 => 1..8u8, 1 => 0..16u8];
    let tags = prop_oneof![4 => Just(0u8), 1 => 0..3u8];
    let charged = prop_oneof![12 => Just(0u8), 1 => 0..4u8];
    let submit = (directory, 0..3u8, plugins, tags, charged);
    prop_oneof![
        10 => submit.prop_map(|(directory, who, plugins, tags, charged)| Op::Submit { directory, who, plugins, tags, charged }),
        2 => any::<u8>().prop_map(Op::Plug),
        1 => any::<u8>().prop_map(Op::Unplug),
        4 => any::<u8>().prop_map(Op::Ready),
        8 => Just(Op::AllReady),
        1 => any::<u8>().prop_map(Op::VmLost),
        20 => (0..8u8, 0..8u8, prop::bool::weighted(0.9))
            .prop_map(|(attempt, plugin, valid)| Op::Result { attempt, plugin, valid }),
        2 => (0..8u8).prop_map(Op::Failed),
        1 => (0..8u8, 0..4u8).prop_map(|(sample, plugin)| Op::Known { sample, plugin }),
        1 => (0..8u8).prop_map(Op::Resume),
        2 => (any::<u8>(), prop_oneof![0..3u8, Just(u8::MAX)]).prop_map(|(group, strain)| Op::Strain { group, strain }),
        1 => any::<u8>().prop_map(Op::Cancel),
        1 => any::<u8>().prop_map(Op::Forget),
        4 => (0..50u16).prop_map(Op::Pass),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let ageing = prop_oneof![Just(None), (1..50u64).prop_map(|ms| Some(Duration::from_millis(ms)))];
    (
        1..4u8,
        0..3u32,
        ageing,
        prop_oneof![1 => Just(3u32), 4 => Just(1000)],
        prop_oneof![1 => Just(6u32), 4 => Just(1000)],
    )
        .prop_map(|(attempts_max, waiting_per_vm, ageing, classes_max, samples_max)| Settings {
            threshold: Duration::from_millis(100),
            unserviceable_after: Duration::from_millis(200),
            attempts_max,
            waiting_per_vm,
            ageing,
            classes_max,
            samples_max,
            ..Settings::default()
        })
}

fn case() -> impl Strategy<Value = (Settings, Vec<Op>)> {
    (settings(), prop::collection::vec(op(), 1..250))
}

/// The real thing and its model, side by side.
struct Pair {
    real: Scheduler,
    model: Model,
    now: Instant,
    samples: Vec<SampleId>,
    attempts: Vec<Assignment>,
}

/// Runs the operations on both and compares everything after each.
fn check(settings: &Settings, ops: &[Op]) -> Result<(), String> {
    let mut pair = Pair {
        real: Scheduler::new(settings.clone()),
        model: Model::new(settings.clone()),
        now: Instant::ZERO,
        samples: Vec::new(),
        attempts: Vec::new(),
    };
    pair.plug(0)?;
    for (step, op) in ops.iter().enumerate() {
        pair.apply(op).and_then(|()| pair.compare()).map_err(|e| format!("step {step}, {op:?}: {e}"))?;
    }
    Ok(())
}

impl Pair {
    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let now = self.now;
        match *op {
            Op::Submit { directory, who, plugins, tags, charged } => {
                let submission = Submission {
                    directory: Directory::new(u64::from(directory)).unwrap(),
                    submitter: SubmitterId(u64::from(who)),
                    needs: Needs { plugins: Plugins(u128::from(plugins)), tags: Tags(u64::from(tags)) },
                };
                return self.submit(submission, charged);
            }
            Op::Plug(kind) if self.model.groups.len() < 4 => return self.plug(kind),
            Op::Plug(_) => {}
            Op::Unplug(n) => {
                if let Some(group) = self.group(n) {
                    self.real.unplug(now, group);
                    self.model.unplug(now, group);
                }
            }
            Op::Strain { group, strain } => {
                if let Some(group) = self.group(group) {
                    self.real.set_strain(now, group, Strain(strain));
                    self.model.set_strain(now, group, Strain(strain));
                }
            }
            Op::Ready(n) => {
                if let Some(vm) = self.vm(n) {
                    same("ready", &self.real.ready(now, vm), &self.model.ready(now, vm))?;
                }
            }
            Op::AllReady => {
                for vm in self.vms() {
                    same("ready", &self.real.ready(now, vm), &self.model.ready(now, vm))?;
                }
            }
            Op::VmLost(n) => {
                if let Some(vm) = self.vm(n) {
                    self.real.vm_lost(now, vm);
                    self.model.vm_lost(now, vm);
                }
            }
            Op::Result { attempt, plugin, valid } => {
                if let Some(given) = recent(&self.attempts, attempt) {
                    // Now and then a plugin that it was not started for.
                    let own = given.plugins.iter().nth(usize::from(plugin) % 3);
                    let plugin = own.unwrap_or(PluginId::new(u32::from(plugin) % 4).unwrap());
                    let verdict = self.real.result(now, given.attempt, plugin, valid);
                    same("verdict", &verdict, &self.model.result(now, given.attempt, plugin, valid))?;
                }
            }
            Op::Failed(n) => {
                if let Some(Assignment { attempt, .. }) = recent(&self.attempts, n) {
                    same("failed", &self.real.failed(now, attempt), &self.model.failed(now, attempt))?;
                }
            }
            Op::Known { sample, plugin } => {
                if let (Some(sample), Some(plugin)) = (recent(&self.samples, sample), PluginId::new(plugin.into())) {
                    same("known", &self.real.known(now, sample, plugin), &self.model.known(now, sample, plugin))?;
                }
            }
            Op::Resume(n) => {
                if let Some(sample) = recent(&self.samples, n) {
                    same("resume", &self.real.resume(now, sample), &self.model.resume(now, sample))?;
                }
            }
            Op::Cancel(n) => {
                if let Some(sample) = recent(&self.samples, n) {
                    same("cancel", &self.real.cancel(now, sample), &self.model.cancel(now, sample))?;
                }
            }
            Op::Forget(n) => {
                if let Some(sample) = recent(&self.samples, n) {
                    same("forget", &self.real.forget(sample), &self.model.forget(sample))?;
                }
            }
            Op::Pass(ms) => {
                self.now += Duration::from_millis(u64::from(ms));
                self.real.tick(self.now);
                self.model.tick(self.now);
            }
        }
        Ok(())
    }

    fn submit(&mut self, submission: Submission, charged: u8) -> Result<(), String> {
        let refusal = self.model.would_refuse(&submission);
        let answer = self.real.submit_charged(self.now, &submission, charged);
        same("refusal", &answer.err(), &refusal)?;
        if let Ok(id) = answer {
            self.model.submit(self.now, submission, charged, id);
            self.samples.push(id);
        }
        Ok(())
    }

    fn plug(&mut self, kind: u8) -> Result<(), String> {
        let offer = |plugins, tags| Offer { plugins: Plugins(plugins), tags: Tags(tags) };
        let vms = match kind % 4 {
            // The paper's example: one VM for plugin 1, one for plugins 1 and 2.
            0 => vec![offer(0b01, 0), offer(0b11, 1)],
            1 => vec![offer(0b110, 3); 3],
            2 => vec![offer(0b010, 0)],
            _ => vec![offer(0b001, 0), offer(0b100, 1), offer(0b111, 0)],
        };
        let id = self.real.plug(self.now, &vms).map_err(|e| format!("{e:?}"))?;
        self.model.plug(self.now, id, &vms);
        Ok(())
    }

    fn group(&self, n: u8) -> Option<GroupId> {
        let groups = &self.model.groups;
        groups.get(usize::from(n) % groups.len().max(1)).map(|group| group.id)
    }

    fn vms(&self) -> Vec<VmId> {
        let groups: Vec<GroupId> = self.real.groups().collect();
        groups.iter().flat_map(|group| self.real.vms(*group).map(|(vm, _, _)| vm)).collect()
    }

    fn vm(&self, n: u8) -> Option<VmId> {
        let vms = self.vms();
        vms.get(usize::from(n) % vms.len().max(1)).copied()
    }

    fn compare(&mut self) -> Result<(), String> {
        self.real.audit()?;
        let outputs: Vec<Output> = std::iter::from_fn(|| self.real.poll()).collect();
        same("outputs", &outputs, &std::mem::take(&mut self.model.outputs))?;
        for output in &outputs {
            if let Output::Start(assignment) = output {
                self.attempts.push(*assignment);
            }
        }
        same("deadline", &self.real.next_deadline(), &self.model.next_deadline())?;
        for queue in 0..QUEUES as u8 {
            let len = self.model.queue_len(queue);
            same("queue length", &self.real.run_queues().queue_len(queue), &len)?;
            same("bit", &(self.real.run_queues().bits() >> queue & 1), &u64::from(len > 0))?;
            same("oldest", &self.real.oldest(queue), &self.model.oldest(queue))?;
        }
        self.compare_groups()?;
        self.compare_samples()
    }

    fn compare_groups(&self) -> Result<(), String> {
        for group in &self.model.groups {
            let lists =
                [(Waiting::Current, &group.current), (Waiting::Next, &group.next), (Waiting::Idle, &group.idle)];
            for (list, expected) in lists {
                let expected: Vec<SampleId> = expected.iter().map(|s| self.model.samples[*s].id).collect();
                same("waiting", &self.real.waiting(group.id, list), &expected)?;
            }
        }
        Ok(())
    }

    fn compare_samples(&self) -> Result<(), String> {
        same("samples", &self.real.len(), &self.model.samples.len())?;
        for sample in &self.model.samples {
            if sample.at == At::PutOff {
                same("put off", &self.real.why(sample.id), &Why::PutOff)?;
                continue;
            }
            let view = self.real.sample(sample.id).ok_or("a sample is gone")?;
            same("remaining", &view.remaining, &sample.remaining)?;
            same("attempts", &(view.started, view.charged), &(sample.started, sample.charged))?;
            let whereabouts = match view.whereabouts {
                Whereabouts::Queued(_) => At::Queued,
                Whereabouts::Waiting(group, list) => At::Waiting(group, list),
                Whereabouts::Running(vm, _) => At::Running(vm),
                Whereabouts::Ended(end) => At::Ended(end),
            };
            same("place", &whereabouts, &sample.at)?;
            self.compare_why(sample.id, sample.at)?;
        }
        Ok(())
    }

    /// Why agrees with where, and "no machine" comes with the very deadline at which it is given up.
    fn compare_why(&self, id: SampleId, at: At) -> Result<(), String> {
        let fits = match (self.real.why(id), at) {
            (Why::Ended(end), At::Ended(expected)) => end == expected,
            (Why::Running { vm, .. }, At::Running(expected)) => vm == expected,
            (Why::NoMachine { gives_up_at, .. }, At::Queued) => Some(gives_up_at) >= self.model.next_deadline(),
            (Why::Busy { vms, on_revert, .. }, At::Queued | At::Waiting(..)) => vms > 0 && on_revert <= vms,
            (Why::HeldBack { .. }, At::Queued | At::Waiting(_, Waiting::Idle)) => true,
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("why is {:?} at {at:?}", self.real.why(id))) }
    }
}

fn recent<T: Copy>(items: &[T], back: u8) -> Option<T> {
    items.iter().rev().nth(usize::from(back) % items.len().max(1)).copied()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, expected: &T) -> Result<(), String> {
    if real == expected { Ok(()) } else { Err(format!("{what} is {real:?}, should be {expected:?}")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_scheduler_does_what_the_naive_one_does((settings, ops) in case()) {
        check(&settings, &ops).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn next_before_current_and_deafness_to_strain_are_found() {
    let mut runner = TestRunner::deterministic();
    let cases: Vec<_> = (0..300).map(|_| case().new_tree(&mut runner).unwrap().current()).collect();
    assert!(cases.iter().all(|(settings, ops)| check(settings, ops).is_ok()));
    for mutant in [Mutant::RunqNextBeforeCurrent, Mutant::RunqIgnoresStrain] {
        let _planted = plant(mutant);
        assert!(cases.iter().any(|(settings, ops)| check(settings, ops).is_err()), "{mutant:?} survived");
    }
}
