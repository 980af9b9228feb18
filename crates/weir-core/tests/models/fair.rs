//! The fair queue against the naive scheduler of the thesis, fluid sharing and water-filling.

mod backlog;
mod floods;
mod history;
mod line;
mod naive;
mod oracles;
mod prices;
mod ratio;

use naive::{Naive, ONE, Request};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use weir_core::fair::{Fair, PeerId, Profile, Report, SessionKey, Settings, SubnetKey, Ticket, Weight, Work};
use weir_core::mutant::{Mutant, plant};

const SESSIONS: u64 = 9;

#[derive(Clone, Debug)]
enum Op {
    Arrive { session: u64, cost: u64 },
    Finish { which: usize, actual: u64 },
    Overrun { which: usize, extra: u64 },
    Cancel { which: usize },
    Hear { peer: u64, number: u64, session: u64, served: u64, active: bool },
    Forget { peer: u64 },
    Profile { seed: u64 },
    Drain,
}

#[derive(Clone, Debug)]
struct Trace {
    slots: u32,
    debt_cap: u64,
    origin: u64,
    ops: Vec<Op>,
}

fn trace() -> impl Strategy<Value = Trace> {
    let cost = || prop_oneof![Just(1_000_000u64), 1u64..5_000_000];
    let session = || 0..SESSIONS;
    let op = prop_oneof![
        10 => (session(), cost()).prop_map(|(session, cost)| Op::Arrive { session, cost }),
        8 => (0usize..64, cost()).prop_map(|(which, actual)| Op::Finish { which, actual }),
        1 => (0usize..64, cost()).prop_map(|(which, extra)| Op::Overrun { which, extra }),
        2 => (0usize..64).prop_map(|which| Op::Cancel { which }),
        3 => (0u64..3, 0u64..12, session(), cost(), any::<bool>()).prop_map(
            |(peer, number, session, served, active)| Op::Hear { peer, number, session, served, active }
        ),
        1 => (0u64..3).prop_map(|peer| Op::Forget { peer }),
        1 => any::<u64>().prop_map(|seed| Op::Profile { seed }),
        1 => Just(Op::Drain),
    ];
    let origin = prop_oneof![Just(0), Just(u64::MAX - 2_000), Just(1 << 63)];
    let cap = prop_oneof![Just(6_000_000u64), Just(60_000_000)];
    (1u32..4, cap, origin, prop::collection::vec(op, 1..250)).prop_map(|(slots, debt_cap, origin, ops)| Trace {
        slots,
        debt_cap,
        origin,
        ops,
    })
}

fn subnet(session: u64) -> u64 {
    100 + session % 4 / 2 + session % 3
}

fn tags(work: u64) -> i128 {
    i128::from(work) << 14
}

/// Runs a trace through both and demands the same at every step.
fn check(trace: &Trace) -> Result<(), String> {
    let settings =
        Settings { slots: trace.slots, debt_cap: Work(trace.debt_cap), origin: trace.origin, ..Settings::default() };
    let mut pair = Pair {
        fair: Fair::new(settings, Profile::default()),
        naive: Naive::new(trace.slots as usize, tags(trace.debt_cap)),
        waiting: BTreeMap::new(),
        running: Vec::new(),
        arrivals: 0,
        debt_cap: trace.debt_cap,
    };
    for (step, op) in trace.ops.iter().enumerate() {
        pair.apply(op).and_then(|()| pair.compare()).map_err(|wrong| format!("step {step}, {op:?}: {wrong}"))?;
    }
    Ok(())
}

struct Pair {
    fair: Fair,
    naive: Naive,
    /// Waiting requests by arrival number.
    waiting: BTreeMap<usize, Ticket>,
    running: Vec<(usize, Ticket)>,
    arrivals: usize,
    debt_cap: u64,
}

