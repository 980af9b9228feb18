//! The pool of delivery workers, and the queue that they work through: one lock, held for a few microseconds at a time and never across a
//! wait.
//!
//! Whoever changes the queue also hands out what has become due, so no task has to be woken for that. A worker that finds no work goes to
//! sleep under the same lock under which work is handed out, so no work is missed.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use weir_core::time::Instant;
use weir_store::spool::MessageId;

use super::DeliveryStats;
use super::dsn::ReportSettings;
use super::ledger::{Ledger, LedgerError};
use super::message::{Job, Recipient};
use super::queue::{Assignment, Queue, QueueSettings, Selection, Settlement};
use super::route::Target;
use super::settings::Keep;
use super::transport::Transport;
use weir_foundation::clock::Clock;

/// Everything that the workers and the timer share.
pub(super) struct Pool<L> {
    state: Mutex<State>,
    pub(super) keep: Keep,
    pub(super) reports: ReportSettings,
    pub(super) transport: Transport,
    pub(super) ledger: L,
    clock: Clock,
    /// Starts a worker with its first assignment. The worker knows the pool, so the pool is told how one is started.
    start_worker: fn(&Arc<Pool<L>>, Assignment),
    pub(super) wake_timer: Notify,
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
    stop: watch::Sender<bool>,
}

/// What the lock guards.
pub(super) struct State {
    pub(super) queue: Queue,
    /// Workers with a session and no work, by where it leads. Not by the destination's number: that is given up when the
    /// queue has nothing more for it, which is just when workers park.
    parked: HashMap<Arc<Target>, Vec<Parked>>,
    parked_count: usize,
    next_seat: u64,
    /// Until when the timer sleeps.
    pub(super) asleep_until: Instant,
    /// The ledger is behind: nothing is handed out, and the timer looks again soon.
    pub(super) waits_for_ledger: bool,
    /// No slot for a report is free, so the deadlines of tasks do not count.
    pub(super) tasks_wait: bool,
    stopping: bool,
}

struct Parked {
    seat: u64,
    call: oneshot::Sender<Assignment>,
}

/// A parked worker's way to be called, and to leave.
pub(super) struct Seat {
    number: u64,
    target: Arc<Target>,
    pub(super) call: oneshot::Receiver<Assignment>,
}

impl<L: Ledger> Pool<L> {
    pub(super) fn new(
        queue: QueueSettings,
        keep: Keep,
        reports: ReportSettings,
        transport: Transport,
        ledger: L,
        clock: Clock,
        start_worker: fn(&Arc<Pool<L>>, Assignment),
    ) -> Pool<L> {
        let state = State {
            queue: Queue::new(queue),
            parked: HashMap::new(),
            parked_count: 0,
            next_seat: 0,
            asleep_until: Instant::ZERO,
            waits_for_ledger: false,
            tasks_wait: false,
            stopping: false,
        };
        Pool {
            state: Mutex::new(state),
            keep,
            reports,
            transport,
            ledger,
            clock,
            start_worker,
            wake_timer: Notify::new(),
            tasks: Mutex::new(JoinSet::new()),
            runtime: Handle::current(),
            stop: watch::Sender::new(false),
        }
    }

    pub(super) fn now(&self) -> Instant {
        (self.clock)()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task until it ends or delivery does.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }

    pub(super) fn enqueue(self: &Arc<Self>, job: Job) {
        let now = self.now();
        let settled = {
            let mut state = self.state();
            let (routes, hand_back) = (self.transport.routes(), job.message.hand_back);
            let back = hand_back.then(|| routes.back()).flatten();
            let target = |recipient: &Recipient| back.clone().unwrap_or_else(|| routes.target(recipient));
            let settled = state.queue.enqueue(job, target, now);
            self.hand_out(&mut state, now, None);
            settled
        };
        settled.iter().for_each(|settlement| self.write_down(settlement));
    }

    /// Hands out what is due.
    pub(super) fn dispatch(self: &Arc<Self>) {
        let now = self.now();
        self.hand_out(&mut self.state(), now, None);
    }

