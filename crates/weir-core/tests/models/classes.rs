//! The throttle with classes of recipients and with networks, beside a model that lets every second happen.

use core::time::Duration;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use std::panic::catch_unwind;
use weir_core::mutant::{Mutant, plant};
use weir_core::throttle::{
    Class, ClassParams, EntryId, LaneId, Mail, MailDecision, NetworkKey, Params, Recipient, RecipientKey, Recipients,
    Throttle,
};
use weir_core::time::Instant;

/// What a user or a person in charge may do.
#[derive(Debug, Clone)]
enum Op {
    Wait {
        seconds: u64,
    },
    /// To these, of whom the remainder by three is the class, from this network.
    Mail {
        to: Vec<u64>,
        network: Option<u32>,
    },
    /// Only learnt from.
    Learn {
        to: Vec<u64>,
        network: Option<u32>,
    },
    Release {
        place: usize,
    },
    Delete {
        place: usize,
    },
    Unlock,
    Restart,
    Reparameterise {
        params: Params,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    id: u64,
    to: u64,
    network: u32,
    alone: bool,
}

/// A line that drains, with slack: the paper's or a wider one.
#[derive(Debug, Clone)]
struct Line {
    id: LaneId,
    drain_end: u64,
    slack_end: u64,
    slack: u32,
    recent: Vec<u64>,
    waiting: Vec<Waiting>,
}

/// The rules, read aloud. Both of the paper's rates are equal here; the other model varies them.
#[derive(Debug, Clone)]
struct Model {
    params: Params,
    now: u64,
    multi_slack: u32,
    /// The paper's first. The others begin to exist when one of them is first needed.
    lines: Vec<Line>,
    next: u64,
    stopped: bool,
    thought_up: bool,
    released: Vec<(u64, u64)>,
}

fn class(to: u64) -> Class {
    [Class::Stranger, Class::Correspondent, Class::Colleague][to as usize % 3]
}

fn numbers(params: &Params, id: LaneId) -> (u32, u64, u64, usize, usize) {
    let of = |class: ClassParams| {
        (class.slack, class.rate_period.as_secs(), class.drain_period.as_secs(), class.stop_at as usize, 64)
    };
    let (rate, network) = (params.rate_period.as_secs(), params.network_period.as_secs());
    match id {
        LaneId::Strangers => (params.max_slack, rate, rate, params.stop_at as usize, params.working_set),
        LaneId::Correspondents => of(params.correspondents),
        LaneId::Colleagues => of(params.colleagues),
        LaneId::Networks => (params.new_networks, network, network, params.network_stop_at as usize, 64),
    }
}

impl Line {
    fn new(params: &Params, id: LaneId, now: u64) -> Line {
        let (slack, rate, drain, ..) = numbers(params, id);
        Line { id, drain_end: now + drain, slack_end: now + rate, slack, recent: vec![], waiting: vec![] }
    }

    fn remember(&mut self, key: u64, params: &Params) {
        let known = self.recent.contains(&key);
        if known && self.id == LaneId::Strangers {
            return; // First in, first out.
        }
        self.recent.retain(|k| *k != key);
        self.recent.push(key);
        let surplus = self.recent.len().saturating_sub(numbers(params, self.id).4);
        self.recent.drain(..surplus);
    }
}

impl Model {
    fn new(params: Params) -> Model {
        let lines = vec![Line::new(&params, LaneId::Strangers, 0)];
        let multi_slack = params.max_multi_slack;
        Model { params, now: 0, multi_slack, lines, next: 0, stopped: false, thought_up: false, released: vec![] }
    }

    /// The place of a line, which is made with the others if it is not there.
    fn line(&mut self, id: LaneId) -> usize {
        if id != LaneId::Strangers && self.lines.len() == 1 {
            let (params, now) = (self.params, self.now);
            self.lines.extend(LaneId::WIDER.map(|id| Line::new(&params, id, now)));
        }
        self.lines.iter().position(|line| line.id == id).unwrap()
    }

