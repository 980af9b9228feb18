//! The scheduler decision, run by the acting leader: samples and machines in, assignments out.
//!
//! Around the core's `runq::Scheduler` (which knows only numbers) this keeps the names: plugins, tags, machines, rows of the
//! database. It does no I/O. Every input may leave something in the [`Work`] that [`Decision::take`] hands out: a batch to
//! commit and messages to send *after* it is committed. If the commit is refused the leader acts no longer, and the
//! whole decision is dropped: the next leader builds its own from the database.

mod figures;
mod machine;
mod names;
#[cfg(test)]
mod tests;

pub use figures::{Ended, Figures, QueueFigures};
pub use machine::{MachineId, VmOffer};

use crate::wire::{self, Message, PluginCall};
use machine::Machine;
use names::Names;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use weir_core::runq::{
    AttemptId, Directory, End, Needs, Offer, Output, PluginId, Plugins, Refused, SampleId, Scheduler, Settings,
    StopReason, Submission, SubmitterId, Tags, Verdict, VmId, Why,
};
use weir_core::time::Instant;
use weir_store::records::{AttemptEnd, AttemptRow, LabBatch, OpenSample, ResultRow, SampleChange};
use weir_store::samples::SampleHash;

/// A plugin by name and version, as needs and offers say it.
pub type PluginName = (String, String);

/// The scheduler decision of one epoch.
#[derive(Debug)]
pub struct Decision {
    scheduler: Scheduler,
    epoch: i64,
    attempts_given: i64,
    plugins: Names<PluginName>,
    tags: Names<String>,
    /// Submitters are told apart by a hash that nobody can choose.
    submitters: RandomState,
    samples: HashMap<SampleId, Held>,
    rows: HashMap<i64, SampleId>,
    machines: HashMap<MachineId, Machine>,
    machines_given: u64,
    running: HashMap<i64, Running>,
    numbers: HashMap<AttemptId, i64>,
    /// Plugins whose results do not count for the next sample of the same content.
    never_cached: Vec<PluginName>,
    attempts_lost: u64,
    ended_count: Ended,
    work: Work,
    /// Bytes of the reports in it.
    report_bytes: usize,
}

/// What is to be written, and what is to be said once it is.
#[derive(Debug, Default)]
pub struct Work {
    /// To be committed first.
    pub batch: LabBatch,
    /// To be sent then.
    pub letters: Vec<(MachineId, Message)>,
}

/// The time by the leader's own clock, which never steps back, and by the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Own clock.
    pub clock: Instant,
    /// Nanoseconds since the Unix epoch.
    pub wall: i64,
}

/// What a plugin brought, as a dispatcher reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The attempt.
    pub attempt: i64,
    /// The plugin.
    pub plugin: PluginName,
    /// Whether the report is valid.
    pub valid: bool,
    /// `done` or `failed`.
    pub outcome: &'static str,
    /// The report.
    pub report: String,
}

/// What is remembered of a sample that has not ended.
#[derive(Debug, Clone)]
struct Held {
    row: i64,
    hash: SampleHash,
    size: u64,
    name: String,
}

/// An attempt that was assigned.
#[derive(Debug, Clone)]
struct Running {
    attempt: AttemptId,
    machine: MachineId,
    vm: VmId,
}

impl Decision {
    /// The decision of a leader with this epoch.
    pub fn new(settings: Settings, epoch: i64, never_cached: Vec<PluginName>) -> Decision {
        Decision {
            scheduler: Scheduler::new(settings),
            epoch,
            attempts_given: 0,
            plugins: Names::new(128),
            tags: Names::new(64),
            submitters: RandomState::new(),
            samples: HashMap::new(),
            rows: HashMap::new(),
            machines: HashMap::new(),
            machines_given: 0,
            running: HashMap::new(),
            numbers: HashMap::new(),
            never_cached,
            attempts_lost: 0,
            ended_count: Ended::default(),
            work: Work::default(),
            report_bytes: 0,
        }
    }

