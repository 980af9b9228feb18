//! Tests with several links and their schedulers, on a simulated network that loses, repeats and reorders frames, with a clock that the
//! tests control.

use super::*;
use crate::identity::{Secret, Settings};
use std::collections::BTreeMap;
use std::sync::Mutex;
use weir_core::fair::{self, Fair, PeerId, SessionKey, SubnetKey, Work};

const MS: u64 = 1_000_000;

fn secret() -> Secret {
    Secret::new(b"a secret of some length").unwrap()
}

/// A scheduler behind a lock, as admission has it; and what it was told.
struct TestQueue {
    fair: Mutex<Fair>,
    adopted: Mutex<u32>,
}

impl TestQueue {
    fn new() -> Arc<TestQueue> {
        let fair = Fair::new(fair::Settings { slots: 1, ..fair::Settings::default() }, Profile::default());
        Arc::new(TestQueue { fair: Mutex::new(fair), adopted: Mutex::new(0) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Fair) -> T) -> T {
        act(&mut self.fair.lock().unwrap())
    }
}

impl SharedQueue for TestQueue {
    fn id(&self) -> QueueId {
        QueueId(1)
    }

    fn drain(&self, most: usize, out: &mut Vec<Report>) {
        self.with(|fair| out.extend(std::iter::from_fn(|| fair.next_report()).take(most)));
    }

    fn hear(&self, peer: PeerId, number: u64, report: &Report) {
        let _ = self.with(|fair| fair.hear(peer, number, report));
    }

    fn forget_peer(&self, peer: PeerId) {
        self.with(|fair| fair.forget_peer(peer));
    }

    fn report_all(&self) {
        self.with(Fair::report_all);
    }

    fn adopt(&self, profile: &Arc<Profile>) {
        *self.adopted.lock().unwrap() += 1;
        self.with(|fair| fair.set_profile((**profile).clone()));
    }
}

struct Node {
    link: Link,
    queue: Arc<TestQueue>,
    alive: bool,
}

impl Node {
    fn new(front_end: u64, incarnation: u64) -> Node {
        let identities = Identities::new(&Settings::default(), &secret()).unwrap();
        let mut link = Link::new(Origin { front_end, incarnation }, secret().hmac_key("frames"), identities, 8);
        let queue = TestQueue::new();
        link.set_queues(vec![Arc::clone(&queue) as Arc<dyn SharedQueue>]);
        Node { link, queue, alive: true }
    }
}

/// Frames on their way to everybody but the sender.
struct World {
    nodes: Vec<Node>,
    flying: BTreeMap<(u64, u64), (usize, Bytes)>,
    now: u64,
    dice: u64,
    loss: f64,
    jumble: bool,
    up: bool,
}

impl World {
    fn new(nodes: u64, loss: f64, jumble: bool, seed: u64) -> World {
        let nodes = (0..nodes).map(|i| Node::new(i + 1, 1)).collect();
        World { nodes, flying: BTreeMap::new(), now: 0, dice: seed, loss, jumble, up: true }
    }

    fn roll(&mut self, most: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % most
    }

    fn moment(&self) -> Moment {
        Moment { now: Instant(self.now), wall_us: 1_000_000 + self.now / 1000 }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            let moment = self.moment();
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, frame) = entry.remove();
                if self.nodes[to].alive {
                    self.nodes[to].link.hear(&frame, moment);
                }
            }
            for from in 0..self.nodes.len() {
                if self.nodes[from].alive && self.now.is_multiple_of(5 * MS) {
                    self.nodes[from].link.tick(moment);
                }
                while let Some(frame) = self.nodes[from].link.next_frame() {
                    self.post(from, &frame);
                }
            }
        }
    }

    fn post(&mut self, from: usize, frame: &Bytes) {
        for to in (0..self.nodes.len()).filter(|to| *to != from) {
            let lost = self.roll(1000) < (self.loss * 1000.0) as u64;
            let copies = if self.jumble { 1 + self.roll(2) } else { 1 };
            for _ in 0..copies {
                let delay = if self.jumble { self.roll(30) } else { 1 };
                if self.up && !lost {
                    let order = self.roll(1 << 30);
                    self.flying.insert((self.now + delay * MS, order), (to, frame.clone()));
                }
            }
        }
    }

    fn active(&self, node: usize, subnet: u64) -> u32 {
        self.nodes[node].queue.with(|fair| fair.active(SubnetKey(subnet)))
    }

    fn debt(&self, node: usize, session: u64) -> u64 {
        self.nodes[node].queue.with(|fair| fair.standing(SessionKey(session)).map_or(0, |standing| standing.debt.0))
    }
}

