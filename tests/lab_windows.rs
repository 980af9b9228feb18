//! Windows programs in a real VM: real QEMU without KVM, the guest of `make guest-windows`, the binary as it is used.
//!
//! The guest is large and is not built by the tests: where it is not there, they say so and end. Five programs of the corpus
//! (tests/fixtures/windows-corpus; docs/lab-windows.md has the table) are run with every test; `WEIR_CORPUS=full` runs all, as `make soak` does,
//! and prints what the lab says of each. `WEIR_CORPUS=name,name` runs those.

use crate::lab_vm::Lab;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Those that are always run where there is a guest.
const USUAL: [&str; 5] = ["run-key.exe", "inject-thread-32.exe", "ransom.exe", "shell.notrun.ps1", "hello-32.exe"];

/// What became of one.
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

/// A lab for Windows programs; none where the guest or the compiler for its samples is missing.
fn lab() -> Option<Lab> {
    let guest = root().join("target/guest-windows");
    if !guest.join("root.squashfs").exists() {
        eprintln!("skipped: there is no guest for Windows programs (`make guest-windows` builds it)");
        return None;
    }
    let more = format!("children_count = 4\nguest_windows = {guest:?}\n");
    Some(Lab::watching("[\"win system=windows\"]", &more, 60))
}

/// The corpus, made from its sources.
fn corpus() -> PathBuf {
    let made = root().join("target/windows-corpus");
    let built = Command::new(root().join("tests/fixtures/windows-corpus/build")).arg(&made).status().expect("bash");
    assert!(built.success(), "the corpus could not be built: run `tools/setup guest-windows`");
    made
}

#[test]
fn no_imitation_of_windows_malware_is_clean_and_no_honest_program_is_malicious() {
    let Some(lab) = lab() else { return };
    let wanted = std::env::var("WEIR_CORPUS").unwrap_or_else(|_| USUAL.join(","));
    let is_wanted = |name: &str| wanted == "full" || wanted.split(',').any(|one| one == name);
    let corpus = corpus();
    let _up = lab.site.up();
    let mut judged = Vec::new();
    for (folder, is_bad) in [("bad", true), ("good", false)] {
        let folder = corpus.join(folder);
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| is_wanted(name)).collect();
        names.sort();
        for name in names {
            let page = lab.ended(&lab.submit(&name, &fs::read(folder.join(&name)).unwrap()));
            let one = told(name, is_bad, &page);
            eprintln!(
                "{:<24} {:<5} {:<11} {}",
                one.name,
                if is_bad { "bad" } else { "good" },
                one.verdict,
                one.reasons
            );
            judged.push(one);
        }
    }
    check(&judged);
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
