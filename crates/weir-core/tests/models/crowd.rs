//! The slack of a crowd beside a list of everything that was ever spent, replayed each time.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::time::Duration;
use weir_core::mutant::{Mutant, plant};
use weir_core::throttle::{Crowd, CrowdParams};
use weir_core::time::Instant;

#[derive(Clone, Debug)]
struct Op {
    after: u64,
    key: u64,
    cost: u32,
}

type Case = (CrowdParams, Vec<Op>);

fn cases() -> impl Strategy<Value = Case> {
    let params = (1..6u32, 1..20u64, 1..4usize).prop_map(|(max_slack, period, places)| CrowdParams {
        max_slack,
        period: Duration::from_nanos(period),
        places,
    });
    let op = (0..15u64, 0..6u64, 1..8u32).prop_map(|(after, key, cost)| Op { after, key, cost });
    (params, prop::collection::vec(op, 0..150))
}

/// The rule in its own words: slack in units of a nanosecond's share, given back step by step.
struct Naive {
    params: CrowdParams,
    /// Who has a place, and how much is missing.
    missing: Vec<(u64, u64)>,
    newcomers: u64,
    now: u64,
}

impl Naive {
    fn pass(&mut self, time: u64) {
        self.now += time;
        for _ in 0..time {
            self.missing.iter_mut().for_each(|(_, missing)| *missing -= 1);
            self.missing.retain(|(_, missing)| *missing > 0);
            self.newcomers = self.newcomers.saturating_sub(1);
        }
    }

    fn spend(&mut self, key: u64, cost: u32) -> Result<(), Duration> {
        let period = self.params.period.as_nanos() as u64;
        let (all, price) =
            (period * u64::from(self.params.max_slack), period * u64::from(cost.min(self.params.max_slack)));
        let room = self.missing.len() < self.params.places;
        let place = self.missing.iter().position(|(known, _)| *known == key);
        let missing = match place {
            Some(at) => &mut self.missing[at].1,
            None if room => {
                self.missing.push((key, 0));
                &mut self.missing.last_mut().expect("it was pushed").1
            }
            None => &mut self.newcomers,
        };
        let after = *missing + price;
        if after > all {
            return Err(Duration::from_nanos(after - all));
        }
        *missing = after;
        Ok(())
    }
}

fn agrees((params, ops): &Case) -> Result<(), TestCaseError> {
    let mut crowd = Crowd::new(*params);
    let mut naive = Naive { params: *params, missing: Vec::new(), newcomers: 0, now: 0 };
    for op in ops {
        naive.pass(op.after);
        let now = Instant(naive.now);
        let wait = crowd.wait(op.key, op.cost, now);
        let (spent, wanted) = (crowd.spend(op.key, op.cost, now), naive.spend(op.key, op.cost));
        prop_assert_eq!(spent, wanted, "{:?} at {:?}", op, now);
        prop_assert_eq!(wait, wanted.err().unwrap_or_default());
        prop_assert!(crowd.len() <= params.places);
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_crowd_spends_as_the_list_does(case in cases()) {
        agrees(&case)?;
    }
}

#[test]
fn a_table_that_forgets_the_oldest_is_found_out() {
    let _planted = plant(Mutant::CrowdForgetsTheOldest);
    let mut runner = TestRunner::deterministic();
    let found = (0..500).any(|_| {
        let case = cases().new_tree(&mut runner).expect("a case").current();
        agrees(&case).is_err()
    });
    assert!(found, "whoever is put out has spent nothing");
}

/// Whoever floods the table with new keys does not get back what it spent.
#[test]
fn nobody_is_forgotten_to_make_room() {
    let params = CrowdParams { max_slack: 10, period: Duration::from_secs(1), places: 100 };
    let (mut crowd, now) = (Crowd::new(params), Instant(1));
    assert_eq!(crowd.spend(7, 10, now), Ok(()));
    let others = (1000..101_000u64).filter(|key| crowd.spend(*key, 1, now).is_ok()).count();
    assert_eq!((others, crowd.len()), (99 + 10, 100), "those without a place share one slack");
    assert_eq!(crowd.spend(7, 1, now), Err(Duration::from_secs(1)));
    assert_eq!(crowd.spend(7, 1, now + Duration::from_secs(1)), Ok(()));
    let mut later = crowd.clone();
    assert_eq!((later.wait(5, 10, now + Duration::from_secs(60)), later.len()), (Duration::ZERO, 0));
}
