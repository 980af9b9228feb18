//! The feeds beside a model that keeps everything in one list and looks through all of it, in the words of the rules.

mod opening;

use proptest::prelude::*;
use std::time::Duration;
use weir_core::feeds::{
    Arrival, Dispatch, InForce, Limits, Load, Message, MessageId, Mg1, Objective, Placed, Plan, Served, Service,
    SizeTable, Strategy as How, WorkerId, evaluate,
};
use weir_core::mutant::{Mutant, plant};
use weir_core::time::Instant;

#[derive(Clone, Debug)]
enum Op {
    Arrive { size: u64, expected_ns: u64 },
    Free { worker: usize },
    Pass { ns: u64 },
    Withdraw { nth: usize },
    Retune { limits: Vec<u64> },
    PutInForce { in_force: InForce },
}

#[derive(Clone, Debug)]
struct Setup {
    plan: Plan,
    workers: Vec<usize>,
    waiting_max: usize,
    processors: usize,
}

/// One waiting message of the model. `feed`: the one it chose (not for shortest first).
#[derive(Clone, Debug)]
struct Waits {
    message: Message,
    arrived: u64,
    feed: usize,
}

struct Model {
    setup: Setup,
    /// The feed of each worker, and when its scan should end.
    workers: Vec<(usize, Option<u64>)>,
    /// In the order of arrival.
    waiting: Vec<Waits>,
    /// Workers whose message went before all smaller ones.
    overdue: Vec<bool>,
    in_force: InForce,
}

impl Model {
    fn new(setup: &Setup) -> Model {
        let workers: Vec<_> = setup.workers.iter().enumerate().flat_map(|(feed, n)| vec![(feed, None); *n]).collect();
        let overdue = vec![false; workers.len()];
        Model { setup: setup.clone(), workers, waiting: Vec::new(), overdue, in_force: InForce::All }
    }

    fn limits(&self) -> &[u64] {
        self.setup.plan.limits.bytes()
    }

    /// Whether a feed may scan this size at all, under the strategies that share work.
    fn may(&self, feed: usize, size: u64) -> bool {
        // Several workers share a processor, and one would be idle.
        let busy = self.workers.iter().filter(|worker| worker.1.is_some()).count();
        let shared = self.setup.plan.strategy == How::Shortest && self.workers.len() > self.setup.processors;
        if shared && busy < self.setup.processors {
            return true;
        }
        let last = self.limits().len();
        let largest = self.limits().last().is_some_and(|limit| size > *limit);
        if let InForce::Kept(kept) = self.in_force {
            return feed >= kept.min(last) || !self.is_above_all_limits(size);
        }
        match feed == last {
            _ if self.in_force == InForce::Nothing => true,
            true => largest || self.setup.plan.last_feed_helps,
            false => size <= self.limits()[feed],
        }
    }

    fn is_above_all_limits(&self, size: u64) -> bool {
        let mut limits = self.limits().iter().filter(|limit| **limit < Limits::UNLIMITED).peekable();
        limits.peek().is_some() && limits.all(|limit| size > *limit)
    }

    fn class(&self, size: u64) -> usize {
        (0..self.limits().len()).find(|k| size <= self.limits()[*k]).unwrap_or(self.limits().len())
    }

    fn empty_at(&self, feed: usize, now: u64) -> u64 {
        let own: Vec<_> = self.workers.iter().filter(|w| w.0 == feed).collect();
        let running: u64 = own.iter().filter_map(|w| w.1).map(|end| end.abs_diff(now)).sum();
        let queued: u64 =
            self.waiting.iter().filter(|w| w.feed == feed).map(|w| w.message.expected.as_nanos() as u64).sum();
        now + (running + queued) / own.len() as u64
    }

    fn arrive(&mut self, message: Message, arrived: u64, now: u64) -> Placed {
        if self.waiting.iter().any(|w| w.message.id == message.id) {
            return Placed::Known;
        }
        let feeds: Vec<usize> = (0..self.setup.workers.len()).filter(|f| self.may(*f, message.size)).collect();
        let idle_in = |feed: usize| self.workers.iter().position(|w| *w == (feed, None));
        let class = self.class(message.size);
        let (feed, idle) = match self.setup.plan.strategy {
            How::Size if self.in_force == InForce::All => (class, idle_in(class)),
            How::Size | How::SizeLoad => {
                let soonest = feeds.iter().map(|f| self.empty_at(*f, now)).min().unwrap();
                let feed = *feeds.iter().find(|f| self.empty_at(**f, now) == soonest).unwrap();
                (feed, idle_in(feed))
            }
            How::Shortest => {
                // Those kept for smaller mail come last; there are none while the limits hold.
                let (kept, fit): (Vec<usize>, Vec<usize>) = feeds.iter().partition(|f| **f < class);
                (class, fit.iter().chain(kept.iter().rev()).find_map(|f| idle_in(*f)))
            }
        };
        if let Some(worker) = idle {
            self.workers[worker].1 = Some(now + message.expected.as_nanos() as u64);
            return Placed::Started(WorkerId(worker));
        }
        if self.waiting.len() >= self.setup.waiting_max {
            return Placed::Full;
        }
        self.waiting.push(Waits { message, arrived, feed });
        Placed::Waits(feed)
    }

