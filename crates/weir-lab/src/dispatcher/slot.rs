//! A place that analyses one sample at a time, either with child processes or in a VM. The main scheduler sees both as VMs.

use super::child::PluginFailure;
use super::sample::Sample;
use super::{child, children, leftovers};
use crate::file_type;
use crate::job::{Input, Job};
use crate::plugin::{Plugin, Run};
use crate::vm::{Vm, VmFailure};
use crate::wire::{Assignment, VmStatus};
use std::path::{Path, PathBuf};

/// A slot. `Free → InUse → Free` for child processes, which leave nothing to revert; a VM is on revert in between, and
/// before it is free for the first time.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    /// The VM, if the slot is one.
    pub(super) vm: Option<Vm>,
    attempt: Option<u64>,
    /// The main scheduler may assume that it is free. If its VM dies then, an attempt waits until it is clean again.
    is_offered: bool,
}

impl Slot {
    pub(super) fn new(name: String) -> Slot {
        Slot { name, vm: None, attempt: None, is_offered: true }
    }

    pub(super) fn of_vm(vm: Vm) -> Slot {
        Slot { name: vm.settings().name.clone(), vm: Some(vm), attempt: None, is_offered: false }
    }

    pub(super) fn take(&mut self, attempt: u64) -> Result<(), String> {
        match self.attempt {
            Some(other) => Err(format!("{} is in use by attempt {other}", self.name)),
            None if !self.is_offered => Err(format!("{} is on revert", self.name)),
            None => {
                (self.attempt, self.is_offered) = (Some(attempt), false);
                Ok(())
            }
        }
    }

    /// The attempt is over. A VM that was used reports itself when it is clean.
    pub(super) fn free(&mut self) {
        self.attempt = None;
        self.offer();
    }

    /// Offers the slot to the main scheduler if it is free. Returns whether it is.
    pub(super) fn offer(&mut self) -> bool {
        let is_free = self.attempt.is_none() && self.is_clean();
        self.is_offered |= is_free;
        is_free
    }

    pub(super) fn attempt(&self) -> Option<u64> {
        self.attempt
    }

    pub(super) fn status(&self) -> VmStatus {
        let in_use = self.attempt.is_some();
        VmStatus { in_use, on_revert: !(in_use || self.is_offered && self.is_clean()) }
    }

    fn is_clean(&self) -> bool {
        self.vm.as_ref().is_none_or(Vm::is_free)
    }

    /// Whether a plugin can run here, by its tags and by how it runs (as a process or in a VM).
    pub(super) fn runs(&self, plugin: &Plugin, tags: &[String]) -> bool {
        let has_all = |tags: &[String]| plugin.tags.iter().all(|tag| tags.contains(tag));
        match (&self.vm, &plugin.run) {
            (None, Run::Process(_) | Run::Nothing) => has_all(tags),
            (Some(vm), Run::Vm) => {
                let settings = vm.settings();
                has_all(&settings.tags) && (settings.plugins.is_empty() || settings.plugins.contains(&plugin.name))
            }
            _ => false,
        }
    }
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// This machine failed: another may succeed.
    Machine(String),
    /// This machine was too busy: it may succeed later.
    Busy(String),
    /// The plugin or the sample caused it.
    Plugin(String),
    /// The guest did not survive the sample, or could no longer be trusted.
    Guest(String),
}

/// Runs one plugin of an assignment; the report as JSON, or why there is none.
pub(super) async fn run(
    jobs: &Path,
    vm: Option<&Vm>,
    sample: &Sample,
    plugin: &Plugin,
    assignment: &Assignment,
) -> Result<String, Failed> {
    let folder = JobFolder(Some(jobs.join(format!("{}-{}", assignment.attempt, plugin.name))));
    let ended = run_in(&folder, vm, sample, plugin, assignment).await;
    folder.removed().await;
    ended
}

async fn run_in(
    folder: &JobFolder,
    vm: Option<&Vm>,
    sample: &Sample,
    plugin: &Plugin,
    assignment: &Assignment,
) -> Result<String, Failed> {
    let job = prepare(folder, sample, plugin, assignment).await.map_err(Failed::Machine)?;
    let report = match vm {
        None => child::run(plugin, &job).await.map_err(|failure| match failure {
            PluginFailure::Start(_) | PluginFailure::NoFence(_) => {
                Failed::Machine(format!("{}: {failure}", plugin.name))
            }
            _ => Failed::Plugin(failure.to_string()),
        })?,
        Some(vm) => {
            vm.run(plugin, &job, &assignment.name, &assignment.choices).await.map_err(|failure| match failure {
                VmFailure::Starved { .. } => Failed::Busy(format!("{}: {failure}", plugin.name)),
                _ if failure.is_the_machines() => Failed::Machine(format!("{}: {failure}", plugin.name)),
                _ => Failed::Guest(failure.to_string()),
            })?
        }
    };
    let report = children::kept(sample.store(), job, report, assignment.children).await.map_err(Failed::Machine)?;
    serde_json::to_string(&report).map_err(|error| Failed::Plugin(error.to_string()))
}

