//! A place where one sample at a time is analysed by child processes. To the main scheduler it is a VM.

use super::sample::Sample;
use super::{child, children};
use crate::file_type;
use crate::job::{Input, Job};
use crate::plugin::Plugin;
use crate::wire::{Assignment, VmStatus};
use std::path::{Path, PathBuf};

/// A place. `Free → InUse → Free`: a child process leaves nothing to revert.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    attempt: Option<u64>,
}

impl Slot {
    pub(super) fn new(name: String) -> Slot {
        Slot { name, attempt: None }
    }

    pub(super) fn take(&mut self, attempt: u64) -> Result<(), String> {
        match self.attempt {
            Some(other) => Err(format!("{} is in use by attempt {other}", self.name)),
            None => {
                self.attempt = Some(attempt);
                Ok(())
            }
        }
    }

    pub(super) fn free(&mut self) {
        self.attempt = None;
    }

    pub(super) fn attempt(&self) -> Option<u64> {
        self.attempt
    }

    pub(super) fn status(&self) -> VmStatus {
        VmStatus { in_use: self.attempt.is_some(), on_revert: false }
    }
}

/// Runs one plugin of an assignment; the report as JSON, or why there is none.
pub(super) async fn run(
    jobs: &Path,
    sample: &Sample,
    plugin: &Plugin,
    assignment: &Assignment,
) -> Result<String, String> {
    let folder = JobFolder(Some(jobs.join(format!("{}-{}", assignment.attempt, plugin.name))));
    let ended = run_in(&folder, sample, plugin, assignment).await;
    folder.removed().await;
    ended
}

async fn run_in(
    folder: &JobFolder,
    sample: &Sample,
    plugin: &Plugin,
    assignment: &Assignment,
) -> Result<String, String> {
    let job = prepare(folder, sample, assignment).await?;
    let report = child::run(plugin, &job).await.map_err(|failure| failure.to_string())?;
    let report = children::kept(sample.store(), job, report, assignment.children).await?;
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

async fn prepare(folder: &JobFolder, sample: &Sample, assignment: &Assignment) -> Result<Job, String> {
    let unreadable = |error: std::io::Error| format!("the sample cannot be read: {error}");
    let mut sample = sample.open().map_err(unreadable)?;
    let (folder, name) = (folder.0.clone().unwrap_or_default(), assignment.name.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let file_type = file_type::of_source(&mut sample).map_err(unreadable)?;
        let input = Input::new(&name, file_type);
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
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "a job folder cannot be removed");
    }
}
