//! Compares the scheduler with a naive model, and applies the same check to schedulers that are broken on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn bounds() -> WindowBounds {
    WindowBounds { initial: 2, most: 4, pause_first: Duration::from_millis(50), pause_most: Duration::from_millis(400) }
}

/// What the check needs of a scheduler, so that it can be turned on broken ones. Parcels go by the model's numbers.
trait Machine {
    fn add(&mut self, id: u64, sender: u64, destination: u64, at: Instant, now: Instant);
    fn poll(&mut self, now: Instant) -> Option<(u64, u64)>;
    fn complete(&mut self, id: u64, then: Then, feedback: Feedback, now: Instant);
    fn remove(&mut self, id: u64) -> bool;
    fn hasten(&mut self, id: u64);
    fn next_deadline(&self) -> Option<Instant>;
}

/// The scheduler with the model's numbers.
struct Real {
    scheduler: Scheduler<u64>,
    ids: BTreeMap<u64, ParcelId>,
}

impl Real {
    fn new(bounds: WindowBounds) -> Real {
        Real { scheduler: Scheduler::new(MOST, bounds), ids: BTreeMap::new() }
    }
}

impl Machine for Real {
    fn add(&mut self, id: u64, sender: u64, destination: u64, at: Instant, now: Instant) {
        let parcel = self.scheduler.add(id, (SenderId(sender), DestinationId(destination)), at, now);
        self.ids.insert(id, parcel);
    }
    fn poll(&mut self, now: Instant) -> Option<(u64, u64)> {
        let (id, destination) = self.scheduler.poll(now)?;
        Some((*self.scheduler.load(id)?, destination.0))
    }
    fn complete(&mut self, id: u64, then: Then, feedback: Feedback, now: Instant) {
        self.scheduler.complete(self.ids[&id], then, feedback, now);
    }
    fn remove(&mut self, id: u64) -> bool {
        self.scheduler.remove(self.ids[&id]).is_some()
    }
    fn hasten(&mut self, id: u64) {
        self.scheduler.hasten(self.ids[&id]);
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.scheduler.next_deadline()
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Add { sender: u64, destination: u64, delay_ms: u64 },
    Poll,
    Complete { which: usize, then: u8, feedback: u8 },
    Remove { which: usize },
    Hasten { which: usize },
    Wait { ms: u64 },
}

/// What the model knows of a parcel.
#[derive(Clone, Copy, Debug)]
struct Known {
    destination: u64,
    not_before: Instant,
    under_way: bool,
}

const MOST: usize = 6;

/// Runs the operations, then heals the world and demands that everything ends. The rules: nothing goes twice or before
/// its time, no bound is exceeded, in the end nothing is left and nobody had to wait for ever.
fn check(machine: &mut impl Machine, operations: &[Operation]) -> Result<(), String> {
    let mut now = at(1);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let mut next = 0;
    for operation in operations {
        match *operation {
            Operation::Add { sender, destination, delay_ms } => {
                let not_before = now + Duration::from_millis(delay_ms);
                machine.add(next, sender, destination, not_before, now);
                known.insert(next, Known { destination, not_before, under_way: false });
                next += 1;
            }
            Operation::Poll => drop(start(machine, &mut known, now)?),
            Operation::Complete { which, then, feedback } => {
                complete(machine, &mut known, now, (which, then, feedback));
            }
            Operation::Remove { which } => {
                let Some((id, parcel)) = known.iter().nth(which % known.len().max(1)).map(|(id, p)| (*id, *p)) else {
                    continue;
                };
                if machine.remove(id) == parcel.under_way {
                    return Err(format!("parcel {id}: removed although it is under way, or not although it is not"));
                }
                if !parcel.under_way {
                    known.remove(&id);
                }
            }
            Operation::Hasten { which } => {
                let Some((id, parcel)) = known.iter_mut().nth(which % next.max(1) as usize) else { continue };
                machine.hasten(*id);
                parcel.not_before = parcel.not_before.min(now);
            }
            Operation::Wait { ms } => now += Duration::from_millis(ms),
        }
    }
    drain(machine, &mut known, now)
}

fn start(machine: &mut impl Machine, known: &mut BTreeMap<u64, Known>, now: Instant) -> Result<Option<u64>, String> {
    let Some((id, destination)) = machine.poll(now) else { return Ok(None) };
    let parcel = known.get_mut(&id).ok_or(format!("parcel {id} goes although it is gone"))?;
    if parcel.under_way || parcel.not_before > now || parcel.destination != destination {
        return Err(format!("parcel {id} goes twice, too early or elsewhere"));
    }
    parcel.under_way = true;
    let under_way = known.values().filter(|parcel| parcel.under_way).count();
    let there = known.values().filter(|parcel| parcel.under_way && parcel.destination == destination).count();
    if under_way > MOST || there > bounds().most as usize {
        return Err(format!("{under_way} under way, {there} of them to one destination"));
    }
    Ok(Some(id))
}

fn complete(
    machine: &mut impl Machine,
    known: &mut BTreeMap<u64, Known>,
    now: Instant,
    (which, then, feedback): (usize, u8, u8),
) {
    let busy: Vec<u64> = known.iter().filter(|(_, parcel)| parcel.under_way).map(|(id, _)| *id).collect();
    let Some(id) = busy.get(which % busy.len().max(1)).copied() else { return };
    let feedback =
        [Feedback::Reached, Feedback::Reached, Feedback::Lost, Feedback::Unreachable][usize::from(feedback % 4)];
    let later = now + Duration::from_millis(30);
    let then = [Then::Gone, Then::Gone, Then::Later(later), Then::Again][usize::from(then % 4)];
    machine.complete(id, then, feedback, now);
    let Some(parcel) = known.get_mut(&id) else { return };
    parcel.under_way = false;
    match then {
        Then::Gone => drop(known.remove(&id)),
        Then::Later(at) => parcel.not_before = at,
        Then::Again => {}
    }
}

/// From here on every delivery succeeds: everything must go, by the deadlines that the machine itself names.
fn drain(machine: &mut impl Machine, known: &mut BTreeMap<u64, Known>, mut now: Instant) -> Result<(), String> {
    for _ in 0..20_000 {
        while start(machine, known, now)?.is_some() {}
        let busy: Vec<u64> = known.iter().filter(|(_, parcel)| parcel.under_way).map(|(id, _)| *id).collect();
        if busy.is_empty() {
            match machine.next_deadline() {
                Some(deadline) if deadline > now => now = deadline,
                Some(deadline) => return Err(format!("deadline {deadline:?} has come and nothing goes")),
                None if known.is_empty() => return Ok(()),
                None => return Err(format!("{} parcels are lost", known.len())),
            }
        }
        for id in busy {
            known.remove(&id);
            machine.complete(id, Then::Gone, Feedback::Reached, now);
        }
    }
    Err("it never ends".into())
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0u64..4, 0u64..3, prop_oneof![Just(0u64), 1u64..60]).prop_map(|(sender, destination, delay_ms)| Operation::Add { sender, destination, delay_ms }),
        5 => Just(Operation::Poll),
        4 => (any::<usize>(), any::<u8>(), any::<u8>()).prop_map(|(which, then, feedback)| Operation::Complete { which, then, feedback }),
        1 => any::<usize>().prop_map(|which| Operation::Remove { which }),
        1 => any::<usize>().prop_map(|which| Operation::Hasten { which }),
        1 => (1u64..80).prop_map(|ms| Operation::Wait { ms }),
    ]
}

