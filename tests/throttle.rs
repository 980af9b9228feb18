//! Tests of `weir sim throttle`, as a user runs it.

use crate::harness::weir;
use serde_json::Value;
use std::fs;

fn json(args: &[&str]) -> Value {
    let printed = weir(&[&["sim", "throttle"], args, &["--json"]].concat()).ok();
    serde_json::from_str(&printed).expect("one JSON document")
}

fn trace(text: &str, more: &[&str]) -> crate::harness::Run {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.jsonl");
    fs::write(&path, text).expect("a trace");
    weir(&[&["sim", "throttle", "--trace", path.to_str().expect("a plain path")], more].concat())
}

#[test]
fn all_six_rows_of_table_1_agree() {
    let printed = weir(&["sim", "throttle", "--table1"]).ok();
    assert!(printed.contains("6 of 6 rows agree"), "{printed}");
    let table = json(&["--table1"]);
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let number = |who: &str, what: &str| row[who][what].as_f64().expect("a number");
        let apart_s = (number("paper", "stopped_after_s") - number("ours", "stopped_after_s")).abs();
        assert!(apart_s <= 0.15 * number("paper", "stopped_after_s") || apart_s <= 2.0, "{row}");
        assert!((number("paper", "passed") - number("ours", "passed")).abs() <= 3.0, "{row}");
    }
}

#[test]
fn a_virus_is_stopped_and_its_rate_is_read_in_any_unit() {
    let by_minute = json(&["--virus-rate", "60/min"]);
    assert_eq!(by_minute, json(&["--virus-rate", "1/s"]));
    assert_eq!(by_minute, json(&[]), "60 a minute is the default");
    let virus = &by_minute["users"]["virus"];
    for (field, value) in [("sent_at_once", 1), ("released", 0), ("held", 21), ("passed", 1)] {
        assert_eq!(virus[field], value, "{field}");
    }
    assert_eq!(virus["stopped_at_s"], 21.0);
    let twice = json(&["--virus-rate", "60/min", "--stop-at", "41", "--max-slack", "2", "--working-set", "0"]);
    assert_eq!(twice["users"]["virus"]["stopped_at_s"], 43.0);
    let uncapped = ["--messages-a-day", "0", "--new-recipients-a-day", "0"];
    let patient = json(&[&["--virus-rate", "1/min"], &uncapped[..]].concat());
    assert_eq!(patient["users"]["virus"]["stopped_at_s"], Value::Null);
    assert_eq!(json(&["--virus-rate", "1/min"])["users"]["virus"]["passed"], 200, "the cap of a day stops it");
    assert_ne!(json(&["--virus-rate", "61/h", "--give-up", "60d"])["users"]["virus"]["stopped_at_s"], Value::Null);
    assert_eq!(json(&["--virus-rate", "1/min", "--messages-a-day", "100"])["users"]["virus"]["passed"], 100);
}

#[test]
fn a_trace_is_told_user_by_user() {
    let text = r#"{"t":0,"user":"ann","to":["bob@x.org"]}
{"t":10,"user":"ann","to":["eve@x.org"]}
{"t":11,"user":"ann","to":["bob+tag@X.ORG"]}
{"t":11,"user":"carl","to":["a@x.org","b@x.org"]}
"#;
    let printed = trace(text, &["--json"]).ok();
    let report: Value = serde_json::from_str(&printed).expect("JSON");
    let ann = &report["users"]["ann"];
    for (field, value) in [("sent_at_once", 2), ("released", 1), ("held", 0), ("passed", 3)] {
        assert_eq!(ann[field], value, "{field}");
    }
    assert_eq!(ann["mean_delay_of_delayed_s"], 50.0);
    assert_eq!(ann["stopped_at_s"], Value::Null);
    assert!((ann["delayed_percent"].as_f64().expect("a number") - 100.0 / 3.0).abs() < 1e-9);
    assert!((ann["mean_delay_s"].as_f64().expect("a number") - 50.0 / 3.0).abs() < 1e-9);
    assert_eq!(report["users"]["carl"]["sent_at_once"], 2);
    let table = trace(text, &[]).ok();
    assert!(table.contains("ann") && table.contains("carl") && table.contains("2 users"), "{table}");
}

#[test]
fn the_people_of_a_site_hardly_notice_it_and_worms_of_every_class_are_stopped() {
    let site = json(&["--population", "--days", "28"]);
    assert_eq!(site["synthetic"], true);
    let roles = site["roles"].as_array().expect("roles");
    assert_eq!(roles.len(), 5);
    for role in roles.iter().filter(|role| role["role"] != "newsletter") {
        let (here, paper) = (&role["here"], &role["paper"]);
        assert!(here["delayed_percent"].as_f64() < paper["delayed_percent"].as_f64(), "{role}");
        assert_eq!(here["stops_a_user_year"], 0.0, "{role}");
    }
    let worms = site["worms"].as_array().expect("worms");
    assert_eq!(worms.len(), 7);
    for worm in worms {
        for reached in worm["reached"].as_array().expect("by class") {
            assert!(reached.as_u64().is_some_and(|reached| reached <= 60), "{worm}");
        }
    }
    let printed = weir(&["sim", "throttle", "--population", "office", "--days", "7"]).ok();
    assert!(printed.contains("office") && !printed.contains("sales"), "{printed}");
    weir(&["sim", "throttle", "--population", "pirates"]).refused(&["pirates", "helpdesk"]);
}

