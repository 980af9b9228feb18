//! The acting leader: inputs from machines and people, one commit a turn, then what is to be said.
//!
//! A turn takes what has come in (up to a bound), lets the [`Decision`] think, commits its batch behind the fence, and only
//! then sends. So a machine never hears of an attempt that the database does not know, and a result is acknowledged
//! only when it is stored. A refused commit means that another leads: the leader ends, and everything it knew with it.

mod session;
#[cfg(test)]
mod tests;

pub use session::{Heard, Link, attend, attend_here};

use crate::decision::{Brought, Decision, Figures, MachineId, Now, PluginName, Unschedulable, VmOffer, Work};
use crate::wire::{Message, VmStatus};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use weir_core::runq::{Refused, Settings, Verdict, Why};
use weir_core::time::Instant;
use weir_store::records::{Fence, OpenSample, Records, RecordsError};

/// Inputs that one turn takes at most.
const TURN_MAX: usize = 1024;
/// A turn takes no more inputs once its results have so many bytes.
const TURN_BYTES_MAX: usize = 16 << 20;
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
    epoch: i64,
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
    /// With its share of the memory for reports, given back when it is stored.
    Result(MachineId, Brought, Option<OwnedSemaphorePermit>),
    Over(MachineId, i64, String),
    NewSamples,
    Cancel(i64, oneshot::Sender<bool>),
    Why(i64, oneshot::Sender<Why>),
    Count(oneshot::Sender<usize>),
    Figures(oneshot::Sender<Figures>),
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
    acknowledge: Vec<(MachineId, Message, Option<OwnedSemaphorePermit>)>,
    /// Nodes that get no new samples.
    drained: BTreeSet<String>,
    highest: i64,
    /// Samples from this number on have not been taken for want of room.
    postponed: Option<i64>,
    looked_at: tokio::time::Instant,
    started: tokio::time::Instant,
}

