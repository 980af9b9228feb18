//! Bought history: attackers who come to a quiet site with as many requests, cookies, networks and days as they like, and attack on the next day with what they have
//! earned. Twenty visitors, each in its own subnet, have come for a fortnight.
//!
//! The oracle is fluid sharing: a page of 20 ms is ready after as long as it takes at a visitor's share, and one request more. In it, what an attacker's
//! subnet weighs is bounded by time alone: [`most_averages`].

use std::collections::BTreeMap;
use weir_core::fair::visits::{SubnetHistory, weight_in_averages};
use weir_core::fair::{Fair, Profile, SessionKey, Settings, SubnetKey, Ticket, Weight, Work};
use weir_core::mutant::{Mutant, plant};

const MS: u64 = 1_000_000;
const SLOTS: u32 = 4;
const PAGE: u64 = 20 * MS;
const VISITORS: u64 = 20;
const DAYS: i64 = 14;
const DAY_S: i64 = 86_400;
/// Strangers weigh as much as so many visitors, as the shell has it.
const STRANGERS: u64 = 8;
/// The subnet of all strangers.
const LANE: u64 = u64::MAX;

/// One way to buy a history before the attack, which begins when the fourteenth day is over.
struct Attack {
    name: &'static str,
    subnets: u64,
    /// Sessions of a subnet in the attack.
    sessions: u64,
    /// The hours before the attack in which it comes, and how often each of how many sessions of a subnet asks then.
    hours: std::ops::RangeInclusive<i64>,
    buyers: u64,
    requests: u64,
}

const ATTACKS: [Attack; 5] = [
    Attack { name: "a quiet minute", subnets: 1, sessions: 400, hours: 1..=1, buyers: 400, requests: 30 },
    Attack { name: "a day with many cookies", subnets: 1, sessions: 400, hours: 1..=24, buyers: 400, requests: 5 },
    Attack { name: "a week of patience", subnets: 1, sessions: 400, hours: 1..=168, buyers: 256, requests: 1 },
    Attack { name: "one request of many networks", subnets: 2_000, sessions: 1, hours: 1..=1, buyers: 1, requests: 1 },
    Attack { name: "an afternoon of many networks", subnets: 2_000, sessions: 1, hours: 1..=5, buyers: 1, requests: 9 },
];

fn visitor(number: u64) -> u64 {
    1_000_000 + number
}

/// The profile on the morning of the attack.
fn profile(attack: &Attack) -> Profile {
    let mut histories: BTreeMap<u64, SubnetHistory> = BTreeMap::new();
    for hour in (1..=DAYS * 24).rev() {
        let at = DAYS * DAY_S - hour * 3_600;
        // Visitors are there for four hours a day.
        for number in (0..VISITORS).filter(|_| hour % 24 < 4) {
            histories.entry(visitor(number)).or_default().note(number, at);
        }
        for subnet in (0..attack.subnets).filter(|_| attack.hours.contains(&hour)) {
            let history = histories.entry(subnet).or_default();
            (0..attack.buyers).for_each(|buyer| (0..attack.requests).for_each(|_| history.note(buyer, at)));
        }
    }
    let average = histories.values().map(SubnetHistory::visits).sum::<f64>() / histories.len() as f64;
    let strangers = Profile::default().with(SubnetKey(LANE), Weight::from_ratio(STRANGERS as f64));
    histories.iter().fold(strangers, |profile, (subnet, history)| match weight_in_averages(history.visits(), average) {
        Some(weight) => profile.with(SubnetKey(*subnet), Weight::from_ratio(weight)),
        None => profile,
    })
}

/// What time alone can give: twice as much every day, beginning with a visitor who never leaves; against visitors who have come for a fortnight.
fn most_averages(attack: &Attack) -> f64 {
    let days = attack.hours.end() / 24;
    let own = if attack.hours.end() < &6 { 0.0 } else { 24.0 * f64::from(1 << (days - 1).max(0)) };
    let visits = 4.0 * DAYS as f64;
    own / ((own + visits * VISITORS as f64) / (VISITORS + 1) as f64)
}

struct World<'a> {
    attack: &'a Attack,
    profile: Profile,
    fair: Fair,
    /// Who asked, and when.
    asked: BTreeMap<Ticket, (u64, u64)>,
    /// When each ends.
    running: Vec<(u64, Ticket)>,
    now: u64,
}