#[test]
fn a_population_and_the_figures_say_that_they_are_synthetic() {
    let run = json(&["--population", "22", "--days", "302", "--seed", "2"]);
    assert_eq!(run["synthetic"], true);
    assert_eq!(run["users"].as_object().expect("users").len(), 22);
    let mails = run["statistics"]["mails"].as_f64().expect("a number");
    assert!((mails / 33_084.0 - 1.0).abs() < 0.05, "{mails}");
    let printed = weir(&["sim", "throttle", "--population", "500"]).ok();
    assert!(printed.contains("Synthetic") && printed.contains("all delay queues together"), "{printed}");
    let printed = weir(&["sim", "throttle", "--figures"]).ok();
    for word in ["synthetic", "Figure 5", "Figure 6", "Figure 7", "Figure 8", "Figure 13"] {
        assert!(printed.contains(word), "{word} is missing");
    }
}

#[test]
fn pictures_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.svg");
    let plot = ["--plot", path.to_str().expect("a plain path")];
    for (what, words) in [
        (&["--virus-rate", "10/min"][..], &["more than 20 stop the user", "passed", "stopped"][..]),
        (&["--table1"], &["paper", "ours"]),
        (&["--population", "50"], &["synthetic", "entries"]),
        (&["--population", "office", "--days", "7"], &["colleagues", "one class", "a user-year"]),
        (&["--figures"], &["Synthetic", "Figure 1", "Figure 2", "Figure 5", "Figure 8", "Figure 13", "median user"]),
    ] {
        weir(&[&["sim", "throttle"], what, &plot].concat()).ok();
        let svg = fs::read_to_string(&path).expect("a picture");
        for word in words {
            assert!(svg.contains(word), "{what:?}: {word} is missing");
        }
    }
}

#[test]
fn absurd_arguments_are_refused_with_a_hint() {
    let run = |args: &[&str]| weir(&[&["sim", "throttle"], args].concat());
    run(&["--virus-rate", "0/min"]).refused(&["--virus-rate", "greater than zero"]);
    run(&["--virus-rate", "60"]).refused(&["--virus-rate", "1/min"]);
    run(&["--virus-rate", "1e18/s"]).refused(&["virus rate", "hint"]);
    run(&["--rate", "1e18/s"]).refused(&["--rate must be"]);
    run(&["--rate", "0.000001/day"]).refused(&["--rate must be"]);
    run(&["--stop-at", "0", "--working-set", "1000"]).refused(&["--stop-at must be", "--working-set must be"]);
    run(&["--stop-at", "-1"]).refused(&["-1"]);
    run(&["--max-slack", "1000000000000000000"]).refused(&["--max-slack"]);
    run(&["--population", "0"]).refused(&["population", "hint"]);
    run(&["--population", "4000000000", "--days", "4000000000"]).refused(&["population", "hint"]);
    run(&["--review", "5m"]).refused(&["--review", "hint"]);
    run(&["--days", "3"]).refused(&["--population"]);
    run(&["--table1", "--rate", "2/min"]).refused(&["--table1", "--rate"]);
    run(&["--table1", "--figures"]).refused(&["cannot be used with"]);
    run(&["--plot", "p.bmp"]).refused(&["--plot", ".svg"]);
    run(&["--plot", "/nowhere/p.svg"]).refused(&["/nowhere/p.svg"]);
}

#[test]
fn bad_traces_are_refused_with_their_line() {
    trace("", &[]).refused(&["t.jsonl", "no mail", "hint"]);
    trace("{\"t\":1,\"user\":\"ann\",\"to\":[\"bob@x.org\"]}\nnonsense\n", &[]).refused(&["line 2", "hint"]);
    trace("{\"t\":-5,\"user\":\"ann\",\"to\":[\"bob@x.org\"]}", &[]).refused(&["line 1", "\"t\" is -5"]);
    trace("{\"t\":5,\"user\":\"ann\",\"to\":[\"bob\"]}", &[]).refused(&["line 1", "bob", "bob@x.org"]);
    weir(&["sim", "throttle", "--trace", "/nowhere.jsonl"]).refused(&["/nowhere.jsonl", "cannot be read"]);
    weir(&["sim", "throttle", "--trace", "/"]).refused(&["cannot be read"]);
    weir(&["sim", "throttle", "--trace", "/dev/zero"]).refused(&["line 1", "longer"]);
}
