//! The acting leader: inputs from machines and people, one commit a turn, then what is to be said.
//!
//! A turn takes what has come in (up to a bound), lets the [`Decision`] think, commits its batch behind the fence, and only
//! then sends. So a machine never hears of an attempt that the database does not know, and a result is acknowledged
//! only when it is stored. A refused commit means that another leads: the leader ends, and everything it knew with it.

mod session;
#[cfg(test)]
mod tests;

pub use session::{Link, attend, attend_here};

use crate::decision::{Brought, Decision, MachineId, Now, VmOffer, Work};
use crate::wire::{Message, VmStatus};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};
use weir_core::runq::{Settings, Verdict, Why};
use weir_core::time::Instant;
use weir_store::records::{Fence, OpenSample, Records, RecordsError};

/// Inputs that one turn takes at most.
const TURN_MAX: usize = 1024;
/// Samples that are read from the database at a time.
const PAGE: i64 = 10_000;
/// Numbers are given before rows can be seen: a new look begins so far back.
const LOOK_BACK: i64 = 1_000;
/// How often the database is asked for new samples when nobody says that there are some.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What can be told to a leader. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaderHandle {
    inputs: mpsc::Sender<Input>,
}

#[derive(Debug)]
enum Input {
    Joined {
        node: String,
        vms: Vec<VmOffer>,
        out: mpsc::UnboundedSender<Message>,
        answer: oneshot::Sender<Option<MachineId>>,
    },
    Left(MachineId),
    Status(MachineId, String, VmStatus),
    Result(MachineId, Brought),
    Over(MachineId, i64, String),
    NewSamples,
    Cancel(i64, oneshot::Sender<bool>),
    Why(i64, oneshot::Sender<Why>),
    Count(oneshot::Sender<usize>),
}

/// The acting leader.
#[derive(Debug)]
pub struct Leader {
    decision: Decision,
    records: Records,
    fence: Fence,
    inputs: mpsc::Receiver<Input>,
    machines: HashMap<MachineId, mpsc::UnboundedSender<Message>>,
    /// Results to acknowledge once they are committed.
    acknowledge: Vec<(MachineId, Message)>,
    highest: i64,
    looked_at: tokio::time::Instant,
    started: tokio::time::Instant,
}

/// Why a leader has ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderEnd {
    /// Its lease is over.
    #[error("another leads: the lease of epoch {0} is over")]
    FencedOut(i64),
    /// Everybody who could have told it something is gone.
    #[error("nobody needs it any more")]
    Unneeded,
    /// The records cannot be read or written.
    #[error("{0}")]
    Records(#[from] RecordsError),
}

impl Leader {
    /// A leader with this lease, and a handle for those who have something to say.
    pub fn new(settings: Settings, records: Records, fence: Fence) -> (Leader, LeaderHandle) {
        let (sender, inputs) = mpsc::channel(TURN_MAX);
        let now = tokio::time::Instant::now();
        let leader = Leader {
            decision: Decision::new(settings, fence.epoch),
            records,
            fence,
            inputs,
            machines: HashMap::new(),
            acknowledge: Vec::new(),
            highest: 0,
            looked_at: now,
            started: now,
        };
        (leader, LeaderHandle { inputs: sender })
    }

    /// Leads until the lease is lost. Begins with everything in the database that has not ended.
    pub async fn run(mut self) -> Result<(), LeaderEnd> {
        self.look(0).await?;
        loop {
            let wake = self.next_wake();
            let first = tokio::select! {
                input = self.inputs.recv() => Some(input.ok_or(LeaderEnd::Unneeded)?),
                () = tokio::time::sleep_until(wake) => None,
            };
            let mut new_samples = false;
            if let Some(input) = first {
                new_samples |= self.take_in(input).await;
            }
            for _ in 1..TURN_MAX {
                let Ok(input) = self.inputs.try_recv() else { break };
                new_samples |= self.take_in(input).await;
            }
            self.decision.tick(self.now());
            if new_samples || self.looked_at.elapsed() >= LOOK_EVERY {
                self.look((self.highest - LOOK_BACK).max(0)).await?;
            }
            self.carry_out().await?;
        }
    }

