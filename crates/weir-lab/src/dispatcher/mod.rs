//! The dispatcher: takes samples from the main scheduler and runs plugins on them (paper, section 4).
//!
//! One [`Dispatcher`] is one machine with its VMs. It answers what the main scheduler asks, runs what it is assigned, and
//! brings the results. A result is kept until the present leader says that it is stored; a new leader gets it again, once it has asked for
//! the status of the VMs. Work of an epoch below the highest that was seen is refused. It has no connection of its own: messages come in
//! through [`Dispatcher::hear`] and go out through a channel.

pub mod child;
pub mod children;
pub mod fence;
mod leftovers;
mod looks;
mod patience;
mod sample;
mod slot;

pub use sample::{Fetch, NoSample};

use crate::cgroup::Hierarchy;
use crate::choices::OPENS_ARCHIVES;
use crate::plugin::{Plugin, Run};
use crate::tasks::Task;
use crate::vm::{Phase, Vm};
use crate::wire::{Ask, Assignment, Message, PluginCall, PluginOutcome, REPORT_MAX, VmStatus};
use looks::{Looks, is_own};
use patience::Patience;
use sample::{Sample, SampleSource};
use serde_json::{Value, json};
use slot::{Failed, Slot};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use weir_core::election::{Epoch, Fence};
use weir_store::samples::{SampleHash, Samples};

/// How many results may wait to be stored; beyond that new work is refused.
const UNSTORED_MAX: usize = 4096;
/// The same in bytes. Attempts that already run may still add to it.
const UNSTORED_BYTES_MAX: usize = 256 << 20;

const STOPPING: &str = "this machine is being stopped";

/// A message of a dispatcher, and the bytes that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The line.
    pub message: Message,
    /// The bytes after it.
    pub payload: Arc<[u8]>,
}

/// The settings of a dispatcher.
#[derive(Debug, Clone)]
pub struct DispatcherSettings {
    /// The folder in which jobs are prepared.
    pub jobs: PathBuf,
    /// Plugins, including those that run in VMs.
    pub plugins: Vec<Plugin>,
    /// How many plugins run as processes at the same time; VMs are not counted.
    pub slots: u32,
    /// Tags of this machine's slots; plugins that need other tags are not offered.
    pub tags: Vec<String>,
    pub processing_index: u16,
}

/// One machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    shared: Arc<DispatcherParts>,
}

#[derive(Debug)]
struct DispatcherParts {
    settings: DispatcherSettings,
    /// Processes that keep running for our own plugins.
    looks: Looks,
    source: SampleSource,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fence: Fence,
    slots: Vec<Slot>,
    tasks: BTreeMap<u64, JoinHandle<()>>,
    /// Results by attempt and plugin, and ends by attempt, that have not been stored yet.
    unstored: BTreeMap<(u64, String), Envelope>,
    unstored_bytes: usize,
    over: BTreeSet<u64>,
    out: Option<mpsc::UnboundedSender<Envelope>>,
    /// The present leader knows this machine, and accepts results.
    introduced: bool,
    /// The process is being stopped: nothing new begins.
    stopping: bool,
    patience: Patience,
}

impl Dispatcher {
    /// A machine that reads samples from the store, or gets them by `fetch`. What earlier processes left in its job folder
    /// is removed.
    pub fn new(
        settings: DispatcherSettings,
        samples: Samples,
        fetch: Option<mpsc::Sender<Fetch>>,
    ) -> std::io::Result<Dispatcher> {
        leftovers::put_aside(&settings.jobs);
        if let Some(groups) = Hierarchy::of_this_machine() {
            groups.sweep();
        }
        std::fs::create_dir_all(&settings.jobs)?;
        let slots = (1..=settings.slots.clamp(1, 128)).map(|number| Slot::new(format!("slot_{number}"))).collect();
        let state = State {
            fence: Fence::restored(Epoch(0)),
            slots,
            tasks: BTreeMap::new(),
            unstored: BTreeMap::new(),
            unstored_bytes: 0,
            over: BTreeSet::new(),
            out: None,
            introduced: false,
            stopping: false,
            patience: Patience::default(),
        };
        let source = SampleSource::new(settings.jobs.clone(), samples, fetch);
        let looks = Looks::new(&settings.jobs, &settings.plugins);
        Ok(Dispatcher { shared: Arc::new(DispatcherParts { settings, looks, source, state: Mutex::new(state) }) })
    }

