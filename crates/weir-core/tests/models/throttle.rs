//! The throttle beside a model that ends every period one by one and remembers everything in plain lists.

use core::time::Duration;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use std::panic::catch_unwind;
use weir_core::mutant::{Mutant, plant};
use weir_core::throttle::{Decision, EntryId, Held, MailKind, Params, RecipientKey, Released, Replacement, Throttle};
use weir_core::time::Instant;

const DAY_S: u64 = 86_400;

/// What a shell, a user or a person in charge may do.
#[derive(Debug, Clone)]
enum Op {
    /// Time passes.
    Wait { seconds: u64 },
    /// A mail to so many of a small world's addresses, from this one on.
    Submit { first: u64, recipients: u64 },
    /// This many mails, each to an address never used before.
    Worm { mails: u64 },
    /// The shell asks for what is due.
    Advance,
    /// A person releases the entry at this place (modulo the length) of the queue.
    Release { place: usize },
    /// A person deletes it.
    Delete { place: usize },
    /// A person stops the user.
    Stop,
    /// A person ends a stop.
    Unlock,
    /// The process restarts.
    Restart,
    /// This many recipients join the queue, whatever slack there is.
    Enqueue { recipients: u64, alone: bool },
    /// The shell asks for what is due while a relay is down: the one that holds every entry whose place is a multiple of `every`.
    AdvancePast { every: usize },
    /// A mail that goes whatever the rules say.
    Learn { first: u64, recipients: u64 },
    /// Other parameters are in force.
    Reparameterise { params: Params },
}

/// One entry of the model's queue.
#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    id: u64,
    to: u64,
    alone: bool,
}

/// The rules, read aloud. Times in whole seconds.
#[derive(Debug, Clone)]
struct Model {
    params: Params,
    now: u64,
    single_end: u64,
    multi_end: u64,
    slack: u32,
    multi_slack: u32,
    /// The next to leave first.
    known: Vec<u64>,
    queue: Vec<Waiting>,
    held_ever: u64,
    stopped: bool,
    /// Nothing stands behind the queue: it shows what would wait.
    thought_up: bool,
    day: u64,
    messages: u32,
    new_recipients: u32,
    released: Vec<(u64, u64)>,
}

/// At once, ids and expected times of the held, stopped; none if refused.
type Fate = Option<(usize, Vec<(u64, Option<u64>)>, bool)>;

impl Model {
    fn new(params: Params, now: u64) -> Model {
        Model {
            params,
            now,
            single_end: now + params.rate_period.as_secs(),
            multi_end: now + params.multi_rate_period.as_secs(),
            slack: params.max_slack,
            multi_slack: params.max_multi_slack,
            known: Vec::new(),
            queue: Vec::new(),
            held_ever: 0,
            stopped: false,
            thought_up: false,
            day: 0,
            messages: 0,
            new_recipients: 0,
            released: Vec::new(),
        }
    }

    fn wait_until(&mut self, now: u64) {
        while self.single_end.min(self.multi_end) <= now {
            self.end_of_period(self.single_end.min(self.multi_end));
        }
        self.now = now;
    }

    fn end_of_period(&mut self, at: u64) {
        let (single, multi) = (self.single_end == at, self.multi_end == at);
        self.single_end += if single { self.params.rate_period.as_secs() } else { 0 };
        self.multi_end += if multi { self.params.multi_rate_period.as_secs() } else { 0 };
        if self.stopped {
            return;
        }
        match self.queue.first().cloned() {
            None => {
                self.slack = (self.slack + u32::from(single)).min(self.params.max_slack);
                self.multi_slack = (self.multi_slack + u32::from(multi)).min(self.params.max_multi_slack);
            }
            Some(head) if (head.alone && single) || (!head.alone && multi) => {
                self.queue.remove(0);
                if !self.thought_up {
                    self.released.push((head.id, at));
                }
                self.mailed(&head);
            }
            Some(_) => {}
        }
    }

    fn submit(&mut self, to: &[u64]) -> Fate {
        if self.stopped {
            return None;
        }
        self.mean_it();
        Some(self.decide(to))
    }

    /// What is thought up is forgotten.
    fn mean_it(&mut self) {
        if core::mem::take(&mut self.thought_up) {
            self.queue.clear();
        }
    }

