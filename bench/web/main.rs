//! `make bench-web`: Weir's web gate beside nginx and HAProxy.
//!
//! `bench-web WEIR [speed|attack] [--quick]`. Everything runs on this machine, on loopback: one nginx as the backend, wrk as the clients,
//! and the proxies between them in turn. Rounds are interleaved and medians taken. The last lines are `figure NAME VALUE` and
//! `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

mod attack;
mod client;
mod peers;
mod speed;
mod wrk;

use std::path::PathBuf;
use std::process::ExitCode;

/// What to run, and how long.
pub(crate) struct Plan {
    pub(crate) weir: PathBuf,
    pub(crate) quick: bool,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.iter().position(|word| word == "--quick").map(|at| words.remove(at)).is_some();
    let Some(weir) = words.first().map(PathBuf::from) else {
        eprintln!("usage: bench-web PATH-OF-WEIR [speed|attack] [--quick]");
        return ExitCode::FAILURE;
    };
    let plan = Plan { weir, quick };
    let part = words.get(1).map_or("all", String::as_str);
    let mut lines = Vec::new();
    let outcome = (|| {
        if part != "attack" {
            lines.extend(speed::run(&plan)?);
        }
        if part != "speed" {
            lines.extend(attack::run(&plan)?);
        }
        Ok::<(), std::io::Error>(())
    })();
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

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