    /// Adds VMs to the machine: they are offered in addition to its slots. The tasks report when each is clean.
    pub fn add_vms(&self, vms: Vec<Vm>) -> Vec<Task> {
        let add = |vm: Vm| {
            let (name, phase) = (vm.settings().name.clone(), vm.phase());
            self.state().slots.push(Slot::of_vm(vm));
            Task::new("lab VM status", tell_when_free(Arc::downgrade(&self.shared), name, phase))
        };
        vms.into_iter().map(add).collect()
    }

    /// An earlier process of this machine has seen this epoch: work of a lower epoch is refused.
    pub fn has_seen(&self, epoch: Epoch) {
        let _ = self.state().fence.admit(epoch);
    }

    /// A connection to a leader of this epoch: messages for it go to `out` from now on. Every result that is not stored yet follows when the
    /// leader asks for the status of a VM. False if a later epoch has been seen.
    pub fn connect(&self, epoch: Epoch, out: mpsc::UnboundedSender<Envelope>) -> bool {
        let mut state = self.state();
        if state.fence.admit(epoch).is_err() {
            return false;
        }
        state.out = Some(out);
        state.introduced = false;
        true
    }

    /// Handles a message of the main scheduler.
    pub fn hear(&self, message: &Message) {
        match message {
            Message::Get(ask) => self.answer(ask),
            Message::Assign(assignment) => self.assign(assignment),
            Message::Cancel { attempt, epoch } => self.cancel(*attempt, Epoch(*epoch)),
            Message::Stored(attempt, plugin) => self.state().stored(*attempt, plugin),
            Message::Ping(number) => self.state().say(Message::Pong(*number)),
            Message::Fetch(hash) => self.hand_over(*hash),
            _ => tracing::warn!(%message, "the main scheduler says what only a dispatcher says"),
        }
    }