    fn decide(&mut self, to: &[u64]) -> (usize, Vec<(u64, Option<u64>)>, bool) {
        if to.is_empty() {
            return (0, vec![], false);
        }
        let fenced = self.breaks_a_fence(to);
        let at_once = if fenced { 0 } else { self.at_once(to) };
        for to_one in &to[at_once..] {
            self.queue.push(Waiting { id: self.held_ever, to: *to_one, alone: to.len() == 1 });
            self.held_ever += 1;
        }
        let held = to.len() - at_once;
        self.stopped = fenced || (held > 0 && self.queue.len() > self.params.stop_at as usize);
        let expected = self.expected();
        (at_once, expected[expected.len() - held..].to_vec(), self.stopped)
    }

    fn enqueue(&mut self, to: &[u64], alone: bool) -> Vec<(u64, Option<u64>)> {
        self.mean_it();
        for to in to {
            self.queue.push(Waiting { id: self.held_ever, to: *to, alone });
            self.held_ever += 1;
        }
        self.stopped |= !to.is_empty() && self.queue.len() > self.params.stop_at as usize;
        let expected = self.expected();
        expected[expected.len() - to.len()..].to_vec()
    }

    /// What would have waited, and whether that would have stopped the user.
    fn learn_from(&mut self, to: &[u64]) -> (usize, bool) {
        if self.stopped {
            return (0, false);
        }
        self.thought_up |= self.queue.is_empty();
        let (at_once, held, stopped) = self.decide(to);
        if stopped {
            self.unlock();
        }
        if !self.thought_up {
            // What really waits is left alone: this mail's part goes now.
            let going = self.queue.split_off(self.queue.len() - held.len());
            going.iter().for_each(|entry| self.mailed(entry));
        } else if stopped {
            self.queue.clear();
        }
        (to.len() - at_once, stopped)
    }

    /// Time passes for a user who never had these entries; then they are back in their places.
    fn wait_without(&mut self, absent: &[u64], now: u64) {
        if self.stopped {
            return self.wait_until(now);
        }
        let (away, here) = self.queue.drain(..).partition(|entry| absent.contains(&entry.id));
        self.queue = here;
        self.wait_until(now);
        self.queue.extend::<Vec<_>>(away);
        self.queue.sort_by_key(|entry| entry.id);
    }

    fn reparameterise(&mut self, params: Params) {
        self.params = params;
        self.single_end = self.single_end.min(self.now + params.rate_period.as_secs());
        self.multi_end = self.multi_end.min(self.now + params.multi_rate_period.as_secs());
        self.slack = self.slack.min(params.max_slack);
        self.multi_slack = self.multi_slack.min(params.max_multi_slack);
        let known = core::mem::take(&mut self.known);
        known.into_iter().for_each(|key| self.learn(key));
    }

    /// What really waits.
    fn held(&self) -> Vec<(u64, Option<u64>)> {
        if self.thought_up { vec![] } else { self.expected() }
    }

    fn at_once(&mut self, to: &[u64]) -> usize {
        if to.len() > 1 {
            let at_once = (self.multi_slack as usize).min(to.len());
            self.multi_slack -= at_once as u32;
            return at_once;
        }
        if self.known.contains(&to[0]) {
            self.touch(to[0]);
            return 1;
        }
        if self.slack == 0 {
            return 0;
        }
        self.slack -= 1;
        self.learn(to[0]);
        1
    }

    fn breaks_a_fence(&mut self, to: &[u64]) -> bool {
        if self.params.messages_a_day.is_none() && self.params.new_recipients_a_day.is_none() {
            return false; // A cap that is set later counts from then on.
        }
        if self.now / DAY_S != self.day {
            (self.day, self.messages, self.new_recipients) = (self.now / DAY_S, 0, 0);
        }
        let new = to.iter().filter(|key| !self.known.contains(key)).count() as u32;
        self.messages += 1;
        self.new_recipients += new;
        self.params.messages_a_day.is_some_and(|cap| self.messages > cap)
            || self.params.new_recipients_a_day.is_some_and(|cap| new > 0 && self.new_recipients > cap)
    }

    fn touch(&mut self, key: u64) {
        if self.params.replacement == Replacement::Lru {
            self.known.retain(|k| *k != key);
            self.known.push(key);
        }
    }

    fn learn(&mut self, key: u64) {
        if self.known.contains(&key) {
            return self.touch(key);
        }
        self.known.push(key);
        let surplus = self.known.len().saturating_sub(self.params.working_set);
        self.known.drain(..surplus);
    }

    fn mailed(&mut self, entry: &Waiting) {
        if entry.alone {
            self.learn(entry.to);
        }
    }

    fn take(&mut self, id: u64) -> Option<Waiting> {
        if self.thought_up {
            return None;
        }
        let place = self.queue.iter().position(|entry| entry.id == id)?;
        let entry = self.queue.remove(place);
        self.stopped &= !self.queue.is_empty();
        Some(entry)
    }

