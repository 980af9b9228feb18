//! Our walk beside other readers of mail, over messages that real programs could have written and somebody has bent: every leaf that one
//! of them shows is one that we look at. `WEIR_READERS_SECONDS` goes on with new seeds for so long.

mod bent;
pub(crate) mod oracle;

use bent::Numbers;
use oracle::{Leaf, mail_parser_leaves, missing};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Messages that Python and Dovecot are shown at a time.
const BATCH: u64 = 400;

/// Messages that a failure shows.
const SHOWN: usize = 8;

fn told(seed: u64, reader: &str, leaf: &Leaf, message: &[u8]) -> String {
    let Leaf { name, content } = leaf;
    format!("== seed {seed}: {reader} shows {name:?} with {:?}, and we do not:\n{}", text(content), text(message))
}

fn text(message: &[u8]) -> String {
    String::from_utf8_lossy(message).replace('\r', "\\r").replace('\0', "\\0")
}

#[test]
#[ignore = "still finds leaves that the walk does not show"]
fn every_leaf_that_mail_parser_shows_is_looked_at() {
    let mut missed = Vec::new();
    for seed in 0..20_000 {
        let message = bent::message(&mut Numbers::new(seed));
        if let Some(leaf) = missing(&message, &mail_parser_leaves(&message)) {
            missed.push(told(seed, "mail-parser", leaf, &message));
        }
    }
    assert!(missed.is_empty(), "{} messages:\n{}", missed.len(), missed[..missed.len().min(SHOWN)].join("\n"));
}

#[derive(Deserialize)]
struct Shown {
    message: u64,
    reader: String,
    name: String,
    content: String,
}

#[test]
#[ignore = "still finds leaves that the walk does not show"]
fn every_leaf_that_python_and_dovecot_show_is_looked_at() {
    let seconds = std::env::var("WEIR_READERS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (begun, mut seed, mut leaves) = (Instant::now(), 0, 0);
    while seed == 0 || begun.elapsed() < Duration::from_secs(seconds) {
        let messages: Vec<Vec<u8>> = (seed..seed + BATCH).map(|seed| bent::message(&mut Numbers::new(seed))).collect();
        leaves += compared(&messages, seed);
        seed += BATCH;
    }
    println!("{seed} messages, {leaves} leaves of Python and Dovecot, none missed");
    assert!(leaves as u64 > seed, "the other readers showed next to nothing");
}

/// Compares one batch, and says how many leaves were shown.
fn compared(messages: &[Vec<u8>], seed: u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let configuration = mailbox(folder.path(), messages);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scan/readers/others.py");
    let output = Command::new("python3").arg(script).arg(folder.path()).arg(configuration).output();
    let output = output.expect("python3 runs: `make setup` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<Shown> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for reader in ["email", "email (default policy)", "Dovecot"] {
        assert!(shown.iter().any(|shown| shown.reader == reader), "{reader} showed nothing");
    }
    let mut missed = Vec::new();
    for leaf in &shown {
        let message = &messages[leaf.message as usize - 1];
        let content = leaf.content.chars().map(|c| c as u8).collect();
        let wanted = [Leaf { name: leaf.name.clone(), content }];
        if let Some(leaf_missed) = missing(message, &wanted) {
            missed.push(told(seed + leaf.message - 1, &leaf.reader, leaf_missed, message));
        }
    }
    assert!(missed.is_empty(), "{} leaves:\n{}", missed.len(), missed[..missed.len().min(SHOWN)].join("\n"));
    shown.len()
}

/// A mailbox of these messages that Dovecot reads, and its configuration.
fn mailbox(folder: &Path, messages: &[Vec<u8>]) -> std::path::PathBuf {
    for name in ["new", "cur", "tmp"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    for (number, message) in (1..).zip(messages) {
        std::fs::write(folder.join(format!("new/{number}.M{number}.h")), message).unwrap();
    }
    let opened = Command::new("chmod").args(["-R", "777"]).arg(folder).status();
    assert!(opened.is_ok_and(|status| status.success()));
    let configuration = folder.join("dovecot.conf");
    let text = format!(
        "base_dir = {0}/run\nlog_path = /dev/stderr\nmail_uid = nobody\nmail_gid = nogroup\nfirst_valid_uid = 1\nssl = no\nprotocols =\n",
        folder.display()
    );
    std::fs::write(&configuration, text).unwrap();
    configuration
}