proptest! {
    #[test]
    fn no_parcel_is_lost_doubled_or_early_and_no_bound_exceeded(operations in proptest::collection::vec(operation(), 0..300)) {
        let mut real = Real::new(bounds());
        check(&mut real, &operations).map_err(TestCaseError::fail)?;
        let scheduler = real.scheduler;
        prop_assert!(scheduler.parcels.is_empty() && scheduler.lanes.is_empty() && scheduler.timers.is_empty(), "{scheduler:?}");
        prop_assert!(scheduler.senders.is_empty() && scheduler.destinations.is_empty(), "{scheduler:?}");
    }

    /// One destination is the bottleneck: its places go round among the senders.
    #[test]
    fn senders_take_turns_at_a_destination(senders in proptest::collection::vec(0u64..5, 1..200)) {
        let lanes: Vec<_> = senders.into_iter().map(|sender| (sender, 0)).collect();
        fairness(&mut Real::new(bounds()), &lanes).map_err(TestCaseError::fail)?;
    }

    /// The bound on all is the bottleneck: turns go round among the senders, however many destinations each has.
    #[test]
    fn senders_take_turns_in_all(lanes in proptest::collection::vec((0u64..5, 0u64..30), 1..300)) {
        let wide = WindowBounds { initial: MOST as u32, most: MOST as u32, ..bounds() };
        fairness(&mut Real::new(wide), &lanes).map_err(TestCaseError::fail)?;
    }
}

