//! When limits give way, beside an account that is kept by hand over three models of the feeds.

use super::{Draws, Model, Setup};
use std::time::Duration;
use weir_core::feeds::{
    Arrival, InForce, Limits, Machine, Message, MessageId, Opening, Plan, Service, Strategy, replay,
};
use weir_core::mutant::{Mutant, plant};
use weir_core::time::Instant;

const S: u64 = 1_000_000_000;

/// One message: when it comes, its size, and how long its scan takes.
type Mail = (u64, u64, u64);

/// A model of the feeds, and what has been waited in it.
struct Shadow {
    model: Model,
    now: u64,
    waited: u64,
}

impl Shadow {
    fn new(setup: &Setup, in_force: InForce) -> Shadow {
        let mut model = Model::new(setup);
        model.put_in_force(in_force, 0);
        Shadow { model, now: 0, waited: 0 }
    }

    fn run_until(&mut self, until: u64) {
        let ends = |model: &Model| model.workers.iter().enumerate().filter_map(|(i, w)| Some((w.1?, i))).min();
        while let Some((end, worker)) = ends(&self.model).filter(|(end, _)| *end <= until) {
            self.pass(end);
            self.model.free(worker, end);
        }
        self.pass(until);
    }

    fn pass(&mut self, until: u64) {
        self.waited += self.model.waiting.len() as u64 * (until - self.now);
        self.now = until;
    }
}

const EVERY: [InForce; 3] = [InForce::Nothing, InForce::Kept(1), InForce::All];

/// The account by the rule: what waited least lately is in force, and what keeps more back must have saved something.
struct Account {
    /// A shadow for each of [`EVERY`], and what was waited there lately.
    shadows: Vec<(Shadow, f64)>,
    mean_scan: Option<f64>,
    /// Which of [`EVERY`].
    in_force: usize,
}

impl Account {
    fn new(setup: &Setup) -> Account {
        let shadows = EVERY.iter().map(|in_force| (Shadow::new(setup, *in_force), 0.0)).collect();
        Account { shadows, mean_scan: None, in_force: 0 }
    }

    fn arrive(&mut self, message: Message, now: u64) {
        let passed = (now - self.shadows[0].0.now) as f64;
        let (least, most) = Opening::MEMORY_NS;
        let memory = (self.mean_scan.unwrap_or(0.0) * Opening::MEMORY_SCANS).max(least).min(most);
        for (shadow, lately) in &mut self.shadows {
            let before = shadow.waited;
            shadow.run_until(now);
            *lately = *lately * (-passed / memory).exp() + (shadow.waited - before) as f64;
        }
        if passed > 0.0 {
            let best = (0..3).filter(|other| self.shadows[*other].1 < self.bar(*other));
            self.in_force =
                best.min_by(|a, b| self.shadows[*a].1.total_cmp(&self.shadows[*b].1)).unwrap_or(self.in_force);
        }
        for (shadow, _) in &mut self.shadows {
            shadow.model.arrive(message, now, now);
        }
        let scan = message.expected.as_nanos() as f64;
        let mean = self.mean_scan.unwrap_or(scan);
        self.mean_scan = Some(mean + (scan - mean) / 200.0);
    }

    /// What another must stay below to come into force.
    fn bar(&self, other: usize) -> f64 {
        let now = self.shadows[self.in_force].1;
        if other > self.in_force { now * (1.0 - Opening::EARNED) } else { now }
    }

    /// Whether rounding could have decided otherwise, now or before.
    fn is_close(&self) -> bool {
        let waited = |of: usize| self.shadows[of].1;
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.max(b).max(1.0);
        let pairs = [(0, 1), (0, 2), (1, 2)];
        pairs
            .iter()
            .any(|(a, b)| near(waited(*a), waited(*b)) || near(waited(*a) * (1.0 - Opening::EARNED), waited(*b)))
    }
}

fn plan(strategy: Strategy) -> Plan {
    Plan::live(Limits::new(vec![3, 6]).unwrap(), strategy)
}

