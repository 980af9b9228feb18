//! One run: the dispatchers, VMs and the wire around the scheduler, on the virtual clock.

use super::faults::Fault;
use super::report::Outcome;
use super::witness::{Physical, Witness};
use super::workload::{self, Arrival, REVERT_S};
use super::{Experiment, Failure};
use crate::events::Events;
use crate::rng::Rng;
use std::time::Duration;
use weir_core::runq::{
    Assignment, AttemptId, GroupId, Offer, Output, PluginId, ResultStatus, SampleId, Scheduler, Settings, SubmitterId,
    VmId, VmStatus,
};
use weir_core::time::Instant;

/// Whether the scheduler is told who hands a sample in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lanes {
    BySubmitter,
    /// All are one to it: the plain FIFO of the paper.
    One,
}

#[derive(Debug)]
enum Event {
    Arrive(usize),
    Report {
        given: Assignment,
        plugin: PluginId,
        valid: bool,
    },
    /// The VM of this attempt dies, if it still runs there.
    VmDies(Assignment),
    /// Some VM of a machine dies, whatever it does.
    AnyVmDies(usize),
    Reverted(VmId),
    Unplug(usize),
    Plug(usize),
    Cancel(usize),
    Forge,
    Tick,
}

struct Lab<'a> {
    experiment: &'a Experiment,
    rng: Rng,
    scheduler: Scheduler,
    events: Events<Event>,
    arrivals: Vec<Arrival>,
    machines: Vec<LabMachine>,
    witness: Witness,
    outcome: Outcome,
    lanes: Lanes,
    /// When the last sample has arrived: nothing goes wrong from then on.
    healed_at: Instant,
    ticks: Vec<Instant>,
}

struct LabMachine {
    vms: Vec<Offer>,
    group: Option<GroupId>,
}

/// Runs the experiment with one seed.
pub(super) fn simulate(experiment: &Experiment, seed: u64, lanes: Lanes) -> Result<Outcome, Failure> {
    let mut lab = Lab::new(experiment, seed, lanes);
    lab.run().map_err(|what| Failure {
        seed,
        at_ms: lab.events.now().0 / 1_000_000,
        what,
        replay: experiment.replay(seed),
    })?;
    Ok(lab.outcome)
}

