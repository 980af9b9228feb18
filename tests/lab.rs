//! The lab of one machine, as somebody with samples uses it.

use crate::control::gate::{Site, wait_for};
use serde_json::{Value, json};
use std::fs;

fn site() -> Site {
    Site::new("[lab]\nenabled = true\nslots = 2\n")
}

/// Waits until a sample of this name has ended, and returns its line.
fn ended(site: &Site, name: &str) -> Value {
    wait_for("the sample to end", || {
        let samples = site.json(&["lab", "list"]);
        let found = samples.as_array()?.iter().find(|sample| sample["name"] == name)?.clone();
        (found["state"] != "queued").then_some(found)
    })
}

#[test]
fn a_file_in_a_numbered_directory_is_analysed_and_its_report_is_there() {
    let site = site();
    let _up = site.up();
    let directory = site.data().join("lab/analysis/32");
    wait_for("the directory", || directory.is_dir().then_some(()));
    fs::write(directory.join("dropped.sh"), "#!/bin/sh\necho hello\n").unwrap();
    let sample = ended(&site, "dropped.sh");
    assert_eq!((&sample["state"], &sample["priority"]), (&json!("done"), &json!(32)));
    assert!(!directory.join("dropped.sh").exists());
    let hash = sample["hash"].as_str().unwrap();
    let page = site.json(&["lab", "report", &hash[..8]]);
    assert_eq!(page["results"][0]["report"]["full"]["type"], "text/x-shellscript");
    assert_eq!(page["results"][0]["report"]["full"]["sha256"], hash);
    let report = site.weir(&["lab", "report", &sample["sample"].to_string()]).ok();
    assert!(report.contains("text/x-shellscript") && report.contains("it has ended as done"), "{report}");
    let status = site.weir(&["lab", "status"]).ok();
    assert!(status.contains("leads the lab") && status.contains("identify 1"), "{status}");
}

#[test]
fn files_are_handed_in_and_survive_a_kill() {
    let site = site();
    let up = site.up();
    let file = site.home().join("sample.bin");
    fs::write(&file, [0_u8, 159, 146, 150]).unwrap();
    let path = file.to_str().unwrap();
    let taken = site.json(&["lab", "submit", "--priority", "3", path]);
    up.kill();
    let _up = site.up();
    let sample = ended(&site, "sample.bin");
    assert_eq!((&sample["state"], &sample["priority"]), (&json!("done"), &json!(3)));
    assert_eq!((&sample["sample"], &sample["hash"]), (&taken[0]["sample"], &taken[0]["hash"]));
    let why = site.weir(&["lab", "why", &sample["sample"].to_string()]).ok();
    assert!(why.contains("it has ended as done"), "{why}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let site = site();
    site.weir(&["lab", "submit", "x", "--priority", "128"]).refused(&["128"]);
    let _up = site.up();
    site.weir(&["lab", "report", "4711"]).refused(&["there is no sample 4711", "weir lab list"]);
    site.weir(&["lab", "report", "../x"]).refused(&["there is no sample"]);
    site.weir(&["lab", "submit", "/no/such/file"]).refused(&["/no/such/file cannot be read"]);
    site.weir(&["lab", "cancel", "4711"]).refused(&["there is no sample 4711"]);
    let off = Site::new("");
    let _other = off.up();
    off.weir(&["lab", "status"]).refused(&["nothing at this address"]);
}

#[test]
fn the_same_content_is_analysed_once() {
    let site = site();
    let _up = site.up();
    let hand_in = |name: &str| {
        let file = site.home().join(name);
        fs::write(&file, "#!/bin/sh\necho twice\n").unwrap();
        site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string()
    };
    let first = hand_in("first");
    ended(&site, "first");
    let second = hand_in("second");
    assert_eq!(ended(&site, "second")["state"], "done");
    let page = site.json(&["lab", "report", &second]);
    assert_eq!(
        (page["attempts"].as_array().map(Vec::len), page["results"].as_array().map(Vec::len)),
        (Some(0), Some(1))
    );
    assert_eq!(page["results"][0]["of_sample"].to_string(), first);
    let report = site.weir(&["lab", "report", &second]).ok();
    assert!(
        report.contains(&format!("known from sample {first}")) && report.contains("text/x-shellscript"),
        "{report}"
    );
}

#[test]
fn plugins_have_names_of_their_own_and_their_words_are_tame() {
    let plugins = tempfile::tempdir().unwrap();
    let evil = r#"{"success":true,"summary":{"taxonomies":[{"level":"info","namespace":"x","predicate":"a\u001b[2J","value":"b\u001b]0;c"}]}}"#;
    let write = |folder: &str, name: &str| {
        let folder = plugins.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("report"), evil).unwrap();
        let command = format!("cp {}/report output/output.json", folder.display());
        let manifest = format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"sh\", \"-c\", \"{command}\"]\n");
        fs::write(folder.join("plugin.toml"), manifest).unwrap();
    };
    write("evil", "evil");
    let site = Site::new(&format!("[lab]\nenabled = true\nplugins = {:?}\n", plugins.path()));
    let up = site.up();
    let file = site.home().join("sample");
    fs::write(&file, "x").unwrap();
    let number = site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string();
    assert_eq!(ended(&site, "sample")["state"], "done");
    let report = site.weir(&["lab", "report", &number]).ok();
    assert!(report.contains("a·[2J") && report.contains("b·]0;c") && !report.contains('\u{1b}'), "{report}");
    drop(up);
    write("ours", "identify");
    site.weir(&["up"]).refused(&["two plugins named identify"]);
}