impl World<'_> {
    /// Sessions below the visitors' are the attacker's.
    fn ask(&mut self, session: u64) {
        let subnet = if session >= visitor(0) { session } else { session % self.attack.subnets };
        // Who has no history is a stranger, and all of its network is one.
        let known = self.profile.history(SubnetKey(subnet)).is_some();
        let (session_key, lane) = if known { (session, subnet) } else { (subnet, LANE) };
        let ticket = self.fair.arrive(SessionKey(session_key), SubnetKey(lane), Work(PAGE)).expect("there is room");
        self.asked.insert(ticket, (session, self.now));
    }

    /// Ends the request that ends first, and tells whose it was.
    fn end_first(&mut self) -> u64 {
        let first = (0..self.running.len()).min_by_key(|at| self.running[*at]).expect("something runs");
        let (_, ticket) = self.running.swap_remove(first);
        self.fair.finish(ticket, Work(PAGE));
        self.asked.remove(&ticket).expect("it was asked for").0
    }
}

/// The longest that a visitor waits for a slot in twenty seconds of the attack, in which the attacker's sessions ask again as soon as they are answered.
fn longest_wait(attack: &Attack) -> u64 {
    let profile = profile(attack);
    let fair = Fair::new(Settings { slots: SLOTS, ..Settings::default() }, profile.clone());
    let mut world = World { attack, profile, fair, asked: BTreeMap::new(), running: Vec::new(), now: 0 };
    let (mut visits, mut worst) = (0, 0);
    (0..attack.subnets * attack.sessions).for_each(|session| world.ask(session));
    loop {
        while let Some(ticket) = world.fair.dispatch() {
            let (session, since) = world.asked[&ticket];
            worst = worst.max(if session >= visitor(0) { world.now - since } else { 0 });
            world.running.push((world.now + PAGE, ticket));
        }
        let visit_at = 1_000 * MS + visits * 1_000 * MS / (2 * VISITORS);
        let end_at = world.running.iter().map(|(end, _)| *end).min().unwrap_or(u64::MAX);
        world.now = visit_at.min(end_at);
        if world.now > 20_000 * MS {
            let waits = |ticket: &Ticket| !world.running.iter().any(|(_, running)| running == ticket);
            let stuck = world.asked.iter().filter(|(ticket, (session, _))| *session >= visitor(0) && waits(ticket));
            return stuck.map(|(_, (_, since))| world.now - since).fold(worst, u64::max);
        }
        if world.now == end_at {
            let session = world.end_first();
            if session < visitor(0) {
                world.ask(session);
            }
        } else {
            world.ask(visitor(visits % VISITORS));
            visits += 1;
        }
    }
}

#[test]
fn a_history_is_bought_with_time_and_with_nothing_else() {
    for attack in &ATTACKS {
        let profile = profile(attack);
        let weight = (0..attack.subnets).filter_map(|subnet| profile.history(SubnetKey(subnet)));
        let most = weight.map(Weight::ratio).fold(0.0, f64::max);
        let bound = most_averages(attack);
        assert!(most <= bound * 1.01, "{}: {most:.1} averages, and time alone gives {bound:.1}", attack.name);
        let (wait, crowd) = (longest_wait(attack), bound.max(STRANGERS as f64));
        let fluid = (PAGE as f64 * (VISITORS as f64 + crowd) / f64::from(SLOTS)) as u64;
        assert!(wait <= fluid + PAGE, "{}: somebody waited for {} ms", attack.name, wait / MS);
    }
}

/// With the bug, every request counts.
#[test]
fn a_history_of_requests_is_found() {
    let _planted = plant(Mutant::HistoryCountsRequests);
    for attack in &ATTACKS {
        let profile = profile(attack);
        let most = (0..attack.subnets).filter_map(|subnet| profile.history(SubnetKey(subnet))).map(Weight::ratio);
        let most = most.fold(0.0, f64::max);
        let wait = longest_wait(attack);
        let bound = most_averages(attack);
        let fluid = (PAGE as f64 * (VISITORS as f64 + bound.max(STRANGERS as f64)) / f64::from(SLOTS)) as u64;
        assert!(most > bound * 1.01 || wait > fluid + PAGE, "{}: {most:.1}, {} ms", attack.name, wait / MS);
    }
    let crowd = &ATTACKS[3];
    assert!(longest_wait(crowd) > 1_000 * MS, "two thousand networks that asked once crowd everybody out");
}