impl<'a> Lab<'a> {
    fn new(experiment: &'a Experiment, seed: u64, lanes: Lanes) -> Lab<'a> {
        let mut rng = Rng::new(seed);
        let machines = workload::machines(experiment, &mut rng.fork());
        let vms = machines.iter().map(Vec::len).sum();
        let arrivals = workload::arrivals(experiment, vms, &mut rng.fork());
        let settings = Settings {
            waiting_per_vm: experiment.waiting_per_vm,
            ageing: experiment.ageing,
            unserviceable_after: Duration::from_secs(1800),
            ..Settings::default()
        };
        let healed_at = arrivals.last().map_or(Instant::ZERO, |last| last.at);
        let mut lab = Lab {
            experiment,
            rng: rng.fork(),
            scheduler: Scheduler::new(settings),
            events: Events::default(),
            machines: machines.into_iter().map(|vms| LabMachine { vms, group: None }).collect(),
            witness: Witness::new(&arrivals, experiment.ageing.is_some()),
            outcome: Outcome::new(&arrivals, vms),
            arrivals,
            lanes,
            healed_at,
            ticks: Vec::new(),
        };
        lab.plan();
        lab
    }

    /// Schedules what is known from the beginning.
    fn plan(&mut self) {
        (0..self.machines.len()).for_each(|machine| self.events.at(Instant::ZERO, Event::Plug(machine)));
        for i in 0..self.arrivals.len() {
            let at = self.arrivals[i].at;
            self.events.at(at, Event::Arrive(i));
            if self.has(Fault::Cancel) && self.rng.chance(0.03) {
                let after = Duration::from_secs_f64(self.rng.exponential(120.0));
                self.events.at(at + after, Event::Cancel(i));
            }
            if self.has(Fault::ForgedResult) && self.rng.chance(0.03) {
                self.events.at(at, Event::Forge);
            }
            if self.has(Fault::VmDeath) && self.rng.chance(0.02) {
                let machine = self.rng.below(self.machines.len() as u64) as usize;
                self.events.at(at, Event::AnyVmDies(machine));
            }
            if self.has(Fault::Unplug) && self.rng.chance(0.02) {
                let machine = self.rng.below(self.machines.len() as u64) as usize;
                self.events.at(at, Event::Unplug(machine));
            }
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let steps_max = 2_000 + 500 * self.arrivals.len();
        let deep_every = (self.arrivals.len() / 100).max(1);
        for step in 0..steps_max {
            let Some((now, event)) = self.events.next() else { return self.witness.at_the_end(&self.scheduler) };
            let deep = step.is_multiple_of(deep_every);
            self.witness.before(&self.scheduler, deep);
            self.happen(now, &event)?;
            self.witness.after(&self.scheduler)?;
            self.plan_tick();
        }
        Err(format!("no end after {steps_max} steps"))
    }

    fn happen(&mut self, now: Instant, event: &Event) -> Result<(), String> {
        match *event {
            Event::Arrive(i) => self.arrive(now, i)?,
            Event::Report { ref given, plugin, valid } => self.report(now, given, plugin, valid)?,
            Event::VmDies(given) => {
                if self.witness.physical(given.vm) == Some(Physical::Running(given.attempt)) {
                    self.vm_dies(now, given.vm);
                }
            }
            Event::AnyVmDies(machine) => {
                if let Some(group) = self.machines[machine].group {
                    let number = self.rng.below(self.machines[machine].vms.len() as u64) as u8;
                    self.vm_dies(now, VmId { group, number });
                }
            }
            Event::Reverted(vm) => self.reverted(now, vm)?,
            Event::Unplug(machine) => self.unplug(now, machine),
            Event::Plug(machine) => self.plug(now, machine)?,
            Event::Cancel(i) => {
                if let Some(id) = self.witness.id(i) {
                    self.scheduler.cancel(now, id);
                }
            }
            Event::Forge => self.forge(now)?,
            Event::Tick => {
                self.ticks.retain(|tick| *tick > now);
                self.scheduler.tick(now);
            }
        }
        self.outputs(now)
    }

    fn outputs(&mut self, now: Instant) -> Result<(), String> {
        while let Some(output) = self.scheduler.poll() {
            match output {
                Output::Start(given) => {
                    let i = self.witness.started(&given)?;
                    self.outcome.started(i, now, &self.witness.offer(given.vm));
                    self.analyse(now, i, &given);
                }
                Output::Stop { attempt, vm, reason } => {
                    self.witness.stopped(attempt, vm)?;
                    self.outcome.stopped(reason);
                    self.revert(now, vm);
                }
                Output::Ended { sample, end } => {
                    let i = self.witness.ended(sample, end)?;
                    self.outcome.ended(i, now, end);
                }
            }
        }
        Ok(())
    }

    fn arrive(&mut self, now: Instant, i: usize) -> Result<(), String> {
        let mut submission = self.arrivals[i].submission;
        if self.lanes == Lanes::One {
            submission.submitter = SubmitterId(0);
        }
        let id = self.scheduler.submit(now, &submission).map_err(|refused| format!("refused: {refused:?}"))?;
        self.witness.submitted(i, id);
        self.outcome.arrived(i, now);
        Ok(())
    }

    /// What a VM does with an attempt, and what the wire does with its results.
    fn analyse(&mut self, now: Instant, i: usize, given: &Assignment) {
        let takes = self.arrivals[i].plugin_takes;
        let dies = self.arrivals[i].kills || self.goes_wrong(Fault::VmDeath, 0.03);
        if dies {
            let after = takes.mul_f64(self.rng.unit());
            self.events.at(now + after, Event::VmDies(*given));
        }
        if self.arrivals[i].kills {
            return;
        }
        for (nth, plugin) in given.plugins.iter().enumerate() {
            let mut at = now + takes * (nth as u32 + 1);
            if self.goes_wrong(Fault::LostResult, 0.03) {
                continue;
            }
            if self.goes_wrong(Fault::LateResult, 0.03) {
                at = given.deadline + Duration::from_secs_f64(self.rng.exponential(300.0));
            }
            let valid = !self.goes_wrong(Fault::InvalidResult, 0.03);
            if self.goes_wrong(Fault::DuplicateResult, 0.05) {
                let again = at + Duration::from_secs_f64(self.rng.exponential(300.0));
                self.events.at(again, Event::Report { given: *given, plugin, valid: true });
            }
            self.events.at(at, Event::Report { given: *given, plugin, valid });
        }
    }

    fn report(&mut self, now: Instant, given: &Assignment, plugin: PluginId, valid: bool) -> Result<(), String> {
        let is_plugged = self.machines.iter().any(|machine| machine.group == Some(given.vm.group));
        if !is_plugged && self.rng.chance(0.5) {
            return Ok(());
        }
        let verdict = self.scheduler.result(now, given.attempt, plugin, valid);
        self.witness.reported(given.attempt, plugin, valid, verdict)?;
        self.outcome.reported(verdict);
        self.outputs(now)?;
        // Nobody had to stop it: it is over because its last result came.
        let over = self.status(given.vm) == Some(VmStatus::OnRevert);
        if over && self.witness.physical(given.vm) == Some(Physical::Running(given.attempt)) {
            self.revert(now, given.vm);
        }
        Ok(())
    }

    fn vm_dies(&mut self, now: Instant, vm: VmId) {
        self.scheduler.vm_lost(now, vm);
        if self.witness.physical(vm) != Some(Physical::Reverting) {
            self.revert(now, vm);
        }
    }

    fn revert(&mut self, now: Instant, vm: VmId) {
        let slow = if self.goes_wrong(Fault::SlowRevert, 0.05) { 60.0 } else { 1.0 };
        self.witness.reverting(vm);
        self.events.at(now + Duration::from_secs_f64(slow * REVERT_S), Event::Reverted(vm));
    }

    fn reverted(&mut self, now: Instant, vm: VmId) -> Result<(), String> {
        if self.witness.physical(vm) != Some(Physical::Reverting) {
            return Ok(());
        }
        self.witness.free(vm);
        if self.scheduler.ready(now, vm) { Ok(()) } else { Err(format!("{vm:?} is clean, but was not on revert")) }
    }

    fn plug(&mut self, now: Instant, machine: usize) -> Result<(), String> {
        let vms = self.machines[machine].vms.clone();
        let group = self.scheduler.plug(now, &vms).map_err(|refused| format!("refused: {refused:?}"))?;
        self.machines[machine].group = Some(group);
        for (number, offer) in vms.iter().enumerate() {
            let vm = VmId { group, number: number as u8 };
            self.witness.plugged(vm, *offer);
            self.revert(now, vm);
        }
        Ok(())
    }

    /// Unplugs a machine; it comes back within the hour, or when everything heals.
    fn unplug(&mut self, now: Instant, machine: usize) {
        let Some(group) = self.machines[machine].group.take() else { return };
        self.scheduler.unplug(now, group);
        self.witness.unplugged(group);
        let back = now + Duration::from_secs_f64(self.rng.exponential(600.0));
        self.events.at(back.min(self.healed_at), Event::Plug(machine));
    }

    /// Results that nobody may believe.
    fn forge(&mut self, now: Instant) -> Result<(), String> {
        let i = self.rng.below(self.arrivals.len() as u64) as usize;
        let Some(id) = self.witness.id(i) else { return Ok(()) };
        let SampleId(mut key) = id;
        key.life = key.life.wrapping_add(1);
        let started = self.scheduler.sample(id).map_or(0, |sample| sample.started);
        let plugin = |number| PluginId::new(number).ok_or("no such plugin");
        let forged = [
            (AttemptId { sample: id, number: started + 1 }, plugin(0)?),
            (AttemptId { sample: id, number: 0 }, plugin(0)?),
            (AttemptId { sample: id, number: started }, plugin(100)?),
            (AttemptId { sample: SampleId(key), number: 1 }, plugin(0)?),
        ];
        for (attempt, plugin) in forged {
            let verdict = self.scheduler.result(now, attempt, plugin, true);
            if verdict != ResultStatus::Unknown {
                return Err(format!("a forged result was {verdict:?}"));
            }
        }
        Ok(())
    }

    fn plan_tick(&mut self) {
        if let Some(deadline) = self.scheduler.next_deadline()
            && self.ticks.iter().all(|tick| *tick > deadline)
        {
            self.ticks.push(deadline);
            self.events.at(deadline, Event::Tick);
        }
    }

    fn status(&self, vm: VmId) -> Option<VmStatus> {
        self.scheduler.vms(vm.group).find(|(id, _, _)| *id == vm).map(|(_, _, status)| status)
    }

    fn has(&self, fault: Fault) -> bool {
        self.experiment.faults.has(fault)
    }

    fn goes_wrong(&mut self, fault: Fault, probability: f64) -> bool {
        self.has(fault) && self.events.now() < self.healed_at && self.rng.chance(probability)
    }
}
