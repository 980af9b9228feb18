//! Runs the election of one node around the state machine of weir-core: time, messages and answers about the lease go in; messages, orders
//! about the lease and this node's role (its *post*) come out.
//!
//! The core (`weir_core::election`) decides. This loop waits for the next input, passes it to the core, and does what the core asks for.
//! Orders to the database run in tasks of their own, each with a time limit, because a database that hangs must not keep the node from
//! hearing others. Code that needs to know whether this node may act watches its [`Post`].

use super::epoch_file::EpochFile;
use super::reports::{MachineReport, Reports};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use weir_core::election::{
    Aside, Channel, Claim, Election, Epoch, Frame, LeaseAnswer, LeaseOrder, Message, MessageRefusal, NodeId, Output,
    Priority, Role, Settings, Standing,
};
use weir_core::time::Instant;
use weir_store::records::{Fence, LeaseReply, Records, RecordsError};

/// How often a node that heard nobody asks the database whether others are there.
const ALONE_EVERY: Duration = Duration::from_secs(1);

/// How messages leave a node, each with what the node claims about itself. None of these may block, and none guarantees that anything arrives.
pub trait ElectionNetwork: Send + 'static {
    /// To everybody in the lab's network.
    fn broadcast(&mut self, claim: Claim, message: Message);
    /// To one address over a stream.
    fn send(&mut self, to: IpAddr, claim: Claim, message: Message);
    /// To every address of the lab's range over streams.
    fn sweep(&mut self, claim: Claim, message: Message);
    /// Closes all streams: the next message to each machine opens one that shows the present certificate.
    fn hang_up(&mut self);
}

/// The state of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Post {
    /// It knows of no leader.
    Leaderless,
    /// It follows another.
    Following(NodeId),
    /// It was elected and has no live lease: it must not act.
    Elected,
    /// It leads, with this lease.
    Acting(Fence),
}

/// One node's election.
#[derive(Debug)]
pub struct Elector<N> {
    election: Election,
    records: Records,
    /// The node's id in the records.
    holder: String,
    settings: Settings,
    network: N,
    frames: mpsc::Receiver<Frame>,
    orders: (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    asked_at: Instant,
    answers: (mpsc::Sender<Answered>, mpsc::Receiver<Answered>),
    post: watch::Sender<Post>,
    /// When the leader that this node follows was last heard.
    heard_at: Option<Instant>,
    vacancy: Vacancy,
    reports: Reports,
    /// The highest epoch that was seen, and where it is kept.
    highest: Epoch,
    seen: Option<EpochFile>,
    /// Tasks beside the loop; they end with the elector.
    beside: JoinSet<()>,
}

/// How long the lab had no leader before this node's last term: since the last message of the one before. None if it knew of none.
#[derive(Debug, Clone, Default)]
pub struct Vacancy(Arc<Mutex<Option<Duration>>>);

impl Vacancy {
    /// The vacancy before the last term.
    pub fn last(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, vacant: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = vacant;
    }
}

/// An order of an operator or of the leader itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Stop leading, and do not stand for election for a while.
    Resign,
    /// Stand for election again.
    Rejoin,
    /// A commit of this epoch was refused.
    FencedOut(i64),
    /// The database has seen no other machine lately, so a node that hears nobody need not wait for others.
    Alone,
    /// This machine has a certificate with another priority.
    Priority(Priority),
    /// The addresses of the machines outside the lab, which are told of a victory.
    Externals(Vec<IpAddr>),
}

#[derive(Debug)]
struct Answered {
    order: LeaseOrder,
    answer: LeaseAnswer,
}

/// The ends of an elector that other tasks hold.
#[derive(Debug)]
pub struct Ends {
    /// Messages that have come in and were verified.
    pub frames: mpsc::Sender<Frame>,
    pub orders: mpsc::Sender<Order>,
    /// The state of the node.
    pub post: watch::Receiver<Post>,
    /// How long there was no leader before this node.
    pub vacancy: Vacancy,
}