    /// Gives the leader a file that a result names and that the leader has not stored yet: it cannot fetch files from a machine outside the
    /// lab.
    fn hand_over(&self, hash: SampleHash) {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let named = this.state().names(hash);
            let content = named.then(|| this.shared.source.read(hash)).flatten();
            let answer = match content {
                Some(content) => {
                    Envelope { message: Message::Sample(hash, content.len() as u64), payload: content.into() }
                }
                None => Message::Missing(hash).into(),
            };
            this.state().send(answer);
        });
    }

    fn answer(&self, ask: &Ask) {
        let mut state = self.state();
        let settings = &self.shared.settings;
        match ask {
            Ask::Memory => state.say(Message::Memory(memory("MemTotal:"))),
            Ask::MemoryFree => state.say(Message::MemoryFree(memory("MemAvailable:"))),
            Ask::VmList => {
                let names: Vec<String> = state.slots.iter().map(|slot| slot.name.clone()).collect();
                let count = names.len() as u32;
                names.into_iter().for_each(|name| state.say(Message::Vm(name)));
                state.say(Message::VmListEnd(count));
            }
            Ask::VmStatus(vm) => {
                state.introduce();
                if let Some(status) = state.slot(vm).map(|slot| slot.status()) {
                    state.say(Message::VmStatus(vm.clone(), status));
                }
            }
            Ask::VmMemory(vm) | Ask::VmPlugins(vm) | Ask::VmTags(vm) => {
                if let Some(about) = state.slot(vm).map(|slot| about(ask, slot, settings)) {
                    state.say(about);
                }
            }
            Ask::Index => state.say(Message::Index(settings.processing_index)),
            Ask::Slots => {
                let free = state.slots.iter().filter(|slot| slot.status() == VmStatus::default()).count();
                state.say(Message::Slots(free as u32));
            }
            Ask::Cores => {
                let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
                state.say(Message::Cores(cores as u32));
            }
            Ask::Load => state.say(Message::Load(load())),
        }
    }

    fn assign(&self, assignment: &Assignment) {
        let mut state = self.state();
        match state.accept(assignment) {
            Err(why) => {
                state.say(Message::Refused(assignment.attempt, why));
                // For the leader the VM is on revert.
                let free = state.slot(&assignment.vm).is_some_and(|slot| slot.status() == VmStatus::default());
                if free && !state.stopping {
                    state.say(Message::VmStatus(assignment.vm.clone(), VmStatus::default()));
                }
            }
            Ok(()) => {
                state.say(Message::Assigned(assignment.attempt));
                let (dispatcher, work) = (self.clone(), assignment.clone());
                let task = tokio::spawn(async move { dispatcher.work(work).await });
                state.tasks.insert(assignment.attempt, task);
            }
        }
    }

    fn cancel(&self, attempt: u64, epoch: Epoch) {
        let mut state = self.state();
        if state.fence.admit(epoch).is_err() {
            return;
        }
        // When the task is dropped, everything that the plugin started is killed.
        if let Some(task) = state.tasks.remove(&attempt) {
            task.abort();
        }
        state.vacate(attempt);
        state.say(Message::Cancelled(attempt));
    }

    /// The process is being stopped: running attempts end, and the leader is told that nobody is to blame. Returns how many attempts these
    /// were.
    pub fn stop(&self) -> usize {
        let mut state = self.state();
        state.stopping = true;
        let tasks = std::mem::take(&mut state.tasks);
        for (attempt, task) in &tasks {
            task.abort();
            state.say(Message::Refused(*attempt, STOPPING.into()));
        }
        self.shared.looks.clear();
        tasks.len()
    }

    async fn work(&self, assignment: Assignment) {
        // The leader cancels attempts that take too long; but it may be gone by then.
        let ended = tokio::time::timeout(assignment.threshold, self.run_all(&assignment)).await;
        if ended.is_err() {
            tracing::warn!(attempt = assignment.attempt, "an attempt has taken as long as it may");
        }
        let mut state = self.state();
        state.tasks.remove(&assignment.attempt);
        if let Ok(Err(refusal)) = ended {
            tracing::warn!(%refusal, "an attempt cannot be made here");
            state.say(refusal);
        } else {
            if state.has_unstored(assignment.attempt) {
                state.over.insert(assignment.attempt);
            }
            state.say(Message::Over(assignment.attempt));
        }
        state.vacate(assignment.attempt);
    }

    /// Runs the plugins of an attempt, those of a lower stage first. An error is the message for an attempt that cannot be made here,
    /// through no fault of the sample.
    async fn run_all(&self, assignment: &Assignment) -> Result<(), Message> {
        let shared = &*self.shared;
        let plugins = with_passwords(&shared.settings.plugins, &assignment.choices.passwords);
        let find = |call: &PluginCall| {
            plugins.iter().find(|plugin| plugin.name == call.name && plugin.version == call.version)
        };
        let mut calls: Vec<(&PluginCall, Option<&Plugin>)> =
            assignment.plugins.iter().map(|call| (call, find(call))).collect();
        calls.sort_by_key(|(_, plugin)| plugin.map(|plugin| plugin.stage));
        let nothing = |plugin: Option<&Plugin>| plugin.is_some_and(|plugin| plugin.run == Run::Nothing);
        for (call, _) in calls.extract_if(.., |(_, plugin)| nothing(*plugin)) {
            self.bring(assignment.attempt, call, Ok(r#"{"success":true}"#.into()));
        }
        if calls.is_empty() {
            return Ok(());
        }
        let vm = self.state().slot(&assignment.vm).and_then(|slot| slot.vm.clone());
        let refused = |why: String| Message::Refused(assignment.attempt, why);
        let wanted = (assignment.sample, assignment.size);
        let sample = shared.source.sample(assignment.attempt, wanted).await.map_err(|none| match none {
            NoSample::Absent(why) => Message::Lacks(assignment.attempt, why),
            NoSample::Here(why) => refused(why),
        })?;
        if vm.is_none() {
            self.look(assignment, &sample, &mut calls).await.map_err(refused)?;
        }
        for (call, plugin) in calls {
            let not_here = || refused(format!("the plugin {} {} is not here", call.name, call.version));
            let plugin = plugin.ok_or_else(not_here)?;
            match slot::run(&shared.settings.jobs, vm.as_ref(), &sample, plugin, assignment).await {
                Ok(report) => self.bring(assignment.attempt, call, Ok(report)),
                Err(Failed::Plugin(why)) => self.bring(assignment.attempt, call, Err(failure(&why))),
                Err(Failed::Guest(why)) => self.bring(assignment.attempt, call, Err(guest_lost(&call.name, &why))),
                Err(Failed::Machine(why)) => return Err(refused(why)),
                Err(Failed::Busy(why)) if self.state().patience.has_some(assignment.sample) => {
                    return Err(refused(why));
                }
                Err(Failed::Busy(why)) => self.bring(assignment.attempt, call, Err(failure(&why))),
            }
        }
        Ok(())
    }

    /// Runs our own plugins together, and removes those that returned a report from the list. An error means that this machine has failed.
    async fn look(
        &self,
        assignment: &Assignment,
        sample: &Sample,
        calls: &mut Vec<(&PluginCall, Option<&Plugin>)>,
    ) -> Result<(), String> {
        let own: Vec<&Plugin> =
            calls.iter().filter_map(|(_, plugin)| *plugin).filter(|plugin| is_own(plugin)).collect();
        if own.is_empty() {
            return Ok(());
        }
        let content = sample.open().map_err(|error| format!("the sample cannot be read: {error}"))?;
        let Some(mut visit) = self.shared.looks.visit(content, &assignment.name, &own).await else { return Ok(()) };
        for place in (0..calls.len()).rev() {
            let (call, Some(plugin)) = calls[place] else { continue };
            let Some((report, job)) = Some(plugin).filter(|own| is_own(own)).and_then(|own| visit.report(&own.name))
            else {
                continue;
            };
            let report = children::kept(sample.store(), job, report, assignment.children).await?;
            if let Ok(report) = serde_json::to_string(&report) {
                self.bring(assignment.attempt, call, Ok(report));
                calls.remove(place);
            }
        }
        self.shared.looks.end(visit);
        Ok(())
    }

    /// Sends a report, or one that says why there is none.
    fn bring(&self, attempt: u64, call: &PluginCall, ended: Result<String, Value>) {
        // A leader accepts no longer report, and would end the connection each time it is sent.
        let ended = ended.and_then(|report| match report.len() as u64 > REPORT_MAX {
            true => Err(failure(&format!("the report has {} bytes, and {REPORT_MAX} at most are taken", report.len()))),
            false => Ok(report),
        });
        let (outcome, report) = match ended {
            Ok(report) => (PluginOutcome::Done, report),
            Err(failed) => (PluginOutcome::Failed, failed.to_string()),
        };
        let (plugin, version, length) = (call.name.clone(), call.version.clone(), report.len() as u64);
        let message = Message::Result { attempt, plugin, version, outcome, length };
        let envelope = Envelope { message, payload: report.into_bytes().into() };
        let mut state = self.state();
        state.unstored_bytes += envelope.payload.len();
        state.unstored.insert((attempt, call.name.clone()), envelope.clone());
        if state.introduced {
            state.send(envelope);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The plugins, with these passwords added for the one that opens archives.
fn with_passwords<'a>(plugins: &'a [Plugin], passwords: &[String]) -> Cow<'a, [Plugin]> {
    if passwords.is_empty() {
        return Cow::Borrowed(plugins);
    }
    let told = |plugin: &Plugin| {
        let mut plugin = plugin.clone();
        if plugin.name == OPENS_ARCHIVES && !plugin.config.is_object() {
            plugin.config = json!({});
        }
        if plugin.name == OPENS_ARCHIVES {
            plugin.config["more_passwords"] = json!(passwords);
        }
        plugin
    };
    Cow::Owned(plugins.iter().map(told).collect())
}

impl State {
    /// Accepts an attempt, or says why not.
    fn accept(&mut self, assignment: &Assignment) -> Result<(), String> {
        self.fence
            .admit(Epoch(assignment.epoch))
            .map_err(|_| format!("epoch {} is older than {}", assignment.epoch, self.fence.highest().0))?;
        if self.stopping {
            return Err(STOPPING.into());
        }
        if self.unstored.len() >= UNSTORED_MAX || self.unstored_bytes >= UNSTORED_BYTES_MAX {
            return Err(format!("{} results wait to be stored", self.unstored.len()));
        }
        if self.tasks.contains_key(&assignment.attempt) {
            return Err("it is under way already".into());
        }
        let slot = self.slots.iter_mut().find(|slot| slot.name == assignment.vm);
        let slot = slot.ok_or_else(|| format!("there is no VM {}", assignment.vm))?;
        slot.take(assignment.attempt)
    }

    fn slot(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name == name)
    }

    /// An attempt has left its slot. The main scheduler is told whether the slot is free or its VM is on revert.
    fn vacate(&mut self, attempt: u64) {
        let left = self.slots.iter_mut().find(|slot| slot.attempt() == Some(attempt)).map(|slot| {
            slot.free();
            (slot.name.clone(), slot.status())
        });
        if let Some((name, status)) = left {
            self.say(Message::VmStatus(name, status));
        }
    }

    /// A VM has become clean: if it is not in use, the main scheduler is told.
    fn clean(&mut self, name: &str) {
        let offered = self.slots.iter_mut().find(|slot| slot.name == name).is_some_and(Slot::offer);
        if offered {
            self.say(Message::VmStatus(name.to_owned(), VmStatus::default()));
        }
    }

    /// The leader knows what this machine has: now it is sent the results that were not stored.
    fn introduce(&mut self) {
        if std::mem::replace(&mut self.introduced, true) {
            return;
        }
        let results: Vec<Envelope> = self.unstored.values().cloned().collect();
        results.into_iter().for_each(|envelope| self.send(envelope));
        let over: Vec<u64> = self.over.iter().copied().collect();
        over.into_iter().for_each(|attempt| self.say(Message::Over(attempt)));
    }

    /// The leader has stored a result; after the last one it also knows that the attempt is over.
    fn stored(&mut self, attempt: u64, plugin: &str) {
        if let Some(envelope) = self.unstored.remove(&(attempt, plugin.to_owned())) {
            self.unstored_bytes -= envelope.payload.len();
        }
        if !self.has_unstored(attempt) {
            self.over.remove(&attempt);
        }
    }

    fn has_unstored(&self, attempt: u64) -> bool {
        let next = self.unstored.range((attempt, String::new())..).next();
        next.is_some_and(|((other, _), _)| *other == attempt)
    }

    /// Whether a result that nobody has stored yet names this file.
    fn names(&self, hash: SampleHash) -> bool {
        let hash = hash.to_string();
        let found = |payload: &[u8]| payload.windows(hash.len()).any(|text| text == hash.as_bytes());
        self.unstored.values().any(|result| found(&result.payload))
    }

    fn say(&mut self, message: Message) {
        self.send(message.into());
    }

    fn send(&mut self, envelope: Envelope) {
        // If the connection is gone, nothing is lost: what matters is sent again on the next one.
        if self.out.as_ref().is_some_and(|out| out.send(envelope).is_err()) {
            self.out = None;
        }
    }
}

impl From<Message> for Envelope {
    fn from(message: Message) -> Envelope {
        Envelope { message, payload: Arc::default() }
    }
}

/// The report of a plugin that failed.
fn failure(why: &str) -> Value {
    json!({ "success": false, "errorMessage": why })
}

/// The same if the guest was lost: that speaks against the sample, unless a later attempt succeeds.
fn guest_lost(plugin: &str, why: &str) -> Value {
    let finding = json!({ "level": "suspicious", "namespace": plugin, "predicate": "kills-guest", "value": why });
    json!({ "success": false, "errorMessage": why, "summary": { "taxonomies": [finding] } })
}

/// The answer to a question about a slot or VM.
fn about(ask: &Ask, slot: &Slot, settings: &DispatcherSettings) -> Message {
    let (name, plugins) =
        (slot.name.clone(), settings.plugins.iter().filter(|plugin| slot.runs(plugin, &settings.tags)));
    let vm = slot.vm.as_ref().map(Vm::settings);
    match ask {
        Ask::VmPlugins(_) => {
            Message::VmPlugins(name, plugins.map(|plugin| (plugin.name.clone(), plugin.version.clone())).collect())
        }
        Ask::VmTags(_) => Message::VmTags(name, vm.map_or(&settings.tags, |vm| &vm.tags).clone()),
        _ => {
            let most = plugins.map(|plugin| plugin.limits.memory_bytes).max().unwrap_or(0);
            Message::VmMemory(name, vm.map_or(most, |vm| u64::from(vm.memory_mib) << 20))
        }
    }
}

/// Reports whenever a VM has become clean, as long as both exist.
async fn tell_when_free(machine: Weak<DispatcherParts>, name: String, mut phase: tokio::sync::watch::Receiver<Phase>) {
    loop {
        let is_free = *phase.borrow_and_update() == Phase::Free;
        match machine.upgrade() {
            Some(shared) if is_free => Dispatcher { shared }.state().clean(&name),
            Some(_) => {}
            None => return,
        }
        if phase.changed().await.is_err() {
            return;
        }
    }
}

/// The load of the last minute, in hundredths.
fn load() -> u32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mean: f64 = text.split(' ').next().and_then(|mean| mean.parse().ok()).unwrap_or_default();
    (mean * 100.0) as u32
}

