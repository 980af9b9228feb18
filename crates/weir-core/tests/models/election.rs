//! One node against the rules written as a table: random messages, lease answers and waits.
//!
//! The model knows the paper's comparison word for word, remembers aborts and grants naively, and says
//! for every message what must be answered and what must not change.

mod cases;
mod model;
mod op;

use model::{Model, origin, paper_prefers};
use op::{Op, ops};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_core::election::*;
use weir_core::mutant::{Mutant, plant};

fn check(role: Role, ops: &[Op]) -> Result<(), String> {
    Model::new(role).run(ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_eligible_node_keeps_the_rules(ops in ops()) {
        check(Role::Eligible, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_dispatcher_and_an_external_node_never_stand(ops in ops()) {
        check(Role::Dispatcher, &ops).map_err(TestCaseError::fail)?;
        check(Role::External, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_fence_is_the_maximum_so_far(epochs in proptest::collection::vec(0u64..8, 0..40)) {
        check_fence(&epochs).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn ranks_are_totally_ordered(machines in proptest::collection::vec((0u8..3, 0u16..3, 0u8..4), 3)) {
        let rank = |m: &(u8, u16, u8)| {
            let claim = Claim { priority: Priority(m.0), index: ProcessingIndex(m.1), stands: true };
            Rank::new(&origin(Role::Eligible, m.0, m.2), claim)
        };
        let [a, b, c] = [0, 1, 2].map(|i| &machines[i]);
        prop_assert_eq!(rank(a).beats(&rank(b)), paper_prefers(*a, *b));
        prop_assert_eq!(rank(a).beats(&rank(b)) || rank(b).beats(&rank(a)), a != b);
        prop_assert!(!(rank(a).beats(&rank(b)) && rank(b).beats(&rank(c))) || rank(a).beats(&rank(c)));
    }
}

fn check_fence(epochs: &[u64]) -> Result<(), String> {
    let mut fence = Fence::default();
    for (i, epoch) in epochs.iter().enumerate() {
        let highest = epochs[..i].iter().copied().max().unwrap_or(0);
        if fence.admit(Epoch(*epoch)).is_ok() != (*epoch >= highest) {
            return Err(format!("epoch {epoch} after {highest}"));
        }
    }
    Ok(())
}

/// Runs `check` on fixed random inputs until it fails.
fn finds<T: core::fmt::Debug>(
    mutant: Mutant,
    inputs: impl Strategy<Value = T>,
    check: impl Fn(&T) -> Result<(), String>,
) -> Option<String> {
    let _planted = plant(mutant);
    let mut runner = TestRunner::deterministic();
    (0..2_000).find_map(|_| check(&inputs.new_tree(&mut runner).unwrap().current()).err())
}

#[test]
fn the_checks_find_the_planted_bugs() {
    for (mutant, says) in [
        (Mutant::ElectionElectsAfterAbort, "in which it was aborted"),
        (Mutant::ElectionTrueLeaderYields, "lower rank"),
        (Mutant::ElectionActsOnExpiredLease, "without a live lease"),
        (Mutant::ElectionKeepsOffice, "keeps its office"),
    ] {
        let found = finds(mutant, ops(), |ops| check(Role::Eligible, ops));
        assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{mutant:?}: {found:?}");
    }
    let found = finds(Mutant::ElectionFenceForgets, proptest::collection::vec(0u64..8, 0..40), |e| check_fence(e));
    assert!(found.is_some());
}
