//! `make bench-core`: what one decision of each discipline costs, with a naive version beside it.
//!
//! Rounds of the variants are interleaved and medians taken: one round says little on a shared machine.
//! The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

mod fair;
mod runq;
mod table;
mod throttle;

fn main() {
    let mut table = table::Table::default();
    throttle::run(&mut table);
    runq::run(&mut table);
    fair::run(&mut table);
    print!("{table}");
}