    fn stop(&mut self) -> bool {
        let stops = !self.stopped && !self.thought_up && !self.queue.is_empty();
        self.stopped |= stops;
        stops
    }

    fn unlock(&mut self) -> bool {
        (self.messages, self.new_recipients) = (0, 0);
        core::mem::replace(&mut self.stopped, false)
    }

    /// When each entry will go, found by letting the future happen.
    fn expected(&self) -> Vec<(u64, Option<u64>)> {
        if self.stopped {
            return self.queue.iter().map(|entry| (entry.id, None)).collect();
        }
        let mut future = Model { thought_up: false, ..self.clone() };
        future.released.clear();
        while !future.queue.is_empty() {
            future.wait_until(future.now + 1_000);
        }
        future.released.iter().map(|(id, at)| (*id, Some(*at))).collect()
    }
}

/// Both together, with the clock of the test.
struct Pair {
    real: Throttle,
    model: Model,
    now: u64,
    fresh: u64,
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn secs(instant: Instant) -> u64 {
    instant.0 / 1_000_000_000
}

impl Pair {
    fn new(params: Params, start: u64) -> Pair {
        let real = Throttle::new(params, at(start)).expect("parameters within bounds");
        Pair { real, model: Model::new(params, start), now: start, fresh: 1_000 }
    }

    /// Applies an operation to both. The situation is another one exactly when a stop began or ended by it.
    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let (stopped, situation) = (self.model.stopped, self.real.situation());
        self.apply_to_both(op)?;
        same("another situation", &(self.real.situation() != situation), &(self.model.stopped != stopped))
    }

    fn apply_to_both(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Wait { seconds } => self.now += seconds,
            Op::Submit { first, recipients } => {
                self.submit(&(0..*recipients).map(|i| (first + i) % 40).collect::<Vec<_>>())?;
            }
            Op::Worm { mails } => {
                for _ in 0..*mails {
                    self.fresh += 1;
                    self.submit(&[self.fresh])?;
                }
            }
            Op::Advance => self.advance()?,
            Op::Release { place } => {
                let id = self.id_at(*place);
                let took = self.model.take(id);
                took.iter().for_each(|entry| self.model.mailed(entry));
                same("release", &self.real.release(at(self.now), EntryId(id)), &took.is_some())?;
            }
            Op::Delete { place } => {
                let id = self.id_at(*place);
                let took = self.model.take(id).is_some();
                same("delete", &self.real.delete(at(self.now), EntryId(id)), &took)?;
            }
            Op::Stop => {
                self.model.wait_until(self.now);
                same("stop", &self.real.stop(at(self.now)), &self.model.stop())?;
            }
            Op::Unlock => {
                self.model.wait_until(self.now);
                same("unlock", &self.real.unlock(at(self.now)), &self.model.unlock())?;
            }
            Op::Restart => {
                let saved = self.real.export();
                let again = Throttle::restore(*self.real.params(), saved).map_err(|e| e.to_string())?;
                same("a restored throttle", &again, &self.real)?;
                self.real = again;
            }
            Op::Enqueue { recipients, alone } => self.enqueue(*recipients, *alone)?,
            Op::AdvancePast { every } => self.advance_past(*every)?,
            Op::Learn { first, recipients } => self.learn(*first, *recipients)?,
            Op::Reparameterise { params } => {
                self.real.reparameterise(*params).map_err(|e| e.to_string())?;
                self.model.reparameterise(*params);
            }
        }
        self.deadline()
    }

    fn enqueue(&mut self, recipients: u64, alone: bool) -> Result<(), String> {
        self.model.wait_until(self.now);
        let to: Vec<u64> = (1..=recipients).map(|i| self.fresh + i).collect();
        self.fresh += recipients;
        let kind = if alone { MailKind::Single } else { MailKind::Multi };
        let real = self.real.enqueue(at(self.now), &keys(&to), kind);
        same("what joined the queue", &real.iter().map(times).collect(), &self.model.enqueue(&to, alone))?;
        same("whether that stopped", &self.real.stopped().is_some(), &self.model.stopped)
    }

    fn advance_past(&mut self, every: usize) -> Result<(), String> {
        let absent: Vec<u64> = self.model.queue.iter().step_by(every).map(|entry| entry.id).collect();
        let ids: Vec<EntryId> = absent.iter().rev().map(|id| EntryId(*id)).collect();
        let real = self.real.advance_past(at(self.now), &ids);
        self.model.wait_without(&absent, self.now);
        self.all_the_same(&real)
    }

    fn learn(&mut self, first: u64, recipients: u64) -> Result<(), String> {
        self.model.wait_until(self.now);
        let to: Vec<u64> = (0..recipients).map(|i| (first + i) % 40).collect();
        let real = self.real.learn(at(self.now), &keys(&to));
        same("what would have been", &(real.held, real.stopped), &self.model.learn_from(&to))?;
        same("whether all is thought up", &self.real.is_learning(), &self.model.thought_up)
    }

    fn submit(&mut self, to: &[u64]) -> Result<(), String> {
        self.model.wait_until(self.now);
        let real = match self.real.submit(at(self.now), &keys(to)) {
            Decision::Refused => None,
            Decision::Accepted { at_once, held, stopped } => {
                let held = held.iter().map(times).collect();
                Some((at_once, held, stopped.is_some()))
            }
        };
        same("the fate of a mail", &real, &self.model.submit(to))
    }

    fn advance(&mut self) -> Result<(), String> {
        self.model.wait_until(self.now);
        let real = self.real.advance(at(self.now));
        self.all_the_same(&real)
    }

    /// After the shell has asked for what is due and got this.
    fn all_the_same(&mut self, released: &[Released]) -> Result<(), String> {
        let released: Vec<_> = released.iter().map(|Released { entry, at, .. }| (entry.0, secs(*at))).collect();
        same("what was released", &released, &core::mem::take(&mut self.model.released))?;
        let held: Vec<_> = self.real.held().map(|held| times(&held)).collect();
        same("what is held", &held, &self.model.held())?;
        same("how many are held", &self.real.held_count(), &held.len())?;
        let saved = self.real.export();
        same("slack", &(saved.slack, saved.multi_slack), &(self.model.slack, self.model.multi_slack))?;
        let known: Vec<_> = saved.working_set.iter().map(|key| key.0).collect();
        same("the working set", &known, &self.model.known)
    }

    fn deadline(&self) -> Result<(), String> {
        let mut model = self.model.clone();
        model.wait_until(secs(self.real.export().now));
        let expected = match model.released.is_empty() {
            false => Some(model.now),
            true => model.held().first().and_then(|(_, at)| *at),
        };
        same("the next deadline", &self.real.next_deadline().map(secs), &expected)
    }

    fn id_at(&mut self, place: usize) -> u64 {
        self.model.wait_until(self.now);
        // One place too many: an entry that is not held must be refused.
        let places = self.model.queue.len() + 1;
        self.model.queue.get(place % places).map_or(self.model.held_ever, |entry| entry.id)
    }
}