impl<N: ElectionNetwork> Elector<N> {
    /// An elector around this election with these settings, which holds leases in the name of `holder`.
    pub fn new(
        election: Election,
        records: Records,
        holder: &str,
        settings: Settings,
        network: N,
    ) -> (Elector<N>, Ends) {
        let (frames_in, frames) = mpsc::channel(256);
        let orders = mpsc::channel(16);
        let orders_in = orders.0.clone();
        let (post, posted) = watch::channel(Post::Leaderless);
        let answers = mpsc::channel(16);
        let holder = holder.to_owned();
        let asked_at = now();
        let (heard_at, vacancy, highest) = (None, Vacancy::default(), election.highest_epoch());
        let ends = Ends { frames: frames_in, orders: orders_in, post: posted, vacancy: vacancy.clone() };
        let elector = Elector {
            election,
            records,
            holder,
            settings,
            network,
            frames,
            orders,
            asked_at,
            answers,
            post,
            heard_at,
            vacancy,
            reports: Reports::default(),
            highest,
            seen: None,
            beside: JoinSet::new(),
        };
        (elector, ends)
    }

    /// The same elector, which stores the highest epoch here.
    pub(crate) fn keeping(mut self, seen: EpochFile) -> Elector<N> {
        self.seen = Some(seen);
        self
    }

    /// Runs until everybody who held an end is gone.
    pub async fn run(mut self) {
        loop {
            self.carry_out();
            self.keep_epoch();
            self.announce();
            if self.post.is_closed() {
                return;
            }
            self.ask_who_is_there();
            while self.beside.try_join_next().is_some() {}
            let due = self.election.next_deadline();
            let wait = Duration::from_nanos(due.0.saturating_sub(now().0)).min(Duration::from_secs(1));
            tokio::select! {
                biased;
                Some(answered) = self.answers.1.recv() => self.election.on_lease(now(), answered.order, answered.answer),
                Some(order) = self.orders.1.recv() => self.obey(order),
                Some(frame) = self.frames.recv() => self.hear(&frame),
                () = tokio::time::sleep(wait) => {}
            }
            // What is due comes before what arrives, because after a pause both are there at once.
            if self.election.next_deadline() <= now() {
                self.election.on_timeout(now());
            }
        }
    }

    fn hear(&mut self, frame: &Frame) {
        let at = now();
        if self.election.next_deadline() <= at {
            self.election.on_timeout(at);
        }
        if let Err(refusal) = self.election.on_message(at, frame) {
            self.report(frame, refusal);
        }
        if *self.post.borrow() == Post::Following(frame.from.id) {
            self.heard_at = Some(at);
        }
    }

