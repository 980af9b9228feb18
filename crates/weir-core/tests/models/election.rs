//! One node against the rules written as a table: random messages, lease answers and waits.
//!
//! The model knows the paper's comparison word for word, remembers aborts and grants naively, and says
//! for every message what must be answered and what must not change.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_core::election::*;
use weir_core::mutant::{Mutant, plant};
use weir_core::time::Instant;

/// What may happen to the node.
#[derive(Clone, Copy, Debug)]
enum Op {
    Say {
        peer: usize,
        kind: u8,
        epoch: u64,
        current_round: bool,
        lie: Lie,
    },
    Wait {
        ms: u64,
    },
    /// The database carries out the oldest order and answers.
    Answer,
    /// The oldest order is lost, or its answer.
    Drop {
        done: bool,
    },
    /// Somebody else takes the lease, if it is free.
    Rival,
    Resign,
    Rejoin,
    /// The database knows of nobody else.
    Alone,
}

/// How a frame may be false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    None,
    Priority,
    Key,
    Replay,
    WrongChannel,
}

fn op() -> impl Strategy<Value = Op> {
    let lie = prop_oneof![
        8 => Just(Lie::None),
        1 => Just(Lie::Priority),
        1 => Just(Lie::Key),
        1 => Just(Lie::Replay),
        1 => Just(Lie::WrongChannel),
    ];
    prop_oneof![
        6 => (0..PEERS.len(), 0u8..10, 0u64..6, any::<bool>(), lie)
            .prop_map(|(peer, kind, epoch, current_round, lie)| Op::Say { peer, kind, epoch, current_round, lie }),
        8 => (1u64..900).prop_map(|ms| Op::Wait { ms }),
        6 => Just(Op::Answer),
        1 => any::<bool>().prop_map(|done| Op::Drop { done }),
        1 => Just(Op::Rival),
        1 => Just(Op::Resign),
        2 => Just(Op::Rejoin),
        1 => Just(Op::Alone),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..120)
}

/// Role, priority, index, last byte of the address: two better than the node, two worse, two that may not lead.
const PEERS: [(Role, u8, u16, u8); 6] = [
    (Role::Eligible, 0, 10, 9),
    (Role::Eligible, 1, 30, 3),
    (Role::Eligible, 1, 20, 5),
    (Role::Eligible, 2, 90, 1),
    (Role::Dispatcher, 0, 90, 6),
    (Role::External, 0, 90, 7),
];
const ME: (u8, u16, u8) = (1, 20, 4);

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn origin(role: Role, priority: u8, last: u8) -> Origin {
    let id = NodeId(u64::from(last));
    Origin { id, key: KeyId([last; 32]), role, priority: Priority(priority), address: address(last), boot: Boot(1) }
}

/// The comparison of section 3.3, word for word.
fn paper_prefers(a: (u8, u16, u8), b: (u8, u16, u8)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 > b.1) || (a.0 == b.0 && a.1 == b.1 && a.2 < b.2)
}

/// The lease row as SQL would have it, in the database's own time.
#[derive(Default)]
struct Row {
    epoch: u64,
    mine: bool,
    expires_at: Instant,
}

struct Model {
    node: Election,
    role: Role,
    now: Instant,
    row: Row,
    orders: std::collections::VecDeque<LeaseOrder>,
    /// The naive memory: grants and when acting on them ends.
    grants: Vec<(Epoch, Instant)>,
    aborted: Option<Round>,
    sequences: [u64; PEERS.len()],
    heard_at: [Instant; PEERS.len()],
    /// When a peer last said anything, whatever became of it.
    said_at: [Option<Instant>; PEERS.len()],
    taken: std::collections::BTreeSet<(usize, u64)>,
    highest: Epoch,
}