impl Pair {
    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Arrive { session, cost } => {
                self.arrivals += 1;
                let key = (SessionKey(session), SubnetKey(subnet(session)));
                let ticket = self.fair.arrive(key.0, key.1, Work(cost)).map_err(|r| format!("{r:?}"))?;
                let request = Request { name: self.arrivals, tags: tags(cost.min(self.debt_cap)) };
                self.naive.arrive(session, subnet(session), request);
                self.waiting.insert(self.arrivals, ticket);
            }
            Op::Finish { which, actual } if !self.running.is_empty() => {
                let (name, ticket) = self.running.remove(which % self.running.len());
                self.naive.finish(name, tags(actual));
                demand(self.fair.finish(ticket, Work(actual)), "a running request finishes")?;
                demand(!self.fair.finish(ticket, Work(actual)), "but once")?;
            }
            Op::Overrun { which, extra } if !self.running.is_empty() => {
                let (name, ticket) = self.running[which % self.running.len()];
                self.naive.overrun(name, tags(extra));
                demand(self.fair.overrun(ticket, Work(extra)), "a running request overruns")?;
            }
            Op::Cancel { which } if !self.waiting.is_empty() => {
                let (&name, &ticket) = self.waiting.iter().nth(which % self.waiting.len()).expect("not empty");
                self.waiting.remove(&name);
                self.naive.cancel(name);
                demand(self.fair.cancel(ticket), "a waiting request leaves")?;
                demand(!self.fair.cancel(ticket), "but once")?;
            }
            Op::Hear { peer, number, session, served, active } => {
                let report = Report {
                    session: SessionKey(session),
                    subnet: SubnetKey(subnet(session)),
                    life: 1,
                    served: Work(served),
                    active,
                };
                self.fair.hear(PeerId(peer), number, &report).map_err(|r| format!("{r:?}"))?;
                self.naive.hear(peer, number, session, subnet(session), (served, active));
            }
            Op::Forget { peer } => {
                self.fair.forget_peer(PeerId(peer));
                self.naive.forget_peer(peer);
            }
            Op::Profile { seed } => {
                let ratio = |subnet: u64| ((seed >> (subnet % 8 * 8)) & 0xff) as f64 / 32.0;
                let subnets: Vec<u64> = (100..104).filter(|subnet| ratio(*subnet) > 0.0).collect();
                let profile = subnets.iter().fold(Profile::default(), |profile, subnet| {
                    profile.with(SubnetKey(*subnet), Weight::from_ratio(ratio(*subnet)))
                });
                self.fair.set_profile(profile);
                let units = |subnet: &u64| (*subnet, (ratio(*subnet) * ONE as f64) as i128);
                self.naive.set_profile(subnets.iter().map(units).collect());
            }
            Op::Drain => self.drain()?,
            Op::Finish { .. } | Op::Overrun { .. } | Op::Cancel { .. } => {}
        }
        self.dispatch()
    }

    /// Every free slot is filled, by the same requests in the same order.
    fn dispatch(&mut self) -> Result<(), String> {
        loop {
            let (ticket, name) = (self.fair.dispatch(), self.naive.dispatch());
            let chosen = ticket.and_then(|t| self.waiting.iter().find(|(_, w)| **w == t)).map(|(name, _)| *name);
            demand(chosen == name, &format!("dispatched {chosen:?}, the naive scheduler {name:?}"))?;
            let (Some(name), Some(ticket)) = (name, ticket) else { return Ok(()) };
            self.waiting.remove(&name);
            self.running.push((name, ticket));
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        demand(self.fair.waiting() == self.waiting.len(), "as many wait")?;
        demand(self.fair.running() == self.running.len(), "as many run")?;
        let time = (i128::from(self.fair.virtual_time()), self.naive.time);
        demand(time.0 == time.1, &format!("virtual time {time:?}"))?;
        let ids: Vec<u64> = self.naive.sessions.keys().copied().collect();
        for id in ids.iter().filter(|id| self.fair.standing(SessionKey(**id)).is_none()) {
            self.naive.forget_session(*id)?;
        }
        for id in ids {
            let Some(standing) = self.fair.standing(SessionKey(id)) else { continue };
            let debt = (i128::from(standing.debt.0), self.naive.debt(id));
            demand(debt.0 == debt.1, &format!("debt of {id} {debt:?}"))?;
            demand(standing.debt.0 <= self.debt_cap, "debt within the cap")?;
            let subnet = subnet(id);
            let weight = self.fair.weight(SubnetKey(subnet)).ok_or("a known session's subnet is known")?;
            let rate = self.naive.rate(subnet) as f64 / ONE as f64;
            demand(weight.ratio() == rate, &format!("weight of {subnet}: {} {rate}", weight.ratio()))?;
            let active = i128::from(self.fair.active(SubnetKey(subnet)));
            demand(active == self.naive.active(subnet), "as many active")?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), String> {
        while let Some(report) = self.fair.next_report() {
            let known = &self.naive.sessions[&report.session.0];
            let served = (i128::from(report.served.0), known.served >> 14);
            demand(served.0 == served.1, &format!("reported service {served:?}"))?;
            let active = !known.queue.is_empty() || !known.running.is_empty();
            demand(report.active == active, "reported activity")?;
        }
        Ok(())
    }
}

fn demand(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_that_of_the_naive_scheduler(trace in trace()) {
        check(&trace).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_mutant_is_found() {
    let _planted = plant(Mutant::FairSkipsReanchor);
    let mut runner = TestRunner::deterministic();
    let found = (0..50).any(|_| check(&trace().new_tree(&mut runner).expect("a trace").current()).is_err());
    assert!(found, "50 traces did not find that weights change without a new anchor");
}