    /// Whether somebody said that there are new samples.
    async fn take_in(&mut self, input: Input) -> bool {
        let now = self.now();
        match input {
            Input::Joined { node, vms, out, answer } => {
                let machine = self.decision.plug(now, &node, &vms).ok();
                if let Some(machine) = machine {
                    self.machines.insert(machine, out);
                }
                let _ = answer.send(machine);
            }
            Input::Left(machine) => {
                self.machines.remove(&machine);
                self.decision.unplug(now, machine);
            }
            Input::Status(machine, vm, status) => self.decision.vm_status(now, machine, &vm, status),
            Input::Result(machine, brought) => self.result(now, machine, brought).await,
            Input::Over(machine, attempt, outcome) => self.decision.ended(now, machine, attempt, &outcome),
            Input::NewSamples => return true,
            Input::Cancel(sample, answer) => drop(answer.send(self.decision.cancel(now, sample))),
            Input::Why(sample, answer) => drop(answer.send(self.decision.why(sample))),
            Input::Count(answer) => drop(answer.send(self.decision.open())),
        }
        false
    }

    async fn result(&mut self, now: Now, machine: MachineId, brought: Brought) {
        let (attempt, plugin) = (brought.attempt, brought.plugin.0.clone());
        if self.decision.result(now, machine, brought.clone()) == Verdict::Unknown {
            // Assigned by an earlier leader, perhaps: the database knows to which sample.
            match self.records.lab_attempt_sample(attempt).await {
                Ok(Some(sample)) => drop(self.decision.late_result(now, sample, brought)),
                Ok(None) => {}
                // Not acknowledged: it will be brought again.
                Err(error) => return tracing::warn!(%error, attempt, "a late result cannot be placed"),
            }
        }
        self.acknowledge.push((machine, Message::Stored(attempt.cast_unsigned(), plugin)));
    }

    /// Reads samples with numbers above `after` that have not ended.
    async fn look(&mut self, mut after: i64) -> Result<(), LeaderEnd> {
        self.looked_at = tokio::time::Instant::now();
        loop {
            let page = self.records.lab_open(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.sample.id;
            self.highest = self.highest.max(after);
            page.iter().for_each(|open| self.admit(open));
        }
    }

    fn admit(&mut self, open: &OpenSample) {
        let now = self.now();
        if let Err(why) = self.decision.admit(now, open) {
            self.decision.refuse(now, open.sample.id, &why);
        }
    }

    /// Commits, then sends.
    async fn carry_out(&mut self) -> Result<(), LeaderEnd> {
        let Work { batch, letters, .. } = self.decision.take();
        if !batch.is_empty() && !self.records.lab_commit(&self.fence, &batch).await? {
            return Err(LeaderEnd::FencedOut(self.fence.epoch));
        }
        for (machine, message) in letters.into_iter().chain(self.acknowledge.drain(..)) {
            if let Some(out) = self.machines.get(&machine) {
                // A machine that is gone says so itself.
                let _ = out.send(message);
            }
        }
        Ok(())
    }

    fn next_wake(&self) -> tokio::time::Instant {
        let look = self.looked_at + LOOK_EVERY;
        let due = self.decision.next_deadline().map(|at| self.started + Duration::from_nanos(at.0));
        due.map_or(look, |due| due.min(look))
    }

    fn now(&self) -> Now {
        let clock = Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { clock, wall: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX) }
    }
}

impl LeaderHandle {
    /// There are new samples in the database. Only a hint: the leader looks by itself too.
    pub fn new_samples(&self) {
        let _ = self.inputs.try_send(Input::NewSamples);
    }

    /// Takes a sample back; false if it has ended, is unknown, or nobody leads.
    pub async fn cancel(&self, sample: i64) -> bool {
        self.ask(|answer| Input::Cancel(sample, answer)).await.unwrap_or(false)
    }

    /// Why a sample is not running; none if nobody leads.
    pub async fn why(&self, sample: i64) -> Option<Why> {
        self.ask(|answer| Input::Why(sample, answer)).await
    }

    /// Samples that have not ended; none if nobody leads.
    pub async fn open(&self) -> Option<usize> {
        self.ask(Input::Count).await
    }

    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
        let (answer, asked) = oneshot::channel();
        self.inputs.send(input(answer)).await.ok()?;
        asked.await.ok()
    }
}
