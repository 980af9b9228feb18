//! The scheduler decision, run by the acting leader: samples and machines in, assignments out.
//!
//! Around the core's `runq::Scheduler` (which knows only numbers) this keeps the names: plugins, tags, machines, rows of the
//! database. It does no I/O. Every input may leave something in the [`Work`] that [`Decision::take`] hands out: a batch to
//! commit and messages to send *after* it is committed. If the commit is refused the leader acts no longer, and the
//! whole decision is dropped: the next leader builds its own from the database.

mod children;
mod deferral;
mod equipment;
mod figures;
mod machine;
mod machine_id;
mod names;
mod places;
mod plugging;
mod plugin_result;
mod recent_results;
mod rules;
#[cfg(test)]
mod tests;
mod tracked_sample;
mod why;

pub use equipment::Equipment;
pub use figures::{EndedCounts, Figures, QueueFigures};
pub use machine::VmOffer;
pub use machine_id::MachineId;
pub use places::PlaceLine;
pub use plugin_result::PluginResult;
pub use rules::Rules;

use crate::active;
use crate::choices::plain_version;
use crate::verdict::Brief;
use crate::wire::{self, Message, PluginCall};
use machine::Machine;
use names::NumberedNames;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tracked_sample::TrackedSample;
use weir_core::runq::{
    AttemptId, Directory, Needs, Offer, Output, PluginId, Plugins, ResultStatus, RunqRefusal, SampleEnd, SampleId,
    Scheduler, Settings, StopReason, Submission, SubmitterId, Tags, VmId, Why,
};
use weir_core::time::Instant;
use weir_store::records::{AttemptEnd, AttemptRow, LabBatch, OpenSample, ResultRow, SampleChange};

/// How many names of submitters are remembered; at least twice as many as there are samples.
const PEOPLE_MAX: usize = 1_024;

/// A plugin by name and version, the form in needs and offers.
pub type PluginName = (String, String);

/// The scheduler decision of one epoch.
#[derive(Debug)]
pub struct Decision {
    scheduler: Scheduler,
    epoch: i64,
    /// The longest time that an attempt takes.
    threshold: Duration,
    attempts_given: i64,
    plugins: NumberedNames<PluginName>,
    tags: NumberedNames<String>,
    /// Submitters, and files that were found in a sample, are identified by a hash that nobody can predict.
    hasher: RandomState,
    samples: HashMap<SampleId, TrackedSample>,
    rows: HashMap<i64, SampleId>,
    machines: HashMap<MachineId, Machine>,
    machines_given: u64,
    running: HashMap<i64, Running>,
    numbers: HashMap<AttemptId, i64>,
    /// Samples that were put off, and until when.
    put_off: BTreeSet<(Instant, SampleId)>,
    rules: Rules,
    /// Names of submitters, each once; those without a sample are forgotten when there are many.
    people: HashSet<Arc<str>>,
    /// The children of each submitted sample, as hashes of their tickets. Those of an earlier leader are read with the open samples.
    families: HashMap<i64, HashSet<u64>>,
    /// When there are this many families, the next look finds those of which no sample is open.
    families_next_look: usize,
    recent_results: recent_results::RecentResults,
    /// How many names had their numbers when the machines' offers were last read.
    named: usize,
    attempts_lost: u64,
    ended_count: EndedCounts,
    work: Work,
    /// Bytes of the reports in it.
    report_bytes: usize,
}

/// What should be written, and the messages to send afterwards.
#[derive(Debug, Default)]
pub struct Work {
    /// To be committed first.
    pub batch: LabBatch,
    /// To be sent after that.
    pub letters: Vec<(MachineId, Message)>,
    /// Samples for which there was no room when the turn of their next plugins came: to be read again.
    pub again: Vec<i64>,
}

/// The time by the leader's own clock, which never steps back, and by the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Own clock.
    pub clock: Instant,
    /// Nanoseconds since the Unix epoch.
    pub wall: i64,
}

/// A running attempt.
#[derive(Debug, Clone)]
struct Running {
    attempt: AttemptId,
    machine: MachineId,
    vm: VmId,
    /// The plugins that it should run.
    plugins: Plugins,
    /// It has brought a result that counts.
    fruitful: bool,
}

