//! Our walk beside other readers of mail, over messages that real programs could have written and somebody has bent: every leaf that one
//! of them shows is one that we look at. `WEIR_READERS_MESSAGES` is how many, from the seed `WEIR_READERS_SEED` on.

mod bent;
pub(crate) mod oracle;

use bent::Numbers;
use oracle::{Leaf, mail_parser_leaves, missing};
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

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

/// The seeds to try: so many, unless the environment says otherwise.
fn seeds(usual: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("WEIR_READERS_SEED").unwrap_or(0);
    first..first + number("WEIR_READERS_MESSAGES").unwrap_or(usual)
}

#[test]
fn every_leaf_that_mail_parser_shows_is_looked_at() {
    let (mut missed, mut leaves) = (Vec::new(), 0);
    let seeds = seeds(2_000);
    for seed in seeds.clone() {
        let message = bent::message(&mut Numbers::new(seed));
        let shown = mail_parser_leaves(&message);
        leaves += shown.len();
        if let Some(leaf) = missing(&message, &shown) {
            missed.push(told(seed, "mail-parser", leaf, &message));
        }
    }
    println!("seeds {seeds:?}: {leaves} leaves of mail-parser, {} missed", missed.len());
    assert!(leaves as u64 > seeds.end - seeds.start, "mail-parser showed next to nothing");
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
fn every_leaf_that_python_shows_is_looked_at() {
    none_missed(&["email", "email (default policy)"]);
}

#[test]
fn every_leaf_that_dovecot_shows_is_looked_at() {
    none_missed(&["Dovecot"]);
}

/// Nobody shows anything else of a file that was cut on its way than what we look at, wherever in a group of letters it was cut: so it is not held.
/// Of these Dovecot decodes only the one that was cut between two groups; of the others it has the letters.
#[test]
fn what_readers_show_of_a_file_that_was_cut_is_looked_at() {
    let messages: Vec<Vec<u8>> = (32..36).map(crate::corpus::unopened::cut_short).collect();
    compared(&messages, 0, &["email", "email (default policy)", "Dovecot"]);
    for message in &messages {
        assert_eq!(missing(message, &mail_parser_leaves(message)), None);
        assert!(crate::mail::found(&crate::mail::examined(message)).is_empty());
    }
}

fn none_missed(readers: &[&str]) {
    let seeds = seeds(BATCH);
    let (mut leaves, mut first) = (0, seeds.start);
    while first < seeds.end {
        let batch = first..seeds.end.min(first + BATCH);
        let messages: Vec<Vec<u8>> = batch.clone().map(|seed| bent::message(&mut Numbers::new(seed))).collect();
        leaves += compared(&messages, first, readers);
        first = batch.end;
    }
    println!("seeds {seeds:?}: {leaves} leaves of {readers:?}, none missed");
    assert!(leaves as u64 > seeds.end - seeds.start, "the other readers showed next to nothing");
}

/// Compares one batch, and says how many leaves were shown.
fn compared(messages: &[Vec<u8>], seed: u64, readers: &[&str]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let configuration = mailbox(folder.path(), messages);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scan/readers/others.py");
    let output = Command::new("python3").arg(script).arg(folder.path()).arg(configuration).output();
    let output = output.expect("python3 runs: `make setup` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut shown: Vec<Shown> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    shown.retain(|shown| readers.contains(&shown.reader.as_str()));
    for reader in readers {
        assert!(shown.iter().any(|shown| shown.reader == *reader), "{reader} showed nothing");
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
