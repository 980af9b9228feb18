//! Tests of Windows programs in a real VM: real QEMU without KVM, the guest of `make guest-windows`, and the real binary.
//!
//! The guest is large, so the tests do not build it. If it does not exist, they say so and end. Five programs of the corpus
//! (tests/fixtures/windows-corpus; docs/lab-windows.md has the table) are run with every test. `WEIR_CORPUS=full` runs all, as `make soak`
//! does, and prints what the lab says about each. `WEIR_CORPUS=name,name` runs those whose names begin like this.

use crate::attachment::attached;
use crate::console::{album, logged_in};
use crate::control::gate::{Client, id_in, wait_for};
use crate::lab_corpus::vms;
use crate::lab_vm::{Lab, assert_has, full_of, without_a_packet};
use crate::together::{assert_in_order, at_last, quarantined, waiting};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The programs that are always run if there is a guest.
const USUAL: [&str; 5] = ["run-key.exe", "inject-thread-32.exe", "ransom.exe", "shell.notrun.ps1", "hello-32.exe"];

/// Wine's first start alone takes a minute, and on a busy machine several.
const PATIENCE: Duration = Duration::from_secs(1500);

/// The result for one program.
struct Judged {
    name: String,
    is_bad: bool,
    verdict: String,
    reasons: String,
}