/// Everybody keeps one session waiting, so that tags do not return to zero; others are served here and there.
fn busy_world(loss: f64, jumble: bool, seed: u64) -> World {
    let mut world = World::new(3, loss, jumble, seed);
    for node in 0..3 {
        world.nodes[node].queue.with(|fair| {
            let cost = Work(1_000_000);
            fair.arrive(SessionKey(1000 + node as u64), SubnetKey(100 + node as u64), cost).unwrap();
            fair.dispatch().unwrap();
            for _ in 0..3 {
                fair.arrive(SessionKey(1000 + node as u64), SubnetKey(100 + node as u64), cost).unwrap();
            }
        });
    }
    world.run(400);
    world
}

fn news_everywhere(loss: f64, jumble: bool, seed: u64) {
    let mut world = busy_world(loss, jumble, seed);
    for session in 0..40u64 {
        let node = (session % 3) as usize;
        world.nodes[node]
            .queue
            .with(|fair| fair.arrive(SessionKey(session), SubnetKey(session / 10), Work(1_000_000)).unwrap());
        world.run(7);
    }
    world.run(1500);
    for node in 0..3 {
        for subnet in 0..4 {
            assert_eq!(world.active(node, subnet), 10, "node {node}, subnet {subnet}, seed {seed}");
        }
    }
}

#[test]
fn everybody_knows_who_is_active() {
    news_everywhere(0.0, false, 1);
    (0..5).for_each(|seed| news_everywhere(0.2, true, seed));
    (0..3).for_each(|seed| news_everywhere(0.6, true, seed));
}

#[test]
fn a_quiet_exchange_asks_for_nothing() {
    let mut world = busy_world(0.0, false, 1);
    let before = world.nodes[0].link.status(Instant(world.now)).counters;
    world.run(3000);
    let after = world.nodes[0].link.status(Instant(world.now)).counters;
    assert_eq!((before.snapshots, before.frames_repeated), (after.snapshots, after.frames_repeated));
    assert!(after.frames_sent - before.frames_sent <= 31, "only signs of life");
}

#[test]
fn service_elsewhere_is_charged_once_however_often_it_is_told() {
    for (loss, jumble, seed) in [(0.0, false, 1), (0.3, true, 2), (0.3, true, 3)] {
        let mut world = busy_world(loss, jumble, seed);
        let (session, subnet) = (SessionKey(7), SubnetKey(77));
        let arrive = |world: &World, node: usize| {
            world.nodes[node].queue.with(|fair| fair.arrive(session, subnet, Work(1_000_000)).unwrap());
        };
        (0..2).for_each(|node| arrive(&world, node));
        world.run(600);
        assert_eq!(world.debt(0, 7), 0);
        let virtual_time = world.nodes[0].queue.with(|fair| fair.virtual_time());
        // Node 1 lets what runs end and serves the session until three of its requests are done.
        world.nodes[1].queue.with(|fair| {
            for _ in 0..3 {
                fair.arrive(session, subnet, Work(1_000_000)).unwrap();
            }
            fair.set_slots(100);
            while fair.dispatch().is_some() {}
        });
        let served = world.nodes[1].queue.with(|fair| fair.standing(session).unwrap().served);
        world.run(1500);
        assert_eq!(world.nodes[0].queue.with(|fair| fair.virtual_time()), virtual_time, "nothing was dispatched here");
        assert_eq!((world.debt(0, 7), served), (served.0, Work(4_000_000)), "seed {seed}");
    }
}

