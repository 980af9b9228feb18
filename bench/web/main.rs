//! `make bench-web`: Weir's web gate beside nginx and HAProxy.
//!
//! `bench-web WEIR [speed|attack|doors|thesis|shares] [--quick] [--rows WORDS] [--only-weir] [--plot FILE.svg]`. Everything runs on this machine, on loopback: one nginx as the
//! backend, wrk as the clients, and the proxies between them in turn; then attacks, on the gate and on other proxies that ask it; then several front-ends. Rounds are interleaved and
//! medians taken. `--rows` plays only those rows of speed and attack whose names hold one of the words that commas separate, and `--only-weir` leaves the peers of the attack out. The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

mod attack;
mod client;
mod peers;
mod replicas;
mod speed;
mod wrk;

use std::path::PathBuf;
use std::process::ExitCode;

/// What to run, and how long.
pub(crate) struct Plan {
    pub(crate) weir: PathBuf,
    pub(crate) quick: bool,
    /// Whether the attacks are played to Weir alone.
    pub(crate) only_weir: bool,
    /// Parts of the names of the rows that are played; all if there are none.
    pub(crate) rows: Vec<String>,
    /// Where the thesis's figures are drawn.
    pub(crate) plot: Option<PathBuf>,
}

const USAGE: &str = "usage: bench-web PATH-OF-WEIR [speed|attack|doors|thesis|shares] [--quick] [--rows WORDS] [--only-weir] [--plot FILE.svg]";

impl Plan {
    /// Whether a row of this name is played.
    pub(crate) fn plays(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| row.contains(wanted))
    }
}

/// A part: its name, and what it does.
type Part = (&'static str, fn(&Plan) -> std::io::Result<Vec<String>>);

const PARTS: [Part; 5] = [
    ("thesis", replicas::thesis),
    ("speed", speed::run),
    ("attack", attack::run),
    ("doors", attack::run_doors),
    ("shares", replicas::shares),
];

fn main() -> ExitCode {
    let Some((plan, part)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut lines = Vec::new();
    let outcome =
        PARTS.iter().filter(|(name, _)| part.as_deref().is_none_or(|part| part == *name)).try_for_each(|(_, run)| {
            lines.extend(run(&plan)?);
            Ok::<(), std::io::Error>(())
        });
    if let Err(error) = outcome {
        eprintln!("bench-web: {error}");
        return ExitCode::FAILURE;
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn arguments() -> Option<(Plan, Option<String>)> {
    let mut words = std::env::args().skip(1);
    let mut plan = Plan { weir: words.next()?.into(), quick: false, only_weir: false, rows: Vec::new(), plot: None };
    let mut part = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => plan.quick = true,
            "--only-weir" => plan.only_weir = true,
            "--rows" => plan.rows = words.next()?.split(',').map(|word| word.trim().to_owned()).collect(),
            "--plot" => plan.plot = Some(words.next()?.into()),
            name if PARTS.iter().any(|(known, _)| *known == name) => part = Some(word),
            _ => return None,
        }
    }
    Some((plan, part))
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