    /// Takes in a sample of the database, with the results it has. One that it has already is left alone.
    pub fn admit(&mut self, now: Now, open: &OpenSample) -> Result<(), Unschedulable> {
        let row = &open.sample;
        if self.rows.contains_key(&row.id) {
            return Ok(());
        }
        let mut needs = self.needs(&row.given.needs, &row.given.tags)?;
        if needs.plugins.is_empty() {
            return Err(Unschedulable::NothingToRun);
        }
        let known = self.known(open)?;
        for plugin in known.iter().filter_map(|plugin| self.plugins.find(plugin)).filter_map(PluginId::new) {
            needs.plugins = needs.plugins.without(plugin);
        }
        if needs.plugins.is_empty() {
            self.done_already(now, row.id);
            return Ok(());
        }
        let hash = row.given.hash.parse().map_err(|_| Unschedulable::Unreadable("the hash"))?;
        let directory = u64::try_from(row.given.directory).ok().and_then(Directory::new);
        let directory = directory.ok_or(Unschedulable::Unreadable("the directory"))?;
        let submitter = SubmitterId(self.submitters.hash_one(&row.given.submitter));
        let submission = Submission { directory, submitter, needs };
        let sample = self.scheduler.submit(now.clock, &submission).map_err(Unschedulable::Refused)?;
        self.scheduler.charge(sample, u8::try_from(open.charged).unwrap_or(u8::MAX));
        let size = u64::try_from(row.given.size).unwrap_or(0);
        let held = Held { row: row.id, hash, size, name: row.given.name.clone() };
        self.samples.insert(sample, held);
        self.rows.insert(row.id, sample);
        self.drain(now);
        Ok(())
    }

    /// The plugins that a sample of the database needs no more: its own results, and those of the same content.
    fn known(&self, open: &OpenSample) -> Result<Vec<PluginName>, Unschedulable> {
        let mut known: Vec<PluginName> = read(&open.have, "what it has")?;
        let cached: Vec<PluginName> = read(&open.cached, "what its content has")?;
        known.extend(cached.into_iter().filter(|plugin| !self.never_cached.contains(plugin)));
        Ok(known)
    }

    /// Nothing is left to run: the same content was analysed before, or the last leader had no time to say so.
    fn done_already(&mut self, now: Now, id: i64) {
        let (state, why) = ("done".into(), "every result was there already".into());
        self.work.batch.changes.push(SampleChange { id, state, why, ended_at: Some(now.wall) });
    }

    /// A sample that cannot be scheduled ends here, with the reason.
    pub fn refuse(&mut self, now: Now, sample: i64, why: &Unschedulable) {
        let (state, why) = ("unserviceable".to_owned(), why.to_string());
        let change = SampleChange { id: sample, state, why, ended_at: Some(now.wall) };
        self.work.batch.changes.push(change);
    }

    /// A machine was plugged in. Its VMs are taken to be on revert until it says otherwise.
    pub fn plug(&mut self, now: Now, node: &str, vms: &[VmOffer]) -> Result<MachineId, Refused> {
        let offers: Vec<Offer> = vms.iter().map(|vm| self.offer(vm)).collect();
        let group = self.scheduler.plug(now.clock, &offers)?;
        self.machines_given += 1;
        let machine = MachineId(self.machines_given);
        self.machines.insert(machine, Machine::new(node, group, vms));
        self.drain(now);
        Ok(machine)
    }

    /// Whether an attempt of this epoch runs.
    pub fn is_running(&self, attempt: i64) -> bool {
        self.running.contains_key(&attempt)
    }

    /// The node of a machine that is plugged in.
    pub fn node(&self, machine: MachineId) -> Option<&str> {
        self.machines.get(&machine).map(|machine| machine.node.as_str())
    }