impl Decision {
    /// The decision of a leader with this epoch.
    pub fn new(settings: Settings, epoch: i64, rules: Rules) -> Decision {
        Decision {
            threshold: settings.threshold,
            scheduler: Scheduler::new(settings),
            epoch,
            attempts_given: 0,
            plugins: NumberedNames::new(128),
            tags: NumberedNames::new(64),
            hasher: RandomState::new(),
            samples: HashMap::new(),
            rows: HashMap::new(),
            machines: HashMap::new(),
            machines_given: 0,
            running: HashMap::new(),
            numbers: HashMap::new(),
            put_off: BTreeSet::new(),
            rules,
            people: HashSet::new(),
            families: HashMap::new(),
            families_next_look: 0,
            recent_results: recent_results::RecentResults::new(),
            named: 0,
            attempts_lost: 0,
            ended_count: EndedCounts::default(),
            work: Work::default(),
            report_bytes: 0,
        }
    }

    /// Accepts a sample of the database, with the results it has. One that is known already is not changed.
    pub fn admit(&mut self, now: Now, open: &OpenSample) -> Result<(), Unschedulable> {
        let row = &open.sample;
        if self.rows.contains_key(&row.id) {
            return Ok(());
        }
        let mut wanted: Vec<PluginName> = read(&row.given.needs, "the plugins")?;
        if wanted.is_empty() {
            return Err(Unschedulable::NothingToRun);
        }
        let hash = row.given.hash.parse().map_err(|_| Unschedulable::Unreadable("the hash"))?;
        let directory = u64::try_from(row.given.directory).ok().and_then(Directory::new);
        let directory = directory.ok_or(Unschedulable::Unreadable("the directory"))?;
        let submitter = self.person(&row.given.submitter);
        let mut held = TrackedSample::new(row, hash, directory.number(), submitter);
        held.tags = self.tags(&row.given.tags)?;
        let (file_type, name, runs) = (&row.given.file_type, &row.given.name, self.rules.runs_any(&wanted));
        held.unrun = active::kind(file_type, name).filter(|_| !runs);
        held.otherwise = active::otherwise(file_type, name).filter(|_| runs);
        let brought: Vec<(String, String, String)> = read(&open.have, "what it has")?;
        let known: Vec<(String, String, String, Option<String>)> = read(&open.cached, "what its content has")?;
        let brought = brought.into_iter().map(|(name, version, brief)| (name, version, brief, None));
        let cached_from = brought.len();
        for (place, (name, version, brief, of)) in brought.chain(known).enumerate() {
            let plugin = (name, version);
            let cached = place >= cached_from;
            if (cached && self.rules.never_caches(&plugin)) || !wanted.contains(&plugin) {
                continue;
            }
            // By another name it is run, or read, in another way.
            if cached && !of.is_some_and(|of| self.rules.are_alike(&plugin, &of, &held.name)) {
                continue;
            }
            let mut brief: Brief = serde_json::from_str(&brief).unwrap_or_default();
            // Not reused: a result without some files, because there was no room for them where it was made; and one with files, if this sample is too deep.
            let too_deep = held.depth >= self.rules.depth_max && !brief.children.is_empty();
            if cached && (brief.partial || too_deep) {
                continue;
            }
            wanted.retain(|other| *other != plugin);
            if cached {
                // The children from its own results were made together with those results.
                self.add_children(now, &held, &mut brief);
            }
            let vouches = self.rules.vouches(&plugin, &held);
            held.learn(&brief.findings, vouches);
        }
        if wanted.is_empty() {
            // The same content was analysed before, or the last leader had no time to write its end.
            let change = held.ended("done", "every result was there already", now.wall);
            self.work.batch.changes.push(change);
            return Ok(());
        }
        // From here on plugins have the versions that machines know.
        for (_, version) in &mut wanted {
            version.truncate(plain_version(version).len());
        }
        let failed: Vec<String> = read(&open.charged, "its attempts")?;
        self.queue(now, held, wanted, &failed)?;
        self.drain(now);
        Ok(())
    }