    fn free(&mut self, worker: usize, now: u64) -> Option<(Message, u64)> {
        let feed = self.workers.get(worker)?.0;
        self.workers[worker].1 = None;
        self.overdue[worker] = false;
        let still =
            |(overdue, worker): (&bool, &(usize, Option<u64>))| *overdue && worker.1.is_some_and(|end| end >= now);
        let one_has_it = self.overdue.iter().zip(&self.workers).any(still);
        let age_bound = self.setup.plan.age_bound.as_nanos() as u64;
        let mine = |w: &&Waits| match self.setup.plan.strategy {
            How::Size | How::SizeLoad => w.feed == feed,
            How::Shortest => self.may(feed, w.message.size),
        };
        let first = self.waiting.iter().find(mine)?;
        let shortest = self.setup.plan.strategy == How::Shortest;
        let overdue = !shortest || (now - first.arrived >= age_bound && !one_has_it);
        let smallest = self.waiting.iter().filter(mine).min_by_key(|w| w.message.size)?;
        let id = if overdue { first.message.id } else { smallest.message.id };
        let place = self.waiting.iter().position(|w| w.message.id == id)?;
        self.overdue[worker] = shortest && overdue;
        let Waits { message, arrived, .. } = self.waiting.remove(place);
        self.workers[worker].1 = Some(now + message.expected.as_nanos() as u64);
        Some((message, now - arrived))
    }

    fn retune(&mut self, limits: &Limits, now: u64) -> Vec<(WorkerId, MessageId)> {
        self.setup.plan.limits = limits.clone();
        self.place_anew(now)
    }

    fn put_in_force(&mut self, in_force: InForce, now: u64) -> Vec<(WorkerId, MessageId)> {
        if self.in_force == in_force {
            return Vec::new();
        }
        self.in_force = in_force;
        self.place_anew(now)
    }

    fn place_anew(&mut self, now: u64) -> Vec<(WorkerId, MessageId)> {
        let waiting = std::mem::take(&mut self.waiting);
        let placed = waiting.into_iter().map(|w| (w.message.id, self.arrive(w.message, w.arrived, now)));
        placed.filter_map(|(id, p)| if let Placed::Started(worker) = p { Some((worker, id)) } else { None }).collect()
    }
}

fn same<T: PartialEq + std::fmt::Debug>(step: usize, op: &Op, real: &T, model: &T) -> Result<(), String> {
    if real == model { Ok(()) } else { Err(format!("step {step}, {op:?}: {real:?}, but by the rules {model:?}")) }
}

/// The live dispatch and the model give the same answers to the same operations.
fn check(setup: &Setup, ops: &[Op]) -> Result<(), String> {
    let mut real = Dispatch::new(setup.plan.clone(), &setup.workers, setup.waiting_max)
        .map_err(|e| e.to_string())?
        .sharing(setup.processors);
    let mut model = Model::new(setup);
    let mut now = 0;
    for (step, op) in ops.iter().enumerate() {
        let at = Instant(now);
        match op {
            Op::Arrive { size, expected_ns } => {
                // Names come back now and then, so that a message that is known is offered again.
                let id = MessageId(if step % 7 == 6 { step as u64 - 1 } else { step as u64 });
                let message = Message { id, size: *size, expected: Duration::from_nanos(*expected_ns) };
                same(step, op, &real.arrive(message, at), &model.arrive(message, now, now))?;
            }
            Op::Free { worker } => {
                let next = real.free(WorkerId(*worker), at).map(|s| (s.message, s.waited.as_nanos() as u64));
                same(step, op, &next, &model.free(*worker, now))?;
            }
            Op::Pass { ns } => now += ns,
            Op::Withdraw { nth } => {
                let id = model.waiting.get(*nth).map_or(MessageId(u64::MAX), |w| w.message.id);
                same(step, op, &real.withdraw(id), &(id != MessageId(u64::MAX)))?;
                model.waiting.retain(|w| w.message.id != id);
            }
            Op::Retune { limits } => {
                let limits = Limits::new(limits.clone()).map_err(|e| e.to_string())?;
                let started = real.retune(limits.clone(), at).map_err(|e| e.to_string())?;
                let started: Vec<_> = started.iter().map(|s| (s.worker, s.message.id)).collect();
                same(step, op, &started, &model.retune(&limits, now))?;
            }
            Op::PutInForce { in_force } => {
                let started = real.put_in_force(*in_force, at);
                let started: Vec<_> = started.iter().map(|s| (s.worker, s.message.id)).collect();
                same(step, op, &started, &model.put_in_force(*in_force, now))?;
            }
        }
        same(step, op, &real.waiting(), &model.waiting.len())?;
    }
    Ok(())
}