impl Model {
    fn new(role: Role) -> Model {
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
            now: Instant(1),
            row: Row::default(),
            orders: std::collections::VecDeque::new(),
            grants: Vec::new(),
            aborted: None,
            sequences: [0; PEERS.len()],
            heard_at: [Instant::ZERO; PEERS.len()],
            said_at: [None; PEERS.len()],
            taken: std::collections::BTreeSet::new(),
            highest: Epoch(0),
        }
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), String> {
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
        }
        self.drain().map(drop)
    }

    /// One that hears nobody, may stand and has no leader wins at once; nobody else is moved.
    fn alone(&mut self) -> Result<(), String> {
        let was = self.node.standing(self.now);
        let barred = self.role != Role::Eligible || self.node.aside().is_some_and(|why| why != Aside::HearsNobody);
        let seeks = matches!(was, Standing::Leaderless | Standing::Candidate(_));
        let lately = Settings::default().forget_after();
        let inside = PEERS.iter().zip(self.said_at).filter(|((role, ..), _)| *role != Role::External);
        let heard = inside.filter_map(|(_, at)| at).any(|at| self.now.since(at) < lately);
        let (round, lonely) = (self.node.round(), seeks && !barred && !heard);
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
        Ok(())
    }

    fn round(&self, current: bool) -> Round {
        let number = self.node.round().number;
        Round { number: if current { number } else { number.wrapping_sub(1) }, ..self.node.round() }
    }

    fn execute(&mut self, order: LeaseOrder) -> Option<LeaseAnswer> {
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

    fn answer(&mut self, order: LeaseOrder, answer: LeaseAnswer) {
        if let (
            LeaseOrder::Acquire { asked_at } | LeaseOrder::Renew { asked_at, .. },
            LeaseAnswer::Granted { epoch, .. },
        ) = (order, answer)
        {
            self.grants.push((epoch, asked_at + Duration::from_millis(2_400)));
        }
        self.node.on_lease(self.now, order, answer);
    }

    fn wait(&mut self, time: Duration) -> Result<(), String> {
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
    fn drain(&mut self) -> Result<Vec<(IpAddr, Message)>, String> {
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

    fn say(&mut self, peer: usize, message: Message, lie: Lie) -> Result<(), String> {
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
        let remembered = self.now.since(self.heard_at[peer]) < Settings::default().forget_after();
        self.heard_at[peer] = self.now;
        let Channel::Datagram { sequence } = via else { return Ok(()) };
        if !remembered {
            self.taken.retain(|(from, _)| *from != peer);
        }
        if self.taken.insert((peer, sequence)) { Ok(()) } else { Err("a replayed datagram was taken".into()) }
    }

    fn changed_nothing(&mut self, before: &Election, verdict: Result<(), Refusal>, lie: bool) -> Result<(), String> {
        if lie && verdict.is_ok() {
            return Err("a false frame was taken".into());
        }
        let semantic = matches!(verdict, Err(Refusal::OldEpoch | Refusal::OldRound | Refusal::LowerRank));
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
        verdict: Result<(), Refusal>,
        sent: &[(IpAddr, Message)],
    ) -> Result<(), String> {
        if verdict.is_err() {
            return if sent.is_empty() { Ok(()) } else { Err(format!("answered what it refused ({verdict:?})")) };
        }
        let (_, priority, index, last) =
            PEERS[(0..PEERS.len()).find(|i| address(PEERS[*i].3) == frame.from.address).unwrap()];
        let better = frame.from.role == Role::Eligible && paper_prefers((priority, index, last), ME);
        if frame.rank().beats(&before.rank()) != paper_prefers((priority, index, last), ME) {
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

fn message(kind: u8, epoch: u64, round: Round) -> Message {
    let some = epoch.checked_sub(1).map(Epoch);
    match kind {
        0 => Message::LeaderRequest { round },
        1 => Message::LeaderRequestConfirm { round },
        2 | 3 => Message::Victory { round, epoch: some },
        4 => Message::Abort { phase: Phase::Confirm, round, by: Aborter::Better },
        5 => Message::Abort { phase: Phase::Victory, round, by: Aborter::Leader(some) },
        6 => Message::Ack { round },
        7 => Message::LeaderAlive { round, epoch: some },
        8 => Message::Present { following: epoch > 2, epoch: some },
        _ => Message::Resigned { epoch: some, successor: (epoch > 2).then_some(NodeId(u64::from(ME.2))) },
    }
}

fn check(role: Role, ops: &[Op]) -> Result<(), String> {
    Model::new(role).run(ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_eligible_node_keeps_the_rules(ops in ops()) {
        check(Role::Eligible, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_dispatcher_and_an_external_node_never_stand(ops in ops()) {
        check(Role::Dispatcher, &ops).map_err(TestCaseError::fail)?;
        check(Role::External, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_fence_is_the_maximum_so_far(epochs in proptest::collection::vec(0u64..8, 0..40)) {
        check_fence(&epochs).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn ranks_are_totally_ordered(machines in proptest::collection::vec((0u8..3, 0u16..3, 0u8..4), 3)) {
        let rank = |m: &(u8, u16, u8)| {
            let claim = Claim { priority: Priority(m.0), index: ProcessingIndex(m.1), stands: true };
            Rank::new(&origin(Role::Eligible, m.0, m.2), claim)
        };
        let [a, b, c] = [0, 1, 2].map(|i| &machines[i]);
        prop_assert_eq!(rank(a).beats(&rank(b)), paper_prefers(*a, *b));
        prop_assert_eq!(rank(a).beats(&rank(b)) || rank(b).beats(&rank(a)), a != b);
        prop_assert!(!(rank(a).beats(&rank(b)) && rank(b).beats(&rank(c))) || rank(a).beats(&rank(c)));
    }
}

fn check_fence(epochs: &[u64]) -> Result<(), String> {
    let mut fence = Fence::default();
    for (i, epoch) in epochs.iter().enumerate() {
        let highest = epochs[..i].iter().copied().max().unwrap_or(0);
        if fence.admit(Epoch(*epoch)).is_ok() != (*epoch >= highest) {
            return Err(format!("epoch {epoch} after {highest}"));
        }
    }
    Ok(())
}

/// Runs `check` on fixed random inputs until it fails.
fn finds<T: core::fmt::Debug>(
    mutant: Mutant,
    inputs: impl Strategy<Value = T>,
    check: impl Fn(&T) -> Result<(), String>,
) -> Option<String> {
    let _planted = plant(mutant);
    let mut runner = TestRunner::deterministic();
    (0..2_000).find_map(|_| check(&inputs.new_tree(&mut runner).unwrap().current()).err())
}

#[test]
fn the_checks_find_the_planted_bugs() {
    for (mutant, says) in [
        (Mutant::ElectionElectsAfterAbort, "in which it was aborted"),
        (Mutant::ElectionTrueLeaderYields, "lower rank"),
        (Mutant::ElectionActsOnExpiredLease, "without a live lease"),
    ] {
        let found = finds(mutant, ops(), |ops| check(Role::Eligible, ops));
        assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{mutant:?}: {found:?}");
    }
    let found = finds(Mutant::ElectionFenceForgets, proptest::collection::vec(0u64..8, 0..40), |e| check_fence(e));
    assert!(found.is_some());
}

/// The node as leader of two others, in a lab where nothing is lost.
fn acting_leader() -> Model {
    let mut model = Model::new(Role::Eligible);
    model.run(&[Op::Wait { ms: 300 }, Op::Wait { ms: 300 }, Op::Wait { ms: 300 }]).unwrap();
    model.say(2, Message::Ack { round: model.node.round() }, Lie::None).unwrap();
    model.run(&[Op::Answer]).unwrap();
    assert_eq!(model.node.standing(model.now), Standing::Acting(Epoch(1)));
    model
}

#[test]
fn a_quiet_network_elects_in_three_phases_and_the_lease_makes_it_act() {
    let model = acting_leader();
    assert_eq!(model.node.local_nodes().collect::<Vec<_>>(), [NodeId(5)]);
    assert_eq!(model.node.highest_epoch(), Epoch(1));
}

#[test]
fn a_node_that_misses_n_replies_leaves_the_list() {
    let mut model = acting_leader();
    for _ in 0..3 {
        model.wait(Duration::from_millis(500)).unwrap();
        model.run(&[Op::Answer]).unwrap();
        assert_eq!(model.node.local_nodes().count(), 1);
        model.say(2, Message::Present { following: true, epoch: Some(Epoch(1)) }, Lie::None).unwrap();
    }
    model.say(3, Message::LeaderRequest { round: Round { boot: Boot(1), number: 9 } }, Lie::None).unwrap();
    assert_eq!(model.node.local_nodes().count(), 2, "a requester that it aborted is on the list");
    for _ in 0..4 {
        model.wait(Duration::from_millis(500)).unwrap();
        model.run(&[Op::Answer]).unwrap();
    }
    assert_eq!(model.node.local_nodes().count(), 0);
}

#[test]
fn a_leader_that_hears_nobody_lets_go_and_a_voice_brings_it_back() {
    let mut model = acting_leader();
    for _ in 0..8 {
        model.run(&[Op::Wait { ms: 250 }, Op::Answer]).unwrap();
    }
    assert_eq!(model.node.aside(), Some(Aside::HearsNobody));
    assert!(model.row.expires_at <= model.now, "the lease was released");
    model.say(4, Message::Present { following: false, epoch: None }, Lie::None).unwrap();
    assert_eq!(model.node.standing(model.now), Standing::Candidate(Phase::Request));
}

#[test]
fn a_dead_database_makes_it_stand_aside_and_resign() {
    let mut model = acting_leader();
    for _ in 0..25 {
        model.wait(Duration::from_millis(100)).unwrap();
        model.orders.clear();
        model.say(2, Message::Present { following: true, epoch: Some(Epoch(1)) }, Lie::None).unwrap();
    }
    assert_eq!(model.node.aside(), Some(Aside::NoDatabase));
    model.wait(Duration::from_millis(1_100)).unwrap();
    assert!(model.orders.contains(&LeaseOrder::Probe));
    model.run(&[Op::Answer]).unwrap();
    assert_eq!(model.node.aside(), None);
}

#[test]
fn a_resignation_releases_first_and_names_the_best_local_node() {
    let mut model = acting_leader();
    model.node.resign(model.now);
    assert_eq!(model.node.standing(model.now), Standing::Leaving);
    assert_eq!(model.drain().unwrap(), []);
    let order = model.orders.pop_front().unwrap();
    let answer = model.execute(order).unwrap();
    model.answer(order, answer);
    let sent = model.drain().unwrap();
    let resigned = Message::Resigned { epoch: Some(Epoch(1)), successor: Some(NodeId(5)) };
    assert_eq!(sent, [(address(5), resigned)]);
}

#[test]
fn of_two_clones_the_later_life_goes_on() {
    let mut model = acting_leader();
    let clone = Origin { boot: Boot(2), address: address(77), ..*model.node.me() };
    let claim = model.node.claim();
    let message = Message::LeaderAlive { round: model.node.round(), epoch: Some(Epoch(9)) };
    let hint = Frame { from: clone, via: Channel::Datagram { sequence: 1 }, claim, message };
    assert_eq!(model.node.on_message(model.now, &hint), Err(Refusal::Clone));
    assert!(model.node.acting(model.now).is_some(), "a datagram is only a hint");
    assert_eq!(model.drain().unwrap().len(), 1, "it knocks");
    let knock = Frame { via: Channel::Stream, message: Message::Present { following: false, epoch: None }, ..hint };
    assert_eq!(model.node.on_message(model.now, &knock), Err(Refusal::Clone));
    assert_eq!(model.node.standing(model.now), Standing::Leaving);
    let mut earlier = acting_leader();
    let from = Origin { boot: Boot(0), ..clone };
    assert_eq!(earlier.node.on_message(earlier.now, &Frame { from, ..knock }), Err(Refusal::Clone));
    assert!(earlier.node.acting(earlier.now).is_some());
}

/// A frame of the best peer.
fn of_best(via: Channel, message: Message) -> Frame {
    let (role, priority, index, last) = PEERS[0];
    let claim = Claim { priority: Priority(priority), index: ProcessingIndex(index), stands: true };
    Frame { from: origin(role, priority, last), via, claim, message }
}

const ROUND: Round = Round { boot: Boot(1), number: 1 };

#[test]
fn beats_without_a_stream_do_not_keep_a_leader() {
    let alive = Message::LeaderAlive { round: ROUND, epoch: None };
    for streams in [true, false] {
        let mut model = Model::new(Role::Eligible);
        let victory = of_best(Channel::Stream, Message::Victory { round: ROUND, epoch: None });
        model.node.on_message(model.now, &victory).unwrap();
        for sequence in 1..=40 {
            model.wait(Duration::from_millis(100)).unwrap();
            let beat = of_best(Channel::Datagram { sequence }, alive);
            model.node.on_message(model.now, &beat).unwrap();
            let answers = model.drain().unwrap();
            if streams {
                assert!(answers.iter().any(|(to, m)| *to == address(9) && matches!(m, Message::Present { .. })));
                model.node.on_message(model.now, &of_best(Channel::Stream, alive)).unwrap();
                assert_eq!(model.drain().unwrap(), [], "an answer to an answer would never end");
            }
        }
        let follows = model.node.standing(model.now) == Standing::Following(NodeId(9));
        assert_eq!(follows, streams, "{:?}", model.node.standing(model.now));
    }
}

#[test]
fn a_leader_shows_itself_to_who_follows_it() {
    let mut model = acting_leader();
    let (role, priority, index, last) = PEERS[2];
    let claim = Claim { priority: Priority(priority), index: ProcessingIndex(index), stands: true };
    let message = Message::Present { following: true, epoch: Some(Epoch(1)) };
    let present = Frame { from: origin(role, priority, last), via: Channel::Stream, claim, message };
    model.node.on_message(model.now, &present).unwrap();
    let alive = Message::LeaderAlive { round: model.node.round(), epoch: Some(Epoch(1)) };
    assert_eq!(model.drain().unwrap(), [(address(last), alive)]);
}

#[test]
fn a_datagram_neither_mutes_a_node_nor_moves_it() {
    let request = Message::LeaderRequest { round: ROUND };
    let later = |sequence| {
        let mut frame = of_best(Channel::Datagram { sequence }, request);
        frame.from.boot = Boot(u64::MAX);
        frame
    };
    let stream = of_best(Channel::Stream, Message::Victory { round: ROUND, epoch: None });
    let mut model = Model::new(Role::Eligible);
    model.node.on_message(model.now, &later(1)).unwrap();
    model.node.on_message(model.now, &stream).expect("what a datagram said first does not bind");
    assert_eq!(model.node.on_message(model.now, &later(2)), Err(Refusal::LaterLife));
    model.node.on_message(model.now, &stream).expect("the datagram has changed nothing");
    model.drain().unwrap();
    let mut beat = of_best(Channel::Datagram { sequence: 1 }, Message::LeaderAlive { round: ROUND, epoch: None });
    beat.from.address = address(66);
    model.node.on_message(model.now, &beat).unwrap();
    let answers = model.drain().unwrap();
    assert!(!answers.is_empty() && answers.iter().all(|(to, _)| *to == address(9)), "{answers:?}");
    let mut restarted = stream;
    restarted.from.boot = Boot(2);
    model.node.on_message(model.now, &restarted).expect("a stream shows that it was restarted");
}