    /// Gives a sample to the scheduler, with those of its plugins whose turn it is. Of the failed attempts, each identified by its plugins, only
    /// those of this turn are charged: every turn may fail as often as the first.
    fn queue(
        &mut self,
        now: Now,
        mut held: TrackedSample,
        wanted: Vec<PluginName>,
        failed: &[String],
    ) -> Result<(), Unschedulable> {
        let (turn, later) = self.rules.turn(wanted);
        held.put_off(later);
        let of_this_turn = |attempt: &&String| {
            let plugins: Vec<PluginName> = serde_json::from_str(attempt).unwrap_or_default();
            plugins.iter().any(|plugin| turn.contains(plugin))
        };
        let charged = u8::try_from(failed.iter().filter(of_this_turn).count()).unwrap_or(u8::MAX);
        let plugins = self.numbers_of(turn);
        self.names_are_known(now);
        let needs = Needs { plugins: plugins?, tags: held.tags };
        let directory = Directory::new(held.directory.into()).ok_or(Unschedulable::Unreadable("the directory"))?;
        let submitter = SubmitterId(self.hasher.hash_one(&*held.submitter));
        let submission = Submission { directory, submitter, needs };
        let sample = self.scheduler.submit_charged(now.clock, &submission, charged);
        let sample = sample.map_err(Unschedulable::Refused)?;
        if charged > 0 && self.scheduler.why(sample) == Why::PutOff {
            // It has no attempt left, and the last one may still run on a machine that has not reported yet.
            self.put_off.insert((now.clock + self.threshold, sample));
        }
        self.rows.insert(held.row, sample);
        self.samples.insert(sample, held);
        Ok(())
    }

    fn person(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.people.get(name) {
            return known.clone();
        }
        if self.people.len() > PEOPLE_MAX.max(2 * self.samples.len()) {
            self.people.retain(|name| Arc::strong_count(name) > 1);
        }
        let name: Arc<str> = name.into();
        self.people.insert(name.clone());
        name
    }

    /// A sample that cannot be scheduled ends here, with the reason.
    pub fn refuse(&mut self, now: Now, sample: i64, why: &Unschedulable) {
        let (state, why, ended_at) = ("unserviceable".to_owned(), why.to_string(), Some(now.wall));
        let change = SampleChange { id: sample, state, why, ended_at, verdict: 0, reasons: "[]".into() };
        self.work.batch.changes.push(change);
    }

    /// Whether an attempt of this epoch runs on this machine.
    pub fn is_running(&self, attempt: i64, machine: MachineId) -> bool {
        self.running.get(&attempt).is_some_and(|run| run.machine == machine)
    }

    /// A dispatcher sends a result. A result that it may not send changes nothing.
    pub fn result(&mut self, now: Now, machine: MachineId, brought: PluginResult) -> ResultStatus {
        let Some(run) = self.running.get(&brought.attempt).filter(|run| run.machine == machine).cloned() else {
            return ResultStatus::Unknown;
        };
        let plugin = self.plugins.find(&brought.plugin).and_then(PluginId::new);
        let Some(plugin) = plugin.filter(|plugin| run.plugins.contains(*plugin)) else { return ResultStatus::Unknown };
        if let Some(known) = self.machines.get_mut(&machine).filter(|_| brought.is_valid()) {
            known.rest.works();
        }
        let verdict = self.scheduler.result(now.clock, run.attempt, plugin, brought.is_valid());
        if let Some(run) = self.running.get_mut(&brought.attempt) {
            run.fruitful |= verdict == ResultStatus::Accepted;
        }
        self.keep(now, run.attempt.sample, brought, verdict);
        self.drain(now);
        verdict
    }

    /// A result of an attempt that an earlier leader assigned to this sample.
    pub fn late_result(&mut self, now: Now, sample: i64, brought: PluginResult) -> ResultStatus {
        let Some(sample) = self.rows.get(&sample).copied() else { return ResultStatus::Unknown };
        let Some(plugin) = self.plugins.find(&brought.plugin).and_then(PluginId::new) else {
            return ResultStatus::Unknown;
        };
        let verdict = match brought.is_valid() {
            true => self.scheduler.known(now.clock, sample, plugin),
            false => ResultStatus::Invalid,
        };
        self.keep(now, sample, brought, verdict);
        self.drain(now);
        verdict
    }

