//! Tests of `weir sim feeds` and `weir feeds tune`, as a user runs them.

use crate::harness::weir;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let printed = weir(args).ok();
    serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn limits(tuned: &Value) -> String {
    let limits = tuned["limits"].as_array().expect("limits");
    limits.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn a_run_prints_the_figures_of_the_issue() {
    let args = "sim feeds --dist dual-gaussian --lambda 1.5 --t0 0.1 --ts 0.0002 --limits 2000,10000,50000,250000 \
                --strategy size --arrivals 300000 --seed 5 --json";
    let args: Vec<&str> = args.split_whitespace().collect();
    let report = json(&args);
    for key in ["mean_wait_s", "p95_wait_s", "mean_slowdown", "largest_class_wait_s", "lambda_max"] {
        assert!(number(&report, key) > 0.0, "{key}");
    }
    let feeds = report["per_feed"].as_array().expect("per_feed");
    assert_eq!(feeds.len(), 5);
    for feed in &feeds[..3] {
        let (simulated, formula) = (number(feed, "mean_wait_s"), number(feed, "formula_wait_s"));
        assert!((simulated / formula - 1.0).abs() < 0.1, "{feed}");
    }
    let model = number(&report["exponential"], "mean_bytes");
    assert!((1_000.0..10_000.0).contains(&model), "the exponential model of Figure 8: {report}");
    assert_eq!(report, json(&args), "the same seed prints the same");
}

#[test]
fn the_papers_waits_come_out() {
    let paper = json(&["sim", "feeds", "--paper", "--arrivals", "300000", "--json"]);
    let waits = paper["waits"].as_array().expect("waits");
    let figures: Vec<f64> = waits.iter().map(|row| number(row, "paper_s")).collect();
    assert_eq!(figures, [2.4919, 1.71, 0.76]);
    for row in waits {
        assert!((number(row, "runs_s") / number(row, "paper_s") - 1.0).abs() <= 0.1, "{row}");
    }
    assert_eq!(paper["servers"].as_array().map(Vec::len), Some(3));
    assert!(paper["table_2_paper_only"][1]["values"][0] == 1.803);
}

/// Checks the limits that the tuner prints, in a run of their own with another seed.
#[track_caller]
fn tuned_waits_at_most(strategy: &str, most_s: f64) {
    let tuned = json(&["feeds", "tune", "--dist", "dual-gaussian", "--strategy", strategy, "--json"]);
    assert_eq!(tuned["strategy"], strategy);
    let (found, default) = (number(&tuned, "mean_wait_s"), number(&tuned["default"], "mean_wait_s"));
    let paper = number(&tuned["paper_method"], "mean_wait_s");
    assert!(found < paper && paper < default, "{tuned}");
    let limits = limits(&tuned);
    let by_the_paper = ["--last-feed-helps=false", "--limits-give-way=false"];
    let args = [&["sim", "feeds", "--strategy", strategy, "--limits", &limits], &by_the_paper[..]].concat();
    let report = json(&[&args[..], &["--arrivals", "4000000", "--seed", "987654", "--json"]].concat());
    let wait = number(&report, "mean_wait_s");
    assert!(wait <= most_s, "{limits}: {wait} s");
}

#[test]
fn tuned_by_size() {
    tuned_waits_at_most("size", 1.05);
}

#[test]
fn tuned_by_size_and_load() {
    tuned_waits_at_most("size-load", 0.22);
}

#[test]
fn tuned_shortest_first() {
    tuned_waits_at_most("shortest", 0.18);
}

#[test]
fn by_default_mail_waits_no_longer_than_in_one_line() {
    // With the paper's rules, the default limits gave 0.019, 0.174 and 0.855 s.
    for lambda in ["0.75", "1.5", "2.2"] {
        let report = json(&["sim", "feeds", "--lambda", lambda, "--arrivals", "300000", "--json"]);
        let (feeds, line) = (number(&report, "mean_wait_s"), number(&report, "line_wait_s"));
        assert!(feeds <= (1.03 * line).max(line + 0.001), "{lambda}: {feeds} {line}");
        assert!(report["limits_give_way"] == true && report["last_feed_helps"] == true, "{report}");
    }
}

#[test]
fn tuned_shortest_first_with_a_free_last_limit() {
    let args = ["feeds", "tune", "--dist", "dual-gaussian", "--strategy", "shortest", "--free-last-limit", "--json"];
    let helping = json(&args);
    assert!(number(&helping, "mean_wait_s") <= 0.06, "all five workers, two of them at most kept: {helping}");
    let paper = json(&[&args[..], &["--last-feed-helps=false", "--seed", "7"]].concat());
    assert!(number(&paper, "mean_wait_s") <= 0.130, "{paper}");
}

#[test]
fn sizes_come_from_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("sizes.txt");
    let sizes: Vec<String> = (0..5000u64).map(|i| (300 + i * i % 40_000).to_string()).collect();
    std::fs::write(&path, sizes.join("\n")).expect("written");
    let path = path.to_str().expect("a plain name");
    let plot = dir.path().join("plot.svg");
    let plot = plot.to_str().expect("a plain name");
    let args = ["sim", "feeds", "--sizes", path, "--lambda", "0.2", "--arrivals", "20000", "--strategy", "all"];
    let report = json(&[&args[..], &["--json", "--plot", plot]].concat());
    assert_eq!(report["strategies"].as_array().map(Vec::len), Some(3));
    assert!(std::fs::read_to_string(plot).expect("a plot").contains("Mean wait by feed"));
    let tuned = json(&["feeds", "tune", "--sizes", path, "--lambda", "0.2", "--strategy", "size", "--json"]);
    assert!(number(&tuned, "mean_wait_s") < number(&tuned["default"], "mean_wait_s"), "{tuned}");
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a plain name").to_owned()
    };
    let (bad, empty) = (write("bad.txt", "100\n200\n3oo\n"), write("empty.txt", "\n"));
    let refused = |args: &[&str], words: &[&str]| {
        weir(&[&["sim", "feeds"], args].concat()).refused(words);
        let tune: Vec<&str> = args.to_vec();
        if !args.contains(&"--limits") && !args.contains(&"--arrivals") {
            weir(&[&["feeds", "tune"], &tune[..]].concat()).refused(words);
        }
    };
    refused(&["--sizes", &bad], &["bad.txt:3", "3oo", "hint"]);
    refused(&["--sizes", &empty], &["empty.txt", "no size"]);
    refused(&["--sizes", "/nowhere/sizes"], &["/nowhere/sizes", "cannot be read"]);
    refused(&["--lambda", "NaN"], &["--lambda"]);
    refused(&["--lambda=-1"], &["--lambda"]);
    refused(&["--lambda", "0"], &["--lambda", "greater than zero"]);
    refused(&["--t0", "0", "--ts", "0"], &["--t0 and --ts"]);
    refused(&["--cpus", "0"], &["--cpus"]);
    refused(&["--strategy", "fastest"], &["size-load", "shortest"]);
    refused(&["--limits", "5,3"], &["--limits", "limit 2", "hint"]);
    refused(&["--arrivals", "1000000000000000000"], &["--arrivals"]);
    refused(&["--arrivals", "1000000000", "--lambda", "1e-8"], &["--arrivals and --lambda"]);
    weir(&["feeds", "tune", "--lambda", "5"]).refused(&["--lambda", "5 feeds", "2.74", "hint"]);
    weir(&["feeds", "tune", "--lambda", "1e-8"]).refused(&["--lambda", "too few", "hint"]);
    weir(&["feeds", "tune", "--feeds", "1"]).refused(&["--feeds"]);
    weir(&["feeds", "tune", "--weights", "20kB:1,10kB:2"]).refused(&["--weights", "ascend"]);
    weir(&["feeds", "tune", "--last-limit", "0"]).refused(&["--last-limit"]);
}
