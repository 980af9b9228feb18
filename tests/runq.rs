//! Tests of `weir sim runq`, as a user runs it.

use crate::harness::weir;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let args = [&["sim", "runq", "--json"], args].concat();
    serde_json::from_str(&weir(&args).ok()).expect("one JSON document")
}

#[test]
fn all_faults_over_many_runs_break_nothing() {
    let report = json(&["--faults", "all", "--runs", "40", "--samples", "150", "--machines", "4"]);
    let ends: u64 =
        ["done", "quarantined", "unserviceable", "cancelled"].iter().map(|end| report[end].as_u64().unwrap()).sum();
    assert_eq!(ends, 40 * 150);
    for what in ["quarantined", "unserviceable", "cancelled", "duplicates", "expired", "invalid"] {
        assert!(report[what].as_u64().unwrap() > 0, "no {what} in {report}");
    }
    assert_eq!(report["faults"].as_array().unwrap().len(), 11);
}

#[test]
fn the_same_seed_prints_the_same() {
    let run = || weir(&["sim", "runq", "--seed", "9", "--faults", "unplug,killer", "--samples", "300"]).ok();
    assert_eq!(run(), run());
}

#[test]
fn an_overloaded_lab_serves_classes_in_order_and_submitters_alike() {
    let report = json(&["--load", "2", "--samples", "2000"]);
    let wait = |class: &str| report["classes"][class]["mean_wait_s"].as_f64().unwrap();
    assert!(wait("real_time") < wait("normal") && wait("normal") < wait("idle"), "{report}");
    assert!(report["fairness"]["jain"].as_f64() > report["fairness"]["jain_fifo"].as_f64(), "{report}");
    assert_eq!(report["done"], 2000);
}

#[test]
fn the_table_names_what_it_shows_and_the_picture_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.svg");
    let text = weir(&["sim", "runq", "--samples", "200", "--plot", file.to_str().unwrap()]).ok();
    for words in ["every invariant held", "real-time (0-31)", "idle (96-127)", "Jain index", "0 (floods)", "THRESHOLD"]
    {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("real-time") && !svg.contains("NaN"));
}

#[test]
fn absurd_arguments_are_refused_with_a_hint() {
    let refused = |args: &[&str], words: &[&str]| weir(&[&["sim", "runq"], args].concat()).refused(words);
    refused(&["--machines", "0"], &["--machines", "1 to 64"]);
    refused(&["--samples", "0"], &["--samples", "hint"]);
    refused(&["--samples", "1000000000000000000"], &["--samples"]);
    refused(&["--samples", "-3"], &["-3"]);
    refused(&["--faults", "gremlins"], &["gremlins", "vm-death"]);
    refused(&["--faults", ""], &["--faults", "hint"]);
    refused(&["--load", "NaN"], &["--load", "0.01"]);
    refused(&["--runs", "0"], &["--runs"]);
    refused(&["--runs", "100000"], &["20 million"]);
    refused(&["--ageing", "soon"], &["is not a duration"]);
    refused(&["--submitters", "0"], &["--submitters"]);
    refused(&["--waiting-per-vm", "101"], &["0 to 100"]);
    refused(&["--samples", "10", "--plot", "/nonexistent/x.svg"], &["cannot write", "/nonexistent/x.svg"]);
}