    /// A dispatcher has reported everything of an attempt, or will not do it.
    pub fn ended(&mut self, now: Now, machine: MachineId, attempt: i64) {
        if let Some(run) = self.running.get(&attempt).filter(|run| run.machine == machine).cloned() {
            let outcome = if run.fruitful { "done" } else { "failed" };
            self.over(now, attempt, outcome);
            self.scheduler.failed(now.clock, run.attempt);
            self.drain(now);
            self.retire(now, machine);
        }
    }

    /// Somebody cancels a sample. False if it has ended or is not known.
    pub fn cancel(&mut self, now: Now, sample: i64) -> bool {
        let cancelled = self.rows.get(&sample).copied().is_some_and(|id| self.scheduler.cancel(now.clock, id));
        self.drain(now);
        cancelled
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.scheduler.tick(now.clock);
        self.go_on(now);
        let draining: Vec<MachineId> =
            self.machines.iter().filter(|(_, machine)| machine.draining).map(|(id, _)| *id).collect();
        draining.into_iter().for_each(|id| self.retire(now, id));
    }

    /// When [`Decision::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let put_off = self.put_off.first().map(|(due, _)| *due);
        let rests = self.machines.values().filter_map(Machine::rests_until);
        [self.scheduler.next_deadline(), put_off].into_iter().flatten().chain(rests).min()
    }

    /// What should be written and sent.
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

    /// How many rows wait to be committed.
    pub fn batch_len(&self) -> usize {
        let batch = &self.work.batch;
        batch.attempts.len() + batch.ends.len() + batch.results.len() + batch.changes.len() + batch.children.len()
    }

    fn plugin_names(&self, plugins: Plugins) -> Vec<PluginName> {
        plugins.iter().filter_map(|plugin| self.plugins.name(plugin.number().into())).cloned().collect()
    }

    /// Whether a sample was accepted and has not ended.
    pub fn knows(&self, sample: i64) -> bool {
        self.rows.contains_key(&sample)
    }

    /// Samples that have not ended.
    pub fn open(&self) -> usize {
        self.samples.len()
    }

    fn numbers_of(&mut self, plugins: Vec<PluginName>) -> Result<Plugins, Unschedulable> {
        let mut all = Plugins::NONE;
        for plugin in plugins {
            let number =
                self.plugins.number(plugin).and_then(PluginId::new).ok_or(Unschedulable::TooMany("plugins"))?;
            all = all.with(number);
        }
        Ok(all)
    }

    fn tags(&mut self, tags: &str) -> Result<Tags, Unschedulable> {
        let tags: Vec<String> = read(tags, "the tags")?;
        let mut all = Tags::NONE;
        for tag in tags {
            all.0 |= 1 << self.tags.number(tag).ok_or(Unschedulable::TooMany("tags"))?;
        }
        Ok(all)
    }

    /// The part of a VM's offer that has numbers. Only names that samples need get numbers, because machines may offer whatever they like.
    fn offer(&self, vm: &VmOffer) -> Offer {
        let mut offer = Offer { plugins: Plugins::NONE, tags: Tags::NONE };
        for number in vm.plugins.iter().filter_map(|plugin| self.plugins.find(plugin)).filter_map(PluginId::new) {
            offer.plugins = offer.plugins.with(number);
        }
        for number in vm.tags.iter().filter_map(|tag| self.tags.find(tag)) {
            offer.tags.0 |= 1 << number;
        }
        offer
    }

    /// When a name gets a number, machines that have offered it before can now run it.
    fn names_are_known(&mut self, now: Now) {
        let named = self.plugins.len() + self.tags.len();
        if std::mem::replace(&mut self.named, named) == named {
            return;
        }
        for machine in self.machines.values() {
            let offers: Vec<Offer> = machine.vms.iter().map(|vm| self.offer(vm)).collect();
            self.scheduler.offer_more(now.clock, machine.group, &offers);
        }
        self.drain(now);
    }

    /// Carries out what the scheduler has decided.
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
        if self.is_known(now, start) {
            return;
        }
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
            children: self.child_limits(held),
            choices: held.choices().clone(),
        };
        self.work.batch.attempts.push(AttemptRow {
            id,
            sample: held.row,
            epoch: self.epoch,
            node,
            vm,
            plugins: serde_json::json!(plugins).to_string(),
            // The database sets it.
            started_at: 0,
            ended_at: None,
            outcome: String::new(),
        });
        self.work.letters.push((machine, Message::Assign(Box::new(assignment))));
        let (attempt, vm, plugins) = (start.attempt, start.vm, start.plugins);
        self.running.insert(id, Running { attempt, machine, vm, plugins, fruitful: false });
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

    fn end(&mut self, now: Now, sample: SampleId, end: SampleEnd) {
        let Some(mut held) = self.samples.remove(&sample) else { return };
        self.rows.remove(&held.row);
        self.scheduler.forget(sample);
        let later = held.later();
        if end == SampleEnd::Done && !later.is_empty() {
            return self.next_turn(now, held, later);
        }
        self.ended_count.count(end);
        let (state, why) = match end {
            SampleEnd::Done => ("done", ""),
            SampleEnd::Quarantined => ("quarantined", "as many attempts as allowed brought nothing"),
            SampleEnd::Unserviceable => ("unserviceable", "no machine of the lab could run it"),
            SampleEnd::Cancelled => ("cancelled", "taken back"),
        };
        self.work.batch.changes.push(held.ended(state, why, now.wall));
    }

    /// The required plugins have succeeded: it is the turn of the next ones.
    fn next_turn(&mut self, now: Now, held: TrackedSample, later: Vec<PluginName>) {
        let row = held.row;
        match self.queue(now, held, later, &[]) {
            Ok(()) => {}
            Err(why) if why.is_for_now() => self.work.again.push(row),
            Err(why) => self.refuse(now, row, &why),
        }
    }

    /// The attempt is over, as far as the database is concerned.
    fn over(&mut self, now: Now, id: i64, outcome: &str) {
        if let Some(run) = self.running.remove(&id) {
            self.numbers.remove(&run.attempt);
            self.attempts_lost += u64::from(matches!(outcome, "failed" | "expired" | "lost"));
            self.work.batch.ends.push(AttemptEnd { id, outcome: outcome.into(), ended_at: now.wall });
        }
    }

    /// Writes a result to the batch, whether it counts or not.
    fn keep(&mut self, now: Now, sample: SampleId, mut brought: PluginResult, verdict: ResultStatus) {
        let Some(held) = self.samples.get_mut(&sample).filter(|_| verdict != ResultStatus::Unknown) else { return };
        let (row, hash) = (held.row, held.hash);
        if !brought.is_valid() {
            held.suffer(&brought.brief.findings);
        }
        if verdict == ResultStatus::Accepted {
            let parent = held.clone();
            // Before it is written down: what is left out must be a doubt under the next leader, too.
            self.add_children(now, &parent, &mut brought.brief);
            let vouches = self.rules.vouches(&brought.plugin, &parent);
            if let Some(held) = self.samples.get_mut(&sample) {
                held.learn(&brought.brief.findings, vouches);
            }
            if parent.choices().is_none() {
                self.remember(&parent, &brought.plugin, &brought.brief);
            }
        }
        let version = match self.samples.get(&sample) {
            Some(held) => self.rules.version(&brought.plugin, held.choices()),
            None => brought.plugin.1,
        };
        self.report_bytes += brought.report.len();
        self.work.batch.results.push(ResultRow {
            attempt: brought.attempt,
            plugin: brought.plugin.0,
            version,
            sample: row,
            hash: hash.to_string(),
            accepted: i64::from(verdict == ResultStatus::Accepted),
            outcome: brought.outcome.to_string(),
            report: brought.report,
            brief: serde_json::to_string(&brought.brief).unwrap_or_default(),
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
    /// The row has a value that is not possible.
    #[error("{0} of the sample cannot be read")]
    Unreadable(&'static str),
    /// There are too many different ones.
    #[error("the lab has as many {0} as it can have")]
    TooMany(&'static str),
    /// No plugin accepts such a file.
    #[error("no plugin of this lab takes such a file")]
    NothingToRun,
    /// The scheduler does not accept it now.
    #[error("the scheduler does not take it: {0:?}")]
    Refused(RunqRefusal),
}

impl Unschedulable {
    /// Whether the sample may be accepted later: nothing is wrong with it, but the scheduler has no room.
    pub fn is_for_now(&self) -> bool {
        matches!(self, Self::Refused(RunqRefusal::Full | RunqRefusal::TooManyClasses) | Self::TooMany(_))
    }
}
