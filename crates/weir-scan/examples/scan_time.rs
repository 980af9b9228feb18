//! How long one look at a message takes, in this process: `scan_time FILE…`. Without rules, with ours, and with each of ours alone.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};
use weir_scan::examine::{Examiner, Setup};
use weir_scan::yara::RuleFile;

/// As in the real binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    for path in std::env::args().skip(1) {
        let message = std::fs::read(&path).expect("a message");
        println!("{path}: {} bytes", message.len());
        println!("  {:>9.1} ms without rules", best(Vec::new(), &message));
        println!("  {:>9.1} ms with all rules", best(vec![RuleFile::embedded()], &message));
        if std::env::var_os("EACH").is_some() {
            for (name, rule) in rules(&RuleFile::embedded().text) {
                println!("  {:>9.1} ms with {name} alone", best(vec![rule], &message));
            }
        }
    }
}

/// The shortest of three.
fn best(rules: Vec<RuleFile>, message: &[u8]) -> f64 {
    let mut examiner = Examiner::new(Setup { rules, ..Setup::default() }).expect("rules that compile");
    let once = |_| {
        let begun = Instant::now();
        std::hint::black_box(examiner.examine(message));
        begun.elapsed()
    };
    (0..3).map(once).min().unwrap_or(Duration::ZERO).as_secs_f64() * 1000.0
}

/// Each rule of a file as a file of its own.
fn rules(text: &str) -> Vec<(String, RuleFile)> {
    let starts: Vec<usize> = text.match_indices("\nrule ").map(|(at, _)| at + 1).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let one = |(start, end): (usize, usize)| {
        let text = text[start..end].to_owned();
        let name = text[5..].split_whitespace().next().unwrap_or("").to_owned();
        (name, RuleFile { name: "weir".into(), text })
    };
    starts.iter().copied().zip(ends).map(one).collect()
}
