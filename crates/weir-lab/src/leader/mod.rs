//! The acting leader: it takes inputs from machines and people, makes one commit per turn, and then sends its messages.
//!
//! A turn takes what has come in (up to a bound), lets the [`Decision`] decide, commits its batch behind the fence, and only then sends
//! messages. So a machine never hears of an attempt that the database does not know, and a result is acknowledged only when it is stored. A
//! refused commit means that another machine leads: this leader ends, and everything it knew is dropped.

mod outside;
mod received;
mod session;
#[cfg(test)]
mod tests;

pub use outside::Outside;
pub use received::Received;
pub use session::{Link, attend, attend_here};

use crate::decision::{
    Decision, Equipment, Figures, MachineId, Now, PlaceLine, PluginName, PluginResult, Rules, Unschedulable, VmOffer,
    Work,
};
use crate::wire::{Message, VmStatus};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use weir_core::runq::{ResultStatus, RunqRefusal, Settings};
use weir_core::time::Instant;
use weir_store::records::{Fence, OpenSample, Records, RecordsError};

/// How many inputs one turn takes at most.
const TURN_MAX: usize = 1024;
/// A turn takes no more inputs once the results in it have this many bytes.
const TURN_BYTES_MAX: usize = 16 << 20;
/// One commit writes at most about this many rows.
const BATCH_MAX: usize = 2_000;
/// A turn takes no more inputs once it has had this many late results, because each of them needs a query to find its sample.
const LATE_MAX: usize = 64;
/// Samples that are read from the database in one turn.
const PAGE: i64 = 2_000;
/// A number is given out before its row becomes visible, so a new query begins this far back.
const LOOK_BACK: i64 = 1_000;
/// How often the database is asked for new samples when nobody reports any.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is checked by counting whether a sample was missed.
const COUNT_EVERY: Duration = Duration::from_secs(60);

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
    /// A report about it, or about one of its VMs.
    Has(MachineId, Message),
    /// With its share of the memory for reports, which is given back when the result is stored.
    Result(MachineId, PluginResult, Option<OwnedSemaphorePermit>),
    Over(MachineId, i64),
    Refused(MachineId, i64, String),
    Lacks(MachineId, i64, String),
    NewSamples,
    Cancel(i64, oneshot::Sender<bool>),
    Why(i64, oneshot::Sender<String>),
    Count(oneshot::Sender<usize>),
    Places(oneshot::Sender<Vec<PlaceLine>>),
    Equipment(oneshot::Sender<HashMap<String, Equipment>>),
    Figures(oneshot::Sender<Figures>),
}

/// The acting leader.
#[derive(Debug)]
pub struct Leader {
    decision: Decision,
    records: Records,
    fence: Fence,
    /// The first term of this process.
    own_since: i64,
    inputs: mpsc::Receiver<Input>,
    machines: HashMap<MachineId, mpsc::UnboundedSender<Message>>,
    /// Results to acknowledge once they are committed.
    acknowledge: Vec<(MachineId, Message, Option<OwnedSemaphorePermit>)>,
    /// Callers to be told that a sample was cancelled, once that is committed.
    cancelled: Vec<oneshot::Sender<bool>>,
    /// Nodes that get no new samples.
    drained: BTreeSet<String>,
    /// How many results of this turn needed a query to find their sample.
    late: usize,
    highest: i64,
    /// Samples with numbers above this are being read, one page per turn.
    reading: Option<i64>,
    /// Samples from this number on have not been taken because there was no room.
    postponed: Option<i64>,
    /// Samples were found in others since the last query.
    new_children: bool,
    looked_at: tokio::time::Instant,
    counted_at: tokio::time::Instant,
    started: tokio::time::Instant,
}

/// The result of accepting a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    Yes,
    /// It has ended, or waits for the next query.
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
    /// All handles are gone, so nobody can tell it anything.
    #[error("nobody needs it any more")]
    Unneeded,
    /// The records cannot be read or written.
    #[error("{0}")]
    Records(#[from] RecordsError),
}

