//! Runs the fuzz entry points on stable Rust: real dialogues and messages, mutated with a dictionary, from fixed seeds.
//!
//! The seeds and the dictionary are those of the coverage-guided run (`fuzz/seeds`, `fuzz/mail.dict`). A failure prints the run that
//! repeats it: `WEIR_FUZZ_TARGET` and `WEIR_FUZZ_RUN`. `WEIR_FUZZ_TIMES` multiplies the number of runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use weir_sim::rng::Rng;

/// Longer inputs find nothing new.
const LONGEST: usize = 4_000;

type Entry = fn(&[u8]);

/// The name, the entry point, and how many runs take about a second in a debug build.
const TARGETS: [(&str, Entry, u64); 13] = [
    ("session", |data| drop(weir_smtp::fuzz::session::session(data)), 40_000),
    ("reply", weir_smtp::fuzz::reply, 40_000),
    ("header", weir_mail::fuzz::header, 15_000),
    ("dkim", weir_smtp::fuzz::dkim, 20_000),
    ("address", weir_mail::fuzz::address, 60_000),
    ("relay", weir_smtp::fuzz::relay, 30_000),
    ("milter", weir_smtp::fuzz::doors::milter, 20_000),
    ("policy", weir_smtp::fuzz::doors::policy, 20_000),
    ("lab_wire", weir_lab::fuzz::wire, 20_000),
    ("past_mail", weir_replay::fuzz::read, 15_000),
    ("forward_auth", weir_web::fuzz::forward_auth, 40_000),
    ("identity_provider", weir_foundation::fuzz::identity_provider, 12_000),
    ("directory", weir_foundation::fuzz::directory, 40_000),
];

#[test]
fn seeded_mutations_of_everything_that_reads_from_outside() {
    let wanted = |name: &str| std::env::var(name).ok();
    let times = wanted("WEIR_FUZZ_TIMES").and_then(|n| n.parse::<u64>().ok()).unwrap_or(1);
    let words = dictionary();
    for (target, entry, runs) in TARGETS {
        if wanted("WEIR_FUZZ_TARGET").is_some_and(|only| only != target) {
            continue;
        }
        let (seeds, begun) = (seeds(target), std::time::Instant::now());
        let runs = match wanted("WEIR_FUZZ_RUN").and_then(|n| n.parse::<u64>().ok()) {
            Some(run) => run..run + 1,
            None => 0..runs * times,
        };
        let count = runs.end - runs.start;
        for run in runs {
            let input = mutated(&seeds, &words, run);
            if catch_unwind(AssertUnwindSafe(|| entry(&input))).is_err() {
                panic!(
                    "repeat with WEIR_FUZZ_TARGET={target} WEIR_FUZZ_RUN={run}: {:?}",
                    String::from_utf8_lossy(&input)
                );
            }
        }
        eprintln!("{target}: {count} inputs in {:.1} s", begun.elapsed().as_secs_f64());
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Sorted by name, so that a run is the same everywhere.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder().join("seeds").join(target)).expect("seeds");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a seed")).collect()
}

/// The words of the dictionary, in libFuzzer's notation.
fn dictionary() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(folder().join("mail.dict")).expect("a dictionary");
    text.lines().filter_map(|line| Some(unescaped(line.strip_prefix('"')?.strip_suffix('"')?))).collect()
}

fn unescaped(word: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("ASCII");
                out.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                rest = behind;
            }
            (b'\\', [literal, behind @ ..]) => {
                out.push(*literal);
                rest = behind;
            }
            _ => out.push(*first),
        }
    }
    out
}

fn mutated(seeds: &[Vec<u8>], words: &[Vec<u8>], run: u64) -> Vec<u8> {
    let mut rng = Rng::new(run);
    let mut input = rng.pick(seeds).clone();
    // The first runs use the seeds as they are.
    if let Some(seed) = usize::try_from(run).ok().and_then(|run| seeds.get(run)) {
        return seed.clone();
    }
    for _ in 0..1 + rng.below(12) {
        mutate(&mut input, seeds, words, &mut rng);
    }
    input.truncate(LONGEST);
    input
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(input.len() as u64 + 1) as usize;
    let length = rng.below(32) as usize;
    let end = (at + length).min(input.len());
    match rng.below(9) {
        0 => input.insert(at, rng.next_u64() as u8),
        1 if at < input.len() => input[at] ^= 1 << rng.below(8),
        2 => drop(input.drain(at..end)),
        3 | 4 => drop(input.splice(at..at, rng.pick(words).iter().copied())),
        5 => drop(input.splice(at..end, rng.pick(words).iter().copied())),
        6 => {
            // Repeat a piece somewhere else, perhaps many times.
            let times = if rng.chance(0.05) { 60 } else { 2 };
            let piece = input[at..end].repeat(1 + rng.below(times) as usize);
            let to = rng.below(input.len() as u64 + 1) as usize;
            drop(input.splice(to..to, piece));
        }
        7 => {
            // Append the end of another seed.
            let other = rng.pick(seeds);
            let from = rng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let long = [b'x', b'(', b'.', b' ', b'\r', b'<'][rng.below(6) as usize];
            drop(input.splice(at..at, std::iter::repeat_n(long, rng.below(1_200) as usize)));
        }
    }
}