/// All parcels are there from the start; deliveries end one by one. Nobody who waits may fall behind another by more
/// than what went before the others came.
fn fairness(machine: &mut impl Machine, lanes: &[(u64, u64)]) -> Result<(), String> {
    let mut left: BTreeMap<u64, usize> = BTreeMap::new();
    for (id, (sender, destination)) in lanes.iter().enumerate() {
        machine.add(id as u64, *sender, *destination, at(0), at(1));
        *left.entry(*sender).or_default() += 1;
    }
    let mut served: BTreeMap<u64, usize> = BTreeMap::new();
    let mut busy = VecDeque::new();
    loop {
        while let Some((id, _)) = machine.poll(at(1)) {
            busy.push_back(id);
            let sender = lanes[id as usize].0;
            *served.entry(sender).or_default() += 1;
            *left.entry(sender).or_default() -= 1;
            let mine = served[&sender];
            for (other, _) in left.iter().filter(|(_, waiting)| **waiting > 0) {
                let theirs = served.get(other).copied().unwrap_or(0);
                if mine > theirs + 2 {
                    return Err(format!("sender {sender} had {mine} turns, sender {other} only {theirs}"));
                }
            }
        }
        let Some(id) = busy.pop_front() else { break };
        machine.complete(id, Then::Gone, Feedback::Reached, at(1));
    }
    if left.values().any(|waiting| *waiting > 0) { Err("some never went".into()) } else { Ok(()) }
}

/// A scheduler with a bug.
struct Broken {
    inner: Real,
    bug: Bug,
    polls: usize,
}

#[derive(Clone, Copy, Debug)]
enum Bug {
    /// Forgets a delivery that was to be tried again.
    LosesDeferred,
    /// Gives a parcel out twice.
    Doubles,
    /// Does not count one delivery in ten.
    IgnoresBound,
    /// Names no deadline.
    Sleeps,
    /// Serves first come, first served.
    Unfair,
}

impl Machine for Broken {
    fn add(&mut self, id: u64, sender: u64, destination: u64, at: Instant, now: Instant) {
        let sender = if matches!(self.bug, Bug::Unfair) { 0 } else { sender };
        self.inner.add(id, sender, destination, at, now);
    }
    fn poll(&mut self, now: Instant) -> Option<(u64, u64)> {
        self.polls += 1;
        let scheduler = &mut self.inner.scheduler;
        if matches!(self.bug, Bug::Doubles) && self.polls.is_multiple_of(7) {
            let busy = scheduler.parcels.iter().find(|(_, parcel)| parcel.state == State::UnderWay);
            return busy.map(|(_, parcel)| (parcel.load, parcel.destination.0));
        }
        if matches!(self.bug, Bug::IgnoresBound) {
            scheduler.under_way = scheduler.under_way.min(MOST - 1);
        }
        self.inner.poll(now)
    }
    fn complete(&mut self, id: u64, then: Then, feedback: Feedback, now: Instant) {
        let lost = matches!((self.bug, then), (Bug::LosesDeferred, Then::Later(_)));
        if matches!(self.bug, Bug::IgnoresBound) {
            self.inner.scheduler.under_way = self.inner.scheduler.under_way.max(1);
        }
        self.inner.complete(id, if lost { Then::Gone } else { then }, feedback, now);
    }
    fn remove(&mut self, id: u64) -> bool {
        self.inner.remove(id)
    }
    fn hasten(&mut self, id: u64) {
        self.inner.hasten(id);
    }
    fn next_deadline(&self) -> Option<Instant> {
        if matches!(self.bug, Bug::Sleeps) { None } else { self.inner.next_deadline() }
    }
}