    fn second(&mut self) {
        self.now += 1;
        for place in 0..self.lines.len() {
            let line = &mut self.lines[place];
            let (most, rate, drain, ..) = numbers(&self.params, line.id);
            let (drains, refills) = (line.drain_end == self.now, line.slack_end == self.now);
            line.drain_end += if drains { drain } else { 0 };
            line.slack_end += if refills { rate } else { 0 };
            if self.stopped {
                continue;
            }
            if line.waiting.is_empty() {
                let whole = line.slack == most;
                line.slack = (line.slack + u32::from(refills)).min(most);
                // One period, one slack: mail to several gets it if single mail has all that it can have.
                let multi = refills && (whole || self.params.recipients == Recipients::Alike);
                if line.id == LaneId::Strangers {
                    self.multi_slack = (self.multi_slack + u32::from(multi)).min(self.params.max_multi_slack);
                }
            } else if drains {
                let entry = line.waiting.remove(0);
                let id = line.id;
                if !self.thought_up {
                    self.released.push((entry.id, self.now));
                }
                self.mailed(&entry, id);
            }
        }
    }

    fn mailed(&mut self, entry: &Waiting, id: LaneId) {
        let params = self.params;
        if matches!(id, LaneId::Strangers | LaneId::Networks) && entry.alone {
            self.lines[0].remember(entry.to, &params);
        }
        if id != LaneId::Strangers {
            let place = self.line(id);
            let key = if id == LaneId::Networks { entry.network.into() } else { entry.to };
            self.lines[place].remember(key, &params);
        }
    }

    fn lane_of(&self, to: u64) -> LaneId {
        if self.params.recipients == Recipients::Alike { LaneId::Strangers } else { class(to).into() }
    }

    /// Whether each recipient waits.
    fn mail(&mut self, to: &[u64], network: Option<u32>) -> (Vec<bool>, bool) {
        let params = self.params;
        if let [one] = to
            && self.lines[0].recent.contains(one)
        {
            return (vec![false], false);
        }
        let strangers = to.iter().filter(|to| self.lane_of(**to) == LaneId::Strangers).count();
        let elsewhere = network.filter(|network| {
            strangers > 0 && params.new_networks > 0 && !self.passes(LaneId::Networks, u64::from(*network))
        });
        let mut may_go = match (elsewhere, strangers) {
            (Some(_), _) | (_, 0) => 0,
            (None, 1) => {
                let one = *to.iter().find(|to| self.lane_of(**to) == LaneId::Strangers).unwrap();
                usize::from(self.passes(LaneId::Strangers, one))
            }
            (None, many) => {
                let going = many.min(self.multi_slack as usize);
                self.multi_slack -= going as u32;
                going
            }
        };
        let (mut waits, mut stopped) = (vec![], false);
        let mut grown = vec![];
        for to in to {
            let mut lane = self.lane_of(*to);
            let passes = match lane {
                LaneId::Strangers => may_go > 0,
                _ => self.passes(lane, *to),
            };
            waits.push(!passes);
            may_go -= usize::from(passes && lane == LaneId::Strangers);
            if !passes {
                let network = elsewhere.filter(|_| lane == LaneId::Strangers);
                lane = if network.is_some() { LaneId::Networks } else { lane };
                let entry = Waiting { id: self.next, to: *to, network: network.unwrap_or(0), alone: strangers <= 1 };
                self.next += 1;
                let place = self.line(lane);
                self.lines[place].waiting.push(entry);
                grown.push(place);
            }
        }
        for place in grown {
            let line = &self.lines[place];
            stopped |= line.waiting.len() > numbers(&params, line.id).3;
        }
        self.stopped = stopped;
        (waits, stopped)
    }

    fn passes(&mut self, id: LaneId, key: u64) -> bool {
        let params = self.params;
        let place = self.line(id);
        let line = &mut self.lines[place];
        if !line.recent.contains(&key) {
            if line.slack == 0 {
                return false;
            }
            line.slack -= 1;
        }
        line.remember(key, &params);
        true
    }

    fn take(&mut self, id: u64) -> Option<(Waiting, LaneId)> {
        if self.thought_up {
            return None;
        }
        let found = self.lines.iter_mut().find_map(|line| {
            let place = line.waiting.iter().position(|entry| entry.id == id)?;
            Some((line.waiting.remove(place), line.id))
        });
        self.stopped &= self.waiting() > 0;
        found
    }

    fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.waiting.len()).sum()
    }

    fn forget_what_was_thought_up(&mut self) {
        if core::mem::take(&mut self.thought_up) {
            self.lines.iter_mut().for_each(|line| line.waiting.clear());
        }
    }

    fn learn(&mut self, to: &[u64], network: Option<u32>) -> (usize, bool) {
        if self.stopped {
            return (0, false);
        }
        self.thought_up |= self.waiting() == 0;
        let first = self.next;
        let (waits, stopped) = self.mail(to, network);
        self.stopped = false;
        if !self.thought_up {
            let mut joined: Vec<(Waiting, LaneId)> = vec![];
            for line in &mut self.lines {
                let id = line.id;
                joined.extend(line.waiting.iter().filter(|entry| entry.id >= first).map(|entry| (entry.clone(), id)));
                line.waiting.retain(|entry| entry.id < first);
            }
            joined.sort_by_key(|(entry, _)| entry.id);
            joined.iter().for_each(|(entry, id)| self.mailed(entry, *id));
        } else if stopped {
            self.lines.iter_mut().for_each(|line| line.waiting.clear());
        }
        (waits.iter().filter(|waits| **waits).count(), stopped)
    }

    fn reparameterise(&mut self, params: Params) {
        self.params = params;
        self.multi_slack = self.multi_slack.min(params.max_multi_slack);
        for line in &mut self.lines {
            let (slack, rate, drain, _, remembered) = numbers(&params, line.id);
            line.slack = line.slack.min(slack);
            line.drain_end = line.drain_end.min(self.now + drain);
            line.slack_end = line.slack_end.min(self.now + rate);
            let surplus = line.recent.len().saturating_sub(remembered);
            line.recent.drain(..surplus);
        }
    }
}

struct Pair {
    real: Throttle,
    model: Model,
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, real: &T, model: &T) -> Result<(), String> {
    if real == model { Ok(()) } else { Err(format!("{what}: {real:?}, by the rules {model:?}")) }
}

impl Pair {
    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let now = at(self.model.now);
        let recipients = |to: &[u64]| -> Vec<Recipient> {
            to.iter().map(|to| Recipient { key: RecipientKey(*to), class: class(*to) }).collect()
        };
        match op {
            Op::Wait { seconds } => (0..*seconds).for_each(|_| self.model.second()),
            Op::Mail { to, network } => {
                let mail = recipients(to);
                let real = self.real.submit_mail(now, &Mail { to: &mail, from: network.map(NetworkKey) });
                let real = match real {
                    MailDecision::Refused => None,
                    MailDecision::Accepted { fates, stopped } => {
                        Some((fates.iter().map(Option::is_some).collect(), stopped.is_some()))
                    }
                };
                let model = if self.model.stopped {
                    None
                } else {
                    self.model.forget_what_was_thought_up();
                    Some(self.model.mail(to, *network))
                };
                same("the fate of a mail", &real, &model)?;
            }
            Op::Learn { to, network } => {
                let mail = recipients(to);
                let real = self.real.learn_mail(now, &Mail { to: &mail, from: network.map(NetworkKey) });
                same("what would have been", &(real.held, real.stopped), &self.model.learn(to, *network))?;
            }
            Op::Release { place } => {
                let id = self.id_at(*place);
                let took = self.model.take(id);
                same("release", &self.real.release(now, EntryId(id)), &took.is_some())?;
                if let Some((entry, lane)) = took {
                    self.model.mailed(&entry, lane);
                }
            }
            Op::Delete { place } => {
                let id = self.id_at(*place);
                let took = self.model.take(id);
                same("delete", &self.real.delete(now, EntryId(id)), &took.is_some())?;
            }
            Op::Unlock => same("unlock", &self.real.unlock(now), &core::mem::take(&mut self.model.stopped))?,
            Op::Restart => {
                let again = Throttle::restore(*self.real.params(), self.real.export()).map_err(|e| e.to_string())?;
                same("a restored throttle", &again, &self.real)?;
                self.real = again;
            }
            Op::Reparameterise { params } => {
                // Both must be at the same moment: what is cut to size depends on it.
                self.compare()?;
                self.real.reparameterise(*params).map_err(|e| e.to_string())?;
                self.model.reparameterise(*params);
            }
        }
        self.compare()
    }

    fn id_at(&self, place: usize) -> u64 {
        let ids: Vec<u64> = self.model.lines.iter().flat_map(|line| line.waiting.iter().map(|e| e.id)).collect();
        ids.get(place % (ids.len() + 1)).copied().unwrap_or(self.model.next)
    }

    fn compare(&mut self) -> Result<(), String> {
        let mut released: Vec<_> =
            self.real.advance(at(self.model.now)).iter().map(|r| (r.entry.0, r.at.0 / 1_000_000_000)).collect();
        released.sort_unstable();
        self.model.released.sort_unstable();
        same("what was released", &released, &core::mem::take(&mut self.model.released))?;
        same("whether it is stopped", &self.real.stopped().is_some(), &self.model.stopped)?;
        let waiting = if self.model.thought_up { 0 } else { self.model.waiting() };
        same("how many wait", &self.real.held_count(), &waiting)?;
        same("slack", &self.real.export().slack, &self.model.lines[0].slack)?;
        same("multi-slack", &self.real.export().multi_slack, &self.model.multi_slack)?;
        for line in self.model.lines.iter().skip(1) {
            same("the slack of a lane", &self.real.slack_of(line.id), &line.slack)?;
        }
        self.expected()
    }

    /// When each entry will go, found by letting the future happen.
    fn expected(&self) -> Result<(), String> {
        let mut future = self.model.clone();
        if future.stopped || future.thought_up {
            return Ok(());
        }
        let mut steps = 0;
        while future.waiting() > 0 && steps < 5_000 {
            future.second();
            steps += 1;
        }
        if future.waiting() > 0 {
            return Ok(());
        }
        let mut expected = future.released;
        expected.sort_unstable();
        let held = self.real.held().map(|h| (h.entry.0, h.expected_at.map_or(0, |at| at.0 / 1_000_000_000)));
        same("when they go", &held.collect::<Vec<_>>(), &expected)?;
        same(
            "the next deadline",
            &self.real.next_deadline().map(|at| at.0 / 1_000_000_000),
            &expected.iter().map(|e| e.1).min(),
        )
    }
}

