//! One node and what is naively known of it: aborts, grants, who was heard, and what each message must and must not do.

use super::op::{Lie, Op, message};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use weir_core::election::*;
use weir_core::time::Instant;

/// Role, priority, index, last byte of the address: two better than the node, two worse, two that may not lead.
pub(super) const PEERS: [(Role, u8, u16, u8); 6] = [
    (Role::Eligible, 0, 10, 9),
    (Role::Eligible, 1, 30, 3),
    (Role::Eligible, 1, 20, 5),
    (Role::Eligible, 2, 90, 1),
    (Role::Dispatcher, 0, 90, 6),
    (Role::External, 0, 90, 7),
];
pub(super) const ME: (u8, u16, u8) = (1, 20, 4);

pub(super) fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(super) fn origin(role: Role, priority: u8, last: u8) -> Origin {
    let id = NodeId(u64::from(last));
    Origin { id, key: KeyId([last; 32]), role, priority: Priority(priority), address: address(last), boot: Boot(1) }
}

/// The comparison of section 3.3, word for word.
pub(super) fn paper_prefers(a: (u8, u16, u8), b: (u8, u16, u8)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 > b.1) || (a.0 == b.0 && a.1 == b.1 && a.2 < b.2)
}

/// The lease row as SQL would have it, in the database's own time.
#[derive(Default)]
pub(super) struct Row {
    epoch: u64,
    mine: bool,
    pub(super) expires_at: Instant,
}

pub(super) struct Model {
    pub(super) node: Election,
    role: Role,
    /// The priority that it was given last.
    priority: u8,
    pub(super) now: Instant,
    pub(super) row: Row,
    pub(super) orders: std::collections::VecDeque<LeaseOrder>,
    /// The naive memory: grants and when acting on them ends.
    grants: Vec<(Epoch, Instant)>,
    aborted: Option<Round>,
    sequences: [u64; PEERS.len()],
    /// When a frame of a peer was last taken.
    heard_at: [Option<Instant>; PEERS.len()],
    /// When a peer last said anything, whatever became of it.
    said_at: [Option<Instant>; PEERS.len()],
    taken: std::collections::BTreeSet<(usize, u64)>,
    highest: Epoch,
}

impl Model {
    pub(super) fn new(role: Role) -> Model {
        let node = Election::new(
            origin(role, ME.0, ME.2),
            ProcessingIndex(ME.1),
            Settings { members_max: 5, ..Settings::default() },
            Epoch(0),
            Instant(1),
        );
        Model {
            node,
            role,
            priority: ME.0,
            now: Instant(1),
            row: Row::default(),
            orders: std::collections::VecDeque::new(),
            grants: Vec::new(),
            aborted: None,
            sequences: [0; PEERS.len()],
            heard_at: [None; PEERS.len()],
            said_at: [None; PEERS.len()],
            taken: std::collections::BTreeSet::new(),
            highest: Epoch(0),
        }
    }