#[test]
fn the_dead_are_forgotten_after_two_seconds_and_a_new_life_counts_at_once() {
    let mut world = busy_world(0.0, false, 1);
    world.nodes[1].queue.with(|fair| fair.arrive(SessionKey(7), SubnetKey(0), Work(1)).unwrap());
    world.run(100);
    assert_eq!(world.active(0, 0), 1);
    world.nodes[1].alive = false;
    world.run(1900);
    assert_eq!(world.active(0, 0), 1, "slow is not dead");
    world.run(200);
    assert_eq!(world.active(0, 0), 0);
    assert_eq!(world.nodes[0].link.status(Instant(world.now)).peers.len(), 1);
    world.nodes[1] = Node::new(2, 2);
    world.nodes[1].queue.with(|fair| fair.arrive(SessionKey(8), SubnetKey(0), Work(1)).unwrap());
    world.run(300);
    assert_eq!(world.active(0, 0), 1);
    world.nodes[1] = Node::new(2, 3);
    world.run(300);
    assert_eq!(world.active(0, 0), 0, "a new life replaces the old without waiting");
}

#[test]
fn who_was_asleep_himself_forgets_nobody() {
    let mut world = busy_world(0.0, false, 1);
    world.nodes[0].alive = false;
    world.run(1500);
    world.nodes[1].alive = false;
    world.nodes[2].alive = false;
    world.run(10_000);
    world.nodes.iter_mut().for_each(|node| node.alive = true);
    world.run(300);
    let forgotten = world.nodes.iter().map(|node| node.link.status(Instant(world.now)).counters.peers_forgotten);
    assert_eq!(forgotten.collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn an_outage_heals_whether_short_or_long() {
    for outage in [1000, 5000] {
        let mut world = busy_world(0.0, false, 1);
        world.up = false;
        world.nodes[1].queue.with(|fair| fair.arrive(SessionKey(7), SubnetKey(0), Work(1)).unwrap());
        world.run(outage);
        assert_eq!(world.active(0, 0), 0);
        world.up = true;
        world.run(500);
        assert_eq!((world.active(0, 0), world.active(2, 0)), (1, 1), "after {outage} ms");
        world.run(2000);
        assert_eq!(world.nodes[0].link.status(Instant(world.now)).alarms, []);
    }
}

#[test]
fn old_frames_sent_again_by_a_stranger_do_nothing() {
    let mut world = busy_world(0.0, false, 1);
    let mut kept = Vec::new();
    for _ in 0..200 {
        world.run(1);
        kept.extend(world.flying.values().filter(|(to, _)| *to == 0).map(|(_, frame)| frame.clone()));
    }
    world.nodes[1].alive = false;
    world.nodes[2].alive = false;
    world.run(2500);
    assert_eq!(world.nodes[0].link.status(Instant(world.now)).peers.len(), 0);
    let moment = world.moment();
    kept.iter().for_each(|frame| world.nodes[0].link.hear(frame, moment));
    assert_eq!(world.nodes[0].link.status(Instant(world.now)).peers.len(), 0);
    assert_eq!(world.active(0, 101), 0);
}

#[test]
fn strangers_namesakes_and_crowds_raise_alarms_and_nothing_else() {
    let mut world = busy_world(0.0, false, 1);
    let moment = world.moment();
    let beat = |front_end, incarnation, key: &str| {
        let header = Header { origin: Origin { front_end, incarnation }, number: 0, sent_us: 9_000_000 };
        Frame { header, body: Body::Heartbeat(Heartbeat::default()) }.encode(&secret().hmac_key(key))
    };
    let link = &mut world.nodes[0].link;
    link.hear(&beat(9, 1, "other frames"), moment);
    link.hear(&Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n"), moment);
    link.hear(&beat(1, 7, "frames"), moment);
    (10..1000).for_each(|front_end| link.hear(&beat(front_end, 1, "frames"), moment));
    let status = link.status(moment.now);
    assert_eq!(status.alarms, [Alarm::Namesake, Alarm::Crowded, Alarm::Forged]);
    assert_eq!((status.peers.len(), status.counters.frames_malformed, status.counters.frames_forged), (8, 1, 1));
    assert_eq!(link.status(moment.now + Duration::from_secs(11)).alarms, []);
}

#[test]
fn an_earlier_life_that_goes_on_raises_an_alarm() {
    let mut node = Node::new(1, 1);
    let beat = |incarnation, ms: u64| {
        let header = Header { origin: Origin { front_end: 9, incarnation }, number: 0, sent_us: ms * 1_000 + 1 };
        Frame { header, body: Body::Heartbeat(Heartbeat::default()) }.encode(&secret().hmac_key("frames"))
    };
    let moment = |ms: u64| Moment { now: Instant(ms * MS), wall_us: ms * 1_000 };
    let alarms = |node: &Node, ms| node.link.status(moment(ms).now).alarms;
    node.link.hear(&beat(7, 0), moment(0));
    // Frames of before that are late, or sent again by somebody.
    for ms in (0..8_000).step_by(100) {
        node.link.hear(&beat(5, ms % 300), moment(ms));
    }
    assert_eq!(alarms(&node, 8_000), []);
    for ms in (10_000..16_000).step_by(100) {
        node.link.hear(&beat(5, ms), moment(ms));
    }
    assert_eq!(alarms(&node, 16_000), [Alarm::EarlierLife]);
    assert_eq!(alarms(&node, 26_000), []);
}

#[test]
fn a_history_document_is_adopted_by_all_together() {
    for (loss, jumble) in [(0.0, false), (0.2, true)] {
        let mut world = busy_world(loss, jumble, 5);
        let counts = (0..3000u32).map(|i| {
            let network = crate::identity::Network::new(std::net::Ipv4Addr::from_bits(i << 8).into(), 24);
            (network, f64::from(i + 1))
        });
        let document = Document::new(4, 0, counts.collect(), crate::profile::Remainder::default());
        let moment = world.moment();
        world.nodes[2].link.put_document(document.text().into(), moment).unwrap();
        let mut switched = [None; 3];
        for _ in 0..600 {
            world.run(5);
            for (node, switched) in world.nodes.iter().zip(&mut switched) {
                let adopted = *node.queue.adopted.lock().unwrap() > 0;
                *switched = switched.or(adopted.then_some(world.now));
            }
        }
        let times = switched.map(|time| time.expect("adopted"));
        let spread = times.iter().max().unwrap() - times.iter().min().unwrap();
        assert!(spread <= 500 * MS, "switched within {} ms", spread / MS);
        for node in &mut world.nodes {
            assert_eq!(node.link.take_adopted().as_deref(), Some(&document));
            assert_eq!(node.link.uses().version, 4);
        }
        // One has the turn at a time, and if it is missed each of the others has it.
        let turn =
            |missed: u64| -> Vec<usize> { (0..3).filter(|node| world.nodes[*node].link.has_turn(5, missed)).collect() };
        let mut turns = [turn(0), turn(1), turn(2)].concat();
        turns.sort_unstable();
        assert_eq!((turns, turn(3)), (vec![0, 1, 2], turn(0)));
    }
}

#[test]
fn one_that_never_gets_the_document_holds_nobody_up_for_long() {
    let mut world = busy_world(0.0, false, 5);
    let network: crate::identity::Network = "192.0.2.0/24".parse().unwrap();
    let document = Document::new(4, 0, [(network, 1.0)].into(), crate::profile::Remainder::default());
    // It lives, but what it hears does not reach it.
    let moment = world.moment();
    world.nodes[0].link.put_document(document.text().into(), moment).unwrap();
    for _ in 0..24_000 {
        world.run(1);
        world.flying.retain(|_, (to, _)| *to != 2);
    }
    assert_eq!(world.nodes[0].link.uses().version, 4);
    assert_eq!(world.nodes[1].link.uses().version, 4);
    assert_eq!(world.nodes[2].link.uses().version, 0);
    assert_eq!(world.nodes[0].link.status(Instant(world.now)).alarms, [Alarm::HistoryDiffers]);
}

#[test]
fn whatever_there_is_to_tell_the_outbox_is_bounded() {
    let mut world = World::new(1, 0.0, false, 1);
    world.nodes[0].queue.with(|fair| {
        for session in 1..=20_000u64 {
            let key = session.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fair.arrive(SessionKey(key), SubnetKey(key >> 20), Work(1)).unwrap();
        }
    });
    let moment = world.moment();
    let Node { link, queue, .. } = &mut world.nodes[0];
    for _ in 0..10 {
        queue.report_all();
        (0..20).for_each(|_| link.tick(moment));
    }
    assert_eq!(link.outbox.len(), OUTBOX_MAX);
    assert!(link.counters.frames_dropped > 0 && link.counters.reports_sent == 200_000);
}
