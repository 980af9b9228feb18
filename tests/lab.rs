//! Tests of a lab with one machine, as somebody with samples uses it.

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

/// The result of one plugin.
fn of_plugin<'p>(page: &'p Value, plugin: &str) -> &'p Value {
    let mut results = page["results"].as_array().into_iter().flatten();
    results.find(|result| result["plugin"] == plugin).unwrap_or_else(|| panic!("nothing of {plugin} in {page}"))
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
    let full = &of_plugin(&page, "identify")["report"]["full"];
    assert_eq!((&full["type"], &full["sha256"]), (&json!("text/x-shellscript"), &json!(hash)));
    let report = site.weir(&["lab", "report", &sample["sample"].to_string()]).ok();
    assert!(report.contains("text/x-shellscript") && report.contains("it has ended as done"), "{report}");
    let status = site.weir(&["lab", "status"]).ok();
    assert!(status.contains("leads the lab") && status.contains("identify 4"), "{status}");
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
fn samples_that_are_alike_are_found() {
    let site = site();
    let _up = site.up();
    let text: String = (0..300).map(|n| format!("line {n} of {}\n", n * 7919 % 997)).collect();
    let other: String = (0..300_u64).map(|n| format!("{:x}{:x}", n * 104_729, n * n * 31)).collect();
    for (name, content) in
        [("first.txt", text.clone()), ("near.txt", text.replace("line 17 ", "LINE 17 ")), ("far.txt", other)]
    {
        let file = site.home().join(name);
        fs::write(&file, content).unwrap();
        site.weir(&["lab", "submit", file.to_str().unwrap()]).ok();
        ended(&site, name);
    }
    let number = ended(&site, "first.txt")["sample"].to_string();
    let relatives = site.json(&["lab", "relatives", &number]);
    assert_eq!(relatives[0]["name"], "near.txt", "{relatives}");
    assert!(relatives[0]["distance"].as_u64().unwrap() < 30, "{relatives}");
    assert!(site.weir(&["lab", "relatives", &number]).ok().contains("near.txt"));
}

#[test]
fn the_machine_of_a_lab_of_one_is_drained_through_a_kill_until_that_is_undone() {
    let site = site();
    let up = site.up();
    let machine = wait_for("a leader", || site.json(&["lab", "status"])["leader"].as_str().map(str::to_owned));
    site.weir(&["lab", "drain", "nobody"]).refused(&["no machine nobody"]);
    let nodes = site.json(&["lab", "drain", &machine]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "{nodes}");
    assert_eq!(
        (&nodes[0]["name"], &nodes[0]["drained"], &nodes[0]["leads"]),
        (&json!(machine), &json!(true), &json!(true))
    );
    up.kill();
    let _up = site.up();
    let file = site.home().join("waits.sh");
    fs::write(&file, "#!/bin/sh\necho waits\n").unwrap();
    let number = site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string();
    wait_for("a reason", || {
        site.weir(&["lab", "why", &number]).ok().contains("no machine is plugged in").then_some(())
    });
    assert_eq!(site.json(&["lab", "drain", "--undo", &machine]), json!([]), "it has no row any more");
    assert_eq!(ended(&site, "waits.sh")["state"], "done");
    site.weir(&["lab", "drain", "--undo", &machine]).ok();
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
    off.weir(&["lab", "status"]).refused(&["the lab is off on this Weir ([lab] in the configuration)"]);
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
    assert_eq!(page["attempts"].as_array().map(Vec::len), Some(0));
    for plugin in ["identify", "strings", "yara"] {
        assert_eq!(of_plugin(&page, plugin)["of_sample"].to_string(), first);
    }
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
    let only = format!("[submission]\nenabled = false\n[lab]\nenabled = true\nplugins = {:?}\n", plugins.path());
    fs::write(site.home().join("weir.toml"), only).unwrap();
    site.weir(&["up"]).refused(&["two plugins named identify"]);
}

/// All lines that plugins wrote about the sample with this name, the most serious level first.
fn lines(site: &Site, name: &str) -> Vec<(String, String)> {
    let sample = ended(site, name);
    assert_eq!(sample["state"], "done", "{name}");
    let page = site.json(&["lab", "report", &sample["sample"].to_string()]);
    let results = page["results"].as_array().cloned().unwrap_or_default();
    let findings = results.iter().filter_map(|result| result["report"]["summary"]["taxonomies"].as_array()).flatten();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let mut lines: Vec<(String, String)> = findings
        .map(|line| (text(line, "level"), ["namespace", "predicate", "value"].map(|key| text(line, key)).join(" ")))
        .collect();
    let gravity =
        |level: &str| ["malicious", "suspicious", "unknown", "safe", "info"].iter().position(|known| *known == level);
    lines.sort_by_key(|(level, _)| gravity(level));
    lines
}

