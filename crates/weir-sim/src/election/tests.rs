//! The experiment's own tests: fixed seeds, planted bugs, and the times that the settings promise.

use super::invariants::Invariant;
use super::*;
use crate::rng::Rng;
use crate::world::{Episode, FaultKind, FaultPlan};
use weir_core::mutant::{Mutant, plant};
use weir_core::time::Instant;

fn options(nodes: usize, faults: &str) -> Options {
    Options { nodes, seed: 1, runs: 1, faults: faults.parse().unwrap(), settings: Settings::default() }
}

fn report(nodes: usize, faults: &str, runs: u64) -> ElectionReport {
    let report = simulate(&Options { runs, ..options(nodes, faults) }, &|_| {}).unwrap();
    if let Some(broken) = report.broken.first() {
        panic!("{}: {}\n{}\n{}", broken.invariant, broken.detail, broken.history.join("\n"), broken.replay);
    }
    report
}

#[test]
fn no_invariant_breaks_under_all_faults() {
    let report = report(5, "all", 300);
    assert!(report.recovery_s.max <= report.recovery_bound_s);
    assert!(report.invariants.iter().all(|invariant| invariant.checked > 0), "{:?}", report.invariants);
    assert!(report.faults_injected.len() == FaultKind::ALL.len() && report.work.refused_as_stale > 0);
}

#[test]
fn each_kind_of_fault_alone_breaks_nothing() {
    for (_, name) in FaultKind::ALL {
        report(5, name, 20);
    }
}

#[test]
fn small_and_larger_labs_settle() {
    report(2, "all", 60);
    report(3, "all", 60);
    report(30, "all", 4);
}

#[test]
fn a_quiet_lab_elects_once() {
    let report = report(50, "none", 2);
    assert_eq!((report.elections, report.fail_over_s.count), (2, 0));
    assert!(report.first_leader_s.max < 1.5);
}

#[test]
fn the_same_seeds_give_the_same_report() {
    let json = || serde_json::to_string(&report(5, "all", 12)).unwrap();
    assert_eq!(json(), json());
}

/// The first seed with which the simulator finds the planted bug. Mutants are planted a thread, so
/// the runs stay in this one.
fn finds(mutant: Mutant, faults: &str, expected: Invariant) -> Option<u64> {
    let _planted = plant(mutant);
    let options = options(5, faults);
    (1..=100).find(|seed| {
        let mut lab = ElectionLab::new(&options, *seed);
        lab.run().is_err_and(|broken| broken.invariant == expected)
    })
}

#[test]
fn the_simulator_finds_the_planted_bugs() {
    for (mutant, expected) in [
        (Mutant::ElectionElectsAfterAbort, Invariant::AbortedIsNotElected),
        (Mutant::ElectionTrueLeaderYields, Invariant::TrueLeaderStays),
        (Mutant::ElectionActsOnExpiredLease, Invariant::OneActsAtATime),
        (Mutant::ElectionFenceForgets, Invariant::NoWorkOfOlderEpoch),
    ] {
        assert!(finds(mutant, "all", expected).is_some(), "{mutant:?} was not found in 100 seeds");
    }
}

#[test]
fn a_failure_tells_how_to_replay_it() {
    let _planted = plant(Mutant::ElectionTrueLeaderYields);
    let options = options(5, "partition,one-way");
    let outcome = (1..=100).map(|seed| run_seed(&options, seed)).find(|outcome| outcome.broken.is_some()).unwrap();
    let report = ElectionReport::new(&options, std::slice::from_ref(&outcome));
    let broken = &report.broken[0];
    let replay = format!("weir sim election --nodes 5 --seed {} --faults partition,one-way", outcome.seed);
    assert_eq!((report.broken_runs, &broken.replay), (1, &replay));
    assert!(broken.history.len() == 60 && broken.at_s > 3.0 && !broken.detail.is_empty());
}

/// The gaps without a leader after one fault that befalls the leader at a random time.
fn gaps_after(kind: FaultKind, until_s: f64) -> Vec<f64> {
    let mut gaps = Vec::new();
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let from = Instant::from_secs_f64(4.0 + rng.unit() * 2.0);
        // A seed whose first draw picks the leader, not just any host.
        let seed = (rng.next_u64()..).find(|seed| !seed.is_multiple_of(4) && Rng::new(*seed).chance(0.5)).unwrap();
        let episode = Episode { kind, from, until: Instant::from_secs_f64(until_s), seed };
        let mut lab = ElectionLab::with_plan(&options(6, "none"), FaultPlan { episodes: vec![episode] }, rng);
        lab.run().unwrap();
        gaps.extend(lab.tally.fail_overs_s.first());
        assert!(!lab.tally.fail_overs_s.is_empty(), "nobody took over");
    }
    gaps
}

#[test]
fn a_killed_leader_is_replaced_in_the_promised_time() {
    let longest = gaps_after(FaultKind::Crash, 25.0).into_iter().fold(0.0, f64::max);
    let promised = Settings::default().fail_over_max().as_secs_f64();
    assert!(longest <= promised && promised <= 5.0, "{longest} s, promised {promised} s");
    assert!(longest > 1.5, "{longest} s: nobody can know earlier");
}

#[test]
fn a_leader_that_resigns_is_replaced_at_once() {
    let longest = gaps_after(FaultKind::Resign, 25.0).into_iter().fold(0.0, f64::max);
    let promised = Settings::default().hand_over_max().as_secs_f64();
    assert!(longest <= promised && promised <= 1.0, "{longest} s, promised {promised} s");
}

#[test]
fn absurd_options_are_refused_with_their_place() {
    for (options, place) in [
        (Options { nodes: 1, ..options(5, "all") }, "--nodes"),
        (Options { nodes: usize::MAX, ..options(5, "all") }, "--nodes"),
        (Options { runs: 0, ..options(5, "all") }, "--runs"),
        (Options { runs: u64::MAX, ..options(5, "all") }, "--runs"),
        (Options { seed: u64::MAX, ..options(5, "all") }, "--seed"),
    ] {
        assert_eq!(simulate(&options, &|_| {}).unwrap_err().place, place);
        assert_eq!(plot(&options).unwrap_err().place, place);
    }
}

#[test]
fn the_picture_shows_who_led() {
    let svg = plot(&options(5, "crash")).unwrap();
    assert!(svg.contains("Who acted") && svg.contains("all healed"));
}
