//! The rows that a benchmark prints, its closing figures, and how a cost is measured.

use std::fmt;
use std::time::Duration;

/// Rows for the reader, then figures for the machine.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<(String, f64, String)>,
    figures: Vec<String>,
}

impl Table {
    /// A row: what was measured, nanoseconds an operation, a remark.
    pub(crate) fn row(&mut self, what: impl Into<String>, nanos: f64, remark: impl Into<String>) {
        self.rows.push((what.into(), nanos, remark.into()));
    }

    /// A closing line `figure NAME VALUE`.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push(format!("figure {name} {value:.1}"));
    }

    /// A closing line `ratio NAME VALUE`.
    pub(crate) fn ratio(&mut self, name: &str, value: f64) {
        self.figures.push(format!("ratio {name} {value:.2}"));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<58} {:>10} {:>14}  remark", "operation", "ns each", "each second")?;
        for (what, nanos, remark) in &self.rows {
            writeln!(f, "{what:<58} {nanos:>10.1} {:>14.0}  {remark}", 1e9 / nanos)?;
        }
        self.figures.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Nanoseconds of processor time an operation of each variant: rounds interleaved, the median round of each.
pub(crate) fn interleaved(rounds: usize, operations: u64, variants: &mut [&mut dyn FnMut(u64)]) -> Vec<f64> {
    let mut nanos = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        for (variant, nanos) in variants.iter_mut().zip(&mut nanos) {
            let start = processor_time();
            variant(operations);
            nanos.push((processor_time() - start).as_nanos() as f64 / operations as f64);
        }
    }
    nanos.iter_mut().map(|round| median(round)).collect()
}

/// Time that this thread has had of a processor. What others take of a shared machine is not our cost.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