    /// Machines of this node get no new samples: what runs there ends in order, then they are unplugged.
    pub fn drain_node(&mut self, now: Now, node: &str) {
        let of_node = |(id, machine): (&MachineId, &mut Machine)| {
            (machine.node == node && !std::mem::replace(&mut machine.draining, true)).then_some(*id)
        };
        let machines: Vec<MachineId> = self.machines.iter_mut().filter_map(of_node).collect();
        for id in machines {
            let busy: Vec<VmId> = self.running.values().filter(|run| run.machine == id).map(|run| run.vm).collect();
            let vms = self.machines.get(&id).map(Machine::vms).unwrap_or_default();
            for vm in vms.into_iter().filter(|vm| !busy.contains(vm)) {
                // It is as if it never became clean again.
                self.scheduler.vm_lost(now.clock, vm);
            }
            self.drain(now);
            self.retire(now, id);
        }
    }

    /// Unplugs a machine that is drained and runs nothing any more.
    fn retire(&mut self, now: Now, id: MachineId) {
        let draining = self.machines.get(&id).is_some_and(|machine| machine.draining);
        if draining && !self.running.values().any(|run| run.machine == id) {
            self.work.letters.push((id, Message::Bye("this machine is drained".into())));
            self.unplug(now, id);
        }
    }

