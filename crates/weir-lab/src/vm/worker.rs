//! A VM and its worker, the task that restores it before anybody needs it.
//!
//! `Restoring → Free → InUse → Restoring`: it is free only after its agent has answered a question that was asked after the
//! restore. A QEMU that dies goes to `Restoring` from wherever it was.

use super::agent_connection::{FILES_BYTES_MAX, FILES_MAX, Findings, Order, REPORT_MAX};
use super::failure::VmFailure;
use super::qemu::{Qemu, Start};
use super::snapshots::Snapshots;
use super::starvation::Starvation;
use super::{Revert, VmSettings, report};
use crate::choices::{Choices, GuestNetwork};
use crate::job::{Job, Report};
use crate::plugin::Plugin;
use crate::tasks::Task;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use weir_guest::words::Run;

/// The agent in a restored VM answers within this time.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The longest pause before a VM that cannot be restored is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A VM that died after it was offered has this much time to come back.
const COMES_BACK: Duration = Duration::from_secs(120);
/// After this many failures in a row, the snapshot itself is no longer trusted.
const FAILURES_OF_SNAPSHOT: u32 = 3;

/// The state of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is being restored, or started.
    Restoring,
    /// It is clean, and its agent has answered.
    Free,
    /// It has a sample.
    InUse,
}

/// A VM. Cheap to clone; it ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Vm {
    settings: Arc<VmSettings>,
    state: Arc<State>,
    works: mpsc::Sender<Work>,
}

#[derive(Debug)]
struct State {
    phase: watch::Sender<Phase>,
    /// 0 while none runs.
    pid: AtomicU32,
    watch: Duration,
}

struct Work {
    order: Order,
    answer: oneshot::Sender<Result<(Findings, &'static str), VmFailure>>,
}

impl Vm {
    /// A VM, and the task that runs it.
    pub(super) fn new(settings: VmSettings, snapshots: Arc<Snapshots>) -> (Vm, Task) {
        let (works, wanted) = mpsc::channel(1);
        let watch = snapshots.common().watch;
        let state = Arc::new(State { phase: watch::Sender::new(Phase::Restoring), pid: AtomicU32::new(0), watch });
        let settings = Arc::new(settings);
        let worker = Worker {
            settings: Arc::clone(&settings),
            state: Arc::clone(&state),
            snapshots,
            wanted,
            qemu: None,
            is_copied: false,
            behaved: true,
        };
        (Vm { settings, state, works }, Task::new("lab VM", worker.run()))
    }

    /// As it is configured.
    pub fn settings(&self) -> &VmSettings {
        &self.settings
    }

    /// Its state, now and when it changes.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.state.phase.subscribe()
    }

    /// Whether it is clean and waits.
    pub fn is_free(&self) -> bool {
        *self.state.phase.borrow() == Phase::Free
    }

    /// The process of its QEMU.
    pub fn pid(&self) -> Option<u32> {
        Some(self.state.pid.load(Ordering::Acquire)).filter(|pid| *pid != 0)
    }

    /// Runs the sample of a job when the VM is free, and leaves its results in the job. When this is dropped, the sample ends.
    pub async fn run(&self, plugin: &Plugin, job: &Job, name: &str, choices: &Choices) -> Result<Report, VmFailure> {
        let order = self.order(job, (name, choices), plugin.limits.output_bytes).map_err(VmFailure::Sample)?;
        let chosen = choices.watch_s.map(|watch| Duration::from_secs(watch.into()) + REPORT_MAX);
        let time = plugin.limits.time.max(chosen.unwrap_or_default());
        // If it does not come back, that is this machine's fault, not the sample's.
        tokio::time::timeout(COMES_BACK, self.taken()).await.map_err(|_| VmFailure::Gone)??;
        let (answer, ended) = oneshot::channel();
        let starvation = Starvation::begin(self.pid());
        self.works.send(Work { order, answer }).await.map_err(|_| VmFailure::Gone)?;
        let ended = tokio::time::timeout(time, ended).await;
        let late = |_| VmFailure::Timeout(time).explained(starvation.found());
        let ended = ended.map_err(late)?.map_err(|_| VmFailure::Gone)?;
        let (findings, accelerator) = ended?;
        report::of(findings, job, &self.settings.name, accelerator)
            .map_err(|error| VmFailure::Guest(io::Error::other(error)))
    }

    /// Waits until it is free, and takes it.
    async fn taken(&self) -> Result<(), VmFailure> {
        let mut phase = self.phase();
        loop {
            phase.wait_for(|phase| *phase == Phase::Free).await.map_err(|_| VmFailure::Gone)?;
            let take =
                |phase: &mut Phase| *phase == Phase::Free && std::mem::replace(phase, Phase::InUse) == Phase::Free;
            if self.state.phase.send_if_modified(take) {
                return Ok(());
            }
        }
    }

    fn order(&self, job: &Job, (name, choices): (&str, &Choices), report_bytes_max: u64) -> io::Result<Order> {
        let watch = choices.watch_s.map_or(self.state.watch, |watch| Duration::from_secs(watch.into()));
        let sample = File::open(job.folder().join("input/attachment"))?;
        let run = Run {
            name: Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes: sample.metadata()?.len(),
            watch_ms: u64::try_from(watch.as_millis()).unwrap_or(u64::MAX),
            root: self.settings.root,
            time_ns: 0,
            files_max: FILES_MAX,
            files_bytes_max: FILES_BYTES_MAX,
            offline: choices.network == Some(GuestNetwork::None),
        };
        Ok(Order { run, sample, output: job.folder().join("output"), report_bytes_max })
    }
}

