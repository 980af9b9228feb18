//! The supervisor: watches the tasks of a gate from one start to the next stop.
//!
//! Each task carries its supervisor along (in a task-local value), so that code deep in a gate needs only [`spawn`] and a name. Outside of
//! any supervisor, in tests and tools, [`spawn`] is simply tokio's. A task that is aborted, or that ends after [`Supervisor::stop`], is not
//! a failure.

use super::gate_states::GateName;
use super::panics;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinHandle};

tokio::task_local! {
    static SUPERVISOR: Supervisor;
}

/// Watches the tasks of a gate from one start to its stop, which is called one life of the gate. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Supervisor(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    gate: GateName,
    /// The number of this life, so that a late report from a former life can be told apart.
    life: u64,
    failures: UnboundedSender<TaskFailure>,
    /// Set when the gate is stopped or has failed, because one failure for each life is enough.
    over: AtomicBool,
    /// While the gate opens, a failure is only noted: if the gate cannot open, its tasks end by themselves, and that is not a failure of
    /// their own.
    opening: Mutex<Opening>,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Debug, Default)]
enum Opening {
    #[default]
    Over,
    UnderWay {
        failed: Option<(&'static str, String)>,
    },
}

/// Why a gate did not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError<E> {
    /// The code that opens it returned an error.
    Failed(E),
    /// The code that opens it panicked: the text of the panic, and its place.
    Panicked(String),
}

/// A task that ended although its gate should run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskFailure {
    /// The gate that it belonged to.
    pub gate: GateName,
    /// The life of the gate that it belonged to.
    pub life: u64,
    /// The task's name.
    pub task: &'static str,
    /// What happened; the place too, if it panicked.
    pub why: String,
}

impl Supervisor {
    /// A supervisor for one life of a gate.
    pub fn new(gate: GateName, life: u64, failures: UnboundedSender<TaskFailure>) -> Supervisor {
        Supervisor(Arc::new(Watch {
            gate,
            life,
            failures,
            over: AtomicBool::new(false),
            opening: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    /// Runs the future so that everything that it starts with [`spawn`] is watched.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SUPERVISOR.scope(self.clone(), future).await
    }

    /// The same for the code that opens the gate; a panic becomes an error.
    pub async fn open<T, E>(&self, opening: impl Future<Output = Result<T, E>>) -> Result<T, OpenError<E>> {
        *self.opening() = Opening::UnderWay { failed: None };
        let planted = PLANTED.get().is_some_and(|task| *task == format!("{} opening", self.0.gate));
        let opened = panics::caught(async {
            assert!(!planted || SPRUNG.swap(true, Ordering::Relaxed), "a planted panic");
            self.scope(opening).await
        });
        let opened = match opened.await {
            Ok(opened) => opened.map_err(OpenError::Failed),
            Err(why) => Err(OpenError::Panicked(why)),
        };
        if opened.is_ok() {
            let opening = std::mem::take(&mut *self.opening());
            if let Opening::UnderWay { failed: Some((task, why)) } = opening {
                self.tell(task, why);
            }
        }
        opened
    }

    fn opening(&self) -> MutexGuard<'_, Opening> {
        self.0.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task that runs as long as the gate does.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.start(name, true, future)
    }

    /// Starts a task that may end by itself; only a panic is a failure.
    pub fn spawn_until_done(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.start(name, false, future)
    }

    fn start(
        &self,
        name: &'static str,
        endless: bool,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let task = tokio::spawn(SUPERVISOR.scope(self.clone(), self.watched(name, endless, future)));
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
        task
    }

    fn watched(
        &self,
        name: &'static str,
        endless: bool,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let watched = Watched { supervisor: self.clone(), name, ended: false };
        async move {
            // Everything moves into this block, so that it is dropped when the task ends.
            let mut watched = watched;
            with_planted_panic(name, future).await;
            watched.ended = endless;
        }
    }

    /// From now on the end of a task is not a failure, because the gate is being stopped.
    pub fn stop(&self) {
        self.0.over.store(true, Ordering::Release);
    }

    /// Ends the tasks that still run. Call it after the gate was stopped in an orderly way.
    pub fn abort(&self) {
        self.stop();
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
    }

    /// How many tasks of the gate still run.
    pub fn running(&self) -> usize {
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().filter(|task| !task.is_finished()).count()
    }

    fn tell(&self, task: &'static str, why: String) {
        let Watch { gate, life, .. } = *self.0;
        if let Opening::UnderWay { failed } = &mut *self.opening() {
            failed.get_or_insert((task, why));
            return;
        }
        if self.0.over.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(%gate, task, why, "a task of a gate is gone; the gate is started again");
        // Sending fails only when the process ends.
        let _ = self.0.failures.send(TaskFailure { gate, life, task, why });
    }
}

/// Starts a long-lived task. If this is called in the scope of a supervisor, the task is watched.
pub fn spawn(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    match SUPERVISOR.try_with(Clone::clone) {
        Ok(supervisor) => supervisor.spawn(name, future),
        Err(_) => tokio::spawn(future),
    }
}

/// The same for a task that may end by itself; only a panic is a failure.
pub fn spawn_until_done(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    match SUPERVISOR.try_with(Clone::clone) {
        Ok(supervisor) => supervisor.spawn_until_done(name, future),
        Err(_) => tokio::spawn(future),
    }
}

/// Wraps the future of a task that somebody else starts, so that a panic is noticed.
pub fn watched(
    name: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match SUPERVISOR.try_with(Clone::clone) {
        Ok(supervisor) => Box::pin(supervisor.watched(name, false, future)),
        Err(_) => Box::pin(future),
    }
}

/// Wraps the future of a long-lived task that runs on a thread, and in a runtime, of its own. What it starts there with [`spawn`] is
/// watched too.
pub fn watched_elsewhere(
    name: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match SUPERVISOR.try_with(Clone::clone) {
        Ok(supervisor) => Box::pin(SUPERVISOR.scope(supervisor.clone(), supervisor.watched(name, true, future))),
        Err(_) => Box::pin(future),
    }
}

/// The gate in whose scope this is called.
pub fn current_gate() -> Option<GateName> {
    SUPERVISOR.try_with(|supervisor| supervisor.0.gate).ok()
}

/// Notices how a task ends, because it is dropped then.
struct Watched {
    supervisor: Supervisor,
    name: &'static str,
    /// Set when a task came to its end that should have run as long as the gate.
    ended: bool,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.supervisor.tell(self.name, format!("a panic in {}: {}", self.name, panics::last()));
        } else if self.ended {
            self.supervisor.tell(self.name, format!("{} ended by itself", self.name));
        }
    }
}