    pub(super) fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        self.drain()?;
        for op in ops {
            self.step(*op).map_err(|broken| format!("{broken}, at {op:?}"))?;
            self.laws().map_err(|broken| format!("{broken}, after {op:?}"))?;
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Say { peer, kind, epoch, current_round, lie } => {
                return self.say(peer, message(kind, epoch, self.round(current_round)), lie);
            }
            Op::Wait { ms } => return self.wait(Duration::from_millis(ms)),
            Op::Answer => {
                if let Some(order) = self.orders.pop_front()
                    && let Some(answer) = self.execute(order)
                {
                    self.answer(order, answer);
                }
            }
            Op::Drop { done } => {
                let order = self.orders.pop_front();
                order.filter(|_| done).map(|order| self.execute(order));
            }
            Op::Rival if self.row.expires_at < self.now => {
                let l = Settings::default().lease;
                self.row = Row { epoch: self.row.epoch + 1, mine: false, expires_at: self.now + l };
            }
            Op::Rival => {}
            Op::Resign => self.node.resign(self.now),
            Op::Rejoin => self.node.rejoin(self.now),
            Op::Alone => self.alone()?,
            Op::Prioritise { priority } => self.prioritise(priority)?,
        }
        self.drain().map(drop)
    }

    /// The node as the paper compares it.
    fn me(&self) -> (u8, u16, u8) {
        (self.priority, ME.1, ME.2)
    }

    /// Whether the paper prefers this node, by its id, to the one that is tried.
    fn is_preferred(&self, id: NodeId) -> bool {
        let peer = PEERS.iter().find(|(.., last)| NodeId(u64::from(*last)) == id);
        peer.is_some_and(|(role, priority, index, last)| {
            *role == Role::Eligible && paper_prefers((*priority, *index, *last), self.me())
        })
    }

    /// Whoever should not lead by the new order gives up its office, whoever should stands; nobody else is moved.
    fn prioritise(&mut self, priority: u8) -> Result<(), String> {
        let (was, round, before) = (self.node.standing(self.now), self.node.round(), self.node.clone());
        let stands = self.role == Role::Eligible && self.node.aside().is_none();
        let (earlier, same) = (self.priority, priority == self.priority);
        self.priority = priority;
        let outranked = self.node.local_nodes().any(|id| self.is_preferred(id));
        self.node.set_priority(self.now, Priority(priority));
        let is = self.node.standing(self.now);
        if same && self.node != before {
            return Err("the priority that it has changes it".into());
        }
        let keeps = matches!(is, Standing::Acting(_) | Standing::Elected);
        let begins = is == Standing::Candidate(Phase::Request) && self.node.round() != round;
        match was {
            _ if same => Ok(()),
            _ if !stands && is != was => Err(format!("{was:?} may not stand, and is {is:?}")),
            _ if !stands => Ok(()),
            Standing::Acting(_) | Standing::Elected if outranked && keeps => {
                Err(format!("{was:?} is outranked and keeps its office"))
            }
            Standing::Acting(_) if !outranked && is != was => Err(format!("the best node is {is:?}")),
            Standing::Following(leader) if self.is_preferred(leader) == begins => {
                Err(format!("{was:?} is {is:?} with priority {priority}"))
            }
            Standing::Candidate(_) if !begins => Err(format!("{was:?} goes on with the round of another priority")),
            Standing::Leaderless if (priority < earlier) != begins => Err(format!("without a leader it is {is:?}")),
            _ => Ok(()),
        }
    }

    /// One that hears nobody, may stand and has no leader wins at once; one that heard somebody has to ask, and nobody else is moved.
    fn alone(&mut self) -> Result<(), String> {
        let was = self.node.standing(self.now);
        let barred = self.role != Role::Eligible || self.node.aside().is_some_and(|why| why != Aside::HearsNobody);
        let seeks = matches!(was, Standing::Leaderless | Standing::Candidate(_));
        let lonely = seeks && !barred && !self.lately(&self.said_at);
        let round = self.node.round();
        self.node.alone(self.now);
        let wins = self.node.standing(self.now) == Standing::Elected;
        if lonely && (!wins || self.node.round() == round) {
            return Err(format!("nobody is there, but {was:?} does not win a round of its own"));
        }
        if !seeks && self.node.standing(self.now) != was {
            return Err(format!("{was:?} is moved by there being nobody"));
        }
        if barred && seeks && wins {
            return Err("one that may not stand wins".into());
        }
        if self.lately(&self.heard_at) && seeks && wins {
            return Err("one that has heard another wins without asking".into());
        }
        Ok(())
    }

    /// Whether one of these times is lately, of a peer inside the lab.
    fn lately(&self, times: &[Option<Instant>; PEERS.len()]) -> bool {
        let inside = PEERS.iter().zip(times).filter(|((role, ..), _)| *role != Role::External);
        inside.filter_map(|(_, at)| *at).any(|at| self.now.since(at) < Settings::default().forget_after())
    }

    fn round(&self, current: bool) -> Round {
        let number = self.node.round().number;
        Round { number: if current { number } else { number.wrapping_sub(1) }, ..self.node.round() }
    }

    pub(super) fn execute(&mut self, order: LeaseOrder) -> Option<LeaseAnswer> {
        let (l, live) = (Settings::default().lease, self.row.expires_at > self.now);
        let ours = |row: &Row, epoch: Epoch| row.mine && row.epoch == epoch.0 && live;
        Some(match order {
            LeaseOrder::Acquire { .. } if live => {
                LeaseAnswer::Refused { free_in: self.row.expires_at.since(self.now), others: 3 }
            }
            LeaseOrder::Acquire { .. } => {
                self.row = Row { epoch: self.row.epoch + 1, mine: true, expires_at: self.now + l };
                LeaseAnswer::Granted { epoch: Epoch(self.row.epoch), others: 3 }
            }
            LeaseOrder::Renew { epoch, .. } if ours(&self.row, epoch) => {
                self.row.expires_at = self.now + l;
                LeaseAnswer::Granted { epoch, others: 3 }
            }
            LeaseOrder::Renew { .. } => LeaseAnswer::Lost,
            LeaseOrder::Release { epoch } => {
                if ours(&self.row, epoch) {
                    self.row.expires_at = self.now;
                }
                LeaseAnswer::Released
            }
            LeaseOrder::Probe => LeaseAnswer::Reachable,
        })
    }

    pub(super) fn answer(&mut self, order: LeaseOrder, answer: LeaseAnswer) {
        if let (
            LeaseOrder::Acquire { asked_at } | LeaseOrder::Renew { asked_at, .. },
            LeaseAnswer::Granted { epoch, .. },
        ) = (order, answer)
        {
            self.grants.push((epoch, asked_at + Duration::from_millis(2_400)));
        }
        self.node.on_lease(self.now, order, answer);
    }

    pub(super) fn wait(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        while self.node.next_deadline() <= end {
            self.now = self.now.max(self.node.next_deadline());
            let before = self.node.standing(self.now);
            self.node.on_timeout(self.now);
            if self.node.next_deadline() <= self.now {
                return Err(format!("the deadline does not move on from {before:?}"));
            }
            self.drain()?;
            self.laws()?;
        }
        self.now = end;
        Ok(())
    }

    /// Collects the outputs; nodes that may not stand must be silent.
    pub(super) fn drain(&mut self) -> Result<Vec<(IpAddr, Message)>, String> {
        let mut sent = Vec::new();
        while let Some(output) = self.node.poll_output() {
            let message = match output {
                Output::Lease(order) => {
                    self.orders.push_back(order);
                    if self.role == Role::Eligible { continue } else { return Err(format!("{:?} orders", self.role)) }
                }
                Output::Send { to, message } => {
                    sent.push((to, message));
                    message
                }
                Output::Broadcast(message) | Output::Sweep(message) => message,
            };
            let barred = self.role != Role::Eligible || self.node.aside().is_some();
            let goes = matches!(message, Message::Resigned { .. });
            if barred && message.is_of_eligible() && !(goes && self.role == Role::Eligible) {
                return Err(format!("a node that may not stand says {message:?}"));
            }
        }
        Ok(sent)
    }

    pub(super) fn say(&mut self, peer: usize, message: Message, lie: Lie) -> Result<(), String> {
        let (role, priority, index, last) = PEERS[peer];
        self.said_at[peer] = Some(self.now);
        let mut from = origin(role, priority, last);
        if lie == Lie::Key {
            from.key = KeyId([0; 32]);
        }
        let declared = if lie == Lie::Priority { priority.wrapping_add(1) } else { priority };
        let claim = Claim { priority: Priority(declared), index: ProcessingIndex(index), stands: true };
        let wrong = lie == Lie::WrongChannel && message.needs_stream();
        let replay = lie == Lie::Replay && self.sequences[peer] > 0 && !message.needs_stream();
        if !replay {
            self.sequences[peer] += 1;
        }
        let datagram = Channel::Datagram { sequence: self.sequences[peer] };
        let reply = matches!(message, Message::Present { following: true, .. }) && !replay;
        let via = if reply || (message.needs_stream() && !wrong) { Channel::Stream } else { datagram };
        let frame = Frame { from, via, claim, message };
        let known = self.node.members_len();
        let before = self.node.clone();
        let verdict = self.node.on_message(self.now, &frame);
        let false_frame = lie == Lie::Priority || wrong || (role != Role::Eligible && message.is_of_eligible());
        if false_frame || (verdict.is_err() && known == 5) {
            return self.changed_nothing(&before, verdict, false_frame);
        }
        if verdict.is_ok() {
            self.taken_once(peer, via)?;
        }
        let sent = self.drain()?;
        self.table(&before, &frame, verdict, &sent)
    }

    /// A datagram is taken once, as long as its sender is remembered.
    fn taken_once(&mut self, peer: usize, via: Channel) -> Result<(), String> {
        let before = self.heard_at[peer].replace(self.now);
        let remembered = before.is_some_and(|at| self.now.since(at) < Settings::default().forget_after());
        let Channel::Datagram { sequence } = via else { return Ok(()) };
        if !remembered {
            self.taken.retain(|(from, _)| *from != peer);
        }
        if self.taken.insert((peer, sequence)) { Ok(()) } else { Err("a replayed datagram was taken".into()) }
    }

    fn changed_nothing(
        &mut self,
        before: &Election,
        verdict: Result<(), MessageRefusal>,
        lie: bool,
    ) -> Result<(), String> {
        if lie && verdict.is_ok() {
            return Err("a false frame was taken".into());
        }
        let semantic =
            matches!(verdict, Err(MessageRefusal::OldEpoch | MessageRefusal::OldRound | MessageRefusal::LowerRank));
        if !semantic && *before != self.node {
            return Err(format!("a refused frame ({verdict:?}) changed the node"));
        }
        self.drain().map(drop)
    }

    /// What a true frame must and must not do.
    fn table(
        &mut self,
        before: &Election,
        frame: &Frame,
        verdict: Result<(), MessageRefusal>,
        sent: &[(IpAddr, Message)],
    ) -> Result<(), String> {
        if verdict.is_err() {
            return if sent.is_empty() { Ok(()) } else { Err(format!("answered what it refused ({verdict:?})")) };
        }
        let (_, priority, index, last) =
            PEERS[(0..PEERS.len()).find(|i| address(PEERS[*i].3) == frame.from.address).unwrap()];
        let better = frame.from.role == Role::Eligible && paper_prefers((priority, index, last), self.me());
        if frame.rank().beats(&before.rank()) != paper_prefers((priority, index, last), self.me()) {
            return Err("the rank is not the paper's".into());
        }
        // Any voice ends the solitude of a node that heard nobody.
        let aside = before.aside().filter(|why| *why != Aside::HearsNobody);
        let stands = self.role == Role::Eligible && aside.is_none();
        let was = before.standing(self.now);
        if let Some(epoch) = before.acting(self.now)
            && !better
            && self.node.acting(self.now) != Some(epoch)
        {
            return Err(format!("a leader of epoch {} was unseated by a lower rank", epoch.0));
        }
        if let Message::Abort { round, .. } = frame.message
            && better
            && round == before.round()
            && matches!(was, Standing::Candidate(_))
        {
            self.aborted = Some(round);
        }
        let aborts = sent.iter().filter(|(to, m)| *to == frame.from.address && matches!(m, Message::Abort { .. }));
        let aborts: Vec<&Message> = aborts.map(|(_, m)| m).collect();
        let asks = matches!(
            frame.message,
            Message::LeaderRequest { .. } | Message::LeaderRequestConfirm { .. } | Message::Victory { .. }
        );
        if asks && stands && !better && was != Standing::Leaving {
            let leads = matches!(was, Standing::Acting(_) | Standing::Elected);
            let right = |m: &&Message| matches!(m, Message::Abort { by, .. } if (*by != Aborter::Better) == leads);
            if aborts.len() != 1 || !aborts.iter().all(right) {
                return Err(format!("a lower rank asked, and was answered {aborts:?}"));
            }
        } else if asks && !aborts.is_empty() {
            return Err(format!("aborted a better rank: {aborts:?}"));
        }
        let acked = sent.iter().any(|(_, m)| matches!(m, Message::Ack { .. }));
        if acked && matches!(was, Standing::Acting(_)) {
            return Err("followed before its lease was released".into());
        }
        if let Message::Victory { epoch, .. } = frame.message
            && better
            && matches!(was, Standing::Leaderless | Standing::Candidate(_))
            && !acked
            && !(self.role == Role::External && epoch.is_none())
        {
            return Err(format!("a better node won, but {was:?} does not follow"));
        }
        Ok(())
    }

    fn laws(&mut self) -> Result<(), String> {
        if self.node.members_len() > 5 {
            return Err("the member table grew past its bound".into());
        }
        if self.node.highest_epoch() < self.highest {
            return Err("the highest epoch fell".into());
        }
        self.highest = self.node.highest_epoch();
        let leads = matches!(self.node.standing(self.now), Standing::Elected | Standing::Acting(_));
        if leads && self.aborted == Some(self.node.round()) {
            return Err("elected in a round in which it was aborted".into());
        }
        if leads && self.role != Role::Eligible {
            return Err(format!("a node of role {:?} leads", self.role));
        }
        if let Some(epoch) = self.node.acting(self.now)
            && !self.grants.iter().any(|(granted, until)| *granted == epoch && self.now < *until)
        {
            return Err(format!("acts in epoch {} without a live lease", epoch.0));
        }
        Ok(())
    }
}
