//! Harmless imitations of malware, and honest programs: tests what the lab says about each (tests/fixtures/corpus; docs/lab-corpus.md has
//! the table), and what happens to a mail with each.
//!
//! No bad sample may be called clean or be delivered. A bad sample that could not be run must be *unknown*, with the reason in words. No
//! honest sample may be called malicious. Eighteen samples are run with every test. `WEIR_CORPUS=full` runs all, as `make soak` does, and
//! prints the result of each as a row of the table. A third of both kinds was written by somebody who had not seen the rules (`blind-`).

mod made;
mod mail;

use crate::lab_vm::Lab;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The samples that are always run.
const USUAL: [&str; 18] = [
    "dropper-curl.sh",
    "dropper-bash.sh",
    "dropper-python",
    "persist-cron.sh",
    "shell-bash.sh",
    "memfd-python",
    "miner-stratum-python",
    "sleeper.sh",
    "vm-check-cpu.sh",
    "vm-check-ends.sh",
    "missing-tool.sh",
    "powerpc.notrun",
    "program-dropper",
    "invoice.zip",
    "offer.docx",
    "hello.bash",
    "backup.sh",
    "installer.sh",
];

/// With hundreds of samples, each waits for the others.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The VMs: one for a few samples, several for all of them, depending on the number of processors. `WEIR_CORPUS_VMS` sets the number.
pub(crate) fn vms(wanted: &str, more: &str) -> String {
    let several = std::env::var("WEIR_CORPUS_VMS").ok().and_then(|number| number.parse().ok());
    let usual = if wanted == "full" { std::thread::available_parallelism().map_or(1, usize::from).min(4) } else { 1 };
    let names: Vec<String> = (1..=several.unwrap_or(usual)).map(|number| format!("vm{number}{more}")).collect();
    format!("{names:?}")
}

/// The result for one sample.
struct Judged {
    name: String,
    content: Vec<u8>,
    is_bad: bool,
    verdict: String,
    reasons: String,
}

impl Judged {
    /// Whether a Linux guest can run it.
    fn is_runnable(&self) -> bool {
        !self.name.contains(".notrun")
    }
}

#[test]
fn no_imitation_of_malware_is_clean_or_delivered_and_no_honest_program_is_malicious() {
    let wanted = std::env::var("WEIR_CORPUS").unwrap_or_default();
    let is_wanted = |folder: &str, name: &str| match wanted.as_str() {
        "" => USUAL.contains(&name),
        "full" => true,
        // For somebody who works on a rule: beginnings of names, such as `bad/miner`.
        some => some.split(',').any(|begin| format!("{folder}/{name}").starts_with(begin)),
    };
    let mut lab = Lab::watching(&vms(&wanted, ""), &format!("children_count = 4\n{}", mail::SETTINGS), 100);
    lab.patience = PATIENCE;
    let up = lab.site.up();
    let mut handed_in = Vec::new();
    for (kind, is_bad) in [("bad", true), ("good", false)] {
        for name in made::names(kind).into_iter().filter(|name| is_wanted(kind, name)) {
            let content = made::content(kind, &name);
            let sample = lab.submit(&name, &content);
            handed_in.push((name, content, is_bad, sample));
        }
    }
    let mut judged = Vec::new();
    for (name, content, is_bad, sample) in handed_in {
        let one = told(name, content, is_bad, &with_children(&lab, &sample));
        eprintln!("| `{}` | {} | {} |", one.name, one.verdict, one.reasons);
        judged.push(one);
    }
    check(&judged, &wanted);
    let delivery = mail::sent_to_us(&lab, &up, &judged);
    assert!(delivery.wrong.is_empty(), "{:#?}", delivery.wrong);
    assert!(delivery.held.len() <= 2, "{:#?}", delivery.held);
    let bad = judged.iter().filter(|one| one.is_bad).count();
    eprintln!(
        "{bad} bad ones by mail: {} kept by the lab's word; {} honest ones arrived",
        delivery.by_lab, delivery.arrived
    );
    // Without this check, a gate that keeps everything, or that never asks the lab, would pass.
    if ["", "full"].contains(&wanted.as_str()) {
        assert!(delivery.by_lab * 2 > bad, "the lab's word has kept {} of {bad}", delivery.by_lab);
        assert!(delivery.arrived > 0, "no honest program was delivered");
    }
}

/// The page of a sample, when everything that came out of it has ended too.
fn with_children(lab: &Lab, sample: &str) -> Value {
    let page = lab.ended(sample);
    for child in page["children"].as_array().into_iter().flatten() {
        with_children(lab, &child["sample"].to_string());
    }
    lab.ended(sample)
}

fn check(judged: &[Judged], wanted: &str) {
    assert!(!judged.is_empty() && (!wanted.is_empty() || judged.len() == USUAL.len()), "{} of them", judged.len());
    let names = |fits: &dyn Fn(&Judged) -> bool| -> Vec<String> {
        let list = judged.iter().filter(|one| fits(one));
        list.map(|one| format!("{} is {}: {}", one.name, one.verdict, one.reasons)).collect()
    };
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
    // Two are unknown on purpose: one checks what machine it is on and ends, the other needs a command that does not exist.
    let on_purpose = |line: &&String| line.starts_with("vm-check-ends.sh") || line.starts_with("missing-tool.sh");
    let by_mistake: Vec<&String> = unseen.iter().filter(|line| !on_purpose(line)).collect();
    assert!(by_mistake.len() * 20 <= run, "{by_mistake:#?}");
}

fn told(name: String, content: Vec<u8>, is_bad: bool, page: &Value) -> Judged {
    let reasons: Vec<&str> = page["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let verdict = page["verdict"].as_str().unwrap_or_default().to_owned();
    Judged { name, content, is_bad, verdict, reasons: reasons.join("; ") }
}

#[test]
fn a_script_for_node_runs_in_the_guest_that_has_it() {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest-node");
    let Some(guest) = guest.canonicalize().ok().filter(|guest| guest.join("root.squashfs").exists()) else {
        eprintln!("skipped: there is no guest with Node.js (`make guest NODE=1` builds it)");
        return;
    };
    let mut lab = Lab::of_guest(&guest, "[\"vm1 memory=512\"]", "", 100);
    lab.patience = PATIENCE;
    let _up = lab.site.up();
    // In the other tests, its interpreter is missing.
    let script = made::content("bad", "node.notrun");
    let page = with_children(&lab, &lab.submit("dropper", &script));
    assert!(["suspicious", "malicious"].contains(&page["verdict"].as_str().unwrap_or_default()), "{page:#}");
    assert!(page["reasons"].to_string().contains("runs-fetched"), "{page:#}");
}
