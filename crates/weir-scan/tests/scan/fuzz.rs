//! The fuzz entries of this crate on stable: the seeds of `fuzz/seeds`, mutated from fixed numbers.
//!
//! A failure names the run that repeats it: `WEIR_FUZZ_RUN`. `WEIR_FUZZ_TIMES` multiplies the number of runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

type Entry = fn(&[u8]);

const TARGETS: [(&str, Entry, u64); 4] = [
    ("scan_message", weir_scan::fuzz::message, 10_000),
    ("scan_archive", weir_scan::fuzz::archive, 10_000),
    ("clamd", weir_scan::fuzz::clamd, 30_000),
    ("clamd_door", weir_scan::fuzz::clamd_door, 20_000),
];

#[test]
fn seeded_mutations_of_messages_archives_and_replies() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    for (target, entry, runs) in TARGETS {
        let seeds = seeds(target);
        let runs = match number("WEIR_FUZZ_RUN") {
            Some(run) => run..run + 1,
            None => 0..runs * number("WEIR_FUZZ_TIMES").unwrap_or(1),
        };
        for run in runs {
            let input = mutated(&seeds, run);
            let held = catch_unwind(AssertUnwindSafe(|| entry(&input)));
            assert!(held.is_ok(), "repeat {target} with WEIR_FUZZ_RUN={run}");
        }
    }
}

/// In order of name, so that a run is the same everywhere.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// SplitMix64: the same numbers for ever.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % most.max(1) as u64) as usize
    }
}

fn mutated(seeds: &[Vec<u8>], run: u64) -> Vec<u8> {
    let mut numbers = Numbers(run);
    let mut input = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..numbers.below(8) {
        let at = numbers.below(input.len() + 1);
        let end = (at + numbers.below(24)).min(input.len());
        match numbers.below(8) {
            0 => input.insert(at, numbers.below(256) as u8),
            1 | 2 if at < input.len() => input[at] ^= 1 << numbers.below(8),
            3 => drop(input.drain(at..end)),
            4 => {
                let piece = input[at..end].repeat(1 + numbers.below(40));
                drop(input.splice(at..at, piece));
            }
            5 => {
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len() + 1);
                drop(input.splice(at..end, other[from..].iter().copied()));
            }
            6 if at < input.len() => input[at] = [0, 0xff, 0x7f, 0x80, b'\n', b'-'][numbers.below(6)],
            _ => input.truncate(at.max(1)),
        }
    }
    input
}