struct Worker {
    settings: Arc<VmSettings>,
    state: Arc<State>,
    snapshots: Arc<Snapshots>,
    wanted: mpsc::Receiver<Work>,
    qemu: Option<Qemu>,
    /// The snapshot is in the VM's folder, and worked when it was last used.
    is_copied: bool,
    /// The last sample ended in a normal way.
    behaved: bool,
}

impl Worker {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            match self.restore().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(vm = self.settings.name, %error, failures, "a VM cannot be restored");
                    self.give_up(failures).await;
                    continue;
                }
            }
            self.state.phase.send_replace(Phase::Free);
            if !self.serve().await {
                return;
            }
        }
    }

    /// Pauses before the next try, longer each time; with a new snapshot if this one never works.
    async fn give_up(&mut self, failures: u32) {
        self.end().await;
        self.is_copied = false;
        if failures.is_multiple_of(FAILURES_OF_SNAPSHOT) {
            self.snapshots.remove(&self.settings).await;
        }
        let pause = Duration::from_millis(250) * 2_u32.pow(failures.min(10));
        tokio::time::sleep(pause.min(PAUSE_MAX)).await;
    }

    /// Restores the VM, and asks its agent.
    async fn restore(&mut self) -> io::Result<()> {
        let usual = self.behaved && self.settings.revert != Revert::Process;
        if let Some(qemu) = self.qemu.as_mut().filter(|_| usual) {
            match renew(qemu, self.settings.revert).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(vm = self.settings.name, %error, "a VM could not be cleaned; it is started again");
                    self.is_copied = false;
                }
            }
        }
        self.end().await;
        // A sample that had taken over its QEMU could have written to its disk.
        if !self.is_copied || !usual {
            self.snapshots.copy(&self.settings).await?;
        }
        // Not trusted until it works.
        self.is_copied = false;
        let accelerator = self.snapshots.accelerator(&self.settings).await;
        let (program, folder) = (self.snapshots.common().qemu.as_path(), self.snapshots.folder(&self.settings));
        let unconfined = self.snapshots.common().unconfined;
        let (settings, ticks_khz) = (&self.settings, None);
        let start = Start { program, settings, accelerator, folder, restored: true, ticks_khz, unconfined };
        let mut qemu = Qemu::start(start).await?;
        self.state.pid.store(qemu.pid().unwrap_or(0), Ordering::Release);
        verify(&mut qemu, self.settings.revert).await?;
        self.qemu = Some(qemu);
        (self.is_copied, self.behaved) = (true, true);
        Ok(())
    }

    /// Waits for a sample and runs it; false if none can come any more.
    async fn serve(&mut self) -> bool {
        let Some(qemu) = self.qemu.as_mut() else { return true };
        let work = tokio::select! {
            work = self.wanted.recv() => work,
            error = qemu.ended() => {
                self.state.phase.send_replace(Phase::Restoring);
                tracing::warn!(vm = self.settings.name, %error, "a VM that was free has ended");
                self.end().await;
                return true;
            }
        };
        let Some(Work { order, mut answer }) = work else {
            self.end().await;
            return false;
        };
        let accelerator = self.snapshots.accelerator(&self.settings).await.name();
        let starvation = Starvation::begin(qemu.pid());
        let ended = tokio::select! {
            ended = used(qemu, order) => Some(ended.map_err(|failure| failure.explained(starvation.found()))),
            () = answer.closed() => None,
        };
        self.behaved = matches!(ended, Some(Ok(_)));
        // Nobody may learn of the end and then assume that the VM is free.
        self.state.phase.send_replace(Phase::Restoring);
        if let Some(ended) = ended {
            let _ = answer.send(ended.map(|findings| (findings, accelerator)));
        }
        true
    }

    async fn end(&mut self) {
        self.state.pid.store(0, Ordering::Release);
        if let Some(qemu) = self.qemu.take() {
            qemu.kill().await;
        }
    }
}

async fn used(qemu: &mut Qemu, order: Order) -> Result<Findings, VmFailure> {
    // The guest does not have the sample yet.
    qemu.go().await.map_err(VmFailure::Host)?;
    qemu.agent().map_err(VmFailure::Host)?.run(order).await
}

/// Cleans a VM without starting a new process.
async fn renew(qemu: &mut Qemu, revert: Revert) -> io::Result<()> {
    if revert == Revert::InPlace {
        qemu.restore().await?;
    }
    verify(qemu, revert).await
}

/// Asks the agent, and stops the guest until it has something to do.
async fn verify(qemu: &mut Qemu, revert: Revert) -> io::Result<()> {
    qemu.go().await?;
    let answered = tokio::time::timeout(ANSWER_MAX, qemu.agent()?.hello()).await;
    answered.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the restored agent does not answer"))??;
    // A guest that is never restored may have something to do.
    if revert == Revert::None { Ok(()) } else { qemu.hold().await }
}
