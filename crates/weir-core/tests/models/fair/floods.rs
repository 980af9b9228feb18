//! What crowds may cost those who ask politely.

use super::oracles::arrive;
use std::collections::{BTreeMap, VecDeque};
use weir_core::fair::{Fair, Profile, Settings, SubnetKey, Ticket, Weight, Work};
use weir_core::mutant::{Mutant, plant};

#[test]
fn a_flood_from_one_subnet_takes_one_share() {
    let mut fair = Fair::new(Settings { slots: 1, ..Settings::default() }, Profile::default());
    let mut honest = Vec::new();
    for _ in 0..200 {
        honest.push(arrive(&mut fair, 1, 1, 1_000_000));
        for bot in 0..50 {
            arrive(&mut fair, 1_000 + bot, 2, 1_000_000);
        }
    }
    let mut served = 0;
    for _ in 0..300 {
        let ticket = fair.dispatch().expect("somebody waits");
        served += u32::from(honest.contains(&ticket));
        fair.finish(ticket, Work(1_000_000));
    }
    assert!((148..=152).contains(&served), "half of 300, not {served}");
}

/// Who floods a backend.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    /// Eight subnets of 250 sessions each ask again as soon as they are answered.
    Stays,
    /// Sessions of one subnet, with a history of eight, ask once each; eight wait at a time. So the gate queues networks that nobody knows.
    Once,
}

/// Polite visitors are numbered from here.
const FIRST_VISITOR: u64 = 1_000_000;

/// The longest that any of twenty polite visitors has to wait, in requests: each in its own subnet, two requests a second, at a backend of 4 slots
/// and 20 ms, while this crowd asks for `seconds`.
fn longest_wait_in_a_flood(crowd: Crowd, seconds: u64) -> f64 {
    const COST: u64 = 20_000_000;
    let (visitors, second) = (20u64, 1_000_000_000u64);
    let bots = if crowd == Crowd::Once { 8 } else { 2_000 };
    let is_bot = |session: u64| !(FIRST_VISITOR..FIRST_VISITOR + visitors).contains(&session);
    let subnet = |session: u64| match crowd {
        _ if !is_bot(session) => session,
        Crowd::Stays => session % 8,
        Crowd::Once => 0,
    };
    // All are ranked by what they really cost: priced higher, the clock would need longer to run away than anybody watches.
    let settings = Settings { slots: 4, debt_cap: Work(COST), ..Settings::default() };
    let profile = Profile::default();
    let profile = if crowd == Crowd::Once { profile.with(SubnetKey(0), Weight::from_ratio(8.0)) } else { profile };
    let mut fair = Fair::new(settings, profile);
    let mut asked: BTreeMap<Ticket, (u64, u64)> = BTreeMap::new();
    let mut running: VecDeque<(u64, Ticket)> = VecDeque::new();
    let (mut visits, mut worst, mut others) = (0u64, 0u64, 2 * FIRST_VISITOR);
    for bot in 0..bots {
        asked.insert(arrive(&mut fair, bot, subnet(bot), COST), (bot, 0));
    }
    loop {
        let now = running.front().map_or(0, |(end, _)| *end);
        // The visitors come one after another, evenly.
        let visit_at = 3 * second + visits * second / (2 * visitors);
        let now = now.min(visit_at);
        if now > seconds * second {
            return worst as f64 / COST as f64;
        }
        if now == visit_at {
            let visitor = FIRST_VISITOR + visits % visitors;
            asked.insert(arrive(&mut fair, visitor, subnet(visitor), COST), (visitor, now));
            visits += 1;
        } else if let Some((_, ticket)) = running.pop_front() {
            fair.finish(ticket, Work(COST));
            let (session, _) = asked.remove(&ticket).expect("it was asked for");
            if is_bot(session) {
                others += 1;
                let session = if crowd == Crowd::Once { others } else { session };
                asked.insert(arrive(&mut fair, session, subnet(session), COST), (session, now));
            }
        }
        while let Some(ticket) = fair.dispatch() {
            let (session, since) = asked[&ticket];
            worst = worst.max(if is_bot(session) { 0 } else { now - since });
            running.push_back((now + COST, ticket));
        }
    }
}

/// What the polite are served ahead of their time is work of the others' time too. A clock that does not know runs away from those who wait, until
/// nobody who comes is before them.
#[test]
fn nobody_polite_waits_longer_the_longer_a_flood_lasts() {
    let worst = longest_wait_in_a_flood(Crowd::Stays, 60);
    assert!(worst <= 3.0, "somebody waited for {worst:.1} requests");
    let _planted = plant(Mutant::FairForgetsServed);
    let worst = longest_wait_in_a_flood(Crowd::Stays, 60);
    assert!(worst > 30.0, "the bug would be found: {worst:.1}");
}

/// However many of a subnet come and go, together they weigh what the subnet's history says: each has had its service ahead of its time, and
/// lingers until the clock has come there.
#[test]
fn who_asks_once_and_goes_leaves_no_weight_of_its_own() {
    let worst = longest_wait_in_a_flood(Crowd::Once, 60);
    assert!(worst <= 3.0, "somebody waited for {worst:.1} requests");
    let _planted = plant(Mutant::FairForgetsLingering);
    let worst = longest_wait_in_a_flood(Crowd::Once, 60);
    assert!(worst > 10.0, "the bug would be found: {worst:.1}");
}
