//! `make bench-core`: what one decision of each discipline costs, with a naive version beside it.
//!
//! Rounds of the variants are interleaved and medians taken: one round says little on a shared machine.
//! The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line. With names of disciplines
//! (`bench-core fair runq`) only those are measured.

#![allow(clippy::print_stdout)]

#[path = "../../crates/weir/src/allocator.rs"]
mod allocator;
mod fair;
mod runq;
mod table;
mod throttle;

use std::process::ExitCode;
use table::Table;

/// Its name, and what measures it.
type Discipline = (&'static str, fn(&mut Table));

const DISCIPLINES: [Discipline; 3] = [("throttle", throttle::run), ("runq", runq::run), ("fair", fair::run)];

fn main() -> ExitCode {
    allocator::take_back();
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| DISCIPLINES.iter().all(|(known, _)| known != name)) {
        eprintln!("error: no discipline is called {unknown:?}; there are throttle, runq and fair");
        return ExitCode::FAILURE;
    }
    let mut table = Table::default();
    for (name, run) in DISCIPLINES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&mut table);
        }
    }
    print!("{table}");
    ExitCode::SUCCESS
}
