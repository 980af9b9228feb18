//! The backlog beside a list of all that waits, in the order of arrival, which is looked through each time.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use weir_core::fair::{
    Backlog, Fair, Profile, QueueBounds, Room, Scarce, SessionKey, Settings, SubnetKey, Ticket, Work,
};
use weir_core::mutant::{Mutant, plant};

#[derive(Clone, Debug)]
enum Op {
    /// A request comes; whoever has to make room for it leaves.
    Come { subnet: u64, bytes: u32 },
    /// A request that waits is served, or its client goes.
    Leave { nth: usize },
}

type Case = (QueueBounds, Vec<Op>);

fn cases() -> impl Strategy<Value = Case> {
    let come = (0..5u64, 0..40u32).prop_map(|(subnet, bytes)| Op::Come { subnet, bytes });
    let op = prop_oneof![4 => come, 1 => (0..16usize).prop_map(|nth| Op::Leave { nth })];
    let bounds = (1..12u64, 20..200u64).prop_map(|(requests, bytes)| QueueBounds { requests, bytes });
    (bounds, prop::collection::vec(op, 0..120))
}

/// The rules in their own words.
#[derive(Default)]
struct Naive(Vec<(Ticket, u64, u64)>);

impl Naive {
    fn held(&self, scarce: Scarce) -> BTreeMap<u64, u64> {
        let mut held = BTreeMap::new();
        for (_, subnet, bytes) in &self.0 {
            *held.entry(*subnet).or_default() += if scarce == Scarce::Bytes { *bytes } else { 1 };
        }
        held
    }

    fn room(&self, subnet: u64, bytes: u64, bounds: QueueBounds) -> Room {
        let all: u64 = self.held(Scarce::Bytes).values().sum();
        let (scarce, added) = match (all + bytes > bounds.bytes, self.0.len() as u64 >= bounds.requests) {
            (true, _) => (Scarce::Bytes, bytes),
            (false, true) => (Scarce::Requests, 1),
            (false, false) => return Room::Enough,
        };
        let held = self.held(scarce);
        let with_it = held.get(&subnet).copied().unwrap_or(0) + added;
        // Of equals, the one with the highest key.
        match held.into_iter().max_by_key(|(key, much)| (*much, *key)) {
            Some((longest, much)) if much > with_it => {
                Room::After(self.0.iter().rfind(|(_, of, _)| *of == longest).expect("it holds something").0)
            }
            _ => Room::None(scarce),
        }
    }
}

fn check((bounds, ops): &Case) -> Result<(), String> {
    // Tickets as the scheduler gives them: their places are used again.
    let mut fair = Fair::new(Settings::default(), Profile::default());
    let (mut backlog, mut naive) = (Backlog::default(), Naive::default());
    for (step, op) in ops.iter().enumerate() {
        let mut leave = |backlog: &mut Backlog, naive: &mut Naive, ticket| {
            fair.cancel(ticket);
            naive.0.retain(|(other, _, _)| *other != ticket);
            backlog.leave(ticket) && !backlog.leave(ticket)
        };
        match *op {
            Op::Come { subnet, bytes } => loop {
                let room = backlog.room(SubnetKey(subnet), bytes, *bounds);
                let expected = naive.room(subnet, bytes.into(), *bounds);
                if room != expected {
                    return Err(format!("step {step}, {op:?}: {room:?}, but by the rules {expected:?}"));
                }
                match room {
                    Room::After(ticket) if leave(&mut backlog, &mut naive, ticket) => {}
                    Room::After(ticket) => return Err(format!("step {step}: {ticket:?} does not wait once")),
                    Room::None(_) => break,
                    Room::Enough => {
                        let ticket = fair.arrive(SessionKey(subnet), SubnetKey(subnet), Work(1));
                        let ticket = ticket.map_err(|refusal| format!("{refusal:?}"))?;
                        backlog.join(ticket, SubnetKey(subnet), bytes);
                        naive.0.push((ticket, subnet, bytes.into()));
                        break;
                    }
                }
            },
            Op::Leave { nth } => {
                if let Some((ticket, _, _)) = naive.0.get(nth).copied()
                    && !leave(&mut backlog, &mut naive, ticket)
                {
                    return Err(format!("step {step}: {ticket:?} does not leave once"));
                }
            }
        }
        let (real, all) = ((backlog.requests(), backlog.bytes()), naive.held(Scarce::Bytes).values().sum::<u64>());
        if real != (naive.0.len() as u64, all) || real.0 > bounds.requests || real.1 > bounds.bytes {
            return Err(format!("step {step}: {real:?} wait"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_longest_backlog_makes_room(case in cases()) {
        check(&case).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_newcomer_that_takes_the_place_of_an_equal_is_found() {
    let mut runner = TestRunner::deterministic();
    let cases: Vec<Case> = (0..100).map(|_| cases().new_tree(&mut runner).expect("a case").current()).collect();
    assert!(cases.iter().all(|case| check(case).is_ok()), "without the bug all is well");
    let _planted = plant(Mutant::FairDropsOfAnEqual);
    assert!(cases.iter().any(|case| check(case).is_err()), "the mutant survived");
}