/// A trace gives each message the same feed and wait as the model with one worker a feed.
fn check_trace(plan: &Plan, arrivals: &[Arrival]) -> Result<(), String> {
    let service = Service::new(2e-9, 1e-9).ok_or("service")?;
    let mut traced = Vec::new();
    evaluate(arrivals.iter().copied(), &service, plan, |s: Served| traced.push((s.size, s.feed, s.wait_ns)));
    let feeds = plan.limits.feeds();
    let mut model =
        Model::new(&Setup { plan: plan.clone(), workers: vec![1; feeds], waiting_max: usize::MAX, processors: feeds });
    let mut expected = Vec::new();
    let end_of_time = Arrival { at: Instant(1 << 40), size: 0 };
    for (i, arrival) in arrivals.iter().chain([&end_of_time]).enumerate() {
        while let Some((end, worker)) =
            model.workers.iter().enumerate().filter_map(|(i, w)| Some((w.1?, i))).min().filter(|w| w.0 <= arrival.at.0)
        {
            if let Some((message, wait)) = model.free(worker, end) {
                expected.push((message.size, worker, wait));
            }
        }
        if i < arrivals.len() {
            let service = Duration::from_nanos(service.time_ns(arrival.size));
            let message = Message { id: MessageId(i as u64), size: arrival.size, expected: service };
            if let Placed::Started(worker) = model.arrive(message, arrival.at.0, arrival.at.0) {
                expected.push((arrival.size, worker.0, 0));
            }
        }
    }
    traced.sort_unstable();
    expected.sort_unstable();
    if traced == expected { Ok(()) } else { Err(format!("{plan:?}\ntrace {traced:?}\nrules {expected:?}")) }
}

fn limits(feeds: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..12u64, feeds - 1).prop_map(|mut limits| {
        limits.sort_unstable();
        limits
    })
}

fn plans(feeds: usize) -> impl Strategy<Value = Plan> {
    let how = prop_oneof![Just(How::Size), Just(How::SizeLoad), Just(How::Shortest)];
    (limits(feeds), how, any::<bool>(), 0..40u64).prop_map(|(bytes, strategy, last_feed_helps, age)| {
        let age_bound = if age < 30 { Duration::from_nanos(age) } else { Duration::MAX };
        Plan { last_feed_helps, age_bound, ..Plan::new(Limits::new(bytes).unwrap(), strategy) }
    })
}

fn setups() -> impl Strategy<Value = (Setup, Vec<Op>)> {
    (2..6usize).prop_flat_map(|feeds| {
        let setup = (plans(feeds), prop::collection::vec(1..3usize, feeds), 0..20usize, 1..6usize)
            .prop_map(|(plan, workers, waiting_max, processors)| Setup { plan, workers, waiting_max, processors });
        let op = prop_oneof![
            6 => (0..14u64, 0..9u64).prop_map(|(size, expected_ns)| Op::Arrive { size, expected_ns }),
            4 => (0..feeds * 2 + 1).prop_map(|worker| Op::Free { worker }),
            4 => (0..5u64).prop_map(|ns| Op::Pass { ns }),
            1 => (0..6usize).prop_map(|nth| Op::Withdraw { nth }),
            1 => limits(feeds).prop_map(|limits| Op::Retune { limits }),
            1 => prop::sample::select(&[InForce::Nothing, InForce::Kept(1), InForce::Kept(2), InForce::All][..])
                .prop_map(|in_force| Op::PutInForce { in_force }),
        ];
        (setup, prop::collection::vec(op, 0..200))
    })
}

fn traces() -> impl Strategy<Value = (Plan, Vec<Arrival>)> {
    let gaps = prop::collection::vec((0..8u64, 0..14u64), 0..200);
    ((2..6usize).prop_flat_map(plans), gaps).prop_map(|(plan, gaps)| (plan, arrivals(gaps)))
}

