//! Pauses of samples and rests of machines beside a diary that is read from its beginning each time.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::time::Duration;
use weir_core::mutant::{Mutant, plant};
use weir_core::runq::{Deferrals, GroupId, Hindrance, Offer, Plugins, Rest, Scheduler, Settings, Tags, VmId};
use weir_core::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Refuses,
    Works,
    Ready(u8),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Refuses),
        1 => Just(Op::Works),
        2 => (0..3u8).prop_map(Op::Ready),
        2 => (0..70_000u64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..80)
}

/// What the diary says: how many refusals stand since the last good result, and until when the machine rests.
fn read(diary: &[(Instant, Op)]) -> (usize, Instant) {
    let (mut refusals, mut until) = (0, Instant::ZERO);
    for (at, op) in diary {
        match op {
            Op::Works => refusals = 0,
            Op::Refuses => refusals += 1,
            Op::Ready(_) | Op::Pass(_) => {}
        }
        if *op == Op::Refuses && refusals > 2 {
            until = *at + rest_after(refusals);
        }
    }
    (refusals, until)
}

/// 1, 2, 4, 8, 16, 32 seconds, then a minute.
fn rest_after(refusals: usize) -> Duration {
    let seconds = [0, 0, 0, 1, 2, 4, 8, 16, 32];
    Duration::from_secs(seconds.get(refusals).copied().unwrap_or(60))
}

fn group() -> GroupId {
    let offer = Offer { plugins: Plugins(1), tags: Tags::NONE };
    Scheduler::new(Settings::default()).plug(Instant::ZERO, &[offer; 3]).expect("three VMs are a machine")
}

fn check(ops: &[Op]) -> Result<(), String> {
    let group = group();
    let vm = |number| VmId { group, number };
    let (mut rest, mut now, mut diary) = (Rest::default(), Instant(5), Vec::new());
    let mut noted: Vec<VmId> = Vec::new();
    for (step, op) in ops.iter().enumerate() {
        diary.push((now, *op));
        let (refusals, until) = read(&diary);
        let right = match *op {
            Op::Refuses => rest.refused(now) == rest_after(refusals),
            Op::Works => {
                rest.works();
                true
            }
            Op::Ready(number) => {
                let rests = now < until;
                if rests && !noted.contains(&vm(number)) {
                    noted.push(vm(number));
                }
                rest.is_ready(now, vm(number)) != rests
            }
            Op::Pass(ms) => {
                now += Duration::from_millis(ms);
                let expected = if now < until { Vec::new() } else { std::mem::take(&mut noted) };
                rest.rested(now) == expected
            }
        };
        let deadline = (!noted.is_empty()).then_some(until);
        if !right || rest.next_deadline() != deadline {
            return Err(format!("step {step}, {op:?}: {rest:?}, but {refusals} refusals, rests until {until:?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_rests_as_its_diary_says(ops in ops()) {
        check(&ops).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_machine_whose_refusals_are_never_forgiven_is_found() {
    let mut runner = TestRunner::deterministic();
    let cases: Vec<Vec<Op>> = (0..50).map(|_| ops().new_tree(&mut runner).expect("a case").current()).collect();
    assert!(cases.iter().all(|case| check(case).is_ok()), "without the bug all is well");
    let _planted = plant(Mutant::RunqForgivesNoRefusal);
    assert!(cases.iter().any(|case| check(case).is_err()), "the mutant survived");
}

#[test]
fn a_sample_that_is_put_off_waits_twice_as_long_each_time() {
    let pauses = |why| {
        let mut deferrals = Deferrals::default();
        (0..30).map(|_| deferrals.put_off(why).as_secs()).collect::<Vec<_>>()
    };
    let (refused, unreachable) = (pauses(Hindrance::Refused), pauses(Hindrance::OutOfReach));
    assert_eq!(unreachable[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert_eq!((refused[0], &refused[1..]), (0, &unreachable[..29]), "the first time it may go on at once");
    assert!(unreachable[10..].iter().all(|pause| *pause == 300));
}