    /// A machine is gone: what ran there is charged and queued again.
    pub fn unplug(&mut self, now: Now, machine: MachineId) {
        let Some(gone) = self.machines.remove(&machine) else { return };
        let lost: Vec<i64> = self.running.iter().filter(|(_, run)| run.machine == machine).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|attempt| self.over(now, attempt, "lost"));
        self.scheduler.unplug(now.clock, gone.group);
        self.drain(now);
    }

    /// A dispatcher says how one of its VMs is: neither in use nor on revert is ready.
    pub fn vm_status(&mut self, now: Now, machine: MachineId, vm: &str, status: wire::VmStatus) {
        let known = self.machines.get(&machine).filter(|machine| !machine.draining);
        if let Some(vm) = known.and_then(|machine| machine.vm(vm))
            && status == wire::VmStatus::default()
        {
            self.scheduler.ready(now.clock, vm);
            self.drain(now);
        }
    }

    /// A dispatcher brings a result. What it may not bring changes nothing.
    pub fn result(&mut self, now: Now, machine: MachineId, brought: Brought) -> Verdict {
        let Some(run) = self.running.get(&brought.attempt).filter(|run| run.machine == machine).cloned() else {
            return Verdict::Unknown;
        };
        let Some(plugin) = self.plugins.find(&brought.plugin).and_then(PluginId::new) else { return Verdict::Unknown };
        let verdict = self.scheduler.result(now.clock, run.attempt, plugin, brought.valid);
        self.keep(now, run.attempt.sample, brought, verdict);
        self.drain(now);
        verdict
    }

    /// A result of an attempt that an earlier leader assigned to this sample.
    pub fn late_result(&mut self, now: Now, sample: i64, brought: Brought) -> Verdict {
        let Some(sample) = self.rows.get(&sample).copied() else { return Verdict::Unknown };
        let Some(plugin) = self.plugins.find(&brought.plugin).and_then(PluginId::new) else { return Verdict::Unknown };
        let verdict = match brought.valid {
            true => self.scheduler.known(now.clock, sample, plugin),
            false => Verdict::Invalid,
        };
        self.keep(now, sample, brought, verdict);
        self.drain(now);
        verdict
    }

    /// A dispatcher has reported everything of an attempt, or will not do it.
    pub fn ended(&mut self, now: Now, machine: MachineId, attempt: i64, outcome: &str) {
        if let Some(run) = self.running.get(&attempt).filter(|run| run.machine == machine).cloned() {
            self.over(now, attempt, outcome);
            self.scheduler.failed(now.clock, run.attempt);
            self.drain(now);
            self.retire(now, machine);
        }
    }

    /// Somebody takes a sample back. False if it has ended or is not known.
    pub fn cancel(&mut self, now: Now, sample: i64) -> bool {
        let cancelled = self.rows.get(&sample).copied().is_some_and(|id| self.scheduler.cancel(now.clock, id));
        self.drain(now);
        cancelled
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.scheduler.tick(now.clock);
        self.drain(now);
        let draining: Vec<MachineId> =
            self.machines.iter().filter(|(_, machine)| machine.draining).map(|(id, _)| *id).collect();
        draining.into_iter().for_each(|id| self.retire(now, id));
    }

    /// When [`Decision::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.scheduler.next_deadline()
    }

    /// What is to be written and sent.
    pub fn take(&mut self) -> Work {
        self.report_bytes = 0;
        std::mem::take(&mut self.work)
    }

    /// Why a sample is not running.
    pub fn why(&self, sample: i64) -> Why {
        self.rows.get(&sample).map_or(Why::Unknown, |id| self.scheduler.why(*id))
    }

    /// How many bytes of reports wait to be committed.
    pub fn report_bytes(&self) -> usize {
        self.report_bytes
    }

    /// The names of plugins.
    fn plugin_names(&self, plugins: Plugins) -> Vec<PluginName> {
        plugins.iter().filter_map(|plugin| self.plugins.name(plugin.number().into())).cloned().collect()
    }

    /// Samples that have not ended.
    pub fn open(&self) -> usize {
        self.samples.len()
    }

    fn needs(&mut self, plugins: &str, tags: &str) -> Result<Needs, Unschedulable> {
        let plugins: Vec<PluginName> = read(plugins, "the plugins")?;
        let tags: Vec<String> = read(tags, "the tags")?;
        let mut needs = Needs { plugins: Plugins::NONE, tags: Tags::NONE };
        for plugin in plugins {
            let number =
                self.plugins.number(plugin).and_then(PluginId::new).ok_or(Unschedulable::TooMany("plugins"))?;
            needs.plugins = needs.plugins.with(number);
        }
        for tag in tags {
            needs.tags.0 |= 1 << self.tags.number(tag).ok_or(Unschedulable::TooMany("tags"))?;
        }
        Ok(needs)
    }

    /// What of a VM's offer has a number: a plugin beyond the lab's bound is not used.
    fn offer(&mut self, vm: &VmOffer) -> Offer {
        let mut offer = Offer { plugins: Plugins::NONE, tags: Tags::NONE };
        for plugin in &vm.plugins {
            match self.plugins.number(plugin.clone()).and_then(PluginId::new) {
                Some(number) => offer.plugins = offer.plugins.with(number),
                None => tracing::warn!(?plugin, "the lab has as many plugins as it can have"),
            }
        }
        for number in vm.tags.iter().filter_map(|tag| self.tags.number(tag.clone())) {
            offer.tags.0 |= 1 << number;
        }
        offer
    }

    /// Carries out what the scheduler wants.
    fn drain(&mut self, now: Now) {
        while let Some(output) = self.scheduler.poll() {
            match output {
                Output::Start(start) => self.start(now, &start),
                Output::Stop { attempt, reason, .. } => self.stop(now, attempt, reason),
                Output::Ended { sample, end } => self.end(now, sample, end),
            }
        }
    }

    fn start(&mut self, now: Now, start: &weir_core::runq::Assignment) {
        let place = self.place(start.vm);
        let (Some((machine, node, vm)), Some(held)) = (place, self.samples.get(&start.attempt.sample)) else { return };
        self.attempts_given += 1;
        let id = self.epoch << 32 | self.attempts_given;
        let plugins = self.plugin_names(start.plugins);
        let threshold = Duration::from_nanos(start.deadline.0.saturating_sub(now.clock.0));
        let assignment = wire::Assignment {
            attempt: id.cast_unsigned(),
            epoch: self.epoch.cast_unsigned(),
            sample: held.hash,
            size: held.size,
            name: held.name.clone(),
            vm: vm.clone(),
            plugins: plugins
                .iter()
                .map(|(name, version)| PluginCall { name: name.clone(), version: version.clone() })
                .collect(),
            threshold,
        };
        self.work.batch.attempts.push(AttemptRow {
            id,
            sample: held.row,
            epoch: self.epoch,
            node,
            vm,
            plugins: serde_json::json!(plugins).to_string(),
            started_at: now.wall,
            ended_at: None,
            outcome: String::new(),
        });
        self.work.letters.push((machine, Message::Assign(Box::new(assignment))));
        self.running.insert(id, Running { attempt: start.attempt, machine, vm: start.vm });
        self.numbers.insert(start.attempt, id);
    }

    fn stop(&mut self, now: Now, attempt: AttemptId, reason: StopReason) {
        let Some(id) = self.numbers.get(&attempt).copied() else { return };
        if let Some(run) = self.running.get(&id) {
            let cancel = Message::Cancel { attempt: id.cast_unsigned(), epoch: self.epoch.cast_unsigned() };
            self.work.letters.push((run.machine, cancel));
        }
        let outcome = match reason {
            StopReason::Expired => "expired",
            StopReason::Cancelled => "cancelled",
            StopReason::Satisfied => "satisfied",
        };
        self.over(now, id, outcome);
    }

    fn end(&mut self, now: Now, sample: SampleId, end: End) {
        let Some(held) = self.samples.remove(&sample) else { return };
        self.rows.remove(&held.row);
        self.scheduler.forget(sample);
        self.ended_count.count(end);
        let (state, why) = match end {
            End::Done => ("done", ""),
            End::Quarantined => ("quarantined", "as many attempts as allowed brought nothing"),
            End::Unserviceable => ("unserviceable", "no machine of the lab could run it"),
            End::Cancelled => ("cancelled", "taken back"),
        };
        let (id, state, why, ended_at) = (held.row, state.into(), why.into(), Some(now.wall));
        self.work.batch.changes.push(SampleChange { id, state, why, ended_at });
    }

    /// The attempt is over, as far as the database is concerned.
    fn over(&mut self, now: Now, id: i64, outcome: &str) {
        if let Some(run) = self.running.remove(&id) {
            self.numbers.remove(&run.attempt);
            self.attempts_lost += u64::from(!matches!(outcome, "done" | "satisfied" | "cancelled"));
            self.work.batch.ends.push(AttemptEnd { id, outcome: outcome.into(), ended_at: now.wall });
        }
    }

    /// Writes a result down, whether it counts or not.
    fn keep(&mut self, now: Now, sample: SampleId, brought: Brought, verdict: Verdict) {
        let Some(held) = self.samples.get(&sample) else { return };
        if matches!(verdict, Verdict::Unknown) {
            return;
        }
        self.report_bytes += brought.report.len();
        self.work.batch.results.push(ResultRow {
            attempt: brought.attempt,
            plugin: brought.plugin.0,
            version: brought.plugin.1,
            sample: held.row,
            hash: held.hash.to_string(),
            accepted: i64::from(verdict == Verdict::Accepted),
            outcome: brought.outcome.into(),
            report: brought.report,
            at: now.wall,
        });
    }

    fn place(&self, vm: VmId) -> Option<(MachineId, String, String)> {
        let (id, machine) = self.machines.iter().find(|(_, machine)| machine.group == vm.group)?;
        Some((*id, machine.node.clone(), machine.vm_name(vm.number)?.to_owned()))
    }
}

fn read<T: serde::de::DeserializeOwned>(json: &str, what: &'static str) -> Result<T, Unschedulable> {
    serde_json::from_str(json).map_err(|_| Unschedulable::Unreadable(what))
}

/// Why a sample of the database cannot be scheduled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unschedulable {
    /// What the row says makes no sense.
    #[error("{0} of the sample cannot be read")]
    Unreadable(&'static str),
    /// A lab cannot have more different ones.
    #[error("the lab has as many {0} as it can have")]
    TooMany(&'static str),
    /// No plugin takes such a file.
    #[error("no plugin of this lab takes such a file")]
    NothingToRun,
    /// The scheduler does not take it now.
    #[error("the scheduler does not take it: {0:?}")]
    Refused(Refused),
}

impl Unschedulable {
    /// Whether the sample may be taken later: it is the scheduler that has no room, the sample is as it should be.
    pub fn is_for_now(&self) -> bool {
        matches!(self, Unschedulable::Refused(Refused::Full | Refused::TooManyClasses))
    }
}
