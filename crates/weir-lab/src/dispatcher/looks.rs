//! Runs our own plugins on a sample all in one go, in workers: processes behind the fence that stay and examine one sample after another.
//!
//! Starting a process and a fence for every plugin would cost many times what most plugins do. A worker has a job folder like any plugin's.
//! For each sample the folder is filled anew, the worker is told which plugins to run, and says after each that its report is there. A
//! worker that crashes, takes too long, uses too much or says anything else is thrown away, and so is one that has examined many samples,
//! so that nothing that it may have learned from one of them stays for ever. Plugins that brought no report in this way are run in the
//! usual way, each in a process of its own. So it is clear which plugin is to blame, and nothing is lost when a worker fails.

use super::child::{PluginFailure, Staying};
use super::leftovers;
use crate::file_type;
use crate::job::{Input, Job, Report};
use crate::plugin::{Limits, Plugin, Run, Taste};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// After this many samples a worker is replaced.
const SAMPLES_MAX: u32 = 500;
/// How many workers wait for the next sample at most; those of busy slots are not counted.
const IDLE_MAX: usize = 32;

/// The workers of a machine.
#[derive(Debug)]
pub(super) struct Looks {
    /// What a worker may see and use: everything that our own plugins may. None if there are no such plugins.
    together: Option<Plugin>,
    jobs: PathBuf,
    idle: Mutex<Vec<Worker>>,
    given: AtomicU64,
}

#[derive(Debug)]
struct Worker {
    process: Staying,
    job: Job,
    looked: u32,
}

/// Removes the folder of a worker that has ended.
impl Drop for Worker {
    fn drop(&mut self) {
        let folder = self.job.folder().to_owned();
        let process = std::mem::take(&mut self.process.family);
        let remove = move || {
            drop(process);
            leftovers::remove(&folder);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// The result of a visit: the job with the files that were found, and a report for each plugin that finished.
#[derive(Debug)]
pub(super) struct Visit {
    worker: Worker,
    reports: BTreeMap<String, Report>,
    /// Whether the worker did everything that it was asked to.
    is_well: bool,
}

impl Looks {
    /// For these plugins, as far as they are our own.
    pub(super) fn new(jobs: &Path, plugins: &[Plugin]) -> Looks {
        let own: Vec<&Plugin> = plugins.iter().filter(|plugin| is_own(plugin)).collect();
        let together = (!own.is_empty()).then(|| together(&own));
        Looks { together, jobs: jobs.to_owned(), idle: Mutex::default(), given: AtomicU64::new(0) }
    }

    /// Examines a sample with these plugins, which are our own. None if no worker can be started.
    pub(super) async fn visit(&self, sample: std::fs::File, name: &str, plugins: &[&Plugin]) -> Option<Visit> {
        let together = self.together.as_ref()?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.start(together).await.ok()?,
        };
        let (job, name) = (worker.job.clone(), name.to_owned());
        let filled = tokio::task::spawn_blocking(move || fill(&job, sample, &name)).await;
        if !matches!(filled, Ok(Ok(()))) {
            return None;
        }
        let mut visit = Visit { worker, reports: BTreeMap::new(), is_well: false };
        visit.is_well = visit.look(together, plugins).await.is_ok();
        Some(visit)
    }

    /// The visit is over: a worker that did everything waits for the next sample.
    pub(super) fn end(&self, visit: Visit) {
        let mut worker = visit.worker;
        worker.looked += 1;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if visit.is_well && worker.looked < SAMPLES_MAX && idle.len() < IDLE_MAX {
            idle.push(worker);
        }
    }

    /// The machine stops: the workers that wait for the next sample end.
    pub(super) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn start(&self, together: &Plugin) -> Result<Worker, PluginFailure> {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let folder = self.jobs.join(format!("looks-{}-{number}", std::process::id()));
        let made = tokio::task::spawn_blocking(move || Job::prepare(&folder, &Input::new("", ""), &mut &b""[..])).await;
        let job = made.map_err(std::io::Error::other).and_then(|made| made).map_err(PluginFailure::Start)?;
        match Staying::start(together, &job).await {
            Ok(process) => Ok(Worker { process, job, looked: 0 }),
            Err(failure) => {
                leftovers::remove(job.folder());
                Err(failure)
            }
        }
    }
}

impl Visit {
    /// The report of a plugin, and where the files are that it names; once.
    pub(super) fn report(&mut self, plugin: &str) -> Option<(Report, Job)> {
        let report = self.reports.remove(plugin)?;
        Some((report, self.worker.job.clone()))
    }

    async fn look(&mut self, together: &Plugin, plugins: &[&Plugin]) -> Result<(), PluginFailure> {
        let wanted: Vec<_> =
            plugins.iter().map(|plugin| serde_json::json!({ "name": plugin.name, "config": plugin.config })).collect();
        let process = &mut self.worker.process;
        process.say(&serde_json::Value::from(wanted).to_string()).await?;
        for plugin in plugins {
            process.hears(&plugin.name, together, self.worker.job.folder(), plugin.limits.time).await?;
            let (job, file, most) =
                (self.worker.job.clone(), format!("{}.json", plugin.name), plugin.limits.output_bytes);
            let read = tokio::task::spawn_blocking(move || job.report_in(&file, most)).await;
            let read = read.map_err(|error| PluginFailure::Start(std::io::Error::other(error)))?;
            // A plugin that reports that it could not examine the sample is run again in the usual way.
            if let Ok(report) = read {
                self.reports.insert(plugin.name.clone(), report);
            }
        }
        Ok(())
    }
}

/// Whether a plugin is one of ours, run by our own program.
pub(super) fn is_own(plugin: &Plugin) -> bool {
    matches!(&plugin.run, Run::Process(command) if *command == ["weir", "plugin", plugin.name.as_str()])
}

/// One plugin that may do what all of these may.
fn together(own: &[&Plugin]) -> Plugin {
    let most = |of: fn(&Limits) -> u64| own.iter().map(|plugin| of(&plugin.limits)).max().unwrap_or(0);
    let limits = Limits {
        time: own.iter().map(|plugin| plugin.limits.time).max().unwrap_or_default(),
        memory_bytes: most(|limits| limits.memory_bytes),
        output_bytes: most(|limits| limits.output_bytes),
        disk_bytes: own.iter().map(|plugin| plugin.limits.disk_bytes).max().unwrap_or(0),
        processes: own.iter().map(|plugin| plugin.limits.processes).max().unwrap_or(1),
    };
    let all = |of: fn(&Plugin) -> &Vec<PathBuf>| own.iter().flat_map(|plugin| of(plugin).iter().cloned()).collect();
    Plugin {
        name: "looks".into(),
        version: "1".into(),
        description: String::new(),
        folder: PathBuf::new(),
        run: Run::Process(vec!["weir".into(), "plugin".into(), "all".into()]),
        taste: Taste::default(),
        stage: 0,
        requires: Vec::new(),
        tags: Vec::new(),
        reads: all(|plugin| &plugin.reads),
        sockets: all(|plugin| &plugin.sockets),
        limits,
        config: serde_json::json!({}),
        cache: true,
        vouches: false,
    }
}

/// Puts a sample into the folder of a worker, and removes what the last one left.
fn fill(job: &Job, mut sample: std::fs::File, name: &str) -> std::io::Result<()> {
    let kind = file_type::named(file_type::of_source(&mut sample)?, name);
    job.refill(&Input::new(name, kind), &mut sample)
}