/// What came of taking a sample in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    Yes,
    /// It has ended, or waits for the next look.
    No,
    /// It waits, and so do all after it.
    Full,
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
    /// Results of the plugins `never_cached` do not count for another sample of the same content.
    pub fn new(
        settings: Settings,
        never_cached: Vec<PluginName>,
        records: Records,
        fence: Fence,
    ) -> (Leader, LeaderHandle) {
        let (sender, inputs) = mpsc::channel(TURN_MAX);
        let (now, epoch) = (tokio::time::Instant::now(), fence.epoch);
        let leader = Leader {
            decision: Decision::new(settings, fence.epoch, never_cached),
            records,
            fence,
            inputs,
            machines: HashMap::new(),
            acknowledge: Vec::new(),
            drained: BTreeSet::new(),
            highest: 0,
            postponed: None,
            looked_at: now,
            started: now,
        };
        (leader, LeaderHandle { inputs: sender, epoch })
    }

    /// Leads until the lease is lost. Begins with everything in the database that has not ended.
    pub async fn run(mut self) -> Result<(), LeaderEnd> {
        self.look_at_nodes().await?;
        self.look(0).await?;
        loop {
            self.carry_out().await?;
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
                if self.decision.report_bytes() > TURN_BYTES_MAX {
                    break;
                }
                let Ok(input) = self.inputs.try_recv() else { break };
                new_samples |= self.take_in(input).await;
            }
            self.decision.tick(self.now());
            if new_samples || self.looked_at.elapsed() >= LOOK_EVERY {
                // First what is known is written: a sample that has just ended must not look open.
                self.carry_out().await?;
                self.look_at_nodes().await?;
                self.look((self.highest - LOOK_BACK).max(0)).await?;
            }
        }
    }

    /// Whether somebody said that there are new samples.
    async fn take_in(&mut self, input: Input) -> bool {
        let now = self.now();
        match input {
            Input::Joined { node, vms, out, answer } => {
                let wanted = !self.drained.contains(&node);
                let machine = wanted.then(|| self.decision.plug(now, &node, &vms).ok()).flatten();
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
            Input::Result(machine, brought, share) => self.result(now, machine, brought, share).await,
            Input::Over(machine, attempt, outcome) => self.decision.ended(now, machine, attempt, &outcome),
            Input::NewSamples => return true,
            Input::Cancel(sample, answer) => drop(answer.send(self.decision.cancel(now, sample))),
            Input::Why(sample, answer) => drop(answer.send(self.decision.why(sample))),
            Input::Count(answer) => drop(answer.send(self.decision.open())),
            Input::Figures(answer) => drop(answer.send(self.decision.figures(now))),
        }
        false
    }

    async fn result(&mut self, now: Now, machine: MachineId, brought: Brought, share: Option<OwnedSemaphorePermit>) {
        let (attempt, plugin) = (brought.attempt, brought.plugin.0.clone());
        if self.decision.is_running(attempt) {
            self.decision.result(now, machine, brought);
        } else if let Err(error) = self.late_result(now, machine, brought).await {
            // Not acknowledged: it will be brought again.
            return tracing::warn!(%error, attempt, "a late result cannot be placed");
        }
        self.acknowledge.push((machine, Message::Stored(attempt.cast_unsigned(), plugin), share));
    }

    /// Of an attempt that is over, or that an earlier leader assigned: the database knows to which sample and to whom.
    async fn late_result(&mut self, now: Now, machine: MachineId, brought: Brought) -> Result<(), RecordsError> {
        let placed = self.records.lab_attempt_place(brought.attempt).await?;
        let Some((sample, _)) = placed.filter(|(_, node)| self.decision.node(machine) == Some(node.as_str())) else {
            tracing::warn!(attempt = brought.attempt, ?machine, "a machine brings a result of no attempt of its own");
            return Ok(());
        };
        if self.decision.late_result(now, sample, brought) == Verdict::Unknown {
            tracing::debug!(sample, "a result of a sample that has ended is not kept");
        }
        Ok(())
    }

    /// Which machines are drained.
    async fn look_at_nodes(&mut self) -> Result<(), LeaderEnd> {
        let nodes = self.records.lab_nodes().await?;
        self.drained = nodes.into_iter().filter(|node| node.drained).map(|node| node.node).collect();
        let now = self.now();
        self.drained.iter().for_each(|node| self.decision.drain_node(now, node));
        Ok(())
    }

    /// Reads samples with numbers above `after` that have not ended, and those that had to wait.
    async fn look(&mut self, after: i64) -> Result<(), LeaderEnd> {
        self.looked_at = tokio::time::Instant::now();
        let mut after = self.postponed.take().map_or(after, |first| after.min(first - 1));
        loop {
            let page = self.records.lab_open(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.sample.id;
            for open in &page {
                if self.admit(open) == Admitted::Full {
                    return Ok(());
                }
                self.highest = self.highest.max(open.sample.id);
            }
        }
    }

    fn admit(&mut self, open: &OpenSample) -> Admitted {
        let (now, id) = (self.now(), open.sample.id);
        match self.decision.admit(now, open) {
            Ok(()) => return Admitted::Yes,
            Err(why) if why.is_for_now() => {
                self.postponed = Some(self.postponed.map_or(id, |first| first.min(id)));
                if why == Unschedulable::Refused(Refused::Full) {
                    return Admitted::Full;
                }
            }
            Err(why) => self.decision.refuse(now, id, &why),
        }
        Admitted::No
    }

    /// Commits, then sends.
    async fn carry_out(&mut self) -> Result<(), LeaderEnd> {
        let Work { batch, letters, .. } = self.decision.take();
        if !batch.is_empty() && !self.records.lab_commit(&self.fence, &batch).await? {
            return Err(LeaderEnd::FencedOut(self.fence.epoch));
        }
        let acknowledged = self.acknowledge.drain(..).map(|(machine, message, _)| (machine, message));
        for (machine, message) in letters.into_iter().chain(acknowledged) {
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
    /// The term of office.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Returns when the leader leads no longer.
    pub async fn ended(&self) {
        self.inputs.closed().await;
    }

    /// Whether the leader still leads.
    pub fn leads(&self) -> bool {
        !self.inputs.is_closed()
    }

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

    /// Figures of the term; none if nobody leads.
    pub async fn figures(&self) -> Option<Figures> {
        self.ask(Input::Figures).await
    }

    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
        let (answer, asked) = oneshot::channel();
        self.inputs.send(input(answer)).await.ok()?;
        asked.await.ok()
    }
}
