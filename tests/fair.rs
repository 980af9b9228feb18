//! Tests of `weir sim fair`, as a user runs it.

use crate::harness::weir;
use std::path::PathBuf;

const SCENARIO: &str = r#"{"duration_s":125,"exchange_delay_ms":5,"servers":[{"name":"s1","slots":1,"rate":4}],
"clients":[{"name":"c1","ip":"10.0.1.1","servers":["s1"],"work":1,"from_s":0,"to_s":125,"outstanding":4},
{"name":"c2","ip":"2001:db8::2","servers":["s1"],"work":1,"from_s":25,"to_s":125,"outstanding":4}],
"history":{"10.0.1.0/24":1.0}}"#;

fn file(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("scenario.json");
    std::fs::write(&path, text).unwrap();
    path
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("one JSON document")
}

#[test]
fn the_thesis_is_within_two_percent_and_fifo_is_beside() {
    let result = json(&weir(&["sim", "fair", "--thesis", "--json"]).ok());
    let ideals: [&[(&str, f64)]; 5] = [
        &[("c1", 4.0), ("c2", 4.0)],
        &[("c1", 8.0 / 3.0), ("c2", 8.0 / 3.0), ("c3", 8.0 / 3.0)],
        &[("c1", 8.0 / 3.0), ("c2", 4.0 / 3.0), ("c3", 8.0 / 3.0), ("c4", 4.0 / 3.0)],
        &[("c1", 4.0), ("c2", 2.0), ("c4", 2.0)],
        &[("c1", 4.0), ("c2", 4.0)],
    ];
    let intervals = result["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 5);
    for (k, (interval, ideal)) in intervals.iter().zip(ideals).enumerate() {
        assert_eq!(interval["from_s"], 25.0 * k as f64);
        assert_eq!(interval["rates"].as_object().unwrap().len(), ideal.len());
        for (client, ideal) in ideal {
            let (rate, said) =
                (interval["rates"][client].as_f64().unwrap(), interval["ideal"][client].as_f64().unwrap());
            assert!((said - ideal).abs() < 1e-9, "{client}: ideal {said}, not {ideal}");
            assert!((rate / ideal - 1.0).abs() < 0.02, "{client} in interval {k}: {rate} of {ideal}");
        }
    }
    assert!(intervals[3]["servers"]["s1"]["c4"].as_f64().unwrap() < 0.01);
    let fifo = result["fifo"]["intervals"][1]["rates"]["c3"].as_f64().unwrap();
    assert!((fifo - 4.0).abs() < 0.2, "FIFO gives client 3 twice a share: {fifo}");
    let table = weir(&["sim", "fair", "--thesis"]).ok();
    for word in ["FIFO, thesis", "50–75", "c4", "worst: DFQ"] {
        assert!(table.contains(word), "{word:?} is missing in\n{table}");
    }
}

#[test]
fn a_scenario_is_cut_where_clients_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SCENARIO);
    let path = path.to_str().unwrap();
    for scheduler in ["dfq", "fifo", "naive"] {
        let result = json(&weir(&["sim", "fair", "--scenario", path, "--scheduler", scheduler, "--json"]).ok());
        let intervals = result["intervals"].as_array().unwrap();
        assert_eq!(intervals.len(), 2);
        assert_eq!(intervals[0]["rates"]["c1"], 4.0);
        assert_eq!(intervals[1]["ideal"]["c2"], 2.0);
        let rate = intervals[1]["rates"]["c2"].as_f64().unwrap();
        assert!((rate - 2.0).abs() < 0.05, "{scheduler}: {rate}");
        assert!(intervals[0]["rates"].get("c2").is_none(), "it has not come yet");
    }
    let svg = folder.path().join("plot.svg");
    weir(&["sim", "fair", "--scenario", path, "--plot", svg.to_str().unwrap()]).ok();
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("at s1") && svg.contains("stroke-dasharray"));
}

#[test]
fn random_scenarios_are_near_water_filling_and_repeatable() {
    let run = || weir(&["sim", "fair", "--random", "2", "--seed", "5", "--json"]).ok();
    let first = run();
    assert_eq!(first, run());
    let result = json(&first);
    assert_eq!(result["runs"].as_array().unwrap().len(), 2);
    assert!(result["worst_percent"].as_f64().unwrap() < 5.0);
}

#[test]
fn what_is_wrong_is_said_with_place_and_hint() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |from: &str, to: &str, words: &[&str]| {
        let path = file(&folder, &SCENARIO.replacen(from, to, 1));
        let run = weir(&["sim", "fair", "--scenario", path.to_str().unwrap()]);
        run.refused(&[words, &["hint:", "scenario.json"]].concat());
    };
    refuse("\"rate\"", "\"rat\"", &["unknown field `rat`", "scenario.json:1:"]);
    refuse("10.0.1.1", "10.0.1.300", &["clients[0].ip", "10.0.1.300"]);
    refuse("[\"s1\"]", "[\"s7\"]", &["clients[0].servers[0]", "s7", "the servers are s1"]);
    refuse("\"work\":1", "\"work\":-1", &["clients[0].work", "-1"]);
    refuse("\"rate\":4", "\"rate\":1e18", &["servers[0].rate"]);
    refuse("\"rate\":4", "\"rate\":1e999", &["scenario.json:1:"]);
    refuse("\"duration_s\":125", "\"duration_s\":1e300", &["duration_s"]);
    refuse(SCENARIO, "", &["EOF"]);
    refuse(SCENARIO, "[]", &["scenario.json:1:"]);
    weir(&["sim", "fair", "--scenario", "/nonexistent/x.json"]).refused(&["/nonexistent/x.json", "hint:"]);
    weir(&["sim", "fair", "--scenario", "/dev/zero"]).refused(&["16 MiB"]);
    weir(&["sim", "fair"]).refused(&["--thesis"]);
    weir(&["sim", "fair", "--thesis", "--random", "3"]).refused(&["cannot be used with"]);
    weir(&["sim", "fair", "--thesis", "--scheduler", "lifo"]).refused(&["lifo", "dfq"]);
    weir(&["sim", "fair", "--random", "0"]).refused(&["1..=10000"]);
    weir(&["sim", "fair", "--thesis", "--plot", "/nonexistent/x.svg"]).refused(&["/nonexistent/x.svg"]);
}