#[test]
fn files_are_analysed_by_the_plugins_that_weir_brings() {
    use weir_analysis::fixtures;
    let clamd = weir_peers::Clamd::start();
    let site = Site::new(&format!(
        "[lab]\nenabled = true\nslots = 2\n[scan.clamav]\naddresses = [\"unix:{}\"]\n",
        clamd.socket().display()
    ));
    let _up = site.up();
    let dropper = "Sub AutoOpen()\r\n  CreateObject(\"WScript.Shell\").Run \"calc\"\r\nEnd Sub\r\n";
    let samples: [(&str, Vec<u8>); 4] = [
        ("eicar.com", fixtures::eicar()),
        ("invoice.doc", fixtures::macro_doc(dropper)),
        ("packed", fixtures::packed_elf()),
        ("letter.txt", b"Dear Ann,\nsee you on Friday.\nBob\n".to_vec()),
    ];
    for (name, content) in &samples {
        let file = site.home().join(name);
        fs::write(&file, content).unwrap();
        site.json(&["lab", "submit", file.to_str().unwrap()]);
    }
    // The leader makes the directories when it checks them for the first time.
    let directory = site.data().join("lab/analysis/32");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("locked.zip"), fixtures::eicar_in_locked_zip()).unwrap();
    for (name, level, line) in [
        ("eicar.com", "malicious", "clamav signature Eicar-Test-Signature"),
        ("eicar.com", "malicious", "yara rule EICAR_test_file"),
        (
            "invoice.doc",
            "suspicious",
            "office-pdf macro runs by itself (AutoOpen) and uses WScript.Shell, CreateObject",
        ),
        ("packed", "suspicious", "elf-pe packer UPX"),
        ("letter.txt", "safe", "clamav clean"),
        ("letter.txt", "info", "yara no-match"),
        ("locked.zip", "malicious", "yara rule EICAR_test_file in locked.zip > eicar.com"),
        ("locked.zip", "info", "archive password infected"),
    ] {
        let lines = lines(&site, name);
        let said = lines.iter().any(|(known, text)| known == level && text.starts_with(line));
        assert!(said, "{line} is not said of {name}: {lines:?}");
        let gravest = match name {
            "locked.zip" => "malicious",
            "letter.txt" => "safe",
            _ => level,
        };
        assert_eq!(lines[0].0, gravest, "{name}: {lines:?}");
    }
}

/// A plugin written like Cortex's own analyzers.
const ANALYZER: &str = r#"#!/usr/bin/env python3
from cortexutils.analyzer import Analyzer


class Words(Analyzer):
    def __init__(self):
        Analyzer.__init__(self)
        self.path = self.get_param("file", None, "File is missing")
        self.word = self.get_param("config.word", None, "Word is missing")

    def summary(self, raw):
        level = "suspicious" if raw["count"] else "safe"
        return {"taxonomies": [self.build_taxonomy(level, "Words", "Count", raw["count"])]}

    def artifacts(self, raw):
        return Analyzer.artifacts(self, raw) + [self.build_artifact("file", self.path)]

    def run(self):
        Analyzer.run(self)
        if self.data_type != "file":
            self.notSupported()
        with open(self.path, encoding="utf-8") as sample:
            text = sample.read()
        self.report({"name": self.get_data(), "count": text.count(self.word), "link": "http://found.example/x"})


if __name__ == "__main__":
    Words().run()
"#;

#[test]
fn an_analyzer_for_cortex_runs_unchanged() {
    use std::os::unix::fs::PermissionsExt;
    let plugins = tempfile::tempdir().unwrap();
    fs::set_permissions(plugins.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = plugins.path().join("words");
    fs::create_dir(&folder).unwrap();
    let pip = std::process::Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--target"])
        .arg(&folder)
        .arg("cortexutils==2.2.1")
        .output()
        .expect("python3 runs: is it installed? Run `make setup`");
    let said = String::from_utf8_lossy(&pip.stderr);
    if !pip.status.success()
        && ["onnection", "No matching distribution", "name resolution"].iter().any(|w| said.contains(w))
    {
        eprintln!("not tried: pip cannot reach its registry, so that cortexutils is not here: {said}");
        return;
    }
    assert!(pip.status.success(), "pip failed: are python3 and python3-pip installed? Run `make setup`: {said}");
    fs::write(folder.join("analyzer.py"), ANALYZER).unwrap();
    fs::set_permissions(folder.join("analyzer.py"), fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = "name = \"words\"\nversion = \"2.0\"\nexec = [\"./analyzer.py\"]\n[config]\nword = \"evil\"\n";
    fs::write(folder.join("plugin.toml"), manifest).unwrap();
    let site = Site::new(&format!("[lab]\nenabled = true\nplugins = {:?}\n", plugins.path()));
    let _up = site.up();
    let file = site.home().join("note.txt");
    fs::write(&file, "evil words, evil deeds\n").unwrap();
    let number = site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string();
    assert_eq!(ended(&site, "note.txt")["state"], "done");
    let page = site.json(&["lab", "report", &number]);
    let report = &of_plugin(&page, "words")["report"];
    assert_eq!((&report["full"]["count"], &report["full"]["name"]), (&json!(2), &json!("note.txt")));
    let line = json!({ "level": "suspicious", "namespace": "Words", "predicate": "Count", "value": "2" });
    assert_eq!(report["summary"]["taxonomies"][0], line);
    let artifacts = report["artifacts"].as_array().unwrap();
    let has =
        |kind: &str, key: &str, value: &str| artifacts.iter().any(|one| one["dataType"] == kind && one[key] == value);
    assert!(has("url", "data", "http://found.example/x") && has("file", "filename", "attachment"), "{report}");
}