fn arrivals(gaps: impl IntoIterator<Item = (u64, u64)>) -> Vec<Arrival> {
    let mut at = 0;
    let arrival = |(gap, size): (u64, u64)| {
        at += gap;
        Arrival { at: Instant(at), size }
    };
    gaps.into_iter().map(arrival).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_dispatch_follows_the_rules((setup, ops) in setups()) {
        check(&setup, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_trace_follows_the_rules((plan, arrivals) in traces()) {
        check_trace(&plan, &arrivals).map_err(TestCaseError::fail)?;
    }
}

/// SplitMix64, for the tests that must be the same every time.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

fn seeded_run(seed: u64) -> (Setup, Vec<Op>) {
    let mut draws = Draws(seed);
    let plan = Plan::new(Limits::new(vec![3, 6, 9]).unwrap(), How::SizeLoad);
    let ops = (0..60).map(|_| match draws.below(3) {
        0 => Op::Arrive { size: draws.below(12), expected_ns: draws.below(9) },
        1 => Op::Free { worker: draws.below(4) as usize },
        _ => Op::Pass { ns: draws.below(5) },
    });
    (Setup { plan, workers: vec![1; 4], waiting_max: 50, processors: 4 }, ops.collect())
}

#[test]
fn the_planted_bug_is_found() {
    let seeds = 1..=20;
    let found = |check: &dyn Fn(u64) -> Result<(), String>| {
        assert!(seeds.clone().all(|seed| check(seed).is_ok()), "without the bug all is well");
        let _planted = plant(Mutant::FeedsTiesToHighest);
        assert!(seeds.clone().any(|seed| check(seed).is_err()), "ties to the highest feed went unnoticed");
    };
    found(&|seed| {
        let (setup, ops) = seeded_run(seed);
        check(&setup, &ops)
    });
    found(&|seed| {
        let mut draws = Draws(seed);
        let gaps: Vec<(u64, u64)> = (0..60).map(|_| (draws.below(8), draws.below(12))).collect();
        check_trace(&seeded_run(seed).0.plan, &arrivals(gaps))
    });
}

#[test]
fn the_formula_agrees_with_the_simulation() {
    let mut draws = Draws(11);
    let draw_size = |draws: &mut Draws| 100 + (9_900.0 * draws.unit() * draws.unit()) as u64;
    let sizes: Vec<u64> = (0..200_000).map(|_| draw_size(&mut draws)).collect();
    let table = SizeTable::new(&sizes).unwrap();
    let load = Load { lambda_per_s: 1.6, service: Service::new(0.1, 0.0003).unwrap() };
    let plan = Plan::new(Limits::new(vec![1200, 3000, 8000]).unwrap(), How::Size);
    let mut at = 0.0;
    let trace = (0..2_000_000).map(|_| {
        at -= draws.unit().ln() / load.lambda_per_s;
        Arrival { at: Instant::from_secs_f64(at), size: draw_size(&mut draws) }
    });
    let mut waits = vec![(0u64, 0.0); 4];
    evaluate(trace.collect::<Vec<_>>(), &load.service, &plan, |s| {
        waits[s.feed].0 += 1;
        waits[s.feed].1 += s.wait_ns as f64 / 1e9;
    });
    let feeds = Mg1::new(&table, load).feeds(&plan.limits);
    for (feed, (count, total)) in feeds.iter().zip(&waits) {
        let simulated = total / *count as f64;
        assert!((feed.fraction / (*count as f64 / 2e6) - 1.0).abs() < 0.05, "{feed:?} {count}");
        assert!((feed.wait_s / simulated - 1.0).abs() < 0.08, "{feed:?}, simulated {simulated}");
    }
    let total: f64 = waits[..3].iter().map(|w| w.1).sum::<f64>() / 2e6;
    let formula = Mg1::new(&table, load).mean_wait_s(&plan.limits, &Objective::default());
    assert!((formula / total - 1.0).abs() < 0.03, "formula {formula}, simulated {total}");
}

#[test]
fn an_age_bound_keeps_large_messages_moving() {
    // Small mail keeps the one worker busy for ever; one large message comes first of all.
    let small = (1..2000).map(|i| Arrival { at: Instant(i * 5 - 1), size: 3 });
    let arrivals: Vec<Arrival> =
        [Arrival { at: Instant(0), size: 3 }, Arrival { at: Instant(1), size: 9 }].into_iter().chain(small).collect();
    let service = Service::new(2e-9, 1e-9).unwrap();
    let wait_of_large = |age_bound| {
        let plan = Plan { age_bound, ..Plan::new(Limits::new(vec![9]).unwrap(), How::Shortest) };
        let mut wait = 0;
        evaluate(arrivals.iter().copied(), &service, &plan, |s| wait = if s.size == 9 { s.wait_ns } else { wait });
        wait
    };
    assert!(wait_of_large(Duration::MAX) > 9_000, "without a bound it waits till the end");
    assert!(wait_of_large(Duration::from_nanos(100)) <= 105);
}