fn check(params: Params, ops: &[Op]) -> Result<(), String> {
    let real = Throttle::new(params, Instant::ZERO).map_err(|e| e.to_string())?;
    let mut pair = Pair { real, model: Model::new(params) };
    for (i, op) in ops.iter().enumerate() {
        pair.apply(op).map_err(|e| format!("after operation {i} ({op:?}): {e}"))?;
    }
    Ok(())
}

fn class_params() -> impl Strategy<Value = ClassParams> {
    (0..5u32, 20..200u64, 5..60u64, 1..6u32).prop_map(|(slack, rate, drain, stop_at)| ClassParams {
        slack,
        rate_period: Duration::from_secs(rate),
        drain_period: Duration::from_secs(drain),
        stop_at,
    })
}

fn params() -> impl Strategy<Value = Params> {
    let paper = (0..6usize, 0..3u32, 0..6u32, 1..6u32);
    let networks = (0..4u32, 30..400u64, 1..5u32);
    (paper, class_params(), class_params(), networks, proptest::bool::weighted(0.9)).prop_map(
        |((working_set, max_slack, max_multi_slack, stop_at), correspondents, colleagues, networks, classed)| Params {
            working_set,
            max_slack,
            max_multi_slack,
            stop_at,
            recipients: if classed { Recipients::Classed } else { Recipients::Alike },
            correspondents,
            colleagues,
            new_networks: networks.0,
            network_period: Duration::from_secs(networks.1),
            network_stop_at: networks.2,
            ..Params::default()
        },
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let to = || {
        prop_oneof![
            3 => (0..40u64).prop_map(|to| vec![to]),
            2 => proptest::collection::btree_set(0..40u64, 2..8).prop_map(|to| to.into_iter().collect()),
            1 => Just(vec![]),
        ]
    };
    let network = || proptest::option::weighted(0.8, 0..6u32);
    let op = prop_oneof![
        5 => (0..90u64).prop_map(|seconds| Op::Wait { seconds }),
        1 => (0..900u64).prop_map(|seconds| Op::Wait { seconds }),
        10 => (to(), network()).prop_map(|(to, network)| Op::Mail { to, network }),
        1 => (to(), network()).prop_map(|(to, network)| Op::Learn { to, network }),
        2 => any::<usize>().prop_map(|place| Op::Release { place }),
        1 => any::<usize>().prop_map(|place| Op::Delete { place }),
        1 => Just(Op::Unlock),
        1 => Just(Op::Restart),
        1 => params().prop_map(|params| Op::Reparameterise { params }),
    ];
    proptest::collection::vec(op, 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(17), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mail_to_classes_fares_as_the_rules_say(params in params(), ops in ops()) {
        check(params, &ops).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn planted_bugs_in_the_lanes_are_found() {
    let mutants =
        [Mutant::ThrottleLanesNeverStop, Mutant::ThrottleNewNetworksPass, Mutant::ThrottlePeriodGivesBothSlacks];
    for mutant in mutants {
        assert!(is_found(mutant), "the check does not see {mutant:?}");
    }
}

/// Whether the check fails, or an assertion of the throttle's own, in one of 100 cases.
fn is_found(mutant: Mutant) -> bool {
    let _planted = plant(mutant);
    let mut runner = TestRunner::deterministic();
    (0..100).any(|_| {
        let case = (params(), ops()).new_tree(&mut runner).expect("a case").current();
        catch_unwind(|| check(case.0, &case.1)).map_or(true, |checked| checked.is_err())
    })
}

/// Mail to one stranger and mail to two, by turns and as fast as both kinds of slack come back: above what the first hour may have at
/// once it is one stranger a minute, as with either kind alone.
#[test]
fn two_kinds_of_mail_by_turns_reach_no_more_strangers_than_one() {
    let params = Params { recipients: Recipients::Classed, ..Params::default() };
    let mut user = Throttle::new(params, Instant::ZERO).expect("parameters within bounds");
    let (mut reached, mut fresh) = (0, 0u64);
    for minute in 0..600 {
        let sizes: &[u64] = if minute % 2 == 0 { &[1, 2] } else { &[1] };
        for size in sizes {
            let to: Vec<_> = (fresh..fresh + size).map(|key| Recipient::stranger(RecipientKey(key))).collect();
            fresh += size;
            let mail = Mail { to: &to, from: None };
            match user.submit_mail(at(minute * 60 + 1), &mail) {
                MailDecision::Accepted { fates, .. } => reached += fates.iter().filter(|fate| fate.is_none()).count(),
                MailDecision::Refused => {}
            }
        }
    }
    assert!(user.stopped().is_some(), "two a minute: {reached} of {fresh} strangers in ten hours, and no stop");
    assert!(reached <= 50, "{reached} strangers before the stop");
}

/// A mail a minute to strangers, each from another network that is new to the account: slowed within ten mails, stopped within thirty.
#[test]
fn the_patient_hijacker_is_slowed_and_stopped_and_a_telephone_is_not() {
    let params = Params { recipients: Recipients::Classed, new_networks: 6, ..Params::default() };
    for minutes in [1, 7, 20, 45, 70] {
        let mut user = Throttle::new(params, Instant::ZERO).expect("parameters within bounds");
        let (mut slowed, mut stopped) = (None, None);
        for n in 0..125u64 {
            let to = [Recipient::stranger(RecipientKey(1_000 + n))];
            let mail = Mail { to: &to, from: Some(NetworkKey(n as u32)) };
            if let MailDecision::Accepted { fates, stopped: stops } = user.submit_mail(at(n * minutes * 60), &mail) {
                slowed = slowed.or(fates[0].map(|_| n + 1));
                stopped = stopped.or(stops.map(|_| n + 1));
            }
        }
        assert!(slowed.is_some_and(|n| n <= 10), "{minutes} min apart: slowed at {slowed:?}");
        assert!(stopped.is_some_and(|n| n <= 30), "{minutes} min apart: stopped after {stopped:?}");
    }
    let mut user = Throttle::new(params, Instant::ZERO).expect("parameters within bounds");
    for (day, change) in (0..60u64).flat_map(|day| (0..8u64).map(move |change| (day, change))) {
        let to = [Recipient::stranger(RecipientKey(day * 8 + change))];
        let mail = Mail { to: &to, from: Some(NetworkKey((day * 8 + change) as u32)) };
        let time = at(day * 86_400 + 7 * 3_600 + change * 3_600);
        let goes = matches!(user.submit_mail(time, &mail), MailDecision::Accepted { fates, .. } if fates[0].is_none());
        assert!(goes, "slowed on day {day} at change {change}");
    }
}