impl Judged {
    /// Whether this guest can run it.
    fn is_runnable(&self) -> bool {
        !self.name.contains(".notrun")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A lab for Windows programs; none if the guest does not exist.
fn lab(more: &str, watch_s: u32) -> Option<Lab> {
    lab_of("[\"win system=windows\"]", more, watch_s)
}

fn lab_of(vms: &str, more: &str, watch_s: u32) -> Option<Lab> {
    let guest = root().join("target/guest-windows");
    if !guest.join("root.squashfs").exists() {
        eprintln!("skipped: there is no guest for Windows programs (`make guest-windows` builds it)");
        return None;
    }
    let more = format!("children_count = 4\nguest_windows = {guest:?}\n{more}");
    let mut lab = Lab::watching(vms, &more, watch_s);
    lab.patience = PATIENCE;
    Some(lab)
}

/// The corpus, built from its sources.
fn corpus() -> PathBuf {
    let made = root().join("target/windows-corpus");
    let built = Command::new(root().join("tests/fixtures/windows-corpus/build")).arg(&made).status().expect("bash");
    assert!(built.success(), "the corpus could not be built: run `tools/setup guest-windows`");
    made
}

#[test]
fn no_imitation_of_windows_malware_is_clean_and_no_honest_program_is_malicious() {
    let wanted = std::env::var("WEIR_CORPUS").unwrap_or_else(|_| USUAL.join(","));
    let Some(mut lab) = lab_of(&vms(&wanted, " system=windows"), "", 90) else { return };
    lab.patience = Duration::from_secs(3600);
    let is_wanted = |name: &str| wanted == "full" || wanted.split(',').any(|one| name.starts_with(one));
    let corpus = corpus();
    let _up = lab.site.up();
    let mut handed_in = Vec::new();
    for (folder, is_bad) in [("bad", true), ("good", false)] {
        let folder = corpus.join(folder);
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| is_wanted(name)).collect();
        names.sort();
        for name in names {
            let sample = lab.submit(&name, &fs::read(folder.join(&name)).unwrap());
            handed_in.push((name, is_bad, sample));
        }
    }
    let mut judged = Vec::new();
    for (name, is_bad, sample) in handed_in {
        let one = told(name, is_bad, &with_children(&lab, &sample));
        let side = if is_bad { "bad" } else { "good" };
        eprintln!("{:<24} {side:<5} {:<11} {}", one.name, one.verdict, one.reasons);
        judged.push(one);
    }
    check(&judged);
}

/// The page of a sample, when everything that came out of it has ended too.
fn with_children(lab: &Lab, sample: &str) -> Value {
    let page = lab.ended(sample);
    for child in page["children"].as_array().into_iter().flatten() {
        lab.ended(&child["sample"].to_string());
    }
    lab.ended(sample)
}

fn check(judged: &[Judged]) {
    let names = |fits: &dyn Fn(&Judged) -> bool| -> Vec<String> {
        let list = judged.iter().filter(|one| fits(one));
        list.map(|one| format!("{} is {}: {}", one.name, one.verdict, one.reasons)).collect()
    };
    assert!(!judged.is_empty(), "nothing was run");
    let clean = names(&|one| one.is_bad && one.verdict == "clean");
    assert!(clean.is_empty(), "{clean:#?}");
    let malicious = names(&|one| !one.is_bad && one.verdict == "malicious");
    assert!(malicious.is_empty(), "{malicious:#?}");
    let suspicious = names(&|one| !one.is_bad && one.verdict == "suspicious");
    assert!(suspicious.len() <= 2, "{suspicious:#?}");
    let silent = names(&|one| one.verdict == "unknown" && one.reasons.is_empty());
    assert!(silent.is_empty(), "{silent:#?}");
    let run = judged.iter().filter(|one| one.is_bad && one.is_runnable()).count();
    let unseen = names(&|one| one.is_bad && one.is_runnable() && one.verdict == "unknown");
    assert!(unseen.len() * 10 <= run, "{unseen:#?}");
}

fn told(name: String, is_bad: bool, page: &Value) -> Judged {
    let reasons: Vec<&str> = page["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let verdict = page["verdict"].as_str().unwrap_or_default().to_owned();
    Judged { name, is_bad, verdict, reasons: reasons.join("; ") }
}

/// A program of the corpus, made different from all earlier ones, because the lab runs nothing twice.
fn program(path: &str, mark: &str) -> Vec<u8> {
    let mut bytes = fs::read(corpus().join(path)).unwrap();
    bytes.extend(mark.as_bytes());
    bytes
}

#[test]
fn a_run_key_is_told_whoever_writes_it() {
    let Some(lab) = lab("", 90) else { return };
    let _up = lab.site.up();
    for name in ["run-key.exe", "run-key.bat", "run-key.vbs"] {
        let page = lab.ended(&lab.submit(name, &program(&format!("bad/{name}"), "")));
        assert_has(&full_of(&page, "run-windows"), "persistence", &json!({ "what": "run-key" }));
    }
}

#[test]
fn titles_and_texts_of_windows_are_told() {
    let Some(lab) = lab("", 90) else { return };
    let _up = lab.site.up();
    let page = lab.ended(&lab.submit("notes.exe", &program("good/fresh-notes-window.exe", "titles")));
    let full = full_of(&page, "run-windows");
    assert_eq!(full["windows"], json!(["Shopping list", "bread, milk"]), "{full:#}");
}

#[test]
fn windows_programs_that_attack_their_guest_harm_nobody_else() {
    let Some(lab) = lab("", 40) else { return };
    let _up = lab.site.up();
    for (name, wanted) in [("fill.exe", "run-key"), ("linux.exe", "kills-windows"), ("forks.exe", "")] {
        let page = lab.ended(&lab.submit(name, &program(&format!("attacks/{name}"), "")));
        assert_ne!(page["verdict"], "clean", "{page:#}");
        assert!(page["reasons"].to_string().contains(wanted), "{page:#}");
        let next = lab.ended(&lab.submit(&format!("after-{name}"), &program("good/hello-32.exe", name)));
        assert_eq!(next["verdict"], "clean", "after {name}: {next:#}");
        let full = full_of(&next, "run-windows");
        assert_eq!((&full["output"], &full["files"]), (&json!("hello\r\n"), &json!([])), "after {name}: {full:#}");
    }
}

#[test]
fn nothing_leaves_the_guest_for_windows_programs() {
    let Some(lab) = lab("", 90) else { return };
    let run = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let page = lab.ended(&lab.submit(name, &program(path, "")));
        full_of(&page, "run-windows")
    };
    let first = || drop(run("good/hello-32.exe"));
    let (beacon, fetched) = without_a_packet(&lab, first, || (run("bad/beacon.exe"), run("bad/fetch-socket.exe")));
    assert_has(&beacon, "network", &json!({ "what": "http" }));
    assert_has(&fetched, "network", &json!({ "what": "connect" }));
}

/// A mail with an archive in it.
fn letter(archive: &[u8]) -> String {
    format!(
        "From: demo@localhost\r\nSubject: bill\r\nMessage-ID: <bill@client.example>\r\n{}",
        attached("invoice.zip", archive)
    )
}

#[test]
fn a_mail_with_a_dropper_in_an_archive_waits_is_run_and_is_kept() {
    // Normally no program is accepted at all, but here the lab is to decide.
    let settings = "[scan]\nenabled = true\n[scan.attachments]\nenabled = false\n[scan.lab]\nwait = \"10m\"\n";
    let Some(lab) = lab(settings, 90) else { return };
    let (site, up) = (&lab.site, lab.site.up());
    // After this, the guest has booted, and the mail does not have to wait for that.
    lab.ended(&lab.submit("first.exe", &program("good/hello-32.exe", "first")));
    let mut client = Client::login(&up.plain, "demo", &up.password()).expect("a login");
    let archive = fs::read(corpus().join("bad/invoice.zip")).unwrap();
    let mail = id_in(&client.text("demo@localhost", &["ann@localhost"], &letter(&archive)));
    let said = wait_for("the mail to wait", || waiting(site, &mail));
    assert!(said.contains("dropper.exe") || said.contains("invoice.zip"), "{said}");
    let entry = at_last("the verdict", || quarantined(site, &mail));
    lab.keep_snapshots();
    assert_eq!(entry["queue"], "virus", "{entry}");
    let reason = entry["reason"].as_str().unwrap();
    assert!(reason.contains("lab: malicious"), "{reason}");
    let trace = site.weir(&["trace", &mail]).ok();
    assert_in_order(
        &trace,
        &[
            "smtp        from 127.0.0.1 as demo",
            "waits for the lab's verdict on ",
            "lab         assigned to machine ",
            "quarantine.virus",
        ],
    );
    for part in ["win (attempt ", "run-windows ", "malicious"] {
        assert!(trace.contains(part), "{part:?} is missing in:\n{trace}");
    }
    // What its user would have seen is shown on the page of the sample.
    let samples = site.json(&["lab", "list"]);
    let sample = samples.as_array().unwrap().iter().find(|sample| sample["name"] == "dropper.exe").unwrap();
    let (browser, console) = logged_in(&up, "admin", &up.admin_password());
    browser.looks(1280, false);
    browser.goto(&format!("{console}/lab/samples/{}", sample["sample"]));
    browser.says("The invoice is damaged");
    let shown =
        browser.run("return [...document.querySelectorAll('img.screen')].filter((i) => i.naturalWidth == 1024).length");
    assert!(shown.as_u64().is_some_and(|count| count > 0), "no picture of the screen is shown: {shown}");
    browser.picture(&album().join("sample-windows.png"));
}