    /// Hands out what is due; one assignment for `mine` is kept for the caller.
    pub(super) fn hand_out(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        mine: Option<&Arc<Target>>,
    ) -> Option<Assignment> {
        let mut own = None;
        let waited = std::mem::replace(&mut state.waits_for_ledger, !self.ledger.keeps_up());
        while !state.stopping
            && !state.waits_for_ledger
            && let Some(assignment) = state.queue.next(now)
        {
            if own.is_none() && mine == Some(&assignment.target) {
                own = Some(assignment);
            } else if let Err(assignment) = state.call(assignment) {
                (self.start_worker)(self, assignment);
            }
        }
        let news = state.waits_for_ledger && !waited;
        if news || state.next_deadline() < state.asleep_until {
            state.asleep_until = Instant::ZERO;
            self.wake_timer.notify_one();
        }
        own
    }

    /// Parks a worker; nothing if there are too many, or it is time to go.
    pub(super) fn park(&self, state: &mut State, target: &Arc<Target>) -> Option<Seat> {
        if state.stopping || state.parked_count >= self.keep.idle_max {
            return None;
        }
        let (caller, call) = oneshot::channel();
        let number = state.next_seat;
        state.next_seat += 1;
        state.parked_count += 1;
        state.parked.entry(Arc::clone(target)).or_default().push(Parked { seat: number, call: caller });
        Some(Seat { number, target: Arc::clone(target), call })
    }

    pub(super) fn delete(self: &Arc<Self>, selection: &Selection) -> Vec<(MessageId, usize)> {
        let now = self.now();
        let (found, settlements) = {
            let mut state = self.state();
            let deleted = state.queue.delete(selection, now);
            self.hand_out(&mut state, now, None);
            deleted
        };
        settlements.iter().for_each(|settlement| self.write_down(settlement));
        found
    }

    /// Writes down what happened. A failure is no reason to stop: after a restart the mail is delivered again at worst.
    pub(super) fn write_down(&self, settlement: &Settlement) {
        let noted = |result: Result<(), LedgerError>| {
            if let Err(error) = result {
                tracing::error!(message = %settlement.id, %error, "progress could not be written down; mail may be delivered twice after a restart");
            }
        };
        settlement.progress.iter().for_each(|progress| noted(self.ledger.record(settlement.id, progress)));
        if let Some(recipients) = &settlement.finished {
            tracing::debug!(message = %settlement.id, "finished");
            noted(self.ledger.finish(settlement.id, recipients));
        }
    }

    pub(super) fn stats(&self) -> DeliveryStats {
        let state = self.state();
        DeliveryStats {
            queue: state.queue.stats(|target| self.transport.routes().name(target)),
            sessions_idle: state.parked_count,
            sessions_opened: self.transport.sessions_opened(),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Tells when it is time to go.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    pub(super) async fn shutdown(&self, patience: Duration) -> bool {
        {
            let mut state = self.state();
            state.stopping = true;
            state.parked.clear();
            state.parked_count = 0;
        }
        self.stop.send_replace(true);
        self.wake_timer.notify_one();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(patience, all).await.is_ok();
        // What is left is broken off here.
        tasks.shutdown().await;
        in_time
    }
}

impl State {
    /// When the timer has something to do.
    pub(super) fn next_deadline(&self) -> Instant {
        let due = self.queue.next_due_task().filter(|_| !self.tasks_wait);
        [due, self.queue.next_attempt()].into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    /// Calls a parked worker to an assignment; gives it back if there is none.
    fn call(&mut self, mut assignment: Assignment) -> Result<(), Assignment> {
        while let Some(workers) = self.parked.get_mut(&assignment.target) {
            let Some(worker) = workers.pop() else {
                self.parked.remove(&assignment.target);
                break;
            };
            self.parked_count -= 1;
            match worker.call.send(assignment) {
                Ok(()) => return Ok(()),
                Err(refused) => assignment = refused,
            }
        }
        Err(assignment)
    }

    /// A parked worker leaves by itself; false if it has just been called.
    pub(super) fn leave(&mut self, seat: &Seat) -> bool {
        let Some(workers) = self.parked.get_mut(&seat.target) else { return false };
        let before = workers.len();
        workers.retain(|worker| worker.seat != seat.number);
        let left = workers.len() < before;
        self.parked_count -= usize::from(left);
        if workers.is_empty() {
            self.parked.remove(&seat.target);
        }
        left
    }
}

impl<L> std::fmt::Debug for Pool<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("transport", &self.transport).finish_non_exhaustive()
    }
}
