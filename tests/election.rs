//! Tests of `weir sim election`, as a user runs it.

use crate::harness::weir;

#[test]
fn many_runs_under_all_faults_break_no_invariant() {
    let json =
        weir(&["sim", "election", "--nodes", "5", "--seed", "42", "--faults", "all", "--runs", "200", "--json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["runs"], &report["broken_runs"]), (&200.into(), &0.into()));
    assert!(
        report["invariants"].as_array().unwrap().iter().all(|i| i["broken"] == 0 && i["checked"].as_u64() > Some(0))
    );
    assert!(report["recovery_s"]["max"].as_f64() <= report["recovery_bound_s"].as_f64());
    assert!(report["elections"].as_u64() > Some(200));
    assert_eq!(report["faults_injected"].as_object().unwrap().len(), 15);
}

#[test]
fn a_seed_prints_the_same_on_every_run() {
    let run = || weir(&["sim", "election", "--seed", "7", "--faults", "loss,partition,crash", "--runs", "5"]).ok();
    let text = run();
    assert_eq!(text, run());
    for part in ["fail-over", "recovery after the last fault (bound 12.5)", "invariants", "partition", "victory"] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn a_picture_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leaders.svg");
    weir(&["sim", "election", "--seed", "3", "--plot", file.to_str().unwrap()]).ok();
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg"));
    let nowhere = folder.path().join("no/such/folder.svg");
    weir(&["sim", "election", "--plot", nowhere.to_str().unwrap()]).refused(&["cannot be written", "folder.svg"]);
}

#[test]
fn absurd_arguments_are_refused() {
    let refused = |args: &[&str], words: &[&str]| weir(&[&["sim", "election"], args].concat()).refused(words);
    refused(&["--nodes", "0"], &["--nodes", "hint", "2 to 200"]);
    refused(&["--nodes", "1000000000000000000"], &["--nodes", "hint"]);
    refused(&["--nodes=-3"], &["--nodes"]);
    refused(&["--runs", "0"], &["--runs", "hint"]);
    refused(&["--runs", "1000000000000000000"], &["--runs", "hint"]);
    refused(&["--seed", "NaN"], &["--seed"]);
    refused(&["--seed", "18446744073709551615"], &["--seed", "smaller"]);
    refused(&["--faults", "los"], &["\"los\" is not a fault", "partition"]);
    refused(&["--faults", ""], &["is not a fault"]);
}