async fn prepare(folder: &JobFolder, sample: &Sample, plugin: &Plugin, assignment: &Assignment) -> Result<Job, String> {
    let unreadable = |error: std::io::Error| format!("the sample cannot be read: {error}");
    let mut sample = sample.open().map_err(unreadable)?;
    let (folder, name, config) = (folder.0.clone().unwrap_or_default(), assignment.name.clone(), plugin.config.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let file_type = file_type::named(file_type::of_source(&mut sample).map_err(unreadable)?, &name);
        let input = Input { config, ..Input::new(&name, file_type) };
        Job::prepare(&folder, &input, &mut sample).map_err(|error| format!("the job cannot be prepared: {error}"))
    });
    prepared.await.map_err(|error| error.to_string())?
}

/// Removed when it is done with, and also when the attempt is cancelled.
struct JobFolder(Option<PathBuf>);

impl JobFolder {
    /// A plugin may have left a million files: they are removed on a thread that may wait.
    async fn removed(mut self) {
        if let Some(folder) = self.0.take() {
            let _ = tokio::task::spawn_blocking(move || remove(&folder)).await;
        }
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        let Some(folder) = self.0.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&folder))),
            Err(_) => remove(&folder),
        }
    }
}

fn remove(folder: &Path) {
    // The folder does not exist if the job could not be prepared.
    if folder.exists() {
        leftovers::remove(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::{self, Accelerator, Boot, Choice, Common, Revert, VmSettings};
    use std::time::Duration;

    /// A VM that never comes up: there is no QEMU.
    fn vm(home: &Path, plugins: &[&str]) -> Vm {
        let common = Common {
            home: home.to_owned(),
            qemu: "/nowhere/qemu".into(),
            accelerator: Choice::Fixed(Accelerator::Tcg),
            watch: Duration::from_secs(1),
            unconfined: true,
        };
        let settings = VmSettings {
            name: "vm1".into(),
            boot: Boot::Image("/nowhere".into()),
            memory_mib: 128,
            tags: vec!["linux".into()],
            plugins: plugins.iter().map(|name| (*name).to_owned()).collect(),
            revert: Revert::InPlace,
            root: false,
        };
        let (mut vms, tasks) = vm::unchecked(common, vec![settings]);
        tasks.into_iter().for_each(|task| drop(tokio::spawn(task.future)));
        vms.remove(0)
    }

    fn plugin(name: &str, more: &str) -> Plugin {
        Plugin::parse(&format!("name = \"{name}\"\nversion = \"1\"\n{more}"), Path::new("/")).unwrap()
    }

    #[tokio::test]
    async fn a_vm_is_not_given_away_before_it_is_clean() {
        let home = tempfile::tempdir().unwrap();
        let mut slot = Slot::of_vm(vm(home.path(), &[]));
        assert_eq!(slot.status(), VmStatus { in_use: false, on_revert: true });
        assert!(slot.take(1).unwrap_err().contains("on revert"));
        assert!(!slot.offer());
        slot.free();
        assert!(slot.take(1).is_err(), "nothing but its agent makes it free");
        let mut process = Slot::new("slot_1".into());
        assert_eq!(process.status(), VmStatus::default());
        assert!(process.take(1).is_ok() && process.take(2).is_err());
        process.free();
        assert!(process.take(2).is_ok());
    }

    #[tokio::test]
    async fn every_plugin_has_its_kind_of_place() {
        let home = tempfile::tempdir().unwrap();
        let (any, only) = (Slot::of_vm(vm(home.path(), &[])), Slot::of_vm(vm(home.path(), &["other"])));
        let process = Slot::new("slot_1".into());
        let inside = plugin("inside", "run = \"vm\"\ntags = [\"linux\"]");
        let windows = plugin("windows", "run = \"vm\"\ntags = [\"windows\"]");
        let outside = plugin("outside", "exec = [\"x\"]");
        let runs = |plugin: &Plugin| [&any, &only, &process].map(|slot| slot.runs(plugin, &[]));
        assert_eq!(runs(&inside), [true, false, false]);
        assert_eq!(runs(&windows), [false, false, false]);
        assert_eq!(runs(&outside), [false, false, true]);
    }
}
