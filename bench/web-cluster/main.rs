//! `bench-web-cluster WEIR [--plot FILE.svg]`: several front-ends over real HTTP.
//!
//! The thesis's own test (its chapter 4), then bench (c): three front-ends, clients at one or several of them, totals against max-min
//! shares with no exchange, with a relay, with NATS, with a fifth of all frames lost, and after the kill of a front-end.
//! Front-ends, hitserver and NATS are processes; backends and clients live here. Clients are told apart by loopback addresses.

mod backend;
mod client;
mod cluster;
mod shares;
mod thesis;

use std::path::PathBuf;
use std::process::ExitCode;

/// What a bench needs: the binary, and where to draw.
pub(crate) struct Bench {
    pub(crate) weir: PathBuf,
    pub(crate) plot: Option<PathBuf>,
    pub(crate) only: Option<String>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match arguments().and_then(|bench| run(&bench)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-web-cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Bench, Failure> {
    let usage = "usage: bench-web-cluster WEIR [--plot FILE.svg] [--only thesis|shares]";
    let mut words = std::env::args().skip(1);
    let weir = words.next().ok_or(usage)?.into();
    let mut bench = Bench { weir, plot: None, only: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or(usage)?;
        match word.as_str() {
            "--plot" => bench.plot = Some(value.into()),
            "--only" => bench.only = Some(value),
            _ => return Err(usage.into()),
        }
    }
    Ok(bench)
}

fn run(bench: &Bench) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wanted = |name: &str| bench.only.as_deref().is_none_or(|only| only == name);
    let mut figures = Vec::new();
    if wanted("thesis") {
        runtime.block_on(thesis::run(bench, &mut figures))?;
    }
    if wanted("shares") {
        runtime.block_on(shares::run(bench, &mut figures))?;
    }
    let mut out = std::io::stdout().lock();
    for figure in figures {
        std::io::Write::write_all(&mut out, format!("{figure}\n").as_bytes())?;
    }
    Ok(())
}