/// A line of /proc/meminfo, in bytes.
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatcher(home: &std::path::Path) -> Dispatcher {
        let samples = Samples::open(&home.join("samples")).unwrap();
        let (jobs, plugins, tags) = (home.join("jobs"), Vec::new(), Vec::new());
        let settings = DispatcherSettings { jobs, plugins, slots: 1, tags, processing_index: 1 };
        Dispatcher::new(settings, samples, None).unwrap()
    }

    #[test]
    fn what_an_earlier_life_has_seen_keeps_out_a_leader_whose_term_is_over() {
        let home = tempfile::tempdir().unwrap();
        let dispatcher = dispatcher(home.path());
        dispatcher.has_seen(Epoch(7));
        dispatcher.has_seen(Epoch(5));
        assert!(!dispatcher.connect(Epoch(6), mpsc::unbounded_channel().0));
        assert!(dispatcher.connect(Epoch(7), mpsc::unbounded_channel().0));
    }

    #[test]
    fn a_report_that_no_leader_takes_is_a_failure() {
        let home = tempfile::tempdir().unwrap();
        let dispatcher = dispatcher(home.path());
        let (out, mut said) = mpsc::unbounded_channel();
        assert!(dispatcher.connect(Epoch(1), out));
        dispatcher.state().introduce();
        let call = PluginCall { name: "strings".into(), version: "1".into() };
        for (length, expected) in [(REPORT_MAX, PluginOutcome::Done), (REPORT_MAX + 1, PluginOutcome::Failed)] {
            dispatcher.bring(7, &call, Ok("x".repeat(length as usize)));
            let Envelope { message, .. } = said.try_recv().unwrap();
            let Ok(Message::Result { outcome, .. }) = Message::parse(&message.to_string()) else { panic!("{message}") };
            assert_eq!(outcome, expected);
        }
    }
}