/// Many small messages among a few large ones, for which the limits are good; then large ones only.
fn mail(seed: u64, count: u64) -> Vec<Mail> {
    let (mut draws, mut at) = (Draws(seed), 0);
    let mut one = |number: u64| {
        let shifted = number > count * 2 / 3;
        let large = shifted || draws.below(10) == 0;
        at += draws.below(if shifted { 8 * S } else { S });
        let size = if large { 60 + draws.below(20) } else { 1 + draws.below(3) };
        (at, size, size * S / 10)
    };
    (0..count).map(&mut one).collect()
}

fn message(number: usize, (_, size, scan): Mail) -> Message {
    Message { id: MessageId(number as u64), size, expected: Duration::from_nanos(scan) }
}

/// The account of the core and that of the model agree at every message; how often limits came into force and gave way.
fn check(strategy: Strategy, mail: &[Mail]) -> Result<u32, String> {
    let machine = Machine { workers: vec![1; 3], cpus: 3 };
    let setup = Setup { plan: plan(strategy), workers: vec![1; 3], waiting_max: Opening::SHADOW_MAX, processors: 3 };
    let mut real = Opening::new(&setup.plan, &machine, Instant(0)).map_err(|e| e.to_string())?;
    let mut model = Account::new(&setup);
    let mut changes = 0;
    for (number, one) in mail.iter().enumerate() {
        let before = real.in_force();
        real.arrive(message(number, *one), Instant(one.0));
        model.arrive(message(number, *one), one.0);
        changes += u32::from(real.in_force() != before);
        let by_rule = EVERY[model.in_force];
        if real.in_force() != by_rule && !model.is_close() {
            return Err(format!("message {number}: {:?} in force, by the rule {by_rule:?}", real.in_force()));
        }
    }
    Ok(changes)
}

#[test]
fn limits_give_way_by_the_rule_and_the_planted_bug_is_found() {
    let checks = |seed| [Strategy::Shortest, Strategy::SizeLoad].map(|strategy| check(strategy, &mail(seed, 600)));
    let changes: Vec<u32> = (1..=8).flat_map(checks).collect::<Result<_, _>>().unwrap();
    assert!(
        changes.iter().filter(|changes| **changes >= 2).count() > 8,
        "they come into force and give way: {changes:?}"
    );
    let _planted = plant(Mutant::FeedsStayShut);
    assert!((1..=8).flat_map(checks).any(|checked| checked.is_err()), "limits that never give way went unnoticed");
}

/// The mean wait of those messages that come from `from` on.
fn mean_wait_s(plan: &Plan, mail: &[Mail], from: u64) -> f64 {
    let service = Service::new(0.0, 0.1).unwrap();
    let arrivals = mail.iter().map(|(at, size, _)| Arrival { at: Instant(*at), size: *size });
    let machine = Machine { workers: vec![1; 3], cpus: 3 };
    let (mut total, mut count, mut number) = (0.0, 0.0, 0);
    let skipped = mail.iter().filter(|(at, ..)| *at < from).count();
    replay(arrivals, &service, plan, &machine, &mut |served| {
        number += 1;
        if number > skipped {
            (total, count) = (total + served.wait_ns as f64 / 1e9, count + 1.0);
        }
    });
    total / count
}

#[test]
fn when_all_mail_is_large_it_waits_about_as_long_as_without_limits() {
    let mail = mail(3, 6000);
    let shift = mail[4001].0;
    let live = plan(Strategy::Shortest);
    let line = Plan { limits: Limits::unlimited(3).unwrap(), opens: false, ..live.clone() };
    let shut = Plan { opens: false, ..live.clone() };
    let [live, line, shut] = [live, line, shut].map(|plan| mean_wait_s(&plan, &mail, shift));
    assert!(shut > 3.0 * line, "the limits alone would be a disaster: {shut} {line}");
    assert!(live < 1.2 * line, "{live} {line}");
}