static PLANTED: OnceLock<String> = OnceLock::new();
static SPRUNG: AtomicBool = AtomicBool::new(false);
/// Long enough for the gate to come up.
const FUSE: Duration = Duration::from_millis(500);

/// Lets the task of this name panic once, shortly after it started. For tests; a build for users has no such thing.
pub fn plant_panic(task: &str) {
    if cfg!(debug_assertions) {
        let _ = PLANTED.set(task.to_owned());
    }
}

pub(super) async fn with_planted_panic(name: &'static str, future: impl Future<Output = ()>) {
    let planted = cfg!(debug_assertions) && PLANTED.get().is_some_and(|task| task == name);
    if !planted || SPRUNG.swap(true, Ordering::Relaxed) {
        return future.await;
    }
    tokio::select! {
        () = future => {}
        () = tokio::time::sleep(FUSE) => panic!("a planted panic"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[tokio::test]
    async fn a_panic_deep_inside_is_told_once_with_its_task() {
        let (failures, mut told) = unbounded_channel();
        let supervisor = Supervisor::new(GateName::Mail, 7, failures);
        let outer = async {
            let _ = spawn("inner", async { panic!("boom") }).await;
            std::future::pending::<()>().await;
        };
        let mut started = None;
        supervisor.scope(async { started = Some(spawn("outer", outer)) }).await;
        let outer = started.unwrap();
        let failure = told.recv().await.unwrap();
        assert_eq!((failure.gate, failure.life, failure.task), (GateName::Mail, 7, "inner"));
        outer.abort();
        assert!(outer.await.unwrap_err().is_cancelled());
        drop(supervisor);
        assert_eq!(told.recv().await, None, "one failure a life");
    }

    #[tokio::test]
    async fn an_end_counts_only_while_the_gate_runs() {
        let (failures, mut told) = unbounded_channel();
        let supervisor = Supervisor::new(GateName::Lab, 0, failures.clone());
        supervisor.spawn("short", async {}).await.unwrap();
        assert!(told.recv().await.unwrap().why.contains("ended by itself"));
        drop(supervisor);
        let supervisor = Supervisor::new(GateName::Lab, 1, failures);
        let waiting = supervisor.spawn("waiting", std::future::pending());
        assert_eq!(supervisor.running(), 1);
        supervisor.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        supervisor.spawn("late", async {}).await.unwrap();
        drop(supervisor);
        assert_eq!(told.recv().await, None);
    }

    #[tokio::test]
    async fn a_panic_while_opening_is_an_error() {
        let supervisor = Supervisor::new(GateName::Web, 0, unbounded_channel().0);
        assert_eq!(supervisor.open(async { current_gate().ok_or(()) }).await, Ok(GateName::Web));
        let opening = async {
            tokio::task::yield_now().await;
            panic!("boom")
        };
        let opened: Result<(), OpenError<()>> = supervisor.open(opening).await;
        assert!(matches!(opened, Err(OpenError::Panicked(why)) if why.starts_with("a panic")));
    }

    #[tokio::test]
    async fn tasks_of_a_gate_that_cannot_open_end_without_a_word() {
        let (failures, mut told) = unbounded_channel();
        let ends = |opened: Result<(), ()>| async move {
            spawn("short", async {}).await.unwrap();
            opened
        };
        let failing = Supervisor::new(GateName::Mail, 1, failures.clone());
        assert_eq!(failing.open(ends(Err(()))).await, Err(OpenError::Failed(())));
        let opened = Supervisor::new(GateName::Mail, 2, failures);
        opened.open(ends(Ok(()))).await.unwrap();
        assert_eq!(told.recv().await.unwrap().life, 2, "but if it is open, it lacks a task");
        drop((failing, opened));
        assert_eq!(told.recv().await, None);
    }

    #[tokio::test]
    async fn a_thread_of_its_own_is_watched_with_what_it_starts() {
        let (failures, mut told) = unbounded_channel();
        let supervisor = Supervisor::new(GateName::Web, 3, failures);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = async {
            spawn("inner", async { panic!("boom") });
            std::future::pending::<()>().await;
        };
        let mut run = None;
        supervisor.scope(async { run = Some(watched_elsewhere("outer", inside)) }).await;
        let run = run.unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = run => {}, () = tokio::time::sleep(FUSE) => {} }
            });
        });
        assert_eq!(told.recv().await.unwrap().task, "inner");
        tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn without_a_supervisor_a_task_is_a_task() {
        spawn("alone", async {}).await.unwrap();
    }
}