    /// Most refusals are normal. Some show that a machine is not what it claims to be.
    fn report(&self, frame: &Frame, refusal: MessageRefusal) {
        let (id, address) = (frame.from.id, frame.from.address);
        let report = match refusal {
            MessageRefusal::Clone => Some(MachineReport::Clone),
            // A datagram shows no key, so it counts as having the one of its name. A new key is learned from its first stream.
            MessageRefusal::OtherKey if frame.via == Channel::Stream => Some(MachineReport::OtherKey),
            MessageRefusal::Priority => Some(MachineReport::Priority),
            // Inside the lab, the database is asked at the next start.
            MessageRefusal::OldEpoch if self.election.me().role == Role::External => match frame.message {
                Message::Victory { epoch: Some(_), .. } => Some(MachineReport::OldEpoch),
                _ => None,
            },
            _ => None,
        };
        match report.filter(|report| self.reports.is_due(id, *report)) {
            Some(MachineReport::Clone) => {
                tracing::warn!(%address, "another machine has the name and the key of this one: was its disk copied?");
            }
            Some(MachineReport::OldEpoch) => {
                let (message, highest) = (frame.message, self.election.highest_epoch().0);
                tracing::warn!(%address, ?message, highest, "a leader whose term is over; if the lab's records were put back, stop this machine and remove the file epoch beside its certificate");
            }
            Some(_) => tracing::warn!(?refusal, id = id.0, %address, "a machine is not what it says it is"),
            None => tracing::debug!(?refusal, id = id.0, "a message of the election is refused"),
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Resign => self.election.resign(now()),
            Order::Rejoin => self.election.rejoin(now()),
            Order::FencedOut(epoch) => self.election.on_fenced_out(now(), Epoch(epoch.cast_unsigned())),
            // A node that hears somebody has to ask.
            Order::Alone if self.election.aside() == Some(Aside::HearsNobody) => self.election.alone(now()),
            Order::Alone => {}
            Order::Priority(priority) => {
                self.network.hang_up();
                self.election.set_priority(now(), priority);
            }
            Order::Externals(addresses) => self.election.set_externals(addresses),
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.election.poll_output() {
            match output {
                Output::Broadcast(message) => self.network.broadcast(self.election.claim(), message),
                Output::Send { to, message } => self.network.send(to, self.election.claim(), message),
                Output::Sweep(message) => self.network.sweep(self.election.claim(), message),
                Output::Lease(order) => self.ask(order),
            }
        }
    }

    /// Asks the database. An order that fails is not answered, and the election asks again.
    fn ask(&mut self, order: LeaseOrder) {
        let (records, holder, settings) = (self.records.clone(), self.holder.clone(), self.settings);
        let answers = self.answers.0.clone();
        self.beside.spawn(async move {
            match tokio::time::timeout(settings.lease, carry_to_database(&records, &holder, &settings, order)).await {
                Ok(Ok(answer)) => drop(answers.send(Answered { order, answer }).await),
                Ok(Err(error)) => tracing::warn!(%error, ?order, "the lease cannot be asked for"),
                Err(_) => tracing::warn!(?order, "the database does not answer about the lease"),
            }
        });
    }

    /// A node that gave up because it heard nobody stands again when it hears somebody, or when the database shows that nobody else is there.
    fn ask_who_is_there(&mut self) {
        let due = now().since(self.asked_at) >= ALONE_EVERY;
        if self.election.aside() != Some(Aside::HearsNobody) || !due {
            return;
        }
        self.asked_at = now();
        let (records, holder, settings) = (self.records.clone(), self.holder.clone(), self.settings);
        let orders = self.orders.0.clone();
        self.beside.spawn(async move {
            if let Ok(0) = others(&records, &holder, &settings).await {
                let _ = orders.send(Order::Alone).await;
            }
        });
    }

    /// A disk that hangs must not prevent the node from hearing others.
    fn keep_epoch(&mut self) {
        let highest = self.election.highest_epoch();
        if highest > self.highest
            && let Some(seen) = &self.seen
        {
            self.beside.spawn(seen.clone().keep(highest));
        }
        self.highest = highest;
    }

    fn announce(&mut self) {
        let at = now();
        let post = match (self.election.acting(at), self.election.standing(at)) {
            (Some(epoch), _) => Post::Acting(Fence { epoch: epoch.0.cast_signed(), holder: self.holder.clone() }),
            (None, Standing::Following(leader)) => Post::Following(leader),
            (None, Standing::Elected | Standing::Leaving | Standing::Acting(_)) => Post::Elected,
            (None, Standing::Leaderless | Standing::Candidate(_)) => Post::Leaderless,
        };
        let begins = matches!(post, Post::Acting(_)) && !matches!(*self.post.borrow(), Post::Acting(_));
        if begins {
            self.vacancy.note(self.heard_at.take().map(|heard| at.since(heard)));
        }
        self.post.send_if_modified(|known| {
            let changed = *known != post;
            *known = post;
            changed
        });
    }
}

async fn carry_to_database(
    records: &Records,
    holder: &str,
    settings: &Settings,
    order: LeaseOrder,
) -> Result<LeaseAnswer, RecordsError> {
    let lease_ms = i64::try_from(settings.lease.as_millis()).unwrap_or(i64::MAX);
    let fence = |epoch: Epoch| Fence { epoch: epoch.0.cast_signed(), holder: holder.to_owned() };
    Ok(match order {
        LeaseOrder::Acquire { .. } => match records.lab_leader().acquire(holder, lease_ms).await? {
            LeaseReply::Granted { epoch } => granted(epoch, others(records, holder, settings).await?),
            LeaseReply::Refused { free_in_ms } => {
                let free_in = Duration::from_millis(free_in_ms.max(0).cast_unsigned());
                LeaseAnswer::Refused { free_in, others: others(records, holder, settings).await? }
            }
        },
        LeaseOrder::Renew { epoch, .. } => match records.lab_leader().renew(&fence(epoch), lease_ms).await? {
            true => granted(epoch.0.cast_signed(), others(records, holder, settings).await?),
            false => LeaseAnswer::Lost,
        },
        LeaseOrder::Release { epoch } => {
            records.lab_leader().release(&fence(epoch)).await?;
            LeaseAnswer::Released
        }
        LeaseOrder::Probe => {
            records.lab_leader().probe().await?;
            LeaseAnswer::Reachable
        }
    })
}

fn granted(epoch: i64, others: u32) -> LeaseAnswer {
    LeaseAnswer::Granted { epoch: Epoch(epoch.cast_unsigned()), others }
}

/// Machines that the database has seen at work lately.
async fn others(records: &Records, holder: &str, settings: &Settings) -> Result<u32, RecordsError> {
    let lately = i64::try_from(settings.counts_as_there().as_millis()).unwrap_or(i64::MAX);
    Ok(u32::try_from(records.lab_nodes().others(holder, lately).await?).unwrap_or(u32::MAX))
}

/// A clock that continues while the machine is suspended, because a lease runs out meanwhile too.
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.max(0).cast_unsigned(), time.tv_nsec.max(0).cast_unsigned());
    Instant(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::super::alone::with_lease;
    use super::*;
    use weir_core::election::ProcessingIndex;

    fn settings() -> Settings {
        let ms = Duration::from_millis;
        Settings {
            reply_wait: ms(20),
            beat: ms(50),
            abort_wait: ms(60),
            check: ms(20),
            lease: ms(300),
            ..Settings::default()
        }
    }

    async fn records() -> (tempfile::TempDir, Records) {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        (home, records)
    }

    fn start(id: u64, records: &Records) -> (Ends, tokio::task::JoinHandle<()>) {
        let (elector, ends) = with_lease(&format!("n{id}"), ProcessingIndex(1), settings(), records.clone());
        (ends, tokio::spawn(elector.run()))
    }

    async fn acting(ends: &mut Ends) -> Fence {
        let post = ends.post.wait_for(|post| matches!(post, Post::Acting(_))).await.unwrap().clone();
        let Post::Acting(fence) = post else { panic!("{post:?}") };
        fence
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_alone_elects_itself_and_keeps_its_lease() {
        let (_home, records) = records().await;
        let (mut ends, _task) = start(1, &records);
        assert_eq!(acting(&mut ends).await, Fence { epoch: 1, holder: "n1".into() });
        // A lease that has longer to live than before, in the same epoch, was renewed.
        let mut before = records.lab_leader().current().await.unwrap();
        loop {
            let after = records.lab_leader().current().await.unwrap();
            if after.0 == before.0 && after.1 > before.1 {
                break;
            }
            before = after;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_highest_epoch_is_on_the_disk() {
        let (home, records) = records().await;
        let seen = EpochFile::open(home.path()).unwrap();
        let (elector, mut ends) = with_lease("n1", ProcessingIndex(1), settings(), records.clone());
        let _task = tokio::spawn(elector.keeping(seen).run());
        let epoch = acting(&mut ends).await.epoch.cast_unsigned();
        while EpochFile::open(home.path()).unwrap().highest() < Epoch(epoch) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_resigns_lets_another_lead_and_may_come_back() {
        let (_home, records) = records().await;
        let (mut first, _task) = start(1, &records);
        let old = acting(&mut first).await;
        first.orders.send(Order::Resign).await.unwrap();
        first.post.wait_for(|post| !matches!(post, Post::Acting(_))).await.unwrap();
        let (mut second, task) = start(2, &records);
        let new = acting(&mut second).await;
        assert!(new.epoch > old.epoch && new.holder == "n2");
        task.abort();
        first.orders.send(Order::Rejoin).await.unwrap();
        assert!(acting(&mut first).await.epoch > new.epoch, "after the lease of the dead one has run out");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_hears_nobody_lets_go_while_there_are_others_and_leads_when_there_are_none() {
        let (_home, records) = records().await;
        let other = weir_store::records::NodeRow {
            node: "n2".into(),
            name: "n2".into(),
            role: "eligible".into(),
            priority: 1,
            address: String::new(),
            fingerprint: "k".into(),
            processing_index: None,
            drained: false,
            registered_at: 0,
            seen_at: 0,
        };
        assert!(records.lab_nodes().register(&other).await.unwrap());
        let me = weir_store::records::NodeRow { node: "n1".into(), fingerprint: "own".into(), ..other.clone() };
        assert!(records.lab_nodes().register(&me).await.unwrap());
        let (mut ends, _task) = start(1, &records);
        acting(&mut ends).await;
        let seen = records.clone();
        let there = tokio::spawn(async move {
            loop {
                assert!(seen.lab_nodes().seen(&other).await.unwrap());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        ends.post.wait_for(|post| !matches!(post, Post::Acting(_) | Post::Elected)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!matches!(*ends.post.borrow(), Post::Acting(_)), "the other may be the one that is heard");
        there.abort();
        acting(&mut ends).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_that_do_not_hear_each_other_never_act_at_once() {
        let (_home, records) = records().await;
        let (ends, _tasks): (Vec<Ends>, Vec<_>) = (1..=3).map(|id| start(id, &records)).unzip();
        for _ in 0..100 {
            let acting = ends.iter().filter(|ends| matches!(*ends.post.borrow(), Post::Acting(_))).count();
            assert!(acting <= 1);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
