//! A place where one sample at a time is analysed by child processes. To the main scheduler it is a VM.

use super::child;
use crate::file_type;
use crate::job::{Input, Job};
use crate::plugin::Plugin;
use crate::wire::{Assignment, VmStatus};
use std::path::Path;
use weir_store::samples::Samples;

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
    samples: &Samples,
    plugin: &Plugin,
    assignment: &Assignment,
) -> Result<String, String> {
    let folder = JobFolder(jobs.join(format!("{}-{}", assignment.attempt, plugin.name)));
    let job = prepare(&folder, samples, assignment).await?;
    let report = child::run(plugin, &job).await.map_err(|failure| failure.to_string())?;
    serde_json::to_string(&report).map_err(|error| error.to_string())
}

async fn prepare(folder: &JobFolder, samples: &Samples, assignment: &Assignment) -> Result<Job, String> {
    let (folder, samples, assignment) = (folder.0.clone(), samples.clone(), assignment.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let mut sample =
            samples.open_verified(assignment.sample).map_err(|error| format!("the sample cannot be read: {error}"))?;
        let file_type =
            file_type::of_source(&mut sample).map_err(|error| format!("the sample cannot be read: {error}"))?;
        let input = Input::new(&assignment.name, file_type);
        Job::prepare(&folder, &input, &mut sample).map_err(|error| format!("the job cannot be prepared: {error}"))
    });
    prepared.await.map_err(|error| error.to_string())?
}

/// Removed when it is done with.
struct JobFolder(std::path::PathBuf);

impl Drop for JobFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.0.display(), %error, "a job folder cannot be removed");
        }
    }
}