#[test]
fn the_check_finds_schedulers_that_are_broken_on_purpose() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    for bug in [Bug::LosesDeferred, Bug::Doubles, Bug::IgnoresBound, Bug::Sleeps, Bug::Unfair] {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let found = (0..200).any(|_| {
            let operations = proptest::collection::vec(operation(), 0..300).new_tree(&mut runner).unwrap().current();
            let lanes =
                proptest::collection::vec((0u64..5, 0u64..1), 100..200).new_tree(&mut runner).unwrap().current();
            let mut sorted = lanes;
            sorted.sort_unstable();
            let broken = || Broken { inner: Real::new(bounds()), bug, polls: 0 };
            check(&mut broken(), &operations).is_err() || fairness(&mut broken(), &sorted).is_err()
        });
        assert!(found, "{bug:?} was not found");
    }
}

#[test]
fn a_backlog_delays_nobody() {
    let mut scheduler = Scheduler::new(1, WindowBounds { initial: 1, most: 1, ..bounds() });
    for id in 0..1000 {
        scheduler.add(id, (SenderId(1), DestinationId(id % 50)), at(0), at(1));
    }
    let (first, _) = scheduler.poll(at(1)).unwrap();
    scheduler.add(5000, (SenderId(2), DestinationId(7)), at(0), at(1));
    scheduler.add(5001, (SenderId(3), DestinationId(99)), at(0), at(1));
    scheduler.complete(first, Then::Gone, Feedback::Reached, at(1));
    let mut seen = BTreeSet::new();
    for turn in 1..=6 {
        let (id, _) = scheduler.poll(at(1)).unwrap();
        seen.insert(*scheduler.load(id).unwrap());
        scheduler.complete(id, Then::Gone, Feedback::Reached, at(1));
        if seen.contains(&5000) && seen.contains(&5001) {
            return;
        }
        assert!(turn < 6, "a thousand parcels of another sender come first: {seen:?}");
    }
}

#[test]
fn a_dead_destination_holds_up_nobody_else() {
    let mut scheduler = Scheduler::new(4, bounds());
    for id in 0..10 {
        scheduler.add(id, (SenderId(1), DestinationId(1)), at(0), at(1));
    }
    scheduler.add(100, (SenderId(1), DestinationId(2)), at(0), at(1));
    let started: Vec<_> = std::iter::from_fn(|| scheduler.poll(at(1))).collect();
    assert_eq!(started.len(), 3, "two to the first destination, one to the other");
    for (id, destination) in started {
        let feedback = if destination == DestinationId(1) { Feedback::Unreachable } else { Feedback::Reached };
        let then = if destination == DestinationId(1) { Then::Again } else { Then::Gone };
        scheduler.complete(id, then, feedback, at(1));
    }
    assert_eq!(scheduler.poll(at(1)), None, "closed");
    let deadline = scheduler.next_deadline().unwrap();
    let (next, _) = scheduler.poll(deadline).unwrap();
    assert!(*scheduler.load(next).unwrap() < 2, "the parcels kept their places");
    assert_eq!(scheduler.poll(deadline), None, "one to see whether it is back");
}