impl Leader {
    /// A leader with this lease, and a handle for those who report to it.
    pub fn new(settings: Settings, rules: Rules, records: Records, fence: Fence) -> (Leader, LeaderHandle) {
        let (sender, inputs) = mpsc::channel(TURN_MAX);
        let (now, epoch) = (tokio::time::Instant::now(), fence.epoch);
        let leader = Leader {
            decision: Decision::new(settings, fence.epoch, rules),
            records,
            own_since: fence.epoch,
            fence,
            inputs,
            machines: HashMap::new(),
            acknowledge: Vec::new(),
            cancelled: Vec::new(),
            drained: BTreeSet::new(),
            late: 0,
            highest: 0,
            reading: None,
            postponed: None,
            new_children: false,
            looked_at: now,
            counted_at: now,
            started: now,
        };
        (leader, LeaderHandle { inputs: sender, epoch })
    }

    /// The same in a process that first led in this epoch: attempts that ran on this machine since then did not crash it.
    #[must_use]
    pub fn since(self, own_since: i64) -> Leader {
        Leader { own_since, ..self }
    }

    /// Leads until the lease is lost. Begins with everything in the database that has not ended: what has been read is assigned while the
    /// rest is being read. Attempts that earlier leaders left running count as ended, but results that they still bring are accepted.
    pub async fn run(mut self) -> Result<(), LeaderEnd> {
        let abandoned = self
            .records
            .lab_attempts()
            .abandon(&self.fence, self.own_since)
            .await?
            .ok_or(LeaderEnd::FencedOut(self.fence.epoch))?;
        if abandoned > 0 {
            tracing::info!(attempts = abandoned, "what earlier leaders left running is given out again");
        }
        self.look_at_nodes().await?;
        self.look(0);
        loop {
            self.read_on().await?;
            self.carry_out().await?;
            let wake = self.next_wake();
            let first = tokio::select! {
                biased;
                input = self.inputs.recv() => Some(input.ok_or(LeaderEnd::Unneeded)?),
                () = tokio::time::sleep_until(wake) => None,
            };
            let mut new_samples = false;
            self.late = 0;
            if let Some(input) = first {
                new_samples |= self.take_in(input).await;
            }
            for _ in 1..TURN_MAX {
                if self.decision.report_bytes() > TURN_BYTES_MAX || self.late >= LATE_MAX {
                    break;
                }
                let Ok(input) = self.inputs.try_recv() else { break };
                new_samples |= self.take_in(input).await;
            }
            self.decision.tick(self.now());
            self.carry_out().await?;
            // Everything known has been written by now, so a sample that has just ended does not look open.
            new_samples |= std::mem::take(&mut self.new_children);
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.look_at_nodes().await?;
                self.look((self.highest - LOOK_BACK).max(0));
            } else if new_samples {
                self.look_ahead();
            }
            if self.counted_at.elapsed() >= COUNT_EVERY {
                self.carry_out().await?;
                self.count().await?;
            }
        }
    }

    /// Handles an input; returns whether it says that there are new samples.
    async fn take_in(&mut self, input: Input) -> bool {
        let now = self.now();
        match input {
            Input::Joined { node, vms, out, answer } => {
                self.let_go(now, &node);
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
            Input::Has(machine, message) => self.decision.has(now, machine, &message),
            Input::Result(machine, brought, share) => self.result(now, machine, brought, share).await,
            Input::Over(machine, attempt) => self.decision.ended(now, machine, attempt),
            Input::Refused(machine, attempt, why) => self.decision.refused(now, machine, attempt, &why),
            Input::Lacks(machine, attempt, why) => self.decision.lacks(now, machine, attempt, &why),
            Input::NewSamples => return true,
            Input::Cancel(sample, answer) if self.decision.cancel(now, sample) => self.cancelled.push(answer),
            Input::Cancel(_, answer) => drop(answer.send(false)),
            Input::Why(sample, answer) => drop(answer.send(self.decision.why_in_words(now, sample))),
            Input::Count(answer) => drop(answer.send(self.decision.open())),
            Input::Places(answer) => drop(answer.send(self.decision.places())),
            Input::Equipment(answer) => drop(answer.send(self.decision.equipment())),
            Input::Figures(answer) => drop(answer.send(self.decision.figures(now))),
        }
        false
    }

    /// A node that connects again had been gone, even if its old connection has not noticed yet: what ran there is queued again, and results
    /// that it brings on the new connection are accepted.
    fn let_go(&mut self, now: Now, node: &str) {
        for machine in self.decision.machines_of(node) {
            if let Some(out) = self.machines.remove(&machine) {
                let _ = out.send(Message::Bye("this machine is here again".into()));
            }
            self.decision.unplug(now, machine);
        }
    }

    async fn result(
        &mut self,
        now: Now,
        machine: MachineId,
        brought: PluginResult,
        share: Option<OwnedSemaphorePermit>,
    ) {
        let (attempt, plugin) = (brought.attempt, brought.plugin.0.clone());
        if self.decision.is_running(attempt, machine) {
            self.decision.result(now, machine, brought);
        } else if let Err(error) = self.late_result(now, machine, brought).await {
            // It is not acknowledged, so it will be sent again.
            return tracing::warn!(%error, attempt, "a late result cannot be placed");
        }
        self.acknowledge.push((machine, Message::Stored(attempt.cast_unsigned(), plugin), share));
    }

    /// A result of an attempt that is over, or that an earlier leader assigned: the database knows its sample and its machine.
    async fn late_result(&mut self, now: Now, machine: MachineId, brought: PluginResult) -> Result<(), RecordsError> {
        self.late += 1;
        let placed = self.records.lab_attempts().place(brought.attempt).await?;
        let own = placed.filter(|(_, node, _)| self.decision.node(machine) == Some(node.as_str()));
        let Some((sample, _, plugins)) = own else {
            tracing::warn!(attempt = brought.attempt, ?machine, "a machine brings a result of no attempt of its own");
            return Ok(());
        };
        let plugins: Vec<PluginName> = serde_json::from_str(&plugins).unwrap_or_default();
        if !plugins.contains(&brought.plugin) {
            let plugin = &brought.plugin.0;
            tracing::warn!(attempt = brought.attempt, ?machine, plugin, "a machine brings what it was not asked for");
            return Ok(());
        }
        if self.reading.is_some() && !self.decision.knows(sample) {
            // It may not have been read yet.
            let next = self.records.lab_samples().open(sample - 1, 1).await?;
            if let Some(open) = next.first().filter(|open| open.sample.id == sample) {
                self.know_families(std::slice::from_ref(open)).await?;
                self.admit(open);
            }
        }
        if self.decision.late_result(now, sample, brought) == ResultStatus::Unknown {
            tracing::debug!(sample, "a result of a sample that has ended is not kept");
        }
        Ok(())
    }

    /// Reads which machines are drained.
    async fn look_at_nodes(&mut self) -> Result<(), LeaderEnd> {
        let nodes = self.records.lab_nodes().all().await?;
        self.drained = nodes.into_iter().filter(|node| node.drained).map(|node| node.node).collect();
        let now = self.now();
        self.drained.iter().for_each(|node| self.decision.drain_node(now, node));
        Ok(())
    }

    /// Samples with numbers above `after` that have not ended should be read, and those that had to wait. What is being read already is
    /// read to its end first.
    fn look(&mut self, after: i64) {
        self.looked_at = tokio::time::Instant::now();
        if self.reading.is_none() {
            self.reading = Some(self.postponed.take().map_or(after, |first| after.min(first - 1)));
        }
    }

    /// Samples that are newer than all that are known should be read.
    fn look_ahead(&mut self) {
        match self.postponed {
            // Those that had to wait come first.
            Some(_) => self.look(self.highest),
            None => self.reading = self.reading.or(Some(self.highest)),
        }
    }

    /// Reads the next page.
    async fn read_on(&mut self) -> Result<(), LeaderEnd> {
        let Some(after) = self.reading.take() else { return Ok(()) };
        let page = self.records.lab_samples().open(after, PAGE).await?;
        // Everything known has been written by now, so what is forgotten here can be read again.
        self.decision.forget_families();
        self.know_families(&page).await?;
        for open in &page {
            if self.admit(open) == Admitted::Full {
                return Ok(());
            }
            self.highest = self.highest.max(open.sample.id);
            if self.decision.batch_len() >= BATCH_MAX {
                self.carry_out().await?;
            }
        }
        if page.len() as i64 == PAGE {
            self.reading = page.last().map(|last| last.sample.id);
        }
        // A sample that has ended at once must not look open at a later query.
        self.carry_out().await
    }

    /// A row may be committed long after its number was given, by a machine that hung: then no query sees it. Reads everything again if
    /// the database does not have as many open samples as are known here.
    async fn count(&mut self) -> Result<(), LeaderEnd> {
        self.counted_at = tokio::time::Instant::now();
        if self.postponed.is_some() || self.reading.is_some() {
            return Ok(());
        }
        let open = self.records.lab_samples().open_count(self.highest).await?;
        if usize::try_from(open) != Ok(self.decision.open()) {
            tracing::info!(open, known = self.decision.open(), "a sample was missed: all are read again");
            self.look(0);
        }
        Ok(())
    }

    /// Reads what earlier leaders have found in these samples, and in those of which they are parts: it takes up their room for children.
    async fn know_families(&mut self, page: &[OpenSample]) -> Result<(), RecordsError> {
        // A sample that was submitted, and of whose content no plugin has brought anything, has no children.
        let has_results = |open: &OpenSample| open.have != "[]" || open.cached != "[]";
        let page = page.iter().filter(|open| open.sample.given.root.is_some() || has_results(open));
        let roots = page.map(|open| open.sample.given.root.unwrap_or(open.sample.id));
        let roots: BTreeSet<i64> = roots.filter(|root| !self.decision.knows_family(*root)).collect();
        if roots.is_empty() {
            return Ok(());
        }
        let roots: Vec<i64> = roots.into_iter().collect();
        let tickets = self.records.lab_samples().families(&roots).await?;
        roots.iter().for_each(|root| self.decision.learn_family(*root, &[]));
        tickets.into_iter().for_each(|(root, ticket)| self.decision.learn_family(root, &[ticket]));
        Ok(())
    }

    fn admit(&mut self, open: &OpenSample) -> Admitted {
        let (now, id) = (self.now(), open.sample.id);
        match self.decision.admit(now, open) {
            Ok(()) => return Admitted::Yes,
            Err(why) if why.is_for_now() => {
                self.postponed = Some(self.postponed.map_or(id, |first| first.min(id)));
                if why == Unschedulable::Refused(RunqRefusal::Full) {
                    return Admitted::Full;
                }
            }
            Err(why) => self.decision.refuse(now, id, &why),
        }
        Admitted::No
    }

    /// Commits, then sends.
    async fn carry_out(&mut self) -> Result<(), LeaderEnd> {
        let Work { batch, letters, again } = self.decision.take();
        if let Some(first) = again.into_iter().min() {
            self.postponed = Some(self.postponed.map_or(first, |other| other.min(first)));
        }
        let children = !batch.children.is_empty();
        if !batch.is_empty() && !self.records.lab_attempts().commit(&self.fence, &batch).await? {
            return Err(LeaderEnd::FencedOut(self.fence.epoch));
        }
        for answer in self.cancelled.drain(..) {
            let _ = answer.send(true);
        }
        let acknowledged = self.acknowledge.drain(..).map(|(machine, message, _)| (machine, message));
        // A dispatcher that has as many unstored results as it may have takes work only when some are stored.
        for (machine, message) in acknowledged.chain(letters) {
            if let Some(out) = self.machines.get(&machine) {
                // A machine that is gone is noticed by its own session.
                let _ = out.send(message);
            }
        }
        self.new_children |= children;
        Ok(())
    }

    fn next_wake(&self) -> tokio::time::Instant {
        if self.reading.is_some() {
            return tokio::time::Instant::now();
        }
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

    /// There are new samples in the database. This is only a hint: the leader also looks without it.
    pub fn new_samples(&self) {
        let _ = self.inputs.try_send(Input::NewSamples);
    }

    /// Cancels a sample; false if it has ended, is unknown, or nobody leads.
    pub async fn cancel(&self, sample: i64) -> bool {
        self.ask(|answer| Input::Cancel(sample, answer)).await.unwrap_or(false)
    }

    /// Why a sample is not running, in words; none if nobody leads.
    pub async fn why(&self, sample: i64) -> Option<String> {
        self.ask(|answer| Input::Why(sample, answer)).await
    }

    /// Samples that have not ended; none if nobody leads.
    pub async fn open(&self) -> Option<usize> {
        self.ask(Input::Count).await
    }

    /// What every slot and VM of every machine does; None if nobody leads.
    pub async fn places(&self) -> Option<Vec<PlaceLine>> {
        self.ask(Input::Places).await
    }

    /// The equipment that the connected machines report; None if nobody leads.
    pub async fn equipment(&self) -> Option<HashMap<String, Equipment>> {
        self.ask(Input::Equipment).await
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