fn keys(to: &[u64]) -> Vec<RecipientKey> {
    to.iter().map(|key| RecipientKey(*key)).collect()
}

fn times(held: &Held) -> (u64, Option<u64>) {
    (held.entry.0, held.expected_at.map(secs))
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, real: &T, model: &T) -> Result<(), String> {
    if real == model { Ok(()) } else { Err(format!("{what}: {real:?}, by the rules {model:?}")) }
}

/// Runs the operations on both, comparing every answer; with a restart after every operation if so told.
fn check(params: Params, ops: &[Op], restarts: bool) -> Result<(), String> {
    let mut pair = Pair::new(params, 5);
    for (i, op) in ops.iter().enumerate() {
        pair.apply(op).map_err(|e| format!("after operation {i} ({op:?}): {e}"))?;
        if restarts {
            pair.apply(&Op::Restart).map_err(|e| format!("restart after operation {i}: {e}"))?;
        }
    }
    pair.apply(&Op::Advance)
}

fn params() -> impl Strategy<Value = Params> {
    let numbers = (0..9usize, 0..3u32, 0..9u32, 1..9u32);
    let periods = prop_oneof![
        4 => Just((60, 60)),
        1 => (1..90u64, 1..90u64),
    ];
    let caps = (proptest::option::weighted(0.2, 5..40u32), proptest::option::weighted(0.2, 5..40u32));
    (numbers, periods, caps, any::<bool>()).prop_map(
        |((set, slack, multi, stop), (period, multi_period), caps, lru)| Params {
            rate_period: Duration::from_secs(period),
            multi_rate_period: Duration::from_secs(multi_period),
            working_set: set,
            replacement: if lru { Replacement::Lru } else { Replacement::Fifo },
            max_slack: slack,
            max_multi_slack: multi,
            stop_at: stop,
            messages_a_day: caps.0,
            new_recipients_a_day: caps.1,
            ..Params::default()
        },
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..100u64).prop_map(|seconds| Op::Wait { seconds }),
        1 => (0..2_000u64).prop_map(|seconds| Op::Wait { seconds }),
        1 => Just(Op::Wait { seconds: DAY_S / 2 }),
        8 => (0..8u64).prop_map(|first| Op::Submit { first, recipients: 1 }),
        3 => (0..40u64, 0..12u64).prop_map(|(first, recipients)| Op::Submit { first, recipients }),
        1 => (1..6u64).prop_map(|mails| Op::Worm { mails }),
        4 => Just(Op::Advance),
        2 => any::<usize>().prop_map(|place| Op::Release { place }),
        2 => any::<usize>().prop_map(|place| Op::Delete { place }),
        1 => Just(Op::Stop),
        1 => Just(Op::Unlock),
        1 => Just(Op::Restart),
        1 => (0..4u64, any::<bool>()).prop_map(|(recipients, alone)| Op::Enqueue { recipients, alone }),
        2 => (1..4usize).prop_map(|every| Op::AdvancePast { every }),
        2 => (0..8u64).prop_map(|first| Op::Learn { first, recipients: 1 }),
        1 => (0..40u64, 0..12u64).prop_map(|(first, recipients)| Op::Learn { first, recipients }),
        1 => params().prop_map(|params| Op::Reparameterise { params }),
    ];
    proptest::collection::vec(op, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_answer_as_the_rules_say(params in params(), ops in ops()) {
        check(params, &ops, false).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn restarts_anywhere_change_nothing(params in params(), ops in ops()) {
        check(params, &ops, true).map_err(TestCaseError::fail)?;
    }

    /// A sender of one mail to a new address every so often, starting anywhere in a period.
    #[test]
    fn a_rate_is_stopped_in_the_end_if_and_only_if_it_is_above_the_allowed_one(
        params in params(), percent in 5..300u64, phase in 0..60u64,
    ) {
        let params = Params { messages_a_day: None, new_recipients_a_day: None, ..params };
        let every = params.rate_period.as_nanos() as u64 * percent / 100;
        let stopped = stopped_after(params, every, phase, |n| vec![RecipientKey(n)]);
        prop_assert_eq!(stopped.is_some(), percent < 100, "stopped after {:?} mails", stopped);
    }

    /// The same for mails to several: n new addresses in each n periods is the allowed rate.
    #[test]
    fn a_rate_of_recipients_is_stopped_if_and_only_if_it_is_above_the_allowed_one(
        params in params(), size in 2..9u64, percent in 5..300u64, phase in 0..60u64,
    ) {
        let params = Params { messages_a_day: None, new_recipients_a_day: None, max_multi_slack: 9, ..params };
        let every = params.multi_rate_period.as_nanos() as u64 * size * percent / 100;
        let mail = |n: u64| (0..size).map(|i| RecipientKey(n * size + i)).collect();
        let stopped = stopped_after(params, every, phase, mail);
        prop_assert_eq!(stopped.is_some(), percent < 100, "stopped after {:?} mails", stopped);
    }
}

/// After how many mails, one `every` so many nanoseconds, the user is stopped; none if not after 4 000.
fn stopped_after(params: Params, every: u64, phase: u64, mail: impl Fn(u64) -> Vec<RecipientKey>) -> Option<u64> {
    let mut user = Throttle::new(params, Instant::ZERO).expect("parameters within bounds");
    (0..4_000).find(|n| {
        user.submit(at(phase) + Duration::from_nanos(n * every), &mail(*n));
        user.stopped().is_some()
    })
}

#[test]
fn planted_bugs_are_found() {
    for mutant in [
        Mutant::ThrottleStopsAtThreshold,
        Mutant::ThrottleEnqueueNeverStops,
        Mutant::ThrottleWaitsForTheAbsent,
        Mutant::ThrottleLearningJoinsTheQueue,
        Mutant::ThrottleKeepsOldMultiSlack,
        Mutant::ThrottleStopKeepsTheSituation,
    ] {
        assert!(is_found(mutant), "the check does not see {mutant:?}");
    }
}

/// Whether the check fails, or an assertion of the throttle's own, in one of 100 cases.
fn is_found(mutant: Mutant) -> bool {
    let _planted = plant(mutant);
    let mut runner = TestRunner::deterministic();
    (0..100).any(|_| {
        let case = (params(), ops()).new_tree(&mut runner).expect("a case").current();
        catch_unwind(|| check(case.0, &case.1, false)).map_or(true, |checked| checked.is_err())
    })
}
